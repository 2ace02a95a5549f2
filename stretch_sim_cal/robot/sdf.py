"""SDF files (http://sdformat.org/spec, 1.5 to 1.12): elements with file and line, poses relative to named frames, and
one robot's links and joints. Document types, entities, nested models and a robot's `<include>` are refused."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from xml.parsers import expat

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_bytes
from stretch_sim_cal.geometry.transforms import from_xyz_quaternion, from_xyz_rpy, inverse
from stretch_sim_cal.robot.model import Joint, Limit, Link, Mimic, RobotModel, near, robot_model

MAX_BYTES = 20_000_000
MAX_DEPTH = 100


@dataclass
class Element:
    """An XML element, and where it stands. Its methods raise `InputError` naming file, line and tag for what is missing
    or cannot be read."""

    tag: str
    attributes: dict[str, str]
    file: Path
    line: int
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}: <{self.tag}>"

    @property
    def name(self) -> str:
        name = self.attributes.get("name", "").strip()
        if not name:
            raise InputError(f"{self.where}: has no name")
        return name

    def all(self, tag: str) -> Iterator["Element"]:
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> "Element | None":
        return next(self.all(tag), None)

    def required(self, tag: str) -> "Element":
        child = self.first(tag)
        if child is None:
            raise InputError(f"{self.where}: has no <{tag}>")
        return child

    def numbers(self, count: int) -> np.ndarray:
        """Return the text as `count` finite numbers (count,)."""
        try:
            values = np.array([float(word) for word in self.text.split()])
        except ValueError:
            values = np.empty(0)
        if len(values) != count or not np.isfinite(values).all():
            wanted = "a finite number was" if count == 1 else f"{count} finite numbers were"
            raise InputError(f"{self.where}: is '{self.text[:60]}'; {wanted} expected")
        return values

    def number(self, tag: str, default: float) -> float:
        """Return the number in the first direct child of that tag."""
        child = self.first(tag)
        return default if child is None else float(child.numbers(1)[0])

    def positive(self, count: int = 1) -> np.ndarray:
        """Return the text as `count` numbers (count,) above zero."""
        values = self.numbers(count)
        if (values <= 0).any():
            raise InputError(f"{self.where}: is '{self.text[:60]}', it has to be above 0")
        return values

    def positive_number(self, tag: str) -> float:
        return float(self.required(tag).positive()[0])

    def flag(self) -> bool:
        if self.text.lower() not in ("true", "false", "1", "0"):
            raise InputError(f"{self.where}: is '{self.text[:60]}'; expected true or false")
        return self.text.lower() in ("true", "1")


def read_sdf(path: Path, root: str = "sdf") -> Element:
    """Return the root element, of tag `root`. Raises `InputError` naming file, line and cause."""
    data = read_bytes(path)
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: is larger than {MAX_BYTES // 1_000_000} MB, too large for an SDF file")
    element = _parse(data, path)
    if element.tag != root:
        raise InputError(f"{element.where}: is not the expected file: it should begin with <{root}>")
    return element


def pose_of(element: Element | None) -> np.ndarray:
    """Return the transform (4, 4) of a `<pose>`, identity for none or an empty one."""
    if element is None or not (element.text or element.attributes.get("frame")):
        return np.eye(4)
    if element.attributes.get("frame"):
        raise InputError(f"{element.where}: frame='...' is from SDF before 1.7; write relative_to='...'")
    notation = element.attributes.get("rotation_format", "euler_rpy")
    if notation == "quat_xyzw":
        xyz, quaternion = np.split(element.numbers(7), [3])
        if np.linalg.norm(quaternion) < 1e-9:
            raise InputError(f"{element.where}: its quaternion is zero")
        return from_xyz_quaternion(xyz, quaternion)
    if notation != "euler_rpy":
        raise InputError(f"{element.where}: rotation_format '{notation}' is neither euler_rpy nor quat_xyzw")
    xyz, rpy = np.split(element.numbers(6), [3])
    degrees = element.attributes.get("degrees", "false").lower() in ("true", "1")
    return from_xyz_rpy(xyz, np.radians(rpy) if degrees else rpy)


def _parse(data: bytes, path: Path) -> Element:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    above = Element("", {}, path, 0)
    open_elements = [above]

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, path, parser.CurrentLineNumber)
        if len(open_elements) > MAX_DEPTH:
            raise InputError(f"{element.where}: is nested more than {MAX_DEPTH} deep")
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        element = open_elements.pop()
        element.text = element.text.strip()

    def characters(text: str) -> None:
        open_elements[-1].text += text

    def refuse(*_: object) -> None:
        raise InputError(f"{path}:{parser.CurrentLineNumber}: has a document type or entities; remove them")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, characters
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InputError(f"{path}:{error.lineno}: is not valid XML: {expat.ErrorString(error.code)}") from error
    except (LookupError, ValueError) as error:  # an encoding that is not known, or multi-byte
        raise InputError(f"{path}: is not valid XML: {error}") from error
    return above.children[0]


class Scope:
    """A world or a model (`element`), in whose frame its `elements` by name, links, frames, joints and nested models,
    have poses; `a::b` reaches into model a. `included` turns an `<include>` into its `<model>`, or None."""

    def __init__(self, element: Element, included: Callable[[Element], Element | None]):
        self.element = element
        self.root = {"world": "world", "model": "__model__"}[element.tag]
        self.models: dict[str, Scope] = {}
        self.elements: dict[str, Element] = {}
        self._resolved: dict[str, np.ndarray] = {self.root: np.eye(4)}
        self._being_resolved: list[str] = []
        for child in element.children:
            if child.tag == "include":
                child = included(child)
            if child is None or child.tag not in ("link", "frame", "joint", "model"):
                continue
            if child.name in self.elements:
                raise InputError(f"{child.where}: another element of the same scope is named '{child.name}'")
            self.elements[child.name] = child
            if child.tag == "model":
                self.models[child.name] = Scope(child, included)

    def pose(self, name: str, asked_by: Element) -> np.ndarray:
        """Return scope_from_frame (4, 4). Raises `InputError` for unknown and circular frames."""
        if name in self._resolved:
            return self._resolved[name]
        outer, _, inner = name.partition("::")
        if inner and outer in self.models:
            return self.pose(outer, asked_by) @ self.models[outer].pose(inner, asked_by)
        if name not in self.elements:
            raise InputError(f"{asked_by.where}: frame '{name}' is unknown here{near(name, self.elements)}")
        if name in self._being_resolved:
            raise InputError(f"{asked_by.where}: frames form a cycle: {' -> '.join([*self._being_resolved, name])}")
        if len(self._being_resolved) >= MAX_DEPTH:
            raise InputError(f"{asked_by.where}: frames are nested more than {MAX_DEPTH} deep")
        self._being_resolved.append(name)
        element, parent = self.elements[name], self.root
        if element.tag == "frame":
            parent = element.attributes.get("attached_to") or self.root
        elif element.tag == "joint":
            parent = element.required("child").text
        transform = self.pose_relative(element, parent)
        placed = element.attributes.get("placement_frame", "")
        if element.tag == "model" and placed:
            transform = transform @ inverse(self.models[element.name].pose(placed, element))
        self._resolved[name] = transform
        self._being_resolved.pop()
        return transform

    def pose_relative(self, element: Element, parent: str) -> np.ndarray:
        """Return scope_from_element (4, 4) by its `<pose>`, which by default is relative to `parent`."""
        pose = element.first("pose")
        given = pose.attributes.get("relative_to", "") if pose is not None else ""
        return self.pose(given or parent, element) @ pose_of(pose)


WORLD = "world"  # the ground, as SDF calls it
TYPES = {name: name for name in ("fixed", "revolute", "continuous", "prismatic", "universal")}
TYPES |= {"screw": "helical", "ball": "spherical", "revolute2": "universal"}
UNLIMITED = 1e16  # SDF writes limits that are none as 1e16 or infinite


@dataclass(frozen=True)
class SdfModel:
    """Links with `model_from_link` (4, 4), and joints, which may form loops and whose frames need not be their
    children's; `WORLD` as a parent is the ground."""

    name: str
    links: dict[str, np.ndarray]
    joints: tuple[Joint, ...]
    source: str
    scope: Scope

    def model_from_joint(self, joint: Joint) -> np.ndarray:
        return self.links.get(joint.parent, np.eye(4)) @ joint.parent_from_joint

    def robot_model(self) -> RobotModel:
        """Return the model as a tree; `WORLD` is its root if a joint hangs on it. A joint that is not at its child's
        frame gets a link `<joint>_frame`. Raises `InputError` for loops."""
        ground = {WORLD: np.eye(4)} if any(joint.parent == WORLD for joint in self.joints) else {}
        links, joints = [*map(Link, ground | self.links)], []
        for joint in self.joints:
            child, x_axis = joint.child, np.array([1.0, 0.0, 0.0])
            joint_from_child = inverse(self.model_from_joint(joint)) @ self.links[child]
            if np.abs(joint_from_child - np.eye(4)).max() > 1e-12:
                child = f"{joint.name}_frame"
                links.append(Link(child))
                joints.append(Joint(f"{joint.name}_to_link", "fixed", child, joint.child, joint_from_child, x_axis))
            joints.append(replace(joint, child=child))
        return robot_model(self.name, links, joints, self.source)


