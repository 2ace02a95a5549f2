"""SDF files: a plain tree of elements that know their line, poses relative to named frames, and shapes as triangles.

Document types and entities are refused, so a file cannot expand into something larger than itself or name another.
Poses follow SDFormat's semantics: `relative_to` and `attached_to` name links, frames, joints or models of the same scope,
`a::b` reaches into model a, and `placement_frame` says which frame of a model its pose places.

Shapes are in their own frame, in m. Boxes and planes are exact. Curved shapes are faceted so that no point of a facet is
further than `SURFACE_ERROR` from the true surface, on either side of it (facets cut through the surface, so that they are
right on average). Cylinders and cones keep that up to a radius of 80 m, spheres up to 10 m; larger ones get no more
facets.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_quaternion, from_xyz_rpy, inverse
from stretch_sim_cal.robot.surfaces import Surface, joined

MAX_BYTES = 20_000_000
MAX_DEPTH = 100


@dataclass
class Element:
    """An XML element: its tag, attributes, stripped text, children, and where it stands."""

    tag: str
    attributes: dict[str, str]
    file: Path
    line: int
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    @property
    def where(self) -> str:
        """File, line and tag, as messages begin."""
        return f"{self.file}:{self.line}: <{self.tag}>"

    @property
    def name(self) -> str:
        """The attribute `name`. Raises `InputError` if it is missing or empty."""
        name = self.attributes.get("name", "").strip()
        if not name:
            raise InputError(f"{self.where}: has no name")
        return name

    def all(self, tag: str) -> Iterator["Element"]:
        """Yield the direct children of that tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> "Element | None":
        """Return the first direct child of that tag, or None."""
        return next(self.all(tag), None)

    def required(self, tag: str) -> "Element":
        """Return the first direct child of that tag. Raises `InputError` if there is none."""
        child = self.first(tag)
        if child is None:
            raise InputError(f"{self.where}: has no <{tag}>")
        return child

    def numbers(self, count: int) -> np.ndarray:
        """Return the text as `count` finite numbers. Raises `InputError` for anything else."""
        try:
            values = np.array([float(word) for word in self.text.split()])
        except ValueError:
            values = np.empty(0)
        if len(values) != count or not np.isfinite(values).all():
            raise InputError(f"{self.where}: is '{self.text[:60]}', {count} numbers were expected")
        return values

    def positive(self, count: int = 1) -> np.ndarray:
        """Return the text as `count` numbers above zero. Raises `InputError` for anything else."""
        values = self.numbers(count)
        if (values <= 0).any():
            raise InputError(f"{self.where}: is '{self.text[:60]}', it has to be above 0")
        return values

    def flag(self) -> bool:
        """Return the text as a truth value. Raises `InputError` for anything else."""
        if self.text.lower() not in ("true", "false", "1", "0"):
            raise InputError(f"{self.where}: is '{self.text[:60]}', true or false was expected")
        return self.text.lower() in ("true", "1")


