"""What robot_state_publisher and the driver say of the robot: its description, its frames, its joints."""

from collections.abc import Mapping

import numpy as np
from sensor_msgs.msg import JointState
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage

from stretch_sim_cal.geometry.transforms import from_rotation_translation
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import local_motion
from stretch_sim_cal.robot.model import Joint
from stretch_sim_cal.ros.messages import joint_state_message, transforms_message
from stretch_sim_cal.ros.simulator.publishing import Publishers

RATE = 60.0
"""Messages per second of wall time, at most."""


class RobotState:
    """Publishes /robot_description and /tf_static once, /joint_states and /tf whenever `publish` is called.

    `description` is the URDF text that the robot believes in, with the lidars where it says.
    """

    def __init__(self, publishers: Publishers, description: str):
        self._description = String(data=description)
        self._model = parse_urdf(description)
        self._description_publisher = publishers.create(String, "/robot_description", depth=1, latched=True)
        self._static = publishers.create(TFMessage, "/tf_static", depth=1, latched=True)
        self._moving = publishers.create(TFMessage, "/tf", depth=100, rate=RATE)
        self._joint_states = publishers.create(JointState, "/joint_states", rate=RATE)

    def publish_once(self, stamp: int) -> None:
        """Publish what never changes, at simulated time `stamp` in ns."""
        fixed = [joint for joint in self._model.joints.values() if joint.variables == 0]
        transforms = {(joint.parent, joint.child): joint.parent_from_joint for joint in fixed}
        self._description_publisher.publish(self._description, stamp)
        self._static.publish(transforms_message(transforms, stamp), stamp)

    def publish(self, positions: Mapping[str, float], velocities: Mapping[str, float], stamp: int) -> None:
        """Publish joint positions and velocities (by the description's joint names) and the frames they move."""
        if self._joint_states.is_due:
            self._joint_states.publish(joint_state_message(positions, velocities, stamp), stamp)
        if self._moving.is_due:
            moving = [joint for joint in self._model.joints.values() if joint.variables == 1]
            transforms = {(joint.parent, joint.child): self._parent_from_child(joint, positions) for joint in moving}
            self._moving.publish(transforms_message(transforms, stamp), stamp)

    def _parent_from_child(self, joint: Joint, positions: Mapping[str, float]) -> np.ndarray:
        position = np.asarray(self._position(joint, positions))
        return joint.parent_from_joint @ from_rotation_translation(*local_motion(joint, position))

    def _position(self, joint: Joint, positions: Mapping[str, float]) -> float:
        if joint.mimic is None:
            return positions.get(joint.name, 0.0)
        followed = self._position(self._model.joints[joint.mimic.joint], positions)
        return joint.mimic.multiplier * followed + joint.mimic.offset
