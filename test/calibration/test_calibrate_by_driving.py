"""Calibration by driving: lidars against each other, the floor and the wheels, from a robot that stops on its way."""

import contextlib
import dataclasses
import io
import itertools
import json
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from driving import standing_only
from made_results import by_arm_and_wheels, save
from numpy.lib import recfunctions
from recorded_robot import write_cloud, write_description, write_odometry
from scipy.stats import chi2

import stretch_sim_cal as cal
from stretch_sim_cal import cli
from stretch_sim_cal.calibration.calibration_file import WHEELS, CalibrationFile
from stretch_sim_cal.calibration.drive_problem import STANCE, Drive
from stretch_sim_cal.calibration.drive_results import agreements, drive_stages, with_drive
from stretch_sim_cal.calibration.driving import DrivenArray
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.problem import State
from stretch_sim_cal.calibration.wheel_odometry import (
    DrivingSettings,
    Leg,
    Sweep,
    deviations_of,
    known_after,
    most_gained,
    motions,
    unknown,
)
from stretch_sim_cal.collection import stages
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.geometry.transforms import error, from_xyz_rpy
from stretch_sim_cal.recording.clouds import cloud_attributes, layout, message_bytes
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.recording.stations import stations_of, way_of
from stretch_sim_cal.robot.wheeled_base import WheeledBase
from stretch_sim_cal.sensor.points import POINT_DTYPE
from stretch_sim_cal.simulation.driving import DrivingBase, OdometryErrors

SENSOR = "os0_32_sparse"
SECOND = 1_000_000_000
DRIVE = [(0, 0, np.pi / 2), (0, 0, np.pi), (0, 0, -np.pi / 2), (0.7, 0, 0), (0.7, 0.7, 0)]
UNLIKELY = 1e-4  # of an honest covariance
BASE = WheeledBase("omnidirectional", 0.4, ((0.2, 0.0), (-0.1, 0.17), (-0.1, -0.17)))


@pytest.fixture(scope="module")
def driven():
    return cal.simulate(world="furnished_room", sensor=SENSOR, seed=3, frames=3, drive=DRIVE)


@pytest.fixture(scope="module")
def recorded(driven, tmp_path_factory):
    """A recording of the drive, the file and the report that `calibrate` wrote of it, and the result that it found."""
    folder, found, solve = tmp_path_factory.mktemp("recorded"), [], DrivenArray.solve
    recording, out = folder / "drive", folder / "calibration.yaml"
    record(recording, driven)
    with mock.patch.object(DrivenArray, "solve", lambda array: found.append(solve(array)) or found[0]):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            assert calibrated(recording, out, "--drive", "--json") == 0
    return recording, out, json.loads(said.getvalue()), cal.Result(driven.rig, found[0], found[0].floor)


@pytest.fixture(scope="module")
def result(recorded):
    return recorded[3]


def assert_covered(lidars, *others):
    """Assert that errors of a transform between lidars and of others, three numbers each, are within covariances."""
    for off, freedom in ((lidars, 6), *((each, 3) for each in others)):
        assert freedom * off.nees < chi2.isf(UNLIKELY, freedom)


def calibrated(recording, out, *options):
    return cli.main(["calibrate", str(recording), "--out", str(out), "--sensor", SENSOR, *options])


def test_lidars_floor_wheels_odometry_and_stations_are_found_with_an_honest_covariance(driven, result):
    assert result.accepted, result
    errors = result.errors(driven.truth)
    assert errors.mm < 1.0 and errors.deg < 0.02 and errors.floor.height_mm < 0.7 and errors.floor.tilt_deg < 0.05
    for side, off in errors.wheels.items():
        assert off.mm < 4.0 and off.yaw_deg < 0.8, side
    assert_covered(errors.pairs["left", "right"], errors.floor, errors.wheels["left"])
    assert "relative to the centre of rotation" in str(result) and "direction of driving" in result._repr_html_()
    assert result.wheels.enough and "straight ahead" in result.wheels.gain.words and "deg" in result.wheels.gain.words
    true, found = driven.simulator.driving.errors, result.wheels.odometry
    for name, value in (("scale_y", true.scale[1]), ("turn", true.track_width)):
        assert abs(found[name] - value) < 4.0 * found[f"{name}_std"], name
    assert found["turn_std"] < 0.002 and found["scale_y_std"] < 0.01
    assert 0.3 < result.wheels.slip < 2.0
    start = np.linalg.inv(driven.stations[0].world_from_footprint)
    first = np.linalg.inv(result.wheels.stations[0])
    for found, station in zip(result.wheels.stations, driven.stations, strict=True):
        distance, angle = error(start @ station.world_from_footprint, first @ found)
        assert distance < 0.006 and angle < np.radians(0.03)


