"""Results of alignment and floor with chosen values, and a box's returns, for tests of what is done with them."""

from types import SimpleNamespace

import numpy as np

from stretch_sim_cal import files
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.mounts.file import CONVENTION, MOUNTS, with_uncertain_left
from stretch_sim_cal.calibration.values_file import JOINTS, JointOrigin
from stretch_sim_cal.calibration.wheel_odometry import Wheels
from stretch_sim_cal.geometry.planes import Plane, footprint_from_base, incremented
from stretch_sim_cal.geometry.transforms import exp, from_xyz_rpy, inverse

TURNED = exp([0.1, 0.2, -0.1, 0.3, 0.2, 0.1])


def box_returns(seed: int, count: int, power: int = 1) -> np.ndarray:
    """Return points (N, 3) on the inside of a box; a larger odd power puts more of them near the middles."""
    random, size = np.random.default_rng(seed), np.array([3.0, 2.0, 1.2])
    points = random.uniform(-1.0, 1.0, (count, 3)) ** power * size
    axis = random.integers(0, 3, count)
    points[np.arange(count), axis] = random.choice([-1.0, 1.0], count) * size[axis]
    return points


def alignment_result(right_to_left=TURNED, variance=1e-8, refusals=(), covariance=None):
    covariance = np.eye(6) * variance if covariance is None else covariance
    return SimpleNamespace(
        right_to_left=right_to_left, covariance=covariance, rmse=0.0101, num_frames=20, method="planes",
        refusals=list(refusals),
    )  # fmt: skip


def floor_result(height=0.031, tilt=(0.01, -0.02), refusals=(), plane=None):
    plane = Plane.from_coefficients([tilt[0], tilt[1], 1.0], height) if plane is None else plane
    return SimpleNamespace(
        plane=plane, footprint_from_base=footprint_from_base(plane), covariance=np.eye(3) * 1e-9, rmse=0.007,
        num_frames=10, method="support", refusals=list(refusals),
    )  # fmt: skip


def save(file, path):
    """Write a calibration file in place of the one at `path`, and return the backup of that."""
    return CalibrationFile.update(path, lambda _: file)


def true_calibration(truth, mast=None):
    """Return the calibration file that a simulated robot's truth would give, its mast's lidar at a pose (4, 4)."""
    file = CalibrationFile().with_alignment(alignment_result(truth.to_left["right"]), "stretch-test")
    file = file.with_floor(floor_result(plane=truth.floor), "stretch-test")
    return file if mast is None else file.with_further("mast", alignment_result(mast), np.zeros((6, 6)), "stretch-test")


LEFT, RIGHT = from_xyz_rpy((0.1, 0.2, 1.3), (0.3, 0.4, 0.5)), from_xyz_rpy((0.1, -0.2, 1.3), (-0.3, 0.4, -0.5))
FLOOR = Plane.from_coefficients(np.array([0.003, -0.004, 1.0]), 0.1)
ODOMETRY = dict.fromkeys(("scale_x", "scale_x_std", "scale_y", "scale_y_std", "turn", "turn_std"), 0.01)


def by_arm_and_wheels(random, arm=np.eye(4), other=np.eye(4)):
    """Return a calibration file with lidars, floor, mounts and wheels, with errors drawn from their covariances. `arm`
    (4, 4) displaces the lidars as the arm's returns show them, `other` the right one as the alignment shows it."""

    def drawn(size):
        root = 1e-3 * (0.5 * random.normal(size=(size, size)) + np.eye(size))
        return root @ random.normal(size=size), root @ root.T

    (off, mounts), (off_wheels, of_wheels), (off_right, of_right), (off_floor, of_floor) = map(drawn, (12, 12, 6, 3))
    left, right = exp(-off[:6]) @ arm @ LEFT, exp(-off[6:]) @ arm @ RIGHT
    plane = incremented(FLOOR.moved(left @ inverse(LEFT)), -off_floor)
    floor = floor_result(plane=plane)
    floor.covariance = of_floor
    aligned = alignment_result(exp(-off_right) @ inverse(LEFT) @ other @ RIGHT, covariance=of_right)
    file = CalibrationFile().with_alignment(aligned, "r").with_floor(floor, "r", base_from_left=left)
    poses = {"left": left.tolist(), "right": right.tolist()}
    file = file.updated({MOUNTS: {"data": poses, "covariance": mounts.tolist(), "convention": CONVENTION}})
    over_floor = footprint_from_base(FLOOR)
    driven = {"left": exp(-off_wheels[:6]) @ over_floor @ LEFT, "right": exp(-off_wheels[6:]) @ over_floor @ RIGHT}
    wheels = Wheels(driven, of_wheels, ODOMETRY, 1.0, [])
    return with_uncertain_left(file, mounts[:6, :6]).with_wheels(wheels, 3, "r")


def joints_in(values_file):
    """Return the joints in a robot's values file by name."""
    joints = {}
    for name, entry in files.read_yaml(values_file)[JOINTS].items():
        data = entry["data"]
        xyz, rpy = ([float(number) for number in data[key].split()] for key in ("xyz", "rpy"))
        joints[name] = JointOrigin(name, data["parent"], data["child"], from_xyz_rpy(xyz, rpy))
    return joints
