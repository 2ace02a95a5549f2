"""JSON schemas (draft 2020-12) of the YAML files that users write, for editors, made of the types by which `validate`
reads the files. A schema accepts whatever its reader accepts; the reader checks more, as names against other files."""

import inspect
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np

from stretch_sim_cal.validate import Bounds, keys_of

DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
PLAIN: dict[Any, Schema] = {
    Any: {}, type(None): {"type": "null"}, None: {"type": "null"}, bool: {"type": "boolean"},
    int: {"type": "integer"}, float: {"type": "number"},
    str: {"type": "string", "pattern": r"\S"}, Path: {"type": "string", "pattern": r"\S"},  # not empty
}  # fmt: skip


def of_file(title: str, schema: Schema) -> Schema:
    """Return the schema of a whole file, which is a mapping."""
    return {"$schema": DRAFT, "title": title} | schema | {"type": "object"}


def of(kind: Any, bounds: Bounds = Bounds()) -> Schema:
    """Return the schema of what `validate.typed` reads as a type, null for an empty mapping or list included. A schema
    in place of a type, or of a part of one, stays as it is."""
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(kind, dict):
        return kind
    if origin is Annotated:
        return of(parts[0], parts[1])
    if origin in (Union, UnionType):
        return any_of(*(of(part, bounds) for part in parts))
    if origin is Literal:
        return {"enum": list(parts)}
    if origin is Mapping:
        return {"type": ["object", "null"], "additionalProperties": of(parts[1], bounds)}
    if kind is np.ndarray:
        return any_of(of(float, bounds), of(tuple[float, ...], bounds))
    if origin is tuple and parts[-1] is ...:
        return {"type": ["array", "null"], "items": of(parts[0], bounds)}
    if origin is tuple:
        items, length = [of(part, bounds) for part in parts], {"minItems": len(parts), "maxItems": len(parts)}
        return {"type": "array"} | ({"items": items[0]} if len({*parts}) == 1 else {"prefixItems": items}) | length
    if is_dataclass(kind):
        return of_record(kind)
    ends = {"minimum": bounds.low, "maximum": bounds.high} if kind in (int, float) else {}
    return PLAIN[kind] | {key: end for key, end in ends.items() if math.isfinite(end)}


def any_of(*kinds: Any) -> Schema:
    return {"anyOf": [of(kind) for kind in kinds]}


def of_record(
    kind: type, also: Mapping[str, Any] | None = None, without: Iterable[str] = (), usual: Iterable[str] = ()
) -> Schema:
    """Return the schema of what `validate.record` reads as a dataclass. `also` are types or schemas by key, in place of
    the dataclass's or beyond them; its fields `without` are no keys of the file, and those of `usual` have a default
    that the dataclass does not have. A key is described by the clause of the dataclass's docstring that names it."""
    said, also = " ".join((inspect.getdoc(kind) or "").split()), also or {}
    known = {key: (name, type_) for name, (key, type_) in keys_of(kind).items() if name not in without}
    optional = {*usual, *(each.name for each in fields(kind) if (each.default, each.default_factory) != (MISSING,) * 2)}
    properties = {}
    for key in [*known, *(key for key in also if key not in known)]:
        name, type_ = known.get(key, (key, None))
        clause = next((each for each in re.split(r"[.;] ", said) if f"`{name}`" in each), "")
        properties[key] = ({"description": clause.rstrip(".")} if clause else {}) | of(also.get(key, type_))
    required = [key for key, (name, _) in known.items() if name not in optional and key not in also]
    return {"description": said} | of_keys(properties, required)


def of_keys(known: Mapping[str, Any], required: Iterable[str] = ()) -> Schema:
    """Return the schema of a mapping with these types or schemas by key, and no other keys."""
    required = list(required)
    return {
        "type": "object" if required else ["object", "null"],
        "properties": {key: of(kind) for key, kind in known.items()},
        "additionalProperties": False,
    } | ({"required": required} if required else {})


def of_numbers(known: Mapping[str, tuple[float, ...]]) -> Schema:
    """Return the schema of what `validate.numbers_by_key` reads."""
    bounds = {key: of(float, Bounds(low, high)) for key, (low, high, *_) in known.items()}
    return of_keys(bounds, [key for key, each in known.items() if len(each) < 3])
