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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration import findings
from stretch_sim_cal.calibration.alignment.another_place import AnotherPlace, after_turning
from stretch_sim_cal.calibration.alignment.joint_estimate import (
    SAME_WITHIN,
    JointEstimate,
    estimate_jointly,
    leave_one_place_out,
    pose_change,
)
from stretch_sim_cal.calibration.alignment.second_opinion import SecondOpinion, second_opinion
from stretch_sim_cal.calibration.alignment.ties import Pair, Ties, coarse_ties, started
from stretch_sim_cal.calibration.cloud_frames import covariance_of_frames, covariance_of_sectors, wrong_rotor_angles
from stretch_sim_cal.calibration.clouds import DirectionCells, FrameIntake
from stretch_sim_cal.calibration.coarse import SurfaceDistances, credible
from stretch_sim_cal.calibration.consistency import Consistency, View, Views, between, seen_by_another
from stretch_sim_cal.calibration.finding import OF_ALL_PLACES, Finding
from stretch_sim_cal.calibration.motion import Motion, motion_of
from stretch_sim_cal.calibration.observability import unobserved
from stretch_sim_cal.calibration.observations import TRUNCATED, Observations, by_poses
from stretch_sim_cal.calibration.problem import State, Unknowns
from stretch_sim_cal.calibration.results import AlignmentResult, LidarPoses, SeenPair
from stretch_sim_cal.calibration.room import RoomBlock, remeasured_block, scale_of
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.solver import SHARES_OF_SCANS, Solution, Solver, sensor_numbers
from stretch_sim_cal.calibration.surfaces import Lidar, in_base, mirrored_surface
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import SIDES, check_rigid, from_xyz_rpy, inverse
from stretch_sim_cal.sensor.sensor import by_lidar
from stretch_sim_cal.sensor.unit import RANGE_SCALE, SCALARS

