"""`report.html`: one self-contained page with a run's numbers beside their tolerances; and the pictures of all pages,
each a function that returns a figure as PNG bytes."""

import io
import itertools
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from scipy.spatial import cKDTree

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.calibration.mounts.findings import FRONT
from stretch_sim_cal.calibration.mounts.result import MountsResult, Residuals
from stretch_sim_cal.calibration.mounts.robot import MountedRobot, residuals_at
from stretch_sim_cal.calibration.observations import known_alignment, load_beside
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.points import voxel_keys
from stretch_sim_cal.geometry.transforms import apply, inverse
from stretch_sim_cal.geometry.transforms import error as transform_error
from stretch_sim_cal.harness.clouds_3d import COLOURS, ByLidar, CapturedClouds, placed, turnable
from stretch_sim_cal.harness.pages import Section, rendered, write_page
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.verdict import Verdict, load_truth, posed_outlines
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.profile import RobotProfile, profile_called
from stretch_sim_cal.view import thinned

matplotlib.use("Agg")

TRUE, FIT = "#2b2b2b", "#c2182b"
SLICES = (0.05, 0.15, 0.3)  # half thicknesses of the slices that are drawn, m: the first that has enough points
ZOOM = 0.5  # width of the enlarged windows, m
SLICE_HEIGHTS = (0.5, 0.8, 1.1, 1.4, 1.8)
ENOUGH_TO_DRAW = 60  # points of each lidar in a window
TURNS = 10  # in which clouds are drawn
WRAPPED = 46  # characters of a panel's title
NOT_THE_ROBOT = 1.0  # m from base_link
AGREE_WITHIN = 0.05  # m
FLOOR_REACH, FLOOR_CELL = 4.0, 0.1  # m
AS_CALIBRATED = ("before: as described", "after: as calibrated")

Window = tuple[np.ndarray, float]  # what is enlarged: its middle (3,) in base_link and half the slice's thickness, m


def as_png(figure: Figure) -> bytes:
    """Return a figure, laid out so that nothing overlaps or is cut, as PNG, and close it."""
    figure.set_layout_engine("constrained")  # `bbox_inches="tight"` would draw everything twice
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    plt.close(figure)
    return stream.getvalue()


def drawn(title: str, draw: Callable[[], bytes | str]) -> Section:
    """Return what `draw` returns, a picture or HTML, as a part of a page; if its data is missing, the reason."""
    try:
        shown = draw()
    except InputError as error:
        return Section(title, missing=str(error))
    return Section(title, png=shown) if isinstance(shown, bytes) else Section(title, html=shown)


def clouds(seen: CapturedClouds, new: CalibrationFile, old: CalibrationFile | None = None) -> str:
    """Return the clouds of all lidars before and after as HTML: to be turned, and as pictures."""
    known, after = seen.usable(load_beside(new)), seen.poses(new)
    text = "The clouds are corrected by the estimated intrinsics (range, angles)."
    if not known:
        text = "The points are as published by the lidars: their intrinsics (range, angles) are unknown."
    if lacking := ", ".join(name for name in seen.returns if name not in after):
        text += f" Not aligned, and not shown: {lacking}."
    return _two_states(text, (), seen.points(known), seen.poses_before(old), after)


def _two_states(
    text: str, rows: Sequence, points: ByLidar, before: ByLidar, after: ByLidar, titles: Sequence[str] = AS_CALIBRATED
) -> str:
    left, now = next(iter(after)), placed(points, after)
    # The pictures have the left cloud as calibrated, so that only the others move.
    then = placed(points, {name: after[left] @ inverse(before[left]) @ before[name] for name in after})
    window = _telling_window(then, now)
    spot = None if window is None else window[0]
    head = ("lidar", "poses", "off, mm", "deg", f"points within {1e3 * AGREE_WITHIN:.0f} mm of the left cloud")
    to_turn, picture = turnable(points, before, after, spot), clouds_before_and_after(then, now, window, titles)
    return rendered("clouds", text=text, head=head, rows=rows, turnable=to_turn, png=picture)


