"""ros_collect_body_shape_data against the simulated robot: a whole dataset, or an honest end."""

import contextlib
import json
import signal
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from control_msgs.action import FollowJointTrajectory
from fake_drivers import RIGHT_TO_LEFT, calibrated_frames, publish_frames, write_calibration
from node_process import FEW_RAYS, SILENCE, SIMULATED_TIME, Graph, alone, obstacle, robot_client, slowly, stop
from rclpy.action import ActionClient
from rclpy.action.client import ClientGoalHandle
from scipy.spatial import cKDTree
from sensor_msgs.msg import JointState
from std_srvs.srv import SetBool, Trigger

from stretch_sim_cal.collection.clearance import Sweep
from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.harness.processes import own_domain
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.recording.dataset import DatasetWriter, read_dataset
from stretch_sim_cal.recording.frame_tree import FrameTree
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.ros import arm, watchdog
from stretch_sim_cal.ros.arm import ArmMotion
from stretch_sim_cal.ros.listening import FrameListener
from stretch_sim_cal.ros.node_commands import MOUNTS
from stretch_sim_cal.ros.simulated_drivers import RobotState

ROBOT = ("--world", "empty_hall", "--sensor", FEW_RAYS, "--lidar-right-error", "0.01,0,0.01,1,-1,0.5")
GRID = ("--plan", "demo", "--arm", "0,0.3", "--wrist-yaw", "1.7,3.1", "--frames", "2")
FIRST = dict(zip(stretch_profile().commands.values(), (0.5, 0.0, 1.7, 0.0, 0.0), strict=True))
SLOW = ("--speed-factor", "0.05", "--yes")


class Cell:
    """A simulated robot with a calibration in TF, and a client beside it."""

    def __init__(self, graph, client):
        self.graph, self.client = graph, client
        self.truth = load_truth(graph.folder / "truth.json")

    def broadcast(self):
        """Say what ros_broadcast_calibration would of a perfect calibration."""
        publish_frames(self.client.node, calibrated_frames(self.truth))

    def collect(self, name, *arguments, only_one=True, **how):
        arguments = ("--speed-factor", "10", *arguments, *GRID, *SIMULATED_TIME)
        with alone() if only_one else contextlib.nullcontext():
            return self.graph.call("ros_collect_body_shape_data", name, *arguments, **how)

    def move_to_first(self):
        """Move the arm to the first pose of a collection, whose first sample then needs no move."""
        self.client.result(self.client.send(list(FIRST), list(FIRST.values())))

    @contextlib.contextmanager
    def runstop(self):
        self.client.call(SetBool, "/runstop", data=True)
        try:
            yield
        finally:
            self.client.call(SetBool, "/runstop", data=False)

    def positions(self):
        message = self.client.take(JointState, "/joint_states", 3)[-1]
        return dict(zip(message.name, message.position, strict=False))

    def assert_at_rest(self):
        """Assert that no joint moves, though simulated time passes."""
        before, clock = self.positions(), self.client.time()
        self.client.spin_until(lambda: self.client.time() > clock + 0.5)
        assert self.positions() == before

    def folder(self, name):
        return self.graph.folder / name


@contextlib.contextmanager
def cell_in(domain, folder, *arguments, simulator=Graph.simulator):
    """Yield a cell, and what `simulator` does: by default a simulated robot in this process."""
    graph = Graph(domain, folder)
    with simulator(graph, *ROBOT, *arguments) as running, robot_client(domain) as client:
        yield Cell(graph, client), running


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    with own_domain() as domain, cell_in(domain, tmp_path_factory.mktemp("collect")) as (cell, _):
        cell.broadcast()
        yield cell


def faulty(graph, *arguments, **how):
    return cell_in(graph.domain, graph.folder, *arguments, **how)


@pytest.fixture
def on_its_way(monkeypatch):
    """A function that lets something happen once, when the arm has begun to move."""

    def do(action):
        get_result, left = ClientGoalHandle.get_result_async, [action]

        def begun(handle):
            if left:
                left.pop()()
            return get_result(handle)

        monkeypatch.setattr(ClientGoalHandle, "get_result_async", begun)

    return do


def surface_distances(dataset, sample, points):
    """Return how far (m) points in base_footprint are from the surfaces of the robot's model, to about 2 cm."""
    profile = stretch_profile()
    sweep = Sweep(load_model(dataset.description_file), profile)
    joints = {profile.commands[joint]: value for joint, value in sample.actual.items()}
    return cKDTree(sweep.at(joints)).query(points)[0]


