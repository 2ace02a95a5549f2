"""One case of a campaign, a pure function of campaign and index: a room, a robot's lidars and a recording are
simulated, calibrated and compared. As a program this runs the cases that its standard input names."""

import itertools
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from stretch_sim_cal.calibration.body import SETTINGS_NAME
from stretch_sim_cal.calibration.body.settings import fit_settings
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.driving import DrivenArray, DrivenResult
from stretch_sim_cal.calibration.lidars import DescribedLidar, lidars_at, with_lidars
from stretch_sim_cal.calibration.methods import alignment_method
from stretch_sim_cal.calibration.mounts.file import every_mount
from stretch_sim_cal.calibration.mounts.method import calibrate_mounts
from stretch_sim_cal.calibration.mounts.result import MountsResult
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, mount_settings
from stretch_sim_cal.calibration.pipeline import LidarFloor, alignment_of, driven, placed, solved
from stretch_sim_cal.calibration.results import FloorResult, LidarPoses
from stretch_sim_cal.calibration.wheel_odometry import DrivingSettings
from stretch_sim_cal.campaign.plan import METHODS, TOOLS, Campaign, contradicts
from stretch_sim_cal.collection.settings import load_settings
from stretch_sim_cal.command import warn
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.files import find_shared, read_yaml, scratch_folder, write_atomic, write_yaml
from stretch_sim_cal.geometry.planes import floor_between, floor_error
from stretch_sim_cal.geometry.transforms import SIDES, error, from_xyz_rpy, inverse, log
from stretch_sim_cal.harness.fitted_body import RobotBody, fit_dataset
from stretch_sim_cal.harness.processes import RunFiles, scenario_processes
from stretch_sim_cal.harness.run import run_scenario
from stretch_sim_cal.harness.scenario import scenario_from_mapping
from stretch_sim_cal.harness.simulated_dataset import BodyDatasetRecorder
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.stretch import WITHOUT_TOOL
from stretch_sim_cal.robot.surfaces import body_settings
from stretch_sim_cal.sensor.points import coordinates, return_columns, returns_of
from stretch_sim_cal.sensor.sensor import CORRECTIONS, Sensor, load_sensor
from stretch_sim_cal.sensor.unit_file import write_simulated_unit
from stretch_sim_cal.simulated import stations_of
from stretch_sim_cal.simulation.driving import OdometrySpread
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
from stretch_sim_cal.simulation.gazebo.processes import prepare_child
from stretch_sim_cal.simulation.rooms import Room, write_room
from stretch_sim_cal.simulation.setup import BaseError, PayloadBox, PoseError, SimulationSetup
from stretch_sim_cal.truth import nees

DRAWN_PAIRS = 3
GOLDEN_SHARE = 0.5 * (5.0**0.5 - 1.0)  # of a turn: steps that spread cases evenly over the indices
POSES_BETWEEN = 40  # at which the body shape is held against the robot, besides those that it was fitted to
TURN = np.radians(40.0)  # after a refusal, to the next standing place
# Where the base drives to: on the spot by a full circle and back, then straight, within what rooms keep free.
STOP = np.pi / 4
SPIN = [(0.0, 0.0, turn * STOP) for turn in (1, 2, 3, 4, -3, -2, -1, 0)]
STRAIGHT = [(0.6, 0.0, 0.0), (-0.4, 0.0, 0.0), (0.0, 0.0, 0.0)]
SIDEWAYS = [(0.0, 0.6, 0.0), (0.0, 0.0, 0.0)]
SLIP_ANGLE = np.radians(0.04)  # for each mm of slip
Numbers = Mapping[str, float]  # the inputs of a case, by name
PAYLOAD = PayloadBox("quick_connect_interface_link", (0.12, 0.08, 0.2), (0.23, 0.0, -0.1))  # in the gripper


