"""The base's pose by its wheels' odometry, and driving it by twists, slowly, piece by piece, with a stop that odometry
confirms."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.geometry.transforms import wrapped
from stretch_sim_cal.recording.pairing import stamp_of
from stretch_sim_cal.recording.stations import SETTLE, STILL, way_of
from stretch_sim_cal.robot.wheeled_base import WheeledBase
from stretch_sim_cal.ros.listening import MatchedSubscription
from stretch_sim_cal.ros.node_main import DISCOVERED, spin_to_stop
from stretch_sim_cal.ros.options import checked_topic
from stretch_sim_cal.ros.watchdog import Patience, Watchdog

PERIOD = 0.05  # s of wall time between commands, well within the time-out of any base
LAG = 2.0 * PERIOD  # s from where the base is until a command that knows it is obeyed
WITHIN = np.array([0.01, 0.02])  # m, rad: a way, or a turn, that is so near to its end is done
MOVED = np.array([0.003, 0.003, 0.005])  # m, m, rad: a base that moves by less does not move
# s, simulated or real and of wall time both: until a base that does not move is given up, and one that does not rest.
STUCK, RESTLESS = 3.0, 5.0
ASTRAY = np.array([0.1, np.radians(10.0)])  # m, rad beside the way: it does something else than what was commanded
HOLD = 0.1  # rad/s by which a heading is corrected on a straight way, at most
STOPPING = 3.0  # s of wall time for a stop
TYPES = ("geometry_msgs/msg/Twist", "geometry_msgs/msg/TwistStamped")


@dataclass(frozen=True)
class Speeds:
    """The largest speeds (m/s, rad/s) and accelerations (m/s2, rad/s2) to drive with."""

    linear: float
    angular: float
    acceleration: float
    angular_acceleration: float

    @classmethod
    def of(cls, base: WheeledBase, linear: float, angular: float) -> "Speeds":
        """Return these speeds, at most the base's largest ones, with half of its accelerations."""
        return cls(min(linear, base.linear[0]), min(angular, base.angular[0]), base.linear[1] / 2, base.angular[1] / 2)


class Odometer:
    """Listens to odometry: the `pose`, x, y (m) and yaw (rad) that counts whole turns, (3,), None before the first;
    `stamp` (ns) is its time, `still_since` (ns) that from which on the robot stands. `messages` are those that came
    since somebody took them. The `watchdog` watches for silence."""

    def __init__(self, context: Any, topic: str, watchdog: Watchdog):
        from nav_msgs.msg import Odometry

        self.topic = topic
        self.pose: np.ndarray | None = None
        self.stamp = self.still_since = 0
        self.messages: list[Any] = []
        self._anchor = np.full(3, np.inf)
        subscription = MatchedSubscription(context, Odometry, topic, self._take, depth=50, watchdog=watchdog)
        self.close = subscription.close

    @property
    def stands(self) -> bool:
        """Whether the robot has stood for so long that nothing swings."""
        return self.pose is not None and self.stamp - self.still_since > SETTLE

    @property
    def restless(self) -> RunFailure:
        still = f"{1e3 * STILL[0]:g} mm and {np.degrees(STILL[2]):.2g} deg while the robot stands"
        return RunFailure(f"{self.topic} does not come to rest; odometry may change by {still}")

    def _take(self, message: Any) -> None:
        _, (pose,) = way_of([message], self.topic)  # `InputError` if it is no pose
        self.messages.append(message)
        if self.pose is not None:
            pose[2] = self.pose[2] + wrapped(pose[2] - self.pose[2])
        self.pose, self.stamp = pose, stamp_of(message)
        if not np.all(np.abs(self.pose - self._anchor) <= STILL):
            self._anchor, self.still_since = self.pose, self.stamp


