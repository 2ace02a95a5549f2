"""A scenario: the simulation, the calibration stages that run, the expected outcome, and the table of tolerances."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal import files, validate
from stretch_sim_cal.calibration import methods
from stretch_sim_cal.calibration.body import FIT_METHODS
from stretch_sim_cal.collection.settings import load_settings
from stretch_sim_cal.conventions.spawned import ROBOT_KEYS
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.profile import load_profile
from stretch_sim_cal.ros.node_commands import STAGE_NODES
from stretch_sim_cal.sensor.sensor import sensors_called
from stretch_sim_cal.simulation.setup import PoseError, SimulationSetup, simulated_description
from stretch_sim_cal.simulation.worlds import load_world

STAGES = tuple(STAGE_NODES)
EXPECTATIONS = ("pass", "refused")
STAGE_OPTIONS: dict[str, dict[str, Any]] = {
    "alignment": {"num_samples": 20, "method": None},
    "floor": {"num_samples": 10, "method": None},
    "mounts": {"plan": "mounts", "frames": None, "with_joint_offsets": False},
    "body_shape": {"plan": "demo", "fit_method": "tapered_capsule"},
    "drive": dict.fromkeys((
        "turn_step", "distance", "clearance", "scans", "speed", "turn_speed", "target_mm", "target_deg",
        "max_duration", "continuous",
    )),
}  # fmt: skip
"""The options of a stage, which are parameters of its node, with the defaults of scenarios."""
KEYS = {"name", "description", "expected", "simulation", "stages", "refusal", "reports", "tolerances"}


# What a tolerance is of: the left and the right lidar together, the stage as a whole, or one lidar each, of these.
PAIR, BOTH_SIDES, WHOLE, FURTHER, EACH = "pair", "sides", "whole", "further", "each"
WRONG = "{key} is {error}, above its tolerance of {tolerance:g} (by {producer})"
TOO_FEW = (
    "{estimate} of its plan were skipped, above the share of {tolerance:g} that the scenario allows (tolerances: "
    "skipped_share); too few poses are left"
)


@dataclass(frozen=True)
class Tolerance:
    """A tolerance by its `name` in a scenario; one without a `default` holds only if the scenario has it.

    `key` and `unit` are those of the quantity in `result.json`; that of a lidar begins with its name, "left.". `labels`
    by what it is of, with {} for the lidar's name. `exceeded` is the reason for a failure."""

    name: str
    default: float | None
    key: str
    unit: str
    labels: Mapping[str, str]
    exceeded: str = WRONG


LIDAR_TO_LIDAR = tuple(
    Tolerance(name, default, key, unit, {PAIR: f"lidars: {what}", FURTHER: f"{{}} lidar: {what}"})
    for name, default, key, unit, what in (
        ("translation_mm", 1.0, "translation_error_mm", "mm", "translation"),
        ("rotation_deg", 0.02, "rotation_error_deg", "deg", "rotation"),
        ("nees", None, "nees", "", "NEES per freedom"),
    )
)
TOLERANCES = {
    "alignment": LIDAR_TO_LIDAR,
    "floor": (
        Tolerance("height_mm", 0.5, "height_error_mm", "mm", {WHOLE: "floor: height"}),
        Tolerance("tilt_deg", 0.02, "tilt_error_deg", "deg", {WHOLE: "floor: tilt"}),
        Tolerance("nees", None, "nees", "", {WHOLE: "floor: NEES per freedom"}),
    ),
    "mounts": (
        Tolerance("translation_mm", 1.0, "translation_error_mm", "mm",
                  dict.fromkeys((BOTH_SIDES, FURTHER), "{} mount: translation")),
        Tolerance("rotation_deg", 0.1, "rotation_error_deg", "deg",
                  dict.fromkeys((BOTH_SIDES, FURTHER), "{} mount: rotation")),
        Tolerance("nees", None, "nees", "", {WHOLE: "mounts: NEES per freedom", FURTHER: "{}: NEES per freedom"}),
        Tolerance("skipped_share", 0.2, "skipped_share", "", {WHOLE: "mounts: poses skipped"}, TOO_FEW),
    ),
    "body_shape": (
        Tolerance("protrusion_mm", 10.0, "max_protrusion_mm", "mm", {WHOLE: "body: protrusion"}),
        Tolerance("excess_area_ratio", 1.10, "excess_area_ratio", "", {WHOLE: "body: area ratio"}),
        Tolerance("skipped_share", 0.2, "skipped_share", "", {WHOLE: "body: poses skipped"}, TOO_FEW),
    ),
    "drive": (
        *LIDAR_TO_LIDAR,
        Tolerance("height_mm", 1.0, "height_error_mm", "mm", {WHOLE: "floor: height"}),
        Tolerance("tilt_deg", 0.05, "tilt_error_deg", "deg", {WHOLE: "floor: tilt"}),
        Tolerance("floor_nees", None, "floor_nees", "", {WHOLE: "floor: NEES per freedom"}),
        Tolerance("lever_mm", 3.0, "lever_error_mm", "mm", {EACH: "{} to wheels: x, y"}),
        Tolerance("yaw_deg", 0.5, "yaw_error_deg", "deg", {EACH: "{} to wheels: yaw"}),
        Tolerance("wheels_nees", None, "wheels_nees", "", {EACH: "{} to wheels: NEES per freedom"}),
    ),
}  # fmt: skip
"""By stage, in the order in which quantities are shown. A new one needs a row here, and its quantity's key in what the
stage compares (`COMPARISONS` in `verdict.py`). The limits of a campaign are counted in `campaign/statement.py`."""


