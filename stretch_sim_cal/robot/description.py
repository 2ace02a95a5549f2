"""Loads a robot description: a URDF or xacro file, URDF text, or an SDF file.

model = load_model("robot.urdf.xacro", {"tool": "gripper"})
model = parse_urdf(text_of_robot_description)

Of an SDF the links and joints of one model are read: poses, axes and types, not its shapes. It can say what URDF
cannot: closed loops, screw and ball joints; without loops it becomes a `RobotModel`. Format: SDFormat 1.5 to 1.12
(http://sdformat.org/spec), pose semantics included; nested models and `<include>` are not followed. A universal joint is
read as two revolute ones with a link between them.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_text
from stretch_sim_cal.geometry.transforms import from_xyz_quaternion, from_xyz_rpy, inverse
from stretch_sim_cal.robot.model import Joint, Limit, Link, RobotModel, near, robot_model
from stretch_sim_cal.robot.urdf import MeshFolders, expand_xacro, parse_urdf, parse_xml

WORLD = "world"
"""The ground, as SDF calls it."""
TYPES = {
    "fixed": "fixed",
    "revolute": "revolute",
    "continuous": "continuous",
    "prismatic": "prismatic",
    "screw": "helical",
    "ball": "spherical",
    "universal": "universal",
    "revolute2": "universal",
}
UNLIMITED = 1e16
"""SDF writes limits that are none as 1e16 or infinite."""


def load_model(
    source: str | os.PathLike,
    arguments: Mapping[str, object] | None = None,
    mesh_folders: MeshFolders | None = None,
) -> RobotModel:
    """Return the model of a URDF file, a xacro file, an SDF file, or a URDF text (anything that begins with `<`).

    `arguments` are those of the xacro; `mesh_folders` maps package names of `package://` meshes to folders. Relative
    meshes start at the file's folder. Xacro files are programs (see `urdf`): load only your own. Of an SDF the
    links and joints of its one model are read, not its shapes.
    Raises `InputError` naming the file and the element.
    """
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<"):
        if arguments:
            raise InputError("xacro arguments need a xacro file, this is the text of a URDF")
        return parse_urdf(source.lstrip("\ufeff \t\r\n"), mesh_folders=mesh_folders)
    path = Path(source).expanduser()
    text = load_urdf_text(path, arguments)
    if is_sdf(path, text):
        return parse_sdf_model(text, str(path)).robot_model()
    return parse_urdf(text, path.resolve().parent, str(path), mesh_folders)


def load_urdf_text(path: str | os.PathLike, arguments: Mapping[str, object] | None = None) -> str:
    """Return the URDF text of a URDF or xacro file; a xacro is expanded with `arguments`. Raises `InputError`."""
    path = Path(path).expanduser()
    text = read_text(path)
    if is_xacro(path, text):
        return expand_xacro(path, arguments)
    if arguments:
        raise InputError(f"{path}: is no xacro and takes no arguments ({', '.join(arguments)})")
    return text


def is_xacro(path: Path, text: str) -> bool:
    """Return whether a file is a xacro: by its name, or by the namespace it declares."""
    return path.suffix == ".xacro" or "xmlns:xacro" in text


@dataclass(frozen=True)
class SdfJoint:
    """A joint as SDF has it: `model_from_joint` (4, 4), `axis` (3,) in the joint's frame, `pitch` in m/rad."""

    name: str
    type: str
    parent: str
    child: str
    model_from_joint: np.ndarray
    axis: np.ndarray
    limit: Limit | None
    pitch: float


@dataclass(frozen=True)
class SdfModel:
    """Links with `model_from_link` (4, 4), and joints; `WORLD` as a parent is the ground."""

    name: str
    links: dict[str, np.ndarray]
    joints: tuple[SdfJoint, ...]
    source: str

    def robot_model(self) -> RobotModel:
        """Return the model as a tree; `WORLD` is its root if a joint hangs on it. Raises `InputError` for loops.

        If a joint is not at its child's frame, a link `<joint>_frame` stands between them.
        """
        links = [Link(name) for name in self.links]
        frames = dict(self.links)
        if any(joint.parent == WORLD for joint in self.joints):
            links.insert(0, Link(WORLD))
            frames[WORLD] = np.eye(4)
        joints = []
        for joint in self.joints:
            parent_from_joint = inverse(frames[joint.parent]) @ joint.model_from_joint
            joint_from_child = inverse(joint.model_from_joint) @ frames[joint.child]
            child = joint.child
            if np.abs(joint_from_child - np.eye(4)).max() > 1e-12:
                child = f"{joint.name}_frame"
                links.append(Link(child))
                joints.append(
                    Joint(f"{joint.name}_to_link", "fixed", child, joint.child, joint_from_child, np.array([1.0, 0, 0]))
                )
            joints.append(
                Joint(
                    joint.name,
                    joint.type,
                    joint.parent,
                    child,
                    parent_from_joint,
                    joint.axis,
                    joint.limit,
                    pitch=joint.pitch,
                )
            )
        return robot_model(self.name, links, joints, self.source)


