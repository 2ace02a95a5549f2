"""The checks of all stages: their limits, and the findings that they return; those of the floor and of the lidars on
the robot: floor/findings.py and mounts/findings.py.

A stage rejects its result for some findings, `refusals`, and reports the others, `warnings`. Nodes, `calibrate` and the
Python API report the same ones.

| question | checks |
|---|---|
| observed? | `unobserved` (observability.py), `overlap_refusals`, `narrow_overlap`, `little_support`, \
`check_support`, `mount_refusals` |
| residuals explained? | `large_residuals`, `wrong_minimum`, `leaning`, `dissenting`, `another_opinion`, \
`check_shape`, `check_disagreement`, `mount_warnings` |
| moved? | `movement`, `single_scan`, `disturbance`, `changed_scene`, `check_motion` |
| plausible against the description? | `model_findings`, `mirrored`, `in_other_axes`, `left_off`, `mount_refusals` |
| which prior is exceeded? | `unit_warnings`, `noisy_ranges`, `impossible_units`, `impossible_scan_motions`, \
`impossible_wander`, `differing_ranges`, `lateral_offsets`, `waves_of_directions`, `distorted` |
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from stretch_sim_cal.calibration.alignment.joint_estimate import Leaning
from stretch_sim_cal.calibration.alignment.second_opinion import SecondOpinion
from stretch_sim_cal.calibration.cloud_frames import BESIDE_AXIS, WRONG_ROTOR, beside_axis
from stretch_sim_cal.calibration.coarse import CREDIBLE_AGREE, CREDIBLE_CONTRADICT, SOMEBODY, credible
from stretch_sim_cal.calibration.consistency import Consistency
from stretch_sim_cal.calibration.finding import MORE_SURFACES, Finding, when
from stretch_sim_cal.calibration.motion import Motion
from stretch_sim_cal.calibration.room import RoomBlock
from stretch_sim_cal.calibration.settings import AlignmentSettings
from stretch_sim_cal.calibration.solver import BEYOND_PRIOR
from stretch_sim_cal.geometry.transforms import SIDES, error, inverse
from stretch_sim_cal.sensor.sensor import Sensor, Sensors, for_each
from stretch_sim_cal.sensor.unit import CHANNEL_KINDS, SCALARS, SCAN_MOTION

# Of the alignment.
MIN_PATCHES = 6
MIN_OVERLAP = 0.1
# The same of two lidars whose poses are described: nothing but what is near these is accepted (`narrow_overlap`).
DESCRIBED_OVERLAP = 0.05
# Below this the overlap may be one sector of a view; two lidars of a robot have 0.5 and more, two domes 0.11.
NARROW_OVERLAP = 0.2
# So many surfaces may be outliers: the others have to determine each direction.
OUTVOTED = 2
# Where people and things moved through up to a fifth of the view, 81 % or more of the points agreed to `CLOSELY` times
# the tolerance, 96 % of those that agreed to the tolerance (real recordings, lidar at rest); in other rooms, or in a
# wrong place, at most 76 % and 94 %, or 81 % where at most 28 % of the views overlap.
CLOSELY, CLOSE_AGREE, CLOSE_SHARE, CLOSE_OVERLAP = 0.2, 0.8, 0.95, 0.4
# Surfaces that disagree with the rest: in rooms in which somebody moved things a few do, of 1 to 2 %.
MIN_DISSENT, MAX_DISSENT = 4, 0.04
# Bounds (m, rad) of the robot's motion during the recording; both lidars move together, so a little does no harm.
MAX_MOTION = 0.003
MAX_MOTION_ROTATION = float(np.deg2rad(0.1))
# Of one lidar's motion against the other; less is in the covariance. With 16 channels errors of the patches' normals
# look like a motion of 1 mm or 0.03 deg, the same all over the view.
MAX_APART = 0.0015
MAX_APART_ROTATION = float(np.deg2rad(0.05))
# Of the share of the view through which something moves: dust and returns at random ranges change single cells, up to
# 40 % of them, of which 14 % are in a row by chance.
MAX_DISTURBED = 0.25
WARN_DISTURBED = 0.02
# Of the plane-to-plane residuals over the expected ones, if they also exceed MAX_GAP (m).
MAX_SCALE = 3.0
MAX_GAP = 0.002
# A result farther than this from the description's transform is reported: a swapped pair, or a wrong model. A real
# robot's published calibration is 43 mm and 0.6 deg off and right, so 5 cm would be too little; swapped, the Stretch's
# lidars are 24 cm and 116 deg off. A result so many times as far is of another robot.
MAX_MODEL_TRANSLATION, MAX_MODEL_ROTATION = 0.1, float(np.deg2rad(5.0))
ANOTHER_ROBOT = 3.0
# Lidars that stand nearly point-symmetrically are swapped if a result that is off by so much (m, rad) is so many times
# nearer to the inverse of the description's transform.
MAYBE_SWAPPED, NEARER = np.array([0.01, np.deg2rad(1.0)]), 5.0
# The same where hardly anything is seen by both lidars.
NARROW_TRANSLATION, NARROW_ROTATION = 0.025, float(np.deg2rad(3.5))

# Chi square of six values that chance exceeds in one of a hundred thousand robots that are as described.
BEYOND_CHANCE = 33.1

UNCORRECTED = {"optical_centre_share": "the optical centre", "firing_time_share": "the firing times"}
# Channels that differ by more times the sensor file's spread are of no unit that it describes.
BEYOND_SPREAD = 2.0
# Standard deviations of a sensor file that no unit of the kind is beyond.
IMPOSSIBLE = 10.0
# More range noise than so many times the sensor file's (m, at least) is not the lidar's: in rooms it is 1.1 times as
# large, among leaves 3 to 4 times, before walls with laths 10 times.
NOISY, LEAST_NOISE = 2.5, 0.004
# A lidar's motion in every scan is not by chance beyond so many standard deviations (of six values). In m and rad:
# those that are reported, and those that no lidar of a robot at rest seems to have against another one.
SCAN_MOTION_SURE = 5.5
SCAN_MOTION_SHOWN = np.array([0.001, np.deg2rad(0.02)])
SCAN_MOTION_IMPOSSIBLE = np.array([0.01, np.deg2rad(0.25)])
# Ranges that wander by more of the largest standard deviations that lidars have (norm of ten values). In rooms 0.2 at
# most, of real lidars up to 4.5 where it matters; where all lidars have it alike, it does not.
WANDER_IMPOSSIBLE = 2.0


def unit_warnings(numbers: Mapping[str, float], sensors: Sensors, names: Sequence[str] = SIDES) -> list[Finding]:
    """Return the lidars' errors, `numbers` by name and lidar as in a result's diagnostics, that are beyond their sensor
    files (whose priors were widened, `Solver`), and the corrections that their drivers omit."""
    findings = [] if sensors is None else _uncorrected(numbers, names)
    findings += [
        Finding(
            "scan_motion", f"{motion.sentence}: deskewed at rest, or rotor angles that grow too fast; the result "
            "allows for it", "record clouds that are not deskewed",
        )
        for motion in _scan_motions(numbers, names) if np.any(motion.sizes > SCAN_MOTION_SHOWN)
    ]  # fmt: skip
    findings += [
        Finding(
            "rounded_coordinates",
            f"the {name} lidar's coordinates are whole multiples of {1e3 * step:.3g} mm, rounded or cut; the result "
            "allows for both", "have its driver publish them as they are measured",
        ) for name in names if (step := numbers.get(f"coordinate_step_{name}"))
    ]  # fmt: skip
    of_each = for_each(sensors, len(names))
    unknown = [name for name, sensor in zip(names, of_each, strict=True) if sensor is None]
    findings += [
        Finding(
            "driver_uncorrected",
            f"the {name} lidar's rays begin {1e3 * distance:.1f} +- {1e3 * deviation:.1f} mm beside its spin axis: its "
            "driver does not correct the optical centre",
            "give the sensor (its table also has the offset along the axis), or enable the correction",
        ) for name, (distance, deviation) in beside_axis(numbers, unknown).items()
    ]  # fmt: skip
    for name, sensor in zip(names, of_each, strict=True):
        if sensor is None:
            continue
        beyond = [
            f"{scalar} of {error_in_units(scalar, value, deviation)} is {abs(value) / known:.1f}"
            for scalar, value, deviation, known in _beyond_prior(numbers, name, sensor)
        ]
        beyond += [
            f"channels differ in {kind} by {share:.1f}"
            for kind, share in _shares_of_spread(numbers, name, sensor) if share > BEYOND_SPREAD
        ]  # fmt: skip
        sentence = f"standard deviations of sensor file {sensor.name}; it was estimated without that limit"
        remedy = "give a unit file of this lidar, or the sensor file of its kind"
        findings += [Finding("beyond_sensor_file", f"the {name} lidar's {each} {sentence}", remedy) for each in beyond]
        if numbers.get(f"optical_centre_z_{name}_std", 0.0) > BEYOND_PRIOR * sensor.expected.optical_centre[2]:
            sentence = (
                f"the {name} lidar's optical centre is neither that of sensor file {sensor.name} nor that of a driver "
                "that does not correct it: along the spin axis it is unknown"
            )
            findings.append(Finding("beyond_sensor_file", sentence, remedy))
    return findings


def noisy_ranges(noise: np.ndarray, sensors: Sensors, names: Sequence[str]) -> list[Finding]:
    """Return a warning for each lidar whose range `noise` (n,), one standard deviation in m, is far above that of its
    sensor file: the means of cells with several surfaces depend on where a lidar stands."""
    remedy = "prefer surroundings without leaves, slats or fences; if there are none, have the lidar checked"
    return [
        Finding(
            "noisy_ranges",
            f"the {name} lidar's ranges scatter by {1e3 * sigma:.0f} mm, {sigma / sensor.range_noise:.0f} times the "
            f"noise of sensor file {sensor.name}: several surfaces in one direction; the true error may exceed the "
            "uncertainty", remedy,
        ) for name, sensor, sigma in zip(names, for_each(sensors, len(names)), noise, strict=True)
        if sensor is not None and sensor.range_noise > 0 and sigma > NOISY * max(sensor.range_noise, LEAST_NOISE)
    ]  # fmt: skip


def beyond_sensor_files(numbers: Mapping[str, float], sensors: Sensors, names: Sequence[str]) -> float:
    """Return how many times further off their sensor files than units are the errors of the lidars' azimuths
    (`BEYOND_PRIOR`) and the differences of their channels (`IMPOSSIBLE`), at least 1: higher harmonics, and what
    channels have in common, which the model lacks or holds to be small, may be as large."""
    excesses = [1.0]
    for name, sensor in zip(names, for_each(sensors, len(names)), strict=True):
        if sensor is not None:
            beyond = _beyond_prior(numbers, name, sensor)
            excesses += [abs(value) / (BEYOND_PRIOR * known) for azimuth, value, _, known in beyond
                         if azimuth.startswith("azimuth")]  # fmt: skip
            excesses += [share / IMPOSSIBLE for _, share in _shares_of_spread(numbers, name, sensor)]
    return max(excesses)


def _shares_of_spread(numbers: Mapping[str, float], name: str, sensor: Sensor) -> Iterator[tuple[str, float]]:
    """Yield by kind of errors the standard deviation of a lidar's channels over that of its sensor file."""
    for kind in CHANNEL_KINDS:
        if known := getattr(sensor.expected, kind):
            yield kind, numbers.get(f"{kind}_spread_{name}", 0.0) / known


