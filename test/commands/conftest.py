import datetime

import numpy as np
import pytest
from made_results import alignment_result, floor_result, save

from stretch_sim_cal.calibration import verification
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.commands.described import described, load_description
from stretch_sim_cal.geometry.transforms import exp


@pytest.fixture(scope="session")
def right_to_left() -> np.ndarray:
    """The right lidar's pose (4, 4) in the left one, a few millimetres from the description's."""
    return exp([0.002, 0.001, -0.003, 0.005, 0.004, -0.006]) @ described(load_description(None)).to_left["right"]


@pytest.fixture
def calibration(tmp_path, right_to_left):
    """A file as a calibration of this package writes it: `right_to_left` and a tilted floor 29.5 mm below base_link."""
    now = datetime.datetime.now()
    alignment = alignment_result(right_to_left, variance=1e-9)
    file = CalibrationFile().with_alignment(alignment, "se4-1", now - datetime.timedelta(minutes=1))
    path = tmp_path / "dual_lidar_calibration.yaml"
    save(file.with_floor(floor_result(0.0295, (0.005, -0.01)), "se4-1", now), path)
    return path


@pytest.fixture
def found_once(monkeypatch):
    """What `verify` finds anew in a recording is found once for all of a test's calls."""
    anew, once = verification.reestimate, []
    monkeypatch.setattr(verification, "reestimate", lambda *given: (once or once.append(anew(*given)) or once)[0])
