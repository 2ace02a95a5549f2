"""The calibration file and the robot's values file: what is read, what an update leaves alone, what is refused."""

import datetime
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import stretch4_urdf
import yaml
from made_results import alignment_result, by_arm_and_wheels, floor_result, joints_in, save

from stretch_sim_cal.calibration.calibration_file import (
    FLOOR,
    FOOTPRINT,
    FOOTPRINT_ALIAS,
    RIGHT_TO_LEFT,
    SEEN_COVARIANCE,
    CalibrationFile,
    default_path,
    default_robot_id,
    named_or_default,
)
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.calibration.values_file import base_joint, default_values_path, lidar_joints, record_joints
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import rollback
from stretch_sim_cal.geometry.transforms import exp, from_xyz_rpy
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform

PUBLISHED = """\
right_to_left_transform:
  data:
    - [-0.5365967222717024, 0.6663353592972918, -0.5177462183323179, -0.12294484016345666]
    - [-0.6646750085371393, 0.04424751619601933, 0.7458212187492647, 0.21060627682335334]
    - [0.5198760339479219, 0.7443381934716462, 0.4191533884700769, -0.11890210541737793]
    - [0.0, 0.0, 0.0, 1.0]
  robot_id: stretch-se4-4010
  timestamp: "2026-03-19T14:28:32.548974"
floor_to_base_link_transform:
  data:
    - [0.9999523981086859, 0.00018263214746540911, -0.009755417068829098, -2.710505431213761e-20]
    - [0.0, 0.9998248062402024, 0.018717821100267065, 5.421010862427522e-20]
    - [0.00975712645649783, -0.018716930096581413, 0.9997772126884428, 0.013265772694061559]
    - [0.0, 0.0, 0.0, 1.0]
  robot_id: stretch-se4-4010
  timestamp: "2026-03-19T13:45:26.138201"
floor_model_params:
  data:
    normal: [0.00975712645649783, -0.018716930096581413, 0.9997772126884428]
    distance: -0.013265772694061559
    description: "Floor plane: normal [x,y,z] dot point + distance = 0"
  robot_id: stretch-se4-4010
  timestamp: "2026-03-19T13:45:26.138201"
"""
WHEN = datetime.datetime(2026, 11, 21, 12, 0, 0)


@pytest.fixture
def published(tmp_path):
    path = tmp_path / "dual_lidar_calibration.yaml"
    path.write_text(PUBLISHED)
    return path


def edited(path, change):
    data = yaml.safe_load(path.read_text())
    change(data)
    path.write_text(yaml.safe_dump(data))
    return path


def test_the_published_example_has_its_floor_below_base_link(published):
    calibration = CalibrationFile.load(published)
    assert calibration.contradictions == ()
    assert abs(calibration.floor_plane.distance(np.array([[0.0, 0.0, -0.0132687]]))[0]) < 1e-5
    assert calibration.right_to_left[1, 3] == pytest.approx(0.21060627682335334)
    assert calibration.entries[RIGHT_TO_LEFT].robot_id == "stretch-se4-4010"
    assert calibration.entries[RIGHT_TO_LEFT].timestamp == datetime.datetime(2026, 3, 19, 14, 28, 32, 548974)


def by_its_text(data):
    data[FLOOR]["data"]["distance"] *= -1.0


def by_convention(data):
    by_its_text(data)
    del data[FOOTPRINT]
    data[FLOOR]["convention"] = "normal . p + distance = 0"


def by_the_other_name(data):
    data[FOOTPRINT_ALIAS] = data.pop(FOOTPRINT)


@pytest.mark.parametrize("change", [lambda data: None, by_its_text, by_convention, by_the_other_name])
def test_the_floor_is_read_the_same_however_its_sign_is_given(published, change):
    calibration = CalibrationFile.load(edited(published, change))
    assert calibration.contradictions == ()
    assert calibration.floor_plane.offset == pytest.approx(0.0132657727)
    assert calibration.footprint_from_base[2, 3] == pytest.approx(0.0132657727)


