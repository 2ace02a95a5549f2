"""The messages of the simulated robot's drivers, to DDS and into a recording: description, joints and frames, all
lidars' clouds, and the base, which takes twists and publishes its wheels' odometry."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from geometry_msgs.msg import TransformStamped, Twist, TwistStamped
from nav_msgs.msg import Odometry
from rclpy.duration import Duration
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState, PointCloud2
from std_msgs.msg import String
from tf2_msgs.msg import TFMessage

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.recording.topics import DESCRIPTION_TOPIC, JOINT_STATES
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import joint_transform, position_of
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.ros.listening import type_name
from stretch_sim_cal.ros.messages import cloud_message, joint_state_message, odometry_message, transforms_message
from stretch_sim_cal.simulation.driving import DrivingBase
from stretch_sim_cal.simulation.setup import Faults

if TYPE_CHECKING:  # rosbags takes a third of a second to import
    from stretch_sim_cal.recording.rosbag import RecordingWriter

ARRIVES_WITHIN = 2.0  # s of wall time; whoever does not take a cloud until then (killed, suspended) may lose it
STATE_RATE = 60.0  # joint states and frames per second of wall time, at most


class Publisher:
    """Publishes one topic and, if there is a `recording`, writes it there as well. It is reliable; a `latched` one
    (transient local) also serves those who subscribe later. Not more than `rate` messages per second of wall time are
    sent, however fast simulated time passes: every message that a node written in Python takes costs it up to a
    millisecond. A recording gets all of them."""

    def __init__(
        self, node: Node, recording: "RecordingWriter | None", kind: type, topic: str, depth: int = 10,
        latched: bool = False, rate: float = math.inf,
    ):  # fmt: skip
        durability = DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE
        profile = QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE, durability=durability)
        self._publisher = node.create_publisher(
            kind, topic, profile, event_callbacks=PublisherEventCallbacks(use_default_callbacks=False)
        )  # without QoS events: each would be looked at whenever the node looks for callbacks
        self._node, self._latched, self.recording = node, latched, recording
        self._topic = self._publisher.topic_name
        self._interval, self._next = 1.0 / rate, -math.inf  # s; of wall time
        if recording is not None:
            recording.add_topic(self._topic, type_name(kind), latched)

    @property
    def is_heard(self) -> bool:
        return self.recording is not None or self._publisher.get_subscription_count() > 0

    def listeners(self) -> tuple[set[bytes], bool]:
        """Return who subscribes, and whether all of them are reached by now."""
        infos = self._node.get_subscriptions_info_by_topic(self._topic)  # with those that ask for what is not offered
        latched = DurabilityPolicy.TRANSIENT_LOCAL
        served = [info for info in infos if self._latched or info.qos_profile.durability != latched]
        found = {bytes(info.endpoint_gid) for info in served}
        return found, self._publisher.get_subscription_count() == len(found)

    def wait_until_taken(self) -> None:
        self._publisher.wait_for_all_acked(Duration(seconds=ARRIVES_WITHIN))

    @property
    def is_due(self) -> bool:
        return self.is_heard and (self.recording is not None or time.monotonic() >= self._next)

    def publish(self, message: Any, stamp: int) -> None:
        """Publish a message at simulated time `stamp`, in ns, unless the last one was too short a while ago."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._interval
            self._publisher.publish(message)
        if self.recording is not None:
            self.recording.write_message(self._topic, stamp, message, serialize_message(message))


class RobotState:
    """Publishes /robot_description and /tf_static at once, /joint_states and /tf whenever `publish` is called.
    `description` is the URDF text that the robot publishes, with the lidars at their nominal poses; `create` makes a
    `Publisher`."""

    def __init__(self, create: Callable[..., Publisher], description: str):
        self._model = parse_urdf(description)
        fixed = [joint for joint in self._model.joints.values() if joint.variables == 0]
        transforms = {(joint.parent, joint.child): joint.parent_from_joint for joint in fixed}
        create(String, DESCRIPTION_TOPIC, depth=1, latched=True).publish(String(data=description), 0)
        create(TFMessage, "/tf_static", depth=1, latched=True).publish(transforms_message(transforms, 0), 0)
        self._moving = create(TFMessage, "/tf", depth=100, rate=STATE_RATE)
        self._joint_states = create(JointState, JOINT_STATES, rate=STATE_RATE)

    def publish(
        self, positions: Mapping[str, float], velocities: Mapping[str, float], stamp: int,
        further: Sequence[TransformStamped] = (),
    ) -> None:  # fmt: skip
        """Publish joint positions and velocities (by the description's joint names) and the frames they move, and
        `further` frames with them."""
        if self._joint_states.is_due:
            self._joint_states.publish(joint_state_message(positions, velocities, stamp), stamp)
        if self._moving.is_due:
            values = {name: np.asarray(value) for name, value in positions.items()}
            transforms = {
                (joint.parent, joint.child): joint_transform(joint, position_of(self._model, joint, values))
                for joint in self._model.joints.values() if joint.variables == 1
            }  # fmt: skip
            message = transforms_message(transforms, stamp)
            message.transforms += further
            self._moving.publish(message, stamp)