class SimulatedCase:
    """The simulator of a case, its files in `folder`."""

    def __init__(self, campaign: Campaign, numbers: Numbers, seed: tuple[int, ...], folder: Path):
        random = np.random.default_rng(seed)
        self.campaign, self.numbers, self._seed = campaign, numbers, seed
        sensor = load_sensor(campaign.sensor)
        self.sensor = replace(sensor, range_noise=sensor.range_noise * numbers["lidar.noise"])
        self.setup = _setup(campaign, self.sensor, numbers, random, folder)
        self.lidars = tuple(self.setup.profile.lidars)
        self.simulator = EmbeddedSimulator(self.setup, self.sensor)
        self.num_places = 1
        self._tick = 0

    @cached_property
    def body(self) -> dict[str, Any]:
        return body_settings(self.simulator.profile, self.simulator.nominal_description, warn)

    @cached_property
    def described(self) -> dict[str, DescribedLidar]:
        poses = {name: self.simulator.base_from_lidar(name, nominal=True) for name in self.lidars}
        return lidars_at(poses, self.sensor)

    @cached_property
    def model(self) -> RobotModel:
        return parse_urdf(self.simulator.nominal_description)

    @cached_property
    def footprint_from_base(self) -> np.ndarray:
        profile = self.simulator.profile
        return link_transform(self.model, {}, profile.base_frame, profile.footprint_frame)

    @cached_property
    def aligned(self) -> LidarPoses:
        """The result of the campaign's alignment method. If it refuses, the robot is turned and recorded again, as long
        as places are left (`num_places` counts them)."""
        name = self.campaign.methods["alignment"]
        method = alignment_of(name, self.described, self.body)
        result = solved(method, self.scans("alignment"))
        places = self.numbers["recording.places"] if hasattr(alignment_method(name), "new_place") else 1
        while result.refusals and self.num_places < places:
            self.simulator.move_base(from_xyz_rpy((0, 0, 0), (0, 0, self.num_places * TURN)))
            self.num_places += 1
            method.new_place()
            result = solved(method, self.scans("alignment"))
        return result

    @cached_property
    def floor(self) -> FloorResult | None:
        """The floor method's result, on scans after those of the alignment; None if that was refused."""
        aligned, name = self.aligned, self.campaign.methods["floor"]
        if aligned.refusals:
            return None
        lidars = placed(self.described, aligned.base_from_lidar)
        method = LidarFloor(name, lidars, self.footprint_from_base, self.body, aligned.known)
        return solved(method, self.scans("floor"))

    @cached_property
    def mounts(self) -> MountsResult | None:
        """The lidar extrinsics from the arm poses of the collection's plan; None if the alignment was refused."""
        aligned, profile, joints = self.aligned, self.simulator.profile, self.simulator.joints
        if aligned.refusals:
            return None
        robot = MountedRobot(self.model, profile)
        settings = mount_settings(self.sensor.range_noise, sensor=self.sensor, profile=profile)
        grids, samples = self._grids("mounts", "mounts"), []
        for number, values in enumerate(itertools.product(*grids.values())):
            pose = {profile.commands[joint]: value for joint, value in zip(grids, values, strict=True)}
            joints.place(pose)
            seen = _pooled(self.scans("mounts", robot.nominal))
            clouds = {name: return_columns(cloud) for name, cloud in seen.items()}
            positions = profile.joint_positions(self.model, pose)
            samples.append(robot.sample(f"pose {number}", positions, clouds, tuple(profile.offset_joints)))
        joints.place({name: value for name, value in profile.stowed.items() if name in joints.ranges})
        return calibrate_mounts(robot.surfaces, samples, robot.nominal, aligned.known, settings)

    @cached_property
    def body_shape(self) -> dict[str, Any] | None:
        """The body shape of the collection's plan against the truth, by the record's names; None without a floor."""
        aligned, floor, simulator = self.aligned, self.floor, self.simulator
        if floor is None or floor.refusals:
            return None
        profile, path = simulator.profile, find_shared("config", SETTINGS_NAME, ".yaml")
        found = aligned.to_first, floor.footprint_from_base
        recorder = BodyDatasetRecorder(simulator, aligned.known, found, self._tick)
        grids = self._grids(path, "demo")
        values = [grids[joint] for joint in profile.planned_names]
        with scratch_folder() as folder:
            recorder.record(folder, [*itertools.product(*values)], int(self.numbers["recording.body_shape_frames"]))
            dataset = read_dataset(Path(folder))
            body = RobotBody(self.model, dataset.footprint_from_base_link, profile)
            try:
                shape = fit_dataset(dataset, body, fit_settings(path)).model
            except Refused as refused:
                return {"accepted": False, "refusals": str(refused)}
        rows = recorder.held_against_truth(dataset.samples, shape=lambda here: shape.shape_for(here[0].commanded))
        protrusions, ratios = np.array(rows["shape"]).T
        random = np.random.default_rng((*self._seed, POSES_BETWEEN))
        ends = [min(each) for each in values], [max(each) for each in values]
        poses = random.uniform(*ends, (POSES_BETWEEN, len(values))).tolist()
        between = [dict(zip(profile.planned_names, pose, strict=True)) for pose in poses]
        return {
            "accepted": True, "refusals": "", "protrusion_mm": 1e3 * float(protrusions.max()),
            "between_mm": 1e3 * recorder.protrusion_between(shape, between), "area_ratio": float(ratios.max()),
        }  # fmt: skip

    @cached_property
    def driven(self) -> DrivenResult:
        """What a drive from where the robot stands comes to, whatever alignment and floor say."""
        simulator, base = self.simulator, self.simulator.profile.driven_base
        self.rewind()
        settings = DrivingSettings(track_width=base.track_width)
        array = DrivenArray(self.described, self.footprint_from_base, settings, self.body)
        way = [*SPIN, *STRAIGHT, *(SIDEWAYS if base.strafes else ())]
        return driven(array, stations_of(simulator, self.lidars, int(self.numbers["recording.drive_frames"]), way))

    def scans(self, stage: str, lidars: Sequence[str] = ()) -> Iterator[dict[str, np.ndarray]]:
        """Yield the returns of the scans of lidars (default: all) that a stage is given next, by name."""
        count = int(self.numbers[f"recording.{stage}_frames"])
        for _ in range(count):
            if self.numbers["recording.moved_mm"] and stage == "alignment" and self._tick == count // 2:
                self.simulator.move_base(from_xyz_rpy((1e-3 * self.numbers["recording.moved_mm"], 0, 0), (0, 0, 0)))
            scans = {name: self.simulator.scan(name, self._tick) for name in lidars or self.lidars}
            self._tick += 1
            yield {name: returns_of(scan) for name, scan in scans.items()}

    def _grids(self, settings: str | Path, plan: str) -> Mapping[str, Any]:
        profile = self.simulator.profile
        limits = profile.commanded_limits(self.model)
        return load_settings(settings, plan, {}, 1.0, limits, profile=profile).grids

    def rewind(self) -> None:
        self._tick = 0
        self.simulator.move_base(np.eye(4))


