"""What `fit_body_shape_model` does: fits the body shape to a collected dataset, writes the model file and a
picture, and reports."""

import argparse
import dataclasses
import datetime
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stretch_sim_cal import command
from stretch_sim_cal.calibration.body.evidence import BodyEvidence, PoseReturns, SeenRobot, gather_evidence
from stretch_sim_cal.calibration.body.grid import BodyJoints, PoseEvidence
from stretch_sim_cal.calibration.body.model import (
    PUBLISHED_AXES,
    BodyShapeModel,
    default_file_name,
    save_body_shape_model,
)
from stretch_sim_cal.calibration.body.settings import FIT, FitSettings, find_settings, fit_settings
from stretch_sim_cal.calibration.body.shape import BodyShapeFit, fit_body_shape
from stretch_sim_cal.commands.fk import is_own
from stretch_sim_cal.commands.robot_body import RobotBody
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.recording.dataset import Dataset, Sample, read_dataset
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.profile import RobotProfile, profile_called
from stretch_sim_cal.robot.stretch import nominal_description

ARRIVED = (0.01, 0.05)  # m, rad: of joints that move in m, and of any other
BODY, SHAPE, RETURNS, STRANGER = "#9aa7b5", "#1f5fbf", "#2b2b2b", "#d62728"
MOST_COLUMNS, MOST_ROWS = 8, 6
DRAWN_POINTS = 3000
MOST_LEFT_OUTSIDE = 0.005  # m, between grid points; a model that leaves more is not written


def run(args: argparse.Namespace) -> int:
    """Fit, write, report. Raises `InputError` for unusable input and `Refused` where the robot is not enclosed."""
    if args.plot and args.plot.suffix.lower() != ".png":
        raise InputError(f"--plot {args.plot}: the picture is a .png")
    path = find_settings(args.settings)
    settings = fit_settings(path, {key: getattr(args, key, None) for key in FIT})
    if settings.shape.method != "convex_polygon":
        command.only_with(args, {"vertices": None}, "--fit-method convex_polygon")
    if settings.evidence == "model":
        command.only_with(args, {"range_noise": None}, "--evidence lidar or both")
    dataset = read_dataset(args.directory)
    source = args.model or dataset.description_file
    profile = profile_called(args.robot)
    if dataset.joint_names != profile.planned_names:
        raise InputError(
            f"{args.directory}: its joints are {', '.join(dataset.joint_names) or 'none'}, those of {profile.name} "
            f"{', '.join(profile.planned_names) or 'none'}; name the robot's profile with --robot"
        )
    model = load_model(nominal_description() if is_own(source) else source)
    body = RobotBody(model, dataset.footprint_from_base_link, profile)
    warnings = dataset.warnings + check_joints(dataset, body)
    seen = None
    if settings.evidence != "model":
        seen = gather_evidence(
            pose_returns(dataset, body), body.surfaces, body.lidars, settings.returns,
            smoothed_returns=20_000 if settings.evidence == "lidar" else 1500,
        )  # fmt: skip
        warnings += seen.warnings
    evidence, fit = fit_evidence(dataset, body, seen, settings)
    warnings += fit.warnings
    check_enclosed(fit)
    model = dataclasses.replace(fit.model, about=about(dataset, body, settings))
    out = args.out or Path(default_file_name(settings.shape.method))
    save_body_shape_model(model, out)
    if args.plot:
        plot_body_shapes(args.plot, model, evidence, seen)
    report(args, path, out, dataset, fit, seen, warnings)
    return 0


def pose_returns(dataset: Dataset, body: RobotBody) -> list[PoseReturns]:
    """Return the samples as the evidence needs them."""
    return [PoseReturns(s.name, s.points, s.lidars, body.transforms(body.positions(s))) for s in dataset.samples]


def fit_evidence(
    dataset: Dataset, body: RobotBody, seen: BodyEvidence | None, settings: FitSettings
) -> tuple[list[PoseEvidence], BodyShapeFit]:
    """Return what has to be enclosed in each pose, and the shape fitted to it.

    With the evidence `lidar` these are the returns from the robot alone; otherwise the model's outline at the measured
    joint values, where and with what `seen` saw it (payload), and the same at the commanded values and between them.
    """
    joints = BodyJoints.of(body.profile)
    if settings.evidence == "lidar":
        evidence = [
            PoseEvidence(sample.name, sample.commanded, returns)
            for sample, returns in zip(dataset.samples, seen.returns, strict=True)
        ]
        return evidence, fit_body_shape(evidence, settings.shape, joints=joints)
    robot = SeenRobot(body.outline, seen, settings.returns)
    evidence = [
        PoseEvidence(sample.name, sample.commanded, robot.hulls(body.transforms(body.positions(sample)))[0])
        for sample in dataset.samples
    ]
    return evidence, fit_body_shape(
        evidence, settings.shape, body.outlines_at(robot, dataset.samples[0].joints), joints
    )


