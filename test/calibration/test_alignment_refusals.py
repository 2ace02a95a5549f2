"""What an alignment refuses."""

import numpy as np
import pytest
from alignment_scenes import SimulatedScene, align, assert_aligned, frames_of, further_long, off_by
from floor_scenes import box
from top_and_dome import top_and_dome

import stretch_sim_cal as cal
from stretch_sim_cal.calibration import summaries
from stretch_sim_cal.calibration.alignment import ties
from stretch_sim_cal.geometry.transforms import error, from_xyz_rpy, inverse
from stretch_sim_cal.robot.surfaces import Surface
from stretch_sim_cal.simulation import solids


@pytest.mark.parametrize(
    ("world", "unobserved"),
    [
        ("long_corridor", ["sliding along base x"]),
        pytest.param("single_wall", ["sliding along base y"], marks=pytest.mark.long),
        ("open_field", ["sliding along base x", "sliding along base y", "turning about base z"]),
        pytest.param("round_room", ["turning about base z"], marks=pytest.mark.long),
    ],
)
def test_what_a_world_does_not_show_is_named_and_left_at_the_guess(world, unobserved):
    scene = SimulatedScene(world)
    result = align([scene.frame(tick) for tick in range(3)], scene.initial, scene.settings)
    assert sorted(direction.name for direction in result.directions if not direction.observed) == unobserved
    assert not any("moved" in refusal for refusal in result.refusals)
    if world == "long_corridor":
        assert len(result.refusals) == 1
        assert "sliding along base x" in result.refusals[0] and "unbounded" in result.refusals[0]
        lines = summaries.alignment_lines(
            result, summaries.alignment_numbers(result, scene.initial, scene.base_from_left)
        )
        assert any(line.endswith("base x: unbounded (bound 5 mm)  <- not determined by this scene") for line in lines)
        assert not any(number in " ".join(lines).split() for number in ("inf", "nan"))
        distance, angle = error(scene.truth, result.right_to_left)
        assert distance < 0.05 and angle < np.deg2rad(0.5)  # the truth is 5 mm from the guess


def test_turning_the_robot_helps_where_a_hall_is_seen_square_on():
    scene = SimulatedScene("empty_hall")
    square = align([scene.frame(tick) for tick in range(4)], scene.initial, scene.settings)
    assert "base y" in square.refusals[0] and "turn the robot" in square.refusals[0]
    scene.place(0.0, 0.0, 0.8)
    turned = align([scene.frame(tick) for tick in range(4)], scene.initial, scene.settings)
    assert_aligned(scene, turned, 1.5)


@pytest.mark.parametrize("degrees", further_long(90.0, 30.0))
def test_a_robot_that_turns_between_the_frames_is_told_that_it_moved(degrees):
    scene = SimulatedScene("furnished_room")
    frames = [scene.frame(0)]
    scene.place(0.0, 0.0, np.radians(degrees))
    result = align([*frames, scene.frame(1)], scene.initial, scene.settings)
    assert result.refusals and result.refusals[0].startswith("the robot moved")
    assert not any("view changed" in refusal for refusal in result.refusals[1:])


def person(x: float, y: float) -> Surface:
    """Return someone at a place in the world (m)."""
    return solids.person().moved(from_xyz_rpy((x, y, 0.0)))


PATHS = {
    "around the robot": lambda tick: 1.3 * np.array([np.cos(0.2 * tick - 1.0), np.sin(0.2 * tick - 1.0)]),
    "straight through": lambda tick: np.array([0.8, 1.6 - 0.32 * tick]),
}


@pytest.mark.parametrize("path", further_long("around the robot", "straight through"))
def test_a_person_who_walks_by_is_left_out_and_mentioned(path):
    scene = SimulatedScene("furnished_room")
    frames = []
    for tick in range(10):
        scene.simulator.add_surface("person", person(*PATHS[path](tick)))
        frames.append(scene.frame(tick))
    result = align(frames, scene.initial, scene.settings)
    assert_aligned(scene, result, 1.0)
    assert any("something moved" in warning for warning in result.warnings)


