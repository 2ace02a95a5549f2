"""What a calibration node hears of the robot, and moves; of a run in one process the simulator itself gives it
(`harness/in_process.py`)."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.ros.arm import ArmMotion, ArmState, capture
from stretch_sim_cal.ros.drive_node import drive
from stretch_sim_cal.ros.listening import FrameListener, JointListener, LidarClouds, lidars_of
from stretch_sim_cal.ros.node_main import NodeContext
from stretch_sim_cal.ros.permission import check_driver
from stretch_sim_cal.ros.watchdog import Watchdog


@dataclass
class RobotContext(NodeContext):
    """A running node of a robot whose drivers run."""

    @classmethod
    def of(cls, context: NodeContext) -> "RobotContext":
        return cls(*(getattr(context, field.name) for field in fields(context)))

    def frames(self) -> FrameListener:
        return FrameListener(self)

    def clouds(
        self, options: Any, watchdog: Watchdog | None = None, depth: int = 5, on_set: Callable | None = None
    ) -> LidarClouds:  # fmt: skip
        return LidarClouds(self, lidars_of(options), options.max_time_difference, watchdog, depth, on_set)

    def joint_positions(self) -> dict[str, float]:
        """Return the joints' latest positions by name (m, rad), which fill up as they are heard."""
        return JointListener(self).positions

    def arm(self, model: RobotModel, watchdog: Watchdog, profile: RobotProfile) -> ArmState:
        return ArmState(self, model, watchdog, profile)

    def motion(self, state: ArmState, watchdog: Watchdog, speeds: dict[str, float]) -> ArmMotion:
        """Return what moves the arm, once its driver is there and may move it."""
        motion = ArmMotion(self, state, watchdog, speeds)
        if state.profile.planned:
            motion.wait_for_driver()
            check_driver(self)
        return motion

    # Functions whose first argument is the context.
    capture = capture
    drive = drive
