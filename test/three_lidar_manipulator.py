"""The two-lidar manipulator with a third lidar on a mast: a robot with an arm and more than two lidars, for tests."""

from pathlib import Path

import yaml

from stretch_sim_cal import files

DESCRIPTION = """<robot xmlns:xacro="http://www.ros.org/wiki/xacro" name="three_lidar_manipulator">
  <xacro:include filename="{base}"/>
  <link name="mast_laser_link">
    <collision><geometry><cylinder radius="0.05" length="0.07"/></geometry></collision>
  </link>
  <joint name="mast_laser_joint" type="fixed">
    <origin xyz="-0.40 0.30 0.85" rpy="0 0.4 -0.6"/>
    <parent link="base_link"/>
    <child link="mast_laser_link"/>
  </joint>
</robot>
"""


def three_lidar_manipulator(folder: Path) -> Path:
    """Write the robot's description and profile into a folder, and return the profile's path."""
    share = files.share_directory()
    base = share / "models" / "two_lidar_manipulator.urdf.xacro"
    (folder / "three.urdf.xacro").write_text(DESCRIPTION.format(base=base))
    profile = yaml.safe_load((share / "config" / "robots" / "two_lidar_manipulator.yaml").read_text())
    profile |= {"name": "three-lidar manipulator", "description": {"file": "three.urdf.xacro"}}
    profile["lidars"]["mast"] = {"frame": "mast_laser_link", "topic": "/mast_lidar/points"}
    (folder / "three.yaml").write_text(yaml.safe_dump(profile))
    return folder / "three.yaml"
