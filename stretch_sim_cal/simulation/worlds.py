"""Worlds: SDF files as named triangle surfaces in the world frame, in m: links' collision shapes, as Gazebo's CPU lidar
sees, or else visuals. Nothing moves. What is left out is a warning with file and line, unless no lidar could see it."""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.sdf import Element, Scope, pose_of, read_sdf
from stretch_sim_cal.robot.surfaces import Surface, read_mesh
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.optics import Material

MESH_SUFFIXES = (".stl", ".obj", ".ply")
READ_SCHEMES = ("file", "model")
MAX_INCLUDE_DEPTH = 20
MAX_TRIANGLES = 5_000_000
# Brightness of a colour to the eye; SDF files have no reflectivity for infrared light.
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
# Elements that are read, and then those that change nothing that a lidar sees in a world without physics.
KNOWN = {
    "world": {
        "model", "include", "frame", "joint", "actor", "audio", "wind", "gravity", "magnetic_field", "atmosphere",
        "gui", "physics", "scene", "light", "plugin", "spherical_coordinates", "state",
    },
    "actor": {"script", "skin", "animation", "plugin", "pose", "static"},
    "model": {
        "link", "model", "include", "frame", "joint", "pose", "static", "self_collide", "allow_auto_disable",
        "enable_wind", "plugin", "gripper", "light",
    },
    "link": {
        "collision", "visual", "pose", "inertial", "sensor", "light", "gravity", "enable_wind", "self_collide",
        "kinematic", "plugin", "must_be_base_link", "velocity_decay", "audio_source", "audio_sink", "battery",
        "projector",
    },
    "collision": {"geometry", "pose", "surface", "max_contacts", "laser_retro", "density", "auto_inertia_params"},
    "visual": {
        "geometry", "pose", "material", "cast_shadows", "laser_retro", "transparency", "visibility_flags", "meta",
        "plugin",
    },
    "include": {"uri", "name", "pose", "static", "placement_frame", "plugin"},
}  # fmt: skip


@dataclass(frozen=True)
class Actor:
    """A person who walks: `surface` in a frame at the feet that faces x, and the frame's `poses` (K, 4) of x, y, z in m
    and yaw in rad at `times` (K,) in s after `delay`, repeated if it is a `loop`."""

    name: str
    surface: Surface
    times: np.ndarray
    poses: np.ndarray
    loop: bool
    delay: float

    def pose(self, time: float) -> np.ndarray:
        """Return world_from_feet (4, 4) at a simulated time in s."""
        passed = max(0.0, time - self.delay)
        if self.loop and self.times[-1] > 0:
            passed %= self.times[-1]
        x, y, z, yaw = (np.interp(passed, self.times, column) for column in self.poses.T)
        return from_xyz_rpy((x, y, z), (0.0, 0.0, yaw))


@dataclass(frozen=True)
class World:
    """A world file: `surfaces` by name ("model/link/shape") in the world frame, their `materials`, and `actors`.
    `warnings` name what was left out, `notes` assumptions."""

    name: str
    surfaces: dict[str, Surface]
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    materials: dict[str, Material] = field(default_factory=dict)
    actors: list[Actor] = field(default_factory=list)


def load_world(name: str | Path) -> World:
    """Return the world of that name (in `worlds/`) or path. Raises `InputError` for a file that is not a world."""
    return _WorldReader(files.find_shared("worlds", name, ".sdf")).world