@pytest.mark.long
def test_lidars_that_are_turned_far_from_their_description_are_refused(driven):
    turn = from_xyz_rpy(rpy=(0.0, 0.0, np.radians(18.0)))
    rig = dataclasses.replace(driven.rig, footprint_from_base=turn @ driven.rig.footprint_from_base)
    (refusal,) = cal.calibrate_by_driving(rig, driven.stations[2:5]).wheels.refusals
    assert refusal.code == "far_from_description" and refusal.sentence.startswith("relative to the wheels")


@pytest.mark.long
def test_odometry_of_a_point_ahead_of_the_centre_of_rotation_is_a_warning(driven):
    stations = []
    for station in driven.stations[2:]:
        ahead = 0.15 * np.column_stack([np.cos(station.odometry[:, 2]), np.sin(station.odometry[:, 2])])
        stations.append(dataclasses.replace(station, odometry=station.odometry + np.pad(ahead, [(0, 0), (0, 1)])))
    wheels = cal.calibrate_by_driving(driven.rig, stations).wheels
    assert not wheels.refusals
    (warning,) = [each for each in wheels.warnings if each.code == "far_from_description"]
    assert "relative to the wheels" in warning.sentence and "centre of rotation" in warning.remedy


@pytest.mark.long
def test_wheels_that_slip_more_than_expected_make_the_result_unsure_by_as_much(driven, result):
    random = np.random.default_rng(5)
    stations, slipped = [], np.zeros(3)
    for number, station in enumerate(driven.stations):
        if number:
            slipped = slipped + random.normal(size=3) * [0.02, 0.02, np.radians(1.0)]
        said = station.odometry.copy()
        said[-1] += slipped
        stations.append(dataclasses.replace(station, odometry=said))
    found = cal.calibrate_by_driving(driven.rig, stations)
    assert found.wheels.slip > 3.0 and "slippery" in {said.code for said in found.wheels.warnings}
    assert "unobserved_lever" in {said.code for said in found.wheels.refusals} and not found.accepted
    assert 3 * found.errors(driven.truth).wheels["left"].nees < chi2.isf(UNLIKELY, 3)
    # Lidar to lidar is as right and as sure: odometry hardly adds to what the rooms say of it.
    assert_covered(found.errors(driven.truth))
    assert found.errors(driven.truth).mm < result.errors(driven.truth).mm + 0.1
    length, before = (np.sqrt(np.trace(each.alignment.covariance[:3, :3])) for each in (found, result))
    assert length == pytest.approx(before, rel=0.1)


def test_a_robot_that_only_drove_straight_knows_no_lever(driven):
    stations = [driven.stations[0], driven.stations[-2], driven.stations[-1]]
    said = [station.odometry[-1] * [1, 1, 0] for station in stations]
    stations = [dataclasses.replace(each, odometry=own) for each, own in zip(stations, said, strict=True)]
    found = cal.calibrate_by_driving(driven.rig, stations)
    assert "unobserved_lever" in {said.code for said in found.wheels.refusals} and not found.wheels.enough
    assert found.alignment.accepted
    assert found.wheels.gain.of < 2 and found.wheels.gain.after < 0.2 * found.wheels.gain.before
    assert any("turn on the spot" in said.remedy and "in place of" in said.remedy for said in found.wheels.refusals)
    with pytest.raises(Refused, match="centre of rotation"):
        found.save("never.yaml")


@pytest.fixture
def array(driven):
    return DrivenArray({"left": cal.api.DescribedLidar(driven.rig.base_from_left)}, driven.rig.footprint_from_base)


def test_a_floor_that_the_drive_leaves_unsure_is_refused(array, result):
    for deviation, codes in ((0.004, []), (0.006, ["uncertain_floor"])):
        floor = array._floor_of(
            result.floor, np.eye(4), np.diag([0.0, 0.0, deviation, 0.0, 0.0, 0.0]) ** 2, [np.eye(4)]
        )
        assert [said.code for said in floor.refusals] == codes


