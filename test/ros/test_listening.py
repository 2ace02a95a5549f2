"""What comes over DDS is heard whatever its quality of service; what does not come is named. Nodes in one process."""

import itertools
import time
from types import SimpleNamespace

import numpy as np
import pytest
from fake_drivers import edge_transform, publish_frames
from node_process import PATIENCE
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import JointState, LaserScan, PointCloud2

from stretch_sim_cal.errors import InputError, RunFailure
from stretch_sim_cal.recording.clouds import POINT_DTYPE
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.ros import arm
from stretch_sim_cal.ros.arm import ArmState
from stretch_sim_cal.ros.listening import FrameListener, LidarClouds, LiveRobot, depth_for
from stretch_sim_cal.ros.messages import cloud_message, joint_state_message
from stretch_sim_cal.ros.node_commands import CLOUD_OPTIONS
from stretch_sim_cal.ros.watchdog import Watchdog

pytestmark = pytest.mark.graph

POINTS = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)
LEFT, RIGHT = "/lidar_points_left", "/lidar_points_right"


def options(**changed) -> SimpleNamespace:
    return SimpleNamespace(**({option.name: option.default for option in CLOUD_OPTIONS} | changed))


def cloud(side: str, milliseconds: float, points: np.ndarray = POINTS, frame: str | None = None):
    records = np.zeros(len(points), POINT_DTYPE)
    records["x"], records["y"], records["z"] = points.T
    return cloud_message(records, frame or f"lidar_{side}_link", round(milliseconds * 1e6))


class Lidars:
    """Publishers of clouds of two lidars (or one), fed by the test one tick (100 ms of stamps) after the other."""

    def __init__(self, node, topics=(LEFT, RIGHT), reliable: bool = True):
        reliability = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
        self._publishers = {
            side: node.create_publisher(PointCloud2, topic, QoSProfile(depth=5, reliability=reliability))
            for side, topic in zip(("left", "right"), topics, strict=False)
        }
        self._tick = 0

    @property
    def stamp(self) -> int:
        """The last left cloud's, in ns."""
        return (1000 + self._tick * 100) * 1_000_000

    def are_heard(self) -> int:
        return sum(publisher.get_subscription_count() for publisher in self._publishers.values())

    def publish(self, offset: float = 10.0, ticks: int = 1, **left) -> None:
        """Publish clouds so many ticks after the last ones, the right one `offset` (ms) after the left one."""
        self._tick += ticks
        self._publishers["left"].publish(cloud("left", 1e-6 * self.stamp, **left))
        if "right" in self._publishers:
            self._publishers["right"].publish(cloud("right", 1e-6 * self.stamp + offset))


def collect(context, pairs: LidarClouds, count: int, feed, seconds: float = PATIENCE) -> list:
    """Return `count` pairs or, after so many s, those that came, feeding the lidars meanwhile."""
    found, deadline = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < deadline:
        feed()
        context.spin_until(pairs._has_set, timeout=0.1)
        while pairs._sets:
            found.append(pairs._sets.popleft())
    assert len(found) >= count or seconds < PATIENCE
    return found


def hear(context, pairs: LidarClouds, lidars: Lidars, **content) -> None:
    """Feed the lidars until the first pair is heard, and forget what they have sent so far."""
    collect(context, pairs, 1, lambda: lidars.publish(**content))
    lidars.publish(**content)
    assert context.spin_until(lambda: any(pair.stamp == lidars.stamp for pair in pairs._sets), timeout=PATIENCE)
    pairs._sets.clear()


def test_a_driver_of_any_quality_of_service_is_heard_and_again_if_it_comes_back_with_another(ros):
    pairs = ros.context.clouds(options())
    for reliable in (True, False):
        lidars = Lidars(ros.drivers, reliable=reliable)
        for pair in collect(ros.context, pairs, 2, lidars.publish):
            assert all(np.array_equal(cloud[:, :3], POINTS) for cloud in pair.clouds.values()) and len(pair.clouds) == 2
        for publisher in lidars._publishers.values():
            ros.drivers.destroy_publisher(publisher)
        ros.until(lambda: not ros.context.node.count_publishers(RIGHT))


