"""GICP on the pooled frames (`gicp` by name), and the published methods, by their public description, for comparisons
(`published`, `published_code`).

Alignment: each pair of clouds is registered (small_gicp's GICP from the description's transform); the result is the
mean over all pairs. Floor: both clouds in base_link, pooled; the floor is the largest bin of a histogram of heights,
then planes are fitted by singular value decomposition to the returns within a gate that shrinks from 10 cm to 3 mm, by
the description (`published`), or to 3 cm, as in the code (`published_code`).

The published ones assume that the scene determines the result and that the floor returns more rays than any other level
surface; this is not checked, and every result warns of it. The floor's memory grows with the returns.
"""

import numpy as np
import small_gicp
from scipy.spatial.transform import Rotation

from stretch_sim_cal.calibration.clouds import FrameIntake, checked_points
from stretch_sim_cal.calibration.finding import when
from stretch_sim_cal.calibration.findings import model_findings
from stretch_sim_cal.calibration.observability import covariance_of, unobserved
from stretch_sim_cal.calibration.results import AlignmentResult, FloorResult
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry import transforms
from stretch_sim_cal.geometry.planes import UP, Plane, fit_plane, floor_of_footprint, footprint_from_base

MAX_POOLED_FRAMES = 20
# Bias of GICP by the voxels' borders, measured against truth (docs/accuracy.md), per metre of voxel.
VOXEL_BIAS_TRANSLATION = 0.005
VOXEL_BIAS_ROTATION = float(np.deg2rad(0.1))

UNCHECKED = "the published method checks neither the scene nor its result; its standard deviations are typical ones"
# Standard deviations (m, rad) per axis of the error that all pairs of clouds have in common, by voxels and gates, as
# measured in a furnished room (docs/accuracy.md).
ALIGNMENT_STD = np.array([4e-4] * 3 + [2e-4] * 3)
FLOOR_STD = np.array([2e-4, 1e-4, 1e-4])

BIN = 0.02  # m, of the histogram of heights
WIDEST_GATE = 0.10  # m
NARROWINGS = 8
CONVERGED = 1e-6
MAX_ITERATIONS = 20


