"""Points as the lidars' driver publishes them: their layout, and which of them are returns of their own.

A driver may publish a point at the origin for a ray without a return, and with dual returns nearly every second return
repeats the first one bit by bit.
"""

import numpy as np

# 26 bytes per point, little-endian, without padding; `timestamp` in s.
POINT_DTYPE = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2"), ("timestamp", "<f8")]
)
RETURN_COLUMNS = ("x", "y", "z", "ring", "intensity")
"""The columns of returns (N, 5)."""
# Odd factors whose product with three coordinates hardly ever meets that of three others.
FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)
INFINITE = np.uint32(0x7F800000)  # the bits of an exponent that say infinite, or not a number


def coordinates(points: np.ndarray) -> np.ndarray:
    """Return x, y, z (N, 3) float32 of structured points (N,)."""
    result = np.empty((len(points), 3), dtype=np.float32)
    for column, name in enumerate("xyz"):
        result[:, column] = points[name]
    return result


def are_returns(xyz: np.ndarray) -> np.ndarray:
    """Return which points (N, 3) float32 are returns: finite, not exactly at the origin, and no repetition, bit by bit,
    of an earlier point."""
    bits = np.ascontiguousarray(xyz).view(np.uint32)
    x, y, z = bits.T
    returns = ((x & INFINITE) != INFINITE) & ((y & INFINITE) != INFINITE) & ((z & INFINITE) != INFINITE)
    returns &= ((x | y | z) << np.uint32(1)) != 0  # without signs
    rows = np.flatnonzero(returns)
    bits = bits.take(rows, axis=0)
    low = np.uint64(len(rows).bit_length())  # so many bits of a key are the row, the others those of its coordinates
    keys = np.zeros(len(rows), dtype=np.uint64)
    for column, factor in enumerate(FACTORS):
        keys ^= (bits[:, column] + np.uint64(1)) * factor
    keys >>= low
    keys <<= low
    keys |= np.arange(len(rows), dtype=np.uint64)
    keys.sort()
    order = (keys & ((np.uint64(1) << low) - np.uint64(1))).astype(np.intp)
    keys >>= low
    likely = np.flatnonzero(keys[1:] == keys[:-1])
    earlier, later = order[likely], order[likely + 1]
    same = (bits.take(earlier, axis=0) == bits.take(later, axis=0)).all(axis=1)
    returns[rows[later[same]]] = False
    return returns


def is_dense(points: np.ndarray) -> bool:
    """Return whether none of structured points (N,) marks a miss: not finite, or at the origin."""
    x, y, z = (points[name] for name in "xyz")
    return bool(np.isfinite(x).all() and not ((x == 0) & (y == 0) & (z == 0)).any())
