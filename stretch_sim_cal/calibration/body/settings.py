"""The body-shape settings: one file for the sweep (`plans`, speeds, ...), the fit (`fit`) and the zones (`zones`), also
with the names of the published tool's settings module, at the top level or in their section."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stretch_sim_cal import validate
from stretch_sim_cal.calibration import calibration_file
from stretch_sim_cal.calibration.body import EVIDENCE, FIT_METHODS, SETTINGS_NAME, ZONES
from stretch_sim_cal.calibration.body.returns import EvidenceSettings
from stretch_sim_cal.calibration.body.shape import BodyShapeSettings
from stretch_sim_cal.calibration.zones import ZoneSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import find_shared, keep_backup, locked, read_text, read_yaml, write_text

SWEEP_NUMBERS = {
    "margin": (0.0, 0.5),
    "settle_time": (0.0, 60.0),
    "frames": (1, 1000),
    "crop_radius": (0.5, 20.0),
    "crop_height": (0.5, 20.0),
    "cell": (1e-4, 0.01),
    "floor_cell": (1e-4, 0.1),
    "clearance": (0.0, 2.0),
}
"""The bounds of the sweep's numbers, in m and s."""
FIT: dict[str, Sequence] = {
    "method": FIT_METHODS,
    "evidence": EVIDENCE,
    "arm_dependent": (True, False),
    "yaw_dependent": (True, False),
    "vertices": range(3, 201),
    "range_noise": (1e-4, 0.2),
    "refine_above": (1e-5, 0.1),
    "max_grid_points": range(1, 10_001),
}
"""By key of the section `fit`: the values that it may have; two floats are the bounds of a number."""
PUBLISHED = {
    "SHAPE_FITTING_METHOD": ("fit", "method"),
    "FIT_ARM_EXTENSION_DEPENDENT_BODY_SHAPE": ("fit", "arm_dependent"),
    "FIT_WRIST_YAW_DEPENDENT_BODY_SHAPE": ("fit", "yaw_dependent"),
    "BODY_SHAPE_MARGIN_M": ("zones", "margin"),
    "STOP_ZONE_M": ("zones", "stop_zone"),
    "MIN_POSITIVE_OBSTACLE_HEIGHT_M": ("zones", "lowest"),
    "MAX_POSITIVE_OBSTACLE_HEIGHT_M": ("zones", "highest"),
    "MAX_NEGATIVE_OBSTACLE_HEIGHT_M": ("zones", "drop"),
}
"""The published tool's names, and the section and key of each."""
KEYS = {"plans", "speeds", "fit", "zones", *SWEEP_NUMBERS, *PUBLISHED}


@dataclass(frozen=True)
class FitSettings:
    shape: BodyShapeSettings
    returns: EvidenceSettings
    evidence: str


def own_settings_path() -> Path:
    """Return the path of the robot's settings file, beside its calibration file. The file need not exist."""
    return calibration_file.default_path().with_name(f"{SETTINGS_NAME}.yaml")


def own_model_path() -> Path:
    """Return the path of the robot's body shape, which ros_calibrate_robot writes."""
    return calibration_file.default_path().with_name("body_shape_model.yaml")


def find_settings(name: str | Path = SETTINGS_NAME) -> Path:
    """Return the settings file of a path or a name in `config/`; for `body_shape` the robot's one if it exists."""
    path = own_settings_path()
    return path if str(name) == SETTINGS_NAME and path.is_file() else find_shared("config", name, ".yaml")


def read_settings(path: Path) -> dict[str, Any]:
    """Return the mapping in a settings file. Raises `InputError` for an unknown key at its top level."""
    data = read_yaml(path)
    for key in data:
        if key not in KEYS:
            raise InputError(f"{path}: unknown key '{key}'; known are {', '.join(sorted(KEYS - set(PUBLISHED)))}")
    return data


