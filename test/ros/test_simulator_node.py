"""The simulator looks like the robot's drivers, moves like them, and keeps the truth to itself."""

import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from control_msgs.action import FollowJointTrajectory
from node_process import FEW_RAYS, PATIENCE, Graph, robot_client, seconds, simulated_robot, slowly
from rclpy.action import ActionClient, ActionServer
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message, serialize_message
from rosbags.highlevel import AnyReader
from sensor_msgs.msg import JointState, PointCloud2
from std_msgs.msg import Bool, String
from std_srvs.srv import SetBool, Trigger
from tf2_msgs.msg import TFMessage
from trajectory_msgs.msg import JointTrajectoryPoint

from stretch_sim_cal.geometry.transforms import error
from stretch_sim_cal.harness.processes import own_domain
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.recording import clouds as layouts
from stretch_sim_cal.recording.clouds import POINT_DTYPE, layout
from stretch_sim_cal.recording.frame_tree import FrameTree, transform_of_message, tree_of_description
from stretch_sim_cal.recording.rosbag import Recording
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.ros.simulated_drivers import LidarDrivers
from stretch_sim_cal.ros.simulated_robot import TrajectoryServer
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.joints import Joints
from stretch_sim_cal.simulation.setup import SimulationSetup

LEFT_ERROR = "0.01,0.005,-0.01,1.0,-0.5,0.8"
ARGUMENTS = ("--world", "furnished_room", "--sensor", FEW_RAYS, "--seed", "3", "--lidar-left-error", LEFT_ERROR)
SUCCEEDED, CANCELED, ABORTED = 4, 5, 6


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """A running simulator: a client in its graph, and the file with its truth."""
    with simulated_robot(tmp_path_factory.mktemp("simulated"), *ARGUMENTS) as (graph, client):
        client.spin_until(lambda: "lift_joint" in client.positions, "joint states")
        yield client, graph.folder / "truth.json"


@pytest.fixture
def client(simulated):
    """The client, with the driver as it was at the start: in position mode, runstop off."""
    robot = simulated[0]
    yield robot
    robot.call(SetBool, "/runstop", data=False)
    robot.set_mode("position")


def static_tree(client):
    tree = FrameTree()
    for transform in client.take(TFMessage, "/tf_static", latched=True)[0].transforms:
        tree.connect(transform.header.frame_id, transform.child_frame_id, transform_of_message(transform.transform))
    return tree


def test_what_never_changes_is_heard_by_late_comers(client, simulated):
    description = client.take(String, "/robot_description", latched=True)[0].data
    static, described = static_tree(client), tree_of_description(description)
    for lidar in (each.frame for each in stretch_profile().lidars.values()):
        assert error(described.lookup("base_link", lidar), static.lookup("base_link", lidar))[0] < 1e-9
    assert static.parent("base_link") == "base_footprint"

    truth_file = simulated[1]
    truth = load_truth(truth_file)
    left = static.lookup("base_link", "lidar_left_link")  # it believes its description, and not the truth
    assert error(truth.nominal_base_from_lidar["left"], left)[0] < 1e-9
    assert error(truth.base_from_lidar["left"], left)[0] == pytest.approx(0.015, abs=1e-6)
    latched = client.take(String, "/stretch_simulator/ground_truth", latched=True)[0].data
    published, written = (json.loads(text)["base_link_from_lidar_left"] for text in (latched, truth_file.read_text()))
    assert published == written
    assert truth.description_file.is_file()


def test_clouds_are_those_of_the_drivers(client):
    for side in ("left", "right"):
        clouds = client.take(PointCloud2, f"/lidar_points_{side}", 3)
        assert {cloud.header.frame_id for cloud in clouds} == {f"lidar_{side}_link"}
        assert all((cloud.height, cloud.point_step, cloud.is_bigendian) == (1, 26, False) for cloud in clouds)
        assert [(f.name, f.offset, f.datatype, f.count) for f in clouds[0].fields] == [tuple(f) for f in layout()]
        ticks = np.diff(stamps(clouds)) / 0.1
        np.testing.assert_allclose(ticks, np.round(ticks), atol=1e-6)
        times = layouts.records_from_message(clouds[0])["timestamp"]
        begin = seconds(clouds[0].header.stamp)
        assert begin <= times.min() and times.max() < begin + 0.1 + 1e-6
        assert len(layouts.returns_from_message(clouds[0])) > 1000


def stamps(clouds):
    return np.array([seconds(cloud.header.stamp) for cloud in clouds])


