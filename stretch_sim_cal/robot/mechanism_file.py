"""Loads a mechanism for mobility: a URDF or xacro, an SDF, or a small YAML that lists links and joints.

    name: four_bar
    dimension: planar           # or spatial, the default
    base: fixed                 # or mobile, floating: how `ground` may move in the world
    links: [frame, crank, coupler, rocker]
    ground: frame               # the first link by default
    joints:
      - {name: a, type: revolute, parent: frame, child: crank, xyz: [0, 0, 0], axis: [0, 0, 1]}

`xyz` and `axis`, in the ground's frame in the configuration to be looked at, may be left out: then freedom is only
counted. Joints with more than one degree of freedom take `rpy` as well; `pitch` (m/rad) is of helical joints.
"""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_text, read_yaml
from stretch_sim_cal.geometry.transforms import from_xyz_rpy
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.mechanism import Connection, Mechanism, mechanism, mechanism_of, with_base
from stretch_sim_cal.robot.sdf_model import is_sdf, parse_sdf_model

KEYS = {"name", "dimension", "base", "links", "ground", "joints"}
JOINT_KEYS = {"name", "type", "parent", "child", "xyz", "rpy", "axis", "pitch"}


def load_mechanism(
    path: str | os.PathLike,
    arguments: Mapping[str, object] | None = None,
    base: str | None = None,
) -> tuple[Mechanism, str]:
    """Return the mechanism in a file, and the dimension (spatial or planar) that it asks to be counted in.

    `base` (fixed, mobile, floating) overrides what the file says; a URDF says nothing and is fixed.
    Raises `InputError` naming the file and the element.
    """
    path = Path(path).expanduser()
    if path.suffix in (".yaml", ".yml"):
        return _from_yaml(path, base)
    text = read_text(path)
    if is_sdf(path, text):
        found = parse_sdf_model(text, str(path)).mechanism()
        if base is not None:
            raise InputError(f"{path}: an SDF says itself how its base moves (a joint to the world, or none)")
        return found, "spatial"
    return mechanism_of(load_model(path, arguments), base or "fixed"), "spatial"


def is_tree_file(path: Path) -> bool:
    """Return whether a file is a URDF or xacro: neither a YAML nor an SDF."""
    return path.suffix not in (".yaml", ".yml") and not is_sdf(path, read_text(path))


def _from_yaml(path: Path, base: str | None) -> tuple[Mechanism, str]:
    data = read_yaml(path)
    _check_keys(data, KEYS, str(path))
    links = data.get("links")
    if not isinstance(links, list) or not links or not all(isinstance(link, str) for link in links):
        raise InputError(f"{path}: links: a list of names was expected")
    joints = data.get("joints") or []
    if not isinstance(joints, list):
        raise InputError(f"{path}: joints: a list was expected")
    connections = [_connection(joint, f"{path}: joints[{index}]") for index, joint in enumerate(joints)]
    name, ground = str(data.get("name", path.stem)), str(data.get("ground", links[0]))
    dimension = data.get("dimension", "spatial")
    if dimension not in ("spatial", "planar"):
        raise InputError(f"{path}: dimension: '{dimension}' is not known; there is spatial, planar")
    found = mechanism(name, links, ground, connections, str(path))
    return with_base(found, base or str(data.get("base", "fixed"))), dimension


def _connection(data: Any, where: str) -> Connection:
    if not isinstance(data, dict):
        raise InputError(f"{where}: a mapping with name, type, parent, child was expected")
    _check_keys(data, JOINT_KEYS, where)
    for key in ("name", "type", "parent", "child"):
        if not isinstance(data.get(key), str):
            raise InputError(f"{where}: {key}: a name was expected")
    axis = _numbers(data, "axis", where)
    xyz, rpy = _numbers(data, "xyz", where), _numbers(data, "rpy", where)
    if axis is not None and np.linalg.norm(axis) < 1e-9:
        raise InputError(f"{where}: axis: must not be zero")
    pitch = data.get("pitch", 0.0)
    if isinstance(pitch, bool) or not isinstance(pitch, int | float) or not math.isfinite(pitch):
        raise InputError(f"{where}: pitch: a number was expected")
    known = xyz is not None and (axis is not None or data["type"] in ("fixed", "spherical", "floating"))
    frame = from_xyz_rpy(xyz, (0.0, 0.0, 0.0) if rpy is None else rpy) if known else None
    if known and axis is None:
        axis = np.array([0.0, 0.0, 1.0])
    elif known:
        axis = frame[:3, :3].T @ axis  # The file gives it in the ground's frame.
    names = (data[key] for key in ("name", "type", "parent", "child"))
    return Connection(*names, frame, axis if known else None, float(pitch))


def _numbers(data: Mapping[str, Any], key: str, where: str) -> np.ndarray | None:
    if data.get(key) is None:
        return None
    try:
        values = np.array(data[key], dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {key}: three numbers were expected") from error
    if values.shape != (3,) or not np.isfinite(values).all():
        raise InputError(f"{where}: {key}: three finite numbers were expected")
    return values


def _check_keys(data: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(str(key) for key in data if key not in known)
    if unknown:
        raise InputError(f"{where}: '{unknown[0]}' is not known; there is {', '.join(sorted(known))}")
