"""What a campaign is: distributions over rooms, lidars, robots and recordings, from which a case draws its inputs."""

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy.special import chdtrc, ndtri

from stretch_sim_cal import validate
from stretch_sim_cal.calibration import methods
from stretch_sim_cal.conventions.spawned import spawned_robot
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import find_shared, is_path, named_in, read_text, read_yaml, share_directory
from stretch_sim_cal.robot.profile import load_profile, profile_called
from stretch_sim_cal.ros.node_commands import STAGE_NODES
from stretch_sim_cal.sensor.sensor import DEFAULT_SENSOR, load_sensor


class Input(NamedTuple):
    """A number that may differ from case to case: its value if a campaign does not say, its bounds, its meaning. It is
    a whole number if its default is."""

    default: float
    low: float
    high: float
    meaning: str


INPUTS = {
    "room.length": Input(7.0, 2.5, 60.0, "m, along x"),
    "room.width": Input(5.0, 2.5, 60.0, "m, along y"),
    "room.height": Input(2.6, 2.0, 12.0, "m"),
    "room.furniture": Input(8, 0, 60, "pieces: cabinets, tables, chairs, columns, balls"),
    "room.people": Input(0, 0, 10, "number of people who walk to and fro"),
    "room.glass": Input(0.0, 0.0, 1.0, "share of a long wall that is panes, a corridor behind"),
    "room.mirror": Input(0.0, 0.0, 1.0, "share of a long wall that is mirrors"),
    "room.floor_rms": Input(0.0, 0.0, 0.05, "m, root mean square of the floor's unevenness"),
    "room.wall_rms": Input(0.0, 0.0, 0.05, "m, root mean square of the walls' unevenness"),
    "room.x": Input(0.0, -1.0, 1.0, "position of the robot between the walls"),
    "room.y": Input(0.0, -1.0, 1.0, "position of the robot between the walls"),
    "room.yaw_deg": Input(0.0, -180.0, 180.0, "heading of the robot"),
    "lidar.unit": Input(1.0, 0.0, 5.0, "standard deviations of the units, as multiples of the sensor file's"),
    "lidar.noise": Input(1.0, 0.0, 10.0, "range noise, as a multiple of the sensor file's"),
    "lidar.driver_corrects": Input(0, 0, 1, "whether the driver corrects optical centre and firing times"),
    "mount.translation_mm": Input(5.0, 0.0, 50.0, "distance of each lidar from its described pose"),
    "mount.rotation_deg": Input(1.0, 0.0, 5.0, "rotation of each lidar from its described pose"),
    "base.height_mm": Input(0.0, -30.0, 30.0, "height error of base_link"),
    "base.tilt_deg": Input(0.0, 0.0, 3.0, "tilt of base_link"),
    "robot.payload": Input(0, 0, 1, "whether the tool, if there is one, holds a box"),
    "recording.alignment_frames": Input(20, 1, 200, "pairs of scans for the alignment"),
    "recording.floor_frames": Input(10, 1, 200, "pairs of scans for the floor"),
    "recording.moved_mm": Input(0.0, 0.0, 500.0, "distance by which the robot is pushed during the alignment"),
    "recording.places": Input(1, 1, 6, "standing places at most: after a refusal of the alignment the robot is turned"),
    "recording.mounts_frames": Input(2, 1, 50, "pairs of scans in each of the arm's poses for the mounts"),
    "robot.links_mm": Input(0.0, 0.0, 10.0, "joint-origin errors of the links, one sigma per axis"),
    "robot.links_deg": Input(0.0, 0.0, 2.0, "their rotations, one sigma per axis"),
    "robot.tool": Input(0, 0, 6, "index in `TOOLS` of the arm's tool; 0 is the default"),
    "robot.zeros_mm": Input(0.0, 0.0, 30.0, "one sigma of the zeros of linear joints"),
    "robot.zeros_deg": Input(0.0, 0.0, 10.0, "one sigma of the zeros of turning joints"),
    "recording.body_shape_frames": Input(3, 1, 50, "pairs of scans in each of the arm's poses for the body shape"),
    "recording.drive_frames": Input(5, 1, 50, "scans of each lidar at each stop of a drive"),
    "odometry.scale": Input(0.01, 0.0, 0.1, "one sigma of the odometry's scale errors: along x and y, of angles"),
    "odometry.slip_mm": Input(5.0, 0.0, 100.0, "slip of the base in 1 m rolled by the wheels; and 0.04 deg for each"),
}
"""In the order in which a case draws them; a new one comes last, so that known cases stay as they are."""
AXES = 64  # of the sequence that inputs are drawn from: room for new ones
TOOLS = tuple(f"eoa_wrist_dw4_tool_{name}" for name in ("calibration", "nil", "pg4", "sg4", "sg4_v2", "tablet"))
"""The vendor's tools, from 1 on."""
OF_THE_STRETCH = ("robot.payload", "robot.tool")  # inputs that another robot does not have

