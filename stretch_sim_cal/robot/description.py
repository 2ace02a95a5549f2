"""Loads URDF, xacro and SDF files strictly and safely; every fault is one line that names the element. A xacro
evaluates Python: expand only files that the user has chosen; text from the network goes to `parse_urdf`."""

import contextlib
import math
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from unittest import mock
from urllib.parse import unquote, urlparse
from xml.dom import minidom
from xml.etree.ElementTree import Element, ParseError
from xml.parsers.expat import ExpatError

import defusedxml.ElementTree
import defusedxml.minidom
import numpy as np
import xacro
import xacro.substitution_args
from defusedxml.common import DefusedXmlException

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import folders_in, read_text
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.model import Geometry, Inertial, Joint, Limit, Link, Mimic, RobotModel, robot_model
from stretch_sim_cal.robot.sdf import is_sdf, read_sdf_model
from stretch_sim_cal.robot.sdf_as_urdf import urdf_of_sdf

URDF_JOINT_TYPES = ("fixed", "revolute", "continuous", "prismatic", "planar", "floating")
PACKAGE_SCHEMES = ("package", "model")
MeshFolders = Mapping[str, str | os.PathLike]
Arguments = Mapping[str, object]  # of a xacro
PathLike = str | os.PathLike


def load_model(
    source: PathLike, arguments: Arguments | None = None, mesh_folders: MeshFolders | None = None
) -> RobotModel:
    """Return the model of a URDF, xacro or SDF file, or of a URDF text (anything that begins with `<`).

    `arguments` are those of the xacro; `mesh_folders` maps package names of `package://` meshes, and of `$(find ...)`
    in a xacro, to folders. Relative meshes start at the file's folder. Of an SDF links and joints are read, not its
    shapes. Raises `InputError` naming the file and the element."""
    if isinstance(source, str) and source.lstrip("\ufeff \t\r\n").startswith("<"):
        if arguments:
            raise InputError("xacro arguments need a xacro file, this is the text of a URDF")
        return parse_urdf(source.lstrip("\ufeff \t\r\n"), mesh_folders=mesh_folders)
    path = Path(source).expanduser()
    if is_sdf(path, read_text(path)) and not arguments:
        return read_sdf_model(path).robot_model()
    return parse_urdf(load_urdf_text(path, arguments, mesh_folders), path.resolve().parent, str(path), mesh_folders)


def load_urdf_text(path: PathLike, arguments: Arguments | None = None, folders: MeshFolders | None = None) -> str:
    """Return the URDF text of a file as of `load_model`. Raises `InputError`."""
    path = Path(path).expanduser()
    text = read_text(path)
    if is_xacro(path, text):
        return expand_xacro(path, arguments, folders)
    if arguments:
        raise InputError(f"{path}: is not a xacro and takes no arguments ({', '.join(arguments)})")
    return urdf_of_sdf(path) if is_sdf(path, text) else text


def is_xacro(path: Path, text: str) -> bool:
    return path.suffix == ".xacro" or "xmlns:xacro" in text


def parse_xml(text: str, source: str) -> Element:
    """Return the root element of an XML text. Raises `InputError` for malformed XML, any DTD or entity."""
    try:
        # As bytes: a declared encoding would make the parser reject a str, or be wrong about it.
        return defusedxml.ElementTree.fromstring(text.encode("utf-8", "surrogatepass"), forbid_dtd=True)
    except ParseError as error:
        raise InputError(f"{source}: is not well-formed XML: {error}") from error
    except DefusedXmlException as error:
        raise InputError(f"{source}: holds a DTD or entities, which are refused for safety; remove them") from error
    except (ValueError, LookupError) as error:
        raise InputError(f"{source}: its XML cannot be decoded: {error}") from error


