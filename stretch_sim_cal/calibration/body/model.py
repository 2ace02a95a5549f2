"""The body shape over arm extension and wrist yaw: shapes on a grid, interpolated between and clamped outside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.body import FIT_METHODS
from stretch_sim_cal.geometry.shapes import Circle, ConvexPolygon, Ellipse, Shape, TaperedCapsule

KINDS: dict[str, type[Shape]] = dict(
    zip(FIT_METHODS, (TaperedCapsule, Circle, Ellipse, Ellipse, Ellipse, ConvexPolygon), strict=True)
)
"""The shape that each fit method gives."""


@dataclass(frozen=True)
class BodyShapeModel:
    """Shapes in base_footprint over `arm_extensions` (m) and `wrist_yaws` (rad), both increasing.

    `shapes[i][j]` belongs to `arm_extensions[i]` and `wrist_yaws[j]`. An axis with one value is one that the shape
    does not depend on. `covers` says for which commanded values (lowest, highest) of each joint the shape was fitted;
    `about` holds what else the file says: tool, description_hash, dataset, evidence; `warnings` what
    its reader should know.
    """

    shape_fitting_method: str
    arm_extensions: tuple[float, ...]
    wrist_yaws: tuple[float, ...]
    shapes: Sequence[Sequence[Shape]]
    covers: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    about: Mapping[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def arm_dependent(self) -> bool:
        return len(self.arm_extensions) > 1

    @property
    def yaw_dependent(self) -> bool:
        return len(self.wrist_yaws) > 1

    @property
    def parameters(self) -> list[dict]:
        """The parameters of all shapes, row by row: over extension, then yaw."""
        return [shape.parameters for row in self.shapes for shape in row]

    def shape_at(self, arm_extension: float, wrist_yaw: float = 0.0) -> Shape:
        """Return the shape at an extension (m) and yaw (rad); values outside the grid are taken at its border."""
        rows, row_weights = interpolation(self.arm_extensions, arm_extension)
        columns, column_weights = interpolation(self.wrist_yaws, wrist_yaw)
        corners = [self.shapes[i][j] for i in rows for j in columns]
        weights = np.outer(row_weights, column_weights).ravel()
        if len(corners) == 1:
            return corners[0]
        return type(corners[0]).from_vector(weights @ np.array([corner.vector for corner in corners]))

    def outside_of_coverage(self, joints: Mapping[str, float], tolerance: float = 0.01) -> list[str]:
        """Return the joints whose value (m, rad) is outside what the model was fitted for by more than `tolerance`."""
        return [
            joint
            for joint, (low, high) in self.covers.items()
            if joint in joints and not low - tolerance <= joints[joint] <= high + tolerance
        ]

    def mismatches(self, tool: str | None = None, description_hash: str | None = None) -> list[str]:
        """Return a warning for each of `tool` and `description_hash` that is not the one the model was fitted for."""
        found = []
        for name, here in (("tool", tool), ("description_hash", description_hash)):
            there = self.about.get(name)
            if here not in (None, "unknown") and there not in (None, "unknown", here):
                what = "tool" if name == "tool" else "robot description"
                found.append(f"the body shape was fitted for another {what} ({there}, here it is {here}); fit it anew")
        return found


def interpolation(axis: Sequence[float], value: float) -> tuple[list[int], list[float]]:
    """Return the indices of an increasing axis between which a value lies, and their weights; clamped at the ends."""
    after = int(np.searchsorted(axis, value))
    if after == 0 or after == len(axis) or axis[after] == value:
        return [min(after, len(axis) - 1)], [1.0]
    share = (value - axis[after - 1]) / (axis[after] - axis[after - 1])
    return [after - 1, after], [1.0 - share, share]
