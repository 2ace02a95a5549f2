"""The calibration file as a running node sees it: read at the start, and again whenever it changes."""

from collections.abc import Callable
from pathlib import Path

from stretch_sim_cal.calibration.calibration_file import CalibrationFile, default_path, default_robot_id
from stretch_sim_cal.errors import InputError

LOOK_EVERY = 1.0
CALIBRATE = "run ros_align_dual_lidar, then ros_find_floor_calibration"


def usable_calibration(path: str | Path) -> CalibrationFile:
    """Read a calibration file that can be put to use.

    Raises `InputError` where it is missing, broken, contradicts itself or holds no calibration.
    """
    if not Path(path).exists():
        raise InputError(f"{path}: there is no calibration yet; {CALIBRATE}")
    file = CalibrationFile.load(path)
    if file.contradictions:
        raise InputError(f"{path}: contradicts itself: {'; '.join(file.contradictions)}; calibrate again or roll back")
    if file.right_to_left is None and file.footprint_from_base is None:
        raise InputError(f"{path}: holds no calibration; {CALIBRATE}")
    return file


class CalibrationWatch:
    """Keeps `file` up to date; `changed` is called after each change. A change for the worse is a warning, once."""

    def __init__(self, context, changed: Callable[[], None] = lambda: None):
        self.path = Path(context.options.calibration_file or default_path()).expanduser()
        self._log = context.log
        self._changed = changed
        self._version = self._look()
        self.file = usable_calibration(self.path)
        self._warn_of_gaps()
        context.every(LOOK_EVERY, self._refresh)

    def _look(self) -> tuple | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _refresh(self) -> None:
        version = self._look()
        if version == self._version:
            return
        self._version = version
        try:
            self.file = usable_calibration(self.path)
        except InputError as error:
            self._log.warning(f"{error}; what was read before stays in use")
            return
        self._log.info(f"{self.path} has changed and is read again")
        self._warn_of_gaps()
        self._changed()

    def _warn_of_gaps(self) -> None:
        if self.file.right_to_left is None:
            self._log.warning(f"{self.path} holds no alignment of the lidars; run ros_align_dual_lidar")
        if self.file.footprint_from_base is None:
            self._log.warning(f"{self.path} holds no floor; run ros_find_floor_calibration")
        ours = default_robot_id()
        others = {entry.robot_id for entry in self.file.entries.values()} - {ours, None, "unknown"}
        if others and ours != "unknown":
            self._log.warning(f"{self.path} was made for {', '.join(sorted(others))}, this robot is {ours}")
