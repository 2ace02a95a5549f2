"""Alignment of the two lidars: the transform that maps the right lidar's points into the left lidar's frame.

`PlaneAlignment` is the method "planes", the default. It assumes that robot and scene stand still while the frames are
taken, and that the scene has flat surfaces, facing three ways, that both lidars see. Each assumption is checked on the
data: a result that they do not support comes with refusals that say why. docs/accuracy.md tells how
accurate it is.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from stretch_sim_cal.calibration.clouds import DirectionCells, FrameIntake
from stretch_sim_cal.calibration.coarse import coarse_alignment, coarse_covariance
from stretch_sim_cal.calibration.consistency import Views
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.findings import (
    disturbance,
    little_support,
    misfit,
    model_warnings,
    movement,
    overlap_refusals,
    unit_warnings,
    wrong_minimum,
)
from stretch_sim_cal.calibration.motion import Motion, motion_of
from stretch_sim_cal.calibration.noise import Noise
from stretch_sim_cal.calibration.observability import directions, unobserved
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.problem import (
    RIGHT,
    NormalEquations,
    Priors,
    Solution,
    Solver,
    State,
    Unknowns,
    first_units,
    sensor_numbers,
)
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.room import RoomBlock, remeasured_block, room_block, scale_of
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.surfaces import Lidar, Surface, without_body
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, check_rigid

# How far (m) the two lidars' surfaces may still be apart, after the coarse stage and in the passes that follow, and into
# how many shifted grids of patches they are cut: what a grid's borders do to the result is different in each.
PASSES = ((0.01, 1), (0.002, 1), (0.0, 2), (0.0, 2))
FIRST_NOISE = Noise(np.array([0.01, 0.01]), 0.001)
FIXED = np.zeros((6, 6))
# By so much (of -1 to 1) the views may agree worse than under the coarse transform; in rooms they do by 0.003 at most.
MUCH_WORSE = 0.02

COARSE_ONLY = Finding(
    "coarse_only", "the few small flat surfaces that both lidars see contradict the views as a whole, so the coarse registration "
    "is the result", "turn the robot or move it to where more walls are near, and take more frames",
)  # fmt: skip


class PlaneAlignment:
    """Closes the gaps between the planes that both lidars see."""

    name = "planes"
    takes_fields = True

    def __init__(self, initial_right_to_left: np.ndarray | None, settings: AlignmentSettings | None = None):
        """Start from the description's transform (4, 4), or from None where nothing is known."""
        self._settings = settings or AlignmentSettings()
        self._initial = (
            None if initial_right_to_left is None else check_rigid(initial_right_to_left, "initial right_to_left")
        )
        self._intake = FrameIntake(self._settings)
        self._places: list[tuple[DirectionCells, DirectionCells]] = []
        self.new_place()

    def new_place(self) -> None:
        """Begin with the frames of another standing place: the robot stands elsewhere or was turned. What both lidars see
        there is another scene; their poses to each other and their own errors are the same."""
        self._places.append((DirectionCells(self._settings.sensor), DirectionCells(self._settings.sensor)))

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Take one pair of clouds, each in its own lidar frame: points (N, 3), or structured arrays (N,) with x, y, z and
        perhaps ring and intensity. Raises `InputError` for anything else."""
        for cells, cloud in zip(self._places[-1], self._intake.admit(left, right), strict=True):
            if len(cloud):
                cells.add(cloud)

    def solve(self) -> AlignmentResult:
        """Return the alignment. Raises `InputError` where a lidar gave nothing at all."""
        for number, place in enumerate(self._places, start=1):
            where = "" if len(self._places) == 1 else f" of standing place {number}"
            for cells, side in zip(place, SIDES, strict=True):
                if not cells.num_frames:
                    raise InputError(
                        f"no usable return of the {side} lidar in any frame{where}; is it running, and in view of anything?"
                    )
        by_side = (Lidar.of_places(seen, side) for side, seen in enumerate(zip(*self._places, strict=True)))
        places = list(zip(*by_side, strict=True))
        estimate = coarse_alignment(*(lidar.surface for lidar in places[0]), self._initial, self._settings)
        views = [self._without_body(lidars, estimate) for lidars in places]
        # Only what both lidars see says how they stand to each other.
        places = [
            tuple(
                Lidar(surface, lidar.model).only(confirmed)
                for surface, lidar, confirmed in zip(view, lidars, Views(*view).shared(estimate), strict=True)
            )
            for view, lidars in zip(views, places, strict=True)
        ]
        # All poses are in the left lidar's frame, which stays where it is; so the places' scenes have nothing in common.
        unknowns, known = Unknowns(tuple(lidar.model for lidar in places[0])), self._settings.units
        state = coarse = State((np.eye(4), estimate), first_units(unknowns.models, known))
        solver = Solver(unknowns, Priors(state, left=FIXED, units_known=known is not None))
        noises = [FIRST_NOISE] * len(places)
        for slack, grids in PASSES:
            blocks = [
                room_block(lidars, state, noise, slack, grids) for lidars, noise in zip(places, noises, strict=True)
            ]
            equations = NormalEquations.empty(unknowns.size)
            for block, lidars in zip(blocks, places, strict=True):
                block.add_to(equations, unknowns, lidars)
            solution = solver.solve(equations, state, sum(block.information_by_chance() for block in blocks))
            before = state
            state = solver.decided(unknowns.moved(state, solution.change), solution)
            noises = [block.noise for block in blocks]
        fallback, whole = None, Views(*views[0])
        if whole.under(state.left_from_right).score < whole.under(estimate).score - MUCH_WORSE:
            # Too few small surfaces fit: they must not lead away from what the whole views say.
            state, fallback = coarse, coarse_covariance(*views[0], estimate, self._settings)
        seen = [
            self._evidence(view, remeasured_block(lidars, state, block, None))
            for view, lidars, block in zip(views, places, blocks, strict=True)
        ]
        evidence = Evidence(seen, self._initial, solution, unknowns, fallback)
        result = judged(self.name, evidence, self._intake, self._settings)
        if fallback is not None:
            return result
        observations = Observations.of(
            equations.weighing(evidence.scale**-2), unknowns, before, state, evidence.covariance
        )
        return replace(result, observations=replace(observations, patches=seen[0].last.seen()))

    def _without_body(self, lidars: tuple[Lidar, Lidar], estimate: np.ndarray) -> tuple[Surface, Surface]:
        """Return what both lidars see, the robot's own body marked as not usable if it is known where the left lidar is."""
        left, right = (lidar.surface for lidar in lidars)
        if self._settings.base_from_left is None:
            return left, right
        return (
            without_body(left, self._settings.base_from_left, self._settings),
            without_body(right, self._settings.base_from_left @ estimate, self._settings),
        )

    @staticmethod
    def _evidence(view: tuple[Surface, Surface], last: RoomBlock) -> "PlaceEvidence":
        patches, members, fits = last.flat
        motion = motion_of(last.surface, patches, members.each_cell_once(), fits, last.noise)
        return PlaceEvidence(*view, last, motion)