Scalar = tuple[str, float, float, float]
"""An error of a lidar: name, value, standard deviation, and one standard deviation of the sensor file."""


def _beyond_prior(numbers: Mapping[str, float], name: str, sensor: Sensor) -> Iterator[Scalar]:
    for scalar, value, deviation, known in _scalars_of(numbers, name, sensor):
        # A less certain error may be the other lidar's.
        if abs(value) >= 2.0 * deviation and abs(value) > BEYOND_PRIOR * known:
            yield scalar, value, deviation, known


def _scalars_of(numbers: Mapping[str, float], name: str, sensor: Sensor) -> Iterator[Scalar]:
    for scalar, known in zip(SCALARS, sensor.error_model().scalar_deviations, strict=True):
        if scalar not in UNCORRECTED and known > 0 and f"{scalar}_{name}" in numbers:
            yield scalar, numbers[f"{scalar}_{name}"], numbers[f"{scalar}_{name}_std"], float(known)


class _ScanMotion(NamedTuple):
    """How the frame of a lidar's clouds seems to move in every scan: `motion` (6,) in m and rad, and how many standard
    deviations (of six values) it is."""

    name: str
    motion: np.ndarray
    sigmas: float

    @property
    def sizes(self) -> np.ndarray:
        """How far (2,) it moves and turns, m and rad; 0 if the data leaves that in doubt."""
        sizes = np.linalg.norm(self.motion.reshape(2, 3), axis=1)
        return sizes if self.sigmas > SCAN_MOTION_SURE else np.zeros(2)

    @property
    def sentence(self) -> str:
        return (
            f"the {self.name} lidar's clouds seem to move by {1e3 * self.sizes[0]:.1f} mm and "
            f"{np.degrees(self.sizes[1]):.3f} deg in every scan"
        )


