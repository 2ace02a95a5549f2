"""The view in 3D: what it shows of clouds, that it says what to install, and a recording of a run's files."""

import dataclasses
import socket
import sys
import urllib.request
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from made_results import alignment_result, box_returns, floor_result, save

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.room import COUNTS, DISAGREE, FEW, VERDICTS, SeenPatches
from stretch_sim_cal.commands import calibrate_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy
from stretch_sim_cal.harness import clouds_3d
from stretch_sim_cal.harness.clouds_3d import RunView
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.view import SHOWN, coloured, opened, residuals, thinned


def asked(file=None, port=None, host=None):
    return opened(SimpleNamespace(view=False, view_file=file, view_port=port, view_host=host))


def test_residuals_are_the_distances_from_the_other_clouds_planes():
    left, right = box_returns(1, 6000), box_returns(2, 6000)
    shifted = right + np.where(np.abs(right[:, :1]) > 2.99, [[0.02, 0.0, 0.0]], 0.0)
    places, gaps = residuals(left, shifted)
    moved = np.abs(places[:, 0]) > 2.95
    far = moved & (places[:, 0] > 0) & (np.abs(places[:, 1]) < 1.5) & (np.abs(places[:, 2]) < 0.9)
    assert np.median(gaps[far]) == pytest.approx(-0.02, abs=0.002)  # away from the robot
    assert np.median(np.abs(gaps[~moved])) < 0.002
    assert len(residuals(left[:3], right)[1]) == 0 == len(residuals(left, right[:0])[1])


def test_colours_tell_below_from_above():
    below, none, above = coloured(np.array([-2 * SHOWN, 0.0, SHOWN])).astype(int)
    assert below[2] > below[0] and above[0] > above[2] and len(set(none)) == 1


def test_never_more_points_are_drawn_than_a_browser_takes(monkeypatch):
    monkeypatch.setattr("stretch_sim_cal.view.DRAWN", 100)
    assert [len(thinned(np.zeros((count, 3)))) for count in (100, 101, 199, 500)] == [100, 51, 100, 100]


def test_without_rerun_it_says_what_to_install(monkeypatch, capsys, tmp_path):
    assert asked() is None
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(InputError, match=r"pip install 'stretch_sim_cal\[view\]'"):
        asked(file="some.rrd")
    monkeypatch.setenv("HELLO_FLEET_PATH", str(tmp_path))
    monkeypatch.setenv("HELLO_FLEET_ID", "stretch-1")
    assert calibrate_robot.main(["--yes", "--view-file", str(tmp_path / "some.rrd")]) == 2
    assert "pip install" in capsys.readouterr().err


def test_a_view_is_served_to_this_machine_unless_an_address_is_given(capfd):
    pytest.importorskip("rerun", reason="the extra 'view' is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    view = asked(port=port)
    try:
        said = capfd.readouterr()
        page = said.err[said.err.index("http://") :].split()[0]
        assert not said.out  # which may go to a program
        assert page.startswith(f"http://127.0.0.1:{port}?url=rerun+http://127.0.0.1:")
        with urllib.request.urlopen(page.partition("?")[0], timeout=60.0) as answer:
            assert b"<html" in answer.read().lower()
        ports = {port, int(page.rpartition(":")[2].partition("/")[0])}
        listening = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        assert {tuple(each.laddr) for each in listening if each.laddr.port in ports} == {
            ("127.0.0.1", each) for each in ports
        }
        with pytest.raises(InputError, match=f"--view-port {port}: cannot be served on 127.0.0.1"):
            asked(port=port)
    finally:
        view._server.terminate()


def test_a_runs_files_are_recorded_as_they_come(tmp_path, monkeypatch):
    pytest.importorskip("rerun", reason="the extra 'view' is not installed")
    files, path = RunFiles(tmp_path / "run"), tmp_path / "run.rrd"
    files.calibration.parent.mkdir(parents=True)
    right_in_left = from_xyz_rpy((0.1, 0.0, 0.0), (0.0, 0.0, 0.1))
    poses = {"base_from_left": np.eye(4), "base_from_right": np.eye(4)}
    np.savez(
        files.clouds,
        left=box_returns(1, 6000),
        right=apply(np.linalg.inv(right_in_left), box_returns(2, 6000)),
        **poses,
    )
    view = asked(file=path)
    shown = RunView(view, files)
    shown.update()
    view.stage("described: left and mast")  # of a robot with more lidars
    view.close()
    before = path.stat().st_size
    assert before > 10_000
    file = CalibrationFile().with_alignment(alignment_result(right_in_left), "robot")
    save(file.with_floor(floor_result(), "robot"), files.calibration)
    known = Observations.of_known_poses((right_in_left,), 1e-6 * np.eye(6))
    verdicts = np.array([COUNTS, FEW, DISAGREE], dtype=np.uint8)
    seen = SeenPatches(np.eye(3), np.array([0.001, np.nan, 0.02]), verdicts)
    monkeypatch.setattr(clouds_3d, "load_beside", lambda file: dataclasses.replace(known, patches=seen))
    shown_patches = []
    monkeypatch.setattr(view, "patches", lambda *what, show=view.patches: shown_patches.append(what) or show(*what))
    shown.update()
    view.close()
    after = path.stat().st_size
    assert [list(said) for *_, said in shown_patches] == [[VERDICTS[number] for number in verdicts]]
    assert after > 1.5 * before
    shown.update()
    view.close()
    assert path.stat().st_size < 1.1 * after  # nothing new, nothing shown
    with pytest.raises(InputError, match="cannot be written"):
        asked(file="/proc/no/such.rrd")


def test_the_visualizers_clouds_are_recorded_live_for_any_number_of_lidars(tmp_path):
    pytest.importorskip("rerun", reason="the extra 'view' is not installed")
    path, clouds = tmp_path / "live.rrd", {name: box_returns(seed, 3000) for seed, name in enumerate("abc")}
    view = asked(file=path)
    view.live(10**9, clouds, clouds["c"][:100])
    view.close()
    recorded = path.read_bytes()
    assert all(f"/world/after/by_lidar/{name}".encode() in recorded for name in clouds)
