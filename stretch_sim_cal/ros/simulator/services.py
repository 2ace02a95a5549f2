"""The driver's services, its `mode` parameter, and the topics that say how it is."""

from collections.abc import Mapping, Sequence

from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter
from std_msgs.msg import Bool, String
from std_srvs.srv import SetBool, Trigger

from stretch_sim_cal.ros.simulator.goals import SUCCESSFUL
from stretch_sim_cal.ros.simulator.publishing import Publishers
from stretch_sim_cal.ros.simulator.trajectory_server import TrajectoryServer

MOVING_MODES = ("position", "navigation")
# Modes that the robot's driver has and in which it takes no positions.
OTHER_MODES = ("trajectory", "velocity")


class DriverState:
    """What decides whether the robot may move: the driver's mode, the runstop, and whether it has been homed."""

    def __init__(self, mode: str = "position", homed: bool = True):
        self.mode = mode
        self.runstopped = False
        self.homed = homed

    def refusal(self) -> str | None:
        """Return why the robot may not move, None where it may."""
        if self.runstopped:
            return "the runstop is on; switch it off with /runstop"
        if not self.homed:
            return "the robot has not been homed; call /home_the_robot"
        if self.mode not in MOVING_MODES:
            return f"the driver's mode is '{self.mode}'; set its parameter mode to {' or '.join(MOVING_MODES)}"
        return None


class DriverServices:
    """Offers /stow_the_robot, /home_the_robot, /stop_the_robot, /runstop, and says /mode, /is_homed, /is_runstopped.

    `stow` and `home` are the poses (values by commanded joint, one after another) that the services go to.
    """

    def __init__(
        self,
        node: Node,
        state: DriverState,
        trajectories: TrajectoryServer,
        publishers: Publishers,
        stow: Sequence[Mapping[str, float]],
        home: Sequence[Mapping[str, float]],
    ):
        self._state = state
        self._trajectories = trajectories
        self._poses = {"stow": stow, "home": home}
        self._mode = publishers.create(String, "/mode", depth=1)
        self._homed = publishers.create(Bool, "/is_homed", depth=1)
        self._runstopped = publishers.create(Bool, "/is_runstopped", depth=1)
        node.create_service(Trigger, "/stow_the_robot", self._stow)
        node.create_service(Trigger, "/home_the_robot", self._home)
        node.create_service(Trigger, "/stop_the_robot", self._stop)
        node.create_service(SetBool, "/runstop", self._runstop)
        description = ParameterDescriptor(description=f"driver mode: {', '.join(MOVING_MODES + OTHER_MODES)}")
        if not node.has_parameter("mode"):
            node.declare_parameter("mode", state.mode, description)
        node.add_on_set_parameters_callback(self._set_mode)

    def publish(self, stamp: int) -> None:
        """Say mode, homed and runstop at simulated time `stamp`, in ns."""
        self._mode.publish(String(data=self._state.mode), stamp)
        self._homed.publish(Bool(data=self._state.homed), stamp)
        self._runstopped.publish(Bool(data=self._state.runstopped), stamp)

    async def _stow(self, _request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        return await self._go_to("stow", response)

    async def _home(self, _request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        if not self._state.runstopped:
            self._state.homed = True
        return await self._go_to("home", response)

    async def _go_to(self, pose: str, response: Trigger.Response) -> Trigger.Response:
        reason = self._state.refusal()
        if reason:
            response.success, response.message = False, reason
            return response
        result = await self._trajectories.go_to(self._poses[pose])
        response.success = result.error_code == SUCCESSFUL
        response.message = result.error_string or f"{pose} done"
        return response

    def _stop(self, _request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._trajectories.abort("stopped by /stop_the_robot")
        response.success, response.message = True, "stopped"
        return response

    def _runstop(self, request: SetBool.Request, response: SetBool.Response) -> SetBool.Response:
        self._state.runstopped = request.data
        if request.data:
            self._trajectories.abort("the runstop was switched on")
        response.success, response.message = True, f"runstop {'on' if request.data else 'off'}"
        return response

    def _set_mode(self, parameters: Sequence[Parameter]) -> SetParametersResult:
        for parameter in parameters:
            if parameter.name != "mode":
                continue
            if parameter.value not in MOVING_MODES + OTHER_MODES:
                return SetParametersResult(
                    successful=False,
                    reason=f"mode '{parameter.value}' is not one of {', '.join(MOVING_MODES + OTHER_MODES)}",
                )
            self._state.mode = parameter.value
            if parameter.value not in MOVING_MODES:
                self._trajectories.abort(f"the driver's mode was set to '{parameter.value}'")
        return SetParametersResult(successful=True)
