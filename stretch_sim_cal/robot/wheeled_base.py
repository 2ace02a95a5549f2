"""How a robot's base drives: `base:` of its profile (docs/your_own_robot.md)."""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.validate import Bounds, mapping, numbers_by_key, record, texts_by_key

OMNIDIRECTIONAL, DIFFERENTIAL = "omnidirectional", "differential"
Coordinate = Annotated[float, Bounds(-10.0, 10.0)]
LIMITS = {
    "linear": (1e-3, 20.0, 0.5), "linear_acceleration": (1e-3, 50.0, 0.5),
    "angular": (1e-3, 20.0, 1.0), "angular_acceleration": (1e-3, 50.0, 1.0),
}  # fmt: skip
"""The keys of `limits`: the least value of each, the greatest one and the default."""
TOPICS = {"command": None, "stamped_command": None, "odometry": "/odom"}
NESTED = ("linear", "angular", *TOPICS)  # fields whose keys are below `limits` and `topics`


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
    apart = {"limits", "topics"}
    base = mapping(value, {each.name for each in fields(WheeledBase)} - {*NESTED} | apart, where)
    limits = numbers_by_key(base.get("limits"), f"{where}: limits", **LIMITS)
    topics = texts_by_key(base.get("topics"), f"{where}: topics", **TOPICS)
    command, stamped = topics["command"], topics["stamped_command"]
    if command == stamped and command is not None:
        raise InputError(f"{where}: topics: command and stamped_command: a topic has one type; name one of them")
    if base.get("kind") == DIFFERENTIAL and base.get("track_width") is None:
        raise InputError(f"{where}: track_width: is missing; a differential base needs it")
    found = record(
        WheeledBase,
        {"track_width": 1.0} | {key: each for key, each in base.items() if key not in apart},
        where,
        linear=(limits["linear"], limits["linear_acceleration"]),
        angular=(limits["angular"], limits["angular_acceleration"]),
        **topics | {"command": command if command or stamped else "/cmd_vel"},
    )
    if len(found.wheels) < 3:
        raise InputError(f"{where}: wheels: expected a list of three or more [x, y], casters included")
    wheels = np.array(found.wheels)
    if np.linalg.svd(wheels - wheels.mean(axis=0), compute_uv=False)[1] < 0.01:
        raise InputError(f"{where}: wheels: lie on one line; include the casters")
    around = 2.0 * float(np.mean(np.linalg.norm(wheels, axis=1)))
    return found if base.get("track_width") is not None else replace(found, track_width=around)
