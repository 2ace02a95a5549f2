"""Pictures of a fitted body shape: outline, returns and shape of every pose, a strip over arm extension."""

import io
from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from stretch_sim_cal.calibration.body.evidence import BodyEvidence
from stretch_sim_cal.calibration.body.shape import BodyShapeModel, PoseEvidence
from stretch_sim_cal.files import write_atomic

BODY, SHAPE, RETURNS, STRANGER = "#9aa7b5", "#1f5fbf", "#2b2b2b", "#d62728"
MOST_COLUMNS, MOST_ROWS = 8, 6
POINTS = 3000


def plot_body_shapes(
    path: str | Path, model: BodyShapeModel, evidence: Sequence[PoseEvidence], seen: BodyEvidence | None = None
) -> None:
    """Write a PNG: columns are arm extensions, rows wrist yaws; in each the enclosed outlines of all samples there,
    the hull of the returns from the robot, returns that are not of it, and the shape with what sticks out of it."""
    extensions = _some(sorted({e.commanded["arm"] for e in evidence}), MOST_COLUMNS)
    yaws = _some(sorted({e.commanded["wrist_yaw"] for e in evidence}), MOST_ROWS)
    drawn = np.concatenate([model.shape_at(extension, yaw).outline() for extension in extensions for yaw in yaws])
    width, height = np.ptp(drawn, axis=0)
    figure, axes = plt.subplots(
        len(yaws), len(extensions),
        figsize=(2.9 * len(extensions) + 0.6, (2.5 * height / width + 0.6) * len(yaws) + 1.0),
        squeeze=False, sharex=True, sharey=True,
    )  # fmt: skip
    for row, yaw in enumerate(yaws):
        for column, extension in enumerate(extensions):
            chosen = [
                i for i, e in enumerate(evidence) if e.commanded["arm"] == extension and e.commanded["wrist_yaw"] == yaw
            ]
            _pose(axes[row, column], model.shape_at(extension, yaw), evidence, seen, chosen)
            title = f"arm {extension:.2f} m, yaw {np.degrees(yaw):.0f}°"
            stick = max((model.shape_at(extension, yaw).protrusion(evidence[i].points) for i in chosen), default=None)
            note = "no sample" if stick is None else f"protrusion {1e3 * stick:.2f} mm"
            axes[row, column].set_title(f"{title}\n{note}", fontsize=8)
    for axis in axes[-1]:
        axis.set_xlabel("x / m")
    for axis in axes[:, 0]:
        axis.set_ylabel("y / m")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=4, fontsize=8, frameon=False)
    figure.suptitle(f"{model.shape_fitting_method}, base_footprint", fontsize=10)
    figure.tight_layout(rect=(0, 0.3 / figure.get_figheight(), 1, 1))
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    plt.close(figure)
    write_atomic(path, lambda file: file.write(stream.getvalue()))


def _pose(axis, shape, evidence, seen, chosen) -> None:
    outline = shape.outline(240)
    axis.fill(*outline.T, color=SHAPE, alpha=0.12, linewidth=0)
    axis.plot(*np.vstack([outline, outline[:1]]).T, color=SHAPE, linewidth=1.2, label="fitted shape")
    for number, i in enumerate(chosen):
        axis.fill(
            *evidence[i].points.T, color=BODY, alpha=0.6, linewidth=0, label=None if number else "enclosed outline"
        )
        if seen is None:
            continue
        returns = seen.returns[i]
        if len(returns) > 2:
            closed = np.vstack([returns, returns[:1]])
            axis.plot(*closed.T, color=RETURNS, linewidth=0.6, label=None if number else "hull of the robot's returns")
        strangers = seen.strangers[i][:: max(1, len(seen.strangers[i]) // POINTS)]
        axis.plot(*strangers.T, ".", color=STRANGER, markersize=1, label=None if number else "returns not of the robot")
    axis.set_aspect("equal")
    axis.tick_params(labelsize=7)
    axis.grid(alpha=0.25, linewidth=0.5)


def _some(values: list[float], most: int) -> list[float]:
    if len(values) <= most:
        return values
    return [values[i] for i in np.linspace(0, len(values) - 1, most).round().astype(int)]
