"""The JSON schemas of the YAML files that users write: as committed, and what a reader accepts they accept."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import yaml

from stretch_sim_cal.campaign.plan import Campaign
from stretch_sim_cal.cli import main
from stretch_sim_cal.commands.schema import MODELINE, SCHEMAS, path_of
from stretch_sim_cal.files import share_directory
from stretch_sim_cal.harness.scenario import scenario_from_mapping
from stretch_sim_cal.robot.profile import profile_from_mapping
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.unit_file import Unit, write_unit

SHARED = share_directory()
AMR = str(SHARED / "models" / "two_lidar_amr.urdf.xacro")
LIDARS = {"left": {"frame": "lidar_left_link"}, "right": {"frame": "lidar_right_link"}}
SETTINGS = ("mounts.yaml", "body_shape.yaml")  # have no schema: the robot has copies of them
FILES = {
    path: kind
    for pattern, kind in (
        ("config/*", "sensor"), ("config/robots/*", "profile"), ("config/campaigns/*", "campaign"),
        ("scenarios/*", "scenario"),
    )
    for path in sorted(SHARED.glob(f"{pattern}.yaml")) if not (kind == "sensor" and path.name in SETTINGS)
}  # fmt: skip


@pytest.fixture(scope="module")
def validators():
    jsonschema = pytest.importorskip("jsonschema", reason="the extra 'test' is not installed")
    made = {kind: jsonschema.Draft202012Validator(schema()) for kind, schema in SCHEMAS.items()}
    for each in made.values():
        each.check_schema(each.schema)
    return made


def mappings(data: Any) -> Iterator[dict[str, Any]]:
    """Yield the mappings in a file whose keys are not the user's own names."""
    if isinstance(data, dict):
        yield data
        for key in ("simulation", "driver", "unit", "base", "limits", "stages"):
            yield from mappings(data.get(key))


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_committed_schema_is_the_one_that_is_printed(kind, capsys):
    assert main(["schema", kind]) == 0
    printed = capsys.readouterr().out
    assert path_of(kind).read_text() == printed, f"stretch-sim-cal schema {kind} > config/schema/{kind}.json"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SHARED)))
def test_a_file_names_its_schema_and_fits_it_and_a_misspelled_key_does_not(path, validators):
    text = path.read_text()
    assert text.startswith(MODELINE)
    assert (path.parent / text.splitlines()[0].removeprefix(MODELINE)).resolve() == path_of(FILES[path]).resolve()
    data, validator = yaml.safe_load(text), validators[FILES[path]]
    assert [each.message for each in validator.iter_errors(data)] == []
    for mapping in mappings(data):
        key = next(iter(mapping))
        mapping[f"{key}_"] = mapping[key]
        assert not validator.is_valid(data), key
        del mapping[f"{key}_"]


PROFILE = {"base_frame": "base_link", "description": AMR, "lidars": LIDARS}
VLP16 = yaml.safe_load((SHARED / "config" / "vlp16.yaml").read_text())
READ = {
    "profile": lambda file: profile_from_mapping(yaml.safe_load(file.read_text()), file),
    "scenario": lambda file: scenario_from_mapping(yaml.safe_load(file.read_text()), file),
    "campaign": Campaign.load, "sensor": load_sensor,
}  # fmt: skip
WITH = {"profile": PROFILE, "scenario": {"stages": {"alignment": {}}}, "campaign": {}, "sensor": VLP16}
GIVEN = {
    "profile": [
        {},
        {"lidars": {"left": LIDARS["left"]}, **dict.fromkeys(("joints", "topics", "body", "accept", "base"))},
        {"lidars": LIDARS | {"mast_1": {"frame": "mast", "sensor": "vlp16", "older_frame": None, "unseen": None}}},
        {"description": {"file": AMR, "arguments": {"n": 3, "on": True}, "packages": None, "tool": None}},
        {"joints": {
            "lift": None, "arm": {"parts": ["a", "b"]}, "hand": {"parts": [["c"], ["d", "e"]], "limits": None},
        }},
        {"joints": {"lift": None, "arm": None}, "stow": {"lift": 0.1}, "home": [{"lift": 0.1}, {"arm": 1}]},
        {"base": {"kind": "omnidirectional", "wheels": [[1, 0], [0, 1], [0, -1]], "topics": {"command": None}}},
    ],
    "scenario": [
        {"simulation": None, "stages": {"alignment": None}},
        {"name": 7, "stages": {"alignment": {"num_samples": "20", "method": None}, "floor": {"num_samples": 5.0}}},
        {"simulation": {"floor": {"rms_mm": 1}, "driver": {"azimuth_window_deg": None}, "lidar_errors": None}},
        {"expected": "refused", "refusal": {"stage": "alignment", "mentions": ""}, "reports": {"alignment": 5}},
        {"stages": {"alignment": None, "drive": None}, "tolerances": {"alignment": None, "drive": {"nees": 3}}},
    ],
    "campaign": [
        {"like": "release"},
        {"name": "own", "description": ["any"], "methods": None, "limits": None, "inputs": None},
        {"name": "own", "inputs": {
            "room.length": 7, "room.width": {"uniform": [4, 6]}, "room.people": {"choice": 1, "in_share": 0.5},
            "base.height_mm": {"normal": [0, 3]}, "base.tilt_deg": {"half_normal": [0.4]},
        }},
    ],
    "sensor": [
        {"unit": None}, {"unit": "ideal"}, {"unit": {"near_range": None, "range_offset": 0.01}},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "data"), [(kind, data) for kind, given in GIVEN.items() for data in given])
def test_what_is_read_fits_its_schema(kind, data, validators, tmp_path):
    data = WITH[kind] | data
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(data))
    READ[kind](tmp_path / "own.yaml")
    validators[kind].validate(data)


def test_a_unit_file_fits_the_schema_of_sensors_and_a_misspelled_value_does_not(validators, tmp_path):
    model = load_sensor("vlp16").error_model()
    unit = Unit(np.zeros(model.size), np.full(model.size, 0.01), ("echo",))
    write_unit(tmp_path / "unit.yaml", "vlp16", model, unit, range_noise=0.01)
    load_sensor(tmp_path / "unit.yaml")
    written = yaml.safe_load((tmp_path / "unit.yaml").read_text())
    validators["sensor"].validate(written)
    written["values"]["range_ofset"] = 0.0
    assert not validators["sensor"].is_valid(json.loads(json.dumps(written)))
