"""The simulated robot: commanded as the robot's driver is, by the action /follow_joint_trajectory, services and the
`mode` parameter, and put together with what its drivers publish."""

import functools
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node
from rclpy.task import Future
from rosgraph_msgs.msg import Clock
from std_msgs.msg import Bool, String
from std_srvs.srv import SetBool, Trigger

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.ros.messages import header, time_message
from stretch_sim_cal.ros.node_commands import SIMULATOR
from stretch_sim_cal.ros.node_main import NodeContext
from stretch_sim_cal.ros.options import follow_changes
from stretch_sim_cal.ros.permission import MOVING_MODES
from stretch_sim_cal.ros.simulated_drivers import LidarDrivers, Publisher, RobotState, SimulatedBase
from stretch_sim_cal.simulation.joints import Arrival, Following, Joints, Waypoint, read_waypoints
from stretch_sim_cal.simulation.setup import CRASH_EXIT_CODE, PUSH_ANGLE, PUSH_DISTANCE, Faults

if TYPE_CHECKING:  # rosbags takes a third of a second to import
    from stretch_sim_cal.recording.rosbag import RecordingWriter

Result = FollowJointTrajectory.Result
STEP = 25_000_000  # ns: joints, frames and /clock at 40 Hz, four steps to a scan
# "As fast as possible" is bounded, because messages beyond what a consumer written in Python can take are lost work:
# with clouds (paired, decoded, used), and while joints move (states, frames and clock only). While nobody waits for
# anything but time, more than the simulation's `idle_factor` would only take the processor from those who compute.
BOUND_WITH_CLOUDS = 3.0
BOUND_MOVING = 20.0
CLOCK_RATE = 50.0  # per second of wall time, at most
FEEDBACK_EVERY = 0.05  # s of wall time: however fast simulated time passes, somebody has to take it


@dataclass
class _Active:
    """What moves the joints at present: a goal, or (without handle) a pose that a service goes to."""

    following: Following
    done: Future
    handle: ServerGoalHandle | None = None
    next_feedback: float = -math.inf


class TrajectoryServer:
    """Takes goals, and moves the joints step by step with simulated time; a new goal takes the place of a running one.
    `refusal` returns why nothing may move at present (wrong mode, runstop, not homed), or None. Everything runs in the
    thread that calls `step` and spins the node."""

    def __init__(self, node: Node, joints: Joints, refusal: Callable[[], str | None]):
        self._log, self._joints, self._refusal = node.get_logger(), joints, refusal
        self._now = 0.0
        self._active: _Active | None = None
        self._begun: dict[bytes, Future] = {}
        self._server = ActionServer(
            node, FollowJointTrajectory, joints.profile.trajectory, self._execute, goal_callback=self._consider,
            handle_accepted_callback=self._accept, cancel_callback=lambda handle: CancelResponse.ACCEPT,
        )  # fmt: skip

    @property
    def is_moving(self) -> bool:
        return self._active is not None

    def step(self, now: float) -> None:
        """Go on to simulated time `now`, in s, after the joints have moved to it."""
        self._now = now
        active = self._active
        if active is None:
            return
        if active.handle is not None and active.handle.is_cancel_requested:
            self._joints.hold()
            self._finish("canceled", Result.SUCCESSFUL, "canceled")
            return
        progress = active.following.update(now)
        if active.handle is not None and time.monotonic() >= active.next_feedback:
            active.next_feedback = time.monotonic() + FEEDBACK_EVERY
            active.handle.publish_feedback(self._feedback(active.following))
        if progress is Arrival.ARRIVED:
            self._finish("succeed", Result.SUCCESSFUL, "")
        elif progress is Arrival.LATE:
            missing = ", ".join(f"{name} by {gap:+.4f}" for name, gap in active.following.missing().items())
            self._joints.hold()
            self._finish("abort", Result.GOAL_TOLERANCE_VIOLATED, f"did not arrive: {missing}")

    def abort(self, reason: str) -> None:
        """Stop the joints where they are and end what was moving them, for an outside reason (runstop, service)."""
        self._joints.hold()
        if self._active is not None:
            self._finish("abort", Result.PATH_TOLERANCE_VIOLATED, reason)

    async def go_to(self, poses: Sequence[Mapping[str, float]]) -> FollowJointTrajectory.Result:
        """Move through `poses` (values by commanded joint) in place of any goal, and return how that ended."""
        return await self._begin([Waypoint(dict(pose), {}, 0.0) for pose in poses], None)

    def _consider(self, request: FollowJointTrajectory.Goal) -> GoalResponse:
        try:
            reason = self._refusal()
            if reason:
                raise InputError(reason)
            if request.multi_dof_trajectory.points:
                raise InputError("multi_dof_trajectory is not supported")
            self._waypoints(request)
        except InputError as refused:
            self._log.error(f"{self._joints.profile.trajectory}: goal rejected: {refused}")
            return GoalResponse.REJECT
        return GoalResponse.ACCEPT

    def _accept(self, handle: ServerGoalHandle) -> None:
        """Begin at once: a stop that is called between a goal's acceptance and its execution has to stop it."""
        handle.execute()
        self._begun[bytes(handle.goal_id.uuid)] = self._begin(self._waypoints(handle.request), handle)

    async def _execute(self, handle: ServerGoalHandle) -> FollowJointTrajectory.Result:
        return await self._begun.pop(bytes(handle.goal_id.uuid))

    def _waypoints(self, goal: FollowJointTrajectory.Goal) -> list[Waypoint]:
        return read_waypoints(goal.trajectory, self._joints.ranges)

    def _begin(self, waypoints: Sequence[Waypoint], handle: ServerGoalHandle | None) -> Future:
        if self._active is not None:
            self._finish("abort", Result.INVALID_GOAL, "replaced by a newer goal")
        following = Following(self._joints, waypoints, self._now)
        self._active = _Active(following, Future(), handle)
        return self._active.done

    def _finish(self, end: str, code: int, text: str) -> None:
        active, self._active = self._active, None
        if active.handle is not None:
            getattr(active.handle, end)()
        active.done.set_result(Result(error_code=code, error_string=text))

    def _feedback(self, following: Following) -> FollowJointTrajectory.Feedback:
        desired = following.waypoint.positions
        actual = {name: float(self._joints.positions[name]) for name in desired}
        feedback = FollowJointTrajectory.Feedback(header=header("", round(self._now * 1e9)), joint_names=list(desired))
        feedback.desired.positions, feedback.actual.positions = list(desired.values()), list(actual.values())
        feedback.error.positions = [desired[name] - actual[name] for name in desired]
        return feedback


