"""`fit_body_shape_model` on datasets of the simulated Stretch: encloses the true robot, names wrong samples."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from called import edited

from stretch_sim_cal.calibration.body.model import load_body_shape_model
from stretch_sim_cal.calibration.body.shape import enclosing_shape
from stretch_sim_cal.commands.fit_body_shape import main
from stretch_sim_cal.files import read_yaml
from stretch_sim_cal.harness.simulated_dataset import BodyDatasetRecorder
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.setup import PayloadBox, PoseError, SimulationSetup

pytestmark = pytest.mark.usefixtures("quick_pictures")

FEW_RAYS = str(Path(__file__).parents[1] / "ros" / "few_rays.yaml")
POSES = [(lift, arm, yaw, 0.0, 0.0) for lift in (0.5,) for arm in (0.1, 0.35) for yaw in (0.2, 1.0)]
MOUNT = PoseError((0.002, -0.001, 0.003), tuple(np.deg2rad((0.4, -0.3, 0.5))))
CIRCLE = ("--fit-method", "circle")


def record(directory, **setup):
    simulator = EmbeddedSimulator(SimulationSetup(**{"world": "empty_hall", "sensor": FEW_RAYS} | setup))
    recorder = BodyDatasetRecorder(simulator)
    recorder.record(directory, POSES, frames=4)
    return recorder


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    directory = tmp_path_factory.mktemp("body") / "data"
    return directory, record(directory, lidar_errors={"left": MOUNT})


@pytest.fixture
def dataset(recorded, tmp_path):
    shutil.copytree(recorded[0], tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "model.yaml"


@pytest.fixture
def fit(out, capsys):
    """A function that fits a model of a dataset into `out`, and returns the exit code and what is said on stderr."""

    def fit(dataset, *arguments) -> tuple[int, str]:
        code = main([str(dataset), "--out", str(out), *map(str, arguments)])
        return code, capsys.readouterr().err

    return fit


def edit(dataset, change):
    edited(dataset / "metadata.yaml", change, "metadata.yaml")


def assert_enclosed(path, dataset, recorder, protrusion=0.003, ratio=1.03):
    """Assert that a model's shapes leave out no more (m) of the true outline at all samples, in no more area."""
    model = load_body_shape_model(path)
    for sample in read_dataset(dataset).samples:
        outline = recorder.outline(sample.commanded)
        shape = model.shape_at(sample.commanded["arm"], sample.commanded["wrist_yaw"])
        assert shape.protrusion(outline) < protrusion
        assert shape.area / enclosing_shape(outline, model.shape_fitting_method).area < ratio


