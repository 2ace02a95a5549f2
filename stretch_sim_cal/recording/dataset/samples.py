"""A sample of a dataset, and its file."""

import zipfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.recording.dataset.metadata import METADATA


@dataclass(frozen=True)
class Sample:
    """One arm pose: joint values in m and rad, and the points seen in it.

    `commanded` and `actual` hold the values of `JOINTS` (`arm` is the whole extension); `joints` those of every joint
    by its name in the description where they were recorded, else it is empty. `points` (N, 3+) float32 in
    base_footprint are finite. `lidars` (N,) says which lidar saw each, 0 for the left and 1 for the right one, where
    that is known: where the raw clouds hold the same returns, the left ones first.
    """

    id: int
    commanded: dict[str, float]
    actual: dict[str, float]
    joints: dict[str, float]
    points: np.ndarray
    lidars: np.ndarray | None
    file: Path

    @property
    def name(self) -> str:
        """How messages name this sample."""
        return f"sample {self.id} ({self.file.name})"

    @cached_property
    def left(self) -> np.ndarray | None:
        """The left lidar's raw returns (N, 3+) float32 in its own frame, where they were kept; read when asked for."""
        return self._raw("left")

    @cached_property
    def right(self) -> np.ndarray | None:
        """The right lidar's raw returns, as `left`."""
        return self._raw("right")

    def _raw(self, name: str) -> np.ndarray | None:
        where = f"sample {self.id} ({self.file})"
        cloud = read_arrays(self.file, where, (name,)).get(name)
        return None if cloud is None else checked_cloud(cloud, f"{where}: {name}")


def read_sample(directory: Path, entry: dict, warnings: list[str]) -> Sample:
    """Return the sample of an entry of the metadata, and add to `warnings` what is odd about it.

    Raises `InputError` naming the sample where its file is missing, torn, no cloud, or disagrees with the entry.
    """
    path = directory / entry["file"]
    where = f"sample {entry['id']} ({path})"
    arrays = read_arrays(path, where, ("points",))
    if "points" not in arrays:
        raise InputError(f"{where}: holds no array 'points'")
    points = checked_cloud(arrays["points"], f"{where}: points")
    if entry.get("num_points", len(points)) != len(points):
        raise InputError(
            f"{where}: holds {len(points)} points, but {METADATA} says {entry['num_points']}; one is of another run"
        )
    lidars = _lidars(entry, len(points))
    finite = np.isfinite(points[:, :3]).all(axis=1)
    if not finite.all():
        warnings.append(f"{where}: {np.count_nonzero(~finite)} of {len(points)} points are not finite and left out")
        points, lidars = points[finite], None if lidars is None else lidars[finite]
    if not len(points):
        warnings.append(f"{where}: has no points")
    return Sample(entry["id"], entry["commanded"], entry["actual"], entry["joints"], points, lidars, path)


def read_arrays(path: Path, where: str, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return those arrays of an .npz file that are there. Raises `InputError` for a file that is missing or torn."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in names if name in archive}
    except FileNotFoundError as error:
        raise InputError(
            f"{where}: the file is missing, though {METADATA} lists it; collect this pose again"
        ) from error
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise InputError(f"{where}: is torn or no .npz file ({error}); collect this pose again") from error


def _lidars(entry: dict, count: int) -> np.ndarray | None:
    sizes = [entry.get("num_left"), entry.get("num_right")]
    if any(isinstance(size, bool) or not isinstance(size, int) or size < 0 for size in sizes) or sum(sizes) != count:
        return None
    return np.repeat(np.array([0, 1], dtype=np.uint8), sizes)


def checked_cloud(cloud, where: str) -> np.ndarray:
    """Return a cloud (N, 3+) as float32. Raises `InputError`, beginning with `where`, for anything else."""
    cloud = np.asarray(cloud)
    if cloud.ndim != 2 or cloud.shape[1] < 3 or cloud.dtype.kind not in "fiu":
        raise InputError(f"{where}: is {cloud.dtype} of shape {cloud.shape}, (N, 3 or more) numbers were expected")
    return np.ascontiguousarray(cloud, dtype=np.float32)
