"""Runs of the harness by nodes and in one process; files changed on purpose, of which the verdict names the culprit."""

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from stretch_sim_cal import files
from stretch_sim_cal.calibration.body.model import load_body_shape_model, save_body_shape_model
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.cli import main
from stretch_sim_cal.command import outcome_in
from stretch_sim_cal.geometry.planes import floor_of_footprint
from stretch_sim_cal.geometry.transforms import error, inverse
from stretch_sim_cal.harness.processes import Process, ProcessSequence, RunFiles, calibration_nodes
from stretch_sim_cal.harness.report import write_report
from stretch_sim_cal.harness.run import conclude, run_scenario
from stretch_sim_cal.harness.scenario import Scenario, load_scenario
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

pytestmark = pytest.mark.usefixtures("quick_pictures")

SPARSE = "furnished_room_sparse"
FEW = {"alignment": {"num_samples": 3}, "floor": {"num_samples": 3},
       "body_shape": {"plan": "quick", "fit_method": "circle"}}  # fmt: skip
FEW_RAYS = str(Path(__file__).parents[1] / "ros" / "few_rays.yaml")


def changed(name: str, folder: Path, sensor: str | None = None, **stages: dict) -> str:
    """Return the path of a scenario of that name that has other stages and lidars of another kind."""
    scenario = files.read_yaml(files.share_directory() / "scenarios" / f"{name}.yaml") | {"stages": stages}
    scenario["simulation"] |= {} if sensor is None else {"sensor": sensor}
    scenario["tolerances"] = {stage: each for stage, each in scenario.get("tolerances", {}).items() if stage in stages}
    files.write_yaml(folder / f"{name}.yaml", scenario)
    return str(folder / f"{name}.yaml")


@pytest.fixture(scope="module")
def sparse(tmp_path_factory) -> str:
    return changed(SPARSE, tmp_path_factory.mktemp("scenario"), FEW_RAYS, **FEW)


@pytest.fixture(scope="module")
def run_folder(sparse, tmp_path_factory, quick_pictures) -> Path:
    out = tmp_path_factory.mktemp("whole_path")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setitem(sys.modules, "rclpy", None)
        code = main(["run", sparse, "--in-process", "--out", str(out)])
    assert code == 0 and "HELLO_FLEET_ID" not in os.environ, (out / SPARSE / "result.json").read_text()
    return out / SPARSE


@pytest.fixture
def run(run_folder, tmp_path) -> RunFiles:
    return RunFiles(Path(shutil.copytree(run_folder, tmp_path / "run")))