def run_case(campaign: Campaign, index: int, folder: Path | None = None) -> dict[str, Any]:
    """Return the record of case `index`; with a `folder`, its files and clouds.png are there."""
    numbers = campaign.numbers(index)
    with_nodes = goes_through_nodes(campaign, index, numbers)
    return run_numbers(campaign, numbers, (campaign.seed, index), folder, with_nodes) | {"index": index}


def run_numbers(
    campaign: Campaign, numbers: Numbers, seed: tuple[int, ...], folder: Path | None = None, with_nodes: bool = False
) -> dict[str, Any]:
    """Return the record of the case of these inputs; `seed` decides all that they leave open."""
    began = time.process_time()
    with scratch_folder() as scratch:
        place = folder or scratch
        case = SimulatedCase(campaign, numbers, seed, place)
        record = {f"input.{name}": value for name, value in numbers.items()} | _solved(case)
        record |= {"status": "done", "message": "", "seconds": time.process_time() - began}
        if with_nodes and case.num_places == 1:  # a node takes one place
            results = {"alignment": case.aligned} | ({"floor": case.floor} if "floor" in campaign.stages else {})
            record |= through_nodes(campaign, numbers, case.setup, results, place)
        if folder is not None:
            draw(case, folder / "clouds.png")
    return record


def _solved(case: SimulatedCase) -> dict[str, Any]:
    simulator, aligned, stages = case.simulator, case.aligned, case.campaign.stages
    true = {name: simulator.base_from_lidar(name) for name in case.lidars}
    to_left = {name: inverse(true["left"]) @ pose for name, pose in true.items()}
    found = _judged_lidars("alignment", aligned, to_left, aligned.to_first, aligned.covariance_to_first)
    found |= {"alignment.places": case.num_places}
    if "drive" in stages:
        found |= _judged_drive(case)
    if "floor" not in stages:
        return found
    floor = case.floor
    if floor is None:
        not_run = {"accepted": False, "refusals": "not run: the alignment was refused"}
        others = [stage for stage in stages[1:] if stage != "drive"]
        return found | {f"{stage}.{key}": value for stage in others for key, value in not_run.items()}
    # All that clouds determine: the floor in the frame in which the left lidar is where the description says.
    plane = simulator.floor_in_base.moved(case.described["left"].base_from_lidar @ inverse(true["left"]))
    height, angle = floor_error(plane, floor.plane)
    found |= _judged("floor", floor, floor_between(floor.plane, plane), getattr(floor, "covariance", None))
    found |= {"floor.height_mm": 1e3 * height, "floor.tilt_deg": float(np.degrees(angle))}
    if "body_shape" in stages:
        shape = case.body_shape or {"accepted": False, "refusals": "not run: alignment or floor was refused"}
        found |= {f"body_shape.{key}": value for key, value in shape.items()}
    if "mounts" in stages:
        file = with_lidars(CalibrationFile(), aligned, "")
        found |= _judged_lidars("mounts", case.mounts, true, *every_mount(file, case.mounts))
    return found