def true_clouds(files: RunFiles) -> str:
    """Return the clouds of a simulated run without a result as HTML, at the described and at the true poses, with the
    share of each lidar's points on the left one's surfaces."""
    seen, truth = CapturedClouds.load(files), load_truth(files.truth)
    points, before = seen.points(), seen.poses_before()
    after = {name: truth.base_from_lidar[name] for name in points}
    poses = {"as described": before, "true": after}
    at = {which: placed(points, own) for which, own in poses.items()}
    (left, *others), rows = points, []
    trees = {which: cKDTree(thinned(clouds[left])) for which, clouds in at.items()}
    for name, which in itertools.product(others, at):
        near = trees[which].query(thinned(at[which][name]), distance_upper_bound=AGREE_WITHIN)[0]
        true, own = (inverse(each[left]) @ each[name] for each in (after, poses[which]))
        translation, rotation = transform_error(true, own)
        agreeing = f"{100 * np.mean(np.isfinite(near)):.0f} %"
        rows.append((name, which, f"{1e3 * translation:.2f}", f"{np.degrees(rotation):.3f}", agreeing))
    text = "There is no result. Before: as described; after: the true poses. The points are as published by the lidars."
    return _two_states(text, rows, points, before, after, ("as described", "at the true poses"))


def refused_clouds(seen: CapturedClouds, found: ByLidar) -> str:
    """Return the clouds as HTML, as described and where a refused result `found` the lidars: base_from_lidar (4, 4)."""
    text = "The result is refused. Before: as described; after: as found. The points are as published by the lidars."
    after = {name: found[name] for name in seen.returns}
    return _two_states(text, (), seen.points(), seen.poses_before(), after, ("as described", "as found, refused"))


def floor_picture(seen: CapturedClouds, file: CalibrationFile) -> bytes:
    """Draw the mean height over the calibrated floor, cell by cell."""
    if file.footprint_from_base is None:
        raise InputError("the calibration has no floor")
    in_base = placed(seen.points(seen.usable(load_beside(file))), seen.poses(file))
    points = apply(file.footprint_from_base, np.vstack(list(in_base.values())))
    near = points[(np.abs(points[:, 2]) < 0.03) & (np.abs(points[:, :2]).max(axis=1) < FLOOR_REACH)]
    edges = np.arange(-FLOOR_REACH, FLOOR_REACH + FLOOR_CELL, FLOOR_CELL)
    x, y, z = near.T
    counts, _, _ = np.histogram2d(x, y, bins=[edges, edges])
    sums, _, _ = np.histogram2d(x, y, bins=[edges, edges], weights=z.astype(float))
    mean = np.where(counts >= 10, 1e3 * sums / np.maximum(counts, 1), np.nan)
    figure, axis = plt.subplots(figsize=(8, 6.6), layout="constrained")
    extent = 2 * (-FLOOR_REACH, FLOOR_REACH)
    image = axis.imshow(mean.T, origin="lower", extent=extent, cmap="RdBu_r", vmin=-5, vmax=5)
    figure.colorbar(image, ax=axis, label="mean height over the fitted floor / mm")
    axis.plot(0, 0, "k+", markersize=12)
    title = "floor residuals (10 cm cells with 10 returns or more; + is the robot)"
    axis.set(xlabel="x / m", ylabel="y / m", title=title)
    return as_png(figure)


