"""The tables of the iCub model naming conventions, as data; `SLIPS` lists where the text does not fit itself."""

from dataclasses import dataclass

BOARDS: dict[str, tuple[str, ...]] = {
    "left_leg": ("l_hip_pitch", "l_hip_roll", "l_hip_yaw", "l_knee", "l_ankle_pitch", "l_ankle_roll"),
    "right_leg": ("r_hip_pitch", "r_hip_roll", "r_hip_yaw", "r_knee", "r_ankle_pitch", "r_ankle_roll"),
    "torso": ("torso_pitch", "torso_roll", "torso_yaw"),
    "head": ("neck_pitch", "neck_roll", "neck_yaw"),
    "left_arm": ("l_shoulder_pitch", "l_shoulder_roll", "l_shoulder_yaw", "l_elbow", "l_wrist_prosup", "l_wrist_pitch",
                 "l_wrist_yaw"),
    "right_arm": ("r_shoulder_pitch", "r_shoulder_roll", "r_shoulder_yaw", "r_elbow", "r_wrist_prosup", "r_wrist_pitch",
                  "r_wrist_yaw"),
}  # fmt: skip
"""YARP control boards, and the joints of each."""

FT_SENSORS = {
    "l_arm_ft_sensor": "left_arm", "r_arm_ft_sensor": "right_arm", "l_leg_ft_sensor": "left_leg",
    "l_foot_ft_sensor": "left_foot", "r_leg_ft_sensor": "right_leg", "r_foot_ft_sensor": "right_foot",
}  # fmt: skip
"""Fixed joints that stand for six-axis force-torque sensors, and YARP's names of those."""

ROOT_LINK, ROOT_FRAME = "root_link", "root_frame"

_SIDED = (
    ("hip_1", "hip_pitch", ROOT_LINK), ("hip_2", "hip_roll", "hip_1"), ("hip_3", "leg_ft_sensor", "hip_2"),
    ("upper_leg", "hip_yaw", "hip_3"), ("lower_leg", "knee", "upper_leg"), ("ankle_1", "ankle_pitch", "lower_leg"),
    ("ankle_2", "ankle_roll", "ankle_1"), ("foot", "foot_ft_sensor", "ankle_2"),
    ("shoulder_1", "shoulder_pitch", "chest"), ("shoulder_2", "shoulder_roll", "shoulder_1"),
    ("shoulder_3", "shoulder_yaw", "shoulder_2"), ("upper_arm", "arm_ft_sensor", "shoulder_3"),
    ("elbow_1", "elbow", "upper_arm"), ("forearm", "wrist_prosup", "elbow_1"),
    ("wrist_1", "wrist_pitch", "forearm"), ("hand", "wrist_yaw", "wrist_1"),
)  # fmt: skip


def _on_side(side: str, name: str) -> str:
    return name if name in (ROOT_LINK, "chest") else f"{side}_{name}"


LINKS: dict[str, tuple[str, str]] = {
    **{
        _on_side(side, link): (f"{side}_{joint}", _on_side(side, parent))
        for side in "lr"
        for link, joint, parent in _SIDED
    },
    "torso_1": ("torso_pitch", ROOT_LINK),
    "torso_2": ("torso_roll", "torso_1"),
    "chest": ("torso_yaw", "torso_2"),
    "neck_1": ("neck_pitch", "chest"),
    "neck_2": ("neck_roll", "neck_1"),
    "head": ("neck_yaw", "neck_2"),
}
"""Each link's parent joint and parent link, with the table's slips put right (see `SLIPS`)."""

NECK_LINKS = ("neck_1", "neck_2", "head")
"""Not in the table of links, so a model that calls them otherwise is not at fault."""

SMALL_WITHOUT_MASS = ("[lr]_hip_3", "[lr]_wrist_1", "torso_[12]", "neck_[12]")
SMALL_WITHOUT_SHAPE = ("[lr]_hip_3", "[lr]_ankle_2", "[lr]_shoulder_3", "[lr]_elbow_1", "[lr]_wrist_1", "torso_2")
"""Links of more complex linkages that released models give no mass, or no mesh, of their own (shell patterns)."""

