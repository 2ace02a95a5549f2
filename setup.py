"""Builds the package for colcon (ament_python) and for pip alike."""

from pathlib import Path
from xml.etree import ElementTree

from setuptools import find_packages, setup

PACKAGE = "stretch_sim_cal"
SHARED = ("config", "launch", "models", "rviz", "scenarios", "worlds")
PROGRAMS = (
    "stretch_simulator",
    "ros_align_dual_lidar",
    "ros_find_floor_calibration",
    "ros_broadcast_calibration",
    "ros_visualize_calibration",
    "ros_capture_clouds",
    "ros_collect_body_shape_data",
    "ros_calibrate_lidar_mounts",
    "ros_calibrate_by_driving",
    "ros_visualize_body_shape_calibration",
    "fit_body_shape_model",
    "ros_calibrate_robot",
    "ros_watch_calibration",
    "ros_publish_footprint",
)
CAMPAIGN = [
    "cma>=4,<5",
    "distributed>=2025.1",
    "pyarrow>=18",
    "scikit-learn>=1.5,<2",
]
ROOT = Path(__file__).resolve().parent


def data_files() -> list[tuple[str, list[str]]]:
    """Return every file of the shared folders, each below share/ as it lies here, and what
    makes this an ament package."""
    files = {
        "share/ament_index/resource_index/packages": [f"resource/{PACKAGE}"],
        f"share/{PACKAGE}": ["package.xml"],
    }
    for folder in SHARED:
        for path in sorted((ROOT / folder).rglob("*")):
            hidden = any(part.startswith((".", "__pycache__")) for part in path.relative_to(ROOT).parts)
            if path.is_file() and not hidden:
                relative = path.relative_to(ROOT)
                files.setdefault(f"share/{PACKAGE}/{relative.parent.as_posix()}", []).append(relative.as_posix())
    return sorted(files.items())


manifest = ElementTree.parse(ROOT / "package.xml").getroot()

setup(
    name=PACKAGE,
    version=manifest.findtext("version"),
    description=" ".join(manifest.findtext("description").split()),
    long_description=(ROOT / "README.md").read_text(encoding="utf-8") if (ROOT / "README.md").is_file() else "",
    long_description_content_type="text/markdown",
    maintainer=manifest.findtext("maintainer"),
    maintainer_email=manifest.find("maintainer").get("email"),
    license=manifest.findtext("license"),
    packages=find_packages(include=[PACKAGE, f"{PACKAGE}.*"]),
    package_data={PACKAGE: ["*/README.md", "*/*.js", "harness/templates/*"]},
    data_files=data_files(),
    python_requires=">=3.11",
    # rclpy and the message packages are no dependencies for pip: they come with ROS 2, or from environment/ros.txt.
    install_requires=[
        "defusedxml>=0.7.1,<1",
        "embreex>=4.4,<5",
        "hello-robot-stretch4-urdf>=2026.10",
        "jinja2>=3.1,<4",
        "lxml>=5,<7",
        "matplotlib>=3.8,<4",
        "numpy>=1.26,<3",
        "python-fcl>=0.7,<0.8",
        "pyyaml>=6.0.1,<7",
        "rosbags>=0.11,<0.12",
        "scipy>=1.16,<2",
        "shapely>=2.0.4,<3",
        "small_gicp>=1.0,<2",
        "threadpoolctl>=3.5,<4",
        "tqdm>=4.66,<5",
        "trimesh>=4.5,<6",
        "xacro>=2,<3",
    ],
    extras_require={
        "campaign": CAMPAIGN,
        # Wheels of ROS 2 Jazzy, Linux on x86-64. tf2_msgs and control_msgs are in none: ROS or 'make env' has them.
        "ros": [
            "ros-rclpy[fastrtps]==7.1.6",
            *(
                f"ros-{kind}-msgs==5.3.6"
                for kind in ("diagnostic", "geometry", "nav", "sensor", "std", "trajectory", "visualization")
            ),
            "ros-std-srvs==5.3.6",
        ],
        "view": ["rerun-sdk>=0.34,<0.50"],
        "docs": ["mkdocs-material>=9.5,<10", "mkdocstrings[python]>=0.26,<2"],
        # What ROS's launch needs where its sources are used without ROS.
        "launch": ["lark>=1.1,<2", "osrf-pycommon>=2,<3"],
        "test": [
            *CAMPAIGN,
            "build>=1.2,<2",
            "hypothesis>=6.90,<7",
            "icub-models>=3,<4",
            "jsonschema>=4.10,<5",
            "mcap>=1.3,<2",
            "mcap-ros2-support>=0.5,<1",
            "mypy==2.4.1",
            "pytest>=7.4,<10",
            "pytest-xdist>=3.5,<4",
            "ruff==0.17.6",  # exactly, as mypy: another version has other rules, and another opinion of the format
            "twine>=6,<7",
            "types-PyYAML",
            "yourdfpy>=0.0.56,<0.1",
        ],
    },
    entry_points={
        "console_scripts": [
            f"stretch-sim-cal = {PACKAGE}.programs:stretch_sim_cal",
            *(f"{name} = {PACKAGE}.programs:{name}" for name in PROGRAMS),
        ],
        "pytest11": [f"stretch_sim_cal = {PACKAGE}.pytest_plugin"],
    },
)
