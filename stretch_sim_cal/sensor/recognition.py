"""Which of the known kinds (`config/*.yaml`) a lidar is, by its points: rings, their elevations, the azimuth grid."""

from collections.abc import Mapping, Sequence

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.sensor.sensor import UNKNOWN, Sensor, Sensors
from stretch_sim_cal.sensor.signature import LIKE_TABLE, SAME_TABLE, Observer, Signature, known_sensors

SCANS = 6  # scans by which a lidar is recognised; more do not change it


def fitting(seen: Signature, candidates: Sequence[Sensor]) -> list[Sensor]:
    """Return the candidates of the nearest elevations and, of these, those of as many firings a turn if there are
    any."""
    if seen.sensor is None:
        return []
    (nearest,) = (one for one in candidates if one.name == seen.sensor.name)
    same = [one for one in candidates if one.num_channels == nearest.num_channels]
    alike = [one for one in same if _apart(one, nearest) < SAME_TABLE]
    return [one for one in alike if one.azimuth_steps == seen.azimuth_steps] or alike


def taken_for(seen: Signature, expected: Sensor | None, candidates: Sequence[Sensor]) -> tuple[Sensor | None, str]:
    """Return the sensor that a lidar is taken for (the expected one if its table fits, else the candidate that fits,
    else None), and a sentence about it. Raises `InputError` if several fit."""
    table = seen.sensor
    same = expected is not None and table is not None and expected.num_channels == table.num_channels
    if same and _apart(expected, table) < LIKE_TABLE:
        return expected, f"recognised as {expected.name}"
    fits = fitting(seen, candidates)
    if len(fits) > 1:
        names = ", ".join(one.name for one in fits)
        raise InputError(f"the points fit {names} equally well, but these differ in noise and grid; give the right one")
    other = "" if expected is None else f", not for {expected.name}, whose elevations are others"
    if fits:
        return fits[0], f"recognised as {fits[0].name}, the only matching file in config/{other}"
    return None, f"treated as a lidar of {UNKNOWN} make{other}: no file in config/ fits"


def recognised(
    found: Mapping[str, Signature | InputError], expected: Sequence[Sensor | None], candidates: Sequence[Sensor]
) -> tuple[Sensors, list[str]]:
    """Return the sensors of lidars by their points, else `expected`, and lines. Raises `InputError` if several kinds
    fit."""
    kinds, lines = list(expected), []
    for index, (name, seen) in enumerate(found.items()):
        if isinstance(seen, InputError):
            continue
        try:
            kinds[index], line = taken_for(seen, expected[index], candidates)
        except InputError as several:
            raise InputError(f"{name} lidar: {several} (--sensor)") from several
        lines.append(f"{name} lidar: {line}")
    alike = all(kind is kinds[0] or (kind and kinds[0] and kind.kind == kinds[0].kind) for kind in kinds)
    return kinds[0] if alike else tuple(kinds), lines


def sensor_of(clouds: Sequence[np.ndarray]) -> Sensor | None:
    """Return the kind of a lidar by its clouds: structured arrays (N,) with x, y, z, ring, in the lidar's frame. None
    if no file in `config/` fits. Raises `InputError` without rings, or if several fit."""
    observer = Observer()
    if isinstance(clouds, np.ndarray) and clouds.dtype.names is not None and clouds.ndim == 1:
        raise InputError("clouds: is one cloud, not a list of them; give [cloud]")
    for number, cloud in enumerate(clouds[:SCANS]):
        if getattr(getattr(cloud, "dtype", None), "names", None) is None:
            raise InputError("clouds: expected a structured array with x, y, z and ring in place of each plain one")
        observer.add(cloud, float(number))
    candidates = known_sensors()
    return taken_for(observer.signature(candidates), None, candidates)[0]


def _apart(one: Sensor, other: Sensor) -> float:
    return float(np.median(np.abs(one.elevations - other.elevations)))
