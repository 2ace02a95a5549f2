"""The two lidar drivers: scans of the simulation, published when their last ray has been fired."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from sensor_msgs.msg import PointCloud2

from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.ros.messages import cloud_message
from stretch_sim_cal.ros.simulator.faults import Faults
from stretch_sim_cal.ros.simulator.publishing import Publisher, Publishers


class ScanSource(Protocol):
    """What the drivers need of a simulation."""

    def listen(self, wanted: bool) -> None:
        """Cast scans from now on, or do not need to."""

    def scan(self, lidar: str, tick: int) -> np.ndarray | None:
        """Return scan `tick` of lidar "left" or "right" (`POINT_DTYPE`) with the joints where they are.

        None where it was not cast, because nobody listened when it began.
        """

    def start_time(self, lidar: str, tick: int) -> float:
        """Return when that scan begins, in s of simulated time."""

    @property
    def period(self) -> float:
        """How long a scan takes, in s."""


@dataclass
class _Driver:
    side: str
    publisher: Publisher
    tick: int = 0
    published: int = 0


class LidarDrivers:
    """Publishes /lidar_points_left and /lidar_points_right. Scans that nobody takes are not cast.

    Scan `tick` is the same whether earlier ones were cast or not, so a run's data does not depend on who listened.
    """

    # Enough for a consumer that is busy for half a second; older clouds make place for newer ones.
    DEPTH = 5

    def __init__(self, publishers: Publishers, source: ScanSource, frames: dict[str, str], faults: Faults):
        self._source = source
        self._frames = frames
        self._faults = faults
        self._drivers = [
            _Driver(side, publishers.create(PointCloud2, f"/lidar_points_{side}", self.DEPTH)) for side in SIDES
        ]

    @property
    def are_heard(self) -> bool:
        """Whether anybody takes clouds of at least one lidar."""
        return any(driver.publisher.is_heard for driver in self._drivers)

    def listen(self) -> None:
        """Let the simulation know whether anybody takes what it casts from now on."""
        self._source.listen(self.are_heard)

    @property
    def published(self) -> dict[str, int]:
        """How many clouds each lidar has published."""
        return {driver.side: driver.published for driver in self._drivers}

    def step(self, now: float) -> None:
        """Publish every scan that has been completed by simulated time `now`, in s."""
        for driver in self._drivers:
            while self._source.start_time(driver.side, driver.tick) + self._source.period <= now:
                if driver.publisher.is_heard and self._faults.publishes(driver.side, driver.tick):
                    self._publish(driver)
                driver.tick += 1

    def _publish(self, driver: _Driver) -> None:
        start = self._source.start_time(driver.side, driver.tick)
        offset = self._faults.clock_offset(driver.side)
        scan = self._source.scan(driver.side, driver.tick)
        if scan is None:
            return
        if offset:
            scan["timestamp"] += offset
        message = cloud_message(scan, self._frames[driver.side], round((start + offset) * 1e9))
        driver.publisher.publish(message, round((start + self._source.period) * 1e9))
        driver.published += 1
