"""`stretch-sim-cal check`: what it says of good files, published ones and such that contradict themselves."""

import datetime
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from made_results import alignment_result, by_arm_and_wheels, floor_result

from stretch_sim_cal.calibration.calibration_file import (
    FLOOR,
    FOOTPRINT,
    RIGHT_TO_LEFT,
    WHEELS,
    CalibrationFile,
    convention_of,
)
from stretch_sim_cal.calibration.checks import Described, concerns, inconsistencies
from stretch_sim_cal.calibration.mounts.file import MOUNTS, stored_mounts
from stretch_sim_cal.cli import main
from stretch_sim_cal.commands.described import described, load_description
from stretch_sim_cal.geometry.transforms import exp, inverse
from stretch_sim_cal.robot.profile import profile_called


@pytest.fixture
def good(tmp_path):
    """A file as a calibration of this package writes it."""
    moved = exp([0.002, 0.001, -0.003, 0.005, 0.004, -0.006]) @ described(load_description(None)).right_to_left
    alignment, floor = alignment_result(moved, variance=1e-9), floor_result(0.0295, (0.005, -0.01))
    now = datetime.datetime.now()
    calibration = CalibrationFile().with_alignment(alignment, "se4-1", now - datetime.timedelta(minutes=1))
    path = tmp_path / "good.yaml"
    calibration.with_floor(floor, "se4-1", now).save(path)
    return path


def run(*arguments) -> int:
    return main(["check", *map(str, arguments)])


def edited(path, change):
    data = yaml.safe_load(path.read_text())
    change(data)
    other = path.with_name("edited.yaml")
    other.write_text(yaml.safe_dump(data))
    return other


def test_a_good_file_is_usable_and_says_how_sure_it_is(good, capsys):
    assert run(good) == 0
    printed = capsys.readouterr().out
    assert "usable" in printed and "by planes, from 20 pairs of scans" in printed
    assert "base_link 29.50 mm above it" in printed
    assert "standard deviation 0.032 mm, 0.0018 deg" in printed
    assert "problem" not in printed and "note" not in printed


def test_the_findings_are_there_for_machines(good, capsys):
    assert run(good, "--json") == 0
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
def test_contradictions_are_problems(good, capsys, change, expected):
    assert run(edited(good, change)) == 1
    printed = capsys.readouterr().out
    assert expected in printed and "not usable" in printed


def moved_by_hand(data, key=RIGHT_TO_LEFT):
    """100 mm."""
    data[key]["data"][0][3] += 0.1


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (moved_by_hand, "right_to_left_transform: data"),
        (
            lambda data: data[FOOTPRINT]["covariance"][0].__setitem__(0, 1e-8),
            "floor_to_base_link_transform: covariance",
        ),
    ],
)
def test_what_was_edited_since_it_was_written_is_named_and_stays_usable(good, capsys, change, part):
    assert run(edited(good, change), "--json") == 0
    assert f"{part}: was edited since it was written" in json.loads(capsys.readouterr().out)["concerns"][0]


def test_an_edit_is_accepted_by_removing_the_digest_and_a_file_without_digests_is_as_before(good, capsys):
    def accepted(data):
        moved_by_hand(data)
        for entry in (RIGHT_TO_LEFT, FOOTPRINT, FLOOR):
            del data[entry]["digest"]

    assert run(edited(good, accepted)) == 0
    assert "was edited" not in capsys.readouterr().out


def test_an_alignment_that_far_from_its_description_is_noted(good, capsys):
    def far(data):
        data[RIGHT_TO_LEFT]["data"][0][3] += 0.15
        del data[RIGHT_TO_LEFT]["digest"]

    assert run(edited(good, far)) == 0
    assert "right_to_left_transform: far from the description's transform: 1" in capsys.readouterr().out


@pytest.fixture
def whole(tmp_path):
    """A file with lidars, floor, mounts and wheels, which agree within their covariances."""
    by_arm_and_wheels(np.random.default_rng(1)).save(tmp_path / "whole.yaml")
    return tmp_path / "whole.yaml"