@pytest.mark.parametrize(
    ("way", "tilt"),
    [
        ([(0.0, 0.0, 0.0)], 0.2),
        ([(0.0, 0.0, 0.0)] * 8, 0.2),  # the same wheels on the same floor
        ([(0.0, 0.0, turn * np.pi / 4) for turn in range(8)], 0.0),
        ([(0.0, 0.0, turn * np.pi) for turn in range(2)], 0.0),
        ([(0.0, 0.0, turn * np.pi / 2) for turn in range(2)], 0.2 / np.sqrt(2.0)),
        ([(20.0 * number, 0.0, 0.0) for number in range(16)], 0.05),
    ],
)
def test_an_uneven_floor_tilts_a_robot_that_turns_to_all_sides(way, tilt, array, result):
    uneven = dataclasses.replace(result.floor, systematic=np.diag([1e-3, *np.radians([0.2, 0.2])]) ** 2)
    stations = [from_xyz_rpy((x, y, 0.0), (0.0, 0.0, yaw)) for x, y, yaw in way]
    floor = array._floor_of(uneven, np.eye(4), np.zeros((6, 6)), stations)
    deviations = np.sqrt(np.maximum(np.linalg.eigvalsh(floor.covariance[1:, 1:]), 0.0))
    assert np.degrees(deviations) == pytest.approx([tilt, tilt], abs=1e-4)
    assert [said.code for said in floor.refusals] == (["uncertain_floor"] if tilt > 0.1 else [])


@pytest.mark.parametrize(("turns", "codes"), [((0, 0, 0, 0), ["floor_near_robot"]), ((0, 1, 2, 3), [])])
def test_a_slope_at_the_first_station_refuses_only_a_drive_without_turns(turns, codes, array, driven, result):
    sloping = dataclasses.replace(result.floor, refusals=[Finding("floor_near_robot", "it is off the plane")])
    stations = [from_xyz_rpy((0.0, 0.0, 0.0), (0.0, 0.0, turn * np.pi / 2)) for turn in turns]
    drive = Drive(State((driven.rig.base_from_left,), (np.zeros(0),)), stations, np.zeros(3), STANCE)
    with mock.patch.object(array._floor, "solve", return_value=sloping):
        _, floor = array._onto_floor(drive)
    assert [said.code for said in floor.refusals] == codes


def test_a_recording_with_stops_is_calibrated_and_written(driven, recorded):
    recording, out, said, result = recorded
    assert set(said) == {"lidars", "floor", "wheels", "file"} and said["wheels"]["num_stations"] == len(DRIVE) + 1
    file = CalibrationFile.load(out)
    for name, pose in result.wheels.footprint_from_lidar.items():
        np.testing.assert_allclose(file.footprint_from_lidar[name], pose, atol=1e-9)
    np.testing.assert_allclose(file.right_to_left, result.left_from_right, atol=1e-9)
    stations = cal.open_drive(recording)
    assert [len(station.clouds["right"]) for station in stations] == [3] * (len(DRIVE) + 1)
    np.testing.assert_allclose(stations[-1].odometry[-1], driven.stations[-1].odometry[-1], atol=1e-3)


