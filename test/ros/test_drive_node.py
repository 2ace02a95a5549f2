"""ros_calibrate_by_driving against simulated robots over DDS: a calibration, or a base that was stopped."""

import contextlib
import json
import signal
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from node_process import FEW_RAYS, FEW_RAYS_AMR, PATIENCE, SIMULATED_TIME, alone, node_in, obstacle, simulated_robot
from rclpy.node import Node

import stretch_sim_cal as cal
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.geometry.planes import footprint_from_base
from stretch_sim_cal.geometry.transforms import error
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.scenario import defaults_of
from stretch_sim_cal.harness.verdict import judge_stage, load_truth
from stretch_sim_cal.ros import base_motion
from stretch_sim_cal.ros.base_motion import BaseMotion
from stretch_sim_cal.ros.node_commands import DRIVE
from stretch_sim_cal.ros.permission import SoleUse
from stretch_sim_cal.ros.simulated_drivers import LidarDrivers

AMR = ("--robot", "two_lidar_amr", "--sensor", FEW_RAYS_AMR)
STRETCH = ("--sensor", FEW_RAYS)
ERRORS = (
    "--lidar-left-error", "0.004,-0.003,0.002,0.3,-0.2,0.4",
    "--lidar-right-error", "-0.004,0.003,0.002,0.2,0.3,-0.4", "--seed", "3",
)  # fmt: skip
SHORT = ("--turn-step", "180", "--scans", "1", "--speed", "0.4", "--turn-speed", "60")
TOLERANCES = defaults_of("drive") | {
    "translation_mm": 2.0, "rotation_deg": 0.06, "height_mm": 2.0, "lever_mm": 6.0, "yaw_deg": 0.8,
    "nees": 4.0, "floor_nees": 5.0, "wheels_nees": 5.0,
}  # fmt: skip
SLOWLY = ("--speed", "0.3", "--turn-speed", "36")  # scans on the move are of use


class Robot:
    """A simulated robot with its `simulation`, the `commands` that came to its base, and a client beside it."""

    def __init__(self, graph, client, own):
        self.graph, self.client, self.simulation, self.own = graph, client, graph.simulation, own
        self.commands, command = [], self.simulation.driving.command

        def recorded(*twist_and_stamp):
            self.commands.append(twist_and_stamp[:3])
            command(*twist_and_stamp)

        self.simulation.driving.command = recorded

    def calibrate(self, name, *arguments, only_one=True, **how):
        """Run the node in this process with the folder of that name; `commands` are those of this run."""
        self.commands.clear()
        arguments = (*self.own, *SHORT, *arguments, *SIMULATED_TIME)
        with alone() if only_one else contextlib.nullcontext():
            return self.graph.call("ros_calibrate_by_driving", name, *arguments, **how)

    def folder(self, name):
        return self.graph.folder / name

    def place(self):
        """Return x, y and yaw by odometry, now."""
        return self.simulation.driving.odometry(self.simulation.driving.now)[0]

    def assert_was_stopped(self, ended):
        """Assert that zero was the last that was commanded, after something else, and that the robot stands."""
        assert "the base was stopped" in ended.err and "Traceback" not in ended.err
        before = self.place()
        self.client.spin_for(0.5)
        np.testing.assert_array_equal(self.place(), before)
        assert np.abs(self.commands).max() > 0.1 and not any(self.commands[-1])


@contextlib.contextmanager
def simulated(folder, own, *arguments):
    patient = mock.patch.object(base_motion, "STOPPING", PATIENCE)
    with patient, simulated_robot(folder, *own, *arguments) as (graph, client):
        yield Robot(graph, client, own)


@pytest.fixture(scope="module")
def amr(tmp_path_factory):
    """A robot whose wheels do not slip. Slip, which a seed draws over the wheels' way, is the same in every run of a
    drive, and hides what the clouds' and odometry's times are off."""
    folder = tmp_path_factory.mktemp("amr")
    scenario = folder / "without_slip.yaml"
    scenario.write_text("simulation: {odometry: {slip_mm: 0, slip_deg: 0}}")
    with simulated(folder, AMR, *ERRORS, "--scenario", str(scenario)) as robot:
        yield robot


