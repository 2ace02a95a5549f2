"""`fit_body_shape_model`: fits the body shape to a collected dataset, writes the model file and a picture, reports."""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal import command
from stretch_sim_cal.calibration.body import model as models
from stretch_sim_cal.calibration.body.evidence import BodyEvidence
from stretch_sim_cal.calibration.body.model import PUBLISHED_AXES, BodyShapeModel
from stretch_sim_cal.calibration.body.settings import FIT, find_settings, fit_settings
from stretch_sim_cal.calibration.body.shape import PoseEvidence
from stretch_sim_cal.calibration.finding import coded
from stretch_sim_cal.commands.described import source_of
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.harness.fitted_body import FittedBody, RobotBody, fit_dataset
from stretch_sim_cal.harness.pages import text_lines
from stretch_sim_cal.recording.dataset import Dataset, read_dataset
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.profile import profile_called

MOST_COLUMNS, MOST_ROWS = 8, 6


def run(args: argparse.Namespace, outcome: dict[str, Any]) -> int:
    """Fit, write, report, also to `outcome`. Raises `Refused` if the robot is not enclosed."""
    if args.plot and args.plot.suffix.lower() != ".png":
        raise InputError(f"--plot {args.plot}: the picture is a .png")
    path = find_settings(args.settings)
    settings = fit_settings(path, {key: getattr(args, key, None) for key in FIT})
    if settings.shape.method != "convex_polygon":
        command.only_with(args, ["vertices"], "--fit-method convex_polygon")
    if settings.evidence == "model":
        command.only_with(args, ["range_noise"], "--evidence lidar or both")
    dataset = read_dataset(args.directory)
    source = args.model or dataset.description_file
    profile = profile_called(args.robot)
    remedy = "give the robot's profile with --robot"
    if dataset.joint_names != profile.planned_names:
        own, others = (", ".join(names) or "none" for names in (profile.planned_names, dataset.joint_names))
        raise InputError(f"{args.directory}: its joints are {others}, those of {profile.name} {own}; {remedy}")
    if dataset.lidars not in (SIDES, tuple(profile.lidars)):
        own, others = ", ".join(profile.lidars), ", ".join(dataset.lidars)
        raise InputError(f"{dataset.directory}: was recorded by lidars {others}, {profile.name} has {own}; {remedy}")
    model = load_model(source_of(source), mesh_folders=profile.description.packages)
    fitted = fit_dataset(dataset, RobotBody(model, dataset.footprint_from_base_link, profile), settings)
    model, seen = fitted.model, fitted.seen
    out = args.out or Path(models.default_file_name(settings.shape.method))
    models.save_body_shape_model(model, out)
    if args.plot:
        png = picture(model, fitted.evidence, seen)
        write_atomic(args.plot, lambda file: file.write(png))
    report(args, path, out, dataset, fitted)
    outcome["warnings"] = [coded(warning).as_json() for warning in fitted.warnings]
    return 0


def report(args, settings: Path, out: Path, dataset: Dataset, fitted: FittedBody) -> None:
    fit, seen = fitted.fit, fitted.seen
    for line in fitted.warnings:
        command.warn(line)
    rows = [
        {"id": sample.id, "file": sample.file.name, "commanded": sample.commanded,
         "protrusion_mm": 1e3 * float(protrusion), "area": float(area)}
        for sample, protrusion, area in zip(dataset.samples, fit.protrusions, fit.areas, strict=True)
    ]  # fmt: skip
    model, between = fit.model, fit.protrusion_between
    sizes = [len(model.arm_extensions), len(model.wrist_yaws)]
    answer = {
        "file": str(out), "settings": str(settings), "shape_fitting_method": model.shape_fitting_method, "grid": sizes,
        "samples": rows, "max_protrusion_mm": 1e3 * float(max(fit.protrusions)),
        "protrusion_between_mm": None if between is None else 1e3 * between[1],
        "seen_moved_mm": None if seen is None or seen.registration is None else 1e3 * seen.registration.reach,
        "payloads": [] if seen is None else [link for link, _ in seen.payloads.values()],
        "warnings": fitted.warnings,
    }  # fmt: skip
    grid = "{} extensions x {} yaws".format(*sizes)
    if model.axes != PUBLISHED_AXES:
        values = zip(sizes, model.axes, strict=False)
        grid = " x ".join(f"{size} values of {joint}" for size, joint in values) or "one shape"
    command.show(args, answer, text_lines("fitted_body", found=answer, between=between, grid=grid), 2)


def picture(model: BodyShapeModel, evidence: Sequence[PoseEvidence], seen: BodyEvidence | None = None) -> bytes:
    """Return a PNG with a panel for each arm extension (column) and wrist yaw (row)."""
    from stretch_sim_cal.harness.report import outlines  # takes half a second

    at = [tuple(e.commanded.get(axis, 0.0) for axis in [*model.axes, "", ""][:2]) for e in evidence]
    extensions, yaws = _some({pose[0] for pose in at}, MOST_COLUMNS), _some({pose[1] for pose in at}, MOST_ROWS)
    panels = []
    for yaw, extension in itertools.product(yaws, extensions):
        shape, chosen = model.shape_at(extension, yaw), [i for i, pose in enumerate(at) if pose == (extension, yaw)]
        title = f"arm {extension:.2f} m, yaw {np.degrees(yaw):.0f}°"
        if model.axes != PUBLISHED_AXES:
            values = zip(model.axes, (extension, yaw), strict=False)
            title = ", ".join(f"{joint} {value:.2f}" for joint, value in values)
        panels.append({
            "title": title,
            "shape": shape.outline(240),
            "protrusion": max((shape.protrusion(evidence[i].points) for i in chosen), default=None),
            "areas": {"enclosed outline": [evidence[i].points for i in chosen]},
            "rings": {"hull of the robot's returns": [seen.returns[i] for i in chosen if seen]},
            "points": {"returns of other objects": [seen.outliers[i] for i in chosen if seen]},
        })  # fmt: skip
    return outlines(panels, len(extensions), f"{model.shape_fitting_method}, base_footprint")


def _some(values: set[float], most: int) -> list[float]:
    ordered = sorted(values)
    return [ordered[i] for i in np.linspace(0, len(ordered) - 1, min(most, len(ordered))).round().astype(int)]
