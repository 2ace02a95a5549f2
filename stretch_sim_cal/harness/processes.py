"""The processes of a run, written once: the runner, the launch files and the launch tests are all built from this list."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stretch_sim_cal.files import PACKAGE
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
    timeout: float = 900.0  # s of wall time, against what hangs: a busy machine or Gazebo may take its time
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def command(self) -> list[str]:
        """The argument vector, with the executable of this very installation."""
        return [_script(self.executable), *self.arguments]


def _script(name: str) -> str:
    """Return where a console script lies: pip puts it beside Python, colcon into `lib/` of an ament prefix."""
    prefixes = [Path(prefix) for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if prefix]
    for folder in [Path(sys.executable).parent, *(prefix / "lib" / PACKAGE for prefix in prefixes)]:
        if (folder / name).is_file():
            return str(folder / name)
    return shutil.which(name) or name


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
    def mounts_dataset(self) -> Path:
        return self.folder / "lidar_mounts_data"

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
    """Return the simulator's process of a run: it looks like the robot's drivers and keeps the truth to itself."""
    return simulator_with(simulator, "--scenario", str(files.scenario), "--truth", str(files.truth), *extra)


def simulator_with(simulator: str, *arguments: str) -> Process:
    """Return the simulator's process with arguments of its command line."""
    chosen = () if simulator == "embedded" else ("--simulator", simulator)
    return Process("simulator", "stretch_simulator", (*chosen, *arguments), ready_line=SIMULATOR_READY)


def calibration_processes(scenario: Scenario, files: RunFiles) -> list[Process]:
    """Return the processes of a run's stages: a few clouds for the report, then the calibration nodes."""
    capture = Process("capture", "ros_capture_clouds", (str(files.clouds), *_ros(use_sim_time=True, num_samples=3)))
    return [capture, *calibration_nodes(scenario.stages, files, sensor=str(scenario.simulation.sensor))]


def calibration_nodes(
    stages: Mapping[str, Mapping[str, Any]], files: RunFiles, use_sim_time: bool = True, sensor: str | None = None
) -> list[Process]:
    """Return the calibration nodes of `stages` (options by stage, as in a scenario), in their order, for lidars of a kind
    (`sensor`; None: what the nodes take without).

    They are the same in simulation and on the robot; there, time is not simulated.
    """
    processes = []
    time = {"use_sim_time": use_sim_time}
    lidars = {"sensor": sensor}
    for stage, name, executable in (
        ("alignment", "align", "ros_align_dual_lidar"),
        ("floor", "floor", "ros_find_floor_calibration"),
    ):
        if stage in stages:
            options = stages[stage]
            parameters = _ros(**time, **lidars, num_samples=options["num_samples"], method=options["method"])
            processes.append(Process(name, executable, parameters, stage=stage))
    if "mounts" in stages or "body_shape" in stages:
        processes.append(broadcast_process(use_sim_time))
    if "mounts" in stages:
        options = stages["mounts"]
        parameters = _ros(**time, **lidars, **options)
        arguments = (str(files.mounts_dataset), "--yes", *parameters)
        processes.append(Process("mounts", "ros_calibrate_lidar_mounts", arguments, stage="mounts"))
    if "body_shape" in stages:
        options = stages["body_shape"]
        processes += [
            Process(
                "collect", "ros_collect_body_shape_data",
                (str(files.dataset), "--plan", str(options["plan"]), "--yes", *_ros(**time)), stage="body_shape",
            ),
            Process(
                "fit", "fit_body_shape_model",
                (str(files.dataset), "--fit-method", options["fit_method"], "--out", str(files.body_shape_model)),
                stage="body_shape",
            ),
        ]  # fmt: skip
    return processes


def broadcast_process(use_sim_time: bool = True) -> Process:
    """Return the node that publishes the calibrated frames, as long as it is wanted."""
    parameters = _ros(use_sim_time=use_sim_time)
    return Process("broadcast", "ros_broadcast_calibration", parameters, ready_line=BROADCAST_READY, stage="body_shape")


def visualize_process(use_sim_time: bool = True) -> Process:
    """Return the node that shows both clouds, calibrated, in RViz."""
    return Process("visualize", "ros_visualize_calibration", _ros(use_sim_time=use_sim_time))


def _ros(**parameters) -> tuple[str, ...]:
    """Return ROS arguments that set parameters; those that are None are left to the node."""
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in parameters.items()}
    pairs = [f"{name}:={value}" for name, value in given.items() if value is not None]
    return ("--ros-args", *(part for pair in pairs for part in ("-p", pair)))