def clouds_before_and_after(
    before: ByLidar, after: ByLidar, window: Window | None = None, titles: Sequence[str] = AS_CALIBRATED
) -> bytes:
    """Draw the lidars' points (N, 3) in base_link, by lidar, before and after, under these titles.

    Top row from above, middle row from the side, bottom row a slice of a wall enlarged, in `window` or in the one that
    shows a disagreement best; left out if no two lidars see a wall."""
    window = window or _telling_window(before, after)
    rows = 2 if window is None else 3
    figure, axes = plt.subplots(rows, 2, figsize=(11, 14.5 * rows / 3))
    for column, (clouds, title) in enumerate(zip((before, after), titles, strict=True)):
        colours = dict(zip(clouds, itertools.cycle(to_rgba_array(COLOURS))))
        drawn = {name: thinned(points) for name, points in clouds.items()}
        # In turns, so that no lidar covers another; scatter, with a colour of each point, takes four times as long.
        for part, (name, own) in itertools.product(range(TURNS), drawn.items()):
            for row, upwards in ((0, 1), (1, 2)):
                shown = own[part::TURNS, [0, upwards]]
                axes[row, column].plot(*shown.T, "o", markersize=0.4, markeredgewidth=0, color=colours[name])
        for name, own in clouds.items():
            axes[0, column].scatter([], [], color=colours[name], linewidths=0, label=f"{name} lidar")
            if window is not None:
                spot, half = window
                near = own[np.abs(own[:, 2] - spot[2]) < half]
                axes[2, column].scatter(near[:, 0], near[:, 1], s=5, color=colours[name], linewidths=0, alpha=0.6)
        views = ["from above", "from the side"]
        if window is not None:
            views.append(f"slice of {200 * half:.0f} cm at {spot[2]:.1f} m enlarged")
            x, y, _ = spot
            axes[2, column].set(xlim=(x - ZOOM / 2, x + ZOOM / 2), ylim=(y - ZOOM / 2, y + ZOOM / 2))
        for axis, view, upwards in zip(axes[:, column], views, "yzy", strict=False):
            axis.set(title=f"{view}, {title}", xlabel="x / m", ylabel=f"{upwards} / m", aspect="equal")
    axes[0, 0].legend(loc="upper right", framealpha=0.9)
    return as_png(figure)


def _telling_window(before: ByLidar, after: ByLidar) -> Window | None:
    """Return the window on a wall seen by the first lidar and another that moved most across itself."""
    left, *others = after
    for half in SLICES:
        best, spot = -1.0, None
        for name, height in itertools.product(others, SLICE_HEIGHTS):
            points = after[name]
            seen_left = after[left][np.abs(after[left][:, 2] - height) < half, :2]
            chosen = (np.abs(points[:, 2] - height) < half) & (np.hypot(points[:, 0], points[:, 1]) > NOT_THE_ROBOT)
            moved, seen_right = (points - before[name])[chosen, :2], points[chosen, :2]
            cells = np.floor(seen_right / ZOOM).astype(int)
            for cell in np.unique(cells, axis=0):
                inside = (cells == cell).all(axis=1)
                also_left = (np.floor(seen_left / ZOOM).astype(int) == cell).all(axis=1)
                if min(inside.sum(), also_left.sum()) < ENOUGH_TO_DRAW:
                    continue
                spread, axes = np.linalg.eigh(np.cov(seen_right[inside].T))
                if spread[0] > 0.05 * spread[1]:
                    continue  # not a wall
                across = float(np.abs(moved[inside] @ axes[:, 0]).mean())
                if across > best:
                    best, spot = across, np.array([*seen_right[inside].mean(axis=0), height])
        if spot is not None:
            return spot, half
    return None


def outlines(panels: Sequence[Mapping[str, Any]], columns: int = 4, title: str = "") -> bytes:
    """Draw the shape fitted to each pose over its outlines and returns, in base_footprint.

    Each panel is a mapping with `title`, `shape` (M, 2), `protrusion` in m (None: no sample), and `areas`, `rings` and
    `points`: lists of arrays (K, 2) by their names in the legend."""
    everything = np.vstack([np.vstack([*sum(panel["areas"].values(), []), panel["shape"]]) for panel in panels])
    low, high = everything.min(axis=0) - 0.05, everything.max(axis=0) + 0.05
    columns = min(columns, len(panels))
    rows, width = -(-len(panels) // columns), 3.4
    longest = max(len(textwrap.wrap(panel["title"], WRAPPED)) for panel in panels)
    height = width * (high - low)[1] / (high - low)[0] + 0.45 + 0.17 * longest
    size = width * columns, height * rows + 0.8
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, sharex=True, sharey=True)
    plt.setp(axes.flat[len(panels) :], visible=False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        for name, arrays in panel["areas"].items():
            axis.add_collection(PolyCollection(arrays, facecolor="#d8d8d8", edgecolor=TRUE, alpha=0.7, label=name))
        for colour, (name, arrays) in zip(COLOURS, panel["points"].items(), strict=False):
            drawn = thinned(np.concatenate([np.zeros((0, 2)), *arrays]))
            axis.scatter(*drawn.T, s=0.3, c=colour, linewidths=0, alpha=0.5, label=name)
        for name, arrays in panel["rings"].items():
            ring = PolyCollection(arrays, facecolor="none", edgecolor=COLOURS[0], linewidth=0.8, label=name)
            axis.add_collection(ring)
        axis.plot(*np.vstack([panel["shape"], panel["shape"][:1]]).T, c=FIT, linewidth=1.4, label="fitted shape")
        stick = panel["protrusion"]
        said = "no sample" if stick is None else f"protrusion {1e3 * stick:.2f} mm"
        axis.set_title("\n".join([*textwrap.wrap(panel["title"], WRAPPED), said]), fontsize=9)
        axis.set_aspect("equal")
    axes[0, 0].set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    plt.setp(axes[-1], xlabel="x / m")
    plt.setp(axes[:, 0], ylabel="y / m")
    style = {"loc": "outside lower center", "fontsize": 8, "markerscale": 20, "frameon": False}
    figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=min(4, columns), **style)
    figure.suptitle(title, fontsize=10)
    return as_png(figure)


