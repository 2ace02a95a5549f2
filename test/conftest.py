"""The environment of all tests: a separate ROS graph on this machine, without robots and other runs."""

import gc
import os
import signal
from collections.abc import Iterator
from unittest import mock

import hypothesis
import pytest

from stretch_sim_cal.programs import THREADS

os.environ["MPLBACKEND"] = "Agg"
os.environ.update(dict.fromkeys(THREADS, "1"))  # as the programs do, and before numpy is imported

# The same examples on every machine, however slow.
SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile("reproducible", derandomize=True, deadline=None, suppress_health_check=SLOW)
hypothesis.settings.load_profile("reproducible")


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()
    # What a shell starts in the background ignores Ctrl-C, and so do the programs that the tests start from there.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from stretch_sim_cal.harness.processes import isolated_environment, own_domain

    domain = own_domain()
    os.environ.update(isolated_environment(domain.__enter__()))
    config.add_cleanup(lambda: domain.__exit__(None, None, None))


def pytest_collection_finish() -> None:
    # Modules and tests stay: garbage collections that visit them took a fifteenth of the time.
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_report_header() -> str:
    return f"ROS domain {os.environ['ROS_DOMAIN_ID']}, {os.environ['ROS_AUTOMATIC_DISCOVERY_RANGE']} only"


@pytest.fixture(scope="session", autouse=True)
def few_points_in_pictures() -> Iterator[None]:
    """Pages show a tenth of the points: to draw them all takes seconds a page, and no test looks at them."""
    from stretch_sim_cal import view

    with mock.patch.object(view, "DRAWN", view.DRAWN // 10):
        yield


@pytest.fixture(scope="module")
def quick_pictures() -> Iterator[None]:
    """Pictures without a layout and of few pixels, for tests that ask no more than whether they are there."""
    from matplotlib.figure import Figure

    save = Figure.savefig

    def quickly(figure: Figure, *to, **how) -> None:
        figure.set_layout_engine("none")
        save(figure, *to, **how | {"dpi": 20})

    with mock.patch.object(Figure, "savefig", quickly):
        yield


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of this run for the normal forms of robots, in place of the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="session")
def stretch():
    """The Stretch's model as its description has it; tests must not change it."""
    from stretch_sim_cal.robot.description import load_model
    from stretch_sim_cal.robot.stretch import nominal_description

    return load_model(nominal_description())