def read_sdf(path: Path, root: str = "sdf") -> Element:
    """Return the root element, of tag `root`, of a file. Raises `InputError` naming file, line and cause otherwise."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: is larger than {MAX_BYTES // 1_000_000} MB, that is no world file")
    element = _parse(data, path)
    if element.tag != root:
        raise InputError(f"{element.where}: is not the file that was expected, it should begin with <{root}>")
    return element


def pose_of(element: Element | None) -> np.ndarray:
    """Return the 4x4 transform that a `<pose>` writes down (identity for none or an empty one).

    Raises `InputError` if it is not a pose.
    """
    if element is None or not (element.text or element.attributes.get("frame")):
        return np.eye(4)
    if element.attributes.get("frame"):
        raise InputError(f"{element.where}: frame='...' is of SDF before 1.7; write relative_to='...'")
    notation = element.attributes.get("rotation_format", "euler_rpy")
    if notation == "quat_xyzw":
        values = element.numbers(7)
        if np.linalg.norm(values[3:]) < 1e-9:
            raise InputError(f"{element.where}: its quaternion has no length")
        return from_xyz_quaternion(values[:3], values[3:])
    if notation != "euler_rpy":
        raise InputError(f"{element.where}: rotation_format '{notation}' is neither euler_rpy nor quat_xyzw")
    values = element.numbers(6)
    degrees = element.attributes.get("degrees", "false").lower() in ("true", "1")
    return from_xyz_rpy(values[:3], np.radians(values[3:]) if degrees else values[3:])


def _parse(data: bytes, path: Path) -> Element:
    """Return the root element of an XML document without document type."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    root: list[Element] = []
    open_elements: list[Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, path, parser.CurrentLineNumber)
        if len(open_elements) >= MAX_DEPTH:
            raise InputError(f"{element.where}: is nested more than {MAX_DEPTH} deep")
        (open_elements[-1].children if open_elements else root).append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        open_elements[-1].text = open_elements[-1].text.strip()
        open_elements.pop()

    def characters(text: str) -> None:
        open_elements[-1].text += text

    def refuse(*_: object) -> None:
        raise InputError(f"{path}:{parser.CurrentLineNumber}: has a document type or entities; remove them")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InputError(f"{path}:{error.lineno}: is not valid XML: {expat.ErrorString(error.code)}") from error
    except (LookupError, ValueError) as error:  # an encoding that is not known, or multi-byte
        raise InputError(f"{path}: is not valid XML: {error}") from error
    return root[0]


MAX_CHAIN = 100
ROOTS = {"world": "world", "model": "__model__"}


class Scope:
    """A world or a model, in whose frame links, frames, joints and nested models have poses.

    `element` is its `<world>` or `<model>`; `included` turns an `<include>` into the `<model>` that it stands for,
    or None.
    """

    def __init__(self, element: Element, included: Callable[[Element], Element | None]):
        self.element = element
        self.root = ROOTS[element.tag]
        self.models: dict[str, Scope] = {}
        self._named: dict[str, Element] = {}
        self._resolved: dict[str, np.ndarray] = {self.root: np.eye(4)}
        self._being_resolved: list[str] = []
        for child in element.children:
            if child.tag == "include":
                child = included(child)
            if child is None or child.tag not in ("link", "frame", "joint", "model"):
                continue
            if child.name in self._named:
                raise InputError(f"{child.where}: another element of the same scope is named '{child.name}'")
            self._named[child.name] = child
            if child.tag == "model":
                self.models[child.name] = Scope(child, included)

    def pose(self, name: str, asked_by: Element) -> np.ndarray:
        """Return scope_from_frame (4, 4) of a frame of this scope. Raises `InputError` for unknown or circular ones."""
        if name in self._resolved:
            return self._resolved[name]
        outer, _, inner = name.partition("::")
        if inner and outer in self.models:
            return self.pose(outer, asked_by) @ self.models[outer].pose(inner, asked_by)
        if name not in self._named:
            raise InputError(f"{asked_by.where}: frame '{name}' is not known here")
        if name in self._being_resolved:
            raise InputError(f"{asked_by.where}: frames go in a circle: {' -> '.join([*self._being_resolved, name])}")
        if len(self._being_resolved) >= MAX_CHAIN:
            raise InputError(f"{asked_by.where}: frames depend on each other more than {MAX_CHAIN} deep")
        self._being_resolved.append(name)
        self._resolved[name] = self._pose_of_element(self._named[name])
        self._being_resolved.pop()
        return self._resolved[name]

    def _pose_of_element(self, element: Element) -> np.ndarray:
        """Return scope_from_element (4, 4) of a link, frame, joint or nested model."""
        transform = self.pose_relative(element, self._default_parent(element))
        placed = element.attributes.get("placement_frame", "")
        if element.tag == "model" and placed:
            transform = transform @ inverse(self.models[element.name].pose(placed, element))
        return transform

    def pose_relative(self, element: Element, parent: str) -> np.ndarray:
        """Return scope_from_element (4, 4) by the element's `<pose>`, which is relative to `parent` unless it says."""
        pose = element.first("pose")
        given = pose.attributes.get("relative_to", "") if pose is not None else ""
        return self.pose(given or parent, element) @ pose_of(pose)

    def _default_parent(self, element: Element) -> str:
        if element.tag == "frame":
            return element.attributes.get("attached_to", "") or self.root
        if element.tag == "joint":
            return element.required("child").text
        return self.root


