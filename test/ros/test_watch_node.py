"""ros_watch_calibration beside a simulated robot: quiet, until a lidar is pushed."""

import json
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from fake_drivers import write_calibration
from made_results import save, true_calibration
from node_process import FEW_RAYS, FEW_RAYS_AMR, PATIENCE, SIMULATED_TIME, robot_client

from stretch_sim_cal.calibration.watch import DriftMonitor, History, Measurement
from stretch_sim_cal.errors import InputError, RunFailure
from stretch_sim_cal.geometry.transforms import exp
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.robot.profile import stretch_profile
from stretch_sim_cal.ros import watch_node

diagnostic_msgs = pytest.importorskip("diagnostic_msgs.msg", reason="the environment is older than this: make env")
DiagnosticArray, DiagnosticStatus = diagnostic_msgs.DiagnosticArray, diagnostic_msgs.DiagnosticStatus

ROBOT = ("--world", "furnished_room", "--sensor", FEW_RAYS, "--seed", "4", "--real-time-factor", "1")


def watch(graph, looks, *robot, **how):
    """Run so many looks at a robot, by default the Stretch with the sensor of `ROBOT`."""
    given = (*(robot or ROBOT[2:4]), "--period", "1", "--share", "1", "--looks", str(looks), *SIMULATED_TIME)
    return graph.call("ros_watch_calibration", *given, **how)


class HeardWatcher(watch_node.Watcher):
    """Looks as soon as somebody hears what it publishes."""

    def __init__(self, context):
        super().__init__(context)
        assert context.spin_until(self._publisher.get_subscription_count, timeout=PATIENCE)


def level(message):
    """Return the level of the rotation from lidar to lidar, None while nobody has looked."""
    named = {status.name: status.level for status in message.status}
    return named.get("calibration: lidar to lidar, rotation")


def test_a_lidar_that_is_pushed_is_said_published_and_kept(graph, monkeypatch):
    with graph.simulator(*ROBOT) as truth:
        save(true_calibration(load_truth(truth)), graph.calibration_file)
        ended = watch(graph, 1, code=0)
        assert "valid; drift: lidar to lidar, translation" in ended.out
    with graph.simulator(*ROBOT, "--lidar-right-error=0,0,0,0.3,0,0"), robot_client(graph.domain) as client:
        heard = []
        client.node.create_subscription(DiagnosticArray, "/diagnostics", heard.append, 100)
        monkeypatch.setattr(watch_node, "Watcher", HeardWatcher)
        ended = watch(graph, 1, code=1)
        client.spin_until(lambda: any(level(message) == DiagnosticStatus.ERROR for message in heard))
    assert "lidar to lidar, rotation has changed: 0." in ended.out and "continuing after 1 checks" in ended.err
    levels = {status.name: status.level for status in heard[-1].status}
    assert levels["calibration: lidar to lidar, rotation"] == DiagnosticStatus.ERROR
    assert levels["calibration: lidar to lidar, translation"] == DiagnosticStatus.OK

    (change,) = History(graph.calibration_file.with_name("calibration_watch.sqlite")).changes()
    value, deviation = np.degrees([change.value, change.deviation])
    assert abs(value - 0.3) < 5 * deviation and deviation < 0.03
    assert "ros_calibrate_robot" in change.sentence
    picture = graph.folder / "history.png"
    ended = graph.call("stretch_sim_cal", "history", "--plot", str(picture), "--json")
    assert ended.code == 1 and picture.read_bytes()[:4] == b"\x89PNG"
    said = json.loads(ended.out)
    assert said["looks"] == 2 and len(said["changes"]) == 1


