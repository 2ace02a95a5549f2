"""`stretch-sim-cal fk MODEL`: the pose of a frame of a robot; `mobility MODEL`: its degrees of freedom."""

import argparse
import math
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np

from stretch_sim_cal.command import listed, only_with, show
from stretch_sim_cal.commands.described import OWN_MODEL, add_model_arguments, assignments, load, number, numbers
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy, to_xyz_quaternion, to_xyz_rpy
from stretch_sim_cal.harness.pages import text_lines
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import configuration_space, link_transform
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.sdf import WORLD
from stretch_sim_cal.studies.mobility import is_tree_file, load_mechanism, mechanism_of, mobility


def _add_fk(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_model_arguments(parser)
    add_joint_argument(parser, "position of a joint in m or rad, or with suffix 'deg'; default 0")
    add("--frame", required=True, help="link whose pose is printed")
    add("--relative-to", metavar="FRAME", help="link in which it is expressed (default: the root)")
    root = "pose of the root in the world, m and rad (or 'X Y ANGLE' on a floor): the frame is given in the world"
    add("--root", metavar="'X Y Z R P Y'", help=root)


def add_joint_argument(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--joint", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=text)


def joint_values(model, words: list[str]) -> dict[str, object]:
    """Return positions by the description's joint names; the Stretch's `arm_joint` and `gripper_joint` are known, too.
    A position beyond its limits is used, with a note on stderr. Raises `InputError` for other text."""
    commanded = {name: _number(name, text) for name, text in assignments(words, "--joint").items()}
    positions = stretch_profile().joint_positions(model, commanded)
    for word in words:
        if word.endswith("deg"):
            name = word.partition("=")[0]
            for moved in stretch_profile().joint_positions(model, {name: commanded[name]}):
                if model.checked_joint(moved).type == "prismatic":
                    raise InputError(f"--joint {word}: {moved} slides; give its position in m")
    for name, value in positions.items():
        limit = model.checked_joint(name).limit
        if limit is not None and not isinstance(value, list) and (value < limit.lower or value > limit.upper):
            print(f"note: {name} = {value:g} is beyond its limits {limit.lower:g} to {limit.upper:g}", file=sys.stderr)
    return positions


def _number(name: str, text: str) -> float | list[float]:
    try:
        values = [number(word) for word in text.split(",")]
    except ValueError as error:
        raise InputError(f"--joint {name}={text}: '{text}' is not a number") from error
    return values[0] if len(values) == 1 else values


def _fk(args: argparse.Namespace) -> int:
    if args.root is not None and args.relative_to is not None:
        raise InputError("--root: a pose relative to another link does not need the pose of the root in the world")
    world_from_root = np.eye(4)
    if args.root is not None:
        x, y, *rest = numbers("--root", args.root, {6: "x y z roll pitch yaw", 3: "x y angle"})
        z, *rpy = rest if len(rest) == 4 else [0.0, 0.0, 0.0, *rest]
        world_from_root = from_xyz_rpy((x, y, z), rpy)
    model = load(args)
    transform = world_from_root @ link_transform(model, joint_values(model, args.joint), args.frame, args.relative_to)
    xyz, rpy = to_xyz_rpy(transform)
    quaternion = to_xyz_quaternion(transform)[1]
    relative_to = "the world" if args.root is not None else args.relative_to or model.root
    answer = {
        "frame": args.frame, "relative_to": relative_to, "transform": transform.tolist(), "xyz": xyz.tolist(),
        "rpy": rpy.tolist(), "quaternion_xyzw": quaternion.tolist(),
    }  # fmt: skip
    rows = (
        ("xyz", xyz, 6, "m"), ("rpy", rpy, 6, "rad"), ("rpy", np.degrees(rpy), 4, "deg"),
        ("quaternion", quaternion, 6, "x y z w"),
    )  # fmt: skip
    lines = [f"  {name:<10} {listed(values, digits)}  {unit}" for name, values, digits, unit in rows]
    show(args, answer, [f"{args.frame} in {relative_to}", *lines])
    return 0


def _add_mobility(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--base", choices=("fixed", "mobile", "floating"),
        help="how the root moves in the world: fixed (default), on a floor, or freely (with "
        "--dimension planar: in the plane)")  # fmt: skip
    dimension = "whether to count in space (the default, unless the file says otherwise) or in a plane"
    parser.add_argument("--dimension", choices=("spatial", "planar"), help=dimension)


def _mobility(args: argparse.Namespace) -> int:
    variables, dimension, base, model = None, "spatial", args.base or "fixed", None
    if args.model == OWN_MODEL or is_tree_file(Path(args.model)):
        model = load(args)
        mechanism = mechanism_of(model, base)
    else:
        only_with(args, ["arg", "package"], "a URDF or xacro")
        mechanism, dimension = load_mechanism(args.model, base=args.base)
        if mechanism.loops == 0 and Path(args.model).suffix not in (".yaml", ".yml"):
            model = load_model(args.model)
            base = "fixed" if WORLD in model.links else "floating"
    if model is not None:
        # In a plane a floating base moves like one on a floor.
        space = "mobile" if (args.dimension, base) == ("planar", "floating") else base
        variables = configuration_space(model, space)
    found = mobility(mechanism, args.dimension or dimension)
    same = (
        "links", "joints", "loops", "joint_freedom", "mobility", "dimension", "measured", "over_constrained", "notes",
    )  # fmt: skip
    answer = {"model": found.name, "count_spatial": found.spatial, "count_planar": found.planar}
    answer |= {"redundant_constraints": found.redundant} | {name: getattr(found, name) for name in same}
    if variables is not None:
        answer["configuration_space"] = [
            {key: None if value in (-math.inf, math.inf) else value for key, value in asdict(variable).items()}
            for variable in variables
        ]
    show(args, answer, text_lines("mobility", found=found, variables=variables))
    return 0


COMMANDS = {
    "fk": ("stretch-sim-cal fk stretch4 --joint lift_joint=0.6 arm_joint=0.2 --frame grasp_center_link", _add_fk, _fk),
    "mobility": ("stretch-sim-cal mobility linkage.sdf", _add_mobility, _mobility),
}
