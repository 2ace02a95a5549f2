"""Alignment of the two lidars: the transform that maps the right lidar's points into the left lidar's frame.

`PlaneAlignment` is the method "planes", the default. It assumes that robot and scene stand still while the frames are
taken, and that the scene has flat surfaces, facing three ways, that both lidars see. Each assumption is checked on the
data: a result that they do not support comes with refusals and their reasons. Its
accuracy: docs/accuracy.md.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.alignment.another_place import AnotherPlace, after_turning
from stretch_sim_cal.calibration.alignment.second_opinion import second_opinion
from stretch_sim_cal.calibration.cloud_frames import covariance_of_frames, wrong_rotor_angles
from stretch_sim_cal.calibration.clouds import DirectionCells, FrameIntake
from stretch_sim_cal.calibration.coarse import Gaps, coarse_alignment, credible
from stretch_sim_cal.calibration.consistency import Consistency, Views, seen_by_both
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.findings import (
    COARSE_ONLY,
    another_opinion,
    dissenting,
    distorted,
    disturbance,
    large_residuals,
    little_support,
    mirrored,
    model_findings,
    movement,
    overlap_refusals,
    unit_warnings,
    wrong_minimum,
)
from stretch_sim_cal.calibration.motion import Motion, motion_of
from stretch_sim_cal.calibration.noise import Noise
from stretch_sim_cal.calibration.observability import directions, unobserved
from stretch_sim_cal.calibration.observations import TORN, Observations
from stretch_sim_cal.calibration.problem import (
    FIXED,
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
from stretch_sim_cal.calibration.surfaces import Lidar, Surface, in_base, mirrored_surface
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import SIDES, check_rigid, exp
from stretch_sim_cal.sensor.sensor import Sensors, by_side

# How far (m) the two lidars' surfaces may still be apart, after the coarse stage and in the passes that follow, and
# into how many shifted grids of patches they are cut: the bias by a grid's borders is different in each.
PASSES = ((0.01, 1), (0.002, 1), (0.0, 2), (0.0, 2))
FIRST_NOISE = Noise(np.array([0.01, 0.01]), 0.001)
# By so much (of -1 to 1) the views may agree worse than under the coarse transform; in rooms they do by 0.003 at most.
MUCH_WORSE = 0.02
# What a driver or a converter may do to a cloud that no mount does: y turned round, x and y exchanged.
MIRRORS = (np.diag([1.0, -1.0, 1.0]), np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))


class PlaneAlignment:
    """Closes the gaps between the planes that both lidars see."""

    name = "planes"
    takes_fields = True

    def __init__(self, initial_right_to_left: np.ndarray | None, settings: AlignmentSettings | None = None):
        """Start from the description's transform (4, 4), or from None if nothing is known."""
        self._settings = settings or AlignmentSettings()
        self._initial = (
            None if initial_right_to_left is None else check_rigid(initial_right_to_left, "initial right_to_left")
        )
        self._intake = FrameIntake(self._settings)
        self._places: list[tuple[DirectionCells, DirectionCells]] = []
        self._solved: tuple[tuple[Lidar, Lidar], JointEstimate, Solver] | None = None
        self._scale = 1.0
        self.new_place()

    def new_place(self) -> None:
        """Begin with the frames of another standing place: the robot stands elsewhere or was turned. What both lidars
        see there is another scene; their poses to each other and their own errors are the same."""
        self._places.append(tuple(map(DirectionCells, by_side(self._settings.sensor))))

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Take one pair of clouds, each in its own lidar frame: points (N, 3), or structured arrays (N,) with x, y, z
        and perhaps ring and intensity. Raises `InputError` for anything else."""
        for cells, cloud in zip(self._places[-1], self._intake.admit(left, right), strict=True):
            if len(cloud):
                cells.add(cloud)

    def save_places(self, path: Path) -> None:
        """Keep what was seen of all standing places in a file, so that further ones can be added later."""
        arrays = {
            f"{number}_{side}_{name}": value
            for number, place in enumerate(self._places)
            for side, cells in zip(SIDES, place, strict=True)
            for name, value in cells.arrays().items()
        }
        write_atomic(path, lambda stream: np.savez_compressed(stream, places=len(self._places), **arrays))

    def load_places(self, path: Path) -> None:
        """Begin with the standing places that a file keeps; the frames to come are of a further one.

        Raises `InputError` if it is torn, or of other lidars.
        """
        sensors = by_side(self._settings.sensor)
        try:
            with np.load(path, allow_pickle=False) as data:
                self._places = [
                    tuple(
                        DirectionCells.of_arrays(_only(data, f"{number}_{side}_"), sensor)
                        for side, sensor in zip(SIDES, sensors, strict=True)
                    )
                    for number in range(int(data["places"]))
                ]
        except (InputError, *TORN) as problem:
            raise InputError(f"{path}: holds no standing places that can be added to ({problem})") from problem
        self._intake.num_frames = sum(max(cells.num_frames for cells in place) for place in self._places)
        self.new_place()

    def solve(self) -> AlignmentResult:
        """Return the alignment. Raises `InputError` if a lidar gave no return at all."""
        for number, place in enumerate(self._places, start=1):
            where = "" if len(self._places) == 1 else f" of standing place {number}"
            for cells, side in zip(place, SIDES, strict=True):
                if not cells.num_frames:
                    raise InputError(
                        f"no usable return of the {side} lidar in any frame{where}; is it "
                        "running, and in view of anything?"
                    )
        by_side = (Lidar.of_places(seen, side) for side, seen in enumerate(zip(*self._places, strict=True)))
        places = list(zip(*by_side, strict=True))
        guess = coarse_alignment(*(lidar.surface for lidar in places[0]), self._initial, self._settings)
        # Only what both lidars see determines their poses to each other.
        views, places = zip(*(seen_by_both(lidars, guess, self._settings) for lidars in places), strict=True)
        # All poses are in the left lidar's frame, which stays where it is; so the places' scenes have nothing in
        # common.
        unknowns, known = Unknowns(tuple(lidar.model for lidar in places[0])), self._settings.units
        coarse = State((np.eye(4), guess), first_units(unknowns.models, known))
        solver = Solver(unknowns, Priors(coarse, FIXED, units_known=known is not None))
        first = second_opinion(in_base(places[0], coarse))
        found = estimate_jointly(places, coarse if known is not None else first.start(coarse), solver)
        state, fallback, whole = found.state, None, Views(*views[0])
        gaps = Gaps(*views[0])
        worse = gaps.under(state.left_from_right) > gaps.under(guess)
        if worse and whole.under(state.left_from_right).score < whole.under(guess).score - MUCH_WORSE:
            # Too few small surfaces fit: they must not lead away from the views as a whole.
            other = exp(first.twist) @ guess
            state, fallback = coarse, first.covariance + np.outer(first.twist, first.twist)
            if gaps.under(other) < gaps.under(guess):
                state, fallback = replace(coarse, base_from_lidar=(np.eye(4), other)), first.covariance
        seen = [
            PlaceEvidence.of(view, remeasured_block(lidars, state, block, None))
            for view, lidars, block in zip(views, places, found.blocks, strict=True)
        ]
        evidence = Evidence(seen, self._initial, found.solution, unknowns, self._settings.sensor, fallback)
        result = judged(self.name, evidence, self._intake, self._settings)
        if fallback is not None:
            return result
        self._solved, self._scale = (places[0], found, solver), evidence.scale
        observations = Observations.of(
            found.equations.weighing(evidence.scale**-2), unknowns, found.blocks[0].state, state, evidence.covariance
        )
        return replace(result, observations=replace(observations, patches=seen[0].last.seen()))

    def information_by_chance(self) -> np.ndarray | None:
        """Return how much of the information (6, 6) that the observations of what was solved have about the transform
        is noise; None if there are none."""
        if self._solved is None:
            return None
        blocks = self._solved[1].blocks
        return sum(block.information_by_chance() for block in blocks) * self._scale**-2

    def another_place(self) -> AnotherPlace | None:
        """Return what a further standing place, the robot turned on the spot, would gain on what was solved;
        None if that cannot be told."""
        if self._solved is None or self._settings.base_from_left is None:
            return None
        lidars, found, solver = self._solved
        by_chance = sum(block.information_by_chance() for block in found.blocks)
        return after_turning(
            lidars, found.blocks[0], found.equations, by_chance, solver, found.solution, self._settings.base_from_left
        )


def _only(data: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with `prefix`, by what follows it."""
    return {name.removeprefix(prefix): data[name] for name in data if name.startswith(prefix)}


