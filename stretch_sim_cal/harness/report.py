"""`report.html`: one self-contained page with a run's numbers beside their tolerances, and its pictures."""

import html
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import left_pose, stored_mounts
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply, inverse
from stretch_sim_cal.harness.body_verdict import posed_outlines
from stretch_sim_cal.harness.page import image, write_page
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.truth import load_truth
from stretch_sim_cal.harness.verdict import Verdict


def write_report(verdict: Verdict, folder: Path) -> Path:
    """Write the page for a finished run from the files in its folder, and return its path.

    A picture whose data the run did not get to is replaced by a sentence that says so.
    """
    files = RunFiles(Path(folder).resolve())
    parts = [_heading(verdict), _table(verdict)]
    for stage, title, draw in (
        ("alignment", "Both clouds before and after alignment", _clouds),
        ("floor", "Floor residuals", _floor),
        (
            "mounts",
            "The robot as it is seen with the lidars where the description has them, and where they are",
            _mounts,
        ),
        ("body_shape", "Body shape at every pose", _outlines),
    ):
        if stage in verdict.scenario.stages:
            parts.append(_picture(title, draw, files))
    parts.append(_details(verdict, files))
    return write_page(files.report, verdict.scenario.name, parts)


def _heading(verdict: Verdict) -> str:
    word, mood = ("PASS", "pass") if verdict.passed else ("FAIL", "fail")
    lines = [
        f"<h1>{html.escape(verdict.scenario.name)} <span class='{mood}'>{word}</span></h1>",
        f"<p class='lead'>{html.escape(verdict.scenario.description)}</p>",
    ]
    if verdict.refused:
        lines.append(f"<p>Refused{' as expected' if verdict.passed else ''}: {html.escape(verdict.refused)}</p>")
    for reason in verdict.reasons:
        lines.append(f"<p class='fail'>{html.escape(reason)}</p>")
    for note in verdict.notes:
        lines.append(f"<p>Note: {html.escape(note)}</p>")
    return "".join(lines)


def _table(verdict: Verdict) -> str:
    rows = []
    for judged in verdict.stages.values():
        for quantity in judged.quantities:
            error = "not reached" if quantity.error is None else f"{quantity.error:.4g} {quantity.unit}"
            mood, word = ("pass", "PASS") if quantity.passed else ("fail", "FAIL")
            if quantity.error is None and verdict.passed:
                mood, word = "pass", "refused as expected"
            cells = [
                html.escape(quantity.label),
                html.escape(quantity.estimate),
                html.escape(quantity.truth),
                error,
                f"{quantity.tolerance:g} {quantity.unit}",
            ]
            rows.append(
                "<tr>"
                + "".join(f"<td class='number'>{cell}</td>" for cell in cells)
                + f"<td class='{mood}'>{word}</td></tr>"
            )
    head = "".join(f"<th>{name}</th>" for name in ("quantity", "estimate", "truth", "error", "tolerance", ""))
    return (
        f"<table><tr>{head}</tr>{''.join(rows)}</table>"
        f"<p>Translations and heights in mm, angles in deg. {_frame_said(verdict)}</p>"
    )


def _frame_said(verdict: Verdict) -> str:
    if "mounts" in verdict.scenario.stages:
        return "With the mounts known, floor and outline are judged in the robot's own base_link."
    return (
        "Floor and outline are judged in the frame in which the left lidar is where the description says, since the "
        "clouds alone cannot show an error of the left mount."
    )


def _picture(title: str, draw: Callable[[RunFiles], bytes], files: RunFiles) -> str:
    try:
        return image(title, draw(files))
    except InputError as error:
        return f"<h2>{html.escape(title)}</h2><p>Not drawn: {html.escape(str(error))}</p>"


def _captured(files: RunFiles) -> tuple[np.ndarray, np.ndarray]:
    if not files.clouds.is_file():
        raise InputError("the run ended before clouds were captured")
    with np.load(files.clouds, allow_pickle=False) as arrays:
        return arrays["left"], arrays["right"]


def _calibrated(files: RunFiles, wanted: str) -> np.ndarray:
    value = getattr(CalibrationFile.load(files.calibration), wanted) if files.calibration.is_file() else None
    if value is None:
        raise InputError(f"the run ended without {wanted} in the calibration file")
    return value


def _clouds(files: RunFiles) -> bytes:
    from stretch_sim_cal.harness.plots import clouds_before_and_after

    left, right = _captured(files)
    truth = load_truth(files.truth)
    base_from_left = truth.nominal_base_link_from_lidar_left
    estimate = _calibrated(files, "right_to_left")
    return clouds_before_and_after(
        apply(base_from_left, left),
        apply(truth.nominal_base_link_from_lidar_right, right),
        apply(base_from_left @ estimate, right),
    )


def _floor(files: RunFiles) -> bytes:
    from stretch_sim_cal.harness.plots import floor_residuals

    left, right = _captured(files)
    described = load_truth(files.truth).nominal_base_link_from_lidar_left
    footprint_from_base = _calibrated(files, "footprint_from_base")
    footprint_from_left = footprint_from_base @ left_pose(CalibrationFile.load(files.calibration), described)
    right_in_left = apply(_calibrated(files, "right_to_left"), right)
    return floor_residuals(apply(footprint_from_left, np.vstack([left, right_in_left])))


def _mounts(files: RunFiles) -> bytes:
    from stretch_sim_cal.harness.mounts_plot import mounts_before_and_after
    from stretch_sim_cal.recording.dataset import read_dataset
    from stretch_sim_cal.robot.description import load_model
    from stretch_sim_cal.ros.mounts_solve import MountedRobot, residuals_at

    mounts = stored_mounts(CalibrationFile.load(files.calibration)) if files.calibration.is_file() else None
    if mounts is None:
        raise InputError("the run ended without mounts in the calibration file")
    dataset = read_dataset(files.mounts_dataset)
    robot = MountedRobot(load_model(dataset.description_file))
    return mounts_before_and_after(
        *(residuals_at(dataset, robot, poses) for poses in (robot.nominal, mounts.base_from_lidar))
    )


def _outlines(files: RunFiles) -> bytes:
    from stretch_sim_cal.harness.plots import outlines

    if not files.body_shape_model.is_file():
        raise InputError("the run ended before a body shape was fitted")
    truth = load_truth(files.truth).for_calibration(CalibrationFile.load(files.calibration))
    return outlines(posed_outlines(files.body_shape_model, files.dataset, truth))


def _details(verdict: Verdict, files: RunFiles) -> str:
    seconds = "\n".join(f"{name:<12} {value:8.1f} s" for name, value in verdict.seconds.items())
    versions = "\n".join(f"{name:<28} {value}" for name, value in verdict.versions.items())
    parts = [f"<h2>Seconds</h2><pre>{seconds}</pre><h2>Versions</h2><pre>{html.escape(versions)}</pre>"]
    if files.truth.is_file():
        truth = load_truth(files.truth)
        offset = inverse(truth.nominal_right_to_left) @ truth.right_to_left
        rows = "\n".join("  ".join(f"{value:12.8f}" for value in row) for row in truth.right_to_left)
        parts.append(
            f"<h2>True right-to-left transform</h2><pre>{rows}</pre><p>It differs from the description's by "
            f"{1e3 * np.linalg.norm(offset[:3, 3]):.2f} mm.</p>"
        )
    parts.append(f"<p>Logs and files of this run lie in <code>{html.escape(files.folder.name)}/</code>.</p>")
    return "".join(parts)
