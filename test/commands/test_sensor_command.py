"""`sensor` on recordings: unit files with which the simulator has the units again, a page, and bad recordings named;
and what `doctor` and `calibrate` say of the lidars first."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from called import called
from recorded_robot import write_description, write_scans

from stretch_sim_cal.commands import doctor
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup

pytestmark = pytest.mark.usefixtures("quick_pictures")

SENSOR = "jt128_sparse_real"
FEW_RAYS = str(Path(__file__).parents[1] / "ros" / "few_rays.yaml")
SCANS = 5


def record(simulator, folder, turn=0.0, scans=SCANS, first=0, without=()):
    """Record a few scans of a simulated robot, turned by so much (deg), `without` some fields of the points."""
    simulator.move_base(from_xyz_rpy((0.0, 0.0, 0.0), (0.0, 0.0, np.radians(turn))))
    with RecordingWriter(folder) as writer:
        write_description(writer, simulator.nominal_description)
        for tick in range(first, first + scans):
            write_scans(writer, simulator, tick, without=without)
    return folder


def simulated(sensor=SENSOR, **setup) -> EmbeddedSimulator:
    error = PoseError((0.002, -0.001, 0.003), tuple(np.radians([0.4, -0.3, 0.5])))
    return EmbeddedSimulator(SimulationSetup("furnished_room", sensor, lidar_errors={"left": error}, **setup))


@pytest.fixture(scope="module")
def simulator():
    return simulated(seed=1)


@pytest.fixture(scope="module")
def short(simulator, tmp_path_factory):
    """A recording of three scans."""
    return record(simulator, tmp_path_factory.mktemp("short") / "bag", scans=3)


@pytest.fixture(scope="module")
def units(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sensor")
    simulator = simulated(seed=5, unit_seed=11)
    recordings = [record(simulator, folder / str(turn), turn, first=turn) for turn in (0, 60)]
    assert called("sensor", *recordings, "--out", folder / "units", "--json")[0] == 0
    return simulator, folder / "units"


def wrong(unit, true) -> tuple[int, int]:
    """Return how many parameters a unit file holds as determined, and how many are more than three deviations off."""
    known = unit.standard_deviations <= 0.7 * np.sqrt(np.diag(load_sensor(SENSOR).error_model().prior_covariance()))
    errors = np.abs(unit.values - true)[known]
    return len(errors), np.count_nonzero(errors > 3.0 * unit.standard_deviations[known] + 1e-9)


def test_unit_files_hold_the_units_and_the_simulator_has_them_again(units):
    simulator, folder = units
    files = {device: folder / f"unit_{device}.yaml" for device in SIDES}
    twin, true = simulated(seed=6, units=files), simulator.sensor
    for device in SIDES:
        found = load_sensor(files[device])
        count, off = wrong(found.unit, simulator.lidar(device).unit.values)
        assert count > 60 and off <= 0.05 * count
        assert found.quantisation == pytest.approx(true.quantisation, rel=1e-3)
        assert found.range_noise == pytest.approx(true.range_noise, rel=0.05)
        assert found.drop_out_rate == pytest.approx(true.drop_out_rate, rel=0.3)
        assert (found.driver, found.dual_return, found.zero_misses) == (true.driver, true.dual_return, true.zero_misses)
        assert np.array_equal(twin.lidar(device).unit.values, found.unit.values)


def test_sensor_and_unit_files_are_checked_and_printed_without_a_recording(units, tmp_path):
    own = units[1] / "unit_left.yaml"
    found = json.loads(called("sensor", "--sensor", f"{SENSOR},xt32,{own}", "--json", code=0)[1])
    assert found[SENSOR]["channels"] == "64: ring 0 at -4.965 deg, ring 63 at 88.865 deg"
    assert found["xt32"]["expected errors"].endswith("those of the class") and "errors" not in found["xt32"]
    assert found["unit_left"]["kind"] == SENSOR and "range_offset" in found["unit_left"]["errors"]
    assert "ring 31 at -16.000 deg" in called("sensor", "--sensor", "xt32", code=0)[1]
    shutil.copy(own, tmp_path)
    assert "two files have one name" in called("sensor", "--sensor", f"{own},{tmp_path / own.name}", code=2)[2]


def test_the_report_is_one_page_that_needs_no_network(units):
    page = (units[1] / "report.html").read_text()
    assert "not determined" in page and page.count("data:image/png;base64,") == 3
    assert "http" not in page


def test_without_rings_nothing_can_be_identified_but_clouds_of_a_driver_that_corrects_them_are_aligned(
    simulator, tmp_path
):  # fmt: skip
    folder = record(simulator, tmp_path / "bag", scans=1, without=("ring",))
    code, _, said = called("sensor", folder, "--out", tmp_path / "units")
    assert code == 2 and "left lidar: the points have no field ring" in said and not (tmp_path / "units").exists()
    corrected = simulated(FEW_RAYS, seed=1)
    recording = record(corrected, tmp_path / "corrected", scans=3, without=("ring",))
    code, _, said = called("calibrate", recording, "--only", "alignment", "--out", tmp_path / "cal.yaml")
    assert code == 0 and "left lidar: the points have no field ring" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "3 scans of the left lidar, at least 5 are needed"),
        (["--sensor", "jt128"], "rings 0 to 63, whose elevations match none of jt128 (128 channels)"),
    ],
)
def test_a_recording_that_cannot_be_used_is_an_input_error(short, tmp_path, options, said):
    code, _, told = called("sensor", short, *options, "--out", tmp_path / "units")
    assert code == 2 and said in told


def test_recordings_of_different_drivers_are_not_taken_together(short, tmp_path):
    corrected = simulated(seed=1, driver={"distance_correction": True})
    other = record(corrected, tmp_path / "on", scans=3)
    code, _, said = called("sensor", short, other, "--out", tmp_path / "units")
    assert code == 2 and "left lidar: distance_correction is True, in" in said


def test_doctor_and_calibrate_say_what_the_lidars_and_their_driver_do(simulator, tmp_path, monkeypatch):
    folder = record(simulator, tmp_path / "bag")
    monkeypatch.setattr(doctor, "_has", lambda module: False)  # a recording needs no ROS
    lines = json.loads(called("doctor", folder, "--json", code=0)[1])["lidars"]
    assert f"left lidar: ring: there, 0 to 63; table: {SENSOR}" in lines
    assert any(line.startswith("right lidar: distance correction: off in the driver") for line in lines)
    assert lines[-1].startswith("sync: right scans begin")
    quickly = ("--only", "alignment", "--method", "published")
    _, _, said = called("calibrate", folder, *quickly, "--out", tmp_path / "cal.yaml")
    assert all(line in said for line in lines)