def _scan_motions(numbers: Mapping[str, float], names: Sequence[str]) -> Iterator[_ScanMotion]:
    for name in names:
        keys = [f"{each}_{name}" for each in SCAN_MOTION]
        if all(key in numbers for key in keys):
            motion, deviations = (np.array([numbers[key + end] for key in keys]) for end in ("", "_std"))
            yield _ScanMotion(name, motion, float(np.linalg.norm(motion / np.maximum(deviations, 1e-9))))


def impossible_scan_motions(motions: np.ndarray, covariance: np.ndarray, names: Sequence[str]) -> list[Finding]:
    """Return which lidars' clouds seem to move otherwise in every scan than those of another one, by more than of a
    robot that stands; `motions` (n, 6) in m and rad with their joint `covariance` (6 n, 6 n). What all have in common
    may be of their kind, and cancels: the differences are far better known than each by itself."""

    def beside(other: int, own: int) -> _ScanMotion:
        change = np.kron(np.eye(len(names))[own] - np.eye(len(names))[other], np.eye(6))
        apart = change @ motions.ravel()
        information = np.linalg.pinv(change @ covariance @ change.T, rcond=1e-12, hermitian=True)
        return _ScanMotion(names[own], apart, float(np.sqrt(max(apart @ information @ apart, 0.0))))

    return [
        Finding(
            "impossible_scan_motion",
            f"{apart.sentence} against the {names[other]} lidar's, too much for a robot at rest: another fault may be "
            "the cause", "check both lidars' ranges and angles (glass or a cover in front of a sector), and record "
            "clouds of a robot at rest that are not deskewed",
        )
        for other, own in itertools.combinations(range(len(names)), 2)
        if np.any((apart := beside(other, own)).sizes > SCAN_MOTION_IMPOSSIBLE)
    ]  # fmt: skip


