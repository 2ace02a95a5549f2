"""Stamps, and two streams of stamped items, left and right, paired by them.

Two lidars are synchronised only to within tens of milliseconds, so frames are paired by their stamps, within a bound.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from stretch_sim_cal.geometry.transforms import SIDES

Payload = TypeVar("Payload")

MILLISECOND = 1_000_000
# A stamp this far behind the last one is no late message but a stream that began anew: a bag that loops, a restart.
RESTART = 1_000 * MILLISECOND


def stamp_of(message: Any) -> int:
    """Return the stamp in a message's header, in ns."""
    return message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec


class Pair(NamedTuple, Generic[Payload]):
    """Two items that belong together; `gap` is right's stamp minus left's, in ns."""

    left: Payload
    right: Payload
    stamp: int
    gap: int


@dataclass
class PairingCounts:
    """Counts of the items so far, and the smallest gap (ns) among those that found no partner."""

    received: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    unpaired: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    duplicates: int = 0
    out_of_order: int = 0
    restarts: int = 0
    pairs: int = 0
    closest_miss: int | None = None

    @property
    def unpaired_share(self) -> float:
        """Share, 0 to 1, of all received items that were given up without a partner."""
        return sum(self.unpaired.values()) / max(1, sum(self.received.values()))

    def sentence(self) -> str:
        """Return the counts as one line."""
        parts = [
            f"{self.pairs} pairs from {self.received['left']} left and {self.received['right']} right clouds",
            f"{100 * self.unpaired_share:.1f} % without a partner",
        ]
        if self.duplicates or self.out_of_order:
            parts.append(f"{self.duplicates} duplicates and {self.out_of_order} late ones dropped")
        if self.restarts:
            parts.append(f"stamps jumped back {self.restarts} times")
        return ", ".join(parts)


class StampPairing(Generic[Payload]):
    """Pairs items of nearest stamps that are at most `bound` apart; every item is used at most once.

    Per side stamps must rise; an item with the stamp of its predecessor (a duplicate) or an older one is dropped.
    At most `capacity` items per side wait for a partner. Stamps are integers in ns, `bound` is in s.
    """

    def __init__(self, bound: float = 0.05, capacity: int = 10):
        self.bound = round(bound * 1e9)
        self.capacity = capacity
        self.counts = PairingCounts()
        self._waiting: dict[str, deque[tuple[int, Payload]]] = {side: deque() for side in SIDES}
        self._last: dict[str, int] = {}
        self._period: dict[str, int] = {}

    def add(self, side: str, stamp: int, payload: Payload) -> list[Pair[Payload]]:
        """Take one item of `side` ("left" or "right") and return the pairs that are complete by it, oldest first."""
        self.counts.received[side] += 1
        if not self._is_news(side, stamp):
            return []
        self._waiting[side].append((stamp, payload))
        pairs = list(self._complete())
        while len(self._waiting[side]) > self.capacity:
            self._give_up(side)
        return pairs

    def _is_news(self, side: str, stamp: int) -> bool:
        last = self._last.get(side)
        if last is not None and stamp <= last - RESTART:
            self._start_anew()
            last = None
        elif last is not None and stamp <= last:
            if stamp == last:
                self.counts.duplicates += 1
            else:
                self.counts.out_of_order += 1
            return False
        if last is not None:
            self._period[side] = min(self._period.get(side, stamp - last), stamp - last)
        self._last[side] = stamp
        return True

    def _start_anew(self) -> None:
        self.counts.restarts += 1
        for side in SIDES:
            while self._waiting[side]:
                self._give_up(side)
        self._last.clear()

    def _complete(self):
        left, right = self._waiting["left"], self._waiting["right"]
        while left and right:
            gap = right[0][0] - left[0][0]
            earlier, later = ("left", "right") if gap >= 0 else ("right", "left")
            if abs(gap) > self.bound:
                self._note_miss(abs(gap))
                self._give_up(earlier)  # the other side's stamps only rise: no partner can come any more
                continue
            better_may_come = self._successor_is_nearer(earlier, later, abs(gap))
            if better_may_come is None:
                return
            if better_may_come:
                self._give_up(earlier)
                continue
            (stamp, left_payload), (_, right_payload) = left.popleft(), right.popleft()
            self.counts.pairs += 1
            yield Pair(left_payload, right_payload, stamp, gap)

    def _successor_is_nearer(self, earlier: str, later: str, gap: int) -> bool | None:
        """Whether the item after the earlier one fits the later one better; None while that cannot be known yet."""
        queue, target = self._waiting[earlier], self._waiting[later][0][0]
        if len(queue) > 1:
            return abs(target - queue[1][0]) < gap
        if gap == 0 or 2 * gap <= self._period.get(earlier, 0):
            return False  # a successor is at least a period later, so at least as far beyond
        return None

    def _give_up(self, side: str) -> None:
        self._waiting[side].popleft()
        self.counts.unpaired[side] += 1

    def _note_miss(self, gap: int) -> None:
        if self.counts.closest_miss is None or gap < self.counts.closest_miss:
            self.counts.closest_miss = gap