@dataclass(frozen=True)
class JointEstimate:
    """The `state` after the last pass, and its `solution` with the `equations` and the `blocks` (by place) that gave
    it."""

    state: State
    solution: Solution
    equations: NormalEquations
    blocks: list[RoomBlock]


def estimate_jointly(places: Sequence[tuple[Lidar, Lidar]], state: State, solver: Solver) -> JointEstimate:
    """Return the estimate, from a first state, by the patches of the rooms that both lidars see from all standing
    places."""
    unknowns, noises = solver.unknowns, [FIRST_NOISE] * len(places)
    for slack, grids in PASSES:
        blocks = [room_block(lidars, state, noise, slack, grids) for lidars, noise in zip(places, noises, strict=True)]
        equations = NormalEquations.empty(unknowns.size)
        for block, lidars in zip(blocks, places, strict=True):
            block.add_to(equations, unknowns, lidars)
        solution = solver.solve(equations, state, sum(block.information_by_chance() for block in blocks))
        state = solver.decided(unknowns.moved(state, solution.change), solution)
        noises = [block.noise for block in blocks]
    return JointEstimate(state, solution, equations, blocks)


@dataclass(frozen=True)
class PlaceEvidence:
    """The evidence of one standing place: both views, the patches at the estimate, and the motion."""

    left: Surface
    right: Surface
    last: RoomBlock
    motion: Motion

    @classmethod
    def of(cls, view: tuple[Surface, Surface], last: RoomBlock) -> "PlaceEvidence":
        """Return the evidence of both views and of the patches at the estimate."""
        return cls(*view, last, motion_of(last.surface, last.flat, last.noise))

    @cached_property
    def consistency(self) -> Consistency:
        """How well both views agree under the estimate."""
        return Views(self.left, self.right).under(self.last.state.left_from_right)

    def another_opinion(self, covariance: np.ndarray) -> list[Finding]:
        """Return what another method says of the estimate with a covariance (6, 6)."""
        opinion = second_opinion(self.last.surface)
        return another_opinion(opinion.twist, opinion.chi_square(covariance))

    def mirrored(self, initial: np.ndarray | None) -> tuple[str, ...]:
        """Return which lidars' clouds agree with the other's under the description's transform (4, 4) once they are
        mirrored, ("left",), ("right",) or both; none if they do as they are, or without a description."""
        if initial is None or credible(Views(self.left, self.right).under(initial)):
            return ()
        for sides in (("left",), ("right",), SIDES):
            for mirror in MIRRORS:
                views = (
                    mirrored_surface(own, mirror) if side in sides else own
                    for side, own in zip(SIDES, (self.left, self.right), strict=True)
                )
                if credible(Views(*views).under(initial)):
                    return sides
        return ()

    @property
    def disturbed(self) -> float:
        """The share of the view that saw something else for a while."""
        return float(np.mean(np.concatenate([self.left.disturbed, self.right.disturbed]) > 0))


