"""The surfaces that a lidar's rays meet, cast with Embree in single precision (a few micrometres off), and their
echoes: mirrors, glass, mixed pixels, second echoes, and retro-reflectors that bloom. None of 16 million rays slipped
between the triangles of closed shapes in Embree's fast mode."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene
from scipy.spatial import cKDTree

from stretch_sim_cal.geometry.points import lengths
from stretch_sim_cal.geometry.transforms import apply
from stretch_sim_cal.robot.surfaces import Surfaces
from stretch_sim_cal.sensor.sensor import Sensor
from stretch_sim_cal.simulation.lidar import Echoes, Lidar, Rays


class Scene:
    """Surfaces that do not move against each other, ready for rays in their common frame, or another one (`at`)."""

    def __init__(self, surfaces: Surfaces):
        self.names = list(surfaces)
        self.ends = np.cumsum([len(surface.faces) for surface in surfaces.values()], dtype=np.int64)
        self.num_triangles = int(self.ends[-1]) if len(self.ends) else 0
        self._embree = EmbreeScene()
        self._pose: np.ndarray | None = None
        if self.num_triangles:
            triangles = np.concatenate([surface.triangles for surface in surfaces.values()]).astype(np.float32)
            # One mesh for all: Embree keeps the order of triangles, so their number gives the surface.
            TriangleMesh(self._embree, triangles)
            corners = triangles.reshape(-1, 3)
            self._centre = (corners.min(axis=0) + corners.max(axis=0)) / 2
            self._radius = float(np.linalg.norm(corners - self._centre, axis=1).max())

    def at(self, pose: np.ndarray) -> "Scene":
        """Return these surfaces at a pose (4, 4) in another frame, or at poses (N, 4, 4), one for each of N rays."""
        placed = copy.copy(self)
        placed._pose = pose.astype(np.float32)
        if pose.ndim == 2 and self.num_triangles:
            placed._centre = apply(pose, self._centre[None])[0]
        return placed

    def intersect(self, origin: np.ndarray, directions: np.ndarray, limits: np.ndarray) -> dict:
        """Return Embree's `tfar`, `Ng`, `primID` (-1: no hit nearer than the limit) of rays from `origin`, (3,) or (N,
        3)."""
        pose = self._pose
        if pose is not None:
            turn = pose[..., :3, :3]
            origin = np.einsum("...ji,...j->...i", turn, np.asarray(origin) - pose[..., :3, 3])
            directions = np.einsum("...ji,...j->...i", turn, directions)
        origins = np.broadcast_to(np.asarray(origin, dtype=np.float32), directions.shape)
        # Embree writes the distances that it finds into the limits.
        found = self._embree.run(origins, directions, dists=limits.copy(), output=1)
        if pose is not None:
            found["Ng"] = np.einsum("...ij,...j->...i", turn, found["Ng"])
        return found

    def within_reach(self, origin: np.ndarray, directions: np.ndarray) -> np.ndarray | None:
        """Return the indices of the rays that pass the sphere around the surfaces; None for all."""
        if self._pose is not None and self._pose.ndim == 3:
            return None
        radius = self._radius
        if origin.ndim == 2:  # one origin for all, and a sphere as much larger as they are apart
            low, high = (np.array([bound(column) for column in origin.T]) for bound in (np.min, np.max))
            origin, radius = (low + high) / 2, radius + float(np.linalg.norm(high - low)) / 2
        to_centre = (self._centre - origin).astype(np.float32)
        beside = float(to_centre @ to_centre) - radius**2
        if beside <= 0:
            return None
        ahead = directions @ to_centre
        return np.flatnonzero((ahead > 0) & (ahead * ahead >= beside))


class Hits:
    """The first hit of each of N rays: `distances` (N,) float32 in m, inf where there is none."""

    def __init__(self, origin: np.ndarray, directions: np.ndarray, scenes: Sequence[Scene]):
        """Cast rays from `origin`, (3,) or (N, 3), along unit `directions` (N, 3) at scenes that are in one frame."""
        origin = np.asarray(origin)
        self._directions = np.ascontiguousarray(directions, dtype=np.float32)
        count = len(self._directions)
        self.names = [name for scene in scenes for name in scene.names]
        self.distances = np.full(count, np.inf, dtype=np.float32)
        self._normals = np.zeros((count, 3), dtype=np.float32)
        self._triangles = np.full(count, -1, dtype=np.int64)
        ends, before = [np.zeros(0, np.int64)], 0
        for scene in scenes:
            ends.append(scene.ends + before)
            if scene.num_triangles:
                self._add(origin, scene, before)
            before += scene.num_triangles
        self._ends = np.concatenate(ends)

    def incidence_cosines(self) -> np.ndarray:
        """Return the absolute cosines (N,) between ray and surface normal; 0 without a hit."""
        along = np.abs(np.einsum("ij,ij->i", self._normals, self._directions))
        return along / np.maximum(lengths(self._normals), np.float32(1e-30))

    def surfaces(self) -> np.ndarray:
        """Return the index (N,) into `names` of the surface that each ray hits, -1 without a hit."""
        counts = np.diff(self._ends, prepend=0)
        of_triangle = np.append(np.repeat(np.arange(len(counts)), counts), -1)  # the last is of misses
        return of_triangle.take(self._triangles, mode="wrap")

    def normals(self, rays: np.ndarray) -> np.ndarray:
        """Return the unit normals (M, 3), either side's, of what some rays, an index, hit."""
        normals = self._normals[rays]
        return normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.float32(1e-30))

    def _add(self, origin: np.ndarray, scene: Scene, before: int) -> None:
        rays = scene.within_reach(origin, self._directions)
        if rays is None:
            found = scene.intersect(origin, self._directions, self.distances)
        else:
            begin = origin.take(rays, axis=0) if origin.ndim == 2 else origin
            found = scene.intersect(begin, self._directions.take(rays, axis=0), self.distances.take(rays))
        hit = np.flatnonzero(found["primID"] >= 0)
        nearer = hit if rays is None else rays.take(hit)
        self.distances[nearer] = found["tfar"].take(hit)
        self._normals[nearer] = found["Ng"].take(hit, axis=0)
        self._triangles[nearer] = found["primID"].take(hit) + before