class BaseMotion:
    """Drives the base through twists on `topic`, of the kind that its driver takes. `watchdog` is ticked while it
    moves: a silence that matters then has to end the motion."""

    def __init__(self, context, odometer: Odometer, base: WheeledBase, topic: str, speeds: Speeds, watchdog):
        self._context, self._odometer, self._base, self._topic = context, odometer, base, topic
        self._speeds, self._watchdog = speeds, watchdog
        self._publisher: Any = None
        self._stamped = self._commanded = False

    def wait_for_driver(self) -> None:
        """Find out what kind of twists the driver takes. Raises `RunFailure` if nobody takes any, `InputError` if both
        kinds are taken."""
        from geometry_msgs.msg import Twist, TwistStamped

        node, kinds = self._context.node, set()
        topic = checked_topic(node, self._topic)

        def found() -> bool:
            kinds.update(info.topic_type for info in node.get_subscriptions_info_by_topic(topic))
            return not kinds.isdisjoint(TYPES)

        if not self._context.spin_until(found, DISCOVERED):
            there = f"it is subscribed to as {', '.join(sorted(kinds))}" if kinds else "no node subscribes to it"
            raise RunFailure(f"{topic}: {there}; expected {' or '.join(TYPES)}; is the base's driver running?")
        if kinds.issuperset(TYPES):
            raise InputError(f"{topic}: is subscribed to as {' and as '.join(TYPES)}; one topic has one type")
        if others := {info.node_name for info in node.get_publishers_info_by_topic(topic)}:
            said = f"{', '.join(sorted(others))} also publish {topic}"
            self._context.log.warning(f"{said}; stop them, only one node may drive the robot")
        self._stamped = TYPES[1] in kinds
        self._publisher = node.create_publisher(TwistStamped if self._stamped else Twist, topic, 10)
        if not self._context.spin_until(self._publisher.get_subscription_count, DISCOVERED):
            raise RunFailure(f"{topic}: its subscriber does not connect; is the base's driver running?")

    @contextlib.contextmanager
    def stopping(self) -> Iterator[None]:
        """A context for motion, out of which no exception, nor signal, leads while the base still moves: signals are
        held meanwhile, so that no second one ends the stopping."""
        with self._context.signals_held():
            try:
                yield
            except BaseException:
                self.stop()
                raise

    def drive(self, target: np.ndarray, look: Callable[[np.ndarray], None]) -> None:
        """Turn on the spot, by more than 10 deg, or drive straight, to x, y (m) and yaw (rad) in odometry's frame,
        (3,), and come to rest. `look` is called again and again with what is left of the way (2,) in base_footprint,
        and may raise. Raises `Refused` if the base does not move, or otherwise than commanded, `RunFailure` if it does
        not come to rest."""
        begin, speeds = self._odometer.pose, self._speeds
        turns = abs(target[2] - begin[2]) > ASTRAY[1]
        first, speed = self._left(target, turns), 0.0
        most, slowing = (speeds.angular, speeds.angular_acceleration) if turns else (speeds.linear, speeds.acceleration)
        moved, stuck = begin, Patience(self._context, STUCK, STUCK)
        before = self._now
        while True:
            left, pose = self._left(target, turns), self._odometer.pose
            amount = float(np.linalg.norm(left))
            if amount < WITHIN[int(turns)] or left @ first <= 0.0:
                break
            self._check_way(begin, pose, target, turns)
            if np.any(np.abs(pose - moved) > MOVED):
                moved = pose
                stuck.begin()
            elif stuck.over:
                modes = f", the driver's mode other than {' or '.join(self._base.modes)}" * bool(self._base.modes)
                raise Refused(
                    f"the base did not move for {STUCK:g} s, though commanded on {self._topic}: is the run-stop "
                    f"on{modes}, does a safety function stop it, or is {self._odometer.topic} another base's odometry?"
                )
            look(np.zeros(2) if turns else left[:2])
            now = self._now
            elapsed, before = min(1e-9 * (now - before), 4.0 * PERIOD), now
            to_slow_down = max(0.0, amount - LAG * speed)
            speed = min(most, speed + slowing * elapsed, float(np.sqrt(2.0 * slowing * to_slow_down)))
            twist = speed / amount * left
            if not turns:
                twist[2] = np.clip(target[2] - pose[2], -HOLD, HOLD)
            self._command(twist)
        patience = Patience(self._context, RESTLESS, RESTLESS)
        while True:
            self._command(np.zeros(3))
            look(np.zeros(2))
            if self._odometer.stands:
                return
            if patience.over:
                raise self._odometer.restless

    def stop(self) -> None:
        """Publish zero velocity until odometry says that the robot stands."""
        if not self._commanded:
            return
        deadline, stopped = time.monotonic() + STOPPING, False
        # Odometry that was queued before this moment does not show whether the base obeys.
        began = max(self._odometer.stamp, self._now)
        while not stopped and time.monotonic() < deadline:
            self._publish(np.zeros(3))
            self._let_pass(partial(spin_to_stop, self._context.executor))
            stopped = self._odometer.stands and self._odometer.stamp > began + SETTLE
        self._commanded = False
        said = "the base was stopped" if stopped else "odometry does not confirm that the base stopped"
        self._context.log.warning(said)

    def _left(self, target: np.ndarray, turns: bool) -> np.ndarray:
        """Return the rest of the motion, (3,), in base_footprint: of a turn its angle only, of a way as far as the base
        can drive it."""
        (x, y, angle), yaw = target - self._odometer.pose, self._odometer.pose[2]
        if turns:
            return np.array([0.0, 0.0, angle])
        ahead, left = np.cos(yaw) * x + np.sin(yaw) * y, np.cos(yaw) * y - np.sin(yaw) * x
        return np.array([ahead, left if self._base.strafes else 0.0, 0.0])

    def _check_way(self, begin: np.ndarray, pose: np.ndarray, target: np.ndarray, turns: bool) -> None:
        way, gone = np.zeros(2) if turns else (target - begin)[:2], (pose - begin)[:2]
        share = np.clip(gone @ way / max(float(way @ way), 1e-12), 0.0, 1.0)
        beside = np.hypot(*(gone - share * way))
        low, high = sorted((begin[2], target[2]))
        turned = max(low - pose[2], pose[2] - high)
        if beside > ASTRAY[0] or turned > ASTRAY[1]:
            raise Refused(
                f"the base does not follow the commands on {self._topic}: by {self._odometer.topic} it is "
                f"{beside:.2f} m and {np.degrees(max(turned, 0.0)):.0f} deg off its path; check that both belong to "
                "one base, and that no other node drives it"
            )

    @property
    def _now(self) -> int:
        return self._context.node.get_clock().now().nanoseconds

    def _command(self, twist: np.ndarray) -> None:
        self._publish(twist)
        self._let_pass(self._context.spin_once)
        self._watchdog.tick()

    def _publish(self, twist: np.ndarray) -> None:
        message = self._publisher.msg_type()
        inner = message.twist if self._stamped else message
        if self._stamped:
            message.header.stamp = self._context.node.get_clock().now().to_msg()
            message.header.frame_id = self._context.options.footprint_frame
        inner.linear.x, inner.linear.y, inner.angular.z = map(float, twist)
        self._commanded = True
        self._publisher.publish(message)

    def _let_pass(self, spin_once: Callable[[float], None]) -> None:
        deadline = time.monotonic() + PERIOD
        while (left := deadline - time.monotonic()) > 0.0:
            spin_once(left)
