"""Reading and writing files so that nothing is half written, nothing unsafe is loaded, and errors name the file."""

import copy
import functools
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from stretch_sim_cal.errors import InputError

PACKAGE = "stretch_sim_cal"
LARGEST_YAML = 1_000_000  # values in a file, aliases written out: far above anything that is meant


def share_directory() -> Path:
    """Return the folder that holds `worlds/`, `models/`, `config/`, `scenarios/`, `launch/` and `rviz/`.

    In a source checkout (also when installed editable) that is the repository; otherwise the installed share folder.
    """
    source = Path(__file__).resolve().parent.parent
    if (source / "package.xml").is_file() and (source / "worlds").is_dir():
        return source
    # <prefix>/lib/python3.x/site-packages/stretch_sim_cal/files.py: so pip and colcon install it, sourced or not.
    installed = Path(__file__).resolve().parents[4] / "share" / PACKAGE
    if (installed / "worlds").is_dir():
        return installed
    raise InputError(
        f"{installed}: no such folder; install the package again with 'make env', 'pip install' or 'colcon build'"
    )


def find_shared(folder: str, name: str | Path, suffix: str) -> Path:
    """Return the file that a user means by `name`: a path, or the name of a file in the share folder `folder`.

    Raises `InputError` that lists the known names if there is no such file.
    """
    path = Path(name).expanduser()
    if path.suffix == suffix or len(path.parts) > 1:
        if path.is_file():
            return path.resolve()
        raise InputError(f"{path}: no such file")
    known = {p.name.removesuffix(suffix): p for p in (share_directory() / folder).glob(f"*{suffix}")}
    if str(name) in known:
        return known[str(name)]
    raise InputError(
        f"'{name}' is not known in {folder}/; there is {', '.join(sorted(known)) or 'nothing'}, or give a path"
    )


def read_text(path: str | Path) -> str:
    """Return the text of a UTF-8 file. Raises `InputError` naming the file and the cause."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start})") from error


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Return the mapping in a YAML file, read with the safe loader. Raises `InputError` for anything else."""
    text = read_text(path)
    try:
        data = copy.deepcopy(_parsed(text))  # whoever reads may change it
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark else ""
        raise InputError(f"{path}:{where} is not valid YAML: {getattr(error, 'problem', None) or error}") from error
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply to be read") from error
    if not isinstance(data, dict):
        raise InputError(f"{path}: holds {type(data).__name__}, a mapping was expected")
    if _expanded_size(data, {}) > LARGEST_YAML:
        raise InputError(f"{path}: its aliases (*name) expand to more than {LARGEST_YAML:,} values, or to themselves")
    return data


@functools.lru_cache(maxsize=16)  # a sensor's tables are read once per unit, and take a tenth of a second
def _parsed(text: str) -> Any:
    try:
        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # in C: a tenth of the time
    except yaml.YAMLError:
        return yaml.safe_load(text)  # says more exactly what is wrong, and where


def _expanded_size(value: Any, known: dict[int, float]) -> float:
    """Return how many values there are with every alias written out; infinite where one holds itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = math.inf
        children = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_expanded_size(child, known) for child in children)
    return known[id(value)]


def write_atomic(path: str | Path, write: Callable[[BinaryIO], object]) -> None:
    """Replace `path` by what `write` puts into the binary stream it is given; on any failure the old file stays.

    The new content is on disk before it takes the old one's place. Parent folders are made.
    Raises `InputError` if the folder cannot be written.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write `text` to `path` atomically (see `write_atomic`)."""
    write_atomic(path, lambda stream: stream.write(text.encode("utf-8")))


class _WithoutAnchors(yaml.SafeDumper):
    """Writes a value that stands in several places out in each of them, instead of `&id001` and `*id001`."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def yaml_text(data: dict[str, Any], flow_style: bool | None = None) -> str:
    """Return a mapping as YAML without anchors, keys in their order.

    `flow_style` None writes the innermost lists and mappings in one line each, False none.
    """
    return yaml.dump(data, Dumper=_WithoutAnchors, sort_keys=False, default_flow_style=flow_style, width=120)


def write_yaml(path: str | Path, data: dict[str, Any]) -> None:
    """Write a mapping to `path` as YAML (see `yaml_text`), atomically."""
    write_text(path, yaml_text(data))
