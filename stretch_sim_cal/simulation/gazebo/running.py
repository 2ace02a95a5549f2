"""A world in a running Gazebo: its processes, time, joints and clouds, stepped in a closed loop."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stretch_sim_cal import command
from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.simulation.gazebo import messages
from stretch_sim_cal.simulation.gazebo.description import STEP
from stretch_sim_cal.simulation.gazebo.installation import Installation
from stretch_sim_cal.simulation.gazebo.messages import JointStates
from stretch_sim_cal.simulation.gazebo.processes import Commander, Hear, Server, Subscriptions, own_partition
from stretch_sim_cal.simulation.joints import Joints

JOINT_STATES = "/stretch/joint_states"
# s of wall time, against a Gazebo that hangs; a slow one is waited for.
START_TIMEOUT = 90.0
SILENCE_TIMEOUT = 60.0
# A publisher learns of a subscription once, by a datagram that a busy machine may lose. Gazebo repeats its time also
# while paused: after so long without any message, or without an expected cloud, all subscriptions are made again.
DEAF = 5.0
STEP_LOST = 2.0
SETTLING = 10.0
DYING = 2.0  # between the last word of a process and its end
# Gazebo repeats clock and joint states a thousand times a second, also while it stands; on a busy machine Python is
# late with so many, and by ever more.
REPEATED_PER_SECOND = 250
AT_REST = 50  # clocks


class RunningWorld:
    """The world `name` in a Gazebo of its own, paused between its steps; `time` is the simulated one in ns. `start`
    runs it with the present file `world` in `folder`, which is removed when this process dies. `options` are of `gz
    sim`, whose output goes to `log`, by default in `folder`. Every method raises `RunFailure` with Gazebo's last output
    if Gazebo fails."""

    def __init__(self, installation: Installation, name: str, folder: Path, options: Sequence[str], log: Path | None):
        self._installation, self._name = installation, name
        self._heard = threading.Condition()
        self.time = self._sent = self._clocks = 0
        self._states: tuple[int, bytes] | None = None
        self._commander: Commander | None = None
        self._subscriptions: Subscriptions | None = None
        self._partition = own_partition()
        self._server = Server(installation.program, folder, self._partition, options, log)
        self.world = self._server.world

    def start(self) -> None:
        """Run Gazebo until the world answers; it is paused then."""
        os.environ.update(self._partition)  # the transport reads it when its first node is made
        self._server.start()
        transport = self._installation.bindings, self._partition, self._installation.python_path
        self._commander = Commander(*transport, lambda: self._server.check("simulating"))
        deadline, answered = time.monotonic() + START_TIMEOUT, False
        while not answered:
            self._server.check("loading its world")
            answered = self._control(messages.world_control(), 1.0)
            if not answered and time.monotonic() > deadline:
                silent = f"has not answered within {START_TIMEOUT:.0f} s"
                raise self.failure(f"Gazebo runs, but its world '{self._name}' {silent}")
        self._subscriptions = Subscriptions(*transport)
        self.subscribe(f"/world/{self._name}/clock", "gz.msgs.Clock", self._hear_clock, REPEATED_PER_SECOND)
        self.subscribe(JOINT_STATES, "gz.msgs.Model", self._hear_joints, REPEATED_PER_SECOND)

    @property
    def states(self) -> messages.JointStates | None:
        """The joints as they were heard last, None before there is a robot."""
        return None if self._states is None else messages.joint_states(self._states[1])

    @property
    def complaints(self) -> list[str]:
        """Gazebo's errors so far, one line each."""
        return [f"Gazebo: {line}" for line in self._server.complaints()]

    def failure(self, text: str) -> RunFailure:
        """Return an error of `text` and Gazebo's last output."""
        return RunFailure(f"{text}: {self._server.last_words()}")

    def subscribe(self, topic: str, message_type: str, hear: Hear, per_second: int | None = None) -> None:
        """Let `hear` take the messages on a topic, one at a time, and then check what is waited for."""

        def take(message: bytes) -> None:
            with self._heard:
                hear(message)
                self._heard.notify_all()

        self._server.need(True)
        self._subscriptions.subscribe(topic, message_type, take, per_second)

    def unsubscribe(self, topic: str) -> None:
        self._subscriptions.unsubscribe(topic)

    def renew(self) -> None:
        self._subscriptions.renew()

    @property
    def renewals(self) -> int:
        """How often all subscriptions were made again."""
        return 0 if self._subscriptions is None else self._subscriptions.renewals

    def spawn(self, name: str, file: Path) -> None:
        self._server.need(True)
        service = f"/world/{self._name}/create"
        request = messages.entity_factory(name, str(file))
        answer = self._commander.call(service, request, "gz.msgs.EntityFactory", "gz.msgs.Boolean", timeout=30.0)
        if answer is None:
            raise self.failure(f"Gazebo's service {service} has not answered")
        if not messages.boolean(answer):
            raise self.failure("Gazebo does not accept the robot's description (data=false)")

    def controllers_listen(self, joints: list[str]) -> bool:
        return self._commander.connected([_command_topic(joint) for joint in joints], "gz.msgs.Double")

    def lead(self, targets: Mapping[str, float], duration: float) -> messages.JointStates:
        """Lead joints to positions for `duration` s, and return where they are then. All targets are sent every time,
        so that none can be lost for longer than a step."""
        due = self.advance(duration, targets)
        self.wait(
            lambda: self._states if self._states[0] >= due else None,
            f"Gazebo has not published the joint states of {due * 1e-9:.3f} s",
        )
        return self.states

    def rest(self) -> None:
        """Let Gazebo take little of the processor until the next request."""
        self._server.need(False)

    def advance(self, duration: float, targets: Mapping[str, float] | None = None) -> int:
        """Step Gazebo's physics for `duration` s, and return the simulated time (ns) afterwards."""
        steps = round(duration / STEP)
        due = self.time + round(steps * STEP * 1e9)
        try:
            accepted = self._control(messages.world_control(steps), SILENCE_TIMEOUT, targets)
        except RunFailure:  # of the transport, as if a Gazebo that is about to die no longer listens
            self._server.check("simulating", DYING)
            raise
        if not accepted:
            self._server.check("simulating", DYING)
            raise self.failure("Gazebo does not accept a step of its world")
        while not self.wait(self._whether_stepped(due), f"Gazebo's clock has not reached {due * 1e-9:.3f} s"):
            self._control(messages.world_control(round((due - self.time) * 1e-9 / STEP)), SILENCE_TIMEOUT)
        return due

    def _whether_stepped(self, due: int) -> Callable[[], bool | None]:
        """Return a check whether a step accepted just now was taken (True), was lost (False), or is pending (None)."""
        begun, asked = self.time, time.time_ns()

        def stepped() -> bool | None:
            if self.time >= due:
                return True
            # Gazebo takes a step before it sends the time again.
            return False if self.time == begun and self._sent > asked + STEP_LOST * 1e9 else None

        return stepped

    def settle(self, rendered: Callable[[], bool]) -> None:
        """Let a renderer come to rest before the next step: until it has `rendered`, and a while longer, or for
        `SETTLING` s.

        A new subscriber while time stands still makes gz-sim's Sensors system (8.14) render twice at one time. If a
        step comes before the second has begun, its PostUpdate waits for ever: `updateTimeApplied` is then that step's
        time and not `updateTimeToApply`, and when `updateAvailable` turns false nobody notifies `updateTimeCv`."""
        deadline, heard = time.monotonic() + SETTLING, None

        def rested() -> bool | None:
            nonlocal heard
            if heard is None and rendered():
                heard = self._clocks
            # While it renders and another time is due, Gazebo repeats no clock.
            at_rest = heard is not None and self._clocks - heard >= AT_REST
            return True if at_rest or time.monotonic() > deadline else None

        self.wait(rested, "Gazebo's renderer does not pause")

    def wait(self, ready: Callable[[], Any], complaint: str) -> Any:
        """Return the first value of `ready` that is not None, asked whenever a message has come."""
        deadline = time.monotonic() + SILENCE_TIMEOUT
        with self._heard:
            while (result := ready()) is None:
                self._server.need(True)
                self._server.check("simulating")
                if time.monotonic() > deadline:
                    raise self.failure(f"{complaint} within {SILENCE_TIMEOUT:.0f} s")
                if self._subscriptions.silence > DEAF:
                    self.renew()
                self._heard.wait(0.5)
            return result

    def close(self) -> str:
        """End Gazebo, and return a note if that failed, else an empty text."""
        for ours in (self._commander, self._subscriptions):
            if ours is not None:
                ours.close()
        return self._server.stop()

    def _control(self, request: bytes, timeout: float, targets: Mapping[str, float] | None = None) -> bool:
        self._server.need(True)
        commands = {_command_topic(joint): messages.double(target) for joint, target in (targets or {}).items()}
        service, types = f"/world/{self._name}/control", ("gz.msgs.WorldControl", "gz.msgs.Boolean")
        answer = self._commander.call(service, request, *types, timeout, commands, "gz.msgs.Double")
        return answer is not None and messages.boolean(answer)

    def _hear_clock(self, message: bytes) -> None:
        self.time, self._sent = messages.clock_times(message)
        self._clocks += 1

    def _hear_joints(self, message: bytes) -> None:
        # One comes with every step of physics: its joints are read when they are wanted.
        self._states = messages.stamp(message), message