def test_without_convention_and_transform_the_floor_is_refused(published):
    edited(published, lambda data: data.pop(FOOTPRINT))
    with pytest.raises(InputError, match="floor_model_params: the sign of distance"):
        CalibrationFile.load(published)


@pytest.mark.parametrize("change, figure", [
    (lambda data: data[FLOOR]["data"].update(distance=0.05), "36.73 mm"),
    (lambda data: data.update({FOOTPRINT_ALIAS: {"data": from_xyz_rpy([0, 0, 0.02]).tolist()}}), FOOTPRINT_ALIAS),
])  # fmt: skip
def test_floors_that_contradict_each_other_are_named(published, change, figure):
    (sentence,) = CalibrationFile.load(edited(published, change)).contradictions
    assert figure in sentence


def test_an_update_leaves_everything_else_as_it_was(published):
    def foreign(data):
        data["camera_to_head"] = {"data": [1, 2, 3], "note": "someone else's"}
        data[RIGHT_TO_LEFT]["operator"] = "ada"

    before = yaml.safe_load(edited(published, foreign).read_text())
    CalibrationFile.update(published, lambda file: file.with_alignment(alignment_result(), "stretch-se4-1", WHEN))
    after = yaml.safe_load(published.read_text())
    assert after["camera_to_head"] == before["camera_to_head"]
    assert after[FOOTPRINT] == before[FOOTPRINT] and after[FLOOR] == before[FLOOR]
    assert after[RIGHT_TO_LEFT]["operator"] == "ada"
    assert after[RIGHT_TO_LEFT]["robot_id"] == "stretch-se4-1"
    assert list(after) == ["version", *before] and after["version"] == 1


def test_what_is_written_is_read_back_to_the_last_bit(tmp_path):
    path = tmp_path / "new" / "dual_lidar_calibration.yaml"
    alignment, floor = alignment_result(), floor_result()
    calibration = CalibrationFile.load_or_empty(path).with_alignment(alignment, "r", WHEN).with_floor(floor, "r", WHEN)
    assert save(calibration, path) is None
    read = CalibrationFile.load(path)
    raw = yaml.safe_load(path.read_text())
    assert raw[RIGHT_TO_LEFT]["data"] == alignment.right_to_left.tolist()
    assert raw[FLOOR]["data"]["distance"] == floor.plane.offset > 0
    assert raw[FLOOR]["convention"] == "normal . p + distance = 0"
    assert "distance is positive if the floor is below" in raw[FLOOR]["data"]["description"]
    np.testing.assert_allclose(read.right_to_left, alignment.right_to_left, atol=1e-15)
    np.testing.assert_allclose(read.footprint_from_base, floor.footprint_from_base, atol=1e-15)
    np.testing.assert_array_equal(read.entries[RIGHT_TO_LEFT].covariance, alignment.covariance)
    entry = read.entries[FLOOR]
    assert (entry.fit_method, entry.rmse, entry.num_frames, entry.timestamp) == ("support", 0.007, 10, WHEN)


def test_an_update_of_the_floor_also_reaches_readers_of_the_other_name(published):
    edited(published, lambda data: data.update({FOOTPRINT_ALIAS: data[FOOTPRINT]}))
    updated = CalibrationFile.load(published).with_floor(floor_result(), "r", WHEN)
    assert updated.contradictions == ()
    assert updated.data[FOOTPRINT_ALIAS]["data"] == updated.data[FOOTPRINT]["data"]


def test_a_refused_result_is_not_written():
    with pytest.raises(Refused, match="sliding along the corridor"):
        CalibrationFile().with_alignment(alignment_result(refusals=["sliding along the corridor"]), "r")
    with pytest.raises(Refused, match="one-sided"):
        CalibrationFile().with_floor(floor_result(refusals=["one-sided"]), "r")


