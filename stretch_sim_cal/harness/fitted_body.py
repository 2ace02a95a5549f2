"""The body shape of a dataset: the robot's surfaces and the returns of every pose, and the shape fitted to both."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stretch_sim_cal.calibration.body.evidence import BodyEvidence, PoseReturns, SeenRobot, gather_evidence
from stretch_sim_cal.calibration.body.model import BodyShapeModel, description_hash
from stretch_sim_cal.calibration.body.returns import RobotOutline
from stretch_sim_cal.calibration.body.settings import FitSettings
from stretch_sim_cal.calibration.body.shape import BodyShapeFit, OutlinesAt, PoseEvidence, fit_body_shape
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.recording.dataset import Dataset, Sample
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.robot.surfaces import outline_surfaces

ARRIVED = (0.01, 0.05)  # m, rad: of joints that move in m, and of any other
MOST_LEFT_OUTSIDE = 0.005  # m, between grid points; a model that leaves more is refused


class RobotBody:
    """A robot's surfaces and kinematics in base_footprint. Raises `InputError` for a description of another robot than
    the `profile`'s, or without its meshes."""

    def __init__(self, model: RobotModel, footprint_from_base_link: np.ndarray, profile: RobotProfile):
        limits, frames = profile.commanded_limits(model), (profile.base_frame, profile.footprint_frame)
        lidars = profile.lidar_links(model)
        missing = [link for link in frames if link not in model.links]
        missing += ["lidars"] if len(lidars) < len(profile.lidars) else []
        missing += [name for name in profile.commands.values() if name not in limits]
        if missing:
            names = ", ".join(missing)
            raise InputError(f"robot '{model.name}': has no {names}; a {profile.name}'s description is needed")
        self.model, self.profile, self.footprint_from_base_link = model, profile, footprint_from_base_link
        self.limits = {joint: limits[name] for joint, name in profile.commands.items()}
        self.outline = {link: each for link, each in outline_surfaces(model, profile).items() if len(each.faces)}
        """The surfaces of the body, by link."""
        unseen = {link for lidar in profile.lidars.values() for link in lidar.unseen}
        self.surfaces = {link: surface for link, surface in self.outline.items() if link not in unseen}
        """Those that the lidars see: all but themselves."""
        at_zero = link_transforms(model, {})
        footprint_from_root = footprint_from_base_link @ inverse(at_zero[profile.base_frame])
        self.lidars = np.array([(footprint_from_root @ at_zero[link])[:3, 3] for link in lidars.values()])
        """The lidars' places (L, 3) in base_footprint as the description has them."""

    @cached_property
    def hash(self) -> str:
        return description_hash(self.model, self.outline, self.profile)

    def transforms(self, positions: Mapping[str, float | np.ndarray]) -> dict[str, np.ndarray]:
        """Return footprint_from_link (..., 4, 4) of every link with a surface; positions are by description name."""
        known = {name: value for name, value in positions.items() if name in self.model.joints}
        frames = link_transforms(self.model, known, [*self.outline, self.profile.base_frame])
        footprint_from_root = self.footprint_from_base_link @ inverse(frames[self.profile.base_frame])
        return {link: footprint_from_root @ frames[link] for link in self.outline}

    def positions(self, sample: Sample) -> dict[str, float]:
        """Return the measured joint positions of a sample by description name."""
        if sample.joints:
            return dict(sample.joints)
        commanded = {name: sample.actual[joint] for joint, name in self.profile.commands.items()}
        return self.profile.joint_positions(self.model, commanded)

    def outlines_at(self, robot: RobotOutline | SeenRobot, others: Mapping[str, float]) -> OutlinesAt:
        """Return the function that `fit_body_shape` asks for outlines; `others` are positions of all other joints."""

        def outlines(sets: Sequence[np.ndarray]) -> list[np.ndarray]:
            poses = np.concatenate(sets)
            commanded = dict(zip(self.profile.commands.values(), poses.T, strict=True))
            frames = self.transforms(dict(others) | self.profile.joint_positions(self.model, commanded))
            return robot.hulls(frames, [len(part) for part in sets])

        return outlines


