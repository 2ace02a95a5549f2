"""What commands hear of a running robot: a few clouds (`ros_capture_clouds FILE`, `verify`), and whether it is ready to
be calibrated (`doctor --live`, `ros_calibrate_robot`). Every check that fails has a remedy."""

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.mounts.robot import MountedRobot
from stretch_sim_cal.calibration.pipeline import Clouds
from stretch_sim_cal.collection.clearance import Sweep
from stretch_sim_cal.command import enumerated
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import SIDES, apply
from stretch_sim_cal.recording.clouds import scan_from_message
from stretch_sim_cal.recording.dataset import cloud_name
from stretch_sim_cal.recording.pairing import CloudSet, stamp_of
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros.arm import ArmMotion, ArmState
from stretch_sim_cal.ros.listening import SYNCHRONISE, FrameListener, LiveRobot, depth_for, described_poses
from stretch_sim_cal.ros.node_commands import BROADCAST, LIVE, VERIFY
from stretch_sim_cal.ros.node_main import NodeContext, in_node
from stretch_sim_cal.ros.permission import check_driver
from stretch_sim_cal.ros.robot_context import RobotContext
from stretch_sim_cal.ros.watchdog import Watchdog
from stretch_sim_cal.sensor.sensor import for_each, sensors_called
from stretch_sim_cal.sensor.signature import Observer, Signature, known_sensors, sync_line

READY, NOTE, MISSING, SILENT = "ready", "note", "missing", "silent"
SCANS = 6  # of each lidar: enough for the signature, and for a look at whether a calibration holds
SLOWEST = 5.0  # Hz; a pose's few scans then take a second
LATE = 1.0  # s that a stamp may be off the robot's clock: poses and scans are matched by stamps
ENDS_WITHIN = 5.0  # s until the broadcaster of a command that was just killed is gone
FREE = 1.0  # m around the robot; the arm reaches 0.5 m over the base
HEIGHTS = (0.1, 1.6)  # m above the floor that the arm moves through
ENOUGH = 5  # returns that are no noise
DRIVER, LIDARS = "start the robot's driver", "start the lidars' driver"
LAUNCHED = {  # of the Stretch
    DRIVER: "ros2 launch stretch_core stretch_driver.launch.py",
    LIDARS: "ros2 launch stretch_core dual_hesai.launch.py filter_type:=sor",
}


def capture(context: RobotContext) -> int:
    options, file = context.options, context.arguments.file
    sets = context.clouds(options, context.watchdog(options.timeout), depth=depth_for(options.num_samples))
    taken = [each.clouds for each in sets.take(options.num_samples, "capturing")]
    clouds = {name: np.concatenate([each[name] for each in taken]) for name in taken[0]}
    arrays = {cloud_name(name): cloud for name, cloud in clouds.items()}
    write_atomic(file, lambda stream: np.savez_compressed(stream, **arrays))
    counts = {name: len(cloud) for name, cloud in clouds.items()}
    said = " and ".join(f"{count} {name}" for name, count in counts.items())
    context.log.info(f"{len(taken)} clouds of each lidar, {said} returns, in {file}")
    if context.arguments.json:
        print(json.dumps({"file": file, "clouds": len(taken), "returns": counts}), flush=True)
    return 0


def live_clouds(count: int, given: Mapping[str, object]) -> tuple[list[Clouds], np.ndarray, np.ndarray, str | None]:
    """Return `count` sets of clouds of all lidars by name, base_from_left and the nominal footprint_from_base (4, 4),
    and /robot_description if it is heard; `given` are values of `VERIFY`'s options, by name. Raises `RunFailure` if a
    topic stays silent, `InputError` if frames are missing or ROS 2 is not there."""

    def listen(node: NodeContext):
        context = RobotContext.of(node)
        robot, options = LiveRobot(context), context.options
        base_and_left = (options.base_link_frame, options.left_lidar_frame)
        (base_from_left,) = robot.frames.wait_for(base_and_left, watchdog=robot.watchdog)
        return list(robot.clouds("verifying")), base_from_left, robot.footprint_from_base, robot.description

    given = {"num_samples": count, **given}
    return in_node(VERIFY, listen, [f"--{name}={value}" for name, value in given.items() if value is not None])


@dataclass(frozen=True)
class Check:
    """A check with its `verdict` (`READY`, `NOTE`, `MISSING`, `SILENT`), a sentence and, if it failed, a remedy."""

    name: str
    verdict: str
    sentence: str
    remedy: str = ""

    @property
    def missed(self) -> bool:
        """Whether it keeps a calibration from beginning."""
        return self.verdict in (MISSING, SILENT)

    def line(self) -> str:
        return f"{self.verdict:<8} {self.name:<12} {self.sentence}{f'; {self.remedy}' if self.remedy else ''}"


