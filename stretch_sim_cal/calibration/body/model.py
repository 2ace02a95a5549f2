"""The body shape over arm extension and wrist yaw, shapes on a grid with linear interpolation, and its file: the
published keys, and the robot's tool and a hash of its description."""

import datetime
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.body import FIT_METHODS
from stretch_sim_cal.calibration.calibration_file import default_robot_id
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_yaml, write_yaml
from stretch_sim_cal.geometry.shapes import Circle, ConvexPolygon, Ellipse, Shape, TaperedCapsule
from stretch_sim_cal.geometry.transforms import Poses
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.model import RobotModel
from stretch_sim_cal.robot.profile import RobotProfile, stretch_profile
from stretch_sim_cal.robot.surfaces import Surfaces, outline_surfaces

PUBLISHED_AXES = ("arm", "wrist_yaw")
_SHAPES = (TaperedCapsule, Circle, Ellipse, Ellipse, Ellipse, ConvexPolygon)
KINDS: dict[str, type[Shape]] = dict(zip(FIT_METHODS, _SHAPES, strict=True))
"""The shape that each fit method gives."""


@dataclass(frozen=True)
class BodyShapeModel:
    """Shapes in base_footprint: `shapes[i][j]` belongs to `arm_extensions[i]` (m) and `wrist_yaws[j]` (rad), both
    increasing, and does not depend on an axis with one value. `covers` are the commanded values (lowest, highest) of
    each joint in the fit; `about` has the other entries of the file: tool, description_hash, dataset, evidence."""

    shape_fitting_method: str
    arm_extensions: tuple[float, ...]
    wrist_yaws: tuple[float, ...]
    shapes: Sequence[Sequence[Shape]]
    covers: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    about: Mapping[str, object] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    axes: tuple[str, ...] = PUBLISHED_AXES
    """The joints that the two axes stand for; of other robots than the Stretch, and not always two."""

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

    @property
    def followed(self) -> tuple[str, ...]:
        """The joints that the shape follows."""
        depends = zip(self.axes, (self.arm_dependent, self.yaw_dependent), strict=False)
        return tuple(joint for joint, follows in depends if follows)

    def shape_for(self, joints: Mapping[str, float]) -> Shape:
        """Return the shape at joint values (m, rad) by name, which hold all that it follows (see `shape_at`)."""
        first, second = [*(joints.get(joint, 0.0) for joint in self.axes), 0.0, 0.0][:2]
        return self.shape_at(first, second)

    def outside_of_coverage(self, joints: Mapping[str, float]) -> list[str]:
        """Return the joints whose value (m, rad) is outside the covered range by more than 0.01."""
        covers = {joint: ends for joint, ends in self.covers.items() if joint in joints}
        return [joint for joint, (low, high) in covers.items() if not low - 0.01 <= joints[joint] <= high + 0.01]

    def mismatches(self, tool: str | None = None, description_hash: str | None = None) -> list[str]:
        """Return a warning for each of `tool` and `description_hash` that is not the model's."""
        return [
            f"the body shape was fitted for another {kind} ({self.about[name]}, here it is {here}); fit it again"
            for kind, name, here in (
                ("tool", "tool", tool), ("robot description", "description_hash", description_hash),
            )
            if here not in (None, "unknown") and self.about.get(name) not in (None, "unknown", here)
        ]  # fmt: skip


def interpolation(axis: Sequence[float], value: float) -> tuple[list[int], list[float]]:
    """Return the indices of an increasing axis around a value, and their weights; clamped at the ends."""
    after = int(np.searchsorted(axis, value))
    if after == 0 or after == len(axis) or axis[after] == value:
        return [min(after, len(axis) - 1)], [1.0]
    share = (value - axis[after - 1]) / (axis[after] - axis[after - 1])
    return [after - 1, after], [1.0 - share, share]