# Residuals that are so many times larger than noise explains are of a model that does not fit.
POOR_FIT = 1.1
# The agreement of the views (-1 to 1) may be lower than under the coarse transform by this; in rooms it is by 0.003 at
# most.
MUCH_WORSE = 0.02
# The surfaces may be further apart than under the coarse transform by this factor if few are flat; on real recordings
# they are by 1.014 at most.
FURTHER_APART = 1.1
# Changes of a cloud by a driver or a converter that are no rotation: y negated, x and y exchanged.
MIRRORS = (np.diag([1.0, -1.0, 1.0]), np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
# Codes under which the views may fit once one of them is mirrored.
MAYBE_MIRRORED = {"contradicting_views", "far_from_description", "swapped", "little_overlap"}
# Codes under which the views may fit once one of them is turned, or taken to be in base_link.
MAYBE_TURNED = {"contradicting_views", "far_from_description"}
# Possible errors of a driver's axes, or of a lidar's orientation in the description: axis and degrees.
TURNS = (("z", 90), ("z", -90), ("z", 180), ("x", 180), ("y", 180))
# The agreement of the views (-1 to 1) has to be higher than as described by this.
MUCH_BETTER = 0.1


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
        self._sensors = by_lidar(self._settings.sensor, len(names))
        self._places: list[tuple[DirectionCells, ...]] = []
        self._solved: tuple[tuple[Lidar, ...], JointEstimate, Solver] | None = None
        self.new_place()

    def new_place(self) -> None:
        """Begin with the frames of another standing place: the robot stands elsewhere or was turned. The lidars see
        another scene there; their relative poses and errors are the same."""
        self._places.append(DirectionCells.of_views(self._sensors))

    def add(self, *clouds: np.ndarray) -> None:
        """Take one cloud of each lidar, each in its own frame: points (N, 3), or structured arrays (N,) with x, y, z
        and perhaps ring and intensity. Raises `InputError` for anything else."""
        for cells, cloud in zip(self._places[-1], self._intake.admit(*clouds), strict=True):
            cells.add(cloud)

    def save_places(self, path: Path) -> None:
        """Write the cells of all standing places to a file, so that further places can be added later."""
        arrays = {
            f"{number}_{lidar}_{name}": value
            for number, place in enumerate(self._places)
            for lidar, cells in zip(self._names, place, strict=True)
            for name, value in cells.arrays().items()
        }
        write_atomic(path, lambda stream: np.savez_compressed(stream, places=len(self._places), **arrays))

    def load_places(self, path: Path) -> None:
        """Begin with the standing places in a file; the frames to come are of a further one.

        Raises `InputError` if it is truncated, or of other lidars.
        """
        try:
            with np.load(path, allow_pickle=False) as data:
                self._places = [
                    tuple(
                        DirectionCells.of_arrays(data, f"{number}_{lidar}_", sensor)
                        for lidar, sensor in zip(self._names, self._sensors, strict=True)
                    )
                    for number in range(int(data["places"]))
                ]
        except (InputError, *TRUNCATED) as problem:
            raise InputError(f"{path}: contains no standing places to add to ({problem})") from problem
        self._intake.num_frames = sum(max(cells.num_frames for cells in place) for place in self._places)
        self.new_place()

    def another_place(self) -> AnotherPlace | None:
        """Return the gain of a further standing place, with the robot turned on the spot, for the solved transform of
        two lidars; None if it is unknown."""
        if self._solved is None or self._settings.base_from_left is None or len(self._names) > len(SIDES):
            return None
        lidars, estimate, solver = self._solved
        return after_turning(lidars, estimate, solver, self._settings.base_from_left)

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
        weight = evidence.scale**-2
        observations = Observations.of(
            estimate.equations.weighing(weight), evidence.unknowns, estimate.blocks[0].state,
            evidence.blocks[0].state, evidence.covariance,
        )  # fmt: skip
        seen, noise_information = evidence.blocks[0].seen(), weight * estimate.noise_information
        return replace(result, observations=replace(observations, patches=seen, noise_information=noise_information))

    def _estimated(self, places: Sequence[tuple[Lidar, ...]], ties: Ties) -> tuple["Evidence", JointEstimate]:
        """Return the evidence for the estimate by the views of the pairs that tie the lidars, and the estimate."""
        settings = self._settings
        # Only surfaces that two lidars see determine their relative poses.
        views, places = zip(
            *(seen_by_another(lidars, ties.poses, ties.pairs, settings) for lidars in places), strict=True
        )
        unknowns, known = Unknowns(tuple(lidar.model for lidar in places[0])), settings.units
        solver, coarse = Solver.starting(unknowns, ties.poses, units=known)
        surface = in_base(places[0], coarse)
        opinions = {pair: second_opinion(surface, pair) for pair in ties.pairs}
        first = coarse if known is not None else started(coarse, opinions, ties, unknowns.models)
        estimate = estimate_jointly(places, first, solver)
        covariance = unknowns.of_free_poses(estimate.solution.covariance)
        state, fallback, worse = self._against_views(views[0], estimate, covariance, coarse, opinions, ties)
        blocks = itertools.starmap(remeasured_block, zip(places, itertools.repeat(state), estimate.blocks))
        seen = [
            PlaceEvidence(view, last, motion_of(last.surface, last.flat, last.noise))
            for view, last in zip(views, blocks, strict=True)
        ]
        hinging = 0.0 if worse else leave_one_place_out(places, estimate, solver)
        if estimate.drift is not None:
            hinging = hinging + np.outer(estimate.drift, estimate.drift)
        evidence = Evidence(
            seen, ties, self._initial, self._names, self._sensors, estimate.solution, unknowns, hinging, fallback, worse
        )
        self._solved = None if worse else (places[0], estimate, solver)
        return evidence, estimate

    @staticmethod
    def _against_views(
        view: tuple[View, ...], estimate: JointEstimate, covariance: np.ndarray, coarse: State,
        opinions: Mapping[Pair, SecondOpinion], ties: Ties,
    ) -> tuple[State, np.ndarray | None, list[Pair]]:  # fmt: skip
        """Return the estimated state, None, and no pairs; or, if too few small surfaces led pairs of lidars to a state
        that contradicts their views as a whole, the coarse state, its covariance, and these pairs. An estimate whose
        `covariance` (6 (n - 1), 6 (n - 1)) includes the coarse state does not contradict it."""
        state, guessed = estimate.state, coarse.base_from_lidar
        apart_by = pose_change(state, coarse)
        if apart_by @ np.linalg.solve(covariance, apart_by) < SAME_WITHIN**2 * len(apart_by):
            return state, None, []
        views = {pair: Views(view[pair[0]], view[pair[1]]) for pair in ties.pairs}
        distances = {pair: SurfaceDistances(view[pair[0]].surface, view[pair[1]].surface) for pair in ties.pairs}

        def apart(poses: Sequence[np.ndarray], pair: Pair) -> float:
            return distances[pair].under(between(poses, pair))

        def agreement(poses: Sequence[np.ndarray], pair: Pair) -> float:
            return views[pair].under(between(poses, pair)).score

        def misled(pair: Pair) -> bool:
            poses, now, before = state.base_from_lidar, apart(state.base_from_lidar, pair), apart(guessed, pair)
            if now > FURTHER_APART * before and estimate.blocks[0].used_between(pair) < findings.MIN_PATCHES:
                return True
            return now > before and agreement(poses, pair) < agreement(guessed, pair) - MUCH_WORSE

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


@dataclass(frozen=True)
class PlaceEvidence:
    """The evidence of one standing place: the lidars' views, the patches at the estimate, and the motion."""

    views: tuple[View, ...]
    last: RoomBlock
    motion: Motion

    def of_pair(self, pair: Pair) -> Views:
        """Return the views of two lidars."""
        return Views(*(self.views[lidar] for lidar in pair))

    def mirrored(self, pair: Pair, initial: np.ndarray | None, names: Sequence[str]) -> tuple[str, ...]:
        """Return the `names` of the lidars of a pair, one or both, whose clouds agree with the other's under the
        description's transform (4, 4) once they are mirrored; none if they agree as they are, or without a
        description."""
        if initial is None or credible(self.of_pair(pair).under(initial)):
            return ()
        for turned in (pair[:1], pair[1:], pair):
            for mirror in MIRRORS:
                views = (
                    mirrored_surface(self.views[n].surface, mirror) if n in turned else self.views[n] for n in pair
                )
                if credible(Views(*views).under(initial)):
                    return tuple(names[lidar] for lidar in turned)
        return ()

    def in_other_axes(
        self, pair: Pair, initial: Sequence[np.ndarray | None], base_from_first: np.ndarray | None, turns: object = True
    ) -> tuple[Pair | tuple[int], tuple[str, int] | None] | None:
        """Return the lidars of a pair, one or both, whose clouds agree with the other's as described once they are
        changed, and the change: axis and degrees if `turns` are tried, or None if they are in base_link. None without
        a description, or if no change makes them agree. `initial` are the described poses (4, 4) in the first one's
        frame.

        Views in opposite directions may agree once one is turned, as in any room with parallel walls."""
        if any(initial[lidar] is None for lidar in pair):
            return None
        views, given = self.of_pair(pair), between(initial, pair)
        changes: dict[tuple[str, int] | None, list[np.ndarray]] = {
            (axis, turn): [from_xyz_rpy((0, 0, 0), np.radians(turn) * np.eye(3)["xyz".index(axis)])] * 2
            for axis, turn in TURNS if turns
        }  # fmt: skip
        if base_from_first is not None:
            changes[None] = [inverse(base_from_first @ initial[lidar]) for lidar in pair]
        tried = []
        for turned, (how, (first, second)) in itertools.product((pair[:1], pair[1:], pair), changes.items()):
            left = inverse(first) if pair[0] in turned else np.eye(4)
            right = second if pair[1] in turned else np.eye(4)
            tried.append((views.under(left @ given @ right), turned, how))
        if not tried:
            return None
        best, turned, how = max(tried, key=lambda each: each[0].score)
        enough = best.overlap >= findings.MIN_OVERLAP and best.score > views.under(given).score + MUCH_BETTER
        return (turned, how) if enough and credible(best, near=True) else None

    @property
    def disturbed(self) -> float:
        """The share of the views' cells that were covered for a while."""
        return float(np.mean(np.concatenate([view.surface.disturbed for view in self.views]) > 0))

    @property
    def moving(self) -> float:
        """The share of the views' cells through which something moved."""
        return float(np.mean(np.concatenate([view.surface.moving for view in self.views])))


@dataclass(frozen=True)
class Evidence:
    """The input of all checks: the evidence of every standing place, the ties between lidars, the description's poses,
    the solution of the estimate, the covariance of what is `hinging` on one place, and the `coarse_covariance` if the
    estimate is the coarse one, since the patches contradict the views of `worse` pairs."""

    places: list[PlaceEvidence]
    ties: Ties
    initial: list[np.ndarray | None]
    names: Sequence[str]
    sensors: tuple
    solution: Solution
    unknowns: Unknowns
    hinging: np.ndarray | float = 0.0
    coarse_covariance: np.ndarray | None = None
    worse: Sequence[Pair] = ()

    @property
    def blocks(self) -> list[RoomBlock]:
        """The patches at the estimate, by place."""
        return [place.last for place in self.places]

    @property
    def poses(self) -> tuple[np.ndarray, ...]:
        """The lidars' poses (4, 4) in the first one's frame."""
        return self.blocks[0].state.base_from_lidar

    @property
    def scale(self) -> float:
        """The scale of the gaps over their standard deviations; at least 1."""
        return scale_of(self.blocks)

    @property
    def rmse(self) -> float:
        """The root mean square gap (m) between the lidars' surfaces."""
        squares = np.concatenate([block.gaps.values[block.weights > 0] ** 2 for block in self.blocks])
        return float(np.sqrt(squares.mean())) if len(squares) else float("inf")

    @cached_property
    def covariance(self) -> np.ndarray:
        """The covariance of the poses: the solution's, scaled by the gaps and by errors of lidars beyond their sensor
        files, plus those of motion, of what hinges on one place, of the unknown frames of clouds of unknown lidars,
        and of sectors of views that hardly overlap."""
        if self.coarse_covariance is not None:
            return self.coarse_covariance
        others = len(self.names) - 1
        moved = np.kron(np.eye(others), sum(place.motion.covariance for place in self.places) / len(self.places))
        frames = covariance_of_frames(self.poses, self.numbers, self.sensors, self.names)
        frames += covariance_of_sectors(self.poses, self._narrow)
        against = by_poses(np.eye(4), others)
        scale = self.scale * findings.beyond_sensor_files(self.numbers, self.sensors, self.names)
        of_solution = self.unknowns.of_free_poses(self.solution.covariance) * scale**2
        return of_solution + self.hinging + moved + against @ frames @ against.T

    def covariance_between(self, pair: Pair) -> np.ndarray:
        """Return the covariance (6, 6) of the second lidar's twist against the first one's, in the common frame."""
        change = np.zeros((6, 6 * len(self.names)))
        change[:, 6 * pair[0] : 6 * pair[0] + 6] = -np.eye(6)
        change[:, 6 * pair[1] : 6 * pair[1] + 6] = np.eye(6)
        return change[:, 6:] @ self.covariance @ change[:, 6:].T

    @cached_property
    def numbers(self) -> dict[str, float]:
        """The estimated errors of the lidars; empty for the coarse estimate."""
        if self.coarse_covariance is not None:
            return {}
        return sensor_numbers(self.unknowns, self.blocks[0].state, self.solution, self.names)

    @cached_property
    def agreement(self) -> list[dict[Pair, Consistency]]:
        """The agreement of the views of the pairs that tie the lidars under the estimate, by place."""
        return [
            {pair: place.of_pair(pair).under(between(self.poses, pair)) for pair in self.ties.pairs}
            for place in self.places
        ]

    @property
    def _narrow(self) -> list[int]:
        """The numbers of the lidars whose overlap with each of the others is narrow."""
        overlaps = [
            [views.overlap for place in self.agreement for pair, views in place.items() if lidar in pair]
            for lidar in range(len(self.names))
        ]
        return [lidar for lidar, shares in enumerate(overlaps) if shares and max(shares) < findings.NARROW_OVERLAP]

    def beyond_sensor_file(self, pair: Pair) -> bool:
        """Return whether one of two lidars has errors beyond its sensor file."""
        of_pair = tuple(self.sensors[lidar] for lidar in pair), [self.names[lidar] for lidar in pair]
        return any(each.code == "beyond_sensor_file" for each in findings.unit_warnings(self.numbers, *of_pair))

    @cached_property
    def opinions(self) -> list[dict[Pair, list[Finding]]]:
        """The findings if the registration of all cells of a pair contradicts the estimate, by place."""
        return [
            {pair: findings.another_opinion(second_opinion(place.last.surface, pair), self.covariance_between(pair))
             for pair in self.ties.pairs} for place in self.places
        ]  # fmt: skip

    def differing_ranges(self, pair: Pair) -> list[Finding]:
        """Return a finding if the ranges of two lidars differ by a larger share than their sensor files allow."""
        if self.coarse_covariance is not None:
            return []
        columns = [self.unknowns.units[lidar].start + RANGE_SCALE for lidar in pair]
        first, second = (self.blocks[0].state.units[lidar][RANGE_SCALE] for lidar in pair)
        covariance = self.solution.covariance[np.ix_(columns, columns)]
        variance = covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1]
        allowed = np.hypot(*(self.unknowns.models[lidar].spread.range_scale for lidar in pair))
        return findings.differing_ranges(float(first - second), float(np.sqrt(max(variance, 0.0))), float(allowed))

    def impossible_units(self) -> list[Finding]:
        """Return the errors that no lidar of its kind has, motions in every scan of no robot that stands, and ranges
        that wander as no lidar's do, if the poses depend on them: an error that all lidars have alike may be the best
        fit to something near one of them, and cancels between them. If what they leave is larger than noise, too, they
        are the wrong explanation."""
        if self.coarse_covariance is not None:
            return []
        values, units, models = self.blocks[0].state.units, self.unknowns.units, self.unknowns.models
        columns = np.concatenate([self.unknowns.scan_motion_columns(lidar) for lidar in range(len(units))])
        motions = np.array([own[model.of_scan_motion] for own, model in zip(values, models, strict=True)])
        of_motions = self.solution.covariance[np.ix_(columns, columns)]
        moving = findings.impossible_scan_motions(motions, of_motions, self.names)
        if moving and not self._move_poses(columns, motions.ravel()):
            moving = []
        columns = np.concatenate([self.unknowns.wander_columns(lidar) for lidar in range(len(units))])
        wander = [own[model.of_wander] for own, model in zip(values, models, strict=True)]
        most = SHARES_OF_SCANS["wander"][0].max()
        largest = [most * model.scan_roots()["wander"][model.of_wander].diagonal() for model in models]
        wandering = findings.impossible_wander(wander, largest, self.names)
        if wandering and self._move_poses(columns, np.concatenate(wander), 2.0):
            moving += wandering
        fits = self.scale < POOR_FIT
        found = findings.impossible_units(self.numbers, self.sensors, self.names, fits)
        columns = [units[lidar].start + SCALARS.index(scalar) for lidar, scalar in found]
        errors = np.array([values[lidar][SCALARS.index(scalar)] for lidar, scalar in found])
        return moving + (list(found.values()) if found and (not fits or self._move_poses(columns, errors)) else [])

    def _move_poses(self, columns: Sequence[int], errors: np.ndarray, times: float = 1.0) -> bool:
        """Return whether the poses would change by more than their uncertainty if `errors` (k,) in these columns were
        known to be 0: by its square, so many `times`."""
        covariance, free = self.solution.covariance, self.unknowns.free_poses
        of_errors = np.linalg.pinv(covariance[np.ix_(columns, columns)], rcond=1e-12, hermitian=True)
        shift = covariance[np.ix_(free, columns)] @ of_errors @ errors
        return bool(shift @ np.linalg.solve(self.covariance, shift) >= times * len(shift))

    def near(self, pair: Pair) -> bool:
        """Return whether the estimate of two lidars is near the description."""
        return self.described(pair) is not None and not any(self.against_description(pair))

    def against_description(self, pair: Pair) -> tuple[list[Finding], list[Finding]]:
        """Return the refusals and warnings of the transform of two lidars against the description's."""
        names = [self.names[lidar] for lidar in pair]
        return findings.model_findings(self.described(pair), between(self.poses, pair), names)

    def described(self, pair: Pair) -> np.ndarray | None:
        """Return the description's transform (4, 4) between two lidars; None if it has none."""
        given = [self.initial[lidar] for lidar in pair]
        return None if any(pose is None for pose in given) else between(given, (0, 1))

    def wrong_minimum(self, place: int, pair: Pair) -> list[Finding]:
        """Return a finding if the views of two lidars at a place, by its number, contradict each other."""
        views, closely = self.places[place].of_pair(pair), None
        if self.described(pair) is not None and not self.against_description(pair)[0]:
            closely = views.under(between(self.poses, pair), leniency=findings.CLOSELY)
        return findings.wrong_minimum(self.agreement[place][pair], self.near(pair), closely)

    def unfit_pairs(self) -> dict[Pair, tuple[Consistency, list[Finding]]]:
        """Return the pairs that do not fit the joint estimate, with the agreement of their views and the reasons; only
        the `worse` ones if there are any, since the estimate is then the coarse one."""
        unfit = {}
        for pair in self.worse or self.ties.pairs:
            why = [findings.COARSE_ONLY] if pair in self.worse else []
            for number, (place, opinions) in enumerate(zip(self.places, self.opinions, strict=True)):
                why += self.wrong_minimum(number, pair)
                why += findings.overlap_refusals(self.agreement[number][pair], place.last.used_between(pair))
                why = why or opinions[pair]
            if why:
                unfit[pair] = self.agreement[0][pair], why
        return unfit

    def each(
        self, check: Callable[[int, Pair], list[Finding]], pairs: Sequence[Pair] = ((0, 0),), in_places: bool = True
    ) -> list[Finding]:
        """Return the findings of a check of every place, by its number, and of pairs of lidars: with the place if there
        are several, and with the lidars if there are more than two. A check that is not of single places is done once;
        one of no pair gets the first lidar twice."""
        result = []
        for number, pair in itertools.product(range(len(self.places) if in_places else 1), pairs):
            of_pair = "lidars " + " and ".join(self.names[lidar] for lidar in pair)
            for finding in check(number, pair):
                named = finding.at(of_pair) if len(self.names) > len(SIDES) and pair != (0, 0) else finding
                several = in_places and len(self.places) > 1
                result.append(named.at(f"standing place {number + 1}") if several else named)
        return result