def defaults_of(stage: str) -> dict[str, float]:
    return {each.name: each.default for each in TOLERANCES[stage] if each.default is not None}


def quantities_of(stage: str, lidars: Sequence[str]) -> list[tuple[str, str, Tolerance]]:
    """Return key, label and tolerance of every quantity of a stage on a robot with those lidars."""
    parts = {
        PAIR: [""] if "right" in lidars else [],
        BOTH_SIDES: [name for name in lidars if name in SIDES],
        WHOLE: [""],
        FURTHER: [name for name in lidars if name not in SIDES],
        EACH: lidars,
    }
    return [
        (f"{part}.{each.key}" if part else each.key, each.labels[of].format(part), each)
        for of, names in parts.items() for part in names for each in TOLERANCES[stage] if of in each.labels
    ]  # fmt: skip


@dataclass(frozen=True)
class Scenario:
    """One run of the harness, read from a YAML file in `scenarios/`.

    `stages` and `tolerances` are by stage, with units in the keys; `refusal` names the stage that has to refuse and a
    text of its message, `reports` texts that the output of a stage has to mention; `data` is the file's content."""

    name: str
    description: str
    expected: str
    simulation: SimulationSetup
    stages: dict[str, dict[str, Any]]
    tolerances: dict[str, dict[str, float]]
    refusal: dict[str, str] = field(default_factory=dict)
    reports: dict[str, str] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)


def load_scenario(name: str | Path) -> Scenario:
    """Return the scenario of that name (in `scenarios/`) or path. Raises `InputError` naming file and key."""
    path = files.find_shared("scenarios", name, ".yaml")
    return scenario_from_mapping(files.read_yaml(path), path)


def scenario_from_mapping(data: dict[str, Any], path: Path) -> Scenario:
    """Return the scenario that a mapping describes; `path` names it in errors and is its default name."""
    data = validate.mapping(data, KEYS, f"{path}")
    expected = data.get("expected", "pass")
    if expected not in EXPECTATIONS:
        raise InputError(f"{path}: expected: is '{expected}', use one of {', '.join(EXPECTATIONS)}")
    stages = _stages(data.get("stages", {}), path)
    if expected != "refused" and data.get("refusal"):
        raise InputError(f"{path}: refusal: goes with 'expected: refused' only; add that, or remove it")
    refusal = validate.mapping(data.get("refusal"), {"stage", "mentions"}, f"{path}: refusal")
    refusal = {key: validate.text(each, f"{path}: refusal: {key}") for key, each in refusal.items() if each != ""}
    if expected == "refused" and refusal.get("stage") not in stages:
        raise InputError(f"{path}: refusal: stage: has to name one of the stages that run ({', '.join(stages)})")
    reports = validate.mapping(data.get("reports"), set(stages), f"{path}: reports")
    simulation = SimulationSetup.from_mapping(data.get("simulation", {}), source=str(path))
    with _naming(f"{path}: simulation"):
        load_world(simulation.world)
        for device, sensor in simulation.sensors().items():
            simulation.sensor_of(device, sensor)
        parse_urdf(simulated_description(simulation), source="simulated description")  # links and joints of errors
    _check_plans(simulation, stages, path)
    if "drive" in stages and simulation.profile.base is None:
        raise InputError(f"{path}: stages: drive: {simulation.profile.source} has no 'base:', so it does not drive")
    name = validate.folder_name(data.get("name", path.stem), f"{path}: name")
    return Scenario(
        name, str(data.get("description") or ""), expected, simulation, stages,
        _tolerances(data.get("tolerances", {}), stages, path), refusal,
        {stage: str(text) for stage, text in reports.items()}, data,
    )  # fmt: skip