def test_rolling_back_twice_undoes_two_saves_and_old_backups_do_not_pile_up(published):
    first = published.read_text()
    CalibrationFile.update(published, lambda file: file.with_alignment(alignment_result(), "r", WHEN))
    second = published.read_text()
    CalibrationFile.update(published, lambda file: file.with_floor(floor_result(), "r", WHEN))
    third = published.read_text()
    rollback(published)
    assert published.read_text() == second
    assert published.with_name(published.name + ".rolled_back").read_text() == third
    rollback(published)
    assert published.read_text() == first
    with pytest.raises(InputError, match="no backup"):
        rollback(published)
    for index in range(30):
        floor = floor_result(height=0.02 + index * 1e-3)
        CalibrationFile.update(published, lambda file, floor=floor: file.with_floor(floor, "r", WHEN))
    assert len(list(published.parent.glob("*.backup-*"))) == 20
    rollback(published)
    assert CalibrationFile.load(published).floor_plane.offset == pytest.approx(0.02 + 28e-3, abs=1e-4)


EYE = "[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]"


def aligned(data=EYE, **more):
    """Return the text of a file with a transform between the lidars and further keys."""
    entries = ", ".join(f"{key}: {value}" for key, value in {"data": data, **more}.items())
    return f"right_to_left_transform: {{{entries}}}"


def placed(**more):
    return aligned(**more).replace("right_to_left", "floor_to_base_link")


BROKEN = [
    (aligned(EYE.replace("[[1", "[[2")), "not a rigid transform"),
    (aligned(EYE.replace("[[1", "[[.nan")), "finite numbers"),
    (aligned("[[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]"), "4x4"),
    (aligned("&a [*a, *a, *a, *a]"), "aliases"),
    ("right_to_left_transform: {robot_id: x}", "has no 'data'"),
    ("floor_model_params: {data: {distance: 1}}", "needs 'normal'"),
    ("floor_model_params: {data: {normal: [0, 0, 2], distance: 0.1}}", "length 2"),
    ("floor_model_params: {data: {normal: [0, 0, 1], distance: 0.1}, convention: up}", "unknown convention 'up'"),
    (aligned(convention="p_right = data * p_left"), "unknown convention 'p_right = data * p_left'"),
    ("right_to_left_transform:\n  data:\n    - [1, 0, 0", "not valid YAML"),
    ("- 1", "mapping"),
    (aligned(covariance=[[1]]), "covariance: is not a 6x6 matrix of finite numbers"),
    (aligned(covariance=[[0] * 6] * 6), "its diagonal is not positive"),
    (placed(covariance=[[1, 2, 0], [2, 1, 0], [0, 0, 1]]), "is not symmetric and positive"),  # correlation 2
    (aligned(num_frames=-3), "and -3 frames"),
    (aligned(rmse=-0.1), "an rmse of -0.1"),
    (aligned(timestamp="tomorrow"), "'tomorrow'"),
    (aligned(timestamp="0001-01-01"), "'0001-01-01'"),
    ("version: 2", "version: is '2', supported is 1"),
]


@pytest.mark.parametrize("text, expected", BROKEN)
def test_a_broken_file_is_one_sentence_that_names_it(text, expected, tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=re.escape(expected)) as raised:
        CalibrationFile.load(path)
    assert "broken.yaml" in str(raised.value)


def test_a_covariance_of_another_shape_is_named_where_it_is_read():
    file = by_arm_and_wheels(np.random.default_rng(1))
    for key, name, size in (("lidar_mounts", "covariance", 12), (FOOTPRINT, SEEN_COVARIANCE, 3)):
        with pytest.raises(InputError, match=f"{key}: {name}: is not a {size}x{size} matrix"):
            other = file.updated({key: {name: np.eye(4).tolist()}})
            stored_mounts(other), other.seen_covariance(key)


UPDATES = 15
WRITER = """
import sys
from pathlib import Path
from stretch_sim_cal.calibration.calibration_file import CalibrationFile

print("ready", flush=True)
input()
for number in range(int(sys.argv[3])):
    CalibrationFile.update(sys.argv[1], lambda file: file.updated({f"{sys.argv[2]}_{number}": {"note": number}}))
"""


