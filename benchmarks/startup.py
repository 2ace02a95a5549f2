"""How long the programs take to start: CPU time of `--version` and `--help`, in s.

    python benchmarks/startup.py [--runs 5]

Prints the median over the runs, everything that Python itself does included.
"""

import argparse
import resource
import statistics
import subprocess
import sys
from pathlib import Path

from stretch_sim_cal.programs import PROGRAMS

COMMAND = "stretch-sim-cal"
AIMED_AT = {"--version": 0.15, "--help": 0.3}  # s


def main() -> int:
    """Start every program with `--help`, print the table, and return 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    print("| command | CPU s | aimed at |\n|---|---|---|")
    programs = [name for name in PROGRAMS if name != COMMAND.replace("-", "_")]
    for words in ([COMMAND, "--version"], [COMMAND, "--help"], *([name, "--help"] for name in programs)):
        seconds = statistics.median(cpu_time(words) for _ in range(runs))
        print(f"| {' '.join(words)} | {seconds:.3f} | {AIMED_AT[words[1]]} |", flush=True)
    return 0


def cpu_time(words: list[str]) -> float:
    """Return the CPU time in s that a program of this installation takes from start to end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([Path(sys.executable).parent / words[0], *words[1:]], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
