"""What all shapes share, and two pieces of geometry that they use."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from stretch_sim_cal.errors import InputError


class Shape(ABC):
    """A convex region of the plane."""

    @property
    @abstractmethod
    def area(self) -> float:
        """Area in m^2."""

    @abstractmethod
    def signed_distance(self, points: np.ndarray) -> np.ndarray:
        """Return the distance (N,) of points (N, 2) from the boundary, negative inside."""

    @abstractmethod
    def support(self, directions: np.ndarray) -> np.ndarray:
        """Return how far the shape reaches (N,) along unit vectors (N, 2), from the origin."""

    @abstractmethod
    def outline(self, count: int = 72) -> np.ndarray:
        """Return points (count, 2) on the boundary, counterclockwise, the last unlike the first."""

    @abstractmethod
    def covers(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return which (N,) of points at `x` (N,) and `y` (N,) are inside, quickly and in their precision."""

    @abstractmethod
    def inflated(self, margin: float) -> "Shape":
        """Return the shape grown by a margin, which may be negative."""

    @property
    def parameters(self) -> dict:
        """The numbers that define the shape by the names of the model file."""
        return {field.name: float(getattr(self, field.name)) for field in fields(self)}

    @property
    def vector(self) -> np.ndarray:
        """The numbers of `parameters` in their order."""
        return np.array([getattr(self, name) for name in self.__dataclass_fields__], dtype=float)

    @classmethod
    def from_vector(cls, vector: np.ndarray) -> "Shape":
        """Return the shape of a `vector`."""
        return cls(*(float(value) for value in vector))

    @classmethod
    def from_parameters(cls, parameters: dict) -> "Shape":
        """Return the shape of `parameters`. Raises `InputError` where one is missing or no finite number."""
        names = [field.name for field in fields(cls)]
        try:
            vector = np.array([float(parameters[name]) for name in names])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"a {cls.__name__} needs the numbers {', '.join(names)}: {error}") from error
        if not np.isfinite(vector).all():
            raise InputError(f"a {cls.__name__} needs finite numbers {', '.join(names)}")
        return cls.from_vector(vector)

    def contains(self, points: np.ndarray, tolerance: float = 0.0) -> np.ndarray:
        """Return which (N,) of points (N, 2) are inside, or outside by at most `tolerance`."""
        return self.signed_distance(points) <= tolerance

    def protrusion(self, points: np.ndarray) -> float:
        """Return how far points (N, 2) reach outside at most; 0 where none does."""
        return float(max(0.0, self.signed_distance(points).max(initial=0.0)))

    @classmethod
    def protrusions(cls, vectors: np.ndarray, hulls: Sequence[np.ndarray]) -> np.ndarray:
        """Return how far each of P hulls (K, 2), none of them empty, reaches outside the shape of its row of `vectors`
        (P, V) at most, (P,)."""
        return np.array([cls.from_vector(v).protrusion(hull) for v, hull in zip(vectors, hulls, strict=True)])

    def grown_to_enclose(self, points: np.ndarray) -> "Shape":
        """Return this shape, grown evenly where points (N, 2) reach outside."""
        reach = self.protrusion(points)
        return self if reach == 0.0 else self.inflated(reach * (1 + 1e-12) + 1e-12)


def meeting_points(normals: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return where each line `normal . p = offset` (K of them, cyclic) meets the one before it, (K, 2)."""
    before, offsets_before = np.roll(normals, 1, axis=0), np.roll(offsets, 1)
    determinant = before[:, 0] * normals[:, 1] - before[:, 1] * normals[:, 0]
    x = (offsets_before * normals[:, 1] - offsets * before[:, 1]) / determinant
    y = (offsets * before[:, 0] - offsets_before * normals[:, 0]) / determinant
    return np.stack([x, y], axis=1)


def turned(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return cosines and sines (count,) of angles evenly over the whole turn."""
    angles = np.arange(count) * (2 * np.pi / count)
    return np.cos(angles), np.sin(angles)
