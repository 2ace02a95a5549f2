"""Puts the simulator's parts together, and lets simulated time pass."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rclpy.executors import Executor, TimeoutException
from rosgraph_msgs.msg import Clock

from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.robot import stretch
from stretch_sim_cal.ros.messages import time_message
from stretch_sim_cal.ros.node_main import NodeContext
from stretch_sim_cal.ros.simulator.faults import CRASH_EXIT_CODE, PUSH_ANGLE, PUSH_DISTANCE, Faults
from stretch_sim_cal.ros.simulator.lidars import LidarDrivers
from stretch_sim_cal.ros.simulator.pacing import FactorMeter, Pace
from stretch_sim_cal.ros.simulator.publishing import Publishers
from stretch_sim_cal.ros.simulator.robot_state import RobotState
from stretch_sim_cal.ros.simulator.services import DriverServices, DriverState
from stretch_sim_cal.ros.simulator.trajectory_server import TrajectoryServer
from stretch_sim_cal.ros.simulator.truth import TruthTopic, write_truth
from stretch_sim_cal.simulation.setup import SimulationSetup

STEP = 25_000_000  # ns: joints, frames and /clock at 40 Hz, four steps to a scan
STATUS_EVERY = 1_000_000_000
REPORT_EVERY = 10.0
# A look for callbacks costs nearly a millisecond, as much as a step without clouds.
LOOK_EVERY = 0.02

# "As fast as possible" is bounded, because messages beyond what a consumer written in Python can take are lost work:
# with clouds (paired, decoded, used), and while joints move (states, frames and clock only). While nobody waits for
# anything but time, more than the simulation's `idle_factor` would only take the processor from those who compute.
BOUND_WITH_CLOUDS = 3.0
BOUND_MOVING = 20.0
CLOCK_RATE = 100.0  # per second of wall time, at most


class SimulatedRobot:
    """The robot's drivers over a simulation: every `step` lets `STEP` ns of simulated time pass and publishes it."""

    def __init__(self, context: NodeContext, simulation: Any, faults: Faults, recording: RecordingWriter | None):
        node = context.node
        publishers = Publishers(node, recording)
        self._simulation = simulation
        self._faults = faults
        self._state = DriverState(context.options.mode, homed=not faults.not_homed)
        self._clock = publishers.create(Clock, "/clock", recorded=False, rate=CLOCK_RATE)
        self._robot = RobotState(publishers, simulation.nominal_description)
        frames = dict(zip(SIDES, stretch.LIDAR_LINKS))
        self.lidars = LidarDrivers(publishers, simulation, frames, faults)
        self._trajectories = TrajectoryServer(node, simulation.joints, self._state.refusal)
        poses = {"stow": _stowing(stretch.STOW), "home": [stretch.HOME]}
        known = simulation.joints.ranges
        poses = {
            name: [{joint: value for joint, value in pose.items() if joint in known} for pose in way]
            for name, way in poses.items()
        }
        self._services = DriverServices(node, self._state, self._trajectories, publishers, **poses)
        simulation.joints.stick(faults.stuck)
        self._pushed = False
        self._now = 0
        self._robot.publish_once(self._now)
        self._publish()

    @property
    def now(self) -> float:
        """Simulated time in s."""
        return self._now * 1e-9

    @property
    def bound(self) -> float:
        """How fast simulated time may pass at present where no factor is asked for."""
        if self.lidars.are_heard:
            return BOUND_WITH_CLOUDS
        return BOUND_MOVING if self._trajectories.is_moving else self._simulation.idle_factor

    def step(self) -> None:
        """Let one step of simulated time pass."""
        self._now += STEP
        if self._faults.crash is not None and self.now >= self._faults.crash:
            os._exit(CRASH_EXIT_CODE)
        if self._faults.push is not None and not self._pushed:
            self._push_when_due(self._faults.push)
        self.lidars.listen()
        self._simulation.joints.step(STEP * 1e-9)
        self._trajectories.step(self.now)
        self._publish()
        self.lidars.step(self.now)

    def _push_when_due(self, tick: int) -> None:
        if self.now >= self._simulation.start_time("left", tick):
            self._simulation.move_base(from_xyz_rpy((PUSH_DISTANCE, 0.0, 0.0), (0.0, 0.0, PUSH_ANGLE)))
            self._pushed = True

    def _publish(self) -> None:
        self._clock.publish(Clock(clock=time_message(self._now)), self._now)
        joints = self._simulation.joints
        self._robot.publish(joints.joint_positions, joints.joint_velocities, self._now)
        if self._now % STATUS_EVERY == 0:
            self._services.publish(self._now)


