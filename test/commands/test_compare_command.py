"""`stretch-sim-cal compare`: what passed and fails now is a no, whatever else became better."""

import functools
import json
from pathlib import Path

import pytest
from called import called


def result(name="room", mm=0.4, deg=0.01, bound=1.0, refused=None, expected="pass") -> dict:
    quantities = [
        {"key": key, "label": key, "unit": unit, "error": error, "tolerance": tolerance,
         "passed": error is not None and error <= tolerance}
        for key, unit, error, tolerance in (
            ("alignment.translation_error_mm", "mm", mm, bound), ("alignment.rotation_error_deg", "deg", deg, 0.05)
        )
    ]  # fmt: skip
    passed = bool(refused) if expected == "refused" else all(each["passed"] for each in quantities)
    reasons = [] if passed else ["alignment: translation_error_mm is too large | above"]
    return {"scenario": name, "passed": passed, "reasons": reasons, "refused": refused, "quantities": quantities}


def kept(path: Path, *results: dict) -> Path:
    """Write results as `run --out` does, a folder each."""
    for each in results:
        (path / each["scenario"]).mkdir(parents=True)
        (path / each["scenario"] / "result.json").write_text(json.dumps(each))
    return path


compare = functools.partial(called, "compare")


def test_a_change_within_the_tolerance_is_shown_and_passes(tmp_path):
    old, new = kept(tmp_path / "old", result()), kept(tmp_path / "new", result(mm=0.7, deg=0.004))
    code, out, _ = compare(old, new)
    assert code == 0 and out.splitlines()[-1] == "PASS: 0 of 3 are worse than allowed"
    (row,) = (line for line in out.splitlines() if "translation" in line)
    assert row.split()[2:] == ["0.4", "mm", "0.7", "mm", "+0.3", "mm", "1", "mm"]


@pytest.mark.parametrize("old_at, new_at", [("old", "new"), ("old/room", "new/room/result.json")])
def test_what_passed_and_fails_now_fails(old_at, new_at, tmp_path):
    kept(tmp_path / "old", result())
    kept(tmp_path / "new", result(mm=1.2))
    code, out, _ = compare(tmp_path / old_at, tmp_path / new_at, "--json")
    found = json.loads(out)
    assert code == 1 and not found["passed"]
    assert [(row["quantity"], row["verdict"]) for row in found["rows"]] == [
        ("verdict", "FAIL"), ("alignment.translation_error_mm", "FAIL"), ("alignment.rotation_error_deg", "")
    ]  # fmt: skip


def test_what_failed_before_may_fail_and_a_lost_result_may_not(tmp_path):
    bad, worse, lost = (tmp_path / name for name in ("bad", "worse", "lost"))
    kept(bad, result(mm=2.0)), kept(worse, result(mm=3.0)), kept(lost, result(mm=None, deg=None))
    assert compare(bad, worse)[0] == 0
    code, out, _ = compare(bad, lost)
    assert code == 1 and "fails as before" in out and "0.01 deg  -" in out


def test_a_share_of_the_tolerance_bounds_what_may_become_worse(tmp_path):
    old, new = kept(tmp_path / "old", result(mm=0.4)), kept(tmp_path / "new", result(mm=0.65, bound=3.0))
    assert compare(old, new, "--worse", "0.3")[0] == 0
    code, out, _ = compare(old, new, "--worse", "0.2")
    assert code == 1 and "1 to 3 mm  worse" in out
    assert compare(new, old, "--worse", "0")[0] == 0


def test_a_refusal_that_is_expected_has_no_numbers_to_compare(tmp_path):
    refused = result(mm=None, deg=None, refused="unobserved", expected="refused")
    old, new = kept(tmp_path / "old", refused), kept(tmp_path / "new", refused)
    assert compare(old, new)[1].splitlines()[-1] == "PASS: 0 of 1 are worse than allowed"
    given = kept(tmp_path / "given", result(expected="refused"))
    assert compare(old, given)[0] == 1


def test_several_scenarios_are_matched_by_name_and_the_rest_is_named(tmp_path):
    old = kept(tmp_path / "old", result("a"), result("b"))
    new = tmp_path / "run.json"
    new.write_text(json.dumps([result("c"), result("b", mm=1.5)]))
    code, out, _ = compare(old, new, "--markdown")
    assert code == 1 and "only in old: a\nonly in new: c\n" in out
    rows = [line for line in out.splitlines() if line.startswith("|")]
    assert len(rows) == 5 and {line.replace("\\|", "").count("|") for line in rows} == {8}


def test_what_passed_may_not_disappear(tmp_path):
    """A scenario that is deleted or renamed, a stage that is taken out of one, an interrupted run."""
    both, one = kept(tmp_path / "both", result("a"), result("b")), kept(tmp_path / "one", result("b"))
    code, out, _ = compare(both, one)
    assert code == 1 and out.splitlines()[-1].endswith("a passed and is gone")
    assert compare(one, both)[0] == 0
    failed = kept(tmp_path / "failed", result("a", mm=9.0), result("b"))
    assert compare(failed, one)[0] == 0
    fewer = result("b")
    fewer["quantities"] = fewer["quantities"][:1]
    code, out, _ = compare(one, kept(tmp_path / "fewer", fewer))
    assert code == 1 and "gone" in out


@pytest.mark.parametrize(
    "content, said",
    [
        ("{", "is not JSON"), ("[]", "has no result"), ("[1]", "is not a result of 'stretch-sim-cal run'"),
        ('{"scenario": "room", "passed": true}', "has no usable 'quantities'"),
        ('{"scenario": "room", "passed": true, "quantities": [{"key": "a", "tolerance": "x", "passed": true}]}',
         "has no usable 'quantities'"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_result_is_one_line(content, said, tmp_path):
    old = kept(tmp_path / "old", result())
    (tmp_path / "bad.json").write_text(content)
    code, out, err = compare(old, tmp_path / "bad.json")
    assert code == 2 and not out and err.count("\n") == 1 and said in err and "bad.json" in err


def test_folders_without_results_and_shares_that_are_none_are_one_line(tmp_path):
    old, new = kept(tmp_path / "old", result("a")), kept(tmp_path / "new", result("b"))
    for arguments, said in (
        ((tmp_path / "nowhere", old), "nowhere: No such file"), ((tmp_path, old), "has no result.json"),
        ((old, new), "no scenario in common: a; b"), ((old, old, "--worse", "-1"), "--worse -1.0"),
        ((old, old, "--worse", "nan"), "--worse nan"),
    ):  # fmt: skip
        code, _, err = compare(*arguments)
        assert code == 2 and err.count("\n") == 1 and said in err