@dataclass
class _Driver:
    side: str
    frame: str
    publisher: Publisher
    tick: int = 0
    published: int = 0
    large: bool = False  # the last cloud had points
    known: set[bytes] = field(default_factory=set)  # all that have ever subscribed


class LidarDrivers:
    """Publishes the lidars' clouds, stamped with the begin of their scan. Scans that nobody takes are not cast. When
    discovery ends, and so at which tick somebody begins to listen, depends on the machine's load; what it gets does
    not. With every new subscription the lidars begin again, together, as soon as all subscriptions are reached: a
    driver's n-th subscription gets, from its first scan on, the noise (and walking people) of ticks n * PER_LISTENER
    on, whatever tick it is by then. With a recording, which listens from the beginning, they are those of the ticks."""

    # Enough for a consumer that is busy for half a second; older clouds make place for newer ones.
    DEPTH = 5
    PER_LISTENER = 200

    def __init__(self, create: Callable[..., Publisher], simulation: Any, profile: RobotProfile, faults: Faults):
        self._simulation, self._faults = simulation, faults
        self._drivers = [
            _Driver(side, lidar.frame, create(PointCloud2, lidar.topic, self.DEPTH))
            for side, lidar in profile.lidars.items()
        ]
        self._begin = 0

    @property
    def are_heard(self) -> bool:
        return any(driver.publisher.is_heard for driver in self._drivers)

    @property
    def published(self) -> dict[str, int]:
        return {driver.side: driver.published for driver in self._drivers}

    def step(self, now: float) -> None:
        """Publish every scan that has been completed by simulated time `now`, in s."""
        for driver in self._drivers:
            while self._simulation.start_time(driver.side, driver.tick) + self._simulation.period <= now:
                if driver.publisher.is_heard:
                    self._publish(driver, now)
                driver.tick += 1

    def _drawn(self, driver: _Driver, now: float) -> int | None:
        """Return the tick whose noise a driver's present scan has, None if it is to wait for a common beginning."""
        if driver.publisher.recording is not None:
            return driver.tick
        new, reached = False, True
        for each in self._drivers:
            found, all_reached = each.publisher.listeners()
            new |= not found <= each.known
            each.known |= found
            reached &= all_reached
        if new or not reached:
            self._begin = max(each.tick for each in self._drivers) + 1
            while any(self._simulation.start_time(each.side, self._begin) < now for each in self._drivers):
                self._begin += 1
        if driver.tick < self._begin:
            return None
        return len(driver.known) * self.PER_LISTENER + driver.tick - self._begin

    def _publish(self, driver: _Driver, now: float) -> None:
        drawn = self._drawn(driver, now)
        if drawn is None or not self._faults.publishes(driver.side, drawn):
            return
        start = self._simulation.start_time(driver.side, driver.tick)
        offset = self._faults.clock_offset(driver.side)
        scan = self._simulation.scan(driver.side, driver.tick, drawn)
        if scan is None or self._drawn(driver, now) != drawn:  # nobody listened, or somebody came while it was cast
            return
        if offset:
            scan["timestamp"] += offset
        message = cloud_message(scan, driver.frame, round((start + offset) * 1e9))
        if driver.large:  # a message without points is acknowledged only seconds later
            driver.publisher.wait_until_taken()
        driver.large = len(scan) > 0
        driver.publisher.publish(message, round((start + self._simulation.period) * 1e9))
        driver.published += 1


class SimulatedBase:
    """Drives a base on a node, with the topics of its profile; the truth, its pose in the world, goes to
    `~/true_odometry`. `state` is the driver's (`DriverState`). A stamped twist counts from its stamp on, one without
    from when it comes: motion by stamped twists, sent before they are due, does not depend on the machine's load."""

    def __init__(self, node: Node, create: Callable[..., Publisher], driving: DrivingBase, footprint: str, state):
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
