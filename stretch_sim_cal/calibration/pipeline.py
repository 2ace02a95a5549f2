"""The calibration of a robot's lidars, one, two or more, from clouds by lidar: alignment and floor.

Nodes, commands, campaigns, the verification and the Python API call it; they differ in where clouds come from and where
results go.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from stretch_sim_cal.calibration import methods
from stretch_sim_cal.calibration.clouds import cloud_of, given_clouds
from stretch_sim_cal.calibration.floor.support_method import JointFloor
from stretch_sim_cal.calibration.lidars import DescribedLidar, LidarAlignment
from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.calibration.results import AlignmentResult, FloorResult, LidarPoses
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings, accepting
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply, check_rigid, inverse
from stretch_sim_cal.sensor.sensor import of_two

Kind = TypeVar("Kind", AlignmentResult, FloorResult)
Clouds = Mapping[str, np.ndarray]
"""A cloud of each lidar by name, in the lidars' order: (N, 3), (N, 5) or structured (N,)."""


def calibrated(
    lidars: Mapping[str, DescribedLidar], clouds: Sequence[Clouds], nominal_footprint_from_base: np.ndarray,
    floor: bool = True, body: Mapping[str, Any] | None = None, accept: tuple[float, float] | None = None,
    units: Mapping[str, np.ndarray] | None = None,
) -> tuple[LidarPoses, FloorResult | None]:  # fmt: skip
    """Return the alignment by the default methods and, if accepted, the `floor`; arguments as of `LidarAlignment`."""
    footprint = nominal_footprint_from_base if floor else None
    aligned = solved(LidarAlignment(lidars, body, accept, units, footprint), clouds)
    if not (floor and aligned.accepted) or aligned.floor is not None:
        return aligned, aligned.floor if aligned.accepted else None
    lidars = placed(lidars, aligned.base_from_lidar)
    method = LidarFloor(methods.DEFAULT_FLOOR_METHOD, lidars, nominal_footprint_from_base, body, aligned.known, units)
    return aligned, solved(method, clouds)


def alignment_of(
    method: str, lidars: Mapping[str, DescribedLidar], body: Mapping[str, Any] | None = None,
    accept: tuple[float, float] | None = None, **given: Any,
) -> "LidarAlignment | PairwiseAlignment":  # fmt: skip
    """Return an alignment of `lidars` by a method's name: `add` takes `Clouds`, `solve` returns `LidarPoses`. `given`
    are further `AlignmentSettings`; `body` and `accept` are those of `LidarAlignment`."""
    if method == methods.DEFAULT_ALIGNMENT_METHOD or len(lidars) == 1:
        return LidarAlignment(lidars, body, accept, **given)
    return PairwiseAlignment(method, lidars, {**(body or {}), **accepting(accept), **given})


class PairwiseAlignment:
    """Aligns every lidar with the first one by a method for two, with the `settings` of each pair. The errors of the
    pairs count as independent, although they share the first lidar."""

    def __init__(self, method: str, lidars: Mapping[str, DescribedLidar], settings: Mapping[str, Any]):
        (self._first, first), *others = lidars.items()
        self._name = method
        self._base_from_first = first.base_from_lidar
        self._methods, kind = {}, methods.alignment_method(method)
        for name, other in others:
            of_pair = AlignmentSettings(
                base_from_left=first.base_from_lidar, sensor=of_two((first.sensor, other.sensor)),
                names=(self._first, name), **settings,
            )  # fmt: skip
            self._methods[name] = kind(inverse(first.base_from_lidar) @ other.base_from_lidar, of_pair)

    def new_place(self) -> None:
        """Begin with the clouds of another standing place, if the method takes several."""
        for method in self._methods.values():
            method.new_place()

    def another_place(self) -> Any:
        """Return the gain of a further standing place; None if the method has none, or of several pairs."""
        method, *others = self._methods.values()
        return None if others or not hasattr(method, "another_place") else method.another_place()

    def add(self, clouds: Clouds) -> None:
        """Take a cloud of each lidar."""
        for name, method in self._methods.items():
            method.add(*given_clouds(method, clouds[self._first], clouds[name]))

    def solve(self) -> LidarPoses:
        """Return the result, with the refusals and warnings of every pair. Raises `InputError` if the method returns
        none."""
        aligned = {
            name: _of_method(self._name, method.solve(), AlignmentResult, "right_to_left", 6)
            for name, method in self._methods.items()
        }
        return LidarPoses.of_pairs(self._first, self._base_from_first, aligned)