QUANTITIES = {
    "alignment.translation_mm": "lidar to lidar, translation / mm",
    "alignment.rotation_deg": "lidar to lidar, rotation / deg",
    "floor.height_mm": "floor, height / mm",
    "floor.tilt_deg": "floor, tilt / deg",
    "mounts.translation_mm": "lidar extrinsics, largest translation error / mm",
    "mounts.rotation_deg": "lidar extrinsics, largest rotation error / deg",
    "drive.translation_mm": "lidars to the wheels and floor, largest translation error / mm",
    "drive.rotation_deg": "lidars to the wheels and floor, largest rotation error / deg",
    "drive.between_mm": "lidar to lidar by driving, translation / mm",
    "drive.height_mm": "lidars over the floor by driving, height / mm",
    "drive.lever_mm": "lidars to the centre of rotation / mm",
    "drive.yaw_deg": "lidars to the direction of driving / deg",
    "body_shape.protrusion_mm": "protrusion of the robot from its shape, at the samples' poses / mm",
    "body_shape.between_mm": "protrusion of the robot from its shape, at poses between / mm",
    "body_shape.area_ratio": "area of the shape over that of the smallest capsule",
}
"""Errors by the names that limits and results have them under; of several lidars the largest."""
OF_LIDARS = ("alignment", "mounts", "drive")
"""Stages that have a result of each lidar: to the left one, on the robot, and against its wheels."""
STAGES = tuple(STAGE_NODES)
STAGE_LISTS = [["alignment"]] + [["alignment", "floor", *last] for last in ([], ["mounts"], ["drive"], ["body_shape"])]
METHODS = {"alignment": methods.DEFAULT_ALIGNMENT_METHOD, "floor": methods.DEFAULT_FLOOR_METHOD}
"""The default methods of the default stages."""
WRONG = 4.0
"""Standard deviations of a single number that are as rare as the error of an accepted result that is just wrong."""
NOT_IN_CASES = ("commands", "ros", "studies")  # packages that no case is computed by
QUANTILES: dict[str, tuple[int | None, Callable[..., float]]] = {
    "constant": (1, lambda p, value: value),
    "uniform": (2, lambda p, low, high: low + p * (high - low)),
    "log_uniform": (2, lambda p, low, high: np.exp(np.log(low) + p * np.log(high / low))),
    "integer": (2, lambda p, low, high: np.floor(low + p * (high - low + 1))),
    "normal": (2, lambda p, mean, deviation: mean + deviation * np.clip(ndtri(p), -4.0, 4.0)),
    "half_normal": (1, lambda p, deviation: deviation * min(ndtri(0.5 + p / 2), 4.0)),
    "choice": (None, lambda p, *values: values[int(p * len(values))]),
}
"""Kinds of distributions: how many numbers each takes (None: any number of them), and its quantile of a probability.
Normal ones are cut off at four standard deviations; `integer` includes both ends."""


