"""The pictures of a report. Each function draws one figure and returns it as PNG bytes."""

import io

import matplotlib
import numpy as np

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.collections import PolyCollection

LEFT, RIGHT, TRUE, FIT = "#1f6fb4", "#e07b00", "#2b2b2b", "#c2182b"
DRAWN_POINTS = 60_000
SLICE = 0.05  # half thickness of the slices that are drawn, m
ZOOM = 0.5  # width of the enlarged windows, m
SLICE_HEIGHTS = (0.5, 0.8, 1.1, 1.4, 1.8)
ENOUGH_TO_DRAW = 100
NOT_THE_ROBOT = 1.0  # m from base_link


def as_png(figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110, bbox_inches="tight")
    plt.close(figure)
    return stream.getvalue()


def _thinned(points: np.ndarray) -> np.ndarray:
    step = max(1, len(points) // DRAWN_POINTS)
    return points[::step]


def clouds_before_and_after(left: np.ndarray, right_before: np.ndarray, right_after: np.ndarray) -> bytes:
    """Draw both lidars' points (N, 3) in base_link, the right ones as first guessed and as calibrated.

    Top row from above, middle row from the side, bottom row a wall enlarged: a slice in which a disagreement of the
    lidars shows as two lines instead of one.
    """
    figure, axes = plt.subplots(3, 2, figsize=(11, 14.5))
    height, spot = _telling_spot(left, right_before, right_after)
    for column, (right, title) in enumerate(
        [(right_before, "before: as described"), (right_after, "after: as calibrated")]
    ):
        for points, colour, label in [(left, LEFT, "left lidar"), (right, RIGHT, "right lidar")]:
            drawn = _thinned(points)
            axes[0, column].scatter(drawn[:, 0], drawn[:, 1], s=0.15, c=colour, linewidths=0, label=label)
            axes[1, column].scatter(drawn[:, 0], drawn[:, 2], s=0.15, c=colour, linewidths=0)
            near = points[np.abs(points[:, 2] - height) < SLICE]
            axes[2, column].scatter(near[:, 0], near[:, 1], s=5, c=colour, linewidths=0, alpha=0.6)
        axes[0, column].set_title(f"from above, {title}")
        axes[1, column].set_title(f"from the side, {title}")
        axes[2, column].set_title(f"slice at {height:.1f} m enlarged, {title}")
        axes[2, column].set_xlim(spot[0] - ZOOM / 2, spot[0] + ZOOM / 2)
        axes[2, column].set_ylim(spot[1] - ZOOM / 2, spot[1] + ZOOM / 2)
        axes[1, column].set_ylabel("z / m")
        for row in (0, 2):
            axes[row, column].set_ylabel("y / m")
        for row in range(3):
            axes[row, column].set_aspect("equal")
            axes[row, column].set_xlabel("x / m")
    axes[0, 0].legend(markerscale=40, loc="upper right", framealpha=0.9)
    figure.tight_layout()
    return as_png(figure)


def _telling_spot(left: np.ndarray, before: np.ndarray, after: np.ndarray) -> tuple[float, np.ndarray]:
    """Return a height and a place (x, y) to enlarge: a wall that both lidars see, moved most across itself."""
    best = (-1.0, 1.0, np.zeros(2))
    for height in SLICE_HEIGHTS:
        seen_left = left[np.abs(left[:, 2] - height) < SLICE, :2]
        chosen = (np.abs(after[:, 2] - height) < SLICE) & (np.hypot(after[:, 0], after[:, 1]) > NOT_THE_ROBOT)
        moved, seen_right = (after - before)[chosen, :2], after[chosen, :2]
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
            if across > best[0]:
                best = (across, height, seen_right[inside].mean(axis=0))
    return best[1], best[2]


def floor_residuals(points: np.ndarray, cell: float = 0.1, reach: float = 4.0) -> bytes:
    """Draw the mean height over the calibrated floor, cell by cell, of points (N, 3) in base_footprint."""
    near = points[(np.abs(points[:, 2]) < 0.03) & (np.abs(points[:, :2]).max(axis=1) < reach)]
    edges = np.arange(-reach, reach + cell, cell)
    counts, _, _ = np.histogram2d(near[:, 0], near[:, 1], bins=[edges, edges])
    sums, _, _ = np.histogram2d(near[:, 0], near[:, 1], bins=[edges, edges], weights=near[:, 2].astype(float))
    mean = np.where(counts >= 10, 1e3 * sums / np.maximum(counts, 1), np.nan)
    figure, axis = plt.subplots(figsize=(8, 6.6))
    image = axis.imshow(mean.T, origin="lower", extent=(-reach, reach, -reach, reach), cmap="RdBu_r", vmin=-5, vmax=5)
    figure.colorbar(image, ax=axis, label="mean height over the fitted floor / mm")
    axis.plot(0, 0, "k+", markersize=12)
    axis.set(
        xlabel="x / m", ylabel="y / m", title="floor residuals (10 cm cells with 10 returns or more; + is the robot)"
    )
    return as_png(figure)


def outlines(poses: list[dict], columns: int = 4) -> bytes:
    """Draw for every pose the robot's true outline, the lidars' returns and the fitted shape, in base_footprint.

    Each pose is a mapping with `title`, `truth` (K, 2), `points` (N, 2), `shape` (M, 2) and `protrusion` in m.
    """
    everything = np.vstack([np.vstack([pose["truth"], pose["shape"]]) for pose in poses])
    low, high = everything.min(axis=0) - 0.05, everything.max(axis=0) + 0.05
    rows, width = -(-len(poses) // columns), 3.6
    height = width * (high - low)[1] / (high - low)[0] + 0.5
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, sharex=True, sharey=True
    )
    for axis in axes.flat[len(poses) :]:
        axis.set_visible(False)
    for axis, pose in zip(axes.flat, poses, strict=False):
        axis.add_collection(PolyCollection([pose["truth"]], facecolor="#d8d8d8", edgecolor=TRUE, linewidth=1.0))
        drawn = _thinned(pose["points"])
        axis.scatter(drawn[:, 0], drawn[:, 1], s=0.3, c=LEFT, linewidths=0, alpha=0.5)
        ring = np.vstack([pose["shape"], pose["shape"][:1]])
        axis.plot(ring[:, 0], ring[:, 1], c=FIT, linewidth=1.4)
        axis.set_title(f"{pose['title']}\nprotrusion {1e3 * pose['protrusion']:.2f} mm", fontsize=9)
        axis.set_aspect("equal")
    axes[0, 0].set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    figure.tight_layout()
    return as_png(figure)
