"""A workspace as a picture: from above and from the side, with its hull and the robot for scale."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from scipy.spatial import ConvexHull, QhullError

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.robot.description import RobotModel
from stretch_sim_cal.robot.kinematics import Positions, link_transforms
from stretch_sim_cal.robot.surfaces import joined, link_surfaces
from stretch_sim_cal.robot.workspace import Workspace

VIEWS = {"from above": (0, 1), "from the side": (0, 2), "from the front": (1, 2)}
FORMATS = (".png", ".svg", ".pdf")


def write_workspace_plot(
    reached: Workspace, path: str | Path, model: RobotModel | None = None, positions: Positions | None = None
) -> None:
    """Draw a workspace's points, coloured by height, and its hull from three sides; `path` is a PNG, SVG or PDF.

    With `model`, its collision shapes at joint `positions` are drawn in grey. Raises `InputError` for another kind of
    file, one that cannot be written, and missing meshes.
    """
    path = Path(path)
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: a plot is one of {', '.join(FORMATS)}")
    robot = _robot_triangles(model, positions or {}, reached.relative_to) if model is not None else None
    figure = Figure(figsize=(15, 5.5), layout="constrained")
    for axes, (title, (across, up)) in zip(figure.subplots(1, 3), VIEWS.items(), strict=True):
        if robot is not None and len(robot):
            axes.add_collection(PolyCollection(robot[:, :, [across, up]], facecolor="0.8", edgecolor="none"))
        flat = reached.points[:, [across, up]]
        axes.scatter(*flat.T, s=3, c=reached.points[:, 2], cmap="viridis", linewidths=0, alpha=0.6)
        outline = _outline(flat)
        axes.plot(*np.vstack([outline, outline[:1]]).T, color="C3", linewidth=1)
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_title(title)
        axes.set_xlabel(f"{'xyz'[across]} / m")
        axes.set_ylabel(f"{'xyz'[up]} / m")
        axes.grid(alpha=0.3)
    figure.suptitle(f"{reached.link} in {reached.relative_to}")
    write_atomic(path, lambda stream: figure.savefig(stream, format=path.suffix[1:].lower(), dpi=110))


def _robot_triangles(model: RobotModel, positions: Positions, relative_to: str) -> np.ndarray:
    frames = link_transforms(model, positions)
    reference = inverse(frames[relative_to])
    surfaces = link_surfaces(model)
    return joined(surface.moved(reference @ frames[link]) for link, surface in surfaces.items()).triangles


def _outline(points: np.ndarray) -> np.ndarray:
    try:
        return points[ConvexHull(points).vertices]
    except QhullError:
        return points[[points[:, 0].argmin(), points[:, 0].argmax()]]