AXES: dict[str, tuple[int, int, int]] = {
    "l_hip_pitch": (0, 1, 0), "l_hip_roll": (-1, 0, 0), "l_hip_yaw": (0, 0, 1), "l_knee": (0, 1, 0),
    "l_ankle_pitch": (0, -1, 0), "l_ankle_roll": (-1, 0, 0),
    "r_hip_pitch": (0, 1, 0), "r_hip_roll": (1, 0, 0), "r_hip_yaw": (0, 0, -1), "r_knee": (0, 1, 0),
    "r_ankle_pitch": (0, -1, 0), "r_ankle_roll": (1, 0, 0),
    "torso_pitch": (0, -1, 0), "torso_roll": (-1, 0, 0), "torso_yaw": (0, 0, -1),
    "l_shoulder_pitch": (0, -1, 0), "l_shoulder_roll": (-1, 0, 0), "l_shoulder_yaw": (0, 0, -1), "l_elbow": (0, 1, 0),
    "l_wrist_prosup": (0, 0, -1), "l_wrist_pitch": (1, 0, 0), "l_wrist_yaw": (0, -1, 0),
    "r_shoulder_pitch": (0, -1, 0), "r_shoulder_roll": (1, 0, 0), "r_shoulder_yaw": (0, 0, 1), "r_elbow": (0, 1, 0),
    "r_wrist_prosup": (0, 0, 1), "r_wrist_pitch": (-1, 0, 0), "r_wrist_yaw": (0, -1, 0),
}  # fmt: skip
"""Axes of revolute joints at the zero configuration, in the root frame, as the table has them. None of the neck's."""

ARM_JOINTS = frozenset(BOARDS["left_arm"] + BOARDS["right_arm"])
"""Their axes are only an idea of the direction, the text says."""

FRAMES: dict[str, tuple[str, ...]] = {
    "root_frame": (ROOT_LINK,),
    "imu_frame": ("head",),
    "l_hand_dh_frame": ("l_hand",), "r_hand_dh_frame": ("r_hand",),
    "l_foot_dh_frame": ("l_foot",), "r_foot_dh_frame": ("r_foot",),
    "l_arm_ft_frame": ("l_shoulder_3", "l_upper_arm"), "r_arm_ft_frame": ("r_shoulder_3", "r_upper_arm"),
    "l_leg_ft_frame": ("l_hip_2", "l_hip_3"), "r_leg_ft_frame": ("r_hip_2", "r_hip_3"),
    "l_foot_ft_frame": ("l_ankle_2", "l_foot"), "r_foot_ft_frame": ("r_ankle_2", "r_foot"),
    "l_upper_arm_dh_frame": ("l_upper_arm",), "r_upper_arm_dh_frame": ("r_upper_arm",),
    "l_forearm_dh_frame": ("l_forearm",), "r_forearm_dh_frame": ("r_forearm",),
}  # fmt: skip
"""Frames, and the links that each may be fixed to; those of the eyes are left out as the text leaves the eyes out."""

SKIN_PARTS = {
    "l_foot_dh_frame": "LEFT_FOOT", "r_foot_dh_frame": "RIGHT_FOOT",
    "l_upper_arm_dh_frame": "SKIN_LEFT_UPPER_ARM", "r_upper_arm_dh_frame": "SKIN_RIGHT_UPPER_ARM",
    "l_forearm_dh_frame": "SKIN_LEFT_FOREARM", "r_forearm_dh_frame": "SKIN_RIGHT_FOREARM",
    "l_hand_dh_frame": "SKIN_LEFT_HAND", "r_hand_dh_frame": "SKIN_RIGHT_HAND",
}  # fmt: skip
"""Frames of the skin system, and its parts."""


@dataclass(frozen=True)
class Slip:
    """A place where the document does not fit itself: where, what it says, and how it is read here."""

    where: str
    says: str
    read_as: str


SLIPS = (
    Slip("links, l_elbow_1", "its parent link is l_forearm, whose own parent is l_elbow_1: a loop", "l_upper_arm"),
    Slip("links, r_elbow_1", "its parent link is r_arm, which no table defines", "r_upper_arm"),
    Slip("links, head", "the joints neck_pitch, neck_roll and neck_yaw have no links in the table, though imu_frame "
    "hangs on "
         "head", "neck_1, neck_2 and head, as released models have them"),
    Slip("axes, neck", "the table of axes leaves the three neck joints out", "no axis of theirs is judged"),
    Slip("axes, torso_roll", "(-1 0 0), while released models turn about (1 0 0)", "both are accepted"),
    Slip("axes, Min and Max", "the columns are empty", "no range is judged"),
    Slip("frames, l_arm_ft_frame and r_arm_ft_frame", "they are on l_upper_arm and l_arm (r_arm), but the sensor's "
    "joint is "
         "between l_shoulder_3 and l_upper_arm, and no table defines l_arm", "l_shoulder_3 or l_upper_arm, and alike "
         "right"),
    Slip("frames, l_foot_ft_frame and r_foot_ft_frame", "they are on l_upper_foot and l_foot, but no table defines "
         "l_upper_foot", "l_ankle_2 or l_foot, and alike right"),
    Slip("frames, l_eye_frame and r_eye_frame", "they are listed, while the text leaves the eyes out and gives them "
    "no link",
         "not asked for"),
    Slip("joints, torso", "YARP's board counts the torso yaw, roll, pitch from the chest down; the table lists pitch, "
    "roll, "
         "yaw", "membership of a board is judged, not the order"),
    Slip("skin frames", "the prefix SKIN_ is missing on LEFT_FOOT and RIGHT_FOOT, which the other six have",
    "names of parts "
         "are not judged"),
)  # fmt: skip
