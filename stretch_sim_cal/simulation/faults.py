"""Faults that the simulator can be given, so that tests can see calibration and harness notice them.

silent_left, silent_right         that lidar never publishes
drop_half_left, drop_half_right   every second cloud of that lidar is lost
stamp_offset:SECONDS              the right lidar's clock is that far ahead (header and points)
push:TICK                         at that scan the base is pushed: 20 mm along x and 1 deg about z
stuck:JOINT                       that joint does not move, whatever it is told
not_homed                         the robot has not been homed: it refuses to move until it is
crash:SECONDS                     the process dies, without a word, at that simulated time
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES

PUSH_DISTANCE = 0.020
PUSH_ANGLE = 0.017453292519943295
CRASH_EXIT_CODE = 70


@dataclass(frozen=True)
class Faults:
    """The faults of one run; without arguments there are none. Times in s, `push` in scans."""

    silent: frozenset[str] = frozenset()
    drop_half: frozenset[str] = frozenset()
    stamp_offset: float = 0.0
    push: int | None = None
    stuck: frozenset[str] = frozenset()
    not_homed: bool = False
    crash: float | None = None

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> "Faults":
        """Return the faults that texts like "push:20" name. Raises `InputError` for one that is not known."""
        faults = cls()
        for text in texts:
            name, _, value = text.partition(":")
            faults = faults._with(name.strip(), value.strip(), text)
        return faults

    def publishes(self, side: str, tick: int) -> bool:
        """Return whether the lidar of that side ("left" or "right") publishes scan `tick`."""
        return side not in self.silent and not (side in self.drop_half and tick % 2)

    def clock_offset(self, side: str) -> float:
        """Return how far ahead that lidar's clock is, in s."""
        return self.stamp_offset if side == "right" else 0.0

    def _with(self, name: str, value: str, text: str) -> "Faults":
        kind, _, side = name.rpartition("_")
        if kind in ("silent", "drop_half") and side in SIDES:
            return replace(self, **{kind: getattr(self, kind) | {side}})
        if name in ("stamp_offset", "push", "crash"):
            number = _number(value, text)
            return replace(self, **{name: int(number) if name == "push" else number})
        if name == "stuck" and value:
            return replace(self, stuck=self.stuck | {value})
        if name == "not_homed":
            return replace(self, not_homed=True)
        raise InputError(
            f"fault '{text}' is not known; there is silent_left, silent_right, drop_half_left, drop_half_right, "
            "stamp_offset:SECONDS, push:TICK, stuck:JOINT, not_homed, crash:SECONDS"
        )


def _number(value: str, text: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise InputError(f"fault '{text}': after the colon a number was expected") from error