def _stowing(stow: Mapping[str, float]) -> list[dict[str, float]]:
    """Return the way to the stowed pose: the arm in first, then the hand over the base, then down."""
    first = {stretch.ARM_JOINT: stow[stretch.ARM_JOINT]}
    last = {"lift_joint": stow["lift_joint"]}
    return [first, {name: value for name, value in stow.items() if name not in first | last}, last]


def run_simulation(context: NodeContext, setup: SimulationSetup) -> int:
    """Simulate `setup` with the node's options until a signal comes, or the duration asked for is over."""
    options = context.options
    faults = Faults.from_texts([text for text in options.fault.split(",") if text.strip()])
    with contextlib.ExitStack() as stack:
        simulation = _simulation(options, setup, stack)  # a signal while it starts ends it at once
        stopped = stack.enter_context(_stop_signals())
        for warning in simulation.warnings:
            context.log.warning(warning)
        recording = None
        if options.record:
            recording = stack.enter_context(RecordingWriter(options.record, options.storage))
            write_truth(f"{Path(options.record)}.truth.json", simulation.ground_truth(), simulation.true_description)
        if options.truth:
            write_truth(options.truth, simulation.ground_truth(), simulation.true_description)
        truth_topic = TruthTopic(context.node, simulation.ground_truth())  # noqa: F841 - latched as long as it lives
        robot = SimulatedRobot(context, simulation, faults, recording)
        factor = setup.real_time_factor
        print(
            f"simulator ready: {setup.world} seen by {setup.sensor}, seed {setup.seed}, "
            f"{'as fast as possible' if factor == 0 else f'at {factor:g} times real time'}",
            flush=True,
        )
        meter = FactorMeter(robot.now)
        _let_time_pass(context, robot, factor, stopped, meter)
        print(f"simulator ended at {robot.now:.1f} s; {_sentence(robot, meter.overall(robot.now))}", flush=True)
    return 0


def _let_time_pass(
    context: NodeContext, robot: SimulatedRobot, factor: float, stopped: list, meter: FactorMeter
) -> None:
    pace = Pace()
    looked = 0.0
    duration = context.options.duration
    while not stopped and (duration is None or robot.now < duration):
        wait = pace.wait(robot.now, factor or robot.bound)
        if wait > 0.0 or time.monotonic() - looked > LOOK_EVERY:
            _serve(context, wait)
            looked = time.monotonic()
        robot.step()
        if meter.wall_since_last_look() >= REPORT_EVERY:
            print(f"{robot.now:.1f} s simulated; {_sentence(robot, meter.since_last_look(robot.now))}", flush=True)


def _serve(context: NodeContext, seconds: float) -> None:
    """Answer services, the action and parameters, and let so much wall time pass."""
    deadline = time.monotonic() + seconds
    while True:
        while _look(context.executor):
            pass
        left = deadline - time.monotonic()
        if left <= 0.0:
            return
        time.sleep(min(left, LOOK_EVERY))


def _look(executor: Executor) -> bool:
    """Run all callbacks that are ready, and say whether any took something in (and may have left more to do).

    With one and the same timeout (none): where that differs from call to call, rclpy's executor looks at coroutines
    that wait, and never at what has come in.
    """
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


def _sentence(robot: SimulatedRobot, factor: float) -> str:
    clouds = robot.lidars.published
    return f"real-time factor {factor:.2f}; {clouds['left']} left and {clouds['right']} right clouds published"


def _simulation(options: Any, setup: SimulationSetup, stack: contextlib.ExitStack) -> Any:
    """Return the simulation asked for; both kinds have the same face. `stack` ends what has to be ended."""
    if options.simulator == "gazebo":
        from stretch_sim_cal.simulation.gazebo.simulator import GazeboSimulator

        simulation = GazeboSimulator(setup, options.lidar, options.gui)
        stack.callback(_end_gazebo, simulation)
        return simulation
    from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

    return EmbeddedSimulator(setup)


def _end_gazebo(simulation: Any) -> None:
    simulation.close()
    for note in simulation.notes:
        print(f"note: {note}", flush=True)


@contextlib.contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """Yield a list that SIGINT and SIGTERM are put into: a step, or a recording, is finished and not torn."""
    received: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _frame: received.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
