"""Makes the meshes of the worlds; run it in this folder after changing it, the STL files are kept beside it.

uneven_floor.stl: 12 m x 10 m, level within 0.5 m of the origin, elsewhere up to 4 cm above or below.
round_wall.stl: the inside of a cylinder of 3 m radius and 2.6 m height.
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


if __name__ == "__main__":
    main()
