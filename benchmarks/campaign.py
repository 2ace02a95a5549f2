"""What a campaign costs: seconds a case, efficiency of several workers, and the scheduler's overhead with many workers.

    python benchmarks/campaign.py [--cases 16] [--sensors jt128_sparse_real jt128]
    [--sleepers 200 --sleeping-cases 20000]

Prints a table: CPU of a case of the campaign "smoke" by sensor, simulator included; what N workers compute against N
times what one computes, and, which a busy machine does not change, which share of all CPU time goes into cases and not
into client, scheduler and workers; and what a case that only sleeps takes more than its sleep when many workers ask the
scheduler.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import dask
import numpy as np
import psutil
from dask.distributed import Client, LocalCluster

from stretch_sim_cal import command
from stretch_sim_cal.campaign import engine
from stretch_sim_cal.campaign.plan import Campaign

SLEEP = 1.0


def slept(campaign: Campaign, index: int) -> dict:
    time.sleep(SLEEP)
    return {"index": index, "status": "done", "alignment.accepted": True, "seconds": SLEEP}


def cpu_time() -> float:
    """Return the CPU time in s of this process and all that it started and that still run."""
    process = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in [process, *process.children(recursive=True)])


def timed(campaign: Campaign, count: int, client: Client, work=engine.compute) -> tuple[float, np.ndarray]:
    """Return the wall time in s of a campaign of so many cases, and the CPU time (N,) of each."""
    with tempfile.TemporaryDirectory() as folder:
        results = engine.Results(Path(folder) / "out", campaign)
        began = time.monotonic()
        engine.run(campaign, count, results, client, lambda record: None, work)
        passed = time.monotonic() - began
        results.close()
        return passed, np.array(engine.read_table(Path(folder) / "out")["seconds"].to_pylist(), float)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=16)
    parser.add_argument("--sensors", nargs="*", default=["jt128_sparse_real", "jt128"])
    parser.add_argument("--sleepers", type=int, default=200, help="workers of the scheduler's test; 0: without it")
    parser.add_argument("--sleeping-cases", type=int, default=20_000)
    args = parser.parse_args()
    smoke = dict(Campaign.load("smoke").data)
    cores = len(os.sched_getaffinity(0))
    for sensor in args.sensors:
        campaign = Campaign.from_mapping(smoke | {"sensor": sensor}, "benchmark")
        walls, shares = {}, {}
        for workers in (1, cores):
            with engine.cluster(None, workers, campaign.memory_limit) as client:
                timed(campaign, workers, client)  # the processes start
                before = cpu_time()
                walls[workers], seconds = timed(campaign, args.cases, client)
                shares[workers] = seconds.sum() / (cpu_time() - before)
        print(
            f"{sensor}: {np.median(seconds):.1f} s of CPU a case (median of {args.cases}); {cores} workers take "
            f"{walls[cores]:.1f} s, one {walls[1]:.1f} s: efficiency {walls[1] / walls[cores] / cores:.2f}; of all CPU "
            f"time {100 * shares[cores]:.1f} % went into cases ({100 * shares[1]:.1f} % with one worker)",
            flush=True,
        )
    if args.sleepers:
        campaign = Campaign.from_mapping(smoke, "benchmark")
        with (
            dask.config.set(engine.CONFIGURATION),
            LocalCluster(
                n_workers=args.sleepers, threads_per_worker=1, processes=False, dashboard_address=None, memory_limit=0
            ) as cluster,
        ):
            with Client(cluster) as client:
                began = time.process_time()
                wall, _ = timed(campaign, args.sleeping_cases, client, slept)
                spent = time.process_time() - began  # of scheduler, client and workers, which are threads here
        ideal = args.sleeping_cases * SLEEP / args.sleepers
        print(
            f"{args.sleepers} workers, {args.sleeping_cases} cases that sleep {SLEEP:g} s: {wall:.1f} s, without any "
            f"overhead {ideal:.1f} s; {1e3 * (wall - ideal) / args.sleeping_cases:.2f} ms a case; "
            f"{1e3 * spent / args.sleeping_cases:.2f} ms of CPU a case"
        )
    return 0


if __name__ == "__main__":
    sys.exit(command.run(main))
