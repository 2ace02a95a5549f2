"""What benchmarks read and print: recordings of real rigs (.pcd in its three formats, MCAP), and bad ones named; tables
of lidars' effects, which go on where they were cut."""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import yaml
from pyarrow import feather
from scipy.spatial.transform import Rotation

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply, from_xyz_rpy, inverse, to_xyz_rpy
from stretch_sim_cal.recording.rosbag import RecordingWriter
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator, xyz
from stretch_sim_cal.simulation.setup import SimulationSetup

FIELDS = [
    ("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("normal", "<f4", (3,)), ("intensity", "<u1"), ("ring", "<u2"),
    ("timestamp", "<f8"),
]  # fmt: skip


@pytest.fixture
def benchmark(monkeypatch):
    """Import a benchmark by name."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[1] / "benchmarks"))

    def load(name):
        monkeypatch.delitem(sys.modules, name, raising=False)
        return __import__(name)

    return load


def points(count=500, seed=1):
    """Return points with fields of several types, the second one a miss, the third one not finite."""
    rng = np.random.default_rng(seed)
    cloud = np.zeros(count, FIELDS)
    for name in "xyz":
        cloud[name] = rng.normal(0.0, 5.0, count)
    cloud["intensity"], cloud["ring"] = rng.integers(0, 256, count), np.arange(count) % 16
    cloud["normal"], cloud["timestamp"] = 1.0, 0.001 * np.arange(count)
    for name in "xyz":
        cloud[name][1], cloud[name][2] = 0.0, np.nan
    return cloud


def lzf_packed(data: bytes) -> bytes:
    """Pack bytes by LZF, greedily: what was seen within 8 kB is repeated."""
    out, plain, seen, position = bytearray(), bytearray(), {}, 0

    def flush():
        for start in range(0, len(plain), 32):
            piece = plain[start : start + 32]
            out.append(len(piece) - 1)
            out.extend(piece)
        plain.clear()

    while position < len(data):
        key = data[position : position + 3]
        start = seen.get(key, -1) if len(key) == 3 else -1
        seen[key] = position
        if start < 0 or position - start > 8192:
            plain.append(data[position])
            position += 1
            continue
        length = 3
        while length < 264 and position + length < len(data) and data[start + length] == data[position + length]:
            length += 1
        flush()
        back = position - start - 1
        if length - 2 < 7:
            out.extend(((length - 2) << 5 | back >> 8, back & 255))
        else:
            out.extend((7 << 5 | back >> 8, length - 9, back & 255))
        position += length
    flush()
    return bytes(out)


def pcd(cloud: np.ndarray, form: str) -> bytes:
    """Return a .pcd file as pcl writes it."""
    letters = {"f": "F", "u": "U", "i": "I"}
    kinds = [cloud.dtype[name].base for name in cloud.dtype.names]
    counts = [int(np.prod(cloud.dtype[name].shape, dtype=int)) for name in cloud.dtype.names]
    header = (
        "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\n"
        f"FIELDS {' '.join(cloud.dtype.names)}\nSIZE {' '.join(str(k.itemsize) for k in kinds)}\n"
        f"TYPE {' '.join(letters[k.kind] for k in kinds)}\nCOUNT {' '.join(map(str, counts))}\n"
        f"WIDTH {len(cloud)}\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS {len(cloud)}\nDATA {form}\n"
    ).encode()
    if form == "ascii":
        rows = (np.concatenate([np.atleast_1d(point[name]) for name in cloud.dtype.names]) for point in cloud)
        return header + "\n".join(" ".join(f"{value:.9g}" for value in row) for row in rows).encode() + b"\n"
    if form == "binary":
        return header + cloud.tobytes()
    plain = b"".join(np.ascontiguousarray(cloud[name]).tobytes() for name in cloud.dtype.names)
    packed = lzf_packed(plain)
    return header + struct.pack("<II", len(packed), len(plain)) + packed


@pytest.mark.parametrize("form", ["ascii", "binary", "binary_compressed"])
def test_a_pcd_file_gives_its_returns_with_intensity_and_ring(benchmark, tmp_path, form):
    cloud, path = points(), tmp_path / "cloud.pcd"
    path.write_bytes(pcd(cloud, form))
    read = benchmark("rigs").read_pcd(path)
    assert read.dtype.names == ("x", "y", "z", "intensity", "ring") and len(read) == len(cloud) - 2
    returns = np.delete(cloud, [1, 2])
    for name in read.dtype.names:
        np.testing.assert_allclose(read[name], returns[name], rtol=1e-6)


def test_repetitions_that_reach_into_themselves_are_unpacked(benchmark):
    plain = b"abcabcabcabcabcabcabc" + bytes(700) + b"end"
    packed = lzf_packed(plain)
    assert len(packed) < 40 and benchmark("rigs").lzf_unpacked(packed, len(plain)) == plain


@pytest.mark.parametrize("form", ["ascii", "binary", "binary_compressed"])
def test_a_torn_pcd_file_is_named(benchmark, tmp_path, form):
    path = tmp_path / "cloud.pcd"
    content = pcd(points(), form)
    path.write_bytes(content[: len(content) - 1000].rsplit(b"\n", 1)[0] if form == "ascii" else content[:-1000])
    with pytest.raises(InputError, match="cloud.pcd: its header does not fit what it holds"):
        benchmark("rigs").read_pcd(path)


@pytest.mark.parametrize("content", [b"", b"ply\nformat ascii\n", b"FIELDS x y z\n"])
def test_what_is_no_pcd_file_is_named(benchmark, tmp_path, content):
    path = tmp_path / "cloud.pcd"
    path.write_bytes(content)
    with pytest.raises(InputError, match="has no line DATA; it is no .pcd file"):
        benchmark("rigs").read_pcd(path)


def recorded(folder: Path, clouds: dict[str, list[np.ndarray]]) -> Path:
    """Write clouds by topic as MCAP; return the file."""
    with RecordingWriter(folder) as writer:
        for topic, frames in clouds.items():
            for number, frame in enumerate(frames):
                writer.write_cloud(topic, "lidar", 100_000_000 * (number + 1), frame)
    return next(folder.glob("*.mcap"))


@pytest.fixture(scope="module")
def scans():
    """Scans of two simulated lidars, as published, and where the right one is in the left one's frame."""
    simulator = EmbeddedSimulator(SimulationSetup(world="furnished_room", sensor="jt128_sparse", seed=3))
    truth = inverse(simulator.base_from_lidar("left")) @ simulator.base_from_lidar("right")
    return {side: [simulator.scan(side, tick) for tick in range(4)] for side in ("left", "right")}, truth


def test_every_point_cloud_topic_of_an_mcap_file_is_a_lidar(benchmark, tmp_path, scans):
    clouds, _ = scans
    file = recorded(tmp_path / "bag", {f"/lidar_{side}": frames for side, frames in clouds.items()})
    for path in (file, tmp_path / "bag"):
        read = benchmark("rigs").read_bag(path)
        assert set(read) == {"/lidar_left", "/lidar_right"} and len(read["/lidar_left"]) == 4
        first = read["/lidar_left"][0]
        assert first.dtype.names == ("x", "y", "z", "intensity", "ring")
        np.testing.assert_array_equal(np.column_stack([first[a] for a in "xyz"]), xyz(clouds["left"][0]))


def test_a_rig_is_aligned_from_mcap_and_from_pcd_alike(benchmark, tmp_path, scans, monkeypatch, capsys):
    clouds, truth = scans
    position, rpy = to_xyz_rpy(truth)
    pose = {"xyz": [float(v) for v in position], "rpy_deg": [float(v) for v in np.degrees(rpy)], "known": True}
    recorded(tmp_path / "bag", {f"/{side}": frames for side, frames in clouds.items()}).rename(tmp_path / "mcap.mcap")
    for file in (tmp_path / "bag").iterdir():
        file.unlink()
    (tmp_path / "bag").rmdir()
    for side, frames in clouds.items():
        for number, frame in enumerate(frames):
            file = tmp_path / "pcd" / "room" / side / f"{number}.pcd"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(pcd(frame, "binary"))
    for name, first, other in (("mcap", "/left", "/right"), ("pcd", "left", "right")):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"first": first, "others": {other: pose}}))
    monkeypatch.setattr(sys, "argv", ["real_data.py", "--data", str(tmp_path)])
    assert benchmark("real_data").main() == 0
    printed = capsys.readouterr().out
    mcap, folder = (part.split("\n", 1)[1].replace("/", "") for part in printed.split("## ")[1:])
    assert mcap.replace("| mcap", "| room").replace("mcap,", "room,") == folder
    row = next(line for line in folder.splitlines() if line.startswith("| room |"))
    off_known = row.split(" | ")[5]
    assert float(off_known.split(" mm ")[0]) < 2.0, f"from the true transform: {off_known}"


