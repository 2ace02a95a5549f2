"""The package's manifests agree with each other, and its interfaces are those of the robot."""

import ast
import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import pytest

import stretch_sim_cal

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "stretch_sim_cal"
# Libraries whose rosdep key has another name, and those for which rosdep has none.
ROSDEP_KEYS = {"pyyaml": "python3-yaml", "xacro": "xacro"}
ROSDEP_KEYS |= {name: f"python3-{name}-pip" for name in ("rosbags", "trimesh")}
WITHOUT_ROSDEP_KEY = {"embreex", "hello-robot-stretch4-urdf", "python-fcl", "threadpoolctl", "small-gicp"}
# What `ros2 topic info --verbose` and the generated code of a ROS 2 Jazzy installation say of these types.
TYPE_HASHES = {
    "tf2_msgs/msg/TFMessage": "RIHS01_e369d0f05a23ae52508854b66f6aa0437f3449d652e8cbf22d5abe85d020f087",
    "tf2_msgs/msg/TF2Error": "RIHS01_db2485e7d6a0ec75bf087e058ee45df682acc3a621ca7780503d10aac141809a",
    "control_msgs/action/FollowJointTrajectory": (
        "RIHS01_738ebcb7a2d7cfa42f9f1001cc99ce3a4383d1cfe508015d9be8485e4b1c66f6"
    ),
}


@pytest.fixture(scope="module")
def manifest() -> ElementTree.Element:
    return ElementTree.parse(ROOT / "package.xml").getroot()


def test_the_versions_agree(manifest):
    assert manifest.findtext("version") == stretch_sim_cal.__version__ == metadata.version(PACKAGE)


def test_the_manifest_names_every_library(manifest):
    known = {depend.text for depend in manifest.iter("exec_depend")}
    for requirement in (each for each in metadata.requires(PACKAGE) if "extra ==" not in each):
        name = re.match(r"[\w.-]+", requirement)[0].replace("_", "-").lower()
        if name not in WITHOUT_ROSDEP_KEY:
            assert ROSDEP_KEYS.get(name, f"python3-{name}") in known, f"package.xml lacks the library {name}"


def test_the_manifest_names_every_ros_package_that_is_imported(manifest):
    known = {depend.text for kind in ("exec_depend", "test_depend") for depend in manifest.iter(kind)}
    for path in [*(ROOT / PACKAGE).rglob("*.py"), *(ROOT / "launch").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module] if isinstance(node, ast.ImportFrom) else []
            for module in {name.split(".")[0] for name in modules}:
                if module.endswith(("_msgs", "_srvs", "_interfaces")) or module.startswith(
                    ("rcl", "launch", "ament", "tf2")
                ):
                    assert module in known, f"package.xml lacks {module}, which {path.relative_to(ROOT)} imports"


@pytest.mark.parametrize("name", TYPE_HASHES)
def test_generated_interfaces_are_those_of_ros_2_jazzy(name):
    package, *where = name.split("/")
    prefix = Path(__import__(package).__file__).resolve().parents[4]
    if prefix != Path(sys.prefix).resolve():
        pytest.skip("ROS 2 is sourced: its own interface packages are in use")
    described = json.loads(prefix.joinpath("share", package, *where).with_suffix(".json").read_text())
    assert {"type_name": name, "hash_string": TYPE_HASHES[name]} in described["type_hashes"]


def test_programs_leave_the_other_processors_to_others():
    """As in `make demo`, so by hand: numpy's and scipy's libraries start no threads beside the program's own."""
    code = (
        "import contextlib, os, sys; from stretch_sim_cal import programs; sys.argv[1:] = ['--help']\n"
        "with contextlib.suppress(SystemExit): programs.fit_body_shape_model()\n"
        "import numpy, scipy.linalg; print(len(os.listdir('/proc/self/task')), 'thread')"
    )
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    ended = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ended.stdout.splitlines()[-1:] == ["1 thread"], ended.stderr
