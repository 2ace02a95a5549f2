"""Lidar extrinsics with a robot's description: by a dataset of arm poses, as joints of the description, their quick
check in an alignment run, and the arm pose that would gain most."""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stretch_sim_cal import validate
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts import residuals
from stretch_sim_cal.calibration.mounts.file import MOUNTS, floor_with_left_at, stored_mounts
from stretch_sim_cal.calibration.mounts.findings import left_off
from stretch_sim_cal.calibration.mounts.method import SEEN, calibrate_mounts, residuals_of
from stretch_sim_cal.calibration.mounts.result import MountSample, MountSettings, MountsResult, Residuals, at_lidar
from stretch_sim_cal.calibration.observations import Observations, known_alignment
from stretch_sim_cal.calibration.results import LidarPoses
from stretch_sim_cal.calibration.values_file import JointOrigin
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.planes import footprint_from_base
from stretch_sim_cal.geometry.transforms import Poses, inverse, log
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transform, link_transforms
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.robot.surfaces import Surfaces, robot_surfaces
from stretch_sim_cal.sensor.sensor import Sensors
from stretch_sim_cal.sensor.unit import directions

LOWEST, HIGHEST = np.deg2rad(-3.5), np.deg2rad(90.0)  # of a lidar's rays over its x-y plane
ELEVATIONS, AZIMUTHS = 64, 240
RAYS, FRAMES = 115_200, 5  # of one frame
GRAZING = 0.15
DERIVATIVE_STEP = 1e-4
MARGIN = 0.01  # m between parts of the robot in a pose that is proposed
SCANS = 3  # of each lidar, of the check in an alignment run, whose accuracy is that of the model


def mount_settings(
    range_noise: float = 0.01, link_mm: float = 1.0, link_deg: float = 0.1, with_joint_offsets: bool = False,
    sensor: Sensors = None, profile: RobotProfile | None = None,
) -> MountSettings:  # fmt: skip
    """Return the settings for a robot (by default a Stretch) whose links have standard deviations of `link_mm` and
    `link_deg` per axis. These are also the priors of the joints' readings in each pose and of their zeros, which are
    wider `with_joint_offsets`. Raises `InputError` for values out of bounds."""
    validate.number(range_noise, "range noise", 1e-6, 0.2)
    validate.number(link_mm, "link mm", 0.0, 50.0)
    validate.number(link_deg, "link deg", 0.0, 10.0)
    profile = profile or stretch_profile()
    linear = {joint.command for joint in profile.joints if joint.linear}
    sizes = {joint: 1e-3 * link_mm if joint in linear else np.radians(link_deg) for joint in profile.offset_joints}
    tight = {joint: max(size, 1e-5) for joint, size in sizes.items()}
    return MountSettings(
        range_noise=range_noise, link_position=1e-3 * link_mm, link_angle=float(np.radians(link_deg)),
        joint_offsets=tuple(profile.offset_joints),
        joint_prior=dict(profile.offset_joints) if with_joint_offsets else tight,
        joint_reading=tight, offsets_asked_for=with_joint_offsets, sensor=sensor,
    )  # fmt: skip