def heard_by_one(client, wait):
    """Return the clouds of each lidar that one hears who begins with the right lidar so many s after the left one."""
    heard: dict[str, list] = {"left": [], "right": []}
    subscriptions = []
    for side, clouds in heard.items():
        topic, depth = f"/lidar_points_{side}", QoSProfile(depth=10)
        subscriptions.append(client.node.create_subscription(PointCloud2, topic, clouds.append, depth))
        client.spin_for(wait)
    client.spin_until(lambda: heard["right"] and sum(stamps(heard["left"]) > stamps(heard["right"])[0]) > 2)
    for subscription in subscriptions:
        client.node.destroy_subscription(subscription)
    return heard


def test_whoever_listens_gets_the_same_clouds_however_late_he_comes(graph):
    simulation = EmbeddedSimulator(SimulationSetup(sensor=FEW_RAYS, seed=3))
    arguments = ("--world", "furnished_room", "--sensor", FEW_RAYS, "--seed", "3")
    with robot_client(graph.domain) as client, graph.simulator(*arguments):
        for listener, wait in ((1, 0.0), (2, 0.5)):
            client.spin_for(wait)
            heard = heard_by_one(client, wait)
            first = round((min(stamps(heard["right"])) - simulation.start_time("right", 0)) / simulation.period)
            for side, clouds in heard.items():
                paired = np.flatnonzero(stamps(clouds) > simulation.start_time(side, first) - 1e-6)
                for number, index in enumerate(paired[:2]):
                    drawn = LidarDrivers.PER_LISTENER * listener + number
                    expected = layouts.message_bytes(simulation.scan(side, first + number, drawn))
                    assert bytes(clouds[index].data) == expected.tobytes(), (listener, side, number)


def test_time_goes_on_and_goals_move_the_arm(client):
    before = client.time()
    client.feedback.clear()
    handle = client.send(["lift_joint", "arm_joint"], [0.5, 0.4], [0.6, 0.2], velocities=[0.2, 0.2])
    assert client.result(handle) == (SUCCEEDED, 0, "")
    client.spin_until(lambda: abs(client.positions["lift_joint"] - 0.6) < 1e-6)
    segments = [f"arm_l{number}_joint" for number in (1, 2, 3, 4)]
    client.spin_until(lambda: abs(sum(client.positions[name] for name in segments) - 0.2) < 1e-6)
    assert client.time() > before + 1.0
    moved = {t.child_frame_id: t for t in client.take(TFMessage, "/tf", 3)[-1].transforms}
    lift = transform_of_message(moved["lift_link"].transform)
    tree = tree_of_description(client.take(String, "/robot_description", latched=True)[0].data)
    assert lift[2, 3] - tree.lookup("mast_link", "lift_link")[2, 3] == pytest.approx(0.6)
    client.spin_until(lambda: client.feedback)
    feedback = client.feedback[0]
    assert list(feedback.joint_names) == ["lift_joint", "arm_joint"]
    np.testing.assert_allclose(
        np.add(feedback.actual.positions, feedback.error.positions), feedback.desired.positions, atol=1e-9
    )


def lift_positions(client, count: int) -> list[float]:
    return [m.position[m.name.index("lift_joint")] for m in client.take(JointState, "/joint_states", count)]


def begun(client):
    """Return the handle of a move of the lift that takes long; to be called while the robot moves slowly."""
    return client.send(["lift_joint"], [0.2 if client.positions["lift_joint"] > 0.6 else 1.0], velocities=[0.02])


def assert_aborted(client, handle, code, words):
    status, found, text = client.result(handle)
    assert (status, found) == (ABORTED, code) and words in text


def test_a_goal_can_be_canceled(client):
    client.result(client.send(["lift_joint"], [0.2]))
    with slowly():
        handle = begun(client)
        client.spin_for(0.1)
        client.cancel(handle)
        assert client.result(handle)[0] == CANCELED
    client.spin_until(lambda: len(set(lift_positions(client, 20))) == 1, "the lift's rest")
    assert lift_positions(client, 1)[0] < 0.9


def test_a_new_goal_takes_the_place_of_a_running_one(client):
    with slowly():
        first = begun(client)
        second = client.send(["arm_joint"], [0.1])
    assert client.result(second)[0] == SUCCEEDED
    assert_aborted(client, first, -1, "newer")


def test_the_runstop_stops_and_keeps_stopped(client):
    with slowly():
        handle = begun(client)
        assert client.call(SetBool, "/runstop_the_robot", data=True).success
    assert_aborted(client, handle, -4, "runstop")
    assert not client.send(["lift_joint"], [0.5]).accepted
    assert not client.call(Trigger, "/home_the_robot").success
    client.spin_until(lambda: client.take(Bool, "/is_runstopped", latched=True)[0].data)
    client.call(SetBool, "/runstop", data=False)
    assert client.send(["lift_joint"], [0.5]).accepted


