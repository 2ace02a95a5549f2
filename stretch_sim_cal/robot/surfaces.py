"""The shapes of a robot's links as triangles, in link frames, in m. Curved primitives become polyhedra with vertices on
the true surface, inside it by at most 0.13 % of a cylinder's radius and 0.6 % of a sphere's."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import voxel_keys
from stretch_sim_cal.geometry.transforms import apply, inverse
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transform, link_transforms
from stretch_sim_cal.robot.model import Geometry, Joint, RobotModel
from stretch_sim_cal.robot.profile import Housing, RobotProfile, stretch_profile

CYLINDER_SECTIONS = 64
SPHERE_SUBDIVISIONS = 3
LARGEST = 20.0  # m: what is larger is in other units
BODY_SPACING = 0.03  # m, between the points on a robot's body
ON_FLOOR = 0.02  # m above a robot's lowest point, where what turns is a wheel
WHEEL_JOINTS = 2  # that lead to a wheel, at most: its own, and that of a caster, a rocker or a spring


@dataclass(frozen=True)
class Surface:
    """Triangles: `vertices` (V, 3) float64, `faces` (F, 3) int64 indices into them. Both may be empty."""

    vertices: np.ndarray
    faces: np.ndarray

    @property
    def triangles(self) -> np.ndarray:
        return self.vertices[self.faces]

    @cached_property
    def corners(self) -> np.ndarray:
        """The corners (K, 3) of the convex hull of all vertices that a face uses."""
        used = self.vertices[np.unique(self.faces)]
        try:
            return used[ConvexHull(used).vertices] if len(used) > 3 else used
        except QhullError:  # a flat part has no hull in space; all of its vertices do as well
            return used

    def moved(self, target_from_source: np.ndarray) -> "Surface":
        """Return the same surface in the target frame of a 4x4 transform."""
        return Surface(apply(target_from_source, self.vertices), self.faces)

    def with_faces(self, keep: np.ndarray) -> "Surface":
        """Return the faces chosen by a mask (F,) or indices, with the vertices that they use."""
        used, faces = np.unique(self.faces[keep], return_inverse=True)
        return Surface(self.vertices[used], faces.reshape(-1, 3))


Surfaces = Mapping[str, Surface]  # by link, in link frames if nothing else is said
EMPTY = Surface(np.zeros((0, 3)), np.zeros((0, 3), dtype=np.int64))


def joined(surfaces: Iterable[Surface]) -> Surface:
    """Return surfaces of one frame as one."""
    surfaces = list(surfaces)
    if not surfaces:
        return EMPTY
    starts = np.cumsum([0] + [len(surface.vertices) for surface in surfaces[:-1]])
    return Surface(
        np.concatenate([surface.vertices for surface in surfaces]),
        np.concatenate([surface.faces + start for surface, start in zip(surfaces, starts, strict=True)]),
    )


def spread_points(triangles: np.ndarray, spacing: float) -> np.ndarray:
    """Return points (M, 3) on triangles (F, 3, 3), about `spacing` (m) apart. Rows are along the longest side, so that
    long thin triangles have one row."""
    sides = np.roll(triangles, -1, axis=1) - triangles
    lengths = np.linalg.norm(sides, axis=2)
    longest = lengths.argmax(axis=1)
    each = np.arange(len(triangles))
    start, side, length = triangles[each, longest], sides[each, longest], lengths[each, longest]
    to_apex = triangles[each, (longest + 2) % 3] - start
    height = np.linalg.norm(np.cross(side, to_apex), axis=1) / np.maximum(length, 1e-12)
    rows = np.maximum(1, np.ceil(height / spacing)).astype(int)
    row_owner = np.repeat(each, rows)
    row = np.arange(len(row_owner)) - np.repeat(np.cumsum(rows) - rows, rows)
    up = (row + 0.5) / rows[row_owner]
    columns = np.maximum(1, np.ceil((1 - up) * length[row_owner] / spacing)).astype(int)
    point_row = np.repeat(np.arange(len(row_owner)), columns)
    column = np.arange(len(point_row)) - np.repeat(np.cumsum(columns) - columns, columns)
    owner, up = row_owner[point_row], up[point_row]
    along = (1 - up) * (column + 0.5) / columns[point_row]
    return start[owner] + along[:, None] * side[owner] + up[:, None] * to_apex[owner]


def surface_points(surface: Surface, spacing: float) -> np.ndarray:
    """Return points (N, 3) on a surface, no part of which is much farther than `spacing` from one of them."""
    points = np.concatenate([surface.vertices, spread_points(surface.triangles, spacing)])
    return points[np.unique(voxel_keys(points, 0.5 * spacing), return_index=True)[1]]


def link_surfaces(model: RobotModel, which: str = "collision") -> dict[str, Surface]:
    """Return the shapes of every link that has any, in link frames. Raises `InputError` naming link and file for a mesh
    that cannot be read."""
    if which not in ("collision", "visual"):
        raise InputError(f"a link has no '{which}' surface; there is collision, visual")
    return {
        name: joined(geometry_surface(each, f"robot '{model.name}', link '{name}', {which}") for each in shapes)
        for name, link in model.links.items()
        if (shapes := link.shapes(which))
    }


def robot_surfaces(model: RobotModel, profile: RobotProfile | None = None) -> dict[str, Surface]:
    """Return what lidars see by the profile (by default the Stretch's), per link in link frames, without what is the
    lidar itself: links under `unseen`, and housings in another link's mesh. Raises `InputError` as `link_surfaces`."""
    profile = profile or stretch_profile()
    surfaces = outline_surfaces(model, profile)
    for lidar in profile.lidars.values():
        for link in lidar.unseen:
            surfaces.pop(link, None)
    return surfaces


def outline_surfaces(model: RobotModel, profile: RobotProfile) -> dict[str, Surface]:
    """Return the robot's body, per link in link frames: `robot_surfaces` and the links that are lidars. Links without
    shapes of the profile's `lidar_geometry` have their collision shapes. Raises `InputError` as `link_surfaces`, for a
    geometry of none of the model's links, and for a robot in mm."""
    for joint in model.joints.values():
        if (off := float(np.linalg.norm(joint.parent_from_joint[:3, 3]))) > LARGEST:
            raise InputError(f"robot '{model.name}': joint '{joint.name}': its origin is {off:g} m off; give it in m")
    surfaces, geometry = link_surfaces(model, "collision"), profile.lidar_geometry
    if geometry == "visual":
        surfaces |= link_surfaces(model, "visual")
    elif geometry != "collision":
        given = link_surfaces(load_model(geometry, mesh_folders=profile.description.packages), "collision")
        known = {link: surface for link, surface in given.items() if link in model.links}
        if not known:
            raise InputError(f"lidar_geometry: {geometry}: has no shapes for the links of '{model.name}'")
        surfaces |= known
    for link, surface in surfaces.items():
        if (size := float(np.ptp(surface.vertices, axis=0).max(initial=0.0))) > LARGEST:
            remedy = 'give it in m (scale="0.001 0.001 0.001" of a mesh in mm)'
            raise InputError(f"robot '{model.name}': link '{link}': is {size:g} m in size; {remedy}")
    link = profile.housing_link
    if link in model.links and model.links[link].visuals:
        places = tuple(
            (profile.lidars[name].housing, inverse(link_transform(model, {}, lidar, link)).tobytes())
            for name, lidar in profile.housed_links(model).items() if model.rigidly_joined(link, lidar)
        )  # fmt: skip
        if places:
            shell = link_surfaces(model, "visual")[link]
            outside = _outside_housings(shell.vertices.tobytes(), shell.faces.tobytes(), places)
            surfaces[link] = shell.with_faces(outside)
    return surfaces


def body_settings(
    profile: RobotProfile, description: str | RobotModel | None, tell: Callable[[str], object]
) -> dict[str, Any]:
    """Return the settings for the robot's body in scans: the profile's cylinder if it has one, else points on the
    shapes of the `description` (a URDF's text) in the stowed pose; none if these are unknown, after `tell` got the
    reason."""
    if profile.body is not None:
        return dict(zip(("body_radius", "body_height"), profile.body, strict=True))
    try:
        if description is None:
            raise InputError("no /robot_description")
        folders = profile.description.packages
        model = load_model(description, mesh_folders=folders) if isinstance(description, str) else description
        stowed = profile.joint_positions(model, profile.stowed)
        frames = link_transforms(model, {name: value for name, value in stowed.items() if name in model.joints})
        base_from_root = inverse(frames[model.checked_link(profile.base_frame)])
        shapes = outline_surfaces(model, profile)
    except InputError as problem:
        tell(f"the robot's body is assumed to be a cylinder of 0.4 m by 1.8 m: {problem}")
        return {}
    points = [
        apply(base_from_root @ frames[link], surface_points(shape, BODY_SPACING)) for link, shape in shapes.items()
    ]
    return {"body": np.concatenate(points)} if points else {}


def enclosing_link(model: RobotModel, profile: RobotProfile) -> dict[str, tuple[str, str]]:
    """Return by side the lidars' frames whose origins lie inside a closed shape of the robot, and its link."""
    placed, transforms, found = robot_surfaces(model, profile), link_transforms(model, {}), {}
    for side, lidar in profile.lidars.items():
        frame = lidar.link_in(model)
        for link, surface in placed.items():
            # Without the housings, whatever is inside their link cannot be distinguished from what is outside.
            if lidar.housing is None or link != lidar.housing.link:
                origin = apply(inverse(transforms[link]), transforms[frame][None, :3, 3])
                if _is_inside(surface, origin)[0]:
                    found[side] = (frame, link)
    return found


@lru_cache(maxsize=4)
def _outside_housings(vertices: bytes, faces: bytes, places: tuple[tuple[Housing, bytes], ...]) -> np.ndarray:
    """Return which faces (F,) of a shell's visual shape are not of the lidars' housings, by the bytes of its arrays and
    of lidar_from_shell (4, 4); cached, since it takes a third of a simulator's start. A housing is the connected parts
    wholly in a cylinder around the lidar's axis, and what lies inside it. The collar around the dome stays: it hides
    what is lower than about 7 deg over the lidar's x-y plane."""
    shell = Surface(np.frombuffer(vertices).reshape(-1, 3), np.frombuffer(faces, np.int64).reshape(-1, 3))
    parts, housings = _connected_parts(shell), []
    for housing, lidar_from_shell in places:
        inside = housing.holds(apply(np.frombuffer(lidar_from_shell).reshape(4, 4), shell.vertices))
        own = np.zeros(len(shell.faces), dtype=bool)
        for part in parts:
            own[part] = inside[shell.faces[part]].all()
        housings.append(own)
    keep = ~np.any(housings, axis=0)
    for own in housings:
        keep[keep] = ~_is_inside(shell.with_faces(own), shell.triangles[keep].mean(axis=1))
    return keep


def _connected_parts(surface: Surface) -> list[np.ndarray]:
    import trimesh

    mesh = trimesh.Trimesh(surface.vertices, surface.faces, process=False)
    mesh.merge_vertices(digits_vertex=7)  # those of an STL are not shared
    labels = trimesh.graph.connected_component_labels(mesh.edges, node_count=len(mesh.vertices))[mesh.faces[:, 0]]
    return [np.flatnonzero(labels == label) for label in np.unique(labels)]


def _is_inside(closed: Surface, points: np.ndarray) -> np.ndarray:
    import trimesh

    inside = np.zeros(len(points), dtype=bool)
    for part in _connected_parts(closed) if len(closed.faces) else []:
        mesh = trimesh.Trimesh(closed.vertices, closed.faces[part])
        near = ((points > mesh.bounds[0]) & (points < mesh.bounds[1])).all(axis=1)
        if near.any():
            inside[near] |= mesh.contains(points[near])
    return inside


def lowest_points(model: RobotModel, surfaces: Surfaces) -> dict[str, float]:
    """Return the height (m) of each link's lowest point in the root's frame at position zero."""
    frames = link_transforms(model, {}, list(surfaces))
    return {
        link: float(apply(frames[link], surface.vertices)[:, 2].min())
        for link, surface in surfaces.items()
        if len(surface.vertices)
    }


def wheel_joints(model: RobotModel, surfaces: Surfaces) -> list[Joint]:
    """Return the joints of wheels and casters: their links reach the robot's lowest point and carry no arm."""
    lowest, moving, found = lowest_points(model, surfaces), model.moving_joints(), []
    floor = min(lowest.values(), default=0.0) + ON_FLOOR
    for joint in moving:
        below = model.moved_by([joint.name])
        rolls = joint.type != "prismatic" and any(lowest.get(link, np.inf) < floor for link in below)
        if rolls and sum(each.child in below for each in moving) <= WHEEL_JOINTS:
            found.append(joint)
    return found


def geometry_surface(geometry: Geometry, where: str) -> Surface:
    """Return one shape in its link's frame. `where` begins the `InputError` of an unreadable mesh."""
    import trimesh

    match geometry.kind:
        case "box":
            mesh = trimesh.creation.box(extents=geometry.size)
        case "cylinder":
            mesh = trimesh.creation.cylinder(geometry.radius, geometry.length, sections=CYLINDER_SECTIONS)
        case "sphere":
            mesh = trimesh.creation.icosphere(subdivisions=SPHERE_SUBDIVISIONS, radius=geometry.radius)
        case _:
            if geometry.path is None:
                remedy = "give the folder of its package or of the URDF"
                raise InputError(f"{where}: mesh '{geometry.filename}' is not found; {remedy}")
            vertices, faces = read_mesh(geometry.path, where)
            if np.prod(geometry.scale) < 0:
                faces = faces[:, ::-1]  # A mirrored surface keeps its outside outside.
            return Surface(apply(geometry.link_from_geometry, vertices * geometry.scale), faces)
    vertices = np.asarray(mesh.vertices, dtype=float)
    return Surface(apply(geometry.link_from_geometry, vertices), np.asarray(mesh.faces, dtype=np.int64))


def read_mesh(path: Path, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return vertices (V, 3) and faces (F, 3) of a mesh file. Raises `InputError` beginning with `where`."""
    try:
        return _mesh(path, path.stat().st_mtime_ns, where)
    except OSError as error:
        raise InputError(f"{where}: mesh {path}: {error.strerror or error}") from error


@lru_cache(maxsize=256)
def _mesh(path: Path, modified: int, where: str) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    try:
        mesh = trimesh.load(path, force="mesh", process=False)
    except Exception as error:  # Every format's reader has exceptions of its own.
        raise InputError(f"{where}: mesh {path} cannot be read: {type(error).__name__}: {error}") from error
    vertices, faces = np.array(mesh.vertices, dtype=float), np.array(mesh.faces, dtype=np.int64)
    if not len(faces) or not np.isfinite(vertices).all():
        raise InputError(f"{where}: mesh {path} has no triangles with finite corners")
    for shared in (vertices, faces):
        shared.setflags(write=False)
    return vertices, faces
