"""`stretch-sim-cal check`: what it says of good files, published ones and such that contradict themselves."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from called import called, edited
from made_results import by_arm_and_wheels, save

from stretch_sim_cal.calibration import calibration_file as keys
from stretch_sim_cal.calibration.calibration_file import RIGHT_TO_LEFT, CalibrationFile
from stretch_sim_cal.calibration.checks import Described, inconsistencies
from stretch_sim_cal.calibration.mounts.file import MOUNTS, stored_mounts
from stretch_sim_cal.commands.described import described, load_description
from stretch_sim_cal.geometry.transforms import exp, inverse
from stretch_sim_cal.robot.profile import profile_called

check = functools.partial(called, "check")


def findings(*arguments, code=0) -> dict:
    return json.loads(check(*arguments, "--json", code=code)[1])


def test_a_good_file_is_usable_and_says_how_sure_it_is(calibration):
    code, printed, _ = check(calibration)
    assert code == 0 and "usable" in printed and "by planes, from 20 pairs of scans" in printed
    assert "base_link 29.50 mm above it" in printed
    assert "standard deviation 0.032 mm, 0.0018 deg" in printed
    assert "problem" not in printed and "note" not in printed
    found = findings(calibration)
    assert found["usable"] is True and found["problems"] == []
    assert found["floor"]["base_link_height_m"] == pytest.approx(0.0295, abs=1e-5)
    assert found["alignment"]["from_description"]["mm"] < 10
    assert found["alignment"]["num_frames"] == 20


def swapped(data):
    right_to_left = described(load_description(None)).to_left["right"]
    data[RIGHT_TO_LEFT]["data"] = inverse(right_to_left).tolist()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: data[keys.FLOOR]["data"].update(distance=-0.0295), "floors"),
        (swapped, "left and right were swapped"),
    ],
)
def test_contradictions_are_problems(calibration, change, expected):
    code, printed, _ = check(edited(calibration, change))
    assert code == 1 and expected in printed and "not usable" in printed


def moved(key=RIGHT_TO_LEFT, lidar=None, by=0.1, accepted=True):
    """Return a change that moves a pose along x by so much (m) and, if it is `accepted`, removes its entry's digest."""

    def change(data):
        poses = data[key]["data"]
        (poses if lidar is None else poses[lidar])[0][3] += by
        if accepted:
            del data[key]["digest"]

    return change


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (moved(accepted=False), "right_to_left_transform: data"),
        (
            lambda data: data[keys.FOOTPRINT]["covariance"][0].__setitem__(0, 1e-8),
            "floor_to_base_link_transform: covariance",
        ),
    ],
)
def test_what_was_edited_since_it_was_written_is_named_and_stays_usable(calibration, change, part):
    assert f"{part}: was edited since it was written" in findings(edited(calibration, change))["concerns"][0]


def test_an_alignment_far_from_its_description_is_noted_and_its_edit_is_accepted_without_a_digest(calibration):
    code, printed, _ = check(edited(calibration, moved(by=0.15)))
    assert code == 0 and "note" in printed and "was edited" not in printed
    assert "right_to_left_transform: far from the description's transform: 1" in printed


def test_a_file_far_from_the_default_description_names_the_robot_that_it_was_compared_with(calibration):
    path = edited(calibration, moved(by=0.9))
    told = "compared with the Stretch 4; give another robot's --robot or --model"
    code, printed, _ = check(path)
    assert code == 1 and "problem: right_to_left_transform: far from the description" in printed and told in printed
    assert told not in check(path, "--robot", "stretch4")[1]


@pytest.fixture
def whole(tmp_path):
    """A file with lidars, floor, mounts and wheels, which agree within their covariances."""
    save(by_arm_and_wheels(np.random.default_rng(1)), tmp_path / "whole.yaml")
    return tmp_path / "whole.yaml"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            moved(MOUNTS, "left"),
            "lidar_mounts and base_link_from_lidar_left in floor_to_base_link_transform have the left lidar 100.0 mm",
        ),
        (moved(MOUNTS, "left"), "lidar_mounts and right_to_left_transform have the right lidar"),
        (moved(MOUNTS, "right"), "lidar_mounts and right_to_left_transform have the right lidar"),
        (moved(keys.WHEELS, "right"), "base_footprint_from_lidars and right_to_left_transform have the right lidar"),
        (lambda data: data.pop(MOUNTS), "floor_to_base_link_transform is of the left lidar in lidar_mounts"),
    ],
)
def test_a_lidar_that_the_parts_of_a_file_have_in_two_places_is_a_problem(whole, change, said):
    assert inconsistencies(CalibrationFile.load(whole)) == []
    assert [said in problem for problem in findings(edited(whole, change), code=1)["problems"]].count(True) == 1


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


def test_two_files_are_compared(calibration):
    def turn(data):
        data[RIGHT_TO_LEFT]["data"] = (exp([0, 0, 0.002, 0, 0, 0]) @ np.array(data[RIGHT_TO_LEFT]["data"])).tolist()

    other = edited(calibration, turn)
    assert check(calibration, calibration)[0] == 0
    code, printed, _ = check(calibration, other)
    assert code == 1 and "lidar to lidar differs from" in printed
    assert check(calibration, other, "--tolerance-mm", "3")[0] == 0
    part = findings(calibration, other, code=1)["comparison"]["parts"][0]
    assert part["mm"] == pytest.approx(2.0, abs=1e-3) and part["agrees"] is False


def test_lidars_beyond_two_are_shown_held_against_their_description_and_compared(calibration, tmp_path):
    robot = ("--robot", "three_lidar_amr")
    lidars = described(load_description(None, robot[1]), profile_called(robot[1]))

    def third(data, off=0.004):
        entry, moved = data[RIGHT_TO_LEFT], exp([off, 0, 0, 0, 0, 0])
        data.clear()
        data[RIGHT_TO_LEFT] = entry | {"data": (moved @ lidars.to_left["right"]).tolist()}
        mast = {"data": (moved @ lidars.to_left["mast"]).tolist(), "convention": keys.convention_of("mast")}
        data["mast_to_left_transform"] = entry | mast

    near = edited(calibration, third).rename(tmp_path / "near.yaml")
    code, printed, _ = check(near, *robot)
    assert code == 0 and "alignment (mast_to_left)" in printed
    assert printed.count("  4.00 mm and 0.000 deg from the description") == 2
    far = edited(near, lambda data: third(data, 0.5))
    found = findings(far, *robot, code=1)
    assert found["further_lidars"]["mast"]["from_description"]["mm"] == pytest.approx(500.0, abs=0.1)
    assert any(sentence.startswith("mast_to_left_transform: far from") for sentence in found["problems"])
    code, printed, _ = check(near, far, *robot)
    assert code == 1 and "left to mast lidar differs from" in printed


def test_output_that_a_full_disk_does_not_take_is_one_line(calibration):
    program = Path(sys.executable).with_name("stretch-sim-cal")
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [program, "check", calibration], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 2
    assert ended.stderr == "error: output: cannot be written: No space left on device\n"