@dataclass
class DriverState:
    """The driver's mode, the runstop, and whether the robot has been homed, which decide whether it may move."""

    mode: str
    homed: bool
    runstopped: bool = False

    def refusal(self, modes: Sequence[str] = MOVING_MODES, homed: bool = True) -> str | None:
        """Return why the arm, or what moves in other `modes` and, unless `homed`, without homing, may not move; None if
        it may."""
        if self.runstopped:
            return "the runstop is on; release it with /runstop_the_robot"
        if homed and not self.homed:
            return "the robot has not been homed; call /home_the_robot"
        if modes and self.mode not in modes:
            return f"the driver's mode is '{self.mode}'; set its parameter mode to {' or '.join(modes)}"
        return None


class DriverServices:
    """Offers /stow_the_robot, /home_the_robot, /stop_the_robot, /runstop_the_robot, and publishes /mode, /is_homed and
    /is_runstopped, as the robot's driver does, latched and when they change. `poses` (values by commanded joint, one
    after another) are those to which the services "stow" and "home" move."""

    def __init__(
        self, node: Node, create: Callable[..., Publisher], state: DriverState, trajectories: TrajectoryServer,
        poses: Mapping[str, Sequence[Mapping[str, float]]], base: SimulatedBase | None,
    ):  # fmt: skip
        self._state, self._trajectories, self._poses, self._base = state, trajectories, poses, base
        self._topics = [
            (kind, create(kind, topic, depth=1, latched=True))
            for topic, kind in (("/mode", String), ("/is_homed", Bool), ("/is_runstopped", Bool))
        ]
        self._published: list[object] = [None] * len(self._topics)
        for name in poses:
            node.create_service(Trigger, f"/{name}_the_robot", functools.partial(self._go_to, name))
        node.create_service(Trigger, "/stop_the_robot", self._stop)
        for name in ("/runstop_the_robot", "/runstop"):  # of the Stretch 4's driver, and of older ones
            node.create_service(SetBool, name, self._runstop)
        follow_changes(node, [SIMULATOR.option("mode")], state, self._mode_changed)

    def publish(self, stamp: int) -> None:
        state = self._state
        values = "runstopped" if state.runstopped else state.mode, state.homed, state.runstopped
        for (kind, publisher), value, before in zip(self._topics, values, self._published, strict=True):
            if value != before:
                publisher.publish(kind(data=value), stamp)
        self._published = list(values)

    async def _go_to(self, name: str, _request: Trigger.Request, _response: Trigger.Response) -> Trigger.Response:
        if name == "home" and not self._state.runstopped:
            self._state.homed = True
        if reason := self._state.refusal():
            return Trigger.Response(success=False, message=reason)
        result = await self._trajectories.go_to(self._poses[name])
        succeeded = result.error_code == Result.SUCCESSFUL
        return Trigger.Response(success=succeeded, message=result.error_string or f"{name} done")

    def _stop(self, _request: Trigger.Request, _response: Trigger.Response) -> Trigger.Response:
        self._trajectories.abort("stopped by /stop_the_robot")
        if self._base is not None:
            self._base.stop()
        return Trigger.Response(success=True, message="stopped")

    def _runstop(self, request: SetBool.Request, _response: SetBool.Response) -> SetBool.Response:
        self._state.runstopped = request.data
        if request.data:
            self._trajectories.abort("the runstop was switched on")
            if self._base is not None:
                self._base.stop(at_once=True)
        return SetBool.Response(success=True, message=f"runstop {'on' if request.data else 'off'}")

    def _mode_changed(self) -> None:
        if self._state.mode not in MOVING_MODES:
            self._trajectories.abort(f"the driver's mode was set to '{self._state.mode}'")
        if self._base is not None and self._base.refusal() is not None:
            self._base.stop()


