"""Reads values that a user wrote into a YAML file; every `InputError` names the file and the key.

`record` makes a dataclass of a mapping: its fields and their types are the schema. `Section` is for mappings whose keys
are no fields, such as angles in deg; the functions check single values.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from stretch_sim_cal.errors import InputError

BETWEEN = ","
"""Between what is said of the left and of the right lidar, where one value says both."""


def mapping(value: Any, known: set[str], where: str) -> dict[str, Any]:
    """Return `value` (None stands for an empty mapping). Raises `InputError` unless it is a mapping of known keys."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{where}: is {_said(value)}, a mapping with {', '.join(sorted(known))} was expected")
    for key in value:
        if key not in known:
            close = "".join(f"; did you mean {near}?" for near in get_close_matches(str(key), known, n=1))
            raise InputError(f"{where}: unknown key '{key}'; known are {', '.join(sorted(known))}{close}")
    return value


def entries(value: Any, where: str) -> dict[str, Any]:
    """Return `value`. Raises `InputError` unless it is a mapping, of any keys, that is not empty."""
    if not isinstance(value, dict) or not value:
        raise InputError(f"{where}: a mapping was expected")
    return value


def number(value: Any, where: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return `value` as a float. Raises `InputError` unless it is a finite number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{where}: is {_said(value)}, a number was expected")
    if not low <= value <= high:
        raise InputError(f"{where}: is {value:g}, it has to lie from {low:g} to {high:g}")
    return float(value)


def integer(value: Any, where: str, low: int, high: int) -> int:
    """Return `value`. Raises `InputError` unless it is a whole number from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"{where}: is {_said(value)}, a whole number was expected")
    if not low <= value <= high:
        raise InputError(f"{where}: is {value}, it has to lie from {low} to {high}")
    return value


def numbers(value: Any, count: int, where: str, low: float = -math.inf, high: float = math.inf) -> tuple[float, ...]:
    """Return a list of `count` numbers as a tuple. Raises `InputError` for anything else."""
    if not isinstance(value, (list, tuple)) or len(value) != count:
        raise InputError(f"{where}: is {_said(value)}, a list of {count} numbers was expected")
    return tuple(number(item, f"{where}[{index}]", low, high) for index, item in enumerate(value))


def flag(value: Any, where: str) -> bool:
    """Return `value`. Raises `InputError` unless it is true or false."""
    if not isinstance(value, bool):
        raise InputError(f"{where}: is {_said(value)}, true or false was expected")
    return value


def text(value: Any, where: str) -> str:
    """Return `value`. Raises `InputError` unless it is a text that is not empty."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: is {_said(value)}, a text was expected")
    return value


def choice(value: Any, known: tuple[str, ...], where: str) -> str:
    """Return `value`. Raises `InputError` unless it is one of the known ones."""
    if value not in known:
        raise InputError(f"{where}: is {_said(value)}, use one of {', '.join(known)}")
    return str(value)


@dataclass(frozen=True)
class Bounds:
    """The least and the greatest value of a number in a type that is read: `Annotated[float, Bounds(0.0, 1.0)]`."""

    low: float
    high: float


Record = TypeVar("Record")


def record(kind: type[Record], value: Any, where: str, **given: Any) -> Record:
    """Return the dataclass `kind` that a mapping writes down, by field as `typed` reads its type.

    Fields without default are required; those that are `given` are not read, and no known keys.
    """
    required = {each.name: each.default is MISSING and each.default_factory is MISSING for each in fields(kind)}
    data = mapping(value, set(required) - set(given), where)
    read = {
        name: typed(data.get(name), type_, f"{where}: {name}")
        for name, type_ in get_type_hints(kind, include_extras=True).items()
        if name not in given and (name in data or required[name])
    }
    return kind(**read, **given)


def typed(value: Any, kind: Any, where: str) -> Any:
    """Return `value` read as a type: Any, str, bool, float or int (`Annotated` with `Bounds`), a `Literal`, a
    dataclass, `Mapping[str, X]`, `tuple[X, X]`, `tuple[X, ...]` or `X | None`. Null is an empty mapping or list."""
    of, parts = get_origin(kind), get_args(kind)
    if of in (Union, UnionType):
        return None if value is None else typed(value, parts[0], where)
    if of is Annotated:
        return (integer if parts[0] is int else number)(value, where, parts[1].low, parts[1].high)
    if of is Literal:
        return choice(value, parts, where)
    if of is Mapping:
        if not isinstance(value, dict | None):
            raise InputError(f"{where}: is {_said(value)}, a mapping was expected")
        return {str(key): typed(each, parts[1], f"{where}: {key}") for key, each in (value or {}).items()}
    if of is tuple:
        count = None if parts[-1] is ... else len(parts)
        items = [] if value is None and count is None else value
        if not isinstance(items, (list, tuple)) or count not in (None, len(items)):
            raise InputError(f"{where}: is {_said(value)}, a list{f' of {count} values' if count else ''} was expected")
        kinds = [parts[0]] * len(items) if count is None else parts
        places = (f"{where}[{index}]" for index in range(len(items)))
        return tuple(map(typed, items, kinds, places))
    if is_dataclass(kind):
        return record(kind, value, where)
    return value if kind is Any else {str: text, bool: flag, float: number}[kind](value, where)


class Section:
    """A mapping of known keys; messages begin with its place, `where`, and the key. `in` is
    false for a key that is null."""

    def __init__(self, value: Any, known: set[str], where: str):
        self.data, self.where = mapping(value, known, where), where

    def __contains__(self, key: str) -> bool:
        return self.data.get(key) is not None

    def at(self, key: str) -> str:
        """Return the place of a key."""
        return f"{self.where}: {key}"

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key as it is written."""
        return self.data.get(key, default)

    def section(self, key: str, known: set[str]) -> "Section":
        """Return the mapping of a key."""
        return Section(self.get(key), known, self.at(key))

    def text(self, key: str, default: Any = None) -> str:
        """Return a text, as all of these checked like the function of that name; without
        `default` it has to be there."""
        return text(self.get(key, default), self.at(key))

    def flag(self, key: str, default: bool) -> bool:
        """Return true or false."""
        return flag(self.get(key, default), self.at(key))

    def integer(self, key: str, low: int, high: int, default: Any = None) -> int:
        """Return a whole number."""
        return integer(self.get(key, default), self.at(key), low, high)

    def number(self, key: str, low: float = -math.inf, high: float = math.inf, default: Any = None) -> float:
        """Return a number."""
        return number(self.get(key, default), self.at(key), low, high)

    def numbers(
        self, key: str, count: int, low: float = -math.inf, high: float = math.inf, default: Any = None
    ) -> tuple[float, ...]:
        """Return a list of `count` numbers."""
        return numbers(self.get(key, default), count, self.at(key), low, high)


def _said(value: Any) -> str:
    """Return how a value is shown in a message: short, whatever was written."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
