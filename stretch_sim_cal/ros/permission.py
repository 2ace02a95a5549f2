"""Whether the robot may move: its driver says so, the user, and that no other calibration moves it."""

import contextlib
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.ros.listening import MatchedSubscription, node_name
from stretch_sim_cal.ros.node_main import NodeContext

MOVING_MODES = ("position", "navigation")
ANSWER = 10.0  # s of wall time for a status topic that somebody publishes, and for a parameter


def check_can_ask(arguments: Any, what: str) -> None:
    """Raise `InputError` if `what` is going to move and nobody can be asked."""
    if not (arguments.yes or arguments.dry_run or sys.stdin.isatty()):
        raise InputError(f"{what} is going to move: give --yes, as there is no terminal for questions")


def ask(arguments: Any, question: str) -> None:
    """Return when the user agrees, or agreed by `--yes`. Raises `Refused` if not."""
    if not arguments.yes and input(f"{question} [yes/no] ").strip().lower() not in ("y", "yes"):
        raise Refused("nothing was moved")


class SoleUse:
    """That one program of this package at most moves a part of the robot, on this machine or another. The one that does
    says so by a latched message beside the driver's topic or action: the middleware delivers it also while the program
    computes, and not for one that was killed."""

    def __init__(self, context: NodeContext, part: str, driver: str):
        from rclpy.qos import DurabilityPolicy, QoSProfile
        from std_msgs.msg import String

        self._context, self._part = context, part
        self._own, self._heard, self._holds = String(data=uuid.uuid4().hex), set(), False
        self._channel = String, f"{driver}/in_use_by_calibration"
        self._quality = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        context.node.create_subscription(*self._channel, lambda said: self._heard.add(said.data), self._quality)

    def refuse_second(self) -> None:
        """Raise `InputError` if another program moves this part."""

        def another() -> bool:  # that was heard, and has not ended
            there = self._context.node.count_publishers(self._channel[1])
            return there > self._holds and bool(self._heard - {self._own.data})

        if self._context.discovers(another):
            raise InputError(f"another calibration is moving the {self._part}; wait for it, or end it")

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A context in which others are refused. Raises as `refuse_second` does, since another may have begun
        meanwhile; of two that begin at the same time none goes on."""
        said, self._holds = self._context.node.create_publisher(*self._channel, self._quality), True
        try:
            said.publish(self._own)
            self.refuse_second()
            yield
        finally:
            self._context.node.destroy_publisher(said)
            self._holds = False


def check_driver(
    context: NodeContext, profile: RobotProfile, modes: Sequence[str] = MOVING_MODES, homed: bool = True
) -> None:
    """Raise `Refused` if the driver would not, or should not, move: in none of `modes` (empty: it has none), with the
    runstop on, or not homed, which only counts with `homed`. What it does not publish is a warning."""
    if modes:
        driver, mode = _driver_and_mode(context, profile.trajectory)
        if mode is None:
            context.log.warning(f"the driver does not publish its mode; {' or '.join(modes)} is needed")
        elif mode not in modes:
            raise Refused(
                f"the driver's mode is '{mode}', it has to be {' or '.join(modes)}; "
                f"for example: ros2 param set {driver} mode {modes[0]}"
            )
    flags = _flags(context, ("/is_runstopped", *["/is_homed"] * homed))
    if flags["/is_runstopped"]:
        raise Refused("the runstop is on; release it (ros2 service call /runstop std_srvs/srv/SetBool '{data: false}')")
    if flags.get("/is_homed") is False:
        raise Refused("the robot has not been homed; call /home_the_robot (std_srvs/srv/Trigger) first")
    for topic, value in flags.items():
        if value is None:
            context.log.warning(f"the driver does not publish {topic}; check it yourself")


def _driver_and_mode(context: NodeContext, action: str) -> tuple[str | None, str | None]:
    """Return the name of the node that offers an action, and its mode; None for what is not known."""
    from rcl_interfaces.srv import GetParameters

    def driver() -> str | None:
        infos = context.node.get_publishers_info_by_topic(f"{action}/_action/feedback")
        return next(map(node_name, infos), None)

    # A driver that runs may not have been discovered by this node yet.
    if not context.spin_until(driver, timeout=ANSWER):
        return None, None
    name = driver()
    client = context.node.create_client(GetParameters, f"{name}/get_parameters")
    try:
        if not context.spin_until(client.service_is_ready, timeout=ANSWER):
            return name, None
        answer = context.answer(client, GetParameters.Request(names=["mode"]), ANSWER)
        return name, answer.values[0].string_value or None if answer and answer.values else None
    finally:
        context.node.destroy_client(client)


def _flags(context: NodeContext, topics: Sequence[str]) -> dict[str, bool | None]:
    """Return the value of each status topic; None if nobody publishes it, or no message comes."""
    from std_msgs.msg import Bool

    flags: dict[str, bool | None] = dict.fromkeys(topics)
    subscriptions = [
        MatchedSubscription(context, Bool, topic, lambda message, topic=topic: flags.update({topic: message.data}))
        for topic in topics
    ]
    context.discovers(lambda: all(each.published for each in subscriptions))
    context.spin_until(lambda: all(each.heard for each in subscriptions if each.published), timeout=ANSWER)
    for subscription in subscriptions:
        subscription.close()
    return flags
