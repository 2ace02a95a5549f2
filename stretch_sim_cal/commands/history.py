"""`stretch-sim-cal history [FILE]`: what ros_watch_calibration has seen over weeks and months,
as lines and as a picture."""

import argparse
import datetime
import json
from pathlib import Path

from stretch_sim_cal.errors import InputError

EXAMPLE = "stretch-sim-cal history --days 90 --plot history.png"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", type=Path, nargs="?", help="the history (default: the robot's own)")
    parser.add_argument("--days", type=float, default=90.0, help="how far back (default: %(default)g)")
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the residuals over time")
    parser.add_argument("--json", action="store_true", help="print what is known as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the looks in short, and every change. The exit code is 1 if a change of the
    present calibration was noticed."""
    from stretch_sim_cal.calibration.watch import BLOCKS
    from stretch_sim_cal.calibration.watch_history import History, default_history

    if not args.days > 0:
        raise InputError(f"--days: is {args.days:g}, a number above 0 is needed")
    path = args.file or default_history()
    history = History(path, must_exist=True)
    since = datetime.datetime.now().timestamp() - 86400.0 * args.days
    looks, changes = history.looks(since), history.changes(since)
    history.close()
    if not looks:
        raise InputError(f"{path}: holds no look of the last {args.days:g} days; say --days")
    present = looks[-1][0]
    refused = [look for _, look in looks if look.refused]
    found = {
        "file": str(path), "looks": len(looks), "places": len({(digest, look.place) for digest, look in looks}),
        "first": _when(looks[0][1].stamp), "last": _when(looks[-1][1].stamp), "could not tell": len(refused),
        "changes": [vars(change) for change in changes],
    }  # fmt: skip
    if args.json:
        print(json.dumps(found))
    else:
        print(f"{found['looks']} looks at {found['places']} places, {found['first']} to {found['last']}")
        if refused:
            print(f"{len(refused)} could not tell, the last: {refused[-1].refused[0]}")
        for change in changes:
            print(f"{_when(change.stamp)}: {change.sentence}")
        if not changes:
            print("no change was noticed")
    if args.plot:
        _draw(args.plot, looks, changes, BLOCKS)
        if not args.json:
            print(f"drawn: {args.plot}")
    return 1 if any(change.calibration == present for change in changes) else 0


def _when(stamp: float) -> str:
    return datetime.datetime.fromtimestamp(stamp).isoformat(" ", timespec="minutes")


def _draw(path: Path, looks, changes, blocks) -> None:
    """Draw each block's residual over time, a panel each, with a line where another calibration begins and a red one at
    every change that was noticed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    from stretch_sim_cal.files import write_atomic

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
