import pytest

from stretch_sim_cal.calibration import verification


@pytest.fixture
def found_once(monkeypatch):
    """What `verify` finds anew in a recording is found once for all of a test's calls."""
    anew, once = verification.found_anew, []
    monkeypatch.setattr(verification, "found_anew", lambda *given: (once or once.append(anew(*given)) or once)[0])
