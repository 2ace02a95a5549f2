"""REP 199 (coordinate frames for serial industrial manipulators): its arms, rules, profile, and normal form. The text's
must and shall give errors, its should gives warnings, its may and its expectations give infos."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.conventions.measures import UP, across, angle_deg, frames_in, shown, turn_deg, upright
from stretch_sim_cal.conventions.profile import Finding, Profile, Rule, error, info, not_fixed, warning
from stretch_sim_cal.conventions.rewrite import OTHER, AddedFrame, Turning
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_rotation_translation, from_xyz_rpy
from stretch_sim_cal.robot.model import Joint, RobotModel
from stretch_sim_cal.robot.surfaces import WHEEL_JOINTS

VIRTUAL = ("base", "flange", "tool0")  # frames that shall have no shape
_ROLE = re.compile(r"^(?P<prefix>(?:[A-Za-z]\w*?_)?)(?P<role>base_link|base|flange|tool0|link_\d+)$")
PARALLEL_DEG = 0.1
VENDOR_NAMES = {
    "ABB": ("Base", "TCP"), "Comau": ("$BASE", "$TOOL"), "Denso": ("Base", "Tool"), "Epson": ("Robot", "TOOL 0"),
    "Fanuc": ("WORLD", "TOOL"), "Kawasaki": ("Base", "Tool"), "KUKA": ("$ROBROOT", "$TOOL"),
    "Mitsubishi": ("Base", "Tool"), "Staubli": ("World", "tool"), "Universal Robots": ("Base", "Tool"),
    "Yaskawa Motoman": ("Robot", "Tool"),
}  # fmt: skip
"""The REP's table: what vendors call `base` and `tool0`."""
TOOL0_FROM_FLANGE = from_xyz_rpy((0.0, 0.0, 0.0), (0.0, np.pi / 2, 0.0))
"""flange_from_tool0 of most controllers: z out of the flange where flange's x is."""
_LEFT_HANDED = re.compile(r"left_?handed|(^|_)lhs?(_|$)", re.IGNORECASE)
_ROS_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_/]*$")


@dataclass(frozen=True)
class Arm:
    """One manipulator of a model, by the prefix of its names."""

    model: RobotModel
    prefix: str

    def name(self, role: str) -> str:
        return self.prefix + role

    def has(self, role: str) -> bool:
        return self.name(role) in self.model.links

    @property
    def start(self) -> str | None:
        """The link that the chain begins with, base_link; None if there is none."""
        return self.name("base_link") if self.has("base_link") else None

    @property
    def tip(self) -> str | None:
        """The last link: flange, else tool0, else the last of the numbered links."""
        named = [self.name(role) for role in ("flange", "tool0") if self.has(role)]
        return next(iter([*named, *reversed(self.numbered)]), None)

    @property
    def numbered(self) -> list[str]:
        """The arm's link_n by number."""
        found = [link for link in self.model.order if role_of(link) == (self.prefix, "link")]
        return sorted(found, key=lambda link: int(link.rsplit("_", 1)[1]))

    @property
    def last(self) -> str | None:
        """The last of the numbered links, or of the moving links of a single chain."""
        ends = [joint.child for joint in _ends(self.model)]
        return self.numbered[-1] if self.numbered else ends[0] if len(ends) == 1 else None

    def frames(self) -> dict[str, np.ndarray]:
        """Return start_from_link (4, 4) of all links at zero, without a start from the root."""
        return frames_in(self.model, self.start or self.model.root)


def _ends(model: RobotModel) -> list[Joint]:
    """Return the joints that move and carry none that does."""
    inner = {before.name for joint in model.joints.values() if joint.variables for before in model.chain(joint.parent)}
    return [joint for joint in model.joints.values() if joint.variables and joint.name not in inner]


def moving(model: RobotModel, tip: str, start: str | None = None) -> list[Joint]:
    """Return the joints that move, from the link `start` (by default the root) out to `tip`."""
    before = model.chain(start) if start else []
    return [joint for joint in model.chain(tip) if joint not in before and joint.variables]


def role_of(link: str) -> tuple[str, str] | None:
    """Return prefix and role (`link` for numbered ones) of a link's name; None for other names."""
    match = _ROLE.match(link)
    return match and (match["prefix"], "link" if match["role"].startswith("link_") else match["role"])


