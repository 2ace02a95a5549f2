"""`stretch_simulator`: a process that looks like the robot's own drivers. What only a simulator knows goes to `--truth
FILE` and to the latched topic `/stretch_simulator/ground_truth`, which no calibration reads."""

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.ros.node_commands import SIMULATOR, STORAGES
from stretch_sim_cal.ros.node_main import NodeContext, ending_signals
from stretch_sim_cal.ros.options import follow_changes
from stretch_sim_cal.sensor.sensor import CORRECTIONS
from stretch_sim_cal.simulation.setup import ERROR_KEYS, Faults, SimulationSetup
from stretch_sim_cal.validate import each_between, typed

# Time lost beyond this (a suspended machine, a slow scan) is not caught up in a burst.
CATCH_UP = 0.2
REPORT_EVERY = 10.0  # s of wall time
# Options that a scenario's `simulation` has under the same name.
SIMPLE = ("robot", "description", "tool", "world", "sensor", "seed", "unit_seed", "real_time_factor")
# A look for callbacks costs nearly a millisecond, as much as a step without clouds.
LOOK_EVERY = 0.02


def simulation_setup(options: Any) -> SimulationSetup:
    """Return what the options ask for: the scenario's simulation, with what is given beside it in its place. Raises
    `InputError` naming the file or option."""
    mapping: dict[str, Any] = {}
    source = "the command line"
    if options.scenario:
        path = files.find_shared("scenarios", options.scenario, ".yaml")
        source = str(path)
        if options.truth:
            files.check_not_read("--truth", options.truth, path)
        mapping = files.read_yaml(path).get("simulation") or {}
        if not isinstance(mapping, dict):
            raise InputError(f"{path}: simulation: expected a mapping")
    given = {name: value for name, value in vars(options).items() if value is not None}
    # Files on the command line are relative to where the command is called, not to the scenario's folder.
    found = {name: given[name] for name in SIMPLE if name in given}
    found |= {name: _from_here(found[name]) for name in ("robot", "description", "tool", "world") if name in found}
    if "sensor" in found:
        found["sensor"] = each_between(found["sensor"], _from_here)
    errors = {}
    for side, name in ERROR_KEYS.items():
        if name in given:
            values = _numbers(name, given[name], 6)
            errors[side] = {"xyz": values[:3], "rpy_deg": values[3:]}
    if "base_error" in given:
        values = _numbers("base_error", given["base_error"], 3)
        found["base_error"] = dict(zip(("height", "roll_deg", "pitch_deg"), values, strict=True))
    units = {side: _from_here(given[f"{side}_unit"]) for side in SIDES if f"{side}_unit" in given}
    corrections = {name: given[name] == "true" for name in CORRECTIONS if name in given}
    for name, replaced in (("lidar_errors", errors), ("units", units), ("driver", corrections)):
        if replaced:
            found[name] = typed(mapping.get(name), Mapping[str, Any], f"{source}: simulation: {name}") | replaced
    kept = {key: each for key, each in mapping.items() if key not in {ERROR_KEYS[side] for side in errors}}
    return SimulationSetup.from_mapping(kept | found, source=source)


def _from_here(value: str) -> str:
    return str(Path(value).expanduser().resolve()) if files.is_path(value) else value


def _numbers(name: str, text: str, count: int) -> list[float]:
    try:
        values = [float(part) for part in text.replace(",", " ").split()]
    except ValueError:
        values = []
    if len(values) != count:
        raise InputError(f"--{name.replace('_', '-')} '{text}': expected {count} numbers separated by commas")
    return values


class Pace:
    """How long to wait so that simulated time passes at most at a factor of wall time, which may change. Times are in
    s; `now` is the steady clock (replaced in tests)."""

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._factor: float | None = None
        self._wall = self._simulated = 0.0

    def wait(self, simulated: float, factor: float) -> float:
        """Return the wall time to let pass before `simulated` is due, at `factor` simulated seconds per second."""
        now = self._now()
        if factor != self._factor:
            # From the last moment that was asked for on, time passes at the new factor.
            self._simulated = simulated if self._factor is None else self._last
            self._factor, self._wall = factor, now
        self._last = simulated
        wait = self._wall + (simulated - self._simulated) / factor - now
        if wait < -CATCH_UP:
            self._wall, self._simulated = now, simulated
        return max(0.0, wait)


def write_truth(path: str | Path, truth: Mapping[str, Any], true_description: str) -> None:
    """Write the ground truth as JSON to `path`, and the true robot's URDF beside it, named in `description_file`."""
    path = Path(path)
    description = path.with_name(f"{path.stem}.urdf")
    files.write_text(description, true_description)
    files.write_text(path, json.dumps(dict(truth) | {"description_file": description.name}, indent=2) + "\n")