class SimulatedRobot:
    """The robot's drivers over a simulation: every `step` lets `STEP` ns of simulated time pass and publishes it."""

    def __init__(self, context: NodeContext, simulation: Any, faults: Faults, recording: "RecordingWriter | None"):
        node, profile = context.node, simulation.setup.profile
        create = functools.partial(Publisher, node, recording)
        self._simulation, self._faults = simulation, faults
        state = DriverState(context.options.mode, not faults.not_homed)
        self._truth = Publisher(node, None, String, "~/ground_truth", depth=1, latched=True)
        self._truth.publish(String(data=json.dumps(simulation.ground_truth())), 0)
        self._clock = Publisher(node, None, Clock, "/clock", rate=CLOCK_RATE)
        self._robot = RobotState(create, simulation.nominal_description)
        self.lidars = LidarDrivers(create, simulation, profile, faults)
        self._trajectories = TrajectoryServer(node, simulation.joints, state.refusal)
        known = simulation.joints.ranges
        poses = {
            name: [{joint: value for joint, value in pose.items() if joint in known} for pose in way]
            for name, way in (("stow", profile.stow), ("home", profile.home))
        }
        driving = simulation.driving
        self._base = SimulatedBase(node, create, driving, profile.footprint_frame, state) if driving else None
        self._services = DriverServices(node, create, state, self._trajectories, poses, self._base)
        simulation.joints.stick(faults.stuck)
        self._push = faults.push  # the tick at which it is due
        self._now = 0
        self._publish()

    @property
    def now(self) -> float:
        """In s."""
        return self._now * 1e-9

    @property
    def bound(self) -> float:
        """The largest real-time factor at present if none is asked for."""
        if self.lidars.are_heard:
            return BOUND_WITH_CLOUDS
        return BOUND_MOVING if self._trajectories.is_moving else self._simulation.idle_factor

    def step(self) -> None:
        self._now += STEP
        if self._faults.crash is not None and self.now >= self._faults.crash:
            os._exit(CRASH_EXIT_CODE)
        if self._push is not None and self.now >= self._simulation.start_time("left", self._push):
            self._simulation.move_base(from_xyz_rpy((PUSH_DISTANCE, 0.0, 0.0), (0.0, 0.0, PUSH_ANGLE)))
            self._push = None
        self._simulation.listen(self.lidars.are_heard)
        if self._base is not None:
            self._base.step(STEP * 1e-9)
        self._simulation.joints.step(STEP * 1e-9)  # and the base's, in Gazebo
        self._trajectories.step(self.now)
        self._publish()
        self.lidars.step(self.now)

    def turn(self, heading: float) -> None:
        """Turn the robot on the spot to a heading in deg, as if somebody had turned it by hand."""
        self._simulation.move_base(from_xyz_rpy((0.0, 0.0, 0.0), (0.0, 0.0, math.radians(heading))))

    def _publish(self) -> None:
        self._clock.publish(Clock(clock=time_message(self._now)), self._now)
        joints = self._simulation.joints
        frames = self._base.publish(self._now) if self._base is not None else ()
        self._robot.publish(joints.joint_positions, joints.joint_velocities, self._now, frames)
        self._services.publish(self._now)