def test_without_ros_every_quantity_is_judged_and_within_its_tolerance_and_the_report_stands_alone(run_folder):
    result = json.loads((run_folder / "result.json").read_text())
    assert result["passed"] and result["scenario"] == "furnished_room_sparse" and result["simulator"] == "embedded"
    assert 0 < result["alignment"]["translation_error_mm"] < 2.0
    assert 0 < result["alignment"]["rotation_error_deg"] < 0.05
    assert 0 < result["floor"]["height_error_mm"] < 1.0 and 0 < result["floor"]["tilt_error_deg"] < 0.05
    assert result["body_shape"]["max_protrusion_mm"] < 10.0
    assert 0.99 < result["body_shape"]["excess_area_ratio"] < 1.15
    assert result["versions"]["stretch_sim_cal"]
    page = (run_folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3 and "Not drawn" not in page
    assert "http://" not in page and "https://" not in page and "src='data" in page
    assert "PASS" in page and "tolerance" in page


@pytest.mark.parametrize("stages", [("alignment",), pytest.param(tuple(FEW), marks=pytest.mark.long)])
def test_real_nodes_over_dds_come_to_the_same(run_folder, tmp_path, stages):
    """With the noise of the same scans."""
    scenario = changed(SPARSE, tmp_path, FEW_RAYS, **{stage: FEW[stage] for stage in stages})
    assert main(["run", scenario, "--out", str(tmp_path)]) == 0
    here, of_nodes = (json.loads((folder / "result.json").read_text()) for folder in (run_folder, tmp_path / SPARSE))
    assert (here["backend"], of_nodes["backend"]) == ("in process", "nodes")
    for stage in stages:
        # Sums of another order differ by 1e-12 and less.
        assert of_nodes[stage] == pytest.approx(here[stage], rel=1e-6)
    assert set(of_nodes["seconds"]) >= {"simulator", "align", "total"}
    assert {path.name for path in (tmp_path / SPARSE).glob("*")} >= {"report.html", "truth.json", "clouds.npz", "logs"}


def test_a_refusal_in_one_process_is_judged_as_that_of_a_node(tmp_path):
    (tmp_path / "corridor.yaml").write_text(
        "expected: refused\nrefusal: {stage: alignment, mentions: base x}\nstages: {alignment: {num_samples: 4}}\n"
        f"simulation: {{world: long_corridor, sensor: {FEW_RAYS}, seed: 1}}\n"
    )
    assert main(["run", str(tmp_path / "corridor.yaml"), "--in-process", "--out", str(tmp_path)]) == 0
    assert "sliding along base x" in json.loads((tmp_path / "corridor" / "result.json").read_text())["refused"]


@pytest.mark.long
def test_a_drive_is_judged_though_the_lidars_see_nothing_in_common(tmp_path):
    run = tmp_path / "drive_no_common_view"
    scenario = changed(run.name, tmp_path, drive={"turn_step": 120, "scans": 1})
    assert main(["run", scenario, "--in-process", "--out", str(tmp_path)]) == 0
    result = json.loads((run / "result.json").read_text())
    for lidar in (result["drive"]["left"], result["drive"]["right"]):
        assert 0 < lidar["lever_error_mm"] < 3.0 and 0 < lidar["yaw_error_deg"] < 0.5 and lidar["passed"]
    assert 0 < result["drive"]["translation_error_mm"] < 1.0 and 0 < result["drive"]["height_error_mm"] < 1.0
    assert {each["key"] for each in result["quantities"]} >= {"drive.left.wheels_nees", "drive.floor_nees"}
    clouds = np.load(run / "clouds.npz")
    for side in ("left", "right"):
        azimuths = np.degrees(np.arctan2(clouds[side][:, 1], clouds[side][:, 0]))
        assert -142.2 < azimuths.min() < -140.0 and 50.0 < azimuths.max() < 52.2, side
    assert "left to wheels: yaw" in (run / "report.html").read_text()


def test_a_sensor_file_that_cannot_be_used_is_named_with_the_option_that_named_it(tmp_path, capsys):
    sensor = files.read_yaml(files.share_directory() / "config" / "xt32.yaml")
    del sensor["rate"]
    files.write_yaml(tmp_path / "m.yaml", sensor)
    assert main(["run", SPARSE, "--sensor", str(tmp_path / "m.yaml"), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"error: --sensor: {tmp_path}/m.yaml: rate: is missing\n"


def test_a_run_that_cannot_be_leaves_an_earlier_one_alone(tmp_path, capsys, monkeypatch):
    folder = tmp_path / load_scenario(SPARSE).name
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    for own in ("thesis.tex", "scenario.yaml"):  # the latter of a user who keeps scenarios in folders
        (folder / own).write_text("years of work")
        assert main(["run", SPARSE, "--out", str(tmp_path)]) == 2
        assert "not an earlier run's folder" in capsys.readouterr().err
        assert (folder / "thesis.tex").read_text() == "years of work"
    (folder / "thesis.tex").unlink()
    for name in ("scenario.yaml", "result.json"):
        (folder / name).write_text("{}")
    assert main(["run", SPARSE, "--in-process", "--simulator", "gazebo", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: --in-process: runs the embedded simulator, not gazebo\n"
    assert (folder / "result.json").read_text() == "{}" and len(list(tmp_path.rglob("*.json"))) == 1
    (folder / "logs").mkdir()

    def not_ours(path):  # as after a run of a container's root
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("shutil.rmtree", not_ours)
    assert main(["run", SPARSE, "--in-process", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"error: {folder}: cannot be written: Permission denied\n"


@pytest.mark.long
def test_a_robot_with_three_lidars_is_calibrated_by_the_nodes_each_judged_and_in_one_process_the_same(tmp_path, capsys):
    run = tmp_path / "three_lidar_amr"
    for how in (["--nodes", "--out", str(tmp_path)], ["--in-process", "--out", str(tmp_path / "here")]):
        assert main(["run", run.name, *how]) == 0, capsys.readouterr()
    result, here = (json.loads((path / run.name / "result.json").read_text()) for path in (tmp_path, tmp_path / "here"))
    for stage in ("alignment", "floor", "body_shape"):
        for part, found in result[stage].items():
            assert here[stage][part] == pytest.approx(found, rel=1e-6)
    for lidar in (result["alignment"], result["alignment"]["mast"]):
        assert 0 < lidar["translation_error_mm"] < 1.0 and 0 < lidar["rotation_error_deg"] < 0.05
    assert 0 < result["floor"]["height_error_mm"] < 1.0 and 0 < result["floor"]["tilt_error_deg"] < 0.05
    assert "10 sets from 10 left, 10 right and 10 mast clouds" in (run / "logs" / "floor.log").read_text()
    assert result["body_shape"]["max_protrusion_mm"] < 10.0
    (sample,) = read_dataset(run / "body_shape_data").samples
    assert (np.bincount(sample.lidars) > 100).all() and len(np.bincount(sample.lidars)) == 3


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("expected: maybe\nsimulation: {}\nstages: {alignment: {}}\n", "expected: is 'maybe'"),
        ("expected: refused\nrefusal: {stage: [alignment]}\nstages: {alignment: {}}\n", "refusal: stage"),
        ("expected: refused\nrefusal: {stage: alignment, mentions: 5}\nstages: {alignment: {}}\n", "refusal: mentions"),
        ("simulation: {world: ./own.sdf}\nstages: {alignment: {}}\n", "own.sdf:1: <size>: is '12 twelve 0.1'"),
        ("simulation: {sensr: jt128}\nstages: {alignment: {}}\n", "sensr"),
        ("simulation: {sensor: ./own.yaml}\nstages: {alignment: {}}\n", "own.yaml: unit: range_offset: is -0.01"),
        ("simulation: {robot: two_lidar_manipulator}\nstages: {drive: {}}\n", "has no 'base:'"),
        (
            "simulation: {robot: ./own_robot.yaml}\nstages: {alignment: {}, floor: {}, body_shape: {plan: quick}}\n",
            "pan: 7.5 is outside the joint's limits",
        ),
        ("simulation: {driver: {azimuth_window_deg: [90, 90]}}\nstages: {drive: {}}\n", "is not part of a turn"),
        ("simulation: {payload: [{link: hand, size: [1, 1, 1]}]}\nstages: {alignment: {}}\n", "link 'hand' does not"),
        ("simulation: {joint_errors: {lift: {}}}\nstages: {alignment: {}}\n", "joint error: 'lift' is not a joint"),
        ("stages: {alignment: {}}\ntolerances: {alignment: {translation_mm: -1}}\n", "translation_mm"),
        ("name: a/b\nstages: {alignment: {}}\n", "name: is 'a/b'; it names a folder"),
        ("refusal: {stage: alignment}\nstages: {alignment: {}}\n", "refusal: goes with 'expected: refused' only"),
        ("!!python/object/apply:os.system ['touch hacked']\n", "not valid YAML"),
    ],
)
def test_a_bad_scenario_is_answered_with_one_line(tmp_path, monkeypatch, capsys, content, told):
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(content)
    share = files.share_directory()
    sparse = (share / "config" / "jt128_sparse.yaml").read_text()
    Path("own.yaml").write_text(sparse.replace("unit: ideal", "unit: {range_offset: -0.01}"))
    robot = (share / "config" / "robots" / "two_lidar_manipulator.yaml").read_text()
    robot = robot.replace("../../models", str(share / "models")).replace("[-0.6, 0.0, 0.6]", "[0.0, 7.5]")
    Path("own_robot.yaml").write_text(robot)
    box = "<geometry><box><size>12 twelve 0.1</size></box></geometry>"
    model = f"<model name='a'><static>true</static><link name='l'><collision name='c'>{box}</collision></link></model>"
    Path("own.sdf").write_text(f"<sdf version='1.9'><world name='w'>{model}</world></sdf>")
    assert main(["run", "bad.yaml", "--out", "out"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert len(lines) == 1 and told in lines[0] and "bad.yaml" in lines[0]
    assert not Path("hacked").exists() and not Path("out").exists()


def with_stages(**stages) -> Scenario:
    """Return the sparse scenario with these stages only, and their options."""
    scenario = load_scenario(SPARSE)
    return dataclasses.replace(
        scenario, stages={name: scenario.stages[name] | options for name, options in stages.items()}
    )


def inverted(run: RunFiles) -> None:
    data = files.read_yaml(run.calibration)
    data["right_to_left_transform"]["data"] = inverse(np.array(data["right_to_left_transform"]["data"])).tolist()
    files.write_yaml(run.calibration, data)


def floor_5_mm_off(run: RunFiles) -> None:
    data = files.read_yaml(run.calibration)
    transform = np.array(data["floor_to_base_link_transform"]["data"])
    transform[2, 3] += 0.005
    plane = floor_of_footprint(transform)
    data["floor_to_base_link_transform"]["data"] = transform.tolist()
    data["floor_model_params"]["data"] |= {"normal": plane.normal.tolist(), "distance": plane.offset}
    files.write_yaml(run.calibration, data)


def capsule_2_cm_too_small(run: RunFiles) -> None:
    model = load_body_shape_model(run.body_shape_model)
    shapes = [[shape.inflated(-0.02) for shape in row] for row in model.shapes]
    save_body_shape_model(dataclasses.replace(model, shapes=shapes), run.body_shape_model)


@pytest.mark.parametrize(
    ("stage", "broken", "quantity", "off", "culprit"),
    [
        ("alignment", inverted, "rotation_error_deg", (90.0, 180.0), "ros_align_dual_lidar"),
        ("floor", floor_5_mm_off, "height_error_mm", (4.0, 6.0), "ros_find_floor_calibration"),
        ("body_shape", capsule_2_cm_too_small, "max_protrusion_mm", (15.0, 25.0), "fit_body_shape_model"),
    ],
)
def test_a_wrong_result_is_caught(run, stage, broken, quantity, off, culprit):
    broken(run)
    stages = {"alignment": {}, stage: {}}
    verdict = conclude(with_stages(**stages), "embedded", run, ProcessSequence([]))
    assert verdict.exit_code == 1
    assert [name for name in stages if not verdict.stages[name].passed] == [stage]
    assert any(quantity in reason and culprit in reason for reason in verdict.reasons)
    assert off[0] < verdict.as_json()[stage][quantity] < off[1]


def script(name: str, code: str, *arguments: object, **about) -> Process:
    """Return a process that runs Python code in place of a program of ours."""
    return Process(name, sys.executable, ("-I", "-S", "-c", code, *map(str, arguments)), **about)


COPY = (
    "import pathlib, shutil, sys; pathlib.Path(sys.argv[2]).parent.mkdir(parents=True, exist_ok=True); "
    "shutil.copy(*sys.argv[1:])"
)


def copied_truth(run_folder: Path, files: RunFiles) -> Process:
    """Return a simulator that writes the truth of the shared run, and then only lives on."""
    code = f"{COPY}; import time; print('simulator ready', flush=True); time.sleep(600)"
    return script("simulator", code, run_folder / "truth.json", files.truth, ready_line="simulator ready")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise RuntimeError('lost its mind')", "lost its mind"),
        ("import sys; print('error: no messages on /lidar_points_left'); sys.exit(3)", "/lidar_points_left"),
    ],
)
def test_a_node_that_crashes_or_hears_nothing_is_named_with_its_last_words(run_folder, tmp_path, code, said):
    def failing(scenario, files):
        return [copied_truth(run_folder, files), script("align", code, stage="alignment")]

    verdict = run_scenario(with_stages(alignment={}), tmp_path / "run", processes=failing)
    assert verdict.exit_code == 3
    assert any("align" in reason and said in reason for reason in verdict.reasons)
    assert verdict.as_json()["alignment"] == {"translation_error_mm": None, "rotation_error_deg": None, "passed": False}


def test_a_simulator_that_dies_while_it_is_needed_is_named(tmp_path):
    code = "import time; print('simulator ready', flush=True); time.sleep(0.5); raise SystemExit('fell over')"

    def processes(scenario, files):
        return [
            script("simulator", code, ready_line="simulator ready"),
            script("align", "import time; time.sleep(600)", stage="alignment"),
        ]

    verdict = run_scenario(with_stages(alignment={}), tmp_path / "run", processes=processes)
    assert verdict.exit_code == 3
    (reason,) = verdict.reasons
    assert reason.startswith("simulator (") and "exited early with exit code 1: fell over" in reason


def test_a_run_that_skipped_most_of_its_poses_fails_and_says_which_and_why(run):
    scenario = load_scenario(SPARSE)
    assert conclude(scenario, "embedded", run, ProcessSequence([])).passed
    metadata = run.dataset / "metadata.yaml"
    data = yaml.safe_load(metadata.read_text())
    pose = data["samples"][0]["commanded"]
    data["skipped"] = [{"commanded": pose, "reason": "arm near mast"}] * (2 * len(data["samples"]))
    metadata.write_text(yaml.safe_dump(data))
    verdict = conclude(scenario, "embedded", run, ProcessSequence([]))
    assert verdict.exit_code == 1 and not verdict.stages["body_shape"].passed
    assert any("8 of 12 poses of its plan were skipped" in reason for reason in verdict.reasons)
    assert any("arm near mast" in note for note in verdict.notes)
    assert verdict.as_json()["body_shape"]["skipped_share"] == pytest.approx(2 / 3)
    allowed = scenario.tolerances | {"body_shape": scenario.tolerances["body_shape"] | {"skipped_share": 0.7}}
    assert conclude(dataclasses.replace(scenario, tolerances=allowed), "embedded", run, ProcessSequence([])).passed


def test_a_refused_runs_page_shows_the_clouds_as_described_and_in_truth(run):
    scenario = load_scenario(SPARSE)
    shutil.rmtree(run.calibration.parent)
    run.body_shape_model.unlink()
    align = next(each for each in calibration_nodes(scenario.stages, run) if each.name == "align")
    sequence = ProcessSequence([align])
    sequence.next()
    with outcome_in(align.outcome) as outcome:
        outcome["refusals"] = [Finding("unobserved", "only 4 small surfaces determine turning").as_json()]
        outcome["warnings"] = [Finding("left_lidar_off", "it is <b>7 mm</b> off", "run the mounts").as_json()]
    sequence.ended(align, 1)
    verdict = conclude(scenario, "embedded", run, sequence)
    assert verdict.exit_code == 1 and "4 small surfaces" in verdict.refused
    assert [each["code"] for each in verdict.refusals] == ["unobserved"]
    simulator = EmbeddedSimulator(scenario.simulation)
    (link, share), *_ = simulator.view("left").items()
    assert any(f"{link} takes {100 * share:.0f} % of the left lidar's rays" in note for note in verdict.notes)
    page = write_report(verdict, run.folder).read_text()
    assert [warning["code"] for warning in verdict.as_json()["warnings"]] == ["left_lidar_off"]
    assert "Warning, alignment: it is &lt;b&gt;7 mm&lt;/b&gt; off; run the mounts" in page
    assert ">true<" in page and "0.00" in page and page.count("data:image/png;base64,") == 1
    described = page.split("as described</td><td class=''>")[1].split("<")[0]
    truth = load_truth(run.truth)
    off = error(truth.to_left["right"], truth.nominal_to_left["right"])[0]
    assert float(described) == pytest.approx(1e3 * off, abs=0.01)
