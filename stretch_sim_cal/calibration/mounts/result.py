"""Samples, settings and result of the calibration of the lidar extrinsics. Arrays only; poses are base_link_from_lidar
(4, 4), twists (tx, ty, tz, rx, ry, rz) in m and rad, in base_link."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.finding import Checked
from stretch_sim_cal.calibration.observability import Direction
from stretch_sim_cal.geometry.transforms import Poses, about_origin
from stretch_sim_cal.sensor.sensor import Sensors

FARTHEST, FARTHEST_ANGLE = 0.06, np.deg2rad(6.0)  # m, rad: the largest distance of a lidar from its described pose


@dataclass(frozen=True)
class MountSample:
    """The returns in one arm pose. `clouds` (N, 3), or (N, 5) with ring and intensity, by lidar are in its own frame,
    of any number of frames; `base_from_link` (4, 4) are the links' poses at the joint values. `joint_motions` has for
    each joint with an offset the twists (6,), per m or rad, of the links that it moves, `joint_values` its reading (m
    or rad). `joint_origins` (4, 4) has for each link with a parent the joint's origin in base_link, before its motion;
    `ancestors` the links between it and base_link, whose joint origins' errors move it as well."""

    name: str
    clouds: Mapping[str, np.ndarray]
    base_from_link: Poses
    joint_motions: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    ancestors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    joint_origins: Poses = field(default_factory=dict)
    joint_values: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MountSettings:
    """Lengths in m, angles in rad. `link_position` and `link_angle` are the prior standard deviations per axis of a
    link's pose on its parent, 0 for an exact model. `joint_offsets` names the joints whose errors are estimated: their
    zeros, with the prior `joint_prior`, in the result only with `offsets_asked_for`; the errors of their readings in
    every pose, with the prior `joint_reading`; and their scales (`residuals.SCALE_PER_READING`). `sensor` is the kind
    of all lidars or of each; None for spinning lidars of unknown make."""

    range_noise: float = 0.01
    link_position: float = 1e-3
    link_angle: float = np.deg2rad(0.1)
    joint_offsets: tuple[str, ...] = ()
    joint_prior: Mapping[str, float] = field(default_factory=dict)
    joint_reading: Mapping[str, float] = field(default_factory=dict)
    offsets_asked_for: bool = True
    sensor: Sensors = None


@dataclass(frozen=True)
class JointOffset:
    """The zero offset of a joint, in m, or in rad if `turns`, whether it is `separable` from the extrinsics with these
    poses, and its relative error of scale."""

    joint: str
    value: float
    standard_deviation: float
    separable: bool
    turns: bool = False
    scale: float = 0.0
    scale_deviation: float = 0.0

    @property
    def numbers(self) -> dict[str, float]:
        """The values with their standard deviations, for files."""
        return {"value": self.value, "standard_deviation": self.standard_deviation, "scale": self.scale,
                "scale_standard_deviation": self.scale_deviation}  # fmt: skip


@dataclass(frozen=True)
class LinkResidual:
    """The estimated error of a link: the twist (6,) in its frame about its centre, in m and rad and in `sigmas` of the
    model's uncertainty, by `num_points` returns; `released` as an outlier or not."""

    link: str
    motion: np.ndarray
    sigmas: float
    num_points: int
    released: bool = False


@dataclass(frozen=True)
class Residuals:
    """Returns whose rays meet the model, for pictures: `points` (N, 3) in base_link, `hits` (N, 3) of their rays,
    `distances` (N,) in m from the surface there, positive in front of it, `near` (N,) within the noise, `links` (N,)
    that their rays meet, `samples` (N,). Returns from behind the model are excluded."""

    points: np.ndarray
    hits: np.ndarray
    distances: np.ndarray
    near: np.ndarray
    links: np.ndarray
    samples: np.ndarray


@dataclass(frozen=True)
class StoredMounts:
    """The lidar extrinsics `base_from_lidar` (4, 4) by name, with the `covariance` (6 n, 6 n) over their twists in the
    same order, `true = exp(twist) @ estimate` in base_link."""

    base_from_lidar: dict[str, np.ndarray]
    covariance: np.ndarray

    def covariance_of(self, name: str) -> np.ndarray:
        """Return the covariance (6, 6) of one lidar's pose."""
        start = 6 * list(self.base_from_lidar).index(name)
        return self.covariance[start : start + 6, start : start + 6]

    def total_deviations_of(self, name: str) -> tuple[float, float]:
        """Return the `total_deviations` of one lidar's pose."""
        return total_deviations(self.covariance_of(name), self.base_from_lidar[name])


@dataclass(frozen=True)
class MountsResult(StoredMounts, Checked):
    """Estimated extrinsics; `information` (k, k) is that of all unknowns, links and joints included. `units` are the
    lidars' errors (k,), `scalar_covariance` (14 n, 14 n) that of their scalars, `directions` are by lidar."""

    rmse: float
    num_points: int
    num_samples: int
    directions: dict[str, list[Direction]]
    joint_offsets: list[JointOffset]
    links: list[LinkResidual]
    residuals: Residuals
    information: np.ndarray
    units: tuple[np.ndarray, ...] | None = field(default=None, repr=False)
    scalar_covariance: np.ndarray | None = field(default=None, repr=False)

    @property
    def method(self) -> str:
        return "robot_returns"

    @property
    def num_frames(self) -> int:
        """The number of arm poses, for files."""
        return self.num_samples


def total_deviations(covariance: np.ndarray, base_from_lidar: np.ndarray) -> tuple[float, float]:
    """Return the standard deviations of a lidar's position (m) and of its orientation (rad), all axes together."""
    about_lidar = at_lidar(covariance, base_from_lidar)
    return float(np.sqrt(np.trace(about_lidar[:3, :3]))), float(np.sqrt(np.trace(about_lidar[3:, 3:])))


def at_lidar(covariance: np.ndarray, base_from_lidar: np.ndarray) -> np.ndarray:
    """Return a covariance (6, 6) of twists in base_link as one of twists about the lidar's origin, in the same axes."""
    change = about_origin(base_from_lidar)
    return change @ covariance @ change.T