@dataclass(frozen=True)
class Evidence:
    """All that is checked: the evidence of every standing place, the description's transform, the solution that led to
    the estimate, and the `coarse_covariance` (6, 6) if the estimate is the coarse one, since the patches contradict the
    views."""

    places: list[PlaceEvidence]
    initial: np.ndarray | None
    solution: Solution
    unknowns: Unknowns
    sensor: Sensors
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
        """The covariance (6, 6) of the estimate; larger than the solution's by as much as the gaps are, and by what a
        lidar moved, and by where the frames of clouds of unknown lidars are."""
        if self.coarse_covariance is not None:
            return self.coarse_covariance
        moved = sum(place.motion.covariance for place in self.places) / len(self.places)
        frames = covariance_of_frames((np.eye(4), self.estimate), self.numbers, by_side(self.sensor), SIDES)
        between = np.hstack([-np.eye(6), np.eye(6)])
        return self.solution.covariance[RIGHT, RIGHT] * self.scale**2 + moved + between @ frames @ between.T

    @cached_property
    def numbers(self) -> dict[str, float]:
        """What was found of the lidars' own errors; nothing by the coarse estimate."""
        if self.coarse_covariance is not None:
            return {}
        return sensor_numbers(self.unknowns, self.blocks[0].state, self.solution)

    def in_each(self, check: Callable[[PlaceEvidence], list[Finding]]) -> list[Finding]:
        """Return the findings of a check of every place; with several places each names its place."""
        if len(self.places) == 1:
            return check(self.places[0])
        return [said.at(f"standing place {n}") for n, place in enumerate(self.places, start=1) for said in check(place)]


