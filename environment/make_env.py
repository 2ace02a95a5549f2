"""Makes the environment in .venv, or mends what an interrupted run left of it: `make env` calls this.

Where ROS 2 is sourced, .venv stands on top of it. Elsewhere the real rclpy and Fast DDS come from the package
index, and the interface packages that the index lacks are generated; see docs/environment.md. Standard
library only: it runs first.
"""

import argparse
import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import interpreter
from interpreter import Stop

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BUILD = ROOT / "build" / "environment"
ROS_WHEELS = ROOT / "environment" / "ros.txt"
INTERFACES = ROOT / "interfaces"

MADE = VENV / "made"  # a file per finished step, written last; it holds the key of what the step was made from
UNFINISHED = MADE / "unfinished"  # there while pip works: packages that a killed pip left cannot be trusted

CHECK = (
    "import rclpy, diagnostic_msgs.msg, nav_msgs.msg, sensor_msgs.msg, tf2_msgs.msg, control_msgs.action, "
    "stretch_sim_cal"
)


def make(wanted):
    """Run those steps whose inputs changed since they were done. `wanted` names an interpreter, or is empty."""
    started = time.monotonic()
    sourced = ros_sourced()
    made = json.loads(read(MADE / "venv") or "null")
    if made and made["venv"] == str(VENV) and made["ros"] == ros_identity(sourced) and keeps_python(wanted, made):
        base = made
    else:
        base = {**interpreter.choose(wanted, sourced), "venv": str(VENV), "ros": ros_identity(sourced)}
    keys = step_keys(base)
    what = f"Python {base['version']}, " + (
        f"ROS 2 {sourced} as sourced" if sourced else "ROS 2 Jazzy from the package index"
    )
    if base is made and not UNFINISHED.exists() and all(read(MADE / step) == key for step, key in keys.items()):
        print(f"environment: .venv is up to date ({what})")
        return

    print(f"environment: making .venv ({what})", flush=True)
    if not sourced:
        interpreter.check_machine()
    if base is not made or UNFINISHED.exists():
        make_venv(base)
    if not sourced:
        do("ros", keys, install_ros_wheels)
    with concurrent.futures.ThreadPoolExecutor() as pool:  # neither needs the other, and most machines have two cores
        works = [pool.submit(do, "package", keys, lambda: install_package(base, sourced))]
        if not sourced:
            works.append(pool.submit(do, "interfaces", keys, lambda: build_interfaces(base)))
        for work in works:
            work.result()
    do("check", keys, lambda: check(sourced))
    print(f"environment: ready after {time.monotonic() - started:.0f} s")


def step_keys(base):
    """Return, for each step after the virtual environment, a digest of all that it is made from."""
    wheels = [ROS_WHEELS]
    definitions = sorted(path for path in INTERFACES.rglob("*") if path.is_file())
    package = [ROOT / name for name in ("setup.py", "setup.cfg", "pyproject.toml")]
    script = [Path(__file__)]
    if base["ros"]:
        return {"package": digest(package + script), "check": digest(package + script)}
    return {
        "ros": digest(wheels),
        "interfaces": digest(wheels + definitions + script),
        "package": digest(package + script),
        "check": digest(wheels + definitions + package + script),
    }


def make_venv(base):
    """Make an empty virtual environment in place of whatever an earlier run left."""
    MADE.mkdir(parents=True, exist_ok=True)
    (MADE / "venv").unlink(missing_ok=True)
    for path in [*VENV.iterdir(), *MADE.iterdir()]:
        if path != MADE:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    options = ["--system-site-packages"] if base["ros"] else []
    run("venv", [base["python"], "-m", "venv", *options, str(VENV)])
    pip("venv", "--upgrade", "pip>=25")  # four times as fast as the one that older Pythons bring
    write(MADE / "venv", json.dumps(base, indent=1))


def install_ros_wheels():
    # The list is complete and each file's hash is in it: nothing is resolved.
    pip("ros", "--no-deps", "--require-hashes", "-r", str(ROS_WHEELS))


def install_package(base, sourced):
    """Install the package, editable, with the libraries that it and its tests use."""
    options = []
    if sourced and base["numpy"]:
        # The message classes of the sourced ROS were compiled against its numpy.
        write(MADE / "constraints.txt", f"numpy=={base['numpy']}\n")
        options = ["-c", str(MADE / "constraints.txt")]
    pip("package", *options, "-e", f"{ROOT}[test]")


def build_interfaces(base):
    """Generate, compile and install the packages in interfaces/, with the ROS tools and the
    cmake of the environment."""
    mend_exports(base)
    shutil.rmtree(BUILD / "interfaces", ignore_errors=True)
    environment = {**os.environ, "AMENT_PREFIX_PATH": str(VENV), "CMAKE_PREFIX_PATH": str(VENV)}
    environment["PATH"] = f"{VENV / 'bin'}{os.pathsep}{os.environ['PATH']}"
    for name in ("DESTDIR", "CMAKE_GENERATOR", "CMAKE_TOOLCHAIN_FILE", "CMAKE_BUILD_TYPE", "CMAKE_INSTALL_PREFIX"):
        environment.pop(name, None)
    cmake = str(VENV / "bin" / "cmake")
    for package in sorted(path.parent for path in INTERFACES.glob("*/package.xml")):
        folder = BUILD / "interfaces" / package.name
        configure = [cmake, "-G", "Ninja", "-S", str(package), "-B", str(folder), f"-DCMAKE_INSTALL_PREFIX={VENV}"]
        configure += [
            f"-DPython3_EXECUTABLE={VENV / 'bin' / 'python'}",
            "-DBUILD_TESTING=OFF",
            "-DCMAKE_BUILD_TYPE=Release",
        ]
        run(package.name, configure, environment)
        run(package.name, [cmake, "--build", str(folder), "--target", "install"], environment)


