"""`fit_body_shape_model DIR`: fits the body shape to a collected dataset and writes the model file."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stretch_sim_cal import command
from stretch_sim_cal.calibration.body_model_file import default_file_name, save_body_shape_model
from stretch_sim_cal.calibration.body_outline import RobotOutline
from stretch_sim_cal.calibration.body_shape import (
    FIT_METHODS,
    BodyShapeSettings,
    PoseEvidence,
    fit_body_shape,
)
from stretch_sim_cal.commands.robot_body import RobotBody
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.stretch import nominal_description


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `fit_body_shape_model` and return its exit code."""
    return command.run(lambda: run(build_parser().parse_args(arguments)))


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fit_body_shape_model",
        description="Fit an outline that nothing of the robot sticks out of, over arm extension and wrist yaw.",
        epilog="example: fit_body_shape_model collected_body_shape_data_20260319_142832 --plot outlines.png",
    )
    parser.add_argument("directory", metavar="DIR", type=Path, help="dataset that ros_collect_body_shape_data wrote")
    parser.add_argument("--fit-method", choices=FIT_METHODS, default=FIT_METHODS[0], help="kind of shape (%(default)s)")
    parser.add_argument(
        "--evidence", choices=("lidar", "model", "both"), default="both",
        help="what the shape encloses: lidar returns from the robot, its description's surfaces, or %(default)s",
    )  # fmt: skip
    parser.add_argument("--model", metavar="URDF", help="description (URDF or xacro); default: the dataset's own")
    parser.add_argument("--out", metavar="FILE", type=Path, help="model file; default: METHOD_body_model_TIMESTAMP.yaml")
    parser.add_argument("--no-arm-dependence", action="store_true", help="one shape for all arm extensions")
    parser.add_argument("--no-yaw-dependence", action="store_true", help="one shape for all wrist yaws")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    dataset = read_dataset(args.directory)
    source = args.model or dataset.description_file or nominal_description()
    body = RobotBody(load_model(source), dataset.footprint_from_base_link)
    outline = RobotOutline(body.surfaces)
    evidence = [
        PoseEvidence(sample.name, sample.commanded, outline.hull(body.transforms(body.positions(sample))))
        for sample in dataset.samples
    ]
    settings = BodyShapeSettings(args.fit_method, not args.no_arm_dependence, not args.no_yaw_dependence)
    fit = fit_body_shape(evidence, settings, body.outlines_at(outline, dataset.samples[0].joints))
    out = args.out or Path(default_file_name(args.fit_method))
    save_body_shape_model(fit.model, out)
    for line in dataset.warnings + fit.warnings:
        print(f"warning: {line}", file=sys.stderr)
    if args.json:
        print(json.dumps({"file": str(out), "protrusions_mm": (1e3 * fit.protrusions).tolist()}))
    else:
        for name, protrusion, area in zip(fit.names, fit.protrusions, fit.areas, strict=True):
            print(f"{name}: protrusion {1e3 * protrusion:.3f} mm, area {area:.4f} m^2")
        print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
