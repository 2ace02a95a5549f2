"""How a calibration node ends: the result in words or JSON, then the file written, or every reason why not."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stretch_sim_cal.calibration.calibration_file import CalibrationFile
from stretch_sim_cal.calibration.summaries import plain
from stretch_sim_cal.command import one_line, refuse
from stretch_sim_cal.errors import Refused


def finish(
    context, result, what: str, lines: Sequence[str], numbers: dict[str, Any],
    updated: Callable[[], CalibrationFile], path: str | Path,
) -> int:  # fmt: skip
    """Print `result` (as `lines`, or `numbers` as JSON), write it to `path` where it is accepted, return the exit code.

    `updated` returns the calibration file's new content. It reads the file only now, so that nothing is lost which
    another calibration wrote in the meantime. A refusal prints each reason in a line of its own and writes nothing.
    """
    for warning in result.warnings:
        context.log.warning(one_line(warning))
    as_json = context.arguments.json
    if not as_json:
        print("\n".join(lines), flush=True)
    if not result.accepted:
        for reason in result.refusals:
            refuse(reason)
    else:
        backup = updated().save(path)
        if not as_json:
            kept = f" (what it held before is in {backup.name})" if backup else ""
            print(f"accepted: {what} written to {path}{kept}", flush=True)
    if as_json:
        outcome = {
            what: numbers, "accepted": result.accepted, "warnings": result.warnings, "refusals": result.refusals,
            "file": str(path) if result.accepted else None,
        }  # fmt: skip
        print(json.dumps(plain(outcome)), flush=True)
    return 0 if result.accepted else Refused.exit_code