def test_points_that_are_not_finite_and_clouds_without_points_are_left_out(ros):
    lidars, pairs = Lidars(ros.drivers), ros.context.clouds(options())
    holed = POINTS.copy()
    holed[::2] = np.nan
    hear(ros.context, pairs, lidars)
    for points in (np.full((5, 3), np.inf, np.float32), holed):
        lidars.publish(points=points)
    (pair, *_) = collect(ros.context, pairs, 1, lambda: None)
    assert len(pair.clouds["left"]) == 25 and len(pair.clouds["right"]) == 50
    assert pairs.empty == {"left": 1, "right": 0}
    assert "empty: 1 left" in pairs.summary()


def test_a_robot_with_one_lidar_is_heard_without_a_right_one(ros):
    one = options(right_lidar_topic=LEFT, right_lidar_frame="lidar_left_link")
    lidars, pairs = Lidars(ros.drivers), ros.context.clouds(one)
    for pair in collect(ros.context, pairs, 3, lidars.publish):
        assert np.array_equal(pair.clouds["left"][:, :3], POINTS) and list(pair.clouds) == ["left"]
    assert "left clouds, 0.0 % without a partner" in pairs.summary() and not any(pairs.empty.values())
    with pytest.raises(InputError, match="are both"):  # two lidars that share a topic
        ros.context.clouds(options(right_lidar_topic=LEFT))


def test_whoever_takes_sets_gets_the_first_ones_however_late_he_begins_and_long_he_works(ros):
    lidars, pairs = Lidars(ros.drivers), ros.context.clouds(options(), depth=depth_for(3))
    hear(ros.context, pairs, lidars)
    first = lidars.stamp + 100_000_000
    for _ in range(12):
        lidars.publish()
    taken = []
    for pair in pairs.take(3, "taking"):
        ros.until(lambda: not lidars.are_heard())  # more would be for nobody
        for _ in range(20):
            lidars.publish()
        taken.append(pair.stamp)
        assert pair.messages["right"].header.stamp.nanosec - pair.stamp % 10**9 == 10_000_000  # a whole pair
    assert taken == [first, first + 100_000_000, first + 200_000_000]


def test_a_calibration_listens_to_the_lidars_only_while_it_takes_their_clouds(ros):
    """What comes while it prepares, for seconds on a busy machine, would be lost."""
    lidars, ros.context.options = Lidars(ros.drivers), options(num_samples=2, timeout=PATIENCE)
    robot = LiveRobot(ros.context)
    assert not ros.context.spin_until(lidars.are_heard, timeout=0.5)
    ros.context.executor.add_node(ros.drivers)
    ros.drivers.create_timer(0.05, lidars.publish)
    for clouds in robot.clouds("taking"):
        assert np.array_equal(clouds["right"][:, :3], POINTS)
        ros.until(lambda: not lidars.are_heard())


def test_swapped_topics_are_an_error_and_an_unknown_frame_a_warning(ros, capfd):
    lidars, pairs = Lidars(ros.drivers), ros.context.clouds(options(left_lidar_frame="/lidar_left_link"))
    hear(ros.context, pairs, lidars)
    assert "has frame" not in capfd.readouterr().err
    hear(ros.context, pairs, lidars, frame="hesai_lidar")
    assert "has frame 'hesai_lidar'; expected 'lidar_left_link'" in capfd.readouterr().err
    with pytest.raises(InputError, match="swapped"):
        collect(ros.context, pairs, 1, lambda: lidars.publish(frame="link_lidar_right"))


def nothing(_lidars):
    pass