def _judged_lidars(
    stage: str, result: Any, true: Mapping, poses: Mapping, covariance: np.ndarray | None
) -> dict[str, Any]:
    """Return how the `poses` (4, 4) of lidars by name, with their `covariance` (6 n, 6 n), compare with the `true`
    ones: as of `_judged`, the largest error, and each lidar's."""
    off = np.array([log(true[name] @ inverse(pose)) for name, pose in poses.items()])
    lidars = []
    for number, (name, pose) in enumerate(poses.items()):
        own = slice(6 * number, 6 * number + 6)
        distance, angle = error(true[name], pose)
        sigmas = _consistency(off[number], None if covariance is None else covariance[own, own])["sigmas"]
        found = {"translation_mm": 1e3 * distance, "rotation_deg": float(np.degrees(angle)), "sigmas": sigmas}
        lidars.append({"name": name} | found)
    keys = "translation_mm", "rotation_deg"
    largest = {f"{stage}.{key}": max((each[key] for each in lidars), default=0.0) for key in keys}
    return _judged(stage, result, off.ravel(), covariance) | {f"{stage}.lidars": lidars} | largest


def _judged_drive(case: SimulatedCase) -> dict[str, Any]:
    try:
        driven = case.driven
    except Refused as refused:
        return {"drive.accepted": False, "drive.refusals": str(refused)}
    poses = driven.wheels.footprint_from_lidar
    true = {name: case.simulator.floor_from_lidar(name) for name in poses}
    every = replace(driven, refusals=[*driven.refusals, *driven.floor.refusals, *driven.wheels.refusals])
    places = np.array([true[name][:3, 3] - pose[:3, 3] for name, pose in poses.items()])
    turned = [true[name][:3, :3] @ pose[:3, :3].T for name, pose in poses.items()]
    first = next(iter(poses))
    true_first, found_first = inverse(true[first]), inverse(poses[first])
    between = [error(true_first @ true[name], found_first @ pose)[0] for name, pose in poses.items()]
    return _judged_lidars("drive", every, true, poses, driven.wheels.covariance) | {
        "drive.between_mm": 1e3 * max(between), "drive.height_mm": 1e3 * float(np.abs(places[:, 2]).max()),
        "drive.lever_mm": 1e3 * float(np.hypot(*places[:, :2].T).max()),
        "drive.yaw_deg": float(np.degrees(max(abs(np.arctan2(turn[1, 0], turn[0, 0])) for turn in turned))),
    }  # fmt: skip


def _judged(stage: str, result: Any, off: np.ndarray, covariance: np.ndarray | None) -> dict[str, Any]:
    found = {"accepted": not result.refusals, "refusals": " | ".join(result.refusals)} | _consistency(off, covariance)
    return {f"{stage}.{key}": value for key, value in found.items()}


def _consistency(off: np.ndarray, covariance: np.ndarray | None) -> dict[str, float | None]:
    """Return NEES per degree of freedom, and sigmas, of an error (N,); None without a covariance, or a number."""
    if not len(off) or covariance is None or not np.isfinite(covariance).all() or (np.diag(covariance) <= 0).any():
        return {"nees": None, "sigmas": None}
    of_all = nees(off, covariance)
    return {"nees": of_all, "sigmas": float(np.sqrt(of_all * len(off)))}


