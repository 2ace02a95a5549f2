"""The floor that the robot stands on, from both lidars: `SupportFloor` is the method "support", the default.

It assumes that the scene stands still, that the left lidar is where the description says, and that the floor near the
robot is a plane within the search limits of the description's base_footprint. It checks the last of these and refuses
where it does not hold.
"""

import hashlib

import numpy as np

from stretch_sim_cal.calibration.floor.cells import step_slopes, stepped
from stretch_sim_cal.calibration.floor.disagreement import disagreement
from stretch_sim_cal.calibration.floor.finding import FoundFloor, Frame, find_floor, nearest_level_surface
from stretch_sim_cal.calibration.floor.fit import FloorFit
from stretch_sim_cal.calibration.floor.judgement import (
    Findings,
    judge_disagreement,
    judge_motion,
    judge_shape,
    judge_support,
)
from stretch_sim_cal.calibration.floor.rays import FloorView
from stretch_sim_cal.calibration.floor.result import FloorResult, ResidualMap, Support
from stretch_sim_cal.calibration.floor.search import within_search
from stretch_sim_cal.calibration.floor.settings import FloorSettings
from stretch_sim_cal.calibration.floor.support import flatness, residual_map, support_of
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base
from stretch_sim_cal.geometry.transforms import check_rigid, inverse

__all__ = ["FloorResult", "FloorSettings", "ResidualMap", "Support", "SupportFloor"]

NAMES = ("left", "right")
# Rays kept one by one until the floor is found; from then on frames only add to the cells' sums.
KEPT_RAYS = 1_500_000


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
        self._kept: list[Frame] = []
        self._num_kept = 0
        self._seen: set[bytes] = set()
        self._num_repeated = 0
        self._num_silent = dict.fromkeys(NAMES, 0)
        self._num_frames = 0
        self._searched = False
        self._found: FoundFloor | None = None
        self._instead = ""

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Add one pair of scans, points (N, 3) each in its own lidar's frame; what is not finite is ignored.

        A scan that was added before, bit by bit, counts once. Raises `InputError` for arrays that are no scans.
        """
        scans = [_checked(points, name) for points, name in zip((left, right), NAMES, strict=True)]
        for scan, name in zip(scans, NAMES, strict=True):
            self._num_silent[name] += not np.isfinite(scan).all(axis=1).any()
        new = [self._is_new(scan, name) for scan, name in zip(scans, NAMES, strict=True)]
        self._num_repeated += new.count(False)
        if not any(new):
            return
        self._num_frames += 1
        # Of a pair with one scan that came before only the other one counts.
        frame = tuple(
            view.rays(scan if is_new else scan[:0]) for view, scan, is_new in zip(self._views, scans, new, strict=True)
        )
        if self._found is not None:
            self._found.add(frame)
        elif not self._searched:
            self._kept.append(frame)
            self._num_kept += sum(len(rays) for rays in frame)
            if self._num_kept > KEPT_RAYS:
                self._search()

    def solve(self) -> FloorResult:
        """Return the floor, with refusals where the data does not support it.

        Raises `InputError` where no scan was added.
        """
        if not self._num_frames:
            raise InputError("floor: no scans were given; record at least one pair")
        if not self._searched:
            self._search()
        fit = self._found.fit(self._right_prior) if self._found else None
        if fit is None:
            return self._refused(
                f"no floor within {self.settings.search_height * 1e3:g} mm and "
                f"{np.degrees(self.settings.search_tilt):g} deg of where the description has base_footprint"
                f"{self._instead}; make room, or check the description and the alignment"
            )
        return self._result(self._found, fit)

    def _is_new(self, scan: np.ndarray, name: str) -> bool:
        digest = name.encode() + hashlib.blake2b(np.ascontiguousarray(scan), digest_size=16).digest()
        known = digest in self._seen
        self._seen.add(digest)
        return not known

    def _search(self) -> None:
        """Find the floor in the frames so far."""
        self._found = find_floor(self._kept, self._views, self._right_prior, self.settings)
        if self._found is None:
            self._instead = _in_words(nearest_level_surface(self._kept, self._views, self.settings))
        self._searched = True
        self._kept = []

    def _result(self, found: FoundFloor, fit: FloorFit) -> FloorResult:
        left, right = found.sums
        floor = stepped(found.floor, fit.step)
        plane = floor.moved(inverse(self._footprint_from_base))
        covariance = _covariance_in_base(fit.covariance, floor, self._footprint_from_base)
        range_offset, lidar_height = float(np.mean([step[3] for step in fit.steps])), float(self._views[0].origin[2])
        level_share, worst_place = flatness(
            found.tiles, floor, fit.unevenness, self.settings, range_offset, lidar_height
        )
        support = support_of(fit, left, right, level_share)
        findings = Findings(list(self._general_warnings()))
        judge_support(findings, support, worst_place, covariance, self.settings)
        if not within_search(floor, self.settings):
            findings.refusals.append("the floor lies beyond the search limits of the description's base_footprint")
        judge_shape(findings, fit, self.settings)
        judge_disagreement(findings, disagreement(fit, left, right), self._right_prior, self.settings)
        judge_motion(findings, found.frames.motion(), self._num_frames, self.settings)
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
            residual_map=residual_map(fit, left, right),
            support=support,
            warnings=findings.warnings,
            refusals=findings.refusals,
            diagnostics={
                "range_noise": found.noise.along_ray,
                "unevenness": fit.unevenness,
                "bend": float(np.linalg.norm(fit.bend)),
                "range_offset_left": float(fit.steps[0][3]),
                "range_offset_right": float(fit.steps[1][3]),
                "scatter_between_blocks": fit.inflation,
                "repeated_scans": float(self._num_repeated),
            },
        )

    def _general_warnings(self) -> list[str]:
        found = [f"the {name} lidar was silent in {count} scans" for name, count in self._num_silent.items() if count]
        repeated = self._num_repeated - sum(max(count - 1, 0) for count in self._num_silent.values())
        if repeated > 0:
            found.append(f"{repeated} scans repeat earlier ones bit by bit and count once")
        return found

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


def _in_words(surface: Plane | None) -> str:
    if surface is None:
        return ""
    side = "lower" if surface.offset > 0 else "higher"
    tilt = np.degrees(np.arctan2(np.linalg.norm(surface.normal[:2]), surface.normal[2]))
    return f" (the nearest level surface is {abs(surface.offset) * 1e3:.0f} mm {side} and tilted by {tilt:.1f} deg)"


def _checked(points: np.ndarray, name: str) -> np.ndarray:
    try:
        points = np.asarray(points)
    except ValueError as problem:
        raise InputError(f"floor: the {name} scan is no array: {problem}") from problem
    if points.ndim != 2 or points.shape[1] != 3 or not len(points):
        raise InputError(f"floor: the {name} scan is an array of shape {points.shape}; (N, 3) with N > 0 is needed")
    return points


def _right_prior(footprint_from_left: np.ndarray, settings: FloorSettings) -> np.ndarray:
    """Return the covariance (3, 3) of how far off the alignment lets the right lidar see the floor's height and
    tilt."""
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
