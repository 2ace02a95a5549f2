"""ros_watch_calibration beside a simulated robot: quiet, until a lidar is pushed."""

import json

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from robot_client import robot_client

from stretch_sim_cal.calibration.watch_history import History

ROBOT = ("--world", "furnished_room", "--sensor", "jt128_sparse", "--seed", "4")
LISTEN = ("--sensor", "jt128_sparse", "--ros-args", "-p", "use_sim_time:=true")


def test_a_lidar_that_is_pushed_is_said_published_and_kept(graph):
    def watch(looks):
        return graph.run("ros_watch_calibration", "--period", "0.1", "--share", "1", "--looks", str(looks), *LISTEN)

    domain = int(graph.environment["ROS_DOMAIN_ID"])
    with graph.simulator(*ROBOT):
        aligned = graph.call("ros_align_dual_lidar", "--num-samples", "8", *LISTEN)
        assert aligned.code == 0, aligned.err
        ended = watch(2)
        assert ended.code == 0, ended.err
        assert ended.out.count("holds; off by lidar to lidar, translation") == 2
    with graph.simulator(*ROBOT, "--lidar-right-error=0,0,0,0.3,0,0"), robot_client(domain) as client:
        process = graph.start("ros_watch_calibration", "--period", "0.1", "--share", "1", "--looks", "2", *LISTEN)
        heard = client.take(DiagnosticArray, "/diagnostics", 2)
        out, errors = process.communicate()
        assert process.returncode == 1, errors
    assert "lidar to lidar, rotation has changed: 0.3" in out and "going on after 2 looks" in errors
    levels = {status.name: status.level for status in heard[-1].status}
    assert levels["calibration: lidar to lidar, rotation"] == DiagnosticStatus.ERROR
    assert levels["calibration: lidar to lidar, translation"] == DiagnosticStatus.OK

    (change,) = History(graph.calibration_file.with_name("calibration_watch.sqlite")).changes()
    assert np.degrees(change.value) < 0.4 and "ros_calibrate_robot" in change.sentence
    picture = graph.folder / "history.png"
    ended = graph.call("stretch_sim_cal", "history", "--plot", str(picture), "--json")
    assert ended.code == 1 and picture.read_bytes()[:4] == b"\x89PNG"
    said = json.loads(ended.out)
    assert said["looks"] == 4 and len(said["changes"]) == 1
