"""A recording as the source of clouds, frames and description, and the arguments of commands that read one."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.lidars import DescribedLidar, lidars_at
from stretch_sim_cal.calibration.pipeline import Clouds, together
from stretch_sim_cal.command import only_with, warn
from stretch_sim_cal.commands.described import urdf_text
from stretch_sim_cal.conventions.spawned import spawned_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.recording import topics as bag
from stretch_sim_cal.recording.clouds import returns_from_message
from stretch_sim_cal.recording.frame_tree import FrameTree
from stretch_sim_cal.recording.rosbag import Recording
from stretch_sim_cal.robot.profile import RobotProfile, profile_called, stretch_profile
from stretch_sim_cal.robot.surfaces import body_settings
from stretch_sim_cal.ros.node_commands import CLOUD_OPTIONS, FOOTPRINT_OPTION, LIDAR_OPTIONS
from stretch_sim_cal.ros.watchdog import progressing
from stretch_sim_cal.sensor.recognition import SCANS, recognised
from stretch_sim_cal.sensor.sensor import Sensor, Sensors, for_each, of_two, sensors_called
from stretch_sim_cal.sensor.signature import Signature, known_sensors

MAX_TIME_DIFFERENCE = CLOUD_OPTIONS[-1].default
Signatures = Mapping[str, Signature | InputError]
NAMES = {each.name.replace("_link", "").replace("_lidar", ""): each for each in (*LIDAR_OPTIONS[1:], FOOTPRINT_OPTION)}
"""The options of nodes that name topics and frames, by the arguments of commands."""


def add_recording_arguments(parser: argparse.ArgumentParser, with_sensor: bool = True, robot: str = "") -> None:
    """Declare the names of topics and frames in a recording; those that are not given are the robot profile's, by
    default first that of `robot`."""
    add = parser.add_argument
    add("--robot", metavar="FILE",
        help="the robot's profile, for the topics, frames and sensor that are not given: a name in config/robots/ or a "
        f"path (default: {robot}the Stretch's)")  # fmt: skip
    for name, option in NAMES.items():
        older = {"left_frame": ", or link_lidar_left", "right_frame": ", or link_lidar_right"}.get(name, "")
        add(f"--{name.replace('_', '-')}", metavar=name.rpartition("_")[2].upper(),
            help=f"{option.help} (default: {option.default}{older})")  # fmt: skip
    if with_sensor:
        add("--sensor", metavar="NAME",
            help="kind of the lidars, or LEFT,RIGHT: names in config/, sensor files, or 'unknown' (default: "
            f"the profile's, {stretch_profile().sensor}, or the one that fits the recorded points)")  # fmt: skip
    model = "URDF with the lidars' poses (or stretch4; default: the recording's, else that of --robot)"
    add("--model", metavar="FILE", help=model)
    apart = f"largest time between the clouds of a pair (default: {MAX_TIME_DIFFERENCE} s)"
    add("--max-time-difference", type=float, metavar="S", help=apart)


def with_defaults(args: argparse.Namespace) -> RobotProfile:
    """Return the robot's profile, having filled in the arguments of `add_recording_arguments` that were not given."""
    profile = profile_called(args.robot)
    if profile.one_lidar:
        only_with(args, ["right_topic", "right_frame"], "a robot with a right lidar")
    defaults = {name: profile.node_defaults[option.name] for name, option in NAMES.items()}
    for name, value in (defaults | {"max_time_difference": MAX_TIME_DIFFERENCE}).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    return profile


def topics_and_frames(args: argparse.Namespace, profile: RobotProfile) -> tuple[dict[str, str], dict[str, str]]:
    """Return the topics and the frames of all lidars by name; of the left one alone if the right one has the same."""
    lidars = profile.topics_and_frames((args.left_topic, args.left_frame), (args.right_topic, args.right_frame))
    return {name: topic for name, (topic, _) in lidars.items()}, {name: frame for name, (_, frame) in lidars.items()}


