"""`fit_body_shape_model DIR`: the command line; `body_shape.py` is imported once the arguments are known to be good."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from stretch_sim_cal import command
from stretch_sim_cal.calibration.body import EVIDENCE, FIT_METHODS, SETTINGS_NAME


def main(arguments: Sequence[str] | None = None) -> int:
    args = build_parser().parse_args(arguments)

    def fit() -> int:
        with command.outcome_in(args.outcome_file) as outcome:
            return importlib.import_module("stretch_sim_cal.commands.body_shape").run(args, outcome)

    return command.run(fit)


def build_parser() -> argparse.ArgumentParser:
    parser = command.Parser(
        prog="fit_body_shape_model",
        description="Fit an outline that encloses the robot, over arm extension and wrist yaw.",
        epilog="example: fit_body_shape_model collected_body_shape_data_20260319_142832 --plot outlines.png",
    )
    add = parser.add_argument
    add("directory", metavar="DIR", type=Path, help="dataset that ros_collect_body_shape_data wrote")
    add("--settings", default=SETTINGS_NAME,
        help="settings file, a name in config/ or a path, whose section fit has the defaults of these options "
        "(%(default)s: the robot's own, if any)")  # fmt: skip
    add("--fit-method", dest="method", choices=FIT_METHODS, help="kind of shape")
    evidence = "evidence to enclose: the lidars' returns from the robot, its description's surfaces, or both"
    add("--evidence", choices=EVIDENCE, help=evidence)
    add("--robot", metavar="FILE", help="robot's profile: a name in config/robots/ or a path (default: the Stretch)")
    add("--model", metavar="URDF", help="description (URDF or xacro); default: the dataset's own")
    add("--out", metavar="FILE", type=Path, help="model file; default: METHOD_body_model_TIMESTAMP.yaml")
    for axis, values in (("arm", "arm extensions"), ("yaw", "wrist yaws")):
        add(f"--{axis}-dependence", dest=f"{axis}_dependent", action=argparse.BooleanOptionalAction,
            help=f"whether the shape depends on {values}")  # fmt: skip
    add("--vertices", type=int, metavar="N", help="largest number of vertices of a convex_polygon")
    add("--range-noise", type=float, metavar="M", help="range noise of the lidars, one standard deviation")
    add("--plot", metavar="PNG", type=Path, help="draw outline, returns and shape for every pose")
    add("--json", action="store_true", help="print the result as JSON")
    add("--outcome-file", metavar="FILE", help="also write the outcome as JSON to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
