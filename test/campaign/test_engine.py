"""Campaigns on Dask: nothing is lost or counted twice, whatever is killed; failures are results of their kind."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask.distributed import Client, LocalCluster, Security
from plugged_in import plugged_in

from stretch_sim_cal.campaign import engine
from stretch_sim_cal.campaign.plan import Campaign
from stretch_sim_cal.cli import main
from stretch_sim_cal.command import INTERRUPTED
from stretch_sim_cal.errors import InputError, RunFailure

pytestmark = pytest.mark.usefixtures("quick_pictures")

FEW_RAYS = str(Path(__file__).parents[1] / "ros" / "few_rays.yaml")
SAID = {
    "name": "tiny", "sensor": FEW_RAYS, "stages": ["alignment"], "seed": 3,
    "inputs": {"recording.alignment_frames": 1, "room.furniture": 2, "room.yaw_deg": {"uniform": [-180, 180]}},
    "limits": {"alignment.translation_mm": 50}, "share": 0.1,
}  # fmt: skip
CASES = 6
PATIENCE = 300.0  # s, of machines that have much else to do
PROGRAM = str(Path(sys.executable).with_name("stretch-sim-cal"))


def campaign(**changed) -> Campaign:
    return Campaign.from_mapping(SAID | changed, "tiny.yaml")


def counted(folder: Path):
    """Return work that is done at once and leaves a file per time that it was done in a new folder."""
    folder.mkdir(exist_ok=True)

    def work(campaign: Campaign, index: int) -> dict:
        (folder / f"{index}_{time.time_ns()}").touch()
        time.sleep(0.02)
        return {"index": index, "status": "done", "alignment.accepted": True, "alignment.translation_mm": float(index)}

    return work


def local_cluster(workers: int, **options) -> LocalCluster:
    alone = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
    return LocalCluster(n_workers=workers, **alone, **options)


@pytest.fixture(scope="module")
def client():
    with local_cluster(2) as cluster, Client(cluster) as client:
        yield client


def run(client, folder: Path, count: int, work, tell=lambda record: None, again: bool = False) -> pa.Table:
    results = engine.Results(folder, campaign(), again)
    try:
        engine.run(campaign(), count, results, client, tell, work)
    finally:
        results.close()
    return engine.read_table(folder)


def test_every_case_is_computed_once_and_a_longer_campaign_adds_to_a_shorter_one(client, tmp_path):
    work = counted(tmp_path / "done")
    run(client, tmp_path / "out", 30, work)
    table = run(client, tmp_path / "out", 100, work)
    assert table["index"].to_pylist() == list(range(100))
    assert table["alignment.translation_mm"].to_pylist() == [float(index) for index in range(100)]
    assert len(list((tmp_path / "done").iterdir())) == 100


def test_a_client_that_ends_in_the_middle_goes_on_where_it_was(client, tmp_path):
    seen = []

    def stop_after_ten(record):
        seen.append(record)
        if len(seen) == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(client, tmp_path / "out", 40, counted(tmp_path / "done"), stop_after_ten)
    kept = len(engine.read_table(tmp_path / "out"))
    assert kept >= 10
    assert run(client, tmp_path / "out", 40, counted(tmp_path / "again"))["index"].to_pylist() == list(range(40))
    assert len(list((tmp_path / "again").iterdir())) == 40 - kept


def test_a_case_that_a_kill_left_in_two_parts_counts_once(tmp_path):
    results = engine.Results(tmp_path, campaign())
    results.add({"index": 7, "status": "done"})
    results.close()
    part = tmp_path / "cases" / "part_000001.parquet"
    shutil.copy(part, part.with_name("part_000002.parquet"))
    assert engine.read_table(tmp_path)["index"].to_pylist() == [7]


def test_a_folder_belongs_to_one_campaign_and_one_process(tmp_path):
    results = engine.Results(tmp_path, campaign())
    with pytest.raises(InputError, match="another process runs this campaign"):
        engine.Results(tmp_path, campaign())
    results.close()
    with pytest.raises(InputError, match="contains cases of campaign 'tiny' that this one does not have"):
        engine.Results(tmp_path, campaign(seed=4))
    engine.Results(tmp_path, campaign(share=0.5)).close()


METHODS = """
import os, time
import numpy as np
from stretch_sim_cal.calibration.results import AlignmentResult


