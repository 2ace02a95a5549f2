"""A case: its inputs reach what is simulated."""

import numpy as np

from stretch_sim_cal.campaign.case import SimulatedCase
from stretch_sim_cal.campaign.plan import INPUTS, Campaign

CAMPAIGN = Campaign.from_mapping({"name": "tried", "sensor": "jt128_sparse_real"}, "tried.yaml")


def simulated(folder, **changed: float):
    """Return the simulator of the default case with inputs changed, dots written as two underscores."""
    numbers = {name: known.default for name, known in INPUTS.items()}
    numbers |= {name.replace("__", "."): value for name, value in changed.items()}
    return SimulatedCase(CAMPAIGN, numbers, (1, 2), folder).simulator


def test_a_payload_is_held_where_the_lidars_see_it(tmp_path):
    simulator = simulated(tmp_path, robot__payload=1)
    box = simulator.true_surfaces()["payload_0_link"].vertices
    assert box[:, 2].min() > 0.1 and np.abs(box[:, :2]).max() < 0.3
    scans = [simulator.labelled_scan(device, 0) for device in ("left", "right")]
    assert any("payload_0_link" in {names[index] for index in np.unique(surfaces)} for _, surfaces, names in scans)