def impossible_wander(values: Sequence[np.ndarray], roots: Sequence[np.ndarray], names: Sequence[str]) -> list[Finding]:
    """Return the lidars whose ranges vary over azimuth as of no lidar at rest: `values` (k,) in m of each one's
    harmonics, whose largest standard deviations are the `roots` (k,)."""
    return [
        Finding(
            "impossible_wander",
            f"the {name} lidar's ranges vary over azimuth by {1e3 * np.linalg.norm(own):.1f} mm "
            f"({1e3 * np.linalg.norm(root):.1f} mm would be much): another fault may be the cause, and the result "
            "depends on it",
            "check for glass or a cover in front of it, and for a wall or curtain that moved between the lidars' scans",
        )
        for name, own, root in zip(names, values, roots, strict=True)
        if np.linalg.norm(own / root) > WANDER_IMPOSSIBLE
    ]  # fmt: skip


def impossible_units(
    numbers: Mapping[str, float], sensors: Sensors | None, names: Sequence[str], fits: bool
) -> dict[tuple[int, str], Finding]:
    """Return the lidars' errors, `numbers` as of `unit_warnings`, that no lidar of their kind has, by the lidar's
    number and the error's name: each by itself beyond doubt, or, unless the model `fits`, all together. Scales of
    ranges are left out: the solver has hypotheses of them (`Solver`)."""
    findings, (margin, order, least) = {}, (3.0, np.inf, IMPOSSIBLE) if fits else (1.0, 2, BEYOND_PRIOR)
    for lidar, (name, sensor) in enumerate(zip(names, for_each(sensors, len(names)), strict=True)):
        beyond = {
            scalar: (max(abs(value) - margin * deviation, 0.0) / known, value, deviation, known)
            for scalar, value, deviation, known in ([] if sensor is None else _scalars_of(numbers, name, sensor))
            if not scalar.startswith(("range_scale", "optical_centre"))
        }
        if not beyond or np.linalg.norm([times for times, *_ in beyond.values()], order) <= IMPOSSIBLE:
            continue
        findings |= {
            (lidar, scalar): Finding(
                "impossible_unit",
                f"the {name} lidar's {scalar} of {error_in_units(scalar, value, deviation)} is "
                f"{abs(value) / known:.0f} standard deviations of sensor file {sensor.name}: another fault must be the "
                "cause",
                "check both lidars' ranges and angles (glass or a cover in front of a sector, a driver that "
                "corrects its clouds), or give the right sensor",
            )
            for scalar, (times, value, deviation, known) in beyond.items() if times > least
        }  # fmt: skip
    return findings


