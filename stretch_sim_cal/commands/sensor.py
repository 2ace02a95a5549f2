"""`stretch-sim-cal sensor RECORDING... --out DIR`: identifies the units of both lidars, as
the simulator can have them."""

import argparse
import json
import sys
from pathlib import Path

from stretch_sim_cal.calibration.identification import MIN_FRAMES, Standing, identify
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.command import warn
from stretch_sim_cal.commands.calibrate import add_recording_arguments, open_source, with_defaults
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import SIDES
from stretch_sim_cal.recording.clouds import scan_from_message
from stretch_sim_cal.recording.rosbag import Recording
from stretch_sim_cal.recording.topics import recorded_signatures, sensor_lines
from stretch_sim_cal.sensor.sensor import load_sensor
from stretch_sim_cal.sensor.signature import known_sensors, sync_line

EXAMPLE = "stretch-sim-cal sensor facing_north facing_east --sensor jt128 --out units"
DEFAULT_SAMPLES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "recording", type=Path, nargs="+",
        help="rosbag2 folders or files; the robot stands still in each, and is turned in place between them",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder for unit_left.yaml, unit_right.yaml, report.html"
    )
    parser.add_argument(
        "--sensor", metavar="NAME", help="kind of lidar, a name in config/ or a file (default: that which fits)"
    )
    parser.add_argument(
        "--num-samples", type=int, default=DEFAULT_SAMPLES, help="pairs of scans per recording (default: %(default)s)"
    )
    add_recording_arguments(parser, with_sensor=False)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def run(args: argparse.Namespace) -> int:
    """Identify, write unit files and report, and return 0. Raises `Refused` (exit code 1) if the recordings do not
    support it; nothing is written then."""
    from stretch_sim_cal.harness.sensor_report import found_lines, found_numbers, write_sensor_report

    if args.num_samples < MIN_FRAMES:
        raise InputError(f"--num-samples: is {args.num_samples}, at least {MIN_FRAMES} are needed")
    if args.out.exists() and not args.out.is_dir():
        raise InputError(f"{args.out}: is a file, --out is the folder for two unit files and a report")
    with_defaults(args).need_two("sensor")
    candidates = [load_sensor(args.sensor)] if args.sensor else known_sensors()
    standings, initial = [], None
    for path in args.recording:
        standing, guess = _standing(path, args, candidates)
        standings.append(standing)
        initial = guess if initial is None else initial
    _agree(standings, args.recording)
    signatures = standings[0].signatures
    in_sync, sync = sync_line(*signatures)
    print("identifying both lidars ...", file=sys.stderr)
    result = identify(standings, initial)
    args.out.mkdir(parents=True, exist_ok=True)
    files = [args.out / f"unit_{device}.yaml" for device in SIDES]
    for side, file in enumerate(files):
        result.save(file, side)
    page = write_sensor_report(args.out / "report.html", result, sync, [path.name for path in args.recording])
    if args.json:
        print(json.dumps(found_numbers(result) | {"sync": sync, "files": [*map(str, files), str(page)]}))
    else:
        print("\n".join([*found_lines(result), sync, f"written: {', '.join(map(str, files))}; report: {page}"]))
    if in_sync is False:
        warn(sync)
    return 0


def _standing(path: Path, args: argparse.Namespace, candidates):
    """Return a recording's scans for the identification, and the first guess of right_to_left."""
    topics = {"left": args.left_topic, "right": args.right_topic}
    with Recording(path) as recording:
        found = recorded_signatures(recording, topics, args.num_samples, candidates)
        for line in sensor_lines(found):
            print(f"{path.name}: {line}", file=sys.stderr)
        for side, signature in found.items():
            if isinstance(signature, InputError):
                raise InputError(f"{path}: {side} lidar: {signature}") from signature
            if signature.sensor is None:
                tables = ", ".join(f"{sensor.name} ({sensor.num_channels} channels)" for sensor in candidates)
                raise InputError(
                    f"{path}: {side} lidar: its points have rings 0 to {signature.num_channels - 1}, whose elevations "
                    f"fit none of {tables}; give the sensor's file with --sensor"
                )
        source = open_source(args, recording)
        standing = Standing(
            (found["left"], found["right"]), AlignmentSettings(base_from_left=source.frames.base_from_left)
        )
        for left, right in source.pairs(args.num_samples, f"reading {path.name}", scan_from_message):
            standing.add(left, right)
        return standing, source.frames.right_to_left


def _agree(standings, paths: list[Path]) -> None:
    """Raise `InputError` if recordings are not of the same lidars behind the same driver."""
    for standing, path in zip(standings[1:], paths[1:], strict=True):
        for side, (one, other) in zip(
            SIDES, zip(standings[0].signatures, standing.signatures, strict=True), strict=False
        ):
            for name in ("distance_correction", "firing_time_correction", "azimuth_steps"):
                if getattr(one, name) != getattr(other, name):
                    raise InputError(
                        f"{path}: {side} lidar: {name} is {getattr(other, name)}, in {paths[0]} it is "
                        f"{getattr(one, name)}; give recordings of one driver's settings together"
                    )
