"""A robot with the parts of public ones over which a profile may stumble: a footprint that is a child of base_link, a
package that only `$(find)` and `package://` name, wheels and an arm joint without limits, a planar laser and a range
finder beside two lidars, of which the left one looks at the stowed arm."""

from pathlib import Path

import trimesh

PACKAGE = "awkward_description"
PARTS = """<robot xmlns:xacro="http://www.ros.org/wiki/xacro">
  <xacro:macro name="body" params="name mass:=1.0 *shape *where">
    <link name="${name}">
      <inertial><origin xyz="0 0 0"/><mass value="${mass}"/>
        <inertia ixx="${0.002*mass}" ixy="0" ixz="0" iyy="${0.002*mass}" iyz="0" izz="${0.002*mass}"/></inertial>
      <visual><xacro:insert_block name="where"/><geometry><xacro:insert_block name="shape"/></geometry></visual>
      <collision><xacro:insert_block name="where"/><geometry><xacro:insert_block name="shape"/></geometry></collision>
    </link>
  </xacro:macro>
  <xacro:macro name="fixed" params="child parent:=base_link xyz:='0 0 0' rpy:='0 0 0'">
    <joint name="${child}_joint" type="fixed">
      <origin xyz="${xyz}" rpy="${rpy}"/><parent link="${parent}"/><child link="${child}"/>
    </joint>
  </xacro:macro>
  <xacro:macro name="turning" params="name parent child xyz axis type:=continuous limit:=''">
    <joint name="${name}" type="${type}">
      <origin xyz="${xyz}"/><axis xyz="${axis}"/><parent link="${parent}"/><child link="${child}"/>
      <xacro:if value="${type == 'revolute'}"><limit lower="-2.0" upper="2.0" velocity="1.0" effort="50"/></xacro:if>
    </joint>
  </xacro:macro>
</robot>
"""
ROBOT = """<robot xmlns:xacro="http://www.ros.org/wiki/xacro" name="awkward">
  <xacro:include filename="$(find awkward_description)/urdf/parts.xacro"/>
  <xacro:body name="base_link" mass="40.0">
    <mesh filename="package://awkward_description/meshes/base.stl"/><origin xyz="0 0 0.15"/>
  </xacro:body>
  <link name="base_footprint"/>
  <xacro:fixed child="base_footprint" xyz="0 0 -0.1"/>
  <xacro:macro name="wheel" params="side y">
    <xacro:body name="${side}_wheel"><cylinder radius="0.1" length="0.05"/><origin rpy="1.5707963 0 0"/></xacro:body>
    <xacro:turning name="${side}_wheel_joint" parent="base_link" child="${side}_wheel" xyz="0 ${y} 0" axis="0 1 0"/>
  </xacro:macro>
  <xacro:wheel side="left" y="0.28"/>
  <xacro:wheel side="right" y="-0.28"/>
  <xacro:macro name="lidar" params="side x y yaw">
    <xacro:body name="lidar_${side}_link" mass="0.5">
      <cylinder radius="0.04" length="0.07"/><origin xyz="0 0 0"/>
    </xacro:body>
    <xacro:fixed child="lidar_${side}_link" xyz="${x} ${y} 0.4" rpy="0 0.35 ${yaw}"/>
  </xacro:macro>
  <xacro:lidar side="left" x="0.28" y="0.20" yaw="0.8"/>
  <xacro:lidar side="right" x="-0.28" y="-0.20" yaw="-2.3"/>
  <xacro:body name="laser_link" mass="0.5"><box size="0.06 0.06 0.05"/><origin xyz="0 0 0"/></xacro:body>
  <xacro:fixed child="laser_link" xyz="0.34 0 0.1"/>
  <gazebo reference="laser_link">
    <sensor type="ray" name="laser"><ray><scan><horizontal><samples>640</samples></horizontal></scan></ray></sensor>
  </gazebo>
  <link name="cliff_front"/>
  <xacro:fixed child="cliff_front" xyz="0.3 0 0.01" rpy="0 1.57 0"/>
  <gazebo reference="cliff_front">
    <sensor type="ray" name="cliff"><ray><scan>
      <horizontal><samples>5</samples></horizontal><vertical><samples>5</samples></vertical>
    </scan></ray></sensor>
  </gazebo>
  <xacro:body name="shoulder_link"><cylinder radius="0.05" length="0.1"/><origin xyz="0 0 0.05"/></xacro:body>
  <xacro:turning name="shoulder_pan" parent="base_link" child="shoulder_link" xyz="0 0 0.31" axis="0 0 1"/>
  <xacro:body name="upper_arm_link"><box size="0.34 0.06 0.06"/><origin xyz="0.17 0 0"/></xacro:body>
  <xacro:turning name="shoulder_lift" parent="shoulder_link" child="upper_arm_link" xyz="0 0 0.14" axis="0 1 0"
    type="revolute"/>
  <xacro:body name="forearm_link"><box size="0.3 0.05 0.05"/><origin xyz="0.18 0 0"/></xacro:body>
  <xacro:turning name="elbow_flex" parent="upper_arm_link" child="forearm_link" xyz="0.36 0 0" axis="0 1 0"
    type="revolute"/>
</robot>
"""


def write_awkward_robot(folder: Path) -> tuple[Path, Path]:
    """Write the package into a folder and return its own folder and the xacro in it."""
    package = folder / "sources" / "awkward"
    for name in ("urdf", "meshes"):
        (package / name).mkdir(parents=True)
    trimesh.creation.box((0.6, 0.5, 0.3)).export(package / "meshes" / "base.stl")
    (package / "urdf" / "parts.xacro").write_text(PARTS)
    (package / "package.xml").write_text(f"<package><name>{PACKAGE}</name></package>")
    robot = package / "urdf" / "awkward.urdf.xacro"
    robot.write_text(ROBOT)
    return package, robot