def _uncorrected(numbers: Mapping[str, float], names: Sequence[str]) -> list[Finding]:
    """Return the corrections that drivers omit: one finding for all lidars if they are the same."""
    omitted = {}
    for name in names:
        keys = {f"{scalar}_{name}": correction for scalar, correction in UNCORRECTED.items()}
        sure = (key in numbers and numbers[key] - 3.0 * numbers[f"{key}_std"] > 0.5 for key in keys)
        omitted[name] = " and ".join(itertools.compress(keys.values(), sure))
    drivers = {f"the {name} lidar's driver does": corrections for name, corrections in omitted.items()}
    if len(set(omitted.values())) == 1:
        count = "both" if len(names) == len(SIDES) else "all"
        drivers = {f"the drivers of {count} lidars do": omitted[names[0]]}
    remedy = "this calibration is valid for such clouds only: enable the correction and calibrate again"
    return [
        Finding("driver_uncorrected", f"{driver} not correct {corrections}", remedy)
        for driver, corrections in drivers.items() if corrections
    ]  # fmt: skip


def differing_ranges(difference: float, deviation: float, allowed: float) -> list[Finding]:
    """Check the relative difference of two lidars' ranges against one standard deviation that sensor files allow."""
    return when(
        bool(allowed) and not abs(difference) - 3.0 * deviation < BEYOND_PRIOR * allowed,
        "differing_ranges",
        f"the ranges of the two lidars differ by {100.0 * abs(difference):.2f} +- {100.0 * deviation:.2f} %, more "
        "than their sensor files allow; the data does not show which lidar is wrong",
        "check both lidars for range errors, in all directions or in a sector (glass, a cover)",
    )


def lateral_offsets(difference: float, deviation: float) -> list[Finding]:
    """Check the difference (m) between the distances at which the beams of two lidars pass their spin axes."""
    return when(
        abs(difference) - 3.0 * deviation > BESIDE_AXIS,
        "lateral_offset",
        f"the lateral offsets of the two lidars' beams differ by {1e3 * abs(difference):.1f} +- "
        f"{1e3 * deviation:.1f} mm, which their sensor files do not have; the result allows for it",
        "enable the correction of the lidar's model in its driver, or give the right sensor",
    )


def waves_of_directions(sizes: Mapping[str, float]) -> list[Finding]:
    """Return a finding of the lidars whose directions err in waves over a turn, root mean square (rad) by name."""
    shown = " and ".join(f"{name} by {np.degrees(size):.3f} deg" for name, size in sizes.items())
    return when(
        bool(sizes),
        "direction_waves",
        f"the directions of rays err in waves over a turn ({shown}, rms): a spin axis that wobbles, a rotor that cogs, "
        "or a window that bends rays; the result allows for it, and its rotation is as uncertain",
        "check the lidars' bearings and windows",
    )


def distorted(angles: Mapping[str, tuple[float, float]]) -> list[Finding]:
    """Check the rotor angles of `wrong_rotor_angles`: larger errors than an encoder's have more than two harmonics."""
    remedy = "check whether the driver distorts its clouds (motion compensation at rest?)"
    sentence = "the {} lidar's azimuths are off by up to {:.2f} deg, too much for an encoder error"
    return [
        Finding("distorted_clouds", sentence.format(name, np.degrees(angle)), remedy)
        for name, (angle, deviation) in angles.items() if angle - 3.0 * deviation > WRONG_ROTOR
    ]  # fmt: skip


def error_in_units(name: str, value: float, deviation: float) -> str:
    """Return an error of a lidar with its standard deviation, in mm, deg or as a ratio."""
    if name.startswith("azimuth"):
        return f"{np.degrees(value):.4f} +- {np.degrees(deviation):.4f} deg"
    if name == "range_scale" or name.endswith("_share"):
        return f"{value:.5f} +- {deviation:.5f}"
    return f"{1e3 * value:.2f} +- {1e3 * deviation:.2f} mm"


def overlap_refusals(views: Consistency, used: float, described: bool = False) -> list[Finding]:
    """Check that two views, of lidars whose poses are `described` or not, have enough in common, of which `used` flat
    patches."""
    least = DESCRIBED_OVERLAP if described else MIN_OVERLAP
    return when(
        not (used >= MIN_PATCHES and views.overlap >= least),
        "little_overlap",
        f"the two lidars see too little in common: {used:.0f} flat patches (at least {MIN_PATCHES} are needed), "
        f"{100.0 * views.overlap:.0f} % overlap (at least {100.0 * least:.0f} %)",
        "stow the arm and move the robot to where both lidars see the same surfaces",
    )


