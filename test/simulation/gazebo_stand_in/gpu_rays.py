"""Which texel's range gz-rendering's Ogre2GpuRays gives a ray, ray by ray as its C++ has it
(SampleCubemap, ConfigureCamera)."""

import math

import numpy as np


def texels(columns, rows, lowest, highest):
    turn, height = 2 * math.pi * (columns - 1) / columns, highest - lowest
    across = columns if turn < math.pi / 2 else int(math.pi / 2 / turn * columns)
    upright = rows if height < math.pi / 2 else int(math.pi / 2 / height * rows)
    size = 1
    while size < max(across, upright):
        size *= 2
    return min(max(size, 128), 1024)


def sampled(direction, size):
    """Return the direction (3,) of the centre of the texel that a ray falls into, both in the lidar's frame."""
    x, y, z = -direction[1], direction[2], direction[0]
    if abs(z) >= abs(x) and abs(z) >= abs(y):
        face, largest, u, v = 5 if z < 0 else 4, abs(z), -x if z < 0 else x, -y
    elif abs(y) >= abs(x):
        face, largest, u, v = 3 if y < 0 else 2, abs(y), x, -z if y < 0 else z
    else:
        face, largest, u, v = 1 if x < 0 else 0, abs(x), z if x < 0 else -z, -y
    u, v = (np.float32(0.5 * value / largest + 0.5) for value in (u, v))
    u, v = ((2 * (math.floor(value * np.float32(size)) + 0.5) / size - 1) for value in (u, v))
    x, y, z = {
        0: (1, -v, -u), 1: (-1, -v, u), 2: (u, 1, v), 3: (u, -1, -v), 4: (u, -v, 1), 5: (-u, -v, -1)
    }[face]  # fmt: skip
    centre = np.array([z, -x, y], dtype=float)
    return centre / np.linalg.norm(centre)