def arms(model: RobotModel) -> list[Arm]:
    """Return the manipulators by their links' names. A prefix is an arm if it has a flange or tool0, or numbered links
    that move, not below another arm's flange. Without such names, everything that moves, but for wheels, is one."""
    roles = {link: role for link in model.order if (role := role_of(link))}
    flanges = {link for link, role in roles.items() if role[1] in ("flange", "tool0")}
    moved = {link for link, joint in model.parent_joints.items() if joint.variables}
    found = [
        prefix for link, (prefix, role) in roles.items()
        if (link in flanges or role == "link" and link in moved)
        and not any(joint.parent in flanges for joint in model.chain(link) if joint.child not in flanges)
    ]  # fmt: skip
    if not found and any(
        joint.type != "continuous" or len(moving(model, joint.child)) > WHEEL_JOINTS for joint in _ends(model)
    ):
        found = [""]
    return [Arm(model, prefix) for prefix in dict.fromkeys(found)]


def base_link(arm: Arm) -> Iterator[Finding]:
    """base_link shall be rigidly attached to the root body."""
    model, name = arm.model, arm.name("base_link")
    if name not in model.links:
        yield error("base_link", model.root, f"there is no {name}", f"name the arm's base {name}")
    elif "base_link" in model.links and model.rigid_root(name) != model.rigid_root("base_link"):
        pass  # An arm on something that moves has its own root body there.
    elif model.rigid_root(name) != model.root:
        message = f"it moves against the root {model.root}"
        yield error("base_link", name, message, "attach it to the root by fixed joints")


def base(arm: Arm) -> Iterator[Finding]:
    """base shall be the controller's Cartesian frame, fixed to the arm's base."""
    name = arm.name("base")
    if not arm.has("base"):
        message = f"there is no {name}, the frame of the controller's poses"
        fix = f"add {name} below {arm.name('base_link')} with a fixed joint"
        yield error("base", arm.start or arm.model.root, message, fix)
        return
    yield from _fixed_frame(arm.model, name, "base")
    if arm.start is not None and not arm.model.rigidly_joined(name, arm.start):
        message = f"joints move it relative to {arm.start}; the controller's Cartesian frame does not move"
        yield error("base", name, message, f"attach it to {arm.start} by a fixed joint")


def _fixed_frame(model: RobotModel, name: str, rule: str) -> Iterator[Finding]:
    yield from not_fixed(model, name, rule)
    if model.links[name].has_shape:
        link = model.links[name]
        message = f"it has {len(link.visuals)} visual and {len(link.collisions)} collision shapes; REP 199 allows none"
        yield error("no-geometry", name, message, "move the shapes to its parent link")


def link_n(arm: Arm) -> Iterator[Finding]:
    """link_n should name the chain's links in their order, oriented as in REP 103."""
    if arm.start is None or arm.tip is None:
        return
    yield from link_n_of(arm, arm.start, arm.tip)
    frames = arm.frames()
    for link in arm.numbered:
        turned = turn_deg(frames[link][:3, :3])
        if turned > PARALLEL_DEG:
            x, z = map(shown, frames[link][:3, [0, 2]].T)
            message = f"with all joints at zero it is turned {turned:.4g} deg against {arm.start}: x is {x}, z is {z}; "
            message += "the REP leaves open in which configuration REP 103's x forward, z up is to hold, zero is the "
            fix = "turn the frame, and give a controller's own frame a fixed proxy below it"
            yield warning("link_n-rep103", link, f"{message}usual one", fix, turned)


