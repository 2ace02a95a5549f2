"""`stretch-sim-cal robot init`: a robot's profile, written from its description, with a list of open questions; and
`robot calibrate`, which is `ros_calibrate_robot`."""

import argparse
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.calibration.body.outline import LinkSurface, RobotOutline
from stretch_sim_cal.commands import calibrate_robot
from stretch_sim_cal.commands.described import assignments
from stretch_sim_cal.conventions import PROFILES
from stretch_sim_cal.conventions.normal_form import read_description
from stretch_sim_cal.conventions.profile import ERROR, lint
from stretch_sim_cal.conventions.spawned import named_robot, spawned_robot
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import yaml_text
from stretch_sim_cal.geometry.transforms import SIDES, apply, inverse
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.kinematics import link_transform, link_transforms
from stretch_sim_cal.robot.sdf_as_urdf import LIDAR_SENSORS
from stretch_sim_cal.robot.surfaces import link_surfaces

EXAMPLE = "stretch-sim-cal robot init my_robot.urdf --out my_robot.yaml"
LIDAR_WORDS = ("lidar", "laser", "velodyne", "ouster", "hesai", "scan")
SIDE_WORDS = (("left", "front", "_1", "_l"), ("right", "rear", "back", "_2", "_r"))
BASES, FOOTPRINTS = (
    ("base_link", "base", "root_link", "chassis_link"),
    ("base_footprint", "footprint", "base_footprint_link"),
)
SMALL = 0.12  # m: joints that move parts by less are fingers and the like
MARGIN = 0.01  # m between parts in a pose that is proposed
QUARTER = 1.57  # rad
WITH_ROOM = 60  # of them, from which that of the plans is taken
TRIED = 300  # random poses, of which the one with the smallest outline is the stowed one
SPEED = {True: 0.10, False: 0.5}  # m/s, rad/s: far below what joints can do
FOLLOWED_FROM = 0.15  # m that the outline has to change by along a joint for the shape to follow it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    init = actions.add_parser(
        "init", help="write a robot's profile from its description, as far as that tells it",
        epilog=f"example: {EXAMPLE}",
    )  # fmt: skip
    init.add_argument("description", type=Path, metavar="FILE", help="URDF, xacro or SDF of the robot")
    init.add_argument("--out", type=Path, metavar="FILE", help="where to write (default: beside it, NAME.yaml)")
    init.add_argument("--sensor", metavar="NAME", help="kind of the lidars: a name in config/, or a sensor file")
    init.add_argument("--left", metavar="LINK", help="frame of the left (or front) lidar")
    init.add_argument("--right", metavar="LINK", help="frame of the right (or rear) lidar")
    init.add_argument(
        "--package", nargs="+", action="extend", default=[], metavar="NAME=DIR",
        help="folder of a package of package:// meshes, and of $(find NAME) in a xacro",
    )  # fmt: skip
    init.add_argument(
        "--arg", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help="arguments of a xacro"
    )
    init.add_argument("--json", action="store_true", help="print the findings as JSON")
    init.set_defaults(act=init_profile)
    calibrate = actions.add_parser(
        "calibrate", help="the whole calibration of this robot in one command, as ros_calibrate_robot",
        epilog="example: stretch-sim-cal robot calibrate",
    )  # fmt: skip
    calibrate_robot.add_arguments(calibrate)
    calibrate.set_defaults(act=calibrate_robot.run)


def run(args: argparse.Namespace) -> int:
    """Run the sub-command."""
    return args.act(args)


@dataclass
class Guess:
    """A profile's content as far as a description determines it; `open` holds a sentence per open question."""

    data: dict = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    open: list[str] = field(default_factory=list)


