"""One scenario from start to verdict: simulate, calibrate with the real nodes, compare, report."""

import platform
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np

from stretch_sim_cal import __version__
from stretch_sim_cal.api import Result
from stretch_sim_cal.calibration.calibration_file import FOOTPRINT, CalibrationFile
from stretch_sim_cal.calibration.finding import Finding
from stretch_sim_cal.calibration.lidars import of_file
from stretch_sim_cal.calibration.observability import UNOBSERVED
from stretch_sim_cal.calibration.results import FloorResult, LidarPoses
from stretch_sim_cal.errors import InputError, RunFailure
from stretch_sim_cal.files import make_folder, write_yaml, writing
from stretch_sim_cal.harness.in_process import InProcess
from stretch_sim_cal.harness.processes import (
    Echo,
    Process,
    ProcessSequence,
    RunFiles,
    Runner,
    isolated_environment,
    own_domain,
    scenario_processes,
)
from stretch_sim_cal.harness.scenario import Scenario, scenario_from_mapping
from stretch_sim_cal.harness.verdict import Verdict, judge_stage, load_truth, skipped_poses
from stretch_sim_cal.robot.profile import RobotProfile
from stretch_sim_cal.ros.node_commands import STAGE_NODES
from stretch_sim_cal.simulated import Simulated
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator

LIBRARIES = ("numpy", "scipy", "small_gicp", "embreex", "ros-rclpy")
VENDORS = "hello-robot-stretch4-urdf"  # the description of the robot that is simulated if none is named
BLOCKED_SHARE = 0.05  # of a lidar's rays that end on one link, from which a refused run names it
PRODUCERS = {stage: node.executable for stage, node in STAGE_NODES.items()}
PRODUCERS["body_shape"] += " and fit_body_shape_model"


def run_scenario(
    scenario: Scenario, out: Path, simulator: str = "embedded", simulator_options: tuple[str, ...] = (),
    processes: Callable[[Scenario, RunFiles], list[Process]] | None = None,
    echo: Echo = lambda process, line: None, in_process: bool = False,
) -> Verdict:  # fmt: skip
    """Run `scenario` in the folder `out` (emptied first, made if missing) and return its verdict.

    `processes` gives other processes, the simulator first; `echo` is as in `Runner`; with `in_process` all runs in this
    process, without ROS. Raises `InputError` if `out` is not an earlier run's folder."""
    if in_process and simulator != "embedded":
        raise InputError(f"--in-process: runs the embedded simulator, not {simulator}")
    files = _fresh_folder(out, scenario)
    if processes is None:
        steps = scenario_processes(scenario, files, simulator, simulator_options)
    else:
        steps = processes(scenario, files)
    sequence, broken, started = ProcessSequence(steps), "", time.monotonic()
    runner: InProcess | Runner
    if in_process:
        runner = InProcess(scenario, files, echo)
        runner.run(sequence)
    else:
        with (
            own_domain() as domain,
            Runner(isolated_environment(domain) | files.environment, files.logs, echo) as runner,
        ):
            try:
                runner.run(sequence)
            except RunFailure as failure:
                broken = str(failure)
    verdict = conclude(scenario, simulator, files, sequence, broken)
    verdict.backend = "in process" if in_process else "nodes"
    verdict.notes += runner.unclean
    verdict.seconds = runner.seconds | {"total": round(time.monotonic() - started, 2)}
    verdict.versions = _versions(scenario.simulation.profile)
    return verdict


