"""Fits enclosing shapes to the robot's outline at every grid point of arm extension and wrist yaw.

It assumes that the evidence is the area that the robot covers in each pose: its convex hull is always enclosed. Between
grid points the parameters are interpolated linearly over the commanded values, as in the published readers. If the
outline is known at any joint values, the interpolated shape is compared with it on a dense grid; the grid is refined
and the shapes are inflated until they enclose the robot there.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stretch_sim_cal.calibration.body import FIT_METHODS
from stretch_sim_cal.calibration.body.grid import (
    SHORTEST,
    SPACING,
    EvidenceGrid,
    OutlinesAt,
    PoseEvidence,
    covering,
    grid_points,
    refined,
    with_shapes,
)
from stretch_sim_cal.calibration.body.model import BodyShapeModel
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.enclosing import (
    capsule_minima,
    common_normals,
    enclosing_algebraic_ellipse,
    enclosing_axis_aligned_ellipse,
    enclosing_capsule,
    enclosing_circle,
    enclosing_ellipse,
    enclosing_polygon,
    polygon_with_normals,
)
from stretch_sim_cal.geometry.points import spanning_hull
from stretch_sim_cal.geometry.shapes import Shape
from stretch_sim_cal.robot.profile import RobotProfile

ENCLOSING = {
    "tapered_capsule": enclosing_capsule, "circle": enclosing_circle, "ellipse_opencv": enclosing_algebraic_ellipse,
    "ellipse_min_enclosing": enclosing_ellipse, "ellipse_axis_aligned": enclosing_axis_aligned_ellipse,
}  # fmt: skip
FEW_STARTS = 1  # of the search for a capsule at an added grid point, besides the adjacent capsules


@dataclass(frozen=True)
class BodyShapeSettings:
    """How a body shape is fitted.

    `polygon_vertices` bounds those of a `convex_polygon`. Grid points are added, up to `max_grid_points`, where an
    interpolated shape would have to be inflated by more than `refine_above` (m).
    """

    method: str = "tapered_capsule"
    arm_dependent: bool = True
    yaw_dependent: bool = True
    polygon_vertices: int = 16
    refine_above: float = 0.002
    max_grid_points: int = 80

    def __post_init__(self) -> None:
        if self.method not in FIT_METHODS:
            raise InputError(f"'{self.method}' is no fit method; there is {', '.join(FIT_METHODS)}")
        if self.polygon_vertices < 3:
            raise InputError(f"polygon_vertices: {self.polygon_vertices} is too few, 3 or more are needed")


@dataclass(frozen=True)
class BodyShapeFit:
    """The model and, by sample, the evidence's protrusion (m, at most 1e-6 at grid points) and the shape's area.

    `protrusion_between` is the largest between grid points on the verified grid, before and after the shapes were
    changed to enclose it; None if the outline between them is unknown.
    """

    model: BodyShapeModel
    protrusions: np.ndarray
    areas: np.ndarray
    protrusion_between: tuple[float, float] | None
    warnings: list[str] = field(default_factory=list)


def enclosing_shape(points: np.ndarray, method: str = "tapered_capsule", polygon_vertices: int = 16) -> Shape:
    """Return the shape of least area around points (N, 2) by a method of `FIT_METHODS`, to 1e-6 m; `ellipse_opencv` is
    the algebraic fit to the outline, scaled to enclose. Raises `InputError` for an unknown method, and for points that
    span no area."""
    if method == "convex_polygon":
        return enclosing_polygon(points, polygon_vertices)
    if method in ENCLOSING:
        return ENCLOSING[method](points)
    raise InputError(f"'{method}' is no fit method; there is {', '.join(FIT_METHODS)}")


def fit_body_shape(
    samples: Sequence[PoseEvidence], settings: BodyShapeSettings | None = None, outlines_at: OutlinesAt | None = None,
    profile: RobotProfile | None = None,
) -> BodyShapeFit:  # fmt: skip
    """Return the body shape that encloses the evidence of all samples.

    Joints that the shape does not depend on (lift, pitch and roll; extension and yaw if switched off) are covered by
    the union over the samples, and with `outlines_at` over the values between them. `profile` is by default the
    Stretch's. Raises `InputError` with a grid point that has no evidence, or too little for a shape.
    """
    settings = settings or BodyShapeSettings()
    if not samples:
        raise InputError("no samples: a body shape needs one or more")
    grid = EvidenceGrid(samples, settings.arm_dependent, settings.yaw_dependent, outlines_at, profile)
    asked_for = grid_points(grid.axes)
    normals = None
    if settings.method == "convex_polygon":
        normals = common_normals([spanning_hull(hull) for hull in grid.hulls(asked_for)], settings.polygon_vertices)

    def fit(place: tuple[float, float], hull: np.ndarray, neighbours: Sequence[Shape] = ()) -> list[Shape]:
        try:
            if normals is not None:
                return [polygon_with_normals(hull, normals)]
            if settings.method == "tapered_capsule":
                few = (FEW_STARTS,) if neighbours and place not in asked_for else ()
                return capsule_minima(hull, neighbours, *few)
            return [enclosing_shape(hull, settings.method, settings.polygon_vertices)]
        except InputError as error:
            raise InputError(f"{grid.described(place)}: {error}") from error

    axes, between = grid.axes, None
    if outlines_at is None:
        shapes = with_shapes(axes, fit, grid.hulls, {})
    else:
        shortest, spacing = grid.per_axis(SHORTEST), grid.per_axis(SPACING)
        axes, shapes = refined(axes, fit, grid.hulls, settings.refine_above, settings.max_grid_points, shortest)
        shapes, *between = covering(axes, shapes, grid.hulls, grid.axes, spacing)
    rows = [shapes[i : i + len(axes[1])] for i in range(0, len(shapes), len(axes[1]))]
    model = BodyShapeModel(
        settings.method, tuple(axes[0]), tuple(axes[1]), rows, grid.covered_ranges(), axes=grid.followed
    )
    at_samples = [model.shape_for(sample.commanded) for sample in samples]
    return BodyShapeFit(
        model, np.array([shape.protrusion(sample.points) for shape, sample in zip(at_samples, samples, strict=True)]),
        np.array([shape.area for shape in at_samples]), tuple(between) if between else None, grid.warnings,
    )  # fmt: skip