def init_profile(args: argparse.Namespace) -> int:
    """Write the profile, print findings and open questions. The exit code is 1 if it cannot be used before something is
    filled in by hand."""

    packages, arguments = assignments(args.package, "--package"), assignments(args.arg, "--arg")
    for name, folder in packages.items():
        if not Path(folder).expanduser().is_dir():
            raise InputError(f"--package {name}={folder}: no such folder")
    given = read_description(args.description, arguments, packages)
    out = args.out or args.description.with_name(f"{args.description.name.split('.')[0]}.yaml")
    if out.exists():
        raise InputError(f"{out}: is there already; name another file with --out, or remove it")
    guess = guess_profile(given, args.left, args.right, args.sensor)
    source: dict = {"file": os.path.relpath(args.description, out.parent)}
    if arguments:
        source["arguments"] = arguments
    if packages:
        source["packages"] = {name: os.path.relpath(Path(f).expanduser(), out.parent) for name, f in packages.items()}
    guess.data = {"name": guess.data["name"], "description": source} | guess.data
    files.write_text(out, _text(guess))
    problem = _problem(out)
    if problem:
        guess.open.append(problem)
    if args.json:
        print(json.dumps({"file": str(out), "found": guess.found, "open": guess.open, "usable": not problem}, indent=1))
    else:
        print("\n".join([*guess.found, *(f"open: {line}" for line in guess.open), f"wrote {out}"]))
        if not problem:
            print(f"next: stretch-sim-cal run furnished_room_sparse --robot {out}")
    return 1 if problem else 0


def _problem(out: Path) -> str:
    """Return why the profile that was written cannot be used yet, "" if it can."""
    try:
        spawned_robot(named_robot(out))
    except (InputError, Refused) as error:
        return str(error)
    return ""


def _text(guess: Guess) -> str:
    """Return the profile's text: open questions as comments above it."""
    lines = ["# Written by stretch-sim-cal robot init; keys: docs/your_own_robot.md."]
    lines += [f"# OPEN: {line}" for line in guess.open]
    return "\n".join(lines) + "\n" + yaml_text(guess.data)


def guess_profile(given, left: str | None = None, right: str | None = None, sensor: str | None = None) -> Guess:
    """Return the profile that a description (`conventions.normal_form.Description`) determines.

    Raises `InputError` for links `left` and `right` that it has not, and if it has no two lidars that it could mean.
    """
    model = given.model()
    guess = Guess({"name": model.name})
    guess.data["convention"] = _convention(model, guess)
    base = next((link for link in BASES if link in model.links), None)
    if base is None:
        base = next(link for link in model.order if link not in FOOTPRINTS)
        guess.open.append(f"base_frame: no link is called {BASES[0]}; {base} was taken")
    footprint = next((link for link in FOOTPRINTS if link in model.links), None)
    if footprint is None:
        footprint = base
        guess.open.append(
            f"footprint_frame: no link is called {FOOTPRINTS[0]}; {base} was taken: is its origin on the floor?"
        )
    guess.data |= {"base_frame": base, "footprint_frame": footprint}
    guess.found.append(f"frames: base {base}, on the floor {footprint}")
    guess.data["sensor"] = sensor or "jt128_ideal"
    if sensor is None:
        guess.open.append(
            "sensor: a description does not tell which lidars they are; jt128_ideal stands in: give --sensor"
        )
    lidars = _lidars(given, model, left, right, guess)
    guess.data["lidars"] = {
        side: {"frame": link, "topic": f"/lidar_points_{side}", "unseen": _own_links(model, link)}
        for side, link in zip(SIDES, lidars, strict=False)
    }
    topics = " and ".join(f"/lidar_points_{side}" for side in guess.data["lidars"])
    guess.open.append(f"lidars: topic: is not in a description; {topics} stand{'s' * (len(lidars) == 1)} in")
    _joints(model, guess)
    return guess


def _convention(model, guess: Guess) -> str:
    for name, convention in PROFILES.items():
        if not any(finding.level == ERROR for finding in lint(model, convention)):
            guess.found.append(f"convention: {name} is kept")
            return name
    guess.open.append("convention: it keeps none (stretch-sim-cal lint says where); it is spawned as it is")
    return "none"


