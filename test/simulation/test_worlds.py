"""Reading SDF worlds: where things are, what is left out and said so, and files that are no worlds."""

import numpy as np
import pytest
import trimesh
from scipy.spatial.transform import Rotation

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import share_directory
from stretch_sim_cal.simulation.optics import Hits, Scene
from stretch_sim_cal.simulation.worlds import load_world

OURS = sorted(path.stem for path in (share_directory() / "worlds").glob("*.sdf"))
BOX = "<geometry><box><size>0.2 0.2 0.2</size></box></geometry>"


@pytest.fixture
def world_file(tmp_path):
    """Return a function that writes a world with some content and returns its path."""

    def write(content):
        path = tmp_path / "world.sdf"
        path.write_text(f'<sdf version="1.9">\n<world name="w">\n{content}\n</world>\n</sdf>\n')
        return path

    return write


def model(content, name="m", pose="", attributes=""):
    return f'<model name="{name}" {attributes}><static>true</static>{pose}{content}</model>'


def shape(geometry):
    return model(link(f'<collision name="c"><geometry>{geometry}</geometry></collision>'))


def link(content=f'<collision name="c">{BOX}</collision>', name="l"):
    return f'<link name="{name}">{content}</link>'


def waypoint(time, pose):
    return f"<waypoint><time>{time}</time><pose>{pose}</pose></waypoint>"


def actor(*waypoints, more=""):
    way = f'<trajectory id="0" type="walking">{"".join(waypoints)}</trajectory>'
    return f'<actor name="walker"><script>{more}{way}</script></actor>'


