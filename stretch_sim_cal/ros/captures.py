"""Captures of an arm pose: a few clouds of each lidar, cropped around the robot and downsampled, and the calibration by
which they are placed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, calibrated_frame, default_path
from stretch_sim_cal.calibration.observations import Observations, load_beside
from stretch_sim_cal.collection.clearance import cropped
from stretch_sim_cal.collection.settings import CollectionSettings
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.recording.pairing import CloudSet
from stretch_sim_cal.recording.topics import JOINT_STATES
from stretch_sim_cal.ros.arm_motion import ArmState
from stretch_sim_cal.ros.frame_listener import FrameListener
from stretch_sim_cal.ros.lidar_clouds import depth_for

STALE = 30  # sets of clouds in succession, scanned before the arm stood still, that are no mere latency any more


@dataclass(frozen=True)
class CalibratedPoses:
    """Poses (4, 4) of base_link and of the lidars, by name, in the calibrated footprint; and the observations of the
    alignment, with the lidars' intrinsics."""

    footprint_from_base: np.ndarray
    footprint_from_lidar: Mapping[str, np.ndarray]
    observations: Observations | None = None

    def points(self, name: str, cloud: np.ndarray) -> np.ndarray:
        """Return a lidar's returns (N, 3 or 5) as points (N, 3) in the calibrated footprint, corrected by its
        intrinsics as far as these are known."""
        own = cloud[:, :3] if self.observations is None else self.observations.corrected(name, cloud)
        return apply(self.footprint_from_lidar[name], own)


@dataclass(frozen=True)
class Capture:
    """The same returns, float32, as `points` (N, 3) in the calibrated footprint, the left lidar's first, and as
    `clouds` (N, 3 or 5) by lidar, with ring and intensity, in its own frame. `actual` are the arm's joints at that
    time, `joints` all of the description's."""

    points: np.ndarray
    clouds: dict[str, np.ndarray]
    actual: dict[str, float]
    joints: dict[str, float]


def captured(
    seen: Mapping[str, Sequence[np.ndarray]], poses: CalibratedPoses, settings: CollectionSettings,
    arm: dict[str, float], joints: dict[str, float],
) -> Capture:  # fmt: skip
    """Return the capture of what lidars saw by name (returns (N, 3 or 5) of each scan in the lidar's frame)."""
    kept = {
        name: cropped(np.concatenate(own), poses.footprint_from_lidar[name], settings) for name, own in seen.items()
    }
    points = np.concatenate([poses.points(name, cloud) for name, cloud in kept.items()])
    return Capture(points, kept, arm, joints)


class Captures:
    """Takes captures; listens to the lidars only while it does, since clouds are expensive to send and to simulate."""

    def __init__(self, context: Any, state: ArmState, watchdog: Any, settings: CollectionSettings):
        self._context, self._state, self._watchdog, self._settings = context, state, watchdog, settings

    def take(self, poses: CalibratedPoses) -> Capture:
        """Wait until the arm stands still, and capture. Raises `RunFailure` (watchdog) if no clouds come."""
        if self._state.profile.planned:
            self._context.spin_until(lambda: self._state.stamp >= self._settled_at, watchdog=self._watchdog)
        sets: list[CloudSet] = []
        depth = depth_for(self._settings.frames)
        clouds = self._context.clouds(self._context.options, self._watchdog, depth, sets.append)
        # The first sets that were scanned after the arm had settled, with the joints' positions at each.
        used: list[tuple[CloudSet, dict[str, float]]] = []
        settled, stale = self._settled_at, 0
        try:
            while len(used) < self._settings.frames:
                self._context.spin_once(timeout=0.05)
                self._watchdog.tick()
                if self._settled_at != settled:  # it moved after all: what was scanned meanwhile is not of one pose
                    settled = self._settled_at
                    used.clear()
                fresh = [each for each in sets if each.stamp >= settled]
                stale = 0 if fresh else stale + len(sets)
                if stale > STALE:
                    behind = 1e-9 * (self._state.stamp - sets[-1].stamp)
                    raise RunFailure(
                        f"the clouds' stamps are {behind:.1f} s behind those of {JOINT_STATES}: scans cannot be "
                        "matched with arm poses; synchronise the lidars' clocks with the robot's"
                    )
                sets.clear()
                used += [(each, dict(self._state.positions)) for each in fresh]
        finally:
            clouds.close()
        seen = {name: [each.clouds[name] for each, _ in used] for name in clouds.topics}
        joints = {name: float(np.mean([positions[name] for _, positions in used])) for name in used[0][1]}
        return captured(seen, poses, self._settings, self._state.arm, joints)

    @property
    def _settled_at(self) -> int:
        return self._state.still_since + round(self._settings.settle_time * 1e9)


def calibrated_poses(
    options: Any, frames: FrameListener, watchdog: Any, further: Iterable[str] = ()
) -> CalibratedPoses:
    """Return the calibration that is in TF, of `further` lidars too, with the left lidar's extrinsics if it has any.
    Raises `Refused` if nobody broadcasts a calibration."""
    base, left = options.base_link_frame, options.left_lidar_frame
    frames.wait_for((base, left), watchdog=watchdog)
    calibrated = {"right": options.right_calibrated_frame} | {name: calibrated_frame(name) for name in further}
    try:
        footprint_from_base, base_from_left, *others = frames.wait_for(
            (options.floor_frame, base), (base, left), *((left, frame) for frame in calibrated.values()),
            watchdog=watchdog,
        )  # fmt: skip
    except InputError as error:
        raise Refused(f"the calibration is not in TF ({error}); run ros_broadcast_calibration in parallel") from error
    if frames.tree.known(options.left_calibrated_frame):  # broadcast together with the frames above
        base_from_left = frames.lookup(base, options.left_calibrated_frame)
    to_left = {"left": np.eye(4)} | dict(zip(calibrated, others, strict=True))
    placed = {name: footprint_from_base @ base_from_left @ pose for name, pose in to_left.items()}
    file = CalibrationFile.load_or_empty(getattr(options, "calibration_file", "") or default_path())
    return CalibratedPoses(footprint_from_base, placed, load_beside(file))
