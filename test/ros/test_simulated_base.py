"""The simulated base over ROS: driven by twists as the robots' own are, stopped as they are, and its odometry."""

import math
import time

import numpy as np
import pytest
from geometry_msgs.msg import Twist, TwistStamped
from nav_msgs.msg import Odometry
from node_process import FEW_RAYS, FEW_RAYS_AMR, simulated_robot
from rosgraph_msgs.msg import Clock
from std_srvs.srv import SetBool
from tf2_msgs.msg import TFMessage

from stretch_sim_cal.ros.messages import time_message
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import SimulationSetup

SAID, TRUTH = "wheel_odom", "stretch_simulator/true_odometry"


def place(message):
    pose = message.pose.pose
    return np.array([pose.position.x, pose.position.y, 2 * math.atan2(pose.orientation.z, pose.orientation.w)])


def speed(message):
    twist = message.twist.twist
    return math.hypot(twist.linear.x, twist.linear.y) + abs(twist.angular.z)


@pytest.fixture(scope="module")
def module_stretch(tmp_path_factory):
    """A client of a simulated Stretch, and a function that publishes a twist and returns true."""
    arguments = ("--world", "empty_hall", "--sensor", FEW_RAYS, "--seed", "3", "--real-time-factor", "1")
    with simulated_robot(tmp_path_factory.mktemp("base"), *arguments) as (_, client):
        publisher = client.node.create_publisher(Twist, "/cmd_vel", 1)
        client.spin_until(publisher.get_subscription_count, "/cmd_vel")
        heard = client.latest(**dict.fromkeys((SAID, TRUTH), Odometry))
        client.spin_until(lambda: len(heard) == 2, "odometry")

        def drive(x=0.0, y=0.0, turn=0.0):
            twist = Twist()
            twist.linear.x, twist.linear.y, twist.angular.z = x, y, turn
            publisher.publish(twist)
            return True

        yield client, heard, drive


@pytest.fixture
def stretch(module_stretch):
    """The same, in a mode in which it drives."""
    module_stretch[0].set_mode("navigation")
    return module_stretch


def stopped(client, heard):
    client.spin_until(lambda: speed(heard[SAID]) == 0.0, "rest")
    now = heard[TRUTH].header.stamp.sec
    client.spin_until(lambda: heard[TRUTH].header.stamp.sec > now + 1, "a second")
    return place(heard[TRUTH])


def assert_rests(client, heard, drive, **twist):
    """Assert that the base comes to rest and stays there, though it is commanded; return where."""
    rest = stopped(client, heard)
    until = time.monotonic() + 1.0
    client.spin_until(lambda: drive(**twist) and time.monotonic() > until)
    np.testing.assert_array_equal(stopped(client, heard), rest)
    return rest


def test_it_drives_sideways_by_twists_and_rests_when_they_cease(stretch):
    client, heard, drive = stretch
    before, truth = place(heard[SAID]), place(heard[TRUTH])
    client.spin_until(lambda: drive(y=0.2) and place(heard[SAID])[1] > before[1] + 0.15, "its way")
    true_way = stopped(client, heard) - truth
    way = place(heard[SAID]) - before
    assert abs(way[0]) < 1e-9 and abs(way[2]) < 1e-9
    # Odometry's scale is off by some percent, and wheels slip by some mm.
    assert true_way[1] == pytest.approx(way[1], abs=0.03) and true_way[1] != way[1]
    assert heard[SAID].header.frame_id == "wheel_odom"
    assert heard[SAID].child_frame_id == "base_footprint"
    messages = client.take(TFMessage, "/tf", 3)  # not there, as the driver has it
    assert "wheel_odom" not in {each.header.frame_id for message in messages for each in message.transforms}


def test_the_runstop_stops_it_and_it_does_not_drive_until_that_is_off(stretch):
    client, heard, drive = stretch
    client.spin_until(lambda: drive(x=-0.2) and speed(heard[SAID]) > 0.15, "its way")
    assert client.call(SetBool, "/runstop", data=True).success
    rest = assert_rests(client, heard, drive, x=-0.2)
    client.call(SetBool, "/runstop", data=False)
    client.spin_until(lambda: drive(turn=0.3) and abs(place(heard[TRUTH])[2] - rest[2]) > 0.1, "its turn")
    stopped(client, heard)


def test_a_mode_without_driving_stops_it(stretch):
    client, heard, drive = stretch
    client.spin_until(lambda: drive(turn=-0.3) and speed(heard[SAID]) > 0.2, "its turn")
    client.set_mode("position")
    assert_rests(client, heard, drive, turn=-0.3)


def test_stamped_twists_take_a_differential_base_where_they_take_it_without_ros(tmp_path):
    robot = {"robot": "two_lidar_amr", "world": "empty_hall", "sensor": FEW_RAYS_AMR, "seed": 5}
    arguments = [text for name, value in robot.items() for text in (f"--{name}", str(value))]
    with simulated_robot(tmp_path, *arguments, "--real-time-factor", "1") as (_, client):
        publisher = client.node.create_publisher(TwistStamped, "/cmd_vel", 100)
        client.spin_until(publisher.get_subscription_count, "/cmd_vel")
        begin = client.take(Clock, "/clock")[0].clock.sec + 6
        commands = [(begin + 0.25 * number, 0.4, 0.0, 0.05 * number) for number in range(16)]
        for stamp, forward, _, turn in commands:
            command = TwistStamped()
            command.header.stamp = time_message(round(1e9 * stamp))
            command.twist.linear.x, command.twist.angular.z = forward, turn
            publisher.publish(command)
        heard = []
        client.node.create_subscription(Odometry, "/odom", heard.append, 10)
        client.spin_until(lambda: heard and heard[-1].header.stamp.sec >= begin + 6, "the end of the way")
        transforms = [each for message in client.take(TFMessage, "/tf", 3) for each in message.transforms]
        assert ("odom", "base_footprint") in {(each.header.frame_id, each.child_frame_id) for each in transforms}
        one, said = place(client.take(Odometry, f"/{TRUTH}")[0]), place(heard[-1])
    driving = EmbeddedSimulator(SimulationSetup.from_mapping(robot)).driving
    for stamp, *twist in commands:
        driving.step(stamp - 0.1 - driving.now)
        driving.command(*twist, stamp)
    driving.step(10.0)
    pose = driving.poses(np.array([driving.now]))[0]
    np.testing.assert_allclose([*pose[:2, 3], math.atan2(pose[1, 0], pose[0, 0])], one, atol=1e-9)
    np.testing.assert_allclose(driving.odometry(driving.now)[0], said, atol=1e-9)
    assert said[0] > 0.5 and said[1] > 0.2
    assert 1e-3 < np.abs(said - one).max() < 0.2
