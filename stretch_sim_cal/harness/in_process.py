"""A scenario in one process, without ROS: its simulator, and the calibration nodes' own functions, step by step, which
get a `SimulatedContext` in place of a `NodeContext`; scans have the noise that they have over ROS."""

import argparse
import contextlib
import io
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from threadpoolctl import threadpool_limits

from stretch_sim_cal import command, programs
from stretch_sim_cal.calibration.calibration_file import CalibrationFile, named_or_default
from stretch_sim_cal.calibration.driving import DrivenResult
from stretch_sim_cal.collection.drive_plan import SCANS, DrivePlan, Known, Stop
from stretch_sim_cal.collection.settings import CollectionSettings
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_text
from stretch_sim_cal.harness.processes import BROADCAST_READY, SIMULATOR_READY, Echo, Process, ProcessSequence, RunFiles
from stretch_sim_cal.harness.scenario import Scenario
from stretch_sim_cal.recording.frame_tree import FrameTree, tree_of_description
from stretch_sim_cal.recording.stations import RecordedStation
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.ros.arm import ArmState, CalibratedPoses, Capture, captured
from stretch_sim_cal.ros.base_motion import Speeds
from stretch_sim_cal.ros.calibration_in_use import calibrated_frames
from stretch_sim_cal.ros.drive_node import Solve, course_of, known_of, planned
from stretch_sim_cal.ros.listening import FrameListener, LiveRobot, lidars_of
from stretch_sim_cal.ros.node_commands import CALIBRATED_FRAMES, NODE_COMMANDS
from stretch_sim_cal.ros.options import option_values
from stretch_sim_cal.ros.simulator_node import write_truth
from stretch_sim_cal.ros.watchdog import Watchdog
from stretch_sim_cal.sensor.points import return_columns, returns_of
from stretch_sim_cal.simulated import Station, next_stations
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

SCANS_PER_LISTENER = 200
"""As of the simulated drivers: the n-th subscription of a lidar's clouds gets the noise of scans n * 200 on."""


class InProcess:
    """Runs the steps of a scenario in this process; `echo` hears of their output as of a `Runner`'s processes."""

    def __init__(self, scenario: Scenario, files: RunFiles, echo: Echo):
        self._scenario, self._files, self._echo = scenario, files, echo
        self._simulator: EmbeddedSimulator | None = None
        self._listened = Counter[str]()
        self.seconds: dict[str, float] = {}
        self.unclean: list[str] = []

    def run(self, sequence: ProcessSequence) -> None:
        """Run every step to its end, until one fails."""
        # One thread, as in processes of their own: matrices are small, and threads that wait cost the others theirs.
        with mock.patch.dict(os.environ, self._files.environment), threadpool_limits(limits=1):
            while (process := sequence.next()) is not None:
                began = time.monotonic()
                heard = _Heard(partial(self._echo, process))
                with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
                    code = command.run(partial(self._step, process))
                self.seconds[process.name] = round(time.monotonic() - began, 2)
                write_text(self._files.logs / f"{process.name}.log", heard.getvalue())
                if code == command.INTERRUPTED:  # not the step's failure, but the end of the run
                    raise KeyboardInterrupt
                if heard.unheard is not None:
                    raise heard.unheard
                sequence.printed(process, heard.getvalue())
                if process.ready_line is None or code:
                    sequence.ended(process, code)
                self._echo(process, None)

    def _step(self, process: Process) -> int:
        if process.executable == "stretch_simulator":
            self._simulator = simulator = EmbeddedSimulator(self._scenario.simulation)
            write_truth(self._files.truth, simulator.ground_truth(), simulator.true_description)
            print(SIMULATOR_READY)
            return 0
        if process.executable not in NODE_COMMANDS:
            return programs.main(process.executable, process.arguments)
        if process.ready_line == BROADCAST_READY:
            print(BROADCAST_READY)  # whoever asks for frames gets those of the file
            return 0
        description = NODE_COMMANDS[process.executable]
        arguments, for_ros = description.parse(process.arguments)
        given = dict(each.split(":=", 1) for each in for_ros if ":=" in each)
        given |= {name: value for name, value in vars(arguments).items() if value is not None}
        options = option_values(description.options, given)
        module, _, action = programs.PROGRAMS[process.executable].partition(":")
        with command.outcome_in(getattr(options, "outcome_file", "")) as outcome:
            context = SimulatedContext(self._simulator, self._listened, options, arguments, outcome)
            return getattr(import_module(f"stretch_sim_cal.{module}"), action)(context) or 0


