"""The pytest plugin in a user's own tests: fixtures, marker, assertion and what is kept."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
SENSOR = ROOT / "test" / "ros" / "few_rays_amr.yaml"
USERS_TESTS = f"""
import pytest

pytestmark = pytest.mark.simcal(robot="two_lidar_amr", sensor="{SENSOR}")

@pytest.mark.simcal(seeds=(3, 4), frames=6)
def test_it_is_calibrated(sim, rig, truth, calibration, assert_calibrated):
    assert rig is sim.rig and truth is sim.truth
    assert_calibrated(calibration, mm=1.0, deg=0.02, nees=4.7, floor_mm=1.0, floor_deg=0.05)

@pytest.mark.simcal(frames=3)
def test_it_is_too_exact(calibration, assert_calibrated):
    with pytest.raises(Exception, match="assert_calibrated: mm: is '3'; expected a number"):
        assert_calibrated(calibration, mm="3")
    with pytest.raises(BaseException, match="assert_calibrated: is given a tuple, expected a Result"):
        assert_calibrated((calibration,), mm=3)
    assert_calibrated(calibration, mm=0.001)

@pytest.mark.simcal(world="long_corridor", frames=3)
def test_it_is_refused(calibration, assert_calibrated):
    assert_calibrated(calibration, mm=1.0)

@pytest.mark.simcal(wrld="tables")
def test_a_slip(sim):
    pass

@pytest.mark.simcal(frames=1, backend="cloud")
def test_another_slip(calibration):
    pass

@pytest.mark.simcal(seed=1, seeds=(1, 2))
def test_a_third_slip(sim):
    pass

@pytest.mark.simcal(sensor="xt32_sparse", frames=2, seed=4)
class TestOurs:
    @pytest.mark.simcal(frames=1, seeds=(7,))
    def test_its_marker_adds_to_that_of_its_class(self, sim):
        assert (sim.rig.sensor.name, len(sim.clouds["left"]), sim.simulator.setup.seed) == ("xt32_sparse", 1, 7)
"""

BESIDE = f"""
import pytest

@pytest.mark.simcal(world="room.sdf", sensor="{SENSOR}", frames=1)
def test_a_file_that_a_test_names_lies_beside_it(sim):
    assert sim.clouds
"""
SCENARIO = f"""
simulation: {{robot: two_lidar_amr, world: furnished_room, sensor: {SENSOR}, seed: 3}}
stages: {{alignment: {{num_samples: 2}}}}
tolerances: {{alignment: {{translation_mm: %g, rotation_deg: 0.05, nees: 4}}}}
"""


def run(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """Run pytest on a user's tests, which know of the package only by its plugin."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | (environment or {})
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "stretch_sim_cal.pytest_plugin", "-p", "no:cacheprovider", *arguments],
        cwd=folder, capture_output=True, text=True, env=environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    (folder / "test_ours.py").write_text(USERS_TESTS)
    (folder / "beside").mkdir()
    shutil.copy(ROOT / "worlds" / "single_wall.sdf", folder / "beside" / "room.sdf")
    (folder / "beside" / "test_beside.py").write_text(BESIDE)
    return folder, run(folder, "--junit-xml=junit.xml", "--simcal-artifacts=kept")


def test_what_is_within_its_bounds_passes_for_every_seed_and_says_what_was_found(done):
    folder, ended = done
    assert ended.returncode == 1 and "4 passed" in ended.stdout and "2 failed" in ended.stdout, ended.stdout
    cases = {case.get("name"): case for case in ElementTree.parse(folder / "junit.xml").iter("testcase")}
    for seed in (3, 4):
        found = {each.get("name"): float(each.get("value"))
                 for each in cases[f"test_it_is_calibrated[seed{seed}]"].iter("property")}  # fmt: skip
        assert 0.0 < found["lidars: translation mm"] < 1.0 and 0.0 < found["floor: height mm"] < 1.0


def test_what_is_not_is_told_in_a_table_and_kept(done):
    folder, ended = done
    assert "at most 0.001 mm  FAIL" in ended.stdout and "Traceback" not in ended.stdout
    assert "refused: the scene does not determine sliding along base x" in ended.stdout
    assert "unobserved" in ended.stdout and "junit_family" not in ended.stdout
    kept = sorted(path.name for path in (folder / "kept").iterdir())
    assert kept == ["test_ours.py_test_it_is_refused", "test_ours.py_test_it_is_too_exact"]
    assert (folder / "kept" / kept[0] / "clouds.npz").stat().st_size > 1000
    assert "refused" in (folder / "kept" / kept[0] / "result.txt").read_text()


