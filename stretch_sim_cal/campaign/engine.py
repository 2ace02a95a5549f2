"""Runs the cases of a campaign on Dask, keeps their results so that nothing is lost, whatever is killed, and searches
for the worst case."""

import fcntl
import itertools
import json
import logging
import os
import queue
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dask.distributed import Client, Future, LocalCluster, Security, as_completed

from stretch_sim_cal.campaign.plan import INPUTS, OF_LIDARS, QUANTITIES, STAGES, Campaign, as_rare_as
from stretch_sim_cal.command import one_line, warn
from stretch_sim_cal.errors import InputError, RunFailure, StretchSimCalError
from stretch_sim_cal.files import read_text, remove_abandoned, scratch_folder, write_atomic, write_text, writing
from stretch_sim_cal.programs import THREADS

FLUSH = 2.0  # s from write to write; what was computed since is computed again after a kill, with the same result
PART = 1000  # cases in a file
TLS_FILES = ("tls_ca_file", "tls_client_cert", "tls_client_key")
WAITING_PER_WORKER = 3  # cases: enough to hide the way to the scheduler, few enough to bound the client's memory
LOOK_AT_WORKERS = 5.0  # s from count to count of them; they come and go
SCHEDULER_SILENT = "10s"
ANSWERED_WITHIN = 60.0  # s for the scheduler to answer a question
STARTED_WITHIN = 300.0  # s for a process that computes cases, without the time for which it waits for a core
CONFIGURATION = {
    "distributed.scheduler.allowed-failures": 3,  # workers that may die under a case until it is taken for the cause
    "distributed.worker.memory.target": False, "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False, "distributed.logging.distributed": "error",
    # Dask's workers sample their own calls a hundred times a second, and their load twice.
    "distributed.worker.profile.enabled": False, "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.system-monitor.gil.enabled": False,
}  # fmt: skip
DEFINITION = "campaign_definition.json"  # in the folder of a campaign
DONE = "done"  # the status of a case that was computed
GONE = "the scheduler was lost ({}); finished cases are kept: run the same command again"
KILLED = "the computation of cases was ended"
MOST_TOLD = 4000  # characters of the last output of a crashed process
CORES = len(os.sched_getaffinity(0))  # that this process may use
START_SPREAD = 0.3  # of a search
MARGIN = 0.005  # of a distribution, at both ends, of which a search tries nothing


class CannotCompute(RunFailure):
    """No case can be computed, whichever it is: the package on a worker is incomplete, say."""


class CaseProcess:
    """The process that computes cases for one worker: started when it is needed, and again after one that killed it,
    hung or needed too much memory, which is a result of that kind."""

    def __init__(self):
        self._process: subprocess.Popen | None = None
        self._killed = False
        self._log = tempfile.TemporaryFile("a+")

    def run(
        self, campaign: Campaign, index: int, point: Sequence[float] | None = None, seed: Sequence[int] | None = None
    ) -> dict[str, Any]:
        """Return the record of case `index`, or, under that number, of the `point` of the unit cube with its `seed`."""
        if not self._killed and (self._process is None or self._process.poll() is not None):
            self._start()
        if self._killed:
            raise RunFailure(KILLED)
        process = self._process
        request = json.dumps({"campaign": dict(campaign.data), "index": index, "point": point, "seed": seed})
        try:
            process.stdin.write(request + "\n")
            process.stdin.flush()
            answer = self._answer(campaign.time_limit)
        except TimeoutError:
            self._end()
            return {"index": index, "status": "timeout", "message": f"took longer than {campaign.time_limit:g} s"}
        except BrokenPipeError:
            answer = ""
        if answer:
            return json.loads(answer)
        code = process.wait()
        self._end()
        if self._killed:  # so this is no result
            raise RunFailure(KILLED)
        message = f"its process was ended by {f'signal {-code}' if code < 0 else f'exit code {code}'}"
        return {"index": index, "status": "crashed", "message": message, "traceback": self._logged()}

    def kill(self) -> None:
        """Let nothing more be computed, nor what another thread computes here: its `run` raises `RunFailure`."""
        self._killed = True
        if (process := self._process) is not None:
            process.kill()

    def _answer(self, limit: float) -> str:
        """Return the process's next line, "" if it ended. Raises `TimeoutError` after `limit` s, not counting the time
        for which it waited for a core: a busy machine makes no case fail."""
        began, waited, left = time.monotonic(), self._waited(), limit
        while left > 0.0:
            if select.select([self._process.stdout], [], [], max(left, 1.0))[0]:
                return self._process.stdout.readline()
            left = limit - (time.monotonic() - began) + (self._waited() - waited)
        raise TimeoutError

    def _waited(self) -> float:
        """Return for how long (s) the process was ready to run and had no core; 0 where the system does not say."""
        try:
            return 1e-9 * int(Path(f"/proc/{self._process.pid}/schedstat").read_text().split()[1])
        except (OSError, IndexError):
            return 0.0

    def _start(self) -> None:
        self._log.truncate(0)
        environment = os.environ | dict.fromkeys(THREADS, "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stretch_sim_cal.campaign.case"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._log, text=True, env=environment,
        )  # fmt: skip
        try:
            ready = self._answer(STARTED_WITHIN)
        except TimeoutError:
            ready = ""
        if not ready:
            self._end()
            last = self._logged().strip().splitlines()[-1:]
            raise CannotCompute(f"the process that computes cases does not start: {last}")

    def _logged(self) -> str:
        self._log.seek(0)
        return self._log.read()[-MOST_TOLD:]

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            remove_abandoned()

    __del__ = _end