def link_n_of(arm: Arm, start: str, tip: str) -> Iterator[Finding]:
    """Yield what is wrong with the names of the moving links of one arm."""
    last = -1
    for position, joint in enumerate(moving(arm.model, tip, start), 1):
        link, role = joint.child, role_of(joint.child)
        if role is None or role[1] != "link":
            ordinal = {1: "1st", 2: "2nd", 3: "3rd"}.get(position, f"{position}th")
            message = f"the {ordinal} moving link from {start} is not called link_n"
            yield warning("link_n", link, message, f"call it {arm.name(f'link_{position}')}")
            continue
        if role[0] != arm.prefix:
            message = f"it is in the chain of {tip} and lacks its prefix '{arm.prefix}'"
            yield warning("prefix", link, message, f"call it {arm.prefix}{link.removeprefix(role[0])}")
        digits = link.rsplit("_", 1)[1]
        if int(digits) <= last:
            message = f"number {digits} comes after {last} in the chain from {start} to {tip}"
            yield warning("link_n", link, message, "number the links in the order of the chain")
        elif digits != str(int(digits)) or last >= 0 and int(digits) != last + 1:
            message = f"number {digits} after {last}: the numbers are not consecutive"
            yield warning("link_n", link, message, f"call it {arm.name(f'link_{last + 1}')}")
        last = max(last, int(digits))


def flange(arm: Arm) -> Iterator[Finding]:
    """flange should be where tools are attached; its x shall point away from the last link."""
    name = arm.name("flange")
    if not arm.has("flange"):
        where = (arm.numbered or [arm.start or arm.model.root])[-1]
        message = f"there is no {name} to attach tools to"
        yield warning("flange", where, message, f"add {name} below it with a fixed joint")
        return
    yield from _fixed_frame(arm.model, name, "flange")
    joint = arm.model.parent_joints.get(name)
    if joint is not None and (role_of(joint.parent) or ("", ""))[1] != "link":
        message = f"it is attached to {joint.parent}, the last physical link is expected"
        yield info("flange-parent", name, message, "attach it to the last link of the chain")
    yield from flange_axes(arm)


def flange_axes(arm: Arm) -> Iterator[Finding]:
    """Yield what is wrong with the orientation of an arm's flange, seen from its start."""
    name, outwards = arm.name("flange"), flange_way_out(arm)
    if outwards is None:
        return
    x, z = arm.frames()[name][:3, [0, 2]].T
    away = angle_deg(x, outwards)
    if away > PARALLEL_DEG:
        message = f"its x axis {shown(x)} is {away:.4g} deg from the outward direction of the last link, "
        message += f"{shown(outwards)} (along the last joint's axis)"
        yield error("flange-x", name, message, "turn it so that x+ points away from the last link", away)
    elif abs(x @ UP) < 0.5 and angle_deg(z, across(UP, x)) > 1.0:
        message = f"x points forward, but z is {shown(z)} with all joints at zero"
        yield error("flange-rep103", name, message, "turn it about x so that z is up")


def flange_way_out(arm: Arm) -> np.ndarray | None:
    """Return the direction (3,), seen from the start, of a flange's x axis; None if the last joint does not turn. The
    sign is that of the present x axis if the last joint's axis has none."""
    name = arm.name("flange")
    chain = moving(arm.model, name)
    if not chain or chain[-1].type not in ("revolute", "continuous"):
        return None
    return _way_out(arm, name, arm.frames()[name][:3, 0])


def _way_out(arm: Arm, link: str, guess: np.ndarray | None = None) -> np.ndarray:
    """Return the axis (3,), seen from the start, of the last joint before a link, with the sign that leads from the
    wrist to the link; that of a `guess`, or its own, if the origins of all moving links coincide with the link's."""
    chain, frames = moving(arm.model, link), arm.frames()
    axis = frames[chain[-1].child][:3, :3] @ chain[-1].unit_axis
    ways = [float((frames[link][:3, 3] - frames[joint.child][:3, 3]) @ axis) for joint in reversed(chain)]
    along = next((way for way in ways if abs(way) > 1e-3), 0.0 if guess is None else axis @ guess)
    return axis if along >= 0 else -axis


