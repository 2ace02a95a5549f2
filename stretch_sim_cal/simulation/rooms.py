"""Rooms that are generated as SDF: furniture, glass, mirrors, people and an uneven floor around a robot at the world's
origin. Lengths in m, angles in rad."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import numpy as np
import trimesh

from stretch_sim_cal.files import write_atomic, write_text
from stretch_sim_cal.simulation.solids import Undulation, uneven_sheet

WALL = 0.1  # thickness of walls, floor and ceiling
CORRIDOR = 2.5  # depth of what lies behind a glass front
KEPT_FREE = 1.0  # radius around the robot's axis: its outline with the arm stowed, and the way of a hand
WAVES = (0.7, 5.0)  # wavelengths of its bumps: shorter ones are texture, longer ones a slope
WALKING_SPEED = 1.0  # m/s
REFLECTIVITY = {"walls": 0.8, "floor": 0.5, "glass": 0.3, "mirror": 0.05}


@dataclass(frozen=True)
class Room:
    """One room. `x` and `y` from -1 to 1 place the robot in its free part, `yaw` turns it. `glass` and `mirror` are the
    shares of a long wall that are panes or mirrors, `floor_rms` and `wall_rms` the unevenness of floor and walls."""

    length: float = 7.0
    width: float = 5.0
    height: float = 2.6
    furniture: int = 8
    people: int = 0
    glass: float = 0.0
    mirror: float = 0.0
    floor_rms: float = 0.0
    wall_rms: float = 0.0
    x: float = 0.0
    y: float = 0.0
    yaw: float = 0.0


def write_room(room: Room, random: np.random.Generator, folder: Path) -> Path:
    """Write a room as `room.sdf`, its meshes beside it, and return its path; furniture and people are `random`."""
    half = np.array([room.length, room.width]) / 2
    robot = np.array([room.x, room.y]) * np.maximum(half - KEPT_FREE, 0.0)
    # The room is put around the robot.
    turned = np.array([[np.cos(-room.yaw), -np.sin(-room.yaw)], [np.sin(-room.yaw), np.cos(-room.yaw)]])
    x, y = -turned @ robot

    def in_world(place: np.ndarray, yaw: float) -> str:
        *place, yaw = (round(float(value), 6) for value in (*place, yaw))
        ahead, aside = turned @ place + (x, y)
        return f"{ahead:.6f} {aside:.6f} 0 0 0 {yaw + np.arctan2(turned[1, 0], turned[0, 0]):.6f}"

    parts = [_shell(room, half, random, folder)]
    parts += [_piece(f"furniture_{number}", room, half, robot, random) for number in range(room.furniture)]
    parts += [_person(f"person_{number}", half, robot, random, in_world) for number in range(room.people)]
    text = (
        '<?xml version="1.0"?>\n<sdf version="1.9" xmlns:sim="urn:stretch_sim_cal"><world name="generated_room">'
        f"<frame name='room'><pose>{x:.6f} {y:.6f} 0 0 0 {-room.yaw:.6f}</pose></frame>{''.join(parts)}</world></sdf>\n"
    )
    write_text(folder / "room.sdf", text)
    return folder / "room.sdf"


def _model(name: str, shapes: list[tuple[str, tuple, str, str]], pose: str = "0 0 0 0 0 0") -> str:
    """Return a static model in the room's frame of shapes (name, pose of 6, geometry, look), seen as they collide."""
    links = "".join(
        f"<{tag} name={quoteattr(shape + suffix)}><pose>{' '.join(f'{value:.6f}' for value in at)}</pose>"
        f"<geometry>{geometry}</geometry>{look if suffix else ''}</{tag}>"
        for shape, at, geometry, look in shapes
        for tag, suffix in (("collision", ""), ("visual", "_visual"))
    )
    return (
        f"<model name={quoteattr(name)}><static>true</static><pose relative_to='room'>{pose}</pose>"
        f"<link name='link'>{links}</link></model>"
    )


def _box(*size: float) -> str:
    return f"<box><size>{' '.join(f'{value:.6f}' for value in size)}</size></box>"


def _cylinder(radius: float, length: float) -> str:
    return f"<cylinder><radius>{radius:.6f}</radius><length>{length:.6f}</length></cylinder>"


