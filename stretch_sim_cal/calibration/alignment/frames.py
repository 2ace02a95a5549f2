"""What of an incoming pair of clouds can be used: finite returns within the range limits, each cloud once."""

import hashlib

import numpy as np

from stretch_sim_cal.calibration.alignment.settings import AlignmentSettings
from stretch_sim_cal.errors import InputError


class FrameIntake:
    """Cleans pairs of clouds one by one and keeps count of what was left out, and why."""

    def __init__(self, settings: AlignmentSettings):
        self._settings = settings
        self._seen: set[bytes] = set()
        self.num_frames = 0
        self.empty = [0, 0]
        self.repeated = [0, 0]

    def admit(self, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the usable points (N, 3) of one pair of clouds, each in its own lidar frame; either may be empty.

        Raises `InputError` where an argument is not an (N, 3) array of numbers.
        """
        points = (self._usable(left, 0), self._usable(right, 1))
        self.num_frames += any(len(cloud) for cloud in points)
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
        digest = hashlib.sha1(np.ascontiguousarray(points), usedforsecurity=False).digest()
        with np.errstate(invalid="ignore", over="ignore"):
            squared_ranges = np.einsum("ij,ij->i", points, points)
            # Where a component is not a number or infinite, so is the square, and neither comparison holds.
            usable = (squared_ranges >= self._settings.min_range**2) & (squared_ranges <= self._settings.max_range**2)
        points = points if usable.all() else points[usable]
        if not len(points):
            self.empty[side] += 1
        elif digest in self._seen:
            self.repeated[side] += 1
            points = points[:0]
        else:
            self._seen.add(digest)
        return points


def checked_cloud(cloud: np.ndarray, name: str) -> np.ndarray:
    """Return `cloud` as it is where it is an (N, 3) array of real numbers; raises `InputError` naming it otherwise."""
    cloud = np.asarray(cloud)
    real = np.issubdtype(cloud.dtype, np.floating) or np.issubdtype(cloud.dtype, np.integer)
    if cloud.ndim != 2 or cloud.shape[1] != 3 or not real:
        raise InputError(f"{name} cloud: an (N, 3) array of numbers was expected, not {cloud.dtype} {cloud.shape}")
    # Integers (millimetres, say) would overflow when squared; other byte orders are slow.
    return cloud.astype(cloud.dtype.newbyteorder("=") if cloud.dtype.kind == "f" else float, copy=False)