def is_sdf(path: Path, text: str) -> bool:
    """Return whether a file is an SDF, by its name or its first element."""
    return path.suffix == ".sdf" or "<sdf" in text[:1000]


def read_sdf_model(path: Path) -> SdfModel:
    """Return the one model of an SDF file, in a world or not. Raises `InputError` naming file, line and element."""
    root = read_sdf(path)
    models = [*root.all("model"), *(model for world in root.all("world") for model in world.all("model"))]
    if len(models) != 1:
        names = ", ".join(model.attributes.get("name", "?") for model in models[:5])
        raise InputError(f"{path}: expected one model, there {'are ' + names if models else 'is none'}")
    for tag in ("include", "model"):
        if (nested := models[0].first(tag)) is not None:
            raise InputError(f"{nested.where}: a nested <{tag}> is not supported; expand it first")
    scope = Scope(models[0], lambda include: None)
    links = {link.name: scope.pose(link.name, link) for link in models[0].all("link")}
    if not links:
        raise InputError(f"{models[0].where}: model '{models[0].name}' has no links")
    joints = [each for joint in models[0].all("joint") for each in _joints(joint, scope, links)]
    return SdfModel(models[0].name, links, tuple(joints), str(path), scope)


def _joints(joint: Element, scope: Scope, links: dict[str, np.ndarray]) -> list[Joint]:
    """Return an element's joints; a universal joint is two revolute ones with a link between, added to `links`."""
    name, written = joint.name, joint.attributes.get("type", "")
    if written not in TYPES:
        raise InputError(f"{joint.where}: '{name}': type '{written}' is not supported; available: {', '.join(TYPES)}")
    kind, ends = TYPES[written], [_link_of(joint, role, scope, links) for role in ("parent", "child")]
    frame = scope.pose(name, joint)
    placed = inverse(links.get(ends[0], np.eye(4))) @ frame
    if kind in ("fixed", "spherical"):
        return [Joint(name, kind, *ends, placed, np.array([0.0, 0.0, 1.0]))]
    axis, limit = _axis(joint.required("axis"), scope, frame)
    turns = "revolute" if limit else "continuous"
    if kind != "universal":
        pitch = _pitch(joint) if kind == "helical" else 0.0
        mimic = _mimic(joint.required("axis"))
        return [Joint(name, turns if kind == "revolute" else kind, *ends, placed, axis, limit, mimic, pitch)]
    between = f"{name}_cross"
    links[between] = frame
    second, second_limit = _axis(joint.required("axis2"), scope, frame)
    turns_again = "revolute" if second_limit else "continuous"
    return [
        Joint(name, turns, ends[0], between, placed, axis, limit),
        Joint(f"{name}_2", turns_again, between, ends[1], np.eye(4), second, second_limit),
    ]


