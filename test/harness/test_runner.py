"""The runner: starts in order of readiness, names what dies, and leaves no process behind."""

import io
import os
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import psutil
import pytest

from stretch_sim_cal.command import outcome_in
from stretch_sim_cal.errors import InputError, Refused, RunFailure
from stretch_sim_cal.harness.in_process import InProcess
from stretch_sim_cal.harness.processes import Process, ProcessSequence, Progress, RunFiles, Runner, own_domain


def script(name: str, code: str, **options) -> Process:
    return Process(name, sys.executable, ("-c", textwrap.dedent(code)), **options)


def run(folder, *processes: Process) -> tuple[ProcessSequence, Runner]:
    """Run processes to the end of their sequence, and stop what is left of them."""
    sequence = ProcessSequence(processes)
    with Runner({}, folder) as runner:
        runner.run(sequence)
    return sequence, runner


def gone_soon(pid: int) -> bool:
    try:
        process = psutil.Process(pid)
        deadline = time.monotonic() + 60
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.05)
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_step_runs_to_its_end_and_its_output_is_kept(tmp_path):
    step = script("step", "import sys; print('hello'); print('error: no luck'); print('bye'); sys.exit(1)")
    sequence, _ = run(tmp_path, step, script("never", "raise SystemExit('started all the same')"))
    assert sequence.failure.exit_code == 1 and sequence.failure.process is step
    assert sequence.failure.reason == "bye" and not sequence.failure.refusals
    assert sequence.output["step"] == "hello\nerror: no luck\nbye\n"
    logged = (tmp_path / "step.log").read_text().splitlines()
    assert [line.split(" s  ")[1] for line in logged] == ["hello", "error: no luck", "bye"]
    assert sequence.exit_codes == {"step": 1} and not (tmp_path / "never.log").exists()


def test_processes_start_when_the_one_before_is_ready_or_has_ended(tmp_path):
    order = f"open({str(tmp_path / 'order')!r}, 'a').write"
    server = script("server", f"import time; {order}('1'); print('up', flush=True); time.sleep(600)", ready_line="up")
    steps = [script(f"step{i}", f"import time; time.sleep(0.1); {order}('{i}')") for i in (2, 3)]
    sequence, runner = run(tmp_path, server, *steps)
    assert (tmp_path / "order").read_text() == "123"
    assert sequence.over and sequence.failure is None and sequence.exit_codes == {"step2": 0, "step3": 0}
    assert set(runner.seconds) == {"server", "step2", "step3"} and runner.unclean == []


def test_a_step_that_hangs_is_given_up_and_named_however_long_one_takes_that_goes_on(tmp_path):
    goes_on = "import time\nfor _ in range(8): print('.', flush=True); time.sleep(0.3)"
    run(tmp_path, script("step", goes_on, timeout=2.0))
    with pytest.raises(RunFailure, match="step .* for 1 s"):
        run(tmp_path, script("step", "import time; time.sleep(600)", timeout=1.0))


def test_a_late_word_of_the_process_before_ends_no_step(tmp_path, monkeypatch):
    order = f"open({str(tmp_path / 'order')!r}, 'a').write"
    talks = "import time; print('up', flush=True); print('more', flush=True); time.sleep(600)"
    server = script("server", talks, ready_line="up")
    steps = [script("one", f"import time; time.sleep(0.5); {order}('1')"), script("two", f"{order}('2')")]
    printed = ProcessSequence.printed

    def late(self, process, text):
        ready = printed(self, process, text)
        while text == "more\n" and not (tmp_path / "one.log").exists():
            time.sleep(0.01)
        return ready

    monkeypatch.setattr(ProcessSequence, "printed", late)
    run(tmp_path, server, *steps)
    assert (tmp_path / "order").read_text() == "12"


def test_output_that_cannot_be_kept_or_shown_ends_the_run(tmp_path, monkeypatch):
    def closed(process, line):
        raise BrokenPipeError

    (tmp_path / "step.log").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        run(tmp_path, script("step", "print('all'); import time; time.sleep(600)"))
    monkeypatch.setattr(InProcess, "_step", lambda self, process: print("all"))
    with pytest.raises(BrokenPipeError):
        InProcess(None, RunFiles(tmp_path / "in_process"), closed).run(ProcessSequence([script("step", "")]))


def test_ctrl_c_ends_a_run_in_this_process_and_not_its_step_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(InProcess, "_step", lambda self, process: signal.raise_signal(signal.SIGINT))
    sequence = ProcessSequence([script("step", "")])
    with pytest.raises(KeyboardInterrupt):
        InProcess(None, RunFiles(tmp_path), lambda process, line: None).run(sequence)


def test_every_process_is_gone_after_the_run_even_those_that_ignore_ctrl_c_and_their_children(tmp_path, monkeypatch):
    monkeypatch.setattr("stretch_sim_cal.harness.processes.GRACE", 0.5)
    stubborn = """
        import os, signal, subprocess, sys, time
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("pids", os.getpid(), child.pid, flush=True)
        time.sleep(600)
    """
    polite = "import os, time; print('pids', os.getpid(), flush=True); time.sleep(600)"
    sequence, runner = run(
        tmp_path, script("stubborn", stubborn, ready_line="pids"), script("polite", polite, ready_line="pids")
    )
    pids = [int(word) for output in sequence.output.values() for word in output.splitlines()[0].split()[1:]]
    assert len(pids) == 3
    assert all(gone_soon(pid) for pid in pids)
    assert "stubborn did not stop when asked and was killed" in runner.unclean