def _command_topic(joint: str) -> str:
    return f"/stretch/{joint}"


KEPT = 8
NOT_CAST = b""
LEFT_OUT = b"\0"
# Of wall time, in s: how long a scan is waited for that should be there. A lidar may take a while to notice that
# somebody listens, and a rendering one leaves a scan out now and then.
PATIENCE = 2.0
LATE = 500_000_000  # ns: the first cloud comes sooner, if it comes
TOLERANCE = round(0.5e9 * STEP)  # ns: scans off the lidar's beat, as at the beginning, are no scans


class Clouds:
    """The clouds on `topic`, serialised `gz.msgs.PointCloudPacked`, the latest of them kept."""

    def __init__(self, world: RunningWorld, topic: str):
        self._world, self._topic = world, topic
        self.listening = False
        self._stamp: int | None = None

    @property
    def newest(self) -> int | None:
        """The stamp, in ns of simulated time, of the newest cloud that is kept."""
        return self._kept[-1][0] if self._kept else None

    @property
    def newest_cloud(self) -> bytes:
        return self._kept[-1][1]

    def rendered(self, period: float) -> bool:
        """Return whether the first cloud since the subscription has come, or is not due before time passes."""
        return self._last is not None or self._stamp is not None and self._world.time < self._stamp + period * 1e9

    def listen(self, wanted: bool) -> None:
        if wanted == self.listening:
            return
        self.listening = wanted
        if not wanted:
            self._world.unsubscribe(self._topic)
            return
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._last: int | None = None
        self._renewals, self._since = self._world.renewals, self._world.time
        self._asked = self._wall_heard = time.monotonic()
        self._world.subscribe(self._topic, "gz.msgs.PointCloudPacked", self._hear)

    def taken_at(self, stamp: int) -> bytes:
        """Wait for the cloud of that past time (ns); `NOT_CAST` without a subscriber then, `LEFT_OUT` if it does not
        come. Raises `RunFailure` if the lidar is silent for long."""
        asked, missing = time.monotonic(), f"{self._topic} has not published its scan of {stamp * 1e-9:.3f} s"
        return self._world.wait(lambda: self._look(stamp, asked), missing)

    def _look(self, stamp: int, asked: float) -> bytes | None:
        """As `taken_at`; None while the cloud may come."""
        for taken, message in self._kept:
            if abs(taken - stamp) <= TOLERANCE:
                return message
        if stamp < self._since or not self.listening:
            return NOT_CAST
        if self._last is not None and self._last >= stamp:
            return LEFT_OUT
        now = time.monotonic()
        heard = self._since if self._last is None else self._last
        if now - max(self._asked, self._wall_heard) > DEAF and self._world.time - heard > LATE:
            self._asked = now
            self._world.renew()
        left_out = now - asked > PATIENCE and now - self._wall_heard < SILENCE_TIMEOUT
        return LEFT_OUT if left_out else None

    def _hear(self, message: bytes) -> None:
        stamp = messages.stamp(message)
        # A subscription's first one is off the beat, and may be of rays that were cast for those who listened before.
        if self._last is not None and self._renewals == self._world.renewals:
            self._kept.append((stamp, message))
        self._last = self._stamp = stamp
        self._renewals, self._wall_heard = self._world.renewals, time.monotonic()