def _seen_pairs(evidence: Evidence) -> list[SeenPair]:
    """Return the overlap of every two lidars, with refusals."""
    result, ties = [], evidence.ties
    for pair in itertools.combinations(range(len(evidence.names)), 2):
        if pair in ties.pairs:
            views, refusals = evidence.agreement[0][pair], []
        else:
            nothing = Consistency(0.0, 0.0, 0.0)
            views, refusals = ties.left_out.get(pair, (nothing, findings.overlap_refusals(nothing, 0.0)))
        result.append(SeenPair((evidence.names[pair[0]], evidence.names[pair[1]]), views.overlap, refusals))
    return result


def checked(evidence: Evidence, intake: FrameIntake, settings: AlignmentSettings) -> LidarPoses:
    """Return the result with its covariance and its findings.

    If robot or scene moved, or a transform is wrong, the other checks are meaningless and skipped.
    """
    blocks, scale, covariance, numbers = evidence.blocks, evidence.scale, evidence.covariance, evidence.numbers
    places, names, poses, agreement = evidence.places, evidence.names, evidence.poses, evidence.agreement
    pairs, each, disturbed = evidence.ties.pairs, evidence.each, max(place.disturbed for place in places)
    against_first = [(0, lidar) for lidar in range(1, len(names)) if lidar in evidence.ties.tied]
    directions = {
        pair: settings.directions(evidence.covariance_between(pair), settings.base_from_left) for pair in against_first
    }
    described = {pair: evidence.against_description(pair) for pair in against_first}
    refusals = each(lambda n, _: findings.movement(places[n].motion, places[n].disturbed, blocks[n].num_used))
    refusals += each(evidence.wrong_minimum, pairs)
    if len(names) == len(SIDES):  # of more lidars others tie the two
        refusals = refusals or each(
            lambda n, pair: findings.overlap_refusals(agreement[n][pair], blocks[n].used_between(pair)), pairs
        )
    ranges = each(lambda _, pair: evidence.differing_ranges(pair), pairs, in_places=False)
    undetermined = each(lambda _, pair: unobserved(directions[pair]), against_first, in_places=False)
    of_units = findings.unit_warnings(numbers, evidence.sensors, names)
    if not refusals and evidence.coarse_covariance is not None:
        refusals = [findings.COARSE_ONLY, *undetermined]
    elif not refusals:
        # Unknown range scales, and errors beyond the sensor files, leave the lidars' poses undetermined.
        why = [finding for finding in of_units if finding.code == "beyond_sensor_file"]
        refusals = ranges + why + undetermined if undetermined else each(
            lambda _, pair: findings.little_support(blocks, covariance, settings, pair[1]), against_first, False
        )  # fmt: skip
        refusals += findings.large_residuals(scale, evidence.rmse)
        others = [(0, lidar) for lidar in range(1, len(names))]
        refusals += each(lambda n, pair: findings.dissenting(blocks[n], pair[1]), others)
    # A refused estimate is no reason to doubt the model, but mirrored clouds are one to refuse any.
    refusals = refusals or findings.distorted(wrong_rotor_angles(poses, numbers, names)) + evidence.impossible_units()
    narrow = {
        pair: findings.narrow_overlap(
            max(views[pair].overlap for views in agreement), evidence.described(pair), between(poses, pair),
            evidence.beyond_sensor_file(pair),
        ) for pair in pairs
    }  # fmt: skip
    far = each(lambda _, pair: described[pair][0], against_first, in_places=False)
    far += each(lambda _, pair: narrow[pair][0], pairs, in_places=False)
    near = each(lambda _, pair: described[pair][1], against_first, in_places=False)
    near += each(lambda _, pair: narrow[pair][1], pairs, in_places=False)
    near = ([] if refusals else near) + ranges
    if {finding.code for finding in refusals} <= set(OF_ALL_PLACES):  # another place would not cure exchanged topics
        refusals = [finding for finding in far if finding.code == "swapped"] or refusals
    refusals = refusals or far or each(lambda n, pair: evidence.opinions[n][pair], pairs)
    if MAYBE_MIRRORED & {finding.code for finding in [*refusals, *far]} or evidence.ties.left_out:
        tried = [*evidence.ties.pairs, *evidence.ties.left_out]
        mirrored = [places[0].mirrored(pair, evidence.described(pair), names) for pair in tried]
        refusals = list(dict.fromkeys(itertools.chain.from_iterable(map(findings.mirrored, mirrored)))) or refusals
    left_out = {pair: reasons for pair, (_, reasons) in evidence.ties.left_out.items()}
    untied = [pair for pair in itertools.combinations(range(len(names)), 2) if not set(pair) <= evidence.ties.tied]
    suspects = {pair: left_out.get(pair, []) for pair in untied} or dict.fromkeys(pairs, [*refusals, *far])
    changed = [
        places[0].in_other_axes(
            pair, evidence.initial, settings.base_from_left, MAYBE_TURNED & {finding.code for finding in reasons}
        ) for pair, reasons in suspects.items() if untied or MAYBE_TURNED & {finding.code for finding in reasons}
    ]  # fmt: skip
    refusals = list(dict.fromkeys(
        finding for change in changed if change is not None
        for finding in findings.in_other_axes([names[lidar] for lidar in change[0]], change[1])
    )) or refusals  # fmt: skip
    first, of_poses = blocks[0], np.zeros((6 * len(names), 6 * len(names)))
    of_poses[6:, 6:] = covariance
    return LidarPoses(
        dict(zip(names, poses, strict=True)), of_poses, _seen_pairs(evidence), intake.num_frames, evidence.rmse,
        directions=directions.get((0, 1), []),
        warnings=[
            *intake.warnings(), *findings.single_scan(intake.num_frames, len(places)), *near,
            *findings.disturbance(max(place.moving for place in places)),
            *([] if refusals else each(lambda n, pair: findings.changed_scene(agreement[n][pair]), pairs)),
            *(finding for finding in of_units if finding not in refusals),
            *findings.noisy_ranges(first.noise.sigma, evidence.sensors, names),
        ],
        refusals=refusals,
        diagnostics={
            "patches": sum(len(block.flat[0].centres) / block.grids for block in blocks),
            "patches_used": sum(block.num_used for block in blocks), "places": len(blocks),
            **{f"range_noise_{name}": float(sigma) for name, sigma in zip(names, first.noise.sigma, strict=True)},
            "roughness": float(first.noise.roughness),
            "gap_scale": scale,
            "agree": min((float(view.agree) for views in agreement for view in views.values()), default=0.0),
            "contradict": max((float(view.contradict) for views in agreement for view in views.values()), default=0.0),
            "motion": max(place.motion.translation for place in places),
            "motion_rotation": max(place.motion.rotation for place in places), "disturbed": disturbed,
        } | numbers,
    )  # fmt: skip