class LidarFloor:
    """Estimates the floor by one or more lidars at known poses, by a floor method's name. A method for two gets the
    points of the lidars beyond the second one as points of the second one."""

    def __init__(
        self, method: str, lidars: Mapping[str, DescribedLidar], nominal_footprint_from_base: np.ndarray,
        body: Mapping[str, Any] | None = None, observations: Observations | None = None,
        units: Mapping[str, np.ndarray] | None = None,
    ):  # fmt: skip
        """`lidars` by name at the poses of their alignment, `observations` those of it; the further arguments are those
        of `LidarAlignment`."""
        self._name = method
        self._names, poses = tuple(lidars), [lidar.base_from_lidar for lidar in lidars.values()]
        self._joint: JointFloor | None = None
        sensors = [lidar.sensor for lidar in lidars.values()]
        given = {"observations": observations if len(lidars) > 1 else None} | dict(body or {})
        if method == methods.DEFAULT_FLOOR_METHOD:
            known = None if units is None else tuple(units[name] for name in lidars)
            settings = FloorSettings(sensor=tuple(sensors), units=known, **given)
            self._joint = JointFloor(poses, nominal_footprint_from_base, settings, self._names)
            return
        first, second = (*poses, *poses)[:2]  # of a robot with one lidar the right one is the same
        right_to_left = np.eye(4) if len(poses) == 1 else inverse(first) @ second
        self._from_second = [inverse(second) @ pose for pose in poses]
        settings = FloorSettings(sensor=of_two((*sensors, *sensors)[:2]), **given)
        self._pooled = methods.floor_method(method)(first, right_to_left, nominal_footprint_from_base, settings)

    def add(self, clouds: Clouds) -> None:
        """Take a cloud of each lidar."""
        first, *others = (clouds[name] for name in self._names)
        if self._joint is not None:
            self._joint.add(first, *others)
            return
        second = others[0] if others else first[:0]
        if len(others) > 1:
            given = zip(self._from_second[1:], others, strict=True)
            second = np.concatenate([apply(pose, cloud_of(cloud, "further").points) for pose, cloud in given])
        self._pooled.add(*given_clouds(self._pooled, first, second))

    def solve(self) -> FloorResult:
        """Return the floor, with refusals if the data does not support it. Raises `InputError` if the method returns
        none."""
        result = (self._joint or self._pooled).solve()
        return _of_method(self._name, result, FloorResult, "footprint_from_base", 3)


def _of_method(name: str, result: Any, kind: type[Kind], transform: str, freedom: int) -> Kind:
    """Return what a method returned. Raises `InputError` naming the method if that is not of this `kind`, its
    `transform` (a field) is none, or it is accepted without a covariance (`freedom`, `freedom`)."""
    where = f"method '{name}': solve: its result"
    if not isinstance(result, kind):
        raise InputError(f"{where} is of type {type(result).__name__}, expected {kind.__name__}")
    if not (isinstance(result.refusals, list) and isinstance(result.warnings, list)):
        raise InputError(f"{where}: refusals and warnings have to be lists")
    check_rigid(getattr(result, transform), f"{where}: {transform}")
    covariance = np.asarray(result.covariance)
    known = covariance.shape == (freedom, freedom) and np.isfinite(covariance).all()
    if result.accepted and not (known and np.linalg.eigvalsh(covariance)[0] > 0.0):
        raise InputError(f"{where}: covariance is not a positive definite matrix ({freedom}, {freedom})")
    return result


def solved(method: Any, clouds: Iterable[Clouds]) -> Any:
    """Return the result of a method (`alignment_of`, `LidarFloor`) for clouds."""
    for each in clouds:
        method.add(each)
    return method.solve()


def together(clouds: Mapping[str, Sequence[np.ndarray]]) -> Iterator[dict[str, np.ndarray]]:
    """Yield one cloud of each lidar at a time, of equally many of each by name."""
    for each in zip(*clouds.values(), strict=True):
        yield dict(zip(clouds, each, strict=True))


def driven(array: Any, stations: Iterable[Any]) -> Any:
    """Return a `DrivenArray`'s result for stations: objects with `clouds` by lidar, `odometry`, perhaps a `sweep`."""
    for station in stations:
        array.new_station(station.odometry, getattr(station, "sweep", None))
        for each in together(station.clouds):
            array.add(each)
    return array.solve()


def placed(lidars: Mapping[str, DescribedLidar], poses: Mapping[str, np.ndarray]) -> dict[str, DescribedLidar]:
    """Return lidars at other poses (4, 4) in base_link."""
    return {name: replace(lidar, base_from_lidar=poses[name]) for name, lidar in lidars.items()}