def find_uri(uri: str, world: Path, file: Path) -> Path | None:
    """Return the file or folder that a URI in a `file` of a `world` (its path) names, None if there is none here."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme not in READ_SCHEMES:
        return None
    rest, beside, share = unquote(rest if separator else uri), world.parent, files.share_directory()
    folders = [beside, beside / "models", share / "worlds", share / "models"]  # of model://, before Gazebo's
    folders += [*files.folders_in("GZ_SIM_RESOURCE_PATH"), *files.folders_in("SDF_PATH")]
    places = folders if scheme == "model" and separator else [file.parent, *folders]
    return next(((folder / rest).resolve() for folder in places if rest and (folder / rest).exists()), None)


class _WorldReader:
    def __init__(self, path: Path):
        self._path = path
        self._including: list[Path] = [path.resolve()]
        self._num_triangles = 0
        root = read_sdf(path)
        element = root.first("world") or root.first("model")
        if element is None:
            raise InputError(f"{path}: has neither a <world> nor a <model>")
        self.world = World(element.attributes.get("name", path.stem), {})
        scope = Scope(element, self._included)
        if element.tag == "world":
            self._warn_unsupported(element)
            for name, model in scope.models.items():
                self._read_model(model, name, scope.pose(name, model.element))
            for actor in element.all("actor"):
                if actor.first("script") is None:
                    self._warn(actor, "has no <script> with waypoints, and is ignored")
                else:
                    self.world.actors.append(self._actor(actor))
        else:
            self._read_model(scope, element.name, scope.pose_relative(element, scope.root))
        if not self.world.surfaces:
            self.world.notes.append(f"{path}: contains nothing that a lidar sees")

    def _read_model(self, scope: Scope, name: str, world_from_model: np.ndarray) -> None:
        element = scope.element
        self._warn_unsupported(element)
        static = element.first("static")
        if "/" not in name and (static is None or not static.flag()):
            self.world.notes.append(f"{element.where}: model '{name}' is not static; it does not move (no physics)")
        for link in element.all("link"):
            self._read_link(scope, link, f"{name}/{link.name}", world_from_model)
        for child, model in scope.models.items():
            self._read_model(model, f"{name}/{child}", world_from_model @ scope.pose(child, model.element))

    def _read_link(self, scope: Scope, link: Element, name: str, world_from_model: np.ndarray) -> None:
        self._warn_unsupported(link)
        parts = list(link.all("collision"))
        if not parts and (parts := list(link.all("visual"))):
            self.world.notes.append(f"{link.where}: link '{name}' has no collision; its visual is used")
        for part in parts:
            self._warn_unsupported(part)
            world_from_part = world_from_model @ scope.pose_relative(part, link.name)
            mesh = self._mesh(part.required("geometry"), infinite=part.tag == "collision")
            if mesh is None:
                continue
            self._num_triangles += len(mesh[1])
            if self._num_triangles > MAX_TRIANGLES:
                raise InputError(f"{part.where}: the world has more than {MAX_TRIANGLES} triangles with this one")
            whole = f"{name}/{part.name}"
            while whole in self.world.surfaces:  # sdformat demands unique names, other tools do not
                whole += "'"
            self.world.surfaces[whole] = Surface(*mesh).moved(world_from_part)
            if (material := _material(part, link)) is not None:
                self.world.materials[whole] = material

    def _actor(self, actor: Element) -> Actor:
        self._warn_unsupported(actor)
        script = actor.required("script")
        waypoints = [point for way in script.all("trajectory") for point in way.all("waypoint")]
        if not waypoints:
            raise InputError(f"{script.where}: has no <trajectory> with a <waypoint>")
        times = np.array([point.required("time").numbers(1)[0] for point in waypoints])
        if times[0] < 0 or (np.diff(times) <= 0).any():
            raise InputError(f"{script.where}: the times of its waypoints must increase")
        poses = np.array([pose_of(point.required("pose")) for point in waypoints])
        yaws = np.unwrap(np.arctan2(poses[:, 1, 0], poses[:, 0, 0]))
        poses, loop = np.column_stack([poses[:, :3, 3], yaws]), script.first("loop")
        always = loop is None or loop.flag()
        return Actor(actor.name, solids.person(), times, poses, always, script.number("delay_start", 0.0))

    def _mesh(self, geometry: Element, infinite: bool) -> solids.Mesh | None:
        """Return the triangles of a `<geometry>`; None, with a warning, for a shape that is not supported."""
        if not geometry.children:
            raise InputError(f"{geometry.where}: is empty")
        shape, *extras = geometry.children
        for extra in extras:
            self._warn(extra, "is a second shape in one geometry and is ignored")
        size = shape.positive_number
        match shape.tag:
            case "box":
                return solids.box(shape.required("size").positive(3))
            case "sphere":
                return solids.sphere(size("radius"))
            case "cylinder" | "capsule" | "cone":
                return getattr(solids, shape.tag)(size("radius"), size("length"))
            case "ellipsoid":
                return solids.ellipsoid(shape.required("radii").positive(3))
            case "plane":
                normal, edges = shape.first("normal"), shape.first("size")
                direction = normal.numbers(3) if normal is not None else np.array([0.0, 0.0, 1.0])
                if np.linalg.norm(direction) < 1e-9:
                    raise InputError(f"{shape.where}: its normal is zero")
                endless = infinite or edges is None
                return solids.plane(direction, np.full(2, 2 * solids.PLANE_HALF_SIZE) if endless else edges.positive(2))
            case "mesh":
                return self._mesh_file(shape)
            case "empty":
                return None
        self._warn(shape, "is an unsupported shape and is ignored")
        return None

    def _mesh_file(self, shape: Element) -> solids.Mesh | None:
        uri = shape.required("uri")
        path = self._find(uri.text, uri)
        if path.suffix.lower() not in MESH_SUFFIXES:
            self._warn(uri, f"{path.name} is ignored; supported mesh formats: {', '.join(MESH_SUFFIXES)}")
            return None
        if shape.first("submesh") is not None:
            self._warn(shape.required("submesh"), "is not supported; the whole mesh is used")
        vertices, faces = read_mesh(path, uri.where)
        scale = shape.first("scale")
        return (vertices * scale.numbers(3) if scale is not None else vertices), faces

    def _included(self, include: Element) -> Element | None:
        """Return the `<model>` of an `<include>`, with the include's name and pose; None for lights and actors."""
        self._warn_unsupported(include)
        uri = include.required("uri")
        path = _model_file(self._find(uri.text, uri), uri)
        if path in self._including or len(self._including) >= MAX_INCLUDE_DEPTH:
            raise InputError(f"{include.where}: {path} includes itself, or includes are nested too deeply")
        root = read_sdf(path)
        model = root.first("model")
        if model is None:
            if (actor := root.first("actor")) is not None:
                self._warn(actor, "is not supported and is ignored")
            elif root.first("light") is None:
                raise InputError(f"{include.where}: {path} has no <model>")
            return None
        replaced = {tag: child for tag in ("pose", "static") if (child := include.first(tag)) is not None}
        attributes = dict(model.attributes)
        if (name := include.first("name")) is not None:
            attributes["name"] = name.text
        if "pose" in replaced and (placed := include.first("placement_frame")) is not None:
            attributes["placement_frame"] = placed.text
        # What the model includes in turn is read while its own file is known to be open.
        self._including.append(path)
        children = [child for child in model.children if child.tag not in replaced] + list(replaced.values())
        children = [self._included(child) if child.tag == "include" else child for child in children]
        self._including.pop()
        children = [child for child in children if child is not None]
        return Element("model", attributes, model.file, model.line, children=children)

    def _find(self, uri: str, element: Element) -> Path:
        scheme, separator, _ = uri.partition("://")
        if separator and scheme not in READ_SCHEMES:
            raise InputError(f"{element.where}: '{uri}': {scheme}:// is not read; download it and name the local file")
        if (found := find_uri(uri, self._path, element.file)) is None:
            raise InputError(f"{element.where}: '{uri}' is not found; check its path, or set GZ_SIM_RESOURCE_PATH")
        return found

    def _warn_unsupported(self, element: Element) -> None:
        for child in element.children:
            # A colon marks elements of other programs, which the format ignores.
            if child.tag not in KNOWN[element.tag] and ":" not in child.tag:
                self._warn(child, f"in <{element.tag}> is not supported and is ignored")

    def _warn(self, element: Element, what: str) -> None:
        self.world.warnings.append(f"{element.where} {what}")