def test_a_collection_is_whole_and_says_what_was_seen_where(cell):
    folder = cell.folder("whole")
    ended = cell.collect(folder.name, "--yes", code=0)
    assert all(said in ended.out for said in ("4 poses to capture", "sample 4 of 4", " left"))
    assert "no observations of this alignment beside the calibration file" in ended.err
    dataset = read_dataset(folder)
    assert dataset.warnings == []
    poses = {(sample.commanded["arm"], sample.commanded["wrist_yaw"]) for sample in dataset.samples}
    assert poses == {(0.0, 1.7), (0.0, 3.1), (0.3, 1.7), (0.3, 3.1)}
    for sample in dataset.samples:
        assert sample.actual == pytest.approx(sample.commanded, abs=1e-6)
        assert len(sample.cloud("left")) + len(sample.cloud("right")) == len(sample.points)
        heights = sample.points[:, 2]
        assert abs(np.mean(heights[np.abs(heights) < 0.04])) < 0.002
        body = sample.points[(heights > 0.1) & (np.hypot(*sample.points[:, :2].T) < 0.9)]
        assert len(body) > 50
        assert np.percentile(surface_distances(dataset, sample, body), 95) < 0.06
    far = max(dataset.samples, key=lambda sample: (sample.commanded["arm"], -sample.commanded["wrist_yaw"]))
    assert far.joints["arm_l1_joint"] == pytest.approx(0.075, abs=1e-6)


def test_an_interrupted_collection_stops_the_arm_and_continues_later(cell, monkeypatch):
    folder = cell.folder("interrupted")
    cell.move_to_first()
    first = ("ros_collect_body_shape_data", folder.name, *SLOW, *GRID, *SIMULATED_TIME)
    with slowly(), cell.graph.running(*first, ready="sample 1 of 4") as process:
        # As if the first one had begun only after the second one asked whether the arm is free.
        monkeypatch.setattr(ArmMotion, "wait_for_driver", lambda _: None)
        second = cell.collect("second", "--yes", "--ignore-obstacles", only_one=False)
        second.assert_failed(2, "arm; wait for it, or end it")
        assert process.poll() is None and not cell.folder("second").exists()
        assert stop(process, signal.SIGINT) == 130
        cell.assert_at_rest()
    assert "Traceback" not in process.stderr.read()
    assert len(read_dataset(folder).samples) == 1
    ended = cell.collect(folder.name, "--yes", code=0)
    assert "1 samples are already in" in ended.out and "3 poses to capture" in ended.out
    assert len(read_dataset(folder).samples) == 4


@pytest.mark.parametrize(
    "moments",
    [
        ["take_data"],  # the answer to the goal has come, and is not yet kept
        ["send_goal_async", "cancel_goal_async"],  # nobody knows of the goal yet; and while the arm is being stopped
    ],
)
def test_a_signal_at_any_moment_of_a_move_stops_the_arm(cell, monkeypatch, moments):
    left = list(moments)

    def signalling(name, original):
        def call(*given, **named):
            result = original(*given, **named)
            if left and left[0] == name and (name != "take_data" or "goal" in result):
                left.pop(0)
                signal.raise_signal(signal.SIGINT)
            return result

        return call

    with monkeypatch.context() as patched, slowly():
        for name in moments:
            owner = ActionClient if hasattr(ActionClient, name) else ClientGoalHandle
            patched.setattr(owner, name, signalling(name, getattr(owner, name)))
        ended = cell.collect("_".join(moments), *SLOW)
    assert (ended.code, left) == (130, []), ended.err
    assert "the arm was stopped" in ended.err
    cell.assert_at_rest()


def test_a_dry_run_says_what_it_would_do_and_does_nothing(cell):
    before = cell.positions()
    ended = cell.collect("dry", "--dry-run", "--json", "--speed-factor", "1", code=0)
    assert "   4. lift 0.5" in ended.err and "of the robot's time" in ended.err
    plan = json.loads(ended.out)
    assert (len(plan["planned"]), plan["skipped"], plan["samples"]) == (4, [], 0) and plan["seconds"] > 5.0
    assert cell.positions() == before and not cell.folder("dry").exists()


def test_a_robot_that_may_not_move_is_not_moved(cell):
    cell.collect("unasked").assert_failed(2, "--yes")
    with cell.runstop():
        cell.collect("stopped", "--yes").assert_failed(1, "runstop is on")
    cell.client.set_mode("trajectory")
    try:
        cell.collect("mode", "--yes").assert_failed(1, "mode is 'trajectory'", "/stretch_simulator")
    finally:
        cell.client.set_mode("position")


def test_a_runstop_on_the_way_ends_the_collection(cell, on_its_way):
    cell.move_to_first()
    with contextlib.ExitStack() as stack, slowly():
        on_its_way(lambda: stack.enter_context(cell.runstop()))
        ended = cell.collect("runstop", *SLOW)
        cell.assert_at_rest()
    ended.assert_failed(3, "runstop")