def lidar_moved(key, lidar):
    def change(data):
        data[key]["data"][lidar][0][3] += 0.1
        del data[key]["digest"]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lidar_moved(MOUNTS, "left"),
            "lidar_mounts and base_link_from_lidar_left in floor_to_base_link_transform have the left lidar 100.0 mm",
        ),
        (lidar_moved(MOUNTS, "left"), "lidar_mounts and right_to_left_transform have the right lidar"),
        (lidar_moved(MOUNTS, "right"), "lidar_mounts and right_to_left_transform have the right lidar"),
        (
            lidar_moved(WHEELS, "right"),
            "base_footprint_from_lidars and right_to_left_transform have the right lidar",
        ),
    ],
)
def test_a_lidar_that_the_parts_of_a_file_have_in_two_places_is_a_problem(whole, capsys, change, said):
    assert inconsistencies(CalibrationFile.load(whole)) == []
    assert run(edited(whole, change), "--json") == 1
    assert [said in problem for problem in json.loads(capsys.readouterr().out)["problems"]].count(True) == 1


def test_a_lidar_on_the_robot_that_is_farther_from_its_description_than_a_calibration_accepts_is_a_problem(whole):
    file = CalibrationFile.load(whole)
    placed = stored_mounts(file).base_from_lidar
    near, far = (
        Described(base_from_lidar={"left": placed["left"] @ exp([off, 0, 0, 0, 0, 0])}) for off in (0.05, 0.07)
    )
    assert inconsistencies(file, near) == []
    assert inconsistencies(file, far) == [
        "lidar_mounts: the left lidar is 70.0 mm and 0.00 deg from its described pose"
    ]


def test_two_files_are_compared(good, capsys):
    def turn(data):
        data[RIGHT_TO_LEFT]["data"] = (exp([0, 0, 0.002, 0, 0, 0]) @ np.array(data[RIGHT_TO_LEFT]["data"])).tolist()

    other = edited(good, turn)
    assert run(good, good) == 0
    assert run(good, other) == 1
    assert "alignment differs from" in capsys.readouterr().out
    assert run(good, other, "--tolerance-mm", "3") == 0
    assert run(good, other, "--json") == 1
    part = json.loads(capsys.readouterr().out.split("usable\n")[-1])["comparison"]["parts"][0]
    assert part["mm"] == pytest.approx(2.0, abs=1e-3) and part["agrees"] is False


def test_lidars_beyond_two_are_shown_held_against_their_description_and_compared(good, tmp_path, capsys):
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

    near = edited(good, third).rename(tmp_path / "near.yaml")
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


def test_files_that_cannot_be_used_are_one_line(tmp_path, good, capsys):
    torn = tmp_path / "torn.yaml"
    torn.write_text(good.read_text()[:200])
    assert run(torn) == 2
    assert run(tmp_path / "none.yaml") == 2
    assert run(good, tmp_path / "none.yaml") == 2
    assert run(good, "--tolerance-mm", "-1") == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 4 and all(line.startswith("error: ") for line in lines)


def test_age_and_origin_are_told(good):
    calibration = CalibrationFile.load(good)
    later = datetime.datetime.now() + datetime.timedelta(days=500)
    assert any("500 days old" in sentence for sentence in concerns(calibration, later))
    earlier = datetime.datetime.now() - datetime.timedelta(days=30)
    assert any("in the future" in sentence for sentence in concerns(calibration, earlier))
    assert any("robot se4-1, this one is se4-9" in s for s in concerns(calibration, datetime.datetime.now(), "se4-9"))


def test_a_floor_older_than_the_alignment_is_told(good):
    def reorder(data):
        data[FOOTPRINT]["timestamp"] = "2020-01-01T00:00:00"

    calibration = CalibrationFile.load(edited(good, reorder))
    assert any("floor is older than the alignment" in s for s in concerns(calibration, datetime.datetime.now()))


def test_output_that_a_full_disk_does_not_take_is_one_line(good):
    program = Path(sys.executable).with_name("stretch-sim-cal")
    with open("/dev/full", "w") as full:
        ended = subprocess.run([program, "check", good], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "error: output: cannot be written: No space left on device\n"