def narrow_overlap(
    overlap: float, initial: np.ndarray | None, estimate: np.ndarray, beyond: bool = False
) -> tuple[list[Finding], list[Finding]]:
    """Check whether the `overlap` of two views is so small that all of it may have one lidar's error: refusals, if a
    lidar has errors `beyond` its sensor file, or if the `estimate` is so far from the description's transform
    `initial`, both (4, 4), that this is likelier than a mount that is off by as much, and warnings."""
    if overlap >= NARROW_OVERLAP:
        return [], []
    sentence = (
        f"only {100.0 * overlap:.0f} % of the two views overlap: a lidar's error there, beyond its sensor file, cannot "
        "be distinguished from its pose"
    )
    if beyond:
        remedy = "calibrate by driving, or give a unit file of the lidar, or the sensor file of its kind"
        return [Finding("narrow_overlap", f"{sentence}, and one of them has such an error", remedy)], []
    distance, angle = (0.0, 0.0) if initial is None else error(initial, estimate)
    if distance <= NARROW_TRANSLATION and angle <= NARROW_ROTATION:
        remedy = "compare with a calibration by driving, or from several standing places"
        return [], [Finding("narrow_overlap", sentence, remedy)]
    off = f"{1000.0 * distance:.0f} mm and {np.rad2deg(angle):.1f} deg from the description's transform"
    remedy = "calibrate by driving, or correct the description if the lidar is mounted there"
    return [Finding("narrow_overlap", f"{sentence}, and the result is {off}", remedy)], []


def little_support(
    blocks: Sequence[RoomBlock], covariance: np.ndarray, settings: AlignmentSettings, lidar: int = 1
) -> list[Finding]:
    """Return the base axes along or about which too few surfaces determine a lidar's pose to reject an outlier: the
    `OUTVOTED` most informative ones, or all at the place of one person, have most of the information, and without them
    the standard deviation would exceed its bound. `covariance` is that of all lidars but the first."""
    to_base = np.eye(3) if settings.base_from_left is None else settings.base_from_left[:3, :3]
    frame = "lidar" if settings.base_from_left is None else "base"
    findings = []
    for verb, part, bound in (
        ("sliding along", slice(0, 3), settings.max_std_translation),
        ("turning about", slice(3, 6), settings.max_std_rotation),
    ):
        for axis in range(3):
            direction = np.zeros(len(covariance))
            direction[6 * lidar - 6 :][part] = to_base[axis]
            moved = covariance @ direction
            lost, total, squares = 0.0, 0.0, 0.0
            for block in blocks:
                of_few, of_all, of_squares = block.support(moved, OUTVOTED)
                lost, total, squares = max(lost, of_few), total + of_all, squares + of_squares
            left = 1.0 - lost / max(total, 1e-300)
            if left <= 1e-9 or (left < 0.5 and direction @ moved > left * bound**2):
                number = total**2 / max(squares, 1e-300)
                sentence = f"only {number:.0f} small surfaces determine {verb} {frame} {'xyz'[axis]}"
                findings.append(Finding("little_support", sentence, MORE_SURFACES))
    return findings


COARSE_ONLY = Finding(
    "coarse_only",
    "the few small flat surfaces that both lidars see contradict the views as a whole; the result is the "
    "registration of all common points",
    "turn the robot or move it closer to walls, and take more frames",
)


def wrong_minimum(views: Consistency, near: bool = False, closely: Consistency | None = None) -> list[Finding]:
    """Check that two views agree, unless they hardly overlap; `near`: the transform is near the description's, or not
    far from it, then `closely` says how well they agree with `CLOSELY` times the tolerance."""
    least = DESCRIBED_OVERLAP if near else MIN_OVERLAP
    hardly_meet = views.overlap < least and views.contradict <= CREDIBLE_CONTRADICT
    contradict = SOMEBODY if near else CREDIBLE_CONTRADICT
    return when(
        not credible(views, near) and not hardly_meet and not _scene_changed(views, closely), "contradicting_views",
        f"the two views do not fit together: {int(100.0 * views.agree)} % of the points visible to both agree "
        f"(at least {100.0 * CREDIBLE_AGREE:.0f} %), {100.0 * views.contradict:.1f} % are in space that the other "
        f"lidar saw as free (at most {100.0 * contradict:.0f} %)",
        "check the description's poses, which lidar is left, and that nothing moved",
    )  # fmt: skip


