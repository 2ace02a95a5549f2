"""Reading SDF files safely: a plain tree of elements that know their line, and what SDF writes into text.

Document types and entities are refused, so a file cannot expand into something larger than itself or name another.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import from_xyz_quaternion, from_xyz_rpy

MAX_BYTES = 20_000_000
MAX_DEPTH = 100


@dataclass
class Element:
    """An XML element: its tag, attributes, stripped text, children, and where it stands."""

    tag: str
    attributes: dict[str, str]
    file: Path
    line: int
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    @property
    def where(self) -> str:
        """File, line and tag, as messages begin."""
        return f"{self.file}:{self.line}: <{self.tag}>"

    @property
    def name(self) -> str:
        """The attribute `name`. Raises `InputError` where it is missing or empty."""
        name = self.attributes.get("name", "").strip()
        if not name:
            raise InputError(f"{self.where}: has no name")
        return name

    def all(self, tag: str) -> Iterator["Element"]:
        """Yield the direct children of that tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> "Element | None":
        """Return the first direct child of that tag, or None."""
        return next(self.all(tag), None)

    def required(self, tag: str) -> "Element":
        """Return the first direct child of that tag. Raises `InputError` where there is none."""
        child = self.first(tag)
        if child is None:
            raise InputError(f"{self.where}: has no <{tag}>")
        return child

    def numbers(self, count: int) -> np.ndarray:
        """Return the text as `count` finite numbers. Raises `InputError` for anything else."""
        try:
            values = np.array([float(word) for word in self.text.split()])
        except ValueError:
            values = np.empty(0)
        if len(values) != count or not np.isfinite(values).all():
            raise InputError(f"{self.where}: is '{self.text[:60]}', {count} numbers were expected")
        return values

    def positive(self, count: int = 1) -> np.ndarray:
        """Return the text as `count` numbers above zero. Raises `InputError` for anything else."""
        values = self.numbers(count)
        if (values <= 0).any():
            raise InputError(f"{self.where}: is '{self.text[:60]}', it has to be above 0")
        return values

    def flag(self) -> bool:
        """Return the text as a truth value. Raises `InputError` for anything else."""
        if self.text.lower() not in ("true", "false", "1", "0"):
            raise InputError(f"{self.where}: is '{self.text[:60]}', true or false was expected")
        return self.text.lower() in ("true", "1")


def read_sdf(path: Path, root: str = "sdf") -> Element:
    """Return the root element, of tag `root`, of a file. Raises `InputError` naming file, line and cause otherwise."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: is larger than {MAX_BYTES // 1_000_000} MB, that is no world file")
    element = _parse(data, path)
    if element.tag != root:
        raise InputError(f"{element.where}: is not the file that was expected, it should begin with <{root}>")
    return element


def pose_of(element: Element | None) -> np.ndarray:
    """Return the 4x4 transform that a `<pose>` writes down (identity for none or an empty one).

    Raises `InputError` where it is not a pose.
    """
    if element is None or not (element.text or element.attributes.get("frame")):
        return np.eye(4)
    if element.attributes.get("frame"):
        raise InputError(f"{element.where}: frame='...' is of SDF before 1.7; write relative_to='...'")
    notation = element.attributes.get("rotation_format", "euler_rpy")
    if notation == "quat_xyzw":
        values = element.numbers(7)
        if np.linalg.norm(values[3:]) < 1e-9:
            raise InputError(f"{element.where}: its quaternion has no length")
        return from_xyz_quaternion(values[:3], values[3:])
    if notation != "euler_rpy":
        raise InputError(f"{element.where}: rotation_format '{notation}' is neither euler_rpy nor quat_xyzw")
    values = element.numbers(6)
    degrees = element.attributes.get("degrees", "false").lower() in ("true", "1")
    return from_xyz_rpy(values[:3], np.radians(values[3:]) if degrees else values[3:])


def _parse(data: bytes, path: Path) -> Element:
    """Return the root element of an XML document without document type."""
    parser = expat.ParserCreate()
    parser.buffer_text = True
    root: list[Element] = []
    open_elements: list[Element] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, path, parser.CurrentLineNumber)
        if len(open_elements) >= MAX_DEPTH:
            raise InputError(f"{element.where}: is nested more than {MAX_DEPTH} deep")
        (open_elements[-1].children if open_elements else root).append(element)
        open_elements.append(element)

    def end(_tag: str) -> None:
        open_elements[-1].text = open_elements[-1].text.strip()
        open_elements.pop()

    def characters(text: str) -> None:
        open_elements[-1].text += text

    def refuse(*_: object) -> None:
        raise InputError(f"{path}:{parser.CurrentLineNumber}: has a document type or entities; remove them")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InputError(f"{path}:{error.lineno}: is not valid XML: {expat.ErrorString(error.code)}") from error
    except (LookupError, ValueError) as error:  # an encoding that is not known, or multi-byte
        raise InputError(f"{path}: is not valid XML: {error}") from error
    return root[0]