def test_a_key_or_backend_that_the_marker_does_not_have_is_told(done):
    assert "marker simcal: 'wrld' is not one of its keys: robot, world" in done[1].stdout
    assert "marker simcal: seed and seeds exclude each other" in done[1].stdout
    assert "backend 'cloud' is not one of embedded, nodes, gazebo" in done[1].stdout


@pytest.mark.parametrize(
    ("key", "said"),
    [("frames=0", "simulate: frames: is 0"), ("world='rom'", "'rom' is not known in worlds/"),
     ("seeds=3", "seeds: is 3; expected several")],
)  # fmt: skip
def test_a_value_that_a_key_cannot_have_is_told_without_a_look_into_the_package(tmp_path, key, said):
    test = f"import pytest\n\n@pytest.mark.simcal({key})\ndef test_it(sim):\n    pass\n"
    (tmp_path / "test_wrong.py").write_text(test)
    ended = run(tmp_path)
    assert ended.returncode and f"marker simcal: {said}" in ended.stdout
    assert "pytest_plugin.py" not in ended.stdout and "During handling" not in ended.stdout


def test_a_run_that_does_not_use_the_plugin_imports_nothing_for_it(tmp_path):
    (tmp_path / "test_plain.py").write_text(
        "import sys\n\ndef test_plain():\n"
        "    assert not [name for name in sys.modules if name == 'numpy' or name.startswith('stretch_sim_cal.')\n"
        "                and name != 'stretch_sim_cal.pytest_plugin']\n"
    )
    assert run(tmp_path).returncode == 0


def test_scenario_files_are_tests(tmp_path):
    (tmp_path / "scenarios").mkdir()
    for name, text in (("fine", SCENARIO % 2.0), ("strict", SCENARIO % 0.001), ("settings", "a: 1\n"),
                       ("slip", SCENARIO.replace("num_samples", "samples") % 2.0)):  # fmt: skip
        (tmp_path / "scenarios" / f"{name}.yaml").write_text(text)
    (earlier := tmp_path / "scenarios" / "out" / "strict").mkdir(parents=True)  # what a run leaves is no test
    for name, text in (("scenario.yaml", SCENARIO % 0.001), ("result.json", "{}")):
        (earlier / name).write_text(text)
    ended = run(tmp_path, "scenarios", "--junit-xml=junit.xml", "--simcal-artifacts=kept")
    assert ended.returncode == 1 and "2 failed, 1 passed" in ended.stdout, ended.stdout
    assert "lidars: translation      FAIL" in ended.stdout and "above its tolerance of 0.001" in ended.stdout
    assert "unknown key 'samples'" in ended.stdout
    cases = {case.get("name"): case for case in ElementTree.parse(tmp_path / "junit.xml").iter("testcase")}
    found = {each.get("name"): float(each.get("value")) for each in cases["fine"].iter("property")}
    assert 0.0 < found["lidars: translation mm"] < 2.0 and 0.0 < found["lidars: NEES per freedom"] < 4.0
    (kept,) = (tmp_path / "kept").iterdir()
    assert (kept / "report.html").is_file() and "strict" in kept.name


def test_a_backend_that_is_not_installed_is_a_reason_to_skip(tmp_path):
    (tmp_path / "fine.yaml").write_text(SCENARIO % 2.0)
    environment = {"PATH": str(tmp_path)}
    ended = run(tmp_path, "fine.yaml", "--simcal-backend=gazebo", "-rs", environment=environment)
    assert ended.returncode == 0 and "1 skipped" in ended.stdout
    assert "backend gazebo: gz is not installed" in ended.stdout


@pytest.mark.long
def test_the_same_test_goes_through_the_nodes_if_its_marker_says_so(tmp_path):
    (tmp_path / "test_ours.py").write_text(
        """
import pytest

@pytest.mark.simcal(sensor="jt128_sparse", frames=4, backend="nodes")
def test_by_nodes(calibration, assert_calibrated):
    assert_calibrated(calibration, mm=1.0, deg=0.02, nees=4.7, floor_mm=1.0)
"""
    )
    ended = run(tmp_path, ".")
    assert "1 passed" in ended.stdout
