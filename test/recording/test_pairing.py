"""Pairs are those of nearest stamps, whatever order and faults the streams have."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.recording.pairing import MILLISECOND, StampMatching
from stretch_sim_cal.recording.topics import RecordedSets

PERIOD = 100


def feed(pairing: StampMatching, items: list[tuple[str, float]]) -> list[tuple[float, ...]]:
    """Feed (lidar, stamp in ms) and return the sets as stamps in ms."""
    pairs = []
    for side, stamp in items:
        pairs += pairing.add(side, round(stamp * MILLISECOND), stamp)
    return [tuple(found.messages.values()) for found in pairs]


def streams(offset: float, count: int = 10, period: float = PERIOD) -> list[tuple[str, float]]:
    items = [("left", i * period) for i in range(count)] + [("right", i * period + offset) for i in range(count)]
    return sorted(items, key=lambda item: item[1])


@pytest.mark.parametrize(("bound", "offset", "first"), [(0.05, 30, 0), (0.05, 70, 0), (0.1, 90, 1)])
def test_steady_streams_pair_each_scan_with_the_nearest_however_wide_the_bound(bound, offset, first):
    pairing, later = StampMatching(SIDES, bound=bound), offset > PERIOD / 2
    pairs = feed(pairing, streams(offset))
    assert pairs[first:] == [((i + later) * PERIOD, i * PERIOD + offset) for i in range(first, 10 - later)]
    assert later or pairing.counts.alone_share == 0.0


def test_nothing_pairs_beyond_the_bound_and_the_closest_miss_is_known():
    pairing = StampMatching(SIDES, bound=0.02)
    assert feed(pairing, streams(offset=40)) == []
    assert pairing.counts.closest_miss == 40 * MILLISECOND
    assert pairing.counts.alone_share > 0.9


def test_duplicates_and_late_items_are_dropped_and_a_stream_that_begins_anew_is_paired_again():
    pairing = StampMatching(SIDES)
    assert len(feed(pairing, streams(offset=5, count=30))) == 30
    assert len(feed(pairing, streams(offset=5, count=30))) == 30
    assert pairing.counts.restarts in (1, 2)
    pairing = StampMatching(SIDES)
    items = [("left", 0), ("left", 0), ("right", 1), ("left", 100), ("left", 50), ("right", 101), ("right", 1)]
    assert feed(pairing, items) == [(0, 1), (100, 101)]
    assert (pairing.counts.duplicates, pairing.counts.out_of_order) == (1, 2)


def test_a_set_has_of_every_lidar_the_scan_nearest_to_that_of_the_first():
    matching = StampMatching(("left", "right", "mast"), bound=0.05)
    mast = [("mast", i * PERIOD / 2 + 10) for i in range(20) if i not in (3, 4)]  # twice as fast, with a gap
    items = sorted(streams(offset=-30) + mast, key=lambda item: item[1])
    expected = [(i * PERIOD, i * PERIOD - 30, i * PERIOD + 10) for i in range(10) if i != 2]
    assert feed(matching, items) == expected
    assert "9 sets from 10 left, 10 right and 18 mast clouds" in matching.counts.sentence()


def test_a_gap_in_one_stream_costs_only_the_frames_in_it_and_memory_stays_bounded_while_one_is_silent():
    items = [item for item in streams(offset=5, count=30) if item[0] == "left" or not 500 <= item[1] < 1500]
    pairing = StampMatching(SIDES)
    assert len(feed(pairing, items)) == 20
    assert pairing.counts.alone == {"left": 10, "right": 0}
    pairing = StampMatching(SIDES, capacity=4)
    assert feed(pairing, [("left", i * PERIOD) for i in range(1000)]) == []
    assert pairing.counts.alone["left"] == 996
    assert "99.6 % without a partner" in pairing.counts.sentence()


@given(st.lists(st.tuples(st.sampled_from(["left", "right"]), st.integers(0, 900)), max_size=60), st.integers(0, 100))
def test_any_stream_gives_rising_pairs_within_the_bound_each_item_once(items, bound):
    pairing = StampMatching(SIDES, bound=bound / 1e3)
    pairs = feed(pairing, items)
    assert all(abs(left - right) <= bound for left, right in pairs)
    assert all(a < b for column in zip(*pairs, strict=True) for a, b in zip(column, column[1:], strict=False))
    counts = pairing.counts
    accounted = 2 * counts.sets + sum(counts.alone.values()) + counts.duplicates + counts.out_of_order
    assert accounted <= len(items)


class Clouds:
    """A recording of clouds, with their stamps (s) by lidar."""

    path = "bag"

    def __init__(self, stamps):
        self._stamps = stamps

    def require(self, topic, kind): ...

    def count(self, topic):
        return 3

    def messages(self, topics):
        for together in itertools.zip_longest(*self._stamps.values()):
            for name, stamp in zip(self._stamps, together, strict=True):
                if stamp is not None:
                    header = SimpleNamespace(stamp=SimpleNamespace(sec=stamp, nanosec=0), frame_id=name)
                    yield f"/{name}", SimpleNamespace(header=header)


def sets_of(stamps, returns=4, **topics):
    """Return the sets of a recording whose clouds have so many returns, each its stamp five times."""
    topics, frames = {name: f"/{name}" for name in stamps} | topics, {name: name for name in stamps}
    return RecordedSets(
        Clouds(stamps), topics, frames, 0.05, 10, pytest.fail,
        lambda message: np.full((returns, 5), message.header.stamp.sec),
    )  # fmt: skip


def test_each_scan_of_one_lidar_is_a_set_and_two_lidars_of_one_topic_are_an_error():
    sets = sets_of({"left": [0, 1, 2]})
    assert [(list(clouds), clouds["left"][0, 0]) for clouds in sets] == [(["left"], number) for number in range(3)]
    assert sets.total == 3
    with pytest.raises(InputError, match="two lidars have the same topic: /left, /left"):
        list(sets_of({"left": [0], "right": [0]}, right="/left"))


@pytest.mark.parametrize(("right", "returns", "why"), [
    ([0, 1, 2], 0, "in each of 3 a cloud has no returns"),
    ([20, 19, 18], 4, "2 stamps are before those of earlier clouds"),
    ([20, 21, 22], 4, "never closer than 18000 ms; raise --max-time-difference"),
    ([], 4, "only 3 left and 0 right clouds"),
])  # fmt: skip
def test_why_there_is_no_pair_is_told(right, returns, why):
    with pytest.raises(InputError, match=why):
        list(sets_of({"left": [0, 1, 2], "right": right}, returns))
