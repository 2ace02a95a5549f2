"""What an alignment refuses, and its start: near the guess unless the scene contradicts it."""

import numpy as np
import pytest
from alignment_scenes import FEW_RAYS, SimulatedScene, align, assert_aligned, off_by, room_of
from floor_scenes import box
from top_and_dome import top_and_dome

import stretch_sim_cal as cal
from stretch_sim_cal.calibration import summaries
from stretch_sim_cal.calibration.alignment import ties
from stretch_sim_cal.calibration.results import LidarPoses
from stretch_sim_cal.errors import Refused
from stretch_sim_cal.geometry.transforms import error, from_xyz_rpy, inverse
from stretch_sim_cal.simulation import solids


@pytest.mark.parametrize(("world", "sensor", "unobserved"), [
    ("long_corridor", FEW_RAYS, ["sliding along base x"]),
    pytest.param("single_wall", "jt128_sparse", ["sliding along base y"], marks=pytest.mark.long),
    ("open_field", FEW_RAYS, ["sliding along base x", "sliding along base y", "turning about base z"]),
    pytest.param("round_room", "jt128_sparse", ["turning about base z"], marks=pytest.mark.long),
])  # fmt: skip
def test_what_a_world_does_not_show_is_named_and_left_at_the_guess(world, sensor, unobserved):
    scene = SimulatedScene(world, sensor=sensor)
    result = align([scene.frame(tick) for tick in range(3)], scene.initial, scene.settings)
    assert sorted(direction.name for direction in result.directions if not direction.observed) == unobserved
    assert not any("moved" in refusal for refusal in result.refusals)
    if world == "long_corridor":
        assert len(result.refusals) == 1
        assert "sliding along base x" in result.refusals[0] and "unbounded" in result.refusals[0]
        described = {"left": scene.base_from_left, "right": scene.base_from_left @ scene.initial}
        of_two = LidarPoses.of_pairs("left", scene.base_from_left, {"right": result})
        lines = summaries.alignment_stage(of_two, described).lines
        assert any(line.endswith("base x: unbounded (bound 5 mm)  <- not determined by this scene") for line in lines)
        assert not any(number in " ".join(lines).split() for number in ("inf", "nan"))
        distance, angle = error(scene.truth, result.right_to_left)
        assert distance < 0.05 and angle < np.deg2rad(0.5)  # the truth is 5 mm from the guess


@pytest.mark.parametrize(
    ("before", "after", "x", "yaw"), [(5, 5, 0.015, 0.0), (1, 1, 0.0, np.pi / 2)], ids=["pushed", "turned"]
)
def test_a_robot_that_moves_between_the_frames_is_told_so(before, after, x, yaw):
    scene = SimulatedScene("furnished_room", sensor=FEW_RAYS)
    frames = [scene.frame(tick) for tick in range(before)]
    scene.place(x, 0.0, yaw)
    frames += [scene.frame(before + tick) for tick in range(after)]
    first, *others = align(frames, scene.initial, scene.settings).refusals
    assert "robot moved" in first or "something else" in first and x
    assert not any("view changed" in refusal for refusal in others)


def test_a_person_who_walks_by_is_left_out_and_mentioned():
    scene, frames = SimulatedScene("furnished_room"), []
    for angle in np.linspace(-1.0, 0.8, 10):
        place = from_xyz_rpy((1.3 * np.cos(angle), 1.3 * np.sin(angle), 0.0))
        scene.simulator.add_surface("person", solids.person().moved(place))
        frames.append(scene.frame(len(frames)))
    result = align(frames, scene.initial, scene.settings)
    assert_aligned(scene, result, 1.0)
    assert any("something moved" in warning for warning in result.warnings)


@pytest.mark.parametrize("off", [(20.0, 0.2), (180.0, 0.0)])
def test_a_wrong_minimum_is_called_that_and_nothing_else(monkeypatch, off):
    scene, frames = room_of(FEW_RAYS)
    monkeypatch.setattr(ties, "coarse_alignment", lambda *_: scene.truth @ off_by(*off, seed=3))
    refusals = align(frames[:6], scene.initial, scene.settings).refusals
    assert len(refusals) == 1 and "do not fit together" in refusals[0]


def test_views_without_overlap_are_refused():
    rng = np.random.default_rng(0)

    def wall(side):
        points = rng.uniform(-1.0, 1.0, (4000, 3))
        points[:, 2] = 3.0 + rng.normal(scale=0.01, size=4000)
        return points * [1.0, 1.0, side]

    result = align([(wall(1.0), wall(-1.0)) for _ in range(3)], np.eye(4), None)
    assert any("too little in common" in refusal for refusal in result.refusals)
    handful = rng.normal(size=(2, 20, 3))
    assert align([tuple(handful)], np.eye(4), None).refusals


def test_a_left_cloud_that_is_bent_is_refused():
    scene, frames = room_of(FEW_RAYS)
    bent = [(left * (1.0 + 0.01 * np.sin(3.0 * left[:, :1])), right) for left, right in frames[:5]]
    assert "impossible_wander" in {each.code for each in align(bent, scene.initial, scene.settings).refusals}


@pytest.mark.long
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
    assert [finding.code for finding in result.findings if finding.severity == "error"] == ["unobserved"]
    assert "sliding along base z" in str(result)
    deviations = np.sqrt(np.diag(result.covariance))[:3]
    assert (np.abs(off) < 3.0 * deviations).all() and (deviations[:2] < 0.003).all()
    assert deviations[2] > 0.005  # which is more than is accepted


def test_a_bare_room_that_looks_alike_from_both_ends_is_not_turned_around_and_refused_without_a_guess():
    scene = SimulatedScene("open_field")
    scene.simulator.add_surface("walls", box((5.0, 3.6, 2.6), (0.0, 0.0, 1.29)))
    frames = [scene.frame(tick) for tick in range(3)]
    assert_aligned(scene, align(frames, scene.initial, scene.settings), 2.0)
    with pytest.raises(Refused, match=r"two transforms, .* m and 1[78]\d deg apart"):
        align(frames, None, scene.settings)


def test_the_guess_counts_where_registration_runs_away_from_it():
    """Bands of channels that measure 2 cm too long and too short: GICP slid away, up to half a turn in the end."""
    scene = SimulatedScene("round_room", seed=4, sensor=FEW_RAYS)
    scene.place(-0.15, -1.4, -1.1)
    frames = [tuple(map(displaced, scene.frame(tick))) for tick in range(2)]
    distance, angle = error(scene.truth, align(frames, scene.initial, scene.settings).right_to_left)
    assert distance < 0.1 and np.rad2deg(angle) < 10.0


def displaced(points: np.ndarray) -> np.ndarray:
    """Return points (N, 3) moved by 2 cm along their rays, outwards and inwards in turn by degrees of elevation."""
    ranges = np.linalg.norm(points, axis=1)
    outwards = np.floor(np.rad2deg(np.arcsin(points[:, 2] / ranges))) % 2 > 0
    return points * (1.0 + np.where(outwards, 0.02, -0.02) / ranges)[:, None]
