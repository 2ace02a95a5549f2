"""Capturing what the lidars see of the arm in one pose: a few pairs of clouds, cropped around the robot and thinned."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.observations import Observations
from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.geometry.points import voxel_keys
from stretch_sim_cal.geometry.transforms import SIDES, apply
from stretch_sim_cal.ros.collection.motion_state import ArmState
from stretch_sim_cal.ros.collection.settings import CollectionSettings
from stretch_sim_cal.ros.listening.cloud_pairs import CloudPair, CloudPairs
from stretch_sim_cal.ros.listening.joints import JOINT_STATES

BELOW_FLOOR = 0.5
# Heights (m) up to which a point is floor, well below where an outline begins to count (0.06 m).
FLOOR_WITHIN = 0.04
# Pairs scanned before the arm stood still, one after the other, that are no mere latency any more.
STALE_PAIRS = 30


@dataclass(frozen=True)
class Placement:
    """Where base_link and both lidars are by the calibration, in the calibrated footprint: 4x4 each; and what the alignment
    observed, which knows the lidars' own errors."""

    footprint_from_base: np.ndarray
    footprint_from_left: np.ndarray
    footprint_from_right: np.ndarray
    observations: Observations | None = None

    def points(self, side: int, cloud: np.ndarray) -> np.ndarray:
        """Return the points (N, 3) of a lidar's returns (N, 3 or 5) in the calibrated footprint, with the lidar's own errors
        taken out as far as the calibration knows them."""
        own = cloud[:, :3] if self.observations is None else self.observations.corrected(side, cloud)
        return apply((self.footprint_from_left, self.footprint_from_right)[side], own)


@dataclass(frozen=True)
class Capture:
    """What was seen: `points` (N, 3) in the calibrated footprint, and as `left` and `right` (N, 3 or 5), with
    ring and intensity, in their lidar's own frame.

    All are float32 and hold the same returns, `points` the left ones first. `actual` are the arm's joints at that
    time, `joints` all of the description's.
    """

    points: np.ndarray
    left: np.ndarray
    right: np.ndarray
    actual: dict[str, float]
    joints: dict[str, float]


class Captures:
    """Takes captures; listens to the lidars only while it does, since clouds are expensive to send and to simulate."""

    def __init__(self, context: Any, options: Any, state: ArmState, watchdog: Any, settings: CollectionSettings):
        self._context = context
        self._options = options
        self._state = state
        self._watchdog = watchdog
        self._settings = settings

    def take(self, placement: Placement) -> Capture:
        """Wait until the arm stands still, and capture. Raises `RunFailure` (watchdog) where no clouds come."""
        self._wait_until_settled()
        pairs: list[CloudPair] = []
        clouds = CloudPairs(self._context, self._options, self._watchdog, on_pair=pairs.append)
        try:
            return self._capture(pairs, placement)
        finally:
            clouds.close()

    def _capture(self, pairs: list[CloudPair], placement: Placement) -> Capture:
        """Return the capture from the first pairs that were scanned after the arm had settled."""
        settled = self._settled_at
        positions: list[dict[str, float]] = []
        used: list[CloudPair] = []
        stale = 0
        while len(used) < self._settings.frames:
            self._context.spin_once(timeout=0.05)
            self._watchdog.tick()
            if self._settled_at != settled:  # it moved after all: what was scanned meanwhile is not of one pose
                settled = self._settled_at
                used.clear()
                positions.clear()
            fresh = [pair for pair in pairs if pair.stamp >= settled]
            stale = 0 if fresh else stale + len(pairs)
            if stale > STALE_PAIRS:
                behind = 1e-9 * (self._state.stamp - pairs[-1].stamp)
                raise RunFailure(
                    f"the clouds' stamps are {behind:.1f} s behind those of {JOINT_STATES}: it cannot be told which were "
                    "scanned after the arm stood still; synchronise the lidars' clocks with the robot's"
                )
            pairs.clear()
            used += fresh
            positions += [dict(self._state.positions) for _ in fresh]
        left, right = (np.concatenate([getattr(pair, side) for pair in used]) for side in SIDES)
        left = cropped(left, placement.footprint_from_left, self._settings)
        right = cropped(right, placement.footprint_from_right, self._settings)
        points = np.concatenate([placement.points(side, cloud) for side, cloud in enumerate((left, right))])
        joints = {name: float(np.mean([values[name] for values in positions])) for name in positions[0]}
        return Capture(points, left, right, self._state.arm, joints)

    @property
    def _settled_at(self) -> int:
        return self._state.still_since + round(self._settings.settle_time * 1e9)

    def _wait_until_settled(self) -> None:
        while self._state.stamp < self._settled_at:
            self._context.spin_once(timeout=0.05)
            self._watchdog.tick()


def cropped(points: np.ndarray, footprint_from_lidar: np.ndarray, settings: CollectionSettings) -> np.ndarray:
    """Return what of a lidar's returns (N, 3 or 5) lies around the robot, in the lidar's frame still, thinned.

    Points are kept or left out, never moved: one in every cube of edge `cell`, of the floor, which is most of what is
    seen and none of the outline, one in every cube of edge `floor_cell`.
    """
    seen = apply(footprint_from_lidar, points[:, :3])
    near = np.hypot(seen[:, 0], seen[:, 1]) <= settings.crop_radius
    near &= (seen[:, 2] >= -BELOW_FLOOR) & (seen[:, 2] <= settings.crop_height)
    points, height = points[near], seen[near, 2]
    floor = np.abs(height) < FLOOR_WITHIN
    kept = [_one_per_cell(points[floor], settings.floor_cell), _one_per_cell(points[~floor], settings.cell)]
    return np.concatenate(kept)


def _one_per_cell(points: np.ndarray, cell: float) -> np.ndarray:
    _, first = np.unique(voxel_keys(points[:, :3], cell), return_index=True)
    return points[np.sort(first)]