_own = threading.local()  # a CaseProcess per worker thread: workers have one thread each


def compute(campaign: Campaign, index: int, code: str | None = None) -> dict[str, Any]:
    """Compute a case on a worker. Raises `CannotCompute` if the worker is to have other `code` than it has."""
    if not hasattr(_own, "process"):
        _own.code, _own.process = campaign.code, CaseProcess()
    if code not in (None, _own.code):
        raise CannotCompute(f"a worker has code {_own.code}, this machine {code}; install the same version")
    return _own.process.run(campaign, index)


class Results:
    """The folder of a campaign: its definition, and its cases' records, a Parquet dataset (`cases/*.parquet`) whose
    files are written whole or not at all. One process at a time may write."""

    def __init__(self, folder: Path, campaign: Campaign, again: bool = False):
        """Open or make the folder; with `again`, failed cases count as missing. Raises `InputError` if it holds another
        campaign, or another process works on it."""
        self.folder, self.cases, self._again = folder, folder / "cases", again
        definition, other = folder / DEFINITION, "give another --out"
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder}: is a file; --out is the campaign's folder")
        if definition.exists():
            known = read_definition(folder)
            if known["key"] != campaign.key:
                whose = f"contains cases of campaign '{known['data']['name']}' that this one does not have"
                raise InputError(f"{folder}: {whose}, or whose robot's or lidars' files were different; {other}")
            if known["code"] != campaign.code:
                code = f"its cases were computed by code {known['code']}, this is {campaign.code}"
                raise InputError(f"{folder}: {code}; continue with that, or {other}")
        elif self.cases.exists():
            raise InputError(f"{folder}: has no {DEFINITION}, so its cases are unknown; {other}")
        with writing(folder):
            self.cases.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self.cases, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another process runs this campaign; wait, or {other}") from None
        content = {"key": campaign.key, "code": campaign.code, "data": dict(campaign.data)}
        write_text(definition, json.dumps(content, indent=1) + "\n")
        self._records: list[dict[str, Any]] = []  # of the present part
        self._unwritten = 0
        self._written = time.monotonic()
        self._number = 1 + max((int(part.stem.split("_")[1]) for part in parts_of(folder)), default=0)

    def close(self) -> None:
        self.flush()
        os.close(self._lock)

    def indices(self) -> set[int]:
        """Return the cases that need not be computed."""
        rows = [row for part in parts_of(self.folder) for row in _read_part(part, ["index", "status"]).to_pylist()]
        return {row["index"] for row in rows if row["status"] == DONE or not self._again}

    def add(self, record: dict[str, Any]) -> None:
        """Keep a record, and write those that wait for it since `FLUSH` s."""
        self._records.append(record)
        self._unwritten += 1
        self.flush(FLUSH)

    def flush(self, after: float = 0.0) -> None:
        """Write what was added, if the last time was at least `after` s ago."""
        if not self._unwritten or time.monotonic() - self._written < after:
            return
        table = pa.Table.from_pylist(self._records, SCHEMA)
        write_atomic(self.cases / f"part_{self._number:06d}.parquet", lambda stream: pq.write_table(table, stream))
        if len(self._records) >= PART:
            self._records, self._number = [], self._number + 1
        self._unwritten, self._written = 0, time.monotonic()


