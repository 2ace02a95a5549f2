"""A person who comes near while the arm moves is noticed; the arm and the room that it uncovers are not."""

import numpy as np
import pytest

from stretch_sim_cal.collection.clearance import LOOKS, RoomWatch
from stretch_sim_cal.geometry.transforms import SIDES, from_xyz_rpy
from stretch_sim_cal.robot.description import parse_urdf
from stretch_sim_cal.robot.kinematics import link_transform
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.simulation import solids
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.setup import SimulationSetup

POSES = [
    {"lift_joint": lift, "arm_joint": arm, "wrist_yaw_joint": yaw}
    for lift in (0.3, 0.9) for arm in (0.0, 0.5) for yaw in (0.2, 2.8)
]  # fmt: skip


class Room:
    """A simulated robot in a furnished room, and the watch of it."""

    def __init__(self):
        self.simulator = EmbeddedSimulator(SimulationSetup(world="furnished_room", sensor="jt128_sparse_real", seed=2))
        self.model = parse_urdf(self.simulator.nominal_description)
        footprint_from_base = link_transform(self.model, {}, "base_link")
        poses = {side: footprint_from_base @ self.simulator.base_from_lidar(side) for side in SIDES}
        self.watch, self.tick = RoomWatch(self.model, poses, stretch_profile()), 0
        for _ in range(5):
            self.watch.learn(self.scans())

    def scans(self):
        self.tick += 1
        return {side: xyz(self.simulator.scan(side, self.tick)) for side in SIDES}

    def look(self):
        positions = self.simulator.joints.joint_positions
        return self.watch.look(self.scans(), [stretch_profile().commanded_positions(self.model, positions)])

    def person(self, x, y):
        self.simulator.add_surface("person", solids.person().moved(from_xyz_rpy((x, y, 0.0))))


@pytest.fixture(scope="module")
def room():
    return Room()


def test_the_arm_that_moves_and_uncovers_the_room_is_nobody(room):
    for pose in POSES:
        room.simulator.joints.place(pose)
        assert [room.look() for _ in range(LOOKS)] == [None] * LOOKS, pose


@pytest.mark.parametrize("place", [(1.2, 0.3), (-0.3, -1.3), (-1.4, 0.2)])
def test_somebody_who_comes_near_is_noticed_at_the_second_look(room, place):
    room.simulator.joints.place(POSES[3])
    room.person(*place)
    found = [room.look() for _ in range(LOOKS)]
    room.simulator.add_surface("person", None)
    assert found[0] is None and np.hypot(*(found[1] - place)) < 0.4
    assert room.look() is None