SURFACE_ERROR = 5e-5
MAX_SEGMENTS = 2000
MAX_SPHERE_SEGMENTS = 1000
# SDF's collision planes have no end; this one ends beyond what a lidar on the robot can reach.
PLANE_HALF_SIZE = 100.0

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
    y_axis = np.cross(z_axis, x_axis)
    half_x, half_y = size[0] / 2 * x_axis, size[1] / 2 * y_axis
    corners = np.array([-half_x - half_y, half_x - half_y, half_x + half_y, half_y - half_x])
    return corners, np.array([[0, 1, 2], [0, 2, 3]])


def cylinder(radius: float, length: float) -> Mesh:
    """Return a closed cylinder about z, centred on the origin."""
    return _lathe(np.array([[0, -length / 2], [radius, -length / 2], [radius, length / 2], [0, length / 2]]), radius)


def cone(radius: float, length: float) -> Mesh:
    """Return a closed cone about z, its tip up, centred on the origin as SDF has it."""
    return _lathe(np.array([[0, -length / 2], [radius, -length / 2], [0, length / 2]]), radius)


def sphere(radius: float) -> Mesh:
    """Return a sphere centred on the origin."""
    return ellipsoid(np.full(3, radius))


def capsule(radius: float, length: float) -> Mesh:
    """Return a capsule about z, centred on the origin: a cylinder of `length` with half spheres beyond its ends."""
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
    """Return the surface that a profile (P, 2) of (distance from z, height) sweeps about the z axis."""
    segments = segments or _segments(radius)
    angles = 2 * np.pi * np.arange(segments) / segments
    rings = profile[:, 0] * _facet_scale(np.pi / segments)
    vertices = np.stack(
        [
            rings[:, None] * np.cos(angles),
            rings[:, None] * np.sin(angles),
            np.repeat(profile[:, 1:], segments, axis=1),
        ],
        axis=-1,
    ).reshape(-1, 3)
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


def _segments(radius: float) -> int:
    """Return how many facets keep a circle of that radius to `SURFACE_ERROR`."""
    half_angle = np.arccos((radius - SURFACE_ERROR) / (radius + SURFACE_ERROR)) if radius > SURFACE_ERROR else np.pi / 8
    return int(np.clip(np.ceil(np.pi / half_angle), 8, MAX_SEGMENTS))


def _sphere_segments(radius: float) -> int:
    """Return how many facets around the equator, twice those from pole to pole, keep a sphere to `SURFACE_ERROR`.

    A sphere's facets bend both ways, so each way gets half of the error.
    """
    half_angle = np.sqrt(2.0 * SURFACE_ERROR / radius)
    return int(np.clip(2 * np.ceil(np.pi / half_angle / 2), 16, MAX_SPHERE_SEGMENTS))


def person(height: float = 1.75) -> Surface:
    """Return somebody who stands on z = 0 and faces x: legs, trunk, arms and head as coarse capsules."""
    import trimesh

    parts = [
        (0.075, 0.68, (0.05, 0.09, 0.415)), (0.075, 0.68, (-0.05, -0.09, 0.415)), (0.15, 0.32, (0.0, 0.0, 1.16)),
        (0.045, 0.5, (0.0, 0.22, 1.1)), (0.045, 0.5, (0.0, -0.22, 1.1)), (0.09, 0.06, (0.0, 0.0, 1.63)),
    ]  # fmt: skip
    capsules = [trimesh.creation.capsule(length, radius, count=[16, 16]) for radius, length, _ in parts]
    for mesh, (_, _, place) in zip(capsules, parts, strict=True):
        mesh.apply_translation(np.array(place) - mesh.bounds.mean(axis=0))
    return joined(Surface(np.asarray(mesh.vertices) * height / 1.75, np.asarray(mesh.faces)) for mesh in capsules)
