"""Inputs and outputs of benchmarks: recordings of real lidars (.pcd in its three formats, raw packets),
unreadable ones, and tables of lidars' effects, which are continued where they were cut."""

import contextlib
import itertools
import json
import sqlite3
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from stretch_sim_cal.errors import InputError
from stretch_sim_cal.simulation.embedded import EmbeddedSimulator
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
    """Pack bytes by LZF without repetitions."""
    pieces = [data[start : start + 32] for start in range(0, len(data), 32)]
    return b"".join(bytes([len(piece) - 1]) + piece for piece in pieces)


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
    read = benchmark("pcd_files").read_pcd(path)
    assert read.dtype.names == ("x", "y", "z", "intensity", "ring", "timestamp") and len(read) == len(cloud) - 2
    returns = np.delete(cloud, [1, 2])
    for name in read.dtype.names:
        np.testing.assert_allclose(read[name], returns[name], rtol=1e-6)


def test_a_torn_pcd_file_and_what_is_none_are_named(benchmark, tmp_path):
    path, read = tmp_path / "cloud.pcd", benchmark("pcd_files").read_pcd
    path.write_bytes(pcd(points(), "binary")[:-1000])
    with pytest.raises(InputError, match="cloud.pcd: its header does not fit what it holds"):
        read(path)
    path.write_bytes(b"FIELDS x y z\n")
    with pytest.raises(InputError, match="has no line DATA; it is no .pcd file"):
        read(path)


