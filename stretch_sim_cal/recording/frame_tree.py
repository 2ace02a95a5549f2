"""The tree of frames of /tf, /tf_static or a description, and checks of the frame of a cloud. There is no history:
every chain that the calibration asks for is rigid, so there is nothing to interpolate in time."""

import difflib
import math
from collections.abc import Callable, Mapping
from functools import lru_cache

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_quaternion, inverse
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.profile import stretch_profile

NAMES_SHOWN = 12


@lru_cache(maxsize=1)
def _other_names() -> dict[str, str]:
    """Return the Stretch's lidar frames of newer and older firmware, each with the other name of the same frame."""
    names = {lidar.frame: lidar.older_frame for lidar in stretch_profile().lidars.values() if lidar.older_frame}
    return names | {older: newer for newer, older in names.items()}


class FrameCheck:
    """Warns, once each, of unexpected frames in which clouds of a lidar come. `frames` are the expected ones by lidar;
    `topics` names the user's options of the topics, `frame` that of a side's frame, such as "--{}-frame"."""

    def __init__(self, frames: Mapping[str, str], topics: str, frame: str, warn: Callable[[str], object]):
        self._frames = {name: frame.lstrip("/") for name, frame in frames.items()}
        self._topics, self._frame, self._warn = topics, frame, warn
        self._warned: set[str] = set()

    def check(self, name: str, topic: str, frame: str) -> None:
        """Check the frame of a cloud of the lidar `name`. Raises `InputError` if it is another lidar's."""
        frame, own = frame.lstrip("/"), self._frames[name]
        lidars = [each for each, its in self._frames.items() if frame in (its, _other_names().get(its))]
        if name in lidars:
            return
        if lidars:
            clouds = f"clouds of the {lidars[0]} lidar (frame '{frame}', expected '{own}')"
            raise InputError(f"{topic} carries {clouds}: {self._topics} are swapped")
        option = self._frame.format(name) if name in SIDES else f"lidars.{name}.frame in the robot's profile"
        remedy = f"set {option} if '{frame}' is the lidar's frame"
        warning = f"{topic} has frame '{frame}'; expected '{own}', which is used; {remedy}"
        if warning not in self._warned:
            self._warned.add(warning)
            self._warn(warning)


class FrameTree:
    """Frames by name, each with its parent and `parent_from_child`. `source` names their origin in messages."""

    def __init__(self, source: str = "TF"):
        self.source = source
        self._edges: dict[str, tuple[str, np.ndarray]] = {}

    @property
    def frames(self) -> set[str]:
        return set(self._edges) | {parent for parent, _ in self._edges.values()}

    def parent(self, frame: str) -> str | None:
        return self._edges[frame][0] if frame in self._edges else None

    def connect(self, parent: str, child: str, parent_from_child: np.ndarray) -> str | None:
        """Hang `child` below `parent`; return its former parent if that was another one."""
        parent, child = parent.lstrip("/"), child.lstrip("/")
        former = self.parent(child)
        self._edges[child] = (parent, parent_from_child)
        return former if former not in (None, parent) else None

    def known(self, frame: str) -> str | None:
        """Return the name, be it the older or newer one, under which the tree has `frame`, None if it has not."""
        own, names = frame.lstrip("/"), self.frames
        return next((name for name in (own, _other_names().get(own)) if name in names), None)

    def resolve(self, frame: str) -> str:
        """Return the name under which the tree has `frame`. Raises `InputError` that lists what there is."""
        if name := self.known(frame):
            return name
        names = self.frames
        near = difflib.get_close_matches(frame, names, NAMES_SHOWN, cutoff=0.0)
        more = f" and {len(names) - len(near)} more" if len(names) > len(near) else ""
        there = ", ".join(near) + more or "no frames"
        raise InputError(f"frame '{frame.lstrip('/')}' is unknown; {self.source} has {there}")

    def lookup(self, target: str, source: str) -> np.ndarray:
        """Return `target_from_source` (4, 4). Raises `InputError` if a frame is unknown, the two are not connected
        (naming the missing link), or the tree has a loop."""
        target, source = self.resolve(target), self.resolve(source)
        from_target, from_source = self._chain(target), self._chain(source)
        common = next((name for name in from_source if name in from_target), None)
        if common is None:
            below = f"'{source}' hangs below '{list(from_source)[-1]}', '{target}' below '{list(from_target)[-1]}'"
            fault = f"{self.source} does not connect '{source}' with '{target}'"
            raise InputError(f"{fault}: {below}; the transform between those two is missing")
        return inverse(from_target[common]) @ from_source[common]

    def _chain(self, frame: str) -> dict[str, np.ndarray]:
        """Return ancestor_from_frame (4, 4) by ancestor, from the frame itself up to its root."""
        chain = {frame: np.eye(4)}
        above = frame
        while above in self._edges:
            parent, parent_from_child = self._edges[above]
            if parent in chain:
                loop = [*chain, parent]
                raise InputError(f"{self.source} has a loop: {' -> '.join(loop[loop.index(parent) :])}")
            chain[parent] = parent_from_child @ chain[above]
            above = parent
        return chain


def tree_of_description(
    text: str, positions: Mapping[str, float] | None = None, source: str = "/robot_description"
) -> FrameTree:
    """Return the frames of a robot description (URDF text), which messages call `source`, at joints' positions (m,
    rad), by default zero. Raises `InputError` for a broken one."""
    model = parse_urdf(text, source=source)
    root_from_link = link_transforms(model, positions or {})
    tree = FrameTree(source)
    for joint in model.joints.values():
        tree.connect(joint.parent, joint.child, inverse(root_from_link[joint.parent]) @ root_from_link[joint.child])
    return tree


def transform_of_message(message) -> np.ndarray:
    """Return the 4x4 of a geometry_msgs/Transform. Raises `InputError` if it is not finite or has no rotation."""
    t, q = message.translation, message.rotation
    numbers = (t.x, t.y, t.z, q.x, q.y, q.z, q.w)
    if not all(map(math.isfinite, numbers)) or math.hypot(*numbers[3:]) < 1e-6:
        raise InputError("is not a transform (not finite, or a quaternion of zeros)")
    return from_xyz_quaternion(numbers[:3], numbers[3:])
