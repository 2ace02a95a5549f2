"""A share of a campaign's cases also runs through the real nodes, which must come to the same."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.campaign import nodes
from stretch_sim_cal.campaign.case import SimulatedCase
from stretch_sim_cal.campaign.plan import Campaign, contradicts
from stretch_sim_cal.geometry.transforms import exp
from stretch_sim_cal.harness.processes import RunFiles

CAMPAIGN = Campaign.from_mapping(
    {"name": "with nodes", "sensor": "jt128_sparse", "nodes": 0.25, "inputs": {
        "recording.alignment_frames": 4, "recording.floor_frames": 3, "lidar.noise": 0.5,
    }}, "campaign.yaml",
)  # fmt: skip


def test_the_share_of_cases_is_spread_over_the_indices():
    chosen = [index for index in range(400) if nodes.goes_through_nodes(CAMPAIGN, index, CAMPAIGN.numbers(0))]
    assert len(chosen) == 100 and chosen[0] == 0 and np.diff(chosen).max() <= 5


def test_a_pushed_robot_is_for_arrays_alone():
    assert not nodes.goes_through_nodes(CAMPAIGN, 0, CAMPAIGN.numbers(0) | {"recording.moved_mm": 3.0})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A case, its results, its folder, and what its run through the nodes came to."""
    folder = tmp_path_factory.mktemp("case")
    numbers = CAMPAIGN.numbers(0)
    case = SimulatedCase(CAMPAIGN, numbers, (1, 0), folder)
    results = {"alignment": case.aligned, "floor": case.floor}
    return case, results, folder, nodes.through_nodes(CAMPAIGN, numbers, case.setup, results, folder)


def test_nodes_and_arrays_come_to_the_same(run):
    _, results, _, found = run
    assert all(result.accepted for result in results.values())
    assert found["nodes.agree"] and found["nodes.message"] == ""
    assert found["nodes.alignment.sigmas"] > 0 and found["nodes.floor.sigmas"] > 0


def right_lidar_moved(result):
    moved = exp(np.array([0, 0.05, 0, 0, 0, 0])) @ result.base_from_lidar["right"]
    return replace(result, base_from_lidar=result.base_from_lidar | {"right": moved})


@pytest.mark.parametrize(
    ("changed", "broken", "said"),
    [
        (right_lidar_moved, False, "alignment: the nodes' result is .* standard deviations from the arrays'"),
        (lambda result: replace(result, refusals=["too few walls"]), False,
         "alignment: accepted by the nodes but not by the arrays: too few walls"),
        (lambda result: result, True, "the simulator died$"),
    ],
)  # fmt: skip
def test_other_results_than_the_nodes_and_a_run_that_breaks_are_told(run, monkeypatch, changed, broken, said):
    case, results, folder, _ = run
    ended = SimpleNamespace(broken=broken, refused="", reasons=["the simulator died"] * broken)
    monkeypatch.setattr(nodes, "run_scenario", lambda *a, **k: ended)
    others = {"alignment": changed(results["alignment"])}
    found = nodes.through_nodes(CAMPAIGN, case.numbers, case.setup, others, folder)
    assert not found["nodes.agree"] and re.match(said, found["nodes.message"])


@pytest.mark.long
def test_nodes_and_arrays_come_to_the_same_of_more_than_two_lidars(tmp_path):
    methods = {"alignment": "gicp", "floor": "published"}
    campaign = Campaign.from_mapping(
        dict(CAMPAIGN.data) | {"robot": "three_lidar_amr", "sensor": "os0_32_sparse", "methods": methods}, "three.yaml"
    )
    case = SimulatedCase(campaign, campaign.numbers(0), (1, 0), tmp_path)
    results = {"alignment": case.aligned, "floor": case.floor}
    found = nodes.through_nodes(campaign, case.numbers, case.setup, results, tmp_path)
    assert found["nodes.agree"], found
    moved = dict(results["alignment"].base_from_lidar)
    moved["mast"] = exp(np.array([0, 0.05, 0, 0, 0, 0])) @ moved["mast"]
    written = CalibrationFile.load(RunFiles(tmp_path / "nodes").calibration)
    off, covariance = nodes._off("alignment", written, replace(results["alignment"], base_from_lidar=moved))
    assert contradicts(off @ np.linalg.solve(2.0 * covariance, off), campaign.freedom["alignment"])
