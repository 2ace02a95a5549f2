"""`stretch-sim-cal sensor RECORDING... --out DIR`: identifies the lidars' units, as the simulator can have them."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from stretch_sim_cal.calibration.identification import MIN_FRAMES, StationScans, identify
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.command import show, warn
from stretch_sim_cal.commands import recorded
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import make_folder
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.recording.clouds import scan_from_message
from stretch_sim_cal.recording.rosbag import Recording
from stretch_sim_cal.recording.topics import recorded_signatures, sensor_lines
from stretch_sim_cal.sensor.sensor import Sensor, for_each, sensors_called
from stretch_sim_cal.sensor.signature import sync_line

EXAMPLE = "stretch-sim-cal sensor facing_north facing_east --sensor jt128 --out units"
DEFAULT_SAMPLES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    recordings = "rosbag2 folders or files; the robot stands still in each, and is turned in place between them"
    add("recording", type=Path, nargs="+", help=recordings)
    add("--out", type=Path, required=True, metavar="DIR", help="folder for the lidars' unit files and report.html")
    kinds = "kinds of the lidars, separated by commas: names in config/, or files (default: those that fit)"
    add("--sensor", metavar="NAME", help=kinds)
    pairs = "pairs of scans per recording (default: %(default)s)"
    add("--num-samples", type=int, default=DEFAULT_SAMPLES, metavar="N", help=pairs)
    recorded.add_recording_arguments(parser, with_sensor=False)


def run(args: argparse.Namespace) -> int:
    """Identify, write unit files and report, and return 0. Raises `Refused` if the recordings do not support it."""
    from stretch_sim_cal.harness.sensor_report import found_lines, found_numbers, write_sensor_report

    if args.num_samples < MIN_FRAMES:
        raise InputError(f"--num-samples: is {args.num_samples}, at least {MIN_FRAMES} are needed")
    if args.out.exists() and not args.out.is_dir():
        raise InputError(f"{args.out}: is a file; --out is the folder for the unit files and the report")
    profile = recorded.with_defaults(args)
    if "right" not in recorded.topics_and_frames(args, profile)[0]:
        raise InputError(f"{args.left_topic}: is the only lidar; lidars are identified in pairs")
    candidates = given_sensors(args.sensor) if args.sensor else recorded.candidate_sensors(profile)
    pairs = {SIDES: args}
    for name, lidar in profile.lidars.items():
        if name not in SIDES:
            given = vars(args) | {"right_topic": lidar.topic, "right_frame": lidar.frame}
            pairs["left", name] = argparse.Namespace(**given)
    found = [_identified(own, names, candidates) for names, own in pairs.items()]
    make_folder(args.out)
    files, numbers, lines = [], {}, []
    for result, (_, sync) in found:
        # The left lidar's unit is that of the first pair.
        units = {args.out / f"unit_{name}.yaml": side for side, name in enumerate(result.names) if name not in numbers}
        for file, side in units.items():
            result.save(file, side)
        page = args.out / ("report.html" if result.names == SIDES else f"report_{result.names[1]}.html")
        write_sensor_report(page, result, sync, [path.name for path in args.recording])
        own = found_numbers(result) | {"sync": sync}
        numbers = own | numbers | ({f"sync with {result.names[1]}": sync} if numbers else {})
        lines += [*found_lines(result), sync, f"written: {', '.join(map(str, units))}; report: {page}"]
        files += [*units, page]
    show(args, numbers | {"files": list(map(str, files))}, lines, None)
    for _, (in_sync, sync) in found:
        if in_sync is False:
            warn(sync)
    return 0


def given_sensors(names: str) -> list[Sensor]:
    """Return the sensors that `--sensor` names. Raises `InputError` for "unknown", which identifies nothing."""
    kinds = for_each(sensors_called(names), names.count(",") + 1)
    if None in kinds:
        raise InputError(f"--sensor {names}: an unknown sensor has no table to identify a lidar by")
    return list({kind.name: kind for kind in kinds if kind is not None}.values())


def _identified(args: argparse.Namespace, names: tuple[str, str], candidates):
    """Return the identification of two lidars, whether they run in sync, and a sentence about that."""
    stations, guesses = zip(*(_station(path, args, names, candidates) for path in args.recording), strict=True)
    _agree(stations, args.recording, names)
    in_sync, sync = sync_line(*stations[0].signatures)
    print(f"identifying {'both lidars' if names == SIDES else f'the {names[1]} lidar'} ...", file=sys.stderr)
    try:
        result = identify(stations, next((guess for guess in guesses if guess is not None), None))
    except Refused as refusal:
        if names == SIDES:
            raise
        raise Refused(f"lidars left and, as right, {names[1]}: {refusal}") from refusal
    return replace(result, names=names), (in_sync, sync.replace("right", names[1]))


def _station(path: Path, args: argparse.Namespace, names: tuple[str, str], candidates):
    """Return a recording's scans for the identification, and the first guess of right_to_left."""
    topics = {"left": args.left_topic, "right": args.right_topic}
    with Recording(path) as recording:
        found = recorded_signatures(recording, topics, args.num_samples, candidates)
        for line in sensor_lines(dict(zip(names, found.values(), strict=True))):
            print(f"{path.name}: {line}", file=sys.stderr)
        for side, signature in zip(names, found.values(), strict=True):
            if isinstance(signature, InputError):
                raise InputError(f"{path}: {side} lidar: {signature}") from signature
            if signature.sensor is None:
                tables = ", ".join(f"{sensor.name} ({sensor.num_channels} channels)" for sensor in candidates)
                seen = f"its points have rings 0 to {signature.num_channels - 1}, whose elevations match none of"
                raise InputError(f"{path}: {side} lidar: {seen} {tables}; give the sensor's file with --sensor")
        source = recorded.open_source(args, recording)
        station = StationScans(
            (found["left"], found["right"]),
            AlignmentSettings(base_from_left=source.described["left"], **source.body),
        )
        for scans in source.sets(args.num_samples, f"reading {path.name}", scan_from_message):
            station.add(*scans.values())
        return station, source.tree.lookup(args.left_frame, args.right_frame)


def _agree(stations, paths: list[Path], names: tuple[str, str]) -> None:
    """Raise `InputError` if recordings are not of the same lidars behind the same driver."""
    settings = ("distance_correction", "firing_time_correction", "azimuth_steps")
    for station, path in zip(stations[1:], paths[1:], strict=True):
        for side, one, other in zip(names, stations[0].signatures, station.signatures, strict=True):
            for name, first, second in ((name, getattr(one, name), getattr(other, name)) for name in settings):
                if first != second:
                    differ = f"{side} lidar: {name} is {second}, in {paths[0]} it is {first}"
                    raise InputError(f"{path}: {differ}; give only recordings with the same driver settings")
