"""The picture of a calibration of the mounts: returns on the robot, how far off the model, and what is not of it."""

from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.mounts.misfit import FRONT
from stretch_sim_cal.calibration.mounts.result import MountsResult, Residuals
from stretch_sim_cal.geometry.voxels import voxel_keys
from stretch_sim_cal.harness.plots import _png, plt
from stretch_sim_cal.harness.report import image, write_page

CELL = 0.04  # m, of the model's surface, in which residuals are averaged: single ones are noise
ENOUGH = 5  # returns in a cell
SHOWN = 5.0  # mm, the ends of the colour scale


def mounts_page(folder: Path, result: MountsResult) -> Path:
    """Write a page with the picture into a folder, and return it."""
    parts = [image("Returns from the robot, and what the model does not explain", mount_residuals(result.residuals))]
    return write_page(folder / "report.html", "Mounts of the lidars", parts)


def mount_residuals(residuals: Residuals) -> bytes:
    """Draw the returns near the model from the side and from the front: those near it coloured by their mean
    distance from it, those well in front of it as crosses."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 8), sharey=True)
    near = residuals.near
    _, first, cell = np.unique(voxel_keys(residuals.hits[near], CELL), return_index=True, return_inverse=True)
    counts = np.bincount(cell)
    enough = counts >= ENOUGH
    means = (np.bincount(cell, residuals.distances[near]) / np.maximum(counts, 1))[enough]
    places = residuals.hits[near][first][enough]
    strange = residuals.points[~near & (residuals.distances > FRONT)]
    for axis, across, label in ((axes[0], 0, "x / m"), (axes[1], 1, "y / m")):
        drawn = axis.scatter(
            places[:, across], places[:, 2], c=1e3 * means, s=14, cmap="coolwarm", vmin=-SHOWN, vmax=SHOWN, linewidths=0
        )
        axis.scatter(
            strange[:, across], strange[:, 2], c="black", s=5, marker="x", linewidths=0.4, label="not of the model"
        )
        axis.set_xlabel(label)
        axis.set_ylabel("z / m")
        axis.set_aspect("equal")
    axes[0].set_title("from the side")
    axes[1].set_title("from the front")
    if len(strange):
        axes[1].legend(loc="upper right")
    figure.colorbar(drawn, ax=axes, label="returns in front of the model (mean) / mm", shrink=0.6)
    return _png(figure)