def assert_centres(world, centres):
    """Assert where the middles of surfaces' bounds are (m), by the surfaces' names."""
    for name, expected in centres.items():
        vertices = world.surfaces[name].vertices
        np.testing.assert_allclose((vertices.min(axis=0) + vertices.max(axis=0)) / 2, expected, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("name", OURS)
def test_our_worlds_are_read_whole_and_have_their_floor_under_the_robot(name):
    world = load_world(name)
    assert world.warnings == [] and world.notes == []
    floor = next(surface for surface_name, surface in world.surfaces.items() if surface_name.startswith("floor/"))
    below = Hits(np.array([0.21, 0.13, 1.0]), np.array([[0.0, 0.0, -1.0]], np.float32), [Scene({"floor": floor})])
    assert below.distances == pytest.approx(1.0, abs=1e-6)


def test_poses_add_up_through_models_links_and_shapes(world_file):
    collision = f'<collision name="c"><pose>0 0 1 0 0 0</pose>{BOX}</collision>'
    inner = model(link(f"<pose>1 0 0 0 0 0</pose>{collision}"), "inner", "<pose>0 2 0 0 0 0</pose>")
    path = world_file(model(inner, "outer", '<pose degrees="true">10 0 0 0 0 90</pose>'))
    # Turned by 90 deg about z: inner's y and the link's x become -x and y of the world.
    assert_centres(load_world(path), {"outer/inner/l/c": [8.0, 1.0, 1.0]})


def test_rotations_are_about_fixed_axes_or_quaternions(world_file):
    rotation = Rotation.from_euler("xyz", [0.3, -0.2, 0.9])
    quaternion = " ".join(map(repr, rotation.as_quat().tolist()))
    for pose in ("<pose>0 0 0 0.3 -0.2 0.9", f'<pose rotation_format="quat_xyzw">0 0 0 {quaternion}'):
        geometry = "<geometry><box><size>1 2 3</size></box></geometry>"
        world = load_world(world_file(model(link(f'<collision name="c">{pose}</pose>{geometry}</collision>'))))
        corners = world.surfaces["m/l/c"].vertices
        assert np.linalg.norm(corners - rotation.apply([0.5, 1.0, 1.5]), axis=1).min() < 1e-12


def test_poses_may_be_relative_to_named_frames(world_file):
    content = (
        '<frame name="corner"><pose>5 0 0 0 0 0</pose></frame>'
        + model(link(), "a", '<pose relative_to="corner">1 0 0 0 0 0</pose>')
        + model(link(), "b", '<pose relative_to="a">0 1 0 0 0 0</pose>')
        + model(
            link(name="base")
            + '<frame name="up" attached_to="base"><pose>0 0 2 0 0 0</pose></frame>'
            + link(f'<pose relative_to="up">0 0 1 0 0 0</pose><collision name="c">{BOX}</collision>', "top")
            + link(f'<collision name="c"><pose relative_to="top">1 0 0 0 0 0</pose>{BOX}</collision>', "side"),
            "c",
        )
        + model(link(), "d", '<pose relative_to="c::up">0 0 0 0 0 0</pose>')
    )
    world = load_world(world_file(content))
    expected = {"a/l/c": [6, 0, 0], "b/l/c": [6, 1, 0], "c/top/c": [0, 0, 3], "c/side/c": [1, 0, 3], "d/l/c": [0, 0, 2]}
    assert_centres(world, expected)


def test_a_placement_frame_is_what_a_model_s_pose_places(world_file):
    handle = '<frame name="handle"><pose>0 0 1 0 0 0</pose></frame>'
    path = world_file(model(link() + handle, pose="<pose>3 0 0 0 0 0</pose>", attributes='placement_frame="handle"'))
    assert_centres(load_world(path), {"m/l/c": [3, 0, -1]})


def test_included_models_take_the_include_s_name_and_pose(world_file, tmp_path):
    (tmp_path / "chair").mkdir()
    (tmp_path / "chair" / "model.config").write_text(
        '<?xml version="1.0"?><model><name>chair</name>'
        '<sdf version="1.4">old.sdf</sdf><sdf version="1.10">new.sdf</sdf></model>'
    )
    (tmp_path / "chair" / "new.sdf").write_text(
        f'<sdf version="1.10">{model(link(), "chair", "<pose>9 9 9 0 0 0</pose>")}</sdf>'
    )
    content = (
        "<include><uri>model://chair</uri><name>left</name><pose>1 0 0 0 0 0</pose></include>"
        "<include><uri>chair</uri><name>right</name><pose>2 0 0 0 0 0</pose></include>"
        "<include><uri>chair/new.sdf</uri></include>"
    )
    world = load_world(world_file(content))
    assert_centres(world, {"left/l/c": [1, 0, 0], "right/l/c": [2, 0, 0], "chair/l/c": [9, 9, 9]})
    assert world.warnings == []


def test_meshes_are_scaled(world_file, tmp_path):
    trimesh.creation.box(extents=[1, 1, 1]).export(tmp_path / "cube.stl")
    world = load_world(world_file(shape("<mesh><uri>cube.stl</uri><scale>2 3 0.5</scale></mesh>")))
    np.testing.assert_allclose(np.ptp(world.surfaces["m/l/c"].vertices, axis=0), [2, 3, 0.5], atol=1e-6)


def test_collision_shapes_are_what_is_seen_and_visuals_only_where_there_are_none(world_file):
    visual = '<visual name="v"><geometry><sphere><radius>1</radius></sphere></geometry></visual>'
    both = model(link(f'<collision name="c">{BOX}</collision>{visual}'), "both")
    world = load_world(world_file(both + model(link(visual), "only")))
    assert set(world.surfaces) == {"both/l/c", "only/l/v"}
    assert [note for note in world.notes if "only/l" in note and "visual is used" in note]


@pytest.mark.parametrize(
    "content, tag",
    [
        ('<actor name="walker"></actor>', "actor"),
        (shape("<heightmap></heightmap>"), "heightmap"),
        (model(link('<particle_emitter name="p"></particle_emitter>')), "particle_emitter"),
    ],
)
def test_what_is_not_supported_is_named_with_its_line(world_file, content, tag):
    path = world_file("\n" + content)
    [warning] = load_world(path).warnings
    assert f"{path}:4: <{tag}>" in warning and "ignored" in warning


def test_what_no_lidar_sees_is_passed_over_in_silence_and_models_that_could_fall_are_noted(world_file):
    content = (
        "<gui/><scene/><physics name='p' type='ode'/><gravity>0 0 -9.8</gravity><plugin filename='f' name='n'/>"
        "<light name='sun' type='point'/>"
        + model(link(f"<inertial><mass>1</mass></inertial><collision name='c'>{BOX}<surface/></collision>"))
    )
    world = load_world(world_file(content))
    assert world.warnings == [] and world.notes == []
    assert any(
        "'ball' is not static" in note for note in load_world(world_file(f'<model name="ball">{link()}</model>')).notes
    )


@pytest.mark.parametrize(
    "content, mention",
    [
        (model(link('<collision name="c"/>')), "geometry"),
        (model(link(f'<collision name="c"><pose>1 2 3</pose>{BOX}</collision>')), "6 finite numbers"),
        (shape("<box><size>1 1 -1</size></box>"), "above 0"),
        (shape("<sphere><radius>nan</radius></sphere>"), "radius"),
        (model(link(), pose='<pose relative_to="nowhere"/>'), "nowhere"),
        (model(link() + link()), "named 'l'"),
        ("<model><static>true</static></model>", "no name"),
        ("<include><uri>model://absent</uri></include>", "absent"),
        ("<include><uri>https://fuel.gazebosim.org/1.0/chair</uri></include>", "https"),
        (model(link(), "a", '<pose relative_to="b"/>') + model(link(), "b", '<pose relative_to="a"/>'), "cycle"),
        ("<include><uri>world.sdf</uri></include>", "includes itself"),
        (shape("<mesh><uri>absent.stl</uri></mesh>"), "absent.stl"),
        (model(link(f'<collision name="c"><pose frame="x">0 0 0 0 0 0</pose>{BOX}</collision>')), "relative_to"),
        (
            "".join(
                model(link(), f"m{index}", f'<pose relative_to="m{index + 1}"/>' if index < 3000 else "")
                for index in range(3001)
            ),
            "deep",
        ),
        ('<actor name="w"><script/></actor>', "has no <trajectory> with a <waypoint>"),
        (actor(waypoint(1, "0 0 0 0 0 0"), waypoint(1, "1 0 0 0 0 0")), "must increase"),
        (actor("<waypoint><time>1</time></waypoint>"), "has no <pose>"),
    ],
)
def test_a_wrong_world_is_refused_naming_file_and_line(world_file, content, mention):
    path = world_file(content)
    with pytest.raises(InputError, match=mention) as error:
        load_world(path)
    assert f"{path}:" in str(error.value)


@pytest.mark.parametrize(
    "text, mention",
    [
        ("", "no element"),
        ("<robot name='r'/>", "sdf"),
        ('<!DOCTYPE sdf SYSTEM "other.dtd"><sdf/>', "document type"),
        ('<!DOCTYPE sdf [<!ENTITY f SYSTEM "file:///etc/passwd">]><sdf>&f;</sdf>', "document type"),
        ("<sdf>" + "<a>" * 5000, "nested"),
        ("<?xml version='1.0' encoding='utf-7'?><sdf/>", "XML"),
    ],
)
def test_hostile_and_torn_files_are_refused_in_one_line(tmp_path, text, mention):
    path = tmp_path / "hostile.sdf"
    path.write_text(text)
    with pytest.raises(InputError, match=mention) as error:
        load_world(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_a_torn_mesh_is_refused_and_one_of_another_format_left_out_with_a_warning(world_file, tmp_path):
    (tmp_path / "torn.stl").write_bytes(b"\x00" * 90)
    with pytest.raises(InputError, match="torn.stl"):
        load_world(world_file(shape("<mesh><uri>torn.stl</uri></mesh>")))
    (tmp_path / "chair.dae").write_text("<COLLADA/>")
    assert "chair.dae" in load_world(world_file(shape("<mesh><uri>chair.dae</uri></mesh>"))).warnings[0]


LOOKS = "<material><diffuse>{} {} {} 1</diffuse></material>"


def material_of(world_file, visuals, collision=""):
    content = f'<collision name="c">{BOX}{collision}</collision>' + "".join(visuals)
    return load_world(world_file(model(link(content)))).materials.get("m/l/c")


def test_a_surface_s_reflectivity_is_its_visual_s_brightness(world_file):
    grey, black = LOOKS.format(0.5, 0.5, 0.5), LOOKS.format(0, 0, 0)
    other = f'<visual name="other">{BOX}{black}</visual>'
    for name in ("c", "c_visual"):  # named like the collision, whatever else there is
        material = material_of(world_file, [other, f'<visual name="{name}">{BOX}{grey}</visual>'])
        assert material.reflectivity == pytest.approx(0.5)
    assert material_of(world_file, [other]).reflectivity == 0.0  # the link's only one
    assert material_of(world_file, [other, f'<visual name="more">{BOX}{grey}</visual>']) is None
    assert material_of(world_file, [f'<visual name="c">{BOX}</visual>']) is None


def test_laser_retro_goes_before_a_colour(world_file):
    visual = f'<visual name="c">{BOX}{LOOKS.format(1, 1, 1)}<laser_retro>51</laser_retro></visual>'
    assert material_of(world_file, [visual]).reflectivity == pytest.approx(0.2)
    assert material_of(world_file, [visual], "<laser_retro>510</laser_retro>").reflectivity == pytest.approx(2.0)
    assert material_of(world_file, [visual], "<laser_retro>0</laser_retro>").reflectivity == pytest.approx(0.2)
    assert material_of(world_file, [visual.replace("51<", "0<")]).reflectivity == pytest.approx(1.0)


def test_mirrors_and_glass_are_marked_in_their_visuals(world_file):
    for kind in ("mirror", "glass"):
        visual = f'<visual name="c">{BOX}<sim:{kind}>0.8</sim:{kind}></visual>'
        assert getattr(material_of(world_file, [visual]), kind) == 0.8
        assert material_of(world_file, [visual.replace("0.8", "0")]) is None
        for wrong in ("1.2", "-0.1", "much"):
            with pytest.raises(InputError, match=f"<sim:{kind}>: is '?{wrong}"):
                material_of(world_file, [visual.replace("0.8", wrong)])


def test_an_actor_walks_from_waypoint_to_waypoint_again_and_again(world_file):
    content = actor(waypoint(0, "0 0 0 0 0 3.1"), waypoint(2, "4 0 0 0 0 -3.1"), waypoint(4, "4 2 0 0 0 -3.1"))
    world = load_world(world_file(model(link()) + content))
    (walker,) = world.actors
    assert world.warnings == [] and 1.7 < np.ptp(walker.surface.vertices[:, 2]) < 1.8
    for time, expected in ((0, (0, 0)), (1, (2, 0)), (3, (4, 1)), (5, (2, 0))):
        np.testing.assert_allclose(walker.pose(time)[:2, 3], expected, atol=1e-12)
    np.testing.assert_allclose(walker.pose(1)[:2, 0], [-1, 0], atol=1e-9)  # it turns the shorter way
    once = "<loop>false</loop><delay_start>3</delay_start>"
    stays = actor(waypoint(0, "0 0 0 0 0 0"), waypoint(2, "4 0 0 0 0 0"), more=once)
    (walker,) = load_world(world_file(stays)).actors
    assert [walker.pose(time)[0, 3] for time in (2, 4, 50)] == [0, 2, 4]