def test_a_broken_cloud_ends_the_first_check_but_not_the_monitor(monkeypatch):
    comes, missed = iter(["valid", InputError("broken"), "valid", KeyboardInterrupt(), InputError("broken")]), []

    def look():
        come = next(comes)
        if isinstance(come, str):
            return come
        raise come

    monkeypatch.setattr(watch_node, "Watcher", lambda _: SimpleNamespace(look=look, missed=missed.append))
    options = SimpleNamespace(calibration_file="", looks=0, period=1.0, share=1.0)
    log = SimpleNamespace(warning=print)
    context = SimpleNamespace(options=options, log=log, spin_until=lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        watch_node.watch(context)
    assert missed == ["broken"]
    with pytest.raises(InputError):
        watch_node.watch(context)


@pytest.mark.parametrize(("right", "reached", "why"), [(20000, InputError, "full"), (50, RunFailure, "too few")])
def test_a_covered_lidar_is_no_robot_that_moves_and_a_full_disk_does_not_end_the_test(right, reached, why):
    watcher, random = object.__new__(watch_node.Watcher), np.random.default_rng(1)
    seen = SimpleNamespace(clouds={"left": random.normal(size=(50, 3)), "right": random.normal(size=(right, 3))})
    watcher._refresh, watcher._sets = (lambda: None), (lambda: [seen, seen])
    watcher._held_against, watcher._watch = (lambda _: Measurement(0.0, 1, {})), mock.Mock()
    watcher._history = mock.Mock(**{"add.side_effect": InputError("the disk is full")})
    watcher._last, watcher._place, watcher.looks, watcher._digest = None, 1, 0, ""
    with pytest.raises(reached, match=why):
        watcher.look()
    assert watcher._watch.add.called == (right > 50)


def test_a_restart_goes_on_from_the_first_checks_and_the_last(tmp_path, monkeypatch):
    write_calibration(tmp_path / "c.yaml", 0.03)
    monkeypatch.setattr(watch_node, "REPLAYED", 4)
    watcher, added = object.__new__(watch_node.Watcher), mock.Mock()
    monkeypatch.setattr(watch_node, "DriftMonitor", lambda *_: added)
    watcher._path, watcher._history = tmp_path / "c.yaml", History(tmp_path / "history.sqlite")
    watcher._profile, watcher._options = stretch_profile(), SimpleNamespace(period=300.0)
    watcher._context = SimpleNamespace(log=mock.Mock())
    for stamp in range(9):
        watcher._history.add(Measurement(float(stamp), 1, {}), watcher._digest_now())
    watcher._read()
    assert [call.args[0].stamp for call in added.add.call_args_list] == [0, 1, 7, 8]


def test_checks_that_are_not_possible_are_no_longer_valid_on_diagnostics(ros, monkeypatch):
    published, watcher = [], object.__new__(watch_node.Watcher)
    watcher._context, watcher._publisher = ros.context, SimpleNamespace(publish=published.append)
    watcher._calibration = SimpleNamespace(path="calibration.yaml")
    watcher._watch, watcher._unknown = DriftMonitor(300.0), 0
    for number in range(1, 5):
        watcher._watch.add(Measurement(300.0 * number, 1, {"lidars": (1e-4 * np.ones(6), 1e-8 * np.eye(6))}))
    monkeypatch.setattr(watch_node.monitor, "WINDOW", 2)
    for _ in range(2):
        watcher.missed("no messages on /lidar_points_left")
    levels = [{status.name: status.level for status in message.status} for message in published]
    assert [each["calibration: look"] for each in levels] == [DiagnosticStatus.WARN, DiagnosticStatus.ERROR]


@pytest.mark.parametrize(("vectors", "known"), [({"floor": (np.zeros(3), np.eye(3))}, True), ({}, False)])
def test_a_single_lidar_that_sees_the_floor_where_it_was_is_known(vectors, known):
    profile, log = SimpleNamespace(one_lidar=True), SimpleNamespace(error=print)
    watcher = SimpleNamespace(_profile=profile, _context=SimpleNamespace(log=log), determined=False, _unknown=0)
    watch_node.Watcher._count(watcher, Measurement(0.0, 1, vectors))
    assert (watcher.determined, watcher._unknown) == (known, 0 if known else 1)


def test_a_lidar_that_is_knocked_far_is_no_valid_calibration(graph, monkeypatch):
    monkeypatch.setattr(watch_node.monitor, "WINDOW", 1)
    with graph.simulator(*ROBOT, "--lidar-right-error=0,0,0,0,40,0") as truth:
        true = load_truth(truth)
        before = SimpleNamespace(to_left=true.nominal_to_left, floor=true.floor)
        save(true_calibration(before), graph.calibration_file)
        ended = watch(graph, 1, code=1)
    assert "undetermined: " in ended.out and "none of the checks could tell" in ended.err
    assert "the last 1 checks could not tell" in ended.err
    assert "check whether a lidar or its bracket is loose" in ended.err


@pytest.mark.long
def test_of_three_lidars_the_one_that_is_elsewhere_is_named(graph):
    robot = ("--robot", "three_lidar_amr", "--sensor", FEW_RAYS_AMR)
    with graph.simulator(*robot, *ROBOT[:2], *ROBOT[4:]) as truth:
        true = load_truth(truth)
        turned = true.to_left["mast"] @ exp([0.0, 0.0, 0.0, 0.0, np.radians(1.5), 0.0])
        save(true_calibration(true, turned), graph.calibration_file)
        ended = watch(graph, 1, *robot, code=1)
    assert "left to mast lidar, rotation has changed" in ended.out and "the mast lidar has moved" in ended.err
    assert "lidar to lidar, rotation has changed" not in ended.out
