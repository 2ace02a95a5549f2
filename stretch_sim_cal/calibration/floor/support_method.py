"""The floor under the robot by any number of lidars, `JointFloor`, and by two, `SupportFloor`: the method "support"
(assumptions: docs/floor.md)."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from stretch_sim_cal.calibration.cloud_frames import by_step
from stretch_sim_cal.calibration.clouds import DirectionCells, FrameIntake
from stretch_sim_cal.calibration.consistency import View, confirmed_by_another
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.findings import unit_warnings
from stretch_sim_cal.calibration.floor import cells as floor_cells
from stretch_sim_cal.calibration.floor import findings as checks
from stretch_sim_cal.calibration.floor import fit as floor_fit
from stretch_sim_cal.calibration.floor.fit import FoundFloor, find_floor, nearest_plane, within_search
from stretch_sim_cal.calibration.observations import FloorByUnits, Observations
from stretch_sim_cal.calibration.patches import Noise
from stretch_sim_cal.calibration.problem import FIXED, NormalEquations, State, Unknowns
from stretch_sim_cal.calibration.results import FloorResult
from stretch_sim_cal.calibration.room import FloorTrust, RoomBlock, remeasured_block, room_block
from stretch_sim_cal.calibration.settings import FloorSettings
from stretch_sim_cal.calibration.solver import Solution, Solver, sensor_numbers
from stretch_sim_cal.calibration.surfaces import Lidar, on_body, without_body
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry import planes
from stretch_sim_cal.geometry.transforms import SIDES, apply, check_rigid, inverse
from stretch_sim_cal.sensor.sensor import for_each

# The distance (m) that the surfaces may still have, and the number of shifted grids of patches; the first two passes
# are without the floor. From the fourth on, a pass is the last one if the floor that is found after it differs from the
# estimate by less than `AGREED`, the chi square of three values; on sound floors it is at most 0.1 mm and 0.002 deg.
PASSES = ((0.002, 1), (0.0, 1), (0.001, 1), (0.0, 2), (0.0, 2), (0.0, 2))
WITHOUT_FLOOR, ENOUGH, AGREED = 2, 4, 1.0
# The largest distance (m) of a patch from the floor beyond its unevenness.
FLOOR_GATE = 0.01
# Cells this near (m) to the nominal floor are kept without confirmation by another lidar.
NEAR_FLOOR = 0.1


class JointFloor:
    """Estimates the floor under the robot by any number of lidars at `base_from_lidar` (4, 4).
    `nominal_footprint_from_base` (4, 4) is the description's; `settings.observations` are the priors of the poses to
    each other, `first_two` the lidars of the result's `by_units`. After `solve`, `state` has the poses and `solution`
    their covariance, in the description's base_footprint. Raises `InputError` for a pose that is not rigid."""

    name = "support"
    takes_fields = True

    def __init__(
        self, base_from_lidar: Sequence[np.ndarray], nominal_footprint_from_base: np.ndarray,
        settings: FloorSettings | None = None, names: Sequence[str] = SIDES, first_two: Sequence[int] = (0, 1),
    ):  # fmt: skip
        self.settings, self._names = settings or FloorSettings(), names
        self._priors: Sequence[np.ndarray | None] = (FIXED,)
        self._first_two = first_two[: len(names)]
        # All estimates are in the description's base_footprint.
        self._footprint_from_base = check_rigid(nominal_footprint_from_base, "nominal footprint_from_base")
        self._masks = self.settings
        if self.settings.body is not None:
            self._masks = replace(self.settings, body=apply(self._footprint_from_base, self.settings.body))
        poses = (check_rigid(pose, f"base_from_{name}") for name, pose in zip(names, base_from_lidar, strict=True))
        self._poses = tuple(self._footprint_from_base @ pose for pose in poses)
        self._alignment = self.settings.observations or self._usual_alignment()
        self._intake = FrameIntake(names)
        self._seen = tuple(map(DirectionCells, for_each(self.settings.sensor, len(names))))
        self.state: State | None = None
        self.solution: Solution | None = None

    def _usual_alignment(self) -> Observations | None:
        """Return the lidars' relative poses with the typical covariance; None for one lidar."""
        if len(self._poses) == 1:
            return None
        first, *others = self._poses
        typical = np.repeat([self.settings.typical_std_translation, self.settings.typical_std_rotation], 3) ** 2
        to_first = tuple(inverse(first) @ pose for pose in others)
        return Observations.of_known_poses(to_first, np.diag(np.tile(typical, len(others))))

    def begin_from(
        self, footprint_from_lidar: Sequence[np.ndarray], observations: Observations | None,
        priors: Sequence[np.ndarray | None],
    ) -> None:  # fmt: skip
        """Start at other poses (4, 4) in the description's base_footprint, with other observations of the relative
        poses (None: the typical ones), and with the prior covariance (6, 6) of each in base_footprint."""
        self._poses, self._priors = tuple(footprint_from_lidar), priors
        self._alignment = observations or self._usual_alignment()

    def add(self, *clouds: np.ndarray) -> None:
        """Add one cloud of each lidar, in its own frame: points (N, 3), or structured arrays (N,) with x, y, z and
        perhaps ring and intensity; returns that are not finite are ignored. A cloud that was added before, bit by bit,
        counts once. Raises `InputError` for arrays that are no clouds."""
        for cells, cloud in zip(self._seen, self._intake.admit(*clouds), strict=True):
            cells.add(cloud)

    def solve(self) -> FloorResult:
        """Return the floor, with refusals if the data does not support it. Raises `InputError` without any scan."""
        if not self._intake.num_given:
            raise InputError("floor: no scans given; record at least one pair")
        lidars = tuple(map(Lidar.of_cells, self._seen))
        unknowns = Unknowns(tuple(lidar.model for lidar in lidars))
        solver, state = Solver.starting(unknowns, self._poses, self._priors, self.settings.units, planes.LEVEL)
        lidars = self._worth_keeping(lidars, state)
        if self._alignment is not None and not self._alignment.fits(unknowns.models):
            # The errors in it are those of lidars with other channels.
            self._alignment = self._alignment.of_the_transform()
        # Observations that contain the lidars' errors replace the room that several lidars see here.
        with_room = self._alignment is None or not self._alignment.knows_units
        solver.learns_scans = not with_room
        state, noise = replace(state, floor=None), Noise.first(len(lidars))
        search: FoundFloor | None = None
        given = solver.solve(self._prior_equations(state, unknowns), state)
        by_given = unknowns.moved(state, given.change).base_from_lidar
        for number, (slack, grids) in enumerate(PASSES, 1):
            if search is not None:
                state = replace(state, floor=search.fitted, curvature=search.fit.curvature)
                curved = floor_fit.LIKELY_CURVATURE if np.any(search.fit.curvature) else 0.0
                solver.priors = replace(solver.priors, curvature=curved)
            equations = self._prior_equations(state, unknowns)
            if with_room or search is not None:
                block = room_block(lidars, state, noise, slack, grids, None if search is None else _trust(search))
                (block if with_room else block.only(block.floor.patches)).add_to(equations, unknowns, lidars)
                noise = block.noise
            solution = solver.solve(equations, state)
            state = unknowns.moved(state, solution.change)
            if search is None:
                state = solver.with_fixed_shares(state, solution)
            if number < WITHOUT_FLOOR:
                continue
            # The floor, and its checks, after correction of the estimated errors.
            rays = self._rays(lidars, state)
            search = find_floor(rays, self.settings)
            if search is None:
                return self._refused(lidars, state)
            if number >= ENOUGH:
                off = planes.floor_between(state.floor, search.fitted)
                known = solution.covariance[unknowns.floor, unknowns.floor] + search.fit.systematic
                if off @ np.linalg.solve(known, off) < AGREED:
                    break
        self.state, self.solution = state, solution
        last = remeasured_block(lidars, state, block, _trust(search))
        disagreements = {
            name: self._disagreement(last, by_given, given.covariance, unknowns, lidar)
            for lidar, name in enumerate(self._names) if lidar
        }  # fmt: skip
        return self._result(lidars, unknowns, state, solution, search, rays, disagreements)

    def _prior_equations(self, state: State, unknowns: Unknowns) -> NormalEquations:
        if self._alignment is None:
            return NormalEquations.empty(unknowns.size)
        return self._alignment.equations_at(state, unknowns)

    def _worth_keeping(self, lidars: Sequence[Lidar], state: State) -> tuple[Lidar, ...]:
        """Return the lidars with the cells that two lidars see, without the robot's, and those near the floor."""
        kept, poses = [], state.base_from_lidar
        masked = [without_body(lidar.surface, pose, self._masks) for lidar, pose in zip(lidars, poses, strict=True)]
        views = list(map(View, masked))
        shared = confirmed_by_another(views, poses, itertools.combinations(range(len(lidars)), 2))
        for lidar, view, pose, confirmed in zip(lidars, views, poses, shared, strict=True):
            heights = apply(pose, view.surface.points)[:, 2]
            limit = NEAR_FLOOR + self.settings.search_height + np.tan(self.settings.search_tilt) * view.surface.ranges
            kept.append(Lidar(view.surface, lidar.model).only(confirmed | (np.abs(heights) < limit)))
        return tuple(kept)

    def _rays(self, lidars: Sequence[Lidar], state: State) -> tuple[floor_cells.FloorRays, ...]:
        """Return the lidars' corrected rays that aim at the nominal floor."""
        surfaces = [lidar.corrected(values) for lidar, values in zip(lidars, state.units, strict=True)]
        return tuple(
            floor_cells.FloorRays.of(pose, surface.points, surface.counts, self._on_robot(surface.points, pose))
            for surface, pose in zip(surfaces, state.base_from_lidar, strict=True)
        )

    def _on_robot(self, points: np.ndarray, footprint_from_lidar: np.ndarray) -> np.ndarray:
        if self._masks.body is None:
            return np.zeros(len(points), dtype=bool)
        return on_body(apply(footprint_from_lidar, points), self._masks.body)

    def _motion(self, lidars: Sequence[Lidar], state: State, search: FoundFloor) -> tuple[int, float, float] | None:
        """Return the `floor_motion` between the blocks of time, after frames instead of blocks."""
        surfaces = [lidar.corrected(values) for lidar, values in zip(lidars, state.units, strict=True)]
        blocks = max(surface.block_counts.shape[1] for surface in surfaces)
        information, gradient = np.zeros((blocks, 3, 3)), np.zeros((blocks, 3))
        of_lidars = zip(surfaces, search.sums, search.fit.used, state.base_from_lidar, strict=True)
        for surface, sums, used, pose in of_lidars:
            on_robot = self._on_robot(surface.points, pose)
            for block in range(surface.block_counts.shape[1]):
                of_block = surface.block_points[:, block], surface.block_counts[:, block]
                equations = sums.equations_of(floor_cells.FloorRays.of(pose, *of_block, on_robot), used)
                information[block] += equations[0]
                gradient[block] += equations[1]
        motion, frames = floor_cells.floor_motion(information, gradient), max(each.block_length for each in self._seen)
        return None if motion is None else (frames * motion[0], *motion[1:])

    def _result(
        self, lidars: Sequence[Lidar], unknowns: Unknowns, state: State, solution: Solution, search: FoundFloor,
        rays: Sequence[floor_cells.FloorRays], disagreements: Mapping[str, checks.Disagreement | None],
    ) -> FloorResult:  # fmt: skip
        fit, floor, numbers = search.fit, state.floor, sensor_numbers(unknowns, state, solution, self._names)
        plane = floor.moved(inverse(self._footprint_from_base))
        # Height and tilts at base_link's origin and about its axes, by those in the description's base_footprint.
        to_base = np.zeros((3, 3))
        to_base[0] = -planes.height_slopes(self._footprint_from_base[None, :3, 3], floor)[0]
        to_base[1:, 1:] = self._footprint_from_base[:2, :2].T
        rounded = max((by_step(numbers, name) for name in self._names), key=np.linalg.norm)[2:5]
        off = planes.floor_between(floor, search.fitted)
        by_unevenness = to_base @ fit.at_wheels @ to_base.T
        systematic = to_base @ (fit.systematic + np.outer(off, off) + np.diag(rounded**2)) @ to_base.T + by_unevenness
        covariance = to_base @ solution.covariance[unknowns.floor, unknowns.floor] @ to_base.T + systematic
        level_share, worst_place = checks.flatness(search.tiles, floor, fit.unevenness, self.settings)
        support = checks.support_of(search, level_share)
        findings = checks.Findings(self._intake.warnings())
        checks.check_support(findings, support, worst_place, covariance, by_unevenness, self.settings)
        if not within_search(floor.normal, floor.offset, self.settings):
            sentence = "the floor lies beyond the search limits of the description's base_footprint"
            findings.refuse("floor_far_from_description", sentence, "check the description's base_footprint")
        checks.check_shape(findings, fit)
        checks.check_at_wheels(findings, rays, state, search)
        for name, disagreement in disagreements.items():
            checks.check_disagreement(findings, disagreement, name, self._names[0])
        checks.check_motion(findings, self._motion(lidars, state, search), self._intake.num_frames)
        of_lidars = list(zip(search.sums, fit.used, strict=True))
        hits = sum(float(sums.hits[used].sum()) for sums, used in of_lidars)
        squares = sum(float(sums.height_squares[used].sum()) for sums, used in of_lidars)
        warnings = findings.warnings + unit_warnings(numbers, self.settings.sensor, self._names)
        return FloorResult(
            planes.footprint_from_base(plane), plane, covariance, float(np.sqrt(squares / max(hits, 1.0))),
            self._intake.num_frames, int(hits), self.name, support,
            FloorByUnits.of(solution, unknowns, state, to_base, self._first_two),
            systematic, warnings=warnings, refusals=findings.refusals,
            diagnostics={
                "range_noise": search.range_noise, "unevenness": fit.unevenness,
                "curvature": float(np.linalg.norm(fit.curvature)), "scatter_between_blocks": fit.inflation,
                "repeated_scans": float(sum(self._intake.repeated)), **numbers,
            },
        )  # fmt: skip

    def _disagreement(
        self, block: RoomBlock, known: Sequence[np.ndarray], aligned: np.ndarray, unknowns: Unknowns, lidar: int
    ) -> checks.Disagreement | None:
        """Return a lidar's floor against the first one's under the given alignment and mounts, by which all have the
        poses `known` (4, 4) with the covariance `aligned`; None if they do not see enough of the same floor."""
        seen = block.floor_gap(lidar)
        if seen is None:
            return None
        (increment, covariance), state = seen, block.state
        # The estimate has moved both lidars by their errors.
        back = [known[number] @ inverse(state.base_from_lidar[number]) for number in (lidar, 0)]
        other, first = map(state.floor.moved, back)
        # Points that ought to be moved by (t, w) show a floor that is off by t_z, -w_x, -w_y.
        by_poses = np.zeros((3, len(aligned)))
        for number, sign in ((lidar, 1.0), (0, -1.0)):
            begin = unknowns.poses[number].start
            by_poses[[0, 1, 2], [begin + 2, begin + 3, begin + 4]] = sign, -sign, -sign
        increment = increment + planes.floor_between(first, other)
        return increment, covariance + by_poses @ aligned @ by_poses.T

    def _refused(self, lidars: Sequence[Lidar], state: State) -> FloorResult:
        rays = self._rays(lidars, state)
        if any(map(len, rays)) or not any(len(lidar.surface.points) for lidar in lidars):
            limits = f"{self.settings.search_height * 1e3:g} mm and {np.degrees(self.settings.search_tilt):g} deg"
            sentence = f"no floor within {limits} of where the description has base_footprint"
            if (surface := nearest_plane(rays, self.settings)) is not None:
                side = "lower" if surface.offset > 0 else "higher"
                tilt = np.degrees(np.arctan2(np.linalg.norm(surface.normal[:2]), surface.normal[2]))
                where = f"{abs(surface.offset) * 1e3:.0f} mm {side} and tilted by {tilt:.1f} deg"
                sentence = f"{sentence} (the nearest plane is {where})"
            remedy = "clear the floor, or check description and alignment"
        else:
            steepness = np.degrees(np.arcsin(floor_cells.MIN_INCIDENCE_COSINE))
            where = f"within {floor_cells.RADIUS:g} m of the robot, {steepness:.0f} deg or more from flat"
            sentence = f"no lidar sees the floor: none has a return along a ray that meets it {where}"
            remedy = "mount a lidar so that it looks down; lidar to lidar does not need the floor"
        return FloorResult(
            self._footprint_from_base, planes.floor_of_footprint(self._footprint_from_base), np.diag([np.inf] * 3),
            float("nan"), self._intake.num_frames, 0, self.name, warnings=self._intake.warnings(),
            refusals=[Finding("no_floor", sentence, remedy)],
        )  # fmt: skip