@dataclass
class Source:
    """An open recording with the frames in it (`tree`), and clouds as often as needed; `topics` and `frames` are those
    of the lidars by name, `description` is the robot's URDF. `footprint_from_base` (4, 4) is as described; the identity
    if the description has no base_footprint."""

    recording: Recording
    tree: FrameTree
    footprint_from_base: np.ndarray
    topics: dict[str, str]
    frames: dict[str, str]
    args: argparse.Namespace
    description: str | None
    profile: RobotProfile

    @cached_property
    def signatures(self) -> Signatures:
        """What the first clouds of each lidar show of sensor and driver."""
        return recorded_kinds(self.recording, self.topics, self.profile)

    @cached_property
    def sensors(self) -> Sensors:
        """The kinds of all lidars: as named, else as recognised, which is printed."""
        return taken_sensors(self.signatures, self.args, self.profile)

    @cached_property
    def body(self) -> dict[str, Any]:
        return body_settings(self.profile, self.description, warn)

    @cached_property
    def described(self) -> dict[str, np.ndarray]:
        """The poses (4, 4) of the lidars in base_link by name."""
        poses = {name: self.tree.lookup(self.args.base_frame, frame) for name, frame in self.frames.items()}
        if "right" in poses:
            poses["right"] = poses["left"] @ self.tree.lookup(self.frames["left"], self.frames["right"])
        return poses

    @property
    def lidars(self) -> dict[str, DescribedLidar]:
        return lidars_at(self.described, self.sensors)

    def clouds(self, limit: int, label: str) -> Iterator[Clouds]:
        """Yield up to `limit` clouds (N, 5 or 3) by lidar, with a progress bar: of one or two lidars as `sets`, of more
        the first of each."""
        if set(self.topics) <= set(SIDES):
            yield from self.sets(limit, label)
            return
        found = list(together(bag.recorded_clouds(self.recording, self.topics, self.frames, limit, warn)))
        yield from progressing(found, f"{label} with {len(self.topics)} lidars")

    def sets(
        self, limit: int, label: str, read: Callable[[Any], np.ndarray] = returns_from_message
    ) -> Iterator[Clouds]:
        """Yield up to `limit` clouds of one time of the left lidar and, if there is one, the right one, with a progress
        bar, and print the counts; `read` makes a cloud of a message."""
        named = ({side: each[side] for side in SIDES if side in each} for each in (self.topics, self.frames))
        sets = bag.RecordedSets(self.recording, *named, self.args.max_time_difference, limit, warn, read)
        yield from progressing(sets, label, sets.total)
        print(f"{label}: {sets.counts.sentence()}", file=sys.stderr)


def open_source(args: argparse.Namespace, recording: Recording) -> Source:
    """Return an open recording as the source of a calibration. Raises `InputError` if something is missing."""
    profile = with_defaults(args)
    recorded, model, otherwise = bag.recorded_description(recording), None, None
    if args.model:
        model = urdf_text(args.model, profile.description.packages)
    elif args.robot and recorded is None:
        otherwise = spawned_robot(profile).text
    topics, frames = topics_and_frames(args, profile)
    tree = bag.recorded_tree(recording, args.base_frame, frames.values(), model, otherwise)
    footprint_from_base = np.eye(4)
    try:
        footprint_from_base = tree.lookup(args.footprint_frame, args.base_frame)
    except InputError as error:  # older descriptions begin at base_link
        if args.footprint_frame != stretch_profile().footprint_frame:
            unknown = f"--footprint-frame {args.footprint_frame}: {tree.source} has no such frame"
            raise InputError(unknown) from error
    return Source(recording, tree, footprint_from_base, topics, frames, args, model or recorded or otherwise, profile)


def candidate_sensors(profile: RobotProfile) -> list[Sensor]:
    """Return the kinds that a robot's lidars may be: those of its profile, and of `config/`."""
    own = for_each(sensors_called(profile.sensor), len(profile.lidars))
    kinds = (*known_sensors(), *(sensor for sensor in own if sensor is not None))
    return list({sensor.name: sensor for sensor in kinds}.values())


def recorded_kinds(recording: Recording, topics: dict[str, str], profile: RobotProfile) -> Signatures:
    """Return what the first clouds show of sensor and driver, by lidar. Raises `InputError` if a topic is missing."""
    return bag.recorded_signatures(recording, topics, SCANS, candidate_sensors(profile))


def taken_sensors(found: Signatures, args: argparse.Namespace, profile: RobotProfile):
    """Return the kinds of a recording's lidars: `--sensor`, else as recognised. Raises `InputError` if several fit."""
    if args.sensor:
        return sensors_called(args.sensor)
    usual = sensors_called(profile.sensor)
    usual = for_each(usual if len(found) > 2 else of_two(usual), len(found))
    sensors, lines = recognised(found, usual, candidate_sensors(profile))
    print("\n".join(lines), file=sys.stderr)
    return sensors
