"""Writes a dataset so that it is whole after every sample."""

import datetime
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_atomic, write_text, write_yaml
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.recording.dataset.metadata import (
    DESCRIPTION,
    FORMAT,
    FRAME,
    JOINTS,
    METADATA,
    SAME_POSE,
    checked_number,
    checked_pose,
    read_metadata,
    sha256,
)
from stretch_sim_cal.recording.dataset.samples import checked_cloud


class DatasetWriter:
    """Writes a dataset, sample by sample; every sample is complete on disk before the metadata names it.

    Opening a folder that already holds a dataset continues it: `samples` lists what is there, `holds` tells which
    poses can be left out. `description` is the URDF text; `info` (plain YAML values) is kept with the samples;
    `footprint_from_base_link` (4, 4) is the calibrated transform that `points` went through, where it is known.
    Raises `InputError` if the folder holds something else, another description, or cannot be written.
    """

    def __init__(
        self,
        directory: str | Path,
        description: str | None = None,
        info: Mapping | None = None,
        footprint_from_base_link: np.ndarray | None = None,
    ) -> None:
        self.directory = Path(directory)
        if (self.directory / METADATA).exists():
            self._metadata = read_metadata(self.directory)
            self._check_same(description, footprint_from_base_link)
        else:
            self._refuse_foreign_samples()
            self._metadata = {"format": FORMAT, "frame": FRAME, "created": _now(), "samples": []}
        if info:
            self._metadata["info"] = {**(self._metadata.get("info") or {}), **info}
        if description is not None:
            self._metadata["description_sha256"] = sha256(description)
            write_text(self.directory / DESCRIPTION, description)
        if footprint_from_base_link is not None:
            self._metadata["footprint_from_base_link"] = np.asarray(footprint_from_base_link, dtype=float).tolist()
        self._write_metadata()

    @property
    def samples(self) -> list[dict]:
        """The entries (`id`, `commanded`, `actual`, `joints`, `file`, `num_points`) that are on disk."""
        return list(self._metadata["samples"])

    def holds(self, commanded: Mapping[str, float]) -> bool:
        """Return whether a whole sample of this commanded pose is on disk."""
        pose = checked_pose(commanded, "commanded")
        return any(
            all(abs(entry["commanded"][joint] - pose[joint]) <= SAME_POSE for joint in JOINTS)
            for entry in self._metadata["samples"]
        )

    def write_sample(
        self,
        commanded: Mapping[str, float],
        actual: Mapping[str, float],
        points: np.ndarray,
        left: np.ndarray | None = None,
        right: np.ndarray | None = None,
        joints: Mapping[str, float] | None = None,
    ) -> Path:
        """Write one sample (see `Sample`) and return its file. Raises `InputError` for values that are no data.

        `left` and `right` (N, 3+) are raw returns in their lidar's own frame; best the same as in `points`, left first.
        """
        entry = {"commanded": checked_pose(commanded, "commanded"), "actual": checked_pose(actual, "actual")}
        if joints:
            entry["joints"] = {str(name): checked_number(value, f"joints: {name}") for name, value in joints.items()}
        clouds = {"points": checked_cloud(points, "points")}
        clouds |= {
            name: checked_cloud(cloud, name) for name, cloud in (("left", left), ("right", right)) if cloud is not None
        }
        number = 1 + max((sample["id"] for sample in self._metadata["samples"]), default=-1)
        path = self.directory / f"sample_{number:04d}.npz"
        write_atomic(path, lambda stream: np.savez_compressed(stream, **clouds))
        entry |= {"file": path.name, "num_points": len(clouds["points"])}
        entry |= {f"num_{name}": len(clouds[name]) for name in SIDES if name in clouds}
        self._metadata["samples"].append({"id": number, **entry})
        self._write_metadata()
        return path

    def write_skipped(self, skipped: list) -> None:
        """Keep the list (plain YAML values) of poses that were left out, and why."""
        self._metadata["skipped"] = list(skipped)
        self._write_metadata()

    def _write_metadata(self) -> None:
        write_yaml(self.directory / METADATA, self._metadata)

    def _refuse_foreign_samples(self) -> None:
        if any(self.directory.glob("sample_*.npz")):
            raise InputError(f"{self.directory}: holds samples but no {METADATA}; choose an empty folder")

    def _check_same(self, description: str | None, footprint_from_base_link: np.ndarray | None) -> None:
        known = self._metadata.get("description_sha256")
        if description is not None and known is not None and sha256(description) != known:
            raise InputError(
                f"{self.directory}: was recorded with another robot description; choose another folder to start anew"
            )
        stored = self._metadata.get("footprint_from_base_link")
        if footprint_from_base_link is None or stored is None:
            return
        if not np.allclose(np.array(stored), footprint_from_base_link, atol=1e-4):
            raise InputError(
                f"{self.directory}: was recorded with another floor calibration; choose another folder to start anew"
            )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
