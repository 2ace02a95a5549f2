"""Did the robot move against the floor while it looked? Every frame's own floor, and where the frames fall in two."""

from dataclasses import dataclass

import numpy as np

SIGNIFICANCE = 30.0  # chi square of three values: one in a million, since every place between two frames is tried


@dataclass(frozen=True)
class Motion:
    """The largest change of the floor between frames: after frame `after` (counted from 1) it lies `height` (m) and
    `tilt` (rad) off."""

    after: int
    height: float
    tilt: float


class FrameFloors:
    """The normal equations (3, 3) and (3,) of every frame's own floor, against one assumed floor."""

    def __init__(self):
        self._information: list[np.ndarray] = []
        self._pull: list[np.ndarray] = []

    def add(self, information: np.ndarray, pull: np.ndarray) -> None:
        """Add one frame's normal equations, both lidars together."""
        self._information.append(information)
        self._pull.append(pull)

    def motion(self) -> Motion | None:
        """Return the clearest split of the frames into two floors, None where chance explains it or there is one
        frame."""
        if len(self._pull) < 2:
            return None
        information, pull = np.cumsum(self._information, axis=0), np.cumsum(self._pull, axis=0)
        best, clearest = None, SIGNIFICANCE
        for split in range(len(pull) - 1):
            before = information[split], pull[split]
            after = information[-1] - information[split], pull[-1] - pull[split]
            if any(np.linalg.cond(part[0]) > 1e8 for part in (before, after)):
                continue
            covariances = [np.linalg.inv(part[0]) for part in (before, after)]
            change = covariances[1] @ after[1] - covariances[0] @ before[1]
            clarity = float(change @ np.linalg.solve(covariances[0] + covariances[1], change))
            if clarity > clearest:
                clearest = clarity
                best = Motion(split + 1, float(abs(change[0])), float(np.linalg.norm(change[1:])))
        return best