def is_sdf(path: Path, text: str) -> bool:
    """Return whether a file is an SDF: by its name, or by its first element."""
    return path.suffix == ".sdf" or "<sdf" in text[:1000]


def parse_sdf_model(text: str, source: str = "<text>") -> SdfModel:
    """Return the one model of an SDF text, in a world or by itself. Raises `InputError` beginning with `source`."""
    root = parse_xml(text, source)
    if root.tag != "sdf":
        raise InputError(f"{source}: its root element is <{root.tag}>, an SDF begins with <sdf>")
    models = [*root.findall("model"), *root.findall("world/model")]
    if len(models) != 1:
        names = ", ".join(model.get("name", "?") for model in models[:5])
        raise InputError(f"{source}: one model is expected, there {'are ' + names if models else 'is none'}")
    return _Model(models[0], source).read()


class _Model:
    """Resolves one <model> element."""

    def __init__(self, element: Element, source: str):
        self.element, self.source = element, source
        self.name = element.get("name") or ""
        if not self.name:
            raise InputError(f"{source}: <model> has no name")
        for tag in ("include", "model"):
            if element.find(tag) is not None:
                raise InputError(f"{source}: model '{self.name}': a nested <{tag}> is not read; expand it first")
        self.named: dict[str, Element] = {}
        for child in element:
            if child.tag in ("link", "joint", "frame"):
                name = child.get("name") or ""
                if not name or name in self.named:
                    raise self.fault(child, "has no name" if not name else f"the name '{name}' is used twice")
                self.named[name] = child
        self.resolved: dict[str, np.ndarray] = {"__model__": np.eye(4), WORLD: np.eye(4)}

    def fault(self, element: Element, what: str) -> InputError:
        return InputError(f"{self.source}: {element.tag} '{element.get('name', '?')}': {what}")

    def read(self) -> SdfModel:
        links = {name: self.pose(name, ()) for name, element in self.named.items() if element.tag == "link"}
        if not links:
            raise InputError(f"{self.source}: model '{self.name}' has no links")
        joints: list[SdfJoint] = []
        for element in self.element.findall("joint"):
            joints.extend(self.joint(element, links))
        return SdfModel(self.name, links, tuple(joints), self.source)

    def pose(self, name: str, asked: tuple[str, ...]) -> np.ndarray:
        """Return model_from_frame (4, 4) of a link, joint or frame."""
        if name in self.resolved:
            return self.resolved[name]
        if name not in self.named:
            raise InputError(f"{self.source}: frame '{name}' does not exist{near(name, self.named)}")
        if name in asked:
            raise InputError(f"{self.source}: poses go in a circle: {' -> '.join([*asked, name])}")
        element = self.named[name]
        default = self.text(element, "child") if element.tag == "joint" else element.get("attached_to", "")
        pose = element.find("pose")
        relative_to = pose.get("relative_to", "") if pose is not None else ""
        parent = self.pose(relative_to or default or "__model__", (*asked, name))
        self.resolved[name] = parent @ self.read_pose(element, pose)
        return self.resolved[name]

    def read_pose(self, element: Element, pose: Element | None) -> np.ndarray:
        if pose is None or not (pose.text or "").strip():
            return np.eye(4)
        quaternion = pose.get("rotation_format") == "quat_xyzw"
        values = self.numbers(element, pose, 7 if quaternion else 6)
        if quaternion:
            if not np.linalg.norm(values[3:]) > 1e-9:
                raise self.fault(element, "the quaternion of its <pose> is zero")
            return from_xyz_quaternion(values[:3], values[3:])
        degrees = pose.get("degrees", "false").lower() in ("true", "1")
        return from_xyz_rpy(values[:3], np.radians(values[3:]) if degrees else values[3:])

    def joint(self, element: Element, links: dict[str, np.ndarray]) -> list[SdfJoint]:
        name, kind = element.get("name", ""), element.get("type", "")
        if kind not in TYPES:
            raise self.fault(element, f"type '{kind}' is not read; there is {', '.join(TYPES)}")
        parent, child = (self.body(element, role, links) for role in ("parent", "child"))
        frame = self.pose(name, ())
        if TYPES[kind] in ("fixed", "spherical"):
            return [SdfJoint(name, TYPES[kind], parent, child, frame, np.array([0.0, 0.0, 1.0]), None, 0.0)]
        axis, limit = self.axis(element, "axis", frame)
        if TYPES[kind] != "universal":
            actual = "continuous" if TYPES[kind] == "revolute" and limit is None else TYPES[kind]
            return [SdfJoint(name, actual, parent, child, frame, axis, limit, self.pitch(element, kind))]
        between = f"{name}_cross"
        links[between] = frame
        second, second_limit = self.axis(element, "axis2", frame)
        kinds = ("revolute" if bounds else "continuous" for bounds in (limit, second_limit))
        return [
            SdfJoint(name, next(kinds), parent, between, frame, axis, limit, 0.0),
            SdfJoint(f"{name}_2", next(kinds), between, child, frame, second, second_limit, 0.0),
        ]

    def body(self, element: Element, role: str, links: dict[str, np.ndarray]) -> str:
        """Return the link (or the world) that a joint's parent or child names, perhaps through frames."""
        name, seen = self.text(element, role), set()
        while name not in links and (name != WORLD or role == "child"):
            if name not in self.named or self.named[name].tag != "frame" or name in seen:
                raise self.fault(element, f"its {role} '{name}' is no link{near(name, links)}")
            seen.add(name)
            name = self.named[name].get("attached_to", "")
        return name

    def axis(self, element: Element, tag: str, model_from_joint: np.ndarray) -> tuple[np.ndarray, Limit | None]:
        """Return an axis (3,) in the joint's frame, and its limits (None if it has none)."""
        axis = element.find(tag)
        if axis is None:
            raise self.fault(element, f"has no <{tag}>")
        xyz = axis.find("xyz")
        direction = np.array([0.0, 0.0, 1.0]) if xyz is None else self.numbers(element, xyz, 3)
        if not np.linalg.norm(direction) > 1e-9:
            raise self.fault(element, f"its <{tag}> is zero")
        expressed_in = xyz.get("expressed_in", "") if xyz is not None else ""
        if expressed_in:
            direction = model_from_joint[:3, :3].T @ self.pose(expressed_in, ())[:3, :3] @ direction
        bounds = axis.find("limit")
        lower = self.number(element, bounds, "lower", -math.inf)
        upper = self.number(element, bounds, "upper", math.inf)
        if abs(lower) >= UNLIMITED or abs(upper) >= UNLIMITED:
            return direction, None
        if lower > upper:
            raise self.fault(element, f"its lower limit {lower:g} is above its upper limit {upper:g}")
        velocity, effort = (self.number(element, bounds, key, math.inf) for key in ("velocity", "effort"))
        return direction, Limit(lower, upper, velocity, effort)

    def pitch(self, element: Element, kind: str) -> float:
        """Return a screw's advance in m/rad, positive for a right-handed thread."""
        if kind != "screw":
            return 0.0
        # Per turn and right-handed in the newer element; rad/m and left-handed in the older one.
        if element.find("screw_thread_pitch") is None and element.find("thread_pitch") is not None:
            older = self.number(element, element, "thread_pitch", 1.0)
            if older == 0:
                raise self.fault(element, "its <thread_pitch> is 0")
            return -1.0 / older
        return self.number(element, element, "screw_thread_pitch", 1.0) / (2 * math.pi)

    def text(self, element: Element, tag: str) -> str:
        value = (element.findtext(tag) or "").strip()
        if not value:
            raise self.fault(element, f"has no <{tag}>")
        return value

    def number(self, element: Element, parent: Element | None, tag: str, default: float) -> float:
        text = parent.findtext(tag) if parent is not None else None
        if text is None:
            return default
        try:
            value = float(text)
        except ValueError as error:
            raise self.fault(element, f"<{tag}> is '{text.strip()}', a number was expected") from error
        if math.isnan(value):
            raise self.fault(element, f"<{tag}> is not a number")
        return value

    def numbers(self, element: Element, child: Element, count: int) -> np.ndarray:
        try:
            values = np.array([float(word) for word in (child.text or "").split()])
        except ValueError:
            values = np.empty(0)
        if len(values) != count or not np.isfinite(values).all():
            text = (child.text or "").strip()[:60]
            raise self.fault(element, f"<{child.tag}> is '{text}', {count} finite numbers were expected")
        return values
