"""A share of a campaign's cases also runs through the real nodes, which must come to the same."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from stretch_sim_cal.campaign import case as nodes
from stretch_sim_cal.campaign.case import SimulatedCase
from stretch_sim_cal.campaign.plan import Campaign
from stretch_sim_cal.geometry.transforms import exp

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


THREE = {"robot": "three_lidar_amr", "sensor": "os0_32_sparse", "methods": {"alignment": "gicp", "floor": "published"}}


@pytest.fixture(scope="module", params=[{}, pytest.param(THREE, marks=pytest.mark.long)], ids=["two", "three lidars"])
def run(request, tmp_path_factory):
    """A case, its results, its folder, and what its run through the nodes came to."""
    folder, campaign = tmp_path_factory.mktemp("case"), Campaign.from_mapping(CAMPAIGN.data | request.param, "its.yaml")
    case = SimulatedCase(campaign, campaign.numbers(0), (1, 0), folder)
    results = {"alignment": case.aligned, "floor": case.floor}
    return case, results, folder, nodes.through_nodes(campaign, case.numbers, case.setup, results, folder)


def test_nodes_and_arrays_come_to_the_same(run):
    _, results, _, found = run
    assert all(result.accepted for result in results.values())
    assert found["nodes.agree"] and found["nodes.message"] == "", found
    assert found["nodes.alignment.sigmas"] > 0 and ("mast" in run[0].lidars or found["nodes.floor.sigmas"] > 0)


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
    ],
)  # fmt: skip
def test_other_results_than_the_nodes_and_a_run_that_breaks_are_told(run, monkeypatch, changed, broken, said):
    case, results, folder, _ = run
    ended = SimpleNamespace(broken=broken, refused="", reasons=["the simulator died"] * broken)
    monkeypatch.setattr(nodes, "run_scenario", lambda *a, **k: ended)
    others = {"alignment": changed(results["alignment"])}
    found = nodes.through_nodes(case.campaign, case.numbers, case.setup, others, folder)
    assert not found["nodes.agree"] and re.match(said, found["nodes.message"])