MAX_BOUNCES = 4  # A ray that was turned by a mirror, or went through glass, so often comes to nothing
BEYOND = 1e-4  # m; where a ray goes on, so that it does not meet the same surface again
# Glass returns a pulse by itself if it comes in within 8 deg of straight on, as strongly as a
# surface of this reflectivity.
STRAIGHT = 0.99
GLASS_REFLECTIVITY = 0.3
RETRO_REFLECTOR = 1.0  # above this reflectivity a surface blooms

Cast = Callable[[np.ndarray, np.ndarray, np.ndarray | None], Hits]
"""Casts a scan's rays of these numbers (N,), None for all, from origins, (3,) or (N, 3), along directions (N, 3)."""


@dataclass(frozen=True)
class Material:
    """How a surface returns light: `reflectivity` (1: white, more: a retro-reflector; None: the sensor file's), the
    share of light that it mirrors, and the share that passes a pane of `glass`, in at one face and out at the other."""

    reflectivity: float | None = None
    mirror: float = 0.0
    glass: float = 0.0


@dataclass
class Seen(Echoes):
    """What N rays meet: `distances` along the whole path, and `surfaces` (N,), indices of names, -1 for nothing."""

    surfaces: np.ndarray

    def copied(self) -> "Seen":
        return Seen(*(getattr(self, name).copy() for name in self.__dataclass_fields__))

    def put(self, rows: np.ndarray, other: "Seen", of: np.ndarray) -> None:
        """Take what `other` has along its rays `of` for the rays `rows`."""
        for name in self.__dataclass_fields__:
            getattr(self, name)[rows] = getattr(other, name)[of]


