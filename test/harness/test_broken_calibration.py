"""A harness that notices: the calibration is broken on purpose, and the run goes red and names the culprit."""

import sys
from pathlib import Path

import pytest

from stretch_sim_cal.harness.processes import Process, calibration_processes
from stretch_sim_cal.harness.run import run_scenario
from stretch_sim_cal.harness.scenario import load_scenario

HERE = Path(__file__).parent

METHOD = '''
import numpy as np
from stretch_sim_cal.calibration.results import AlignmentResult

class Nominal:
    """Believes the description and is very sure of it."""
    def __init__(self, initial_right_to_left, settings):
        self.estimate, self.frames = initial_right_to_left, 0
    def add(self, left, right):
        self.frames += 1
    def solve(self):
        return AlignmentResult(right_to_left=self.estimate, covariance=np.eye(6) * 1e-10, rmse=0.0,
                               num_frames=self.frames, method="nominal", overlap=1.0, directions=[])
'''


@pytest.fixture(scope="module")
def scenario():
    return load_scenario("furnished_room_sparse")


def sabotage(how: str, files, product: Path) -> Process:
    return Process("sabotage", sys.executable, (str(HERE / "saboteur.py"), how, str(product), str(files.truth)))


def with_sabotage(after: str, how: str, product_of=lambda files: files.calibration, stop: bool = True):
    """Return a list of processes with a saboteur after the process named `after`, and nothing after it if `stop`."""

    def processes(scenario, files):
        steps = []
        for process in calibration_processes(scenario, files):
            if process.name == "capture":
                continue
            steps.append(process)
            if process.name == after:
                steps.append(sabotage(how, files, product_of(files)))
                if stop:
                    break
        return steps

    return processes


def only(stages: dict, scenario):
    import dataclasses

    return dataclasses.replace(
        scenario, stages={name: scenario.stages[name] | options for name, options in stages.items()}
    )


ALIGNMENT_ONLY = {"alignment": {"num_samples": 20}}


def test_a_plugged_in_method_that_returns_the_nominal_transform_is_caught(scenario, tmp_path, monkeypatch):
    package = tmp_path / "package"
    distribution = package / "broken_methods-0.1.dist-info"
    distribution.mkdir(parents=True)
    (package / "broken_methods.py").write_text(METHOD)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: broken_methods\nVersion: 0.1\n")
    (distribution / "entry_points.txt").write_text(
        "[stretch_sim_cal.alignment_methods]\nnominal = broken_methods:Nominal\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(package))
    changed = only({"alignment": {"num_samples": 2, "method": "nominal"}}, scenario)
    verdict = run_scenario(changed, tmp_path / "run")
    assert verdict.exit_code == 1
    assert any(
        "translation_error_mm is 5.2" in reason and "ros_align_dual_lidar" in reason for reason in verdict.reasons
    )


def test_an_inverted_result_is_caught(scenario, tmp_path):
    verdict = run_scenario(
        only(ALIGNMENT_ONLY, scenario), tmp_path / "run", processes=with_sabotage("align", "inverted")
    )
    assert verdict.exit_code == 1
    assert any("rotation_error_deg" in reason and "ros_align_dual_lidar" in reason for reason in verdict.reasons)


def test_lidars_that_are_swapped_are_named_and_nothing_is_written(scenario, tmp_path):
    def swapped(scenario, files):
        (align,) = [process for process in calibration_processes(scenario, files) if process.name == "align"]
        topics = ("-p", "left_lidar_topic:=/lidar_points_right", "-p", "right_lidar_topic:=/lidar_points_left")
        return [Process(align.name, align.executable, (*align.arguments, *topics), stage=align.stage)]

    verdict = run_scenario(only(ALIGNMENT_ONLY, scenario), tmp_path / "run", processes=swapped)
    assert not verdict.passed
    assert any("ros_align_dual_lidar" in reason and "swapped" in reason for reason in verdict.reasons)
    assert not list((tmp_path / "run").rglob("dual_lidar_calibration.yaml"))


def test_a_floor_that_is_5_mm_off_is_caught(scenario, tmp_path):
    changed = only(ALIGNMENT_ONLY | {"floor": {"num_samples": 5}}, scenario)
    verdict = run_scenario(changed, tmp_path / "run", processes=with_sabotage("floor", "floor_5_mm_off"))
    assert verdict.exit_code == 1
    assert verdict.stages["alignment"].passed
    assert [
        reason for reason in verdict.reasons if "height_error_mm" in reason and "ros_find_floor_calibration" in reason
    ]
    assert 4.0 < verdict.as_json()["floor"]["height_error_mm"] < 6.0


def test_a_lidar_that_never_publishes_ends_in_a_broken_run_that_names_its_topic(scenario, tmp_path):
    def impatient(scenario, files):
        (align,) = [process for process in calibration_processes(scenario, files) if process.name == "align"]
        return [Process(align.name, align.executable, (*align.arguments, "-p", "timeout:=7.0"), stage=align.stage)]

    verdict = run_scenario(
        only(ALIGNMENT_ONLY, scenario),
        tmp_path / "run",
        simulator_options=("--fault", "silent_left"),
        processes=impatient,
    )
    assert verdict.exit_code == 3
    assert any("ros_align_dual_lidar" in reason and "/lidar_points_left" in reason for reason in verdict.reasons)
    assert verdict.as_json()["alignment"] == {"translation_error_mm": None, "rotation_error_deg": None, "passed": False}


def test_a_node_that_crashes_is_named_with_its_last_words(scenario, tmp_path):
    def crashing(scenario, files):
        return [Process("align", sys.executable, ("-c", "raise RuntimeError('lost its mind')"), stage="alignment")]

    verdict = run_scenario(only(ALIGNMENT_ONLY, scenario), tmp_path / "run", processes=crashing)
    assert verdict.exit_code == 3
    assert any("align" in reason and "lost its mind" in reason for reason in verdict.reasons)


def test_a_simulator_that_dies_while_it_is_needed_is_named(scenario, tmp_path):
    verdict = run_scenario(
        only({"alignment": {"num_samples": 2000}}, scenario),
        tmp_path / "run",
        simulator_options=("--fault", "crash:3.0"),
    )
    assert verdict.exit_code == 3
    assert any(reason.startswith("simulator (stretch_simulator) died") for reason in verdict.reasons)