def parse_urdf(
    text: str | Element, base_directory: PathLike | None = None, source: str = "<text>",
    mesh_folders: MeshFolders | None = None,
) -> RobotModel:  # fmt: skip
    """Return the model of a URDF's text, or root element (http://wiki.ros.org/urdf/XML, with its parser's defaults).
    Relative mesh names start at `base_directory` (None: they stay unresolved); packages are looked for in
    `mesh_folders`, the ament index and `ROS_PACKAGE_PATH`. Raises `InputError`, beginning with `source`."""
    root = parse_xml(text, source) if isinstance(text, str) else text
    if root.tag != "robot":
        raise InputError(f"{source}: its root element is <{root.tag}>, a URDF begins with <robot>")
    reader = _Reader(source, Path(base_directory) if base_directory is not None else None, mesh_folders or {})
    name = reader.attribute(root, "name")
    links = [reader.link(element) for element in root.findall("link")]
    return robot_model(name, links, [reader.joint(element) for element in root.findall("joint")], source)


class _Reader:
    """Reads elements of a URDF; `where` is the link or joint that it is at."""

    def __init__(self, source: str, base_directory: Path | None, mesh_folders: MeshFolders):
        self.source, self.base_directory, self.mesh_folders = source, base_directory, mesh_folders
        self.where = "<robot>"

    def fault(self, what: str) -> InputError:
        return InputError(f"{self.source}: {self.where}: {what}")

    def attribute(self, element: Element, key: str) -> str:
        value = element.get(key)
        if value is None or not value.strip():
            raise self.fault(f"<{element.tag}> has no {key}")
        return value

    def numbers(self, element: Element, key: str, count: int) -> list[float]:
        text = self.attribute(element, key)
        try:
            values = [float(word) for word in text.split()]
        except ValueError:
            values = []
        if len(values) != count or not all(map(math.isfinite, values)):
            wrong = "is not a number, or not finite" if count == 1 else "is not three finite numbers"
            raise self.fault(f'{key}="{text}" of <{element.tag}> {wrong}')
        return values

    def number(self, element: Element, key: str, default: float | None = None) -> float:
        if default is not None and element.get(key) is None:
            return default
        return self.numbers(element, key, 1)[0]

    def positive(self, element: Element, key: str) -> float:
        value = self.number(element, key)
        if value <= 0:
            raise self.fault(f'{key}="{value:g}" of <{element.tag}> must be greater than 0')
        return value

    def vector(self, element: Element | None, key: str, default: tuple[float, ...] = (0.0, 0.0, 0.0)) -> np.ndarray:
        given = element is not None and element.get(key) is not None
        return np.array(self.numbers(element, key, 3) if given else default, dtype=float)

    def origin(self, element: Element) -> np.ndarray:
        origin = element.find("origin")
        return from_xyz_rpy(self.vector(origin, "xyz"), self.vector(origin, "rpy"))

    def link(self, element: Element) -> Link:
        self.where = "a link"
        name = self.attribute(element, "name")
        shapes = {}
        for kind in ("visual", "collision"):
            self.where = f"link '{name}', {kind}"
            shapes[kind] = tuple(map(self.geometry, element.findall(kind)))
        self.where, inertial = f"link '{name}'", element.find("inertial")
        return Link(name, *shapes.values(), self.inertial(inertial) if inertial is not None else None)

    def inertial(self, element: Element) -> Inertial:
        mass, inertia = element.find("mass"), element.find("inertia")
        if mass is None or inertia is None:
            raise self.fault("<inertial> needs <mass> and <inertia>")
        value = self.number(mass, "value")
        if value < 0:
            raise self.fault(f"its mass {value:g} is negative")
        xx, xy, xz, yy, yz, zz = (self.number(inertia, key) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
        return Inertial(value, self.origin(element), np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))

    def geometry(self, element: Element) -> Geometry:
        shapes = element.findall("geometry/*")
        if len(shapes) != 1:
            raise self.fault(f"needs one shape in <geometry>, has {len(shapes)}")
        shape, origin, name = shapes[0], self.origin(element), element.get("name")
        match shape.tag:
            case "box":
                self.attribute(shape, "size")
                size = self.vector(shape, "size")
                if (size <= 0).any():
                    raise self.fault(f'size="{shape.get("size")}" of <box> must be greater than 0')
                return Geometry("box", origin, size=size, name=name)
            case "cylinder":
                radius, length = self.positive(shape, "radius"), self.positive(shape, "length")
                return Geometry("cylinder", origin, radius=radius, length=length, name=name)
            case "sphere":
                return Geometry("sphere", origin, radius=self.positive(shape, "radius"), name=name)
            case "mesh":
                filename, scale = self.attribute(shape, "filename"), self.vector(shape, "scale", (1.0, 1.0, 1.0))
                if (scale == 0).any():
                    raise self.fault(f'scale="{shape.get("scale")}" of <mesh> must not be 0')
                try:
                    path = mesh_path(filename, self.base_directory, self.mesh_folders)
                except ValueError as error:
                    raise self.fault(f'filename="{filename}" of <mesh> is no URL: {error}') from error
                return Geometry("mesh", origin, filename=filename, path=path, scale=scale, name=name)
        raise self.fault(f"<{shape.tag}> is not a URDF shape; available: box, cylinder, sphere, mesh")

    def joint(self, element: Element) -> Joint:
        self.where = "a joint"
        name = self.attribute(element, "name")
        self.where = f"joint '{name}'"
        kind = self.attribute(element, "type")
        if kind not in URDF_JOINT_TYPES:
            raise self.fault(f"type '{kind}' is not a URDF joint type; available: {', '.join(URDF_JOINT_TYPES)}")
        ends = []
        for role in ("parent", "child"):
            end = element.find(role)
            if end is None:
                raise self.fault(f"has no <{role}>")
            ends.append(self.attribute(end, "link"))
        axis = self.vector(element.find("axis"), "xyz", (1.0, 0.0, 0.0))
        if kind in ("revolute", "continuous", "prismatic", "planar") and np.linalg.norm(axis) < 1e-9:
            raise self.fault(f"is {kind}, its axis must not be zero")
        for part in element:
            if part.tag in ("dynamics", "safety_controller", "calibration"):
                for key in part.attrib:  # not needed here, but by other readers of the file
                    self.number(part, key)
        limit, mimic, followed = self.limit(element.find("limit"), kind), element.find("mimic"), None
        if mimic is not None and kind != "fixed":  # vendors leave the tag if they freeze a hand's joints
            ratio, offset = self.number(mimic, "multiplier", 1.0), self.number(mimic, "offset", 0.0)
            followed = Mimic(self.attribute(mimic, "joint"), ratio, offset)
        return Joint(name, kind, *ends, self.origin(element), axis, limit, followed)

    def limit(self, element: Element | None, kind: str) -> Limit | None:
        if element is None:
            if kind in ("revolute", "prismatic"):
                raise self.fault(f"is {kind} and needs a <limit> with lower, upper, velocity and effort")
            return None
        lower, upper = self.number(element, "lower", 0.0), self.number(element, "upper", 0.0)
        velocity, effort = self.number(element, "velocity"), self.number(element, "effort")
        if kind in ("revolute", "prismatic") and lower > upper:
            raise self.fault(f"its lower limit {lower:g} is above its upper limit {upper:g}")
        if velocity < 0 or effort < 0:
            raise self.fault(f"velocity {velocity:g} and effort {effort:g} of <limit> must not be negative")
        return Limit(lower, upper, velocity, effort)


