"""`stretch-sim-cal workspace MODEL --frame F`: what a frame of a robot can reach."""

import argparse
import json
import sys
from pathlib import Path

from stretch_sim_cal.commands.fk import add_joint_argument, add_model_arguments, joint_values, load

NAME = "workspace"
HELP = "Find the points that a frame of a robot can reach: their extent, volume and hull, as points and as a picture."
EXAMPLE = "stretch-sim-cal workspace stretch4 --frame grasp_center_link --plot workspace.png"
SHAPES = {
    (0, 0): "a point",
    (1, 1): "a part of a line",
    (1, 2): "a curve in a plane",
    (1, 3): "a curve in space",
    (2, 2): "a part of a plane",
    (2, 3): "a curved surface",
    (3, 3): "a body",
}
"""By the dimension of what is reached and of the space that it spans."""
MEASURES = {1: ("length", "m"), 2: ("area", "m2"), 3: ("volume", "m3")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_model_arguments(parser)
    add_joint_argument(parser, "hold a joint at a position (m, rad, or with 'deg'); all others move in their limits")
    add = parser.add_argument
    add("--frame", required=True, help="the link whose origin is asked about")
    add("--relative-to", metavar="FRAME", help="the link that the points are given in (default: the root)")
    add("--resolution", type=float, metavar="M", help="size of a cell (default: 1/40 of the extent)")
    add("--samples", type=int, default=2**20, metavar="N", help="configurations to try at most (default: %(default)s)")
    add("--collision-free", action="store_true", help="only configurations in which it does not touch itself")
    add("--margin", type=float, default=0.01, metavar="M", help="what counts as touching (default: %(default)s)")
    add("--floor", type=float, metavar="Z", help="with --collision-free: a floor at this height over the root")
    add("--points", type=Path, metavar="FILE", help="write the points as .csv, or with their configurations as .npz")
    add("--plot", type=Path, metavar="FILE", help="write a picture (.png, .svg, .pdf)")
    add("--seed", type=int, default=0, help="of the sampling (default: %(default)s)")
    add("--json", action="store_true", help="print the summary as JSON")


def run(args: argparse.Namespace) -> int:
    """Sample the workspace, print its summary, and write what was asked for."""
    from tqdm import tqdm

    from stretch_sim_cal.errors import InputError
    from stretch_sim_cal.robot.collision import SelfCollision
    from stretch_sim_cal.robot.workspace import workspace
    from stretch_sim_cal.robot.workspace_plot import FORMATS, write_workspace_plot

    if args.points and args.points.suffix not in (".csv", ".npz"):
        raise InputError(f"{args.points}: points are written as .csv or .npz")
    if args.plot and args.plot.suffix.lower() not in FORMATS:
        raise InputError(f"{args.plot}: a plot is one of {', '.join(FORMATS)}")
    if args.samples < 1:
        raise InputError(f"--samples {args.samples}: must be 1 or more")
    model = load(args)
    held = joint_values(model, args.joint)
    collision = SelfCollision(model, args.margin, args.floor) if args.collision_free else None
    with tqdm(desc="sampling", total=args.samples, unit="configurations", delay=2, leave=False, file=sys.stderr) as bar:
        reached = workspace(
            model, args.frame, args.relative_to, held, args.resolution, args.samples, collision, args.seed,
            progress=lambda samples, cells: bar.update(samples - bar.n),
        )  # fmt: skip
    if args.points:
        _write_points(reached, args.points)
    if args.plot:
        write_workspace_plot(reached, args.plot, model, held)
    summary = _summary(reached)
    if args.json:
        print(json.dumps(summary, indent=1))
    else:
        _print(summary, args)
    return 0


def _summary(reached) -> dict[str, object]:
    return {
        "frame": reached.link,
        "relative_to": reached.relative_to,
        "variables": [variable.name for variable in reached.variables],
        "dimension": reached.dimension,
        "hull_dimension": reached.hull_dimension,
        "bounds": reached.bounds.tolist(),
        "measure": reached.measure,
        "measure_error": reached.measure_error,
        "hull_measure": reached.hull_measure,
        "hull_bound": reached.hull_bound,
        "hull": reached.hull.tolist(),
        "points": len(reached.points),
        "resolution": reached.resolution,
        "samples": reached.samples,
        "colliding": reached.colliding,
        "settled": reached.settled,
    }


def _print(summary: dict, args: argparse.Namespace) -> None:
    shape = SHAPES[summary["dimension"], summary["hull_dimension"]]
    print(f"{summary['frame']} in {summary['relative_to']}: reaches {shape}")
    for name, low, high in zip("xyz", *summary["bounds"], strict=True):
        print(f"  {name}  {low:8.4f} to {high:8.4f} m")
    if summary["hull_dimension"]:
        measure, unit = MEASURES[summary["hull_dimension"]]
        within = f" +- {summary['measure_error']:.2g}" if summary["dimension"] == summary["hull_dimension"] else ""
        bound = f"(at most {summary['hull_bound']:.4g})"
        print(f"  {measure} {summary['measure']:.4g}{within} {unit}, of its convex hull {summary['hull_measure']:.4g} {unit} "
              f"{bound}")  # fmt: skip
    print(f"  moved by {', '.join(summary['variables']) or 'nothing'}")
    resolution = f"{summary['resolution'] * 1000:.3g} mm"
    print(f"  {summary['points']} points, one in {resolution}, from {summary['samples']} configurations")
    if summary["colliding"]:
        print(f"  {summary['colliding']} configurations touched something and were dropped")
    if not summary["settled"]:
        print("  new points were still turning up: more --samples, or a coarser --resolution, would say more")
    for path in (args.points, args.plot):
        if path:
            print(f"written: {path}")


def _write_points(reached, path: Path) -> None:
    import numpy as np

    from stretch_sim_cal.files import write_atomic

    names = [variable.name for variable in reached.variables]
    if path.suffix == ".npz":
        content = {"points": reached.points, "configurations": reached.configurations, "variables": np.array(names)}
        write_atomic(path, lambda stream: np.savez_compressed(stream, **content))
    else:
        table = np.concatenate([reached.points, reached.configurations], axis=1)
        style = {"delimiter": ",", "header": ",".join(["x", "y", "z", *names]), "comments": "", "fmt": "%.9g"}
        write_atomic(path, lambda stream: np.savetxt(stream, table, **style))