def _scene_changed(views: Consistency, closely: Consistency | None) -> bool:
    """Return whether two views agree so closely where they do, and in so much, that something moved elsewhere: under a
    wrong transform surfaces are near each other, but not that near."""
    if closely is None or views.overlap < CLOSE_OVERLAP:
        return False
    return closely.agree >= max(CLOSE_AGREE, CLOSE_SHARE * views.agree)


def changed_scene(views: Consistency) -> list[Finding]:
    """Return a warning if more of two views contradicts than the right transform of a still scene leaves."""
    share = f"{100.0 * views.contradict:.0f} % of the points are in space that the other lidar saw as free"
    sentence = f"something moved between the lidars' scans: {share}; what does not fit was left out"
    return when(views.contradict > CREDIBLE_CONTRADICT, "changed_scene", sentence, "repeat when nothing moves")


def movement(motion: Motion, disturbed: float, used: float) -> list[Finding]:
    """Check that robot, lidars and scene did not move; with too few patches `used`, motion is not observable, nor is a
    large one of surfaces that are seen only before or only after it. A robot that moved sees another view."""
    enough = used >= 2 * MIN_PATCHES
    moved = enough and (motion.translation > MAX_MOTION or motion.rotation > MAX_MOTION_ROTATION)
    apart = enough and (motion.apart > MAX_APART or motion.apart_rotation > MAX_APART_ROTATION)
    meanwhile = "while the frames were taken"
    by = f"{1000.0 * motion.translation:.0f} mm and {np.rad2deg(motion.rotation):.2f} deg"
    by_apart = f"{1000.0 * motion.apart:.1f} mm and {np.rad2deg(motion.apart_rotation):.3f} deg"
    changed = f"the robot moved, or much around it: {100.0 * disturbed:.0f} % of the view changed {meanwhile}"
    return [
        *when(moved, "moved", f"the robot moved by {by} {meanwhile}", "keep it still and repeat"),
        *when(
            apart, "lidar_moved", f"one lidar moved against the other by {by_apart} {meanwhile}",
            "tighten its mount, and repeat",
        ),
        *when(
            disturbed > MAX_DISTURBED and not moved, "moving_scene", changed,
            "keep it still, and repeat when nothing moves",
        ),
    ]  # fmt: skip


def single_scan(frames: int, places: int) -> list[Finding]:
    """Return a warning if all `frames` are the only ones of their places: scans taken at different times of a robot
    that drives, or in traffic, fit together as well as those of a still one."""
    sentence = "one scan of each lidar does not show whether the robot or its surroundings moved"
    return when(frames <= places, "single_scan", sentence, "give two or more scans")


def dissenting(block: RoomBlock, lidar: int = 1) -> list[Finding]:
    """Check the surfaces that a lidar and another one see and that were rejected as outliers: if they have a large
    share of the information in one direction, they may be the right ones."""
    shares, count = block.dissent(lidar)
    if count < MIN_DISSENT or shares.max() < MAX_DISSENT:
        return []
    gaps = np.abs(block.gaps.values[block.weights == 0])
    sentence = (
        f"{count:.0f} surfaces that both lidars see remain {1000.0 * np.median(gaps):.0f} mm apart (median): "
        f"{100.0 * shares.max():.0f} % of the information in one direction (at most {100.0 * MAX_DISSENT:.0f} %)"
    )
    remedy = "check that nothing moved between the lidars' scans, and that no lidar looks through glass or a cover"
    return [Finding("dissenting_surfaces", sentence, remedy)]


def leaning(surfaces: Sequence[Leaning], names: Sequence[str] = SIDES) -> list[Finding]:
    """Return a finding of the surface without which the lidars' poses differ most, by more than chance."""
    if not surfaces:
        return []
    most = max(surfaces, key=lambda each: np.linalg.norm(each.change))
    by = np.linalg.norm(most.change.reshape(-1, 2, 3), axis=2).max(axis=0)
    distance = np.linalg.norm(most.foot)
    way = ", ".join(f"{share + 0.0:.1f}" for share in np.round(most.foot / max(distance, 1e-9), 1))
    return [
        Finding(
            "one_surface",
            f"the flat surface {distance:.1f} m from the {names[0]} lidar in direction ({way}) contradicts the rest: "
            f"without it the result differs by {1e3 * by[0]:.1f} mm and {np.degrees(by[1]):.3f} deg, which the "
            "uncertainty includes",
            "check that it stood still, and that no lidar sees it through glass or a curtain, or in a mirror",
        )
    ]  # fmt: skip


