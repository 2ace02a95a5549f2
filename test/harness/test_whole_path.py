"""The whole path on sparse lidars: real nodes, real DDS, from the simulator to the verdict and the report."""

import json
from pathlib import Path

import numpy as np
import pytest
import saboteur

from stretch_sim_cal import files
from stretch_sim_cal.cli import main
from stretch_sim_cal.harness.body_verdict import judge_body_shape
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.scenario import load_scenario
from stretch_sim_cal.harness.truth import load_truth


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole_path")
    code = main(["run", "furnished_room_sparse", "--out", str(out)])
    folder = out / "furnished_room_sparse"
    assert code == 0, (folder / "result.json").read_text()
    return folder


def test_every_quantity_is_judged_and_within_its_tolerance(run_folder):
    result = json.loads((run_folder / "result.json").read_text())
    assert result["passed"] and result["scenario"] == "furnished_room_sparse" and result["simulator"] == "embedded"
    assert 0 < result["alignment"]["translation_error_mm"] < 2.0
    assert 0 < result["alignment"]["rotation_error_deg"] < 0.05
    assert 0 < result["floor"]["height_error_mm"] < 1.0 and 0 < result["floor"]["tilt_error_deg"] < 0.05
    assert result["body_shape"]["max_protrusion_mm"] < 10.0
    assert 1.0 < result["body_shape"]["excess_area_ratio"] < 1.15
    assert set(result["seconds"]) >= {"simulator", "align", "floor", "collect", "fit", "total"}
    assert result["versions"]["stretch_sim_cal"]


def test_the_truth_differs_from_what_the_nodes_were_told(run_folder):
    truth = load_truth(run_folder / "truth.json")
    assert np.linalg.norm((truth.nominal_right_to_left - truth.right_to_left)[:3, 3]) > 3e-3
    assert "lidar_left_true_link" not in (run_folder / "body_shape_data" / "description.urdf").read_text()


def test_the_report_stands_alone_with_its_pictures(run_folder):
    page = (run_folder / "report.html").read_text()
    assert page.count("data:image/png;base64,") == 3 and "Not drawn" not in page
    assert "http://" not in page and "https://" not in page and "src='data" in page
    assert "PASS" in page and "tolerance" in page


def test_no_process_of_the_run_is_left(run_folder):
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        assert str(run_folder).encode() not in command, command


def test_a_capsule_that_is_2_cm_too_small_is_caught(run_folder, tmp_path):
    files, tolerances = RunFiles(run_folder), load_scenario("furnished_room_sparse").tolerances["body_shape"]
    truth, smaller = load_truth(files.truth), tmp_path / "model.yaml"
    assert judge_body_shape(files.body_shape_model, files.dataset, truth, tolerances).passed
    smaller.write_text(files.body_shape_model.read_text())
    saboteur.sabotage("shape_2_cm_small", smaller, files.truth)
    judged = judge_body_shape(smaller, files.dataset, truth, tolerances)
    assert not judged.passed and judged.quantities[0].key == "max_protrusion_mm"
    assert 15 < judged.quantities[0].error < 25


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path, capsys):
    folder = tmp_path / "furnished_room_sparse"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    assert main(["run", "furnished_room_sparse", "--out", str(tmp_path)]) == 2
    assert "not an earlier run's folder" in capsys.readouterr().err
    assert (folder / "thesis.tex").read_text() == "years of work"


def test_a_lidar_that_only_gazebo_has_is_refused_before_anything_runs(tmp_path, capsys):
    assert main(["run", "furnished_room_sparse", "--lidar", "gpu", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("expected: maybe\nsimulation: {}\nstages: {alignment: {}}\n", "expected: is 'maybe'"),
        ("simulation: {world: atlantis}\nstages: {alignment: {}}\n", "atlantis"),
        ("simulation: {sensr: jt128}\nstages: {alignment: {}}\n", "sensr"),
        ("simulation: {sensor: ./own.yaml}\nstages: {alignment: {}}\n", "own.yaml: unit: range_offset: is -0.01"),
        ("simulation: {units: {left: jt128}}\nstages: {alignment: {}}\n", "is no unit file"),
        ("stages: {floor: {}}\n", "floor needs alignment"),
        ("stages: {alignment: {}}\ntolerances: {alignment: {translation_mm: -1}}\n", "translation_mm"),
        ("!!python/object/apply:os.system ['touch hacked']\n", "not valid YAML"),
        ("a: &a [b, b]\nstages: [*a\n", "not valid YAML"),
    ],
)
def test_a_bad_scenario_is_answered_with_one_line(tmp_path, monkeypatch, capsys, content, told):
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text(content)
    sparse = (files.share_directory() / "config" / "jt128_sparse.yaml").read_text()
    Path("own.yaml").write_text(f"{sparse}unit: {{range_offset: -0.01}}\n")
    assert main(["run", "bad.yaml"]) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if line.strip()]
    assert len(lines) == 1 and told in lines[0] and "bad.yaml" in lines[0]
    assert not Path("hacked").exists()
