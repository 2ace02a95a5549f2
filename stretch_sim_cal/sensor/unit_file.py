"""One unit of a sensor as a file: a sensor file that names its kind (`sensor: jt128`, a name in config/ or a path
beside it), may replace its keys, and has the unit's `values`, their `standard_deviations`, and the keys
`not_determined`. Keys and units of `values` are those of a sensor file's `unit`; `azimuth_harmonics_deg` is [[cos,
sin], [cos, sin]] of the first and second harmonic, a value by channel a list of all channels. What is not there is
0."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal import files, validate
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import wrapped
from stretch_sim_cal.sensor.unit import CENTRE, CHANNEL_KINDS, HARMONICS, NEAR, SCALARS, ErrorModel

SCALAR_KEYS = {
    key: SCALARS.index(key)
    for key in ("range_offset", "range_scale", "incidence", "echo", "optical_centre_share", "firing_time_share")
}
# Every scalar by the key, and the place under it, that holds it in a file.
KEY_OF_SCALAR = SCALAR_KEYS | {"near_range": NEAR}
KEY_OF_SCALAR |= {f"azimuth_harmonics_deg[{number}]": HARMONICS.start + number for number in range(4)}
KEY_OF_SCALAR |= {f"optical_centre[{number}]": CENTRE.start + number for number in range(3)}
# Channels' angles are in degrees in files.
CHANNEL_KEYS = {kind: kind if kind == "channel_range" else f"{kind}_deg" for kind in CHANNEL_KINDS}
KEYS = {*SCALAR_KEYS, *CHANNEL_KEYS.values(), "near_range", "azimuth_harmonics_deg", "optical_centre", "range_drift"}
# Units that people read, and how many of them are 1 m, 1 rad or the ratio 1; lengths are in mm.
SHOWN_UNITS = {
    "range_scale": ("ppm", 1e6), "azimuth": ("deg", 180.0 / math.pi), "channel_elevation": ("deg", 180.0 / math.pi),
    "channel_azimuth": ("deg", 180.0 / math.pi), "optical_centre_share": ("", 1.0), "firing_time_share": ("", 1.0),
}  # fmt: skip
UNIT_FILE_KEYS = ("values", "standard_deviations", "not_determined")


@dataclass(frozen=True)
class Unit:
    """One unit: `values` (n,) of an `ErrorModel`'s parameters, their `standard_deviations` (n,) if they were estimated,
    the keys `not_determined`, and `range_drift` (m), the growth of its ranges until it is warm."""

    values: np.ndarray
    standard_deviations: np.ndarray | None = None
    not_determined: tuple[str, ...] = ()
    range_drift: float = 0.0


def shown_unit(key: str) -> tuple[str, float]:
    """Return the unit in which a parameter is shown, by its key or name, and the factor from m, rad or 1."""
    return next((unit for start, unit in SHOWN_UNITS.items() if key.startswith(start)), ("mm", 1e3))


def values_to_mapping(model: ErrorModel, values: np.ndarray) -> dict[str, Any]:
    """Return parameters (n,), or their standard deviations, as in a unit file."""
    mapping: dict[str, Any] = {key: float(values[index]) for key, index in SCALAR_KEYS.items()}
    mapping["near_range"] = {"amplitude": float(values[NEAR]), "length": float(model.spread.near_length)}
    mapping["azimuth_harmonics_deg"] = np.degrees(values[HARMONICS]).reshape(2, 2).tolist()
    mapping["optical_centre"] = values[CENTRE].tolist()
    for kind, key in CHANNEL_KEYS.items():
        by_channel = values[model.of_kind(kind)]
        mapping[key] = (by_channel if key == kind else np.degrees(by_channel)).tolist()
    return mapping


def values_from_mapping(model: ErrorModel, mapping: Any, where: str) -> np.ndarray:
    """Return the parameters (n,) of a mapping of a unit file. Raises `InputError` naming the key."""
    data, count = validate.mapping(mapping, KEYS, where), model.num_channels
    values = np.zeros(model.size)
    for key, index in SCALAR_KEYS.items():
        values[index] = validate.number(data.get(key, 0.0), f"{where}: {key}", -10.0, 10.0)
    values[NEAR], _ = near_range(data.get("near_range"), model.spread.near_length, f"{where}: near_range")
    pairs, place = data.get("azimuth_harmonics_deg", [[0.0, 0.0]] * 2), f"{where}: azimuth_harmonics_deg"
    if not isinstance(pairs, list) or len(pairs) != 2:
        raise InputError(f"{place}: expected two pairs [cos, sin]")
    harmonics = [validate.numbers(each, 2, f"{place}[{number}]", -5, 5) for number, each in enumerate(pairs)]
    values[HARMONICS] = np.radians(harmonics).ravel()
    values[CENTRE] = validate.numbers(data.get("optical_centre", [0.0] * 3), 3, f"{where}: optical_centre", -0.5, 0.5)
    for kind, key in CHANNEL_KEYS.items():
        given = validate.numbers(data.get(key, [0.0] * count), count, f"{where}: {key}", -5.0, 5.0)
        values[model.of_kind(kind)] = given if key == kind else np.radians(given)
    return values


def near_range(value: Any, length: float, where: str) -> tuple[float, float]:
    """Return amplitude and length (m) of a near-range error, by default 0 and `length`."""
    data = validate.mapping(value, {"amplitude", "length"}, where)
    return (
        validate.number(data.get("amplitude", 0.0), f"{where}: amplitude", -1.0, 1.0),
        validate.number(data.get("length", length), f"{where}: length", 0.01, 100.0),
    )


def unit_from_mapping(model: ErrorModel, data: Mapping[str, Any], where: str) -> Unit:
    """Raises `InputError` naming the key."""
    open_keys, known, values = data.get("not_determined") or [], None, data.get("values")
    if not isinstance(open_keys, list) or not all(isinstance(key, str) for key in open_keys):
        raise InputError(f"{where}: not_determined: expected a list of keys of values")
    for key in open_keys:
        if key.partition("[")[0] not in KEYS:
            raise InputError(f"{where}: not_determined: unknown key '{key}'; known are {', '.join(sorted(KEYS))}")
    if data.get("standard_deviations") is not None:
        known = values_from_mapping(model, data["standard_deviations"], f"{where}: standard_deviations")
        if (known < 0).any():
            raise InputError(f"{where}: standard_deviations: one of them is below 0")
    parameters = values_from_mapping(model, values, f"{where}: values")
    drift = validate.number((values or {}).get("range_drift", 0.0), f"{where}: values: range_drift", -1.0, 1.0)
    return Unit(parameters, known, tuple(open_keys), drift)


def unit_to_mapping(model: ErrorModel, unit: Unit) -> dict[str, Any]:
    """Return a unit as `unit_from_mapping` reads it back."""
    mapping: dict[str, Any] = {"values": values_to_mapping(model, unit.values) | {"range_drift": unit.range_drift}}
    if unit.standard_deviations is not None:
        mapping["standard_deviations"] = values_to_mapping(model, unit.standard_deviations)
        mapping["not_determined"] = list(unit.not_determined)
    return mapping


def write_unit(path: str | Path, sensor: str | Path, model: ErrorModel, unit: Unit, **keys: Any) -> None:
    """Write a unit file: `sensor` is the name or path of its kind's sensor file, `keys` replace that file's. Atomic;
    raises `InputError`."""
    files.write_yaml(path, {"sensor": str(sensor)} | keys | unit_to_mapping(model, unit))


def write_simulated_unit(
    path: str | Path, sensor: str | Path, model: ErrorModel, values: np.ndarray, **keys: Any
) -> None:
    """Write a unit file of parameters (n,) for the simulator, without what the driver corrects; `keys` as of
    `write_unit`. As JSON, which is YAML and read faster."""
    own = values_to_mapping(model, values)
    del own["optical_centre_share"], own["firing_time_share"]
    files.write_text(path, json.dumps({"sensor": str(sensor), "values": own} | keys))


def read_angle_table(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Return elevations and azimuth offsets (C,) in rad from a unit's angle table: the maker's CSV with the columns
    Channel, Elevation, Azimuth in degrees, and a line with a checksum, which is ignored. Its azimuths turn clockwise
    from the y axis, offsets here counter-clockwise from the x axis. Raises `InputError` naming file and line."""
    rows: dict[int, tuple[float, float]] = {}
    lines = [[word.strip() for word in line.split(",")] for line in files.read_text(path).lstrip("\ufeff").splitlines()]
    if not lines or [word.lower() for word in lines[0][:3]] != ["channel", "elevation", "azimuth"]:
        raise InputError(f"{path}:1: is not an angle table, it should begin with Channel,Elevation,Azimuth")
    for number, words in enumerate(lines[1:], start=2):
        if not any(words) or len(words[0]) == 64 and not any(words[1:]):  # the checksum
            continue
        where = f"{path}:{number}: '{','.join(words)[:60]}'"
        try:
            channel, elevation, azimuth = int(words[0]), float(words[1]), float(words[2])
        except (ValueError, IndexError) as error:
            raise InputError(f"{where}: expected channel, elevation, azimuth") from error
        if not (math.isfinite(azimuth) and -90.0 <= elevation <= 90.0) or channel in rows:
            raise InputError(f"{where}: is not a direction, or the channel occurs twice")
        rows[channel] = elevation, azimuth
    if not rows or sorted(rows) != list(range(1, len(rows) + 1)):
        raise InputError(f"{path}: expected channels 1 to {max(len(rows), 1)}, each once")
    elevations, azimuths = np.radians([rows[channel] for channel in sorted(rows)]).T
    return elevations, wrapped(np.pi / 2 - azimuths)