def _material(part: Element, link: Element) -> Material | None:
    """Return the material of a shape. Of a collision it is that of the visual of the same name (with or without
    "_visual"), or of the link's only one. Reflectivity is `<laser_retro>` / 255 of either, unless that is 0, the
    format's default, else the brightness of `<diffuse>`. `<sim:mirror>` and `<sim:glass>` in a visual are the shares of
    light that it mirrors or transmits."""
    if part.tag == "visual":
        visual = part
    else:
        visuals = {visual.attributes.get("name", ""): visual for visual in link.all("visual")}
        only = next(iter(visuals.values())) if len(visuals) == 1 else None
        visual = visuals.get(part.name) or visuals.get(f"{part.name}_visual") or only
    looks = [element for element in (part, visual) if element is not None]
    retros = (found for look in looks if (found := look.first("laser_retro")) is not None)
    retro = next((found for found in retros if found.numbers(1)[0] != 0), None)
    reflectivity, shares = None, {"mirror": 0.0, "glass": 0.0}
    if retro is not None:
        reflectivity = float(retro.positive()[0]) / 255.0
    if visual is not None:
        material = visual.first("material")
        diffuse = material.first("diffuse") if material is not None else None
        if retro is None and diffuse is not None:
            colour = diffuse.numbers(4 if len(diffuse.text.split()) == 4 else 3)[:3]
            reflectivity = float(np.clip(colour @ LUMINANCE, 0.0, 1.0))
        for kind in shares:
            if (found := visual.first(f"sim:{kind}")) is not None:
                shares[kind] = float(found.numbers(1)[0])
                if not 0.0 <= shares[kind] <= 1.0:
                    raise InputError(f"{found.where}: is {found.text}; expected a share from 0 to 1")
    if reflectivity is None and not any(shares.values()):
        return None
    return Material(reflectivity, **shares)


def _model_file(path: Path, uri: Element) -> Path:
    """Return the SDF file of an included file or model folder (newest version in `model.config`)."""
    if path.is_file():
        return path
    config = path / "model.config"
    if not config.is_file():
        if (path / "model.sdf").is_file():
            return path / "model.sdf"
        raise InputError(f"{uri.where}: {path} has neither model.config nor model.sdf")
    entries = list(read_sdf(config, root="model").all("sdf"))
    if not entries:
        raise InputError(f"{config}: names no <sdf> file")

    def version(entry: Element) -> list[int]:
        return [int(part) for part in entry.attributes.get("version", "0").split(".") if part.isdigit()]

    newest = max(entries, key=version)
    if not (path / newest.text).is_file():
        raise InputError(f"{newest.where}: {path / newest.text}: no such file")
    return path / newest.text
