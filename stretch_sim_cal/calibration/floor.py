"""The floor that the robot stands on, from both lidars: `SupportFloor` is the method "support", the default.

It assumes that the scene stands still, that the left lidar is where the description says, and that the floor near the
robot is a plane within the search limits of the description's base_footprint. It checks the last of these and refuses
where it does not hold.
"""

import hashlib

import numpy as np

from stretch_sim_cal.calibration.floor_cells import CellSums, Grid, Noise, step_slopes, stepped
from stretch_sim_cal.calibration.floor_disagreement import disagreement
from stretch_sim_cal.calibration.floor_fit import FloorFit, fit_floor
from stretch_sim_cal.calibration.floor_rays import FloorRays, FloorView
from stretch_sim_cal.calibration.floor_result import FloorResult, ResidualMap, Support
from stretch_sim_cal.calibration.floor_search import Tiles, level_tiles, range_noise, search_floor, tiles_of, within_search
from stretch_sim_cal.calibration.floor_settings import FloorSettings
from stretch_sim_cal.calibration.floor_support import flatness, reasons_to_refuse, residual_map, support_of
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base
from stretch_sim_cal.geometry.transforms import check_rigid, inverse

__all__ = ["FloorResult", "FloorSettings", "ResidualMap", "Support", "SupportFloor"]

NAMES = ("left", "right")
# Rays kept one by one until the floor is found; from then on frames only add to the cells' sums.
KEPT_RAYS = 3_000_000
# Errors of the first plane (m) that must pass the gate.
FIRST_ERROR = 0.006
LEAST_NOISE = 0.0005


