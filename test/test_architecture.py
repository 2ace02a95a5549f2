"""Packages import one way, as drawn in docs/architecture.md; calibration imports neither ROS nor the simulator.
`python test/test_architecture.py` redraws it."""

import ast
import functools
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import stretch_sim_cal
from stretch_sim_cal.programs import PROGRAMS

PACKAGE = Path(stretch_sim_cal.__file__).parent
PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
DRAWING = re.compile(r"(?<=```mermaid\n).*?(?=```)", re.DOTALL)
CALLERS = [PAGE.parents[1] / folder for folder in ("test", "benchmarks", "launch")]
NEEDS_LAUNCH = {"stretch_sim_cal.harness.launched", "stretch_sim_cal.harness.launch_tests"}
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def of_ros(modules: Iterable[str]) -> list[str]:
    of_messages = ("_msgs", "_srvs", "_interfaces")
    return [name for name in modules if name.startswith(("rcl", "tf2_")) or name.endswith(of_messages)]


@functools.cache
def imported_by(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def imported_modules(package: str) -> set[str]:
    return set().union(*map(imported_by, (PACKAGE / package).rglob("*.py")))


@functools.cache
def imported_packages() -> dict[str, set[str]]:
    ours = {package: {name.split(".")[1] for name in imported_modules(package) if name.startswith("stretch_sim_cal.")}
            for package in PACKAGES}  # fmt: skip
    return {package: (names & set(PACKAGES)) - {package} for package, names in ours.items()}


def reached(arrows: dict[str, set[str]], package: str, *on_the_way: str) -> set[str]:
    """Return the packages to which arrows lead from a package, over others or not."""
    assert package not in on_the_way, f"packages import in a circle: {' -> '.join((*on_the_way, package))}"
    return arrows[package].union(*(reached(arrows, other, *on_the_way, package) for other in arrows[package]))


def drawn(arrows: dict[str, set[str]]) -> str:
    """Return the drawing: an arrow for each import that no longer way over other packages says already."""
    lines = ["graph TD"]
    for package in PACKAGES:
        further = set().union(*(reached(arrows, other) for other in arrows[package]))
        lines += [f"    {package} --> {other}" for other in sorted(arrows[package] - further)]
    return "\n".join(lines) + "\n"


def test_the_page_draws_the_imports_as_they_are_and_they_go_one_way():
    page = DRAWING.search(PAGE.read_text(encoding="utf-8")).group()
    assert page == drawn(imported_packages()), "imports changed: is that meant? python test/test_architecture.py"


def test_calibration_knows_neither_ros_nor_the_simulator_nor_the_studies():
    assert reached(imported_packages(), "calibration") == {"geometry", "robot", "sensor"}


def test_single_files_import_one_way():
    """Also where an import is inside a function, or for types only."""
    files = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path in PACKAGE.rglob("*.py") if path.name != "__init__.py"
    }  # fmt: skip
    arrows = {}
    for module, path in files.items():
        names = imported_by(path)
        arrows[module] = {name for each in names for name in (each, each.rpartition(".")[0]) if name in files}
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        pytest.fail(f"files import in a circle: {' <- '.join(error.args[1])}")


def has(module: str, name: str) -> bool:
    loaded = importlib.import_module(module)
    submodules = pkgutil.iter_modules(getattr(loaded, "__path__", []))
    return hasattr(loaded, name) or name in {each.name for each in submodules}


def test_what_a_file_imports_from_another_is_there():
    """Also where an import is inside a function, which no other quick test may reach."""
    names = set().union(*(imported_modules(str(folder)) for folder in (PACKAGE, *CALLERS)))
    ours = [name.rpartition(".") for name in sorted(names) if name.startswith("stretch_sim_cal.")]
    missing = ["".join(parts) for parts in ours if parts[0] not in NEEDS_LAUNCH and not has(parts[0], parts[2])]
    assert not missing


def test_every_package_has_a_line_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    assert not [package for package in PACKAGES if f"| `{package}/`" not in page]


@pytest.mark.parametrize("package", sorted({*PACKAGES} - {"ros"}))
def test_only_the_ros_package_imports_ros(package):
    assert not of_ros({name.split(".")[0] for name in imported_modules(package)})


STARTED = """
import os, sys

for given in sys.argv[1:]:
    if not os.fork():
        from stretch_sim_cal import programs

        name, option = given.split()
        sys.argv[1:] = [option]
        try:
            getattr(programs, name)()
        finally:
            print("imported:", *sorted({module.partition(".")[0] for module in sys.modules}), flush=True)
            os._exit(0)
    os.wait()
"""


def test_help_and_version_answer_without_importing_what_the_program_needs():
    asked = ["stretch_sim_cal --version", *(f"{name} --help" for name in PROGRAMS)]
    done = subprocess.run([sys.executable, "-c", STARTED, *asked], capture_output=True, text=True)
    assert done.stderr == "", done.stderr
    answers = re.findall(r"(.*?)^imported: (.*?)$", done.stdout, flags=re.S | re.M)
    assert len(answers) == len(asked)
    for given, (answer, imported) in zip(asked, answers, strict=True):
        assert "usage:" in answer or stretch_sim_cal.__version__ in answer, given
        modules = imported.split()
        assert not {"numpy", "scipy", "yaml", "small_gicp"} & {*modules} and not of_ros(modules), given


if __name__ == "__main__":
    PAGE.write_text(
        DRAWING.sub(drawn(imported_packages()), PAGE.read_text(encoding="utf-8"), count=1), encoding="utf-8"
    )
