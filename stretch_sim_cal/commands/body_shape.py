"""`fit_body_shape_model`: fits the body shape to a collected dataset, writes the model file
and a picture, and reports."""

import argparse
import dataclasses
import datetime
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from stretch_sim_cal import command
from stretch_sim_cal.calibration.body.evidence import BodyEvidence, PoseReturns, SeenRobot, gather_evidence
from stretch_sim_cal.calibration.body.grid import BodyJoints, OutlinesAt, PoseEvidence
from stretch_sim_cal.calibration.body.model import (
    PUBLISHED_AXES,
    BodyShapeModel,
    default_file_name,
    description_hash,
    save_body_shape_model,
)
from stretch_sim_cal.calibration.body.outline import LinkSurface, RobotOutline
from stretch_sim_cal.calibration.body.settings import FIT, FitSettings, find_settings, fit_settings
from stretch_sim_cal.calibration.body.shape import BodyShapeFit, fit_body_shape
from stretch_sim_cal.commands.described import is_own
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.recording.dataset import Dataset, Sample, read_dataset
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, profile_called, stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.robot.surfaces import outline_surfaces

ARRIVED = (0.01, 0.05)  # m, rad: of joints that move in m, and of any other
MOST_COLUMNS, MOST_ROWS = 8, 6
MOST_LEFT_OUTSIDE = 0.005  # m, between grid points; a model that leaves more is not written


def run(args: argparse.Namespace) -> int:
    """Fit, write, report. Raises `InputError` for unusable input and `Refused` if the robot is not enclosed."""
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
        png = picture(model, evidence, seen)
        write_atomic(args.plot, lambda file: file.write(png))
    report(args, path, out, dataset, fit, seen, warnings)
    return 0


class RobotBody:
    """A robot's surfaces and kinematics, seen from base_footprint.

    `footprint_from_base_link` is the calibrated transform of the recording; without it the description's own is used.
    Raises `InputError` for a description that is not of the `profile`'s robot (by default the Stretch), or whose meshes
    cannot be read.
    """

    def __init__(
        self, model: RobotModel, footprint_from_base_link: np.ndarray | None = None, profile: RobotProfile | None = None
    ):
        self.profile = profile = profile or stretch_profile()
        limits, frames = profile.commanded_limits(model), (profile.base_frame, profile.footprint_frame)
        missing = [link for link in frames if link not in model.links]
        missing += ["lidars"] if len(profile.lidar_links(model)) < 2 else []
        missing += [name for name in profile.commands.values() if name not in limits]
        if missing:
            raise InputError(
                f"robot '{model.name}': has no {', '.join(missing)}; a {profile.name}'s description is needed"
            )
        self.model = model
        self._base = profile.base_frame
        self.limits = {joint: limits[name] for joint, name in profile.commands.items()}
        self.outline = {
            link: LinkSurface.of(surface.vertices, surface.faces)
            for link, surface in outline_surfaces(model, profile).items()
            if len(surface.faces)
        }
        """The surfaces of the body, by link."""
        unseen = {link for lidar in profile.lidars.values() for link in lidar.unseen}
        self.surfaces = {link: surface for link, surface in self.outline.items() if link not in unseen}
        """Those that the lidars see: all but themselves."""
        at_zero = link_transforms(model, {})
        if footprint_from_base_link is None:
            footprint_from_base_link = inverse(at_zero[profile.footprint_frame]) @ at_zero[self._base]
        self.footprint_from_base_link = footprint_from_base_link
        base = inverse(at_zero[self._base])
        self.lidars = np.array(
            [(footprint_from_base_link @ base @ at_zero[link])[:3, 3] for link in profile.lidar_links(model)]
        )
        """The lidars' places (L, 3) in base_footprint as the description has them, left first."""
        self.hash = description_hash(model, self.outline, profile)

    def transforms(self, positions: Mapping[str, float | np.ndarray]) -> dict[str, np.ndarray]:
        """Return footprint_from_link (..., 4, 4) of every link with a surface; positions are by description name."""
        known = {name: value for name, value in positions.items() if name in self.model.joints}
        frames = link_transforms(self.model, known, [*self.outline, self._base])
        footprint_from_root = self.footprint_from_base_link @ inverse(frames[self._base])
        return {link: footprint_from_root @ frames[link] for link in self.outline}

    def positions(self, sample: Sample, values: Mapping[str, float] | None = None) -> dict[str, float]:
        """Return joint positions by description name: all measured ones of a sample, and `values` (of the planned
        joints), which by default are the measured ones of the sample."""
        if values is None and sample.joints:
            return dict(sample.joints)
        values = sample.actual if values is None else values
        return dict(sample.joints) | self.profile.joint_positions(
            self.model, {name: values[joint] for joint, name in self.profile.commands.items()}
        )

    def outside_limits(self, values: Mapping[str, float], tolerance: float = 1e-3) -> list[str]:
        """Return, as text, which of the values of the planned joints are outside the description's limits."""
        return [
            f"{joint} {values[joint]:.3f} is not in [{limit.lower:.3f}, {limit.upper:.3f}]"
            for joint, limit in self.limits.items()
            if not limit.lower - tolerance <= values[joint] <= limit.upper + tolerance
        ]

    def outlines_at(self, robot: RobotOutline | SeenRobot, others: Mapping[str, float]) -> OutlinesAt:
        """Return the function that `fit_body_shape` asks for outlines; `others` are positions of all other joints."""

        def outlines(sets: Sequence[np.ndarray]) -> list[np.ndarray]:
            poses = np.concatenate(sets)
            commanded = dict(zip(self.profile.commands.values(), poses.T, strict=True))
            frames = self.transforms(dict(others) | self.profile.joint_positions(self.model, commanded))
            return robot.hulls(frames, [len(part) for part in sets])

        return outlines