@pytest.mark.parametrize(
    ("arrange", "feed", "named"),
    [
        (lambda node: node.create_publisher(LaserScan, LEFT, 10), nothing, ["LaserScan by /drivers", "PointCloud2"]),
        (lambda node: node.create_publisher(PointCloud2, "/a", 10), nothing,
         ["with sensor_msgs/msg/PointCloud2 are /a"]),
        (lambda node: Lidars(node, reliable=False), nothing,
         ["/drivers (best effort, volatile)", "no messages arrive"]),
        (Lidars, lambda lidars: lidars.publish(offset=60.0, ticks=3),
         ["no pair of clouds", "never closer than", "max_time_difference"]),
    ],
)  # fmt: skip
def test_silence_ends_in_a_failure_that_names_its_cause(ros, arrange, feed, named):
    said, lidars = [], arrange(ros.drivers)
    pairs = ros.context.clouds(options(), Watchdog(1.2, said.append))

    def found() -> bool:  # whoever is there; until then its silence does not count
        feed(lidars)
        topics = [topic for topic, _ in ros.drivers.get_publisher_names_and_types_by_node("drivers", "/")]
        known = all(ros.context.node.count_publishers(topic) for topic in topics)
        return known and (feed is nothing or all(pairs._matching["left"].counts.received.values()))

    ros.until(found)
    with pytest.raises(RunFailure) as raised:
        while True:
            collect(ros.context, pairs, 1, lambda: feed(lidars), seconds=0.5)
    assert all(words in str(raised.value) for words in named), raised.value
    assert said


def test_a_joint_of_the_arm_that_is_not_published_or_has_no_position_is_named(ros):
    joints = dict.fromkeys(stretch_profile().commands.values(), 0.0) | {"wrist_roll_joint": float("nan")}
    publisher = ros.drivers.create_publisher(JointState, "/joint_states", 10)
    ros.context.every(0.05, lambda: publisher.publish(joint_state_message(joints, {}, 0)))
    state = ArmState(ros.context, parse_urdf(nominal_description()), Watchdog(1.0, print, first=7.0), stretch_profile())
    with pytest.raises(RunFailure, match="no positions of all joints of the arm .*: wrist_roll_joint missing"):
        state.wait_until_known()


def test_a_joint_that_does_not_come_to_rest_is_named(ros, monkeypatch):
    monkeypatch.setattr(arm, "PATIENCE", 0.5)
    publisher = ros.drivers.create_publisher(JointState, "/joint_states", 10)
    heights = itertools.cycle((0.1, 0.12))

    def publish():
        joints = dict.fromkeys(stretch_profile().commands.values(), 0.0) | {"lift_joint": next(heights)}
        publisher.publish(joint_state_message(joints, {}, 0))

    ros.context.every(0.05, publish)
    model, watchdog = parse_urdf(nominal_description()), Watchdog(PATIENCE, print)
    state = ArmState(ros.context, model, watchdog, stretch_profile())
    state.wait_until_known()
    with pytest.raises(RunFailure, match="lift does not come to rest .* by 1 mm or 0.01 rad"):
        arm.capture(ros.context, state, watchdog, SimpleNamespace(settle_time=0.5), None)


def publish_edge(node, *edge):
    publish_frames(node, {edge: edge_transform(*edge)})


def test_frames_that_stay_missing_are_an_error_that_says_what_there_is(ros, monkeypatch):
    with pytest.raises(RunFailure, match="no frames from /tf_static or /robot_description"):
        FrameListener(ros.context).wait_for(("a", "b"), watchdog=Watchdog(0.5, print))
    monkeypatch.setattr(FrameListener, "GRACE", 0.3)
    publish_edge(ros.drivers, "base_link", "lidar_left_link")
    with pytest.raises(InputError, match="'lidar_right_link' is unknown; TF has lidar_left_link, base_link"):
        FrameListener(ros.context).wait_for(("base_link", "lidar_right_link"), watchdog=Watchdog(PATIENCE, print))
