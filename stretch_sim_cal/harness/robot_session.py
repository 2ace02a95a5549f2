"""The calibration of a robot as one session on disk: the stages write into a separate folder, which moves into the
robot's place when it is accepted. `state.json` is written after every stage; one that was cut off is run again."""

import contextlib
import datetime
import fcntl
import glob
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stretch_sim_cal.calibration.body.model import CONFIGURATIONS
from stretch_sim_cal.calibration.body.settings import own_model_path
from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_path, default_robot_id
from stretch_sim_cal.calibration.observations import path_beside
from stretch_sim_cal.calibration.values_file import default_values_path
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import ROLLED_BACK, keep_backup, read_text, rollback, write_atomic, write_text
from stretch_sim_cal.files import locked as locked_file
from stretch_sim_cal.harness.processes import RunFiles

STATE, LOCK = "state.json", ".lock"
KEPT, DONE = "kept", "done"


@dataclass(frozen=True)
class Target:
    """A file of the robot: where the session stages it, and where it belongs."""

    name: str
    staged: Path
    place: Path


@dataclass
class Session:
    """A session in `folder`: the `stages` that have ended (`how`: `KEPT` or `DONE`), times at which it was `begun` and
    `accepted` (None until then), and in `base` the digests of the robot's files when it began."""

    folder: Path
    robot_id: str
    begun: str
    base: dict[str, str | None]
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    accepted: dict[str, Any] | None = None
    continued: bool = False

    @property
    def files(self) -> RunFiles:
        return RunFiles(self.folder, self.robot_id)

    @property
    def old(self) -> CalibrationFile:
        """The robot's calibration when the session began."""
        return CalibrationFile.load_or_empty(self.folder / "before.yaml")

    @property
    def new(self) -> CalibrationFile:
        """The calibration that is staged."""
        return CalibrationFile.load_or_empty(self.files.calibration)

    @property
    def targets(self) -> list[Target]:
        """The robot's files that a session may change."""
        files, place = self.files, default_path()
        targets = [
            Target("calibration", files.calibration, place),
            Target("observations", path_beside(files.calibration), path_beside(place)),
            Target("body shape", files.body_shape_model, own_model_path()),
        ]
        with contextlib.suppress(InputError):  # HELLO_FLEET_ID is not set: the nodes record no joints then
            values = default_values_path()
            targets.append(Target("values", default_values_path(files.environment), values))
        return targets

    @classmethod
    def open(cls, folder: Path) -> "Session":
        """Continue the session in `folder`, or begin one. Raises `InputError` for a folder of something else or another
        robot."""
        if not (folder / STATE).is_file():
            return cls._begin(folder)
        session = cls.load(folder)
        if session.robot_id != default_robot_id():
            whose = f"holds a calibration of robot {session.robot_id}, this one is {default_robot_id()}"
            raise InputError(f"{folder}: {whose}; set HELLO_FLEET_ID, or discard it with --discard")
        session.continued = True
        return session

    @classmethod
    def load(cls, folder: Path) -> "Session":
        """Return the session of a folder. Raises `InputError` if it holds none."""
        path = folder / STATE
        try:
            state = json.loads(read_text(path))
            return cls(folder, state["robot_id"], state["begun"], state["base"], state["stages"], state["accepted"])
        except (ValueError, KeyError, TypeError) as problem:
            raise InputError(f"{path}: is damaged ({problem}); move {folder} away and start over") from problem

    @classmethod
    def _begin(cls, folder: Path) -> "Session":
        present = [path for path in folder.iterdir() if path.name != LOCK] if folder.is_dir() else []
        if any(path.name not in ("fleet", "before.yaml") for path in present):
            raise InputError(f"{folder}: contains {present[0].name} but no {STATE}; name another folder with --work")
        for path in present:  # of a session that was killed before its first state was written
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        session = cls(folder, default_robot_id(), _now(), {})
        for target in session.targets:
            session.base[target.name] = _digest(target.place)
            _copy(target.place, target.staged)
        _copy(default_path(), folder / "before.yaml")
        place, staged = default_path().parent, session.files.calibration.parent
        _copy(place / "body_shape.yaml", staged / "body_shape.yaml")  # the robot's own settings
        for name in CONFIGURATIONS:
            _copy(place.parent / name, staged.parent / name)
        session.save()
        return session

    def save(self) -> None:
        names = ("robot_id", "begun", "base", "stages", "accepted")
        write_text(self.folder / STATE, json.dumps({name: getattr(self, name) for name in names}, indent=1) + "\n")

    def ended(self, stage: str, how: str, said: str = "") -> None:
        """Note that a stage has ended well."""
        self.stages[stage] = {"how": how, "said": said, "at": _now()}
        self.save()

    def accept(self) -> list[Path]:
        """Move what is staged into the robot's place, with backups, close the session, and return the files. It can be
        cut off and called again. Raises `Refused` if another program has changed the robot's files since."""
        targets, wanted = self.targets, {target.name: _digest(target.staged) for target in self.targets}

        def is_known(target: Target) -> bool:
            return _digest(target.place) in (self.base[target.name], wanted[target.name])

        if others := [target for target in targets if not is_known(target)]:
            raise Refused(
                f"{others[0].place}: was changed by another program since this calibration began ({self.begun}); its "
                "present content would be lost. Start over (--discard), or move it away and accept again"
            )
        changed = [each for each in targets if wanted[each.name] not in (None, self.base[each.name])]
        for target in changed:
            with locked_file(target.place):
                if not is_known(target):
                    raise Refused(f"{target.place}: has just been changed by another program; run this again")
                if _digest(target.place) != wanted[target.name]:
                    keep_backup(target.place)
                    _copy(target.staged, target.place)
        self.accepted = {"at": _now(), "files": {target.name: wanted[target.name] for target in changed}}
        self.save()
        self.close()
        return [target.place for target in changed]

    def roll_back(self) -> list[Path]:
        """Bring back the robot's files as before this session. Raises `Refused` if one was changed since."""
        changed = [target for target in self.targets if target.name in (self.accepted or {}).get("files", {})]
        for target in changed:
            if _digest(target.place) not in (self.accepted["files"][target.name], self.base[target.name]):
                raise Refused(f"{target.place}: was changed since {self.accepted['at']}; undo that first")
        for target in changed:
            if _digest(target.place) == self.base[target.name]:
                continue
            if self.base[target.name] is None:  # there was none before
                os.replace(target.place, target.place.with_name(target.place.name + ROLLED_BACK))
            else:
                rollback(target.place)
        self.accepted["rolled_back"] = _now()
        self.save()
        return [target.place for target in changed]

    def close(self) -> Path:
        """Put the session's folder aside under the time at which it began, and return where it is."""
        begun = datetime.datetime.fromisoformat(self.begun)
        aside = self.folder.with_name(f"{self.folder.name}_{begun:%Y%m%d_%H%M%S}")
        aside = unused(aside) if aside.exists() else aside
        os.replace(self.folder, aside)
        self.folder = aside
        return aside


