"""`stretch-sim-cal lint`: its exit codes, its text and its JSON."""

import argparse
import json

import pytest

from stretch_sim_cal import cli, command
from stretch_sim_cal.commands import lint
from stretch_sim_cal.conventions import PROFILES
from stretch_sim_cal.robot.stretch import nominal_description


def run(*arguments) -> int:
    parser = argparse.ArgumentParser()
    lint.add_arguments(parser)
    parsed = parser.parse_args([str(argument) for argument in arguments])
    return command.run(lambda: lint.run(parsed))


@pytest.fixture
def crooked(tmp_path):
    path = tmp_path / "crooked.urdf"
    text = nominal_description().replace('<joint name="lift_joint"', '<joint name="lift"', 1)
    path.write_text(text)
    return path


def test_a_model_that_keeps_the_profile_ends_with_0(capsys):
    assert run("stretch4", "--quiet") == 0
    assert capsys.readouterr().out.strip() == (
        "stretch4: keeps the Stretch URDF conventions (0 errors, 0 warnings, 22 infos)"
    )  # fmt: skip


def test_a_broken_rule_ends_with_1_and_says_what_would_be_right(crooked, capsys):
    assert run(crooked, "--profile", "stretch") == 1
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("error") and "joint 'lift' does not end in _joint; call it lift_joint" in first


def test_json_holds_the_profile_the_model_and_every_finding(crooked, capsys):
    assert run(crooked, "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["profile"], answer["model"]) == ("stretch", str(crooked))
    assert all(set(finding) == {"rule", "level", "name", "message", "fix"} for finding in answer["findings"])
    assert [finding["name"] for finding in answer["findings"] if finding["level"] == "error"] == ["lift"]


def test_the_other_profiles_find_the_stretch_to_be_another_kind_of_robot(capsys):
    assert run("stretch4", "--profile", "rep199") == 1
    assert run("stretch4", "--profile", "icub") == 1
    assert "iCub" in capsys.readouterr().out


def test_what_cannot_be_read_ends_with_2(tmp_path, capsys):
    torn = tmp_path / "torn.urdf"
    torn.write_text("<robot name='a'><link>")
    for arguments, said in (
        ((torn,), "torn.urdf"),
        (("missing.urdf",), "missing.urdf"),
        (("stretch4", "--profile", "nao"), "nao"),
    ):
        assert run(*arguments) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", ["lint", "normalize"])
def test_the_help_names_every_profile(name, capsys):
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    assert ", ".join(PROFILES) in " ".join(capsys.readouterr().out.split())
