"""Datasets are complete after every sample and can be continued; errors name the sample."""

import numpy as np
import pytest
import yaml

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.recording.dataset import JOINTS, DatasetWriter, read_dataset

POINTS = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float32)


def pose(**values):
    return {joint: 0.0 for joint in JOINTS} | values


@pytest.fixture
def directory(tmp_path):
    writer = DatasetWriter(tmp_path / "data", description="<robot name='r'/>", info={"tool": "dw4"})
    writer.write_sample(pose(lift=0.5), pose(lift=0.501), POINTS, {"left": POINTS + 1}, joints={"lift_joint": 0.501})
    as_measured = {joint: np.float32(value) for joint, value in pose(lift=0.5, arm=0.25).items()}
    writer.write_sample(pose(lift=0.5, arm=0.3), as_measured, np.hstack([POINTS, POINTS[:, :1]]))
    return tmp_path / "data"


def edit_metadata(directory, change):
    path = directory / "metadata.yaml"
    metadata = yaml.safe_load(path.read_text())
    change(metadata)
    path.write_text(yaml.safe_dump(metadata))


def test_what_was_written_is_read_back(directory):
    dataset = read_dataset(directory)
    first, second = dataset.samples
    assert first.id == 0 and first.commanded["lift"] == 0.5 and first.actual["lift"] == 0.501
    assert first.joints == {"lift_joint": 0.501}
    np.testing.assert_array_equal(first.points, POINTS)
    np.testing.assert_array_equal(first.cloud("left"), POINTS + 1)
    assert first.cloud("right") is None and second.points.shape == (50, 4)
    assert dataset.description_file.read_text() == "<robot name='r'/>"
    assert dataset.info["tool"] == "dw4" and dataset.warnings == []


def test_which_of_three_lidars_saw_a_point_is_read_back(tmp_path):
    directory = tmp_path / "three"
    parts = dict(zip(("left", "right", "mast"), np.split(POINTS, [20, 35]), strict=True))
    writer = DatasetWriter(directory, lidars=("left", "right", "mast"))
    writer.write_sample(pose(), pose(), POINTS, parts)
    dataset = read_dataset(directory)
    np.testing.assert_array_equal(dataset.samples[0].lidars, np.repeat([0, 1, 2], [20, 15, 15]))
    assert dataset.lidars == ("left", "right", "mast")
    with np.load(directory / "sample_0000.npz") as arrays:
        np.testing.assert_array_equal(arrays["lidar_mast"], parts["mast"])
    with pytest.raises(InputError, match="recorded with other lidars"):
        DatasetWriter(directory)
    # Without the third one's cloud it is not known which lidar saw which point.
    edit_metadata(directory, lambda metadata: metadata["samples"][0].pop("num_lidar_mast"))
    assert read_dataset(directory).samples[0].lidars is None
    # As it was written before.
    edit_metadata(directory, lambda metadata: metadata.update(further_lidars=metadata.pop("lidars")[2:]))
    assert read_dataset(directory).lidars == ("left", "right", "mast")
    edit_metadata(directory, lambda metadata: metadata.update(further_lidars="mast"))
    with pytest.raises(InputError, match="further_lidars is not a list"):
        read_dataset(directory)


def test_an_interrupted_collection_of_one_robot_and_floor_continues_after_the_last_whole_sample(directory, tmp_path):
    (directory / ".sample_0002.npz.half").write_bytes(b"torn")
    writer = DatasetWriter(directory, description="<robot name='r'/>")
    assert writer.holds(pose(lift=0.5)) and not writer.holds(pose(lift=0.6))
    assert writer.write_sample(pose(lift=0.6), pose(lift=0.6), POINTS).name == "sample_0002.npz"
    assert [sample.id for sample in read_dataset(directory).samples] == [0, 1, 2]
    with pytest.raises(InputError, match="another robot description"):
        DatasetWriter(directory, description="<robot name='other'/>")
    DatasetWriter(tmp_path / "floor", footprint_from_base_link=np.eye(4))
    tilted = np.eye(4)
    tilted[2, 3] = 0.01
    with pytest.raises(InputError, match="another floor calibration"):
        DatasetWriter(tmp_path / "floor", footprint_from_base_link=tilted)


@pytest.mark.parametrize("change, message", [
    (lambda m: m["samples"][1]["commanded"].pop("wrist_yaw"), "sample 1: commanded: has no wrist_yaw"),
    (lambda m: m["samples"][1].update(id=0), "two samples have the id 0"),
    (lambda m: m["samples"][1].update(file="../../etc/passwd.npz"), "sample 1: 'file'"),
    (lambda m: m.update(frame="map"), "frame 'map'"), (lambda m: m.update(format=9), "format 9"),
    (lambda m: m.pop("samples"), "no list 'samples'"), (lambda m: m.update(samples=[]), "lists no samples"),
])  # fmt: skip
def test_metadata_that_is_wrong_is_refused_by_name(directory, change, message):
    edit_metadata(directory, change)
    with pytest.raises(InputError, match=message):
        read_dataset(directory)


def test_a_file_that_the_metadata_does_not_name_and_a_pose_twice_are_warnings(directory):
    DatasetWriter(directory).write_sample(pose(lift=0.5), pose(lift=0.5), POINTS)
    np.savez(directory / "sample_0009.npz", points=POINTS)
    warnings = "\n".join(read_dataset(directory).warnings)
    assert "sample_0009.npz: is not in metadata.yaml" in warnings and "same commanded pose as sample 0" in warnings


def test_no_dataset_no_data_and_a_single_array_under_the_name_of_a_sample_are_refused(tmp_path, directory):
    with pytest.raises(InputError, match="no such folder"):
        read_dataset(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is .* a body-shape dataset"):
        read_dataset(tmp_path)
    with pytest.raises(InputError, match="points: is float64 of shape"):
        DatasetWriter(tmp_path).write_sample(pose(), pose(), np.zeros(3))
    with open(directory / "sample_0001.npz", "wb") as stream:
        np.save(stream, POINTS)
    with pytest.raises(InputError, match="sample 1 .*not an .npz file"):
        read_dataset(directory)
