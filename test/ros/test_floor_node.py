"""The floor node: it needs an alignment, finds the tilted floor, and keeps both files up to date."""

import fake_drivers
import numpy as np
import pytest
from made_results import joints_in

from stretch_sim_cal.calibration.calibration_file import FLOOR, CalibrationFile
from stretch_sim_cal.files import keep_backup
from stretch_sim_cal.geometry.planes import floor_of_footprint
from stretch_sim_cal.geometry.transforms import error, from_xyz_rpy, inverse

pytestmark = pytest.mark.graph

TILT_DEG, HEIGHT = [0.5, -0.3], 0.031
FLOOR_FROM_BASE = from_xyz_rpy((0.0, 0.0, HEIGHT), np.radians([*TILT_DEG, 0.0]))


def test_finds_the_floor_and_writes_both_files(graph):
    fake_drivers.write_calibration(graph.calibration_file, None)
    with graph.drivers(tilt_deg=TILT_DEG, height=HEIGHT):
        ended = graph.call(
            "ros_find_floor_calibration", "--num-samples", "4", "--fit-method", "svd", "--mode", "average_transforms"
        )
    assert ended.code == 0, ended.err
    assert "fit_method 'svd' is not offered" in ended.err and "mode 'average_transforms'" in ended.err
    file = CalibrationFile.load(graph.calibration_file)
    height = file.floor_plane.offset - FLOOR_FROM_BASE[2, 3]
    tilt = np.arccos(min(1.0, file.floor_plane.normal @ FLOOR_FROM_BASE[2, :3]))
    assert abs(height) < 0.0005 and np.degrees(tilt) < 0.03
    assert file.data["other"] == {"kept": True} and file.right_to_left is not None
    recorded = joints_in(graph.folder / "fleet" / "stretch-test" / "stretch_calibration_values.yaml")["base_ref"]
    assert error(file.footprint_from_base, recorded.parent_from_child)[0] < 1e-9
    assert (recorded.parent, recorded.child) == ("base_footprint", "base_link")


def test_looks_from_where_the_mounts_in_the_file_have_the_left_lidar(graph):
    described = fake_drivers.nominal_pose("left")
    left = described @ from_xyz_rpy((0.004, 0.0, -0.003), np.radians([0.8, -0.5, 0.3]))
    fake_drivers.write_calibration(graph.calibration_file, None, base_from_left=left)
    with graph.drivers(tilt_deg=TILT_DEG, height=HEIGHT):
        ended = graph.call("ros_find_floor_calibration", "--num-samples", "4")
    assert ended.code == 0, ended.err
    assert "5.0 mm and 0.99 deg from where TF has it" in ended.err
    found, expected = CalibrationFile.load(graph.calibration_file), floor_of_footprint(FLOOR_FROM_BASE)
    expected = expected.moved(left @ inverse(described))
    assert abs(found.floor_plane.offset - expected.offset) < 0.0005
    assert np.degrees(np.arccos(min(1.0, found.floor_plane.normal @ expected.normal))) < 0.03
    assert np.sqrt(found.entries[FLOOR].covariance[0, 0]) > 1e-4  # that of the mount


def test_rollback_brings_back_the_calibration_before_the_last_write(graph):
    path = graph.calibration_file
    path.parent.mkdir(parents=True)
    path.write_text("note: older\n")
    keep_backup(path)
    path.write_text("note: newer\n")
    ended = graph.call("ros_find_floor_calibration", "--rollback")
    assert ended.code == 0, ended.err
    assert path.read_text() == "note: older\n"
    assert path.with_name(path.name + ".rolled_back").read_text() == "note: newer\n"
    assert graph.call("ros_find_floor_calibration", "--rollback").code == 2