class GicpAlignment:
    """Pools the frames and registers the right cloud to the left one (small_gicp): quick, needs little of the scene,
    accurate to about a millimetre (voxels' bias). Assumes a scene that stands still, and a first guess within the
    correspondence distance. Source: Segal et al., Generalized-ICP, RSS 2009; Koide, small_gicp, JOSS 2024. Frames
    beyond the first `MAX_POOLED_FRAMES` are counted, but add nothing."""

    name = "gicp"

    def __init__(self, initial_right_to_left: np.ndarray, settings: AlignmentSettings | None = None):
        self._settings = settings or AlignmentSettings()
        self._initial = transforms.check_rigid(initial_right_to_left, "initial right_to_left")
        self._intake = FrameIntake(self._settings.names)
        self._clouds: tuple[list, list] = ([], [])

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Take one pair of clouds (N, 3) float, each in its own lidar frame."""
        for kept, cloud in zip(self._clouds, self._intake.admit(left, right), strict=True):
            if len(kept) < MAX_POOLED_FRAMES and len(cloud):
                kept.append(cloud.points.astype(np.float32))

    def solve(self) -> AlignmentResult:
        """Return the alignment. Raises `InputError` if a lidar gave no return at all."""
        for kept, name in zip(self._clouds, self._settings.names, strict=True):
            if not kept:
                raise InputError(f"no usable return of the {name} lidar in any frame; is it running, and not covered?")
        settings, voxel = self._settings, self._settings.downsampling_resolution
        (target, tree), (source, _) = (
            small_gicp.preprocess_points(np.concatenate(kept).astype(float), voxel, num_neighbors=20, num_threads=1)
            for kept in self._clouds
        )
        registration = small_gicp.align(
            target, source, tree, self._initial, max_correspondence_distance=settings.max_correspondence_distance,
            num_threads=1, max_iterations=settings.max_iterations, rotation_epsilon=1e-5, translation_epsilon=1e-5,
        )  # fmt: skip
        estimate = transforms.check_rigid(registration.T_target_source, "registration")
        matched, points, normals, gaps = matched_points(target, tree, source, estimate, settings)
        rmse = float(np.sqrt(np.mean(gaps**2))) if matched.any() else float("inf")
        jacobian = transforms.by_twist(points, normals)
        covariance = covariance_of(jacobian.T @ jacobian / max(rmse, 1e-6) ** 2) if matched.any() else 1e6 * np.eye(6)
        # The voxels' bias is about the middle between the two lidars.
        bias = np.diag([(VOXEL_BIAS_TRANSLATION * voxel) ** 2] * 3 + [(VOXEL_BIAS_ROTATION * voxel) ** 2] * 3)
        middle = transforms.adjoint(transforms.from_xyz_rpy(estimate[:3, 3] / 2))
        covariance = covariance + middle @ bias @ middle.T
        found_directions = settings.directions(covariance, settings.base_from_left)
        sentence = f"registration did not converge in {settings.max_iterations} iterations"
        refusals = when(not registration.converged, "not_converged", sentence) + unobserved(found_directions)
        other_robot, against_model = model_findings(self._initial, estimate, settings.names)
        return AlignmentResult(
            estimate, covariance, rmse, self._intake.num_frames, self.name, float(np.mean(matched)), found_directions,
            warnings=self._intake.warnings() + against_model, refusals=refusals or other_robot,
            diagnostics={"correspondences": float(matched.sum())},
        )  # fmt: skip


def matched_points(
    target, tree, source, right_to_left: np.ndarray, settings: AlignmentSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return a mask (N,) of the points of a preprocessed cloud within a voxel of the target's under a transform (4, 4),
    and of these the points (K, 3), the target's normals (K, 3), and the distances (K,) in m along these."""
    moved = transforms.apply(right_to_left, source.points()[:, :3])
    nearest, squared = (np.asarray(array) for array in tree.batch_nearest_neighbor_search(moved, num_threads=1))
    near = squared < settings.downsampling_resolution**2
    normals = target.normals()[nearest[near], :3]
    gaps = np.einsum("ij,ij->i", normals, moved[near] - target.points()[nearest[near], :3])
    return near, moved[near], normals, gaps


