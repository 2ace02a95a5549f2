"""What a campaign claims follows from its cases: bounds, honesty, causes, worst cases, comparisons."""

import functools
import json

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

from stretch_sim_cal.campaign import statement as claims
from stretch_sim_cal.campaign.engine import SCHEMA
from stretch_sim_cal.campaign.plan import Campaign
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.harness.pages import text_lines

pytestmark = pytest.mark.usefixtures("quick_pictures")

SAID = {
    "name": "claimed", "sensor": "jt128_sparse", "stages": ["alignment"], "share": 0.9,
    "inputs": {"room.length": {"uniform": [4, 8]}, "room.width": {"uniform": [4, 8]}},
    "limits": {"alignment.translation_mm": 2.0},
}  # fmt: skip


def campaign(**changed) -> Campaign:
    return Campaign.from_mapping(SAID | changed, "claimed.yaml")


DRAWN = functools.cache(campaign().numbers)


def made(count: int, change=lambda index, record: None, sigma: float = 0.2) -> pa.Table:
    """Return records of cases whose errors are as the covariance says, changed one by one."""
    random, rows = np.random.default_rng(5), []
    for index in range(count):
        off = random.normal(size=6)
        rows.append({f"input.{name}": value for name, value in DRAWN(index).items()} | {
            "index": index, "status": "done", "message": "", "alignment.accepted": True, "alignment.refusals": "",
            "alignment.translation_mm": sigma * float(np.linalg.norm(off[:3])), "alignment.rotation_deg": 0.001,
            "alignment.nees": float(off @ off) / 6, "alignment.sigmas": float(np.linalg.norm(off)), "seconds": 1.0,
        })  # fmt: skip
        change(index, rows[-1])
    return pa.Table.from_pylist(rows, SCHEMA)


def refuse(record: dict, why: str = "the scene does not determine sliding along base x: unbounded; move") -> None:
    record |= {"alignment.accepted": False, "alignment.refusals": why}


def test_bounds_of_shares_are_those_of_clopper_and_pearson_and_tell_how_many_cases_are_needed():
    assert claims.upper_bound(0, 299, 0.95) < 0.01 < claims.upper_bound(0, 298, 0.95)
    for failures, cases in ((1, 50), (7, 100), (20, 30)):
        assert binom.cdf(failures, cases, claims.upper_bound(failures, cases, 0.95)) == pytest.approx(0.05)
    assert claims.upper_bound(3, 3, 0.95) == 1.0
    assert claims.cases_needed(0, 50, 0.99, 0.95) == 299
    needed = claims.cases_needed(2, 100, 0.95, 0.95)
    assert claims.upper_bound(int(np.ceil(0.02 * needed)), needed, 0.95) <= 0.05
    assert claims.cases_needed(6, 100, 0.95, 0.95) is None


def test_bounds_of_quantiles_hold_as_often_as_they_say():
    random = np.random.default_rng(1)
    bounds = [claims.quantile_bounds(random.exponential(size=200), 0.95, 0.9)[1:] for _ in range(1000)]
    assert np.mean([low <= -np.log(0.05) <= high for low, high in bounds]) > 0.88
    assert claims.quantile_bounds(np.ones(10), 0.99, 0.95)[2] == np.inf


def test_a_campaign_without_failures_is_shown_and_says_with_which_confidence():
    found = claims.statement(campaign(), made(200))
    assert found["shown"] and found["good"] == 200 and found["wrong"] == 0
    assert claims.sentences(found)[0].startswith("shown: of 200 cases 200 were accepted and right within 2 mm")
    assert "95 % confidence at least 98.51 %" in claims.sentences(found)[0]
    assert 0.85 < found["honesty"]["alignment"]["mean_nees_over_freedom"] < 1.15


def test_one_accepted_wrong_result_is_enough_to_show_nothing():
    def one_wrong(index, record):
        if index == 17:
            record |= {"alignment.translation_mm": 1.5, "alignment.nees": 9.0, "alignment.sigmas": float(np.sqrt(54.0))}

    found = claims.statement(campaign(), made(200, one_wrong))
    assert not found["shown"] and found["wrong"] == 1 and found["beyond_limits"] == 0
    assert (found["worst"][0]["case"], found["worst"][0]["what"]) == (17, "accepted, wrong")


