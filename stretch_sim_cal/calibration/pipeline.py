"""The calibration of a robot's lidars, one, two or more, from clouds by lidar: align, find the floor, tell, save.

All that calibrate call it: nodes, commands, campaigns, the verification and the Python API differ in where clouds come
from and where results go.

The default alignment of more than two lidars is one estimate of all. Another one, which is a method for two, aligns
every lidar with the first one; what its pairs have in common, the first lidar's errors above all, it does not say, so
they count as independent. A floor method for two is given the lidars beyond the second one as if the second one had
seen their points.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from stretch_sim_cal.calibration.alignment.planes import SeenPair
from stretch_sim_cal.calibration.array import ArrayLidar, ArrayResult, LidarArray, with_lidars
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.clouds import cloud_of, given_clouds
from stretch_sim_cal.calibration.finding import Finding, coded
from stretch_sim_cal.calibration.methods import (
    DEFAULT_ALIGNMENT_METHOD,
    DEFAULT_FLOOR_METHOD,
    alignment_method,
    floor_method,
)
from stretch_sim_cal.calibration.mounts.file import each_mount
from stretch_sim_cal.calibration.mounts.result import MountSettings, MountsResult
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, proposed
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.results import ONE_LIDAR, AlignmentResult, FloorResult
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings, accepting
from stretch_sim_cal.calibration.summaries import (
    alignment_lines,
    alignment_numbers,
    array_lines,
    array_numbers,
    floor_lines,
    floor_numbers,
    mount_lines,
    mount_numbers,
)
from stretch_sim_cal.geometry.transforms import SIDES, adjoint, apply, inverse
from stretch_sim_cal.sensor.sensor import of_two

Clouds = Mapping[str, np.ndarray]
"""A cloud of each lidar by name, in the lidars' order: (N, 3), (N, 5) or structured (N,)."""
Aligned = AlignmentResult | ArrayResult
"""An alignment of two lidars, of one (`of_one_lidar`), or of all lidars of an array."""


def calibrated(
    lidars: Mapping[str, ArrayLidar], clouds: Sequence[Clouds], nominal_footprint_from_base: np.ndarray,
    floor: bool = True, body: Mapping[str, Any] | None = None, accept: tuple[float, float] | None = None,
    units: Mapping[str, np.ndarray] | None = None,
) -> tuple[Aligned, FloorResult | None]:  # fmt: skip
    """Return the alignment of `lidars` by the default methods and, if that is accepted, the `floor`; the further
    arguments are those of `LidarArray`."""
    if len(lidars) == 1:
        aligned: Aligned = AlignmentResult.of_one_lidar()
    else:
        footprint = nominal_footprint_from_base if floor else None
        aligned = solved(alignment_of(DEFAULT_ALIGNMENT_METHOD, lidars, body, accept, units, footprint), clouds)
    if isinstance(aligned, ArrayResult):
        return aligned, aligned.floor if aligned.accepted else None
    if floor and aligned.accepted:
        method = LidarFloor(
            DEFAULT_FLOOR_METHOD, placed(lidars, aligned), nominal_footprint_from_base, body, aligned.known, units
        )
        return aligned, solved(method, clouds)
    return aligned, None


def alignment_of(
    method: str, lidars: Mapping[str, ArrayLidar], body: Mapping[str, Any] | None = None,
    accept: tuple[float, float] | None = None, units: Mapping[str, np.ndarray] | None = None,
    nominal_footprint_from_base: np.ndarray | None = None, **given: Any,
) -> Any:  # fmt: skip
    """Return what aligns two or more `lidars` by a method's name: `add` takes `Clouds`, `solve` returns the result.

    With `nominal_footprint_from_base` (4, 4) the one estimate of more than two lidars, or of lidars with known mounts,
    includes the floor. `given` are further settings of a method for two; the other arguments are those of `LidarArray`.
    """
    mounted = any(lidar.mount is not None for lidar in lidars.values())
    if method == DEFAULT_ALIGNMENT_METHOD and (len(lidars) > len(SIDES) or mounted):
        with_floor = nominal_footprint_from_base is not None
        footprint = nominal_footprint_from_base if with_floor else np.eye(4)
        return LidarArray(lidars, footprint, with_floor, body, accept, units)
    settings = {**(body or {}), **accepting(accept), **given}
    if len(lidars) > len(SIDES):
        return PairedLidars(method, lidars, settings)
    return _PairAlignment(
        method, lidars, settings | ({} if units is None else {"units": tuple(units[name] for name in lidars)})
    )