@pytest.fixture
def on_its_way(monkeypatch):
    """A function that lets something happen once, when the robot drives faster than 0.1 m/s or rad/s."""

    def do(action):
        command, left = BaseMotion._command, [action]

        def commanded(motion, twist):
            command(motion, twist)
            if left and np.abs(twist).max() > 0.1:
                left.pop()()

        monkeypatch.setattr(BaseMotion, "_command", commanded)

    return do


@pytest.mark.parametrize("how", [(), pytest.param((*SLOWLY, "--continuous"), marks=pytest.mark.long)])
def test_a_drive_finds_lidars_and_wheels_and_is_a_recording(amr, how):
    before, drive = amr.place(), "continuous" if how else "whole"
    ended = amr.calibrate(drive, *how, "--target-deg", "0.25", "--yes", "--json", code=0)
    assert "8 stops" in ended.err and "stop 6 of 8" in ended.err
    assert "the drive ends after 6 of 8 stops, target reached: x, y and yaw of every lidar" in ended.err
    said, file = json.loads(ended.out.splitlines()[-1]), CalibrationFile.load(amr.graph.calibration_file)
    assert said["accepted"] and said["file"] == str(amr.graph.calibration_file)
    truth, files = load_truth(amr.folder("truth.json")), RunFiles(amr.graph.folder)
    files.calibration = amr.graph.calibration_file
    judged = judge_stage("drive", files, truth, TOLERANCES)
    assert judged.passed, [quantity.line() for quantity in judged.quantities]
    assert {each.key for each in judged.quantities} >= {
        "translation_error_mm", "height_error_mm", "right.yaw_error_deg", "left.wheels_nees",
    }  # fmt: skip
    over_floor = footprint_from_base(truth.floor_in_base_link)
    for name, true in truth.base_from_lidar.items():
        (lever,) = (each for each in judged.quantities if each.key == f"{name}.lever_error_mm")
        off = 1e-3 * np.array([said["wheels"]["lidars"][name][axis] for axis in ("x_mm", "y_mm")])
        off -= (over_floor @ true)[:2, 3]
        assert lever.error == pytest.approx(1e3 * np.hypot(*off)) and 0.0 < lever.standard_deviation < 5.0
        assert error(file.footprint_from_lidar[name], over_floor @ true)[0] < 0.01
    # In a simulation that runs three times as fast, what is heard and commanded is three times as late.
    np.testing.assert_allclose(amr.place()[:2], before[:2], atol=0.12)
    stations = cal.open_drive(amr.folder(drive), robot="two_lidar_amr")
    assert [len(station.clouds["right"]) for station in stations] == [1] * 7
    if how:
        odometry, late = said["wheels"]["odometry"], amr.simulation.driving.errors.clock_offset
        assert odometry["clock_std"] < 0.0005 and abs(odometry["clock"] - late) < 4.0 * odometry["clock_std"]
        stations = cal.open_drive(amr.folder(drive), robot="two_lidar_amr", continuous=True)
        assert len(stations) > 7 + 10
    assert len(stations) == said["wheels"]["num_stations"]


def test_a_dry_run_says_where_it_would_drive_and_does_not(amr):
    before = amr.place()
    ended = amr.calibrate("dry", "--dry-run", "--json", code=0)
    plan = json.loads(ended.out.splitlines()[-1])
    assert len(plan["stops"]) == 8 and plan["note"] == "" and 20.0 < plan["seconds"] < 60.0
    assert 0.2 < max(plan["expected_mm"]) < 2.0 and 0.1 < plan["expected_yaw_deg"] < 0.2
    assert plan["ends_after"] == 8 and "target reached" in plan["ends_because"]
    longer = json.loads(amr.calibrate("dry", "--dry-run", "--json", "--target-deg", "0.12").out.splitlines()[-1])
    assert longer["ends_after"] > 8 and longer["expected_yaw_deg"] < 0.12
    assert "its body stays within 1.3 m" in ended.err
    np.testing.assert_array_equal(amr.place(), before)
    assert not amr.commands and not amr.folder("dry").exists()