@dataclass(frozen=True)
class PlaceEvidence:
    """What was seen from one standing place: both views, the patches at the estimate, and the motion."""

    left: Surface
    right: Surface
    last: RoomBlock
    motion: Motion

    @property
    def disturbed(self) -> float:
        """The share of the view that saw something else for a while."""
        return float(np.mean(np.concatenate([self.left.disturbed, self.right.disturbed]) > 0))


@dataclass(frozen=True)
class Evidence:
    """What there is to check: that of every standing place, the description's transform, the solution that led to the
    estimate, and the `coarse_covariance` (6, 6) if the estimate is the coarse one, since the patches contradict the views."""

    places: list[PlaceEvidence]
    initial: np.ndarray | None
    solution: Solution
    unknowns: Unknowns
    coarse_covariance: np.ndarray | None = None

    @property
    def blocks(self) -> list[RoomBlock]:
        """The patches at the estimate, by place."""
        return [place.last for place in self.places]

    @property
    def estimate(self) -> np.ndarray:
        """The transform (4, 4) that maps the right lidar's points into the left lidar's frame."""
        return self.blocks[0].state.left_from_right

    @property
    def scale(self) -> float:
        """How many times larger than expected the gaps are; at least 1."""
        return scale_of(self.blocks)

    @property
    def rmse(self) -> float:
        """The root mean square gap (m) between the two lidars' surfaces."""
        squares = np.concatenate([block.gaps.values[block.weights > 0] ** 2 for block in self.blocks])
        return float(np.sqrt(squares.mean())) if len(squares) else float("inf")

    @property
    def covariance(self) -> np.ndarray:
        """The covariance (6, 6) of the estimate; larger than the solution's by as much as the gaps are."""
        if self.coarse_covariance is not None:
            return self.coarse_covariance
        return self.solution.covariance[RIGHT, RIGHT] * self.scale**2

    def in_each(self, check: Callable[[PlaceEvidence], list[Finding]]) -> list[Finding]:
        """Return the findings of a check of every place; of several places each says which it is of."""
        if len(self.places) == 1:
            return check(self.places[0])
        return [said.at(f"standing place {n}") for n, place in enumerate(self.places, start=1) for said in check(place)]