class Optics:
    """The materials of surfaces by name; those that have none are of `reflectivity`."""

    def __init__(self, materials: Mapping[str, Material], reflectivity: float):
        self._materials = materials
        self._default = Material(reflectivity)
        self._has_panes = any(material.mirror or material.glass for material in materials.values())
        self._has_reflectors = any((m.reflectivity or 0.0) > RETRO_REFLECTOR for m in materials.values())

    def scan(
        self, lidar: Lidar, rays: Rays, root_from_lidar: np.ndarray, cast: Cast
    ) -> tuple[Seen, Seen | None, list[str]]:
        """Return what the rays of a lidar at root_from_lidar (4, 4) see, what else they see (distances inf for
        nothing), and the surfaces' names. `cast` casts in the root frame. For a sensor of dual returns the former is
        the last echo and the latter the strongest; for others the former is the strongest."""
        sensor = lidar.sensor
        turn, origins = root_from_lidar[:3, :3].T.astype(np.float32), root_from_lidar[:3, 3]
        if rays.origins is not None:
            origins = rays.origins @ turn + origins.astype(np.float32)
        seen, other, names = self._see(origins, rays.directions @ turn, cast)
        if sensor.beam_divergence:
            edge, _, _ = self._see(origins, lidar.beam_edge(rays) @ turn, cast)
            other = _spread(seen, other, edge, lidar.shares("mix", rays.tick), sensor)
        if other is not None and not sensor.dual_return:
            strongest = np.flatnonzero(np.isfinite(other.distances))
            seen.put(strongest, other, strongest)
            other = None
        if sensor.blooming and self._has_reflectors:
            _bloom(seen, rays.directions, sensor.blooming, lidar.shares("bloom", rays.tick))
        return seen, other, names

    def reflectivities(self, hits: Hits) -> np.ndarray:
        """Return the reflectivities (N,) of what rays hit first; 0 without a hit."""
        return self._table("reflectivity", hits).take(hits.surfaces(), mode="wrap")

    def _table(self, kind: str, hits: Hits) -> np.ndarray:
        """Return what is of that `kind` of the surfaces' materials, and last 0 for misses, whose index is -1."""
        given = [getattr(self._materials.get(name, self._default), kind) for name in hits.names]
        usual = self._default.reflectivity
        return np.array([*(usual if each is None else each for each in given), 0.0], dtype=np.float32)

    def _see(self, origins: np.ndarray, directions: np.ndarray, cast: Cast) -> tuple[Seen, Seen | None, list[str]]:
        hits = cast(origins, directions, None)
        seen = Seen(hits.distances, hits.incidence_cosines(), self.reflectivities(hits), hits.surfaces())
        glass = self._follow(seen, hits, origins, directions, cast) if self._has_panes else None
        return seen, glass, hits.names

    def _follow(self, seen: Seen, hits: Hits, origins: np.ndarray, directions: np.ndarray, cast: Cast) -> Seen | None:
        """Let rays that met a mirror or glass go on, and put what they finally see into `seen`; return the glass's
        echoes, None without any."""
        table, mirrors, panes = (self._table(kind, hits) for kind in ("reflectivity", "mirror", "glass"))
        rows = np.flatnonzero((mirrors + panes)[seen.surfaces] > 0)
        if not len(rows):
            return None
        glass = None
        straight = rows[(panes[seen.surfaces[rows]] > 0) & (seen.cosines[rows] > STRAIGHT)]
        if len(straight):
            glass = seen.copied()
            glass.distances[:] = np.inf
            glass.put(straight, seen, straight)
            glass.reflectivities[straight] = GLASS_REFLECTIVITY
        ways = directions[rows]
        begins = origins[rows] if origins.ndim == 2 else np.broadcast_to(origins, ways.shape)
        lengths, shares = np.zeros(len(rows), np.float32), np.ones(len(rows), np.float32)
        first = seen.surfaces[rows].copy()
        surfaces, steps, normals = first, seen.distances[rows], hits.normals(rows)
        for _ in range(MAX_BOUNCES):
            mirror = mirrors[surfaces] > 0
            begins = begins + steps[:, None] * ways
            along = np.einsum("ni,ni->n", ways, normals)
            ways = np.where(mirror[:, None], ways - 2 * along[:, None] * normals, ways).astype(np.float32)
            begins = (begins + BEYOND * ways).astype(np.float32)
            lengths = lengths + steps + np.float32(BEYOND)
            shares = shares * np.where(mirror, mirrors[surfaces], np.sqrt(panes[surfaces]))
            onward = cast(begins, ways, rows)
            surfaces, steps = onward.surfaces(), onward.distances
            seen.distances[rows] = lengths + steps
            seen.cosines[rows] = onward.incidence_cosines()
            # Light goes there and back.
            seen.reflectivities[rows] = table[surfaces] * shares**2
            # What is seen in a mirror lies on nothing; the mirror is what the ray met.
            seen.surfaces[rows] = np.where(panes[first] > 0, surfaces, first)
            again = np.flatnonzero((mirrors + panes)[surfaces] > 0)
            if not len(again):
                return glass
            normals = onward.normals(again)
            rows, first, ways, begins, lengths, shares, surfaces, steps = (
                values[again] for values in (rows, first, ways, begins, lengths, shares, surfaces, steps)
            )
        seen.distances[rows] = np.inf
        return glass