FLOAT, TEXT = pa.float64(), pa.string()
LIDAR = pa.struct([("name", TEXT), ("translation_mm", FLOAT), ("rotation_deg", FLOAT), ("sigmas", FLOAT)])
"""The result of one lidar."""
OF_STAGE = (("accepted", pa.bool_()), ("refusals", TEXT), ("nees", FLOAT), ("sigmas", FLOAT))
SCHEMA = pa.schema([
    ("index", pa.int64()), *((name, TEXT) for name in ("status", "message", "traceback")),
    *((f"input.{name}", FLOAT) for name in INPUTS),
    *((f"{stage}.{name}", kind) for stage in STAGES for name, kind in OF_STAGE),
    ("alignment.places", pa.int64()), *((f"{stage}.lidars", pa.list_(LIDAR)) for stage in OF_LIDARS),
    *((name, FLOAT) for name in QUANTITIES), *((f"nodes.{stage}.sigmas", FLOAT) for stage in STAGES),
    ("nodes.agree", pa.bool_()), ("nodes.message", TEXT), ("seconds", FLOAT),
])  # fmt: skip
"""The columns of the dataset. All but `seconds` (of CPU) and the nodes' are functions of campaign and index alone."""


def parts_of(folder: Path) -> list[Path]:
    """Return the files of a campaign's cases. Raises `InputError` if there is another file among them."""
    parts = sorted((folder / "cases").glob("*.parquet"))
    for part in parts:
        if not re.fullmatch(r"part_\d{1,9}\.parquet", part.name):
            raise InputError(f"{part}: is not part of a campaign; move it away")
    return parts


def _read_part(part: Path, columns: list[str] | None = None) -> pa.Table:
    try:
        table = pq.read_table(part, schema=SCHEMA, columns=columns)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{part}: is damaged ({one_line(error)}); move it away to compute its cases again") from error
    if table["index"].null_count or table["status"].null_count:
        raise InputError(f"{part}: has no columns index and status, so it is not part of a campaign; move it away")
    return table


def read_definition(folder: Path) -> dict[str, Any]:
    """Return the definition in a campaign's folder. Raises `InputError` if it is none."""
    path = folder / DEFINITION
    try:
        read = json.loads(read_text(path))
        return {"key": str(read["key"]), "code": str(read.get("code", "unknown")), "data": {"name": "", **read["data"]}}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path}: is damaged ({error!r}); move {folder} away, or give another --out") from error


def read_table(folder: Path) -> pa.Table:
    """Return all cases of a folder by index; of one that failed and was computed again, the later record. Raises
    `InputError` if there are none."""
    if not (parts := parts_of(folder)):
        raise InputError(f"{folder}: has no cases of a campaign")
    table = pa.concat_tables([_read_part(part) for part in parts])
    first: dict[int, int] = {}
    done = [status == DONE for status in table["status"].to_pylist()]
    for row, index in enumerate(table["index"].to_pylist()):
        if done[row] > done[first.setdefault(index, row)]:
            first[index] = row
    return table.take([first[index] for index in sorted(first)])


@contextmanager
def cluster(address: str | None, workers: int, memory: float, tls: Sequence[Path] | None = None) -> Iterator[Client]:
    """Yield a client of the scheduler at `address`, or of a cluster of so many local processes, one thread each with at
    most `memory` (MB). `tls` are the files of the authority's certificate, the client's certificate and its key
    (default: Dask's configuration). Raises `InputError` without such a scheduler."""
    with dask.config.set(CONFIGURATION | {"distributed.comm.timeouts.connect": SCHEDULER_SILENT}):
        if address is not None:
            try:
                security = Security(**dict(zip(TLS_FILES, map(str, tls), strict=True))) if tls else None
                client = Client(address, timeout=SCHEDULER_SILENT, security=security)
            except (OSError, ValueError, TypeError) as error:  # TypeError: tls:// without certificates
                raise InputError(f"--cluster {address}: there is no usable Dask scheduler ({error})") from error
            log = logging.getLogger("distributed.client")
            level = log.level
            log.setLevel(logging.CRITICAL)  # that it lost the scheduler is raised, and needs no traceback of its own
            try:
                yield client
            finally:
                with suppress(TimeoutError):  # of a scheduler that does not answer
                    client.close()
                log.setLevel(level)
            return
        # The worker itself is small; the limit is for the process that computes, which sets it itself.
        with scratch_folder() as scratch, dask.config.set({"temporary-directory": str(scratch)}), LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, memory_limit=f"{memory:.0f}MB",
            dashboard_address="127.0.0.1:0", env={"TMPDIR": str(scratch)},
        ) as local, Client(local) as client:  # fmt: skip
            yield client


