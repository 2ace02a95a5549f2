"""The files of a run in 3D (`view.py`) as they are written: called after every process of a run or of a robot's
calibration, it shows new ones."""

from pathlib import Path

import numpy as np

from stretch_sim_cal.calibration.body.model import load_body_shape_model
from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.checks import changes
from stretch_sim_cal.calibration.mounts.file import stored_mounts
from stretch_sim_cal.calibration.observations import load_beside
from stretch_sim_cal.calibration.room import VERDICTS
from stretch_sim_cal.calibration.zones import Zones
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.geometry.transforms import apply, inverse
from stretch_sim_cal.harness.clouds_3d import CapturedClouds, placed
from stretch_sim_cal.harness.processes import Echo, RunFiles
from stretch_sim_cal.harness.verdict import load_truth
from stretch_sim_cal.recording.dataset import read_dataset
from stretch_sim_cal.robot.description import load_model
from stretch_sim_cal.robot.kinematics import link_transforms
from stretch_sim_cal.robot.profile import profile_called
from stretch_sim_cal.robot.surfaces import robot_surfaces
from stretch_sim_cal.view import View

OUTLINE_CORNERS = 180


def show_described(view: View, seen: CapturedClouds) -> None:
    view.clouds("before", placed(seen.points(), seen.poses_before()))


def show_calibrated(view: View, seen: CapturedClouds, file: CalibrationFile) -> None:
    """Show the clouds, the patches and the floor under a calibration that holds an alignment."""
    known, poses = load_beside(file), seen.poses(file)
    points = placed(seen.points(seen.usable(known)), poses)
    view.clouds("after", points)
    if known is not None and known.patches is not None:
        verdicts = [VERDICTS[number] for number in known.patches.verdicts]
        view.patches(apply(poses["left"], known.patches.centres), known.patches.gaps, verdicts)
    if file.footprint_from_base is not None:
        in_base = np.vstack(list(points.values()))
        view.floor(apply(file.footprint_from_base, in_base), inverse(file.footprint_from_base))


class RunView:
    """Shows a run in `view` from its `files`; `robot` is a profile's name or path (default: the truth's, or the
    Stretch)."""

    def __init__(self, view: View, files: RunFiles, robot: str | None = None):
        self._view, self._files, self._robot = view, files, robot
        self._shown: dict[str, tuple] = {}

    def after(self, echo: Echo) -> Echo:
        """Return an echo of processes that looks at the files after every one of them."""

        def look(process, line: str | None) -> None:
            echo(process, line)
            if line is None:
                self.update()

        return look

    def update(self) -> None:
        """Show new files; one that cannot be read gets a line in the log."""
        for name, path, show in (
            ("clouds", self._files.clouds, self._clouds),
            ("calibration", self._files.calibration, self._calibration),
            ("poses", self._files.mounts_dataset / "metadata.yaml", lambda: self._poses(self._files.mounts_dataset)),
            ("body shape", self._files.body_shape_model, self._body_shape),
        ):
            try:
                status = path.stat()
            except OSError:
                continue
            version = (status.st_mtime_ns, status.st_size)
            if self._shown.get(name) == version:
                continue
            self._shown[name] = version
            try:
                show()
            except InputError as error:
                self._view.say(str(error), level="WARN")

    def _clouds(self) -> None:
        self._view.stage("described")
        show_described(self._view, CapturedClouds.load(self._files))

    def _calibration(self) -> None:
        file = CalibrationFile.load(self._files.calibration)
        mounts = stored_mounts(file)
        stage = "mounts" if mounts is not None else "floor" if file.floor_plane is not None else "alignment"
        self._view.stage(stage)
        for known in changes(file, file):  # a file against itself: each part's own uncertainty
            if known.after is not None:
                self._view.series(f"{known.what}_mm", 1e3 * known.after[0])
                self._view.series(f"{known.what}_deg", float(np.degrees(known.after[1])))
        if file.to_left:
            show_calibrated(self._view, CapturedClouds.load(self._files), file)

    def _poses(self, folder: Path):
        """Show the robot's model in the poses of a dataset; return that."""
        dataset = read_dataset(folder)
        model = load_model(dataset.description_file)
        robot = load_truth(self._files.truth).robot if self._files.truth.is_file() else self._robot
        profile = profile_called(robot)
        surfaces = {link: (s.vertices, s.faces) for link, s in robot_surfaces(model, profile).items() if len(s.faces)}
        self._view.robot(surfaces)
        for number, sample in enumerate(dataset.samples):
            placed = link_transforms(model, sample.joints, [*surfaces, profile.base_frame])
            base_from_root = inverse(placed[profile.base_frame])
            self._view.pose(number, {link: base_from_root @ placed[link] for link in surfaces})
        return dataset

    def _body_shape(self) -> None:
        model = load_body_shape_model(self._files.body_shape_model)
        self._view.stage("body_shape")
        dataset = self._poses(self._files.dataset)
        for number, sample in enumerate(dataset.samples):
            shape = model.shape_for(sample.commanded)
            zones = Zones.around(shape)
            self._view.pose(number, {})
            self._view.body(sample.points, shape.outline(OUTLINE_CORNERS), zones.outer.outline(OUTLINE_CORNERS))
