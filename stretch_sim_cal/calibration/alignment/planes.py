"""Alignment of lidars: the transforms between them, from what they see in common.

`RoomAlignment` takes any number of lidars; `PlaneAlignment`, the method "planes", the default, two. It assumes that
robot and scene stand still while the frames are taken, and that the scene has flat surfaces in three directions that
two lidars see. Each assumption is checked on the data: a result that is not supported comes with refusals and their
reasons. Its accuracy: docs/accuracy.md.

All poses are in the first lidar's frame, which is fixed, so the scenes of several standing places are independent. All
pairs of lidars are aligned coarsely by their views (`coarse.py`); the pairs that agree tie the lidars together. The
estimate is one problem over all of them.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration import findings
from stretch_sim_cal.calibration.alignment.evidence import Evidence, PlaceEvidence, checked
from stretch_sim_cal.calibration.alignment.joint_estimate import (
    SAME_WITHIN,
    AnotherPlace,
    JointEstimate,
    after_turning,
    estimate_jointly,
    leave_one_place_out,
    leave_one_surface_out,
    pose_change,
)
from stretch_sim_cal.calibration.alignment.second_opinion import SecondOpinion, second_opinion
from stretch_sim_cal.calibration.alignment.ties import Pair, Ties, coarse_ties, started
from stretch_sim_cal.calibration.clouds import DirectionCells, FrameIntake
from stretch_sim_cal.calibration.coarse import SurfaceDistances
from stretch_sim_cal.calibration.consistency import View, Views, between, seen_by_another
from stretch_sim_cal.calibration.motion import motion_of
from stretch_sim_cal.calibration.observations import Observations, are_of
from stretch_sim_cal.calibration.problem import State, Unknowns
from stretch_sim_cal.calibration.results import AlignmentResult, LidarPoses
from stretch_sim_cal.calibration.room import remeasured_block
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.solver import Solver
from stretch_sim_cal.calibration.surfaces import Lidar, in_base
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import BROKEN_ARRAYS, write_atomic
from stretch_sim_cal.geometry.transforms import SIDES, check_rigid
from stretch_sim_cal.sensor.sensor import for_each

# The agreement of the views (-1 to 1) may be lower than under the coarse transform by this; in rooms it is by 0.003 at
# most; by the second one if the estimate is so unsure that it includes that transform (domes: up to 0.04).
MUCH_WORSE, FAR_WORSE = 0.02, 0.1
# The surfaces may be further apart than under the coarse transform by this factor if few are flat; on real recordings
# they are by 1.014 at most.
FURTHER_APART = 1.1
TO_LEFT = "to_left_"  # in a file of standing places: before the name of a lidar


class RoomAlignment:
    """Closes the gaps between the surfaces that lidars see in common."""

    name = "planes"

    def __init__(
        self, initial: Sequence[np.ndarray | None], settings: AlignmentSettings | None = None,
        names: Sequence[str] = SIDES,
    ):  # fmt: skip
        """Start from the description's poses (4, 4) of the lidars in the first one's frame, or from None if nothing is
        known; `settings.base_from_left` is the first one's pose in base_link."""
        self._settings, self._names = settings or AlignmentSettings(), names
        self._initial = [
            None if pose is None else check_rigid(pose, f"initial {name}_to_{names[0]}")
            for name, pose in zip(names, initial, strict=True)
        ]
        self._intake = FrameIntake(names)
        self._sensors = for_each(self._settings.sensor, len(names))
        self._places: list[tuple[DirectionCells, ...]] = []
        self._solved: tuple[tuple[Lidar, ...], JointEstimate, Solver, np.ndarray] | None = None
        self.new_place()

    def new_place(self) -> None:
        """Begin with the frames of another standing place: the robot stands elsewhere or was turned. The lidars see
        another scene there; their relative poses and errors are the same."""
        self._places.append(DirectionCells.of_views(self._sensors))

    def add(self, *clouds: np.ndarray) -> None:
        """Take one cloud of each lidar, each in its own frame: points (N, 3), or structured arrays (N,) with x, y, z
        and perhaps ring and intensity. Raises `InputError` for anything else."""
        self._intake.add_to(self._places[-1], clouds)

    def save_places(self, path: Path, to_left: Mapping[str, np.ndarray] | None = None) -> None:
        """Write the cells of all standing places to a file, so that further places can be added later, with what the
        calibration file says of the lidars now: their poses `to_left` (4, 4) by name."""
        arrays = {
            f"{number}_{lidar}_{name}": value
            for number, place in enumerate(self._places)
            for lidar, cells in zip(self._names, place, strict=True)
            for name, value in cells.arrays().items()
        }
        arrays |= {f"{TO_LEFT}{name}": pose for name, pose in (to_left or {}).items()}
        write_atomic(path, lambda stream: np.savez_compressed(stream, places=len(self._places), **arrays))

    def load_places(self, path: Path, to_left: Mapping[str, np.ndarray] | None = None) -> None:
        """Begin with the standing places in a file; the frames to come are of a further one.

        Raises `InputError` if it is truncated, of other lidars, or if the calibration file, which has `to_left`,
        changed since then: a mount may have been, too.
        """
        try:
            with np.load(path, allow_pickle=False) as data:
                then = {name.removeprefix(TO_LEFT): data[name] for name in data if name.startswith(TO_LEFT)}
                self._places = [
                    tuple(
                        DirectionCells.of_arrays(data, f"{number}_{lidar}_", sensor)
                        for lidar, sensor in zip(self._names, self._sensors, strict=True)
                    )
                    for number in range(int(data["places"]))
                ]
        except (InputError, *BROKEN_ARRAYS) as problem:
            raise InputError(f"{path}: contains no standing places to add to ({problem})") from problem
        now = to_left or {}
        if then.keys() != now.keys() or not are_of(now, then):
            raise InputError(
                f"{path}: contains standing places of another calibration than the present one; begin with a first one "
                "(without --another-place)"
            )
        self._intake.num_frames = sum(max(cells.num_frames for cells in place) for place in self._places)
        self.new_place()

    def another_place(self) -> AnotherPlace | None:
        """Return the gain of a further standing place, with the robot turned on the spot, for the solved transform of
        two lidars; None if it is unknown."""
        if self._solved is None or self._settings.base_from_left is None or len(self._names) > len(SIDES):
            return None
        return after_turning(*self._solved, self._settings.base_from_left)

    def aligned(self) -> LidarPoses:
        """Return the lidars' poses in the first one's frame. Raises `InputError` if one gave no return at all, or if
        all clouds of a standing place are those of earlier ones."""
        for number, place in enumerate(self._places[1:], start=2):
            if any(self._intake.repeated) and not any(cells.num_frames for cells in place):
                raise InputError(
                    f"clouds: all of standing place {number} have been given before; give each recording once"
                )
        places = Lidar.of_places(self._places, self._names)
        ties = coarse_ties([lidar.surface for lidar in places[0]], self._initial, self._settings, self._names)
        while True:
            evidence, estimate = self._estimated(places, ties)
            # Pairs that do not fit are left out if others relate the two lidars.
            unfit = evidence.unfit_pairs() if len(self._names) > len(SIDES) else {}
            if not unfit:
                break
            ties = ties.without(unfit)
        result = checked(evidence, self._intake, self._settings)
        if evidence.coarse_covariance is not None:
            return result
        observations = Observations.of(
            estimate.equations.weighing(evidence.inflation**-2), evidence.unknowns, estimate.blocks[0].state,
            evidence.blocks[0].state, evidence.covariance, evidence.covariance - evidence.of_solution,
        )  # fmt: skip
        return replace(result, observations=replace(observations, patches=evidence.blocks[0].seen()))

    def _estimated(self, places: Sequence[tuple[Lidar, ...]], ties: Ties) -> tuple[Evidence, JointEstimate]:
        """Return the evidence for the estimate by the views of the pairs that tie the lidars, and the estimate."""
        settings = self._settings
        # Only surfaces that two lidars see determine their relative poses.
        views, places = zip(
            *(seen_by_another(lidars, ties.poses, ties.pairs, settings) for lidars in places), strict=True
        )
        unknowns, known = Unknowns(tuple(lidar.model for lidar in places[0]), by_surface=True), settings.units
        solver, coarse = Solver.starting(unknowns, ties.poses, units=known)
        surface = in_base(places[0], coarse)
        opinions = {pair: second_opinion(surface, pair) for pair in ties.pairs}
        first = coarse if known is not None else started(coarse, opinions, ties, unknowns.models)
        estimate = estimate_jointly(places, first, solver)
        covariance = estimate.solution.covariance_of(unknowns.free_poses)
        state, fallback, worse = self._against_views(views[0], estimate, covariance, coarse, opinions, ties)
        blocks = itertools.starmap(remeasured_block, zip(places, itertools.repeat(state), estimate.blocks))
        seen = [
            PlaceEvidence(view, last, motion_of(last.surface, last.flat, last.noise))
            for view, last in zip(views, blocks, strict=True)
        ]
        drift = 0.0 if estimate.drift is None else np.outer(estimate.drift, estimate.drift)
        evidence = Evidence(
            seen, ties, self._initial, self._names, self._sensors, estimate.solution, unknowns, drift,
            coarse_covariance=fallback, worse=worse,
        )  # fmt: skip
        if not (worse or evidence.refuting()):
            hinging = drift + leave_one_place_out(places, estimate, solver)
            evidence = replace(evidence, hinging=hinging, leaning=leave_one_surface_out(places, estimate, solver))
        self._solved = None if worse else (places[0], estimate, solver, evidence.covariance)
        return evidence, replace(estimate, equations=solver.without_surfaces(estimate.equations))

    @staticmethod
    def _against_views(
        view: tuple[View, ...], estimate: JointEstimate, covariance: np.ndarray, coarse: State,
        opinions: Mapping[Pair, SecondOpinion], ties: Ties,
    ) -> tuple[State, np.ndarray | None, list[Pair]]:  # fmt: skip
        """Return the estimated state, None, and no pairs; or, if too few small surfaces led pairs of lidars to a state
        that contradicts their views as a whole, the coarse state, its covariance, and these pairs. If the estimate's
        `covariance` (6 (n - 1), 6 (n - 1)) includes the coarse state, its views have to agree far worse."""
        state, guessed = estimate.state, coarse.base_from_lidar
        apart_by = pose_change(state, coarse)
        included = apart_by @ np.linalg.solve(covariance, apart_by) < SAME_WITHIN**2 * len(apart_by)
        views = {pair: Views(view[pair[0]], view[pair[1]]) for pair in ties.pairs}
        distances = {pair: SurfaceDistances(view[pair[0]].surface, view[pair[1]].surface) for pair in ties.pairs}

        def apart(poses: Sequence[np.ndarray], pair: Pair) -> float:
            return distances[pair].under(between(poses, pair))

        def agreement(poses: Sequence[np.ndarray], pair: Pair) -> float:
            return views[pair].under(between(poses, pair)).score

        def misled(pair: Pair) -> bool:
            poses, now, before = state.base_from_lidar, apart(state.base_from_lidar, pair), apart(guessed, pair)
            few = estimate.blocks[0].used_between(pair) < findings.MIN_PATCHES
            if not included and few and now > FURTHER_APART * before:
                return True
            worse_by = FAR_WORSE if included else MUCH_WORSE
            return now > before and agreement(poses, pair) < agreement(guessed, pair) - worse_by

        worse = [pair for pair in ties.pairs if misled(pair)]
        if not worse:
            return state, None, []
        other = ties.moved({pair: opinion.twist for pair, opinion in opinions.items()})
        if sum(apart(other, pair) for pair in ties.pairs) < sum(apart(guessed, pair) for pair in ties.pairs):
            covariances = {pair: opinion.covariance for pair, opinion in opinions.items()}
            return replace(coarse, base_from_lidar=other), ties.covariance(covariances), worse
        covariances = {pair: each.covariance + np.outer(each.twist, each.twist) for pair, each in opinions.items()}
        return coarse, ties.covariance(covariances), worse


class PlaneAlignment(RoomAlignment):
    """The alignment of two lidars."""

    takes_fields = True

    def __init__(self, initial_right_to_left: np.ndarray | None, settings: AlignmentSettings | None = None):
        """Start from the description's transform (4, 4), or from None if nothing is known."""
        super().__init__((np.eye(4), initial_right_to_left), settings)

    def solve(self) -> AlignmentResult:
        """Return the alignment. Raises `InputError` if a lidar gave no return at all."""
        return replace(self.aligned().aligned(*SIDES), method=self.name)
