"""The simulated base's driver: it takes twists, and publishes its wheels' odometry.

A stamped twist counts from its stamp on, one without from when it comes: the motion of a robot that is driven by
stamped twists, sent before they are due, does not depend on the machine's load.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from geometry_msgs.msg import TransformStamped, Twist, TwistStamped
from nav_msgs.msg import Odometry
from rclpy.node import Node

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.ros.messages import odometry_message, transforms_message
from stretch_sim_cal.ros.simulated_drivers import STATE_RATE, Publisher
from stretch_sim_cal.simulation.driving import DrivingBase


class SimulatedBase:
    """Drives a base on a node, with the topics of its profile. `state` is the driver's (`DriverState`); the truth, the
    base's pose in the world, goes to `~/true_odometry`. `create` makes a `Publisher` with a recording, if there is one.
    """

    def __init__(
        self, node: Node, create: Callable[..., Publisher], driving: DrivingBase, footprint: str, state: Any
    ):  # fmt: skip
        self._log = node.get_logger()
        self._driving, self._state = driving, state
        self.stop, self.step = driving.stop, driving.step
        base = driving.base
        self._frames = (base.odometry_frame, footprint)
        self._refused: str | None = None
        if base.command is not None:
            node.create_subscription(Twist, base.command, lambda message: self._take(message, None), 10)
        if base.stamped_command is not None:
            node.create_subscription(TwistStamped, base.stamped_command, self._take_stamped, 100)
        self._odometry = create(Odometry, base.odometry, rate=STATE_RATE)
        self._truth = Publisher(node, None, Odometry, "~/true_odometry", rate=STATE_RATE)

    def refusal(self) -> str | None:
        """Return why it may not drive, None if it may."""
        return self._state.refusal(self._driving.base.modes, homed=False)

    def publish(self, stamp: int) -> Sequence[TransformStamped]:
        """Publish odometry at simulated time `stamp` in ns, and return the frames that go to /tf."""
        driving = self._driving
        if self._truth.is_due:
            pose = driving.poses(np.array([stamp * 1e-9]))[0]
            velocity = driving.odometry(stamp * 1e-9 + driving.errors.clock_offset)[1]
            self._truth.publish(odometry_message(pose, velocity, ("world", self._frames[1]), stamp), stamp)
        # By its own clock, what is said now is stamped with another time.
        said = stamp + round(driving.errors.clock_offset * 1e9)
        (x, y, yaw), twist = driving.odometry(said * 1e-9)
        pose = from_xyz_rpy((x, y, 0.0), (0.0, 0.0, yaw))
        if self._odometry.is_due:
            self._odometry.publish(odometry_message(pose, twist, self._frames, said), stamp)
        return transforms_message({self._frames: pose}, said).transforms if driving.base.broadcast_odometry else ()

    def _take_stamped(self, message: TwistStamped) -> None:
        stamp = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
        self._take(message.twist, stamp or None)

    def _take(self, twist: Twist, stamp: float | None) -> None:
        reason = self.refusal()
        if reason is None:
            try:
                self._driving.command(twist.linear.x, twist.linear.y, twist.angular.z, stamp)
            except InputError as error:
                reason = str(error)
        if reason != self._refused and reason is not None:
            self._log.error(f"twist refused: {reason}")
        self._refused = reason
