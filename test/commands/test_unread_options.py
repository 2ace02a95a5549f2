"""No argument is ignored: what cannot be used or read ends in one line and exit code 2; nothing is written."""

import shlex

import numpy as np
import pytest
import yaml

from stretch_sim_cal import programs
from stretch_sim_cal.calibration.calibration_file import FLOOR, FOOTPRINT
from stretch_sim_cal.cli import COMMANDS, main
from stretch_sim_cal.commands.described import described, load_description
from stretch_sim_cal.recording import JOINTS
from stretch_sim_cal.recording.dataset import DatasetWriter
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.robot.stretch import nominal_description
from stretch_sim_cal.ros import live

FOUR_BAR = """\
links: [frame, crank]
joints:
  - {name: a, type: revolute, parent: frame, child: crank}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder: calibrations, an (empty) recording, a mechanism, robots and a body-shape dataset."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HELLO_FLEET_PATH", str(tmp_path))
    aligned = {"data": described(load_description(None)).to_left["right"].tolist()}
    (tmp_path / "cal.yaml").write_text(yaml.safe_dump({"right_to_left_transform": aligned}))
    (tmp_path / "bar.yaml").write_text(FOUR_BAR)
    (tmp_path / "bare.urdf").write_text('<robot name="bare"><link name="base_link"/></robot>')
    (tmp_path / "torn.urdf").write_text("<robot name='a'><link>")
    (tmp_path / "torn.yaml").write_text("right_to_left_transform: {data: [[1, 0")
    (tmp_path / "empty.yaml").write_text("{}")
    (tmp_path / "list.yaml").write_text("joint_calibration: [1, 2]\n")
    other = {FOOTPRINT: {"data": np.eye(4).tolist()}, FLOOR: {"data": {"normal": [0.0, 0.0, 1.0], "distance": 0.2}}}
    (tmp_path / "floors.yaml").write_text(yaml.safe_dump(other))
    with RecordingWriter(tmp_path / "bag") as writer:
        writer.add_topic("/robot_description", "std_msgs/msg/String")
    writer = DatasetWriter(tmp_path / "poses", nominal_description(), {}, np.eye(4))
    pose = dict.fromkeys(JOINTS, 0.3)
    writer.write_sample(pose, pose, np.array([[0.2, 0.0, 0.3], [0.0, 0.2, 0.3], [-0.2, -0.2, 0.3]]))
    return tmp_path


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("check torn.yaml", "torn.yaml"),
        ("check cal.yaml cal.yaml --tolerance-mm -1", "--tolerance-mm: -1.0 must be greater"),
        ("check cal.yaml --tolerance-mm 1", "--tolerance-mm applies only to two files"),  # its default
        ("export --as urdf --rollback", "--rollback"),
        ("export cal.yaml --as static-transform --record", "--record applies only to --as calibration-values"),
        ("export cal.yaml --as urdf --out new.urdf --json", "--json"),
        ("export --as calibration-values --rollback --record", "--record"),
        ("export cal.yaml --as calibration-values --rollback", "reads no calibration"),
        ("export --as calibration-values --rollback --robot nobody", "--robot applies only to a calibration, not with"),
        ("doctor --left-topic /left", "--left-topic applies only to a recording"),
        ("sensor bag", "give recordings and --out"),
        ("sensor --sensor jt128 --out new", "--out applies only to recordings"),
        ("sensor --sensor bar.yaml", "bar.yaml: unknown key 'links'"),
        ("sensor --sensor poses", "poses: is a folder"),
        ("history bar.yaml --plot history.pdf", "--plot history.pdf: the picture is a .png"),
        ("calibrate bag --out new.yaml --report bar.yaml", "--report bar.yaml: is a file"),
        ("calibrate bag --out new.yaml --mounts --drive", "--drive applies only to a robot that drove, not with"),
        ("calibrate bag --out new.yaml --mounts --odometry-topic /odom", "--odometry-topic applies only to"),
        ("calibrate bag --out new.yaml --mounts --accept 5 0.1", "--accept applies only to alignment"),
        ("calibrate bag --out cal.yaml --only floor --accept 5 0.1", "--accept applies only to --only alignment"),
        ("calibrate bag --out new.yaml --view-file a.rrd --view-host 0.0.0.0", "--view-host applies only to"),
        ("calibrate bag --out new.yaml --view-port 0", "--view-port: is 0"),
        ("calibrate bag --out new.yaml --accept -1 0.1", "--accept -1 0.1: -1 mm must be greater than zero"),
        ("calibrate bag --out new.yaml --accept 5 91", "--accept 5 91: 91 deg must be at most 90 deg"),
        ("fk stretch4 --frame base_link --package meshes=nowhere", "nowhere: no such folder"),
        ("fk stretch4 --frame base_link --package meshes=.", "its own meshes"),
        ("fk bare.urdf --frame base_link --package meshes=.", "neither a mesh nor a xacro uses it"),
        ("fk missing.urdf --frame head_link", "missing.urdf: No such file"),
        ("fk stretch4 --frame hed_link", "did you mean head_link"),
        ("fk stretch4 --frame head_link --joint lift=1", "did you mean lift_joint"),
        ("fk stretch4 --frame head_link --joint lift_joint", "NAME=VALUE"),
        ("fk stretch4 --frame head_link --joint lift_joint=up", "'up' is not a number"),
        ("fk stretch4 --frame head_link --joint lift_joint=30deg", "lift_joint slides; give its position in m"),
        ("fk stretch4 --frame head_link --root '1 2'", "x y z roll pitch yaw or x y angle"),
        ("lint torn.urdf", "torn.urdf"),
        ("lint stretch4 --profile nao", "nao"),
        ("lint stretch4 --as tool", "--as tool: is for the URDF of a tool"),
        ("normalize stretch4 --out new --base '0 0 0 0 0 0'", "rep199"),
        ("normalize stretch4 --out new --profile rep199 --base '0 0'", "six"),
        ("normalize stretch4 --out new --number-links", "rep199"),
        ("normalize stretch4 --out new --zero lift_joint=high", "high"),
        ("normalize stretch4 --out new --zero lift_jiont=1", "lift_joint"),
        ("normalize stretch4 --out new --rename nose=ear", "no link or joint 'nose'"),
        ("normalize stretch4 --out new --rename head_link=mast_link", "mast_link"),
        ("normalize stretch4 --out new --tool missing.urdf", "missing.urdf"),
        ("mobility missing.sdf", "missing.sdf: No such file"),
        ("mobility bar.yaml --arg tool=gripper", "--arg applies only to a URDF or xacro"),
        ("workspace stretch4 --frame head_link --orientations '1 2'", "expected x y z"),
        ("workspace stretch4 --frame head_link --orientations '1 2 3'", "nothing moves 'head_link'"),
        ("workspace stretch4 --frame head_link --orientations '1 2 3' --plot a.png", "not with --orientations"),
        ("workspace stretch4 --frame head_link --plot plot.bmp", ".png, .svg, .pdf"),
        ("workspace stretch4 --frame head_link --points points.txt", ".csv or .npz"),
        ("workspace stretch4 --frame lift_link --margin 0.02", "--margin applies only to --collision-free"),
        ("workspace stretch4 --frame lift_link --collision-free --floor nan", "--floor nan"),
        ("campaign smoke --junit . --out new", "--junit .: is a folder; expected a file"),
        ("campaign smoke --case 3 --cases 5", "--cases applies only to a whole campaign"),
        ("campaign smoke --cluster tcp://a:1 --cluster-tls bar.yaml bar.yaml bar.yaml", "--cluster-tls goes with"),
        ("campaign smoke --seed 3", "--seed applies only to --search"),
        ("run furnished_room furnished_room", "furnished_room: 2 scenarios of this name would write into one folder"),
        ("campaign smoke --case 999999999999", "--case: is 999999999999; expected 0 to 10000000"),
        ("campaign smoke --cases 2 --out bar.yaml/x", "bar.yaml/x: cannot be written"),
        ("campaign smoke --cluster tcp://a:1 --workers 2", "--workers and --cluster"),
        ("campaign smoke poses", "poses: folders are for compare"),
        ("campaign compare poses", "1 folders were given"),
        ("campaign compare poses bag", "poses: has no cases"),
        ("campaign nonsense", "'nonsense' is not known in config/campaigns/"),
        ("run furnished_room --mount-errors -1 1", "--mount-errors"),
        ("run furnished_room --lidar gpu", ""),  # only Gazebo has it
        ("calibrate bag --out new.yaml --method nonsense", "'nonsense' is not a known alignment method"),
        ("calibrate bag --out new.yaml --only alignment --floor-method support", "applies only to --only floor"),
        ("calibrate bag --out new.yaml --link-mm 3", "--link-mm applies only to --mounts"),
        ("calibrate poses --out new.yaml --mounts --left-topic /left", "--left-topic applies only to a recording"),
        ("calibrate bag --out new.yaml --mounts", "bag: has no /robot_description; name the robot's description with"),
        ("calibrate bag bag --out new.yaml --mounts", "--mounts: takes one recording, 2 were given"),
        ("calibrate bag bag --out new.yaml --method gicp", "--method gicp: takes one recording, 2 were given"),
        ("calibrate nowhere --out new.yaml --mounts", "nowhere: no such folder"),
        ("calibrate poses --out new.yaml --mounts --only floor", "--only applies only to a recording"),
        ("verify --calibration cal.yaml --model stretch4", "--model applies only to a recording"),
        ("sim --gui", "Gazebo"),
        ("sim --storage sqlite3", "--record"),
        ("sim --ros-args -p worlds:=tables", "--ros-args: no such option"),
    ],
)
def test_a_command_ends_with_one_line(folder, capsys, line, says):
    before = sorted(path.name for path in folder.iterdir())
    try:
        code = main(shlex.split(line))
    except SystemExit as ended:  # argparse
        code = ended.code
    out, err = capsys.readouterr()
    *usage, told = err.splitlines()
    assert code == 2 and not out and says in told, err
    assert "error: " in told and usage[0].startswith("usage: ") if usage else told.startswith("error: "), err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_doctor_expects_the_lidars_of_the_robots_profile(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(live, "live_look", lambda *given, **how: asked.append(given) or live.LiveLook())
    for option in ((), ("--sensor", "xt32")):
        main(["doctor", "--live", "--robot", "two_lidar_amr", *option])
    assert [sensor for sensor, *_ in asked] == ["os0_32", "xt32"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("ros_align_dual_lidar --method nonsense", "'nonsense' is no"),
        ("ros_find_floor_calibration --rollback --fit-method nonsense", "'nonsense' is no"),
        ("ros_align_dual_lidar --method planes --fit-method gicp", "give one of them"),
        ("ros_align_dual_lidar --ros-args -p fit_method:=nonsense", "'nonsense' is no"),
        ("ros_find_floor_calibration --calibration-file cal.yaml --ros-args -p num_sample:=5", "mean num_samples?"),
        ("ros_align_dual_lidar --ros-args --param align_dual_lidar:num_sample:=5", "num_sample"),
        ("ros_align_dual_lidar --num-samples many", "num_samples"),
        ("ros_align_dual_lidar --num_samples=0", "1 .. 100000"),
        ("ros_align_dual_lidar --calibration-file torn.yaml", "torn.yaml: line"),
        ("ros_align_dual_lidar --ros-args -p timeout:=soon", "timeout"),
        ("ros_align_dual_lidar --ros-args -p", "ROS arguments"),
        ("ros_align_dual_lidar --right-lidar-topic /lidar_points_left", "are both"),
        ("ros_align_dual_lidar --left-lidar-topic 'left points'", "topic 'left points': is not a name in ROS"),
        ("ros_align_dual_lidar --another-place", "has no standing place yet"),
        ("ros_align_dual_lidar --another-place --method gicp", "method gicp supports only one standing place"),
        ("ros_find_floor_calibration --calibration-file none.yaml", "run ros_align_dual_lidar first"),
        ("ros_find_floor_calibration --calibration-file cal.yaml --values-file list.yaml",
         "list.yaml: 'joint_calibration' is not a mapping"),
        ("ros_find_floor_calibration --mode nonsense", "parameter mode: 'nonsense' is not one of"),
        ("ros_broadcast_calibration --calibration-file none.yaml", "no calibration yet"),
        ("ros_broadcast_calibration --calibration-file empty.yaml", "has no calibration"),
        ("ros_broadcast_calibration --calibration-file floors.yaml", "contradicts"),
        ("ros_visualize_body_shape_calibration none.yaml", "No such file"),
        ("ros_visualize_body_shape_calibration empty.yaml", "is it a body-shape model?"),
        ("ros_publish_footprint", "body_shape_model.yaml: there is no body shape yet"),
        ("ros_collect_body_shape_data bar.yaml --dry-run", "bar.yaml: is a file; name the folder"),
        ("ros_publish_footprint none.yaml", "none.yaml: no such file"),
        ("ros_watch_calibration --share 2", "share"),
        ("ros_calibrate_robot --only alignment floor", "give --yes, and nothing is asked"),
        ("ros_calibrate_robot", "give --yes, and the robot moves without asking"),
        ("ros_calibrate_robot --yes --places 2", "--places: the robot has to be turned by hand"),
        ("ros_calibrate_robot --yes --drive --only floor", "--drive: --only floor leaves it out"),
        ("ros_calibrate_robot --yes --turn-step 90", "--turn-step applies only to --drive"),
        ("ros_calibrate_robot --accept --places 1", "--places applies only to a calibration to run, not with --accept"),
        ("ros_calibrate_robot --rollback --robot stretch4", "--robot applies only to a calibration to run, not with"),
        ("ros_calibrate_robot --yes --drive --robot two_lidar_manipulator", "has no 'base:'"),
        ("stretch_simulator --world atlantis", "'atlantis' is not known in worlds/"),
        ("stretch_simulator --fault stuck:elbow_joint", "joint 'elbow_joint'"),
        ("stretch_simulator --record .", "exists already"),
        ("stretch_simulator --scenario nowhere", "'nowhere' is not known in scenarios/"),
        ("stretch_simulator --lidar-left-error 1,2,3", "--lidar-left-error '1,2,3': expected 6 numbers"),
        ("stretch_simulator --base-error a,b,c", "expected 3 numbers"),
        ("stretch_simulator --distance-correction yes", "distance_correction: 'yes' is not one of true, false"),
        ("fit_body_shape_model nowhere", "nowhere"),
        ("fit_body_shape_model poses --vertices 8", "--vertices applies only to --fit-method convex_polygon"),
        ("fit_body_shape_model poses --fit-method convex_polygon --vertices 2", "--vertices: is 2"),
        ("fit_body_shape_model poses --evidence model --range-noise 0.02", "--range-noise applies only to"),
        ("fit_body_shape_model poses --plot outlines.svg", ".png"),
        ("fit_body_shape_model poses --model bare.urdf", ""),
    ],
)  # fmt: skip
def test_a_program_ends_with_one_line(folder, capfd, line, says):
    def contents():
        return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before, (program, *arguments) = contents(), shlex.split(line)
    assert programs.main(program, arguments) == 2
    errors = [text for text in capfd.readouterr().err.splitlines() if text.startswith("error:")]
    assert len(errors) == 1 and says in errors[0]
    assert contents() == before


@pytest.mark.parametrize(
    "line", ["check cal.yaml --model stretch4", "export cal.yaml --as urdf --model stretch4 --out new.urdf"]
)
def test_the_vendors_robot_has_its_name_wherever_a_model_is_asked_for(folder, capsys, line):
    assert main(shlex.split(line)) == 0
    out, err = capsys.readouterr()
    assert out and not err


WITHOUT_JSON = {
    "robot": ("--hepl", "--help"), "sim": ("--seeed", "--seed"), "schema": ("--hepl", "--help"),
    "robot calibrate": ("--dirve", "--drive"),
}  # fmt: skip
PROGRAMS = ["ros_align_dual_lidar", "fit_body_shape_model", "ros_calibrate_robot"]


@pytest.mark.parametrize("name", [*COMMANDS, "robot init", "robot calibrate", *PROGRAMS])
def test_every_command_and_program_suggests_the_option_that_was_misspelled(name, capsys):
    option, near = WITHOUT_JSON.get(name, ("--jsno", "--json"))
    with pytest.raises(SystemExit) as ended:
        if name in PROGRAMS:
            programs.main(name, [option])
        else:
            main([*name.split(), option, "x"])
    program = name if name in PROGRAMS else f"stretch-sim-cal {name}"
    error = f"error: {program}: {option}: no such option; did you mean {near}? (help: {program} --help)\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, error)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run x --repeat y", "stretch-sim-cal run: --repeat: invalid int value: 'y'"),
        ("run x --simulator gazbo", "(choose from 'embedded', 'gazebo'); did you mean gazebo?"),
        ("run", "stretch-sim-cal run: the following arguments are required: SCENARIO"),
        ("calibrate bag --accept 1", "stretch-sim-cal calibrate: --accept: expected 2 arguments"),
        ("check a.yaml b.yaml c.yaml d.yaml", "stretch-sim-cal check: unexpected arguments: c.yaml d.yaml"),
        ("fk stretch4 --framee base_link", "stretch-sim-cal fk: --framee: no such option; did you mean --frame?"),
        ("runn x", "'normalize'); did you mean run?"),
        ("--json check", "stretch-sim-cal: --json: no such option"),
        ("check -x", "stretch-sim-cal check: -x: no such option"),
    ],
)
def test_a_command_line_that_cannot_be_parsed_ends_with_one_line_that_names_the_command(line, said, capsys):
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    (error,) = capsys.readouterr().err.splitlines()
    prog = "stretch-sim-cal" if line.split()[0] not in COMMANDS else f"stretch-sim-cal {line.split()[0]}"
    assert ended.value.code == 2 and f"{said} (help: {prog} --help)" in error and error.startswith(f"error: {prog}: ")
