"""What was simulated once more, calibrated by the real nodes over ROS: for tests that are to go through them."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from stretch_sim_cal.api import Result
from stretch_sim_cal.calibration.calibration_file import FOOTPRINT, CalibrationFile
from stretch_sim_cal.calibration.lidars import of_file
from stretch_sim_cal.calibration.observability import UNOBSERVED
from stretch_sim_cal.calibration.results import FloorResult, LidarPoses
from stretch_sim_cal.errors import RunFailure
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.run import run_scenario
from stretch_sim_cal.harness.scenario import scenario_from_mapping
from stretch_sim_cal.simulated import Simulated


def calibrated_by_nodes(sim: Simulated, folder: Path, simulator: str = "embedded") -> Result:
    """Return the calibration of simulated lidars by the nodes and a simulator of their own, with the same robot and
    world; the run's files are in `folder`. Raises `RunFailure` if the run breaks."""
    frames = len(next(iter(sim.clouds.values())))
    stages = {"alignment": {"num_samples": frames}, "floor": {"num_samples": frames}}
    data = {"name": "by_nodes", "simulation": sim.simulator.setup.to_mapping(), "stages": stages}
    verdict = run_scenario(scenario_from_mapping(data, folder / "by_nodes.yaml"), folder, simulator)
    if verdict.broken:
        raise RunFailure(f"{folder}: {'; '.join(verdict.reasons)}")
    file = CalibrationFile.load_or_empty(RunFiles(folder.resolve()).calibration)
    found, refusals = file.entries, [verdict.refused] if verdict.refused else []
    if file.right_to_left is None:
        nominal, unknown = sim.rig.base_from_lidar, UNOBSERVED**2 * np.eye(6 * len(sim.rig.names))
        return Result(sim.rig, LidarPoses(nominal, unknown, [], frames, 0.0, refusals, method="nodes"))
    aligned = replace(of_file(file, sim.rig.base_from_left), refusals=refusals)
    if file.floor_plane is None:
        return Result(sim.rig, aligned)
    floor = FloorResult(
        file.footprint_from_base,
        file.floor_plane,
        found[FOOTPRINT].covariance,
        found[FOOTPRINT].rmse,
        frames,
        0,
        "nodes",
    )
    return Result(sim.rig, aligned, floor)
