"""The harness's processes as actions of ROS's `launch`, for the launch files and the launch tests.

`launch` here is ROS 2's; the package index has an unrelated package of that name.
"""

from collections.abc import Callable, Mapping, Sequence

from launch.actions import EmitEvent, ExecuteProcess, LogInfo, RegisterEventHandler
from launch.event_handlers import OnProcessExit, OnProcessIO
from launch.events import Shutdown
from launch.events.process import ProcessExited, ProcessIO

from launch import Action, LaunchContext
from stretch_sim_cal.harness.processes import Process
from stretch_sim_cal.harness.runner import Finished

PATIENCE_AT_SHUTDOWN = "10"  # s until SIGTERM, and as many again until SIGKILL


class LaunchedSequence:
    """Processes that start one after the other, by the rules of `Process`: a step has to end well before the next one
    starts, a process with a ready line has to become ready, and to live on until the last step has ended.

    Where one of them does not, `failure` says why, nothing more is started, and the launch is shut down unless
    `stay_after_failure`. `on_end` is called once, when all steps have ended or one has failed. `exit_codes` are those
    of the processes that have ended, by name, and `output` what all of them have printed so far.
    """

    def __init__(
        self,
        processes: Sequence[Process],
        environment: Mapping[str, str] | None = None,
        after_ready: Mapping[str, Sequence[Action]] | None = None,
        shutdown_at_end: bool = False,
        stay_after_failure: bool = False,
        on_end: Callable[[], None] = lambda: None,
    ):
        self._processes = list(processes)
        self._after_ready = after_ready or {}
        self._shutdown_at_end = shutdown_at_end
        self._stay_after_failure = stay_after_failure
        self._on_end = on_end
        self._ready: set[str] = set()
        self._ended = False
        self.failure = ""
        self.exit_codes: dict[str, int] = {}
        self.output: dict[str, str] = {process.name: "" for process in self._processes}
        self.actions = {process.name: _execution(process, environment or {}) for process in self._processes}

    def start(self) -> list[Action]:
        """Return the actions that start the first process and lead on to the others."""
        handlers: list[Action] = []
        for process in self._processes:
            action = self.actions[process.name]
            handlers.append(
                RegisterEventHandler(OnProcessIO(
                    target_action=action, on_stdout=self._reader(process), on_stderr=self._reader(process)
                ))
            )  # fmt: skip
            handlers.append(RegisterEventHandler(OnProcessExit(target_action=action, on_exit=self._at_exit(process))))
        return [*handlers, self.actions[self._processes[0].name]]

    def _reader(self, process: Process) -> Callable[[ProcessIO], list[Action] | None]:
        def read(event: ProcessIO) -> list[Action] | None:
            self.output[process.name] += event.text.decode(errors="replace")
            awaited = process.ready_line is not None and process.name not in self._ready
            if not awaited or process.ready_line not in self.output[process.name]:
                return None
            self._ready.add(process.name)
            return [*self._after_ready.get(process.name, ()), *self._next(process)]

        return read

    def _at_exit(self, process: Process) -> Callable[[ProcessExited, LaunchContext], list[Action] | None]:
        def ended(event: ProcessExited, context: LaunchContext) -> list[Action] | None:
            self.exit_codes[process.name] = event.returncode
            if self._ended or context.is_shutdown:
                return None
            if process.ready_line is None and event.returncode == 0:
                return self._next(process)
            last_line = Finished(process, event.returncode, 0.0, self.output[process.name]).last_line
            needed = "" if process.ready_line is None else " while it was needed"
            return self._end(
                f"{process.name} ({process.executable}) ended with exit code {event.returncode}{needed}: {last_line}"
            )

        return ended

    def _next(self, process: Process) -> list[Action]:
        index = self._processes.index(process) + 1
        if index < len(self._processes):
            return [self.actions[self._processes[index].name]]
        return self._end("")

    def _end(self, failure: str) -> list[Action]:
        self._ended = True
        self.failure = failure
        self._on_end()
        if failure:
            return [] if self._stay_after_failure else [EmitEvent(event=Shutdown(reason=failure))]
        if self._shutdown_at_end:
            return [EmitEvent(event=Shutdown(reason="all steps have ended well"))]
        return [LogInfo(msg="all steps have ended well")] if self._has_steps else []

    @property
    def _has_steps(self) -> bool:
        return any(process.ready_line is None for process in self._processes)


def _execution(process: Process, environment: Mapping[str, str]) -> ExecuteProcess:
    return ExecuteProcess(
        cmd=process.command,
        name=process.name,
        additional_env=dict(environment) | process.environment | {"PYTHONUNBUFFERED": "1"},
        output="screen",
        sigterm_timeout=PATIENCE_AT_SHUTDOWN,
        sigkill_timeout=PATIENCE_AT_SHUTDOWN,
    )
