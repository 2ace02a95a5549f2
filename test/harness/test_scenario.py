"""Scenario files, whose faults are errors before anything runs; and the table of tolerances."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.harness import scenario as scenarios
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.scenario import STAGES, TOLERANCES, defaults_of, quantities_of, scenario_from_mapping
from stretch_sim_cal.harness.verdict import COMPARISONS, judge_stage


@pytest.mark.parametrize(
    ("stage", "options", "says"),
    [
        ("alignment", {"num_samples": 0}, "num_samples: 0 is outside 1 .. 100000"),
        ("alignment", {"method": "best"}, "'best' is not a known alignment method; available: gicp, planes, published"),
        ("mounts", {"with_joint_offsets": 2}, "with_joint_offsets: '2' is not true or false"),
        ("body_shape", {"fit_method": "sphere"}, "fit_method: is 'sphere', use one of tapered_capsule"),
        ("drive", {"distance": 50.0}, "distance: 50.0 is outside 0 .. 5"),
    ],
)
def test_an_option_that_a_stage_does_not_take_is_an_error_that_names_it(stage, options, says):
    stages = {"alignment": {}, "floor": {}} | {stage: options}
    data = {"simulation": {"world": "furnished_room", "sensor": "jt128_sparse"}, "stages": stages}
    with pytest.raises(InputError) as error:
        scenario_from_mapping(data, Path("lab.yaml"))
    assert str(error.value).startswith(f"lab.yaml: stages: {stage}: ") and says in str(error.value)


def scenario(**bounds):
    data = {"stages": {"alignment": {}, "floor": {}}, "tolerances": {"floor": bounds}}
    return scenario_from_mapping(data, Path("bow.yaml"))


def test_a_row_makes_a_tolerance_that_scenarios_know_and_runs_judge_by(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="unknown key 'bow_mm'"):
        scenario(bow_mm=2.0)
    labels, exceeded = {scenarios.WHOLE: "floor: bow"}, "{producer} has it bent by {error}"
    row = scenarios.Tolerance("bow_mm", 2.0, "bow_error_mm", "mm", labels, exceeded)
    monkeypatch.setitem(TOLERANCES, "floor", (*TOLERANCES["floor"], row))
    monkeypatch.setitem(COMPARISONS, "floor", lambda files, truth: {"bow_error_mm": (2.2, "2.2", "0")})
    files = RunFiles(tmp_path)
    files.calibration.parent.mkdir(parents=True, exist_ok=True)
    files.calibration.touch()
    for bounds, passed in (({}, False), ({"bow_mm": 2.5}, True)):
        judged = judge_stage("floor", files, SimpleNamespace(names=SIDES), scenario(**bounds).tolerances["floor"])
        assert [each.label for each in judged.quantities] == ["floor: height", "floor: tilt", "floor: bow"]
        assert judged.quantities[-1].passed is passed
        assert judged.quantities[-1].complaint("the floor's node") == "the floor's node has it bent by 2.2 mm"


@pytest.mark.parametrize("stage", STAGES)
def test_every_tolerance_bounds_a_quantity_of_its_own_on_any_robot(stage):
    for lidars in (SIDES, (*SIDES, "mast", "low")):
        found = quantities_of(stage, lidars)
        assert len({key for key, _, _ in found}) == len({label for _, label, _ in found}) == len(found)
        assert {of.name for _, _, of in found} == {each.name for each in TOLERANCES[stage]} >= set(defaults_of(stage))
