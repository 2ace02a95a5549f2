"""The floor that the robot stands on, from both lidars: `SupportFloor` is the method "support", the default.

It assumes that the scene stands still, that the left lidar is where the description says, and that the floor near the
robot is a plane within the search limits of the description's base_footprint. It checks the last of these and refuses
where it does not hold.

What the fitted floor rests on: how much floor, on which sides, and how much of it lies on the plane.
"""

from dataclasses import replace

import numpy as np

from stretch_sim_cal.calibration.clouds import DirectionCells, FrameIntake
from stretch_sim_cal.calibration.consistency import Views
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.findings import (
    Disagreement,
    Findings,
    judge_disagreement,
    judge_motion,
    judge_shape,
    judge_support,
    unit_warnings,
)
from stretch_sim_cal.calibration.floor.fit import LIKELY_BEND, FloorFit, direction_in_words
from stretch_sim_cal.calibration.floor.rays import CellSums, FrameFloors, Grid, Motion, step_slopes, stepped
from stretch_sim_cal.calibration.floor.rays import FloorView as LidarView
from stretch_sim_cal.calibration.floor.result import FloorResult, FloorSettings, ResidualMap, Support
from stretch_sim_cal.calibration.floor.search import (
    FoundFloor,
    Rays,
    Tiles,
    find_floor,
    nearest_level_surface,
    within_search,
)
from stretch_sim_cal.calibration.noise import Noise
from stretch_sim_cal.calibration.observations import FloorByUnits, Observations
from stretch_sim_cal.calibration.problem import (
    FLOOR,
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
from stretch_sim_cal.calibration.room import FloorView, RoomBlock, remeasured_block, room_block
from stretch_sim_cal.calibration.surfaces import Lidar, Surface, without_body
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base
from stretch_sim_cal.geometry.transforms import SIDES, apply, check_rigid, inverse

SECTORS = 12
TRUSTED = 0.3  # patches with this weight or more support the plane
LEAST_TOLERANCE = 0.001  # m; steps lower than this are not held against a floor
MIN_RAYS = 20  # in a patch, for it to count as support


def support_of(fit: FloorFit, left: CellSums, right: CellSums, level_share: float) -> Support:
    """Return how much floor supports the fit, in sectors around the robot."""
    grid = left.grid
    patch, count = grid.patch_of_cells(), grid.patches_per_side**2
    used = fit.used[0] | fit.used[1]
    seen = left.hits + right.hits + left.blocked + right.blocked > 0
    rays = np.bincount(patch, left.hits * fit.used[0] + right.hits * fit.used[1], minlength=count)
    share = np.bincount(patch, used, minlength=count) / np.maximum(np.bincount(patch, seen, minlength=count), 1)
    supporting = (fit.patch_weights >= TRUSTED) & (rays >= MIN_RAYS)
    areas = np.where(supporting, share, 0.0) * (grid.cell_size * grid.cells_per_patch) ** 2

    centres = grid.patch_centres()
    bearings, distances = np.arctan2(centres[:, 1], centres[:, 0]), np.linalg.norm(centres, axis=1)
    sector = np.round(bearings / (2 * np.pi / SECTORS)).astype(int) % SECTORS
    reach = np.zeros(SECTORS)
    np.maximum.at(reach, sector[supporting], distances[supporting])
    gap, middle = _widest_gap(bearings[supporting])
    return Support(
        area=float(areas.sum()),
        sectors=np.bincount(sector, areas, minlength=SECTORS),
        reach=reach,
        gap=gap,
        gap_bearing=middle,
        level_share=level_share,
        unevenness=fit.unevenness,
    )


def _widest_gap(bearings: np.ndarray) -> tuple[float, float]:
    """Return the widest angle (rad) between neighbouring bearings and the bearing of its middle."""
    if not len(bearings):
        return 2 * np.pi, 0.0
    ordered = np.sort(bearings)
    gaps = np.diff(np.r_[ordered, ordered[0] + 2 * np.pi])
    widest = int(np.argmax(gaps))
    return float(gaps[widest]), float(np.angle(np.exp(1j * (ordered[widest] + gaps[widest] / 2))))


def flatness(tiles: Tiles, floor: Plane, unevenness: float, settings: FloorSettings) -> tuple[float, str]:
    """Return which part of the floor around the robot lies on the plane, and in words where it leaves it most.

    A tile lies on the plane where noise and the floor's own unevenness (m) explain its height. Only level tiles within
    the search height count: what is higher or lower is furniture or stairs, not floor.
    """
    distances = np.linalg.norm(tiles.centres[:, :2], axis=1)
    heights = floor.distance(tiles.centres)
    around = (distances < settings.flatness_radius) & (np.abs(heights) < settings.search_height)
    if not around.any():
        return 0.0, ""
    explained = np.maximum(3.5 * np.hypot(tiles.noise, unevenness), LEAST_TOLERANCE)
    off = around & (np.abs(heights) > np.minimum(explained, settings.flatness + 3 * tiles.noise))
    share = 1.0 - np.count_nonzero(off) / np.count_nonzero(around)
    return share, _worst_place(tiles.centres[off], heights[off])


def _worst_place(centres: np.ndarray, heights: np.ndarray) -> str:
    """Return in words where tiles off the plane lie farthest off, looking at half-metre pieces of several tiles."""
    pieces = np.floor(centres[:, :2] / 0.5).astype(int)
    worst, place = 0.0, ""
    for piece in np.unique(pieces, axis=0):
        inside = np.all(pieces == piece, axis=1)
        height = float(np.median(heights[inside]))
        if np.count_nonzero(inside) >= 3 and abs(height) > abs(worst):
            x, y = centres[inside, :2].mean(axis=0)
            worst = height
            side = "higher" if height > 0 else "lower"
            where = direction_in_words(np.arctan2(y, x))
            place = f"{abs(height) * 1e3:.0f} mm {side} than the plane {np.hypot(x, y):.1f} m {where}"
    return place


def residual_map(fit: FloorFit, left: CellSums, right: CellSums, cells: int = 2) -> ResidualMap:
    """Return mean heights over the fitted floor on squares of `cells` x `cells` cells, both lidars together."""
    grid: Grid = left.grid
    side = grid.cells_per_side // cells

    def squares(values: np.ndarray) -> np.ndarray:
        shaped = values.reshape(grid.cells_per_side, grid.cells_per_side)[: side * cells, : side * cells]
        return shaped.reshape(side, cells, side, cells).sum(axis=(1, 3))

    weight = squares(left.information[:, 0, 0] + right.information[:, 0, 0])
    deviation = squares(sum(sums.information[:, 0] @ fit.step - sums.pull[:, 0] for sums in (left, right)))
    trusted = fit.patch_weights[grid.patch_of_cells()] >= TRUSTED
    return ResidualMap(
        edges=np.arange(side + 1) * cells * grid.cell_size - grid.half_width,
        heights=np.where(weight > 0, deviation / np.where(weight > 0, weight, 1.0), np.nan),
        counts=squares(left.hits + right.hits),
        used=squares((fit.used[0] | fit.used[1]) & trusted) > 0,
    )


__all__ = ["FloorResult", "FloorSettings", "ResidualMap", "Support", "SupportFloor"]

FIXED = np.zeros((6, 6))
FIRST_NOISE = Noise(np.array([0.01, 0.01]), 0.001)
# The room alone, then twice the floor as it looks by then: how far the surfaces may still be apart (m), shifted grids.
ROOM_PASSES = ((0.002, 1), (0.0, 1))
FLOOR_PASSES = ((0.001, 1), (0.0, 2))
# How far (m) beyond its unevenness a patch may lie from the floor.
FLOOR_GATE = 0.01
# Cells this near (m) to the nominal floor are kept, whether the other lidar confirms them or not.
NEAR_FLOOR = 0.1


class SupportFloor:
    """Find the floor under the robot from pairs of scans.

    `base_from_left` (4, 4) is the left lidar's pose in base_link (the description's), `right_to_left` (4, 4) the
    alignment, `nominal_footprint_from_base` (4, 4) where the description has base_footprint.
    Raises `InputError` where one of them is not a rigid transform.
    """

    name = "support"
    takes_fields = True

    def __init__(
        self,
        base_from_left: np.ndarray,
        right_to_left: np.ndarray,
        nominal_footprint_from_base: np.ndarray,
        settings: FloorSettings | None = None,
    ):
        self.settings = settings or FloorSettings()
        self._footprint_from_base = check_rigid(nominal_footprint_from_base, "nominal footprint_from_base")
        base_from_left = check_rigid(base_from_left, "base_from_left")
        # All is estimated in the description's base_footprint.
        left = self._footprint_from_base @ base_from_left
        self._poses = (left, left @ check_rigid(right_to_left, "right_to_left"))
        self._alignment = self.settings.observations or Observations.of_transform(
            right_to_left,
            np.diag(np.repeat([self.settings.typical_std_translation, self.settings.typical_std_rotation], 3) ** 2),
        )
        self._intake = FrameIntake(self.settings)
        self._seen = (DirectionCells(self.settings.sensor), DirectionCells(self.settings.sensor))

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Add one pair of clouds, each in its own lidar's frame: points (N, 3), or structured arrays (N,) with x, y, z and
        perhaps ring and intensity; what is not finite is ignored.

        A cloud that was added before, bit by bit, counts once. Raises `InputError` for arrays that are no clouds.
        """
        for cells, cloud in zip(self._seen, self._intake.admit(left, right), strict=True):
            if len(cloud):
                cells.add(cloud)

    def solve(self) -> FloorResult:
        """Return the floor, with refusals where the data does not support it.

        Raises `InputError` where no scan was added.
        """
        if not self._intake.num_given:
            raise InputError("floor: no scans were given; record at least one pair")
        lidars = tuple(Lidar.of_cells(cells, side) for side, cells in enumerate(self._seen))
        unknowns, known = Unknowns(tuple(lidar.model for lidar in lidars)), self.settings.units
        state = State(self._poses, first_units(unknowns.models, known), Plane(np.array([0.0, 0.0, 1.0]), 0.0))
        lidars = self._worth_keeping(lidars, state)
        if not self._alignment.fits(
            unknowns.models
        ):  # of lidars with other channels: their errors are not those of these
            self._alignment = self._alignment.of_the_transform()
        solver = Solver(unknowns, Priors(state, left=FIXED, units_known=known is not None))
        noise = FIRST_NOISE
        room = replace(state, floor=None)
        aligned = solver.solve(self._alignment.equations_at(room, unknowns), room).covariance[RIGHT, RIGHT]
        for slack, grids in ROOM_PASSES:
            block = room_block(lidars, room, noise, slack, grids)
            solution = solver.solve(self._equations(block, room, unknowns, lidars), room)
            room, noise = solver.decided(unknowns.moved(room, solution.change), solution), block.noise
        state = replace(room, floor=state.floor)
        for slack, grids in FLOOR_PASSES:
            found, fit = self._found(lidars, state)
            if fit is None:
                return self._refused(lidars, state)
            state = replace(state, floor=stepped(found.floor, fit.step), curvature=fit.bend)
            solver.priors = replace(solver.priors, curvature=LIKELY_BEND if np.any(fit.bend) else 0.0)
            block = room_block(lidars, state, noise, slack, grids, self._floor_view(found, fit))
            solution = solver.solve(self._equations(block, state, unknowns, lidars), state)
            state, noise = unknowns.moved(state, solution.change), block.noise
        # What is judged is the floor as it looks with the errors taken out that were found with it.
        found, fit = self._found(lidars, state)
        if fit is None:
            return self._refused(lidars, state)
        both = self._disagreement(remeasured_block(lidars, state, block, self._floor_view(found, fit)), state, aligned)
        return self._result(lidars, unknowns, state, solution, found, fit, both)

    def _equations(
        self, block: RoomBlock, state: State, unknowns: Unknowns, lidars: tuple[Lidar, Lidar]
    ) -> NormalEquations:
        """Return what the alignment knows and what the patches say; those of the room only if the alignment did not see one."""
        equations = self._alignment.equations_at(state, unknowns)
        (block.only_floor() if self._alignment.knows_units else block).add_to(equations, unknowns, lidars)
        return equations

    def _worth_keeping(self, lidars: tuple[Lidar, Lidar], state: State) -> tuple[Lidar, Lidar]:
        """Return the lidars with what both see of the room, but for the robot, and what either sees near the floor."""
        surfaces = [
            without_body(lidar.surface, pose, self.settings)
            for lidar, pose in zip(lidars, state.base_from_lidar, strict=True)
        ]
        shared = Views(*surfaces).shared(state.left_from_right)
        kept = []
        for lidar, surface, pose, confirmed in zip(lidars, surfaces, state.base_from_lidar, shared, strict=True):
            heights = apply(pose, surface.points)[:, 2]
            limit = NEAR_FLOOR + self.settings.search_height + np.tan(self.settings.search_tilt) * surface.ranges
            kept.append(Lidar(surface, lidar.model).only(confirmed | (np.abs(heights) < limit)))
        return tuple(kept)

    def _views(self, lidars: tuple[Lidar, Lidar], state: State) -> tuple[list[LidarView], Rays]:
        """Return both lidars over the nominal floor, and their corrected rays that aim at it."""
        views = [LidarView(pose, self.settings.radius) for pose in state.base_from_lidar]
        surfaces = [lidar.corrected(values) for lidar, values in zip(lidars, state.units, strict=True)]
        return views, tuple(
            view.rays(surface.points, surface.counts) for view, surface in zip(views, surfaces, strict=True)
        )

    def _found(self, lidars: tuple[Lidar, Lidar], state: State) -> tuple[FoundFloor | None, FloorFit | None]:
        """Return the floor that both lidars' corrected rays show, and the fit to it; None if there is none."""
        views, rays = self._views(lidars, state)
        found = find_floor(rays, views, self.settings)
        return found, found.fit() if found else None

    def _floor_view(self, found: FoundFloor, fit: FloorFit) -> FloorView:
        """Return which patches the estimate is to take for floor: where the fit trusts it."""
        grid = found.sums[0].grid

        def trust(points: np.ndarray) -> np.ndarray:
            places = points[:, :2]
            inside = np.linalg.norm(places, axis=1) < self.settings.radius
            trusted = fit.patch_weights[grid.patch_of_cells()[grid.cells_of(places)]]
            return np.where(inside, trusted, 0.0)

        return FloorView(trust, fit.unevenness, FLOOR_GATE)

    def _motion(self, lidars: tuple[Lidar, Lidar], state: State, found: FoundFloor, fit: FloorFit) -> Motion | None:
        """Return whether the floor is another one in some of the blocks of time."""
        surfaces = [lidar.corrected(values) for lidar, values in zip(lidars, state.units, strict=True)]
        views = [LidarView(pose, self.settings.radius) for pose in state.base_from_lidar]
        floors = FrameFloors()
        for block in range(max(surface.block_counts.shape[1] for surface in surfaces)):
            rays = tuple(view.rays(*_block(surface, block)) for view, surface in zip(views, surfaces, strict=True))
            floors.add(*found.own_floor(rays, fit.used))
        return floors.motion()

    def _result(
        self, lidars: tuple[Lidar, Lidar], unknowns: Unknowns, state: State, solution: Solution,
        found: FoundFloor, fit: FloorFit, both: Disagreement | None,
    ) -> FloorResult:  # fmt: skip
        left, right = found.sums
        floor, numbers = state.floor, sensor_numbers(unknowns, state, solution)
        plane = floor.moved(inverse(self._footprint_from_base))
        covariance = _covariance_in_base(
            solution.covariance[FLOOR, FLOOR] + fit.systematic, floor, self._footprint_from_base
        )
        level_share, worst_place = flatness(found.tiles, floor, fit.unevenness, self.settings)
        support = support_of(fit, left, right, level_share)
        findings = Findings(self._general_warnings())
        judge_support(findings, support, worst_place, covariance, self.settings)
        if not within_search(floor, self.settings):
            findings.refuse(
                "floor_far_from_description", "the floor lies beyond the search limits of the description's base_footprint",
                "check the description's base_footprint",
            )  # fmt: skip
        judge_shape(findings, fit, self.settings)
        judge_disagreement(findings, both, self.settings)
        judge_motion(findings, self._motion(lidars, state, found, fit), self._intake.num_frames, self.settings)
        hits = sum(float(sums.hits[used].sum()) for sums, used in zip(found.sums, fit.used, strict=True))
        squares = sum(float(sums.height_squares[used].sum()) for sums, used in zip(found.sums, fit.used, strict=True))
        return FloorResult(
            footprint_from_base=footprint_from_base(plane),
            plane=plane,
            covariance=covariance,
            rmse=float(np.sqrt(squares / max(hits, 1.0))),
            num_frames=self._intake.num_frames,
            num_inliers=int(hits),
            method=self.name,
            residual_map=residual_map(fit, left, right),
            support=support,
            warnings=findings.warnings + unit_warnings(numbers, self.settings.sensor),
            refusals=findings.refusals,
            diagnostics={
                "range_noise": found.noise.along_ray,
                "unevenness": fit.unevenness,
                "bend": float(np.linalg.norm(fit.bend)),
                "scatter_between_blocks": fit.inflation,
                "repeated_scans": float(sum(self._intake.repeated)),
            }
            | numbers,
            by_units=FloorByUnits.of(solution, unknowns, state, _change_to_base(floor, self._footprint_from_base)),
        )

    def _disagreement(self, block: RoomBlock, state: State, aligned: np.ndarray) -> Disagreement | None:
        """Return by how much the right lidar's floor is off the left one's under the alignment that was given, which has the
        covariance (6, 6) `aligned`; None if they do not see enough of the same floor."""
        seen = block.floor_gap()
        if seen is None:
            return None
        # What the estimate moved the right lidar by, it had seen off.
        moved = state.floor.moved(self._poses[1] @ inverse(state.base_from_lidar[1]))
        tilt = np.cross(state.floor.normal, moved.normal)
        step, covariance = seen
        # Points that ought to be moved by (t, w) show a floor that is off by t_z, -w_x, -w_y.
        by_pose = np.zeros((3, 6))
        by_pose[0, 2], by_pose[1, 3], by_pose[2, 4] = 1.0, -1.0, -1.0
        step = step + [moved.offset - state.floor.offset, *tilt[:2]]
        return Disagreement(step, covariance + by_pose @ aligned @ by_pose.T)

    def _general_warnings(self) -> list[Finding]:
        found = [
            Finding("silent_lidar", f"the {name} lidar was silent in {count} scans")
            for name, count in zip(SIDES, self._intake.empty, strict=False)
            if count
        ]
        repeated = sum(self._intake.repeated)
        if repeated:
            sentence = f"{repeated} scans repeat earlier ones bit by bit and count once"
            found.append(Finding("repeated_clouds", sentence))
        return found

    def _refused(self, lidars: tuple[Lidar, Lidar], state: State) -> FloorResult:
        views, rays = self._views(lidars, state)
        reason = Finding(
            "no_floor",
            f"no floor within {self.settings.search_height * 1e3:g} mm and {np.degrees(self.settings.search_tilt):g} deg "
            f"of where the description has base_footprint{_in_words(nearest_level_surface(rays, views, self.settings))}",
            "make room, or check the description and the alignment",
        )
        plane = Plane(self._footprint_from_base[2, :3].copy(), float(self._footprint_from_base[2, 3]))
        return FloorResult(
            footprint_from_base=self._footprint_from_base,
            plane=plane,
            covariance=np.diag([np.inf] * 3),
            rmse=float("nan"),
            num_frames=self._intake.num_frames,
            num_inliers=0,
            method=self.name,
            warnings=self._general_warnings(),
            refusals=[reason],
        )


def _in_words(surface: Plane | None) -> str:
    if surface is None:
        return ""
    side = "lower" if surface.offset > 0 else "higher"
    tilt = np.degrees(np.arctan2(np.linalg.norm(surface.normal[:2]), surface.normal[2]))
    return f" (the nearest level surface is {abs(surface.offset) * 1e3:.0f} mm {side} and tilted by {tilt:.1f} deg)"


def _block(surface: Surface, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean points (M, 3) and the counts (M,) of one block of time."""
    if block >= surface.block_counts.shape[1]:
        return np.zeros((0, 3)), np.zeros(0)
    return surface.block_points[:, block], surface.block_counts[:, block]


def _covariance_in_base(covariance: np.ndarray, floor: Plane, footprint_from_base: np.ndarray) -> np.ndarray:
    """Return the covariance over (height, tilt about x, tilt about y) at base_link's origin and about its axes."""
    change = _change_to_base(floor, footprint_from_base)
    return change @ covariance @ change.T


def _change_to_base(floor: Plane, footprint_from_base: np.ndarray) -> np.ndarray:
    """Return how (height, tilt about x, tilt about y) at base_link's origin and about its axes change (3, 3) with those in
    the description's base_footprint."""
    change = np.zeros((3, 3))
    change[0] = -step_slopes(footprint_from_base[None, :3, 3], floor)[0]
    change[1:, 1:] = footprint_from_base[:2, :2].T
    return change
