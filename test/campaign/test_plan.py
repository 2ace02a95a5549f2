"""What a campaign file may say, and which cases it draws."""

import json
import shutil
import subprocess
import sys
from datetime import date

import numpy as np
import pytest

from stretch_sim_cal.campaign.plan import INPUTS, Campaign
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import share_directory
from stretch_sim_cal.simulation.rooms import KEPT_FREE, Room, write_room
from stretch_sim_cal.simulation.worlds import load_world

SAID = {
    "name": "tried", "sensor": "jt128_sparse_real",
    "inputs": {
        "room.length": {"uniform": [4, 8]},
        "room.furniture": {"integer": [2, 5]},
        "room.glass": {"uniform": [0.1, 0.4], "in_share": 0.25},
        "base.height_mm": {"normal": [0, 2]},
        "recording.alignment_frames": {"choice": [5, 20]},
    },
}  # fmt: skip


def campaign(**changed) -> Campaign:
    return Campaign.from_mapping(SAID | changed, "tried.yaml")


def test_a_case_depends_on_seed_and_index_alone():
    drawn = [campaign().numbers(index) for index in range(6)]
    assert [campaign().numbers(index) for index in (5, 2)] == [drawn[5], drawn[2]]
    assert campaign(seed=2).numbers(2) != drawn[2]
    assert len({case["room.length"] for case in drawn}) == 6


def test_cases_cover_their_distributions():
    tried = campaign()
    cases = [tried.numbers(index) for index in range(256)]
    length, furniture, glass, height, frames = (np.array([case[name] for case in cases]) for name in SAID["inputs"])
    assert np.all(np.histogram(length, 16, (4, 8))[0] == 16)  # a Sobol sequence has as many in each
    assert set(furniture) == {2, 3, 4, 5} and set(frames) == {5, 20}
    assert (glass == 0).mean() == 0.75 and glass[glass > 0].min() > 0.1 and glass.max() < 0.4
    assert abs(height.mean()) < 0.1 and abs(height.std() - 2.0) < 0.1
    assert {case["room.width"] for case in cases} == {INPUTS["room.width"].default}


def test_the_key_tells_cases_apart_not_what_is_asked_of_them():
    assert campaign(share=0.5, limits={"alignment.rotation_deg": 0.1}, cases=7).key == campaign().key
    assert campaign(seed=2).key != campaign().key


@pytest.mark.parametrize("changed", ["robot.yaml", "sensor.yaml", "robot.urdf.xacro"])
def test_cases_of_changed_files_are_others(changed, tmp_path):
    shipped = share_directory()
    shutil.copy(shipped / "config" / "xt32.yaml", tmp_path / "sensor.yaml")
    shutil.copy(shipped / "models" / "two_lidar_amr.urdf.xacro", tmp_path / "robot.urdf.xacro")
    profile = (shipped / "config" / "robots" / "two_lidar_amr.yaml").read_text()
    (tmp_path / "robot.yaml").write_text(profile.replace("../../models/two_lidar_amr", "robot"))
    said = SAID | {"robot": str(tmp_path / "robot.yaml"), "sensor": str(tmp_path / "sensor.yaml")}

    def key():
        return Campaign.from_mapping(said, "tried.yaml").key

    before, path = key(), tmp_path / changed
    assert key() == before
    text = path.read_text()
    path.write_text(text.replace('name="two_lidar_amr"', 'name="another"') if path.suffix == ".xacro" else text + "#\n")
    assert key() != before


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"rooms": 3}, "tried.yaml: unknown key 'rooms'"),
        ({"input": {}}, "did you mean inputs"),
        ({"inputs": {"room.lenght": 3}}, "tried.yaml: inputs: unknown key 'room.lenght'"),
        ({"inputs": {"room.length": {"uniform": [8, 4]}}}, "inputs: room.length: uniform: 8 is above 4"),
        ({"inputs": {"room.length": {"uniform": [1, 4]}}}, "room.length: reaches from 1 to 4, allowed is 2.5 to 60"),
        ({"inputs": {"room.length": {"beta": [1, 4]}}}, "inputs: room.length: give one of constant, uniform"),
        ({"inputs": {"base.height_mm": {"normal": [0, -2]}}}, "base.height_mm: normal: has to be greater than zero"),
        ({"inputs": {"room.people": 1.5}}, "inputs: room.people: constant: is 1.5; expected a whole number"),
        ({"inputs": {"room.length": {"uniform": ["1e9", 4]}}}, "expected a number; YAML reads an exponent only behind"),
        ({"stages": ["floor"]}, "tried.yaml: stages: is ['floor']"),
        ({"stages": ["alignment", "body_shape"]}, "or [alignment, floor, body_shape]"),
        ({"methods": {"floor": "guess"}}, "tried.yaml: methods: floor: 'guess' is not a known floor method"),
        ({"sensor": "no_such"}, "'no_such' is not known in config/"),
        ({"robot": "two_lidar_amr", "inputs": {"robot.payload": 1}}, "robot.payload: only a Stretch has it"),
        ({"robot": "two_lidar_manipulator", "stages": ["alignment", "floor", "drive"]}, "has no 'base:'"),
        ({"share": 1.0}, "tried.yaml: share: is 1; expected a value from 0.01 to 0.9999"),
        ({"name": "../elsewhere"}, "tried.yaml: name: is '../elsewhere'; it names a folder"),
    ],
)
def test_what_cannot_be_meant_is_told_with_file_and_key(changed, message):
    with pytest.raises(InputError) as raised:
        campaign(**changed)
    assert message in str(raised.value)


