"""Both lidars' clouds as a part of a page that a user can turn: WebGL, in the page itself, without a network.

The points are those of each lidar in its own frame, as 16-bit numbers; where the lidar is before and after comes beside them.
`clouds_3d.js` draws them.
"""

import base64
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from stretch_sim_cal.geometry.points import voxel_keys
from stretch_sim_cal.geometry.transforms import SIDES, apply

MOST_POINTS = 50_000  # of both clouds
CELL = 0.1  # m
SPOT = (0.5, 0.1)  # m, sideways and up: so near to the spot all points are shown that there are, up to a tenth of all
STEPS = 32767  # from 0 to the farthest coordinate
OPEN = 1.8  # m: without what is above one looks into the room
COLOURS = {"left": (0x1F, 0x6F, 0xB4), "right": (0xE0, 0x7B, 0x00)}
BOUND = 0.98  # of the points lie within what is shown at first: a return through a window lies far out

STYLE = """<style>
.turnable .view { display: none } .turnable.works .view { display: block } .turnable.works .without { display: none }
.turnable canvas { width: 100%; height: 560px; max-height: 75vh; border: 1px solid #ddd; touch-action: none; cursor: grab }
.turnable canvas:focus-visible { outline: 3px solid #1f6fb4 } .turnable .bar { display: flex; flex-wrap: wrap; gap: 0.4em 1.4em }
.turnable label { margin-right: 0.6em } .turnable fieldset { border: 0; padding: 0; margin: 0 }
.turnable .hint { color: #555; font-size: 0.9em; margin: 0.3em 0 }
</style>"""


def turnable(
    clouds: Mapping[str, np.ndarray],
    before: Mapping[str, np.ndarray],
    after: Mapping[str, np.ndarray],
    spot: np.ndarray,
) -> str:
    """Return a part of a page: both clouds (N, 3) by side, each in its lidar's frame, with base_link_from_lidar (4, 4) before and
    after, and the place `spot` (3,) in base_link at which the difference shows."""
    placed = {side: apply(after[side], clouds[side]) for side in SIDES}
    both = np.concatenate(list(placed.values()))
    low, high = (round(float(np.quantile(both[:, 2], share)), 2) for share in (1.0 - BOUND, BOUND))
    data = {
        "clouds": [
            _cloud(side, clouds[side][_chosen(placed[side], spot)], before[side], after[side]) for side in SIDES
        ],
        "reach": round(float(np.quantile(np.linalg.norm(both[:, :2], axis=1), BOUND)), 2),
        "spot": [round(float(value), 3) for value in spot],
    }
    shown = "".join(
        f"<label style='color:rgb{COLOURS[side]}'><input type='checkbox' value='{side}' checked> {side} lidar</label>"
        for side in SIDES
    )
    return f"""{STYLE}<div class='turnable'>
<p class='without'>This browser shows no WebGL (or no scripts): the clouds cannot be turned here. The pictures show the same.</p>
<div class='view'>
<canvas tabindex='0' aria-label='Both clouds in 3D. Arrow keys turn, with Shift they move, plus and minus zoom.'></canvas>
<div class='bar'>
<fieldset><label><input type='radio' name='when' value='before'> before</label>
<label><input type='radio' name='when' value='after' checked> after</label></fieldset>
<fieldset>{shown}</fieldset>
<label>nothing above <input type='range' min='{low}' max='{high + 0.3}' step='0.02' value='{min(OPEN, high + 0.3)}'></label>
<span><button type='button' value='room'>whole room</button> <button type='button' value='spot'>a wall, close</button></span>
</div>
<p class='hint'>Drag to turn, with Shift (or two fingers) to move, wheel (after a click), pinch or + and - to zoom.</p>
</div><script type='application/json'>{json.dumps(data)}</script></div>
<script>{Path(__file__).with_suffix(".js").read_text(encoding="utf-8")}</script>"""


def _cloud(side: str, points: np.ndarray, before: np.ndarray, after: np.ndarray) -> dict:
    reach = float(np.abs(points).max(initial=1e-3))
    scaled = np.round(points.astype(float) / reach * STEPS).astype("<i2")
    poses = {
        when: (pose @ np.diag([reach / STEPS] * 3 + [1.0])).T.ravel().tolist()  # column by column
        for when, pose in (("before", before), ("after", after))
    }
    colour = [round(value / 255, 3) for value in COLOURS[side]]
    return {"name": side, "points": base64.b64encode(scaled.tobytes()).decode(), "colour": colour, **poses}


def _chosen(points: np.ndarray, spot: np.ndarray) -> np.ndarray:
    """Return the indices of the points (N, 3) to show: those at the spot, then as evenly over the surfaces as they are there, in
    every cell the first, then in every cell the second, and so on."""
    count = MOST_POINTS // len(SIDES)
    _, cell, counts = np.unique(voxel_keys(points, CELL), return_inverse=True, return_counts=True)
    by_cell = np.argsort(cell, kind="stable")
    number = np.empty(len(points), dtype=int)
    number[by_cell] = np.arange(len(points)) - np.repeat(np.cumsum(counts) - counts, counts)
    away = np.abs(points - spot)
    near = np.flatnonzero((away[:, :2].max(axis=1) < SPOT[0]) & (away[:, 2] < SPOT[1]))
    number[near[: count // 10]] = -1
    return np.sort(np.argsort(number, kind="stable")[:count])