def judged(method: str, evidence: Evidence, intake: FrameIntake, settings: AlignmentSettings) -> AlignmentResult:
    """Return the result with its covariance, and with the reasons there are to refuse it.

    Where robot or scene moved, and under a wrong transform, nothing else is what it seems: what they seem to lack besides
    is not told.
    """
    views = [Views(place.left, place.right).under(evidence.estimate) for place in evidence.places]
    view_of = {id(place): view for place, view in zip(evidence.places, views, strict=True)}
    first, blocks, scale, covariance = evidence.blocks[0], evidence.blocks, evidence.scale, evidence.covariance
    found = directions(covariance, settings.base_from_left, settings.max_std_translation, settings.max_std_rotation)
    disturbed = max(place.disturbed for place in evidence.places)
    coarse = evidence.coarse_covariance is not None
    refusals = evidence.in_each(
        lambda place: movement(place.motion, place.disturbed, place.last.num_used)
    ) + evidence.in_each(lambda place: wrong_minimum(view_of[id(place)])) or evidence.in_each(
        lambda place: overlap_refusals(view_of[id(place)], place.last.num_used)
    )
    if not refusals and coarse:
        refusals = unobserved(found)
    elif not refusals:
        refusals = (unobserved(found) or little_support(blocks, covariance, settings)) + misfit(scale, evidence.rmse)
    numbers = {} if coarse else sensor_numbers(evidence.unknowns, first.state, evidence.solution)
    # An estimate that is refused tells nothing about the model.
    against_model = [] if refusals else model_warnings(evidence.initial, evidence.estimate, settings)
    return AlignmentResult(
        right_to_left=evidence.estimate, covariance=covariance, rmse=evidence.rmse, num_frames=intake.num_frames, method=method,
        overlap=min(float(view.overlap) for view in views), directions=found,
        warnings=intake.warnings() + against_model + disturbance(disturbed) + [COARSE_ONLY] * coarse
        + unit_warnings(numbers, settings.sensor),
        refusals=refusals,
        diagnostics={
            "patches": sum(len(block.flat[0].centres) / block.grids for block in blocks),
            "patches_used": sum(block.num_used for block in blocks), "places": len(blocks),
            "range_noise_left": float(first.noise.sigma[0]), "range_noise_right": float(first.noise.sigma[1]),
            "roughness": float(first.noise.roughness),
            "gap_scale": scale,
            "agree": min(float(view.agree) for view in views),
            "contradict": max(float(view.contradict) for view in views),
            "motion": max(place.motion.translation for place in evidence.places),
            "motion_rotation": max(place.motion.rotation for place in evidence.places), "disturbed": disturbed,
        } | numbers,
    )  # fmt: skip