def _lidars(given, model, left: str | None, right: str | None, guess: Guess) -> tuple[str, ...]:
    """Return the frames of both lidars, left (or front) first; of one, if there is nothing else that could be one."""
    if left is not None and right is not None:
        return model.checked_link(left), model.checked_link(right)
    by_sensor = [
        element.get("reference") for element in given.root.iter("gazebo")
        if any(sensor.get("type") in LIDAR_SENSORS for sensor in element.iter("sensor"))
    ]  # fmt: skip
    named = [link for link in model.order if any(word in link.lower() for word in LIDAR_WORDS)]
    candidates = list(dict.fromkeys([link for link in by_sensor if link in model.links])) or named
    if len(candidates) > 2:  # a housing and the frame in it: the one below has the rays
        parents = {model.parent_joint(link).parent for link in candidates if model.parent_joint(link) is not None}
        candidates = [link for link in candidates if link not in parents] or candidates
    for word in LIDAR_WORDS if len(candidates) > 2 else ():
        if len(alike := [link for link in candidates if word in link.lower()]) == 2:
            candidates = alike
            break
    if len(candidates) == 1 and right is None and left in (None, candidates[0]):
        guess.found.append(f"lidars: one, {candidates[0]}")
        guess.open.append("lidars: one was found; name the other one with --right LINK if there is one")
        return (candidates[0],)
    chosen = [link for link in (left, right) if link is not None]
    candidates = [link for link in candidates if link not in chosen]
    if len(candidates) != 2 - len(chosen):
        raise InputError(
            f"{given.source}: {len(candidates)} links could be lidars ({', '.join(candidates) or 'none'}); name both "
            "with --left LINK --right LINK"
        )
    if chosen:
        pair = (left or candidates[0], right or candidates[0])
    else:
        at_zero = link_transforms(model, {})
        scores = [
            (any(w in link.lower() for w in SIDE_WORDS[1]) - any(w in link.lower() for w in SIDE_WORDS[0]),
             -at_zero[link][1, 3], -at_zero[link][0, 3])
            for link in candidates
        ]  # fmt: skip
        pair = tuple(link for _, link in sorted(zip(scores, candidates, strict=True)))
    guess.found.append(f"lidars: left {pair[0]}, right {pair[1]}")
    return pair


def _own_links(model, link: str) -> list[str]:
    """Return the links that are a lidar itself: its frame's and, if that has no shape, the one it is fixed in when that
    bears a lidar's name; and all that is fixed in it."""
    own = [link]
    joint = model.parent_joint(link)
    while joint is not None and not joint.variables and any(word in joint.parent.lower() for word in LIDAR_WORDS):
        own.append(joint.parent)
        joint = model.parent_joint(joint.parent)
    for name in list(own):
        own += [j.child for j in model.child_joints(name) if not j.variables and j.child not in own]
    return own


