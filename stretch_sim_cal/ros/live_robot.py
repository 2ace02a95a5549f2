"""The robot as a calibration node hears it (see `collection.stages.Source`), and the cloud sets of its lidars."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.lidars import DescribedLidar
from stretch_sim_cal.calibration.surfaces import body_settings
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.ros.lidar_clouds import depth_for, described_poses, lidars_of
from stretch_sim_cal.sensor.sensor import for_each, sensors_called


class LiveRobot:
    """Listens to frames and description; to the lidars only while `clouds` are taken. `context` is a `RobotContext`."""

    def __init__(self, context: Any):
        self._context, self._options = context, context.options
        self.profile = profile_called(self._options.robot)
        self.watchdog, self.frames = context.watchdog(self._options.timeout), context.frames()

    @property
    def description(self) -> str | None:
        return self.frames.description

    @cached_property
    def lidars(self) -> dict[str, tuple[str, str]]:
        """Topic and frame of each lidar by name."""
        return lidars_of(self._options)

    @cached_property
    def described(self) -> dict[str, np.ndarray]:
        return described_poses(self._options, self.frames, self.watchdog)

    @cached_property
    def footprint_from_base(self) -> np.ndarray:
        return self.frames.footprint_from(self._options.base_link_frame, self._options.footprint_frame)

    @cached_property
    def body(self) -> dict[str, Any]:
        if self.profile.body is None:  # TF may have been heard first
            self._context.spin_until(lambda: self.frames.description is not None, timeout=self.frames.GRACE)
        return body_settings(self.profile, self.frames.description, self._context.log.info)

    def at(self, poses: dict[str, np.ndarray]) -> dict[str, DescribedLidar]:
        """Return the lidars at poses (4, 4) in base_link."""
        sensors = for_each(sensors_called(self._options.sensor), len(poses))
        return {name: DescribedLidar(poses[name], sensor) for name, sensor in zip(poses, sensors, strict=True)}

    def in_footprint(self, name: str, cloud: np.ndarray) -> np.ndarray:
        """Return a lidar's returns (N, 5 or 3) as points (N, 3) in base_footprint, by its described pose."""
        return apply(self.footprint_from_base @ self.described[name], cloud[:, :3])

    def clouds(self, label: str) -> Iterator[dict[str, np.ndarray]]:
        count = self._options.num_samples
        sets = self._context.clouds(self._options, self.watchdog, depth=depth_for(count))
        for seen in sets.take(count, label):
            yield seen.clouds
        self._context.log.info(sets.summary())
