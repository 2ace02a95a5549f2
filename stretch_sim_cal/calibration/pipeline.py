"""The methods by name on a robot with any number of lidars.

The default alignment is one estimate of all lidars. Another one, which is a method for two, aligns every lidar with the
first one; what its pairs have in common, the first lidar's errors above all, it does not say, so they count as
independent. A floor method for two is given the lidars beyond the second one as if the second one had seen their
points.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.alignment.planes import SeenPair
from stretch_sim_cal.calibration.array import ArrayLidar, ArrayResult, LidarArray
from stretch_sim_cal.calibration.clouds import cloud_of, given_clouds
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.methods import (
    DEFAULT_ALIGNMENT_METHOD,
    DEFAULT_FLOOR_METHOD,
    alignment_method,
    floor_method,
)
from stretch_sim_cal.calibration.results import FloorResult
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings, accepting
from stretch_sim_cal.geometry.transforms import adjoint, apply, inverse


def array_alignment(
    method: str, lidars: Mapping[str, ArrayLidar], body: Mapping[str, Any] | None = None,
    accept: tuple[float, float] | None = None,
) -> "LidarArray | PairedLidars":  # fmt: skip
    """Return what aligns two or more `lidars` by a method's name; `body` and `accept` as of `LidarArray`."""
    if alignment_method(method) is alignment_method(DEFAULT_ALIGNMENT_METHOD):
        return LidarArray(lidars, np.eye(4), floor=False, body=body, accept=accept)
    return PairedLidars(method, lidars, body, accept)


class PairedLidars:
    """Aligns every lidar with the first one by a method for two; `add` takes a cloud of each, `solve` returns the
    result."""

    def __init__(
        self, method: str, lidars: Mapping[str, ArrayLidar], body: Mapping[str, Any] | None = None,
        accept: tuple[float, float] | None = None,
    ):  # fmt: skip
        self.method, self._lidars = method, dict(lidars)
        self._first, *others = self._lidars
        first = self._lidars[self._first]
        self._pairs = {
            name: alignment_method(method)(
                inverse(first.base_from_lidar) @ lidars[name].base_from_lidar,
                AlignmentSettings(
                    base_from_left=first.base_from_lidar, sensor=(first.sensor, lidars[name].sensor), **(body or {}),
                    **accepting(accept),
                ),
            ) for name in others
        }  # fmt: skip
        self._num_frames = 0

    def new_place(self) -> None:
        """Begin with the clouds of another standing place, if the method takes several."""
        for pair in self._pairs.values():
            pair.new_place()

    def add(self, clouds: Mapping[str, np.ndarray], floor: bool = False) -> None:
        """Take a cloud of each lidar by name, as of `LidarArray.add`; the `floor` is not looked for."""
        self._num_frames += 1
        for name, pair in self._pairs.items():
            pair.add(*given_clouds(pair, clouds[self._first], clouds[name]))

    def solve(self) -> ArrayResult:
        """Return the result, with the refusals and warnings of every pair."""
        found = {name: pair.solve() for name, pair in self._pairs.items()}
        base_from_first = self._lidars[self._first].base_from_lidar
        poses = {self._first: base_from_first}
        poses |= {name: base_from_first @ result.right_to_left for name, result in found.items()}
        covariance, to_base = np.zeros((6 * len(poses), 6 * len(poses))), adjoint(base_from_first)
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


def _told(said: list[str], name: str) -> list[Finding]:
    """Return a method's warnings or refusals, said of one lidar."""
    coded = (each if isinstance(each, Finding) else Finding("other", each) for each in said)
    return [each.at(f"lidar {name}") for each in coded]


class ArrayFloor:
    """Finds the floor by two or more lidars from where they are known to be, by a floor method's name; `add` takes a
    cloud of each, `solve` returns the result. The default method is one estimate of lidars and floor, refused if the
    lidars are."""

    def __init__(
        self, method: str, lidars: Mapping[str, ArrayLidar], nominal_footprint_from_base: np.ndarray,
        body: Mapping[str, Any] | None = None,
    ):  # fmt: skip
        """`lidars` by name at the poses that were found; the further arguments as of `LidarArray`."""
        self._names, self._joint = tuple(lidars), None
        if floor_method(method) is floor_method(DEFAULT_FLOOR_METHOD):
            self._joint = LidarArray(lidars, nominal_footprint_from_base, body=body)
            return
        first, second = (lidars[name] for name in self._names[:2])
        self._from_second = [inverse(second.base_from_lidar) @ lidar.base_from_lidar for lidar in lidars.values()]
        self._pooled = floor_method(method)(
            first.base_from_lidar, inverse(first.base_from_lidar) @ second.base_from_lidar,
            nominal_footprint_from_base, FloorSettings(sensor=(first.sensor, second.sensor), **(body or {})),
        )  # fmt: skip

    def add(self, clouds: Mapping[str, np.ndarray]) -> None:
        """Take a cloud of each lidar by name, as of `LidarArray.add`."""
        if self._joint is not None:
            self._joint.add(clouds)
            return
        first, second, *further = (clouds[name] for name in self._names)
        if further:
            given = zip(self._from_second[1:], (second, *further), strict=True)
            second = np.concatenate([apply(pose, cloud_of(cloud, "further").points) for pose, cloud in given])
        self._pooled.add(*given_clouds(self._pooled, first, second))

    def solve(self) -> FloorResult:
        """Return the floor, with refusals if the data does not support it."""
        if self._joint is None:
            found: FloorResult = self._pooled.solve()
            return found
        array = self._joint.solve()
        floor = array.floor
        assert floor is not None
        return replace(floor, refusals=array.refusals + floor.refusals)
