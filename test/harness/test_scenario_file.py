"""Scenario files: what a stage could not be run with is an error before anything runs."""

from pathlib import Path

import pytest

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.harness.scenario import scenario_from_mapping


@pytest.mark.parametrize(
    ("stage", "options", "says"),
    [
        ("alignment", {"num_samples": 0}, "num_samples: 0 is outside 1 .. 100000"),
        ("alignment", {"num_samples": "many"}, "num_samples: 'many' is not a whole number"),
        ("alignment", {"method": "best"}, "'best' is not a known alignment method; available: gicp, planes, published"),
        ("floor", {"method": "planes"}, "'planes' is not a known floor method"),
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
