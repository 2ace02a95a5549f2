"""The manipulators of a model, as the names that REP 199 gives to frames tell them."""

import re
from dataclasses import dataclass

from stretch_sim_cal.conventions.frames import moves
from stretch_sim_cal.robot.model import RobotModel

VIRTUAL = ("base", "flange", "tool0")
"""Frames that shall have no shape."""

_ROLE = re.compile(r"^(?P<prefix>(?:[A-Za-z]\w*?_)?)(?P<role>base_link|base|flange|tool0|link_\d+)$")


@dataclass(frozen=True)
class Arm:
    """One manipulator of a model: its prefix, and the names it has or should have."""

    prefix: str

    def name(self, role: str) -> str:
        """Return the link that plays a role in this arm."""
        return self.prefix + role

    def first(self, model: RobotModel) -> str | None:
        """Return the link that the chain begins with: its base_link, else the root."""
        base_link = self.name("base_link")
        return base_link if base_link in model.links else None

    def tip(self, model: RobotModel) -> str | None:
        """Return the last link: flange, else tool0, else the last of the numbered links."""
        named = [self.name(role) for role in ("flange", "tool0") if self.name(role) in model.links]
        return named[0] if named else (self.numbered(model) or [None])[-1]

    def numbered(self, model: RobotModel) -> list[str]:
        """Return the arm's link_n by number."""
        found = [link for link in model.order if role_of(link) == (self.prefix, "link")]
        return sorted(found, key=lambda link: int(link.rsplit("_", 1)[1]))

    def last(self, model: RobotModel) -> str | None:
        """Return the last of the numbered links; whatever it is called, where the links move in a single chain."""
        numbered = self.numbered(model)
        if numbered:
            return numbered[-1]
        moving = [joint for joint in model.joints.values() if moves(joint)]
        inner = {before.child for joint in moving for before in model.chain(joint.parent)}
        ends = [joint.child for joint in moving if joint.child not in inner]
        return ends[0] if len(ends) == 1 else None


def role_of(link: str) -> tuple[str, str] | None:
    """Return the prefix and the role (`link` for numbered ones) that a link's name tells; None for other names."""
    match = _ROLE.match(link)
    if match is None:
        return None
    role = match["role"]
    return match["prefix"], "link" if role.startswith("link_") else role


def arms(model: RobotModel) -> list[Arm]:
    """Return the manipulators that the links' names tell of.

    A prefix is an arm if one of its frames is a flange or tool0, or its numbered links move; what hangs below another
    arm's flange is an end effector and none.
    """
    found: dict[str, set[str]] = {}
    flanges = {link for link in model.links if (role := role_of(link)) and role[1] in ("flange", "tool0")}
    for link in model.order:
        role = role_of(link)
        if role is None or any(joint.parent in flanges for joint in model.chain(link) if joint.child not in flanges):
            continue
        joint = model.parent_joints.get(link)
        if role[1] in ("flange", "tool0") or role[1] == "link" and joint is not None and moves(joint):
            found.setdefault(role[0], set()).add(role[1])
    return [Arm(prefix) for prefix in found] or [Arm("")]
