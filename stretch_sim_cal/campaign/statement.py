"""What follows from a campaign's cases. Its bounds are for independent cases; a Sobol sequence covers the distributions
more evenly, so they are on the safe side."""

import bisect
import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
from scipy.stats import beta, binom, binomtest, chi2, spearmanr, wilcoxon

from stretch_sim_cal.campaign.plan import OF_LIDARS, QUANTITIES, WRONG, Campaign, as_rare_as, contradicts
from stretch_sim_cal.errors import InputError
from stretch_sim_cal.files import write_text
from stretch_sim_cal.harness.pages import Section, text_lines, write_page
from stretch_sim_cal.harness.report import as_png

WORST = 10
TREE_DEPTH, TREE_LEAF = 3, 0.02  # how deep, and the least share of the cases in a leaf


def upper_bound(failures: int, cases: int, confidence: float) -> float:
    """Return the share of failures that, with this confidence, is not exceeded, one-sided (Clopper and Pearson,
    Biometrika 26, 1934)."""
    return 1.0 if failures >= cases else float(beta.ppf(confidence, failures + 1, cases - failures))


def cases_needed(failures: int, cases: int, share: float, confidence: float) -> int | None:
    """Return how many cases show that `share` of them is right if failures go on as they came; None if none do."""
    rate = failures / max(cases, 1)
    if rate >= 1.0 - share:
        return None

    def is_enough(number: int) -> bool:
        return upper_bound(int(np.ceil(rate * number)), number, confidence) <= 1.0 - share

    high = next((number for number in 2 ** np.arange(24) if is_enough(int(number))), None)
    return None if high is None else 1 + bisect.bisect_left(range(1, int(high)), True, key=is_enough)


def quantile_bounds(values: np.ndarray, quantile: float, confidence: float) -> tuple[float, float, float]:
    """Return a quantile of values (N,) with its lower and upper confidence bound by order statistics, infinite where N
    is too small."""
    ordered = np.sort(values)
    low, high = (binom.ppf(p, len(ordered), quantile) for p in ((1 - confidence) / 2, (1 + confidence) / 2))
    lower = ordered[int(low) - 1] if low >= 1 else -np.inf
    upper = ordered[int(high)] if high < len(ordered) else np.inf
    return float(np.quantile(ordered, quantile)), float(lower), float(upper)


class Cases:
    """The columns of a campaign's table as arrays, and what each case came to."""

    def __init__(self, campaign: Campaign, table: pa.Table):
        self.campaign, self.table = campaign, table
        self.index = table["index"].to_numpy()
        self.status = np.array(table["status"].to_pylist())
        self.computed = self.status == "done"
        self.inputs = {name: self.column(f"input.{name}") for name in campaign.varied}
        stages, self.freedom = campaign.stages, campaign.freedom
        self.accepted = {stage: self.column(f"{stage}.accepted") == 1.0 for stage in stages}
        self.sigmas = {stage: self.column(f"{stage}.sigmas") for stage in stages}
        wrong = [self.accepted[each] & contradicts(self.sigmas[each] ** 2, self.freedom[each]) for each in stages]
        self.wrong = np.any(wrong, axis=0)
        self.all_accepted = self.computed & np.all([self.accepted[stage] for stage in stages], axis=0)
        self.within = self.below_limits()
        self.good = self.all_accepted & self.within & ~self.wrong
        reasons = [self.table[f"{stage}.refusals"].to_pylist() for stage in stages]
        self.refusals = [next((reason for reason in row if reason), "") for row in zip(*reasons, strict=True)]

    def column(self, name: str) -> np.ndarray:
        """Return a column (N,) as numbers, NaN where it is empty."""
        return np.array([np.nan if value is None else float(value) for value in self.table[name].to_pylist()])

    def of_results(self, name: str, stage: str) -> np.ndarray:
        """Return a column (M,) of those cases whose `stage` was accepted."""
        return self.column(name)[self.accepted[stage] & self.computed]

    def below_limits(self, beginning: str = "") -> np.ndarray:
        """Return which cases (N,), refused or not, are within the limits whose names begin so."""
        limits = {name: limit for name, limit in self.campaign.limits.items() if name.startswith(beginning)}
        return np.all([self.computed, *(self.column(name) <= limit for name, limit in limits.items())], axis=0)

    def __len__(self) -> int:
        return len(self.index)


