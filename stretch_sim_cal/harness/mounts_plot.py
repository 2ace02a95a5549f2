"""Pictures of a calibration of the mounts: returns on the robot, how far off the model, and what is not of it."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from stretch_sim_cal.calibration.findings import FRONT
from stretch_sim_cal.calibration.mounts.result import MountsResult, Residuals
from stretch_sim_cal.geometry.points import voxel_keys
from stretch_sim_cal.harness.page import image, write_page
from stretch_sim_cal.harness.plots import as_png, plt

CELL = 0.04  # m, of the model's surface, in which residuals are averaged: single ones are noise
ENOUGH = 5  # returns in a cell
SHOWN = 5.0  # mm, the ends of the colour scale
HEIGHT = 7.0  # inches
MARGIN = 0.05  # m
VIEWS = ((0, "x / m", "from the side"), (1, "y / m", "from the front"))


def mounts_page(folder: Path, result: MountsResult) -> Path:
    """Write a page with the picture into a folder, and return it."""
    parts = [image("Returns from the robot, and what the model does not explain", mount_residuals(result.residuals))]
    return write_page(folder / "report.html", "Mounts of the lidars", parts)


def mount_residuals(residuals: Residuals) -> bytes:
    """Draw the returns near the model from the side and from the front: those near it coloured by their mean
    distance from it, those well in front of it as crosses."""
    return _drawn([("lidars as found", residuals)])


def mounts_before_and_after(before: Residuals, after: Residuals) -> bytes:
    """Draw the same with both lidars where the description has them, and where they were found to be."""
    return _drawn([("lidars as described", before), ("lidars as found", after)])


def _drawn(parts: list[tuple[str, Residuals]]) -> bytes:
    everything = np.concatenate([residuals.hits for _, residuals in parts])
    low, high = everything.min(axis=0) - MARGIN, everything.max(axis=0) + MARGIN
    panels = [(title, residuals, view) for title, residuals in parts for view in VIEWS]
    widths = [(high - low)[across] for _, _, (across, _, _) in panels]
    figure, axes = plt.subplots(
        1, len(panels), sharey=True, width_ratios=widths, layout="constrained",
        figsize=(HEIGHT * (sum(widths) / (high - low)[2]) + len(panels) + 1.2, HEIGHT),
    )  # fmt: skip
    for axis, (title, residuals, (across, label, seen)) in zip(axes, panels, strict=True):
        colours = _draw(axis, residuals, across)
        axis.set(xlabel=label, aspect="equal", xlim=(low[across], high[across]), ylim=(low[2], high[2]))
        axis.set_title(f"{title}\n{seen}", fontsize=10)
    axes[0].set_ylabel("z / m")
    figure.colorbar(colours, ax=axes, label="returns in front of the model (mean) / mm", shrink=0.6)
    return as_png(figure)


def _draw(axis: Axes, residuals: Residuals, across: int):
    """Draw one view into `axis`, and return what its colours stand for."""
    near = residuals.near
    _, first, cell = np.unique(voxel_keys(residuals.hits[near], CELL), return_index=True, return_inverse=True)
    counts = np.bincount(cell)
    enough = counts >= ENOUGH
    means = (np.bincount(cell, residuals.distances[near]) / np.maximum(counts, 1))[enough]
    places = residuals.hits[near][first][enough]
    strange = residuals.points[~near & (residuals.distances > FRONT)]
    colours = axis.scatter(
        places[:, across], places[:, 2], c=1e3 * means, s=14, cmap="coolwarm", vmin=-SHOWN, vmax=SHOWN, linewidths=0
    )
    if len(strange):
        axis.scatter(
            strange[:, across], strange[:, 2], c="black", s=5, marker="x", linewidths=0.4, label="not of the model"
        )
        axis.legend(loc="lower right", fontsize=8)
    return colours