def test_joint_states_that_fall_silent_on_the_way_are_the_cause_that_is_told(cell, monkeypatch, on_its_way):
    cell.move_to_first()
    on_its_way(lambda: monkeypatch.setattr(RobotState, "publish", lambda *_: None))
    cell.collect("silent", "--yes").assert_failed(3, "/joint_states fell silent")


def test_the_arm_stops_for_somebody_who_comes_near(cell, on_its_way):
    cell.move_to_first()
    visitor = obstacle(cell.graph.simulation, [0.3, 0.4, 1.7], [0.9, -0.6, 0.85])
    with contextlib.ExitStack() as stack, slowly():
        on_its_way(lambda: stack.enter_context(visitor))
        ended = cell.collect("visited", *SLOW, "--watch-room")
        cell.assert_at_rest()
    ended.assert_failed(1, "the arm was stopped: something approached, at x 0.")
    assert len(read_dataset(cell.folder("visited")).samples) == 1


def test_poses_and_the_arms_way_are_checked_before_anything_moves(cell):
    touching = ("--lift", "0.0", "--wrist-pitch", "1.57")
    for _ in range(2):
        cell.collect("touching", "--yes", *touching).assert_failed(1, "none of the 4 poses")
        DatasetWriter(cell.folder("touching"))  # begun, and without a sample
    with obstacle(cell.graph.simulation, [0.3, 0.3, 0.8], [0.62, 0.1, 0.4]):
        cell.collect("cluttered", "--yes").assert_failed(1, "an obstacle is in the arm's way", "--ignore-obstacles")


def test_calibration_homing_and_arrival_are_asked_for(graph):
    with faulty(graph, "--fault", "not_homed,stuck:arm_joint") as (cell, _):
        with mock.patch.object(FrameListener, "GRACE", 2.0):
            cell.collect("data", "--yes").assert_failed(1, "run ros_broadcast_calibration")
        cell.broadcast()
        cell.collect("data", "--yes").assert_failed(1, "not been homed")
        cell.client.call(Trigger, "/home_the_robot")
        cell.collect("data", "--yes").assert_failed(3, "arm_joint by")


def as_a_process(graph, *arguments):
    truth = str(graph.folder / "truth.json")
    return graph.running("stretch_simulator", *arguments, "--truth", truth, ready="simulator ready")


def test_a_driver_that_dies_ends_it(graph, monkeypatch, on_its_way):
    monkeypatch.setattr(watchdog, "STANDSTILL", 1.0)
    with faulty(graph, "--real-time-factor", "1", simulator=as_a_process) as (cell, simulator):
        cell.broadcast()
        cell.move_to_first()
        on_its_way(simulator.kill)
        ended = cell.collect("data", "--yes", "--timeout", str(SILENCE))
        ended.assert_failed(3, "no messages on /joint_states")
        assert "the driver did not confirm that the arm stopped" in ended.err
        assert len(read_dataset(cell.folder("data")).samples) == 1


@pytest.mark.parametrize("moved", [0.0, 0.001])
def test_lidars_intrinsics_are_those_of_the_alignment_that_is_broadcast(tmp_path, monkeypatch, moved):
    monkeypatch.setattr(arm, "load_beside", lambda file: "of the file")
    write_calibration(tmp_path / "calibration.yaml", 0.03)
    given = {option.name: option.default for option in MOUNTS.options}
    options, tree = SimpleNamespace(**given | {"calibration_file": str(tmp_path / "calibration.yaml")}), FrameTree()
    for parent, child, pose in (
        ("base_link", "floor_plane", np.eye(4)), ("base_link", "lidar_left_link", np.eye(4)),
        ("lidar_left_link", "lidar_right_calibrated", RIGHT_TO_LEFT @ from_xyz_rpy((moved, 0.0, 0.0), (0.0,) * 3)),
    ):  # fmt: skip
        tree.connect(parent, child, pose)
    frames = SimpleNamespace(tree=tree, wait_for=lambda *pairs, watchdog: [tree.lookup(*pair) for pair in pairs])
    assert arm.calibrated_poses(options, frames, None).observations == (None if moved else "of the file")


def test_what_of_the_action_is_missing_is_named(ros, monkeypatch):
    monkeypatch.setattr(arm, "ANSWER", 1.0)
    motion = ArmMotion(ros.context, SimpleNamespace(profile=stretch_profile()), None, {})
    with pytest.raises(RunFailure, match="no node offers the action /follow_joint_trajectory"):
        motion.wait_for_driver()
    ros.drivers.create_service(
        FollowJointTrajectory.Impl.SendGoalService, "/follow_joint_trajectory/_action/send_goal",
        lambda _asked, got: got,
    )  # fmt: skip
    with pytest.raises(RunFailure, match=r"discovered only in part \(send_goal 1, cancel_goal 0"):
        motion.wait_for_driver()