def as_rare_as(squares: np.ndarray | float, freedom: int) -> np.ndarray:
    """Return the standard deviations of a single number that are as rare as squared errors (N,) over a covariance with
    so many degrees of freedom."""
    rarity = chdtrc(freedom, squares)
    with np.errstate(divide="ignore"):  # rarer than a float can say: beyond 37 the distance itself
        return np.where(rarity > 0.0, -ndtri(0.5 * rarity), np.sqrt(squares))


def contradicts(squares: np.ndarray | float, freedom: int) -> np.ndarray:
    """Return whether squared errors (N,) over a covariance with so many degrees of freedom are too large for it."""
    return as_rare_as(squares, freedom) > WRONG


@dataclass(frozen=True)
class Distribution:
    """How an input is distributed: a `kind` of `QUANTILES` with its `numbers`, and 0 beyond a `share` of the cases."""

    kind: str
    numbers: tuple[float, ...]
    share: float = 1.0

    @classmethod
    def read(cls, spec: Any, name: str, where: str) -> "Distribution":
        """Return a distribution as written: a number, or {kind: numbers}, perhaps with `in_share` of the cases."""
        if isinstance(spec, int | float) and not isinstance(spec, bool):
            spec = {"constant": spec}
        if not isinstance(spec, Mapping):
            raise InputError(f"{where}: is {spec!r}; expected a number or a mapping like {{uniform: [1, 2]}}")
        spec = dict(spec)
        share = validate.number(spec.pop("in_share", 1.0), f"{where}: in_share", 1e-6, 1.0)
        if len(spec) != 1 or (kind := next(iter(spec))) not in QUANTILES:
            raise InputError(f"{where}: give one of {', '.join(QUANTILES)}, and in_share if it is 0 in the other cases")
        values = spec[kind] if isinstance(spec[kind], list) else [spec[kind]]
        found = cls(kind, validate.numbers(values, QUANTILES[kind][0] or len(values) or 1, f"{where}: {kind}"), share)
        if kind in ("uniform", "log_uniform", "integer") and found.numbers[0] > found.numbers[1]:
            raise InputError(f"{where}: {kind}: {found.numbers[0]:g} is above {found.numbers[1]:g}")
        if (kind == "log_uniform" and found.numbers[0] <= 0) or ("normal" in kind and found.numbers[-1] < 0):
            raise InputError(f"{where}: {kind}: has to be greater than zero")
        (low, high), known = found.extent, INPUTS[name]
        if kind in ("constant", "choice", "integer") and isinstance(known.default, int):
            for value in found.numbers:
                if value != round(value):
                    raise InputError(f"{where}: {kind}: is {value:g}; expected a whole number")
        if low < known.low or high > known.high:
            raise InputError(f"{where}: reaches from {low:g} to {high:g}, allowed is {known.low:g} to {known.high:g}")
        return found

    def at(self, probability: float) -> float:
        """Return the quantile of that probability (from 0 to 1)."""
        if probability >= self.share:
            return 0.0
        return float(QUANTILES[self.kind][1](min(probability / self.share, 1.0 - 1e-12), *self.numbers))

    @property
    def extent(self) -> tuple[float, float]:
        ends = [self.at(0.0), self.at(np.nextafter(self.share, 0.0)), *(self.numbers if self.kind == "choice" else ())]
        ends += [0.0] * (self.share < 1)
        return min(ends), max(ends)