def test_refusals_crashes_and_large_errors_are_told_apart():
    def spoilt(index, record):
        if index % 10 == 0:
            refuse(record)
        elif index % 10 == 1:
            record |= {"alignment.translation_mm": 3.0}
        elif index == 2:
            record |= {"status": "timeout", "alignment.accepted": None}

    found = claims.statement(campaign(), made(100, spoilt))
    assert (found["refused"], found["beyond_limits"], found["failed"]["timeout"], found["good"]) == (10, 10, 1, 79)
    assert found["refused_though_within_limits"] == 10
    assert found["refusals"] == [("the scene does not determine sliding along base x", 10)]
    assert found["cases_needed"] is None and "no number of cases would show it" in claims.sentences(found)[1]


def test_of_several_lidars_each_ones_errors_are_told():
    def with_each(index: int, record: dict) -> None:
        record["alignment.lidars"] = [
            {"name": name, "translation_mm": size * (1 + index % 3), "rotation_deg": 0.01 * size, "sigmas": None}
            for name, size in (("right", 0.1), ("mast", 0.5))
        ]

    found = claims.statement(campaign(robot="three_lidar_amr", sensor="os0_32_sparse"), made(30, with_each))
    assert found["lidars"]["alignment"]["mast"]["median_translation_mm"] == pytest.approx(1.0)
    said = "\n".join(claims.sentences(found))
    assert "alignment, mast lidar: median 1 mm and 0.005 deg, worst 1.5 mm and 0.005 deg" in said
    assert "alignment, right lidar: median 0.2 mm" in said
    assert not claims.statement(campaign(), made(30))["lidars"]


def test_refusals_of_one_kind_are_counted_together_whatever_their_numbers():
    def pushed(index, record):
        if index % 20 == 0:
            refuse(record, f"the robot moved by {index / 10:g} mm and 0.0{index} deg while the frames were taken (x)")

    found = claims.statement(campaign(), made(100, pushed))
    assert found["refusals"] == [("the robot moved by ... mm and ... deg while the frames were taken", 5)]


def test_the_input_that_explains_the_refusals_is_named():
    def refuse_long(index, record):
        if record["input.room.length"] > 7.0:
            refuse(record)

    causes = claims.statement(campaign(), made(200, refuse_long))["causes"]
    assert causes["correlations"]["refused"][0][0] == "room.length"
    assert "room.length >  7.0" in causes["tree"].replace("6.99", "7.0").replace("7.01", "7.0")


def test_the_report_names_the_worst_cases_and_how_to_run_them_again(tmp_path):
    found = claims.write_statement(campaign(), made(60), tmp_path, "stretch-sim-cal campaign claimed.yaml")
    page = (tmp_path / "report.html").read_text()
    assert json.loads((tmp_path / "campaign.json").read_text())["cases"] == 60
    assert f"stretch-sim-cal campaign claimed.yaml --case {found['worst'][0]['case']}" in page
    assert page.count("<img") == 2


def test_two_methods_are_compared_over_the_cases_that_both_have():
    def often_refused(index, record):
        if index % 4 == 0:
            refuse(record)

    one, other = made(120), made(100, often_refused, sigma=0.4)
    found = claims.compare((campaign(), campaign(methods={"alignment": "gicp"})), (one, other))
    assert (found["cases"], found["only_first_good"], found["only_second_good"]) == (100, 25, 0)
    assert found["mcnemar_p"] < 1e-6
    translation = found["quantities"]["alignment.translation_mm"]
    assert translation["cases"] == 75 and translation["first_smaller"] == 1.0 and translation["wilcoxon_p"] < 1e-6
    assert "McNemar" in text_lines("comparison", found=found)[0]


def test_campaigns_of_other_cases_are_not_compared():
    def elsewhere(index, record):
        record["input.room.length"] = 5.0

    with pytest.raises(InputError, match="draw different cases: input.room.length differs"):
        claims.compare((campaign(), campaign()), (made(20), made(20, elsewhere)))


@pytest.mark.parametrize("agree", [True, False])
def test_nodes_that_come_to_something_else_show_nothing(agree):
    def through_nodes(index, record):
        if index % 50 == 0:
            record |= {"nodes.agree": agree, "nodes.message": "" if agree else "alignment: something else"}

    found = claims.statement(campaign(), made(200, through_nodes))
    assert found["shown"] == agree and found["nodes"]["cases"] == 4
    said = "\n".join(claims.sentences(found))
    assert f"4 cases, of which {0 if agree else 4} differ" in said
    assert ("alignment: something else" in said) != agree
