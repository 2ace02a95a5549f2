"""The search for the worst case: comparable between stages, and it goes on where it was after any end."""

import numpy as np
import pytest

from stretch_sim_cal.campaign import engine
from stretch_sim_cal.campaign.plan import Campaign, as_rare_as, contradicts

CAMPAIGN = Campaign.from_mapping(
    {
        "name": "searched", "sensor": "jt128_sparse_real",
        "inputs": {"room.length": {"uniform": [4, 8]}, "room.width": {"uniform": [4, 8]}, "room.height": 3},
    },
    "searched.yaml",
)  # fmt: skip


@pytest.fixture
def computed(monkeypatch):
    """The numbers of the cases that were computed: the wider and the shorter the room, the more wrong."""
    numbers: list[int] = []

    class Process:
        def run(self, campaign, number, point, seed):
            numbers.append(number)
            inputs = campaign.at(np.array(point))
            return {
                "index": number, "status": "done", "alignment.accepted": inputs["room.width"] < 7.5,
                "alignment.sigmas": inputs["room.width"] - 0.5 * inputs["room.length"] + 1.0,
            }  # fmt: skip

        def kill(self):
            pass

    monkeypatch.setattr(engine, "CaseProcess", Process)
    return numbers


def test_a_search_that_was_ended_goes_on_where_it_was(tmp_path, computed):
    whole = engine.search(CAMPAIGN, 60, 0, lambda record, score: None)
    assert CAMPAIGN.at(np.array(whole["point"]))["room.width"] == pytest.approx(7.5, abs=0.3)

    def ends_at_25(record, score):
        if record["index"] == 25:
            raise KeyboardInterrupt

    kept = tmp_path / "kept.jsonl"
    with pytest.raises(KeyboardInterrupt):
        engine.search(CAMPAIGN, 60, 0, ends_at_25, kept=kept)
    done = len(kept.read_text().splitlines())
    kept.write_text(kept.read_text() + '{"campaign": "cut off')
    computed.clear()
    seen = []
    assert engine.search(CAMPAIGN, 60, 0, lambda record, score: seen.append(record["index"]), kept=kept) == whole
    assert seen == list(range(60)) and computed == list(range(done, 60))
    assert len(kept.read_text().splitlines()) == 60


def test_where_nothing_is_accepted_the_search_begins_anew_until_it_has_tried_as_many_as_asked(computed, monkeypatch):
    monkeypatch.setattr(engine, "wrongness", lambda record, freedom: 0.0)
    tried = []
    engine.search(CAMPAIGN, 40, 3, lambda record, score: tried.append(tuple(record["point"])))
    assert computed == list(range(40)) and len(set(tried)) == 40


def test_stages_are_compared_by_how_rare_their_errors_are():
    assert as_rare_as(np.array([1.0, 16.0]), 1) == pytest.approx([1.0, 4.0])
    assert as_rare_as(16.0, 6) == pytest.approx(2.46, abs=0.01)
    assert as_rare_as(np.array([1e4, 1e5]), 3) == pytest.approx([100.0, 316.2], abs=0.1)
    assert not contradicts(15.9, 1) and contradicts(16.1, 1) and not contradicts(16.1, 6)
    record = {
        "alignment.accepted": True, "alignment.sigmas": 4.0, "floor.accepted": True, "floor.sigmas": 3.5,
        "mounts.accepted": False, "mounts.sigmas": 20.0, "body_shape.accepted": True, "body_shape.sigmas": None,
    }  # fmt: skip
    freedom = {"alignment": 6, "floor": 3, "mounts": 12, "body_shape": 0}
    assert engine.wrongness(record, freedom) == pytest.approx(float(as_rare_as(3.5**2, 3)))
    assert engine.wrongness({"status": "crashed"}, freedom) == 0.0
