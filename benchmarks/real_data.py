"""Real recordings: ours beside the published method and GICP, against each other and between scenes of one rig.

    python benchmarks/real_data.py --data DIR [--plot FILE]

Every file or folder in DIR is a recording (docs/real_data.md says where some come from):
    NAME.npz                   keys scene/lidar/field, or frame/field for one lidar, whose azimuth columns are then
                               split into two; fields xyz (N, 3), and intensity, ring, timestamp (N,)
    NAME/SCENE/LIDAR.pcd       one frame of each lidar; NAME/SCENE/LIDAR/FRAME.pcd for several; .bin: x, y, z, intensity
                               of every point as float32
    NAME/sensors/lidar/        a sensor log of Argoverse 2, with its calibration/ as published extrinsics
    NAME.mcap, NAME/ (rosbag2) every topic of PointCloud2 is a lidar
NAME.yaml beside it says how the lidars stand, by name, in the frame of the first one:
    {first: top, height: 2.0, others: {left: {xyz: [0, 0, 0], rpy_deg: [0, 0, 90], known: false}}}
`known` is true for published extrinsics, false for a first guess; `height` (m) is about that of the first lidar over
the floor, and without it the floor is not looked for.

There is no truth but for a lidar that was split. What can be said without: how far results of scenes of the same rig
are apart, in units of what they say of themselves, NEES over its six degrees of freedom; above 3 is overconfident.
"""

import argparse
import sys
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import small_gicp
from rigs import Rig, rigs

from stretch_sim_cal import command
from stretch_sim_cal.calibration.alignment.planes import PlaneAlignment
from stretch_sim_cal.calibration.floor.support_method import SupportFloor
from stretch_sim_cal.calibration.published import PublishedAlignment, PublishedCodeFloor
from stretch_sim_cal.calibration.results import AlignmentResult
from stretch_sim_cal.calibration.settings import AlignmentSettings, FloorSettings
from stretch_sim_cal.geometry.planes import Plane, floor_error, footprint_from_base
from stretch_sim_cal.geometry.transforms import apply, error, inverse, log

# GICP from a far first guess: voxels of so many metres, correspondences from wide to narrow.
GICP_VOXEL, GICP_WIDTHS = 0.3, (2.0, 1.0, 0.5)
# Floor is used as far as this (m) around the lidar, and searched so far (m) from the height that was said.
FLOOR_RADIUS, FLOOR_SEARCH = 8.0, 0.3