def test_a_log_of_argoverse_gives_both_lidars_in_their_own_frames(benchmark, tmp_path):
    up, down = from_xyz_rpy([1.35, 0.0, 1.64], [0.0, 0.0, 0.0]), from_xyz_rpy([1.35, 0.0, 1.52], [np.pi, 0.0, 0.2])
    quaternions = [Rotation.from_matrix(pose[:3, :3]).as_quat() for pose in (up, down)]
    poses = {"sensor_name": ["up_lidar", "down_lidar"]}
    poses |= {key: [q[i] for q in quaternions] for i, key in enumerate(("qx", "qy", "qz", "qw"))}
    poses |= {key: [pose[i, 3] for pose in (up, down)] for i, key in enumerate(("tx_m", "ty_m", "tz_m"))}
    own = np.random.default_rng(1).uniform(-9.0, 9.0, (40, 3))
    in_car = np.concatenate([apply(up, own), apply(down, own)])
    sweep = {name: in_car[:, axis] for axis, name in enumerate("xyz")}
    sweep |= {"intensity": np.arange(80) % 256, "laser_number": np.r_[np.arange(40) % 32, 32 + np.arange(40) % 32]}
    log = tmp_path / "log"
    for file, columns in (("calibration/egovehicle_SE3_sensor", poses), ("sensors/lidar/7", sweep)):
        (log / file).parent.mkdir(parents=True, exist_ok=True)
        feather.write_feather(pyarrow.table(columns), log / f"{file}.feather")
    (rig,) = benchmark("rigs").rigs(tmp_path)
    assert rig.known == {"down"} and list(rig.scenes) == ["7"]
    np.testing.assert_allclose(rig.others["down"], inverse(up) @ down, atol=1e-9)
    for lidar in ("up", "down"):
        (frame,) = rig.scenes["7"][lidar]
        np.testing.assert_allclose(np.column_stack([frame[a] for a in "xyz"]), own, atol=1e-5)
        np.testing.assert_array_equal(frame["ring"], np.arange(40) % 32)
    (log / "sensors/lidar/7.feather").write_bytes(b"torn")
    with pytest.raises(InputError, match="7.feather: cannot be read as .feather"):
        list(benchmark("rigs").rigs(tmp_path))


