"""Expands a xacro file to URDF text with the xacro library.

A xacro is a program: it includes files, reads YAML and evaluates Python expressions, and the library's sandbox around
those is thin. Only ever expand files that the user has chosen; text from the network goes to `parse_urdf`.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from xml.dom import minidom
from xml.parsers.expat import ExpatError

import defusedxml.minidom
import xacro
from defusedxml.common import DefusedXmlException

from stretch_sim_cal.errors import InputError


def expand_xacro(path: str | Path, arguments: Mapping[str, object] | None = None) -> str:
    """Return the URDF text of a xacro file on the user's own disk. `arguments` are its `xacro:arg`s.

    DTDs and entities are refused, in included files too. Raises `InputError` with the file and the cause for all that
    the library cannot expand.
    """
    path = Path(path)
    mappings = {key: _argument_text(value) for key, value in (arguments or {}).items()}
    try:
        with _refusing_entities():
            document = xacro.process_file(str(path), mappings=mappings)
    except DefusedXmlException as error:
        place = _current_file(path)
        raise InputError(f"{place}: holds a DTD or entities, which are refused for safety; remove them") from error
    except ExpatError as error:
        raise InputError(f"{_current_file(path)}: is not well-formed XML: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: its macros or includes never end") from error
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except Exception as error:  # The library lets whatever an expression raises pass: it runs the user's own code.
        place, message = _current_file(path), " ".join(str(error).split())
        raise InputError(f"{place}: xacro cannot expand it: {type(error).__name__}: {message}") from error
    return document.documentElement.toxml()


def _argument_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, str):
        return value
    try:
        return " ".join(repr(float(number)) for number in value)  # type: ignore[attr-defined]
    except TypeError:
        return str(value)


def _current_file(path: Path) -> str:
    return str((xacro.filestack or [path])[-1] or path)


@contextlib.contextmanager
def _refusing_entities():
    """Let the library read its files, included ones too, through a parser that refuses DTDs and entities.

    It looks `parse` up in its own module on every include and offers no other way in.
    """

    def parse(source, filename: str | None = None) -> minidom.Document:
        if isinstance(source, minidom.Document):
            return source
        try:
            text = source if isinstance(source, str) else Path(filename).read_bytes()
        except OSError as error:
            xacro.filestack.pop()  # As the library does: the file was not entered.
            raise xacro.XacroException(f"{filename}: {error.strerror or error}", exc=error) from error
        return defusedxml.minidom.parseString(text, forbid_dtd=True)

    original = xacro.parse
    xacro.parse = parse
    try:
        yield
    finally:
        xacro.parse = original
