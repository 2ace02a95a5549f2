"""The processes of a run, written once: the runner, the launch files and the launch tests are all built from this list."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from stretch_sim_cal.harness.scenario import Scenario

SIMULATOR_READY = "simulator ready"
BROADCAST_READY = "broadcasting"


@dataclass(frozen=True)
class Process:
    """One process of a run.

    `executable` is a console script of this package. A process with a `ready_line` runs beside those that follow it,
    which start when that text appeared in its output; one without is a step that has to end (within `timeout` s of
    wall time) before the next starts. `stage` is the part of the verdict that it belongs to.
    """

    name: str
    executable: str
    arguments: tuple[str, ...] = ()
    ready_line: str | None = None
    stage: str | None = None
    timeout: float = 180.0
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        """The argument vector, with the executable of this very Python environment."""
        script = Path(sys.executable).parent / self.executable
        return [str(script) if script.is_file() else self.executable, *self.arguments]


@dataclass(frozen=True)
class RunFiles:
    """Where the files of a run lie, below its folder `out/<name>/`."""

    folder: Path
    fleet_id: str = "stretch-se4-simulated"

    @property
    def scenario(self) -> Path:
        return self.folder / "scenario.yaml"

    @property
    def truth(self) -> Path:
        return self.folder / "truth.json"

    @property
    def clouds(self) -> Path:
        return self.folder / "clouds.npz"

    @property
    def fleet(self) -> Path:
        return self.folder / "fleet"

    @property
    def calibration(self) -> Path:
        return self.fleet / self.fleet_id / "calibration_dual_lidar" / "dual_lidar_calibration.yaml"

    @property
    def dataset(self) -> Path:
        return self.folder / "body_shape_data"

    @property
    def body_shape_model(self) -> Path:
        return self.folder / "body_shape_model.yaml"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    @property
    def report(self) -> Path:
        return self.folder / "report.html"

    def log(self, process: Process) -> Path:
        return self.folder / "logs" / f"{process.name}.log"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make the nodes keep their files inside the run's folder."""
        return {"HELLO_FLEET_PATH": str(self.fleet), "HELLO_FLEET_ID": self.fleet_id}


def simulator_process(files: RunFiles, simulator: str = "embedded", extra: tuple[str, ...] = ()) -> Process:
    """Return the simulator's process: it looks like the robot's drivers and keeps the truth to itself."""
    arguments = ("--scenario", str(files.scenario), "--truth", str(files.truth), *extra)
    if simulator != "embedded":
        arguments = ("--simulator", simulator, *arguments)
    return Process("simulator", "stretch_simulator", arguments, ready_line=SIMULATOR_READY)


def calibration_processes(scenario: Scenario, files: RunFiles) -> list[Process]:
    """Return the calibration nodes of a scenario's stages, the same ones that run on the robot, in their order."""
    processes = [Process("capture", "ros_capture_clouds", (str(files.clouds), *_ros(num_samples=3)))]
    if "alignment" in scenario.stages:
        options = scenario.stages["alignment"]
        parameters = _ros(num_samples=options["num_samples"], method=options["method"])
        processes.append(Process("align", "ros_align_dual_lidar", parameters, stage="alignment"))
    if "floor" in scenario.stages:
        options = scenario.stages["floor"]
        parameters = _ros(num_samples=options["num_samples"], method=options["method"])
        processes.append(Process("floor", "ros_find_floor_calibration", parameters, stage="floor"))
    if "body_shape" in scenario.stages:
        options = scenario.stages["body_shape"]
        processes += [
            Process("broadcast", "ros_broadcast_calibration", _ros(), ready_line=BROADCAST_READY, stage="body_shape"),
            Process(
                "collect", "ros_collect_body_shape_data",
                (str(files.dataset), "--plan", str(options["plan"]), "--yes", *_ros()), stage="body_shape",
            ),
            Process(
                "fit", "fit_body_shape_model",
                (str(files.dataset), "--fit-method", options["fit_method"], "--out", str(files.body_shape_model)),
                stage="body_shape",
            ),
        ]  # fmt: skip
    return processes


def _ros(**parameters) -> tuple[str, ...]:
    given = {"use_sim_time": "true"} | {name: value for name, value in parameters.items() if value is not None}
    return ("--ros-args", *(part for name, value in given.items() for part in ("-p", f"{name}:={value}")))
