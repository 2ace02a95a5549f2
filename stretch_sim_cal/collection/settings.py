"""The settings of a collection, from `config/body_shape.yaml` and the command line: grids, speeds, frames."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.body.settings import SWEEP_NUMBERS, find_settings, read_settings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.model import Limit
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.validate import entries, integer, number, numbers_by_key

MAX_VALUES = 200
LIMIT_TOLERANCE = 1e-9


@dataclass(frozen=True)
class CollectionSettings:
    """Lengths in m, times in s, speeds in m/s or rad/s; `grids` and `speeds` by the joints of a dataset. `source` is
    the file that the plan is in: the settings file, or the robot's profile."""

    source: Path | str
    plan: str
    grids: dict[str, tuple[float, ...]]
    speeds: dict[str, float]
    margin: float
    settle_time: float
    frames: int
    crop_radius: float
    crop_height: float
    cell: float
    floor_cell: float
    clearance: float


def load_settings(
    name: str | Path, plan: str, grids: Mapping[str, str], speed_factor: float, limits: Mapping[str, Limit],
    frames: int | None = None, profile: RobotProfile | None = None,
) -> CollectionSettings:  # fmt: skip
    """Return the settings of the file `name` (in `config/`, or a path) for one of its plans. `grids` (texts, see
    `parse_grid`) replace the plan's for the joints that they name; `limits` are those of the model by commanded joint;
    `frames` replaces the file's. Plans and speeds of the robot's `profile`, if it has any, go before the file's. Raises
    `InputError` naming the file and key, or the joint whose values are outside its limits."""
    profile, path = profile or stretch_profile(), find_settings(name)
    data = read_settings(path)
    source: Path | str = path
    if plan in profile.plans or not profile.planned:
        source, written = profile.source, dict(profile.plans.get(plan, {}))
    else:
        plans = entries(data.get("plans"), f"{path}: plans")
        if plan not in plans or profile.plans:
            own, where = (profile.plans, profile.source) if profile.plans else (map(str, plans), path)
            raise InputError(f"{where}: has no plan '{plan}'; available: {', '.join(own)}")
        written = entries(plans[plan], f"{path}: plans: {plan}")
    for key in written:
        if key not in profile.commands:
            raise InputError(f"{source}: plans: {plan}: unknown joint '{key}'; known are {', '.join(profile.commands)}")
    for name in grids:
        if name not in profile.commands:
            known = ", ".join(profile.commands) or "none"
            raise InputError(f"grid of '{name}': this robot has no such joint; available: {known}")
    if missing := [name for name in profile.commands.values() if name not in limits]:
        raise InputError(f"the robot's description has no limits for {', '.join(missing)}; is it a {profile.name}?")
    speeds = {} if not profile.planned else entries(data.get("speeds"), f"{path}: speeds")
    speeds |= {joint.name: joint.speed for joint in profile.planned if joint.speed is not None}
    values, limited = {}, {}
    for joint, command in profile.commands.items():
        limit = limits[command]
        where = f"--{joint.replace('_', '-')}" if joint in grids else f"{source}: plans: {plan}: {joint}"
        grid = parse_grid(grids[joint], where) if joint in grids else written.get(joint)
        values[joint] = _grid_values(grid, limit, where)
        speed = number(speeds.get(joint), f"{path}: speeds: {joint}", 1e-3, 100.0)
        limited[joint] = speed_factor * min(speed, limit.velocity or math.inf)
    numbers = {name: number(data.get(name), f"{path}: {name}", *bounds) for name, bounds in SWEEP_NUMBERS.items()}
    numbers["frames"] = frames or integer(data["frames"], f"{path}: frames", *SWEEP_NUMBERS["frames"])
    return CollectionSettings(source, plan, values, limited, **numbers)


def parse_grid(text: str, where: str) -> list[float] | dict[str, float]:
    """Return a grid as in the file from "0, 0.2, 0.4", or from "count:4" or "count:4,from:0.1,to:0.4"."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        if any(":" in part for part in parts):
            return {key.strip(): float(value) for key, value in (part.split(":") for part in parts)}
        return [float(part) for part in parts]
    except ValueError as error:
        expected = "values like '0, 0.2, 0.4', or 'count:4,from:0,to:0.4' were expected"
        raise InputError(f"{where} '{text}': {expected}") from error


def _grid_values(grid: Any, limit: Limit, where: str) -> tuple[float, ...]:
    if isinstance(grid, dict):
        ends = {"from": (-math.inf, math.inf, limit.lower), "to": (-math.inf, math.inf, limit.upper)}
        count, low, high = numbers_by_key(grid, where, count=(1, MAX_VALUES), **ends).values()
        if count % 1:
            raise InputError(f"{where}: count: is {count:g}; expected a whole number")
        # Rounded, so that equal grid points are equal in files; a limit that this oversteps is put back below.
        values = [round(float(value), 9) for value in np.linspace(low, high, int(count))]
    elif isinstance(grid, list) and grid:
        values = [number(value, where) for value in grid]
    else:
        raise InputError(f"{where}: expected a list of values or a mapping with count")
    for value in values:
        if not limit.lower - LIMIT_TOLERANCE <= value <= limit.upper + LIMIT_TOLERANCE:
            raise InputError(f"{where}: {value:g} is outside the joint's limits {limit.lower:g} .. {limit.upper:g}")
    values = sorted({min(max(value, limit.lower), limit.upper) for value in values})
    if len(values) > MAX_VALUES:
        raise InputError(f"{where}: more than {MAX_VALUES} values")
    return tuple(values)