def odometry_at(time, x=0.2, angle=0.0):
    """Return a message of odometry at a time in tenths of a second."""
    message = SimpleNamespace
    at = message(x=0.0, y=0.0, z=np.sin(angle / 2), w=np.cos(angle / 2))
    pose = message(position=message(x=x, y=0.1), orientation=at)
    return message(header=message(stamp=message(sec=0, nanosec=time * SECOND // 10)), pose=message(pose=pose))


def test_a_stop_is_where_the_base_rests_and_not_where_it_creeps():
    turned = np.r_[np.zeros(20), np.linspace(0.0, 0.5, 10), 0.4985, 0.4995, 0.4999, np.full(9, 0.5), 0.501, 0.55]
    odometry = [odometry_at(number, angle=angle) for number, angle in enumerate(turned)]
    clouds = [("left", time * SECOND // 10, np.ones((9, 3))) for time in (10, 37)]
    first, second = stations_of("odometry", odometry, clouds, ["left"], 1, continuous=False)
    np.testing.assert_allclose(first.odometry[-1], [0.2, 0.1, 0.0], atol=1e-9)
    np.testing.assert_allclose(second.odometry[-1], [0.2, 0.1, 0.5], atol=1e-9)


def test_a_drive_that_ends_before_a_scan_at_its_second_stop_is_too_short_also_with_scans_on_the_move():
    moved = np.r_[np.zeros(20), np.linspace(0.0, 0.9, 61), np.full(9, 0.9)]
    odometry, clouds = [odometry_at(time, x) for time, x in enumerate(moved)], []
    for time in range(5, 80):
        scan = np.ones(9, POINT_DTYPE)
        scan["timestamp"] = 0.1 * time + np.linspace(0.0, 0.09, 9)
        cloud = odometry_at(time)
        cloud.__dict__.update(fields=layout(), data=message_bytes(scan), **cloud_attributes(scan))
        cloud.header.frame_id = "lidar"
        clouds.append(("left", time * SECOND // 10, cloud))
    with pytest.raises(InputError, match="stood: 2, long enough for a scan of every lidar: 1"):
        stations_of("odometry", odometry, clouds, ["left"], 1, continuous=True)


def test_arm_and_wheels_differ_by_what_their_covariances_say():
    random, squares = np.random.default_rng(1), []
    for _ in range(30):
        both = agreements(by_arm_and_wheels(random))
        assert [each.lidar for each in both] == ["left", "right"]
        squares.append([size**2 for each in both for size in (each.by_wheels, each.by_floor)])
    assert 0.7 < np.mean(squares) < 1.35 and not [said for each in both for said in each.findings()]


def test_an_arm_that_is_elsewhere_on_the_base_is_reported_with_numbers(tmp_path, capsys):
    file = by_arm_and_wheels(np.random.default_rng(1), arm=from_xyz_rpy((0.08, 0.0, 0.0), (0.0, 0.0, 0.0)))
    left, _ = agreements(file)
    assert [said.code for said in left.findings()] == ["arm_and_wheels_differ"]
    assert left.difference[0] == pytest.approx(-0.08, abs=0.015) and abs(left.difference[1]) < 0.015
    assert cli.main(["check", str(tmp_path / "calibration.yaml")]) == 2
    save(file, tmp_path / "calibration.yaml")
    capsys.readouterr()
    cli.main(["check", str(tmp_path / "calibration.yaml"), "--json"])  # of no robot that is described: with problems
    said = json.loads(capsys.readouterr().out)
    assert said["arm_and_wheels"][0]["sigmas_x_y_yaw"] == pytest.approx(left.by_wheels)
    assert any("arm and wheels disagree: left lidar" in each for each in said["concerns"])
    cli.main(["check", str(tmp_path / "calibration.yaml")])
    printed = capsys.readouterr().out
    assert "left lidar to the wheels" in printed and "note: arm and wheels disagree" in printed


def test_a_drive_leaves_the_arm_s_calibration_as_it_is(driven, recorded, tmp_path, monkeypatch, capsys):
    recording, *_, result = recorded
    described, before = driven.rig.base_from_lidar, by_arm_and_wheels(np.random.default_rng(1))
    file = with_drive(before, result.array, "robot", described)
    found = result.wheels.footprint_from_lidar["left"]
    np.testing.assert_allclose(file.footprint_from_lidar["left"], found, atol=1e-12)
    assert file.data | {WHEELS: None} == before.data | {WHEELS: None}
    with pytest.raises(Refused, match="too few; the file keeps its calibration from the arm"):
        with_drive(before, dataclasses.replace(result.array, refusals=["too few"]), "robot", described)
    out = tmp_path / "calibration.yaml"
    save(before, out)
    monkeypatch.setattr(DrivenArray, "solve", lambda array: result.array)
    assert calibrated(recording, out, "--drive") == 0
    said = capsys.readouterr()
    assert "accepted: wheels written" in said.out and "left lidar, by wheels against arm: x" in said.out
    assert "arm and wheels disagree" in said.err  # the mounts are another robot's
    np.testing.assert_allclose(CalibrationFile.load(out).right_to_left, before.right_to_left, atol=1e-12)


def test_of_a_robot_that_only_turned_lidars_and_floor_are_written(result):
    source = SimpleNamespace(footprint_from_base=np.eye(4), described=result.array.base_from_lidar)
    for before, kept in ((CalibrationFile(), False), (by_arm_and_wheels(np.random.default_rng(1)), True)):
        found = stages.drive(source, result.array, before, "robot", wheels=False)
        assert len(found.stages) == 2 + kept and (WHEELS in found.change(CalibrationFile()).data) == kept


def test_refusals_of_a_drive_with_one_lidar_are_those_of_its_floor(result):
    left = {"left": result.array.base_from_lidar["left"]}
    one = dataclasses.replace(result.array, base_from_lidar=left, refusals=["stations differ"])
    floor, wheels = drive_stages(one, one.base_from_lidar, np.eye(4))
    assert floor.result.refusals == ["stations differ"] and not floor.result.accepted and wheels.result.accepted
    with pytest.raises(Refused):
        with_drive(CalibrationFile(), one, "robot", one.base_from_lidar)


def test_what_cannot_be_read_as_a_drive_is_named_in_one_line(driven, tmp_path, capsys):
    recording, out = tmp_path / "standing", tmp_path / "calibration.yaml"
    record(recording, driven, stations=1)
    for options, message in (
        (["--drive"], "places where the robot stood: 1, long enough"),
        (["--drive", "--odometry-topic", "/odom"], "has no topic /odom"),
        (["--odometry-topic", "/odom"], "--odometry-topic applies only to --drive"),
        (["--continuous"], "--continuous applies only to --drive"),
        (["--drive", "--only", "floor"], "not with --drive"),
        (["--drive", "--accept", "0", "1"], "--accept 0 1: 0 mm must be greater than zero"),
    ):  # fmt: skip
        assert calibrated(recording, out, *options) == 2
        assert message in capsys.readouterr().err
    array = DrivenArray({"left": cal.api.DescribedLidar(driven.rig.base_from_left)}, np.eye(4))
    with pytest.raises(InputError, match="station 1: odometry"):
        array.new_station([0.0, np.nan, 0.0])
    with pytest.raises(InputError, match="at least two"):
        array.solve()
    with pytest.raises(InputError, match="slip = 0"):
        DrivingSettings(slip=0.0)
    with pytest.raises(InputError, match="driving: slip: is 'a'; expected a number"):
        DrivingSettings(slip="a")
    for stations, settings, told in (
        ("drive", None, "stations: is 'drive'; expected objects with clouds and odometry"), (5, None, "stations: is 5"),
        ([driven.stations[0].clouds], None, "station 1: is of type dict, which has no clouds"),
        ([dataclasses.replace(driven.stations[0], odometry="x")], None, "station 1: odometry: expected finite numbers"),
        (driven.stations, {"slip": 1.0}, "settings: is of type dict, expected DrivingSettings"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=told):
            cal.calibrate_by_driving(driven.rig, stations, settings)


def test_odometry_of_another_clock_or_without_an_orientation_is_named(driven, tmp_path, capsys):
    odometry = np.vstack([station.odometry for station in driven.stations])
    clouds = [(side, 2000 * SECOND, own[0]) for side, own in driven.stations[0].clouds.items()]
    written(tmp_path / "late", driven, odometry, clouds)
    assert calibrated(tmp_path / "late", tmp_path / "calibration.yaml", "--drive") == 2
    assert "2 of 2 clouds have stamps that are not between those of odometry" in capsys.readouterr().err
    nothing = SimpleNamespace(x=0.0, y=0.0, z=0.0, w=0.0)
    placed = SimpleNamespace(pose=SimpleNamespace(position=nothing, orientation=nothing))
    stamp = SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=0))
    with pytest.raises(InputError, match="/odom: its orientation is a quaternion of length 0; correct the driver"):
        way_of([SimpleNamespace(header=stamp, pose=placed)], "/odom")


RATE = np.radians(20.0)
SLOWLY = [(0, 0, RATE, 17), (0.15, 0, 0, 6)]


@pytest.fixture(scope="module")
def on_the_move():
    errors = {"odometry": {"scale": 0.02, "clock_offset": 0.02}}
    how = {"sensor": SENSOR, "seed": 3, "frames": 9, "simulation": errors}
    return cal.simulate(world="furnished_room", drive=SLOWLY, continuous=True, **how)


@pytest.fixture(scope="module")
def recording_on_the_move(on_the_move, tmp_path_factory):
    folder = tmp_path_factory.mktemp("on_the_move") / "drive"
    record_on_the_move(folder, on_the_move)
    return folder


@pytest.fixture(scope="module")
def result_on_the_move(on_the_move, recording_on_the_move):
    return cal.calibrate_by_driving(on_the_move.rig, cal.open_drive(recording_on_the_move, continuous=True))


def test_points_that_are_measured_on_the_move_are_where_they_would_be_measured_at_rest():
    """Points of a wall, each seen when the base has gone on by an arc."""
    rate, speed, pose, times = 0.4, np.array([0.15, -0.05]), from_xyz_rpy((0.3, 0.2, 1.0), (0.1, -0.2, 0.7)), (7.0, 7.1)
    scales, late, random = np.array([0.02, -0.03, 0.01]), 0.02, np.random.default_rng(1)
    base = DrivingBase(BASE, OdometryErrors(scale=scales[:2], track_width=scales[2], clock_offset=late))
    base.follow([(*speed, rate, 12.0)])
    when = np.linspace(6.9, 7.2, 40)
    sweep = Sweep(7.05, when, np.array([base.odometry(time)[0] for time in when]))
    there = base.poses(np.array([7.05]))[0]
    points, at = random.uniform(-4.0, 4.0, (50, 3)), random.uniform(*times, 50)
    seen = [np.linalg.inv(now @ pose) @ [*point, 1.0] for point, now in zip(points, base.poses(at), strict=True)]
    wanted = [np.linalg.inv(there @ pose) @ [*point, 1.0] for point in points]
    found = sweep.deskewed(np.array(seen)[:, :3], at, pose, scales, late)
    np.testing.assert_allclose(found, np.array(wanted)[:, :3], atol=2e-4)
    assert np.abs(np.array(seen) - np.array(wanted)).max() > 0.05
    np.testing.assert_allclose(sweep.velocity[2], rate, rtol=0.01)


def test_scans_on_the_move_tell_the_clocks_offset(on_the_move, result_on_the_move):
    stations, errors, both = on_the_move.stations, on_the_move.simulator.driving.errors, result_on_the_move
    moving = [station for station in stations if station.sweep is not None]
    assert len(moving) > 6 and len(stations) - len(moving) == len(SLOWLY) + 1
    assert both.accepted, both
    off = both.errors(on_the_move.truth)
    assert_covered(off.pairs["left", "right"], off.floor, off.wheels["left"])
    found = both.wheels.odometry
    assert abs(found["clock"] - errors.clock_offset) < 4.0 * found["clock_std"] and found["clock_std"] < 0.003
    assert abs(errors.clock_offset) > 0.005 and "its stamps are late by" in str(both)
    assert [len(station.clouds["left"]) for station in moving] == [1] * len(moving)


@pytest.mark.long
def test_scans_on_the_move_add_to_few_stops(on_the_move, result_on_the_move):
    alone = cal.calibrate_by_driving(on_the_move.rig, standing_only(on_the_move.stations))
    deviations = (each.wheels.deviations[:, :2] for each in (result_on_the_move, alone))
    assert np.all(next(deviations) < 0.9 * next(deviations))  # by more angles between scans
    assert "clock" not in str(alone)


def test_scans_on_the_move_of_a_recording_are_used_if_they_are_asked_for(
    on_the_move, recording_on_the_move, result_on_the_move, tmp_path, monkeypatch, capsys
):
    recording, solved = recording_on_the_move, []
    assert len(cal.open_drive(recording)) == len(SLOWLY) + 1
    found, given = cal.open_drive(recording, continuous=True), on_the_move.stations
    assert [station.sweep is None for station in found] == [station.sweep is None for station in given]
    for one, other in zip(found, given, strict=True):
        np.testing.assert_allclose(one.odometry[-1], other.odometry[-1], atol=2e-3)
    monkeypatch.setattr(DrivenArray, "solve", lambda array: solved.append(array) or result_on_the_move.array)
    assert calibrated(recording, tmp_path / "calibration.yaml", "--drive", "--continuous", "--json") == 0
    said = json.loads(capsys.readouterr().out)["wheels"]
    assert [own.sweep is None for own in solved[0]._stations] == [station.sweep is None for station in given]
    late = on_the_move.simulator.driving.errors.clock_offset
    assert said["num_stations"] == len(given) and abs(said["odometry"]["clock"] - late) < 0.005


def test_clouds_on_the_move_without_times_and_a_first_station_on_the_move_are_named(driven):
    array = DrivenArray({"left": cal.api.DescribedLidar(driven.rig.base_from_left)}, np.eye(4))
    sweep = Sweep(0.0, np.array([-1.0, 1.0]), np.zeros((2, 3)))
    with pytest.raises(InputError, match="has to stand still at the first station"):
        array.new_station([0.0, 0.0, 0.0], sweep)
    array.new_station([0.0, 0.0, 0.0])
    array.new_station([0.0, 0.0, 1.0], sweep)
    with pytest.raises(InputError, match="station 2: .* a field 'timestamp' in s"):
        array.add({"left": np.ones((10, 5))})
    timed = driven.stations[0].clouds["left"][0].copy()
    timed["timestamp"] = 0.5
    timed[0] = (0.0,) * len(timed.dtype)
    timed["timestamp"][0] = -1e9  # of a miss, as of a driver that has no time for one
    array.add({"left": timed})
    assert array._stations[1].farthest == 0.5
    timed["timestamp"] = 5.0
    with pytest.raises(InputError, match="station 2: its points are of 5.000 to 5.000 s, its sweep of -1.000 to 1.000"):
        array.add({"left": timed})


def test_scans_of_a_tilted_lidar_in_a_fast_turn_are_of_its_sensor(driven):
    rig, clouds = driven.rig, {name: own[0] for name, own in driven.stations[0].clouds.items()}
    lidars = {name: cal.api.DescribedLidar(pose, rig.sensors[name]) for name, pose in rig.base_from_lidar.items()}
    array, end = DrivenArray(lidars, rig.footprint_from_base), float(clouds["left"]["timestamp"].max())
    array.new_station([0.0, 0.0, 0.0])
    array.add(clouds)
    turn = np.linspace(-0.15, 0.15, 7)
    array.new_station([0.0, 0.0, 0.0], Sweep(end, end + turn, np.outer(turn, [0.0, 0.0, np.radians(40.0)])))
    array.add(clouds)
    assert len(array._views()) == 4


@pytest.mark.parametrize(("changes", "told"), [
    ({"without": "timestamp"}, "has no time for each point"), ({"time": min}, "have the same time"),
])  # fmt: skip
def test_clouds_whose_points_have_no_time_of_their_own_are_refused(on_the_move, tmp_path, capsys, changes, told):
    record_on_the_move(tmp_path / "drive", on_the_move, **changes)
    assert calibrated(tmp_path / "drive", tmp_path / "calibration.yaml", "--drive", "--continuous") == 2
    refused = capsys.readouterr().err.splitlines()[-1]
    assert refused.startswith("error: ") and told in refused and "without --continuous" in refused


def test_asking_a_drive_without_scans_on_the_move_for_them_adds_nothing(
    on_the_move, result_on_the_move, tmp_path, monkeypatch, capsys
):
    stops = [station for station in on_the_move.stations if station.sweep is None]
    record_on_the_move(tmp_path / "drive", dataclasses.replace(on_the_move, stations=stops))
    monkeypatch.setattr(DrivenArray, "solve", lambda array: result_on_the_move.array)
    assert calibrated(tmp_path / "drive", tmp_path / "file.yaml", "--drive", "--continuous") == 0
    assert "warning: --continuous adds nothing" in capsys.readouterr().err


def written(folder, driven, odometry, clouds) -> None:
    """Write a recording of a drive: poses by odometry at 20 Hz, and `clouds`, each with its side and its stamp (ns)."""
    with RecordingWriter(folder) as writer:
        write_description(writer, driven.simulator.nominal_description)
        for number, pose in enumerate(odometry):
            write_odometry(writer, "/wheel_odom", pose, SECOND + number * SECOND // 20)
        for side, stamp, cloud in clouds:
            write_cloud(writer, f"/lidar_points_{side}", f"lidar_{side}_link", stamp, cloud)


def record_on_the_move(folder, driven, without: str = "", time=None) -> None:
    """Write a drive in simulated time, with the clouds of all stations, without a field of their points, or with one
    `time` of those of a cloud for all of them."""
    driving, clouds = driven.simulator.driving, []
    for station in driven.stations:
        for side, cloud in ((side, cloud) for side, own in station.clouds.items() for cloud in own):
            stamp, cloud = SECOND + round(cloud["timestamp"].min() * SECOND), cloud.copy()
            cloud["timestamp"] += 1.0
            if time is not None:
                cloud["timestamp"] = time(cloud["timestamp"])
            clouds.append((side, stamp, recfunctions.drop_fields(cloud, without) if without else cloud))
    written(folder, driven, (driving.odometry(moment)[0] for moment in np.arange(0.0, driving.now, 0.05)), clouds)


def record(folder, driven, stations: int | None = None) -> None:
    """Write a drive as a robot records it, with clouds while the robot stands for 2 s."""
    odometry, clouds = [], []
    for station in driven.stations[:stations]:
        odometry += station.odometry.tolist()
        arrived = SECOND + len(odometry) * SECOND // 20
        odometry += 40 * station.odometry[-1:].tolist()
        clouds += [
            (side, arrived + SECOND // 2 + number * SECOND // 10, own[number])
            for number in range(3) for side, own in station.clouds.items()
        ]  # fmt: skip
    written(folder, driven, odometry, clouds)


@pytest.mark.parametrize("scales", [(0.0, 0.0, 0.0), (0.02, -0.01, 0.03)])
def test_a_way_by_odometry_is_the_true_one_once_its_scales_are_taken_out(scales):
    base = DrivingBase(BASE, OdometryErrors(scale=scales[:2], track_width=scales[2]))
    base.follow([(0.0, 0.0, 0.5, 3.0), (0.3, 0.0, 0.0, 3.0), (0.1, 0.2, -0.4, 4.0)])
    base.step(10.5)
    said = np.array([base.odometry(time)[0] for time in np.linspace(0.0, 10.5, 1000)])
    went = base.poses(np.array([10.5]))[0]
    distance, angle = error(went, Leg.along(said).transform(np.array(scales)))
    assert distance < 2e-5 and angle < 1e-6
    if any(scales):
        assert error(went, Leg.along(said[[0, -1]]).transform(np.array(scales)))[0] > 0.01


def test_the_gain_of_a_motion_is_predicted():
    pose, settings = from_xyz_rpy((0.3, 0.1, 0.5), (0.0, 0.0, 0.4)), DrivingSettings(slip_angle=1e-6)
    unsure, scales = np.diag([0.001, 0.001, 0.1, 0.02, 0.02, 0.001]) ** 2, np.zeros(3)
    ahead, further, circle, sideways = motions(strafes=True)
    for motion, metres in ((ahead, 1.0), (further, 2.0), (sideways, 1.0)):
        known = known_after(unsure, scales, settings, 1.0, motion.legs)
        yaw = settings.slip / np.sqrt(metres) / np.sqrt(2)  # what slips to the side over the way, twice
        assert np.sqrt(known[2, 2]) == pytest.approx(yaw, rel=0.02)
        assert deviations_of(known, pose)[2] == pytest.approx(yaw, rel=0.02)
    assert most_gained(unsure, pose, scales, settings, 1.0, motions(strafes=False)).motion == further.words
    far = np.diag([0.1, 0.1, 0.001, 0.02, 0.02, 0.001]) ** 2
    found = most_gained(far, pose, scales, settings, 2.0, motions(strafes=False))
    assert found.motion == circle.words and found.of < 2 and found.after < 0.02 * found.before
    # The wheels' way in a circle and back, and what they slip on it, twice what is expected.
    turned = np.sqrt(np.pi / 4 * settings.track_width / 2) * 2 * settings.slip
    assert found.after == pytest.approx(turned / (2 * np.sin(np.pi / 8)) / np.sqrt(16), rel=0.05)
    assert most_gained(1e-12 * np.eye(6), pose, scales, settings, 1.0, motions(strafes=True)) is None


def test_the_expected_deviations_of_a_drive_are_those_of_its_result(driven, result):
    def expected(stops):
        legs = [Leg.along(np.array(way, dtype=float)) for way in itertools.pairwise([(0, 0, 0), *stops])]
        known = known_after(unknown(DrivingSettings()), np.zeros(3), DrivingSettings(), 1.0, legs)
        return deviations_of(known, driven.truth.footprint_from_lidar["left"])

    np.testing.assert_allclose(expected(DRIVE), result.wheels.deviations[0] / result.wheels.slip, rtol=0.5)
    assert expected(DRIVE[:2])[2] > 0.1  # without a straight way


def test_slip_on_a_way_scatters_by_its_covariance():
    settings, legs = DrivingSettings(slip=0.01, slip_angle=0.02, track_width=0.4), []
    errors = OdometryErrors(slip=0.01, slip_angle=0.02)
    for seed in range(40):
        base = DrivingBase(BASE, errors, seed=seed)
        base.follow([(0.0, 0.0, 1.0, 1.5), (0.5, 0.0, 0.0, 2.0)])
        base.step(4.5)
        leg = Leg.along(np.array([base.odometry(time)[0] for time in np.linspace(0.0, 4.5, 40)]))
        off = np.linalg.inv(leg.transform(np.zeros(3))) @ base.poses(np.array([4.5]))[0]
        legs.append(np.linalg.solve(leg.slip_root(settings), [off[0, 3], off[1, 3], np.arctan2(off[1, 0], off[0, 0])]))
    scatter = np.cov(np.array(legs).T)
    assert np.abs(np.array(legs).mean(axis=0)).max() < 0.25
    np.testing.assert_allclose(scatter, np.eye(3), atol=0.4)


@pytest.mark.long
def test_the_clock_of_odometry_is_off_by_its_standard_deviation():
    rate, ratios = np.radians(36.0), []
    drive = [*((0, 0, sign * rate, 5) for sign in (1, 1, -1, -1)), *((sign * 0.3, 0, 0, 2.7) for sign in (1, -1))]
    for seed in range(1, 9):
        sim = cal.simulate(sensor=SENSOR, seed=seed, frames=1, drive=drive, continuous=True)
        odometry = cal.calibrate_by_driving(sim.rig, sim.stations).wheels.odometry
        ratios.append((odometry["clock"] - sim.simulator.driving.errors.clock_offset) / odometry["clock_std"])
    assert 0.3 < np.mean(np.square(ratios)) < 3.0, ratios