def statement(campaign: Campaign, table: pa.Table) -> dict[str, Any]:
    """Return the statement as numbers, ready for JSON. Raises `InputError` if there are no cases."""
    cases = Cases(campaign, table)
    if not len(cases):
        raise InputError("the campaign has no cases yet")
    total, failures = len(cases), int((~cases.good).sum())
    bound = upper_bound(failures, total, campaign.confidence)
    wrong, refused = int(cases.wrong.sum()), cases.computed & ~cases.all_accepted
    agree = np.array([value for value in table["nodes.agree"].to_pylist() if value is not None], dtype=bool)
    shown = 1.0 - bound >= campaign.share and wrong == 0 and bool(agree.all())
    quantities, levels = {}, {"median": 0.5, "p95": 0.95, "p99": 0.99}
    for name, stage in campaign.quantities.items():
        values = cases.of_results(name, stage)
        if len(values):
            bounds = {key: quantile_bounds(values, level, campaign.confidence) for key, level in levels.items()}
            said = {"label": QUANTITIES[name], "limit": campaign.limits.get(name), "cases": len(values)}
            quantities[name] = said | {"worst": float(values.max())} | bounds
    honesty: dict[str, dict[str, float]] = {}
    for stage, freedom in cases.freedom.items():
        nees = cases.of_results(f"{stage}.nees", stage)
        if len(nees := nees[np.isfinite(nees)]):
            honesty[stage] = {"mean_nees_over_freedom": float(nees.mean()), "cases": len(nees)}
            honesty[stage]["beyond_95_percent"] = float((chi2.cdf(nees * freedom, freedom) > 0.95).mean())
    seconds = cases.column("seconds")[cases.computed]
    return {
        "campaign": campaign.name, "key": campaign.key, "code": campaign.code, "cases": total, "shown": bool(shown),
        "share": campaign.share, "confidence": campaign.confidence, "limits": dict(campaign.limits),
        "good": total - failures, "share_shown": 1.0 - bound,
        "cases_needed": cases_needed(failures, total, campaign.share, campaign.confidence),
        "wrong": wrong, "wrong_at_most": upper_bound(wrong, total, campaign.confidence),
        "refused": int(refused.sum()),
        "refused_though_within_limits": int((refused & cases.below_limits("alignment.")).sum()),
        "beyond_limits": int((cases.all_accepted & ~cases.within).sum()),
        "places": sorted(Counter(int(n) for n in table["alignment.places"].to_pylist() if n is not None).items()),
        "nodes": {"cases": len(agree), "disagree": int((~agree).sum()),
                  "messages": [said for said in table["nodes.message"].to_pylist() if said]},
        "failed": {kind: int((cases.status == kind).sum()) for kind in ("crashed", "timeout")},
        "quantities": quantities, "lidars": _lidars(cases), "honesty": honesty,
        "refusals": Counter(_kind(reason) for reason in cases.refusals if reason).most_common(),
        "causes": causes(cases),
        "worst": worst(cases),
        "seconds": {"median": float(np.median(seconds)), "total": float(seconds.sum())} if len(seconds) else None,
    }  # fmt: skip


def _lidars(cases: Cases) -> dict[str, dict[str, dict[str, float]]]:
    """Return medians and largest of the accepted results' errors by stage and lidar, of stages with several lidars."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for stage in filter(OF_LIDARS.__contains__, cases.campaign.stages):
        rows = cases.table[f"{stage}.lidars"].filter(cases.accepted[stage] & cases.computed).to_pylist()
        each = [one for row in rows for one in row or []]
        names = list(dict.fromkeys(one["name"] for one in each))
        for name in names if len(names) > 1 else []:
            own = found.setdefault(stage, {})[name] = {}
            for key in ("translation_mm", "rotation_deg", "sigmas"):
                values = [one[key] for one in each if one["name"] == name and one[key] is not None]
                if values:  # some methods give no covariance
                    own |= {f"median_{key}": float(np.median(values)), f"worst_{key}": max(values)}
    return found


def _kind(reason: str) -> str:
    """Return a refusal's sentence without its numbers and what follows from them."""
    sentence = reason.split(" | ")[0].split(":")[0].split(";")[0].split("(")[0].strip()
    return re.sub(r"[-+]?\d+(\.\d+)?", "...", sentence)