def _joints(model, guess: Guess) -> None:
    """Add the joints that the body shape may depend on: the chain of the arm, from the base outwards. The others (a
    head's, fingers) stay as they are."""
    moving = [joint for joint in model.moving_joints() if joint.variables == 1]
    limited = [joint for joint in moving if joint.limit is not None and joint.limit.upper > joint.limit.lower]
    wheels = [joint.name for joint in moving if joint not in limited or joint.type == "continuous"]
    limited = [joint for joint in limited if joint.name not in wheels]
    if wheels:
        guess.found.append(f"joints that no pose moves (no limits): {', '.join(wheels)}")
    arm = _arm(model, [joint for joint in limited if _reach(model, joint) > SMALL])
    if not arm:
        guess.found.append("joints: none that moves more than a finger; the body shape is one for all")
    data = {}
    telescopes = _telescopes(model, arm)
    tied = {joint.name for parts in telescopes for joint in parts}
    for parts in telescopes:
        name = _short(parts[0].name).rstrip("0123456789").removesuffix("_l").rstrip("_") or _short(parts[0].name)
        speed = min(SPEED[True], *(len(parts) * joint.limit.velocity or SPEED[True] for joint in parts))
        data[name] = {
            "command": f"{name}_joint", "linear": True, "tie": "sum",
            "parts": [joint.name for joint in parts], "speed": speed
        }  # fmt: skip
        guess.open.append(
            f"joints: {name}: {', '.join(data[name]['parts'])} are taken for one telescope; "
            "write what its driver calls it"
        )
    limited = [joint for joint in limited if joint.name not in tied]
    for joint in sorted(limited, key=lambda joint: (joint not in arm, arm.index(joint) if joint in arm else 0)):
        entry: dict = {"command": joint.name, "linear": joint.type == "prismatic"}
        if joint in arm:
            speed = SPEED[entry["linear"]]
            entry["speed"] = min(speed, joint.limit.velocity or speed)
            if not joint.limit.velocity:
                guess.open.append(
                    f"joints: {joint.name}: its velocity limit is 0, so that no simulator moves it: correct it"
                )
        else:
            entry["planned"] = False
        data[_short(joint.name)] = entry
    if data:
        guess.data["joints"] = data
    if arm:
        order = list(dict.fromkeys(_named(joint, data) for joint in arm))
        guess.data["joints"] = {name: data[name] for name in [*order, *(name for name in data if name not in order)]}
        _poses(model, arm, order, guess)


def _named(joint, data: dict) -> str:
    """Return the name under which a profile's joints have a joint of the description."""
    return next(name for name, entry in data.items() if joint.name in (entry["command"], *entry.get("parts", ())))


def _telescopes(model, arm: Sequence) -> list[list]:
    """Return the runs of two and more prismatic joints along one direction, each on the next, with equal ranges."""

    frames = link_transforms(model, {}, [joint.child for joint in arm])
    found: list[list] = []
    for joint in arm:
        last = found[-1][-1] if found and found[-1] else None
        along = frames[joint.child][:3, :3] @ joint.unit_axis
        same = last is not None and last.type == joint.type == "prismatic" and np.allclose(
            frames[last.child][:3, :3] @ last.unit_axis, along, atol=1e-3
        ) and (last.limit.lower, last.limit.upper) == (joint.limit.lower, joint.limit.upper)  # fmt: skip
        if same:
            found[-1].append(joint)
        else:
            found.append([joint])
    return [parts for parts in found if len(parts) > 1]


def _arm(model, joints: Sequence) -> list:
    """Return the joints of the longest chain, from the base outwards."""
    chains = [[joint for joint in model.chain(end.child) if joint in joints] for end in joints]
    return max(chains, key=len, default=[])


def _reach(model, joint) -> float:
    """Return how far (m) the joint moves a part at most: over its range, or as it turns it."""

    if joint.type == "prismatic":
        return joint.limit.upper - joint.limit.lower
    below = [link for link in model.order if joint in model.chain(link)]
    surfaces = {
        link: surface for link, surface in link_surfaces(model).items() if link in below and len(surface.vertices)
    }
    frames = link_transforms(model, {}, [joint.child, *surfaces])
    reach = 0.0
    for link, surface in surfaces.items():
        points = apply(inverse(frames[joint.child]) @ frames[link], surface.vertices)
        reach = max(reach, float(np.linalg.norm(np.cross(points, joint.unit_axis), axis=1).max()))
    return reach