KEY = "custom_body_shape_model_params"
POLYGON_KEY = "convex_polygon_body_shape_model_params"
OTHER_ROBOT_KEY = "robot_body_shape_model_params"
"""Of other robots than the Stretch, with other axes than the published: `grid` has the values by joint (older files:
`axes` the joints, and the keys of the published format their values)."""
GRID_KEYS = (
    "arm_dependent", "yaw_dependent", "arm_extensions", "wrist_yaws", "interpolation_method", "shape_fitting_method",
    "parameters", "covers", "axes", "grid",
)  # fmt: skip
UNITS = "m, rad; angle in degrees, axes_x and axes_y full axes; parameters row by row over "
NOTES = ("frame", "units")


def default_file_name(method: str) -> str:
    return f"{method}_body_model_{datetime.datetime.now().strftime('%Y%m%d_%H%M%S')}.yaml"


def save_body_shape_model(model: BodyShapeModel, path: str | Path) -> None:
    """Write a model to a YAML file, atomically. `model.about` holds plain YAML values."""
    values = [list(map(float, axis)) for axis in (model.arm_extensions, model.wrist_yaws)]
    key = POLYGON_KEY if model.shape_fitting_method == "convex_polygon" else KEY
    depends = {"arm_dependent": model.arm_dependent, "yaw_dependent": model.yaw_dependent}
    grid, order = depends | {"arm_extensions": values[0], "wrist_yaws": values[1]}, "extension, then yaw"
    if model.axes != PUBLISHED_AXES:
        key, grid, order = OTHER_ROBOT_KEY, {"grid": dict(zip(model.axes, values, strict=False))}, "the grid's joints"
    params = {
        **grid, "interpolation_method": "linear", "shape_fitting_method": model.shape_fitting_method,
        "parameters": model.parameters,
        "covers": {joint: [float(low), float(high)] for joint, (low, high) in model.covers.items()},
        "frame": "base_footprint", "units": UNITS + order, **model.about,
    }  # fmt: skip
    write_yaml(path, {key: params})