def mesh_path(filename: str, base_directory: Path | None, mesh_folders: MeshFolders) -> Path | None:
    """Return the path of a mesh name (`package://`, `file://`, absolute, or relative to the URDF), which need not
    exist; None if its package or base folder is not known."""
    url = urlparse(filename)
    if url.scheme in PACKAGE_SCHEMES:
        folder = package_folder(url.netloc, mesh_folders)
        return folder / unquote(url.path).lstrip("/") if folder is not None else None
    if url.scheme not in ("", "file"):
        return None
    path = Path(unquote(url.path) if url.scheme else filename)
    if path.is_absolute():
        return path
    return base_directory / path if base_directory is not None else None


def mesh_packages(filenames: Iterable[str]) -> set[str]:
    """Return the packages of mesh names."""
    return {url.netloc for url in map(urlparse, filenames) if url.scheme in PACKAGE_SCHEMES}


def package_folder(package: str, mesh_folders: MeshFolders) -> Path | None:
    """Return the folder of a package: from `mesh_folders`, the ament index or `ROS_PACKAGE_PATH`; or None."""
    if package in mesh_folders:
        return Path(mesh_folders[package]).expanduser().absolute()
    folders = [*(prefix / "share" for prefix in folders_in("AMENT_PREFIX_PATH")), *folders_in("ROS_PACKAGE_PATH")]
    return next((folder / package for folder in folders if (folder / package).is_dir()), None)