def causes(cases: Cases) -> dict[str, Any]:
    """Return which inputs go with errors and with failures: rank correlations, and a shallow tree as text."""
    from sklearn.tree import DecisionTreeClassifier, export_text

    found: dict[str, Any] = {"correlations": {}, "tree": None}
    computed = cases.computed
    names = [name for name, values in cases.inputs.items() if computed.any() and np.ptp(values[computed]) > 0]
    if len(cases) < 10 or not names:
        return found
    outcomes = {"refused": (~cases.all_accepted).astype(float)}
    outcomes |= {name: cases.column(name) for name in cases.campaign.quantities}
    for outcome, values in outcomes.items():
        use = computed & np.isfinite(values)
        if use.sum() < 10 or np.ptp(values[use]) == 0:
            continue
        varied = {name: cases.inputs[name][use] for name in names}
        ranked = [(n, *map(float, spearmanr(given, values[use]))) for n, given in varied.items() if np.ptp(given) > 0]
        found["correlations"][outcome] = sorted(ranked, key=lambda entry: -abs(entry[1]))[:5]
    if 0 < (~cases.good[computed]).sum() < computed.sum():
        inputs = np.column_stack([cases.inputs[name][computed] for name in names])
        tree = DecisionTreeClassifier(max_depth=TREE_DEPTH, min_samples_leaf=TREE_LEAF, random_state=0)
        tree.fit(inputs, np.where(cases.good[computed], "good", "failed"))
        found["tree"] = export_text(tree, feature_names=names, show_weights=True, decimals=3)
    return found


def worst(cases: Cases) -> list[dict[str, Any]]:
    """Return the worst cases: failed ones, then accepted ones by how far they are off in units of their limits."""
    over = np.zeros(len(cases))
    for name, limit in cases.campaign.limits.items():
        over = np.fmax(over, np.nan_to_num(cases.column(name) / limit))
    for stage in cases.campaign.stages:
        rare = as_rare_as(np.nan_to_num(cases.sigmas[stage]) ** 2, cases.freedom[stage])
        over = np.fmax(over, np.where(cases.accepted[stage], rare / WRONG, 0.0))
    accepted = np.where(cases.within, 0.0, 1e6)
    rank = 3e6 * cases.wrong + 2e6 * ~cases.computed + np.where(cases.all_accepted, accepted, 5e5) + over
    what = np.select(
        [cases.wrong, ~cases.computed, ~cases.all_accepted, cases.within],
        ["accepted, wrong", cases.status, "refused", "good"], "beyond the limits",
    )  # fmt: skip
    errors = {name: cases.column(name) for name in cases.campaign.quantities}

    def known(columns: Mapping[str, np.ndarray], row: int) -> dict[str, float | None]:
        return {name: None if np.isnan(values[row]) else float(values[row]) for name, values in columns.items()}

    return [
        {
            "case": int(cases.index[row]), "what": str(what[row]),
            "why": cases.refusals[row] or (cases.table["message"][int(row)].as_py() or ""),
            "errors": known(errors, row), "sigmas": known(cases.sigmas, row),
        }
        for row in np.argsort(-rank, kind="stable")[:WORST]
    ]  # fmt: skip


def sentences(found: Mapping[str, Any]) -> list[str]:
    limits = " and ".join(
        f"{value:g} {name.rpartition('_')[2]} ({name.replace('.', ' ').rpartition('_')[0]})"
        for name, value in found["limits"].items()
    )
    return text_lines("statement", found=found, limits=limits or "any error", beyond=WRONG, bounded=_bounded)


def _bounded(bounds: tuple[float, float, float]) -> str:
    value, *ends = bounds
    low, high = (f"{max(end, 0.0):.3g}" if np.isfinite(end) else "unknown" for end in ends)
    return f"{value:.3g} ({low} to {high})"


def write_statement(campaign: Campaign, table: pa.Table, folder: Path, command: str) -> dict[str, Any]:
    """Write `campaign.json` and `report.html` into the folder; return the statement. `command` runs this campaign."""
    found = statement(campaign, table)
    write_text(folder / "campaign.json", json.dumps(found, indent=1) + "\n")
    cases = Cases(campaign, table)
    parts = [Section("Errors of the accepted results", _errors_plot(cases))]
    if found["honesty"]:
        parts.append(Section("Is the covariance right?", _nees_plot(cases)))
    write_page(
        folder / "report.html", f"Campaign {campaign.name}", parts, "campaign", description=campaign.description,
        sentences=sentences(found), found=found, command=command,
        pictured=[one["case"] for one in found["worst"] if (folder / f"case_{one['case']}" / "clouds.png").is_file()],
    )  # fmt: skip
    return found


