"""Planes written as `normal . p + offset = 0` with a unit normal. Lengths in m."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.geometry.transforms import angle_between, from_rotation_translation, inverse

UP = np.array([0.0, 0.0, 1.0])


@dataclass(frozen=True)
class Plane:
    """A plane `normal . p + offset = 0`; `normal` (3,) is of unit length."""

    normal: np.ndarray
    offset: float

    @classmethod
    def from_coefficients(cls, normal, offset: float) -> "Plane":
        """Return the plane of a normal of any length but zero, scaled to unit length."""
        normal = np.asarray(normal, dtype=float)
        length = float(np.linalg.norm(normal))
        return cls(normal / length, float(offset) / length)

    def distance(self, points: np.ndarray) -> np.ndarray:
        """Return the signed distance (N,) of points (N, 3), positive on the normal's side."""
        return points @ self.normal + self.offset

    def moved(self, target_from_source: np.ndarray) -> "Plane":
        """Return the same plane in the target frame."""
        normal = target_from_source[:3, :3] @ self.normal
        return Plane(normal, float(self.offset - normal @ target_from_source[:3, 3]))

    def facing(self, direction: np.ndarray) -> "Plane":
        """Return this plane with its normal turned to the side of `direction` (3,)."""
        return self if self.normal @ direction >= 0 else Plane(-self.normal, -self.offset)


LEVEL = Plane(UP, 0.0)
"""The floor in the frame of base_footprint."""


def fit_plane(points: np.ndarray, weights: np.ndarray | None = None) -> tuple[Plane, np.ndarray]:
    """Return the least-squares plane through points (N, 3), and the variances (3,) along its axes, ascending."""
    weights = np.ones(len(points)) if weights is None else weights
    centre = np.average(points, axis=0, weights=weights)
    centred = points - centre
    scatter = (centred * weights[:, None]).T @ centred / weights.sum()
    variances, axes = np.linalg.eigh(scatter)
    normal = axes[:, 0]
    return Plane(normal, float(-normal @ centre)), variances


def floor_error(truth: Plane, estimate: Plane) -> tuple[float, float]:
    """Return the distance of two floors at the frame's origin (m), and their angle (rad)."""
    estimate = estimate.facing(truth.normal)
    return abs(truth.offset - estimate.offset), angle_between(truth.normal, estimate.normal)


def footprint_from_base(floor_in_base: Plane) -> np.ndarray:
    """Return `base_footprint_from_base_link` of a floor in base_link: the origin on the floor below base_link's, z
    along the upward normal, x along the projection of base_link's x axis."""
    up = floor_in_base.facing(UP)
    z_axis = up.normal
    x_axis = np.array([1.0, 0.0, 0.0]) - z_axis[0] * z_axis
    x_axis /= np.linalg.norm(x_axis)
    axes = np.stack([x_axis, np.cross(z_axis, x_axis), z_axis], axis=1)
    return inverse(from_rotation_translation(axes, -up.offset * z_axis))


def floor_of_footprint(footprint_from_base_link: np.ndarray) -> Plane:
    """Return the floor plane in base_link of a `base_footprint_from_base_link` transform."""
    return Plane(footprint_from_base_link[2, :3].copy(), float(footprint_from_base_link[2, 3]))


def height_slopes(points: np.ndarray, floor: Plane) -> np.ndarray:
    """Return d(height over the assumed floor) / d(increment of the floor) (N, 3) at points on it (N, 3)."""
    levers = np.cross(floor.normal, points)
    return -np.column_stack([np.ones(len(points)), levers[:, 0], levers[:, 1]])


def incremented(floor: Plane, increment: np.ndarray) -> Plane:
    """Return the floor after an increment (height, tilt about x, tilt about y)."""
    tilt = np.array([increment[1], increment[2], 0.0])
    return Plane.from_coefficients(floor.normal + np.cross(tilt, floor.normal), floor.offset + increment[0])


def floor_between(before: Plane, after: Plane) -> np.ndarray:
    """Return the increment (height in m, tilts about x and y in rad) from one floor to another."""
    tilt = np.cross(before.normal, after.normal)
    return np.array([after.offset - before.offset, tilt[0], tilt[1]])
