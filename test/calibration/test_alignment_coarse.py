"""Where the alignment starts from: near the guess, as far as the scene says nothing else."""

import numpy as np
import pytest
import trimesh
from alignment_scenes import SimulatedScene, align, errors
from test_alignment_refusals import refusals_in

from stretch_sim_cal.errors import Refused
from stretch_sim_cal.geometry.transforms import error
from stretch_sim_cal.robot.surfaces import Surface


@pytest.fixture(scope="module")
def corridor():
    scene = SimulatedScene("long_corridor")
    return scene, [scene.frame(tick) for tick in range(5)]


@pytest.mark.parametrize("count", [3, 5])
def test_a_corridor_leaves_the_guess_along_it_and_is_not_turned_around(corridor, count):
    scene, frames = corridor
    result = align(frames[:count], scene.initial, scene.settings)
    distance, angle = error(scene.truth, result.right_to_left)
    assert distance < 0.05 and angle < np.deg2rad(0.5)  # the truth is 5 mm from the guess
    assert any("sliding along base x" in refusal for refusal in result.refusals)
    assert not any("moved" in refusal for refusal in result.refusals)


@pytest.fixture(scope="module")
def bare_room():
    """A room that looks the same from both ends, the robot in its middle."""
    scene = SimulatedScene("open_field")
    walls = trimesh.creation.box((5.0, 3.6, 2.6)).apply_translation((0.0, 0.0, 1.29))
    scene.simulator.add_surface("walls", Surface(np.asarray(walls.vertices), np.asarray(walls.faces)))
    return scene, [scene.frame(tick) for tick in range(5)]


def test_a_bare_room_is_not_turned_around(bare_room):
    scene, frames = bare_room
    result = align(frames, scene.initial, scene.settings)
    assert result.accepted, result.refusals
    assert errors(scene.truth, result)[0] < 2.0


def test_without_a_guess_a_bare_room_that_looks_alike_from_both_ends_is_refused(bare_room):
    scene, frames = bare_room
    with pytest.raises(Refused, match=r"two transforms, .* m and 1[78]\d deg apart"):
        align(frames, None, scene.settings)


def test_a_round_room_keeps_the_guessed_turn():
    refusals, unobserved = refusals_in("round_room")
    assert "turning about base z" in unobserved
    assert not any("moved" in refusal for refusal in refusals)


@pytest.mark.parametrize("world, metres, degrees", [("furnished_room", 0.05, 1.0), ("round_room", 0.1, 10.0)])
def test_the_guess_counts_where_registration_runs_away_from_it(world, metres, degrees):
    """Bands of channels that measure 2 cm too long and too short: GICP slid away, up to half a turn in the end."""
    scene = SimulatedScene(world, seed=4)
    scene.place(-0.15, -1.4, -1.1)
    frames = [tuple(map(displaced, scene.frame(tick))) for tick in range(2)]
    result = align(frames, scene.initial, scene.settings)
    distance, angle = error(scene.truth, result.right_to_left)
    assert distance < metres and np.rad2deg(angle) < degrees


def displaced(points: np.ndarray) -> np.ndarray:
    """Return points (N, 3) moved by 2 cm along their rays, outwards and inwards in turn by degrees of elevation."""
    ranges = np.linalg.norm(points, axis=1)
    outwards = np.floor(np.rad2deg(np.arcsin(points[:, 2] / ranges))) % 2 > 0
    return points * (1.0 + np.where(outwards, 0.02, -0.02) / ranges)[:, None]