class PublishedAlignment:
    """GICP for every pair of clouds, then the mean."""

    name = "published"

    def __init__(self, initial_right_to_left: np.ndarray, settings: AlignmentSettings | None = None):
        """Registrations start at `initial_right_to_left` (4, 4). Raises `InputError` if it is not rigid."""
        self._settings = settings or AlignmentSettings()
        self._initial = transforms.check_rigid(initial_right_to_left, "initial right_to_left")
        self._estimates: list[np.ndarray] = []
        self._not_converged = self._skipped = 0
        self._last: list[np.ndarray] | None = None

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Register one pair of clouds (N, 3), each in its own lidar frame. Raises `InputError` for anything else."""
        clouds = [_finite(left, "left"), _finite(right, "right")]
        if not all(map(len, clouds)):
            self._skipped += 1
            return
        result = small_gicp.align(
            *clouds, self._initial, registration_type="GICP", num_threads=1,
            downsampling_resolution=self._settings.downsampling_resolution,
            max_correspondence_distance=self._settings.max_correspondence_distance,
            max_iterations=self._settings.max_iterations,
        )  # fmt: skip
        self._estimates.append(result.T_target_source)
        self._not_converged += not result.converged
        self._last = clouds

    def solve(self) -> AlignmentResult:
        """Return the mean over the pairs. Raises `InputError` if no pair had returns of both lidars."""
        if self._last is None:
            raise InputError("no pair of clouds with returns of both lidars; are both running, and not covered?")
        estimates = np.array(self._estimates)
        rotation = Rotation.from_matrix(estimates[:, :3, :3]).mean().as_matrix()
        mean = transforms.from_rotation_translation(rotation, estimates[:, :3, 3].mean(axis=0))
        mean = transforms.check_rigid(mean, "registration")
        twists = np.array([transforms.log(estimate @ transforms.inverse(mean)) for estimate in estimates])
        count = len(estimates)
        scatter = twists.T @ twists / (count * max(count - 1, 1))
        # The distances of the last pair's surfaces, and the share of the right one's within a voxel of the left one's.
        resolution, warnings = self._settings.downsampling_resolution, [UNCHECKED]
        (target, tree), (source, _) = (small_gicp.preprocess_points(cloud, resolution) for cloud in self._last)
        near, _, _, gaps = matched_points(target, tree, source, mean, self._settings)
        rmse = float(np.sqrt(np.mean(gaps**2))) if near.any() else 0.0
        if self._not_converged:
            failed = f"{self._not_converged} of {count} registrations did not converge"
            warnings.append(f"{failed}; they are used all the same")
        if self._skipped:
            warnings.append(f"{self._skipped} pairs of clouds without returns of one lidar were skipped")
        covariance = scatter + np.diag(ALIGNMENT_STD**2)
        return AlignmentResult(mean, covariance, rmse, count, self.name, float(np.mean(near)), [], warnings=warnings)


class PublishedFloor:
    """Histogram of heights, gate, singular value decomposition, by the description."""

    name = "published"
    gate = 0.003
    """The last gate in m: returns this near to the last plane are fitted."""

    def __init__(
        self, base_from_left: np.ndarray, right_to_left: np.ndarray, nominal_footprint_from_base: np.ndarray,
        settings: object = None,
    ):  # fmt: skip
        """Raises `InputError` if one of the transforms (4, 4) is not rigid."""
        base_from_left = transforms.check_rigid(base_from_left, "base_from_left")
        self._poses = base_from_left, base_from_left @ transforms.check_rigid(right_to_left, "right_to_left")
        self._nominal = transforms.check_rigid(nominal_footprint_from_base, "nominal footprint_from_base")
        self._clouds: list[np.ndarray] = []
        self._num_frames = 0

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Add one pair of clouds (N, 3), each in its own lidar frame. Raises `InputError` for anything else."""
        for pose, points, side in zip(self._poses, (left, right), transforms.SIDES, strict=True):
            self._clouds.append(transforms.apply(pose, _finite(points, side)))
        self._num_frames += 1

    def solve(self) -> FloorResult:
        """Return the plane; refused if too few returns lie on it. Raises `InputError` if there are no returns."""
        cloud = np.concatenate([np.zeros((0, 3)), *self._clouds])
        if not len(cloud):
            raise InputError("floor: no returns given; record at least one pair of clouds")
        bins, counts = np.unique(np.floor(cloud[:, 2] / BIN), return_counts=True)
        plane = Plane(UP, -BIN * float(bins[np.argmax(counts)] + 0.5))
        for gate in [*np.geomspace(WIDEST_GATE, self.gate, NARROWINGS), *[self.gate] * MAX_ITERATIONS]:
            inliers = cloud[np.abs(plane.distance(cloud)) < gate]
            if len(inliers) < 3:
                reason = f"no floor: {len(inliers)} returns lie within {1e3 * gate:.0f} mm of the plane, 3 are needed"
                return self._result(floor_of_footprint(self._nominal), inliers, [reason])
            last, plane = plane, fit_plane(inliers)[0].facing(UP)
            moved = max(abs(plane.offset - last.offset), *np.abs(plane.normal - last.normal))
            if gate == self.gate and moved < CONVERGED:
                break
        return self._result(plane, inliers, [])

    def _result(self, plane: Plane, inliers: np.ndarray, refusals: list[str]) -> FloorResult:
        rmse = float(np.sqrt(np.mean(plane.distance(inliers) ** 2))) if len(inliers) else 0.0
        return FloorResult(
            footprint_from_base(plane), plane, np.diag(FLOOR_STD**2), rmse, self._num_frames, len(inliers), self.name,
            warnings=[UNCHECKED], refusals=refusals,
        )  # fmt: skip


class PublishedCodeFloor(PublishedFloor):
    """The same with the gate at which the published code stops."""

    name = "published_code"
    gate = 0.03


def _finite(points: np.ndarray, side: str) -> np.ndarray:
    points = checked_points(points, side).astype(float, copy=False)
    return points[np.isfinite(points).all(axis=1)]