def _link_of(joint: Element, role: str, scope: Scope, links: dict[str, np.ndarray]) -> str:
    name = joint.required(role).text
    found = WORLD if name == WORLD and role == "parent" else attached_link(name, scope, links)
    if found is None:
        raise InputError(f"{joint.where}: '{joint.name}': its {role} '{name}' is not a link{near(name, links)}")
    return found


def attached_link(name: str, scope: Scope, links: Mapping[str, np.ndarray]) -> str | None:
    """Return the link that a link or frame moves with; None if it is neither."""
    seen = set()
    while name not in links:
        frame = scope.elements.get(name)
        if frame is None or frame.tag != "frame" or name in seen:
            return None
        seen.add(name)
        canonical = scope.element.attributes.get("canonical_link") or next(iter(links))
        name = frame.attributes.get("attached_to") or canonical
    return name


def _axis(axis: Element, scope: Scope, model_from_joint: np.ndarray) -> tuple[np.ndarray, Limit | None]:
    """Return an axis (3,) in the joint's frame, and its limits if it has any."""
    xyz, limit = axis.first("xyz"), axis.first("limit")
    direction = np.array([0.0, 0.0, 1.0]) if xyz is None else xyz.numbers(3)
    if not np.linalg.norm(direction) > 1e-9:
        raise InputError(f"{axis.where}: is zero")
    if xyz is not None and (expressed_in := xyz.attributes.get("expressed_in")):
        direction = model_from_joint[:3, :3].T @ scope.pose(expressed_in, xyz)[:3, :3] @ direction

    def bound(tag: str, default: float = math.inf) -> float:
        child = limit.first(tag) if limit is not None else None
        if child is None or child.text.lower().lstrip("+-") in ("inf", "infinity"):
            return default
        return float(child.numbers(1)[0])

    lower, upper = bound("lower", -math.inf), bound("upper")
    if abs(lower) >= UNLIMITED or abs(upper) >= UNLIMITED:
        return direction, None
    if lower > upper:
        raise InputError(f"{axis.where}: its lower limit {lower:g} is above its upper limit {upper:g}")
    return direction, Limit(lower, upper, bound("velocity"), bound("effort"))


def _mimic(axis: Element) -> Mimic | None:
    """Return the joint that an axis follows: multiplier * (its position - reference) + offset."""
    mimic = axis.first("mimic")
    if mimic is None:
        return None
    followed = mimic.attributes.get("joint", "")
    if not followed or mimic.attributes.get("axis", "axis") != "axis":
        raise InputError(f"{mimic.where}: does not name a joint with one axis to follow")
    multiplier = mimic.number("multiplier", 1.0)
    return Mimic(followed, multiplier, mimic.number("offset", 0.0) - multiplier * mimic.number("reference", 0.0))


def _pitch(screw: Element) -> float:
    """Return a screw's advance in m/rad, positive for a right-handed thread."""
    # Per turn and right-handed in the newer element; rad/m and left-handed in the older one.
    older = screw.first("thread_pitch")
    if older is None or screw.first("screw_thread_pitch") is not None:
        return screw.number("screw_thread_pitch", 1.0) / (2 * math.pi)
    pitch = float(older.numbers(1)[0])
    if pitch == 0:
        raise InputError(f"{older.where}: is 0")
    return -1.0 / pitch
