"""The check of the left lidar's extrinsics in an alignment run. Free of ROS.

The alignment says nothing of where both lidars are in base_link: an error of the left mount moves floor and body with it.
What a few of its pairs show of the robot itself does, good to about 0.4 deg from one arm pose: it is the same problem that
`calibration/mounts` solves with several. Without joints or description the alignment is as good; a sentence says that
nothing was checked.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.findings import left_off
from stretch_sim_cal.calibration.mounts.file import MOUNTS
from stretch_sim_cal.calibration.mounts.method import calibrate_mounts
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.ros.mounts_solve import MountedRobot, mount_settings
from stretch_sim_cal.sensor.sensor import Sensor

PAIRS = 3  # of clouds: more returns than the model is exact


class LeftMountCheck:
    """Keeps the first pairs of an alignment run, and tells at its end what they say about the left mount."""

    def __init__(self, sensor: Sensor | None = None, profile: RobotProfile | None = None) -> None:
        self._sensor = sensor
        self._profile = profile or stretch_profile()
        self._pairs: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, left: np.ndarray, right: np.ndarray) -> None:
        """Take a pair of clouds (N, 3 or 5), each in its own lidar's frame."""
        if len(self._pairs) < PAIRS:
            self._pairs.append((left, right))

    def with_warning(
        self, result: AlignmentResult, description: str | None, joints: Mapping[str, float], file: CalibrationFile
    ) -> tuple[AlignmentResult, str]:
        """Return `result`, with a warning where the left mount is off, and why that could not be checked, or "".

        `description` is the text of the robot's URDF, `joints` the positions (m, rad) by the names of /joint_states.
        A `file` that holds the mounts knows better.
        """
        if not result.accepted or not self._pairs or MOUNTS in file.data:
            return result, ""
        known = self._profile.named_positions(joints)
        missing = [joint for joint in self._profile.check_joints if joint not in known]
        if description is None or missing:
            lacking = "no /robot_description" if description is None else f"no {missing[0]} on /joint_states"
            return result, f"the left mount was not checked against the robot's own returns: {lacking}"
        try:
            robot = MountedRobot(parse_urdf(description, "/robot_description"), self._profile)
            settings = mount_settings(sensor=self._sensor, profile=self._profile)
            clouds = (_finite(np.concatenate([pair[side] for pair in self._pairs])) for side in (0, 1))
            positions = self._profile.joint_positions(robot.model, joints)
            sample = robot.sample("alignment", positions, *clouds, settings.joint_offsets)
            found = calibrate_mounts(robot.surfaces, [sample], robot.nominal, result.known, settings)
        except InputError as problem:
            return result, f"the left mount was not checked against the robot's own returns: {problem}"
        if found.refusals:
            return result, "the robot's own returns do not tell where the left lidar is"
        return replace(result, warnings=result.warnings + left_off(found, robot.nominal["left"])), ""


def _finite(cloud: np.ndarray) -> np.ndarray:
    return np.asarray(cloud[np.isfinite(cloud).all(axis=1)], dtype=float)
