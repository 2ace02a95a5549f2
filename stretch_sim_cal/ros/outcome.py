"""How a calibration node ends: the result in words or JSON, then the files written, or every reason why not.

Beside the calibration file, calibrated joints are recorded in the robot's own stretch_calibration_values.yaml, from which
its description is made.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stretch_sim_cal.calibration import backups, calibration_file, values_file
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import left_pose
from stretch_sim_cal.calibration.summaries import plain
from stretch_sim_cal.command import one_line, refuse
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.robot.profile import profile_called


def finish(
    context, result, what: str, lines: Sequence[str], numbers: dict[str, Any],
    updated: Callable[[], CalibrationFile], path: str | Path,
) -> int:  # fmt: skip
    """Print `result` (as `lines`, or `numbers` as JSON), write it to `path` if it is accepted, return the exit code.

    `updated` returns the calibration file's new content. It reads the file only now, so that nothing is lost which
    another calibration wrote in the meantime. A refusal prints each reason in a line of its own and writes nothing.
    """
    for warning in result.warnings:
        context.log.warning(one_line(warning))
    as_json = context.arguments.json
    if not as_json:
        print("\n".join(lines), flush=True)
    if not result.accepted:
        for reason in result.refusals:
            refuse(reason)
    else:
        backup = updated().save(path)
        if not as_json:
            kept = f" (what it held before is in {backup.name})" if backup else ""
            print(f"accepted: {what} written to {path}{kept}", flush=True)
    if as_json:
        outcome = {
            what: numbers, "accepted": result.accepted, "warnings": result.warnings, "refusals": result.refusals,
            "file": str(path) if result.accepted else None,
        }  # fmt: skip
        print(json.dumps(plain(outcome)), flush=True)
    return 0 if result.accepted else Refused.exit_code


def roll_back(context, path: str | Path, values_path: Path | None) -> int:
    """Bring back both files as they were before their last write. Raises `InputError` if there is no backup."""
    for file in filter(None, (Path(path), values_path if values_path and values_path.exists() else None)):
        backup = backups.rollback(file)
        context.log.info(
            f"{file}: as it was before the last write (from {backup.name}); undone: {file.name}.rolled_back"
        )
    return 0


def values_path_of(context) -> Path | None:
    """Return the file for calibrated joints, None if there is none. Raises `InputError` if it cannot be updated."""
    options = context.options
    profile = profile_called(options.robot)
    if not profile.values_file:
        if options.values_file:
            raise InputError(f"parameter values_file: {profile.name} has no such file ({profile.source}: values_file)")
        return None
    if options.values_file:
        path = Path(options.values_file).expanduser()
    elif options.calibration_file:
        return None  # a calibration that is kept elsewhere is not to change the robot's description
    elif calibration_file.default_robot_id() == "unknown":
        context.log.warning(
            "HELLO_FLEET_ID is not set: the calibrated joints are not recorded in the robot's values file"
        )
        return None
    else:
        path = values_file.default_values_path()
    values_file.values_text(path, [], "", "")
    return path


def lidar_joints(context, frames, file: CalibrationFile) -> list[values_file.JointOrigin]:
    """Return where both lidars are on the head: the left one by the file's mounts, else as described, and the right one
    as the file's alignment puts it; none, with a warning, if TF does not have the head."""
    options = context.options
    try:
        base_from_left = left_pose(file, frames.lookup(options.base_link_frame, options.left_lidar_frame))
        head = profile_called(options.robot).housing_link
        head_from_base = frames.lookup(head, options.base_link_frame)
    except InputError as error:
        context.log.warning(f"{error}; the lidars' joints are not recorded")
        return []
    return values_file.lidar_joints(head_from_base @ base_from_left, file.right_to_left, head)


def record(context, path: Path, joints: Sequence[values_file.JointOrigin], result) -> None:
    """Record the joints of an accepted result, with what they rest on."""
    extra = {"fit_method": result.method, "rmse": float(result.rmse), "num_frames": result.num_frames}
    values_file.record_joints(path, joints, calibration_file.default_robot_id(), extra=extra)
    context.log.info(f"joints {', '.join(joint.name for joint in joints)} recorded in {path}")
