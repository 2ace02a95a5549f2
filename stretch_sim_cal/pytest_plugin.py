"""pytest plugin: simulated lidars, their calibration and the truth as fixtures, in one process and without ROS.

    @pytest.mark.simcal(robot="my_robot.yaml", world="furnished_room", seeds=range(3))
    def test_my_lidars_are_calibrated(calibration, assert_calibrated):
        assert_calibrated(calibration, mm=1.0, deg=0.02, nees=3.0, floor_mm=2.0)

Nothing of the package is imported before a test asks for a fixture.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

MARKER = "simcal"
KEYS = ("robot", "world", "sensor", "seed", "seeds", "frames", "mount_errors", "simulation")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the plugin's options."""
    parser.getgroup("stretch_sim_cal").addoption(
        "--simcal-artifacts", type=Path, metavar="DIR",
        help="keep the clouds and the result of calibrations that are not as asserted, in a folder per test",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}({', '.join(f'{key}=' for key in KEYS)}): what the fixtures sim, rig, truth and calibration "
        "simulate, as of stretch_sim_cal.simulate; seeds runs the test once for each",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each of its marker's seeds."""
    marker = metafunc.definition.get_closest_marker(MARKER)
    if marker is not None and "seeds" in marker.kwargs and "simcal_seed" in metafunc.fixturenames:
        seeds = list(marker.kwargs["seeds"])
        metafunc.parametrize("simcal_seed", seeds, ids=[f"seed{seed}" for seed in seeds], indirect=True)


@pytest.fixture
def simcal_seed(request: pytest.FixtureRequest) -> int:
    """The seed of what is simulated: the marker's."""
    marker = request.node.get_closest_marker(MARKER)
    return getattr(request, "param", 1 if marker is None else marker.kwargs.get("seed", 1))


@pytest.fixture
def sim(request: pytest.FixtureRequest, simcal_seed: int) -> Any:
    """What the lidars see (`stretch_sim_cal.Simulated`), as the marker `simcal` says."""
    from stretch_sim_cal import simulate

    marker = request.node.get_closest_marker(MARKER)
    asked = {} if marker is None else dict(marker.kwargs)
    unknown = [*(() if marker is None else marker.args), *(key for key in asked if key not in KEYS)]
    if unknown:
        pytest.fail(f"marker {MARKER}: {unknown[0]!r} is none of its keys: {', '.join(KEYS)}", pytrace=False)
    asked.pop("seeds", None)
    asked["seed"] = simcal_seed
    if _is_file(asked.get("robot"), request.path.parent):
        asked["robot"] = request.path.parent / asked["robot"]
    return simulate(**asked)


def _is_file(name: Any, folder: Path) -> bool:
    return isinstance(name, str | Path) and (folder / name).is_file()


@pytest.fixture
def rig(sim: Any) -> Any:
    """The simulated robot's lidars as they are described (`stretch_sim_cal.Rig`)."""
    return sim.rig


@pytest.fixture
def truth(sim: Any) -> Any:
    """Where they really are (`stretch_sim_cal.Truth`)."""
    return sim.truth


@pytest.fixture
def calibration(sim: Any) -> Any:
    """The calibration of what is simulated (`stretch_sim_cal.Result`)."""
    from stretch_sim_cal import calibrate

    return calibrate(sim.rig, sim.clouds)


@pytest.fixture
def assert_calibrated(request: pytest.FixtureRequest, sim: Any, record_property: Callable) -> Callable:
    """A function `assert_calibrated(result, mm=, deg=, nees=, floor_mm=, floor_deg=)` that asserts that a result is
    accepted and as near to the truth; bounds that are not given are not judged. What is found is a property of the
    test (JUnit XML)."""

    def judge(
        result: Any, *, mm: float | None = None, deg: float | None = None, nees: float | None = None,
        floor_mm: float | None = None, floor_deg: float | None = None,
    ) -> None:  # fmt: skip
        __tracebackhide__ = True
        errors = result.errors(sim.truth)
        floor = errors.floor
        rows = [
            ("lidars: translation", errors.mm, mm, "mm"), ("lidars: rotation", errors.deg, deg, "deg"),
            ("NEES per freedom", errors.nees, nees, ""),
            ("floor: height", None if floor is None else floor.height_mm, floor_mm, "mm"),
            ("floor: tilt", None if floor is None else floor.tilt_deg, floor_deg, "deg"),
        ]  # fmt: skip
        for label, value, _, unit in rows:
            if value is not None:
                record_property(f"{label} {unit}".strip(), round(value, 5))
        missed = [bound is not None and (value is None or not value <= bound) for _, value, bound, _ in rows]
        if result.accepted and not any(missed):
            return
        table = "\n".join(map(_row, rows, missed))
        kept = _keep(request, sim, f"{table}\n{errors}\n{result}\n")
        pytest.fail(f"{'accepted' if result.accepted else 'refused'}\n{table}\n{result}{kept}", pytrace=False)

    return judge


def _row(row: tuple[str, float | None, float | None, str], missed: bool) -> str:
    label, value, bound, unit = row
    shown = "no result" if value is None else f"{value:.4g} {unit}".strip()
    limit = "" if bound is None else f"  at most {bound:g} {unit}".rstrip() + ("  FAIL" if missed else "  PASS")
    return f"{label:<22}{shown:>14}{limit}"


def _keep(request: pytest.FixtureRequest, sim: Any, text: str) -> str:
    """Write what the assertion was about into the folder of the artifacts, and return a line that says where."""
    folder = request.config.getoption("--simcal-artifacts")
    if folder is None:
        return ""
    import numpy as np

    own = folder / re.sub(r"[^\w.-]+", "_", request.node.nodeid).strip("_")
    own.mkdir(parents=True, exist_ok=True)
    clouds = {f"{name}_{number}": cloud for name, each in sim.clouds.items() for number, cloud in enumerate(each)}
    np.savez_compressed(own / "clouds.npz", **clouds)
    (own / "result.txt").write_text(text)
    return f"\nclouds and result: {own}"
