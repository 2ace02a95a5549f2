"""What a run and a campaign tell a CI system: JUnit XML, GitHub's annotations, Markdown."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stretch_sim_cal.cli import main
from stretch_sim_cal.harness import ci, run
from stretch_sim_cal.harness.scenario import load_scenario
from stretch_sim_cal.harness.verdict import Quantity, StageVerdict, Verdict

NASTY = 'error: 100 % <wrong> & "quoted", a|b\n\x1b[31mred\x1b[0m\x00'


def verdict(error: float | None = 0.4, reasons=(), broken=False, refused="") -> Verdict:
    stage = StageVerdict("alignment", [
        Quantity("translation_error_mm", "lidars: translation", "mm", 1.0, error),
        Quantity("rotation_error_deg", "lidars: rotation", "deg", 0.05, 0.01),
    ])  # fmt: skip
    scenario = load_scenario("furnished_room_sparse")
    return Verdict(scenario, "embedded", {"alignment": stage}, list(reasons), refused, broken, {"total": 12.5})


def written(cases) -> dict[str, ElementTree.Element]:
    return {case.get("name"): case for case in ElementTree.fromstring(ci.junit(cases)).iter("testcase")}


def test_every_run_is_a_test_case_with_its_numbers_as_properties():
    cases = [ci.run_case(verdict(), "good"), ci.run_case(verdict(2.0, [NASTY]), "bad"),
             ci.run_case(verdict(None, ["simulator: crashed"], broken=True), "broken")]  # fmt: skip
    root = ElementTree.fromstring(ci.junit(cases))
    (suite,) = root
    for element in (root, suite):
        assert {key: element.get(key) for key in ("tests", "failures", "errors")} == {
            "tests": "3", "failures": "1", "errors": "1"
        }  # fmt: skip
        assert float(element.get("time")) == pytest.approx(37.5)
    found = written(cases)
    properties = {each.get("name"): float(each.get("value")) for each in found["bad"].iter("property")}
    assert properties == {"alignment.translation_error_mm": 2.0, "alignment.rotation_error_deg": 0.01}
    assert [child.tag for child in found["good"]] == ["properties", "system-out"]
    failure = found["bad"].find("failure")
    assert "100 % <wrong>" in failure.get("message") and "red" in failure.get("message")
    rows = [line.split("  ")[0] for line in failure.text.splitlines()]
    assert rows[:2] == ["lidars: translation", "lidars: rotation"]
    assert failure.text.splitlines()[0].split("  ")[-1] == "FAIL"
    assert found["broken"].find("error") is not None and "no result" in found["broken"].find("error").text
    assert "alignment.translation_error_mm" not in {p.get("name") for p in found["broken"].iter("property")}


def test_a_refusal_that_was_expected_is_a_passed_test_without_numbers():
    case = ci.run_case(verdict(None, refused="unobserved direction"), "corridor")
    assert "refused as expected: unobserved direction" in ci.junit([case]) and not case.rows
    assert "unobserved direction" in ci.summary([case]) and "FAIL" not in ci.summary([case])


def test_an_annotation_is_one_line_and_the_summary_a_table_that_no_message_breaks():
    case = ci.run_case(verdict(2.0, [NASTY]), "a:b,c")
    (line,) = ci.annotations([case, ci.run_case(verdict(), "good")])
    assert line.startswith("::error title=scenarios%3A a%3Ab%2Cc::") and "\n" not in line
    assert "100 %25 <wrong>" in line and "%0A" in line and "\x00" not in line
    page = ci.summary([ci.run_case(verdict(2.0, [NASTY]), "bad")])
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {5} and len(rows) == 4
    assert "a\\|b" in page and "&lt;wrong>" in page


STATEMENT = {
    "campaign": "smoke", "cases": 100, "share": 0.9, "confidence": 0.95, "good": 97, "share_shown": 0.924, "wrong": 0,
    "nodes": {"cases": 4, "disagree": 0}, "seconds": {"total": 60.0},
    "quantities": {"alignment.translation_mm": {
        "label": "translation in mm", "worst": 2.0, "median": (0.5, 0.4, 0.6), "p95": (1.2, 1.0, 1.5)}},
}  # fmt: skip


def test_every_condition_of_a_campaign_is_a_test_case():
    cases = ci.campaign_cases(STATEMENT)
    assert [(case.name, bool(case.reasons)) for case in cases] == [
        ("accepted and right", False), ("accepted but wrong", False), ("different through the real nodes", False)
    ]  # fmt: skip
    properties = {p.get("name"): float(p.get("value")) for p in written(cases)["accepted and right"].iter("property")}
    assert properties["share_shown"] == 0.924 and properties["alignment.translation_mm.p95"] == 1.2
    few = STATEMENT | {"share_shown": 0.8, "wrong": 2, "nodes": {"cases": 0, "disagree": 0}, "seconds": None}
    few = ci.campaign_cases(few)
    assert [bool(case.reasons) for case in few] == [True, True]
    assert "2 of 100 cases" in few[1].reasons[0] and "0.9 was requested" in few[0].reasons[0]


@pytest.fixture
def judged(monkeypatch):
    """`run` without processes: every scenario gets the verdict that is put into this list."""
    verdicts = []

    def judge(scenario, folder: Path, *_, **__):
        folder.mkdir(parents=True)
        return verdicts.pop(0)

    monkeypatch.setattr(run, "run_scenario", judge)
    monkeypatch.setattr("stretch_sim_cal.harness.report.write_report", lambda *_: Path("report.html"))
    return verdicts


def test_run_writes_them_after_every_scenario_and_annotates_in_a_job_of_github(judged, tmp_path, capsys, monkeypatch):
    page = tmp_path / "job.md"
    page.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    judged += [verdict(), verdict(2.0, ["too far off"])]
    files = {name: tmp_path / "new" / name for name in ("junit", "summary")}
    given = [argument for name, file in files.items() for argument in (f"--{name}", str(file))]
    arguments = ["run", "furnished_room_sparse", "--repeat", "2", "--out", str(tmp_path / "out"), "--json", *given]
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    results = json.loads(out)
    assert results[1]["quantities"][0] == {
        "key": "alignment.translation_error_mm", "label": "lidars: translation", "unit": "mm", "error": 2.0,
        "standard_deviation": None, "tolerance": 1.0, "passed": False,
    }  # fmt: skip
    assert err.count("::error title=scenarios%3A furnished_room_sparse_2::") == 1 and err.count("::error") == 1
    assert page.read_text() == "before\n" + files["summary"].read_text()
    names = [case.get("name") for case in ElementTree.parse(files["junit"]).iter("testcase")]
    assert names == ["furnished_room_sparse_1", "furnished_room_sparse_2"]


def test_repeated_runs_are_counted_with_the_spread_of_their_errors(judged, tmp_path, capsys):
    judged += [verdict(0.4), verdict(0.6)]
    assert main(["run", "furnished_room_sparse", "--repeat", "2", "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "furnished_room_sparse: 2 of 2 runs pass" in out and ", spread 0.2" in out and ", spread 0" in out


def test_a_page_of_github_that_cannot_be_written_costs_a_warning_only(judged, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    monkeypatch.setenv("GITHUB_ACTIONS", "1")
    judged.append(verdict())
    assert main(["run", "furnished_room_sparse", "--out", str(tmp_path / "out")]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"warning: GITHUB_STEP_SUMMARY={tmp_path}:") and "::error" not in out
