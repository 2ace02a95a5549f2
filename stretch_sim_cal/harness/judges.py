"""Each stage's judge: from a run's files and the truth to a verdict."""

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.harness.body_verdict import judge_body_shape
from stretch_sim_cal.harness.processes import RunFiles
from stretch_sim_cal.harness.truth import Truth
from stretch_sim_cal.harness.verdict import StageVerdict, judge_alignment, judge_floor, judge_mounts


def judge_stage(stage: str, files: RunFiles, truth: Truth, tolerances: dict[str, float]) -> StageVerdict:
    """Hold what a stage wrote against the truth. Raises `InputError` where it cannot be read."""
    if stage == "body_shape":
        seen = truth.for_calibration(CalibrationFile.load(files.calibration))
        return judge_body_shape(files.body_shape_model, files.dataset, seen, tolerances)
    judge = {"alignment": judge_alignment, "floor": judge_floor, "mounts": judge_mounts}[stage]
    return judge(files.calibration, truth, tolerances)
