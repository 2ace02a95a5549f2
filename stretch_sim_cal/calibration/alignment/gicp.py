"""Alignment by GICP on the pooled frames (small_gicp): quick, needs little of the scene, limited by its voxels' bias.

Assumes: a scene that stands still, and a first guess within the correspondence distance. Accurate to about a
millimetre; the "planes" method is several times better. Source: Segal et al., Generalized-ICP, RSS 2009; Koide,
small_gicp, JOSS 2024. Frames beyond the first `MAX_POOLED_FRAMES` are counted, but add nothing.
"""

import numpy as np
import small_gicp

from stretch_sim_cal.calibration.clouds import FrameIntake
from stretch_sim_cal.calibration.finding import when
from stretch_sim_cal.calibration.findings import model_findings
from stretch_sim_cal.calibration.observability import covariance_of, unobserved
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, apply, check_rigid, from_rotation_translation

MAX_POOLED_FRAMES = 20
# Bias of GICP by the voxels' borders, measured against truth (docs/accuracy.md), per metre of voxel.
VOXEL_BIAS_TRANSLATION = 0.005
VOXEL_BIAS_ROTATION = float(np.deg2rad(0.1))


class GicpAlignment:
    """Pools the frames and registers the right cloud to the left one."""

    name = "gicp"

    def __init__(self, initial_right_to_left: np.ndarray, settings: AlignmentSettings | None = None):
        self._settings = settings or AlignmentSettings()
        self._initial = check_rigid(initial_right_to_left, "initial right_to_left")
        self._intake = FrameIntake()
        self._clouds: tuple[list, list] = ([], [])

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Take one pair of clouds (N, 3) float, each in its own lidar frame."""
        for kept, cloud in zip(self._clouds, self._intake.admit(left, right), strict=True):
            if len(kept) < MAX_POOLED_FRAMES and len(cloud):
                kept.append(cloud.points.astype(np.float32))

    def solve(self) -> AlignmentResult:
        """Return the alignment. Raises `InputError` if a lidar gave no return at all."""
        for kept, side in zip(self._clouds, SIDES, strict=True):
            if not kept:
                raise InputError(
                    f"no usable return of the {side} lidar in any frame; is it running, and in view of anything?"
                )
        settings, voxel = self._settings, self._settings.downsampling_resolution
        (target, tree), (source, _) = (
            small_gicp.preprocess_points(np.concatenate(kept).astype(float), voxel, num_neighbors=20, num_threads=1)
            for kept in self._clouds
        )
        registration = small_gicp.align(
            target, source, tree, self._initial, max_correspondence_distance=settings.max_correspondence_distance,
            num_threads=1, max_iterations=settings.max_iterations, rotation_epsilon=1e-5, translation_epsilon=1e-5,
        )  # fmt: skip
        estimate = check_rigid(registration.T_target_source, "registration")
        matched, points, normals, gaps = matched_points(target, tree, source, estimate, settings)
        rmse = float(np.sqrt(np.mean(gaps**2))) if matched.any() else float("inf")
        jacobian = np.hstack([normals, np.cross(points, normals)])
        covariance = covariance_of(jacobian.T @ jacobian / max(rmse, 1e-6) ** 2) if matched.any() else 1e6 * np.eye(6)
        # The voxels' bias is about the middle between the two lidars.
        bias = np.diag([(VOXEL_BIAS_TRANSLATION * voxel) ** 2] * 3 + [(VOXEL_BIAS_ROTATION * voxel) ** 2] * 3)
        middle = adjoint(from_rotation_translation(np.eye(3), estimate[:3, 3] / 2))
        covariance = covariance + middle @ bias @ middle.T
        found_directions = settings.directions(covariance, settings.base_from_left)
        sentence = f"registration did not converge in {settings.max_iterations} iterations"
        refusals = when(not registration.converged, "not_converged", sentence) + unobserved(found_directions)
        other_robot, against_model = model_findings(self._initial, estimate)
        return AlignmentResult(
            estimate, covariance, rmse, self._intake.num_frames, self.name, float(np.mean(matched)), found_directions,
            self._intake.warnings() + against_model, refusals or other_robot, {"correspondences": float(matched.sum())},
        )  # fmt: skip


def matched_points(
    target, tree, source, right_to_left: np.ndarray, settings: AlignmentSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return which points (N,) of a preprocessed cloud lie within a voxel of the target's under a transform (4, 4), and
    of these the points (K, 3), the target's normals (K, 3), and how far (K,) in m they are apart along these."""
    moved = apply(right_to_left, source.points()[:, :3])
    nearest, squared = (np.asarray(found) for found in tree.batch_nearest_neighbor_search(moved, num_threads=1))
    near = squared < settings.downsampling_resolution**2
    normals = target.normals()[nearest[near], :3]
    gaps = np.einsum("ij,ij->i", normals, moved[near] - target.points()[nearest[near], :3])
    return near, moved[near], normals, gaps
