"""`stretch-sim-cal mobility MODEL`: how many degrees of freedom a robot or mechanism has."""

import argparse
import json
from pathlib import Path

from stretch_sim_cal.command import only_with
from stretch_sim_cal.commands.fk import OWN_MODEL, add_model_arguments, load
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import configuration_space
from stretch_sim_cal.studies.mobility import is_tree_file, load_mechanism, mechanism_of, mobility

EXAMPLE = "stretch-sim-cal mobility linkage.sdf"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_arguments(parser)
    parser.add_argument(
        "--base", choices=("fixed", "mobile", "floating"),
        help="how the root moves in the world: not (default), on a floor, or freely (with "
        "--dimension planar: in the plane)",
    )  # fmt: skip
    parser.add_argument(
        "--dimension", choices=("spatial", "planar"),
        help="count in space (the default if the file says nothing) or in a plane",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the mobility, how it was found, and the configuration space of a robot."""
    variables, dimension = None, "spatial"
    if args.model == OWN_MODEL or is_tree_file(Path(args.model)):
        model, base = load(args), args.base or "fixed"
        # In a plane a floating base moves like one on a floor.
        space = "mobile" if (args.dimension, base) == ("planar", "floating") else base
        mechanism, variables = mechanism_of(model, base), configuration_space(model, space)
    else:
        only_with(args, {"arg": [], "package": []}, "a URDF or xacro")
        mechanism, dimension = load_mechanism(args.model, base=args.base)
        if mechanism.loops == 0 and Path(args.model).suffix == ".sdf":
            variables = configuration_space(load_model(args.model))
    found = mobility(mechanism, args.dimension or dimension)
    if args.json:
        answer = {
            "model": found.name,
            "links": found.links,
            "joints": found.joints,
            "loops": found.loops,
            "joint_freedom": found.joint_freedom,
            "mobility": found.mobility,
            "dimension": found.dimension,
            "count_spatial": found.spatial,
            "count_planar": found.planar,
            "measured": found.measured,
            "over_constrained": found.over_constrained,
            "redundant_constraints": found.redundant,
            "notes": found.notes,
        }
        if variables is not None:
            answer["configuration_space"] = [_as_json(variable) for variable in variables]
        print(json.dumps(answer, indent=1))
        return 0
    how = "counted" if found.measured is None else "measured on its geometry"
    print(f"{found.name}: mobility {found.mobility} ({how})")
    print(f"  links {found.links} (ground included), joints {found.joints}, closed loops {found.loops}")
    print(f"  the joints' own freedom {found.joint_freedom}, {found.dimension} count {found.count}")
    for note in found.notes:
        print(f"  {note}")
    if variables is not None:
        print(f"configuration space: {len(variables)} dimensions")
        for variable in variables:
            unit = "m" if variable.kind == "translation" else "rad"
            print(f"  {variable.name:<28} {variable.kind:<15} {variable.lower:8.3f} to {variable.upper:8.3f} {unit}")
    return 0


def _as_json(variable) -> dict[str, object]:
    lower, upper = (None if abs(value) == float("inf") else value for value in (variable.lower, variable.upper))
    return {"name": variable.name, "joint": variable.joint, "kind": variable.kind, "lower": lower, "upper": upper}