def load_body_shape_model(path: str | Path) -> BodyShapeModel:
    """Read a model, ours or the published tool's. Raises `InputError` with file and entry."""
    data = read_yaml(path)
    key = next((key for key in (KEY, POLYGON_KEY, OTHER_ROBOT_KEY) if key in data), None)
    if key is None:
        raise InputError(f"{path}: has no '{KEY}'; is it a body-shape model?")
    params = data[key]
    if not isinstance(params, dict):
        raise InputError(f"{path}: '{key}' is not a mapping")
    method = params.get("shape_fitting_method")
    if not isinstance(method, str) or method not in KINDS:
        raise InputError(f"{path}: shape_fitting_method '{method}' is unknown; available: {', '.join(KINDS)}")
    if "grid" in params:
        grid = params["grid"]
        if not isinstance(grid, dict) or len(grid) > 2:
            raise InputError(f"{path}: grid is not a mapping of up to two joints to their values")
        axes = list(map(str, grid))
        extensions, yaws = ([*(_values(path, name, values) for name, values in grid.items()), (0.0,), (0.0,)])[:2]
    else:
        axes = params.get("axes", list(PUBLISHED_AXES))
        if not isinstance(axes, list) or len(axes) > 2 or not all(isinstance(joint, str) for joint in axes):
            raise InputError(f"{path}: axes is not a list of up to two joints")
        extensions = _axis(path, params, "arm_dependent", "arm_extensions")
        yaws = _axis(path, params, "yaw_dependent", "wrist_yaws")
    shapes = _shapes(path, params.get("parameters"), KINDS[method], len(extensions) * len(yaws))
    rows = [shapes[i : i + len(yaws)] for i in range(0, len(shapes), len(yaws))]
    about = {name: value for name, value in params.items() if name not in GRID_KEYS and name not in NOTES}
    try:
        covers = {str(joint): (float(low), float(high)) for joint, (low, high) in (params.get("covers") or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: covers is not a mapping of joints to [lowest, highest]") from error
    interpolated, warnings = params.get("interpolation_method", "linear"), ()
    if interpolated != "linear":
        warnings = (f"{path}: requests '{interpolated}' interpolation, which can undershoot; linear is used instead",)
    return BodyShapeModel(method, extensions, yaws, rows, covers, about, warnings, tuple(axes))


def _axis(path: str | Path, params: dict, switch: str, name: str) -> tuple[float, ...]:
    numbers = _values(path, name, params.get(name) or [0.0])
    return numbers if params.get(switch, True) else numbers[:1]


def _values(path: str | Path, name: str, values) -> tuple[float, ...]:
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {name} is not a list of numbers") from error
    if not numbers or not np.isfinite(numbers).all() or any(b <= a for a, b in zip(numbers, numbers[1:], strict=False)):
        raise InputError(f"{path}: {name} does not increase: {', '.join(map(str, numbers)) or 'it is empty'}")
    return numbers


def _shapes(path: str | Path, parameters, kind: type[Shape], count: int) -> list[Shape]:
    if not isinstance(parameters, list) or len(parameters) != count:
        length = len(parameters) if isinstance(parameters, list) else "no"
        raise InputError(f"{path}: {length} parameters; the grid requires {count}")
    shapes = []
    for index, entry in enumerate(parameters):
        try:
            shape = kind.from_parameters(entry)
        except InputError as error:
            raise InputError(f"{path}: parameters[{index}]: {error}") from error
        if not shape.area > 0:
            raise InputError(f"{path}: parameters[{index}] is a shape without an area; did its pose have no data?")
        shapes.append(shape)
    if len({len(shape.vector) for shape in shapes}) > 1:
        raise InputError(f"{path}: parameters: polygons of different numbers of vertices cannot be interpolated")
    return shapes


CONFIGURATIONS = ("stretch_user_params.yaml", "stretch_configuration_params.yaml")
"""Files of the robot's fleet folder that name its tool, the user's before the factory's."""


def robot_identity(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return `robot_id` and `tool_id` of a dataset, "unknown" if nothing names them."""
    environment = os.environ if environment is None else environment
    fleet_path, fleet_id = environment.get("HELLO_FLEET_PATH"), environment.get("HELLO_FLEET_ID")
    tools = []
    for name in CONFIGURATIONS if fleet_path and fleet_id else ():
        try:
            tools.append((read_yaml(Path(fleet_path).expanduser() / fleet_id / name).get("robot") or {}).get("tool"))
        except (InputError, OSError, AttributeError):  # absent, or another file
            continue
    named = next((tool for tool in tools if isinstance(tool, str) and tool), "unknown")
    return {"robot_id": default_robot_id(environment), "tool_id": named}


def description_hash(model: RobotModel, surfaces: Surfaces | None = None, profile: RobotProfile | None = None) -> str:
    """Return the hash of a description in body-shape model files; `surfaces` are those of its links, by default read.
    Raises `InputError` for missing links or meshes."""
    profile = profile or stretch_profile()
    if surfaces is None:
        surfaces = {link: surface for link, surface in outline_surfaces(model, profile).items() if len(surface.faces)}
    if profile.base_frame not in model.links:
        raise InputError(f"robot '{model.name}' has no {profile.base_frame}")
    vertices = {link: surface.vertices for link, surface in surfaces.items()}
    return robot_hash(vertices, link_transforms(model, {}, surfaces, profile.base_frame))


def robot_hash(surfaces: Mapping[str, np.ndarray], base_from_link: Poses) -> str:
    """Return a hash of all that a body shape depends on: link vertices (V, 3), to 0.1 mm, and link poses (4, 4) at zero
    position, to 1 mm, so that calibrated joints and other paths to the same meshes do not change it."""
    digest = hashlib.sha256()
    for link in sorted(surfaces):
        digest.update(link.encode())
        for numbers, step in ((surfaces[link], 1e-4), (base_from_link[link], 1e-3)):
            digest.update(np.rint(np.asarray(numbers) / step).astype(np.int64).tobytes())
    return digest.hexdigest()[:16]
