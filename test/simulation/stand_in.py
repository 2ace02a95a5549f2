"""The stand-in for Gazebo (gazebo_stand_in/): installed, started, and the processes that run of it."""

import os
import sys
import time
from pathlib import Path

from stretch_sim_cal.simulation.gazebo.installation import Installation
from stretch_sim_cal.simulation.gazebo.simulator import GazeboSimulator
from stretch_sim_cal.simulation.setup import BaseError, PoseError, SimulationSetup

STAND_IN = Path(__file__).parent / "gazebo_stand_in"
SETUP = SimulationSetup(
    world="furnished_room",
    sensor=STAND_IN / "few_rays.yaml",
    lidar_errors={"left": PoseError((0.002, -0.001, 0.003), (0.007, -0.005, 0.009))},
    base_error=BaseError(0.003, 0.007, -0.005),
)
NOISE = 0.001  # m; of few_rays.yaml


def installed(monkeypatch, fault: str = "") -> Installation:
    """Return an installed Gazebo with a fault of those in `gz`."""
    monkeypatch.setenv("GZ_STAND_IN", fault)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(Path(__file__).parents[2])]))
    return Installation(str(STAND_IN / "gz"), "gz_stand_in_transport", "stand-in", has_cpu_lidar=True)


def started(gazebo: Installation, lidar: str = "auto") -> GazeboSimulator:
    return GazeboSimulator(SETUP, lidar, installation=gazebo)


def steps(simulator: GazeboSimulator, count: int) -> None:
    for _ in range(count):
        if simulator.driving is not None:
            simulator.driving.step(0.025)
        simulator.joints.step(0.025)


def processes_of(partition: str) -> dict[int, list[str]]:
    """Return the command lines of the processes that run in a partition, this one left out, by number."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"GZ_PARTITION={partition}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:  # ended meanwhile, or another user's
            continue
    found.pop(os.getpid(), None)
    return found


def wait_until(condition, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