CELL = 0.04  # m, of the model's surface, in which residuals are averaged: single ones are noise
ENOUGH = 5  # returns in a cell
SHOWN = 5.0  # mm, the ends of the colour scale
WIDTH, HEIGHT = 9.5, 7.0  # inches, of a row of pictures without what is written beside them
MARGIN = 0.05  # m
VIEWS = ((0, "x / m", "from the side"), (1, "y / m", "from the front"))


def mounts_page(folder: Path, result: MountsResult) -> Path:
    picture = mount_residuals(("lidars as found", result.residuals))
    part = Section("Returns from the robot, and those that the model does not explain", picture)
    return write_page(folder / "report.html", "Mounts of the lidars", [part])


def mounts_before_and_after(folder: Path, file: CalibrationFile, profile: RobotProfile) -> bytes:
    """Draw the returns of the arm poses in a folder with the lidars as described and as calibrated."""
    mounts = stored_mounts(file)
    if mounts is None:
        raise InputError("the calibration has no lidar extrinsics")
    if not folder.is_dir():
        raise InputError("no arm poses were collected")
    dataset = read_dataset(folder)
    robot = MountedRobot(load_model(dataset.description_file, mesh_folders=profile.description.packages), profile)
    known = known_alignment(file, list(robot.nominal))
    described, found = (residuals_at(dataset, robot, poses, known) for poses in (robot.nominal, mounts.base_from_lidar))
    return mount_residuals(("lidars as described", described), ("lidars as found", found))


def mount_residuals(*parts: tuple[str, Residuals]) -> bytes:
    """Draw the returns near the robot's model from the side and from the front, for each part with its title: those
    near it coloured by their mean distance, those well in front of it as crosses."""
    everything = np.concatenate([residuals.hits for _, residuals in parts])
    low, high = everything.min(axis=0) - MARGIN, everything.max(axis=0) + MARGIN
    widths, tall = [(high - low)[across] for across, _, _ in VIEWS], (high - low)[2]
    height = min(HEIGHT, WIDTH * tall / sum(widths))
    figure, axes = plt.subplots(
        len(parts), len(VIEWS), sharey=True, squeeze=False, width_ratios=widths, layout="constrained",
        figsize=(height * sum(widths) / tall + 2.5, (height + 1.2) * len(parts)),
    )  # fmt: skip
    for row, (title, residuals) in zip(axes, parts, strict=True):
        for axis, (across, label, seen) in zip(row, VIEWS, strict=True):
            colours = _draw(axis, residuals, across)
            axis.set(xlabel=label, aspect="equal", xlim=(low[across], high[across]), ylim=(low[2], high[2]))
            axis.set_title(f"{title}\n{seen}", fontsize=10)
        row[0].set_ylabel("z / m")
    figure.colorbar(colours, ax=axes, label="returns in front of the model (mean) / mm", shrink=0.6)
    return as_png(figure)