def _check_plans(simulation: SimulationSetup, stages: dict[str, dict[str, Any]], path: Path) -> None:
    """Raise `InputError` for plans that the robot does not have or cannot reach, which a run would notice late."""
    plans = {stage: options["plan"] for stage, options in stages.items() if "plan" in options}
    if plans and simulation.profile.planned:
        limits = simulation.profile.commanded_limits(parse_urdf(simulation.nominal_description))
        for stage, plan in plans.items():
            with _naming(f"{path}: stages: {stage}"):
                load_settings(stage, str(plan), {}, 1.0, limits, None, simulation.profile)


def _stages(data: Any, path: Path) -> dict[str, dict[str, Any]]:
    data = validate.mapping(data, set(STAGES), f"{path}: stages")
    if not data:
        raise InputError(f"{path}: stages: is empty; name at least one of {', '.join(STAGES)}")
    stages = {}
    for stage in filter(data.__contains__, STAGES):
        where = f"{path}: stages: {stage}"
        given = validate.mapping(data[stage], set(STAGE_OPTIONS[stage]), where)
        stages[stage] = STAGE_OPTIONS[stage] | {key: value for key, value in given.items() if value is not None}
        with _naming(where):
            _check_options(stage, stages[stage])
    needed = {"floor": "alignment", "mounts": "floor", "body_shape": "floor"}
    if any(stage in stages and before not in stages for stage, before in needed.items()):
        order = "floor needs alignment, and mounts and body_shape need floor, to run before it"
        raise InputError(f"{path}: stages: {order}")
    return stages


def _check_options(stage: str, options: dict[str, Any]) -> None:
    """Raise `InputError` for what the stage's node would not take: a run would notice only when its turn comes."""
    for key, value in options.items():
        if value is None:
            continue
        if key == "method":
            (methods.alignment_method if stage == "alignment" else methods.floor_method)(str(value))
        elif key == "fit_method":
            validate.choice(value, FIT_METHODS, key)
        else:
            STAGE_NODES[stage].option(key).value(value)


def _tolerances(data: Any, stages: dict[str, dict[str, Any]], path: Path) -> dict[str, dict[str, float]]:
    data = validate.mapping(data, set(STAGES), f"{path}: tolerances")
    if idle := [stage for stage in STAGES if stage in data and stage not in stages]:
        raise InputError(f"{path}: tolerances: {idle[0]}: does not run; add it to stages, or remove its tolerances")
    result = {}
    for stage in STAGES:
        where, known = f"{path}: tolerances: {stage}", {each.name for each in TOLERANCES[stage]}
        given = validate.mapping(data.get(stage), known, where)
        for key, value in given.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise InputError(f"{where}: {key}: is {value!r}; expected a number above 0")
        result[stage] = defaults_of(stage) | given
    return result


def with_changes(
    scenario: Scenario, seed: int | None, mount_errors: tuple[float, float] | None, sensor: str | None,
    robot: str | None = None,
) -> Scenario:  # fmt: skip
    """Return the scenario with another seed, robot (with its own sensor) or sensor, or lidar mount errors of a length
    (mm) and angle (deg) drawn from the seed. Raises `InputError` naming the option that cannot be used."""
    for option, name, load in (("--robot", robot, load_profile), ("--sensor", sensor, sensors_called)):
        with _naming(option):
            if name is not None:
                load(name)
    simulation = scenario.simulation.to_mapping()
    lidars = (scenario.simulation.profile if robot is None else load_profile(robot)).lidars
    errors = simulation.get("lidar_errors", {})
    if robot is not None:  # with the lidars that it has
        simulation = {key: value for key, value in simulation.items() if key not in (*ROBOT_KEYS, "sensor")}
    given = {"seed": seed, "robot": robot, "sensor": sensor}
    simulation |= {key: value for key, value in given.items() if value is not None}
    if mount_errors is not None:
        random, size = np.random.default_rng(simulation["seed"]), (1e-3 * mount_errors[0], np.radians(mount_errors[1]))
        errors = {name: validate.written(PoseError.drawn(random, *size)) for name in lidars}
    simulation["lidar_errors"] = {name: error for name, error in errors.items() if name in lidars}
    changes = {"--seed": seed, "--mount-errors": mount_errors, "--sensor": sensor, "--robot": robot}
    with _naming(", ".join(option for option, value in changes.items() if value is not None)):
        return scenario_from_mapping(scenario.data | {"simulation": simulation}, Path(f"{scenario.name}.yaml"))


@contextlib.contextmanager
def _naming(where: str) -> Iterator[None]:
    """A context whose `InputError` begins with `where`, unless that is empty."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}" if where else str(error)) from error
