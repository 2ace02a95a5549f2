"""How a robot's base drives, as its profile says it under `base:`.

base:
  kind: omnidirectional        # or differential
  wheel_radius: 0.1            # m
  wheels: [[0.15, 0.09], [-0.15, 0.09], [0.0, -0.17]]   # where they touch the floor, in the footprint frame, m
  limits: {linear: 0.6, angular: 4.0, linear_acceleration: 0.25, angular_acceleration: 2.0}
  topics: {command: /cmd_vel, odometry: /odom}
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.validate import Section, choice, numbers, typed

OMNIDIRECTIONAL, DIFFERENTIAL = KINDS = ("omnidirectional", "differential")
KEYS = {
    "kind", "wheel_radius", "track_width", "wheels", "limits", "timeout", "modes", "topics", "odometry_frame",
    "broadcast_odometry",
}  # fmt: skip


@dataclass(frozen=True)
class WheeledBase:
    """A base that drives about the origin of the footprint frame. `wheels` are where wheels and casters touch the floor
    ((x, y) in m, in that frame); `track_width` (m) is the distance of a differential base's driven wheels, of an
    omnidirectional one the mean diameter of the circle through its wheels.

    `linear` and `angular` are the largest velocities (m/s, rad/s) and accelerations (m/s2, rad/s2). A command counts
    for `timeout` s. Twists come over topic `command`, stamped ones over `stamped_command`; None: not at all. They are
    obeyed in the driver's `modes`, in all without any. Odometry goes to topic `odometry` in `odometry_frame`, and
    to /tf if it is broadcast.
    """

    kind: str
    wheel_radius: float
    track_width: float
    wheels: tuple[tuple[float, ...], ...]
    linear: tuple[float, float] = (0.5, 0.5)
    angular: tuple[float, float] = (1.0, 1.0)
    timeout: float = 0.5
    modes: tuple[str, ...] = ()
    command: str | None = "/cmd_vel"
    stamped_command: str | None = None
    odometry: str = "/odom"
    odometry_frame: str = "odom"
    broadcast_odometry: bool = True

    @property
    def strafes(self) -> bool:
        """Whether it can drive sideways."""
        return self.kind == OMNIDIRECTIONAL


def wheeled_base(value: Any, where: str) -> WheeledBase:
    """Return the base that a profile's `base:` writes down. Raises `InputError` naming `where` and the key."""
    base = Section(value, KEYS, where)
    kind = choice(base.text("kind"), KINDS, base.at("kind"))
    listed = base.get("wheels")
    if not isinstance(listed, list) or len(listed) < 3:
        raise InputError(f"{base.at('wheels')}: a list of three or more [x, y] was expected, casters among them")
    wheels = tuple(
        numbers(wheel, 2, f"{base.at('wheels')}[{index}]", -10.0, 10.0) for index, wheel in enumerate(listed)
    )
    if np.linalg.svd(np.array(wheels) - np.mean(wheels, axis=0), compute_uv=False)[1] < 0.01:
        raise InputError(f"{base.at('wheels')}: lie on one line, and the robot on its side; name its casters as well")
    if kind == DIFFERENTIAL and "track_width" not in base:
        raise InputError(f"{base.at('track_width')}: is missing; a differential base turns by it")
    around = 2.0 * float(np.mean(np.linalg.norm(wheels, axis=1)))
    limits = base.section("limits", {"linear", "angular", "linear_acceleration", "angular_acceleration"})
    topics = base.section("topics", {"command", "stamped_command", "odometry"})
    command = topics.text("command") if "command" in topics else None
    stamped = topics.text("stamped_command") if "stamped_command" in topics else None
    if command == stamped and command is not None:
        raise InputError(f"{topics.where}: command and stamped_command: a topic has one type; name one of them")
    return WheeledBase(
        kind,
        base.number("wheel_radius", 0.005, 5.0),
        base.number("track_width", 0.01, 10.0, default=around),
        wheels,
        (limits.number("linear", 1e-3, 20.0, default=0.5), limits.number("linear_acceleration", 1e-3, 50.0, 0.5)),
        (limits.number("angular", 1e-3, 20.0, default=1.0), limits.number("angular_acceleration", 1e-3, 50.0, 1.0)),
        base.number("timeout", 0.01, 60.0, default=0.5),
        typed(base.get("modes", []), tuple[str, ...], base.at("modes")),
        command if command or stamped else "/cmd_vel",
        stamped,
        topics.text("odometry", "/odom"),
        base.text("odometry_frame", "odom"),
        base.flag("broadcast_odometry", True),
    )