# Leads Gazebo's joints to positions (by the description's names) for some s, and returns where they are then.
Drive = Callable[[Mapping[str, float], float], JointStates]
KEPT_STATES = 64  # steps: longer than clouds are kept
# s of simulated time: a joint is within two steps where it was led to, if nothing is in its way.
ARRIVAL_PATIENCE = 1.0
ARRIVAL = 4 * STEP
# s of simulated time that pass at once in Gazebo without listeners.
PIECE, PIECE_AT_REST = 0.25, 2.5


class GazeboJoints(Joints):
    """Joints whose positions are Gazebo's. Controllers follow the embedded joints' motion (`super()`) step by step, so
    speeds and limits are the same in both simulators; the rest is physics. With `in_pieces` Gazebo is led in larger
    pieces, and step by step where a motion ends; within a piece joints count as having followed."""

    arrival_tolerance = 5e-4
    """How far (m, rad) a joint may be from its target when it counts as arrived: physics ends nowhere exactly."""

    def __init__(self, model: RobotModel, states: JointStates, drive: Drive, profile: RobotProfile):
        super().__init__(model, profile)
        self._ties = {
            joint.command: (joint.tie, parts) for joint in self.profile.joints
            if joint.command not in model.joints and (parts := self.profile.parts(model, joint))
        }  # fmt: skip
        self._past = deque([states], maxlen=KEPT_STATES)
        self._states = states
        self._drive = drive
        self._rested = 0.0
        self.in_pieces = False
        self.owed = 0.0
        """Simulated time, in s, that has not passed in Gazebo yet."""

    @property
    def positions(self) -> dict[str, float]:
        return {name: self._commanded(name) for name in self.ranges}

    def states_at(self, stamp: int) -> JointStates:
        """Return Gazebo's joints at a time (ns) of the last second."""
        return min(self._past, key=lambda past: abs(past.stamp - stamp))

    def positions_of(self, states: JointStates) -> dict[str, float]:
        """Return the positions (m, rad) of the commanded joints by Gazebo's, within limits."""
        at = {name: self._commanded(name, states) for name in self.ranges}
        return {name: min(max(at[name], limit.lower), limit.upper) for name, limit in self.ranges.items()}

    @property
    def joint_positions(self) -> dict[str, float]:
        return {name: self._states.positions.get(name, 0.0) for name in super().joint_positions}

    @property
    def joint_velocities(self) -> dict[str, float]:
        return {name: self._states.velocities.get(name, 0.0) for name in super().joint_positions}

    def step(self, duration: float) -> None:
        """Let `duration` s of simulated time pass, in Gazebo or, in pieces, for Gazebo to catch up with."""
        before = super().joint_positions
        super().step(duration)
        self.owed += duration
        arriving = not self.moving and self._rested < ARRIVAL
        if not self.in_pieces or arriving or self.owed >= (PIECE if self.moving else PIECE_AT_REST) - 0.5 * STEP:
            self.catch_up()
        else:
            led = super().joint_positions
            on = {
                name: position + led.get(name, 0.0) - before.get(name, 0.0)
                for name, position in self._states.positions.items()
            }
            self._states = replace(self._states, positions=on)
        if self.in_pieces and self.moving:  # in Gazebo a piece's motion has passed by its end
            self._states = replace(self._states, velocities=super().joint_velocities)
        # Once per rest of the planned motion.
        rested, self._rested = self._rested, 0.0 if self.moving else self._rested + duration
        if rested < ARRIVAL_PATIENCE <= self._rested:
            for name, gap in self.missing(self._positions).items():
                off = f"{self._commanded(name):.4f}, {gap:+.4f} from its commanded position {ARRIVAL_PATIENCE:g} s ago"
                cause = "something is in its way, or its controller does not follow"
                command.warn(f"Gazebo's {name} is at {off}: {cause}")

    def catch_up(self) -> None:
        if self.owed:
            self.lead(self.owed)
            self.owed = 0.0

    def lead(self, duration: float) -> None:
        """Let `duration` s pass in Gazebo, all joints led to their present targets."""
        targets = super().joint_positions
        self._states = self._drive({name: targets[name] for name in sorted(self.movable)}, duration)
        self._past.append(self._states)

    def _commanded(self, name: str, states: JointStates | None = None) -> float:
        positions = (states or self._states).positions
        tie, parts = self._ties.get(name, ("sum", (name,)))
        values = [positions.get(part, 0.0) for part in parts]
        return sum(values) if tie == "sum" else values[0]