def test_two_processes_that_update_a_file_one_by_a_link_lose_nothing(published, tmp_path):
    link = tmp_path / "elsewhere" / "link.yaml"
    link.parent.mkdir()
    link.symlink_to(published)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, str(UPDATES)], **pipes)
        for name, path in (("a", published), ("b", link))
    ]
    assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * 2
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [(writer.communicate(), writer.returncode)[1] for writer in writers] == [0, 0]
    expected = {f"{name}_{number}" for name in "ab" for number in range(UPDATES)}
    assert expected <= set(yaml.safe_load(published.read_text()))
    assert link.is_symlink() and not list(link.parent.glob("*backup*"))
    rollback(link)
    assert len(expected - set(yaml.safe_load(published.read_text()))) == 1


def test_what_cannot_be_written_beside_a_file_leaves_it_as_it_was(published):
    def full(stream):
        raise OSError(28, "No space left on device")

    before = published.read_bytes()
    with pytest.raises(InputError, match="beside.npz: cannot be written: No space left"):
        CalibrationFile.update(
            published, lambda file: file.with_alignment(alignment_result(), "x", WHEN),
            (published.with_name("beside.npz"), full),
        )  # fmt: skip
    assert published.read_bytes() == before and [path.name for path in published.parent.iterdir()] == [published.name]


def test_the_files_lie_in_the_fleet_folder_or_at_home():
    fleet = {"HELLO_FLEET_PATH": "/fleet", "HELLO_FLEET_ID": "stretch-se4-7"}
    assert str(default_path(fleet)) == "/fleet/stretch-se4-7/calibration_dual_lidar/dual_lidar_calibration.yaml"
    at_home = str(default_path({"HELLO_FLEET_PATH": "/fleet"}))
    assert at_home.endswith("/.stretch/calibration/dual_lidar_calibration.yaml")
    # A parameter's value, of a launch file say, comes without a shell that expands it.
    assert named_or_default("~/mine.yaml") == Path.home() / "mine.yaml" and named_or_default("") == default_path()
    assert (default_robot_id(fleet), default_robot_id({})) == ("stretch-se4-7", "unknown")
    assert str(default_values_path(fleet)) == "/fleet/stretch-se4-7/stretch_calibration_values.yaml"
    assert str(default_values_path({"HELLO_FLEET_ID": "r"})).endswith("/stretch_user/r/stretch_calibration_values.yaml")
    with pytest.raises(InputError, match="HELLO_FLEET_ID"):
        default_values_path({})


def test_an_edit_stays_named_while_other_entries_and_fields_are_updated_and_a_new_result_ends_it():
    file = CalibrationFile().with_alignment(alignment_result(), "r").with_floor(floor_result(), "r")
    assert file.edited == []
    file.data[RIGHT_TO_LEFT]["data"][0][3] += 1e-6
    edited = f"{RIGHT_TO_LEFT}: data"
    assert file.edited == file.with_floor(floor_result(), "r").edited == [edited]
    assert file.updated({RIGHT_TO_LEFT: {"covariance": np.eye(6).tolist()}}).edited == [edited]
    assert file.with_alignment(alignment_result(), "r").edited == []
    file = by_arm_and_wheels(np.random.default_rng(1))
    file.data["lidar_mounts"]["data"]["right"][2][3] -= 0.1
    assert file.edited == ["lidar_mounts: data.right"]


def test_a_file_without_digests_has_none_for_what_was_not_written(published):
    assert CalibrationFile.load(published).edited == []
    file = CalibrationFile.load(published).with_floor(floor_result(), "r")
    assert "digest" not in file.data[RIGHT_TO_LEFT] and "digest" in file.data[FOOTPRINT] and file.edited == []


@pytest.mark.parametrize("entry", [RIGHT_TO_LEFT, FOOTPRINT, FLOOR])
def test_a_file_that_is_cut_off_in_an_entry_is_not_used(tmp_path, entry):
    path = tmp_path / "cut.yaml"
    save(CalibrationFile().with_alignment(alignment_result(), "robot", WHEN).with_floor(floor_result(), "robot"), path)
    text = path.read_text()
    path.write_text(text[: text.index("  convention:", text.index(f"{entry}:"))])
    with pytest.raises(InputError, match=f"{entry}: the file is cut off in it"):
        CalibrationFile.load(path)