class SupportFloor(JointFloor):
    """The floor by the left and the right lidar, the method "support". `base_from_left` (4, 4) is the left lidar's pose
    in base_link (the description's), `right_to_left` (4, 4) the alignment; the identity stands for a robot with one
    lidar, whose right clouds are empty. The further arguments are those of `JointFloor`."""

    def __init__(
        self, base_from_left: np.ndarray, right_to_left: np.ndarray, nominal_footprint_from_base: np.ndarray,
        settings: FloorSettings | None = None,
    ):  # fmt: skip
        poses = [check_rigid(base_from_left, "base_from_left")]
        right_to_left = check_rigid(right_to_left, "right_to_left")
        if not np.array_equal(right_to_left, np.eye(4)):
            poses.append(poses[0] @ right_to_left)
        elif settings is not None:  # one lidar has no alignment
            settings = replace(settings, observations=None)
        super().__init__(poses, nominal_footprint_from_base, settings, SIDES[: len(poses)])

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Add one pair of clouds, as of `JointFloor.add`."""
        super().add(*(left, right)[: len(self._poses)])


def _trust(search: FoundFloor) -> FloorTrust:
    """Return the weights of the fit for the patches of the estimate."""

    def trust(points: np.ndarray) -> np.ndarray:
        places = points[:, :2]
        weights = search.fit.trust[floor_cells.PATCH_OF_CELLS[floor_cells.cells_of(places)]]
        return np.where(np.linalg.norm(places, axis=1) < floor_cells.RADIUS, weights, 0.0)

    return FloorTrust(trust, search.fit.unevenness, FLOOR_GATE)