def packets_recorded(file: Path, packets: list[bytes], of_hesai: bool, each: int) -> None:
    """Write packets as ROS 2 messages of raw scans, so many a message, in an sqlite3 recording."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(file)) as base:
        base.execute("CREATE TABLE messages (timestamp INTEGER, data BLOB)")
        for number in range(0, len(packets), each):
            some = packets[number : number + each]
            message = struct.pack("<IIII", 0x0100, 1, 2, 6) + b"lidar\0\0\0" + struct.pack("<I", len(some))
            for packet in some:
                message += bytes(-(len(message) - 4) % 4) + struct.pack("<II", 1, 2)
                message += packet.ljust(1500, b"\0") + struct.pack("<I", len(packet)) if of_hesai else packet
            base.execute("INSERT INTO messages VALUES (?, ?)", (number, message))
        base.commit()


def xt32_packets(ranges: np.ndarray, other: np.ndarray) -> list[bytes]:
    """Return packets of dual returns of an XT32 with ranges (F, 32), in steps of 4 mm, F firings a turn."""
    found = []
    for start in range(0, len(ranges), 4):
        packet = bytes([0xEE, 0xFF, 6, 1, 0, 0, 32, 8, 0, 4, 2, 0])
        for firing in range(start, start + 4):
            for steps in (ranges[firing], other[firing]):
                packet += struct.pack("<H", firing * 36000 // len(ranges))
                packet += b"".join(struct.pack("<HBB", step, 100, 0) for step in steps)
        found.append(packet + bytes(10) + bytes([0x39]) + bytes(20))
    return found


def nebula(folder: Path, kind: str, make: str) -> tuple[Path, Path]:
    """Return where a clone of tier4/nebula has a recording of a kind, and where its tables are."""
    root = folder / "nebula" / "src" / f"nebula_{make}"
    file = root / f"nebula_{make}" / "test_resources" / "decoder_ground_truth" / kind / "1" / "1_0.db3"
    tables = root / f"nebula_{make}_decoders" / "calibration"
    tables.mkdir(parents=True, exist_ok=True)
    return file, tables


def test_raw_packets_of_a_hesai_are_clouds_of_whole_turns(benchmark, tmp_path):
    file, tables = nebula(tmp_path, "xt32", "hesai")
    elevations = np.arange(15, -17, -1)
    table = "Channel,Elevation,Azimuth\n" + "".join(f"{i + 1},{e},-1.0\n" for i, e in enumerate(elevations))
    (tables / "PandarXT32.csv").write_text(table)
    ranges = np.random.default_rng(1).integers(200, 2000, (200, 32))
    ranges[5, 3] = 0
    other = ranges.copy()
    other[7, 4] += 500
    packets_recorded(file, xt32_packets(ranges, other) * 2 + xt32_packets(ranges, other)[:20], True, 30)
    scans = benchmark("packets").hesai_scans(file, "xt32", tables / "PandarXT32.csv")
    assert [len(scan) for scan in scans] == [200 * 32, 200 * 32]  # one miss, one second return; the last turn is torn
    first = scans[0]
    point = first[(first["column"] == 50) & (first["ring"] == 2)]
    azimuth, elevation, distance = np.radians(90.0 - 1.0), np.radians(13.0), 0.004 * ranges[50, 2]
    where = np.cos(elevation) * np.sin(azimuth), np.cos(elevation) * np.cos(azimuth), np.sin(elevation)
    np.testing.assert_allclose([point[a][0] for a in "xyz"], distance * np.array(where), rtol=1e-5)
    assert np.count_nonzero((first["column"] == 7) & (first["ring"] == 4)) == 2
    with contextlib.closing(sqlite3.connect(file)) as base:
        base.execute("UPDATE messages SET data = substr(data, 1, 5000)")
        base.commit()
    with pytest.raises(InputError, match="1_0.db3: a message is not one of packets of 1500 bytes"):
        benchmark("packets").hesai_scans(file, "xt32", tables / "PandarXT32.csv")
    file.write_bytes(b"torn")
    with pytest.raises(InputError, match="1_0.db3: cannot be read as an sqlite3 recording"):
        benchmark("packets").hesai_scans(file, "xt32", tables / "PandarXT32.csv")


def test_raw_packets_of_a_velodyne_are_turned_as_the_rotor_goes_on(benchmark, tmp_path):
    file, tables = nebula(tmp_path, "vlp16", "velodyne")
    elevations = np.radians([-15, 1, -13, 3, -11, 5, -9, 7, -7, 9, -5, 11, -3, 13, -1, 15]).tolist()
    lasers = [{"vert_correction": elevation, "rot_correction": 0.0} for elevation in elevations]
    (tables / "VLP16.yaml").write_text(yaml.safe_dump({"lasers": lasers}))
    found = []
    for packet in range(160):
        blocks = b""
        for block in range(12):
            azimuth = (packet * 12 + block) * 40 % 36000
            blocks += struct.pack("<HH", 0xEEFF, azimuth) + struct.pack("<HB", 1000, 50) * 32
        found.append(blocks + struct.pack("<IBB", packet, 0x37, 0x22))
    packets_recorded(file, found, False, 75)
    scans = benchmark("packets").velodyne_scans(file, "vlp16", tables / "VLP16.yaml")
    assert [len(scan) for scan in scans] == [900 * 32] * 2
    scan = scans[0]
    np.testing.assert_allclose(np.linalg.norm([scan[a] for a in "xyz"], axis=0), 2.0, rtol=1e-6)
    np.testing.assert_allclose(np.arcsin(scan["z"] / 2.0), np.radians(2.0 * scan["ring"] - 15.0), atol=1e-6)
    # The second of two firings a block, its last laser: 15 lasers of 2.304 us after 55.296 us, of 110.592 us a block.
    last = scan[(scan["column"] == 21) & (scan["ring"] == 15)]
    azimuth = -np.degrees(np.arctan2(last["y"], last["x"]))
    np.testing.assert_allclose(azimuth, 4.0 + 0.4 * (55.296 + 15 * 2.304) / 110.592, atol=1e-4)
    file = tmp_path / "vlp16-go" / "testdata" / "recording.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"".join(found))
    (recorded,) = benchmark("recordings").read_vlp16_go(tmp_path)
    np.testing.assert_array_equal(recorded.clouds["vlp16"][1], scans[1])
    file.write_bytes(b"".join(found)[:-1])
    with pytest.raises(InputError, match="recording.bin: is not one of packets of 1206 bytes"):
        list(benchmark("recordings").read_vlp16_go(tmp_path))


@pytest.mark.long
def test_scans_of_one_lidar_are_aligned_to_a_turn_that_is_known(benchmark, tmp_path, monkeypatch, capsys):
    simulator = EmbeddedSimulator(SimulationSetup(world="furnished_room", sensor="jt128_sparse", seed=3))
    recordings = benchmark("recordings")
    folder = tmp_path / recordings.PJLAB / recordings.PANDAR64["hall"]
    folder.mkdir(parents=True)
    for tick in range(2):
        scan = simulator.scan("left", tick)
        scan = scan[(scan["x"] != 0) & (scan["ring"] % 4 == 0)]
        (folder / f"{tick}.pcd").write_bytes(pcd(scan, "binary"))
    out, real_data = tmp_path / "out.json", benchmark("real_data")
    monkeypatch.setitem(real_data.SETS, "pandar64", lambda data: itertools.islice(recordings.read_pandar64(data), 1))
    monkeypatch.setattr(sys, "argv", ["", "--data", str(tmp_path), "--sets", "pandar64", "--json", str(out)])
    assert real_data.main() == 0
    found = json.loads(out.read_text())
    # One pair of scans, and columns of either one; near and far guesses; ours, one GICP and the published method.
    assert len(found) == 3 * 2 * 3
    for one in found:
        if one["method"] == "ours, sensor unknown":
            assert one["distance"] < 0.005 and np.degrees(one["angle"]) < 0.2, one
            assert 0.0 < one["nees"] < 20.0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("| hall, columns | 5 deg 20 cm |") for line in lines) == 3


def test_a_folder_without_recordings_and_sets_that_do_not_exist_are_named(benchmark, tmp_path):
    real_data = benchmark("real_data")
    with pytest.raises(InputError, match=r"holds no recording; nebula: .* clone tier4/nebula"):
        list(real_data.cases(tmp_path, None))
    with pytest.raises(InputError, match="--sets moon: no such set; there are: nebula, two_vlp16"):
        list(real_data.cases(tmp_path, ["moon"]))
    with pytest.raises(InputError, match="is not a folder"):
        list(real_data.cases(tmp_path / "none", None))


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


def test_options_that_nothing_reads_are_refused(benchmark, tmp_path, monkeypatch):
    faults = benchmark("faults")
    for options, said in (["--sets", "hall"], "--sets applies only to --data"), (
        ["--data", str(tmp_path), "--kinds", "dome"], "--kinds applies only to simulated recordings",
    ):  # fmt: skip
        monkeypatch.setattr(sys, "argv", ["faults.py", *options])
        with pytest.raises(InputError, match=said):
            faults.main()


@pytest.mark.long
def test_edited_recordings_are_judged(benchmark, monkeypatch, capsys):
    one = "--cases 1 --jobs 1 --edits mirrored --kinds dome"
    monkeypatch.setattr(sys, "argv", ["faults.py", *one.split()])
    assert benchmark("faults").main() == 0
    assert "| all | 0 | 0 | 0 | 1 | 0 |" in capsys.readouterr().out


def test_rings_are_numbered_from_the_lowest_one_up(benchmark):
    rings = benchmark("recordings").rings
    up = np.radians(np.linspace(-20.0, 20.0, 32))
    names = np.random.default_rng(2).permutation(64)[:32]
    cloud = np.zeros(64, FIELDS)
    cloud["x"], cloud["z"], cloud["ring"] = np.tile(np.cos(up), 2), np.tile(np.sin(up), 2), np.tile(names, 2)
    np.testing.assert_array_equal(rings(cloud), np.tile(np.arange(32), 2))
    assert rings(cloud[:31]) is None  # a ring less