@contextlib.contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Yield the list of the received signals that end a node: a step, or a recording, is finished first."""
    received: list[int] = []
    with ending_signals(lambda number, _frame: received.append(number)):
        yield received


def run_simulation(
    context: NodeContext, setup: SimulationSetup,
    stopping: Callable[[], contextlib.AbstractContextManager[Sequence]] = stop_signals,
) -> int:  # fmt: skip
    """Simulate `setup` with the node's options until the duration asked for is over, or until it is to stop: until the
    list that `stopping`, entered once the simulation has started, yields is not empty any more."""
    from stretch_sim_cal.ros.simulated_robot import SimulatedRobot

    options = context.options
    faults = Faults.from_texts([text for text in options.fault.split(",") if text.strip()])
    with contextlib.ExitStack() as stack:
        simulation = _simulation(options, setup, stack)  # a signal while it starts ends it at once
        stopped = stack.enter_context(stopping())
        for warning in simulation.warnings:
            context.log.warning(warning)
        recording = None
        if options.record:
            from stretch_sim_cal.recording.rosbag import RecordingWriter  # takes a third of a second

            recording = stack.enter_context(RecordingWriter(options.record, options.storage))
            write_truth(f"{Path(options.record)}.truth.json", simulation.ground_truth(), simulation.true_description)
        if options.truth:
            write_truth(options.truth, simulation.ground_truth(), simulation.true_description)
        robot = SimulatedRobot(context, simulation, faults, recording)
        if options.heading:
            robot.turn(options.heading)
        heading = SIMULATOR.option("heading")
        follow_changes(context.node, [heading], options, lambda: robot.turn(options.heading))
        factor = setup.real_time_factor
        print(
            f"simulator ready: {setup.world} seen by {setup.sensor}, seed {setup.seed}, "
            f"{'as fast as possible' if factor == 0 else f'at {factor:g} times real time'}",
            flush=True,
        )
        began = (time.monotonic(), robot.now)
        _let_time_pass(context, robot, factor, stopped)
        print(f"simulator ended at {robot.now:.1f} s; {_sentence(robot, began)}", flush=True)
    return 0


def _let_time_pass(context: NodeContext, robot: Any, factor: float, stopped: Sequence) -> None:
    pace, looked, duration = Pace(), -math.inf, context.options.duration
    reported = (time.monotonic(), robot.now)
    while not stopped and (duration is None or robot.now < duration):
        looked = _serve(context, pace.wait(robot.now, factor or robot.bound), looked)
        robot.step()
        if time.monotonic() - reported[0] >= REPORT_EVERY:
            print(f"{robot.now:.1f} s simulated; {_sentence(robot, reported)}", flush=True)
            reported = (time.monotonic(), robot.now)


def _serve(context: NodeContext, seconds: float, looked: float) -> float:
    """Let so much wall time pass, and answer services, the action and parameters every `LOOK_EVERY`. Take and return
    when that was last done."""
    deadline = time.monotonic() + seconds
    while True:
        if time.monotonic() - looked >= LOOK_EVERY:
            while _look(context.executor):
                pass
            looked = time.monotonic()
        left = deadline - time.monotonic()
        if left <= 0.0:
            return looked
        time.sleep(min(left, LOOK_EVERY))


def _look(executor: Any) -> bool:
    """Run all callbacks that are ready, and say whether any took something in (and may have left more to do). With one
    and the same timeout (none): if that differs from call to call, rclpy's executor looks at coroutines that wait, and
    never at what has come in."""
    from rclpy.executors import TimeoutException

    worked = False
    while True:
        try:
            handler, _, _ = executor.wait_for_ready_callbacks(timeout_sec=0.0)
        except TimeoutException:
            return worked
        handler()
        if handler.done():
            handler.result()  # raises what the callback raised
            worked = True


def _sentence(robot: Any, since: tuple[float, float]) -> str:
    """Return what came of the simulation since a moment in wall and simulated time (s)."""
    clouds = " and ".join(f"{count} {side}" for side, count in robot.lidars.published.items())
    factor = (robot.now - since[1]) / max(time.monotonic() - since[0], 1e-9)
    return f"real-time factor {factor:.2f}; {clouds} clouds published"


def _simulation(options: Any, setup: SimulationSetup, stack: contextlib.ExitStack) -> Any:
    """Return the simulation asked for; both kinds have the same face. `stack` ends what has to be ended."""
    if options.simulator == "embedded":
        from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

        return EmbeddedSimulator(setup)
    from stretch_sim_cal.simulation.gazebo.simulator import GazeboSimulator

    log = Path(options.truth).with_name("gz.log") if options.truth else None
    simulation = GazeboSimulator(setup, options.lidar, options.gui, log=log)

    def end() -> None:
        simulation.close()
        for note in simulation.notes:
            print(f"note: {note}", flush=True)

    stack.callback(end)
    return simulation


def simulate(context: NodeContext) -> int:
    options = context.options
    if options.simulator == "embedded" and (options.lidar != "auto" or options.gui):
        raise InputError("parameters lidar and gui are for Gazebo; add --simulator gazebo")
    if options.storage != STORAGES[0] and not options.record:
        raise InputError("parameter storage is for a recording; add --record DIR")
    return run_simulation(context, simulation_setup(options))