def test_a_unit_file_is_no_kind_of_lidars_to_draw_from(tmp_path):
    (tmp_path / "unit.yaml").write_text("sensor: jt128_sparse_real\nvalues: {range_offset: 0.001}\n")
    with pytest.raises(InputError, match="tried.yaml: sensor: .*unit.yaml is a unit file"):
        campaign(sensor=str(tmp_path / "unit.yaml"))


def test_a_description_that_yaml_reads_as_a_date_is_text_to_be_kept():
    assert json.loads(json.dumps(campaign(description=date(2026, 1, 2)).data))["description"] == "2026-01-02"


def test_a_campaign_is_like_one_beside_it_in_a_folder_or_of_the_package(tmp_path):
    (tmp_path / "sub").mkdir()
    for name, like in (("a", "sub/b"), ("sub/b", None), ("c", "smoke")):
        said = "stages: [alignment]\ncases: 7\n" if like is None else f"like: {like}\nname: own\n"
        (tmp_path / f"{name}.yaml").write_text(said)
    assert [Campaign.load(tmp_path / f"{name}.yaml").cases for name in "ac"] == [7, 20]


def test_the_campaigns_that_come_with_the_package_are_valid():
    names = sorted(path.stem for path in (share_directory() / "config" / "campaigns").glob("*.yaml"))
    assert names == ["body", "drive", "mounts", "published", "release", "smoke", "worst"]
    for name in names:
        assert Campaign.load(name).name == name


def test_a_room_has_what_it_was_asked_for_and_leaves_the_robot_its_place(tmp_path):
    room = Room(
        8.0, 5.0, 3.0, furniture=12, people=2, glass=0.3, mirror=0.2, floor_rms=0.002, wall_rms=0.003, x=0.9, y=-0.9,
        yaw=2.0,
    )  # fmt: skip
    world = load_world(write_room(room, np.random.default_rng(1), tmp_path))
    assert not [warning for warning in world.warnings if "not supported" in warning]
    assert len({name.partition("/")[0] for name in world.surfaces if name.startswith("furniture")}) == 12
    assert len(world.actors) == 2
    glass = [material.glass for name, material in world.materials.items() if "pane" in name]
    mirror = [material.mirror for name, material in world.materials.items() if "mirror" in name]
    assert glass == [0.92] and mirror == [0.85]
    for name, surface in world.surfaces.items():
        if name.startswith("furniture"):
            assert np.linalg.norm(surface.vertices[:, :2], axis=1).min() > KEPT_FREE - 0.35, name
    for actor in world.actors:
        for time in np.linspace(0.0, actor.times[-1], 30):
            assert np.linalg.norm(actor.pose(time)[:2, 3]) > KEPT_FREE - 0.1
    heights = world.surfaces["shell/link/floor"].vertices[:, 2]
    assert abs(np.std(heights) - 0.002) < 0.001 and abs(heights.mean()) < 0.002


def test_equal_seeds_give_equal_rooms(tmp_path):
    texts = []
    for number in (1, 1, 2):
        folder = tmp_path / str(len(texts))
        folder.mkdir()
        texts.append(write_room(Room(furniture=5, people=1), np.random.default_rng(number), folder).read_text())
    assert texts[0] == texts[1] != texts[2]


def test_what_computes_the_cases_says_which_code_it_is(tmp_path):
    """A copy of the package has the same code; a change of what calibrates is another, one of a command is not."""
    copy, program = tmp_path / "copy", tmp_path / "program.py"
    shutil.copytree(share_directory(), copy, ignore=shutil.ignore_patterns(".*", "build", "docs", "out", "test"))
    program.write_text(
        "import sys; sys.path.insert(0, '.')\n"
        "from stretch_sim_cal.campaign.plan import Campaign\n"
        "for path in (None, *sys.argv[1:]):\n"
        "    path and open(path, 'a').write('\\n')\n"
        "    print(Campaign.load('smoke').code)\n"
    )
    changed = ["stretch_sim_cal/commands/check.py", "stretch_sim_cal/calibration/robust.py", "config/jt128.yaml"]
    codes = subprocess.check_output([sys.executable, program, *changed], cwd=copy, text=True).split()
    same = Campaign.load("smoke").code
    assert codes[:2] == [same, same] and len({same, *codes[2:]}) == 3
