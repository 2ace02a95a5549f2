"""The drift monitor's sequential test: quiet while nothing changes, quick when something does."""

import numpy as np
import pytest
from alignment_scenes import further_long

from stretch_sim_cal.calibration import watch as drift
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.verification import reestimate
from stretch_sim_cal.calibration.watch import WINDOW, DriftMonitor, Measurement, Panorama, moved_lidar
from stretch_sim_cal.errors import InputError

PERIOD = 300.0
MM, DEG = 1e-3, np.deg2rad(1.0)
# Standard deviations of looks, and of what a place adds, as the benchmark measures them in generated rooms, times two.
FLOOR = [0.6 * MM, 0.02 * DEG, 0.02 * DEG]
NOISE = {"lidars": [0.5 * MM] * 3 + [0.01 * DEG] * 3, "floor": FLOOR}
NOISE |= dict.fromkeys(("left", "right"), [1 * MM] * 3 + [0.1 * DEG] * 3)
PLACE = {"lidars": [0.6 * MM] * 3 + [0.02 * DEG] * 3, "floor": FLOOR}
PLACE |= dict.fromkeys(("left", "right"), [0.3 * MM] * 3 + [0.02 * DEG] * 3)
# What the stored calibration is off itself.
STORED = {"lidars": [0.7 * MM, -0.5 * MM, 0.4 * MM, 0.02 * DEG, -0.01 * DEG, 0.01 * DEG],
          "floor": [0.5 * MM, 0.02 * DEG, -0.01 * DEG],
          "left": [2 * MM, 1 * MM, -1 * MM, 0.3 * DEG, 0.1 * DEG, -0.2 * DEG],
          "right": [1 * MM, 2 * MM, 1 * MM, -0.2 * DEG, 0.3 * DEG, 0.1 * DEG]}  # fmt: skip


TWO = {name: name for name in NOISE}
THREE = TWO | {"lidars mast": "lidars", "mast": "right"}


class Robot:
    """Looks of a robot that goes from place to place. `places` scales what the places do, `kinds` are its vectors."""

    def __init__(self, seed: int, per_place: int = 12, places: float = 1.0, kinds: dict[str, str] = TWO):
        self._kinds = kinds
        self._random, self._per_place, self._scale = np.random.default_rng(seed), per_place, places
        self._place, self.left, self._effects, self._count = 0, 0, {}, 0

    def look(self, shift: dict[str, np.ndarray] | None = None) -> Measurement:
        if not self.left:
            self._place += 1
            self.left = int(self._random.integers(1, 2 * self._per_place))
            self._effects = {
                name: self._scale * self._random.normal(size=len(PLACE[kind])) * PLACE[kind]
                for name, kind in self._kinds.items()
            }
        self.left -= 1
        self._count += 1
        vectors = {}
        for name, kind in self._kinds.items():
            sigma = NOISE[kind]
            residual = STORED[kind] + self._effects[name] + self._random.normal(size=len(sigma)) * sigma
            vectors[name] = (residual + (shift or {}).get(name, 0.0), np.diag(np.square(sigma)))
        return Measurement(PERIOD * self._count, self._place, vectors, "stowed")


def watched(looks: int, seed: int, further=(), **robot) -> tuple[DriftMonitor, Robot]:
    """Return a watch after so many looks at a robot that did not change."""
    watch, robot = DriftMonitor(PERIOD, ("left", "right", *further)), Robot(seed, **robot)
    for _ in range(looks):
        watch.add(robot.look())
    return watch, robot


def delay(watch: DriftMonitor, robot: Robot, shift, most: int = 40) -> float:
    """Return after how many looks a shift is noticed."""
    for count in range(1, most + 1):
        watch.add(robot.look(shift))
        if watch.changed:
            return count
    return np.inf


def assert_quiet(watch: DriftMonitor, robot: Robot, looks: int) -> None:
    for _ in range(looks):
        watch.add(robot.look())
        assert not watch.changed


def turned(angle: float, seed: int) -> np.ndarray:
    direction = np.random.default_rng(seed).normal(size=3)
    return np.concatenate([np.zeros(3), angle * direction / np.linalg.norm(direction)])


SMALLEST = {  # shifts that have to be noticed
    "rotation": {"lidars": 0.2 * DEG * np.eye(6)[4]}, "translation": {"lidars": 5 * MM * np.eye(6)[0]},
    "floor": {"floor": 5 * MM * np.eye(3)[0]},
}  # fmt: skip


@pytest.mark.parametrize("places", further_long(2.0, 1.0))
def test_a_robot_that_is_all_right_is_left_alone_in_a_thousand_looks_at_many_places(places):
    watch, robot = watched(0, 1, places=places)
    assert_quiet(watch, robot, 1000)
    assert all(state.sentence() for state in watch.states())
    for seed in range(4):  # nor before places that scatter more than expected are known
        assert_quiet(*watched(0, seed, per_place=2, places=2.0), looks=30)


