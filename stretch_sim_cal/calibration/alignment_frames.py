"""What of an incoming pair of clouds can be used: finite returns, each frame once, without the robot's own body."""

import hashlib

import numpy as np

from stretch_sim_cal.calibration.alignment_settings import AlignmentSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply


class FrameIntake:
    """Cleans pairs of clouds one by one and keeps count of what was left out, and why."""

    def __init__(self, base_from_left: np.ndarray | None, initial_right_to_left: np.ndarray | None,
                 settings: AlignmentSettings):  # fmt: skip
        self._settings = settings
        self._seen: set[bytes] = set()
        base_known = base_from_left is not None and initial_right_to_left is not None
        self._base_from_lidar = (base_from_left, base_from_left @ initial_right_to_left) if base_known else (None, None)
        self.num_frames = 0
        self.empty = [0, 0]
        self.repeated = [0, 0]
        self.unusable = 0

    def admit(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the usable points (N, 3) float64 of one pair of clouds, each in its own lidar frame; either may be empty.

        Raises `InputError` where an argument is not an (N, 3) array of numbers.
        """
        points = (self._usable(left, 0), self._usable(right, 1))
        if any(len(cloud) for cloud in points):
            self.num_frames += 1
        else:
            self.unusable += 1
        return points

    def warnings(self) -> list[str]:
        """Return one sentence for everything that was left out."""
        warnings = []
        for side, name in enumerate(("left", "right")):
            if self.repeated[side]:
                warnings.append(f"{self.repeated[side]} {name} clouds repeat an earlier one and were counted once")
            if self.empty[side]:
                warnings.append(f"{self.empty[side]} {name} clouds hold no usable return and were skipped")
        return warnings

    def _usable(self, cloud: np.ndarray, side: int) -> np.ndarray:
        points = checked_cloud(cloud, ("left", "right")[side])
        digest = hashlib.blake2b(np.ascontiguousarray(points).tobytes(), digest_size=16).digest() if len(points) else b""
        points = points[np.isfinite(points).all(axis=1)].astype(float)
        ranges_squared = np.einsum("ij,ij->i", points, points)
        points = points[
            (ranges_squared >= self._settings.min_range**2) & (ranges_squared <= self._settings.max_range**2)
        ]
        points = self._without_body(points, self._base_from_lidar[side])
        if not len(points):
            self.empty[side] += 1
        elif digest in self._seen:
            self.repeated[side] += 1
            points = points[:0]
        else:
            self._seen.add(digest)
        return points

    def _without_body(self, points: np.ndarray, base_from_lidar: np.ndarray | None) -> np.ndarray:
        if base_from_lidar is None or self._settings.body_radius == 0.0:
            return points
        in_base = apply(base_from_lidar, points)
        near_axis = in_base[:, 0] ** 2 + in_base[:, 1] ** 2 < self._settings.body_radius**2
        # Below the wheels' contact there is only floor, and that is wanted.
        return points[~(near_axis & (in_base[:, 2] > 0.03) & (in_base[:, 2] < self._settings.body_height))]


def checked_cloud(cloud: np.ndarray, name: str) -> np.ndarray:
    """Return `cloud` as it is where it is an (N, 3) array of numbers; raises `InputError` naming it otherwise."""
    cloud = np.asarray(cloud)
    if cloud.ndim != 2 or cloud.shape[1] != 3 or not np.issubdtype(cloud.dtype, np.number):
        raise InputError(f"{name} cloud: an (N, 3) array of numbers was expected, not {cloud.dtype} {cloud.shape}")
    return cloud