def permitted():
    "Return whether there was a permission; it is taken, and holds for one case."
    try:
        os.remove(os.environ["KIND"] + ".permission")
    except FileNotFoundError:
        return False
    return True


class Quick:
    "Answers the description's transform, at once or when it is permitted."

    def __init__(self, guess, settings):
        self.right_to_left = guess

    def add(self, left, right):
        pass

    def solve(self):
        print("a method may print")
        kind = open(os.environ["KIND"]).read()
        while open(os.environ["KIND"]).read() == "waits" and not permitted():
            time.sleep(0.05)
        if kind == "raises":
            raise ValueError("no such patch")
        if kind == "dies":
            os.kill(os.getpid(), 11)
        if kind == "hangs":
            time.sleep(1000)
        if kind == "grows":
            np.ones(2**34)
        return AlignmentResult(self.right_to_left, np.eye(6), 0.0, 1, "quick", 1.0, [])
"""


@pytest.fixture
def methods(tmp_path, monkeypatch):
    """Another package's method, `quick`, which fails as the file says that is returned."""
    folder = plugged_in(tmp_path / "plugin", "quick", METHODS, "Quick")
    # With this very code before an installed one: the program and Dask's workers must not be of different code.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), str(Path(__file__).parents[2])]))
    monkeypatch.syspath_prepend(str(folder))
    kind = tmp_path / "kind"
    kind.write_text("")
    monkeypatch.setenv("KIND", str(kind))
    return kind


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder in which this process and those that it starts make temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_a_method_that_fails_is_a_result_and_the_next_case_is_computed(methods, temporary):
    process = engine.CaseProcess()
    for kind, status, message in (
        ("raises", "crashed", "ValueError('no such patch')"), ("grows", "crashed", "out of memory"),
        ("dies", "crashed", "its process was ended by signal 11"), ("", "done", ""),
        ("hangs", "timeout", "took longer than 2 s"),
    ):  # fmt: skip
        methods.write_text(kind)
        limit = 2.0 if kind == "hangs" else 1000.0
        record = process.run(campaign(methods={"alignment": "quick"}, time_limit=limit), 4)
        assert (record["index"], record["status"], record["message"]) == (4, status, message)
        assert not list(temporary.iterdir())
        if status == "done" and Path("/proc/self/schedstat").exists():  # how long it waited for a core
            assert 0.0 < process._waited() < 1e4
    assert process._process is None  # so the next case has a new one, as after a signal


def test_a_case_that_waits_for_a_core_does_not_take_longer_for_it(monkeypatch):
    process = engine.CaseProcess()
    answers, late = os.pipe()
    with open(answers) as stdout:
        monkeypatch.setattr(process, "_process", SimpleNamespace(stdout=stdout))
        monkeypatch.setattr(process, "_waited", time.monotonic)  # all of the time, however late the answer
        threading.Timer(0.6, os.write, [late, b"late\n"]).start()
        assert process._answer(0.25) == "late\n"
        monkeypatch.setattr(process, "_waited", lambda: 0.0)
        with pytest.raises(TimeoutError):
            process._answer(0.25)
    os.close(late)