@pytest.mark.parametrize("seed", range(2))
def test_a_lidar_that_is_pushed_is_noticed_and_named_with_size_and_time(seed):
    watch, robot = watched(60, seed)
    push = turned(0.3 * DEG, seed)
    count = delay(watch, robot, {"lidars": push, "right": push})
    assert count <= WINDOW
    (state,) = [state for state in watch.changed if state.block.name == "lidar to lidar, rotation"]
    assert state.value == pytest.approx(0.3 * DEG, abs=0.1 * DEG)
    assert PERIOD * 55 <= state.since <= PERIOD * (60 + count)
    assert "ros_calibrate_robot" in state.sentence()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", SMALLEST)
def test_the_smallest_shift_is_noticed_within_ten_looks_at_known_places_and_at_the_first(kind, seed):
    assert delay(*watched(60, seed, per_place=4), SMALLEST[kind]) <= WINDOW
    watch, robot = watched(1, seed, per_place=1000)
    count = delay(watch, robot, SMALLEST[kind])
    assert count <= WINDOW
    for _ in range(4 * WINDOW):  # it is not forgotten what the place looked like before
        watch.add(robot.look(SMALLEST[kind]))
        assert watch.changed
    assert min(state.since for state in watch.changed) <= PERIOD * (2 + count)


def test_which_lidar_has_moved_is_known_from_the_robots_own_returns():
    watch, robot = watched(40, 5)
    push = turned(1.0 * DEG, 2)
    for _ in range(2 * WINDOW):
        watch.add(robot.look({"lidars": push, "right": push}))
    assert moved_lidar(watch.states()) == "the right lidar has moved"


def test_of_three_lidars_the_one_that_has_moved_is_known_by_the_two_that_agree():
    watch, robot = watched(0, 1, ["mast"], kinds=THREE)
    assert_quiet(watch, robot, 200)
    names = {state.block.name for state in watch.states()}
    assert {"lidar to lidar, rotation", "left to mast lidar, rotation", "mast lidar on the robot, rotation"} <= names
    push = turned(1.0 * DEG, 2)
    for pushed, moved in (("lidars mast", "mast"), ("lidars", "right"), ("lidars|lidars mast", "left")):
        watch, robot = watched(5, 2, ["mast"], kinds=THREE)  # too few for the robot's own returns to be compared with
        for _ in range(8):
            watch.add(robot.look({vector: push for vector in pushed.split("|")}))
        assert moved_lidar(watch.states()) == f"the {moved} lidar has moved"


def test_a_ramp_is_over_when_it_is_over():
    watch, robot = watched(20, 3)
    assert delay(watch, robot, {"floor": np.array([0.0, 2.0 * DEG, 0.0])}) < np.inf
    for _ in range(200):
        watch.add(robot.look())
    assert not watch.changed


def test_a_place_is_recognised_and_distinguished_from_another():
    random = np.random.default_rng(1)
    directions = random.normal(size=(20000, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)

    def seen(half):
        ranges = (half / np.maximum(np.abs(directions), 1e-6)).min(axis=1)
        return directions * (ranges + random.normal(0.0, 0.01, len(ranges)))[:, None]

    room = np.array([3.0, 2.5, 1.5])
    assert Panorama(seen(room)).same(Panorama(seen(room)))
    assert not Panorama(seen(room)).same(Panorama(seen(room + [0.5, -0.3, 0.0])))
    assert not Panorama(directions[:50]).same(Panorama(directions[:50]))


def test_the_history_keeps_looks_and_changes(tmp_path):
    history, robot = drift.History(tmp_path / "history.sqlite"), Robot(1)
    looks = [robot.look() for _ in range(3)]
    for look in looks:
        history.add(look, "abc")
    history.note(drift.NoticedChange(900.0, "abc", "floor, height", None, 0.01, 0.001, "it has changed"))
    history.close()
    again = drift.History(tmp_path / "history.sqlite", must_exist=True)
    assert [look.stamp for _, look in again.measurements(since=400.0, calibration="abc")] == [600.0, 900.0]
    for name, (residual, covariance) in looks[0].vectors.items():
        np.testing.assert_array_equal(again.measurements()[0][1].vectors[name][0], residual)
        np.testing.assert_array_equal(again.measurements()[0][1].vectors[name][1], covariance)
    assert again.measurements(calibration="other") == []
    assert again.changes()[0].sentence == "it has changed"
    with pytest.raises(InputError, match="no history yet"):
        drift.History(tmp_path / "none.sqlite", must_exist=True)
    (tmp_path / "torn.sqlite").write_text("no database at all" * 100)
    with pytest.raises(InputError, match="torn.sqlite"):
        drift.History(tmp_path / "torn.sqlite")
    with pytest.raises(InputError, match="no alignment"):
        reestimate(CalibrationFile(), [], np.eye(4), np.eye(4))
