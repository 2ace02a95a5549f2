"""The truth of a simulation, and how far a calibration is from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from stretch_sim_cal.geometry.planes import Plane, floor_between
from stretch_sim_cal.geometry.transforms import error, inverse, log, wrapped


class PairError(NamedTuple):
    """How far the pose of one lidar to another is from the truth: mm, deg, and NEES (see `nees`)."""

    mm: float
    deg: float
    nees: float


class FloorError(NamedTuple):
    """How far a floor is from the truth: height in mm, tilt in deg, and NEES."""

    height_mm: float
    tilt_deg: float
    nees: float


class WheelsError(NamedTuple):
    """How far a lidar's place against the wheels is from the truth: mm over x and y, yaw in deg, and NEES."""

    mm: float
    yaw_deg: float
    nees: float


@dataclass(frozen=True, eq=False)
class Truth:
    """Where the lidars of a simulated robot really are: `base_from_lidar`, their poses (4, 4) in base_link by name, and
    the `floor` in base_link, as it is if the first lidar is where the description has it; `footprint_from_lidar`, (4,
    4) by name, over the floor, about the centre about which the base turns."""

    base_from_lidar: Mapping[str, np.ndarray]
    floor: Plane
    footprint_from_lidar: Mapping[str, np.ndarray] = field(default_factory=dict)

    def transform(self, target: str, source: str) -> np.ndarray:
        """Return the transform (4, 4) that maps points of lidar `source` into the frame of lidar `target`, by name."""
        pose: np.ndarray = inverse(self.base_from_lidar[target]) @ self.base_from_lidar[source]
        return pose

    def pair_error(self, target: str, source: str, found: np.ndarray, covariance: np.ndarray) -> PairError:
        """Return the error of the transform `found` (4, 4) as of `transform`, with its covariance (6, 6)."""
        true = self.transform(target, source)
        distance, angle = error(true, found)
        return PairError(1e3 * distance, float(np.degrees(angle)), nees(log(true @ inverse(found)), covariance))

    def floor_error(self, plane: Plane, covariance: np.ndarray) -> FloorError:
        """Return the error of a floor in base_link, with its covariance (3, 3)."""
        off = floor_between(plane, self.floor)
        tilt = float(np.degrees(np.linalg.norm(off[1:])))
        return FloorError(1e3 * abs(float(off[0])), tilt, nees(off, covariance))

    def wheels_error(self, name: str, planar: np.ndarray, covariance: np.ndarray) -> WheelsError:
        """Return the error of a lidar's x, y and yaw against the wheels, (3,), with their covariance (3, 3)."""
        (x, y, yaw), pose = planar, self.footprint_from_lidar[name]
        turned = wrapped(np.arctan2(pose[1, 0], pose[0, 0]) - yaw)
        off = np.array([pose[0, 3] - x, pose[1, 3] - y, turned])
        return WheelsError(1e3 * float(np.hypot(*off[:2])), float(np.degrees(abs(turned))), nees(off, covariance))


@dataclass(frozen=True)
class Errors:
    """How far a calibration is from the truth: by pair of lidars, (target, source), the floor, None without one, and,
    of a robot that drove, each lidar against the `wheels`, by name."""

    pairs: dict[tuple[str, str], PairError] = field(default_factory=dict)
    floor: FloorError | None = None
    wheels: dict[str, WheelsError] = field(default_factory=dict)

    @property
    def mm(self) -> float:
        """The largest translation error of all pairs; 0 without any."""
        return max((pair.mm for pair in self.pairs.values()), default=0.0)

    @property
    def deg(self) -> float:
        """The largest rotation error of all pairs; 0 without any."""
        return max((pair.deg for pair in self.pairs.values()), default=0.0)

    @property
    def nees(self) -> float:
        """The largest NEES of all pairs, the floor and the wheels."""
        every = [each.nees for own in (self.pairs, self.wheels) for each in own.values()]
        return max(every + ([] if self.floor is None else [self.floor.nees]), default=0.0)

    def __str__(self) -> str:
        lines = [
            f"{target} from {source}: {off.mm:.3f} mm {off.deg:.4f} deg, NEES {off.nees:.2f}"
            for (target, source), off in self.pairs.items()
        ]
        if self.floor is not None:
            lines.append("floor: {:.3f} mm {:.4f} deg, NEES {:.2f}".format(*self.floor))
        for name, off in self.wheels.items():
            lines.append(f"{name} to the wheels: {off.mm:.3f} mm {off.yaw_deg:.4f} deg, NEES {off.nees:.2f}")
        return "\n".join(lines)


def nees(off: np.ndarray, covariance: np.ndarray) -> float:
    """Return the normalised estimation error squared of an error (N,), over N: 1 on average if consistent."""
    return float(off @ np.linalg.solve(covariance, off)) / len(off)