@dataclass(frozen=True)
class FittedBody:
    """A body shape fitted to a dataset: the `evidence` that it encloses in each pose; `seen` is None with evidence
    `model`."""

    model: BodyShapeModel
    fit: BodyShapeFit
    evidence: list[PoseEvidence]
    seen: BodyEvidence | None
    warnings: list[str]


def fit_dataset(dataset: Dataset, body: RobotBody, settings: FitSettings) -> FittedBody:
    """Return the body shape fitted to a dataset. Raises `InputError`, and `Refused` if the robot is not enclosed."""
    warnings = dataset.warnings + check_joints(dataset, body)
    seen = None
    if settings.evidence != "model":
        returns = [PoseReturns(s.name, s.points, s.lidars, body.transforms(body.positions(s))) for s in dataset.samples]
        seen = gather_evidence(
            returns, body.surfaces, body.lidars, settings.returns,
            smoothed_returns=20_000 if settings.evidence == "lidar" else 1500,
        )  # fmt: skip
        warnings += seen.warnings
    if settings.evidence == "lidar":
        enclosed, outlines = seen.returns, None
    else:  # the model's outline, moved and with the payload as seen, at the measured joint values, and between them
        robot = SeenRobot(body.outline, seen, settings.returns)
        enclosed = [robot.hulls(body.transforms(body.positions(sample)))[0] for sample in dataset.samples]
        outlines = body.outlines_at(robot, dataset.samples[0].joints)
    pairs = zip(dataset.samples, enclosed, strict=True)
    evidence = [PoseEvidence(sample.name, sample.commanded, points) for sample, points in pairs]
    fit = fit_body_shape(evidence, settings.shape, outlines, body.profile)
    if fit.protrusion_between and fit.protrusion_between[1] > MOST_LEFT_OUTSIDE:
        raise Refused(
            f"between the grid points {1e3 * fit.protrusion_between[1]:.1f} mm of the robot protrude from the "
            f"interpolated shape; collect more values of {' and '.join(fit.model.axes)}, or fit "
            "another shape; nothing was written"
        )
    model = replace(fit.model, about=about(dataset, body, settings))
    return FittedBody(model, fit, evidence, seen, warnings + fit.warnings)


def check_joints(dataset: Dataset, body: RobotBody) -> list[str]:
    """Return a warning for each sample whose joints did not arrive. Raises `InputError` for ones outside the limits."""
    warnings = []
    for sample in dataset.samples:
        for kind, values, tolerance in (("commanded", sample.commanded, 1e-3), ("actual", sample.actual, 0.05)):
            outside = [
                f"{joint} {values[joint]:.3f} is not in [{limit.lower:.3f}, {limit.upper:.3f}]"
                for joint, limit in body.limits.items()
                if not limit.lower - tolerance <= values[joint] <= limit.upper + tolerance
            ]
            if outside:
                raise InputError(f"{sample.name}: {kind} {'; '.join(outside)}: of another robot or tool")
        for joint in body.profile.planned:
            actual, commanded = sample.actual[joint.name], sample.commanded[joint.name]
            if abs(actual - commanded) > ARRIVED[0 if joint.linear else 1]:
                where = f"was at {actual:.3f}, commanded {commanded:.3f}"
                warnings.append(f"{sample.name}: {joint.name} {where}: it did not arrive")
    return warnings


def about(dataset: Dataset, body: RobotBody, settings: FitSettings) -> dict:
    """Return the model file's entries on its origin, by the published names if there are any."""
    info, now = dataset.info, datetime.datetime.now(datetime.UTC)
    tool = str(info.get("tool", info.get("tool_id", "unknown")))
    return {
        "tool": tool, "description_hash": body.hash, "evidence": settings.evidence,
        "heights": [settings.returns.lowest, settings.returns.highest], "fitted": now.isoformat(timespec="seconds"),
        "dataset_metadata": {
            "robot_id": str(info.get("robot_id", "unknown")), "tool_id": tool,
            "timestamp": str(info.get("timestamp", dataset.created)),
        },
    }  # fmt: skip