def _look(reflectivity: float, more: str = "") -> str:
    shade = " ".join([f"{reflectivity:.3f}"] * 3)
    return f"<material><ambient>{shade} 1</ambient><diffuse>{shade} 1</diffuse></material>{more}"


def _shell(room: Room, half: np.ndarray, random: np.random.Generator, folder: Path) -> str:
    """Return floor, ceiling and walls; the wall at +y has the panes, and a corridor behind it."""
    (x, y), walls = half, _look(REFLECTIVITY["walls"])
    deep = y + (CORRIDOR if room.glass else 0.0)
    middle = (deep - y) / 2
    slab = _box(2 * x, y + deep, WALL)
    floor = _mesh(folder / "floor.stl", (2 * x, y + deep), room.floor_rms, random) or slab
    shapes = [
        ("floor", (0, middle, 0 if room.floor_rms else -WALL / 2, 0, 0, 0), floor, _look(REFLECTIVITY["floor"])),
        ("ceiling", (0, middle, room.height + WALL / 2, 0, 0, 0), slab, walls),
    ]
    for name, foot, length, yaw in (
        ("right", (0, -y - WALL / 2), 2 * x, np.pi / 2),
        ("far" if room.glass else "left", (0, deep + WALL / 2), 2 * x, -np.pi / 2),
        ("back", (-x - WALL / 2, middle), y + deep, 0.0),
        ("front", (x + WALL / 2, middle), y + deep, np.pi),
    ):
        shapes.append(_wall(name, room, random, folder, foot, length, yaw))
    if room.glass:
        pane, rest = room.glass * 2 * x, (1.0 - room.glass) * 2 * x
        shapes.append(("pane", (-x + pane / 2, y, room.height / 2, 0, 0, 0), _box(pane, 0.01, room.height),
                       _look(REFLECTIVITY["glass"], "<sim:glass>0.92</sim:glass>")))  # fmt: skip
        if rest > 0:
            at = (x - rest / 2, y + WALL / 2, room.height / 2, 0, 0, 0)
            shapes.append(("left", at, _box(rest, WALL, room.height), walls))
    if room.mirror:
        size = room.mirror * 2 * x
        shapes.append(("mirror", (x - size / 2, -y + 0.01, 1.1, 0, 0, 0), _box(size, 0.02, 1.8),
                       _look(REFLECTIVITY["mirror"], "<sim:mirror>0.85</sim:mirror>")))  # fmt: skip
    return _model("shell", shapes)


def _wall(name: str, room: Room, random: np.random.Generator, folder: Path, foot: tuple, length: float, yaw: float):
    """Return a wall, its middle at `foot`; one that is not flat faces x turned by `yaw`."""
    (x, y), look = foot, _look(REFLECTIVITY["walls"])
    if not room.wall_rms:
        return name, (x, y, room.height / 2, 0, 0, yaw), _box(WALL, length + 2 * WALL, room.height), look
    mesh = _mesh(folder / f"{name}.stl", (room.height, length), room.wall_rms, random)
    # The mesh lies in xy and faces z: it is stood up so that z points along x, then turned.
    ahead, aside = np.array([np.cos(yaw), np.sin(yaw)]) * WALL / 2
    return name, (x + ahead, y + aside, room.height / 2, 0, np.pi / 2, yaw), mesh, look


def _mesh(path: Path, size: tuple[float, float], rms: float, random: np.random.Generator) -> str | None:
    if not rms:
        return None
    half = np.array(size) / 2
    vertices, faces = uneven_sheet(-half, half, Undulation.drawn(rms, WAVES, random))
    sheet = trimesh.Trimesh(vertices, faces, process=False)
    write_atomic(path, lambda stream: sheet.export(stream, file_type="stl"))
    return f"<mesh><uri>{path.name}</uri></mesh>"