def _errors_plot(cases: Cases) -> bytes:
    names = cases.campaign.quantities
    figure, axes = plt.subplots(1, len(names), figsize=(3.4 * len(names), 3.0), squeeze=False, sharey=True)
    for axis, (name, stage) in zip(axes[0], names.items(), strict=True):
        values = np.sort(cases.of_results(name, stage))
        if len(values):
            share = 100 * np.arange(1, len(values) + 1) / len(values)
            axis.step(np.maximum(values, 1e-6), share, where="post", color="#1f6fb4")
        if name in cases.campaign.limits:
            axis.axvline(cases.campaign.limits[name], color="#c2182b", linewidth=1, label="limit")
            axis.legend(fontsize=8)
        axis.set(xscale="log", xlabel=QUANTITIES[name])
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("% of the accepted cases")
    return as_png(figure)


def _nees_plot(cases: Cases) -> bytes:
    stages = [stage for stage in cases.campaign.stages if np.isfinite(cases.sigmas[stage]).any()]
    figure, axes = plt.subplots(1, len(stages), figsize=(4.2 * len(stages), 3.0), squeeze=False)
    for axis, stage in zip(axes[0], stages, strict=True):
        squares = cases.of_results(f"{stage}.sigmas", stage) ** 2
        freedom = cases.freedom[stage]
        edges = np.linspace(0, chi2.ppf(0.9999, freedom), 30)
        axis.hist(np.minimum(squares, edges[-1]), edges, density=True, color="#9ec5e8", label=f"{len(squares)} cases")
        axis.plot(edges, chi2.pdf(edges, freedom), color="#2b2b2b", label=f"chi square, {freedom} dof")
        axis.set(xlabel=f"{stage}: squared error over the covariance\n(last bar: all beyond)", ylabel="density")
        axis.legend(fontsize=8)
    return as_png(figure)


def compare(campaigns: tuple[Campaign, Campaign], tables: tuple[pa.Table, pa.Table]) -> dict[str, Any]:
    """Return how two methods differ over their common cases: McNemar's exact test on which cases are good, Wilcoxon's
    signed-rank test on the errors of those that both accepted. Raises `InputError` if they draw different cases or have
    none in common."""
    one, other = (Cases(campaign, table) for campaign, table in zip(campaigns, tables, strict=True))
    common, first, second = np.intersect1d(one.index, other.index, return_indices=True)
    if not len(common):
        raise InputError("the two campaigns have no case in common")
    computed = one.computed[first] & other.computed[second]
    for name in filter(lambda name: name.startswith("input."), one.table.column_names):
        # An input that is newer than a campaign's cases has no value there.
        gone = one.column(name)[first][computed] - other.column(name)[second][computed]
        if np.abs(gone[np.isfinite(gone)]).max(initial=0.0) > 1e-9:
            differs = f"the two campaigns draw different cases: {name} differs"
            raise InputError(f"{differs}; give campaigns with equal inputs and seed")
    good = one.good[first], other.good[second]
    only_first, only_second = int((good[0] & ~good[1]).sum()), int((good[1] & ~good[0]).sum())
    discordant = only_first + only_second
    found = {
        "names": [campaign.name for campaign in campaigns], "cases": len(common),
        "good": [int(part.sum()) for part in good], "only_first_good": only_first, "only_second_good": only_second,
        "mcnemar_p": float(binomtest(only_first, discordant).pvalue) if discordant else 1.0,
        "wrong": [int(one.wrong[first].sum()), int(other.wrong[second].sum())], "quantities": {},
    }  # fmt: skip
    for name in filter(campaigns[1].quantities.__contains__, campaigns[0].quantities):
        stage = campaigns[0].quantities[name]
        both = one.accepted[stage][first] & other.accepted[stage][second]
        errors = one.column(name)[first][both], other.column(name)[second][both]
        if len(errors[0]) < 2 or np.array_equal(*errors):
            continue
        found["quantities"][name] = {
            "label": QUANTITIES[name], "cases": len(errors[0]), "medians": [float(np.median(part)) for part in errors],
            "p95": [float(np.quantile(part, 0.95)) for part in errors],
            "wilcoxon_p": float(wilcoxon(*errors).pvalue), "first_smaller": float((errors[0] < errors[1]).mean()),
        }  # fmt: skip
    return found
