"""A floor that is not flat: waves of some mm over metres, what of it lidars see, and how a robot stands on it."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.robot.surfaces import Surface, joined
from stretch_sim_cal.simulation.solids import Mesh

CELL = 0.1  # m, grid of an uneven floor
WAVES = 24
REACH = 20.0  # m; farther from the world's origin there is no floor if it is uneven
LEVEL = 1e-6  # m, of a flat floor's height


@dataclass(frozen=True)
class Undulation:
    """A sum of plane waves: of each the height (m) at a crest, the wave vector (2,) in rad/m and the phase (rad)."""

    amplitude: float
    vectors: np.ndarray
    phases: np.ndarray

    @classmethod
    def drawn(cls, rms: float, waves: tuple[float, float], random: np.random.Generator) -> "Undulation":
        """Return waves whose root mean square height is `rms` (m), of wavelengths (m) between two bounds."""
        lengths = np.exp(random.uniform(*np.log(waves), WAVES))
        ways, phases = random.uniform(0, np.pi, WAVES), random.uniform(0, 2 * np.pi, WAVES)
        vectors = 2 * np.pi / lengths[:, None] * np.stack([np.cos(ways), np.sin(ways)], axis=1)
        return cls(rms / np.sqrt(WAVES / 2), vectors, phases)

    def heights(self, points: np.ndarray) -> np.ndarray:
        """Return the heights (...,) in m at places (..., 2) of the world."""
        heights: np.ndarray = self.amplitude * np.cos(points @ self.vectors.T + self.phases).sum(axis=-1)
        return heights

    def stance(self, wheels: np.ndarray, x: float, y: float, yaw: float) -> tuple[float, float, float]:
        """Return height (m), roll and pitch (rad) of a base by the plane through its wheels (N, 2), in its footprint
        frame."""
        cosine, sine = np.cos(yaw), np.sin(yaw)
        under = self.heights(wheels @ np.array([[cosine, sine], [-sine, cosine]]) + [x, y])
        height, along, across = np.linalg.lstsq(np.column_stack([np.ones(len(wheels)), wheels]), under)[0]
        roll = np.arcsin(across / np.sqrt(1.0 + along**2 + across**2))
        return float(height), float(roll), float(-np.arctan(along))

    def laid(self, surfaces: Mapping[str, Surface], where: str) -> dict[str, Surface]:
        """Return a world's surfaces with this floor in place of the flat one; what stands on it stays in place. Raises
        `InputError` naming `where` without one at z = 0."""
        found = dict(surfaces)
        for name, surface in surfaces.items():
            corners = surface.triangles
            upward = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])[:, 2] > 0
            floor = upward & (np.abs(corners[:, :, 2]).max(axis=1) < LEVEL)
            if upward.any() and floor[upward].all():
                places = np.clip(corners[floor][..., :2], -REACH, REACH)
                sheet = Surface(*uneven_sheet(places.min((0, 1)), places.max((0, 1)), self))
                found[name] = joined([surface.with_faces(~floor), sheet])
        if all(found[name] is surface for name, surface in surfaces.items()):
            raise InputError(f"{where}: the world has no flat floor at z = 0")
        return found


def uneven_sheet(low: np.ndarray, high: np.ndarray, floor: Undulation) -> Mesh:
    """Return the floor as triangles over a rectangle between two corners (2,), its normals up."""
    counts = [max(2, int(np.ceil(extent / CELL)) + 1) for extent in high - low]
    grid = np.stack(
        np.meshgrid(*(np.linspace(*bounds, n) for *bounds, n in zip(low, high, counts, strict=True)), indexing="ij"),
        axis=-1,
    )
    vertices = np.concatenate([grid, floor.heights(grid)[..., None]], axis=-1).reshape(-1, 3)
    index = np.arange(len(vertices)).reshape(counts)
    a, b, c, d = (corner.ravel() for corner in (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]))
    return vertices, np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