def found_packages(path: PathLike) -> set[str]:
    """Return the packages that a xacro file, the one expanded last, and its includes name in `$(find ...)`."""
    path = Path(path).expanduser()
    text = read_text(path)
    if not is_xacro(path, text):
        return set()
    texts = [text, *map(read_text, set(xacro.all_includes))]
    return set(re.findall(r"\bfind[ (]+['\"]?([\w-]+)", "\n".join(texts)))  # in an expression, too: find('NAME')


def expand_xacro(path: Path, arguments: Arguments | None = None, folders: MeshFolders | None = None) -> str:
    """Return the URDF text of a xacro file on the user's disk. Raises `InputError` with file and cause for what cannot
    be expanded, and for DTDs and entities."""
    mappings = {
        key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in (arguments or {}).items()
    }
    try:
        # The library has no interface for another parser.
        with mock.patch.object(xacro, "parse", _parsed), _finding_packages(folders or {}):
            return xacro.process_file(str(path), mappings=mappings).documentElement.toxml()
    except RecursionError as error:
        raise InputError(f"{path}: its macros or includes are recursive") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # The library lets whatever an expression raises pass: it runs the user's own code.
        match error:
            case InputError():
                cause = str(error)
            case DefusedXmlException():
                cause = "holds a DTD or entities, which are refused for safety; remove them"
            case ExpatError():
                cause = f"is not well-formed XML: {error}"
            case _:
                cause = f"xacro cannot expand it: {type(error).__name__}: {' '.join(str(error).split())}"
        raise InputError(f"{(xacro.filestack or [path])[-1] or path}: {cause}") from error


@contextlib.contextmanager
def _finding_packages(folders: MeshFolders):
    """Let `$(find ...)` look where meshes are looked for; the library has no interface for that."""

    def find(package: str) -> str:
        folder = package_folder(package, folders)
        if folder is None:
            missing.append(package)
            raise xacro.XacroException(package)
        return str(folder)

    missing: list[str] = []
    library = xacro.substitution_args
    xacro.all_includes.clear()
    with mock.patch.object(library, "_eval_find", find), mock.patch.dict(library._eval_dict, find=find):
        try:
            yield
        except Exception as error:
            if not missing:
                raise
            name = missing[0]
            folder = f"--package {name}=DIR (or a folder of packages, --package DIR), or packages: in a robot's profile"
            raise InputError(f"package '{name}' of $(find {name}) is not found; name its folder: {folder}") from error


def _parsed(source, filename: str | None = None) -> minidom.Document:
    """Do what the library's `parse` does for its files, included ones too, and refuse DTDs and entities."""
    if isinstance(source, minidom.Document):
        return source
    try:
        text = source if isinstance(source, str) else Path(filename).read_bytes()
    except OSError as error:
        xacro.filestack.pop()  # As the library does: the file was not entered.
        raise xacro.XacroException(f"{filename}: {error.strerror or error}", exc=error) from error
    return defusedxml.minidom.parseString(text, forbid_dtd=True)
