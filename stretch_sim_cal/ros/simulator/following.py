"""Following a trajectory's waypoints with joints that have speed limits, free of ROS."""

from collections.abc import Sequence
from enum import Enum

from stretch_sim_cal.ros.simulator.goals import Waypoint
from stretch_sim_cal.simulation.joints import Joints

# A joint that is this much later than its speed allows does not arrive any more.
PATIENCE = 2.0


class Progress(Enum):
    MOVING = "moving"
    ARRIVED = "arrived"
    LATE = "late"


class Following:
    """Leads `joints` through `waypoints`, one after another; call `update` at every step of simulated time (s).

    A joint moves at the speed asked for, at most at its own; where a waypoint's time allows more than that needs, the
    joints move slower, so that they arrive at that time together. Between waypoints the joints stop.
    """

    def __init__(self, joints: Joints, waypoints: Sequence[Waypoint], now: float):
        self._joints = joints
        self._waypoints = list(waypoints)
        self._started = now
        self._index = 0
        self._begin(now)

    @property
    def waypoint(self) -> Waypoint:
        """The waypoint that the joints are on their way to, or at."""
        return self._waypoints[self._index]

    def update(self, now: float) -> Progress:
        """Go on to the next waypoint where the present one is reached, and say how it stands."""
        while not self.missing() and now >= self._earliest:
            if self._index + 1 == len(self._waypoints):
                return Progress.ARRIVED
            self._index += 1
            self._begin(now)
        return Progress.LATE if now > self._latest else Progress.MOVING

    def missing(self) -> dict[str, float]:
        """Return how far, in m or rad, each joint that has not arrived yet has to go."""
        gaps = {name: target - self._joints.positions[name] for name, target in self.waypoint.positions.items()}
        return {name: gap for name, gap in gaps.items() if abs(gap) > self._joints.arrival_tolerance}

    def _begin(self, now: float) -> None:
        waypoint = self.waypoint
        speeds = {name: waypoint.speeds.get(name, self._joints.ranges[name].velocity) for name in waypoint.positions}
        distances = {name: abs(gap) for name, gap in self.missing().items()}
        needed = max((distance / speeds[name] for name, distance in distances.items()), default=0.0)
        self._earliest = self._started + waypoint.time if waypoint.time else now
        if self._earliest - now > needed:
            needed = self._earliest - now
            speeds |= {name: distance / needed for name, distance in distances.items()}
        self._latest = now + needed + PATIENCE
        self._joints.command(waypoint.positions, speeds)