def judged(method: str, evidence: Evidence, intake: FrameIntake, settings: AlignmentSettings) -> AlignmentResult:
    """Return the result with its covariance, and with the reasons there are to refuse it.

    If robot or scene moved, or the transform is wrong, all other checks are misled: they are left out.
    """
    views = [place.consistency for place in evidence.places]
    first, blocks, scale, covariance = evidence.blocks[0], evidence.blocks, evidence.scale, evidence.covariance
    numbers = evidence.numbers
    found = directions(covariance, settings.base_from_left, settings.max_std_translation, settings.max_std_rotation)
    disturbed = max(place.disturbed for place in evidence.places)
    coarse = evidence.coarse_covariance is not None
    refusals = evidence.in_each(lambda place: movement(place.motion, place.disturbed, place.last.num_used))
    near = evidence.initial is not None and not any(model_findings(evidence.initial, evidence.estimate, settings))
    refusals += evidence.in_each(lambda place: wrong_minimum(place.consistency, near))
    refusals = refusals or evidence.in_each(lambda place: overlap_refusals(place.consistency, place.last.num_used))
    if not refusals and coarse:
        refusals = [COARSE_ONLY, *unobserved(found)]
    elif not refusals:
        refusals = (unobserved(found) or little_support(blocks, covariance, settings)) + large_residuals(
            scale, evidence.rmse
        )
        refusals += evidence.in_each(lambda place: dissenting(place.last))
    # A refused estimate is no reason to doubt the model, but mirrored clouds are one to refuse any.
    refusals = refusals or distorted(wrong_rotor_angles((np.eye(4), evidence.estimate), numbers, SIDES))
    other_robot, against_model = model_findings(evidence.initial, evidence.estimate, settings)
    against_model = [] if refusals else against_model
    refusals = refusals or other_robot or evidence.in_each(lambda place: place.another_opinion(covariance))
    if {"contradicting_views", "far_from_description", "swapped", "little_overlap"} & {
        found.code for found in refusals
    }:
        refusals = evidence.in_each(lambda place: mirrored(place.mirrored(evidence.initial))) or refusals
    return AlignmentResult(
        right_to_left=evidence.estimate, covariance=covariance, rmse=evidence.rmse, num_frames=intake.num_frames,
        method=method,
        overlap=min(float(view.overlap) for view in views), directions=found,
        warnings=intake.warnings() + against_model + disturbance(disturbed) + unit_warnings(numbers, settings.sensor),
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
