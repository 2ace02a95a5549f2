"""`stretch-sim-cal workspace MODEL --frame F`: the points that a frame of a robot can reach."""

import argparse
import math
import sys
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation
from tqdm import tqdm

from stretch_sim_cal.command import only_with, show
from stretch_sim_cal.commands.described import add_model_arguments, load, numbers
from stretch_sim_cal.commands.kinematics import add_joint_argument, joint_values
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.harness.pages import text_lines
from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.studies.orientations import orientations
from stretch_sim_cal.studies.workspace import FORMATS, workspace, write_workspace_plot

EXAMPLE = "stretch-sim-cal workspace stretch4 --frame grasp_center_link --plot workspace.png"
SHAPES = {
    (0, 0): "a point", (1, 1): "a part of a line", (1, 2): "a curve in a plane", (1, 3): "a curve in space",
    (2, 2): "a part of a plane", (2, 3): "a curved surface", (3, 3): "a body",
}  # fmt: skip
"""By the dimension of the reached set and of the space that it spans."""
WAYS = (
    "only some orientations", "the orientation can change in one way", "the orientation can change in two ways",
    "the orientation can change in all three ways",
)  # fmt: skip
SAMPLES, STARTS = 2**20, 2**14
MEASURES = {1: ("length", "m"), 2: ("area", "m2"), 3: ("volume", "m3")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    fixed = "fix a joint at a position (m, rad, or with suffix 'deg'); all others move within their limits"
    add_joint_argument(parser, fixed)
    add = parser.add_argument
    add("--frame", required=True, help="link whose origin is to be reached")
    add("--relative-to", metavar="FRAME", help="link in which points are expressed (default: the root)")
    add("--orientations", metavar="'X Y Z'", help="compute the possible orientations at this point (m) instead")
    add("--resolution", type=float, metavar="M", help="size of a cell (default: 1/40 of the extent)")
    add("--samples", type=int, metavar="N",
        help=f"largest number of configurations (default: {SAMPLES}; {STARTS} with --orientations)")  # fmt: skip
    add("--collision-free", action="store_true", help="only configurations without self-collision")
    add("--margin", type=float, default=0.01, metavar="M",
        help="with --collision-free: the distance that counts as touching (default: %(default)s)")  # fmt: skip
    add("--floor", type=float, metavar="Z", help="with --collision-free: a floor at this height over the root")
    add("--points", type=Path, metavar="FILE", help="write the points as .csv, or with their configurations as .npz")
    add("--plot", type=Path, metavar="FILE", help="write a picture (.png, .svg, .pdf)")
    add("--seed", type=int, default=0, help="seed of the sampling (default: %(default)s)")


def run(args: argparse.Namespace) -> int:
    if args.points and args.points.suffix not in (".csv", ".npz"):
        raise InputError(f"{args.points}: points are written as .csv or .npz")
    if args.plot and args.plot.suffix.lower() not in FORMATS:
        raise InputError(f"{args.plot}: a plot is one of {', '.join(FORMATS)}")
    if args.samples is not None and args.samples < 1:
        raise InputError(f"--samples {args.samples}: must be 1 or more")
    if args.seed < 0:
        raise InputError(f"--seed {args.seed}: must be 0 or more")
    if not args.collision_free:
        only_with(args, ["margin", "floor"], "--collision-free")
    elif args.floor is not None and not math.isfinite(args.floor):
        raise InputError(f"--floor {args.floor}: expected a height in m")
    if args.orientations is not None:
        only_with(args, ["plot", "resolution"], "the points that are reached, not with --orientations")
        point = numbers("--orientations", args.orientations, {3: "x y z"})
    model = load(args)
    held = joint_values(model, args.joint)
    collision = SelfCollision(model, args.margin, args.floor) if args.collision_free else None
    if args.orientations is not None:
        return _orientations(model, point, held, collision, args)
    samples = args.samples or SAMPLES
    with tqdm(desc="sampling", total=samples, unit="configurations", delay=2, leave=False, file=sys.stderr) as bar:
        reached = workspace(
            model, args.frame, args.relative_to, held, args.resolution, samples, collision, args.seed,
            progress=lambda tried, cells: bar.update(tried - bar.n),
        )  # fmt: skip
    if args.points:
        _write_points(args.points, {"points": reached.points}, ("x", "y", "z"), reached)
    if args.plot:
        write_workspace_plot(reached, args.plot, model, held)
    same = (
        "relative_to", "dimension", "hull_dimension", "measure", "measure_error", "hull_measure", "hull_bound",
        "resolution", "samples", "colliding", "settled",
    )  # fmt: skip
    answer = {
        "frame": reached.link, "variables": [variable.name for variable in reached.variables],
        "bounds": reached.bounds.tolist(), "hull": reached.hull.tolist(), "points": len(reached.points),
        **{name: getattr(reached, name) for name in same},
    }  # fmt: skip
    written = [path for path in (args.points, args.plot) if path]
    show(args, answer, text_lines("workspace", reached=reached, shapes=SHAPES, measures=MEASURES, written=written))
    return 0


def _orientations(model, point, held, collision, args: argparse.Namespace) -> int:
    """Print the orientations that are possible at a point. The exit code is 1 if it is out of reach."""
    samples = args.samples or STARTS
    with tqdm(desc="sampling", total=samples, unit="starts", delay=2, leave=False, file=sys.stderr) as bar:
        found = orientations(model, args.frame, point, args.relative_to, held, samples, collision, args.seed,
                             progress=lambda tried: bar.update(tried - bar.n))  # fmt: skip
    reached = len(found.quaternions) > 0
    if args.points and reached:
        _write_points(args.points, {"quaternions": found.quaternions}, ("qx", "qy", "qz", "qw"), found)
    same = ("relative_to", "distance", "dimension", "share", "samples", "settled")
    answer = {
        "frame": found.link, "point": found.point.tolist(), "reached": reached,
        "variables": [variable.name for variable in found.variables], "axis_shares": found.axis_shares.tolist(),
        "orientations": found.quaternions.tolist(), **{name: getattr(found, name) for name in same},
    }  # fmt: skip
    rpy = Rotation.from_quat(found.quaternions).as_euler("xyz", degrees=True) if reached else []
    show(args, answer, text_lines(
        "orientations", found=found, where=" ".join(f"{value:g}" for value in found.point), ways=WAYS,
        collides=collision is not None, rpy=np.round(rpy, 4) + 0.0, written=args.points,
    ))  # fmt: skip
    return 0 if reached else 1


def _write_points(path: Path, main: dict, columns: tuple[str, ...], reached) -> None:
    """Write points or quaternions (by their name in an .npz), and the configurations that have them."""
    names = [variable.name for variable in reached.variables]
    if path.suffix == ".npz":
        content = main | {"configurations": reached.configurations, "variables": np.array(names)}
        write_atomic(path, lambda stream: np.savez_compressed(stream, **content))
    else:
        table = np.concatenate([*main.values(), reached.configurations], axis=1)
        style = {"delimiter": ",", "header": ",".join([*columns, *names]), "comments": "", "fmt": "%.9g"}
        write_atomic(path, lambda stream: np.savetxt(stream, table, **style))