def _setup(campaign: Campaign, sensor: Sensor, numbers: Numbers, random: Generator, folder: Path) -> SimulationSetup:
    room = {name.partition(".")[2]: value for name, value in numbers.items() if name.startswith("room.")}
    yaw = np.radians(room.pop("yaw_deg"))
    room |= {name: int(room[name]) for name in ("furniture", "people")}
    size = 1e-3 * numbers["mount.translation_mm"], np.radians(numbers["mount.rotation_deg"])
    mounts = {name: PoseError.drawn(random, *size) for name in SIDES}
    way, tilt = random.uniform(-np.pi, np.pi), np.radians(numbers["base.tilt_deg"])
    base = BaseError(1e-3 * numbers["base.height_mm"], tilt * np.cos(way), tilt * np.sin(way))
    model = sensor.error_model()

    def unit(device: str) -> Path:
        path, values = folder / f"unit_{device}.yaml", numbers["lidar.unit"] * model.draw(random)
        write_simulated_unit(path, campaign.sensor, model, values, range_noise=sensor.range_noise)
        return path

    units = {device: unit(device) for device in SIDES}
    world = write_room(Room(**room, yaw=yaw), random, folder)
    seed, keys = int(random.integers(2**31)), {"robot": campaign.robot} if campaign.robot else {}
    driver = dict.fromkeys(CORRECTIONS, True) if numbers["lidar.driver_corrects"] else {}
    if numbers["robot.tool"]:
        keys["tool"] = TOOLS[int(numbers["robot.tool"]) - 1]
    of_robot = SimulationSetup.from_mapping(keys, "campaign")
    joints = _joints_off(of_robot, numbers, random)
    # Drawn last, so that known cases of two lidars stay as they are.
    beyond = [name for name in of_robot.profile.lidars if name not in SIDES]
    mounts |= {name: PoseError.drawn(random, *size) for name in beyond}
    units |= {name: unit(name) for name in beyond}
    scale, slip = numbers["odometry.scale"], numbers["odometry.slip_mm"]
    mounts, units = ({name: of_lidars[name] for name in of_robot.profile.lidars} for of_lidars in (mounts, units))
    return replace(
        of_robot, world=world, sensor=sensor.name, seed=seed, lidar_errors=mounts,
        base_error=base, payload=(PAYLOAD,) * (numbers["robot.payload"] > 0 and keys.get("tool") != WITHOUT_TOOL),
        joint_errors=joints, units=units, driver=driver,
        odometry=OdometrySpread(scale, scale, 1e-3 * slip, SLIP_ANGLE * slip),
    )  # fmt: skip


def _joints_off(setup: SimulationSetup, numbers: Numbers, random: Generator) -> dict[str, PoseError]:
    """Return errors of the joints that hold the surfaces, one sigma per axis, and of the zeros of `offset_joints`."""
    distance, angle = 1e-3 * numbers["robot.links_mm"], np.radians(numbers["robot.links_deg"])
    shift, turn = 1e-3 * numbers["robot.zeros_mm"], np.radians(numbers["robot.zeros_deg"])
    found: dict[str, PoseError] = {}
    if not any((distance, angle, shift, turn)):
        return found
    profile, model = setup.profile, parse_urdf(setup.nominal_description)
    if distance or angle:
        robot = MountedRobot(model, profile)
        bearing = {joint.child for link in profile.lidar_links(model).values() for joint in model.chain(link)}
        still = {profile.base_frame, profile.housing_link, *bearing}
        for link in robot.surfaces:
            joint = model.parent_joint(link)
            if joint is not None and link not in still:
                xyz, rpy = distance * random.normal(size=3), angle * random.normal(size=3)
                found[joint.name] = PoseError(tuple(xyz), tuple(rpy))
    for command in profile.offset_joints:
        size = random.normal()
        for name, share in profile.joint_positions(model, {command: 1.0}).items():
            joint, known = model.joints[name], found.get(name, PoseError())
            key, off = ("xyz", shift) if joint.type == "prismatic" else ("rpy", turn)
            found[name] = replace(known, **{key: tuple(getattr(known, key) + size * share * off * joint.axis)})
    return found


