"""Reads values that a user wrote into a YAML file; every `InputError` names the file and the key. `record` makes a
dataclass of a mapping, whose schema are the fields and their types; `written` is its inverse."""

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from stretch_sim_cal.errors import InputError, did_you_mean

# The least and the greatest standard deviations up to which a user may have lidar to lidar accepted.
ACCEPT = {"translation_mm": (1e-3, 1e3), "rotation_deg": (1e-4, 90.0)}
BETWEEN = ","  # between the values of the left and of the right lidar, and so on


def each_between(value: str, change: Callable[[str], str]) -> str:
    """Return a value for one lidar or several with that of each changed."""
    return BETWEEN.join(change(each.strip()) for each in value.split(BETWEEN))


def mapping(value: Any, known: set[str], where: str) -> dict[str, Any]:
    """Return `value` (None stands for an empty mapping). Raises `InputError` unless it is a mapping of known keys."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{where}: is {_shown(value)}; expected a mapping with {', '.join(sorted(known))}")
    for key in value:
        if key not in known:
            known_keys = ", ".join(sorted(known))
            raise InputError(f"{where}: unknown key '{key}'; known are {known_keys}{did_you_mean(key, known)}")
    return value


def entries(value: Any, where: str) -> dict[str, Any]:
    """Return `value`. Raises `InputError` unless it is a mapping, of any keys, that is not empty."""
    if not isinstance(value, dict) or not value:
        raise InputError(f"{where}: expected a mapping")
    return value


def number(value: Any, where: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return `value` as a float. Raises `InputError` unless it is a finite number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        exponent = isinstance(value, str) and re.fullmatch(r"[-+]?[\d.]+[eE][-+]?\d+", value)
        read = "; YAML reads an exponent only behind a point and with a sign, as in 1.0e+9" if exponent else ""
        raise InputError(f"{where}: is {_shown(value)}; expected a number{read}")
    if not low <= value <= high:
        raise InputError(f"{where}: is {value:g}; expected a value from {low:g} to {high:g}")
    return float(value)


def integer(value: Any, where: str, low: int, high: int) -> int:
    """Return `value` as an int. Raises `InputError` unless it is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(f"{where}: is {_shown(value)}; expected a whole number")
    if not low <= value <= high:
        raise InputError(f"{where}: is {value}; expected a value from {low} to {high}")
    return int(value)


def numbers(value: Any, count: int, where: str, low: float = -math.inf, high: float = math.inf) -> tuple[float, ...]:
    """Return a list of `count` numbers as a tuple. Raises `InputError` for anything else."""
    if not isinstance(value, (list, tuple)) or len(value) != count:
        raise InputError(f"{where}: is {_shown(value)}; expected a list of {count} numbers")
    return tuple(number(item, f"{where}[{index}]", low, high) for index, item in enumerate(value))


def numbers_by_key(value: Any, where: str, **known: tuple[float, ...]) -> dict[str, float]:
    """Return a mapping of numbers; `known` are the least and the greatest value of each, and a default."""
    data = mapping(value, set(known), where)
    return {
        key: number(data.get(key, *default), f"{where}: {key}", low, high)
        for key, (low, high, *default) in known.items()
    }


def texts_by_key(value: Any, where: str, **known: str | None) -> dict[str, str | None]:
    """Return a mapping of texts; `known` are the defaults, also of nulls."""
    given = {key: each for key, each in mapping(value, set(known), where).items() if each is not None}
    return known | {key: text(each, f"{where}: {key}") for key, each in given.items()}


def flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{where}: is {_shown(value)}; expected true or false")
    return value


def text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: is {_shown(value)}; expected text")
    return value


def folder_name(value: Any, where: str) -> str:
    """Return `value` as text. Raises `InputError` unless it can name a folder in another one."""
    name = str(value)
    if name.strip() in ("", ".", "..") or not {"/", "\0"}.isdisjoint(name):
        raise InputError(f"{where}: is {_shown(value)}; it names a folder, so give a word without '/'")
    return name


def choice(value: Any, known: tuple[str, ...], where: str) -> str:
    if value not in known:
        raise InputError(f"{where}: is {_shown(value)}, use one of {', '.join(known)}")
    return str(value)


