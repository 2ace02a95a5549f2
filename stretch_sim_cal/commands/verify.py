"""Does the present calibration still hold? `stretch-sim-cal verify [RECORDING]`: on fresh data; `history [FILE]`: what
ros_watch_calibration has seen over weeks and months, as lines and as a picture."""

import argparse
import datetime
from dataclasses import asdict
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_path
from stretch_sim_cal.calibration.checks import check_lidars
from stretch_sim_cal.calibration.verification import HOLDS, Tolerances, verify
from stretch_sim_cal.command import only_with, show, warn
from stretch_sim_cal.commands.check import robot_of
from stretch_sim_cal.commands.recorded import NAMES, add_recording_arguments, open_source, with_defaults
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.recording.rosbag import Recording
from stretch_sim_cal.robot.surfaces import body_settings
from stretch_sim_cal.sensor.sensor import sensors_called


def _add_verify(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("recording", type=Path, nargs="?", help="a rosbag2 folder or file (default: listen to the live robot over ROS)")
    add("--calibration", type=Path, metavar="FILE", help="calibration file (default: the robot's own)")
    add("--num-samples", type=int, default=10, metavar="N", help="pairs of clouds to use (default: 10)")
    add("--tolerance-mm", type=float, default=2.0, metavar="MM", help="largest drift of a position (default: 2)")
    add("--tolerance-deg", type=float, default=0.1, metavar="DEG", help="largest drift of an angle (default: 0.1)")
    add_recording_arguments(parser, robot="the calibration file's, else ")


def _verify(args: argparse.Namespace) -> int:
    """Print the verdict. The exit code is 0 if the calibration holds, 1 if it drifted or that cannot be determined."""
    for name in ("num_samples", "tolerance_mm", "tolerance_deg"):
        if not getattr(args, name) > 0:
            raise InputError(f"--{name.replace('_', '-')}: is {getattr(args, name)}, a number above 0 is needed")
    if not args.recording:
        only_with(args, ["model"], "a recording")
    file = CalibrationFile.load(args.calibration or default_path())
    args.robot = robot_of(args, file)
    profile = with_defaults(args)
    check_lidars(file, profile.lidars)
    if args.recording:
        with Recording(args.recording) as recording:
            source = open_source(args, recording)
            clouds, description = list(source.clouds(args.num_samples, "verifying")), source.description
            base_from_left, footprint, sensor = source.described["left"], source.footprint_from_base, source.sensors
    else:
        from stretch_sim_cal.ros.live import live_clouds

        given = {option.name: getattr(args, name) for name, option in NAMES.items()}
        given |= {"robot": args.robot, "max_time_difference": args.max_time_difference}
        clouds, base_from_left, footprint, description = live_clouds(args.num_samples, given)
        sensor = sensors_called(args.sensor or profile.sensor)
    body = body_settings(profile, description, warn)
    tolerances = Tolerances(1e-3 * args.tolerance_mm, float(np.radians(args.tolerance_deg)))
    verification = verify(file, clouds, base_from_left, footprint, tolerances, sensor, body)
    drifts, asked = verification.drifts, verification.open_questions
    answer = {"verdict": verification.verdict, "open": asked}
    answer["drifts"] = [asdict(drift) | {"verdict": drift.verdict} for drift in drifts]
    lines = [*(drift.sentence() for drift in drifts), *(f"undetermined: {question}" for question in asked)]
    show(args, answer, [*lines, f"{file.path}: {verification.verdict}"], None)
    return 0 if verification.verdict == HOLDS else 1


def _add_history(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", type=Path, nargs="?", help="the monitor's SQLite file (default: the robot's own)")
    add("--days", type=float, default=90.0, metavar="N", help="days to look back (default: %(default)g)")
    add("--plot", type=Path, metavar="PNG", help="plot the residuals over time into this file")


def _history(args: argparse.Namespace) -> int:
    """Print the checks in short, and every change. The exit code is 1 if the present calibration has changed."""
    from stretch_sim_cal.calibration.watch import History, blocks, default_history

    if not args.days > 0:
        raise InputError(f"--days: is {args.days:g}, a number above 0 is needed")
    if args.plot and args.plot.suffix.lower() != ".png":
        raise InputError(f"--plot {args.plot}: the picture is a .png")
    path = args.file or default_history()
    history, since = History(path, must_exist=True), datetime.datetime.now().timestamp() - 86400.0 * args.days
    looks, changes = history.measurements(since), history.changes(since)
    history.close()
    if not looks:
        raise InputError(f"{path}: has no check of the last {args.days:g} days; give --days")
    present = looks[-1][0]
    refused = [look for _, look in looks if look.refused]
    found = {
        "file": str(path), "looks": len(looks), "places": len({(digest, look.station) for digest, look in looks}),
        "first": _when(looks[0][1].stamp), "last": _when(looks[-1][1].stamp), "could not tell": len(refused),
        "changes": [vars(change) for change in changes],
    }  # fmt: skip
    if args.plot:
        known = {block.vector for block in blocks()}
        others = (name.removeprefix("lidars ") for _, look in looks for name in look.vectors if name not in known)
        _draw(args.plot, looks, changes, blocks((*SIDES, *dict.fromkeys(others))))
    counts = [f"{found[what]} {what.removesuffix('s' * (found[what] == 1))}" for what in ("looks", "places")]
    lines = [f"{' at '.join(counts)}, {found['first']} to {found['last']}"]
    lines += [f"{len(refused)} undetermined, the last: {refused[-1].refused[0]}"] if refused else []
    lines += [f"{_when(change.stamp)}: {change.sentence}" for change in changes] or ["no change was detected"]
    show(args, found, [*lines, *([f"drawn: {args.plot}"] if args.plot else [])], None)
    return 1 if any(change.calibration == present for change in changes) else 0


def _when(stamp: float) -> str:
    return datetime.datetime.fromtimestamp(stamp).isoformat(" ", timespec="minutes")


def _draw(path: Path, looks, changes, blocks) -> None:
    """Draw each block's residual over time, with a dashed line at every new calibration, a red one at every change."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(blocks), 1, figsize=(11, 2.1 * len(blocks)), sharex=True, layout="constrained")
    begun = [later[1].stamp for earlier, later in zip(looks, looks[1:], strict=False) if earlier[0] != later[0]]
    for axis, block in zip(axes, blocks, strict=True):
        seen = [(look.stamp, *look.vectors[block.vector]) for _, look in looks if block.vector in look.vectors]
        scale, unit = (np.degrees(1.0), "deg") if block.angular else (1e3, "mm")
        if seen:
            times = [datetime.datetime.fromtimestamp(stamp) for stamp, _, _ in seen]
            values = scale * np.array([residual[block.columns] for _, residual, _ in seen])
            spread = scale * np.sqrt([np.diag(covariance)[block.columns] for _, _, covariance in seen])
            names = ("x", "y", "z") if values.shape[1] == 3 else ("x", "y") if values.shape[1] == 2 else ("",)
            for column, name in enumerate(names):
                (line,) = axis.plot(times, values[:, column], ".-", markersize=3, linewidth=0.6, label=name)
                axis.fill_between(
                    times, values[:, column] - spread[:, column], values[:, column] + spread[:, column],
                    color=line.get_color(), alpha=0.15, linewidth=0,
                )  # fmt: skip
            if len(names) > 1:
                axis.legend(loc="upper left", fontsize=7, ncols=len(names))
        for stamp in begun:
            axis.axvline(datetime.datetime.fromtimestamp(stamp), color="black", linewidth=0.8, linestyle="--")
        for change in changes:
            if change.block == block.name:
                axis.axvline(datetime.datetime.fromtimestamp(change.stamp), color="#b3142a", linewidth=1.2)
        axis.axhline(0.0, color="#999", linewidth=0.5)
        axis.set_title(block.name, fontsize=9)
        axis.set_ylabel(unit)
    figure.autofmt_xdate()
    write_atomic(path, lambda stream: figure.savefig(stream, format="png", dpi=100))
    plt.close(figure)


COMMANDS = {
    "verify": (
        "stretch-sim-cal verify this_morning.mcap --calibration dual_lidar_calibration.yaml", _add_verify, _verify
    ),
    "history": ("stretch-sim-cal history --days 90 --plot history.png", _add_history, _history),
}  # fmt: skip
