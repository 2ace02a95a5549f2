"""A base that drives in simulated time: commands, limits, kinematics, wheel slip and odometry, on a grid of time,
`TICK`, between whose points it moves straight: a motion depends on the commands and their times alone."""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.spatial.transform import Rotation

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.wheeled_base import WheeledBase
from stretch_sim_cal.simulation.solids import Undulation
from stretch_sim_cal.validate import DEGREES, MILLIMETRES, Bounds

TICK = 5_000_000  # ns
KEPT = 120_000  # so many ticks of motion are remembered, ten minutes
AHEAD = 60.0  # s; later stamps are of another clock
WAY_STEP = 0.01  # m, grid of the random walk that slip is
ERRORS, SLIP = 1, 2  # of random numbers
POSE, ODOMETRY = slice(1, 7), slice(7, 13)  # of a moment: time in ns; x, y, z, roll, pitch, yaw; odometry and its twist
REST = (0.0, 0.0, 0.0)

Twist = tuple[float, float, float]  # velocities along x and y (m/s) and about z (rad/s) of the footprint frame
Leg = tuple[float, float, float, float]  # a twist, and its duration in s


@dataclass(frozen=True)
class OdometrySpread:
    """Standard deviations of wheel odometry's errors: `scale` of each axis, relative error of the track width (that of
    the turning rate), `clock_offset` (s) of the stamps. Slip over 1 m of wheel travel moves the base by `slip` (m) in
    each direction and turns it by `slip_angle` (rad); it grows with the root of the distance."""

    scale: Annotated[float, Bounds(0.0, 0.2)] = 0.01
    track_width: Annotated[float, Bounds(0.0, 0.2)] = 0.01
    slip: Annotated[float, Bounds(0.0, 1e3, MILLIMETRES)] = 0.005
    slip_angle: Annotated[float, Bounds(0.0, 90.0, DEGREES, "slip_deg")] = math.radians(0.2)
    clock_offset: Annotated[float, Bounds(0.0, 1.0)] = 0.01


@dataclass(frozen=True)
class OdometryErrors:
    """One base's odometry reads (1 + `scale`) times the true distance along x and y and (1 + `track_width`) times the
    true angle, but for slip (see `OdometrySpread`); stamps are `clock_offset` s late."""

    scale: tuple[float, float] = (0.0, 0.0)
    track_width: float = 0.0
    slip: float = 0.0
    slip_angle: float = 0.0
    clock_offset: float = 0.0

    @classmethod
    def drawn(cls, spread: OdometrySpread, seed: int) -> "OdometryErrors":
        """Return errors of that size; slip's size is that of the spread."""
        sizes = (spread.scale, spread.scale, spread.track_width, spread.clock_offset)
        *scales, clock = (sizes * _generator(seed, ERRORS).standard_normal(4)).tolist()
        x, y, track_width = (max(-0.5, scale) for scale in scales)  # a scale of -1 would be no way at all
        return cls((x, y), track_width, spread.slip, spread.slip_angle, clock)


