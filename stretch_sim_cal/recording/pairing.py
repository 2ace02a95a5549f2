"""Stamps, and streams of stamped items of any number of lidars, of which sets of one time are made by them. Lidars are
synchronised only to within tens of milliseconds, so scans are matched by their stamps, within a bound."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stretch_sim_cal.command import enumerated
from stretch_sim_cal.recording.clouds import returns_from_message

MILLISECOND = 1_000_000
# A stamp this far behind the last one is not a late message but a stream that restarted: a bag that loops, a restart.
RESTART = 1_000 * MILLISECOND


def stamp_of(message: Any) -> int:
    """Return the stamp in a message's header, in ns."""
    return message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec


@dataclass(frozen=True)
class CloudSet:
    """Clouds of one time, as `messages` by lidar; `stamp` (ns) is the first lidar's, `span` the earliest and the latest
    one."""

    messages: dict[str, Any]
    stamp: int
    span: tuple[int, int]

    @cached_property
    def clouds(self) -> dict[str, np.ndarray]:
        """Each lidar's returns (N, 5) float32 in its own frame: x, y, z, ring, intensity; (N, 3) if it sends no
        more."""
        return {name: returns_from_message(message) for name, message in self.messages.items()}


@dataclass
class MatchingCounts:
    """Counts of the items so far, by lidar, and the smallest gap (ns) among those that found no partner."""

    received: dict[str, int]
    alone: dict[str, int]
    duplicates: int = 0
    out_of_order: int = 0
    restarts: int = 0
    sets: int = 0
    closest_miss: int | None = None

    @property
    def alone_share(self) -> float:
        """Share, 0 to 1, of all received items that were given up without a partner."""
        return sum(self.alone.values()) / max(1, sum(self.received.values()))

    def sentence(self) -> str:
        called = {1: "scans", 2: "pairs"}.get(len(self.received), "sets")
        received = enumerated([f"{count} {name}" for name, count in self.received.items()])
        parts = [f"{self.sets} {called} from {received} clouds", f"{100 * self.alone_share:.1f} % without a partner"]
        if self.duplicates or self.out_of_order:
            parts.append(f"{self.duplicates} duplicates and {self.out_of_order} late ones dropped")
        if self.restarts:
            parts.append(f"stamps jumped back {self.restarts} times")
        return ", ".join(parts)


class StampMatching:
    """Makes sets of messages, or other items, one of each of the lidars `names`: to each one of the first lidar, of
    every other lidar the one of nearest stamp, at most `bound` (s) apart; every item is used at most once. Per lidar
    stamps (ns) must rise; an item with the stamp of its predecessor (a duplicate) or an older one is dropped. At most
    `capacity` items per lidar wait for a partner. The items of a single lidar are sets by themselves."""

    def __init__(self, names: Sequence[str], bound: float = 0.05, capacity: int = 10):
        self.bound, self.capacity = round(bound * 1e9), capacity
        self.counts = MatchingCounts(dict.fromkeys(names, 0), dict.fromkeys(names, 0))
        self._waiting: dict[str, deque[tuple[int, Any]]] = {name: deque() for name in names}
        self._last: dict[str, int] = {}
        self._period: dict[str, int] = {}

    def add(self, name: str, stamp: int, message: Any) -> list[CloudSet]:
        """Take one item of a lidar and return the sets that are complete by it, oldest first."""
        self.counts.received[name] += 1
        if not self._is_news(name, stamp):
            return []
        self._waiting[name].append((stamp, message))
        sets = list(self._complete())
        self._give_up(name, len(self._waiting[name]) - self.capacity)
        return sets

    def _is_news(self, name: str, stamp: int) -> bool:
        last = self._last.get(name)
        if last is not None and stamp <= last - RESTART:
            self.counts.restarts += 1
            for each, waiting in self._waiting.items():
                self._give_up(each, len(waiting))
            self._last.clear()
        elif last is not None and stamp <= last:
            self.counts.duplicates += stamp == last
            self.counts.out_of_order += stamp < last
            return False
        elif last is not None:
            self._period[name] = min(self._period.get(name, stamp - last), stamp - last)
        self._last[name] = stamp
        return True

    def _complete(self) -> Iterator[CloudSet]:
        first, *others = self._waiting
        while all(self._waiting.values()):
            found = (self._without_partner(first, other) for other in others)
            without = next((name for name in found if name != ""), "")
            if without is None:
                return
            if without:
                self._give_up(without)
                continue
            taken = {name: waiting.popleft() for name, waiting in self._waiting.items()}
            stamps = [stamp for stamp, _ in taken.values()]
            self.counts.sets += 1
            yield CloudSet({name: item for name, (_, item) in taken.items()}, stamps[0], (min(stamps), max(stamps)))

    def _without_partner(self, first: str, other: str) -> str | None:
        """Return which of two lidars' oldest items has no partner in the other one's, "" if they are partners, None
        while that cannot be known yet."""
        gap = self._waiting[other][0][0] - self._waiting[first][0][0]
        earlier, later = (first, other) if gap >= 0 else (other, first)
        if abs(gap) > self.bound:
            closest = self.counts.closest_miss
            self.counts.closest_miss = abs(gap) if closest is None else min(closest, abs(gap))
            return earlier  # the other lidar's stamps only rise: no partner can come any more
        gap, queue = abs(gap), self._waiting[earlier]
        if len(queue) > 1:
            return earlier if abs(self._waiting[later][0][0] - queue[1][0]) < gap else ""
        # A successor is at least a period later.
        return "" if gap == 0 or 2 * gap <= self._period.get(earlier, 0) else None

    def _give_up(self, name: str, count: int = 1) -> None:
        for _ in range(count):
            self._waiting[name].popleft()
            self.counts.alone[name] += 1