def check_joints(dataset: Dataset, body: RobotBody) -> list[str]:
    """Return a warning for each sample whose joints did not arrive. Raises `InputError` for ones outside the limits."""
    told = []
    for sample in dataset.samples:
        for kind, values, tolerance in (("commanded", sample.commanded, 1e-3), ("actual", sample.actual, 0.05)):
            outside = body.outside_limits(values, tolerance)
            if outside:
                raise InputError(f"{sample.name}: {kind} {'; '.join(outside)}: not of this robot, or of another tool")
        told += [f"{sample.name}: {text}" for text in _not_arrived(sample, body.profile)]
    return told


def _not_arrived(sample: Sample, profile: RobotProfile) -> list[str]:
    off = {joint: sample.actual[joint] - sample.commanded[joint] for joint in profile.planned_names}
    within = {joint.name: ARRIVED[0 if joint.linear else 1] for joint in profile.planned}
    return [
        f"{joint} was at {sample.actual[joint]:.3f}, commanded {sample.commanded[joint]:.3f}: it did not arrive"
        for joint, by in off.items()
        if abs(by) > within[joint]
    ]


def check_enclosed(fit: BodyShapeFit) -> None:
    """Raise `Refused` where the robot sticks out of the shape between the grid points in spite of all."""
    if fit.protrusion_between and fit.protrusion_between[1] > MOST_LEFT_OUTSIDE:
        raise Refused(
            f"between the grid points {1e3 * fit.protrusion_between[1]:.1f} mm of the robot stick out of the "
            "interpolated shape; collect more values of {' and '.join(fit.model.axes)}, or fit another shape; nothing was written"
        )


def about(dataset: Dataset, body: RobotBody, settings: FitSettings) -> dict:
    """Return what the model file says of its origin, by the published names where there are any."""
    tool = str(dataset.info.get("tool", dataset.info.get("tool_id", "unknown")))
    return {
        "tool": tool,
        "description_hash": body.hash,
        "evidence": settings.evidence,
        "heights": [settings.returns.lowest, settings.returns.highest],
        "fitted": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "dataset_metadata": {
            "robot_id": str(dataset.info.get("robot_id", "unknown")),
            "tool_id": tool,
            "timestamp": str(dataset.info.get("timestamp", dataset.created)),
        },
    }


def report(
    args, settings: Path, out: Path, dataset: Dataset, fit: BodyShapeFit, seen: BodyEvidence | None, warnings: list[str]
) -> None:
    """Print what was fitted: lines for people, or JSON."""
    for line in warnings:
        command.warn(line)
    rows = [
        {"id": sample.id, "file": sample.file.name, "commanded": sample.commanded,
         "protrusion_mm": 1e3 * float(protrusion), "area": float(area)}
        for sample, protrusion, area in zip(dataset.samples, fit.protrusions, fit.areas, strict=True)
    ]  # fmt: skip
    model = fit.model
    if args.json:
        result = {
            "file": str(out),
            "settings": str(settings),
            "shape_fitting_method": model.shape_fitting_method,
            "grid": [len(model.arm_extensions), len(model.wrist_yaws)],
            "samples": rows,
            "max_protrusion_mm": max(row["protrusion_mm"] for row in rows),
            "protrusion_between_mm": None if fit.protrusion_between is None else 1e3 * fit.protrusion_between[1],
            "seen_moved_mm": None if seen is None or seen.registration is None else 1e3 * seen.registration.reach,
            "payloads": [] if seen is None else [link for link, _ in seen.payloads.values()],
            "warnings": warnings,
        }
        print(json.dumps(result, indent=2))
        return
    for row in rows:
        pose = ", ".join(f"{joint} {value:.2f}" for joint, value in row["commanded"].items())
        print(f"{row['file']}: {pose}: protrusion {row['protrusion_mm']:.3f} mm, area {row['area']:.4f} m^2")
    if fit.protrusion_between is not None:
        before, after = (1e3 * value for value in fit.protrusion_between)
        print(
            f"between the grid points: protrusion {after:.3f} mm ({before:.1f} mm with the smallest shape of every pose)"
        )
    grid = f"{len(model.arm_extensions)} extensions x {len(model.wrist_yaws)} yaws"
    if model.axes != PUBLISHED_AXES:
        sizes = zip(model.axes, (len(model.arm_extensions), len(model.wrist_yaws)), strict=False)
        grid = " x ".join(f"{size} values of {joint}" for joint, size in sizes) or "one shape"
    print(f"wrote {out}: {model.shape_fitting_method}, {grid}; settings of {settings}")


