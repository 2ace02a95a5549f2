"""From a dataset of arm poses to the lidars' mounts: what the calibration needs of the robot's description. Free of ROS."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.body.outline import LinkSurface
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import mounted_joints
from stretch_sim_cal.calibration.mounts.method import SEEN, calibrate_mounts, residuals_of
from stretch_sim_cal.calibration.mounts.poses import Chosen, best_next
from stretch_sim_cal.calibration.mounts.rays import posed
from stretch_sim_cal.calibration.mounts.result import MountSample, MountSettings, MountsResult, Residuals
from stretch_sim_cal.calibration.observations import known_alignment
from stretch_sim_cal.calibration.summaries import listed
from stretch_sim_cal.calibration.values_file import JointOrigin
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES, error, inverse, log, to_xyz_rpy
from stretch_sim_cal.recording.dataset import Dataset, read_dataset
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transform, link_transforms
from stretch_sim_cal.robot.model import Joint, RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.robot.surfaces import robot_surfaces
from stretch_sim_cal.sensor.sensor import Sensor

DERIVATIVE_STEP = 1e-4
MARGIN = 0.01  # m between parts of the robot in a pose that is proposed


def mount_settings(
    range_noise: float = 0.01, link_mm: float = 1.0, link_deg: float = 0.1, with_joint_offsets: bool = False,
    sensor: Sensor | None = None, profile: RobotProfile | None = None,
) -> MountSettings:  # fmt: skip
    """Return the settings for a robot (by default a Stretch) whose links are known to `link_mm` and `link_deg` (one sigma per axis).

    The joints' zeros are never taken for exact: what a joint moves is off by as much for all its links together. They
    are held as links are, or loosely `with_joint_offsets`. Raises `InputError` for values out of bounds.
    """
    for name, value, high in (
        ("range noise", range_noise, 0.2),
        ("link mm", link_mm, 50.0),
        ("link deg", link_deg, 10.0),
    ):
        if not 0 <= value <= high or (name == "range noise" and value == 0):
            raise InputError(f"{name}: is {value:g}; a number up to {high:g} was expected")
    profile = profile or stretch_profile()
    linear = {joint.command for joint in profile.joints if joint.linear}
    tight = {
        joint: max(1e-3 * link_mm if joint in linear else np.radians(link_deg), 1e-5) for joint in profile.offset_joints
    }
    return MountSettings(
        range_noise=range_noise, link_position=1e-3 * link_mm, link_angle=float(np.radians(link_deg)),
        joint_offsets=tuple(profile.offset_joints),
        joint_prior=dict(profile.offset_joints) if with_joint_offsets else tight,
        offsets_asked_for=with_joint_offsets, sensor=sensor,
    )  # fmt: skip


class MountedRobot:
    """A robot's description as the calibration of the mounts needs it. Raises `InputError` where it lacks lidars."""

    def __init__(self, model: RobotModel, profile: RobotProfile | None = None):
        self.profile = profile or stretch_profile()
        self._base = self.profile.base_frame
        lidars = self.profile.lidar_links(model)
        if len(lidars) != 2 or self._base not in model.links:
            raise InputError(
                f"robot '{model.name}': has no {self._base} with two lidars; a {self.profile.name}'s description is needed"
            )
        self.model = model
        self.surfaces = {
            link: LinkSurface.of(surface.vertices, surface.faces)
            for link, surface in robot_surfaces(model, self.profile).items() if len(surface.faces)
        }  # fmt: skip
        self._held_by = {link: tuple(self._holders(link)) for link in self.surfaces}
        at_zero = self._base_from({}, [*lidars])
        self.nominal = {side: at_zero[link] for side, link in zip(SIDES, lidars, strict=True)}

    def sample(
        self, name: str, joints: Mapping[str, float], left: np.ndarray, right: np.ndarray, offsets: Sequence[str] = ()
    ) -> MountSample:
        """Return a sample with the links at joint values by description name."""
        positions = {joint: value for joint, value in joints.items() if joint in self.model.joints}
        here = self._base_from(positions)
        motions = {joint: self._motion(positions, here, joint) for joint in offsets}
        return MountSample(name, left, right, here, motions, self._held_by, self._held_at(positions))

    def pose(self, name: str, commanded: Mapping[str, float]) -> MountSample:
        """Return a pose by commanded joint values, without anything seen in it."""
        return self.sample(
            name, self.profile.joint_positions(self.model, commanded), np.empty((0, 3)), np.empty((0, 3))
        )

    def free_poses(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield names and commanded joints of poses in which no parts are near each other."""
        profile, footprint = self.profile, self.profile.footprint_frame
        floor = float(link_transforms(self.model, {}, [footprint])[footprint][2, 3])
        collision, limits = (
            SelfCollision(self.model, MARGIN, floor, still=profile.still_joints(self.model)),
            profile.commanded_limits(self.model),
        )
        for values in itertools.product(*profile.mount_candidates.values()) if profile.mount_candidates else ():
            commanded = dict(zip(profile.mount_candidates, values, strict=True))
            within = all(limits[joint].lower <= value <= limits[joint].upper for joint, value in commanded.items())
            if within and collision.is_free(profile.joint_positions(self.model, commanded)):
                yield (
                    ", ".join(f"{joint.removesuffix('_joint')} {value:.2f}" for joint, value in commanded.items()),
                    commanded,
                )

    def _holders(self, link: str) -> Iterator[str]:
        """Yield the links with a surface between a link and base_link, nearest first."""
        while (joint := self.model.parent_joint(link)) is not None and joint.parent != self._base:
            link = joint.parent
            if link in self.surfaces:
                yield link

    def _held_at(self, positions: Mapping[str, float]) -> dict[str, np.ndarray]:
        """Return base_link_from_joint (4, 4), before its motion, of the joint that holds each link but base_link."""
        joints = {link: self.model.parent_joint(link) for link in self.surfaces if link != self._base}
        parents = self._base_from(positions, [joint.parent for joint in joints.values() if joint is not None])
        return {
            link: parents[joint.parent] @ joint.parent_from_joint for link, joint in joints.items() if joint is not None
        }

    def _motion(
        self, positions: Mapping[str, float], here: Mapping[str, np.ndarray], joint: str
    ) -> dict[str, np.ndarray]:
        """Return the twists (6,) of the links that a commanded joint moves, per m or rad of it."""
        steps = self.profile.joint_positions(self.model, {joint: DERIVATIVE_STEP})
        there = self._base_from(
            dict(positions) | {name: positions.get(name, 0.0) + step for name, step in steps.items()}
        )
        twists = {link: log(there[link] @ inverse(pose)) / DERIVATIVE_STEP for link, pose in here.items()}
        return {link: twist for link, twist in twists.items() if np.abs(twist).max() > 1e-6}

    def _base_from(self, positions: Mapping[str, float], links: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        wanted = list(self.surfaces) if links is None else list(links)
        frames = link_transforms(self.model, positions, [*wanted, self._base])
        base_from_root = inverse(frames[self._base])
        return {link: base_from_root @ frames[link] for link in wanted}


def samples_of(dataset: Dataset, robot: MountedRobot, offsets: Sequence[str]) -> list[MountSample]:
    """Return a dataset's samples. Raises `InputError` where one lacks raw clouds or joint values."""
    samples = []
    for sample in dataset.samples:
        if sample.left is None or sample.right is None or not sample.joints:
            raise InputError(
                f"{sample.name}: holds no raw clouds of both lidars with joint values; collect it with "
                "ros_calibrate_lidar_mounts or ros_collect_body_shape_data"
            )
        clouds = (
            np.asarray(cloud[np.isfinite(cloud).all(axis=1)][:, : 5 if cloud.shape[1] >= 5 else 3], dtype=float)
            for cloud in (sample.left, sample.right)
        )
        samples.append(robot.sample(sample.name, sample.joints, *clouds, offsets))
    return samples


def solve_mounts(
    directory: Path,
    calibration: CalibrationFile,
    settings: MountSettings,
    model_file: str | None = None,
    profile: RobotProfile | None = None,
) -> tuple[MountsResult, MountedRobot]:
    """Return the mounts from a folder of samples, with the alignment in a calibration file if it has one."""
    dataset = read_dataset(directory)
    source = model_file or dataset.description_file
    if source is None:
        raise InputError(f"{directory}: holds no description.urdf; name the robot's description with --model")
    robot = MountedRobot(load_model(source), profile)
    return solve_samples(robot, samples_of(dataset, robot, settings.joint_offsets), calibration, settings), robot


def solve_samples(
    robot: MountedRobot, samples: Sequence[MountSample], calibration: CalibrationFile, settings: MountSettings
) -> MountsResult:
    """Return the mounts from samples, with what is known of the alignment in a calibration file if it has one."""
    return calibrate_mounts(robot.surfaces, samples, robot.nominal, known_alignment(calibration), settings)


def residuals_at(dataset: Dataset, robot: MountedRobot, poses: Mapping[str, np.ndarray]) -> Residuals:
    """Return how the returns of a dataset lie about the model with the lidars at poses (4, 4) by side."""
    models = posed(samples_of(dataset, robot, ()), robot.surfaces, {})
    return residuals_of(models, poses, SEEN * MountSettings().range_noise)


def proposed(result: MountsResult, robot: MountedRobot, settings: MountSettings) -> Chosen | None:
    """Return the pose that would make the mounts surer than any other."""
    poses = [robot.pose(name, commanded) for name, commanded in robot.free_poses()]
    return best_next(result.information, robot.surfaces, poses, result.base_from_lidar, settings)


def mount_joints(
    calibration: CalibrationFile, model: RobotModel, profile: RobotProfile | None = None
) -> list[JointOrigin]:
    """Return the description's joints with the origins that a calibration file with mounts gives them.

    Raises `InputError` where the lidars are not fixed to one link.
    """
    profile = profile or stretch_profile()
    joints = {side: model.parent_joint(link) for side, link in zip(SIDES, profile.lidar_links(model), strict=True)}
    parent = joints["left"].parent
    if joints["right"].parent != parent:
        raise InputError(f"robot '{model.name}': the lidars are not fixed to one link; their joints cannot be written")
    base = model.parent_joint(profile.base_frame)
    return mounted_joints(
        calibration, {side: _origin(joint) for side, joint in joints.items()},
        link_transform(model, {}, parent, profile.base_frame), None if base is None or base.variables else _origin(base),
    )  # fmt: skip


def _origin(joint: Joint) -> JointOrigin:
    return JointOrigin(joint.name, joint.parent, joint.child, joint.parent_from_joint)


def mount_numbers(result: MountsResult, nominal: Mapping[str, np.ndarray]) -> dict:
    """Return the result as plain numbers: mm and deg."""
    numbers: dict = {"num_samples": result.num_samples, "num_points": result.num_points, "rmse_mm": 1e3 * result.rmse}
    for side in SIDES:
        pose = result.base_from_lidar[side]
        xyz, rpy = to_xyz_rpy(pose)
        position, angle = result.spread_of(side)
        distance, turned = error(nominal[side], pose)
        numbers[side] = {
            "base_link_from_lidar": pose, "xyz": xyz, "rpy_deg": np.degrees(rpy),
            "from_description_mm": 1e3 * distance, "from_description_deg": np.degrees(turned),
            "standard_deviation_mm": 1e3 * position, "standard_deviation_deg": np.degrees(angle),
        }  # fmt: skip
    numbers["joint_offsets"] = {
        offset.joint: {
            "value": offset.value,
            "standard_deviation": offset.standard_deviation,
            "separable": offset.separable,
        }
        for offset in result.joint_offsets
    }
    numbers["diagnostics"] = result.diagnostics
    return numbers


def _gain(result: MountsResult, proposal: Chosen) -> str:
    """Return what a further pose would bring, in words; nothing if the pose's gain is not known."""
    if not proposal.before:
        return ""
    share, (position, angle) = proposal.spread / proposal.before, max(result.spread_of(side) for side in SIDES)
    return (
        f" (the less sure lidar's standard deviation {1e3 * position:.2f} mm and {np.degrees(angle):.3f} deg would be "
        f"{100 * (1 - share):.0f} % smaller)"
    )


def mount_lines(
    result: MountsResult, numbers: dict, proposal: Chosen | None, profile: RobotProfile | None = None
) -> list[str]:
    """Return the result as lines for the terminal."""
    lines = [f"lidars in base_link, from {result.num_samples} arm poses, {result.num_points} returns of the robot:"]
    for side in SIDES:
        own = numbers[side]
        lines.append(
            f"  {side:<5} xyz {listed(own['xyz'], 5)} m, rpy {listed(own['rpy_deg'], 4)} deg, standard deviation "
            f"{own['standard_deviation_mm']:.2f} mm {own['standard_deviation_deg']:.3f} deg; "
            f"{own['from_description_mm']:.1f} mm and {own['from_description_deg']:.2f} deg from the description"
        )
        weakest = max(result.directions[side], key=lambda direction: direction.standard_deviation / direction.bound)
        lines.append(f"        least sure: {weakest.name}")
    linear = {joint.command for joint in (profile or stretch_profile()).joints if joint.linear}
    for offset in result.joint_offsets:
        value, spread = offset.value, offset.standard_deviation
        scale, unit = (1e3, "mm") if offset.joint in linear else (float(np.degrees(1.0)), "deg")
        lines.append(
            f"  {offset.joint} is {scale * value:+.2f} {unit} from what it says (+- {scale * spread:.2f} {unit})"
        )
    if proposal is not None:
        lines.append(f"  a further pose that would help most: {proposal.name}{_gain(result, proposal)}")
    return lines