def mend_exports(base):
    """Replace the paths of the machine that built the wheels, left in their CMake exports,
    by this environment's own."""
    libraries = VENV / "lib" / "python{}.{}".format(*base["version"].split(".")) / "site-packages"
    for path in (VENV / "share").glob("*/cmake/*.cmake"):
        text = path.read_text()
        mended = re.sub(r"/opt/python/cp\d+-cp\d+/lib/python[\d.]+/site-packages", str(libraries), text)
        mended = re.sub(r"/opt/python/cp\d+-cp\d+/include/python[\d.]+", base["include"], mended)
        if mended != text:
            write(path, mended)


def check(sourced):
    try:
        run("check", [str(VENV / "bin" / "python"), "-c", CHECK])
    except Stop as stop:
        if not sourced:
            raise
        raise Stop(
            f"parts of ROS 2 are missing: apt-get install ros-{sourced}-control-msgs ros-{sourced}-diagnostic-msgs "
            f"ros-{sourced}-tf2-msgs ({stop})"
        ) from stop


def do(step, keys, work):
    """Do one step and note that it is done, unless it was done from the same inputs."""
    if read(MADE / step) == keys[step]:
        return
    (MADE / step).unlink(missing_ok=True)
    started = time.monotonic()
    work()
    write(MADE / step, keys[step])
    print(f"  {step:<10} {time.monotonic() - started:4.0f} s", flush=True)


def pip(step, *arguments):
    """Install with the environment's pip; if it does not come to its end, the next run starts from nothing."""
    write(UNFINISHED, step)
    command = [str(VENV / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    run(step, [*command, "--no-compile", *arguments])  # most of what is installed is never imported
    UNFINISHED.unlink()


def run(step, command, environment=None):
    """Run a command, its output in a log file; if it fails, show the end of that. Raises `Stop`."""
    log = BUILD / f"{step}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab" if step in running else "wb") as output:
        running.add(step)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, pass_fds=lock
        )
    if done.returncode != 0:
        print(
            "".join(f"  | {line}\n" for line in log.read_text(errors="replace").splitlines()[-12:]),
            file=sys.stderr,
            end="",
        )
        raise Stop(f"{step}: {Path(command[0]).name} failed ({done.returncode}); its output is in {log}")


running = set()  # steps of this run that have a log
lock = []  # the lock's file descriptor; children get it, so that one that outlives this process still holds the lock


def hold_lock():
    """Wait until no other run, nor anything that a killed one left behind, works on this environment."""
    lock.append(os.open(ROOT, os.O_RDONLY))
    with contextlib.suppress(OSError):  # a file system without locks
        try:
            fcntl.flock(lock[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("environment: waiting for another run to end", flush=True)
            fcntl.flock(lock[0], fcntl.LOCK_EX)


def ros_sourced():
    """Return the name of the ROS 2 distribution that is sourced in this shell, None if none is."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return (
        os.environ.get("ROS_DISTRO") if any(folder and Path(folder, "rclpy").is_dir() for folder in folders) else None
    )


def ros_identity(sourced):
    return [sourced, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)[-1]] if sourced else None


def keeps_python(wanted, made):
    """Whether the interpreter of the present environment is there still, and is the one that is wanted."""
    if not (VENV / "bin" / "python").exists():
        return False
    return not wanted or (interpreter.probe(wanted) or {}).get("python") == made["python"]


def forget_other_environments(sourced):
    """Take out of this process's environment what would make pip and cmake look outside of .venv."""
    os.environ.pop("PYTHONHOME", None)
    os.environ["PYTHONNOUSERSITE"] = "1"
    if sourced:
        return
    os.environ.pop("PYTHONPATH", None)
    if os.environ.pop("_ROS_WHEELS_BOOTSTRAP_COMPLETE", None):  # set by the ROS wheels of the Python that started us
        paths = os.environ.pop("LD_LIBRARY_PATH", "").split(os.pathsep)
        others = [path for path in paths if path and not Path(path).parent.joinpath("pyvenv.cfg").is_file()]
        if others:
            os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(others)


def digest(paths):
    total = hashlib.sha256()
    for path in paths:
        total.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return total.hexdigest()


def read(path):
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def write(path, text):
    """Replace a file at once: it has the old content or the new one."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_text(text)
    os.replace(temporary, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="example: make env PYTHON=python3.12")
    parser.add_argument("--python", default="", help="interpreter to use (default: the first suitable one)")
    wanted = parser.parse_args().python
    try:
        forget_other_environments(ros_sourced())
        hold_lock()
        if VENV.exists() and not MADE.exists():
            raise Stop(f"{VENV} exists but was not made by 'make env': move it away")
        make(wanted)
    except Stop as stop:
        print(f"error: {stop}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the next 'make env' continues from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