class _Heard(io.StringIO):
    """Keeps what is written, and hands it on line by line; `unheard` is why that failed (a closed pipe)."""

    def __init__(self, tell: Callable[[str], None]):
        super().__init__()
        self._tell, self._rest = tell, ""
        self.unheard: OSError | None = None

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        try:
            with contextlib.redirect_stdout(sys.__stdout__), contextlib.redirect_stderr(sys.__stderr__):
                for line in lines:
                    self._tell(line)
        except OSError as error:
            self.unheard = error
        return super().write(text)


def _say(level: str, text: str, once: bool = False) -> None:
    print(f"[{level}] {text}", file=sys.stderr)


def _columns(returns: np.ndarray) -> np.ndarray:
    return return_columns(returns).astype(np.float32)


@dataclass(frozen=True)
class SimulatedContext:
    """What a calibration node needs of its `NodeContext`, from the simulator; `listened` counts how often each lidar
    was listened to in all steps of a run."""

    simulator: EmbeddedSimulator
    listened: Counter[str]
    options: SimpleNamespace
    arguments: argparse.Namespace
    outcome: dict[str, Any]
    log = SimpleNamespace(info=partial(_say, "INFO"), warning=partial(_say, "WARN"))

    def begin_listening(self, names: Sequence[str]) -> dict[str, int]:
        """Return the first scan that a new subscription of lidars by name gets of each."""
        self.listened.update(names)
        return {name: SCANS_PER_LISTENER * self.listened[name] for name in names}

    def columns(self, name: str, number: int) -> np.ndarray:
        """Return the returns (N, 5) of a lidar's scan as a node reads them: x, y, z, ring, intensity."""
        return _columns(returns_of(self.simulator.scan(name, number)))

    def watchdog(self, timeout: float) -> Watchdog:
        return Watchdog(math.inf, lambda text: None)  # nothing is silent here

    def spin_once(self, timeout: float = 0.0) -> None: ...

    def spin_until(self, condition: Callable[[], bool], timeout: float = math.inf, watchdog: Any = None) -> bool:
        return condition()

    def frames(self) -> "SimulatedFrames":
        return SimulatedFrames(self)

    def clouds(self, options: Any, watchdog: Any = None, depth: int = 5) -> "SimulatedClouds":
        return SimulatedClouds(self, options)

    def joint_positions(self) -> dict[str, float]:
        return {name: float(value) for name, value in self.simulator.joints.joint_positions.items()}

    def arm(self, model: RobotModel, watchdog: Any, profile: RobotProfile) -> "SimulatedArm":
        return SimulatedArm(self, model, profile)

    def motion(self, state: "SimulatedArm", watchdog: Any, speeds: Any) -> "SimulatedArm":
        return state

    def drive(self, robot: LiveRobot, directory: Path, solve: Solve) -> tuple[DrivePlan, DrivenResult]:
        """Drive as `RobotContext.drive` does, along what is planned from a first look, without a recording."""
        names, base, options = list(robot.lidars), robot.profile.driven_base, self.options
        first = self.begin_listening(names)
        looks = [(name, first[name] + number) for name in names for number in range(SCANS)]
        seen = [robot.in_footprint(name, self.columns(name, number)) for name, number in looks]
        _, plan = planned(options, robot, np.concatenate(seen))
        driving, at, results = self.simulator.driving, np.zeros(3), []
        limits = Speeds.of(base, options.speed, np.radians(options.turn_speed))
        stations = next_stations(self.simulator, names, options.scans, [])

        def go(stop: Stop, _added: bool) -> float:
            nonlocal at
            (x, y, angle), began = stop.target - at, driving.now
            if angle:
                leg = driving.turn(angle, limits.angular / base.angular[0])
            else:
                cosine, sine = np.cos(at[2]), np.sin(at[2])
                leg = driving.straight(cosine * x + sine * y, cosine * y - sine * x, limits.linear / base.linear[0])
            at = stop.target
            stations.extend(next_stations(self.simulator, names, options.scans, [leg], options.continuous))
            return driving.now - began

        def read(station: Station) -> RecordedStation:
            clouds = station.clouds
            if station.sweep is None:
                clouds = {name: [_columns(scan) for scan in scans] for name, scans in clouds.items()}
            return RecordedStation(clouds, station.odometry, station.sweep)

        def estimate() -> Known:
            results.append(solve([read(each) for each in stations]))
            return known_of(results[-1])

        ending = course_of(options, robot, plan).follow(go, estimate)
        print(f"the drive ends after {len(ending.stops)} stops, {len(plan.stops)} were planned: {ending.why}")
        return plan, results[-1]

    def capture(self, state: "SimulatedArm", watchdog, settings: CollectionSettings, poses: CalibratedPoses) -> Capture:
        clouds = self.clouds(self.options)
        sets = list(clouds.take(settings.frames, ""))
        seen = {name: [each.clouds[name] for each in sets] for name in clouds.topics}
        return captured(seen, poses, settings, state.arm, state.positions)


