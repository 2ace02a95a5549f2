"""`stretch_simulator`: a process that looks like the robot's own drivers, and keeps the truth to itself.

Calibration nodes cannot tell it from the robot: the same topics, frames, services, action and parameter. What only a
simulator knows goes to `--truth FILE` and to the latched topic `/stretch_simulator/ground_truth`, which no calibration
reads.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.ros.node_commands import SIMULATOR, STORAGES
from stretch_sim_cal.ros.node_main import NodeContext, run_node
from stretch_sim_cal.sensor.sensor import Driver
from stretch_sim_cal.simulation.setup import SimulationSetup


def simulation_setup(options: Any) -> SimulationSetup:
    """Return what the options ask for: the scenario's simulation, with what is given beside it in its place.

    Raises `InputError` naming the file or option.
    """
    mapping: dict[str, Any] = {}
    source = "the command line"
    if options.scenario:
        path = files.find_shared("scenarios", options.scenario, ".yaml")
        source = str(path)
        mapping = files.read_yaml(path).get("simulation") or {}
        if not isinstance(mapping, dict):
            raise InputError(f"{path}: simulation: a mapping was expected")
    given = {name: getattr(options, name) for name in ("world", "sensor", "seed", "unit_seed", "real_time_factor")}
    for side in SIDES:
        name = f"lidar_{side}_error"
        unit = getattr(options, f"{side}_unit")
        if unit is not None:
            given["units"] = given.get("units", mapping.get("units") or {}) | {side: _from_here(unit)}
        if getattr(options, name) is not None:
            values = _numbers(name, getattr(options, name), 6)
            given[name] = {"xyz": values[:3], "rpy_deg": values[3:]}
    if options.base_error is not None:
        given["base_error"] = dict(
            zip(("height", "roll_deg", "pitch_deg"), _numbers("base_error", options.base_error, 3))
        )
    corrections = {
        name: getattr(options, name) == "true"
        for name in Driver.__dataclass_fields__
        if getattr(options, name) is not None
    }
    if corrections:
        given["driver"] = (mapping.get("driver") or {}) | corrections
    # What is given on the command line names files from where the command is called, not from the scenario's folder.
    mapping = mapping | {name: _from_here(value) for name, value in given.items() if value is not None}
    return SimulationSetup.from_mapping(mapping, source=source)


def _from_here(value: Any) -> Any:
    is_path = isinstance(value, str) and len(Path(value).parts) > 1
    return str(Path(value).expanduser().resolve()) if is_path else value


def _numbers(name: str, text: str, count: int) -> list[float]:
    try:
        values = [float(part) for part in text.replace(",", " ").split()]
    except ValueError:
        values = []
    if len(values) != count:
        raise InputError(f"--{name.replace('_', '-')} '{text}': {count} numbers separated by commas were expected")
    return values


def simulate(context: NodeContext) -> int:
    """Simulate until a signal, or for the duration asked for."""
    from stretch_sim_cal.ros.simulator.simulated_robot import run_simulation

    options = context.options
    if options.simulator == "embedded" and (options.lidar != "auto" or options.gui):
        raise InputError("parameters lidar and gui are Gazebo's; add --simulator gazebo")
    if options.storage != STORAGES[0] and not options.record:
        raise InputError("parameter storage is of a recording; add --record DIR")

    return run_simulation(context, simulation_setup(context.options))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulator's command line and return its exit code."""
    return run_node(SIMULATOR, simulate, arguments)


if __name__ == "__main__":
    sys.exit(main())