class _PairAlignment:
    """Aligns two lidars by a method for two; what else the method offers (`new_place`, `another_place`, ...) is here,
    too."""

    def __init__(self, method: str, lidars: Mapping[str, ArrayLidar], settings: Mapping[str, Any]):
        self._names, (first, second) = tuple(lidars), lidars.values()
        self._method = alignment_method(method)(
            inverse(first.base_from_lidar) @ second.base_from_lidar,
            AlignmentSettings(
                base_from_left=first.base_from_lidar, sensor=of_two((first.sensor, second.sensor)), **settings
            ),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def add(self, clouds: Clouds, floor: bool = False) -> None:
        self._method.add(*given_clouds(self._method, *(clouds[name] for name in self._names)))


class PairedLidars:
    """Aligns every lidar with the first one by a method for two, with the `settings` of each pair."""

    def __init__(self, method: str, lidars: Mapping[str, ArrayLidar], settings: Mapping[str, Any]):
        self.method, (self._first, *others) = method, lidars
        self._base_from_first = lidars[self._first].base_from_lidar
        self._pairs = {
            name: _PairAlignment(method, {each: lidars[each] for each in (self._first, name)}, settings)
            for name in others
        }
        self._num_frames = 0

    def new_place(self) -> None:
        """Begin with the clouds of another standing place, if the method takes several."""
        for pair in self._pairs.values():
            pair.new_place()

    def add(self, clouds: Clouds, floor: bool = False) -> None:
        """Take a cloud of each lidar; the `floor` is not looked for."""
        self._num_frames += 1
        for pair in self._pairs.values():
            pair.add(clouds)

    def solve(self) -> ArrayResult:
        """Return the result, with the refusals and warnings of every pair."""
        found = {name: pair.solve() for name, pair in self._pairs.items()}
        poses = {self._first: self._base_from_first}
        poses |= {name: self._base_from_first @ result.right_to_left for name, result in found.items()}
        covariance, to_base = np.zeros((6 * len(poses), 6 * len(poses))), adjoint(self._base_from_first)
        for number, result in enumerate(found.values(), start=1):
            own = slice(6 * number, 6 * number + 6)
            covariance[own, own] = to_base @ result.covariance @ to_base.T
        pairs = [
            SeenPair((self._first, name), result.overlap, _told(result.refusals, name))
            for name, result in found.items()
        ]
        return ArrayResult(
            poses, covariance, pairs, None, {}, self._num_frames, max(result.rmse for result in found.values()),
            [said for pair in pairs for said in pair.refusals],
            [said for name, result in found.items() for said in _told(result.warnings, name)], self.method,
        )  # fmt: skip


def _told(said: Sequence[str], name: str) -> list[Finding]:
    return [coded(each).at(f"lidar {name}") for each in said]


class LidarFloor:
    """Finds the floor by one or more lidars from where they are known to be, by a floor method's name. The default
    method for more than two is one estimate of lidars and floor, refused if the lidars are."""

    def __init__(
        self, method: str, lidars: Mapping[str, ArrayLidar], nominal_footprint_from_base: np.ndarray,
        body: Mapping[str, Any] | None = None, observations: Observations | None = None,
        units: Mapping[str, np.ndarray] | None = None,
    ):  # fmt: skip
        """`lidars` by name at the poses that were found; of two, or one, what is known of their alignment, its
        `observations`; the further arguments as of `LidarArray`."""
        self._names, self._joint = tuple(lidars), None
        if len(lidars) > len(SIDES) and method == DEFAULT_FLOOR_METHOD:
            self._joint = LidarArray(lidars, nominal_footprint_from_base, body=body, units=units)
            return
        first, second = (*lidars.values(), *lidars.values())[:2]  # of a robot with one lidar the right one is the same
        right_to_left = np.eye(4) if second is first else inverse(first.base_from_lidar) @ second.base_from_lidar
        self._from_second = [inverse(second.base_from_lidar) @ lidar.base_from_lidar for lidar in lidars.values()]
        settings = FloorSettings(
            sensor=of_two((first.sensor, second.sensor)), observations=observations,
            units=None if units is None else tuple(units[name] for name in lidars), **(body or {}),
        )  # fmt: skip
        self._pooled = floor_method(method)(first.base_from_lidar, right_to_left, nominal_footprint_from_base, settings)

    def add(self, clouds: Clouds) -> None:
        """Take a cloud of each lidar."""
        if self._joint is not None:
            self._joint.add(clouds)
            return
        first, *others = (clouds[name] for name in self._names)
        second = others[0] if others else first[:0]
        if len(others) > 1:
            given = zip(self._from_second[1:], others, strict=True)
            second = np.concatenate([apply(pose, cloud_of(cloud, "further").points) for pose, cloud in given])
        self._pooled.add(*given_clouds(self._pooled, first, second))

    def solve(self) -> FloorResult:
        """Return the floor, with refusals if the data does not support it."""
        if self._joint is None:
            found: FloorResult = self._pooled.solve()
            return found
        array = self._joint.solve()
        assert array.floor is not None
        return replace(array.floor, refusals=array.refusals + array.floor.refusals)


def solved(method: Any, clouds: Iterable[Clouds]) -> Any:
    """Return what a method (`alignment_of`, `LidarFloor`) makes of clouds."""
    for each in clouds:
        method.add(each)
    return method.solve()


def together(clouds: Mapping[str, Sequence[np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """Yield a cloud of each lidar, of as many of each by name."""
    for each in zip(*clouds.values(), strict=True):
        yield dict(zip(clouds, each, strict=True))


def driven(array: Any, stations: Iterable[Any]) -> Any:
    """Return what a `DrivenArray` makes of where a robot stood, any objects with `clouds` by lidar and `odometry`."""
    for station in stations:
        array.new_station(station.odometry)
        for each in together(station.clouds):
            array.add(each)
    return array.solve()


def placed(lidars: Mapping[str, ArrayLidar], aligned: Aligned) -> dict[str, ArrayLidar]:
    """Return lidars where an alignment has them."""
    if isinstance(aligned, ArrayResult):
        poses = aligned.base_from_lidar
    else:
        first = next(iter(lidars.values())).base_from_lidar
        poses = dict(zip(lidars, (first, first @ aligned.right_to_left), strict=False))
    return {name: replace(lidar, base_from_lidar=poses[name]) for name, lidar in lidars.items()}


class Stage(NamedTuple):
    """A part of a result: its `name`, the `found` object with refusals and warnings, its `numbers` and `lines`, and the
    line that proposes a further standing place or pose, "" without one."""

    name: str
    found: Any
    numbers: dict[str, Any]
    lines: list[str]
    proposal: str = ""


def alignment_stage(aligned: Aligned, described: Mapping[str, np.ndarray], another_place: Any = None) -> Stage:
    """Return an alignment of lidars, which the description has at the poses `described` (4, 4), and what
    `another_place` would gain."""
    if isinstance(aligned, ArrayResult):
        numbers = array_numbers(aligned, described)
        return Stage("lidars", aligned, numbers, array_lines(aligned, numbers))
    if aligned.method == ONE_LIDAR:
        return Stage("alignment", aligned, {}, ["one lidar: there is nothing to align"])
    left, right = described.values()
    numbers = alignment_numbers(aligned, inverse(left) @ right, left, another_place)
    lines = alignment_lines(aligned, numbers)
    return Stage("alignment", aligned, numbers, lines, lines[-1].strip() if numbers["further_place"] else "")


def floor_stage(floor: FloorResult, nominal_footprint_from_base: np.ndarray) -> Stage:
    """Return a floor against that of the description."""
    numbers = floor_numbers(floor, nominal_footprint_from_base)
    return Stage("floor", floor, numbers, floor_lines(floor, numbers))


def mounts_stage(result: MountsResult, robot: MountedRobot, settings: MountSettings, file: CalibrationFile) -> Stage:
    """Return the lidars' extrinsics that were found of a robot, those that the file has no returns of by its transforms
    to the left lidar."""
    numbers = mount_numbers(result, robot.nominal, each_mount(file, result))
    further = proposed(result, robot, settings)
    lines = mount_lines(result, numbers, further, robot.profile)
    return Stage("mounts", result, numbers, lines, "" if further is None else lines[-1].strip())


def with_aligned(file: CalibrationFile, aligned: Aligned, robot_id: str) -> CalibrationFile:
    """Return the file with the transforms of all lidars to the first one. Raises `Refused` for a refused alignment."""
    if isinstance(aligned, ArrayResult):
        return with_lidars(file, aligned, robot_id)
    return file.with_alignment(aligned, robot_id)
