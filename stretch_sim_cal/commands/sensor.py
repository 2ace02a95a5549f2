"""`stretch-sim-cal sensor RECORDING... --out DIR`: identifies the lidars' units, as the simulator can have them;
`sensor --sensor FILE`: checks a sensor or unit file and prints its content."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.identification import MIN_FRAMES, StationScans, identify
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.command import listed, only_with, show, table_lines, warn
from stretch_sim_cal.commands import recorded
from stretch_sim_cal.errors import InputError, Refused
from stretch_sim_cal.files import make_folder
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.recording.clouds import scan_from_message
from stretch_sim_cal.recording.rosbag import Recording
from stretch_sim_cal.recording.topics import recorded_signatures, sensor_lines
from stretch_sim_cal.sensor.sensor import CORRECTIONS, Sensor, for_each, sensors_called
from stretch_sim_cal.sensor.signature import sync_line
from stretch_sim_cal.sensor.unit import CHANNEL_KINDS, UnitSpread
from stretch_sim_cal.sensor.unit_file import KEY_OF_SCALAR, shown_unit

EXAMPLE = "stretch-sim-cal sensor facing_north facing_east --sensor jt128 --out units"
DEFAULT_SAMPLES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    recordings = "rosbag2 folders or files; the robot stands still in each, and is turned in place between them"
    add("recording", type=Path, nargs="*", help=recordings)
    add("--out", type=Path, metavar="DIR", help="folder for the lidars' unit files and report.html")
    kinds = "kinds of the lidars, separated by commas: names in config/, or files (default: those that fit)"
    add("--sensor", metavar="NAME", help=f"{kinds}; without recordings, their files are checked and printed")
    pairs = "pairs of scans per recording (default: %(default)s)"
    add("--num-samples", type=int, default=DEFAULT_SAMPLES, metavar="N", help=pairs)
    recorded.add_recording_arguments(parser, with_sensor=False)


def run(args: argparse.Namespace) -> int:
    """Identify, write unit files and report, and return 0. Raises `Refused` if the recordings do not support it."""
    from stretch_sim_cal.harness.sensor_report import found_lines, found_numbers, write_sensor_report

    if not args.recording and args.sensor:
        only_with(args, sorted(args.given - {"sensor", "json", "command"}), "recordings")
        contents = {sensor.name: content(sensor) for sensor in given_sensors(args.sensor)}
        rows = [[(name, ""), *((f"  {key}", said) for key, said in own.items())] for name, own in contents.items()]
        show(args, contents, [line for each in rows for line in table_lines(each)])
        return 0
    if not args.recording or args.out is None:
        raise InputError("give recordings and --out; or --sensor alone, to check a file")
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


def content(sensor: Sensor) -> dict[str, str]:
    """Return the content of a sensor or unit file in words."""
    count, (first, last) = sensor.num_channels, np.degrees(sensor.elevations[[0, -1]])
    firings = f"{sensor.azimuth_steps} firings, {'clockwise' if sensor.clockwise else 'counter-clockwise'}"
    corrected = [name for name in CORRECTIONS if getattr(sensor.driver, name)]
    of_class = ", those of the class" if sensor.unsaid is not None and sensor.spread == UnitSpread() else ""
    rows = {
        "kind": sensor.kind,
        "channels": f"{count}: ring 0 at {first:.3f} deg, ring {count - 1} at {last:.3f} deg",
        "scans": f"{sensor.rate:g} a second of {firings}: {sensor.num_rays} rays",
        "ranges": f"{sensor.range_min:g} to {sensor.range_max:g} m, noise {1e3 * sensor.range_noise:g} mm",
        "optical centre": f"{listed(1e3 * sensor.optical_centre, 1)} mm",
        "driver": ", ".join(corrected) or "corrects nothing",
        "expected errors": _errors(sensor, np.sqrt(np.diag(sensor.error_model().prior_covariance()))) + of_class,
    }
    return rows if sensor.unit is None else rows | {"errors": _errors(sensor, sensor.unit.values)}


def _errors(sensor: Sensor, values: np.ndarray) -> str:
    """Return errors (n,) of a unit or their standard deviations, those that are not 0; of channels the rms."""
    found: dict[str, list[float]] = {}
    for key, index in KEY_OF_SCALAR.items():
        found.setdefault(key.partition("[")[0].removesuffix("_deg"), []).append(values[index])
    for kind in CHANNEL_KINDS:
        found[kind] = [np.sqrt(np.mean(values[sensor.error_model().of_kind(kind)] ** 2))]
    parts = []
    for key, own in found.items():
        if any(own):
            unit, size = shown_unit(key)
            parts.append(" ".join([key, *(f"{size * one:.3g}" for one in own), unit]).rstrip())
    return ", ".join(parts) or "none"


def given_sensors(names: str) -> list[Sensor]:
    """Return the sensors that `--sensor` names. Raises `InputError` for "unknown", which identifies nothing, and for
    two files of one name."""
    kinds = for_each(sensors_called(names), names.count(",") + 1)
    if None in kinds:
        raise InputError(f"--sensor {names}: an unknown sensor has no table to identify a lidar by")
    every = list({id(kind): kind for kind in kinds if kind is not None}.values())
    if len({kind.name for kind in every}) < len(every):
        raise InputError(f"--sensor {names}: two files have one name; rename one")
    return every


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