def _draw(axis: Axes, residuals: Residuals, across: int):
    """Draw one view into `axis`, and return its coloured points, for a colour bar."""
    near = residuals.near
    _, first, cell = np.unique(voxel_keys(residuals.hits[near], CELL), return_index=True, return_inverse=True)
    counts = np.bincount(cell)
    enough = counts >= ENOUGH
    means = (np.bincount(cell, residuals.distances[near]) / np.maximum(counts, 1))[enough]
    places = residuals.hits[near][first][enough]
    in_front = residuals.points[~near & (residuals.distances > FRONT)]
    scale = {"cmap": "coolwarm", "vmin": -SHOWN, "vmax": SHOWN}
    colours = axis.scatter(*places[:, [across, 2]].T, c=1e3 * means, s=14, linewidths=0, **scale)
    if len(in_front):
        crosses = {"c": "black", "s": 5, "marker": "x", "linewidths": 0.4}
        axis.scatter(*in_front[:, [across, 2]].T, label="not of the model", **crosses)
        axis.legend(loc="lower right", fontsize=8)
    return colours


def write_report(verdict: Verdict, folder: Path, recording: Path | None = None) -> Path:
    """Write the page of a finished run from the files in its folder, with a link to its `recording` in 3D, and return
    its path. A picture whose data the run did not reach is replaced by a sentence."""
    files, scenario = RunFiles(Path(folder).resolve()), verdict.scenario
    truth = load_truth(files.truth) if files.truth.is_file() else None
    transforms, profile = [], None
    if truth is not None:
        described, profile = truth.nominal_to_left, profile_called(truth.robot)
        for name, true in truth.to_left.items():
            transforms.append((name, true.tolist(), 1e3 * transform_error(described[name], true)[0]))
    parts = sections(files, scenario.stages, profile)
    return write_page(
        files.report, scenario.name, parts, "run", verdict=verdict, transforms=transforms,
        folder=files.folder.name, recording=recording and Path(recording).resolve(),
    )  # fmt: skip


def sections(
    files: RunFiles, stages: Collection[str], profile: RobotProfile | None, old: CalibrationFile | None = None
) -> list[Section]:
    """Return the pictures of the `stages` of a run or a session; clouds before are as of an `old` calibration. Without
    a result they are at their true poses, if these are known."""

    def calibration() -> CalibrationFile:
        return CalibrationFile.load_or_empty(files.calibration)

    def all_clouds() -> str:
        if not calibration().to_left and files.truth.is_file():
            return true_clouds(files)
        return clouds(CapturedClouds.load(files), calibration(), old)

    def mounts() -> bytes:
        if profile is None:
            raise InputError("the run ended before the simulator was ready")
        return mounts_before_and_after(files.mounts_dataset, calibration(), profile)

    of_alignment = set() if profile is not None and profile.one_lidar else {"alignment", "drive"}
    pictures: list[tuple[set[str], str, Callable[[], bytes | str]]] = [
        (of_alignment, "Clouds before and after", all_clouds),
        ({"floor", "drive"}, "Floor residuals", lambda: floor_picture(CapturedClouds.load(files), calibration())),
        ({"mounts"}, "The robot's returns with the lidars as described, and as calibrated", mounts),
        ({"body_shape"}, "Body shape at every pose", lambda: _outlines(files)),
    ]
    return [drawn(title, draw) for of_stages, title, draw in pictures if of_stages & set(stages)]


def _outlines(files: RunFiles) -> bytes:
    if not files.body_shape_model.is_file():
        raise InputError("the run ended before a body shape was fitted")
    poses = posed_outlines(files, load_truth(files.truth))
    still = [part for part in poses[0]["parts"] if all(part in pose["parts"] for pose in poses)] if poses[1:] else []
    panels = [
        pose | {"title": ", ".join(part for part in pose["parts"] if part not in still),
                "areas": {"true outline": [pose["truth"]]}, "points": {"returns": [pose["points"]]}, "rings": {}}
        for pose in poses
    ]  # fmt: skip
    return outlines(panels, title=f"in all poses {', '.join(still)}" if still else "")