def unused(path: Path) -> Path:
    """Return a path beside one that exists, its name with the first number from 2 on that is free."""
    beside = (path.with_name(f"{path.name}_{number}") for number in itertools.count(2))
    return next(free for free in beside if not free.exists())


def _now() -> str:
    return datetime.datetime.now().isoformat(timespec="seconds")


def default_folder() -> Path:
    return default_path().parent / "calibrate_robot"


def last_accepted(folder: Path) -> Session:
    """Return the latest session beside `folder` that was accepted, not rolled back. Raises `InputError` without one."""
    closed = [Session.load(path.parent) for path in folder.parent.glob(f"{glob.escape(folder.name)}_*/{STATE}")]
    closed = [session for session in closed if session.accepted and "rolled_back" not in session.accepted]
    if not closed:
        raise InputError(f"{folder.parent}: there is no accepted calibration to roll back")
    return max(closed, key=lambda session: session.accepted["at"])


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a session's folder. Raises `InputError` if another process does."""
    path = folder.with_name(f".{folder.name}{LOCK}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path, "a")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; set HELLO_FLEET_PATH, or --work") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(f"{folder}: another calibration of this robot is in progress") from error
        yield


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _copy(source: Path, target: Path) -> None:
    if source.is_file():
        content = source.read_bytes()
        write_atomic(target, lambda stream: stream.write(content))
