"""Looks for the realistic case in which an accepted result is most wrong, in units of what it says of itself.

An evolution strategy (CMA-ES: Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772; package
`cma`) over the unit cube that the campaign's distributions are drawn from, so that every case it tries is
one that the campaign may draw.
"""

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cma
import numpy as np

from stretch_sim_cal.campaign.engine import CaseProcess
from stretch_sim_cal.campaign.plan import INPUTS, Campaign

START_SPREAD = 0.3
# Beyond the first and last half percent of a distribution nothing is tried.
MARGIN = 0.005


def wrongness(record: dict[str, Any], stages: tuple[str, ...]) -> float:
    """Return by how many standard deviations the worst accepted stage is off; 0 if none was accepted."""
    return max([0.0] + [record[f"{stage}.sigmas"] for stage in stages
                        if record.get(f"{stage}.accepted") and record.get(f"{stage}.sigmas") is not None])  # fmt: skip


def search(
    campaign: Campaign, evaluations: int, seed: int, tell: Callable[[dict[str, Any], float], None], workers: int = 1
) -> dict[str, Any]:
    """Return the record of the most wrong case of so many, with its `wrongness` and
    `point`; `tell` hears of every case.

    Equal campaign, `evaluations` and `seed` give the same case.
    """
    varied = [position for position, name in enumerate(INPUTS) if name in campaign.varied]
    strategy = cma.CMAEvolutionStrategy(
        [0.5] * len(varied), START_SPREAD, {"bounds": [MARGIN, 1.0 - MARGIN], "seed": seed + 1, "verbose": -9,
        "maxfevals": evaluations}
    )  # fmt: skip
    worst: dict[str, Any] = {"wrongness": -1.0}
    number = 0

    processes: queue.SimpleQueue[CaseProcess] = queue.SimpleQueue()
    for _ in range(workers):
        processes.put(CaseProcess())

    def tried(numbered: tuple[int, np.ndarray]) -> dict[str, Any]:
        number, reduced = numbered
        point = np.full(len(INPUTS), 0.5)
        point[varied] = reduced
        process = processes.get()
        try:
            return process.run(campaign, number, point.tolist(), [campaign.seed, seed, number])
        finally:
            processes.put(process)

    with ThreadPoolExecutor(workers) as pool:
        while number < evaluations and not strategy.stop():
            asked = strategy.ask()[: evaluations - number]
            records = list(pool.map(tried, enumerate(asked, number)))
            number += len(asked)
            scores = [wrongness(record, campaign.stages) for record in records]
            for record, score in zip(records, scores, strict=True):
                tell(record, score)
                if score > worst["wrongness"]:
                    worst = record | {"wrongness": score}
            if len(asked) == strategy.popsize:
                strategy.tell(asked, [-score for score in scores])
    return worst
