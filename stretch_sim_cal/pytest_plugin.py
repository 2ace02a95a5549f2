"""pytest plugin: simulated lidars, their calibration and the truth as fixtures, in one process and without ROS.

    @pytest.mark.simcal(robot="my_robot.yaml", world="furnished_room", seeds=range(3))
    def test_my_lidars_are_calibrated(calibration, assert_calibrated):
        assert_calibrated(calibration, mm=1.0, deg=0.02, nees=3.0, floor_mm=2.0)

Scenario files (YAML with `simulation:` and `stages:`) are tests, too: `pytest scenarios/`.

Nothing of the package is imported before a test asks for a fixture, or a scenario runs.
"""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

MARKER = "simcal"
BACKENDS = ("embedded", "nodes", "gazebo")
SCENARIO = re.compile(r"(?=.*^stages:)(?=.*^simulation:)", re.MULTILINE | re.DOTALL)
KEYS = ("robot", "world", "sensor", "seed", "seeds", "frames", "mount_errors", "simulation", "backend")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("stretch_sim_cal")
    group.addoption(
        "--simcal-artifacts", type=Path, metavar="DIR",
        help="keep the clouds and the result of calibrations that are not as asserted, and the runs of scenarios that "
        "fail, in a folder per test",
    )  # fmt: skip
    group.addoption(
        "--simcal-backend", choices=BACKENDS, default=BACKENDS[0],
        help="calibrate scenario files, and simulations of tests, in pytest's process (embedded), or through real "
        "nodes over ROS, simulated by us or by Gazebo; skipped where that is not installed",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}({', '.join(f'{key}=' for key in KEYS)}): what the fixtures sim, rig, truth and calibration "
        "simulate, as of stretch_sim_cal.simulate; seeds runs the test once for each",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each of its marker's seeds."""
    asked = _asked(metafunc.definition)
    if "seeds" in asked and "simcal_seed" in metafunc.fixturenames:
        try:
            seeds = list(asked["seeds"])
        except TypeError:
            said = f"marker {MARKER}: seeds: is {asked['seeds']!r}; expected several, as range(3)"
            raise pytest.fail.Exception(said, pytrace=False) from None
        metafunc.parametrize("simcal_seed", seeds, ids=[f"seed{seed}" for seed in seeds], indirect=True)


def _asked(node: Any) -> dict[str, Any]:
    """Return the keywords of all markers of a test; those nearer to it (its own, its class's, its module's) replace
    others, also a seed the seeds, and the other way round."""
    found: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(MARKER))):
        if {"seed", "seeds"} & marker.kwargs.keys():
            found = {key: value for key, value in found.items() if key not in ("seed", "seeds")}
        found |= marker.kwargs
    return found


@pytest.fixture
def simcal_seed(request: pytest.FixtureRequest) -> int:
    """The seed of what is simulated: the marker's."""
    return getattr(request, "param", _asked(request.node).get("seed", 1))


@pytest.fixture
def sim(request: pytest.FixtureRequest, simcal_seed: int) -> Any:
    """What the lidars see (`stretch_sim_cal.Simulated`), for the marker `simcal`."""
    from stretch_sim_cal import simulate
    from stretch_sim_cal.errors import InputError
    from stretch_sim_cal.files import named_in
    from stretch_sim_cal.validate import each_between

    asked = _asked(request.node)
    unknown = [each for marker in request.node.iter_markers(MARKER) for each in marker.args]
    unknown += [key for key in asked if key not in KEYS]
    if unknown:
        pytest.fail(f"marker {MARKER}: {unknown[0]!r} is not one of its keys: {', '.join(KEYS)}", pytrace=False)
    if {"seed", "seeds"} <= asked.keys():
        pytest.fail(f"marker {MARKER}: seed and seeds exclude each other; give one of them", pytrace=False)
    asked.pop("seeds", None)
    asked.pop("backend", None)
    asked["seed"] = simcal_seed
    for key in ("robot", "world", "sensor"):
        if isinstance(asked.get(key), str | Path):
            beside = partial(named_in, request.path)
            name = str(asked[key])
            asked[key] = each_between(name, beside) if key == "sensor" else beside(name.strip())
    try:
        return simulate(**asked)
    except InputError as error:
        raise pytest.fail.Exception(f"marker {MARKER}: {error}", pytrace=False) from None


@pytest.fixture
def rig(sim: Any) -> Any:
    """The simulated robot's lidars as they are described (`stretch_sim_cal.Rig`)."""
    return sim.rig


@pytest.fixture
def truth(sim: Any) -> Any:
    """Where they really are (`stretch_sim_cal.Truth`)."""
    return sim.truth


@pytest.fixture
def calibration(request: pytest.FixtureRequest, sim: Any, tmp_path: Path) -> Any:
    """The calibration (`stretch_sim_cal.Result`) of what is simulated, by the backend."""
    backend = _asked(request.node).get("backend") or request.config.getoption("--simcal-backend")
    if backend not in BACKENDS:
        pytest.fail(f"marker {MARKER}: backend {backend!r} is not one of {', '.join(BACKENDS)}", pytrace=False)
    if backend == "embedded":
        from stretch_sim_cal import calibrate

        return calibrate(sim.rig, sim.clouds)
    _skip_without(backend)
    from stretch_sim_cal.harness.run import calibrated_by_nodes

    return calibrated_by_nodes(sim, tmp_path / "by_nodes", "gazebo" if backend == "gazebo" else "embedded")