def test_what_keeps_it_from_driving_is_said_in_one_line(amr):
    amr.calibrate("unasked").assert_failed(2, "--yes")
    amr.folder("there").mkdir()
    amr.calibrate("there", "--yes").assert_failed(2, "exists already")
    with mock.patch.object(base_motion, "DISCOVERED", 0.5):
        unheard = amr.calibrate("command", "--yes", "--command-topic", "/base/cmd_vel")
    unheard.assert_failed(3, "no node subscribes")
    with visitor(amr, 0.9):
        amr.calibrate("narrow", "--yes").assert_failed(1, "no room to turn")
    assert not amr.folder("narrow").exists()


def test_a_robot_that_another_calibration_drives_is_left_alone(amr, monkeypatch):
    """Also if it computes, and calls none back; and if it began only after this one had looked for it."""
    before, looks = amr.place(), iter([lambda _: None, SoleUse.refuse_second])
    with node_in(amr.graph.domain, DRIVE.node_name) as (node, _):
        with SoleUse(SimpleNamespace(node=node, discovers=lambda _: False), "base", "/cmd_vel").held():
            for name in ("second", "late"):
                ended = amr.calibrate(name, "--yes", only_one=False)
                ended.assert_failed(2, "another calibration is moving the base")
                monkeypatch.setattr(SoleUse, "refuse_second", lambda use: next(looks)(use))
    np.testing.assert_array_equal(amr.place(), before)
    assert not amr.commands and not amr.folder("second").exists()


def test_clouds_with_one_time_for_all_points_do_not_let_it_scan_on_the_move(amr, monkeypatch):
    """As Gazebo's are, and those of drivers that know no other time."""
    scan = amr.simulation.scan

    def timeless(*arguments):
        cloud = scan(*arguments)
        cloud["timestamp"] = cloud["timestamp"].min(initial=np.inf)
        return cloud

    monkeypatch.setattr(amr.simulation, "scan", timeless)
    amr.calibrate("timeless", "--continuous", "--yes").assert_failed(2, "have the same time", "without --continuous")
    assert not amr.commands and not amr.folder("timeless").exists()


def test_it_stops_for_somebody_who_comes_near(amr, on_its_way):
    with contextlib.ExitStack() as stack:
        on_its_way(lambda: stack.enter_context(visitor(amr, 0.8)))
        ended = amr.calibrate("visited", "--yes")
    ended.assert_failed(1, "the robot was stopped: an obstacle near its path")
    amr.assert_was_stopped(ended)


def test_it_stops_if_a_lidar_falls_silent(amr, on_its_way, monkeypatch):
    on_its_way(lambda: monkeypatch.setattr(LidarDrivers, "step", lambda *_: None))
    ended = amr.calibrate("blind", "--yes")
    ended.assert_failed(3, "no messages on /")
    amr.assert_was_stopped(ended)


def visitor(robot, distance):
    """Somebody stands so far (m) from the robot's axis, ahead of it."""
    x, y, yaw = robot.simulation.driving._true
    place = [x + distance * np.cos(yaw), y + distance * np.sin(yaw), 0.85]
    return obstacle(robot.simulation, [0.3, 0.3, 1.7], place)


def test_a_base_with_modes_and_plain_twists(tmp_path, on_its_way):
    with simulated(tmp_path, STRETCH, "--world", "empty_hall") as stretch:
        asked, known = [], Node.get_publishers_info_by_topic

        def found_late(node, topic):  # as for a node that has not found the driver yet
            asked.append(topic)
            return known(node, topic) if asked.count(topic) > 3 else []

        with mock.patch.object(Node, "get_publishers_info_by_topic", found_late):
            ended = stretch.calibrate("mode", "--yes")
        ended.assert_failed(1, "mode is 'position', it has to be navigation or velocity")
        stretch.client.set_mode("navigation")
        on_its_way(lambda: signal.raise_signal(signal.SIGTERM))
        ended = stretch.calibrate("ended", "--yes", code=143)
        assert "0.80 m right" in ended.out and (stretch.folder("ended") / "metadata.yaml").exists()
        stretch.assert_was_stopped(ended)