def test_the_true_robot_is_enclosed_at_hardly_more_area_though_a_mount_is_off(recorded, tmp_path, capsys):
    directory, recorder = recorded
    out, plot = tmp_path / "model.yaml", tmp_path / "outlines.png"
    assert main([str(directory), "--out", str(out), "--plot", str(plot)]) == 0
    assert_enclosed(out, directory, recorder)
    said = capsys.readouterr()
    assert "left lidar's mount or the floor" in said.err and f"wrote {out}" in said.out
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_result_comes_as_json_and_the_model_says_whose_it_is(dataset, out, capsys):
    assert main([str(dataset), "--out", str(out), "--fit-method", "circle", "--evidence", "model", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["file"] == str(out) and len(result["samples"]) == 4 and result["max_protrusion_mm"] < 1e-3
    model = load_body_shape_model(out)
    assert model.about["tool"] == "simulated" and model.about["evidence"] == "model"
    assert model.covers["arm"] == (0.1, 0.35)


def test_lidar_evidence_alone_without_dependence_gives_one_shape(dataset, fit, out):
    assert fit(dataset, "--no-arm-dependence", "--no-yaw-dependence", "--evidence", "lidar", *CIRCLE)[0] == 0
    assert len(load_body_shape_model(out).parameters) == 1


def test_a_payload_that_the_description_does_not_know_is_told_and_enclosed(tmp_path, fit, out):
    box = PayloadBox("base_link", (0.16, 0.2, 0.22), (0.0, 0.29, 0.22))
    recorder = record(tmp_path / "data", payload=(box,), sensor="jt128_sparse")
    code, said = fit(tmp_path / "data", *CIRCLE)
    assert code == 0 and "moves with the robot but is not in its description" in said
    assert_enclosed(out, tmp_path / "data", recorder, 0.01, 1.1)


def with_boxes(dataset, boxes, samples):
    """Record again with things beside the robot, and put the samples (indices) of that in place of the dataset's."""
    other = dataset.parent / "other"
    record(other, lidar_errors={"left": MOUNT}, payload=boxes)
    theirs = read_yaml(other / "metadata.yaml")["samples"]
    for index in samples:
        shutil.copy(other / theirs[index]["file"], dataset)
    edit(dataset, lambda m: [m["samples"].__setitem__(index, theirs[index]) for index in samples])


PERSON = PayloadBox("base_link", (0.3, 0.4, 1.4), (0.62, 0.1, 0.75))
CHAIR = tuple(
    PayloadBox("base_link", size, place)
    for size, place in [((0.4, 0.4, 0.04), (-0.62, 0.52, 0.45)), ((0.04, 0.04, 0.4), (-0.45, 0.35, 0.23))]
)


@pytest.mark.parametrize(
    "boxes, samples, message",
    [
        ((PERSON,), (1, 3), "sample 1 (sample_0001.npz), sample 3 (sample_0003.npz): returns near"),
        (CHAIR, range(4), "stands beside the robot in all samples"),
    ],
    ids=["a person in half of the samples", "a chair in all of them"],
)
def test_what_only_stands_by_is_told_and_left_out(recorded, dataset, fit, out, boxes, samples, message):
    with_boxes(dataset, boxes, samples)
    code, said = fit(dataset, *CIRCLE)
    assert code == 0 and any(message in line and "ignored" in line for line in said.splitlines()), said
    assert_enclosed(out, dataset, recorded[1])


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda m: m["samples"][2]["commanded"].update(arm=0.9), r"sample 2 .*arm 0.900 is not in \[0.000, 0.520\]"),
        (lambda m: m["samples"][1].update(num_points=5), "sample 1 "),
        (lambda m: m["samples"][3]["actual"].update(lift=float("nan")), "sample 3: actual: lift"),
        (lambda m: m["samples"][0].update(file="sample_0099.npz"), "sample 0 .*missing"),
        (lambda m: m["samples"][2].update(file="torn.npz"), "sample 2 "),
    ],
)
def test_faults_end_with_exit_code_2_and_one_line_that_names_the_sample(dataset, fit, out, change, message):
    content = (dataset / "sample_0002.npz").read_bytes()
    (dataset / "torn.npz").write_bytes(content[: len(content) // 2])
    edit(dataset, change)
    code, said = fit(dataset)
    assert code == 2 and said.count("\n") == 1 and not out.exists()
    assert re.search(message, said)


def with_points(dataset, number, change):
    """Change the points of a sample, in file and metadata alike."""
    path = dataset / f"sample_000{number}.npz"
    arrays = change(dict(np.load(path)))
    np.savez_compressed(path, **arrays)
    counts = {f"num_{name}": len(arrays[name]) for name in ("points", "left", "right")}
    edit(dataset, lambda m: m["samples"][number].update({k: v for k, v in counts.items() if k in m["samples"][number]}))


def test_samples_without_points_with_such_as_are_no_numbers_or_with_a_joint_elsewhere_are_named(dataset, fit):
    def spoiled(arrays):
        arrays["points"][::3] = np.nan
        return arrays

    with_points(dataset, 1, lambda arrays: {name: array[:0] for name, array in arrays.items()})
    with_points(dataset, 2, spoiled)
    edit(dataset, lambda m: m["samples"][3]["actual"].update(wrist_yaw=0.8))
    code, said = fit(dataset, *CIRCLE)
    assert code == 0 and re.search(r"sample 1 .*sample_0001.npz\): has no points", said)
    assert "only 0 returns from the robot" in said
    assert re.search(r"sample 2 .*points are not finite and ignored", said)
    assert "sample 3 (sample_0003.npz): wrist_yaw was at 0.800, commanded 1.000" in said


def test_the_settings_file_chooses_the_fit_and_options_go_first(dataset, tmp_path, out, capsys):
    settings = tmp_path / "mine.yaml"
    settings.write_text(
        "fit: {method: circle, evidence: model}\nFIT_ARM_EXTENSION_DEPENDENT_BODY_SHAPE: false\n"
        "FIT_WRIST_YAW_DEPENDENT_BODY_SHAPE: false\nzones: {highest: 1.0}\n"
    )
    arguments = [str(dataset), "--settings", str(settings), "--out", str(out)]
    assert main(arguments) == 0
    model = load_body_shape_model(out)
    assert (model.shape_fitting_method, model.arm_dependent, model.yaw_dependent) == ("circle", False, False)
    assert (model.about["evidence"], model.about["heights"]) == ("model", [0.06, 1.0])
    assert str(settings) in capsys.readouterr().out
    assert main([*arguments, "--fit-method", "ellipse_axis_aligned", "--yaw-dependence"]) == 0
    model = load_body_shape_model(out)
    assert (model.shape_fitting_method, model.yaw_dependent) == ("ellipse_axis_aligned", True)


def test_a_robot_that_sticks_out_between_grid_points_is_refused_with_what_to_collect(dataset, fit, out, monkeypatch):
    monkeypatch.setattr("stretch_sim_cal.harness.fitted_body.MOST_LEFT_OUTSIDE", -1.0)
    code, said = fit(dataset, "--evidence", "model")
    assert code == 1 and "collect more values of arm and wrist_yaw" in said and not out.exists()
