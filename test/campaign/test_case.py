"""A case: its inputs reach what is simulated, its stages what is judged, and the real nodes come to the same."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from made_results import save

from stretch_sim_cal.calibration import pipeline
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.lidars import with_lidars
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.campaign import case
from stretch_sim_cal.campaign.plan import INPUTS, TOOLS, Campaign, contradicts
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.files import find_shared, read_yaml, share_directory, write_yaml
from stretch_sim_cal.geometry.transforms import SIDES, exp, inverse, log
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.run import run_scenario
from stretch_sim_cal.robot.stretch import WITHOUT_TOOL, available_tools
from stretch_sim_cal.sensor.points import coordinates
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.truth import nees

pytestmark = pytest.mark.usefixtures("quick_pictures")

FEW_RAYS = str(Path(__file__).parents[1] / "ros" / "few_rays_amr.yaml")
CAMPAIGN = Campaign.from_mapping({"name": "tried", "sensor": "jt128_sparse_real"}, "tried.yaml")
DEFAULTS = {name: known.default for name, known in INPUTS.items()}


def simulated(folder, **changed: float):
    """Return the simulator of the default case with inputs changed, dots written as two underscores."""
    numbers = DEFAULTS | {name.replace("__", "."): value for name, value in changed.items()}
    return case.SimulatedCase(CAMPAIGN, numbers, (1, 2), folder).simulator


def test_a_payload_is_held_where_the_lidars_see_it(tmp_path):
    simulator = simulated(tmp_path, robot__payload=1)
    box = simulator.true_surfaces()["payload_0_link"].vertices
    assert box[:, 2].min() > 0.1 and np.abs(box[:, :2]).max() < 0.3
    scans = [simulator.labelled_scan(device, 0) for device in ("left", "right")]
    assert any("payload_0_link" in {names[index] for index in np.unique(surfaces)} for _, surfaces, names in scans)


def test_the_noise_asked_for_is_that_of_the_simulated_lidars(tmp_path):
    exact, usual, noisy = (simulated(tmp_path, lidar__noise=noise, room__furniture=0) for noise in (0, 1, 2))
    for device in ("left", "right"):
        # Points at all rays, also those without a return, so that rows are the same rays.
        scans = [coordinates(one.scan(device, 0)) for one in (exact, usual, noisy)]
        seen = np.all([np.linalg.norm(scan, axis=1) > 0 for scan in scans], axis=0)
        ranges = [np.linalg.norm(scan[seen], axis=1) for scan in scans]
        scatter = [np.median(np.abs(one - ranges[0])) for one in ranges[1:]]
        assert 1.6 < scatter[1] / scatter[0] < 2.4, scatter


def test_joint_origin_errors_are_seen_by_the_lidars_alone(tmp_path):
    simulator = simulated(tmp_path, robot__links_mm=2)
    exact = simulated(tmp_path)
    assert simulator.nominal_description == exact.nominal_description
    there, where_said = (one.true_surfaces()["lift_link"].vertices for one in (simulator, exact))
    assert 1e-4 < np.linalg.norm(there - where_said, axis=1).max() < 0.05
    assert np.array_equal(simulator.base_from_lidar("left"), exact.base_from_lidar("left"))


def test_a_zero_that_is_off_moves_what_hangs_on_it_and_nothing_else(tmp_path):
    simulator, exact = (simulated(tmp_path, robot__zeros_mm=off) for off in (4, 0))
    assert simulator.nominal_description == exact.nominal_description
    said = exact.true_surfaces()
    moved = {link: surface.vertices - said[link].vertices for link, surface in simulator.true_surfaces().items()}
    lift, arm = (moved[link].mean(axis=0) for link in ("lift_link", "arm_l0_link"))
    assert 1e-4 < abs(lift[2]) < 0.02 and np.abs(lift[:2]).max() < 1e-9
    assert np.allclose(moved["lift_link"], lift, atol=1e-9) and not moved["base_link"].any()
    assert np.linalg.norm(moved["arm_l3_link"].mean(axis=0) - arm) > 1e-5  # three of the arm's four segments


def test_a_case_has_its_tool(tmp_path):
    assert set(TOOLS) <= set(available_tools())
    usual, tablet, nothing = (
        simulated(tmp_path, robot__tool=tool, robot__payload=1).true_surfaces()
        for tool in (0, 1 + TOOLS.index("eoa_wrist_dw4_tool_tablet"), 1 + TOOLS.index(WITHOUT_TOOL))
    )
    assert "gripper_finger_left_link" in set(usual) - set(tablet)
    assert "payload_0_link" in set(usual) & set(tablet) - set(nothing)  # nothing can hold nothing


class Refusing:
    """A method that refuses until it was given two standing places, and counts what it was given."""

    def __init__(self, guess, settings):
        self.guess, self.pairs = guess, [0]

    def new_place(self):
        self.pairs.append(0)

    def add(self, left, right):
        self.pairs[-1] += 1

    def solve(self):
        counts = {f"pairs_{number}": count for number, count in enumerate(self.pairs)}
        refusals = ["slides along x"] if len(self.pairs) < 2 else []
        return AlignmentResult(
            self.guess, np.eye(6), 0.0, sum(self.pairs), "mine", 1.0, [], refusals=refusals, diagnostics=counts
        )  # fmt: skip


def test_after_a_refusal_the_robot_is_turned_and_recorded_again(tmp_path, monkeypatch):
    for module in (case, pipeline.methods):
        monkeypatch.setattr(module, "alignment_method", lambda name: Refusing)
    campaign, places = replace(CAMPAIGN, methods=CAMPAIGN.methods | {"alignment": "mine"}), {}
    for most in (1, 3):
        numbers = DEFAULTS | {"recording.places": most, "recording.alignment_frames": 2}
        tried = case.SimulatedCase(campaign, numbers, (1, 2), tmp_path)
        aligned = tried.aligned
        places[most] = [*aligned.diagnostics.values()], aligned.accepted, tried.num_places
    assert places == {1: ([2], False, 1), 3: ([2, 2], True, 2)}


class QuickCase(case.SimulatedCase):
    def _grids(self, settings, plan):
        return super()._grids(settings, "quick")


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """A case of another robot than the Stretch, of alignment, floor, mounts and body shape with few frames."""
    frames = {"alignment": 5, "floor": 3, "mounts": 1, "body_shape": 1}
    said = {
        "name": "tried", "robot": "two_lidar_manipulator", "sensor": "xt32_sparse",
        "stages": ["alignment", "floor", "mounts"],
        "inputs": {f"recording.{stage}_frames": count for stage, count in frames.items()},
    }  # fmt: skip
    campaign = Campaign.from_mapping(said, "tried.yaml")
    return QuickCase(campaign, campaign.numbers(1), (1, 1), tmp_path_factory.mktemp("case"))


def test_another_robots_case_has_its_lidars_and_alignment_floor_and_mounts_are_judged(tried):
    frames = [each.frame for each in tried.simulator.profile.lidars.values()]
    assert frames == ["front_laser_link", "rear_laser_link"]
    record = case._solved(tried)
    assert all(record[f"{stage}.accepted"] for stage in tried.campaign.stages), record
    assert record["alignment.translation_mm"] < 2.0 and record["alignment.nees"] < 4.0
    # Ranges of an xt32 may be off by millimetres, so its floor may.
    assert record["floor.height_mm"] < 5.0 and record["floor.nees"] < 5.4
    assert 0.0 < record["mounts.translation_mm"] < 10.0 and 0.0 < record["mounts.rotation_deg"] < 1.0
    assert not contradicts(record["mounts.sigmas"] ** 2, tried.campaign.freedom["mounts"])


def test_the_body_shape_is_held_against_the_true_robot_with_the_calibration_found(tried, monkeypatch):
    found = tried.body_shape
    assert found["accepted"] and 1.0 <= found["area_ratio"] < 1.05, found
    # What the floor's tilt and the mounts put the lidars off by is in the shape: it sticks out by some of it, no more.
    assert 0.0 < found["protrusion_mm"] < 10.0 and 0.0 < found["between_mm"] < 10.0

    def too_small(*asked):
        raise Refused("40 mm of the robot protrude")

    monkeypatch.setattr(case, "fit_dataset", too_small)
    del tried.body_shape
    assert tried.body_shape == {"accepted": False, "refusals": "40 mm of the robot protrude"}


def test_errors_of_another_robots_joints_leave_its_lidars_where_they_are(tmp_path):
    campaign = Campaign.load("smoke").of_robot("two_lidar_manipulator")
    assert (campaign.sensor, campaign.name) == ("xt32", "smoke_two_lidar_manipulator")
    moved = set(case.SimulatedCase(campaign, DEFAULTS | {"robot.links_mm": 3.0}, (1, 2), tmp_path).setup.joint_errors)
    assert "elbow_joint" in moved and not any("laser" in joint or "post" in joint for joint in moved)


@pytest.mark.long
def test_the_most_wrong_case_that_a_search_found_is_what_its_covariance_says():
    worst = Campaign.load("worst")
    record = case.run_numbers(worst, worst.numbers(0), (1, 0, 96))
    assert record["alignment.accepted"] and record["floor.accepted"]
    assert 5.0 < record["floor.height_mm"] < 10.0  # still the case that it was
    for stage in worst.stages:
        assert not contradicts(record[f"{stage}.sigmas"] ** 2, worst.freedom[stage]), record


def test_a_drive_is_judged_with_the_other_stages(monkeypatch):
    monkeypatch.setattr(case, "SPIN", [(0.0, 0.0, np.pi / 2), (0.0, 0.0, np.pi)])
    monkeypatch.setattr(case, "STRAIGHT", [(0.6, 0.0, 0.0)])
    inputs = {"recording.alignment_frames": 3, "recording.floor_frames": 2, "recording.drive_frames": 2,
              "odometry.slip_mm": 1, "room.furniture": 2}  # fmt: skip
    said = {"name": "tried", "robot": "two_lidar_amr", "sensor": FEW_RAYS, "inputs": inputs,
            "stages": ["alignment", "floor", "drive"], "limits": {"drive.lever_mm": 5}}  # fmt: skip
    campaign = Campaign.from_mapping(said, "tried.yaml")
    record = case.run_case(campaign, 0)
    assert record["drive.between_mm"] < 2 and record["drive.height_mm"] < 5 and record["drive.lever_mm"] < 10
    assert record["drive.yaw_deg"] <= record["drive.rotation_deg"] + 1e-9 < 0.6
    assert campaign.freedom["drive"] == 12 and not contradicts(record["drive.sigmas"] ** 2, 12)
    assert [lidar["name"] for lidar in record["drive.lidars"]] == ["left", "right"]


def test_a_robot_with_one_lidar_has_nothing_to_align_and_its_floor_is_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(case, "run_scenario", partial(run_scenario, in_process=True))
    profile = read_yaml(find_shared("config/robots", "two_lidar_amr", ".yaml"))
    del profile["lidars"]["right"]
    profile["description"] = str(share_directory() / "models" / "two_lidar_amr.urdf.xacro")
    write_yaml(tmp_path / "robot.yaml", profile)
    inputs = {"recording.alignment_frames": 1, "recording.floor_frames": 3}
    said = {"name": "tried", "robot": str(tmp_path / "robot.yaml"), "sensor": FEW_RAYS, "inputs": inputs, "nodes": 1.0}
    record = case.run_case(Campaign.from_mapping(said, "tried.yaml"), 0)
    assert record["alignment.accepted"] and record["alignment.translation_mm"] == 0.0 and not record["alignment.lidars"]
    assert record["alignment.sigmas"] is None and record["floor.sigmas"] < 5.0
    assert record["nodes.agree"], record["nodes.message"]


@pytest.mark.parametrize(
    ("methods", "last"),
    [
        ({"alignment": "gicp", "floor": "published"}, ["body_shape"]),
        pytest.param({}, ["mounts"], marks=pytest.mark.long),
    ],
)
def test_a_case_of_more_lidars_has_a_result_of_each_and_its_nodes_come_to_the_same(
    tmp_path, monkeypatch, methods, last
):
    monkeypatch.setattr(case, "run_scenario", partial(run_scenario, in_process=True))
    inputs = {"recording.alignment_frames": 4, "recording.floor_frames": 3, "recording.body_shape_frames": 1}
    stages = ["alignment", "floor", *last]
    said = {"name": "tried", "robot": "three_lidar_amr", "sensor": FEW_RAYS, "stages": stages, "nodes": 1.0}
    campaign = Campaign.from_mapping(said | {"methods": methods, "inputs": inputs}, "tried.yaml")
    freedom = {"alignment": 12, "floor": 3, "mounts": 18, "body_shape": 0}
    assert campaign.freedom == {stage: freedom[stage] for stage in stages}
    record = case.run_case(campaign, 1, tmp_path)
    assert all(record[f"{stage}.accepted"] for stage in stages), record
    names = {"alignment.lidars": ["right", "mast"], "mounts.lidars": ["left", "right", "mast"]}
    for key in filter(record.__contains__, names):
        stage, found = key.partition(".")[0], record[key]
        assert [one["name"] for one in found] == names[key]
        assert record[f"{stage}.translation_mm"] == max(one["translation_mm"] for one in found) < 3.0
        assert record[f"{stage}.rotation_deg"] == max(one["rotation_deg"] for one in found) < 0.3
        assert not contradicts(record[f"{stage}.sigmas"] ** 2, campaign.freedom[stage])
    assert (tmp_path / "clouds.png").is_file()
    assert record["nodes.agree"] and record["nodes.message"] == "", record
    assert record["nodes.alignment.sigmas"] > 0 and (methods or record["nodes.floor.sigmas"] > 0)


def test_every_lidar_has_errors_of_its_own(tmp_path):
    campaign = Campaign.from_mapping({"name": "tried", "robot": "three_lidar_amr", "sensor": "jt128_sparse_real"}, "x")
    setup = case.SimulatedCase(campaign, campaign.numbers(0), (1, 2), tmp_path).setup
    units = {name: load_sensor(file).unit.values for name, file in setup.units.items()}
    assert set(units) == {"left", "right", "mast"} and len({values.tobytes() for values in units.values()}) == 3
    poses = setup.lidar_errors.values()
    assert (
        list(setup.lidar_errors) == ["left", "right", "mast"]
        and len(set(poses)) == 3
        and all(np.linalg.norm(pose.xyz) == pytest.approx(0.005) for pose in poses)
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "places", "furthest", "most"),
    [
        pytest.param(40, 2, 0.003, 3.0, id="by 27 mm"),
        # From two or three places, as the processor's rounding has it; up to 5 mm of standard deviation are accepted.
        pytest.param(33, 3, 0.008, 4.0, id="by incidence errors of 6 mm"),
    ],
)
def test_lidars_whose_ranges_differ_are_aligned_where_that_looks_like_a_shift(number, places, furthest, most, tmp_path):
    """Domes in rooms that from one place hardly determine a shift along one direction apart from how their ranges
    differ; what is not flat seemed to show that these agree."""
    campaign = Campaign.load("release")
    tried = case.SimulatedCase(campaign, campaign.numbers(number), (campaign.seed, number), tmp_path)
    aligned, true = tried.aligned, [tried.simulator.base_from_lidar(name) for name in SIDES]
    off = log(inverse(true[0]) @ true[1] @ inverse(aligned.to_first["right"]))
    assert not aligned.refusals and tried.num_places <= places
    assert np.linalg.norm(off[:3]) < furthest
    assert nees(off, aligned.covariance_to_first) < most


WITH_NODES = Campaign.from_mapping(
    {"name": "with nodes", "robot": "two_lidar_amr", "sensor": FEW_RAYS, "nodes": 0.25, "inputs": {
        "recording.alignment_frames": 4, "recording.floor_frames": 3, "lidar.noise": 0.5,
    }}, "campaign.yaml",
)  # fmt: skip


def test_the_share_of_cases_through_nodes_is_spread_over_the_indices_without_a_pushed_robot():
    numbers = WITH_NODES.numbers(0)
    chosen = [index for index in range(400) if case.goes_through_nodes(WITH_NODES, index, numbers)]
    assert len(chosen) == 100 and chosen[0] == 0 and np.diff(chosen).max() <= 5
    assert not case.goes_through_nodes(WITH_NODES, 0, numbers | {"recording.moved_mm": 3.0})


@pytest.mark.long
@pytest.mark.parametrize(
    "robot",
    [{}, {"robot": "three_lidar_amr", "methods": {"alignment": "gicp", "floor": "published"}}],
    ids=["two", "three lidars"],
)
def test_nodes_in_processes_of_their_own_and_arrays_come_to_the_same(tmp_path, robot):
    found = case.run_case(Campaign.from_mapping(WITH_NODES.data | robot, "its.yaml"), 0, tmp_path)
    assert found["alignment.accepted"] and found["floor.accepted"]
    assert found["nodes.agree"] and found["nodes.message"] == "", found
    assert found["nodes.alignment.sigmas"] > 0 and (robot or found["nodes.floor.sigmas"] > 0)


def last_lidar_moved(result):
    *_, (name, pose) = result.base_from_lidar.items()
    moved = exp(np.array([0, 0.05, 0, 0, 0, 0])) @ pose
    return replace(result, base_from_lidar=result.base_from_lidar | {name: moved})


@pytest.mark.parametrize(
    ("changed", "broken", "said"),
    [
        (last_lidar_moved, False, "alignment: the nodes' result is .* standard deviations from the arrays'"),
        (lambda result: replace(result, refusals=["too few walls"]), False,
         "alignment: accepted by the nodes but not by the arrays: too few walls"),
        (lambda result: result, True, "the simulator died$"),
        (lambda result: result, False, "$"),
    ],
)  # fmt: skip
def test_other_results_than_the_nodes_and_broken_runs_are_told(tried, tmp_path, monkeypatch, changed, broken, said):
    ended = SimpleNamespace(broken=broken, refused="", reasons=["the simulator died"] * broken)
    monkeypatch.setattr(case, "run_scenario", lambda *a, **k: ended)
    written = with_lidars(CalibrationFile(), tried.aligned, "").with_floor(tried.floor, "")
    save(written, RunFiles(tmp_path / "nodes").calibration)
    others = {"alignment": changed(tried.aligned), "floor": tried.floor}
    found = case.through_nodes(tried.campaign, tried.numbers, tried.setup, others, tmp_path)
    assert found["nodes.agree"] == (said == "$") and re.match(said, found["nodes.message"])
    assert broken or found["nodes.floor.sigmas"] < 1e-6