def test_a_bin_file_gives_its_returns_with_intensity(benchmark, tmp_path):
    points = np.array([[1, 2, 3, 9], [0, 0, 0, 0], [np.nan, 1, 1, 1], [4, 5, 6, 7]], "<f4")
    for lidar in ("one", "two"):
        file = tmp_path / "rig" / "scene" / f"{lidar}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(points.tobytes())
    (rig,) = benchmark("rigs").rigs(tmp_path)
    (frame,) = rig.scenes["scene"]["one"]
    assert frame["intensity"].tolist() == [9, 7] and frame["z"].tolist() == [3, 6]
    file.write_bytes(points.tobytes()[:-3])
    with pytest.raises(InputError, match="two.bin: 61 bytes are no whole number of points"):
        list(benchmark("rigs").rigs(tmp_path))


def test_a_folder_without_recordings_is_named(benchmark, tmp_path):
    with pytest.raises(InputError, match="holds no .npz, .mcap, rosbag2 folder"):
        list(benchmark("rigs").rigs(tmp_path))


def test_tables_of_effects_go_on_where_they_were_cut(benchmark, tmp_path):
    effects, comparing = benchmark("effects"), benchmark("comparing")
    compared = []

    def compare(effect, seed):
        compared.append((effect.name, seed))
        refused = ["too few patches: 3"] if effect.name == "none" and seed == 2 else []
        return {
            "errors": {"ours": {"height_mm": 0.25 * seed}, "published": {"height_mm": 2.0}},
            "nees": {"ours": 1.5, "published": 40.0}, "refusals": {"ours": refused, "published": []},
            "bounds": [{"height_mm": 0.5}, {"height_mm": 0.25}],
        }  # fmt: skip

    table = comparing.Comparison("floor", compare, {"height_mm": "height, mm"})
    chosen = effects.chosen(["none", "scale"], sparse=True)
    assert {effect.simulated for effect in chosen} == {"jt128_sparse_real"}
    comparing.run([table], chosen, range(1, 2), tmp_path)
    comparing.run([table], chosen, range(1, 3), tmp_path, resume=True)
    assert compared == [(effect.name, seed) for seed in (1, 2) for effect in chosen]
    lines = (tmp_path / "floor.md").read_text().splitlines()
    assert lines[0].startswith("Seeds 1 to 2") and lines[-1] == "- none; ours: too few patches"
    none = next(line for line in lines if line.startswith("| none"))
    assert none == "| none | 0.375 / 0.500 | 2.000 / 2.000 | 0.50 / 1.00 | 1.50 | 40.00 | 1 of 2 | 0 of 2 |"


def test_an_effect_that_does_not_exist_is_named(benchmark):
    with pytest.raises(InputError, match="--effects colour: no such effect; there are: none; late at"):
        benchmark("effects").chosen(["colour"])


def test_a_trial_of_the_mounts_gives_errors_and_the_least_that_is_possible(benchmark, monkeypatch, capsys):
    words = "--seeds 1 --sensor jt128_sparse --frames 1 --poses 3 --origins-mm 1 --by length --json"
    monkeypatch.setattr(sys, "argv", ["mounts.py", *words.split()])
    assert benchmark("mounts").main() == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accepted"] == 1.0 and 0.0 < found["optimum_rms_mm"] < 5.0 and found["median_mm"] < 5.0