def pose_returns(dataset: Dataset, body: RobotBody) -> list[PoseReturns]:
    """Return the samples as the evidence needs them."""
    return [PoseReturns(s.name, s.points, s.lidars, body.transforms(body.positions(s))) for s in dataset.samples]


def fit_evidence(
    dataset: Dataset, body: RobotBody, seen: BodyEvidence | None, settings: FitSettings
) -> tuple[list[PoseEvidence], BodyShapeFit]:
    """Return the evidence to enclose in each pose, and the shape fitted to it.

    With the evidence `lidar` these are the returns from the robot alone; otherwise the model's outline at the measured
    joint values, moved and with the payload as in `seen`, and the same at the commanded values and between them.
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
    messages = []
    for sample in dataset.samples:
        for kind, values, tolerance in (("commanded", sample.commanded, 1e-3), ("actual", sample.actual, 0.05)):
            outside = body.outside_limits(values, tolerance)
            if outside:
                raise InputError(f"{sample.name}: {kind} {'; '.join(outside)}: not of this robot, or of another tool")
        messages += [f"{sample.name}: {text}" for text in _not_arrived(sample, body.profile)]
    return messages


def _not_arrived(sample: Sample, profile: RobotProfile) -> list[str]:
    off = {joint: sample.actual[joint] - sample.commanded[joint] for joint in profile.planned_names}
    within = {joint.name: ARRIVED[0 if joint.linear else 1] for joint in profile.planned}
    return [
        f"{joint} was at {sample.actual[joint]:.3f}, commanded {sample.commanded[joint]:.3f}: it did not arrive"
        for joint, by in off.items()
        if abs(by) > within[joint]
    ]


def check_enclosed(fit: BodyShapeFit) -> None:
    """Raise `Refused` if the robot still sticks out of the shape between the grid points."""
    if fit.protrusion_between and fit.protrusion_between[1] > MOST_LEFT_OUTSIDE:
        raise Refused(
            f"between the grid points {1e3 * fit.protrusion_between[1]:.1f} mm of the robot stick out of the "
            f"interpolated shape; collect more values of {' and '.join(fit.model.axes)}, or fit "
            "another shape; nothing was written"
        )


def about(dataset: Dataset, body: RobotBody, settings: FitSettings) -> dict:
    """Return the model file's entries on its origin, by the published names if there are any."""
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
    """Print the fit: lines for people, or JSON."""
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
            f"between the grid points: protrusion {after:.3f} mm ({before:.1f} mm with "
            "the smallest shape of every pose)"
        )
    grid = f"{len(model.arm_extensions)} extensions x {len(model.wrist_yaws)} yaws"
    if model.axes != PUBLISHED_AXES:
        sizes = zip(model.axes, (len(model.arm_extensions), len(model.wrist_yaws)), strict=False)
        grid = " x ".join(f"{size} values of {joint}" for joint, size in sizes) or "one shape"
    print(f"wrote {out}: {model.shape_fitting_method}, {grid}; settings of {settings}")


def picture(model: BodyShapeModel, evidence: Sequence[PoseEvidence], seen: BodyEvidence | None = None) -> bytes:
    """Return a PNG: columns are arm extensions, rows wrist yaws; in each the enclosed outlines of all samples there,
    the hull of the returns from the robot, returns that are not of it, and the shape with its protrusion."""
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
            "points": {"returns not of the robot": [seen.outliers[i] for i in chosen if seen]},
        })  # fmt: skip
    return outlines(panels, len(extensions), f"{model.shape_fitting_method}, base_footprint")


def _some(values: set[float], most: int) -> list[float]:
    ordered = sorted(values)
    if len(ordered) <= most:
        return ordered
    return [ordered[i] for i in np.linspace(0, len(ordered) - 1, most).round().astype(int)]