def tool0(arm: Arm) -> Iterator[Finding]:
    """tool0 shall be the controller's all-zeros tool frame: fixed, without children of an application's."""
    model, name, flange_name, numbered = arm.model, arm.name("tool0"), arm.name("flange"), arm.numbered
    if name not in model.links:
        fix = f"add {name} below {flange_name} with a fixed joint"
        yield error("tool0", arm.tip or model.root, f"there is no {name}", fix)
        return
    yield from _fixed_frame(model, name, "tool0")
    if numbered and not model.rigidly_joined(name, numbered[-1]):
        yield error("tool0", name, f"it does not move with the last link {numbered[-1]}", "attach it there")
    joint = model.parent_joints.get(name)
    if arm.has("flange") and joint is not None:
        far = float(np.linalg.norm(joint.parent_from_joint[:3, 3]))
        if joint.parent != flange_name:
            message = f"it is attached to {joint.parent}, {flange_name} is expected"
            yield info("tool0-parent", name, message, f"attach it to {flange_name}")
        elif far > 1e-6:
            message = f"it is {far * 1e3:.3g} mm from {flange_name}; only their orientations are expected to differ"
            yield info("tool0-origin", name, message, "check it against the controller's all-zeros tool")
    for child in model.child_joints(name):
        message = f"it is attached to {name}; tool frames should be its siblings"
        yield warning("tool-sibling", child.child, message, f"attach it to {flange_name}")


def tools_on_flange(arm: Arm) -> Iterator[Finding]:
    """End effectors should be attached to flange."""
    last = arm.numbered[-1:] if arm.has("flange") else []
    for joint in (joint for link in last for joint in arm.model.child_joints(link)):
        if re.search(r"tool(?!0$)|eef|gripper|hand|tcp", joint.child, re.IGNORECASE):
            message = f"it is attached to {last[0]}; end effectors should be attached to the flange"
            yield warning("eef-flange", joint.child, message, f"attach it to {arm.name('flange')}")


def tool_names(model: RobotModel) -> Iterator[Finding]:
    """toolN is strongly discouraged for an application's frames; names should follow the guidelines for ROS names."""
    for link in model.links:
        if re.search(r"(^|_)tool[1-9]\d*$", link):
            message = "a number does not tell the purpose of the frame, and a wrong tool frame is dangerous"
            yield warning("toolN", link, message, "name it after the tool, such as gripper_tcp")
        if not _ROS_NAME.match(link):
            message = f"'{link}' is not a ROS name (letters, digits and _ after a letter)"
            yield warning("ros-names", link, message, "rename it")


def prefixes(model: RobotModel) -> Iterator[Finding]:
    """The arms of a model with several should each have a prefix."""
    found = arms(model)
    bare = next((arm for arm in found if not arm.prefix), None)
    if len(found) > 1 and bare is not None:
        message = f"this arm has no prefix while others have ({', '.join(arm.prefix for arm in found if arm.prefix)})"
        yield warning("prefix", bare.tip or model.root, message, "give each arm's links a prefix")


def left_handed(model: RobotModel) -> Iterator[Finding]:
    """Frames of left-handed controllers should be overlaid by right-handed ones, and converted at the boundaries."""
    for link in model.links.values():
        if _LEFT_HANDED.search(link.name):
            message = "it is named as a left-handed controller's frame, and every frame here is right-handed"
            fix = "use it as the right-handed frame, and convert data at the boundary of ROS"
            yield info("left-handed", link.name, message, fix)
        for shape in (*link.visuals, *link.collisions):
            if shape.scale is not None and np.prod(shape.scale) < 0:
                message = f"mesh {shape.filename} is scaled by {shown(shape.scale)}, which mirrors it: it comes from a "
                fix = "export the mesh in a right-handed frame"
                yield warning("left-handed", link.name, message + "left-handed frame", fix)


def vendor_names(model: RobotModel) -> Iterator[Finding]:
    """The vendors' names for base and tool0, recognised."""
    for link in model.links:
        meant = [
            (vendor, role, name) for vendor, given in VENDOR_NAMES.items()
            for role, name in zip(("base", "tool0"), given, strict=True) if _plain(name) == _plain(link)
        ]  # fmt: skip
        if not meant or link in VIRTUAL or link == model.root and _plain(link) == "world":
            continue
        role = meant[0][1]
        who = ", ".join(f"{vendor} ({name})" for vendor, _, name in meant)
        fix = f"call it {role}" if role not in model.links else f"{role} exists already; remove it or name its purpose"
        yield info("vendor-names", link, f"{who} use this name for the frame that REP 199 calls {role}", fix)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _of_arms(rule: Callable[[Arm], Iterator[Finding]]) -> Rule:
    return lambda model: (finding for arm in arms(model) for finding in rule(arm))


