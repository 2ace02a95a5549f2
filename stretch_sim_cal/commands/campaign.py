"""`stretch-sim-cal campaign FILE`: calibrates many simulated robots and rooms, and summarises the results."""

import argparse
import contextlib
import json
import shlex
import sys
from collections import Counter
from pathlib import Path

from tqdm import tqdm

from stretch_sim_cal.command import add_ci_arguments, only_with, show, sigterm_interrupts
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import make_folder, write_text
from stretch_sim_cal.harness.pages import text_lines

EXAMPLE = (
    "stretch-sim-cal campaign smoke --cases 20\n"
    "         stretch-sim-cal campaign compare out/campaigns/ours out/campaigns/published"
)
OF_MANY = ("search", "cases", "workers", "cluster", "cluster_tls", "again", "junit", "summary", "seed")
"""Options that a single case does not read."""
MOST = 10**7  # cases


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("campaign", metavar="FILE", help="a campaign file, a name in config/campaigns/, or 'compare'")
    add("folders", nargs="*", type=Path, metavar="DIR", help="with compare: the folders of two campaigns")
    add("--cases", type=int, metavar="N", help="number of cases; those already in --out are not computed again")
    add("--out", type=Path, metavar="DIR", help="folder of the results (default: out/campaigns/NAME)")
    add("--workers", type=int, metavar="N", help="number of local processes (default: one per core)")
    add("--cluster", metavar="ADDRESS", help="use the Dask scheduler at this address, tcp://HOST:8786")
    add("--cluster-tls", nargs=3, type=Path, metavar=("CA", "CERT", "KEY"),
        help="certificates for a scheduler at tls://HOST:8786 (default: from Dask's configuration)")  # fmt: skip
    add("--robot", metavar="FILE",
        help="replaces the campaign's robot and lidars: a profile in config/robots/, or a path")  # fmt: skip
    add("--case", type=int, metavar="N", help="run only case N, with its files and pictures")
    add("--search", choices=["worst"], help="search for the accepted result with the largest error, in --cases trials")
    add("--seed", type=int, default=0, help="seed of --search (default: %(default)s)")
    add("--again", action="store_true", help="repeat cases that crashed or exceeded the time limit")
    add_ci_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run, continue or compare campaigns; return 0, or 1 if the campaign does not show what it is to show."""
    for name, low, high in (("cases", 1, MOST), ("workers", 1, 1000), ("case", 0, MOST), ("seed", 0, 2**31 - 1)):
        if (value := getattr(args, name)) is not None and not low <= value <= high:
            raise InputError(f"--{name}: is {value}; expected {low} to {high}")
    if args.campaign == "compare":
        only_with(args, ["robot", "case", *OF_MANY, "out"], "a campaign to run")
        return _compare(args)
    if args.folders:
        raise InputError(f"{args.folders[0]}: folders are for compare only; give one campaign file")
    from stretch_sim_cal.campaign.plan import Campaign

    campaign = Campaign.load(args.campaign)
    if args.robot is not None:
        campaign = campaign.of_robot(args.robot)
    work = _whole
    if args.case is not None:
        work = _one
        only_with(args, OF_MANY, "a whole campaign")
    elif args.search is not None:
        work = _search
        only_with(args, ["cluster", "cluster_tls", "junit", "summary", "again"], "a campaign without --search")
    else:
        only_with(args, ["seed"], "--search")
        if args.cluster_tls is not None and not (args.cluster or "").startswith("tls://"):
            raise InputError("--cluster-tls goes with --cluster tls://HOST:PORT only")
        for path in args.cluster_tls or ():
            if not path.is_file():
                raise InputError(f"--cluster-tls: {path}: there is no such file")
        if args.cluster is not None and args.workers is not None:
            raise InputError("--workers and --cluster exclude each other; give one of them")
    with sigterm_interrupts():
        return work(args, campaign, args.out or Path("out/campaigns") / campaign.name)


def _whole(args: argparse.Namespace, campaign, folder: Path) -> int:
    from stretch_sim_cal.campaign import engine
    from stretch_sim_cal.campaign.statement import sentences, write_statement
    from stretch_sim_cal.harness.ci import Outputs, campaign_cases

    outputs, count = Outputs(args.junit, args.summary), args.cases or campaign.cases
    with contextlib.closing(engine.Results(folder, campaign, args.again)) as results:
        missing = count - sum(index < count for index in results.indices())
        workers = min(args.workers or engine.CORES, missing)
        if missing:
            with (
                engine.cluster(args.cluster, workers, campaign.memory_limit, args.cluster_tls) as client,
                tqdm(total=count, initial=count - missing, unit="case", disable=None) as progress,
            ):
                dashboard = client.dashboard_link or "none"
                print(f"{missing} of {count} cases to compute; dashboard: {dashboard}", file=sys.stderr)
                seen = Counter[str]()

                def tell(record: dict) -> None:
                    done = record["status"] == "done"
                    seen["failed"] += not done
                    seen["refused"] += done and not all(record[f"{stage}.accepted"] for stage in campaign.stages)
                    progress.set_postfix_str(f"refused {seen['refused']}, failed {seen['failed']}")
                    progress.update()

                engine.run(campaign, count, results, client, tell)
    table = engine.read_table(folder)
    table = table.filter([index < count for index in table["index"].to_pylist()])
    chosen = [("--robot", args.robot), ("--out", args.out)]
    given = [str(part) for option, value in chosen if value is not None for part in (option, value)]
    found = write_statement(campaign, table, folder, shlex.join(["stretch-sim-cal", "campaign", args.campaign, *given]))
    show(args, found, [*sentences(found), f"report: {folder / 'report.html'}"], None)
    cases = campaign_cases(found)
    outputs.write(cases)
    outputs.publish(cases, sys.stderr if args.json else sys.stdout)
    return 0 if found["shown"] else 1


def _one(args: argparse.Namespace, campaign, folder: Path) -> int:
    from stretch_sim_cal.campaign.case import run_case

    place = folder / f"case_{args.case}"
    make_folder(place)
    record = run_case(campaign, args.case, place)
    write_text(place / "case.json", json.dumps(record, indent=1) + "\n")
    show(args, record, [*_lines(record), f"files: {place}"], None)
    return 0


def _lines(record: dict) -> list[str]:
    return [f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}"
            for name, value in record.items() if value not in (None, "")]  # fmt: skip


def _search(args: argparse.Namespace, campaign, folder: Path) -> int:
    import numpy as np

    from stretch_sim_cal.campaign.case import run_numbers
    from stretch_sim_cal.campaign.engine import CORES, search
    from stretch_sim_cal.campaign.plan import WRONG

    if not campaign.varied:
        raise InputError(f"{args.campaign}: inputs: all are fixed, so there is nothing to search")
    count, name = args.cases or campaign.cases, f"worst_{args.seed}"
    place = folder / name  # of the worst case
    make_folder(place)
    with tqdm(total=count, unit="case", disable=None) as progress:
        scores = [0.0]

        def tell(record: dict, score: float) -> None:
            scores.append(score)
            progress.set_postfix_str(f"worst {max(scores):.2f} standard deviations")
            progress.update()

        worst = search(campaign, count, args.seed, tell, args.workers or CORES, folder / f"{name}.jsonl")
    write_text(place / "case.json", json.dumps(worst, indent=1) + "\n")
    if worst["wrongness"] > 0.0:
        run_numbers(campaign, campaign.at(np.array(worst["point"])), tuple(worst["seed"]), place)
    head = f"the most wrong accepted result of {count}: {worst['wrongness']:.2f} standard deviations off"
    lines = _lines({key: value for key, value in worst.items() if key != "point"})
    show(args, worst, [head, *lines, f"files: {place}"], None)
    return 1 if worst["wrongness"] > WRONG else 0


def _compare(args: argparse.Namespace) -> int:
    from stretch_sim_cal.campaign.engine import DEFINITION, read_definition, read_table
    from stretch_sim_cal.campaign.plan import Campaign
    from stretch_sim_cal.campaign.statement import compare

    if len(args.folders) != 2:
        raise InputError(f"compare: {len(args.folders)} folders were given; give the folders of two campaigns")
    campaigns, tables = [], []
    for folder in args.folders:
        tables.append(read_table(folder))
        campaigns.append(Campaign.from_mapping(read_definition(folder)["data"], str(folder / DEFINITION)))
    found = compare(tuple(campaigns), tuple(tables))
    show(args, found, text_lines("comparison", found=found), None)
    return 0
