"""Breaks one result of a run on purpose, the way a broken calibration would: `saboteur.py HOW FILE TRUTH`."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import yaml

from stretch_sim_cal.geometry.planes import floor_of_footprint
from stretch_sim_cal.geometry.transforms import inverse
from stretch_sim_cal.harness.truth import load_truth


def sabotage(how: str, file: Path, truth_file: Path) -> None:
    data = yaml.safe_load(file.read_text())
    truth = load_truth(truth_file)
    if how == "nominal":
        data["right_to_left_transform"]["data"] = truth.nominal_right_to_left.tolist()
    elif how == "inverted":
        data["right_to_left_transform"]["data"] = inverse(np.array(data["right_to_left_transform"]["data"])).tolist()
    elif how == "floor_5_mm_off":
        transform = np.array(data["floor_to_base_link_transform"]["data"])
        transform[2, 3] += 0.005
        plane = floor_of_footprint(transform)
        data["floor_to_base_link_transform"]["data"] = transform.tolist()
        data["floor_model_params"]["data"] |= {"normal": plane.normal.tolist(), "distance": plane.offset}
    elif how == "shape_2_cm_small":
        from stretch_sim_cal.calibration.body.model_file import load_body_shape_model, save_body_shape_model

        model = load_body_shape_model(file)
        smaller = [[shape.inflated(-0.02) for shape in row] for row in model.shapes]
        save_body_shape_model(dataclasses.replace(model, shapes=smaller), file)
        return
    else:
        raise SystemExit(f"unknown sabotage {how}")
    file.write_text(yaml.safe_dump(data))


if __name__ == "__main__":
    sabotage(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
