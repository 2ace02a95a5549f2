"""Finds the Python interpreter that the environment is made with, or says in one line what is missing."""

import json
import os
import platform
import shutil
import subprocess
import sys

SUPPORTED = ((3, 11), (3, 12), (3, 13))  # the package index has ROS wheels for these

PROBE = """
import importlib.util, json, os, sys, sysconfig

def version_of(name):
    try:
        return getattr(__import__(name), "__version__", "?")
    except (ImportError, AttributeError, OSError, SyntaxError):  # missing, or made for another Python
        return None

include = sysconfig.get_paths()["include"]
print(json.dumps({
    "python": getattr(sys, "_base_executable", sys.executable),
    "version": "%d.%d.%d" % sys.version_info[:3],
    "venv": all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")),
    "include": include,
    "headers": os.path.isfile(os.path.join(include, "Python.h")),
    "numpy": version_of("numpy"),
    "rclpy": version_of("rclpy"),
}))
"""


class Stop(Exception):
    """The environment cannot be made; the message is one line that says why and what to do."""


def choose(wanted, sourced):
    """Return what `probe` says of the interpreter to use: `wanted` if given, else the first that has all it needs.

    `sourced` is the name of the ROS 2 distribution whose rclpy the interpreter has to import, None for none.
    """
    names = (
        [wanted]
        if wanted
        else [sys.executable, "/usr/bin/python3"] + ["python{}.{}".format(*version) for version in SUPPORTED]
    )
    found = [said for said in map(probe, dict.fromkeys(names)) if said]
    if not found:
        raise Stop(f"PYTHON={wanted}: there is no such interpreter" if wanted else "there is no Python that runs")
    complaints = [complaint(said, sourced) for said in found]
    for said, said_no in zip(found, complaints, strict=False):
        if said_no is None:
            return said
    # The complaint of one that only lacks a Debian package helps more than that of one with the wrong version.
    raise Stop(next((text for text in complaints if "apt-get" in text), complaints[0]))


def probe(name):
    """Return what the interpreter `name` has to offer, None if it does not run."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        done = subprocess.run([path, "-c", PROBE], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
        return json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def complaint(said, sourced):
    """Return one line on why an interpreter cannot be used, None if it can."""
    python, version = said["python"], said["version"]
    short = ".".join(version.split(".")[:2])
    if sourced:
        if not said["rclpy"]:
            return f"{python} cannot import the rclpy of ROS 2 {sourced}: choose another Python, 'make env PYTHON=...'"
        if _number(version) < SUPPORTED[0]:
            return (
                f"ROS 2 {sourced} runs on Python {version}, but 3.11 or newer is needed: use ROS "
                "2 Jazzy, or a shell without ROS"
            )
    elif _number(version) not in SUPPORTED:
        return (
            f"{python} is Python {version}, the ROS wheels are for 3.11 to 3.13: "
            "apt-get install python3.12-venv python3.12-dev (or 3.11), or choose one, 'make env PYTHON=...'"
        )
    lacks = [] if said["venv"] else [f"python{short}-venv"]
    lacks += [] if said["headers"] or sourced else [f"python{short}-dev"]
    if lacks:
        return f"{python} (Python {version}) is incomplete: apt-get install {' '.join(lacks)}"
    return None


def check_machine():
    """Raise `Stop` where the package index has no ROS wheels for this machine, or nothing here compiles C++."""
    machine = f"{platform.system()} {platform.machine()}"
    libc, libc_version = platform.libc_ver()
    advice = "there are no ROS wheels for it: install ROS 2 Jazzy, source it, and run 'make env' again"
    if machine != "Linux x86_64":
        raise Stop(f"this machine is {machine}, {advice}")
    if libc != "glibc" or _number(libc_version) < (2, 28):
        raise Stop(f"this system has {libc or 'another C library than glibc'} {libc_version}, {advice}")
    if not all(shutil.which(os.environ.get(*compiler).split()[0]) for compiler in (("CC", "cc"), ("CXX", "c++"))):
        raise Stop("a C and a C++ compiler are needed to build the interface packages: apt-get install g++")


def _number(version):
    return tuple(int(part) for part in version.split(".")[:2])
