"""A case through the real nodes: simulated as a scenario, in processes that speak ROS, and compared with what the
same case came to without ROS.

The nodes take other scans of the same recording, whichever come in time, so both results differ, but by no more than
two results with the same covariance may.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.campaign.plan import METHODS, Campaign, contradicts
from stretch_sim_cal.files import find_shared, read_yaml, write_yaml
from stretch_sim_cal.geometry.planes import floor_between
from stretch_sim_cal.geometry.transforms import inverse, log
from stretch_sim_cal.harness.processes import RunFiles, scenario_processes
from stretch_sim_cal.harness.run import run_scenario
from stretch_sim_cal.harness.scenario import scenario_from_mapping
from stretch_sim_cal.simulation.setup import SimulationSetup

GOLDEN_SHARE = 0.5 * (5.0**0.5 - 1.0)
"""Cases that go through the nodes are spread evenly over the indices: every step is this share of a turn."""


def goes_through_nodes(campaign: Campaign, index: int, numbers: Mapping[str, float]) -> bool:
    """Return whether a case also runs through the nodes; none in which the robot is pushed, as no scenario does
    that."""
    return (index * GOLDEN_SHARE) % 1.0 < campaign.nodes and not numbers["recording.moved_mm"]


def through_nodes(
    campaign: Campaign, numbers: Mapping[str, float], setup: SimulationSetup, results: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Run a case as a scenario in `folder`; return, by `nodes.` names, the distance in standard deviations of the
    nodes' result from each of the `results` (None: not run), whether they agree, and why not. Without a covariance only
    the acceptance is compared."""
    files, path = RunFiles((folder / "nodes").resolve()), folder / "sensor.yaml"
    sensor = read_yaml(find_shared("config", campaign.sensor, ".yaml"))
    write_yaml(path, sensor | {"range_noise": sensor["range_noise"] * numbers["lidar.noise"]})
    stages = {
        stage: {"num_samples": int(numbers[f"recording.{stage}_frames"]), "method": campaign.methods[stage]}
        for stage in campaign.stages if stage in METHODS
    }  # fmt: skip
    said = {"name": campaign.name, "stages": stages, "simulation": replace(setup, sensor=str(path)).to_mapping()}
    verdict = run_scenario(
        scenario_from_mapping(said, folder / "scenario.yaml"), files.folder,
        processes=lambda *run: [each for each in scenario_processes(*run) if each.name != "capture"],
    )  # fmt: skip
    found: dict[str, Any] = {"nodes.message": ""}
    if verdict.broken:
        return found | {"nodes.agree": False, "nodes.message": "; ".join(verdict.reasons)}
    written = CalibrationFile.load_or_empty(files.calibration)
    there = {"alignment": written.right_to_left is not None, "floor": written.floor_plane is not None}
    reasons = []
    for stage, result in results.items():
        accepted = result is not None and not result.refusals
        if accepted != there[stage]:
            said = verdict.refused or "nothing was written"
            refused = "not run" if result is None else "; ".join(result.refusals)
            reasons.append(f"{stage}: accepted by the nodes but not by the arrays: {refused}" if there[stage]
                           else f"{stage}: accepted by the arrays but not by the nodes: {said}")  # fmt: skip
        elif accepted and getattr(result, "covariance", None) is not None:
            off, covariance = _off(stage, written, result)
            squares = float(off @ np.linalg.solve(2.0 * covariance, off))
            found[f"nodes.{stage}.sigmas"] = np.sqrt(squares)
            if contradicts(squares, len(off)):
                reasons.append(
                    f"{stage}: the nodes' result is {np.sqrt(squares):.1f} standard deviations from the arrays'"
                )
    return found | {"nodes.agree": not reasons, "nodes.message": "; ".join(reasons)}


def _off(stage: str, written: CalibrationFile, result: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much what was written differs from a result, (6 n,) or (3,), and the result's covariance of it."""
    if stage == "floor":
        return floor_between(result.plane, written.floor_plane), result.covariance
    off = [log(written.to_left[name] @ inverse(pose)) for name, pose in result.to_first.items()]
    return np.concatenate(off), result.covariance_to_first
