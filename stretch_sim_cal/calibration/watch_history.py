"""The drift monitor's history in a small SQLite file: all measurements, and all changes that were noticed."""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.calibration_file import default_path
from stretch_sim_cal.calibration.watch import Measurement
from stretch_sim_cal.errors import InputError

FILE_NAME = "calibration_watch.sqlite"
KEPT = 400 * 86400.0  # s: a year, and one to compare with. A look takes 2 kB
TABLES = """
CREATE TABLE IF NOT EXISTS looks (
    stamp REAL NOT NULL, calibration TEXT NOT NULL, place INTEGER NOT NULL, arm TEXT NOT NULL, refused TEXT NOT NULL,
    vectors TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS changes (
    stamp REAL NOT NULL, calibration TEXT NOT NULL, block TEXT NOT NULL, since REAL, value REAL NOT NULL,
    deviation REAL NOT NULL, sentence TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS looks_by_stamp ON looks (stamp);
"""


@dataclass(frozen=True)
class NoticedChange:
    """A change that was noticed at `stamp` (s), its time, size (m or rad) and standard deviation."""

    stamp: float
    calibration: str
    block: str
    since: float | None
    value: float
    deviation: float
    sentence: str


def default_history() -> Path:
    """Return where a robot's history is: beside its calibration file."""
    return default_path().with_name(FILE_NAME)


class History:
    """The file; `calibration` in its rows is the digest of the measurement's calibration file."""

    def __init__(self, path: Path, must_exist: bool = False):
        if must_exist and not path.is_file():
            raise InputError(f"{path}: there is no history yet; run ros_watch_calibration")
        self.path = path
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, timeout=10.0)
            # A reader never stops the monitor, and no row is truncated.
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.executescript(TABLES)

    def close(self) -> None:
        self._database.close()

    def add(self, look: Measurement, calibration: str) -> None:
        """Write a measurement, and delete those older than `KEPT`."""
        vectors = {name: [part.tolist() for part in parts] for name, parts in look.vectors.items()}
        row = (look.stamp, calibration, look.station, look.arm, json.dumps(look.refused), json.dumps(vectors))
        with self._errors(), self._database:
            self._database.execute("INSERT INTO looks VALUES (?, ?, ?, ?, ?, ?)", row)
            self._database.execute("DELETE FROM looks WHERE stamp < ?", (look.stamp - KEPT,))

    def note(self, change: NoticedChange) -> None:
        with self._errors(), self._database:
            self._database.execute("INSERT INTO changes VALUES (?, ?, ?, ?, ?, ?, ?)", tuple(vars(change).values()))

    def looks(self, since: float = 0.0, calibration: str | None = None) -> list[tuple[str, Measurement]]:
        """Return the measurements from a time (s) on, oldest first, with their calibrations; of one `calibration` if
        given."""
        query = "SELECT * FROM looks WHERE stamp >= ? AND (? IS NULL OR calibration = ?) ORDER BY stamp"
        with self._errors():
            rows = self._database.execute(query, (since, calibration, calibration)).fetchall()
        measurements = []
        for stamp, of_calibration, station, arm, refused, texts in rows:
            vectors = {name: tuple(np.array(part) for part in parts) for name, parts in json.loads(texts).items()}
            measurement = Measurement(stamp, station, vectors, arm, tuple(json.loads(refused)))
            measurements.append((of_calibration, measurement))
        return measurements

    def changes(self, since: float = 0.0) -> list[NoticedChange]:
        """Return the changes from a time (s) on, oldest first."""
        with self._errors():
            rows = self._database.execute("SELECT * FROM changes WHERE stamp >= ? ORDER BY stamp", (since,)).fetchall()
        return [NoticedChange(*row) for row in rows]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise InputError(f"{self.path}: {error}; move the file away to start a new history") from error