def run(
    campaign: Campaign, count: int, results: Results, client: Client, tell: Callable[[dict[str, Any]], None],
    work: Callable[[Campaign, int], dict[str, Any]] | None = None,
) -> None:  # fmt: skip
    """Compute those of the first `count` cases that `results` lacks; `tell` takes each record. Raises `RunFailure` if
    the scheduler goes away or no longer answers; finished cases are in `results`."""
    done, this_run = results.indices(), uuid.uuid4().hex  # an earlier run's cases may still be with the scheduler
    missing = iter([index for index in range(count) if index not in done])
    case = partial(work or partial(compute, code=campaign.code), campaign)  # one object, so that it is serialized once

    def submit(number: int) -> list[Future]:
        chosen = list(itertools.islice(missing, number))
        return client.map(case, chosen, pure=False, key=[f"case-{i}-{this_run}" for i in chosen])

    def records_of(batch: list[Future]) -> list[dict[str, Any]]:
        finished = [future for future in batch if future.status == "finished"]
        ask = partial(client.gather, finished, asynchronous=True)  # one message for all of them
        records = _answered(client, ask) if finished else []
        for future in batch:
            if future.status == "error":
                if isinstance(future.exception(), StretchSimCalError):
                    raise future.exception()
                message = f"on its worker: {future.exception()!r}"
                records.append({"index": int(future.key.split("-")[1]), "status": "crashed", "message": message})
            elif future.status != "finished":
                raise RunFailure(GONE.format(future.status))
        return records

    def count_workers(before: int = 1) -> int:
        found = len(_answered(client, lambda: client.scheduler.ncores()))
        if not found and before:
            warn("the scheduler has no workers: cases wait until one comes")
        return found

    try:
        workers, looked = count_workers(), time.monotonic()
        waiting = as_completed(submit(WAITING_PER_WORKER * max(workers, 1)), loop=client.loop)
        while not waiting.is_empty():
            batch = _next_batch(waiting)
            for record in records_of(batch):
                results.add(record)
                tell(record)
            batch.clear()  # or the scheduler keeps their results
            results.flush(FLUSH)
            if time.monotonic() - looked > LOOK_AT_WORKERS:
                workers, looked = count_workers(workers), time.monotonic()
            # New ones go out together, as soon as every worker has used up one of those that it had waiting.
            if (left := waiting.count()) <= (WAITING_PER_WORKER - 1) * max(workers, 1):
                waiting.update(submit(WAITING_PER_WORKER * max(workers, 1) - left))
    except StretchSimCalError:
        raise
    except Exception as error:  # of Dask's client, which raises many kinds once it has lost the scheduler
        if client.status == "running" and not isinstance(error, (OSError, RuntimeError)):
            raise
        raise RunFailure(GONE.format(one_line(error) or repr(error))) from error
    finally:
        results.flush()


def _next_batch(waiting: as_completed) -> list[Future]:
    """Return the futures that have ended by now, or else within `FLUSH` s."""
    until = time.monotonic() + FLUSH
    while not (waiting.has_ready() or waiting.is_empty()) and time.monotonic() < until:
        with waiting.thread_condition:
            waiting.thread_condition.wait(0.1)
    return waiting.next_batch(block=False)


def _answered(client: Client, ask: Callable[[], Awaitable[Any]]) -> Any:
    """Return what the scheduler answers. Raises `TimeoutError` if it does not within `ANSWERED_WITHIN`, and
    `RunFailure` if the client has lost it: such a client may never be told what has become of its cases."""
    if client.status != "running":
        raise RunFailure(GONE.format(client.status))
    try:
        return client.sync(ask, callback_timeout=ANSWERED_WITHIN)
    except TimeoutError as error:
        raise TimeoutError(f"no answer within {ANSWERED_WITHIN:g} s") from error


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
    """Return the record of the case in which an accepted result is most wrong, in units of its standard deviation, of
    so many, with its `wrongness`, `point` and `seed`; `tell` takes each. Equal arguments give the same case. Cases are
    kept in the file `kept`, a line each, and not computed twice.

    An evolution strategy (CMA-ES: Hansen, "The CMA Evolution Strategy: A Tutorial", arXiv:1604.00772; package `cma`)
    over the unit cube that the campaign's distributions are drawn from: it tries cases that the campaign may draw."""
    import cma

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