@dataclass(frozen=True)
class Campaign:
    """A campaign: its `inputs` by name, the methods, and what is to be shown.

    At least the `share` of all cases has to be calibrated within `limits` (by the names of `QUANTITIES`), shown with
    `confidence`. A case beyond `time_limit` (s) or `memory_limit` (MB) has failed. `nodes` is the share of cases that
    also run through the real nodes, `cases` the default number, `robot` a profile by name or path, "" for the
    Stretch."""

    name: str
    description: Any = ""
    seed: Annotated[int, validate.Bounds(0, 2**31 - 1)] = 1
    sensor: str = DEFAULT_SENSOR
    stages: tuple[str, ...] = tuple(METHODS)
    methods: Mapping[str, str] = field(default_factory=lambda: dict(METHODS))
    inputs: Mapping[str, Distribution] = field(default_factory=dict)
    limits: Annotated[Mapping[str, float], validate.Bounds(1e-9, 1e6)] = field(default_factory=dict)
    share: Annotated[float, validate.Bounds(0.01, 0.9999)] = 0.99
    confidence: Annotated[float, validate.Bounds(0.5, 0.9999)] = 0.95
    time_limit: Annotated[float, validate.Bounds(1.0, 1e5)] = 300.0
    memory_limit: Annotated[float, validate.Bounds(1000.0, 1e6)] = 6000.0
    nodes: Annotated[float, validate.Bounds(0.0, 1.0)] = 0.0
    cases: Annotated[int, validate.Bounds(1, 10**7)] = 100
    robot: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, name: str | Path) -> "Campaign":
        """Return the campaign of that name in `config/campaigns/`, or in a file; its key `like` names one that gives
        the other keys. Raises `InputError` naming file and key."""
        path = find_shared("config/campaigns", name, ".yaml")
        data = read_yaml(path)
        if "like" in data:
            like = validate.text(data.pop("like"), f"{path}: like")
            other = path.parent / f"{like}.yaml"
            data = read_yaml(other if other.is_file() else find_shared("config/campaigns", like, ".yaml")) | data
            if "like" in data:
                raise InputError(f"{path}: like: {like} itself has a key like; name its source")
        return cls.from_mapping(data, str(path))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], source: str) -> "Campaign":
        """Return the campaign of a file. Raises `InputError` naming `source` and the key."""
        data = dict(validate.mapping(data, {*cls.__dataclass_fields__} - {"data"} | {"like"}, source))
        if "description" in data:  # a number or a date as well
            data["description"] = str(data["description"] or "")
        for key in ("robot", "sensor"):
            if key in data:  # as an absolute path: workers start elsewhere
                data[key] = named_in(source, validate.text(data[key], f"{source}: {key}"))
        usual = {"sensor": load_profile(data["robot"]).sensor} if "robot" in data else {}
        inputs = validate.mapping(data.get("inputs"), set(INPUTS), f"{source}: inputs")
        drawn = {name: Distribution.read(spec, name, f"{source}: inputs: {name}") for name, spec in inputs.items()}
        read = usual | {key: each for key, each in data.items() if key != "inputs"}
        found = validate.record(cls, read, source, inputs=drawn, data=data)
        validate.folder_name(found.name, f"{source}: name")
        stages = list(found.stages)
        if stages not in STAGE_LISTS:
            said = " or ".join(f"[{', '.join(names)}]" for names in STAGE_LISTS)
            raise InputError(f"{source}: stages: is {stages!r}; expected {said}")
        if "drive" in stages and profile_called(found.robot).base is None:
            raise InputError(f"{source}: stages: drive: {found.robot} has no 'base:', so it does not drive; add it")
        validate.mapping(data.get("methods"), set(METHODS), f"{source}: methods")
        found = replace(found, methods=METHODS | dict(found.methods))
        try:
            for stage in METHODS:
                found._method(stage)
        except InputError as error:
            raise InputError(f"{source}: methods: {stage}: {error}") from error
        if validate.BETWEEN in found.sensor:
            raise InputError(f"{source}: sensor: is '{found.sensor}'; a campaign's lidars are all of one kind; name it")
        if load_sensor(found.sensor).unit is not None:
            raise InputError(f"{source}: sensor: {found.sensor} is a unit file; a campaign draws units; name its kind")
        validate.mapping(data.get("limits"), set(found.quantities), f"{source}: limits")
        for name in OF_THE_STRETCH:
            if found.robot and name in inputs:
                raise InputError(f"{source}: inputs: {name}: only a Stretch has it; remove it, or the key robot")
        return found

    def of_robot(self, robot: str) -> "Campaign":
        """Return the campaign with another robot, a profile by name or path, and the lidars that it has."""
        kept = {key: value for key, value in self.data.items() if key != "sensor"}
        kept["inputs"] = {key: value for key, value in kept.get("inputs", {}).items() if key not in OF_THE_STRETCH}
        return Campaign.from_mapping(kept | {"robot": robot, "name": f"{self.name}_{Path(robot).stem}"}, "--robot")

    def _method(self, stage: str) -> Any:
        return getattr(methods, f"{stage}_method")(self.methods[stage])

    @property
    def quantities(self) -> dict[str, str]:
        """The stage of each of `QUANTITIES` that the campaign finds, by name."""
        return {name: stage for name in QUANTITIES if (stage := name.partition(".")[0]) in self.stages}

    @property
    def freedom(self) -> dict[str, int]:
        """How many numbers each stage of the campaign estimates; 0 of one without a covariance."""
        lidars = len(profile_called(self.robot).lidars)
        known = {"alignment": 6 * (lidars - 1), "floor": 3, "mounts": 6 * lidars, "body_shape": 0, "drive": 6 * lidars}
        return {stage: known[stage] for stage in self.stages}

    @property
    def key(self) -> str:
        """A digest of all that defines the cases, with the user's own files: with equal `code`, equal keys give equal
        cases."""
        asked = ("name", "description", "limits", "share", "confidence", "cases")
        said = {name: value for name, value in self.data.items() if name not in asked}
        if files := self._own_files():
            said["files"] = files
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def _own_files(self) -> dict[str, str]:
        """Return the contents of the files of robot and lidars that are given as paths, by path, and the robot's
        description; `code` has those that are shipped."""
        paths, found = [self.sensor], {}
        if is_path(self.robot):
            robot = spawned_robot(load_profile(self.robot))
            found["description"] = robot.text
            paths += [robot.profile.source, robot.profile.lidar_geometry]
        return found | {path: read_text(path) for path in paths if Path(path).is_absolute()}

    @property
    def code(self) -> str:
        """A digest of the sources and shared data that compute its cases, with those of methods of other packages."""
        package, shared = Path(__file__).parents[1], share_directory()
        found = {path.relative_to(package): path for path in package.rglob("*.py")}
        found = {name: path for name, path in found.items() if name.parts[0] not in NOT_IN_CASES}
        for pattern in ("config/*.yaml", "config/robots/*", "models/*", "worlds/meshes/*"):
            found |= {path.relative_to(shared): path for path in shared.glob(pattern) if path.is_file()}
        found |= {Path(stage): Path(inspect.getfile(self._method(stage))) for stage in METHODS}
        digest = hashlib.sha256()
        for name in sorted(found):
            content = found[name].read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()[:16]

    def numbers(self, index: int) -> dict[str, float]:
        """Return the inputs of case `index` by name: point `index` of a scrambled Sobol sequence."""
        from scipy.stats import qmc  # takes a second of CPU, and only what computes cases needs it

        sequence = qmc.Sobol(AXES, scramble=True, rng=self.seed)
        if index:
            sequence.fast_forward(index)
        return self.at(sequence.random(1)[0, : len(INPUTS)])

    def at(self, point: np.ndarray) -> dict[str, float]:
        """Return the inputs by name at a point (D,) of the unit cube, an axis per input in the order of `INPUTS`."""
        found = {}
        for (name, known), probability in zip(INPUTS.items(), point, strict=True):
            value = self.inputs[name].at(float(probability)) if name in self.inputs else known.default
            found[name] = float(round(value) if isinstance(known.default, int) else value)
        return found

    @property
    def varied(self) -> list[str]:
        return [name for name in INPUTS if name in self.inputs and len(set(self.inputs[name].extent)) > 1]