def test_no_orphan_survives_when_the_harness_itself_is_killed(tmp_path):
    code = f"""
        from pathlib import Path
        from stretch_sim_cal.harness.processes import Process, ProcessSequence, Runner
        import sys
        server = "import os, time; print('up', os.getpid(), flush=True); time.sleep(600)"
        step = "import time; print('started', flush=True); time.sleep(600)"
        processes = [
            Process("server", sys.executable, ("-c", server), ready_line="up"),
            Process("step", sys.executable, ("-c", step)),
        ]
        with Runner({{}}, Path({str(tmp_path)!r}), lambda process, line: line and print(line, flush=True)) as runner:
            runner.run(ProcessSequence(processes))
    """
    harness = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    server = int(harness.stdout.readline().removeprefix("up "))
    assert harness.stdout.readline() == "started\n"
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    assert gone_soon(server)


def test_a_run_shows_a_line_per_process_and_each_warning_once_and_why_a_simulator_never_became_ready(tmp_path):
    files, shown = RunFiles(tmp_path), io.StringIO()
    progress, warning = Progress(files, False, shown), "[WARN] the driver does not correct"
    for name, ready_line, *said in (
        ("align", None, "looking", warning, f"accepted: written to {files.calibration}"),
        ("floor", None, "looking", warning, f"accepted: written to {files.logs / 'floor.log'}"),
        ("simulator", "simulator ready", "[ERROR] Gazebo is not installed"),
    ):
        for line in (*said, None):
            progress(types.SimpleNamespace(name=name, ready_line=ready_line), line)
    lines = [line.strip() for line in shown.getvalue().splitlines()]
    assert [line.split()[0] for line in lines] == ["align", "warning:", "floor", "simulator", "error:"]
    assert lines[0].endswith("s  accepted: written to dual_lidar_calibration.yaml")
    assert lines[2].endswith("s  accepted: written to logs/floor.log")
    assert lines[4] == "error: Gazebo is not installed"


@pytest.mark.parametrize(
    ("error", "refusals", "reason"),
    [
        (Refused("40 mm stick out"), ["other"], "refused: 40 mm stick out"),
        (InputError("no such folder"), [], "no such folder"),
        (ZeroDivisionError("division"), [], "the last line"),
    ],
)
def test_how_a_program_ended_is_read_from_the_outcome_that_it_left(tmp_path, error, refusals, reason):
    step = script("step", "", outcome=tmp_path / "outcome.json")
    step.outcome.write_text("{torn: of an earlier run")
    sequence = ProcessSequence([step])
    sequence.next()
    with pytest.raises(type(error)), outcome_in(step.outcome):
        raise error
    sequence.printed(step, "the last line\n")
    sequence.ended(step, 1)
    assert [each["code"] for each in sequence.failure.refusals] == refusals and sequence.failure.reason == reason


def test_a_crash_leaves_no_outcome_of_an_earlier_run(tmp_path):
    path = tmp_path / "outcome.json"
    with outcome_in(path):
        assert not path.exists()
    assert path.exists()
    with pytest.raises(ZeroDivisionError), outcome_in(path):
        raise ZeroDivisionError
    assert not path.exists()
    with pytest.raises(Refused), outcome_in(tmp_path):  # which cannot be written
        raise Refused("moved")


NODE = """
import rclpy
rclpy.init()
node = rclpy.create_node("left_behind")
print("up", flush=True)
rclpy.spin(node)
"""


@pytest.mark.graph
def test_what_a_killed_node_leaves_in_shared_memory_is_removed_before_the_next_run():
    pytest.importorskip("rclpy", reason="ROS is not installed")
    nodes = [subprocess.Popen([sys.executable, "-c", NODE], stdout=subprocess.PIPE) for _ in range(2)]
    try:
        killed, alive = (locks_of(node) for node in nodes)
        assert killed and alive
        nodes[0].kill()
        nodes[0].wait()

        def there(locks):
            return {lock.exists() and lock.with_name(lock.name[:-3]).exists() for lock in locks}

        with own_domain():  # a lock that was just made may be held in a moment
            assert there(killed) == there(alive) == {True}
        for lock in killed | alive:
            os.utime(lock, (0.0, 0.0))
        with own_domain():
            assert there(killed) == {False} and there(alive) == {True}
    finally:
        for node in nodes:
            with node:
                node.send_signal(signal.SIGINT)


def locks_of(node: subprocess.Popen) -> set[Path]:
    """Return the locks of the segments of shared memory that a node has, once it is up."""
    assert node.stdout.readline() == b"up\n"
    opened = {Path(os.readlink(each)) for each in Path(f"/proc/{node.pid}/fd").iterdir()}
    return {path for path in opened if path.match(f"/dev/shm/fastrtps_{16 * '?'}_el")}
