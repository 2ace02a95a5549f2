"""The action /follow_joint_trajectory, as the robot's driver offers it."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from control_msgs.action import FollowJointTrajectory
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.node import Node
from rclpy.task import Future

from stretch_sim_cal.ros.messages import time_message
from stretch_sim_cal.ros.simulator.following import Following, Progress
from stretch_sim_cal.ros.simulator.goals import (
    GOAL_TOLERANCE_VIOLATED,
    INVALID_GOAL,
    PATH_TOLERANCE_VIOLATED,
    SUCCESSFUL,
    GoalRefused,
    Waypoint,
    read_waypoints,
)
from stretch_sim_cal.simulation.joints import Joints

ACTION = "/follow_joint_trajectory"
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

    `refusal` says why nothing may move at present (wrong mode, runstop, not homed), or returns None. Everything runs
    in the thread that calls `step` and spins the node.
    """

    def __init__(self, node: Node, joints: Joints, refusal: Callable[[], str | None]):
        self._log = node.get_logger()
        self._joints = joints
        self._refusal = refusal
        self._now = 0.0
        self._active: _Active | None = None
        self._server = ActionServer(
            node,
            FollowJointTrajectory,
            ACTION,
            execute_callback=self._execute,
            goal_callback=self._consider,
            cancel_callback=lambda handle: CancelResponse.ACCEPT,
        )

    @property
    def is_moving(self) -> bool:
        """Whether a goal is being followed."""
        return self._active is not None

    def step(self, now: float) -> None:
        """Go on to simulated time `now`, in s, after the joints have moved to it."""
        self._now = now
        active = self._active
        if active is None:
            return
        if active.handle is not None and active.handle.is_cancel_requested:
            self._joints.hold()
            self._finish("canceled", SUCCESSFUL, "canceled")
            return
        progress = active.following.update(now)
        if active.handle is not None and time.monotonic() >= active.next_feedback:
            active.next_feedback = time.monotonic() + FEEDBACK_EVERY
            active.handle.publish_feedback(self._feedback(active.following))
        if progress is Progress.ARRIVED:
            self._finish("succeed", SUCCESSFUL, "")
        elif progress is Progress.LATE:
            missing = ", ".join(f"{name} by {gap:+.4f}" for name, gap in active.following.missing().items())
            self._joints.hold()
            self._finish("abort", GOAL_TOLERANCE_VIOLATED, f"did not arrive: {missing}")

    def abort(self, reason: str) -> None:
        """Stop the joints where they are and end what was moving them, for an outside reason (runstop, stop service)."""
        self._joints.hold()
        if self._active is not None:
            self._finish("abort", PATH_TOLERANCE_VIOLATED, reason)

    async def go_to(self, poses: Sequence[Mapping[str, float]]) -> FollowJointTrajectory.Result:
        """Move through `poses` (values by commanded joint) in place of any goal, and return how that ended."""
        return await self._begin([Waypoint(dict(pose), {}, 0.0) for pose in poses], None)

    def _consider(self, request: FollowJointTrajectory.Goal) -> GoalResponse:
        try:
            reason = self._refusal()
            if reason:
                raise GoalRefused(INVALID_GOAL, reason)
            if request.multi_dof_trajectory.points:
                raise GoalRefused(INVALID_GOAL, "multi_dof_trajectory is not supported")
            read_waypoints(request.trajectory, self._joints.ranges)
        except GoalRefused as refused:
            self._log.error(f"{ACTION}: goal rejected: {refused}")
            return GoalResponse.REJECT
        return GoalResponse.ACCEPT

    async def _execute(self, handle: ServerGoalHandle) -> FollowJointTrajectory.Result:
        return await self._begin(read_waypoints(handle.request.trajectory, self._joints.ranges), handle)

    def _begin(self, waypoints: Sequence[Waypoint], handle: ServerGoalHandle | None) -> Future:
        if self._active is not None:
            self._finish("abort", INVALID_GOAL, "a newer command took its place")
        following = Following(self._joints, waypoints, self._now)
        self._active = _Active(following, Future(), handle)
        return self._active.done

    def _finish(self, end: str, code: int, text: str) -> None:
        active, self._active = self._active, None
        if active.handle is not None:
            getattr(active.handle, end)()
        active.done.set_result(FollowJointTrajectory.Result(error_code=code, error_string=text))

    def _feedback(self, following: Following) -> FollowJointTrajectory.Feedback:
        feedback = FollowJointTrajectory.Feedback()
        feedback.header.stamp = time_message(round(self._now * 1e9))
        desired = following.waypoint.positions
        feedback.joint_names = list(desired)
        feedback.desired.positions = list(desired.values())
        feedback.actual.positions = [float(self._joints.positions[name]) for name in desired]
        feedback.error.positions = [d - a for d, a in zip(feedback.desired.positions, feedback.actual.positions)]
        return feedback