class SimulatedFrames(FrameListener):
    """The frames of the described robot where it stands, and those of the calibration file as it is now."""

    GRACE = 0.0  # s: nothing comes later

    def __init__(self, context: SimulatedContext):
        self._context, self._complained = context, set()
        self.description = context.simulator.nominal_description
        self.described = tree_of_description(self.description, context.joint_positions())

    @property
    def tree(self) -> FrameTree:
        options, tree = self._context.options, self.described
        if all(hasattr(options, option.name) for option in CALIBRATED_FRAMES):
            file = CalibrationFile.load_or_empty(named_or_default(getattr(options, "calibration_file", "")))
            frames = calibrated_frames(file, options, tree.resolve(options.left_lidar_frame))
            for (parent, child), pose in frames.items():
                tree.connect(parent, child, pose)
        return tree

    def lookup(self, target: str, source: str) -> np.ndarray:
        return self.tree.lookup(target, source)

    def wait_for(self, *pairs: tuple[str, str], watchdog: Any = None) -> list[np.ndarray]:
        return [self.lookup(target, source) for target, source in pairs]

    def close(self) -> None: ...


class SimulatedClouds:
    """As `LidarClouds`: clouds in sets, taken from the next subscription's first scan on."""

    def __init__(self, context: SimulatedContext, options: Any):
        self._context = context
        by_topic = {lidar.topic: name for name, lidar in context.simulator.profile.lidars.items()}
        self.topics = {name: topic for name, (topic, _) in lidars_of(options).items()}
        if missing := [topic for topic in self.topics.values() if topic not in by_topic]:
            raise InputError(f"{missing[0]}: no lidar of the simulated robot; it has {', '.join(by_topic)}")
        self._lidars = {name: by_topic[topic] for name, topic in self.topics.items()}
        self._first = context.begin_listening(list(self._lidars.values()))
        self._count = 0
        context.log.info(f"listening to {command.enumerated(list(self.topics.values()))}")

    def take(self, count: int, label: str) -> Iterator[Any]:
        for _ in range(count):
            number, self._count = self._count, self._count + 1
            clouds = {name: self._context.columns(own, self._first[own] + number) for name, own in self._lidars.items()}
            yield SimpleNamespace(clouds=clouds, stamp=number)

    def summary(self) -> str:
        return f"{self._count} clouds of each lidar"

    def close(self) -> None: ...


class SimulatedArm(ArmState):
    """As `ArmMotion` as well: the arm is where it is sent."""

    def __init__(self, context: SimulatedContext, model: RobotModel, profile: RobotProfile):
        self._context, self._model, self.profile = context, model, profile

    @property
    def positions(self) -> dict[str, float]:
        return self._context.joint_positions()

    def wait_until_known(self) -> None: ...

    def stopping(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def move(self, target: Sequence[float]) -> None:
        planned = zip(self.profile.planned_names, target, strict=False)
        positions = {self.profile.commands[joint]: float(value) for joint, value in planned}
        self._context.simulator.joints.place(positions)
