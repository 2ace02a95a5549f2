"""What of Gazebo is installed: its program, the Python bindings of its transport, and their generation."""

import importlib.util
import pkgutil
import shutil
from dataclasses import dataclass
from pathlib import Path

from stretch_sim_cal.errors import InputError

# Generations by the number in the names of their transport's Python module; from 16 on there is no number.
GENERATIONS = {13: "Harmonic", 14: "Ionic", 15: "Jetty"}
UNVERSIONED = "newer than Jetty"
LIDARS = ("auto", "gpu", "cpu")
CPU_LIDAR = "gz-sim-cpu-lidar-system"
INSTALL = (
    "beside ROS 2 Jazzy: apt install ros-jazzy-ros-gz and source ROS; else Gazebo's own gz-harmonic and "
    "python3-gz-transport13; or use the embedded simulator"
)


@dataclass(frozen=True)
class Installation:
    """A Gazebo: its program, the module of its bindings, perhaps in the folder `python_path`, and its generation."""

    program: str
    bindings: str
    generation: str
    has_cpu_lidar: bool
    python_path: str = ""

    def lidar(self, wanted: str) -> str:
        """Return "cpu" or "gpu" for a choice of `LIDARS`; `auto` prefers the CPU lidar, which is exact and needs no
        renderer. Raises `InputError` if Gazebo does not have that one."""
        if wanted not in LIDARS:
            raise InputError(f"lidar '{wanted}' is unknown; available: {', '.join(LIDARS)}")
        if wanted == "cpu" and not self.has_cpu_lidar:
            missing = f"{CPU_LIDAR} is not among its plugins"
            raise InputError(f"Gazebo {self.generation} has no CPU lidar ({missing}); use --lidar gpu")
        return "cpu" if wanted != "gpu" and self.has_cpu_lidar else "gpu"


def find_gazebo() -> Installation:
    """Return the installed Gazebo. Raises `InputError` naming what is missing or unknown."""
    from stretch_sim_cal.files import folders_in  # not needed for a program's --help, which imports `LIDARS`

    program = shutil.which("gz")
    if program is None:
        raise InputError(f"Gazebo is not installed (there is no 'gz' on the path): {INSTALL}")
    of_ros = [prefix / "opt" for prefix in folders_in("AMENT_PREFIX_PATH")]
    plugins = folders_in("GZ_SIM_SYSTEM_PLUGIN_PATH")
    for prefix in (Path(program).resolve().parent.parent, Path("/usr"), *(opt / "gz_sim_vendor" for opt in of_ros)):
        for library in (prefix / "lib", *(prefix / "lib").glob("*-linux-gnu")):
            plugins += library.glob("gz-sim*/plugins")
    has_cpu_lidar = any(any(folder.glob(f"lib{CPU_LIDAR}*")) for folder in plugins)
    # The Python folders of ROS's package of Gazebo's transport, which sourcing ROS does not add.
    found = [gz for opt in of_ros for gz in (opt / "gz_transport_vendor").glob("lib*/**/gz")]
    for folder in sorted({gz.parent for gz in found if any(gz.glob("transport*"))}):
        if modules := _bindings_in([str(folder / "gz")]):
            return Installation(program, *choose_bindings(modules), has_cpu_lidar, str(folder))
    package = importlib.util.find_spec("gz")
    modules = _bindings_in(list(package.submodule_search_locations or [])) if package is not None else []
    return Installation(program, *choose_bindings(modules), has_cpu_lidar)


def choose_bindings(modules: list[str]) -> tuple[str, str]:
    """Return (module, generation) of the newest known bindings among the modules `transport...` of package `gz`. Raises
    `InputError` without any."""
    if "transport" in modules:
        return "gz.transport", UNVERSIONED
    numbers = sorted(int(name.removeprefix("transport")) for name in modules)
    if known := [number for number in numbers if number in GENERATIONS]:
        return f"gz.transport{known[-1]}", GENERATIONS[known[-1]]
    if numbers:
        known_ones = ", ".join(f"{name} ({number})" for number, name in GENERATIONS.items()) + f" and {UNVERSIONED}"
        fault = f"Gazebo's Python bindings gz.transport{numbers[-1]} are of an unknown generation"
        raise InputError(f"{fault}; known are {known_ones}")
    raise InputError(f"Gazebo is installed, but not the Python bindings of its transport: {INSTALL}")


def _bindings_in(folders: list[str]) -> list[str]:
    names = [module.name for module in pkgutil.iter_modules(folders)]
    return [name for name in names if name == "transport" or name[:9] == "transport" and name[9:].isdigit()]
