"""The rooms import one way, as docs/architecture.md says, and calibration stays free of ROS and of the simulator."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import stretch_sim_cal
from stretch_sim_cal.programs import PROGRAMS

PACKAGE = Path(stretch_sim_cal.__file__).parent
FOUNDATION = {"errors", "files", "command", "validate", "view"}
MAY_IMPORT = {
    "geometry": set(),
    "sensor": {"geometry"},
    "robot": {"geometry"},
    "studies": {"geometry", "robot"},
    "conventions": {"geometry", "robot"},
    "calibration": {"geometry", "sensor", "robot"},
    "simulation": {"geometry", "sensor", "robot", "conventions"},
    "recording": {"geometry", "sensor", "robot"},
    "collection": {"geometry", "robot", "calibration", "recording"},
    "ros": {"geometry", "sensor", "robot", "conventions", "calibration", "simulation", "recording", "collection"},
    "harness": {"geometry", "sensor", "robot", "conventions", "calibration", "simulation", "recording", "ros"},
    "campaign": {"geometry", "sensor", "robot", "calibration", "collection", "simulation", "harness", "programs"},
    "commands": {
        "geometry",
        "sensor",
        "robot",
        "studies",
        "conventions",
        "calibration",
        "simulation",
        "recording",
        "ros",
        "harness",
        "campaign",
    },
}
ROS_MODULES = (
    "rclpy",
    "sensor_msgs",
    "geometry_msgs",
    "tf2_msgs",
    "std_msgs",
    "control_msgs",
    "diagnostic_msgs",
    "visualization_msgs",
)


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_rooms_that_stand_above_it(room):
    for path in (PACKAGE / room).rglob("*.py"):
        for name in imported_modules(path):
            if name.startswith("stretch_sim_cal."):
                other = name.split(".")[1]
                allowed = MAY_IMPORT[room] | FOUNDATION | {room, "__version__"}
                assert other in allowed, f"{path.relative_to(PACKAGE)} imports {name}"


def test_every_room_has_its_rule():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert rooms == set(MAY_IMPORT)


@pytest.mark.parametrize("room", sorted(set(MAY_IMPORT) - {"ros"}))
def test_only_the_ros_room_speaks_ros(room):
    for path in (PACKAGE / room).rglob("*.py"):
        for name in imported_modules(path):
            assert name.split(".")[0] not in ROS_MODULES, f"{path.relative_to(PACKAGE)} imports {name}"


STARTED = """
import sys
from stretch_sim_cal import programs

sys.argv[1:] = [sys.argv[2]]
try:
    programs.{name}()
finally:
    print("imported:", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize(
    "name, option",
    [("stretch_sim_cal", "--version"), ("stretch_sim_cal", "--help")]
    + [(name, "--help") for name in PROGRAMS if name != "stretch_sim_cal"],
)
def test_help_and_version_answer_without_importing_what_the_program_needs(name, option):
    script = STARTED.format(name=name)
    done = subprocess.run([sys.executable, "-c", script, name, option], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer, _, imported = done.stdout.rpartition("imported:")
    assert "usage:" in answer or stretch_sim_cal.__version__ in answer
    assert not {"numpy", "scipy", "yaml", "small_gicp", *ROS_MODULES} & set(imported.split())