def another_opinion(opinion: SecondOpinion, covariance: np.ndarray) -> list[Finding]:
    """Check whether the registration of all cells differs from the estimate by more than both uncertainties allow."""
    distance, angle = np.linalg.norm(opinion.twist[:3]), np.linalg.norm(opinion.twist[3:])
    return when(
        not opinion.chi_square(covariance) <= BEYOND_CHANCE,
        "second_opinion",
        f"two estimates differ by {1000.0 * distance:.1f} mm and {np.degrees(angle):.3f} deg, more than their "
        "uncertainties allow: by the flat surfaces, and by registration of all common points",
        "check both lidars' clouds (range scale, angles, a cover), or move the robot to where surfaces "
        "face more directions",
    )


def large_residuals(scale: float, rmse: float) -> list[Finding]:
    """Check the plane-to-plane residuals, `rmse` (m), which are `scale` times as large as noise explains."""
    return when(
        not (scale <= MAX_SCALE or rmse <= MAX_GAP),
        "large_residuals",
        f"plane-to-plane residuals of {1000.0 * rmse:.1f} mm are {scale:.1f} times as large as noise explains: a "
        "range bias between the lidars, or something moved",
        "give the sensor that recorded the clouds; keep the scene still",
    )


def disturbance(disturbed: float) -> list[Finding]:
    """Return a warning if something moved through so little of the view that it was left out."""
    sentence = f"something moved through {100.0 * disturbed:.0f} % of the view; it was ignored"
    return when(WARN_DISTURBED < disturbed <= MAX_DISTURBED, "moving_scene", sentence)


def mirrored(sides: Sequence[str]) -> list[Finding]:
    """Return that the clouds of the lidars on `sides` are mirrored."""
    whose = f"the {sides[0]} lidar's clouds are" if len(sides) == 1 else "the clouds of both lidars are"
    sentence = f"{whose} mirrored: with y reversed, or x and y exchanged, the views fit the description"
    return when(bool(sides), "mirrored", sentence, "correct the driver or the converter that wrote them")


def in_other_axes(lidars: Sequence[str], change: tuple[str, int] | None) -> list[Finding]:
    """Return that the clouds of these lidars fit the description once they are turned, by axis and degrees, or, without
    a `change`, taken for clouds in base_link."""
    whose = f"the {lidars[0]} lidar's clouds" if len(lidars) == 1 else f"the clouds of lidars {' and '.join(lidars)}"
    if change is None:
        return [Finding(
            "clouds_in_base_frame",
            f"{whose} are already in the base frame: taken as such, the views fit the description",
            "use the driver's own clouds, in the lidar's frame, or let the driver not transform them",
        )]  # fmt: skip
    axis, degrees = change
    return [Finding(
        "turned_clouds",
        f"{whose} fit the description once they are turned by {degrees} deg about {axis}: the driver has other axes "
        "(such as x right, y forward), or the description has the lidar turned (such as upside down)",
        "correct the lidar's orientation in the description, or the driver's frame",
    )]  # fmt: skip


def model_findings(
    initial: np.ndarray | None, estimate: np.ndarray, lidars: Sequence[str]
) -> tuple[list[Finding], list[Finding]]:
    """Compare `estimate` with the description's transform `initial`, both (4, 4), and, of two `lidars` by name, with
    its inverse: refusals (of another robot) and warnings (the description may be off by a few centimetres)."""
    if initial is None:
        return [], []
    off, swapped = np.array(error(initial, estimate)), np.array(error(inverse(initial), estimate))
    (distance, angle), two, both = off, len(lidars) > 1, " and ".join(lidars)
    nearer = max(off / MAYBE_SWAPPED) > max(1.0, NEARER * max(swapped / MAYBE_SWAPPED))
    if np.all(off <= [MAX_MODEL_TRANSLATION, MAX_MODEL_ROTATION]) and not (two and nearer):
        return [], []
    sentence = f"far from the description's transform: {1000.0 * distance:.0f} mm and {np.rad2deg(angle):.1f} deg"
    if two and (nearer or (swapped[1] < angle and swapped[0] < MAX_MODEL_TRANSLATION)):
        sentence = f"{sentence}; near its inverse, as if {both} were swapped"
        return [Finding("swapped", sentence, f"exchange {both}")], []
    remedy = f"check the model, the mounts and whether {both} are swapped" if two else "check the model and the mounts"
    far = [Finding("far_from_description", sentence, remedy)]
    another_robot = max(distance / MAX_MODEL_TRANSLATION, angle / MAX_MODEL_ROTATION) > ANOTHER_ROBOT
    return (far, []) if another_robot else ([], far)