RULES = (
    *map(_of_arms, (base_link, base, link_n, flange, tool0)), tool_names, _of_arms(tools_on_flange), prefixes,
    left_handed, vendor_names,
)  # fmt: skip

REP199 = Profile(
    "rep199", "REP 199 frames of serial industrial manipulators", RULES, (), "base_link",
    lambda model: "" if arms(model) else "it has no flange, tool0 or link_n, and nothing that moves but wheels",
)  # fmt: skip


def missing_frames(model: RobotModel, poses: Mapping[str, np.ndarray]) -> list[AddedFrame]:
    """Return the frames to add to every arm; `poses` (4, 4) are by role, in the parent's frame. By default `base` is at
    base_link, `flange` at the last link's origin with x out along its joint's axis, and `tool0` at flange with z out.
    Raises `InputError` if an arm lacks the link to add to."""
    return [frame for arm in arms(model) for frame in _added(arm, poses)]


def _added(arm: Arm, poses: Mapping[str, np.ndarray]) -> Iterator[AddedFrame]:
    def frame(role: str, parent: str, usual: np.ndarray) -> AddedFrame:
        reason = "as given" if role in poses else "no pose was given: check it against the controller's"
        joint = f"{parent}-{arm.name(role)}"
        return AddedFrame(arm.name(role), joint, parent, poses.get(role, usual), f"REP 199: {reason}")

    def checked(link: str | None, usual: str, role: str, why: str) -> str:
        if link is None:
            raise InputError(f"there is no {arm.name(usual)} to add {arm.name(role)} to{why} with --rename OLD=NEW")
        return link

    if not arm.has("base"):
        yield frame("base", checked(arm.start, "base_link", "base", "; name it"), np.eye(4))
    if not arm.has("flange"):
        last = checked(arm.last, "link_n", "flange", ", and the moving links are not a single chain; name the last one")
        yield frame("flange", last, np.eye(4) if "flange" in poses else _usual_flange(arm, last))
    if not arm.has("tool0"):
        yield frame("tool0", arm.name("flange"), TOOL0_FROM_FLANGE)


def _usual_flange(arm: Arm, last: str) -> np.ndarray:
    """Return last_from_flange (4, 4): at the last link's origin, x out along its axis of motion, z up."""
    chain = moving(arm.model, last)
    if not chain or chain[-1].child != last:
        raise InputError(f"{last} does not move, so the direction of {arm.name('flange')} is not known; give --flange")
    rotation = arm.frames()[last][:3, :3].T @ upright(_way_out(arm, last))
    return from_rotation_translation(rotation, np.zeros(3))


def renames(model: RobotModel) -> tuple[dict[str, str], dict[str, str]]:
    """Return new names of links: the moving links of each arm become link_1, link_2, ... from its base_link on, unless
    they are numbered in order. Another link of such a name becomes `other_`. Joints keep their names."""
    links: dict[str, str] = {}
    for arm in arms(model):
        start, tip = arm.start, arm.tip or arm.last
        if start is not None and tip is not None and any(link_n_of(arm, start, tip)):
            chain = moving(model, tip, start)
            links |= {joint.child: arm.name(f"link_{number}") for number, joint in enumerate(chain, 1)}
    given = set(links.values())
    links |= {link: OTHER + link for link in model.links if link in given and link not in links}
    return {old: new for old, new in links.items() if old != new}, {}


def turning(model: RobotModel, number_links: bool) -> tuple[Turning, dict[str, str]]:
    """Return what to turn, and why: flanges that break the rule and, on request, the numbered links of every arm."""
    result, reasons = Turning(), {}
    for arm in arms(model):
        frames = arm.frames()
        for link in arm.numbered if number_links and arm.start is not None else ():
            if turn_deg(frames[link][:3, :3]) > PARALLEL_DEG and model.parent_joints[link].variables <= 1:
                result.old_from_new[link] = frames[link][:3, :3].T
                reasons[link] = "REP 103: x forward, z up with all joints at zero"
        if arm.has("flange") and any(flange_axes(arm)):
            flange = arm.name("flange")
            result.old_from_new[flange] = frames[flange][:3, :3].T @ upright(flange_way_out(arm))
            reasons[flange] = "REP 199: x+ away from the last link, z up"
    return result, reasons
