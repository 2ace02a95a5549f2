"""The published alignment method, written anew from its public description, as the peer to compare with.

Every pair of clouds is registered by itself (small_gicp's GICP, 0.1 m voxels, correspondences up to 0.4 m, the
description's transform as the first guess); the result is the mean over all pairs.
"""

import numpy as np
import small_gicp
from scipy.spatial.transform import Rotation

from stretch_sim_cal.geometry.transforms import from_rotation_translation

VOXEL = 0.1  # m
MAX_CORRESPONDENCE_DISTANCE = 0.4  # m


class PublishedAlignment:
    """The method behind the same three calls as ours; `solve` returns right_to_left (4, 4)."""

    def __init__(self, initial_right_to_left: np.ndarray):
        self._initial = initial_right_to_left
        self._estimates: list[np.ndarray] = []

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        result = small_gicp.align(
            left.astype(float), right.astype(float), init_T_target_source=self._initial, registration_type="GICP",
            downsampling_resolution=VOXEL, max_correspondence_distance=MAX_CORRESPONDENCE_DISTANCE, num_threads=1,
        )  # fmt: skip
        self._estimates.append(result.T_target_source)

    def solve(self) -> np.ndarray:
        estimates = np.array(self._estimates)
        rotation = Rotation.from_matrix(estimates[:, :3, :3]).mean().as_matrix()
        return from_rotation_translation(rotation, estimates[:, :3, 3].mean(axis=0))