def test_a_process_that_does_not_come_up_is_not_waited_for_without_end(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(engine.sys, "executable", str(program))
    monkeypatch.setattr(engine, "STARTED_WITHIN", 0.2)
    with pytest.raises(engine.CannotCompute, match="does not start"):
        engine.CaseProcess().run(campaign(), 0)


def test_cases_that_failed_are_computed_again_if_asked_for(client, tmp_path):
    def fails(campaign: Campaign, index: int) -> dict:
        return {"index": index, "status": "timeout" if index % 2 else "done", "alignment.translation_mm": 1.0}

    assert run(client, tmp_path, 8, fails)["status"].to_pylist() == ["done", "timeout"] * 4
    computed = tmp_path / "computed"
    assert run(client, tmp_path, 8, counted(computed))["status"].to_pylist() == ["done", "timeout"] * 4
    table = run(client, tmp_path, 8, counted(computed), again=True)
    assert set(table["status"].to_pylist()) == {"done"} and len(list(computed.iterdir())) == 4
    assert table["alignment.translation_mm"].to_pylist() == [1.0, 1.0, 1.0, 3.0, 1.0, 5.0, 1.0, 7.0]


def wait_for(condition, what: str, *running: subprocess.Popen):
    """Return what a condition comes to once that is true. Fails if that takes too long, or if one of the programs ends
    that have to run until then."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        for process in running:
            assert process.poll() is None, f"{what}: {process.output.read_text()}"
        assert time.monotonic() < end, what
        time.sleep(0.1)
    return found


@pytest.fixture
def start(tmp_path):
    """A function that starts a program, its output in the file `output`; all end with the test."""
    started: list[subprocess.Popen] = []

    def start(*arguments: str) -> subprocess.Popen:
        output = tmp_path / f"output_{len(started)}.txt"
        with output.open("w") as stream:  # not a pipe: nobody reads it, and once full it would stop the program
            started.append(subprocess.Popen(arguments, stdout=stream, stderr=subprocess.STDOUT))
        started[-1].output = output
        return started[-1]

    yield start
    for process in started:
        with process:
            process.kill()


def kill(process: subprocess.Popen) -> None:
    """Kill a program, and wait until the processes that it has started have ended with it."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait(PATIENCE)
    assert not psutil.wait_procs(children, PATIENCE)[1]


def scheduler_at(folder: Path, start) -> tuple[subprocess.Popen, str]:
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    process = start(sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
                    "--no-dashboard", "--scheduler-file", str(file))  # fmt: skip

    def address() -> str | None:
        with contextlib.suppress(OSError, ValueError):  # not there, or not whole
            return json.loads(file.read_text())["address"]

    return process, wait_for(address, "no scheduler", process)


def worker_of(address: str, start) -> subprocess.Popen:
    worker = "distributed.cli.dask_worker"
    return start(sys.executable, "-m", worker, address, "--nthreads", "1", "--no-nanny", "--no-dashboard")


def arguments(folder: Path, *further: str, cases: int = CASES) -> list[str]:
    file = folder / "tiny.yaml"
    file.write_text(json.dumps(SAID | {"methods": {"alignment": "quick"}, "time_limit": 1000}))
    return ["campaign", str(file), "--cases", str(cases), "--out", str(folder / "out"), *further]


@pytest.mark.long
def test_whoever_is_killed_no_case_is_lost(tmp_path, methods, start):
    def one_more_case(by: str) -> None:
        """Let one case be computed, and wait until it is in a file; the next one is begun, and waits."""
        kept = list(indices())
        methods.with_name("kind.permission").touch()
        wait_for(lambda: len(indices()) > len(kept), f"no case was computed {by}", client)

    def indices() -> list[int]:
        parts = (tmp_path / "out" / "cases").glob("*.parquet")
        return [index for part in parts for index in pq.read_table(part)["index"].to_pylist()]

    methods.write_text("waits")
    scheduler, address = scheduler_at(tmp_path, start)
    worker = worker_of(address, start)
    client = start(PROGRAM, *arguments(tmp_path, "--cluster", address))

    one_more_case("at all")
    kill(worker)
    worker = worker_of(address, start)
    one_more_case("after a worker died")
    kill(scheduler)
    assert client.wait(PATIENCE) == 3
    said = client.output.read_text()
    assert "the scheduler was lost" in said and "run the same command again" in said and "Traceback" not in said
    kept = engine.read_table(tmp_path / "out")
    assert kept["status"].to_pylist() == ["done", "done"]

    kill(worker)
    _, address = scheduler_at(tmp_path, start)
    worker_of(address, start)
    client = start(PROGRAM, *arguments(tmp_path, "--cluster", address))
    one_more_case("by a new scheduler")
    kill(client)
    methods.write_text("")
    assert main(arguments(tmp_path, "--cluster", address)) == 0
    table = engine.read_table(tmp_path / "out")
    assert table["index"].to_pylist() == list(range(CASES)) and set(table["status"].to_pylist()) == {"done"}
    known = table.filter([index in kept["index"].to_pylist() for index in range(CASES)])
    assert known.equals(kept)


CLUSTER = """
import time
from dask.distributed import LocalCluster

options = {"threads_per_worker": 1, "processes": False, "dashboard_address": None, "protocol": "tcp://"}
print(LocalCluster(n_workers=1, **options).scheduler_address, flush=True)
time.sleep(10_000)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "later", "said"),
    [
        (signal.SIGKILL, 0.0, ""),
        pytest.param(signal.SIGKILL, 0.5, "connecting", marks=pytest.mark.long),  # after the client has noticed
        (signal.SIGSTOP, 0.0, "no answer within 5 s"),
    ],
)
def test_a_scheduler_that_is_lost_while_results_are_kept_is_told(tmp_path, start, monkeypatch, number, later, said):
    monkeypatch.setattr(engine, "LOOK_AT_WORKERS", 0.0)
    monkeypatch.setattr(engine, "ANSWERED_WITHIN", 5.0)
    scheduler = start(sys.executable, "-c", CLUSTER)
    line = re.compile(r"^tcp://\S+(?=\n)", re.MULTILINE)
    address = wait_for(lambda: line.search(scheduler.output.read_text()), "no scheduler", scheduler)[0]
    told = []

    def tell(record: dict) -> None:
        told.append(record)
        if len(told) == 3:
            os.kill(scheduler.pid, number)
            time.sleep(later)

    with pytest.raises(RunFailure, match=rf"the scheduler was lost \(.*{said}"):
        with engine.cluster(address, 1, 1000.0) as client:
            run(client, tmp_path / "out", 1000, counted(tmp_path / "done"), tell)
    assert len(told) >= 3 and len(engine.read_table(tmp_path / "out")) == len(told)


def test_a_cluster_without_workers_is_told_and_waited_for(tmp_path, monkeypatch):
    said = []
    with local_cluster(0) as cluster, Client(cluster) as client:
        monkeypatch.setattr(engine, "warn", lambda text: (said.append(text), cluster.scale(1)))
        assert len(run(client, tmp_path / "out", 3, counted(tmp_path / "done"))) == 3
    assert said == ["the scheduler has no workers: cases wait until one comes"]


def test_a_search_leaves_what_it_tried_and_the_worst_cases_files(tmp_path, methods, capfd):
    asked, out = arguments(tmp_path, "--search", "worst", "--workers", "1", cases=2), tmp_path / "out"
    assert main(asked) == 0
    said = capfd.readouterr().out
    assert "the most wrong accepted result of 2:" in said
    tried = (out / "worst_0.jsonl").read_text()
    assert len(tried.splitlines()) == 2
    for name in ("case.json", "room.sdf", "unit_left.yaml", "clouds.png"):
        assert (out / "worst_0" / name).is_file()
    assert main(asked) == 0 and (out / "worst_0.jsonl").read_text() == tried
    assert capfd.readouterr().out == said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "number"),
    [
        (["--search", "worst"], signal.SIGINT),
        *(pytest.param(search, signal.SIGTERM, marks=pytest.mark.long) for search in (["--search", "worst"], [])),
    ],
)
def test_a_campaign_that_is_ended_keeps_its_results_and_nothing_else(
    tmp_path, methods, start, temporary, search, number
):
    methods.write_text("waits")
    methods.with_name("kind.permission").touch()
    command = start(PROGRAM, *arguments(tmp_path, "--workers", "1", *search))
    kept = tmp_path / "out" / ("worst_0.jsonl" if search else "cases")
    wait_for(lambda: kept.exists() and list(temporary.rglob("room.sdf")), "no case was computed", command)
    for process in (*psutil.Process(command.pid).children(recursive=True), command):
        process.send_signal(number if process is command or number == signal.SIGINT else 0)  # Ctrl-C reaches all
    assert command.wait(PATIENCE) == INTERRUPTED
    assert not list(temporary.iterdir())
    if search:
        (record,) = (json.loads(line)["record"] for line in kept.read_text().splitlines())
        assert record["status"] == "done"


def test_no_scheduler_at_an_address_is_told(tmp_path, methods, capfd, monkeypatch):
    monkeypatch.setattr(engine, "SCHEDULER_SILENT", "1s")
    assert main(arguments(tmp_path, "--cluster", "tcp://127.0.0.1:9")) == 2
    said = capfd.readouterr().err
    assert "--cluster tcp://127.0.0.1:9: there is no usable Dask scheduler" in said and "Traceback" not in said


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority's certificate, one that it signs, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    folder = tmp_path_factory.mktemp("certificates")
    key, cert = folder / "key.pem", folder / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2"]
    subprocess.run([*made, "-subj", "/CN=127.0.0.1"], check=True, capture_output=True)
    return cert, cert, key


def test_a_cluster_behind_tls_is_used_with_its_certificates_only(certificates, tmp_path, methods, capfd):
    names = ("tls_ca_file", "tls_scheduler_cert", "tls_scheduler_key", "tls_worker_cert", "tls_worker_key",
             "tls_client_cert", "tls_client_key")  # fmt: skip
    files = map(str, (certificates[0], *certificates[1:] * 3))
    security = Security(require_encryption=True, **dict(zip(names, files, strict=True)))
    with local_cluster(1, protocol="tls://", security=security) as local:
        address = local.scheduler_address
        with engine.cluster(address, 1, 1000.0, certificates) as client:
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3
        assert main(arguments(tmp_path, "--cluster", address)) == 2
    assert "there is no usable Dask scheduler" in capfd.readouterr().err


def test_a_campaign_like_smoke_comes_to_a_statement(tmp_path, capfd):
    said = {"like": "smoke", "name": "quick", "robot": "two_lidar_amr", "sensor": FEW_RAYS.replace(".", "_amr.")}
    (tmp_path / "quick.yaml").write_text(json.dumps(said))
    out = tmp_path / "out"
    code = main(["campaign", str(tmp_path / "quick.yaml"), "--cases=2", "--workers=1", "--out", str(out), "--json"])
    found = json.loads(capfd.readouterr().out)
    assert code == (0 if found["shown"] else 1)
    assert found["cases"] == 2 and not any(found["failed"].values()), found
    assert found["wrong"] == 0 and found["good"] + found["beyond_limits"] + found["refused"] == 2, found["worst"]
    assert found["good"] >= 1, found["refusals"]
    assert f"quick.yaml --out {out} --case" in (out / "report.html").read_text() and len(engine.read_table(out)) == 2


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def foreign(path: Path) -> None:
    pq.write_table(pa.table({"pet": ["cat"]}), path.with_name("part_000002.parquet"))


PART = "cases/part_000001.parquet"


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (PART, cut, "part_000001.parquet: is damaged"),
        (PART, foreign, "part_000002.parquet: has no columns index"),
        (PART, lambda path: path.rename(path.with_name("its.parquet")), "its.parquet: is not part of a campaign"),
        (engine.DEFINITION, cut, "campaign_definition.json: is damaged"),
        (engine.DEFINITION, lambda path: path.write_text('{"key": "x"}'), "campaign_definition.json: is damaged"),
    ],
)
def test_a_damaged_folder_is_one_line_that_names_the_file(tmp_path, capsys, name, change, said):
    results = engine.Results(tmp_path / "out", campaign())
    results.add({"index": 0, "status": "done"})
    results.close()
    change(tmp_path / "out" / name)
    (tmp_path / "tiny.yaml").write_text(json.dumps(SAID))
    out = str(tmp_path / "out")
    for command in ([str(tmp_path / "tiny.yaml"), "--cases", "1", "--out", out], ["compare", out, out]):
        assert main(["campaign", *command]) == 2
        errors = capsys.readouterr().err
        assert said in errors and errors.count("\n") == 1


def test_cases_of_other_code_are_not_continued_and_a_worker_with_other_code_computes_nothing(tmp_path):
    engine.Results(tmp_path, campaign()).close()
    definition = tmp_path / engine.DEFINITION
    definition.write_text(definition.read_text().replace(campaign().code, "0123456789abcdef"))
    with pytest.raises(InputError, match=f"computed by code 0123456789abcdef, this is {campaign().code}"):
        engine.Results(tmp_path, campaign())
    with pytest.raises(engine.CannotCompute, match="a worker has code"):
        engine.compute(campaign(), 0, "0123456789abcdef")
