"""`stretch-sim-cal check`: what it says of good files, published ones and such that contradict themselves."""

import datetime
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from stretch_sim_cal.calibration.calibration_file import FLOOR, FOOTPRINT, RIGHT_TO_LEFT, CalibrationFile, convention_of
from stretch_sim_cal.calibration.checks import concerns
from stretch_sim_cal.cli import main
from stretch_sim_cal.commands.described import described, load_description
from stretch_sim_cal.geometry.transforms import exp, inverse
from stretch_sim_cal.robot.profile import profile_called


def run(*arguments) -> int:
    return main(["check", *map(str, arguments)])


def edited(path, change):
    data = yaml.safe_load(path.read_text())
    change(data)
    other = path.with_name("edited.yaml")
    other.write_text(yaml.safe_dump(data))
    return other


def test_a_good_file_is_usable_and_says_how_sure_it_is(calibration, capsys):
    assert run(calibration) == 0
    printed = capsys.readouterr().out
    assert "usable" in printed and "by planes, from 20 pairs of scans" in printed
    assert "base_link 29.50 mm above it" in printed
    assert "standard deviation 0.032 mm, 0.0018 deg" in printed
    assert "problem" not in printed and "note" not in printed


def test_the_findings_are_there_for_machines(calibration, capsys):
    assert run(calibration, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["usable"] is True and found["problems"] == []
    assert found["floor"]["base_link_height_m"] == pytest.approx(0.0295, abs=1e-5)
    assert found["alignment"]["from_description"]["mm"] < 10
    assert found["alignment"]["num_frames"] == 20


def with_floor_at(height):
    """Return a change of a file's floor, which has no plane beside it any more."""
    return lambda data: (data.pop(FLOOR), data[FOOTPRINT]["data"][2].__setitem__(3, height))


def swapped(data):
    right_to_left = described(load_description(None)).right_to_left
    data[RIGHT_TO_LEFT]["data"] = inverse(right_to_left).tolist()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: data[FLOOR]["data"].update(distance=-0.0295), "floors"),
        (with_floor_at(-0.0295), "below the floor"),
        (with_floor_at(0.75), "from the description"),
        (lambda data: data[RIGHT_TO_LEFT].update(robot_id="se4-2"), "different robots: se4-1, se4-2"),
        (lambda data: data.clear() or data.update(note="empty"), "neither"),
        (swapped, "left and right were swapped"),
    ],
)
def test_contradictions_are_problems(calibration, capsys, change, expected):
    assert run(edited(calibration, change)) == 1
    printed = capsys.readouterr().out
    assert expected in printed and "not usable" in printed


def test_two_files_are_compared(calibration, capsys):
    def turn(data):
        data[RIGHT_TO_LEFT]["data"] = (exp([0, 0, 0.002, 0, 0, 0]) @ np.array(data[RIGHT_TO_LEFT]["data"])).tolist()

    other = edited(calibration, turn)
    assert run(calibration, calibration) == 0
    assert run(calibration, other) == 1
    assert "alignment differs from" in capsys.readouterr().out
    assert run(calibration, other, "--tolerance-mm", "3") == 0
    assert run(calibration, other, "--json") == 1
    part = json.loads(capsys.readouterr().out.split("usable\n")[-1])["comparison"]["parts"][0]
    assert part["mm"] == pytest.approx(2.0, abs=1e-3) and part["agrees"] is False


def test_lidars_beyond_two_are_shown_held_against_their_description_and_compared(calibration, tmp_path, capsys):
    lidars = described(load_description(None, "three_lidar_amr"), profile_called("three_lidar_amr"))

    def third(data, off=0.004):
        for key in set(data) - {RIGHT_TO_LEFT}:
            del data[key]
        for key, pose in (
            (RIGHT_TO_LEFT, lidars.right_to_left),
            ("mast_to_left_transform", lidars.further_to_left["mast"]),
        ):
            data[key] = data[RIGHT_TO_LEFT] | {"data": (exp([off, 0, 0, 0, 0, 0]) @ pose).tolist()}
        data["mast_to_left_transform"]["convention"] = convention_of("mast")

    near = edited(calibration, third).rename(tmp_path / "near.yaml")
    assert run(near, "--robot", "three_lidar_amr") == 0
    printed = capsys.readouterr().out
    assert "alignment (mast_to_left)" in printed and printed.count("  4.00 mm and 0.000 deg from the description") == 2
    far = edited(near, lambda data: third(data, 0.5))
    assert run(far, "--robot", "three_lidar_amr", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert found["further_lidars"]["mast"]["from_description"]["mm"] == pytest.approx(500.0, abs=0.1)
    assert any(sentence.startswith("mast_to_left_transform: far from") for sentence in found["problems"])
    assert run(near, far, "--robot", "three_lidar_amr") == 1
    assert "alignment of the mast lidar differs from" in capsys.readouterr().out


def test_age_and_origin_are_told(calibration):
    calibration = CalibrationFile.load(calibration)
    later = datetime.datetime.now() + datetime.timedelta(days=500)
    assert any("500 days old" in sentence for sentence in concerns(calibration, later))
    earlier = datetime.datetime.now() - datetime.timedelta(days=30)
    assert any("in the future" in sentence for sentence in concerns(calibration, earlier))
    assert any("robot se4-1, this one is se4-9" in s for s in concerns(calibration, datetime.datetime.now(), "se4-9"))


def test_a_floor_older_than_the_alignment_is_told(calibration):
    def reorder(data):
        data[FOOTPRINT]["timestamp"] = "2020-01-01T00:00:00"

    calibration = CalibrationFile.load(edited(calibration, reorder))
    assert any("floor is older than the alignment" in s for s in concerns(calibration, datetime.datetime.now()))


def test_output_that_a_full_disk_does_not_take_is_one_line(calibration):
    program = Path(sys.executable).with_name("stretch-sim-cal")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [program, "check", calibration], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 2
    assert ended.stderr == "error: output: cannot be written: No space left on device\n"