class MountedRobot:
    """A robot's surfaces, kinematics and described lidars. Raises `InputError` if it lacks lidars or base_link."""

    def __init__(self, model: RobotModel, profile: RobotProfile | None = None):
        self.profile = profile or stretch_profile()
        self._base = self.profile.base_frame
        lidars = checked_lidar_links(model, self.profile)
        if self._base not in model.links:
            needed = f"the description of a {self.profile.name} is needed"
            raise InputError(f"robot '{model.name}': has no {self._base}; {needed}")
        self.model = model
        surfaces = robot_surfaces(model, self.profile)
        self.surfaces = {link: surface for link, surface in surfaces.items() if len(surface.faces)}
        self._ancestors = {link: self._ancestors_of(link) for link in self.surfaces}
        at_zero = self._base_from({}, lidars.values())
        self.nominal = {name: at_zero[link] for name, link in lidars.items()}
        """The described poses (4, 4) of the lidars in base_link, by name."""

    def sample(
        self, name: str, joints: Mapping[str, float], clouds: Mapping[str, np.ndarray], offsets: Sequence[str] = ()
    ) -> MountSample:
        """Return a sample of clouds by lidar with the links at joint values by the description's names."""
        positions = {joint: value for joint, value in joints.items() if joint in self.model.joints}
        here = self._base_from(positions)
        motions = {joint: self._motion(positions, here, joint) for joint in offsets}
        read = self.profile.commanded_positions(self.model, positions)
        values = {joint: float(read.get(joint, 0.0)) for joint in offsets}
        return MountSample(name, clouds, here, motions, self._ancestors, self._joint_origins(positions), values)

    def pose(self, name: str, commanded: Mapping[str, float]) -> MountSample:
        """Return a sample without clouds at commanded joint values."""
        return self.sample(name, self.profile.joint_positions(self.model, commanded), {})

    def free_poses(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield names and commanded joints of poses in which no parts are within `MARGIN` of each other."""
        profile = self.profile
        floor = float(link_transform(self.model, {}, profile.footprint_frame)[2, 3])
        collision = SelfCollision(self.model, MARGIN, floor, still=profile.still_joints(self.model))
        limits = profile.commanded_limits(self.model)
        for values in itertools.product(*profile.mount_candidates.values()) if profile.mount_candidates else ():
            commanded = dict(zip(profile.mount_candidates, values, strict=True))
            within = all(limits[joint].lower <= value <= limits[joint].upper for joint, value in commanded.items())
            if within and collision.is_free(profile.joint_positions(self.model, commanded)):
                words = (f"{joint.removesuffix('_joint')} {value:.2f}" for joint, value in commanded.items())
                yield ", ".join(words), commanded

    def _ancestors_of(self, link: str) -> tuple[str, ...]:
        """Return the links with a surface between a link and base_link, the nearest first."""
        parents = (joint.parent for joint in reversed(self.model.chain(link)))
        before = itertools.takewhile(lambda parent: parent != self._base, parents)
        return tuple(parent for parent in before if parent in self.surfaces)

    def _joint_origins(self, positions: Mapping[str, float]) -> dict[str, np.ndarray]:
        """Return base_link_from_joint (4, 4), before its motion, of the parent joint of each link but base_link."""
        above = self.model.parent_joints
        joints = {link: above[link] for link in self.surfaces if link != self._base and link in above}
        parents = self._base_from(positions, (joint.parent for joint in joints.values()))
        return {link: parents[joint.parent] @ joint.parent_from_joint for link, joint in joints.items()}

    def _motion(self, positions: Mapping[str, float], here: Poses, joint: str) -> dict[str, np.ndarray]:
        """Return the twists (6,) of the links that a commanded joint moves, per m or rad of it."""
        steps = self.profile.joint_positions(self.model, {joint: DERIVATIVE_STEP})
        there = self._base_from(dict(positions) | {name: positions.get(name, 0.0) + by for name, by in steps.items()})
        twists = {link: log(there[link] @ inverse(pose)) / DERIVATIVE_STEP for link, pose in here.items()}
        return {link: twist for link, twist in twists.items() if np.abs(twist).max() > 1e-6}

    def _base_from(self, positions: Mapping[str, float], links: Iterable[str] | None = None) -> dict[str, np.ndarray]:
        return link_transforms(self.model, positions, self.surfaces if links is None else links, self._base)


def samples_of(dataset: Any, robot: MountedRobot, offsets: Sequence[str]) -> list[MountSample]:
    """Return the samples of a `recording.dataset.Dataset`, of the lidars that saw it. Raises `InputError` if a sample
    lacks raw clouds or joint values."""
    samples: list[MountSample] = []
    for sample in dataset.samples:
        clouds = {name: sample.cloud(name) for name in robot.nominal if name in dataset.lidars}
        if any(cloud is None for cloud in clouds.values()) or not sample.joints:
            remedy = "collect it with ros_calibrate_lidar_mounts or ros_collect_body_shape_data"
            raise InputError(f"{sample.name}: has no raw clouds of {', '.join(clouds)} with joint values; {remedy}")
        usable = {name: _finite(cloud)[:, : 5 if cloud.shape[1] >= 5 else 3] for name, cloud in clouds.items()}
        samples.append(robot.sample(sample.name, sample.joints, usable, offsets))
    return samples


def solve_dataset(
    dataset: Any, calibration: CalibrationFile, settings: MountSettings, model_file: str | None = None,
    profile: RobotProfile | None = None,
) -> tuple[MountsResult, MountedRobot]:  # fmt: skip
    """As `solve_samples`, of a `recording.dataset.Dataset`."""
    source = model_file or dataset.description_file
    if source is None:
        raise InputError(f"{dataset.directory}: has no description.urdf; name the robot's description with --model")
    folders = (profile or stretch_profile()).description.packages
    robot = MountedRobot(load_model(source, mesh_folders=folders), profile)
    samples = samples_of(dataset, robot, settings.joint_offsets)
    return solve_samples(robot, samples, calibration, settings), robot


def solve_samples(
    robot: MountedRobot, samples: Sequence[MountSample], calibration: CalibrationFile, settings: MountSettings
) -> MountsResult:
    """Return the lidar extrinsics by samples, and by the alignment in a calibration file if it has one."""
    nominal = {name: pose for name, pose in robot.nominal.items() if not samples or name in samples[0].clouds}
    known = known_alignment(calibration, list(nominal))
    return calibrate_mounts(robot.surfaces, samples, nominal, known, settings)


def residuals_at(dataset: Any, robot: MountedRobot, poses: Poses, known: Observations | None = None) -> Residuals:
    """Return the distances of a dataset's returns from the model with the lidars at poses (4, 4) by name, without the
    lidars' errors if they are `known`."""
    samples = samples_of(dataset, robot, ())
    for number, sample in enumerate(samples if known is not None and known.by_ring else ()):
        corrected = {name: known.corrected(name, cloud) for name, cloud in sample.clouds.items()}
        samples[number] = replace(sample, clouds=corrected)
    seen = {name: pose for name, pose in poses.items() if name in samples[0].clouds}
    return residuals_of(residuals.posed(samples, robot.surfaces), seen, SEEN * MountSettings().range_noise)


@dataclass(frozen=True)
class Chosen:
    """A pose by its name, and the standard deviation of the worst lidar over its bound, with it (`deviation`) and
    without it (`before`)."""

    name: str
    deviation: float
    before: float


def pose_information(surfaces: Surfaces, pose: MountSample, nominal: Poses, settings: MountSettings) -> np.ndarray:
    """Return the information (n, n) of `FRAMES` frames of the lidars in a pose."""
    unknowns = residuals.RobotUnknowns(surfaces, settings, nominal, 1)
    (model,) = residuals.posed([pose], surfaces)
    elevations = np.linspace(LOWEST, HIGHEST, ELEVATIONS)
    grid = np.meshgrid(elevations, np.arange(AZIMUTHS) * 2 * np.pi / AZIMUTHS)
    rays = residuals.LidarRays(directions(*(angles.ravel() for angles in grid)))  # fewer than a lidar's
    priors = np.zeros(unknowns.size)
    priors[unknowns.first_reading :] = 1.0 / unknowns.variances()[unknowns.first_reading :]
    information = np.diag(priors)
    for name, pose in nominal.items():
        hits = model.match(rays, pose, residuals.REACH, GRAZING)
        weights = residuals.noise_weights(hits, settings.range_noise) * (FRAMES * RAYS / len(rays))
        for chosen, columns, jacobian in unknowns.rows(name, model, hits):
            information[np.ix_(columns, columns)] += jacobian.T @ (weights[chosen, None] * jacobian)
    return unknowns.readings_marginalised(information)


def worst_deviation(information: np.ndarray, nominal: Poses) -> float:
    """Return the largest standard deviation of any lidar along any axis, over its bound."""
    covariance, bounds = np.linalg.inv(information), np.repeat([residuals.MOST_TRANSLATION, residuals.MOST_ROTATION], 3)
    about_lidars = [
        at_lidar(covariance[6 * index :, 6 * index :][:6, :6], pose) for index, pose in enumerate(nominal.values())
    ]
    return max(float(np.sqrt(np.linalg.eigvalsh(each / np.outer(bounds, bounds))[-1])) for each in about_lidars)


def best_next(
    information: np.ndarray, surfaces: Surfaces, candidates: Iterable[MountSample],
    poses: Poses, settings: MountSettings,
) -> Chosen | None:  # fmt: skip
    """Return the candidate with the largest gain for a calibration with `information` (n, n); None without any."""
    by_pose = {}
    for pose in candidates:
        together = information + pose_information(surfaces, pose, poses, settings)
        by_pose[pose.name] = worst_deviation(together, poses)
    if not by_pose:
        return None
    best = min(by_pose, key=by_pose.__getitem__)
    return Chosen(best, by_pose[best], worst_deviation(information, poses))


def proposed(result: MountsResult, robot: MountedRobot, settings: MountSettings) -> Chosen | None:
    """Return the pose that would reduce the uncertainty of the extrinsics most."""
    poses = itertools.starmap(robot.pose, robot.free_poses())
    return best_next(result.information, robot.surfaces, poses, result.base_from_lidar, settings)


def calibrated_joints(
    calibration: CalibrationFile, model: RobotModel, profile: RobotProfile | None = None
) -> list[JointOrigin]:
    """Return the description's joints with their calibrated origins, as far as the file has them: of the lidars by its
    extrinsics, without these of the left one as described and of the others by its alignment; and of base_footprint.
    Raises `InputError` if a lidar is on no fixed joint, or the description has none for a floor without extrinsics."""
    profile = profile or stretch_profile()
    mounts, by_mounts, joints = stored_mounts(calibration), {}, []
    footprint, base = calibration.footprint_from_base, base_origin(model, profile)
    known = {"left", *calibration.to_left, *({} if mounts is None else mounts.base_from_lidar)} & profile.lidars.keys()
    if mounts is not None or len(known) > 1:
        lidars = described_lidars(model, profile, known)
        first, left = lidars["left"].parent, lidars["left"].parent_from_child
        if mounts is not None:
            base_from_first = link_transform(model, {}, first, profile.base_frame)
            if footprint is not None:
                described, calibrated = base_from_first @ left, mounts.base_from_lidar["left"]
                footprint = footprint_from_base(floor_with_left_at(calibration, calibrated, described))
            by_mounts = {name: inverse(base_from_first) @ pose for name, pose in mounts.base_from_lidar.items()}
            left = by_mounts["left"]
        poses = by_mounts | calibration.lidars_at(left)
        for name, joint in lidars.items():  # each in its own parent; neither that nor the left one's moves
            between = np.eye(4) if joint.parent == first else link_transform(model, {}, first, joint.parent)
            joints.append(replace(joint, parent_from_child=between @ poses[name]))
    if footprint is None or (base is None and mounts is not None):
        return joints
    if base is None:
        missing = f"fixed joint between {profile.footprint_frame} and {profile.base_frame}"
        raise InputError(f"robot '{model.name}' has no {missing}; the floor cannot be stored in it")
    if model.joints[base.name].child == base.parent:
        return [*joints, JointOrigin(base.name, base.child, base.parent, inverse(footprint))]
    return [*joints, replace(base, parent_from_child=footprint)]


def base_origin(model: RobotModel, profile: RobotProfile) -> JointOrigin | None:
    """Return the fixed joint of base_footprint and base_link, as if the former were the parent; None without one."""
    base, footprint = profile.base_frame, profile.footprint_frame
    for link, parent in ((base, footprint), (footprint, base)):
        joint = model.parent_joint(link) if link in model.links else None
        if joint is not None and joint.parent == parent and not joint.variables:
            return JointOrigin(joint.name, footprint, base, link_transform(model, {}, base, footprint))
    return None


def described_lidars(model: RobotModel, profile: RobotProfile, lidars: Collection[str]) -> dict[str, JointOrigin]:
    """Return the described joints of the `lidars` by name. Raises `InputError` if one is missing, or not fixed."""
    links = {name: link for name, link in checked_lidar_links(model, profile).items() if name in lidars}
    joints = {name: model.parent_joint(link) for name, link in links.items()}
    for name, joint in joints.items():
        if joint is None or joint.variables:
            raise InputError(f"robot '{model.name}': the {name} lidar is not on a fixed joint; it cannot be written")
    return {
        name: JointOrigin(joint.name, joint.parent, joint.child, joint.parent_from_joint)
        for name, joint in joints.items()
    }


def checked_lidar_links(model: RobotModel, profile: RobotProfile) -> dict[str, str]:
    """Return the links of all lidars by name. Raises `InputError` for one that the description lacks."""
    links = profile.lidar_links(model)
    if missing := " and no ".join(lidar.frame for name, lidar in profile.lidars.items() if name not in links):
        raise InputError(f"robot '{model.name}': has no {missing}; a {profile.name}'s description is needed")
    return links


def with_left_checked(
    result: LidarPoses, seen: Sequence[Mapping[str, np.ndarray]], description: str | None,
    joints: Mapping[str, float], file: CalibrationFile, sensor: Sensors = None, profile: RobotProfile | None = None,
) -> tuple[LidarPoses, str]:  # fmt: skip
    """Return an alignment, with a warning if the left lidar is off, and why that could not be checked, or "".

    An alignment does not determine the lidars' poses in base_link, but their returns from the robot in one arm pose
    determine the left one's to about 0.4 deg. `seen` are the first `SCANS` clouds (N, 3 or 5) of each lidar by name, in
    its own frame, `description` is the text of the robot's URDF, `joints` are the positions (m, rad) by the names of
    /joint_states. If `file` has extrinsics, nothing is checked."""
    if not result.accepted or not seen or MOUNTS in file.data:
        return result, ""
    profile = profile or stretch_profile()
    known = profile.named_positions(joints)
    missing = [joint for joint in profile.check_joints if joint not in known]
    if description is None or missing:
        lacking = "no /robot_description" if description is None else f"no {missing[0]} on /joint_states"
        return result, f"the left extrinsics were not checked against returns from the robot: {lacking}"
    try:
        robot = MountedRobot(profile.model_of(description), profile)
        settings = mount_settings(sensor=sensor, profile=profile)
        clouds = {name: _finite(np.concatenate([each[name] for each in seen])) for name in robot.nominal}
        positions = profile.joint_positions(robot.model, joints)
        sample = robot.sample("alignment", positions, clouds, settings.joint_offsets)
        extrinsics = calibrate_mounts(robot.surfaces, [sample], robot.nominal, result.known, settings)
    except InputError as problem:
        return result, f"the left extrinsics were not checked against returns from the robot: {problem}"
    if extrinsics.refusals:
        return result, "returns from the robot do not determine the left lidar's pose"
    return replace(result, warnings=result.warnings + left_off(extrinsics, robot.nominal["left"])), ""


def _finite(cloud: np.ndarray) -> np.ndarray:
    return np.asarray(cloud[np.isfinite(cloud).all(axis=1)], dtype=float)
