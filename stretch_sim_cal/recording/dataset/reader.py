"""Reads a whole dataset, and says what is odd about it."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import read_text
from stretch_sim_cal.geometry.transforms import check_rigid
from stretch_sim_cal.recording.dataset.metadata import DESCRIPTION, JOINTS, METADATA, SAME_POSE, read_metadata, sha256
from stretch_sim_cal.recording.dataset.samples import Sample, read_sample


@dataclass(frozen=True)
class Dataset:
    """All samples of a folder, the description they were recorded with, and what is odd about them."""

    directory: Path
    samples: list[Sample]
    description_file: Path | None
    footprint_from_base_link: np.ndarray | None
    info: dict
    skipped: list
    created: str
    warnings: list[str] = field(default_factory=list)


def read_dataset(directory: str | Path) -> Dataset:
    """Return the whole dataset in a folder, points that are not finite left out with a warning.

    Raises `InputError` naming the sample where a file is missing, torn or no cloud, or where the metadata is wrong
    or disagrees with the files.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise InputError(f"{directory}: no such folder")
    metadata = read_metadata(directory)
    warnings: list[str] = []
    samples = [read_sample(directory, entry, warnings) for entry in metadata["samples"]]
    if not samples:
        raise InputError(f"{directory / METADATA}: lists no samples; collect some first")
    warnings += _oddities(directory, samples)
    transform = metadata.get("footprint_from_base_link")
    description = directory / DESCRIPTION
    known = metadata.get("description_sha256")
    if known and not description.is_file():
        warnings.append(f"{description}: is missing, though the samples were recorded with it")
    elif known and sha256(read_text(description)) != known:
        warnings.append(f"{description}: is not the description that the samples were recorded with")
    return Dataset(
        directory,
        samples,
        description if description.is_file() else None,
        None if transform is None else check_rigid(transform, f"{directory / METADATA}: footprint_from_base_link"),
        dict(metadata.get("info") or {}),
        list(metadata.get("skipped") or []),
        str(metadata.get("created", "unknown")),
        warnings,
    )


def _oddities(directory: Path, samples: list[Sample]) -> list[str]:
    """Return a warning for every file that nothing names and every pose that is there twice."""
    named = {sample.file.name for sample in samples}
    found = [
        f"{path}: is not in {METADATA} and not used"
        for path in sorted(directory.glob("sample_*.npz"))
        if path.name not in named
    ]
    poses: dict[tuple, Sample] = {}
    for sample in samples:
        pose = tuple(round(sample.commanded[joint] / SAME_POSE) for joint in JOINTS)
        if pose in poses:
            found.append(f"{sample.name}: has the same commanded pose as {poses[pose].name}")
        poses.setdefault(pose, sample)
    return found
