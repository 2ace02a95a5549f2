"""The normal form of REP 199: `base`, `flange` and `tool0` if they are missing, flanges that point out, and on request
links called link_1, link_2, ... with upright frames."""

from collections.abc import Mapping

import numpy as np

from stretch_sim_cal.conventions.profile import UP, across, frames_in, moves, turn_deg
from stretch_sim_cal.conventions.rep199 import (
    PARALLEL_DEG,
    VIRTUAL,
    Arm,
    arms,
    flange_axes,
    flange_way_out,
    link_n_of,
    moving,
    way_out,
)
from stretch_sim_cal.conventions.rewrite import OTHER, AddedFrame, Turning
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_rotation_translation, from_xyz_rpy
from stretch_sim_cal.robot.model import RobotModel

TOOL0_FROM_FLANGE = from_xyz_rpy((0.0, 0.0, 0.0), (0.0, np.pi / 2, 0.0))
"""flange_from_tool0 of most controllers: z out of the flange where flange's x is."""


def missing_frames(model: RobotModel, poses: Mapping[str, np.ndarray]) -> list[AddedFrame]:
    """Return the frames to add to every arm of `model`. `poses` (4, 4) are by role, in the parent's frame.

    Without a pose: `base` is at base_link, `flange` at the last link's origin with x out along its joint's axis, and
    `tool0` at flange with z out. Raises `InputError` for a pose of a frame that every arm has already, and if an
    arm lacks the link to add to.
    """
    added: list[AddedFrame] = []
    for arm in arms(model):
        added += _of_arm(model, arm, poses)
    for role in poses:
        if not any(frame.link.endswith(role) for frame in added):
            raise InputError(f"--{role}: the model has a {role} already, which is left where it is")
    return added


def _of_arm(model: RobotModel, arm: Arm, poses: Mapping[str, np.ndarray]) -> list[AddedFrame]:
    added = []
    lacking = [role for role in VIRTUAL if arm.name(role) not in model.links]
    if "base" in lacking:
        start = arm.first(model)
        if start is None:
            raise InputError(
                f"there is no {arm.name('base_link')} to add {arm.name('base')} to; name it with --rename OLD=NEW"
            )
        added.append(_frame(arm, "base", start, poses.get("base", np.eye(4)), "base" in poses))
    if "flange" in lacking:
        last = arm.last(model)
        if last is None:
            raise InputError(
                f"there is no {arm.name('link_n')} to add {arm.name('flange')} to, and the moving links are no single "
                "chain; name the last one with --rename OLD=NEW"
            )
        pose = poses["flange"] if "flange" in poses else _usual_flange(model, arm, last)
        added.append(_frame(arm, "flange", last, pose, "flange" in poses))
    if "tool0" in lacking:
        added.append(_frame(arm, "tool0", arm.name("flange"), poses.get("tool0", TOOL0_FROM_FLANGE), "tool0" in poses))
    return added


def _frame(arm: Arm, role: str, parent: str, pose: np.ndarray, given: bool) -> AddedFrame:
    name = arm.name(role)
    reason = "as given" if given else "no pose was given: check it against the controller's"
    return AddedFrame(name, f"{parent}-{name}", parent, pose, f"REP 199: {reason}")


def _usual_flange(model: RobotModel, arm: Arm, last: str) -> np.ndarray:
    """Return last_from_flange (4, 4): at the last link's origin, x out along its axis of motion, z up as it can."""
    chain = [joint for joint in model.chain(last) if moves(joint)]
    if not chain or chain[-1].child != last:
        raise InputError(f"{last} does not move, so the direction of {arm.name('flange')} is not known; give --flange")
    frames = frames_in(model, arm.first(model) or model.root)
    axis = frames[last][:3, :3] @ chain[-1].unit_axis
    out = way_out(frames[last][:3, 3], axis, [frames[joint.child][:3, 3] for joint in reversed(chain)])
    rotation = frames[last][:3, :3].T @ _upright(axis if out is None else out)
    return from_rotation_translation(rotation, np.zeros(3))


def _upright(x: np.ndarray) -> np.ndarray:
    """Return the rotation (3, 3) whose x axis is `x` (3,), with z as much up as that allows."""
    up = across(UP, x)
    if np.linalg.norm(up) < 1e-6:
        up = across(np.array([-1.0, 0.0, 0.0]), x)  # An arm stretched upwards bends forward with z back.
    z = up / np.linalg.norm(up)
    return np.column_stack([x, np.cross(z, x), z])


def renames(model: RobotModel) -> tuple[dict[str, str], dict[str, str]]:
    """Return new names of links, so that the moving links of each arm are link_1, link_2, ... from its base_link on.

    An arm whose links are numbered already in their order stays as it is. A link that was called like one of these
    without being it is called `other_`. Joints keep their names.
    """
    links: dict[str, str] = {}
    for arm in arms(model):
        start, tip = arm.first(model), arm.tip(model) or arm.last(model)
        if start is not None and tip is not None and any(link_n_of(model, arm, start, tip)):
            links |= {
                joint.child: arm.name(f"link_{number}") for number, joint in enumerate(moving(model, start, tip), 1)
            }
    given = set(links.values())
    links |= {link: OTHER + link for link in model.links if link in given and link not in links}
    return {old: new for old, new in links.items() if old != new}, {}


def turning(model: RobotModel, number_links: bool) -> tuple[Turning, dict[str, str]]:
    """Return what to turn, and why: flanges that break the rule and, if asked for, the numbered links of every arm."""
    result, reasons = Turning(), {}
    for arm in arms(model):
        start, flange = arm.first(model), arm.name("flange")
        frames = frames_in(model, start or model.root)
        wanted = {}
        if number_links and start is not None:
            wanted = {
                link: (np.eye(3), "REP 103: x forward, z up with all joints at zero")
                for link in arm.numbered(model)
                if turn_deg(frames[link][:3, :3]) > PARALLEL_DEG and model.parent_joints[link].variables <= 1
            }
        if flange in model.links and any(flange_axes(model, flange, start)):
            x = flange_way_out(model, flange, start)
            wanted[flange] = (_upright(x), "REP 199: x+ away from the last link, z up")
        for link, (rotation, why) in wanted.items():
            result.old_from_new[link] = frames[link][:3, :3].T @ rotation
            reasons[link] = why
    return result, reasons
