"""Where a Stretch stows its tool, whichever tool it has."""

from stretch_sim_cal.robot.collision import SelfCollision
from stretch_sim_cal.robot.description import RobotModel
from stretch_sim_cal.robot.stretch import STOW, finger_joints, joint_positions

MARGIN = 0.01
# Tools that are too wide to lie flat beside the arm hang beside it, or stand in front of the mast.
OTHER_STOWS = (
    STOW | {"lift_joint": 0.4, "wrist_yaw_joint": 3.6, "wrist_pitch_joint": 1.57},
    STOW | {"wrist_yaw_joint": 4.2, "wrist_pitch_joint": 1.57, "wrist_roll_joint": -3.14},
)


def stow_positions(model: RobotModel) -> dict[str, float]:
    """Return commanded positions that fold the tool over the base, nothing closer than 1 cm to anything else.

    Where none of the known stows is that free (an unknown, large tool), it is the one with the fewest close pairs.
    """
    collision = SelfCollision(model, MARGIN)
    gripper = bool(finger_joints(model))
    stows = [{k: v for k, v in stow.items() if gripper or k != "gripper_joint"} for stow in (STOW, *OTHER_STOWS)]
    return min(stows, key=lambda stow: len(collision.colliding_pairs(joint_positions(model, stow))))