def _spot(size: float, half: np.ndarray, robot: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return a place for something of radius `size` outside the robot's free circle, or the best of some tries."""
    tries = random.uniform(-1.0, 1.0, (20, 2)) * np.maximum(half - size, 0.1)
    free = np.linalg.norm(tries - robot, axis=1) - size - KEPT_FREE
    return tries[np.argmax(free > 0)] if (free > 0).any() else tries[np.argmax(free)]


def _piece(name: str, room: Room, half: np.ndarray, robot: np.ndarray, random: np.random.Generator) -> str:
    look = _look(random.uniform(0.05, 0.95))
    kind = random.choice(["cabinet", "table", "chair", "column", "ball"], p=[0.4, 0.2, 0.25, 0.1, 0.05])
    yaw = random.uniform(-np.pi, np.pi)

    def legs(x: float, y: float, radius: float, length: float, middle: float) -> list[tuple[str, tuple, str, str]]:
        corners = [(-x, -y), (-x, y), (x, -y), (x, y)]
        shape = _cylinder(radius, length)
        return [(f"leg_{number}", (*at, middle, 0, 0, 0), shape, look) for number, at in enumerate(corners)]

    if kind == "cabinet":
        width, depth = random.uniform(0.4, 1.4), random.uniform(0.3, 0.6)
        height = random.uniform(0.5, min(2.2, room.height))
        shapes = [("body", (0, 0, height / 2, 0, 0, 0), _box(depth, width, height), look)]
        size, yaw = np.hypot(width, depth) / 2, random.integers(4) * np.pi / 2
    elif kind == "table":
        length, width, height = random.uniform(0.7, 1.8), random.uniform(0.5, 0.9), random.uniform(0.4, 1.0)
        shapes = [("top", (0, 0, height, 0, 0, 0), _box(length, width, 0.04), look)]
        shapes += legs(length / 2 - 0.05, width / 2 - 0.05, 0.025, height, height / 2)
        size = np.hypot(length, width) / 2
    elif kind == "chair":
        shapes = [("seat", (0, 0, 0.45, 0, 0, 0), _box(0.42, 0.42, 0.04), look),
                  ("back", (-0.2, 0, 0.7, 0, -0.15, 0), _box(0.03, 0.42, 0.5), look)]  # fmt: skip
        shapes += legs(0.18, 0.18, 0.02, 0.44, 0.22)
        size = 0.35
    elif kind == "column":
        size = random.uniform(0.08, 0.25)
        shapes = [("shaft", (0, 0, room.height / 2, 0, 0, 0), _cylinder(size, room.height), look)]
    else:
        size = random.uniform(0.1, 0.4)
        shapes = [("ball", (0, 0, size, 0, 0, 0), f"<sphere><radius>{size:.6f}</radius></sphere>", look)]
    place = _spot(size, half, robot, random)
    if kind == "cabinet":  # with its back to the nearest wall
        wall = int(np.argmin(np.concatenate([half - place, half + place])))
        axis, moved = wall % 2, place.copy()
        moved[axis] = (1.0 if wall < 2 else -1.0) * (half[axis] - depth / 2 - 0.01)
        yaw = (0.0, np.pi / 2)[axis]
        if np.linalg.norm(moved - robot) > KEPT_FREE + size:
            place = moved
    return _model(name, shapes, f"{place[0]:.6f} {place[1]:.6f} 0 0 0 {yaw:.6f}")


def _person(name: str, half: np.ndarray, robot: np.ndarray, random: np.random.Generator, in_world: Callable) -> str:
    """Return an actor who walks to and fro between two places, past the robot."""
    begin, end = (_spot(0.4, half, robot, random) for _ in range(2))
    way = end - begin
    across = robot - begin - way * np.clip(way @ (robot - begin) / max(way @ way, 1e-9), 0.0, 1.0)
    if np.linalg.norm(across) < KEPT_FREE + 0.4:  # the way would lead through the robot: stay on one side of it
        end = begin + 0.3 * (begin - robot) / max(np.linalg.norm(begin - robot), 1e-9)
        way = end - begin
    yaw, seconds = np.arctan2(way[1], way[0]), max(np.linalg.norm(way) / WALKING_SPEED, 0.5)
    points = [(0.0, begin, yaw), (seconds, end, yaw), (seconds + 0.5, end, yaw + np.pi),
              (2 * seconds + 0.5, begin, yaw + np.pi), (2 * seconds + 1.0, begin, yaw + 2 * np.pi)]  # fmt: skip
    waypoints = "".join(
        f"<waypoint><time>{time:.3f}</time><pose>{in_world(place, turn)}</pose></waypoint>"
        for time, place, turn in points
    )
    return (
        f"<actor name={quoteattr(name)}><script><loop>true</loop><delay_start>0</delay_start>"
        f"<trajectory id='0' type='walking'>{waypoints}</trajectory></script></actor>"
    )