def zone_settings(path: Path) -> ZoneSettings:
    """Return the zones of a settings file; missing keys are as in `ZoneSettings`. Raises `InputError`."""
    written = _section(read_settings(path), "zones", ZONES, path)
    values = {key: validate.number(value, f"{path}: zones: {key}", *ZONES[key][:2]) for key, value in written.items()}
    try:
        return ZoneSettings(**values)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def fit_settings(path: Path, given: Mapping[str, Any] | None = None) -> FitSettings:
    """Return the fit's settings of a file, replaced by those `given` (by key of `FIT`, if not None), with the heights
    of the zones. Raises `InputError`."""
    written = _section(read_settings(path), "fit", FIT, path)
    values = {key: _allowed(value, FIT[key], f"{path}: fit: {key}") for key, value in written.items()}
    for key, value in (given or {}).items():
        if value is not None:
            values[key] = _allowed(value, FIT[key], f"--{key.replace('_', '-')}")
    heights = zone_settings(path)
    where = f"{path}: zones: lowest, for a fit, in which the floor must not count as body"
    validate.number(heights.lowest, where, low=0.02)
    evidence = values.pop("evidence", EVIDENCE[0])
    noise = values.pop("range_noise", EvidenceSettings().range_noise)
    returns = EvidenceSettings(noise, heights.lowest, heights.highest)
    return FitSettings(BodyShapeSettings(**values), returns, evidence)


def save_zones(zones: ZoneSettings, source: Path, target: Path) -> Path | None:
    """Write the settings file `source`, comments included, with these zones to `target`; return the backup, if any."""
    block = "zones:\n" + "".join(
        f"  {key + ':':<11}{value!r:<6}  # {ZONES[key][2]}\n" for key, value in dataclasses.asdict(zones).items()
    )
    names = [name for name, (section, _) in PUBLISHED.items() if section == "zones"]
    with locked(target):
        text = _lines_of("|".join(names)).sub("", read_text(source))
        text, replaced = _lines_of("zones").subn(lambda _: block, text)
        text += "" if replaced else f"\n{block}"
        kept = {key: value for key, value in read_settings(source).items() if key not in names}
        if _parsed(text) != kept | {"zones": dataclasses.asdict(zones)}:
            raise InputError(f"{source}: its zones cannot be replaced; write 'zones:' at the start of a line")
        backup = keep_backup(target)
        write_text(target, text)
    return backup


def _lines_of(names: str) -> re.Pattern[str]:
    """Return the pattern of a key of the top level with all that is indented below it."""
    return re.compile(rf"^(?:{names})[ \t]*:.*\n?(?:(?:[ \t]*\n)*[ \t]+\S.*\n?)*", re.MULTILINE)


def _parsed(text: str) -> dict[str, Any]:
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return data if isinstance(data, dict) else {}


def _section(data: Mapping[str, Any], section: str, known: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a section of a settings file by our keys, including entries under published names."""
    written = validate.entries(data[section], f"{path}: {section}") if section in data else {}
    values: dict[str, Any] = {}
    of_section = {name: key for name, (owner, key) in PUBLISHED.items() if owner == section}
    for name, value in [*written.items(), *((name, data[name]) for name in of_section if name in data)]:
        key = of_section.get(name, name)
        if key not in known:
            raise InputError(f"{path}: {section}: unknown key '{name}'; known are {', '.join(known)}")
        if key in values:
            raise InputError(f"{path}: {section}: {key} is set twice, the second time as {name}; delete one")
        values[key] = value
    return values


def _allowed(value: Any, values: Sequence, where: str) -> Any:
    if isinstance(values[0], float):
        return validate.number(value, where, *values)
    if type(value) is not type(values[0]) or value not in values:
        among = f"{values[0]} to {values[-1]}" if isinstance(values, range) else ", ".join(map(str, values)).lower()
        raise InputError(f"{where}: is {value!r}; expected one of {among}")
    return value
