"""Gazebo with the face of the embedded simulator: joints, scans, truth, stepped in a closed loop.

    with GazeboSimulator(SimulationSetup(world="furnished_room")) as simulator:
        simulator.joints.step(0.1)
        left = simulator.scan("left", 0)

Simulated time begins when the robot stands stowed in its world and both lidars have been heard.
"""

import os
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError, RunFailure
from stretch_sim_cal.robot.stretch import STOW
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.gazebo import messages
from stretch_sim_cal.simulation.gazebo.installation import Installation, find_gazebo
from stretch_sim_cal.simulation.gazebo.joints import GazeboJoints
from stretch_sim_cal.simulation.gazebo.model import gazebo_description
from stretch_sim_cal.simulation.gazebo.server import Server, own_partition
from stretch_sim_cal.simulation.gazebo.transport import Commander, Subscriptions, load_bindings
from stretch_sim_cal.simulation.gazebo.world import STEP, gazebo_world
from stretch_sim_cal.simulation.sensor import DEVICES
from stretch_sim_cal.simulation.setup import SimulationSetup

ROBOT = "stretch"
JOINT_STATES = "/stretch/joint_states"
KEPT_CLOUDS = 10
# Of wall time, in s: against a Gazebo that stands still; a slow one is waited for.
START_TIMEOUT = 90.0
SILENCE_TIMEOUT = 60.0
# Gazebo repeats clock and joint states a thousand times a second, also while it stands; on a busy machine Python is
# late with so many, and by ever more.
REPEATED_PER_SECOND = 250
# Of simulated time, in s.
WARM_UP = 3.0
LIDAR_NOTES = {
    "cpu": "sees collision shapes, its channels are evenly spaced, intensities are 0",
    "gpu": "sees visuals, is less exact on slanted surfaces, its channels are evenly spaced",
}
STOW_TIME = 20.0