class SupportFloor:
    """Find the floor under the robot from pairs of scans.

    `base_from_left` (4, 4) is the left lidar's pose in base_link (the description's), `right_to_left` (4, 4) the
    alignment, `nominal_footprint_from_base` (4, 4) where the description has base_footprint.
    Raises `InputError` where one of them is not a rigid transform.
    """

    name = "support"

    def __init__(
        self,
        base_from_left: np.ndarray,
        right_to_left: np.ndarray,
        nominal_footprint_from_base: np.ndarray,
        settings: FloorSettings | None = None,
    ):
        self.settings = settings or FloorSettings()
        self._footprint_from_base = check_rigid(nominal_footprint_from_base, "nominal footprint_from_base")
        footprint_from_left = self._footprint_from_base @ check_rigid(base_from_left, "base_from_left")
        footprint_from_right = footprint_from_left @ check_rigid(right_to_left, "right_to_left")
        self._views = [
            FloorView(pose, self.settings.radius, self.settings.min_range)
            for pose in (footprint_from_left, footprint_from_right)
        ]
        self._right_prior = _right_prior(footprint_from_left, self.settings)
        self._kept: tuple[list[FloorRays], list[FloorRays]] = ([], [])
        self._num_kept = 0
        self._seen: set[bytes] = set()
        self._num_repeated = 0
        self._num_frames = 0
        self._found: _Found | None = None

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Add one pair of scans, points (N, 3) each in its own lidar's frame; what is not finite is ignored.

        A pair that was added before, bit by bit, counts once. Raises `InputError` for arrays that are no scans.
        """
        scans = [_checked(points, name) for points, name in zip((left, right), NAMES, strict=True)]
        digest = hashlib.blake2b(b"".join(scan.tobytes() for scan in scans), digest_size=16).digest()
        if digest in self._seen:
            self._num_repeated += 1
            return
        self._seen.add(digest)
        self._num_frames += 1
        rays = [view.rays(scan) for view, scan in zip(self._views, scans, strict=True)]
        if self._found is not None:
            self._found.add(rays, self._views)
            return
        for kept, new in zip(self._kept, rays, strict=True):
            kept.append(new)
            self._num_kept += len(new)
        if self._num_kept > KEPT_RAYS:
            self._find()

    def solve(self) -> FloorResult:
        """Return the floor, with refusals where the data does not support it.

        Raises `InputError` where no scan was added.
        """
        if not self._num_frames:
            raise InputError("floor: no scans were given; record at least one pair")
        if self._found is None:
            self._find()
        found = self._found
        fit = found.fit(self._right_prior) if found.sums else None
        if fit is None:
            return self._refused(
                f"no floor within {self.settings.search_height * 1e3:g} mm and {np.degrees(self.settings.search_tilt):g} deg "
                "of where the description has base_footprint; make room, or check the description and the alignment"
            )
        return self._result(found, fit)

    def _find(self) -> None:
        """Find the floor in the kept rays and turn them into sums about it."""
        rays = [FloorRays.joined(kept) for kept in self._kept]
        self._kept = ([], [])
        self._found = _Found.from_rays(rays, self._views, self._right_prior, self.settings)

    def _result(self, found: "_Found", fit: FloorFit) -> FloorResult:
        left, right = found.sums
        floor = stepped(found.floor, fit.step)
        plane = floor.moved(inverse(self._footprint_from_base))
        covariance = _covariance_in_base(fit.covariance, floor, self._footprint_from_base)
        level_share, worst_place = flatness(found.tiles, floor, fit.unevenness, self.settings)
        support = support_of(fit, left, right, level_share)
        refusals = reasons_to_refuse(support, worst_place, covariance, self.settings)
        warnings = []
        if not within_search(floor, self.settings):
            refusals.append("the floor lies beyond the search limits of the description's base_footprint")
        self._judge_disagreement(fit, left, right, warnings, refusals)
        if level_share >= self.settings.min_level_share and worst_place:
            warnings.append(f"{100 * (1 - level_share):.0f} % of the floor around the robot is off the plane: {worst_place}")
        hits = sum(float(sums.hits[used].sum()) for sums, used in zip(found.sums, fit.used, strict=True))
        squares = sum(float(sums.height_squares[used].sum()) for sums, used in zip(found.sums, fit.used, strict=True))
        return FloorResult(
            footprint_from_base=footprint_from_base(plane),
            plane=plane,
            covariance=covariance,
            rmse=float(np.sqrt(squares / max(hits, 1.0))),
            num_frames=self._num_frames,
            num_inliers=int(hits),
            method=self.name,
            residual_map=residual_map(fit, fit.step, left, right),
            support=support,
            warnings=self._general_warnings() + warnings,
            refusals=refusals,
            diagnostics={
                "range_noise": found.noise.along_ray,
                "unevenness": fit.unevenness,
                "bend": float(np.linalg.norm(fit.bend)),
                "scatter_between_blocks": fit.inflation,
                "repeated_frames": float(self._num_repeated),
            },
        )

    def _judge_disagreement(self, fit, left, right, warnings: list[str], refusals: list[str]) -> None:
        """Say where the two lidars see different floors: the alignment is wrong, or one of them moved."""
        both = disagreement(fit, left, right)
        if both is None:
            warnings.append("only one lidar sees enough floor for a comparison of the two")
            return
        sentence = f"the right lidar sees the floor {both.height * 1e3:.2f} mm and {np.degrees(both.tilt):.3f} deg off the left one's"
        if both.height > self.settings.max_disagreement_height or both.tilt > self.settings.max_disagreement_tilt:
            refusals.append(sentence + "; align the lidars first")
        elif both.step @ np.linalg.solve(both.covariance + self._right_prior, both.step) > 16.3:  # chi square, 3 values, 0.1 %
            warnings.append(sentence + ", more than the alignment's own uncertainty explains")

    def _general_warnings(self) -> list[str]:
        if self._num_repeated:
            return [f"{self._num_repeated} frames repeat earlier ones bit by bit and count once"]
        return []

    def _refused(self, reason: str) -> FloorResult:
        plane = Plane(self._footprint_from_base[2, :3].copy(), float(self._footprint_from_base[2, 3]))
        return FloorResult(
            footprint_from_base=self._footprint_from_base,
            plane=plane,
            covariance=np.diag([np.inf] * 3),
            rmse=float("nan"),
            num_frames=self._num_frames,
            num_inliers=0,
            method=self.name,
            warnings=self._general_warnings(),
            refusals=[reason],
        )


class _Found:
    """The floor as found in the first rays, and the sums of all rays about it."""

    def __init__(self, floor: Plane | None, tiles: Tiles, noise: Noise | None, sums: list[CellSums]):
        self.floor, self.tiles, self.noise, self.sums = floor, tiles, noise, sums

    @classmethod
    def from_rays(cls, rays: list[FloorRays], views: list[FloorView], right_prior, settings: FloorSettings) -> "_Found":
        """Search the floor, then refine it twice, each time with the noise that the last fit has shown."""
        nominal = Plane(np.array([0.0, 0.0, 1.0]), 0.0)
        measured = [view.against(part, nominal).measured for view, part in zip(views, rays, strict=True)]
        tiles = level_tiles(tiles_of(np.concatenate(measured), settings))
        floor = search_floor(tiles, settings)
        if floor is None:
            return cls(None, tiles, None, [])
        along_ray = max(range_noise(tiles, views[0].origin[2]), LEAST_NOISE)
        found = cls._about(floor, tiles, Noise(along_ray, FIRST_ERROR), rays, views, settings)
        for refinement in range(2):
            fit = found.fit(right_prior, may_bend=False)
            if fit is None:
                return cls(None, tiles, None, [])
            # The first sums are about a plane that is millimetres off: only the next ones show the noise.
            noise = found.shown_noise(fit, settings) if refinement else Noise(along_ray, settings.surface_noise)
            found = cls._about(stepped(found.floor, fit.step), tiles, noise, rays, views, settings)
        return found

    @classmethod
    def _about(cls, floor, tiles, noise, rays, views, settings: FloorSettings) -> "_Found":
        grid = Grid(settings.radius, settings.cell_size, settings.cells_per_patch)
        found = cls(floor, tiles, noise, [CellSums(grid, floor, noise) for _ in views])
        found.add(rays, views)
        return found

    def add(self, rays: list[FloorRays], views: list[FloorView]) -> None:
        """Add rays of both lidars to the sums."""
        for sums, view, part in zip(self.sums, views, rays, strict=False):
            sums.add(part.aims, view.against(part, self.floor))

    def fit(self, right_prior: np.ndarray, may_bend: bool = True) -> FloorFit | None:
        """Fit the floor to the sums."""
        return fit_floor(*self.sums, right_prior, may_bend)

    def shown_noise(self, fit: FloorFit, settings: FloorSettings) -> Noise:
        """Return the noise that the rays of the fitted cells show."""
        squares = sum(float(sums.range_squares[used].sum()) for sums, used in zip(self.sums, fit.used, strict=True))
        hits = sum(float(sums.hits[used].sum()) for sums, used in zip(self.sums, fit.used, strict=True))
        return Noise(max(float(np.sqrt(squares / hits)), LEAST_NOISE), settings.surface_noise)


def _checked(points: np.ndarray, name: str) -> np.ndarray:
    points = np.asarray(points)
    if points.ndim != 2 or points.shape[1] != 3 or not len(points):
        raise InputError(f"floor: the {name} scan is an array of shape {points.shape}; (N, 3) with N > 0 is needed")
    return points


def _right_prior(footprint_from_left: np.ndarray, settings: FloorSettings) -> np.ndarray:
    """Return the covariance (3, 3) of how far off the alignment lets the right lidar see the floor's height and tilt."""
    covariance = settings.right_to_left_covariance
    if covariance is None:
        translation, rotation = settings.typical_std_translation, settings.typical_std_rotation
        covariance = np.diag([translation**2] * 3 + [rotation**2] * 3)
    rotation, origin = footprint_from_left[:3, :3], footprint_from_left[:3, 3]
    x, y, z = origin
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    # The twist of the right lidar's points in base_footprint: turned there, and turned about base_footprint's origin.
    adjoint = np.block([[rotation, cross @ rotation], [np.zeros((3, 3)), rotation]])
    # Points that ought to be moved by (t, w) show a floor that is off by t_z, -w_x, -w_y.
    shown = np.zeros((3, 6))
    shown[0, 2], shown[1, 3], shown[2, 4] = 1.0, -1.0, -1.0
    seen = shown @ adjoint
    prior = seen @ covariance @ seen.T
    return prior + np.diag([1e-7, 1e-8, 1e-8]) ** 2


def _covariance_in_base(covariance: np.ndarray, floor: Plane, footprint_from_base: np.ndarray) -> np.ndarray:
    """Return the covariance over (height, tilt about x, tilt about y) at base_link's origin and about its axes."""
    change = np.zeros((3, 3))
    change[0] = -step_slopes(footprint_from_base[None, :3, 3], floor)[0]
    change[1:, 1:] = footprint_from_base[:2, :2].T
    return change @ covariance @ change.T