DEGREES, MILLIMETRES, MICROSECONDS = "deg", "mm", "us"
FACTORS = {"": (1.0, 1.0), DEGREES: (math.pi / 180.0, 180.0 / math.pi), MILLIMETRES: (1e-3, 1e3)}
FACTORS[MICROSECONDS] = (1e-6, 1e6)
"""What numbers of a unit are multiplied by when they are read, to rad, m and s, and when they are written."""


@dataclass(frozen=True)
class Bounds:
    """How a field is written in a file: `Annotated[float, Bounds(0.0, 90.0, DEGREES)]`. Its number, or each number of a
    tuple or array, lies from `low` to `high`, as written in `unit`. The key is the field's name, followed by the unit,
    or `key`."""

    low: float = -math.inf
    high: float = math.inf
    unit: str = ""
    key: str = ""


Record = TypeVar("Record")


@functools.cache
def keys_of(kind: type) -> dict[str, tuple[str, Any]]:
    """Return the keys of a dataclass in a file, and the type of each, by field."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        bounds = hint.__metadata__[0] if get_origin(hint) is Annotated else Bounds()
        found[name] = bounds.key or (f"{name}_{bounds.unit}" if bounds.unit else name), hint
    return found


def record(kind: type[Record], value: Any, where: str, /, **given: Any) -> Record:
    """Return the dataclass `kind` of a mapping, by key as `typed` reads the type of its field. Fields without default
    are required. Those that are `given` are not read, and their keys are not known."""
    keys = {name: key for name, key in keys_of(kind).items() if name not in given}
    required = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}
    data = mapping(value, {key for key, _ in keys.values()}, where)
    read = {name: typed(data[key], type_, f"{where}: {key}") for name, (key, type_) in keys.items() if key in data}
    if missing := [key for name, (key, _) in keys.items() if name in required and name not in read]:
        raise InputError(f"{where}: {', '.join(missing)}: {'is' if len(missing) == 1 else 'are'} missing")
    return kind(**read, **given)


def typed(value: Any, kind: Any, where: str, bounds: Bounds = Bounds()) -> Any:
    """Return `value` read as a type: Any, str, bool, float or int, a `Literal`, a dataclass, `Mapping[str, X]`,
    `tuple[X, X]`, `tuple[X, ...]`, `X | None` or an array of numbers, the last of a list or of one number; numbers
    within `bounds` or `Annotated` with them. Null is an empty mapping or list."""
    of, parts = get_origin(kind), get_args(kind)
    if of is Annotated:
        return typed(value, parts[0], where, parts[1])
    if of in (Union, UnionType):
        return None if value is None else typed(value, parts[0], where, bounds)
    if of is Literal:
        return choice(value, parts, where)
    if of is Mapping:
        if not isinstance(value, dict | None):
            raise InputError(f"{where}: is {_shown(value)}; expected a mapping")
        return {str(key): typed(each, parts[1], f"{where}: {key}", bounds) for key, each in (value or {}).items()}
    if kind is np.ndarray:
        return np.array(typed(value, tuple[float, ...] if isinstance(value, list) else float, where, bounds))
    if of is tuple:
        count = None if parts[-1] is ... else len(parts)
        items = [] if value is None and count is None else value
        if not isinstance(items, (list, tuple)) or count not in (None, len(items)):
            wanted = f"a list of {count} values" if count else "a list"
            raise InputError(f"{where}: is {_shown(value)}; expected {wanted}")
        kinds = [parts[0]] * len(items) if count is None else parts
        return tuple(
            typed(item, each, f"{where}[{index}]", bounds)
            for index, (item, each) in enumerate(zip(items, kinds, strict=True))
        )
    if is_dataclass(kind):
        return record(kind, value, where)
    if kind is int:
        return integer(value, where, bounds.low, bounds.high)
    if kind is float:
        return FACTORS[bounds.unit][0] * number(value, where, bounds.low, bounds.high)
    return value if kind is Any else {str: text, bool: flag}[kind](value, where)


def written(value: Any, unit: str = "") -> Any:
    """Return a dataclass as the mapping that `record` reads back, with lists and plain numbers."""
    if is_dataclass(value):
        return {
            key: written(getattr(value, name), type_.__metadata__[0].unit if get_origin(type_) is Annotated else "")
            for name, (key, type_) in keys_of(type(value)).items()
        }
    if isinstance(value, Mapping):
        return {key: written(each, unit) for key, each in value.items()}
    if isinstance(value, tuple):
        return [written(each, unit) for each in value]
    return FACTORS[unit][1] * float(value) if unit or isinstance(value, float) else value


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
