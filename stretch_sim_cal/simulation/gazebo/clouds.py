"""What one lidar of Gazebo publishes, listened to only when somebody wants it: rays that nobody takes are not cast."""

import time
from collections import deque

from stretch_sim_cal.simulation.gazebo import messages
from stretch_sim_cal.simulation.gazebo.running import SILENCE_TIMEOUT, RunningWorld
from stretch_sim_cal.simulation.gazebo.world import STEP

KEPT = 10
NOT_CAST = b""
# Of wall time, in s: how long a scan is waited for that should be there. A lidar may take a while to notice that somebody
# listens, and a rendering one leaves a scan out now and then.
PATIENCE = 2.0
TOLERANCE = round(0.5e9 * STEP)  # ns: scans off the lidar's beat, as at the beginning, are no scans


class Clouds:
    """The clouds on `topic`, serialised `gz.msgs.PointCloudPacked`, the latest of them kept."""

    def __init__(self, world: RunningWorld, topic: str):
        self._world = world
        self._topic = topic
        self._listening = False

    @property
    def newest(self) -> int | None:
        """The stamp, in ns of simulated time, of the newest cloud that is kept."""
        return self._kept[-1][0] if self._kept else None

    def listen(self, wanted: bool) -> None:
        """Begin or end to listen."""
        if wanted == self._listening:
            return
        self._listening = wanted
        if not wanted:
            self._world.unsubscribe(self._topic)
            return
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._last: int | None = None
        self._since, self._wall_heard = self._world.time, time.monotonic()
        self._world.subscribe(self._topic, "gz.msgs.PointCloudPacked", self._hear)

    def taken_at(self, stamp: int) -> bytes:
        """Wait for the cloud of that time, in ns, which has to have passed; `NOT_CAST` where nobody listened then, or
        where it does not come. Raises `RunFailure` where the lidar is silent for long.
        """
        asked = time.monotonic()
        return self._world.wait(
            lambda: self._look(stamp, asked), f"{self._topic} has not brought its scan of {stamp * 1e-9:.3f} s"
        )

    def _look(self, stamp: int, asked: float) -> bytes | None:
        """Return the cloud, `NOT_CAST` where it is not going to come, None while it may."""
        for taken, message in self._kept:
            if abs(taken - stamp) <= TOLERANCE:
                return message
        if stamp < self._since or not self._listening or self._last is not None and self._last >= stamp:
            return NOT_CAST
        now = time.monotonic()
        left_out = now - asked > PATIENCE and now - self._wall_heard < SILENCE_TIMEOUT
        return NOT_CAST if left_out else None

    def _hear(self, message: bytes) -> None:
        stamp = messages.stamp(message)
        # The first one is off the beat, and may be of rays that were cast for those who listened before.
        if self._last is not None:
            self._kept.append((stamp, message))
        self._last, self._wall_heard = stamp, time.monotonic()