def conclude(
    scenario: Scenario, simulator: str, files: RunFiles, sequence: ProcessSequence, broken: str = ""
) -> Verdict:
    """Return the verdict on a run that is over, or `broken`. Raises `InputError` if the truth cannot be read."""
    verdict = Verdict(scenario, simulator)
    if scenario.simulation.robot is not None:
        verdict.notes += [f"robot: {note}" for note in scenario.simulation.robot.notes]
    failure, wanted = sequence.failure, scenario.refusal.get("stage")
    if not broken and failure is not None and failure.refusals:
        verdict.refused, verdict.refusals = (said := failure.sentence), failure.refusals
        if scenario.expected != "refused":
            verdict.reasons.append(said)
        elif failure.process.stage != wanted:
            verdict.reasons.append(f"the {wanted} stage was expected to refuse, but {said}")
        elif (text := scenario.refusal.get("mentions", "")).lower() not in said.lower():
            verdict.reasons.append(f"the refusal was expected to mention '{text}', but {said}")
    elif broken or failure is not None:
        verdict.broken = True
        verdict.reasons.append(broken or failure.sentence)
    truth = load_truth(files.truth) if files.truth.is_file() else None
    verdict.stages = {stage: judge_stage(stage, files, truth, scenario.tolerances[stage]) for stage in scenario.stages}
    if scenario.expected == "pass":
        verdict.reasons += _complaints(verdict)
    elif not verdict.refused and not verdict.reasons:
        verdict.reasons.append(f"the {wanted} stage was expected to refuse, but it gave a result")
    elif verdict.refused and any(each.error is not None for each in verdict.stages[wanted].quantities):
        verdict.reasons.append(f"the {wanted} stage refused, but its result was written to a file all the same")
    for stage, text in scenario.reports.items():
        ended = [p.name for p in sequence.processes if p.stage == stage and p.name in sequence.exit_codes]
        if ended and text.lower() not in "".join(sequence.output[name] for name in ended).lower():
            verdict.reasons.append(f"{stage}: its output was expected to mention '{text}': {PRODUCERS[stage]} did not")
    verdict.warnings = [
        {"stage": end.process.stage or end.process.name} | warning
        for end in sequence.ends.values() for warning in end.outcome.get("warnings", [])
    ]  # fmt: skip
    verdict.notes += skipped_poses(files)
    if verdict.refused and scenario.expected != "refused":  # an alignment lacks the surfaces behind the robot's parts
        simulated = EmbeddedSimulator(scenario.simulation)
        verdict.notes += [
            f"stowed, {link} takes {100 * share:.0f} % of the {side} lidar's rays"
            for side in simulated.profile.lidars
            for link, share in simulated.view(side).items() if share >= BLOCKED_SHARE
        ]  # fmt: skip
    return verdict


def _fresh_folder(out: Path, scenario: Scenario) -> RunFiles:
    out = Path(out).resolve()
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file; expected a folder for the run")
    files = RunFiles(out)
    if out.is_dir() and any(out.iterdir()):
        if not (files.scenario.is_file() and files.logs.is_dir()):  # or a user's own scenario
            raise InputError(f"{out}: is not empty and not an earlier run's folder; name another one with --out")
        with writing(out):
            shutil.rmtree(out)
    make_folder(files.logs)
    write_yaml(files.scenario, scenario.data | {"simulation": scenario.simulation.to_mapping()})
    return files


def _complaints(verdict: Verdict) -> list[str]:
    complaints = []
    for stage, judged in verdict.stages.items():
        if judged.reason and not verdict.reasons:
            complaints.append(f"{stage}: {judged.reason}")
        complaints += [
            f"{stage}: {each.complaint(PRODUCERS[stage])}"
            for each in judged.quantities if each.error is not None and not each.passed
        ]  # fmt: skip
    return complaints


def _versions(profile: RobotProfile) -> dict[str, str]:
    """Return the versions of what ran, among them the vendor's description if it is what `profile` names."""
    versions = {"stretch_sim_cal": __version__, "python": platform.python_version()}
    for library in (*LIBRARIES, *([VENDORS] if profile.description.vendor else [])):
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # from the system, as rclpy with ROS 2 installed
            continue
    return versions


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
    refusals = [Finding(**each) for each in verdict.refusals]
    if not file.aligned:
        nominal, unknown = sim.rig.base_from_lidar, UNOBSERVED**2 * np.eye(6 * len(sim.rig.names))
        return Result(sim.rig, LidarPoses(nominal, unknown, [], frames, 0.0, "nodes", refusals=refusals))
    aligned = replace(of_file(file, sim.rig.base_from_left), refusals=refusals)
    if file.floor_plane is None:
        return Result(sim.rig, aligned)
    found, pose = file.entries[FOOTPRINT], file.footprint_from_base
    floor = FloorResult(pose, file.floor_plane, found.covariance, found.rmse, frames, 0, "nodes")
    return Result(sim.rig, aligned, floor)