def test_the_mode_decides_whether_goals_are_taken(client):
    assert client.set_mode("trajectory").successful
    assert not client.send(["lift_joint"], [0.5]).accepted
    assert not client.set_mode("dancing").successful
    assert client.set_mode("navigation").successful
    assert client.send(["lift_joint"], [0.5]).accepted and not client.send(["lift_joint"], [1.5]).accepted


def test_services_move_the_robot(client):
    for name, pose in (("home", stretch_profile().home[0]), ("stow", stretch_profile().stowed)):
        assert client.call(Trigger, f"/{name}_the_robot").success
        for joint in ("lift_joint", "wrist_yaw_joint"):
            client.spin_until(lambda joint=joint, pose=pose: abs(client.positions[joint] - pose[joint]) < 1e-6)
    with slowly():
        handle = begun(client)
        assert client.call(Trigger, "/stop_the_robot").success
    assert_aborted(client, handle, -4, "stop")


def test_a_stop_between_a_goals_acceptance_and_its_execution_stops_it(ros, monkeypatch):
    joints = Joints(parse_urdf(nominal_description()))
    trajectories = TrajectoryServer(ros.context.node, joints, lambda: None)
    accepted = []
    monkeypatch.setattr(ActionServer, "notify_execute", lambda *given, run=ActionServer.notify_execute: accepted.append(
        functools.partial(run, *given)
    ))  # fmt: skip
    client = ActionClient(ros.drivers, FollowJointTrajectory, "/follow_joint_trajectory")
    ros.until(client.server_is_ready)
    goal = FollowJointTrajectory.Goal()
    goal.trajectory.joint_names, goal.trajectory.points = ["lift_joint"], [JointTrajectoryPoint(positions=[0.5])]

    def asked():  # a request that comes before the server knows the client is lost
        client.send_goal_async(goal)
        return ros.context.spin_until(lambda: accepted, timeout=1.0)

    ros.until(asked)
    trajectories.abort("stopped")
    while accepted:
        accepted.pop()()
    ros.context.spin_until(lambda: False, timeout=0.2)
    joints.step(0.1)
    trajectories.step(0.1)
    assert not joints.moving and joints.positions["lift_joint"] == 0.0


# What follows needs simulators of its own.


def recorded_clouds(folder, side="left"):
    """Return {stamp: data} of one lidar's clouds in a recording."""
    with Recording(folder) as recording:
        messages = [message for _, message in recording.messages([f"/lidar_points_{side}"])]
    return {seconds(message.header.stamp): message.data.tobytes() for message in messages}


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """The folder of two recordings, `fast` and `slow`."""
    folder = tmp_path_factory.mktemp("bags")
    with own_domain() as domain:
        for name, *arguments in (("fast",), ("slow", "--real-time-factor", "3", "--storage", "sqlite3")):
            recorded = ("--record", str(folder / name), "--duration", "0.5")
            ended = Graph(domain, folder).call("stretch_simulator", *ARGUMENTS, *recorded, *arguments, code=0)
            assert "real-time factor" in ended.out
    return folder


def test_a_recording_is_whole_and_the_same_at_any_speed(bags):
    for name in ("fast", "slow"):
        assert load_truth(bags / f"{name}.truth.json").description_file.is_file()
    fast, slow = (recorded_clouds(bags / name) for name in ("fast", "slow"))
    assert len(fast) >= 4
    assert fast == slow
    assert len(next(iter(fast.values()))) % POINT_DTYPE.itemsize == 0


def test_joint_states_are_stored_without_the_unused_bytes_that_rmw_leaves(bags):
    with AnyReader([bags / "fast"]) as reader:
        wanted = [connection for connection in reader.connections if connection.topic == "/joint_states"]
        stored = [data for _, _, data in reader.messages(wanted)]
        states = [reader.deserialize(data, "sensor_msgs/msg/JointState") for data in stored]
    assert len(stored) >= 20
    message = deserialize_message(bytes(stored[0]), JointState)
    assert list(states[0].position) == list(message.position)
    assert len(stored[0]) < len(serialize_message(message))


