"""SDF's shapes as triangles, each in its own frame, and floors that are not flat, in m. Facets cut through curved
surfaces, at most `SURFACE_ERROR` off either side up to a radius of 80 m (spheres: 10 m)."""

from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.surfaces import Surface, Surfaces, joined

SURFACE_ERROR = 5e-5
MAX_SEGMENTS = 2000
MAX_SPHERE_SEGMENTS = 1000
PLANE_HALF_SIZE = 100.0  # SDF's collision planes have no end; this one ends beyond what a lidar on the robot can reach
FLOOR_CELL = 0.1  # m, grid of an uneven floor
FLOOR_WAVES = 24
FLOOR_REACH = 20.0  # m; farther from the world's origin there is no floor if it is uneven
FLOOR_LEVEL = 1e-6  # m, of a flat floor's height

Mesh = tuple[np.ndarray, np.ndarray]  # vertices (V, 3) float, faces (F, 3) int


def box(size: np.ndarray) -> Mesh:
    """Return a box with edges `size` (3,), centred on the origin, normals outward."""
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)]) * size
    quads = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    return corners, np.array([t for a, b, c, d in quads for t in ((a, b, c), (a, c, d))])


def plane(normal: np.ndarray, size: np.ndarray) -> Mesh:
    """Return a rectangle with edges `size` (2,) through the origin across `normal` (3,)."""
    z_axis = normal / np.linalg.norm(normal)
    helper = np.array([1.0, 0.0, 0.0]) if abs(z_axis[0]) < 0.9 else np.array([0.0, 1.0, 0.0])
    x_axis = helper - (helper @ z_axis) * z_axis
    x_axis /= np.linalg.norm(x_axis)
    half_x, half_y = size[0] / 2 * x_axis, size[1] / 2 * np.cross(z_axis, x_axis)
    corners = np.array([-half_x - half_y, half_x - half_y, half_x + half_y, half_y - half_x])
    return corners, np.array([[0, 1, 2], [0, 2, 3]])


def cylinder(radius: float, length: float) -> Mesh:
    return _lathe(np.array([[0, -length / 2], [radius, -length / 2], [radius, length / 2], [0, length / 2]]), radius)


def cone(radius: float, length: float) -> Mesh:
    """Return a closed cone about z, its tip up, centred on the origin as SDF has it."""
    return _lathe(np.array([[0, -length / 2], [radius, -length / 2], [0, length / 2]]), radius)


def sphere(radius: float) -> Mesh:
    return ellipsoid(np.full(3, radius))


