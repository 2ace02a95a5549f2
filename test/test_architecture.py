"""The rooms import one way, as the drawing in docs/architecture.md says, and calibration stays free of ROS and of the
simulator. `python test/test_architecture.py` draws the imports anew."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stretch_sim_cal
from stretch_sim_cal.programs import PROGRAMS

PACKAGE = Path(stretch_sim_cal.__file__).parent
PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
DRAWING = re.compile(r"(?<=```mermaid\n).*?(?=```)", re.DOTALL)
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
ROS_MODULES = (
    "rclpy",
    "sensor_msgs",
    "geometry_msgs",
    "nav_msgs",
    "tf2_msgs",
    "std_msgs",
    "control_msgs",
    "diagnostic_msgs",
    "visualization_msgs",
)


def imported_modules(room: str, files: str = "*.py") -> set[str]:
    names = set()
    for path in (PACKAGE / room).rglob(files):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: relative import"
                names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@functools.cache
def imported_rooms() -> dict[str, set[str]]:
    ours = {room: {name.split(".")[1] for name in imported_modules(room) if name.startswith("stretch_sim_cal.")}
            for room in ROOMS}  # fmt: skip
    return {room: (names & set(ROOMS)) - {room} for room, names in ours.items()}


def reached(arrows: dict[str, set[str]], room: str, *on_the_way: str) -> set[str]:
    """Return the rooms to which arrows lead from a room, over others or not."""
    assert room not in on_the_way, f"rooms import in a circle: {' -> '.join((*on_the_way, room))}"
    return arrows[room].union(*(reached(arrows, other, *on_the_way, room) for other in arrows[room]))


def drawn(arrows: dict[str, set[str]]) -> str:
    """Return the drawing: an arrow for each import that no longer way over other rooms says already."""
    lines = ["graph TD"]
    for room in ROOMS:
        further = set().union(*(reached(arrows, other) for other in arrows[room]))
        lines += [f"    {room} --> {other}" for other in sorted(arrows[room] - further)]
    return "\n".join(lines) + "\n"


def test_the_page_draws_the_imports_as_they_are_and_they_go_one_way():
    page = DRAWING.search(PAGE.read_text(encoding="utf-8")).group()
    assert page == drawn(imported_rooms()), "imports changed: is that meant? python test/test_architecture.py"


def test_calibration_knows_neither_ros_nor_the_simulator_nor_the_studies():
    assert reached(imported_rooms(), "calibration") == {"geometry", "robot", "sensor"}


def test_the_modules_of_ros_import_one_way():
    modules = {path.stem for path in (PACKAGE / "ros").glob("*.py")}
    found = {each: [name.split(".") for name in imported_modules("ros", f"{each}.py")] for each in modules}
    arrows = {
        each: {name[2] for name in names if name[:2] == ["stretch_sim_cal", "ros"]} for each, names in found.items()
    }
    for module in modules:
        reached(arrows, module)


def test_every_room_has_a_line_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    assert not [room for room in ROOMS if f"| `{room}/`" not in page]


@pytest.mark.parametrize("room", sorted({*ROOMS} - {"ros"}))
def test_only_the_ros_room_speaks_ros(room):
    assert not {name.split(".")[0] for name in imported_modules(room)} & set(ROS_MODULES)


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
        assert not {"numpy", "scipy", "yaml", "small_gicp", *ROS_MODULES} & set(imported.split()), given


if __name__ == "__main__":
    PAGE.write_text(DRAWING.sub(drawn(imported_rooms()), PAGE.read_text(encoding="utf-8"), count=1), encoding="utf-8")
