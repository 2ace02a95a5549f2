"""How a robot's base drives, by its profile's `base:`.

base:
  kind: omnidirectional        # or differential
  wheels: [[0.15, 0.09], [-0.15, 0.09], [0.0, -0.17]]   # where they touch the floor, in the footprint frame, m
  limits: {linear: 0.6, angular: 4.0, linear_acceleration: 0.25, angular_acceleration: 2.0}
  topics: {command: /cmd_vel, odometry: /odom}
"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.validate import Bounds, Section, record

OMNIDIRECTIONAL, DIFFERENTIAL = "omnidirectional", "differential"
Coordinate = Annotated[float, Bounds(-10.0, 10.0)]


@dataclass(frozen=True)
class WheeledBase:
    """A base that drives about the origin of the footprint frame. `wheels` are where wheels and casters touch the floor
    ((x, y) in m, in that frame); `track_width` (m) is the distance of a differential base's driven wheels, of an
    omnidirectional one the mean diameter of the circle through its wheels.

    `linear` and `angular` are the largest velocities (m/s, rad/s) and accelerations (m/s2, rad/s2). A command counts
    for `timeout` s. Twists come over topic `command`, stamped ones over `stamped_command`; None: not at all. They are
    obeyed in the driver's `modes`, without any in all. Odometry goes to topic `odometry` in `odometry_frame`, and to
    /tf if it is broadcast.
    """

    kind: Literal["omnidirectional", "differential"]
    track_width: Annotated[float, Bounds(0.01, 10.0)]
    wheels: tuple[tuple[Coordinate, Coordinate], ...]
    linear: tuple[float, float] = (0.5, 0.5)
    angular: tuple[float, float] = (1.0, 1.0)
    timeout: Annotated[float, Bounds(0.01, 60.0)] = 0.5
    modes: tuple[str, ...] = ()
    command: str | None = "/cmd_vel"
    stamped_command: str | None = None
    odometry: str = "/odom"
    odometry_frame: str = "odom"
    broadcast_odometry: bool = True

    @property
    def strafes(self) -> bool:
        return self.kind == OMNIDIRECTIONAL


def wheeled_base(value: Any, where: str) -> WheeledBase:
    """Return the base of a profile's `base:`. Raises `InputError` naming `where` and the key."""
    nested = {"linear", "angular", "command", "stamped_command", "odometry"}
    base = Section(value, {each.name for each in fields(WheeledBase)} - nested | {"limits", "topics"}, where)
    limits = base.section("limits", {"linear", "angular", "linear_acceleration", "angular_acceleration"})
    topics = base.section("topics", {"command", "stamped_command", "odometry"})
    command = topics.text("command") if "command" in topics else None
    stamped = topics.text("stamped_command") if "stamped_command" in topics else None
    if command == stamped and command is not None:
        raise InputError(f"{topics.where}: command and stamped_command: a topic has one type; name one of them")
    if base.get("kind") == DIFFERENTIAL and "track_width" not in base:
        raise InputError(f"{base.at('track_width')}: is missing; a differential base turns by it")
    found = record(
        WheeledBase,
        {"track_width": 1.0} | {key: each for key, each in base.data.items() if key not in ("limits", "topics")},
        where,
        linear=(limits.number("linear", 1e-3, 20.0, 0.5), limits.number("linear_acceleration", 1e-3, 50.0, 0.5)),
        angular=(limits.number("angular", 1e-3, 20.0, 1.0), limits.number("angular_acceleration", 1e-3, 50.0, 1.0)),
        command=command if command or stamped else "/cmd_vel",
        stamped_command=stamped,
        odometry=topics.text("odometry", "/odom"),
    )
    if len(found.wheels) < 3:
        raise InputError(f"{base.at('wheels')}: a list of three or more [x, y] was expected, casters among them")
    wheels = np.array(found.wheels)
    if np.linalg.svd(wheels - wheels.mean(axis=0), compute_uv=False)[1] < 0.01:
        raise InputError(f"{base.at('wheels')}: lie on one line, and the robot on its side; name its casters as well")
    around = 2.0 * float(np.mean(np.linalg.norm(wheels, axis=1)))
    return found if "track_width" in base else replace(found, track_width=around)