def capsule(radius: float, length: float) -> Mesh:
    """Return a cylinder of `length` about z, centred on the origin, with half spheres beyond its ends."""
    arc = np.linspace(-np.pi / 2, np.pi / 2, _sphere_segments(radius) // 2 * 2 + 2)
    profile = radius * np.stack([np.cos(arc), np.sin(arc)], axis=1)
    profile[:, 1] += np.sign(arc) * length / 2
    profile[[0, -1], 0] = 0.0
    return _lathe(profile, radius)


def ellipsoid(radii: np.ndarray) -> Mesh:
    """Return an ellipsoid with half axes `radii` (3,), centred on the origin."""
    largest = float(np.max(radii))
    segments = _sphere_segments(largest)
    arc = np.linspace(-np.pi / 2, np.pi / 2, segments // 2 + 1)
    scale = _facet_scale(np.pi / segments)
    profile = scale * np.stack([np.cos(arc), np.sin(arc)], axis=1)
    profile[[0, -1], 0] = 0.0
    vertices, faces = _lathe(profile, largest, segments)
    return vertices * radii, faces


def _lathe(profile: np.ndarray, radius: float, segments: int | None = None) -> Mesh:
    """Return the surface of revolution of a profile (P, 2) of (distance from z, height) about the z axis. That of
    trimesh leaves out facets of less than 1e-8 m2, so that small spheres have holes."""
    if segments is None:  # as many as keep a circle of that radius to `SURFACE_ERROR`
        error = SURFACE_ERROR
        half_angle = np.arccos((radius - error) / (radius + error)) if radius > error else np.pi / 8
        segments = int(np.clip(np.ceil(np.pi / half_angle), 8, MAX_SEGMENTS))
    angles = 2 * np.pi * np.arange(segments) / segments
    rings, heights = profile[:, :1] * _facet_scale(np.pi / segments), np.repeat(profile[:, 1:], segments, axis=1)
    vertices = np.stack([rings * np.cos(angles), rings * np.sin(angles), heights], axis=-1).reshape(-1, 3)
    index = np.arange(len(vertices)).reshape(len(profile), segments)
    following = np.roll(index, -1, axis=1)
    a, b, c, d = index[:-1], following[:-1], following[1:], index[1:]
    faces = np.concatenate([np.stack([a, b, c], -1).reshape(-1, 3), np.stack([a, c, d], -1).reshape(-1, 3)])
    # At the axis a quad is a triangle: its other half has no area.
    corners = vertices[faces]
    areas = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    return vertices, faces[areas > 0]


def _facet_scale(half_angle: float) -> float:
    """Return the factor on the radius by which facets lie as far outside of a circle at their ends as inside amid."""
    return 2.0 / (1.0 + np.cos(half_angle))


def _sphere_segments(radius: float) -> int:
    """Return the facets around the equator, twice those from pole to pole: they bend both ways, and each way gets half
    of the error."""
    half_angle = np.sqrt(2.0 * SURFACE_ERROR / radius)
    return int(np.clip(2 * np.ceil(np.pi / half_angle / 2), 16, MAX_SPHERE_SEGMENTS))


def person(height: float = 1.75) -> Surface:
    """Return a person who stands on z = 0 and faces x, as coarse capsules."""
    import trimesh

    parts = [
        (0.075, 0.68, (0.05, 0.09, 0.415)), (0.075, 0.68, (-0.05, -0.09, 0.415)), (0.15, 0.32, (0.0, 0.0, 1.16)),
        (0.045, 0.5, (0.0, 0.22, 1.1)), (0.045, 0.5, (0.0, -0.22, 1.1)), (0.09, 0.06, (0.0, 0.0, 1.63)),
    ]  # fmt: skip
    capsules = [trimesh.creation.capsule(length, radius, count=[16, 16]) for radius, length, _ in parts]
    for mesh, (_, _, place) in zip(capsules, parts, strict=True):
        mesh.apply_translation(np.array(place) - mesh.bounds.mean(axis=0))
    return joined(Surface(np.asarray(mesh.vertices) * height / 1.75, np.asarray(mesh.faces)) for mesh in capsules)


@dataclass(frozen=True)
class Undulation:
    """A sum of plane waves: of each the height (m) at a crest, the wave vector (2,) in rad/m and the phase (rad)."""

    amplitude: float
    vectors: np.ndarray
    phases: np.ndarray

    @classmethod
    def drawn(cls, rms: float, waves: tuple[float, float], random: np.random.Generator) -> "Undulation":
        """Return waves of root mean square height `rms` (m), of wavelengths (m) between two bounds."""
        lengths = np.exp(random.uniform(*np.log(waves), FLOOR_WAVES))
        ways, phases = random.uniform(0, np.pi, FLOOR_WAVES), random.uniform(0, 2 * np.pi, FLOOR_WAVES)
        vectors = 2 * np.pi / lengths[:, None] * np.stack([np.cos(ways), np.sin(ways)], axis=1)
        return cls(rms / np.sqrt(FLOOR_WAVES / 2), vectors, phases)

    def heights(self, points: np.ndarray) -> np.ndarray:
        """Return the heights (...,) in m at places (..., 2) of the world."""
        heights: np.ndarray = self.amplitude * np.cos(points @ self.vectors.T + self.phases).sum(axis=-1)
        return heights

    def stance(self, wheels: np.ndarray, x: float, y: float, yaw: float) -> tuple[float, float, float]:
        """Return height (m), roll and pitch (rad) of a base by the plane through its wheels (N, 2), in its footprint
        frame."""
        cosine, sine = np.cos(yaw), np.sin(yaw)
        under = self.heights(wheels @ np.array([[cosine, sine], [-sine, cosine]]) + [x, y])
        height, along, across = np.linalg.lstsq(np.column_stack([np.ones(len(wheels)), wheels]), under)[0]
        roll = np.arcsin(across / np.sqrt(1.0 + along**2 + across**2))
        return float(height), float(roll), float(-np.arctan(along))

    def laid(self, surfaces: Surfaces, where: str) -> dict[str, Surface]:
        """Return a world's surfaces with this floor in place of the flat one; what stands on it stays in place. Raises
        `InputError` naming `where` without one at z = 0."""
        found = dict(surfaces)
        for name, surface in surfaces.items():
            corners = surface.triangles
            upward = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])[:, 2] > 0
            floor = upward & (np.abs(corners[:, :, 2]).max(axis=1) < FLOOR_LEVEL)
            if upward.any() and floor[upward].all():
                places = np.clip(corners[floor][..., :2], -FLOOR_REACH, FLOOR_REACH)
                sheet = Surface(*uneven_sheet(places.min((0, 1)), places.max((0, 1)), self))
                found[name] = joined([surface.with_faces(~floor), sheet])
        if all(found[name] is surface for name, surface in surfaces.items()):
            raise InputError(f"{where}: the world has no flat floor at z = 0")
        return found


def uneven_sheet(low: np.ndarray, high: np.ndarray, floor: Undulation) -> Mesh:
    """Return the floor as triangles over a rectangle between two corners (2,), its normals up."""
    counts = [max(2, int(np.ceil(extent / FLOOR_CELL)) + 1) for extent in high - low]
    grid = np.stack(
        np.meshgrid(*(np.linspace(*bounds, n) for *bounds, n in zip(low, high, counts, strict=True)), indexing="ij"),
        axis=-1,
    )
    vertices = np.concatenate([grid, floor.heights(grid)[..., None]], axis=-1).reshape(-1, 3)
    index = np.arange(len(vertices)).reshape(counts)
    a, b, c, d = (corner.ravel() for corner in (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]))
    return vertices, np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