def _pooled(scans: Iterator[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    every = list(scans)
    return {name: np.concatenate([each[name] for each in every]) for name in every[0]}


def draw(case: SimulatedCase, path: Path) -> None:
    from stretch_sim_cal.harness.clouds_3d import placed
    from stretch_sim_cal.harness.report import clouds_before_and_after

    case.rewind()
    scans = _pooled(itertools.islice(case.scans("alignment"), DRAWN_PAIRS))
    points = {name: coordinates(own) for name, own in scans.items()}
    left = case.described["left"].base_from_lidar
    after = {"left": left} | {name: left @ pose for name, pose in case.aligned.to_first.items()}
    before = {name: case.described[name].base_from_lidar for name in after}
    picture = clouds_before_and_after(placed(points, before), placed(points, after))
    write_atomic(path, lambda stream: stream.write(picture))


def goes_through_nodes(campaign: Campaign, index: int, numbers: Mapping[str, float]) -> bool:
    """Return whether a case also runs through the nodes; none in which the robot is pushed, as no scenario does."""
    return (index * GOLDEN_SHARE) % 1.0 < campaign.nodes and not numbers["recording.moved_mm"]


def through_nodes(
    campaign: Campaign, numbers: Mapping[str, float], setup: SimulationSetup, results: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Run a case as a scenario in `folder`, in processes that speak ROS; return, by `nodes.` names, the distance in
    standard deviations of the nodes' result from each of the `results` (None: not run), whether they agree, and why
    not. Without a covariance only the acceptance is compared.

    The nodes take other scans of the same recording, whichever come in time, so both results differ, but by no more
    than two results with the same covariance may."""
    files, path = RunFiles((folder / "nodes").resolve()), folder / "sensor.yaml"
    sensor = read_yaml(find_shared("config", campaign.sensor, ".yaml"))
    write_yaml(path, sensor | {"range_noise": sensor["range_noise"] * numbers["lidar.noise"]})
    stages = {
        stage: {"num_samples": int(numbers[f"recording.{stage}_frames"]), "method": campaign.methods[stage]}
        for stage in filter(METHODS.__contains__, campaign.stages)
    }  # fmt: skip
    said = {"name": campaign.name, "stages": stages, "simulation": replace(setup, sensor=str(path)).to_mapping()}
    verdict = run_scenario(
        scenario_from_mapping(said, folder / "scenario.yaml"), files.folder,
        processes=lambda *run: [each for each in scenario_processes(*run) if each.name != "capture"],
    )  # fmt: skip
    found: dict[str, Any] = {"nodes.message": ""}
    if verdict.broken:
        return found | {"nodes.agree": False, "nodes.message": "; ".join(verdict.reasons)}
    written = CalibrationFile.load_or_empty(files.calibration)
    there = {"alignment": written.aligned, "floor": written.floor_plane is not None}
    reasons = []
    for stage, result in results.items():
        accepted = result is not None and not result.refusals
        if accepted != there[stage]:
            said = verdict.refused or "nothing was written"
            refused = "not run" if result is None else "; ".join(result.refusals)
            reasons.append(f"{stage}: accepted by the nodes but not by the arrays: {refused}" if there[stage]
                           else f"{stage}: accepted by the arrays but not by the nodes: {said}")  # fmt: skip
        elif accepted and campaign.freedom[stage] and getattr(result, "covariance", None) is not None:
            off, covariance = _off(stage, written, result)
            squares = float(off @ np.linalg.solve(2.0 * covariance, off))
            found[f"nodes.{stage}.sigmas"] = np.sqrt(squares)
            if contradicts(squares, len(off)):
                far = f"{np.sqrt(squares):.1f} standard deviations from the arrays'"
                reasons.append(f"{stage}: the nodes' result is {far}")
    return found | {"nodes.agree": not reasons, "nodes.message": "; ".join(reasons)}


def _off(stage: str, written: CalibrationFile, result: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much what was written differs from a result, (6 n,) or (3,), and the result's covariance of it."""
    if stage == "floor":
        return floor_between(result.plane, written.floor_plane), result.covariance
    off = [log(written.to_left[name] @ inverse(pose)) for name, pose in result.to_first.items()]
    return np.concatenate(off), result.covariance_to_first


@lru_cache(maxsize=8)
def _asked(said: str) -> Campaign:
    """Return a campaign by its JSON, with its limit of memory set for this process."""
    campaign = Campaign.from_mapping(json.loads(said), "campaign")
    limit = int(campaign.memory_limit * 2**20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    return campaign


def serve() -> int:
    """Run the cases asked for on standard input, a JSON object a line, and answer with a line each, until it ends."""
    prepare_child()  # ends when the parent has exited, even during a case
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the parent's to answer: no case has crashed by it
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # a method that prints must not garble the answers
    answers.write("ready\n")
    for line in sys.stdin:
        request = json.loads(line)
        index, point = request["index"], request["point"]
        campaign = _asked(json.dumps(request["campaign"], sort_keys=True))
        try:
            if point is None:
                record = run_case(campaign, index)
            else:
                record = run_numbers(campaign, campaign.at(np.array(point)), tuple(request["seed"])) | {"index": index}
        except Exception as failure:
            # A defect of a method is a result of the campaign: it is kept, and the next case goes on.
            told = "out of memory" if isinstance(failure, MemoryError) else repr(failure)
            record = {"index": index, "status": "crashed", "message": told, "traceback": traceback.format_exc()}
        answers.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(serve())
