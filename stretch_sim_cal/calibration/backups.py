"""Backups of calibration files: every save keeps the replaced file, `rollback` restores the newest one.

Backups are a stack: two rollbacks undo two saves. The first save has no backup, and its rollback is an error. The
backups of a symbolic link are beside its target.
"""

import os
from pathlib import Path

from stretch_sim_cal import files
from stretch_sim_cal.errors import InputError

KEPT = 20
ROLLED_BACK = ".rolled_back"


def backups_of(path: str | Path) -> list[Path]:
    """Return the backups of `path`, oldest first."""
    path = _real(path)
    found = [p for p in path.parent.glob(f"{path.name}.backup-*") if p.name.rpartition("-")[2].isdigit()]
    return sorted(found, key=lambda p: int(p.name.rpartition("-")[2]))


def keep_backup(path: str | Path) -> Path | None:
    """Copy `path` to its newest backup and return that, or None if there is no file; the last `KEPT` backups stay.
    Raises `InputError` if the file cannot be read or the folder not written."""
    path = _real(path)
    if not path.exists():
        return None
    content = _read(path)
    existing = backups_of(path)
    if existing and _read(existing[-1]) == content:
        return existing[-1]
    number = int(existing[-1].name.rpartition("-")[2]) + 1 if existing else 1
    backup = path.with_name(f"{path.name}.backup-{number:04d}")
    files.write_atomic(backup, lambda stream: stream.write(content))
    for old in existing[: max(0, len(existing) + 1 - KEPT)]:
        old.unlink(missing_ok=True)
    return backup


def rollback(path: str | Path) -> Path:
    """Restore the newest backup of `path`, and return its path, which no longer exists. The replaced file is kept as
    `<name>.rolled_back`. Raises `InputError` if there is no backup."""
    path = _real(path)
    with files.locked(path):
        existing = backups_of(path)
        if not existing:
            raise InputError(f"{path}: there is no backup to roll back to ({path.name}.backup-* in {path.parent})")
        backup = existing[-1]
        content = _read(backup)
        if path.exists():
            replaced = _read(path)
            files.write_atomic(path.with_name(path.name + ROLLED_BACK), lambda stream: stream.write(replaced))
        files.write_atomic(path, lambda stream: stream.write(content))
        backup.unlink()
    return backup


def _real(path: str | Path) -> Path:
    return Path(os.path.realpath(path))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
