"""The wheel installs whole, and the page on continuous integration is followed: with it alone, the action, a container.
Libraries come from the environment of the tests. `make test-wheel` installs the wheel with its libraries from the
package index, for every interpreter that is there."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from described_robots import joint, link, robot

import stretch_sim_cal
from stretch_sim_cal.harness.processes import own_domain

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "stretch_sim_cal"
PAGE = (ROOT / "docs" / "ci.md").read_text()
GATE = PAGE[PAGE.index("## As a gate") : PAGE.index("## In a colcon")]
FIRST, SECOND = re.findall(r"```bash\n(.*?)```", PAGE[: PAGE.index("## In your own pytest")], flags=re.S)
SCENARIO, WORKFLOW = re.findall(r"```yaml\n(.*?)```", GATE, flags=re.S)
ELSEWHERE, CONTAINER, COMPARE = re.findall(r"```bash\n(.*?)```", GATE, flags=re.S)
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
BODY = '<collision><origin xyz="0 0 0.2"/><geometry><box size="0.6 0.4 0.3"/></geometry></collision>'
ROBOT = robot(
    link("base_link", BODY) + link("front_lidar") + link("rear_lidar")
    + joint("front_joint", "base_link", "front_lidar", xyz="0.25 0.15 0.5", rpy="0 0.3 0.5")
    + joint("rear_joint", "base_link", "rear_lidar", xyz="-0.25 -0.15 0.5", rpy="0 0.3 -2.6")
)  # fmt: skip
FEW_RAYS = ROOT / "test" / "ros" / "few_rays_amr.yaml"
WHEEL_PYTHONS = os.environ.get("WHEEL_PYTHONS", "").split()


def bash(block: str, folder: Path, **environment: str) -> subprocess.CompletedProcess:
    plain = {
        name: value for name, value in os.environ.items()
        if not name.startswith(("ROS_", "GITHUB_", "_ROS", "LD_LIBRARY", "PYTHONPATH", "PYTEST"))
    }  # fmt: skip
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block], cwd=folder, env=plain | environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    """A folder with the sdist, and the wheel that was built from it, each in an environment of its own."""
    folder = tmp_path_factory.mktemp("dist")
    sources = folder / "sources"
    left_out = shutil.ignore_patterns(".*", "build", "install", "log", "out", "test", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, sources, ignore=left_out)
    done = bash(f"'{sys.executable}' -m build --outdir '{folder}' '{sources}'", folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def followed(distributions, tmp_path_factory) -> tuple[Path, dict[str, str], subprocess.CompletedProcess]:
    """A folder in which the first block was run as printed, the variables with which it was, and how it ended."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "robot.urdf").write_text(ROBOT)
    (wheel,) = distributions.glob("*.whl")
    shutil.copy(wheel, folder)
    venv.create(folder / "venv")
    (site,) = (folder / "venv").glob("lib/python3*/site-packages")
    libraries = tmp_path_factory.mktemp("libraries")  # elsewhere: pytest looks for tests in the user's folder
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if each.name != "rclpy" and each.suffix != ".pth" and "stretch_sim_cal" not in each.name:
            (libraries / each.name).symlink_to(each)
    (site / "libraries.pth").write_text(f"{libraries}\n")
    path = f"{folder / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # To pip, the libraries are installed already, and so is pytest; the programs of both lie elsewhere.
    offline = {"PATH": path, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    python = folder / "venv" / "bin" / "python"
    for name, call in (("pytest", f"'{python}' -m pytest"), ("pip", f"'{sys.executable}' -m pip --python '{python}'")):
        python.with_name(name).write_text(f'#!/bin/sh\nexec {call} "$@"\n')
        python.with_name(name).chmod(0o755)
    return folder, offline, bash(FIRST, folder, **offline)


def test_wheel_and_sdist_are_what_an_index_takes(distributions):
    files = sorted(distributions.glob("*.*[lz]"))
    assert [file.name for file in files] == [
        f"stretch_sim_cal-{stretch_sim_cal.__version__}-py3-none-any.whl",
        f"stretch_sim_cal-{stretch_sim_cal.__version__}.tar.gz",
    ]
    assert files[0].name in FIRST
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout + done.stderr


SHARED = ("config", "launch", "models", "rviz", "scenarios", "worlds")
COMMANDS = {
    "stretch-sim-cal", "stretch_simulator", "ros_align_dual_lidar", "ros_find_floor_calibration",
    "ros_broadcast_calibration", "ros_visualize_calibration", "ros_collect_body_shape_data", "fit_body_shape_model",
    "ros_visualize_body_shape_calibration",
}  # fmt: skip


@pytest.fixture(scope="module")
def installed(distributions, tmp_path_factory) -> Path:
    """Where pip has installed the wheel, not editable."""
    prefix = tmp_path_factory.mktemp("prefix")
    # Without --ignore-installed pip would uninstall the package that is being tested.
    pip = [sys.executable, "-m", "pip", "install", "--ignore-installed", "--prefix", prefix, "--no-compile"]
    done = subprocess.run(
        [*pip, "--no-deps", "--no-index", *distributions.glob("*.whl")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return prefix


def files_below(folder: Path) -> set[str]:
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path.as_posix() for path in paths if "__pycache__" not in path.parts and not path.name.startswith(".")}


def test_every_module_and_every_shared_file_is_installed(installed, distributions):
    (site,) = installed.glob("**/site-packages")
    for folder, there in ((PACKAGE, site), *((name, installed / "share" / PACKAGE) for name in SHARED)):
        assert files_below(there / folder) == files_below(distributions / "sources" / folder)


def printed_by(code: str, folder: Path, **environment: Path) -> Path:
    environment = os.environ | {name: str(path) for name, path in environment.items()}
    how = {"env": environment, "cwd": folder, "capture_output": True, "text": True, "check": True}
    return Path(subprocess.run([sys.executable, "-c", code], **how).stdout.strip())


def test_the_installed_package_finds_its_share_folder_and_ament_the_package(installed):
    ask = "from stretch_sim_cal.files import share_directory; print(share_directory())"
    (site,) = installed.glob("**/site-packages")
    assert printed_by(ask, installed, PYTHONPATH=site) == installed / "share" / PACKAGE
    ask = f"from ament_index_python.packages import *; print(get_package_share_directory('{PACKAGE}'))"
    assert (printed_by(ask, installed, AMENT_PREFIX_PATH=installed) / "package.xml").is_file()


def test_console_scripts_are_installed_by_their_published_names_and_lead_to_functions(installed):
    points = metadata.distribution(PACKAGE).entry_points.select(group="console_scripts")
    assert set(points.names) >= COMMANDS
    for script in points:
        assert callable(script.load())
        assert os.access(installed / "bin" / script.name, os.X_OK)


def test_the_changes_begin_with_this_version():
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert heading.group(1) == stretch_sim_cal.__version__


def test_an_own_robot_has_a_green_test(followed):
    _, _, green = followed
    assert green.returncode == 0 and "1 passed" in green.stdout, green.stdout + green.stderr
    assert "wrote my_robot.yaml" in green.stdout


@pytest.mark.long
def test_and_then_a_red_one(followed):
    folder, offline, _ = followed
    red = bash(SECOND, folder, **offline)
    assert red.returncode == 1 and "1 failed" in red.stdout and "sliding along base x" in red.stdout
    (case,) = ElementTree.parse(folder / "junit.xml").iter("testcase")
    assert "refused" in case.find("failure").text


def test_the_package_of_the_wheel_was_used_and_not_the_sources(followed):
    done = bash("venv/bin/python -c 'import stretch_sim_cal as s; print(s.__file__)'", followed[0])
    assert done.stdout.startswith(str(followed[0])), done.stderr


def filled(text: str, inputs: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found.group(1)], text)


@pytest.fixture(scope="module")
def action(tmp_path_factory):
    """A function that runs the action's steps in bash as GitHub does, in a user's repository."""

    def call(**given: str) -> tuple[Path, subprocess.CompletedProcess]:
        assert given.keys() <= ACTION["inputs"].keys()
        folder = tmp_path_factory.mktemp("repository")
        (folder / "robot.urdf").write_text(ROBOT)
        (folder / "our_lab.yaml").write_text(SCENARIO)
        inputs = {name: given.get(name, each["default"]) for name, each in ACTION["inputs"].items()}
        job = {"GITHUB_ACTION_PATH": str(ROOT), "GITHUB_ACTIONS": "true",
               "GITHUB_STEP_SUMMARY": str(folder / "job.md"), "GITHUB_OUTPUT": str(folder / "set")}  # fmt: skip
        with own_domain() as domain:
            for step in ACTION["runs"]["steps"]:
                if "run" in step and "make" not in step["run"]:
                    assert step["shell"] == "bash"
                    own = {name: filled(value, inputs) for name, value in step["env"].items()}
                    done = bash(step["run"], folder, ROS_DOMAIN_ID=str(domain), **job, **own)
        return folder, done

    return call


def test_the_action_installs_what_it_runs():
    (install,) = (step["run"] for step in ACTION["runs"]["steps"] if "make" in step.get("run", ""))
    done = bash(install.replace("make", "make --dry-run"), ROOT, GITHUB_ACTION_PATH=str(ROOT))
    assert done.returncode == 0 and "environment/make_env.py" in done.stdout
    uses = [step for step in ACTION["runs"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert uses[0]["if"] == "always()" and uses[0]["with"]["name"] == "${{ steps.run.outputs.artifact }}"


def test_the_action_calibrates_a_described_robot_and_reports_to_the_job(action):
    (step,) = (s for s in yaml.safe_load(WORKFLOW)["jobs"]["calibration"]["steps"] if "with" in s)
    assert step["with"].keys() <= ACTION["inputs"].keys()
    assert step["uses"].rpartition("@v")[2] == stretch_sim_cal.__version__
    folder, done = action(scenarios="our_lab.yaml", robot="robot.urdf", sensor=str(FEW_RAYS))
    assert done.returncode == 0, done.stdout + done.stderr
    (case,) = ElementTree.parse(folder / "calibration" / "junit.xml").iter("testcase")
    assert case.get("name") == "our_lab" and len(list(case.iter("property"))) == 2
    assert json.loads((folder / "calibration" / "our_lab" / "result.json").read_text())["passed"]
    assert "PASS: scenarios: our" in (folder / "job.md").read_text()
    kept = (folder / "calibration").rename(folder / "out")
    shutil.copytree(kept, folder / "out.main")
    compared = bash(COMPARE, folder, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert compared.returncode == 0 and "| our\\_lab | alignment.translation" in compared.stdout, compared.stderr


def test_the_action_ends_with_the_commands_exit_code_for_inputs_that_cannot_be_used(action):
    wrong = (
        (dict(scenarios="$(touch owned) nowhere.yaml"), "(touch", "calibration"),
        (dict(robot="no.urdf", out="build/out 1"), "no.urdf", "build_out_1"),
        (dict(robot="stretch5"), "'stretch5' is not known in config/robots/", "calibration"),
    )
    for given, said, artifact in wrong:
        folder, done = action(**given)
        assert done.returncode == 2 and said in done.stderr and not (folder / "owned").exists()
        assert (folder / "set").read_text() == f"artifact={artifact}\n"


def test_elsewhere_the_same_options_are_known(tmp_path):
    line = ELSEWHERE.replace("\\\n", "").splitlines()[1].split()[1:]
    from stretch_sim_cal.cli import build_parser

    parsed = build_parser().parse_args(line)
    assert parsed.junit == Path("out/junit.xml") and parsed.scenarios == ["our_lab.yaml"]


def test_the_container_has_the_libraries_of_the_package_and_of_its_tests():
    from_apt = ("pytest", "pyyaml", "xacro")
    of_developers = ("mypy", "pytest-xdist", "ruff", "types-PyYAML")
    wanted = [
        each.partition(";")[0].strip() for each in metadata.requires("stretch_sim_cal")
        if "extra ==" not in each or re.search("extra == .test.", each)
    ]  # fmt: skip
    names = {re.match(r"[\w.-]+", each)[0] for each in wanted}
    installed = set(re.findall(r"'([\w.-]+?)[<>=]", (ROOT / "docker" / "Dockerfile").read_text()))
    assert names - {*from_apt, *of_developers} <= installed


def test_the_container_is_built_and_calibrates(tmp_path):
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no Docker engine answers")
    (tmp_path / "stretch_sim_cal").symlink_to(ROOT)
    (tmp_path / "our_lab.yaml").write_text(SCENARIO)
    command = Path(sys.executable).with_name("stretch-sim-cal")
    made = f"'{command}' robot init robot.urdf --sensor os0_32_sparse --out my_robot.yaml\n"
    (tmp_path / "robot.urdf").write_text(ROBOT)
    done = bash(made + CONTAINER, tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_the_wheel_installs_with_its_libraries_in_a_plain_environment(version, distributions, tmp_path):
    if version not in WHEEL_PYTHONS:
        pytest.skip("takes a minute and the package index: 'make test-wheel', or WHEEL_PYTHONS='3.11 3.12'")
    if bash(f"python{version} --version", tmp_path).returncode:
        pytest.skip(f"there is no python{version}")
    (wheel,) = distributions.glob("*.whl")
    shutil.copy(wheel, tmp_path)
    (tmp_path / "robot.urdf").write_text(ROBOT)
    done = bash(f"python{version} -m venv venv\n. venv/bin/activate\n{FIRST}", tmp_path)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    done = bash(f". venv/bin/activate\n{SECOND}", tmp_path)
    assert done.returncode == 1 and "sliding along base x" in done.stdout