def _poses(model, arm: Sequence, order: Sequence[str], guess: Guess) -> None:
    """Add which joints the shape follows, the stowed pose, and plans; `order` are the arm's joints
    as the profile names them."""

    footprint = guess.data["footprint_frame"]
    still = {
        name for name, joint in model.joints.items() if joint.variables and joint.mimic is None and joint not in arm
    }
    collision = SelfCollision(model, MARGIN, float(link_transform(model, {}, footprint)[2, 3]), still=still)
    surfaces = {link: LinkSurface.of(s.vertices, s.faces) for link, s in link_surfaces(model).items() if len(s.faces)}
    outline = RobotOutline(surfaces)
    parts = {name: [joint for joint in arm if _named(joint, guess.data["joints"]) == name] for name in order}
    ranges = {name: _range(joints) for name, joints in parts.items()}

    def described(pose: dict) -> dict:
        return {joint.name: value / len(parts[name]) for name, value in pose.items() for joint in parts[name]}

    def hull(pose: dict) -> np.ndarray:
        frames = link_transforms(model, described(pose), [*surfaces, footprint])
        return outline.hull({link: inverse(frames[footprint]) @ frames[link] for link in surfaces})

    def size(pose: dict) -> float:
        return float(np.linalg.norm(hull(pose), axis=1).max())

    random = np.random.default_rng(0)
    zero = {name: min(max(0.0, low), high) for name, (low, high) in ranges.items()}
    tried = [zero, *({name: float(random.uniform(*ends)) for name, ends in ranges.items()} for _ in range(TRIED))]
    free = [pose for pose in tried if collision.is_free(described(pose))]
    stow = {name: round(value, 2) for name, value in min(free, key=size).items()} if free else zero
    guess.open.append(
        "stow: a description does not tell it; of some random poses without collisions this is "
        "the one with the smallest outline"
        if free
        else "stow: all poses that were tried collide; write one"
    )

    def change(name: str) -> float:
        corners = [hull(stow | {name: value}) for value in np.linspace(*ranges[name], 5)]
        reach = np.array([np.linalg.norm(each, axis=1).max() for each in corners])
        extents = np.array([np.concatenate([each.min(axis=0), each.max(axis=0)]) for each in corners])
        return float(max(np.ptp(reach), np.ptp(extents, axis=0).max()))

    changes = {name: change(name) for name in order}
    most = [name for name in sorted(changes, key=changes.get, reverse=True) if changes[name] > FOLLOWED_FROM][:2]
    followed = [name for name in order if name in most]

    corners = [
        dict(zip(followed, ends, strict=True)) for ends in itertools.product(*(ranges[name] for name in followed))
    ]

    def room(pose: dict) -> int:
        return sum(collision.is_free(described(pose | corner)) for corner in corners)

    others = {name: round(value, 2) for name, value in max(free[:WITH_ROOM], key=room, default=zero).items()}

    def plan(count: int) -> dict:
        grids = {name: {"count": count, "from": low, "to": high} for name, (low, high) in ranges.items()}
        return {name: grids[name] if name in followed else [others[name]] for name in order}

    turning = [_reach(model, joint) for joint in arm if joint.type != "prismatic"]
    guess.data |= {
        "shape_joints": followed,
        "reach": round(max([0.1, *turning]), 2),
        "stow": [stow],
        "plans": {"quick": plan(2), "demo": plan(4), "default": plan(6)},
        "check_joints": list(order),
    }
    guess.found.append(f"arm: {', '.join(order)}; the body shape follows {' and '.join(followed) or 'none of them'}")
    guess.open.append(
        "plans: grids over the joints that the shape follows, the others where they leave room; write those you need"
    )


def _range(joints: Sequence) -> tuple[float, float]:
    """Return the range (m, rad) that plans go through, of a telescope the whole one: at most a
    quarter turn to either side."""
    low, high = len(joints) * joints[0].limit.lower, len(joints) * joints[0].limit.upper
    if joints[0].type != "prismatic" and max(low, -QUARTER) < min(high, QUARTER):
        low, high = max(low, -QUARTER), min(high, QUARTER)
    return round(low + 5e-4, 3), round(high - 5e-4, 3)


def _short(name: str) -> str:
    return name.removesuffix("_joint").removeprefix("joint_")
