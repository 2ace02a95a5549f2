"""Points as the lidars' driver publishes them: their layout, and which are returns. Misses may be points at the origin,
and second returns mostly repeat the first one bitwise."""

import numpy as np

# 26 bytes per point, little-endian, without padding; `timestamp` in s.
POINT_DTYPE = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4"), ("ring", "<u2"), ("timestamp", "<f8")]
)
RETURN_COLUMNS = ("x", "y", "z", "ring", "intensity")  # the columns of returns (N, 5)
# Odd factors whose product with three coordinates hardly ever meets that of three others.
FACTORS = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D], dtype=np.uint32)
INFINITE = np.uint32(0x7F800000)  # the bits of an exponent of infinity and NaN


def coordinates(points: np.ndarray) -> np.ndarray:
    """Return x, y, z (N, 3) float32 of structured points (N,)."""
    result = np.empty((len(points), 3), dtype=np.float32)
    for column, name in enumerate("xyz"):
        result[:, column] = points[name]
    return result


def elevations(points: np.ndarray) -> np.ndarray:
    """Return the elevations (N,) in rad of points (N, 3) over the xy plane."""
    return np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1]))


def are_returns(xyz: np.ndarray) -> np.ndarray:
    """Return which points (N, 3) float32 are returns: finite, not at the origin, and not repeating an earlier point."""
    x, y, z = bits = np.ascontiguousarray(np.ascontiguousarray(xyz).view(np.uint32).T)
    returns = ((x & INFINITE) != INFINITE) & ((y & INFINITE) != INFINITE) & ((z & INFINITE) != INFINITE)
    returns &= ((x | y | z) << np.uint32(1)) != 0  # without signs
    left = np.flatnonzero(returns).astype(np.int32)
    factors = FACTORS
    while len(left):  # of the points in one slot of the table the first is kept; others are equal to it, or try again
        size = min(len(left).bit_length() + 2, 32)
        slot = np.zeros(len(left), dtype=np.uint32)
        for values, factor in zip(bits, factors, strict=True):
            slot ^= values.take(left) * factor
        slot >>= np.uint32(32 - size)
        table = np.empty(1 << size, dtype=np.int32)
        table[slot[::-1]] = left[::-1]
        first = table.take(slot)
        later = np.flatnonzero(first != left)
        left, first = left.take(later), first.take(later)
        same = np.ones(len(left), dtype=bool)
        for values in bits:
            same &= values.take(left) == values.take(first)
        returns[left[same]] = False
        left, factors = left[~same], factors * FACTORS
    return returns


def returns_of(scan: np.ndarray) -> np.ndarray:
    return scan.take(np.flatnonzero(are_returns(coordinates(scan))))


def return_columns(scan: np.ndarray) -> np.ndarray:
    """Return structured points (N,) as columns (N, 5), float64: `RETURN_COLUMNS`."""
    return np.column_stack([scan[name] for name in RETURN_COLUMNS]).astype(float)


def is_dense(points: np.ndarray) -> bool:
    """Return whether no structured point (N,) is a miss: not finite, or at the origin."""
    x, y, z = (points[name] for name in "xyz")
    return bool(np.isfinite(x).all() and not ((x == 0) & (y == 0) & (z == 0)).any())