def _spread(seen: Seen, other: Seen | None, edge: Seen, shares: np.ndarray, sensor: Sensor) -> Seen | None:
    """Let the beam's edge, with `shares` (N,) of its light, return as well: merged with what is `seen` within the
    pulse's length, else as a second echo, or neither if the light is halved. `seen` becomes the last echo, the
    strongest is returned; both may be one."""
    both = np.isfinite(seen.distances) & np.isfinite(edge.distances)
    apart = np.where(both, edge.distances, 0.0) - np.where(both, seen.distances, 0.0)
    near = ~both | (np.abs(apart) < sensor.pulse_length)  # or one of the two alone
    seen.distances += np.where(near, shares * apart, 0.0).astype(np.float32)
    rows = np.flatnonzero(~near)
    if not len(rows):
        return other
    if other is None:
        other = seen.copied()
        other.distances[:] = np.inf
    weaker = shares[rows] * edge.reflectivities[rows] * edge.cosines[rows]
    stronger = (1 - shares[rows]) * seen.reflectivities[rows] * seen.cosines[rows] >= weaker
    farther = apart[rows] < 0  # what is seen is the last one
    for strongest, mixed in ((edge, rows[~stronger & farther]), (seen, rows[stronger & ~farther])):
        other.put(mixed, strongest, mixed)
    seen.put(rows[~farther], edge, rows[~farther])
    lost = rows[np.abs(shares[rows] - 0.5) < 0.5 * sensor.edge_drop_out]
    seen.distances[lost] = other.distances[lost] = np.inf
    return other


def _bloom(seen: Seen, directions: np.ndarray, radius: float, shares: np.ndarray) -> None:
    """Let rays within `radius` (rad) of one that meets a retro-reflector return its range, more likely the nearer they
    are, if they pass in front of what they would return."""
    reflectors = np.flatnonzero(seen.reflectivities > RETRO_REFLECTOR)
    if not len(reflectors):
        return
    bright = directions[reflectors]
    centre = bright.mean(axis=0)
    centre /= max(float(np.linalg.norm(centre)), 1e-6)
    widest = min(float(np.arccos(np.clip((bright @ centre).min(), -1.0, 1.0))) + radius, np.pi)
    around = np.flatnonzero((directions @ centre > np.cos(widest)) & (seen.reflectivities <= RETRO_REFLECTOR))
    chords, nearest = cKDTree(bright).query(directions[around], distance_upper_bound=2 * np.sin(radius / 2))
    close = np.flatnonzero(np.isfinite(chords))
    rows, sources, strength = around[close], reflectors[nearest[close]], 1.0 - chords[close] / (2 * np.sin(radius / 2))
    blooms = (shares[rows] < strength**2) & (seen.distances[sources] < seen.distances[rows])
    rows, sources = rows[blooms], sources[blooms]
    seen.put(rows, seen, sources)
    seen.reflectivities[rows] = strength[blooms] ** 2
