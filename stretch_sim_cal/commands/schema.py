"""`stretch-sim-cal schema KIND`: the JSON schema, also in config/schema/, by which editors check a YAML file."""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from stretch_sim_cal.files import share_directory
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.json_schema import Schema, any_of, of, of_file, of_keys, of_numbers, of_record
from stretch_sim_cal.validate import ACCEPT, Bounds, keys_of

EXAMPLE = "stretch-sim-cal schema profile"
FOLDER = "config/schema"
MODELINE = "# yaml-language-server: $schema="
"""Begins the line of a YAML file that names its schema to editors."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", choices=tuple(SCHEMAS), help=f"one of {', '.join(SCHEMAS)}")


def run(args: argparse.Namespace) -> int:
    print(text_of(args.kind), end="")
    return 0


def text_of(kind: str) -> str:
    return json.dumps(SCHEMAS[kind](), indent=1) + "\n"


def path_of(kind: str) -> Path:
    """Return the installed file of one of `SCHEMAS`."""
    return share_directory() / FOLDER / f"{kind}.json"


def _profile() -> Schema:
    from stretch_sim_cal.robot import profile, wheeled_base

    source = {"vendor": Literal[profile.VENDOR], "arguments": Mapping[str, Any], "packages": Mapping[str, Any]}
    lidars = {
        "type": "object",
        "properties": dict.fromkeys(SIDES, of_record(profile.ProfiledLidar, usual=("topic",))),
        "additionalProperties": of_record(profile.ProfiledLidar, without=("housing",), usual=("topic",)),
        "propertyNames": {"pattern": f"^{profile.LIDAR_NAME.pattern}$"},
        "required": ["left"],
    }
    parts = tuple[str, ...] | tuple[tuple[str, ...], ...]
    joint = of_record(profile.CommandedJoint, {"parts": parts}, without=("name",), usual=("command",))
    limits, topics = of_numbers(wheeled_base.LIMITS), of_keys(dict.fromkeys(wheeled_base.TOPICS, str | None))
    base = of_record(
        wheeled_base.WheeledBase, {"limits": limits, "topics": topics}, wheeled_base.NESTED, ("track_width",)
    )
    pose = Mapping[str, float]
    return of_record(
        profile.RobotProfile,
        {
            "description": any_of(str, of_record(profile.DescriptionSource, source)),
            "lidars": lidars,
            "joints": Mapping[str, joint],
            "stow": pose | tuple[pose, ...],
            "home": pose | tuple[pose, ...],
            "offset_joints": Mapping[str, Annotated[float, Bounds(1e-6, 1.0)]],
            "topics": of_keys(dict.fromkeys(profile.TOPICS, str | None)),
            "body": any_of(None, of_numbers(profile.BODY)),
            "accept": any_of(None, of_numbers(ACCEPT)),
            "base": any_of(None, base),
        },
        without=profile.COMPUTED,
        usual=("name", "footprint_frame", "sensor", "lidar_geometry", "mount_candidates"),
    ) | {"required": ["description", "lidars", "base_frame"]}


def _sensor() -> Schema:
    from stretch_sim_cal.sensor import sensor, unit_file
    from stretch_sim_cal.sensor.unit import UnitSpread

    near_range = of_keys({"amplitude": float, "length": float})
    centre = tuple[float, float, float]
    table = tuple[float, ...]
    values = of_keys(
        dict.fromkeys(unit_file.SCALAR_KEYS, float) | dict.fromkeys(unit_file.CHANNEL_KEYS.values(), table) | {
            "near_range": near_range, "azimuth_harmonics_deg": tuple[tuple[float, float], tuple[float, float]],
            "optical_centre": centre, "range_drift": float,
        }
    )  # fmt: skip
    spread = of_record(UnitSpread, {"near_range": near_range}, without=("near_length", "driver_uncertain"))
    known = of_record(
        sensor.Sensor,
        {
            "optical_centre": Annotated[centre, Bounds(-0.5, 0.5)],
            "range_drift": of_numbers(sensor.RANGE_DRIFT),
            "returns": Literal[sensor.RETURNS],
            "misses": Literal[sensor.MISSES],
            "driver": sensor.Driver,
            "unit": any_of(Literal[sensor.IDEAL], None, spread),
            "sensor": of(str) | {"description": "Of a unit file: the kind, a name in `config/` or a path beside it."},
            "values": values,
            "standard_deviations": values,
            "not_determined": tuple[str, ...],
        },
        without=sensor.COMPUTED,
        usual=sensor.PER_CHANNEL,
    )
    needed = [*known.pop("required"), "elevations_deg"]
    return known | {"anyOf": [{"required": needed}, {"required": ["sensor"]}]}


def _scenario() -> Schema:
    from stretch_sim_cal.calibration.body import FIT_METHODS
    from stretch_sim_cal.conventions.spawned import ROBOT_KEYS
    from stretch_sim_cal.harness import scenario
    from stretch_sim_cal.ros.node_commands import STAGE_NODES
    from stretch_sim_cal.sensor.sensor import Driver
    from stretch_sim_cal.simulation.setup import ERROR_KEYS, FLOOR, PoseError, SimulationSetup

    def option(stage: str, key: str) -> Schema:
        if key == "fit_method":
            return any_of(None, Literal[FIT_METHODS])
        parameter = STAGE_NODES[stage].option(key)
        if parameter.type is str:
            return {"description": parameter.described}
        kinds = any_of(None, str, Annotated[parameter.type, Bounds(parameter.minimum, parameter.maximum)])
        return {"description": parameter.described} | kinds  # text as well: "20"

    simulation = of_record(
        SimulationSetup,
        dict.fromkeys(("world", "sensor"), str) | {
            "units": Mapping[str, str], "driver": Driver, "floor": any_of(None, of_numbers(FLOOR)),
        } | dict.fromkeys(ERROR_KEYS.values(), PoseError) | dict.fromkeys(ROBOT_KEYS, str | None),
        without=("robot_keys",),
    )  # fmt: skip
    above_zero = {"type": "number", "exclusiveMinimum": 0}
    stages = {
        stage: of_keys({key: option(stage, key) for key in options})
        for stage, options in scenario.STAGE_OPTIONS.items()
    }
    tolerances = {
        stage: of_keys(dict.fromkeys(sorted(each.name for each in bounds), above_zero))
        for stage, bounds in scenario.TOLERANCES.items()
    }
    known = {
        "name": Any,
        "description": Any,
        "expected": Literal[scenario.EXPECTATIONS],
        "simulation": simulation,
        "stages": of_keys(stages),
        "refusal": of_keys({"stage": Literal[scenario.STAGES], "mentions": {"type": "string"}}),
        "reports": of_keys(dict.fromkeys(stages, Any)),
        "tolerances": of_keys(tolerances),
    }
    return of_keys(known, ["stages"])


def _campaign() -> Schema:
    from stretch_sim_cal.campaign import plan

    by_count = {1: float | tuple[float], 2: tuple[float, float], None: float | tuple[float, ...]}
    kinds = {kind: by_count[count] for kind, (count, _) in plan.QUANTILES.items()}
    distribution = of_keys(kinds | {"in_share": Annotated[float, Bounds(1e-6, 1.0)]})
    inputs = {
        name: {"description": f"{known.meaning} (default {known.default:g})"}
        | any_of(Annotated[float, Bounds(known.low, known.high)], {"$ref": "#/$defs/distribution"})
        for name, known in plan.INPUTS.items()
    }
    limit = of(keys_of(plan.Campaign)["limits"][1])["additionalProperties"]
    known = of_record(
        plan.Campaign,
        {
            "stages": {"enum": plan.STAGE_LISTS},
            "methods": of_keys(dict.fromkeys(plan.METHODS, str)),
            "inputs": of_keys(inputs),
            "limits": of_keys({name: {"description": text} | limit for name, text in plan.QUANTITIES.items()}),
            "like": of(str) | {"description": "A campaign that has the keys which this one has not."},
        },
        without=("data",),
    )
    del known["required"]
    either = [{"required": ["name"]}, {"required": ["like"]}]
    return known | {"anyOf": either, "$defs": {"distribution": distribution}}


SCHEMAS: dict[str, Callable[[], Schema]] = {
    "profile": lambda: of_file("robot profile", _profile()),
    "sensor": lambda: of_file("sensor file, or unit file", _sensor()),
    "scenario": lambda: of_file("scenario", _scenario()),
    "campaign": lambda: of_file("campaign", _campaign()),
}
"""The kinds of files by name, and what makes their schemas."""
