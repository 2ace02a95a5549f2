"""A scenario under ROS's `launch_testing`: starting it, waiting for it and checking the result (examples:
`test/launch/`)."""

import atexit
import contextlib
import functools
import importlib.util
import threading
from pathlib import Path

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import scratch_folder, write_yaml
from stretch_sim_cal.harness.processes import RunFiles, isolated_environment, own_domain, scenario_processes
from stretch_sim_cal.harness.run import conclude
from stretch_sim_cal.harness.scenario import load_scenario
from stretch_sim_cal.harness.verdict import Verdict

# Of wall time, in s, and only against a machine or a simulator that stands still altogether.
LAST_RESORT = 3600.0
LINES_SHOWN = 15


def missing_for_launch_tests(simulator: str = "embedded") -> str:
    """Return why launch tests cannot run here and what to install, or an empty text if they can."""
    spec = importlib.util.find_spec("launch")
    installed = spec is not None and spec.origin is not None  # without an origin: a folder named launch/, as ours
    if not installed or importlib.util.find_spec("launch.launch_description") is None:
        found = "is an unrelated package of that name, not ROS's" if installed else "is not installed"
        return (
            f"launch {found}: these tests run in a ROS 2 installation (apt install ros-jazzy-launch-testing-ros); "
            "the same assertions run by 'stretch-sim-cal run' and test/harness"
        )
    if importlib.util.find_spec("launch_testing") is None:
        return "launch_testing is not installed: apt install ros-jazzy-launch-testing-ros"
    if simulator == "gazebo":
        from stretch_sim_cal.simulation.gazebo.installation import find_gazebo

        try:
            find_gazebo()
        except InputError as error:
            return str(error)
    return ""


class LaunchedScenario:
    """One run of a scenario in its own ROS domain and folder, of at most `simulated_bound` s of simulated time. Raises
    `InputError` for scenarios and stages that do not exist."""

    def __init__(self, scenario: str | Path, simulator: str = "embedded", simulated_bound: float = 600.0):
        self.scenario, self._simulator, self._bound = load_scenario(scenario), simulator, simulated_bound
        self._over = threading.Event()
        self._resources = contextlib.ExitStack()
        atexit.register(self._resources.close)

    def description(self):
        from launch_testing.actions import ReadyToTest

        from launch import LaunchDescription
        from stretch_sim_cal.harness.launched import LaunchedSequence

        folder = self._resources.enter_context(scratch_folder())
        domain = self._resources.enter_context(own_domain())
        self.files = RunFiles(folder)
        write_yaml(self.files.scenario, self.scenario.data | {"simulation": self.scenario.simulation.to_mapping()})
        launched = LaunchedSequence(
            scenario_processes(self.scenario, self.files, self._simulator, ("--duration", str(self._bound))),
            environment=isolated_environment(domain) | self.files.environment,
            stay_after_failure=True,
            on_end=self._over.set,
        )
        self._sequence = launched.sequence
        # Tests start at once and wait for the run: launch_testing wants to see this action before anything is ready.
        return LaunchDescription([*launched.start(), ReadyToTest()])

    def wait(self) -> None:
        """Wait until all nodes have ended, or one of them has failed. Raises `AssertionError` if nothing moves."""
        assert self._over.wait(LAST_RESORT), self._told(f"nothing has finished within {LAST_RESORT:.0f} s of wall time")

    def assert_within_tolerance(self, stage: str) -> None:
        """Assert that every quantity of a stage is within the scenario's tolerance of the truth."""
        failure = self._sequence.failure
        assert failure is None, self._told(failure.sentence)
        judged = self.verdict.stages[stage]
        lines = "\n  ".join(quantity.line() for quantity in judged.quantities)
        assert judged.passed, self._told(f"{stage}: {judged.reason or 'outside its tolerance'}\n  {lines}")

    def assert_refused(self) -> None:
        """Assert that the stage that has to refuse did so, with the words it has to mention, and wrote no result."""
        assert self.verdict.passed, self._told("; ".join(self.verdict.reasons))

    def assert_clean_exits(self) -> None:
        """Assert, after the shutdown, that every process ended with exit code 0, the node that has to refuse with 1. A
        simulator that broke at its end, after its last use, is named as such."""
        failure = self._sequence.failure
        expected = {failure.process.name: 1} if self.scenario.refusal and failure is not None else {}
        codes = self._sequence.exit_codes.items()
        unclean = [f"{name} ended with exit code {code}" for name, code in codes if code != expected.get(name, 0)]
        when = " during shutdown" if failure is None else ""
        assert not unclean, self._told("; ".join(unclean) + when)

    @functools.cached_property
    def verdict(self) -> Verdict:
        """The verdict on the run, which is over. Raises `AssertionError` if the simulator's truth cannot be read."""
        try:
            return conclude(self.scenario, self._simulator, self.files, self._sequence)
        except InputError as error:
            raise AssertionError(self._told(str(error))) from error

    def _told(self, problem: str) -> str:
        parts = [f"{self.scenario.name} ({self._simulator} simulator, at most {self._bound:g} s simulated): {problem}"]
        for name, output in self._sequence.output.items():
            code = self._sequence.exit_codes.get(name)
            state = "not started or still running" if code is None else f"exit code {code}"
            parts.append(f"--- {name} ({state}), its last lines:")
            parts += output.splitlines()[-LINES_SHOWN:]
        return "\n".join(parts)
