"""The runner: starts in order of readiness, names what dies, and leaves no process behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.harness.processes import Process
from stretch_sim_cal.harness.runner import Runner


def script(name: str, code: str, **options) -> Process:
    return Process(name, sys.executable, ("-c", textwrap.dedent(code)), **options)


def runner(folder) -> Runner:
    return Runner({}, lambda process: folder / f"{process.name}.log")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] != "Z"


def gone_soon(pid: int) -> bool:
    deadline = time.monotonic() + 60
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


SLEEPER = "import time; print('up', flush=True); time.sleep(600)"


def test_a_step_runs_to_its_end_and_its_output_is_kept(tmp_path):
    with runner(tmp_path) as running:
        finished = running.run(
            script("step", "import sys; print('hello'); print('error: no luck'); print('bye'); sys.exit(1)")
        )
    assert finished.exit_code == 1
    assert finished.last_line == "error: no luck"
    assert (tmp_path / "step.log").read_text() == "hello\nerror: no luck\nbye\n"


def test_a_background_process_that_dies_while_it_is_needed_is_named(tmp_path):
    with runner(tmp_path) as running:
        running.run(
            script(
                "server",
                "import time, sys; print('up', flush=True); time.sleep(0.5); sys.exit('fell over')",
                ready_line="up",
            )
        )
        with pytest.raises(RunFailure, match=r"server .* died with exit code 1 while it was needed: fell over"):
            running.run(script("step", "import time; time.sleep(60)"))


def test_a_process_that_dies_before_it_is_ready_is_named(tmp_path):
    with runner(tmp_path) as running:
        with pytest.raises(RunFailure, match="server .* died with exit code 3"):
            running.run(script("server", "raise SystemExit(3)", ready_line="up"))


def test_a_step_that_hangs_is_given_up_and_named(tmp_path):
    with runner(tmp_path) as running:
        with pytest.raises(RunFailure, match="step .* did not finish within 1 s"):
            running.run(script("step", "import time; time.sleep(600)", timeout=1.0))


def test_every_process_is_gone_after_the_run_even_those_that_ignore_ctrl_c_and_their_children(tmp_path, monkeypatch):
    monkeypatch.setattr("stretch_sim_cal.harness.runner.GRACE", 0.5)
    stubborn = """
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("pids", os.getpid(), child.pid, flush=True)
        time.sleep(600)
    """
    with runner(tmp_path) as running:
        running.run(script("stubborn", stubborn, ready_line="pids"))
        running.run(
            script(
                "polite", "import os, time; print('pids', os.getpid(), flush=True); time.sleep(600)", ready_line="pids"
            )
        )
    logs = [(tmp_path / f"{name}.log").read_text() for name in ("stubborn", "polite")]
    pids = [int(word) for log in logs for word in log.splitlines()[0].split()[1:]]
    assert all(gone_soon(pid) for pid in pids)
    assert "stubborn did not stop when asked and was killed" in running.unclean


def test_a_process_that_stops_when_asked_is_not_complained_of(tmp_path):
    with runner(tmp_path) as running:
        running.run(script("polite", SLEEPER, ready_line="up"))
    assert running.unclean == []


def test_no_orphan_survives_when_the_harness_itself_is_killed(tmp_path):
    code = f"""
        from pathlib import Path
        from stretch_sim_cal.harness.processes import Process
        from stretch_sim_cal.harness.runner import Runner
        import sys
        with Runner({{}}, lambda process: Path({str(tmp_path)!r}) / "log") as running:
            running.run(Process("server", sys.executable, ("-c", "import os, time; print('up', os.getpid(), flush=True); time.sleep(600)"), ready_line="up"))
            print("started", flush=True)
            running.run(Process("step", sys.executable, ("-c", "import time; time.sleep(600)")))
    """
    harness = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    assert harness.stdout.readline() == "started\n"
    server = int((tmp_path / "log").read_text().split()[1]) if (tmp_path / "log").read_text() else None
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    assert server is not None and gone_soon(server)