def _skip_without(backend: str) -> None:
    if backend != "embedded" and find_spec("rclpy") is None:
        pytest.skip(f"backend {backend}: rclpy is not installed")
    if backend == "gazebo" and shutil.which("gz") is None:
        pytest.skip("backend gazebo: gz is not installed")


@pytest.fixture
def assert_calibrated(request: pytest.FixtureRequest, sim: Any) -> Callable:
    """A function `assert_calibrated(result, mm=, deg=, nees=, floor_mm=, floor_deg=)` that asserts that a result is
    accepted and within the given bounds of the truth. The errors become properties of the test (JUnit XML)."""

    def judge(
        result: Any, *, mm: float | None = None, deg: float | None = None, nees: float | None = None,
        floor_mm: float | None = None, floor_deg: float | None = None,
    ) -> None:  # fmt: skip
        __tracebackhide__ = True
        from stretch_sim_cal import Result, validate
        from stretch_sim_cal.harness.verdict import Quantity

        if not isinstance(result, Result):
            pytest.fail(f"assert_calibrated: is given a {type(result).__name__}, expected a Result", pytrace=False)
        bounds = {"mm": mm, "deg": deg, "nees": nees, "floor_mm": floor_mm, "floor_deg": floor_deg}
        for name, bound in bounds.items():
            if bound is not None:
                validate.number(bound, f"assert_calibrated: {name}", low=0.0)
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
                # The fixture record_property warns of pytest's default family of JUnit XML, in which it works.
                request.node.user_properties.append((f"{label} {unit}".strip(), round(value, 5)))
        missed = [
            bound is not None and not Quantity("", label, unit, bound, value).passed
            for label, value, bound, unit in rows
        ]
        if result.accepted and not any(missed):
            return
        table = "\n".join(map(_row, rows, missed))
        kept = _keep(request, sim, f"{table}\n{errors}\n{result}\n")
        refused = "; ".join(each.sentence for each in result.findings if each.severity == "error")
        beyond = ", ".join(label for (label, *_), beyond in zip(rows, missed, strict=True) if beyond)
        verdict = f"accepted, but beyond its bound: {beyond}" if result.accepted else f"refused: {refused}"
        pytest.fail(f"{verdict}\n{table}\n{result}{kept}", pytrace=False)

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

    own = folder / _file_name(request.node.nodeid)
    clouds = {f"{name}_{number}": cloud for name, each in sim.clouds.items() for number, cloud in enumerate(each)}
    try:
        own.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(own / "clouds.npz", **clouds)
        (own / "result.txt").write_text(text)
    except OSError as error:
        return f"\nclouds and result: {own}: cannot be written: {error.strerror}"
    return f"\nclouds and result: {own}"


def _file_name(nodeid: str) -> str:
    return re.sub(r"[^\w.-]+", "_", nodeid).strip("_")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    of_a_run = file_path.name == "scenario.yaml" and file_path.with_name("result.json").exists()
    if file_path.suffix not in (".yaml", ".yml") or of_a_run:
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if SCENARIO.match(file_path.read_text(encoding="utf-8")):
            return ScenarioFile.from_parent(parent, path=file_path)
    return None


class ScenarioFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield ScenarioItem.from_parent(self, name=self.path.stem)


class ScenarioItem(pytest.Item):
    """A scenario as a test: it passes if its expectation is met. The errors are properties (JUnit XML)."""

    def runtest(self) -> None:
        backend = self.config.getoption("--simcal-backend")
        _skip_without(backend)
        from stretch_sim_cal.errors import StretchSimCalError
        from stretch_sim_cal.files import scratch_folder

        artifacts = self.config.getoption("--simcal-artifacts")
        with scratch_folder() as scratch:
            folder = scratch if artifacts is None else artifacts / _file_name(self.nodeid)
            try:
                complaint = self._run(folder, backend)
            except StretchSimCalError as error:
                complaint = str(error)
            if complaint is None and artifacts is not None:
                shutil.rmtree(folder)
            if complaint is not None:
                pytest.fail(complaint + ("" if artifacts is None else f"\nthe run: {folder}"), pytrace=False)

    def _run(self, folder: Path, backend: str) -> str | None:
        """Run the scenario in a folder; return why it fails, None if it passes."""
        from stretch_sim_cal.harness.run import run_scenario
        from stretch_sim_cal.harness.scenario import load_scenario

        simulator = "gazebo" if backend == "gazebo" else "embedded"
        verdict = run_scenario(load_scenario(self.path), folder, simulator, in_process=backend == "embedded")
        quantities = [quantity for stage in verdict.stages.values() for quantity in stage.quantities]
        for quantity in quantities:
            if quantity.error is not None:
                self.user_properties.append((f"{quantity.label} {quantity.unit}".strip(), round(quantity.error, 5)))
        if verdict.passed:
            return None
        if self.config.getoption("--simcal-artifacts") is not None:
            from stretch_sim_cal.harness.report import write_report  # matplotlib takes half a second

            write_report(verdict, folder)
        return "\n".join([*verdict.reasons, *(quantity.line() for quantity in quantities)])

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"scenario {self.name}"