def main() -> int:
    """Run all recordings of a folder, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of recordings")
    parser.add_argument("--plot", type=Path, help="draw the first rig of several scenes into this file")
    args = parser.parse_args()
    drawn = False
    for rig in rigs(args.data):
        print(f"## {rig.name}\n")
        for other, guess in rig.others.items():
            found = {scene: align(rig, scene, other, guess) for scene in rig.scenes}
            print(alignment_table(rig, other, found) + "\n")
            if args.plot and not drawn and len(found) > 1:
                draw(rig, other, found, args.plot)
                drawn = True
        if rig.height is not None:
            print(floor_table(rig, rig.height) + "\n")
    return 0


# Running.


@dataclass(frozen=True)
class Aligned:
    """What the methods answer in one scene: ours, of all frames and of the halves of several; the transforms (4, 4) of
    the published method and of GICP in three steps, None without a first guess."""

    ours: AlignmentResult
    halves: tuple[AlignmentResult, AlignmentResult] | None
    published: np.ndarray | None
    gicp: np.ndarray | None


def coordinates(points: np.ndarray) -> np.ndarray:
    """Return the coordinates (N, 3) of a cloud."""
    return np.column_stack([points[name] for name in "xyz"]).astype(float)


def solve(method, pairs: list):
    """Return what a method answers to pairs of clouds."""
    for pair in pairs:
        method.add(*pair)
    return method.solve()


def align(rig: Rig, scene: str, other: str, guess: np.ndarray | None) -> Aligned:
    """Return what the methods answer in one scene."""
    pairs = list(zip(rig.scenes[scene][rig.first], rig.scenes[scene][other], strict=False))
    ours = solve(PlaneAlignment(guess, AlignmentSettings()), pairs)
    halves = None
    if len(pairs) > 1:
        middle = len(pairs) // 2
        halves = tuple(
            solve(PlaneAlignment(guess, AlignmentSettings()), part) for part in (pairs[:middle], pairs[middle:])
        )
    if guess is None:
        return Aligned(ours, halves, None, None)
    bare = [tuple(coordinates(points) for points in pair) for pair in pairs]
    gicp = guess
    left, right = (np.concatenate([pair[side] for pair in bare]) for side in (0, 1))
    for width in GICP_WIDTHS:
        gicp = small_gicp.align(
            left, right, init_T_target_source=gicp, registration_type="GICP", downsampling_resolution=GICP_VOXEL,
            max_correspondence_distance=width, num_threads=1, max_iterations=100,
        ).T_target_source  # fmt: skip
    return Aligned(ours, halves, solve(PublishedAlignment(guess), bare).right_to_left, gicp)


def scatter(transforms: list[np.ndarray]) -> np.ndarray:
    """Return the variances (6, 6) with which transforms (4, 4) of several scenes scatter, zero for one."""
    if len(transforms) < 2:
        return np.zeros((6, 6))
    return np.diag(np.var([log(one @ inverse(transforms[0])) for one in transforms], axis=0, ddof=1))


def nees(
    first: AlignmentResult, second: AlignmentResult | np.ndarray, second_covariance: float | np.ndarray = 0.0
) -> float:
    """Return the squared difference of two results in units of their covariances, over 6; a plain
    transform has the one given."""
    other, covariance = second, first.covariance + second_covariance
    if isinstance(second, AlignmentResult):
        other, covariance = second.right_to_left, covariance + second.covariance
    twist = log(other @ inverse(first.right_to_left))
    return float(twist @ np.linalg.solve(covariance, twist)) / 6


def off(first: np.ndarray | None, second: np.ndarray | None) -> str:
    """Return how far two transforms are apart, in mm and deg."""
    if first is None or second is None:
        return "-"
    distance, angle = error(first, second)
    return f"{1e3 * distance:.1f} mm {np.degrees(angle):.2f} deg"


def alignment_table(rig: Rig, other: str, found: dict[str, Aligned]) -> str:
    """Return the tables of one pair of lidars as Markdown."""
    known = rig.others[other] if other in rig.known else None
    gicp_covariance = scatter([one.gicp for one in found.values() if one.gicp is not None])
    lines = [
        f"{rig.first} and {other}:", "",
        "| scene | ours says, one sigma (largest axis) | surfaces apart | ours from GICP | NEES / dof, both "
        + ("" if known is None else
           "| ours from published extrinsics | NEES / dof | GICP from those | published method from those ")
        + "| published method from GICP | warnings and refusals |",
        "|---" * (11 if known is not None else 7) + "|",
    ]  # fmt: skip
    for scene, one in found.items():
        deviations = np.sqrt(np.diag(one.ours.covariance))
        cells = [
            scene, f"{1e3 * deviations[:3].max():.1f} mm {np.degrees(deviations[3:].max()):.2f} deg",
            f"{1e3 * one.ours.rmse:.1f} mm", off(one.ours.right_to_left, one.gicp),
            "-" if one.gicp is None else f"{nees(one.ours, one.gicp, gicp_covariance):.2f}",
        ]  # fmt: skip
        if known is not None:
            cells += [
                off(one.ours.right_to_left, known), f"{nees(one.ours, known):.2f}", off(one.gicp, known),
                off(one.published, known),
            ]  # fmt: skip
        said = [
            sentence.split(":")[0].split(";")[0].split(",")[0] for sentence in one.ours.warnings + one.ours.refusals
        ]
        lines.append(f"| {' | '.join([*cells, off(one.published, one.gicp), '; '.join(said) or '-'])} |")
    between = [
        (f"{a} and {b}", found[a].ours, found[b].ours, (found[a], found[b])) for a, b in combinations(found, 2)
    ] + [
        (f"{scene}, first and second half of the frames", *one.halves, None)
        for scene, one in found.items() if one.halves is not None
    ]  # fmt: skip
    if between:
        lines += ["", "| between | ours | NEES / dof | GICP | published method |", "|---|---|---|---|---|"]
    for name, first, second, pair in between:
        rest = (
            ("-", "-") if pair is None else (off(pair[0].gicp, pair[1].gicp), off(pair[0].published, pair[1].published))
        )
        lines.append(
            f"| {name} | {off(first.right_to_left, second.right_to_left)} | {nees(first, second):.2f} | "
            f"{' | '.join(rest)} |"
        )
    return "\n".join(lines)


def floor_table(rig: Rig, height: float) -> str:
    """Return what the floor methods find under the first lidar, from it and another one, as Markdown; ours looks for
    it at about `height` (m)."""
    other = next(iter(rig.others))
    footprint_from_lidar = footprint_from_base(Plane(np.array([0.0, 0.0, 1.0]), height))
    lines = [
        f"Floor under {rig.first}, from it and {other}:", "",
        "| scene | height, ours (one sigma) | tilt, one sigma | "
        "published method from ours | refusals |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for scene, clouds in rig.scenes.items():
        pairs = list(zip(clouds[rig.first], clouds[other], strict=False))
        aligned = solve(PlaneAlignment(rig.others[other], AlignmentSettings()), pairs)
        settings = FloorSettings(observations=aligned.known, radius=FLOOR_RADIUS, search_height=FLOOR_SEARCH)
        ours = solve(SupportFloor(np.eye(4), aligned.right_to_left, footprint_from_lidar, settings), pairs)
        if not np.isfinite(ours.covariance).all():
            lines.append(f"| {scene} | - | - | - | {'; '.join(ours.refusals)} |")
            continue
        bare = [tuple(coordinates(points) for points in pair) for pair in pairs]
        published = solve(PublishedCodeFloor(np.eye(4), aligned.right_to_left, footprint_from_lidar), bare).plane
        deviations = np.sqrt(np.diag(ours.covariance))
        tilt = np.degrees(floor_error(published, ours.plane)[1])
        said = [sentence.split(":")[0].split(";")[0] for sentence in ours.refusals]
        lines.append(
            f"| {scene} | {ours.plane.offset:.4f} m ({1e3 * deviations[0]:.1f} mm) | "
            f"{np.degrees(deviations[1:].max()):.2f} deg | {1e3 * (published.offset - ours.plane.offset):.0f} mm "
            f"{tilt:.2f} deg | {'; '.join(said) or '-'} |"
        )
    return "\n".join(lines)


def draw(rig: Rig, other: str, found: dict[str, Aligned], path: Path) -> None:
    """Draw a rig: one scene from above, and where each scene's results put the other lidar."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (view, places) = pyplot.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
    scene = next(iter(found))
    right = apply(found[scene].ours.right_to_left, coordinates(rig.scenes[scene][other][0]))
    for points, colour, name in (
        (coordinates(rig.scenes[scene][rig.first][0]), "0.6", rig.first),
        (right, "tab:red", other),
    ):
        view.plot(points[:, 0], points[:, 1], ",", color=colour)
        view.plot([], [], "s", color=colour, label=name)
    view.set(
        xlim=(-30, 30), ylim=(-30, 30), aspect="equal", xlabel="x / m", ylabel="y / m", title=f"scene {scene}, ours"
    )
    view.legend(loc="upper right")
    for index, (name, one) in enumerate(found.items()):
        deviations = 1e3 * np.sqrt(np.diag(one.ours.covariance))
        x, y, _ = 1e3 * one.ours.right_to_left[:3, 3]
        label = "ours, one sigma" if not index else None
        places.errorbar(x, y, deviations[1], deviations[0], "o", color="tab:blue", capsize=3, label=label)
        places.annotate(name, (x, y), textcoords="offset points", xytext=(5, 5))
        if one.gicp is not None:
            at = 1e3 * one.gicp[:2, 3]
            places.plot(*at, "x", color="tab:orange", label=None if index else "GICP")
            places.annotate(name, at, textcoords="offset points", xytext=(5, -12), color="tab:orange")
    places.set(xlabel="x / mm", ylabel="y / mm", aspect="equal", title=f"place of {other} in the frame of {rig.first}")
    places.margins(0.1)
    places.legend()
    places.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(command.run(main))
