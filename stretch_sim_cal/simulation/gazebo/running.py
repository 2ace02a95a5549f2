"""A world in a running Gazebo: its processes, its time and its joints, stepped in a closed loop."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.simulation.gazebo import messages
from stretch_sim_cal.simulation.gazebo.installation import Installation
from stretch_sim_cal.simulation.gazebo.server import Server, own_partition
from stretch_sim_cal.simulation.gazebo.transport import Commander, Subscriptions, load_bindings
from stretch_sim_cal.simulation.gazebo.world import STEP

JOINT_STATES = "/stretch/joint_states"
# Of wall time, in s: against a Gazebo that stands still; a slow one is waited for.
START_TIMEOUT = 90.0
SILENCE_TIMEOUT = 60.0
# Gazebo repeats clock and joint states a thousand times a second, also while it stands; on a busy machine Python is
# late with so many, and by ever more.
REPEATED_PER_SECOND = 250


class RunningWorld:
    """The world `name` of the file `world` in a Gazebo of its own, which stands still but for the steps that it takes.

    `folder` is for its output, and is removed when this process dies; `options` are of `gz sim`. Every method raises
    `RunFailure`, with Gazebo's own words, where Gazebo does not do what it is asked for. `close` ends Gazebo.
    """

    def __init__(
        self,
        installation: Installation,
        bindings: ModuleType | None,
        name: str,
        world: Path,
        folder: Path,
        options: Sequence[str] = ("-s",),
    ):
        self._name = name
        self._heard = threading.Condition()
        self._time = 0
        self._states: tuple[int, bytes] | None = None
        self._commander: Commander | None = None
        self._subscriptions: Subscriptions | None = None
        partition = own_partition()
        os.environ.update(partition)  # the transport reads it when its first node is made
        self._server = Server(installation.program, world, folder, partition, options)
        try:
            self._commander = Commander(installation.bindings, partition, installation.python_path)
            self._await_server()
            bindings = bindings or load_bindings(installation.bindings, installation.python_path)
            self._subscriptions = Subscriptions(bindings)
            self.subscribe(f"/world/{name}/clock", "gz.msgs.Clock", self._hear_clock, REPEATED_PER_SECOND)
            self.subscribe(JOINT_STATES, "gz.msgs.Model", self._hear_joints, REPEATED_PER_SECOND)
        except BaseException:
            self.close()
            raise

    @property
    def time(self) -> int:
        """The simulated time in ns."""
        return self._time

    @property
    def states(self) -> messages.JointStates | None:
        """The joints as they were heard last, None before there is a robot."""
        return None if self._states is None else messages.joint_states(self._states[1])

    @property
    def complaints(self) -> list[str]:
        """What Gazebo has complained of so far, one line each."""
        return [f"Gazebo says: {line}" for line in self._server.complaints()]

    def failure(self, text: str) -> RunFailure:
        """Return an error that says `text` and what Gazebo said last."""
        return RunFailure(f"{text}: {self._server.last_words()}")

    def subscribe(
        self, topic: str, message_type: str, hear: Callable[[bytes], None], per_second: int | None = None
    ) -> None:
        """Let `hear` take the messages on a topic, one at a time, and look again at what is waited for."""

        def take(message: bytes) -> None:
            with self._heard:
                hear(message)
                self._heard.notify_all()

        self._subscriptions.subscribe(topic, message_type, take, per_second)

    def unsubscribe(self, topic: str) -> None:
        """Take nothing more from a topic."""
        self._subscriptions.unsubscribe(topic)

    def spawn(self, name: str, file: Path) -> None:
        """Let Gazebo create the robot in a file."""
        service = f"/world/{self._name}/create"
        request = messages.entity_factory(name, str(file))
        answer = self._commander.call(service, request, "gz.msgs.EntityFactory", "gz.msgs.Boolean", timeout=30.0)
        if answer is None:
            raise self.failure(f"Gazebo's service {service} has not answered")
        if not messages.boolean(answer):
            raise self.failure("Gazebo does not accept the robot's description (data=false)")

    def controllers_listen(self, joints: list[str]) -> bool:
        """Return whether the controllers of all those joints are there."""
        return self._commander.connected([_command_topic(joint) for joint in joints], "gz.msgs.Double")

    def lead(self, targets: Mapping[str, float], duration: float) -> messages.JointStates:
        """Lead joints to positions, let `duration` s pass, and return where they are then.

        All targets are sent every time, so that none can be lost for longer than a step.
        """
        due = self.advance(duration, targets)
        self.wait(
            lambda: self._states if self._states[0] >= due else None,
            f"Gazebo has not told its joints' states of {due * 1e-9:.3f} s",
        )
        return self.states

    def advance(self, duration: float, targets: Mapping[str, float] | None = None) -> int:
        """Let Gazebo take its steps of physics for `duration` s, and return the simulated time, in ns, when it has."""
        steps = round(duration / STEP)
        due = self._time + round(steps * STEP * 1e9)
        if not self._control(messages.world_control(steps), SILENCE_TIMEOUT, targets):
            self._server.check("simulating")
            raise self.failure("Gazebo does not accept a step of its world")
        self.wait(lambda: True if self._time >= due else None, f"Gazebo's clock has not come to {due * 1e-9:.3f} s")
        return due

    def wait(self, ready: Callable[[], Any], complaint: str) -> Any:
        """Return what `ready` gives as soon as it gives something, looked at whenever a message has come."""
        deadline = time.monotonic() + SILENCE_TIMEOUT
        with self._heard:
            while (result := ready()) is None:
                self._server.check("simulating")
                if time.monotonic() > deadline:
                    raise self.failure(f"{complaint} within {SILENCE_TIMEOUT:.0f} s")
                self._heard.wait(0.5)
            return result

    def close(self) -> str:
        """End Gazebo, and return a note where that was not as it should be, else an empty text."""
        if self._commander is not None:
            self._commander.close()
        note = self._server.stop()
        if self._subscriptions is not None:
            self._subscriptions.close()
        return note

    def _await_server(self) -> None:
        """Wait until the world answers, and pause it."""
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            self._server.check("loading its world")
            if self._control(messages.world_control(), 1.0):
                return
        raise self.failure(f"Gazebo runs, but its world '{self._name}' has not answered within {START_TIMEOUT:.0f} s")

    def _control(self, request: bytes, timeout: float, targets: Mapping[str, float] | None = None) -> bool:
        commands = {_command_topic(joint): messages.double(target) for joint, target in (targets or {}).items()}
        answer = self._commander.call(
            f"/world/{self._name}/control", request, "gz.msgs.WorldControl", "gz.msgs.Boolean", timeout,
            commands, "gz.msgs.Double",
        )  # fmt: skip
        return answer is not None and messages.boolean(answer)

    def _hear_clock(self, message: bytes) -> None:
        self._time = messages.clock_time(message)

    def _hear_joints(self, message: bytes) -> None:
        # One comes with every step of physics: its joints are read when they are wanted.
        self._states = messages.stamp(message), message


def _command_topic(joint: str) -> str:
    return f"/stretch/{joint}"