class GazeboSimulator:
    """A simulation of `setup` in a Gazebo of its own. A context; `close` ends Gazebo and everything that belongs to it.

    `lidar` is "auto", "gpu" or "cpu", `window` opens Gazebo's window as well. `joints`, `nominal_description`,
    `true_description`, `scan`, `start_time`, `period` and `ground_truth` are those of `EmbeddedSimulator`.
    Raises `InputError` where Gazebo, its bindings or the lidar are missing, and `RunFailure` where Gazebo does not do
    what it is asked for, with its own words. `installation` and `bindings` take the place of what is installed.
    """

    def __init__(
        self,
        setup: SimulationSetup,
        lidar: str = "auto",
        window: bool = False,
        installation: Installation | None = None,
        bindings: ModuleType | None = None,
    ):
        installation = installation or find_gazebo()
        self.setup = setup
        self.lidar = installation.lidar(lidar)
        self._generation = installation.generation
        # What is true is computed in one place for both simulators; no ray is cast for it.
        self._described = EmbeddedSimulator(setup)
        self.sensor = self._described.sensor
        self.nominal_description = self._described.nominal_description
        self.true_description = self._described.true_description
        self.notes: list[str] = []
        self._complaints: list[str] = []
        self._folder = Path(tempfile.mkdtemp(prefix="stretch_sim_cal_gazebo_"))
        self._heard = threading.Condition()
        self._time = 0
        self._joints_heard: bytes | None = None
        self._clouds: dict[str, deque[tuple[int, bytes]]] = {device: deque(maxlen=KEPT_CLOUDS) for device in DEVICES}
        self._server: Server | None = None
        self._commander: Commander | None = None
        self._subscriptions: Subscriptions | None = None
        try:
            self._start(installation, bindings, window)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "GazeboSimulator":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def warnings(self) -> list[str]:
        """What the lidars of this Gazebo do not show as the embedded simulator's do, and what Gazebo complained of while
        it loaded world and robot (a mesh that is not there, and it goes on); one line each."""
        return [f"Gazebo {self._generation}, {self.lidar} lidar: {LIDAR_NOTES[self.lidar]}", *self._complaints]

    @property
    def period(self) -> float:
        """The time from one scan to the next, in s."""
        return self.sensor.period

    def start_time(self, lidar: str, tick: int) -> float:
        """Return when Gazebo takes scan `tick` of a lidar, in s; all its rays are cast at that instant."""
        return (self._first_scan[lidar] - self._origin) * 1e-9 + tick * self.period

    def scan(self, lidar: str, tick: int) -> np.ndarray:
        """Return scan `tick` of lidar "left" or "right" as points (M,) of `sensor.POINT_DTYPE` in the lidar's frame.

        Its time has to have passed; only the latest scans are kept. Raises `RunFailure` where it has not come.
        """
        if lidar not in self._clouds:
            raise InputError(f"lidar '{lidar}': use one of {', '.join(DEVICES)}")
        wanted = self._first_scan[lidar] + round(tick * self.period * 1e9)
        tolerance = 0.5e9 * self.period

        def found() -> bytes | None:
            return next((raw for stamp, raw in self._clouds[lidar] if abs(stamp - wanted) < tolerance), None)

        raw = self._wait(found, f"lidar {lidar} has not published its scan of {wanted * 1e-9:.3f} s", SILENCE_TIMEOUT)
        cloud = messages.packed_cloud(raw)
        points = messages.driver_points(cloud, self.start_time(lidar, tick), self.period, self.sensor.range_min)
        return self._with_noise(points, np.random.default_rng([self.setup.seed, DEVICES.index(lidar), tick]))

    def _with_noise(self, points: np.ndarray, random: np.random.Generator) -> np.ndarray:
        # Here and not in Gazebo, whose noise would neither be repeatable nor leave what is too near recognisable.
        coordinates = np.stack([points[name] for name in messages.COORDINATES], axis=-1).astype(float)
        ranges = np.linalg.norm(coordinates, axis=-1)
        noisy = ranges + self.sensor.range_noise * random.standard_normal(len(points))
        for name, values in zip(messages.COORDINATES, (coordinates * (noisy / ranges)[:, None]).T, strict=True):
            points[name] = values
        return points

    def ground_truth(self) -> dict[str, Any]:
        """Return what only a simulator knows, as `EmbeddedSimulator.ground_truth` does."""
        return self._described.ground_truth()

    def move_base(self, world_from_floor: np.ndarray) -> None:
        """Raises `InputError`: the robot is bolted to Gazebo's world."""
        raise InputError(
            "the robot is bolted to Gazebo's world and cannot be pushed; use the embedded simulator for that"
        )

    def close(self) -> None:
        """End Gazebo and remove what was written for it; a second call does nothing."""
        if self._commander is not None:
            self._commander.close()
            self._commander = None
        if self._server is not None:
            note = self._server.stop()
            self.notes += [note] if note else []
            self._server = None
        if self._subscriptions is not None:
            self._subscriptions.close()
            self._subscriptions = None
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, installation: Installation, bindings: ModuleType | None, window: bool) -> None:
        partition = own_partition()
        os.environ.update(partition)  # the transport reads it when its first node is made
        self._world, text = gazebo_world(self.setup.world, self.lidar)
        world_file, robot_file = self._folder / "world.sdf", self._folder / "robot.urdf"
        world_file.write_text(text, encoding="utf-8")
        robot_file.write_text(
            gazebo_description(self.setup, self.sensor, self._described.geometry, self.lidar, self._folder),
            encoding="utf-8",
        )
        self._server = Server(installation.program, world_file, self._folder / "gz.log", partition, window)
        self._commander = Commander(installation.bindings, partition, installation.python_path)
        self._await_server()
        self._subscriptions = Subscriptions(bindings or load_bindings(installation.bindings, installation.python_path))
        clock = f"/world/{self._world}/clock"
        self._subscriptions.subscribe(clock, "gz.msgs.Clock", self._hear_clock, REPEATED_PER_SECOND)
        self._subscriptions.subscribe(JOINT_STATES, "gz.msgs.Model", self._hear_joints, REPEATED_PER_SECOND)
        for device in DEVICES:
            topic = f"/lidar_points_{device}/points"
            self._subscriptions.subscribe(topic, "gz.msgs.PointCloudPacked", self._hear_cloud(device))
        self._spawn(robot_file)
        self._warm_up()
        self._stow()
        self._complaints = [f"Gazebo says: {line}" for line in self._server.complaints()]

    def _await_server(self) -> None:
        """Wait until the world answers, and pause it."""
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            self._server.check("loading its world")
            if self._control(messages.world_control(), timeout=1.0):
                return
        raise RunFailure(
            f"Gazebo runs, but its world '{self._world}' has not answered within {START_TIMEOUT:.0f} s: "
            + self._server.last_words()
        )

    def _spawn(self, robot_file: Path) -> None:
        service = f"/world/{self._world}/create"
        request = messages.entity_factory(ROBOT, str(robot_file))
        answer = self._commander.call(service, request, "gz.msgs.EntityFactory", "gz.msgs.Boolean", timeout=30.0)
        if answer is None:
            raise RunFailure(f"Gazebo's service {service} has not answered: {self._server.last_words()}")
        if not messages.boolean(answer):
            raise RunFailure(
                f"Gazebo does not accept the robot's description (data=false): {self._server.last_words()}"
            )

    def _warm_up(self) -> None:
        """Let time pass until joints, controllers and lidars are there."""
        while self._time < WARM_UP * 1e9:
            self._advance(self.period)
            controllers = self._commander.connected(self._controllers(), "gz.msgs.Double")
            if self._states is not None and controllers and all(self._clouds.values()):
                return
        silent = [device for device in DEVICES if not self._clouds[device]]
        if self._states is None:
            raise RunFailure(f"the robot has not appeared in Gazebo: {self._server.last_words()}")
        if silent:
            raise RunFailure(
                f"Gazebo's {self.lidar} lidar {' and '.join(silent)} has not published within {WARM_UP:g} s"
                + (
                    ", which is what a machine without a renderer looks like (try xvfb-run, or --lidar cpu)"
                    if self.lidar == "gpu"
                    else ""
                )
                + f": {self._server.last_words()}"
            )
        raise RunFailure(f"Gazebo's joint controllers do not listen: {self._server.last_words()}")

    def _stow(self) -> None:
        joints = GazeboJoints(self._described.geometry.model, self._states, self._drive)
        pose = {name: value for name, value in STOW.items() if name in joints.ranges}
        joints.command(pose)
        deadline = self._time + STOW_TIME * 1e9
        while joints.moving or joints.missing(pose):
            if self._time > deadline:
                late = ", ".join(f"{name} by {gap:+.4f}" for name, gap in joints.missing(pose).items())
                raise RunFailure(
                    f"Gazebo's joints do not reach the stowed pose, missing {late}: {self._server.last_words()}"
                )
            joints.step(self.period)
        self.joints = joints
        # Scans are counted from the next one on, for each lidar by its own clock.
        period = round(self.period * 1e9)
        self._origin = self._time
        self._first_scan = {
            device: clouds[-1][0] + period * -(-(self._origin - clouds[-1][0]) // period)
            for device, clouds in self._clouds.items()
        }

    def _controllers(self) -> list[str]:
        return [f"/stretch/{joint}" for joint in sorted(self._described.joints.movable)]

    def _drive(self, targets: Mapping[str, float], duration: float) -> messages.JointStates:
        commands = {f"/stretch/{joint}": messages.double(target) for joint, target in targets.items()}
        self._commander.publish(commands, "gz.msgs.Double")
        self._advance(duration)
        return self._states

    def _advance(self, duration: float) -> None:
        """Let Gazebo take its steps of physics, and wait for the clock to say that it has."""
        steps = round(duration / STEP)
        due = self._time + round(steps * STEP * 1e9)
        if not self._control(messages.world_control(steps), timeout=SILENCE_TIMEOUT):
            self._server.check("simulating")
            raise RunFailure(f"Gazebo does not accept a step of its world: {self._server.last_words()}")
        self._wait(
            lambda: True if self._time >= due else None,
            f"Gazebo's clock has not come to {due * 1e-9:.3f} s",
            SILENCE_TIMEOUT,
        )

    def _control(self, request: bytes, timeout: float) -> bool:
        service = f"/world/{self._world}/control"
        answer = self._commander.call(service, request, "gz.msgs.WorldControl", "gz.msgs.Boolean", timeout)
        return answer is not None and messages.boolean(answer)

    def _wait(self, ready: Callable[[], Any], complaint: str, timeout: float) -> Any:
        """Return what `ready` gives as soon as it gives something, looked at whenever a message has come."""
        deadline = time.monotonic() + timeout
        with self._heard:
            while (result := ready()) is None:
                self._server.check("simulating")
                if time.monotonic() > deadline:
                    raise RunFailure(f"{complaint} within {timeout:.0f} s: {self._server.last_words()}")
                self._heard.wait(0.5)
            return result

    def _hear_clock(self, message: bytes) -> None:
        now = messages.clock_time(message)
        with self._heard:
            self._time = now
            self._heard.notify_all()

    @property
    def _states(self) -> messages.JointStates | None:
        return None if self._joints_heard is None else messages.joint_states(self._joints_heard)

    def _hear_joints(self, message: bytes) -> None:
        with self._heard:
            self._joints_heard = message  # one comes with every step of physics: read when it is wanted
            self._heard.notify_all()

    def _hear_cloud(self, device: str) -> Callable[[bytes], None]:
        def hear(message: bytes) -> None:
            stamp = messages.cloud_stamp(message)
            with self._heard:
                self._clouds[device].append((stamp, message))
                self._heard.notify_all()

        return hear
