"""Whether the robot may move: its driver says so, the user, and that no other calibration moves it."""

import contextlib
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stretch_sim_cal.command import agreed
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.ros.listening import MatchedSubscription, node_name
from stretch_sim_cal.ros.node_main import NodeContext

MOVING_MODES = ("position", "navigation")
ANSWER = 10.0  # s of wall time for a status topic that somebody publishes


def check_can_ask(arguments: Any, what: str) -> None:
    """Raise `InputError` if `what` is going to move and nobody can be asked."""
    if not (arguments.yes or arguments.dry_run or sys.stdin.isatty()):
        raise InputError(f"{what} is going to move: give --yes, as there is no terminal for questions")


def ask(arguments: Any, question: str) -> None:
    """Return when the user agrees, or agreed by `--yes`. Raises `Refused` if not."""
    if not (arguments.yes or agreed(question)):
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


def check_driver(context: NodeContext, modes: Sequence[str] = MOVING_MODES, homed: bool = True) -> None:
    """Raise `Refused` if the driver would not, or should not, move: with the runstop on, not homed, which only counts
    with `homed`, or in none of `modes` (empty: it has none). What it does not publish is a warning."""
    from std_msgs.msg import Bool, String

    topics = {"/is_runstopped": Bool, **({"/is_homed": Bool} if homed else {}), **({"/mode": String} if modes else {})}
    states = _states(context, topics)
    if states["/is_runstopped"]:  # before the mode, which is "runstopped" then
        raise Refused(
            "the runstop is on; release it by its button, or by ros2 service call /runstop_the_robot (of older drivers "
            "/runstop) std_srvs/srv/SetBool '{data: false}'"
        )
    if states.get("/is_homed") is False:
        raise Refused("the robot has not been homed; call /home_the_robot (std_srvs/srv/Trigger) first")
    mode = states.get("/mode")
    if mode is not None and mode not in modes:
        driver = next(map(node_name, context.node.get_publishers_info_by_topic("/mode")), "/stretch_driver")
        example = f"ros2 param set {driver} mode {modes[0]}"
        raise Refused(f"the driver's mode is '{mode}', it has to be {' or '.join(modes)}; for example: {example}")
    for topic, state in states.items():
        if state is None:
            needed = f"{' or '.join(modes)} is needed" if topic == "/mode" else "check it yourself"
            context.log.warning(f"the driver does not publish {topic}; {needed}")


def _states(context: NodeContext, topics: Mapping[str, type]) -> dict[str, Any]:
    """Return the value of each status topic, also one that was sent long ago: drivers publish it when it changes. None
    if nobody publishes it, or no message comes."""
    states: dict[str, Any] = dict.fromkeys(topics)
    subscriptions = [
        MatchedSubscription(
            context, kind, topic, lambda message, topic=topic: states.update({topic: message.data}), latched=True
        )
        for topic, kind in topics.items()
    ]
    # A driver that runs may not have been discovered by this node yet.
    context.discovers(lambda: all(each.published for each in subscriptions))
    context.spin_until(lambda: all(each.heard for each in subscriptions if each.published), timeout=ANSWER)
    for subscription in subscriptions:
        subscription.close()
    return states
