"""The Stretch's URDF conventions as a profile: its rules in order, and where document and released model part."""

from stretch_sim_cal.conventions.profile import Exemption, Profile, Rule
from stretch_sim_cal.conventions.stretch import rules
from stretch_sim_cal.conventions.stretch import sensor_rules as sensors
from stretch_sim_cal.conventions.stretch.names import BASE

RULES = (
    Rule("base-link", "All frames are said in base_link.", rules.base_link),
    Rule("rule-1", "Primary links, and the wrist's and wheels' zero positions, have base_link's orientation.",
         rules.identity_alignment),
    Rule("rule-2", "arm_l0 hangs on the lift, arm_l4 holds the wrist, the others between in order.", rules.arm_order),
    Rule("rule-3", "Axes of motion are positive unit vectors along primary axes.", rules.positive_axes),
    Rule("rule-4-base", "Sensor base frames: x forward, z to the sensor's top.", sensors.sensor_bases),
    Rule("rule-4-optical", "Optical frames: z out, x right, y down; one for every sensor.", sensors.optical_frames),
    Rule("rule-4-lidar", "Lidars: z out, y to the head's centre, x up.", sensors.lidars),
    Rule("rule-5-center", "Grippers have a virtual grasp centre parallel to the wrist.", sensors.grasp_center),
    Rule("rule-5-tips", "Fingertips: x normal to the surface, inwards.", sensors.fingertips),
    Rule("rule-6", "Wheels turn about z towards the base's centre, roll along x, are numbered counter-clockwise.",
         rules.wheels),
    Rule("rule-7", "Links end in _link, joints in _joint.", rules.suffixes),
)  # fmt: skip

EXEMPTIONS = (
    Exemption("rule-1", "wheel_*", "Rules 1 and 6 cannot both hold for a wheel: aligned with base_link, its z axis "
    "would be "
              "up and not towards the base's centre; the released model follows Rule 6"),
    Exemption("rule-1", "base_footprint", "base_ref is where a floor calibration is written to, so it may tilt by a "
    "little",
              up_to=3.0),
    Exemption("rule-4-optical", "gripper_*_optical_frame", "the released model levels the gripper camera's colour "
    "frames "
              "against the 3 deg by which the camera is pitched", up_to=3.01),
    Exemption("rule-4-lidar-y", "*lidar_*", "y points only roughly to the head's centre: the dome looks down by 45 "
    "deg and "
              "ahead, and the released model keeps the connector's true direction", up_to=55.0),
    Exemption("rule-4-lidar-x", "*lidar_*", "z out, y inwards and x up cannot all hold for a lidar on the right: it "
    "is the "
              "left one's mirror image, and mirrored frames are left-handed; the released model lets x point down",
              at_least=170.0),
    Exemption("rule-5-names", "grasp_center_link", "Rule 5's link_grasp_center has no _link suffix, which Rule 7 asks "
    "for; the "
              "released model follows Rule 7"),
    Exemption("rule-5-names", "*fingertip_*_link", "Rule 5's link_fingertip_* have no _link suffix, which Rule 7 asks "
    "for; the "
              "released model follows Rule 7"),
    Exemption("rule-5-tip-x", "*fingertip_*", "the curved gripper's fingertips are inclined by 16 deg against straight "
              "inwards while the fingers are closed, and turn with them", up_to=20.0),
    Exemption("rule-5-tip-missing", "finger_*_link", "the parallel gripper has no fingertip frames; those of its "
    "fingers "
              "follow the rule themselves", up_to=5.0),
    Exemption("rule-7", "link_grasp_center", "Rule 5 writes it so"),
    Exemption("rule-7", "link_fingertip_*", "Rule 5 writes it so"),
    Exemption("rule-7", "base_footprint", "the name that REP 120 gives this frame"),
    Exemption("rule-7", "base_ref", "calibration files name this joint so"),
    Exemption("rule-7", "laser", "the placeholder for a planar scan; consumers know it by this name"),
    Exemption("rule-7", "docking_contact_frame", "the released model calls this joint so; its link follows the rule"),
    Exemption("rule-7", "gripper_*_optical_frame", "camera drivers call their optical frames so"),
    Exemption("rule-7", "link_lidar_*", "older firmware calls the lidars so"),
)  # fmt: skip

STRETCH = Profile("stretch", "Stretch URDF conventions", RULES, EXEMPTIONS, BASE)
