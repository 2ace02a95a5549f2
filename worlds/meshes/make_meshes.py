"""Makes the meshes of the worlds; run it in this folder after changing it, the STL files are kept beside it.

uneven_floor.stl: 12 m x 10 m, level within 0.5 m of the origin, elsewhere up to 4 cm above or below.
round_wall.stl: the inside of a cylinder of 3 m radius and 2.6 m height.
wavy_wall.stl: 8 m along x, 2.8 m high, up to 9 mm in front of or behind y = 0.
plant.stl: 160 leaves of 5 to 12 cm around a stem of 1.1 m.
"""

import numpy as np
import trimesh


def uneven_height(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the height of the uneven floor in m: long waves that fade in between 0.7 m and 1.3 m from the origin."""
    waves = 0.022 * np.sin(1.7 * x + 0.4) * np.cos(1.3 * y - 0.7) + 0.018 * np.sin(0.6 * x - 1.1 * y)
    fade = np.clip((np.hypot(x, y) - 0.7) / 0.6, 0.0, 1.0)
    return waves * fade * fade * (3.0 - 2.0 * fade)


def grid_faces(rows: int, columns: int) -> np.ndarray:
    """Return the triangles of a grid of vertices in row-major order."""
    index = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]
    return np.concatenate([np.stack([a, b, c], -1).reshape(-1, 3), np.stack([a, c, d], -1).reshape(-1, 3)])


def plant() -> trimesh.Trimesh:
    """Return a stem of 1.1 m on z = 0 with leaves: each four triangles, folded a little along its rib."""
    rng = np.random.default_rng(7)
    stem = trimesh.creation.cylinder(0.012, 1.1, sections=8)
    stem.apply_translation([0, 0, 0.55])
    parts = [stem]
    for _ in range(160):
        length, width = rng.uniform(0.05, 0.12), rng.uniform(0.02, 0.04)
        outline = [[0, 0, 0], [length / 2, width, 0.01], [length, 0, 0], [length / 2, -width, 0.01], [length / 2, 0, 0]]
        leaf = trimesh.Trimesh(outline, [[0, 4, 1], [4, 2, 1], [0, 3, 4], [4, 3, 2]], process=False)
        azimuth, pitch = rng.uniform(-np.pi, np.pi), rng.uniform(-0.9, 0.6)
        leaf.apply_transform(trimesh.transformations.euler_matrix(rng.uniform(-0.8, 0.8), pitch, azimuth))
        reach = rng.uniform(0.02, 0.28)
        leaf.apply_translation([reach * np.cos(azimuth), reach * np.sin(azimuth), rng.uniform(0.25, 1.2)])
        parts.append(leaf)
    return trimesh.util.concatenate(parts)


def main() -> None:
    x, y = np.meshgrid(np.linspace(-6.0, 6.0, 61), np.linspace(-5.0, 5.0, 51), indexing="ij")
    floor = np.stack([x, y, uneven_height(x, y)], axis=-1).reshape(-1, 3)
    trimesh.Trimesh(floor, grid_faces(*x.shape), process=False).export("uneven_floor.stl")

    facets = 720
    angles = 2 * np.pi * np.arange(facets + 1) / facets
    radius = 3.0 * 2 / (1 + np.cos(np.pi / facets))  # facets cut the circle: right on average
    circle = radius * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=-1)
    wall = np.concatenate([circle, circle + [0.0, 0.0, 2.6]])  # in this order the faces look inward
    trimesh.Trimesh(wall, grid_faces(2, facets + 1), process=False).export("round_wall.stl")

    x, z = np.meshgrid(np.linspace(-4.0, 4.0, 81), np.linspace(0.0, 2.8, 29), indexing="ij")
    waves = 0.004 * np.sin(1.9 * x + 0.3) * np.cos(1.1 * z) + 0.003 * np.sin(5.3 * x - 2.9 * z)
    waves += 0.002 * np.sin(9.1 * x + 7.7 * z + 1.0)
    wavy = np.stack([x, waves, z], axis=-1).reshape(-1, 3)
    trimesh.Trimesh(wavy, grid_faces(*x.shape), process=False).export("wavy_wall.stl")
    plant().export("plant.stl")


if __name__ == "__main__":
    main()