@dataclass
class LiveLook:
    """The `checks`; and, as far as they came, `clouds` of returns (N, 5) of all lidars by name, the described poses of
    the lidars in base_link, `footprint_from_base` (4, 4 each), and the `description` (URDF)."""

    checks: list[Check] = field(default_factory=list)
    clouds: list[Clouds] = field(default_factory=list)
    base_from_lidar: dict[str, np.ndarray] = field(default_factory=dict)
    footprint_from_base: np.ndarray = field(default_factory=lambda: np.eye(4))
    description: str | None = None

    @property
    def missed(self) -> list[Check]:
        return [check for check in self.checks if check.missed]


def live_look(sensor: str, robot: str | None, use_sim_time: bool, moving: bool) -> LiveLook:
    """Check the running robot of that profile (the Stretch's for None), with lidars of that kind; if it is `moving`,
    its arm, too. Raises `InputError` if ROS 2 is not there, or an argument is wrong."""
    arguments = [f"--sensor={sensor}"] + ([f"--robot={robot}"] if robot else [])
    arguments += ["--ros-args", "-p", "use_sim_time:=true"] if use_sim_time else []
    return in_node(LIVE, lambda context: _Looking(RobotContext.of(context)).all(moving), arguments)


class _Looking:
    def __init__(self, context: RobotContext):
        self._context, self._options = context, context.options
        self._profile = profile_called(context.options.robot)
        self._found = LiveLook()

    def all(self, moving: bool) -> LiveLook:
        self._try("frames", DRIVER, self._frames)
        sets: list[CloudSet] = []
        self._try("lidars", LIDARS, lambda: self._clouds(sets))
        if sets:
            self._signatures(sets)
        self._broadcaster()
        if self._found.description is not None:
            self._try("description", f"use the description of a {self._profile.name} with its lidars", self._described)
        if moving and self._found.description is not None:  # without it, what is missed is said already
            self._try("joints", DRIVER, self._joints)
        return self._found

    def _try(self, name: str, remedy: str, check: Callable[[], str]) -> None:
        if remedy in LAUNCHED and self._profile.description.vendor:
            remedy = f"{remedy} ({LAUNCHED[remedy]})"
        try:
            self._say(name, READY, check())
        except (RunFailure, InputError) as error:
            self._say(name, SILENT if isinstance(error, RunFailure) else MISSING, str(error), remedy)
        except Refused as refusal:  # names the remedy itself
            self._say(name, MISSING, str(refusal))

    def _say(self, name: str, verdict: str, sentence: str, remedy: str = "") -> None:
        self._found.checks.append(Check(name, verdict, sentence, remedy))

    def _watchdog(self) -> Watchdog:
        return Watchdog(self._options.timeout, lambda text: None)

    def _frames(self) -> str:
        options, found, frames = self._options, self._found, FrameListener(self._context)
        found.base_from_lidar = described_poses(options, frames, self._watchdog())
        self._context.spin_until(lambda: frames.description is not None, timeout=frames.GRACE)
        found.description = frames.description
        found.footprint_from_base = frames.lookup(options.footprint_frame, options.base_link_frame)
        if frames.description is None:
            raise InputError(f"{self._all} are in TF, but no node publishes /robot_description")
        frames.close()
        return f"{self._all}, base and footprint are in TF, and /robot_description is published"

    @property
    def _all(self) -> str:
        count = len(self._profile.lidars)
        return {1: "the lidar", 2: "both lidars"}.get(count, f"all {count} lidars")

    def _clouds(self, sets: list[CloudSet]) -> str:
        late: list[int] = []  # ns
        watchdog, clock = self._watchdog(), self._context.node.get_clock()

        def take(seen: CloudSet) -> None:
            late.append(clock.now().nanoseconds - seen.stamp)
            sets.append(seen)

        with contextlib.closing(self._context.clouds(self._options, watchdog, on_set=take)) as clouds:
            self._context.spin_until(lambda: len(sets) >= SCANS, watchdog=watchdog)
        self._found.clouds = [seen.clouds for seen in sets]
        stamps = np.array([seen.stamp for seen in sets]) * 1e-9
        # The least: whatever delays a message, a busy machine too, only adds to what the clocks are apart.
        rate, delay = 1.0 / max(float(np.median(np.diff(stamps))), 1e-6), 1e-9 * min(late)
        called = {1: "scans", 2: "pairs"}.get(len(clouds.topics), "sets of scans")
        counts = enumerated([str(len(cloud)) for cloud in sets[-1].clouds.values()])
        said = f"{rate:.1f} {called} a second, {counts} returns"
        if abs(delay) > LATE:
            raise Refused(
                f"{said}, but their stamps are {delay:.1f} s behind the robot's clock: poses of the arm cannot be "
                f"matched with scans; {SYNCHRONISE} (PTP), or use --use-sim-time for a simulated robot"
            )
        if rate < SLOWEST:
            self._say("lidars", NOTE, f"{said}: slower than {SLOWEST:g} Hz, so everything takes longer")
        return said

    def _signatures(self, sets: list[CloudSet]) -> None:
        heard = {name: [seen.messages[name] for seen in sets] for name in sets[0].messages}
        found = {name: seen for name, own in heard.items() if (seen := self._sensor(name, own)) is not None}
        if set(SIDES) <= found.keys():
            in_step, sentence = sync_line(found["left"], found["right"])
            self._say("clocks", {True: READY, None: NOTE, False: MISSING}[in_step], sentence)
        for name, seen in found.items():
            for line in seen.lines:
                self._say("sensor", READY, f"{name} lidar: {line}")

    def _sensor(self, name: str, scans: list[Any]) -> Signature | None:
        """Return the signature of a lidar's messages, None if they have none; note if it is of another sensor."""
        lidars = list(self._profile.lidars)
        kinds = dict(zip(lidars, for_each(sensors_called(self._options.sensor), len(lidars)), strict=True))
        observer, sensor = Observer(), kinds.get(name)
        try:
            for message in scans:
                observer.add(scan_from_message(message), 1e-9 * stamp_of(message))
            seen = observer.signature(known_sensors())
        except InputError as error:  # clouds without rings say nothing of the sensor
            self._say("sensor", NOTE, f"{name} lidar: {error}")
            return None
        if sensor is not None and seen.num_channels > sensor.num_channels:
            self._say("sensor", MISSING, f"{name} lidar: has {seen.num_channels} channels, {sensor.name} has "
                      f"{sensor.num_channels}", "give the kind of the lidars with --sensor")  # fmt: skip
        return seen

    def _broadcaster(self) -> None:
        """A broadcaster of the robot's present file would contradict that of the calibration under way."""

        def gone() -> bool:
            infos = self._context.node.get_publishers_info_by_topic("/tf_static")
            return all(info.node_name != BROADCAST.node_name for info in infos)

        if not self._context.spin_until(gone, timeout=ENDS_WITHIN):
            sentence = f"{BROADCAST.executable} is running and publishes the present calibration"
            self._say("broadcaster", MISSING, sentence, "stop it until the new calibration is accepted")

    def _described(self) -> str:
        robot = MountedRobot(self._profile.model_of(self._found.description), self._profile)
        return f"'{robot.model.name}' has {self._all} and {len(robot.surfaces)} links with surfaces"

    def _joints(self) -> str:
        model, watchdog = self._profile.model_of(self._found.description), self._watchdog()
        state = ArmState(self._context, model, watchdog, self._profile)
        state.wait_until_known()
        motion = ArmMotion(self._context, state, watchdog, {})
        motion.wait_for_driver()
        check_driver(self._context)
        self._room(model, state)
        return "all joint states arrive, and the driver is ready to move"

    def _room(self, model, state: ArmState) -> None:
        """Note obstacles nearer to the robot than the arm may need; the collection checks its paths itself."""
        if not self._found.clouds or not self._found.base_from_lidar:
            return
        points = np.concatenate([
            apply(self._found.footprint_from_base @ self._found.base_from_lidar[name], cloud[:, :3])
            for name, cloud in self._found.clouds[-1].items()
        ])  # fmt: skip
        points = points[(points[:, 2] > HEIGHTS[0]) & (points[:, 2] < HEIGHTS[1])]
        foreign = points[Sweep(model, self._profile).foreign(points, state.by_command)]
        distance = np.sort(np.hypot(foreign[:, 0], foreign[:, 1]))
        if len(distance) > ENOUGH and distance[ENOUGH] < FREE:
            sentence = f"something is {distance[ENOUGH]:.2f} m from the base's axis"
            self._say("free space", NOTE, sentence, f"{FREE:g} m free around the robot are enough for every pose")
        else:
            self._say("free space", READY, f"nothing within {FREE:g} m of the base's axis")
