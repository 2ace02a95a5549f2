"""Looks for the realistic case in which an accepted result is most wrong, in units of its standard deviation.

An evolution strategy (CMA-ES: Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772; package `cma`) over
the unit cube that the campaign's distributions are drawn from: every case it tries is one that the campaign may draw.
"""

import json
import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cma
import numpy as np

from stretch_sim_cal.campaign.engine import CaseProcess
from stretch_sim_cal.campaign.plan import INPUTS, Campaign, as_rare_as
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_text

START_SPREAD = 0.3
MARGIN = 0.005  # of a distribution, at both ends, of which nothing is tried


def wrongness(record: dict[str, Any], freedom: Mapping[str, int]) -> float:
    """Return the standard deviations of a single number that are as rare as the worst accepted stage; 0 without one.
    `freedom` is how many numbers each stage estimates."""
    sigmas = {stage: record.get(f"{stage}.sigmas") for stage in freedom if record.get(f"{stage}.accepted")}
    rare = (as_rare_as(each**2, freedom[stage]) for stage, each in sigmas.items() if each is not None)
    return max(map(float, rare), default=0.0)


def search(
    campaign: Campaign, evaluations: int, seed: int, tell: Callable[[dict[str, Any], float], None], workers: int = 1,
    kept: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the record of the most wrong of so many cases, with its `wrongness`, `point` and `seed`; `tell` takes
    each. Equal arguments give the same case. Cases are kept in the file `kept`, a line each, and not computed twice."""
    varied = [position for position, name in enumerate(INPUTS) if name in campaign.varied]
    worst: dict[str, Any] = {"wrongness": -1.0}
    number, strategy = 0, None
    key, writing = f"{campaign.key} {campaign.code}", threading.Lock()
    known, every = _known(kept, key), [CaseProcess() for _ in range(workers)]
    processes: queue.SimpleQueue[CaseProcess] = queue.SimpleQueue()
    for each in every:
        processes.put(each)

    def tried(numbered: tuple[int, np.ndarray]) -> dict[str, Any]:
        number, reduced = numbered
        cube = np.full(len(INPUTS), 0.5)
        cube[varied] = reduced
        point, drawn = cube.tolist(), [campaign.seed, seed, number]
        if (case := json.dumps([point, drawn])) in known:
            return known[case]
        process = processes.get()
        try:
            record = process.run(campaign, number, point, drawn) | {"point": point, "seed": drawn}
        finally:
            processes.put(process)
        if kept is not None:
            line = json.dumps({"campaign": key, "record": record}) + "\n"
            with writing, kept.open("a", encoding="utf-8") as stream:
                stream.write(line)
        return record

    with ThreadPoolExecutor(workers) as pool:
        try:
            while number < evaluations:
                if strategy is None or strategy.stop():  # converged, or nothing is accepted there: start over
                    options = {"bounds": [MARGIN, 1.0 - MARGIN], "seed": seed + 1 + number, "verbose": -9}
                    strategy = cma.CMAEvolutionStrategy([0.5] * len(varied), START_SPREAD, options)
                asked = strategy.ask()[: evaluations - number]
                scores = []
                for record in pool.map(tried, enumerate(asked, number)):
                    scores.append(wrongness(record, campaign.freedom))
                    tell(record, scores[-1])
                    if scores[-1] > worst["wrongness"]:
                        worst = record | {"wrongness": scores[-1]}
                number += len(asked)
                if len(asked) == strategy.popsize:
                    strategy.tell(asked, [-score for score in scores])
        except BaseException:
            for process in every:  # the pool waits for the cases that are being computed
                process.kill()
            raise
    return worst


def _known(kept: Path | None, key: str) -> dict[str, dict[str, Any]]:
    """Return the cases of a campaign in the file; a last line that a kill cut off is taken out of it."""
    if kept is None or not kept.exists():
        return {}
    try:
        text = kept.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            write_text(kept, whole)
        lines = [json.loads(line) for line in whole.splitlines()]
        records = [line["record"] for line in lines if line["campaign"] == key]
        return {json.dumps([record["point"], record["seed"]]): record for record in records}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{kept}: is damaged or not a search ({error!r}); move it away") from error