HEAD_FROM_LEFT = from_xyz_rpy([0.13, 0.22, -0.06], [-3.05, -0.78, 0.75])
LEFT_FROM_RIGHT = exp([0.01, -0.35, 0.02, 0.4, -1.2, 0.3])
FOOTPRINT_FROM_BASE = from_xyz_rpy([0, 0, 0.031], [0.004, -0.006, 0])
JOINTS = [*lidar_joints(HEAD_FROM_LEFT, LEFT_FROM_RIGHT), base_joint(FOOTPRINT_FROM_BASE)]


def test_joints_are_read_back_as_they_were_written(tmp_path):
    path = tmp_path / "robot" / "stretch_calibration_values.yaml"
    assert record_joints(path, JOINTS, "se4-1", extra={"fit_method": "support"}) is None
    joints = joints_in(path)
    assert list(joints) == ["lidar_left_joint", "lidar_right_joint", "base_ref"]
    right = joints["lidar_right_joint"]
    assert (right.parent, right.child) == ("head_link", "lidar_right_link")
    np.testing.assert_allclose(right.parent_from_child, HEAD_FROM_LEFT @ LEFT_FROM_RIGHT, atol=1e-14)
    np.testing.assert_allclose(joints["base_ref"].parent_from_child, FOOTPRINT_FROM_BASE, atol=1e-14)
    raw = yaml.safe_load(path.read_text())
    assert raw["version"] == "2.0"
    assert raw["joint_calibration"]["base_ref"]["fit_method"] == "support"


def test_the_vendors_description_takes_the_values_over(tmp_path, monkeypatch):
    monkeypatch.setenv("HELLO_FLEET_PATH", str(tmp_path))
    monkeypatch.setenv("HELLO_FLEET_ID", "se4-1")
    record_joints(default_values_path(), JOINTS, "se4-1")
    model = parse_urdf(stretch4_urdf.get_urdf_calibrated("SE4", "francis", "eoa_wrist_dw4_tool_sg4"))
    np.testing.assert_allclose(
        link_transform(model, {}, "lidar_right_link", "lidar_left_link"), LEFT_FROM_RIGHT, atol=1e-9
    )
    np.testing.assert_allclose(link_transform(model, {}, "base_link", "base_footprint"), FOOTPRINT_FROM_BASE, atol=1e-9)


def test_other_joints_and_unknown_keys_of_a_values_file_stay(tmp_path):
    path = tmp_path / "values.yaml"
    other = {"data": {"xyz": "1 2 3", "rpy": "0 0 0", "parent": "a", "child": "b"}, "operator": "ada"}
    path.write_text(yaml.safe_dump({"version": "2.0", "joint_calibration": {"camera": other}, "site": "lab"}))
    backup = record_joints(path, JOINTS, "se4-1")
    raw = yaml.safe_load(path.read_text())
    assert raw["joint_calibration"]["camera"] == other and raw["site"] == "lab"
    assert list(yaml.safe_load(backup.read_text())["joint_calibration"]) == ["camera"]
    rollback(path)
    assert list(joints_in(path)) == ["camera"]


def test_a_values_file_of_format_1_is_converted(tmp_path):
    path = tmp_path / "values.yaml"
    old = {"xyz": "1 2 3", "rpy": "0 0 0", "parent": "a", "child": "b"}
    path.write_text(yaml.safe_dump({"robot_calibration": {"metadata": {"version": "1.0"}, "joints": {"camera": old}}}))
    record_joints(path, JOINTS, "se4-1")
    np.testing.assert_allclose(joints_in(path)["camera"].parent_from_child[:3, 3], [1, 2, 3])
    assert len(joints_in(path)) == 4


@pytest.mark.parametrize("text", ["joint_calibration: [1, 2", "- 1", "joint_calibration: [1]"])
def test_a_values_file_that_cannot_be_read_is_left_alone(tmp_path, text):
    path = tmp_path / "values.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match="values.yaml"):
        record_joints(path, JOINTS, "se4-1")
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]