@pytest.mark.parametrize(("x", "yaw"), [(0.015, 0.0), pytest.param(0.0, 0.01, marks=pytest.mark.long)])
def test_a_robot_that_was_pushed_half_way_is_noticed(x, yaw):
    scene = SimulatedScene("furnished_room")
    frames = [scene.frame(tick) for tick in range(5)]
    scene.place(x, 0.0, yaw)
    frames += [scene.frame(tick) for tick in range(5, 10)]
    result = align(frames, scene.initial, scene.settings)
    assert len(result.refusals) >= 1
    assert "robot moved" in result.refusals[0] or "something else" in result.refusals[0]


@pytest.mark.parametrize("off", [(20.0, 0.2), (180.0, 0.0)])
def test_a_wrong_minimum_is_called_that_and_nothing_else(monkeypatch, off):
    scene, frames = frames_of("furnished_room", 12)
    monkeypatch.setattr(ties, "coarse_alignment", lambda *_: scene.truth @ off_by(*off, seed=3))
    refusals = align(frames[:6], scene.initial, scene.settings).refusals
    assert len(refusals) == 1 and "do not fit together" in refusals[0]


def test_lidars_that_look_at_different_things_are_not_aligned():
    room, room_frames = frames_of("furnished_room", 12)
    corridor = SimulatedScene("long_corridor")
    frames = [(room_frames[tick][0], corridor.frame(tick)[1]) for tick in range(5)]
    result = align(frames, room.initial, room.settings)
    assert any("do not fit together" in refusal or "too little in common" in refusal for refusal in result.refusals)


def test_views_without_overlap_are_refused():
    rng = np.random.default_rng(0)

    def wall(side):
        points = rng.uniform(-1.0, 1.0, (4000, 3))
        points[:, 2] = 3.0 + rng.normal(scale=0.01, size=4000)
        return points * [1.0, 1.0, side]

    result = align([(wall(1.0), wall(-1.0)) for _ in range(3)], np.eye(4), None)
    assert any("too little in common" in refusal for refusal in result.refusals)


def test_a_handful_of_points_is_refused_not_fitted():
    rng = np.random.default_rng(0)
    result = align([(rng.normal(size=(20, 3)), rng.normal(size=(20, 3)))], np.eye(4), None)
    assert result.refusals


def test_a_left_cloud_that_is_bent_is_refused():
    scene, frames = frames_of("furnished_room", 12)
    bent = [(left * (1.0 + 0.01 * np.sin(3.0 * left[:, :1])), right) for left, right in frames[:5]]
    result = align(bent, scene.initial, scene.settings)
    assert result.refusals


def test_three_planes_are_enough_for_lidars_whose_ranges_are_right():
    """By three planes a range scale and a translation look alike: what the second opinion takes for a scale must not
    stay in lidars that have none."""
    scene = SimulatedScene("single_wall")
    scene.simulator.add_surface("wall across", box((40.0, 0.1, 3.0), (0.0, 2.05, 1.5)))
    result = align([scene.frame(tick) for tick in range(5)], scene.initial, scene.settings)
    assert_aligned(scene, result, 2.0)


def test_a_height_that_edges_and_small_things_fit_at_several_values_is_refused(tmp_path):
    """With the same neighbouring cells each of them seems to be good to 3 mm."""
    sim = cal.simulate(robot=top_and_dome(tmp_path), world="furnished_room", seed=7, frames=6)
    result, simulator = cal.calibrate(sim.rig, sim.clouds, floor=False), sim.simulator
    truth = inverse(simulator.base_from_lidar("left")) @ simulator.base_from_lidar("right")
    off = (result.left_from_right - truth)[:3, 3]
    assert abs(off[2]) > 0.005  # which is more than is accepted
    assert [finding.code for finding in result.findings if finding.severity == "error"] == ["unobserved"]
    assert "sliding along base z" in str(result)
    deviations = np.sqrt(np.diag(result.covariance))[:3]
    assert (np.abs(off) < 3.0 * deviations).all() and (deviations[:2] < 0.003).all()
