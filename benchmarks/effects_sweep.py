"""All tables of effects at once: each recording is aligned once, and every other calibration starts from that.

    nice python benchmarks/effects_sweep.py [--effects WORDS] [--seeds 5] [--first-seed 5001] [--resume]

Runs seed by seed, and writes tables and single runs after each of them: what is cut short has fewer seeds. The full
tables take one and a half hours of one core.
"""

import argparse
import sys
from pathlib import Path

import alignment
import body_shape
import effects
import floor
import mounts

from stretch_sim_cal import command

TABLES = {module.__name__: module.EFFECTS_TABLE for module in (alignment, floor, mounts, body_shape)}


def main() -> int:
    """Make the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=5001, help="seeds below 5001 were used while developing")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--resume", action="store_true", help="go on with what --out holds, of the same code")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"))
    effects.add_options(parser)
    args = parser.parse_args()
    effects.run_effects(
        [TABLES[name] for name in args.tables], effects.chosen(args.effects or [], args.sparse),
        range(args.first_seed, args.first_seed + args.seeds), args.out, args.resume,
    )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(command.run(main))