def test_an_mcap_recording_is_one_of_ros_2_whose_messages_are_read_by_their_own_schemas(bags):
    (path,) = (bags / "fast").glob("*.mcap")
    reader, of_ros = (
        pytest.importorskip(name, reason="the extra 'test' is not installed")
        for name in ("mcap.reader", "mcap_ros2.decoder")
    )
    with open(path, "rb") as file:
        strict = reader.make_reader(file, decoder_factories=[of_ros.DecoderFactory()], validate_crcs=True)
        assert strict.get_header().profile == "ros2"
        summary, latest = strict.get_summary(), {}
        messages = list(strict.iter_decoded_messages(log_time_order=False))
        for _, channel, message, _ in messages:
            assert message.log_time >= latest.get(channel.topic, 0)
            latest[channel.topic] = message.log_time
    assert len(messages) == summary.statistics.message_count and all(summary.statistics.channel_message_counts.values())
    assert {schema.encoding for schema in summary.schemas.values()} == {"ros2msg"}
    assert {channel.message_encoding for channel in summary.channels.values()} == {"cdr"}
    topics = {channel.topic: summary.schemas[channel.schema_id].name for channel in summary.channels.values()}
    assert topics == {
        "/lidar_points_left": "sensor_msgs/msg/PointCloud2", "/lidar_points_right": "sensor_msgs/msg/PointCloud2",
        "/joint_states": "sensor_msgs/msg/JointState", "/robot_description": "std_msgs/msg/String",
        "/tf": "tf2_msgs/msg/TFMessage", "/tf_static": "tf2_msgs/msg/TFMessage",
        "/is_homed": "std_msgs/msg/Bool", "/is_runstopped": "std_msgs/msg/Bool", "/mode": "std_msgs/msg/String",
        "/wheel_odom": "nav_msgs/msg/Odometry",
    }  # fmt: skip


def test_scans_that_nobody_takes_are_not_cast(graph):
    ended = graph.call("stretch_simulator", *ARGUMENTS, "--duration", "2", code=0)
    assert "0 left and 0 right clouds" in ended.out


def test_faults_show_in_what_is_published(graph):
    faults = ("--fault", "silent_left,drop_half_right,stamp_offset:0.25,push:6")
    graph.call("stretch_simulator", *ARGUMENTS, *faults, "--record", "bag", "--duration", "1.3", code=0)
    assert recorded_clouds(graph.folder / "bag", "left") == {}
    right = recorded_clouds(graph.folder / "bag", "right")
    simulation = EmbeddedSimulator(SimulationSetup(sensor=FEW_RAYS, seed=3))
    start = simulation.start_time("right", 0) + 0.25
    ticks = [round((stamp - start) / simulation.period) for stamp in right]
    np.testing.assert_allclose(list(right), start + np.array(ticks) * simulation.period, atol=1e-6)
    assert ticks[:5] == [0, 2, 4, 6, 8]
    before, after = (np.frombuffer(right[list(right)[i]], POINT_DTYPE) for i in (1, 4))
    simulation.joints.place(stretch_profile().stowed)
    np.testing.assert_array_equal(before["x"], simulation.scan("right", 2)["x"])
    assert not np.array_equal(after["x"], simulation.scan("right", 8)["x"])


def test_a_stuck_joint_and_an_unhomed_robot_refuse(graph):
    with graph.simulator(*ARGUMENTS, "--fault", "stuck:arm_joint,not_homed"), robot_client(graph.domain) as client:
        assert not client.send(["lift_joint"], [0.5]).accepted
        client.call(Trigger, "/home_the_robot")
        assert_aborted(client, client.send(["arm_joint"], [0.3]), -5, "arm_joint by +0.3")


def test_a_crash_is_a_crash(graph, monkeypatch):
    monkeypatch.setattr(os, "_exit", sys.exit)
    graph.call("stretch_simulator", *ARGUMENTS, "--fault", "crash:0.5", "--duration", "2", code=70)


def test_sim_is_in_the_domain_that_is_asked_for(graph):
    ended = graph.call("stretch_sim_cal", "sim", *ARGUMENTS[:4], "--duration", "0.1")
    assert ended.code == 0 and ended.out.startswith("simulator ready"), ended.err


def test_sim_is_in_a_domain_of_its_own_unless_one_is_asked_for_and_a_signal_ends_it_with_its_recording(tmp_path):
    """A robot may be in the domain that everybody is in by default."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ROS_")}
    command = [sys.executable, "-m", "stretch_sim_cal.cli", "sim", *ARGUMENTS[:4], "--record", str(tmp_path / "bag")]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=ours | {"PYTHONUNBUFFERED": "1"}, **streams) as process:
        try:
            named, ready = next(process.stdout), next(process.stdout)
            assert ready.startswith("simulator ready")
            domain = int(named.rpartition("export ROS_DOMAIN_ID=")[2])
            with own_domain() as free:
                assert domain not in (free, 0)
            with robot_client(domain) as client:
                client.spin_until(lambda: client.node.count_publishers("/clock"), "publisher of the clock")
        finally:
            process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0 and "Traceback" not in said
    with Recording(tmp_path / "bag") as recording:
        assert recording.count("/tf_static") == 1
