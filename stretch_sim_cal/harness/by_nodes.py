"""What was simulated once more, calibrated by the real nodes over ROS: for tests that are to go through them."""

from pathlib import Path

import numpy as np

from stretch_sim_cal.api import Result
from stretch_sim_cal.calibration.array import ArrayResult, of_file
from stretch_sim_cal.calibration.calibration_file import FOOTPRINT, RIGHT_TO_LEFT, CalibrationFile
from stretch_sim_cal.calibration.observability import UNOBSERVED
from stretch_sim_cal.calibration.results import AlignmentResult, FloorResult
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
    aligned = AlignmentResult(
        sim.rig.left_from_right if file.right_to_left is None else file.right_to_left,
        found[RIGHT_TO_LEFT].covariance if RIGHT_TO_LEFT in found else np.full((6, 6), np.inf),
        0.0, frames, "nodes", 1.0, [], refusals=refusals,
    )  # fmt: skip
    array = None
    if sim.rig.further and file.right_to_left is not None:
        array = of_file(file, sim.rig.base_from_left)
    elif sim.rig.further:
        nominal = sim.rig.base_from_lidar
        array = ArrayResult(nominal, UNOBSERVED**2 * np.eye(6 * len(nominal)), [], None, {}, frames, 0.0, refusals)
    if file.floor_plane is None:
        return Result(sim.rig, aligned, array=array)
    floor = FloorResult(
        file.footprint_from_base,
        file.floor_plane,
        found[FOOTPRINT].covariance,
        found[FOOTPRINT].rmse,
        frames,
        0,
        "nodes",
    )
    return Result(sim.rig, aligned, floor, array)