def plot_body_shapes(
    path: str | Path, model: BodyShapeModel, evidence: Sequence[PoseEvidence], seen: BodyEvidence | None = None
) -> None:
    """Write a PNG: columns are arm extensions, rows wrist yaws; in each the enclosed outlines of all samples there,
    the hull of the returns from the robot, returns that are not of it, and the shape with what sticks out of it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    first, second = [*model.axes, "", ""][:2]
    extensions = _some(sorted({e.commanded.get(first, 0.0) for e in evidence}), MOST_COLUMNS)
    yaws = _some(sorted({e.commanded.get(second, 0.0) for e in evidence}), MOST_ROWS)
    drawn = np.concatenate([model.shape_at(extension, yaw).outline() for extension in extensions for yaw in yaws])
    width, height = np.ptp(drawn, axis=0)
    figure, axes = plt.subplots(
        len(yaws), len(extensions),
        figsize=(2.9 * len(extensions) + 0.6, (2.5 * height / width + 0.6) * len(yaws) + 1.0),
        squeeze=False, sharex=True, sharey=True,
    )  # fmt: skip
    for row, yaw in enumerate(yaws):
        for column, extension in enumerate(extensions):
            chosen = [
                i
                for i, e in enumerate(evidence)
                if e.commanded.get(first, 0.0) == extension and e.commanded.get(second, 0.0) == yaw
            ]
            _pose(axes[row, column], model.shape_at(extension, yaw), evidence, seen, chosen)
            title = f"arm {extension:.2f} m, yaw {np.degrees(yaw):.0f}°"
            if model.axes != PUBLISHED_AXES:
                title = ", ".join(
                    f"{joint} {value:.2f}" for joint, value in zip(model.axes, (extension, yaw), strict=False)
                )
            stick = max((model.shape_at(extension, yaw).protrusion(evidence[i].points) for i in chosen), default=None)
            note = "no sample" if stick is None else f"protrusion {1e3 * stick:.2f} mm"
            axes[row, column].set_title(f"{title}\n{note}", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("x / m")
    for axis in axes[:, 0]:
        axis.set_ylabel("y / m")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=8, frameon=False)
    figure.suptitle(f"{model.shape_fitting_method}, base_footprint", fontsize=10)
    figure.tight_layout(rect=(0, 0.3 / figure.get_figheight(), 1, 1))
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    plt.close(figure)
    write_atomic(path, lambda file: file.write(stream.getvalue()))


def _pose(axis, shape, evidence, seen, chosen) -> None:
    outline = shape.outline(240)
    axis.fill(*outline.T, color=SHAPE, alpha=0.12, linewidth=0)
    axis.plot(*np.vstack([outline, outline[:1]]).T, color=SHAPE, linewidth=1.2, label="fitted shape")
    for number, i in enumerate(chosen):
        axis.fill(
            *evidence[i].points.T, color=BODY, alpha=0.6, linewidth=0, label=None if number else "enclosed outline"
        )
        if seen is None:
            continue
        returns = seen.returns[i]
        if len(returns) > 2:
            closed = np.vstack([returns, returns[:1]])
            axis.plot(*closed.T, color=RETURNS, linewidth=0.6, label=None if number else "hull of the robot's returns")
        strangers = seen.strangers[i][:: max(1, len(seen.strangers[i]) // DRAWN_POINTS)]
        axis.plot(*strangers.T, ".", color=STRANGER, markersize=1, label=None if number else "returns not of the robot")
    axis.set_aspect("equal")
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.25, linewidth=0.5)


def _some(values: list[float], most: int) -> list[float]:
    if len(values) <= most:
        return values
    return [values[i] for i in np.linspace(0, len(values) - 1, most).round().astype(int)]