class DrivingBase:
    """A base on a floor, by default flat, at rest at the world's origin, where its odometry begins. Wheels turn as the
    controller wants: odometry is that by the nominal geometry, the base moves by the true one and slip."""

    def __init__(
        self, base: WheeledBase, errors: OdometryErrors | None = None, seed: int = 1, floor: Undulation | None = None
    ):
        self.base, self.errors, self.floor = base, errors or OdometryErrors(), floor
        self._wheels = np.array(base.wheels)
        self._slip = _Slip(seed, (self.errors.slip, self.errors.slip, self.errors.slip_angle))
        self._now = self._ticked = 0  # ns; what was commanded until now is computed up to the tick after it
        self._pending: list[tuple[int, Twist]] = []
        self._command: tuple[int, Twist] = (0, REST)
        self._velocity = self._reckoned = REST
        self._way = 0.0
        self.place(*REST)

    @property
    def now(self) -> float:
        """Simulated time in s."""
        return self._now * 1e-9

    @property
    def driven(self) -> bool:
        """Whether it has driven since it was put where it is."""
        return bool(self._moments)

    @property
    def moving(self) -> bool:
        """Whether it moves, or a command will let it move."""
        return any(self._velocity) or any(any(twist) for _, twist in (self._command, *self._pending))

    def command(self, x: float, y: float, turn: float, stamp: float | None = None) -> None:
        """Drive at velocities along x and y (m/s) and about z (rad/s) of the footprint frame, within limits and kind,
        for the base's time-out from `stamp` (s, simulated; now by default), unless a newer command is obeyed. Raises
        `InputError` for what is not a number, and for stamps that are too old or too far ahead."""
        if not all(map(math.isfinite, (x, y, turn, stamp or 0.0))):
            raise InputError(f"command: is {x:g}, {y:g}, {turn:g}; expected finite velocities")
        at = self._now if stamp is None else round(stamp * 1e9)
        if not -self.base.timeout * 1e9 <= at - self._now <= AHEAD * 1e9:
            off = f"more than the time-out of {self.base.timeout:g} s ago, or {AHEAD:g} s ahead"
            raise InputError(f"command: its stamp is {off}; stamp it with simulated time (use_sim_time)")
        if at >= self._command[0]:
            y = y if self.base.strafes else 0.0
            share = min(1.0, self.base.linear[0] / max(math.hypot(x, y), 1e-12))
            twist = share * x, share * y, _clipped(turn, self.base.angular[0])
            insort(self._pending, (at, twist), key=lambda each: each[0])

    def stop(self, at_once: bool = False) -> None:
        """Forget all commands and come to rest, as fast as the limits allow; or `at_once`, with the wheels blocked."""
        self._pending.clear()
        self._command = (self._now, REST)
        if at_once and any(self._velocity):
            self._velocity = REST
            self._remember()

    def place(self, x: float, y: float, yaw: float) -> None:
        """Put it at rest at a place (m, rad) of the world, its odometry unaware, its earlier motion forgotten."""
        self.stop(at_once=True)
        self._moments: list[tuple[float, ...]] = []
        self._forgotten = False
        self._stand((x, y, yaw))

    def step(self, duration: float) -> None:
        """Let `duration` s of simulated time pass (whole ns). Raises `InputError` for a negative one."""
        if not duration >= 0:
            raise InputError(f"step: {duration} s of simulated time were requested; expected at least 0")
        self._now += round(duration * 1e9)
        while self._ticked < self._now:
            if self.moving:
                self._tick()
            else:
                self._pending.clear()
                self._ticked = -(-self._now // TICK) * TICK

    def follow(self, legs: Iterable[Leg]) -> None:
        """Drive legs, coming to rest after each; slowing down takes the distance that speeding up took."""
        for *twist, seconds in legs:
            left = seconds
            while left > 1e-9:
                self.command(*twist)
                self.step(part := min(left, self.base.timeout / 2))
                left -= part
            self.stop()
            while self.moving:
                self.step(TICK * 1e-9)

    def legs_to(self, x: float, y: float, yaw: float, share: float = 0.5) -> list[Leg]:
        """Return the legs from rest to a place (m, rad) in the odometry's frame, at a `share` of the limits."""
        at_x, at_y, at_yaw = self._reckoned
        way, heading = math.hypot(x - at_x, y - at_y), math.atan2(y - at_y, x - at_x)
        if way < 1e-9:
            first, along, last = yaw - at_yaw, None, 0.0
        elif self.base.strafes:
            first, along, last = 0.0, heading - at_yaw, yaw - at_yaw
        else:
            first, along, last = heading - at_yaw, 0.0, yaw - heading
        first, last = (math.remainder(angle, 2 * math.pi) for angle in (first, last))
        legs = [self.turn(first, share)] if abs(first) > 1e-9 else []
        if along is not None:
            legs.append(self.straight(way * math.cos(along), way * math.sin(along), share))
        return legs + ([self.turn(last, share)] if abs(last) > 1e-9 else [])

    def straight(self, x: float, y: float, share: float = 0.5) -> Leg:
        """Return the leg from rest by x, y (m) in the footprint frame."""
        way = math.hypot(x, y)
        speed, seconds = _trapezoid(way, *self.base.linear, share)
        return speed * x / way, speed * y / way, 0.0, seconds

    def turn(self, angle: float, share: float = 0.5) -> Leg:
        """Return the leg from rest that turns on the spot by an `angle` (rad; whole turns count)."""
        speed, seconds = _trapezoid(abs(angle), *self.base.angular, share)
        return 0.0, 0.0, math.copysign(speed, angle), seconds

    def poses(self, times: np.ndarray) -> np.ndarray:
        """Return the true world_from_footprint (N, 4, 4) at times (N,) in s. Raises `InputError` for forgotten ones."""
        x, y, z, roll, pitch, yaw = self._at(np.asarray(times) * 1e9, POSE)
        result = np.zeros((len(x), 4, 4))
        result[:, :3, :3] = Rotation.from_euler("xyz", np.stack([roll, pitch, yaw], axis=1)).as_matrix()
        result[:, :3, 3] = np.stack([x, y, z], axis=1)
        result[:, 3, 3] = 1.0
        return result

    def is_still(self, begin: float, end: float) -> bool:
        """Return whether it stands still from `begin` to `end` (s), times that have passed."""
        moments = self._between(begin * 1e9, end * 1e9)
        return all(moment[POSE] == moments[0][POSE] for moment in moments)

    def odometry(self, stamp: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the odometry stamped `stamp` (s): x, y (m) and yaw (rad) since the start, and velocities (3,)."""
        odometry = self._at(np.array([(stamp - self.errors.clock_offset) * 1e9]), ODOMETRY)[:, 0]
        return odometry[:3], odometry[3:]

    def _tick(self) -> None:
        if not any(self._velocity):  # where it stood until now
            self._remember()
        while self._pending and self._pending[0][0] <= self._ticked:
            self._command = self._pending.pop(0)
        if self._ticked - self._command[0] > round(self.base.timeout * 1e9):
            self._command = (self._command[0], REST)
        before, target, seconds = self._velocity, self._command[1], TICK * 1e-9
        gap = math.hypot(target[0] - before[0], target[1] - before[1])
        share, most = self.base.linear[1] * seconds / max(gap, 1e-12), self.base.angular[1] * seconds
        x, y = target[:2] if share >= 1.0 else (
            old + share * (new - old) for old, new in zip(before[:2], target[:2], strict=True)
        )  # fmt: skip
        turn = target[2] if abs(target[2] - before[2]) <= most else before[2] + _clipped(target[2] - before[2], most)
        self._velocity = (x, y, turn)
        dx, dy, angle = ((old + new) / 2 * seconds for old, new in zip(before, self._velocity, strict=True))
        self._reckoned = _moved(self._reckoned, (dx, dy, angle))
        slipped = self._slip(self._way)
        self._way += math.hypot(dx, dy) + abs(angle) * self.base.track_width / 2
        scales = *self.errors.scale, self.errors.track_width
        self._stand(_moved(self._true, tuple(
            way / (1 + scale) + (new - old)
            for way, scale, new, old in zip((dx, dy, angle), scales, self._slip(self._way), slipped, strict=True)
        )))  # fmt: skip
        self._ticked += TICK
        self._remember()

    def _stand(self, place: Twist) -> None:
        self._true = place
        self._stance = REST if self.floor is None else self.floor.stance(self._wheels, *place)

    def _remember(self) -> None:
        if len(self._moments) >= 2 * KEPT:
            del self._moments[:KEPT]
            self._forgotten = True
        self._moments.append(self._moment())

    def _moment(self) -> tuple[float, ...]:
        (x, y, yaw), (z, roll, pitch) = self._true, self._stance
        return (float(self._ticked), x, y, z, roll, pitch, yaw, *self._reckoned, *self._velocity)

    def _between(self, begin: float, end: float) -> list[tuple[float, ...]]:
        """Return the moments around `begin` to `end` (ns), one at least."""
        if self._forgotten and begin < self._moments[0][0]:
            forgotten = f"where the base was at {begin * 1e-9:g} s"
            raise InputError(f"{forgotten} is no longer stored; only ten minutes of motion are")
        first = bisect_right(self._moments, begin, key=lambda moment: moment[0]) - 1
        last = bisect_left(self._moments, end, key=lambda moment: moment[0]) + 1
        return self._moments[max(0, first) : last] or [self._moment()]

    def _at(self, times: np.ndarray, part: slice) -> np.ndarray:
        moments = np.array(self._between(float(times.min()), float(times.max())))
        return np.stack([np.interp(times, moments[:, 0], column) for column in moments[:, part].T])


class _Slip:
    """The random walk (3,) of slip over the wheels' travel in m: x, y, yaw, of `sizes` after 1 m."""

    def __init__(self, seed: int, sizes: tuple[float, float, float]):
        self._random = _generator(seed, SLIP)
        self._sizes = np.array(sizes) * math.sqrt(WAY_STEP)
        self._walked: list[np.ndarray] = [np.zeros(3)]

    def __call__(self, way: float) -> list[float]:
        number, rest = divmod(way / WAY_STEP, 1.0)
        while len(self._walked) < number + 2:
            self._walked.append(self._walked[-1] + self._sizes * self._random.standard_normal(3))
        before, after = self._walked[int(number)], self._walked[int(number) + 1]
        walked: list[float] = (before + rest * (after - before)).tolist()
        return walked


def _moved(place: Twist, way: Twist) -> Twist:
    """Return a place in the plane after an arc (x, y, angle) in its frame."""
    (x, y, yaw), (along, across, angle) = place, way
    half = angle / 2
    chord = math.sin(half) / half if half else 1.0
    cosine, sine = math.cos(yaw + half) * chord, math.sin(yaw + half) * chord
    return x + cosine * along - sine * across, y + sine * along + cosine * across, yaw + angle


def _clipped(value: float, most: float) -> float:
    return min(max(value, -most), most)


def _trapezoid(way: float, speed: float, acceleration: float, share: float) -> tuple[float, float]:
    """Return speed and seconds, whole ticks, of a leg of `way` from rest to rest at most at a `share` of `speed`."""
    speed = min(share * speed, math.sqrt(way * acceleration))
    seconds = math.ceil(way / speed / (TICK * 1e-9)) * TICK * 1e-9
    return way / seconds, seconds


def _generator(seed: int, purpose: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1000 + purpose,)))
