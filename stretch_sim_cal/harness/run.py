"""One scenario from start to verdict: simulate, calibrate with the real nodes, judge, report."""

import platform
import shutil
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from stretch_sim_cal import __version__
from stretch_sim_cal.errors import InputError, RunFailure
from stretch_sim_cal.files import write_yaml
from stretch_sim_cal.harness.domain import isolated_environment, own_domain
from stretch_sim_cal.harness.judges import judge_stage
from stretch_sim_cal.harness.processes import Process, RunFiles, calibration_processes, simulator_process
from stretch_sim_cal.harness.runner import Finished, Runner, interruptible
from stretch_sim_cal.harness.scenario import Scenario
from stretch_sim_cal.harness.truth import Truth, load_truth
from stretch_sim_cal.harness.verdict import Verdict, unreached

LIBRARIES = ("numpy", "scipy", "small_gicp", "embreex", "ros-rclpy", "hello-robot-stretch4-urdf")
PRODUCERS = {
    "alignment": "ros_align_dual_lidar",
    "floor": "ros_find_floor_calibration",
    "mounts": "ros_calibrate_lidar_mounts",
    "body_shape": "ros_collect_body_shape_data and fit_body_shape_model",
}


def run_scenario(
    scenario: Scenario,
    out: Path,
    simulator: str = "embedded",
    simulator_options: tuple[str, ...] = (),
    processes: Callable[[Scenario, RunFiles], list[Process]] | None = None,
    echo: Callable[[str, str], None] = lambda name, line: None,
) -> Verdict:
    """Run `scenario` in the folder `out` (emptied first, made where missing) and return its verdict.

    `processes` gives what runs, the simulator first; tests put broken ones in the place of the simulator and the
    calibration nodes. `echo(process, line)` receives all output as it comes. Raises `InputError` where `out` holds something that is not an earlier run.
    """
    files = _fresh_folder(out, scenario)
    verdict = Verdict(scenario, simulator, versions=_versions())
    truth, outputs, started = None, {}, time.monotonic()
    with interruptible(), own_domain() as domain:
        with Runner(isolated_environment(domain) | files.environment, files.log, echo) as runner:
            try:
                first, *steps = (
                    processes(scenario, files)
                    if processes is not None
                    else [
                        simulator_process(files, simulator, simulator_options),
                        *calibration_processes(scenario, files),
                    ]
                )
                _step(runner, first, verdict)
                truth = load_truth(files.truth)
                for process in steps:
                    finished = _step(runner, process, verdict)
                    if finished is None:
                        continue
                    outputs[process.stage] = outputs.get(process.stage, "") + finished.output
                    if finished.exit_code != 0:
                        _note_failure(verdict, finished)
                        break
            except RunFailure as failure:
                verdict.broken = True
                verdict.reasons.append(str(failure))
    verdict.notes += runner.unclean
    verdict.seconds["total"] = round(time.monotonic() - started, 2)
    _judge(verdict, files, truth)
    _check_reports(verdict, outputs)
    return verdict


def _fresh_folder(out: Path, scenario: Scenario) -> RunFiles:
    out = Path(out).resolve()
    if out.exists() and not out.is_dir():
        raise InputError(f"{out}: is a file, a folder for the run was expected")
    files = RunFiles(out)
    if out.is_dir() and any(out.iterdir()):
        if not files.scenario.is_file():
            raise InputError(f"{out}: is not empty and not an earlier run's folder; name another one with --out")
        shutil.rmtree(out)
    write_yaml(files.scenario, scenario.data | {"simulation": scenario.simulation.to_mapping()})
    return files


def _step(runner: Runner, process: Process, verdict: Verdict) -> Finished | None:
    started = time.monotonic()
    try:
        return runner.run(process)
    finally:
        verdict.seconds[process.name] = round(time.monotonic() - started, 2)


def _note_failure(verdict: Verdict, finished: Finished) -> None:
    """Sort a step's bad end into an expected refusal, an unexpected one, or a broken run."""
    process, scenario = finished.process, verdict.scenario
    said = f"{process.name} ({process.executable}) ended with exit code {finished.exit_code}: {finished.last_line}"
    # Python ends with 1, too, when a program cannot even be imported: a refusal says that it is one.
    if finished.exit_code != 1 or not finished.refused:
        verdict.broken = True
        verdict.reasons.append(said)
        return
    verdict.refused = said
    if scenario.expected != "refused":
        verdict.reasons.append(said)
    elif process.stage != scenario.refusal["stage"]:
        verdict.reasons.append(f"the {scenario.refusal['stage']} stage was expected to refuse, but {said}")
    elif (text := scenario.refusal.get("mentions", "")).lower() not in finished.output.lower():
        verdict.reasons.append(f"the refusal was expected to mention '{text}', but {said}")


def _judge(verdict: Verdict, files: RunFiles, truth: Truth | None) -> None:
    """Hold what the nodes wrote against the truth; every stage gets a verdict, reached or not."""
    scenario = verdict.scenario
    products = dict.fromkeys(("alignment", "floor", "mounts"), files.calibration) | {
        "body_shape": files.body_shape_model
    }
    for stage in scenario.stages:
        bounds = scenario.tolerances[stage]
        if truth is None or not products[stage].is_file():
            verdict.stages[stage] = unreached(stage, bounds, f"the run ended before {products[stage].name} was written")
            continue
        try:
            verdict.stages[stage] = judge_stage(stage, files, truth, bounds)
        except InputError as error:
            verdict.stages[stage] = unreached(stage, bounds, f"what was written cannot be judged: {error}")
    if scenario.expected == "pass":
        verdict.reasons += _complaints(verdict)
    else:
        _expect_refusal(verdict)


def _check_reports(verdict: Verdict, outputs: dict[str | None, str]) -> None:
    for stage, text in verdict.scenario.reports.items():
        if stage in outputs and text.lower() not in outputs[stage].lower():
            verdict.reasons.append(f"{stage}: its output was expected to mention '{text}': {PRODUCERS[stage]} did not")


def _complaints(verdict: Verdict) -> list[str]:
    complaints = []
    for stage, judged in verdict.stages.items():
        if judged.reason and not verdict.reasons:
            complaints.append(f"{stage}: {judged.reason}")
        for quantity in judged.quantities:
            if quantity.error is not None and not quantity.passed:
                complaints.append(
                    f"{stage}: {quantity.key} is {quantity.error:.4g} {quantity.unit}".rstrip()
                    + f", above its tolerance of {quantity.tolerance:g}: the result of {PRODUCERS[stage]} is wrong"
                )
    return complaints


def _expect_refusal(verdict: Verdict) -> None:
    stage = verdict.scenario.refusal["stage"]
    if not verdict.refused and not verdict.reasons:
        verdict.reasons.append(f"the {stage} stage was expected to refuse, but it gave a result")
    written = any(quantity.error is not None for quantity in verdict.stages[stage].quantities)
    if verdict.refused and written:
        verdict.reasons.append(f"the {stage} stage refused, but its result was written to a file all the same")


def _versions() -> dict[str, str]:
    versions = {"stretch_sim_cal": __version__, "python": platform.python_version()}
    for library in LIBRARIES:
        try:
            versions[library] = metadata.version(library)
        except metadata.PackageNotFoundError:  # from the system, as rclpy is where ROS 2 is installed
            continue
    return versions
