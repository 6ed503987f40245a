"""What the paper says about each figure, judged by the numbers of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from experiments.reproduce.pieces import CWEIGHTS, FACTORS, METHODS, fine, sets_of


@dataclass
class Claim:
    """Something the paper says about a figure, and what this run found."""

    figure: str
    text: str
    #: When it counts as held.
    rule: str
    #: Whether it held, for each data set (or each case that the text speaks of).
    held: dict[str, bool] = field(default_factory=dict)
    numbers: str = ""
    #: In what share of the cases it must hold: half for "often", and so on.
    needed: float = 0.8

    @property
    def verdict(self) -> str:
        """Supported if it held in the share of cases that it needs, partly if in at least half of that."""
        if not self.held:
            return "not run"
        share = sum(self.held.values()) / len(self.held)
        if share >= self.needed:
            return "supported"
        return "partly" if share >= self.needed / 2 else "not supported"


def settled(record: dict, target: float) -> float:
    """Seconds from which on a curve is at least at the target; infinite if it does not end there."""
    values, seconds = np.array(record["value"]), np.array(record["seconds"])
    below = np.flatnonzero(values < target)
    if not len(below):
        return float(seconds[0])
    return float(seconds[below[-1] + 1]) if below[-1] + 1 < len(values) else np.inf


def medians(figure: str, found: dict, target: Callable[[str], float]) -> dict:
    """Per (data set, method): median of the last value, and of the time from which on the target is kept."""
    result = {}
    for (name, method), records in found.items():
        good = fine(records)
        if good:
            last = float(np.median([record["value"][-1] for record in good]))
            time = float(np.median([settled(record, target(name)) for record in good]))
            result[name, method] = (last, time)
    return result


def _times(results: dict, method: str) -> str:
    parts = (
        f"{name} {time:.3g} s" if np.isfinite(time) else f"{name} never"
        for (name, m), (_, time) in results.items()
        if m == method
    )
    return f"{method}: " + ", ".join(parts)


def claims_fig1(found: dict) -> list[Claim]:
    """KLD over time."""
    results = medians("fig1", found, lambda name: -1e-3)
    comparable = Claim(
        "fig1",
        "NEMSIS-NS and NEMSIS end with a KLD comparable to 1PMB's and SVM(KLD)'s, or lower",
        "the better of both at most twice the better baseline's, or at most 1e-4",
    )
    converged = "median seconds after which KLD stays at 1e-3 or less; of the two the better"
    faster = Claim(
        "fig1", "They converge significantly faster than SVM(KLD)", f"ten times: {converged}"
    )
    than_batch = Claim("fig1", "They are often faster than 1PMB", converged, needed=0.5)
    ns = Claim(
        "fig1",
        "NEMSIS-NS converges faster than NEMSIS, on three of four sets",
        "median seconds after which KLD stays at 1e-3 or less",
        needed=0.75,
    )
    for name in sets_of(found):
        row = {m: results[name, m] for m in METHODS["fig1"] if (name, m) in results}
        if len(row) < len(METHODS["fig1"]):
            continue
        ours = max(row["NEMSIS-NS"][0], row["NEMSIS"][0])
        theirs = max(row["1PMB"][0], row["SVM(KLD)"][0])
        comparable.held[name] = -ours <= max(2 * -theirs, 1e-4)
        best = min(row["NEMSIS-NS"][1], row["NEMSIS"][1])
        faster.held[name] = 10 * best <= row["SVM(KLD)"][1] and np.isfinite(best)
        than_batch.held[name] = best < row["1PMB"][1]
        ns.held[name] = row["NEMSIS-NS"][1] < row["NEMSIS"][1]
    comparable.numbers = "; ".join(
        f"{name} {method} {-last:.1e}" for (name, method), (last, _) in results.items()
    )
    both = _times(results, "NEMSIS-NS"), _times(results, "NEMSIS")
    faster.numbers = "; ".join([*both, _times(results, "SVM(KLD)")])
    than_batch.numbers = "; ".join([*both, _times(results, "1PMB")])
    ns.numbers = "; ".join(both)
    return [comparable, faster, than_batch, ns]


def claims_fig2(found: dict) -> list[Claim]:
    """BA and KLD over CWeight."""
    spot = Claim(
        "fig2",
        "There is a CWeight where quantification and classification are both good",
        "BA within 5 % of its best and KLD at most 1e-3 at the same CWeight, means over splits",
    )
    notes = []
    for name in sets_of(found):
        rows = []
        for weight in CWEIGHTS:
            good = fine(found.get((name, str(weight)), []))
            if good:
                means = [float(np.mean([r[column] for r in good])) for column in ("ba", "kld")]
                rows.append((weight, *means))
        if not rows:
            continue
        top = max(row[1] for row in rows)
        sweet = [r for r in rows if r[1] >= 0.95 * top and r[2] <= 1e-3]
        spot.held[name] = bool(sweet)
        best = max(sweet, key=lambda r: r[1]) if sweet else max(rows, key=lambda r: r[1] - r[2])
        notes.append(
            f"{name}: CWeight {best[0]:g} has BA {best[1]:.3f} (best {top:.3f}), KLD {best[2]:.1e}"
        )
    spot.numbers = "; ".join(notes)
    return [spot]


def claims_fig3(found: dict) -> list[Claim]:
    """KLD per data set."""
    better = Claim(
        "fig3",
        "The NEMSIS family has a lower KLD than 1PMB and SVM(KLD), at any class proportion",
        "mean KLD over splits, the better of NEMSIS and NEMSIS-NS against the better of the others",
    )
    notes = []
    for name in sets_of(found):
        means = {
            m: float(np.mean([r["kld"] for r in fine(found.get((name, m), []))] or [np.nan]))
            for m in METHODS["fig3"]
        }
        ours, theirs = (
            np.nanmin([means[m] for m in group])
            for group in (("NEMSIS-NS", "NEMSIS"), ("1PMB", "SVM(KLD)"))
        )
        better.held[name] = bool(ours < theirs)
        notes.append(f"{name}: {ours:.1e} against {theirs:.1e}")
    better.numbers = "; ".join(notes)
    return [better]


def claims_fig4(found: dict) -> list[Claim]:
    """KLD under drift, with the paper's way of sampling."""
    small = Claim(
        "fig4",
        "The NEMSIS family is fairly robust to small drift",
        "mean KLD at most 0.01 while the share of positives is within a quarter of training's",
    )
    large = Claim(
        "fig4",
        "When the class proportion changes by over 100 %, all methods do poorly",
        "mean KLD at least ten times as large as under small drift",
    )
    notes = []
    near = [i for i, factor in enumerate(FACTORS) if 0.75 <= factor <= 1.25]
    far = [i for i, factor in enumerate(FACTORS) if factor >= 2.0]
    for (name, method), records in found.items():
        good = fine(records)
        if not good:
            continue
        mean = np.mean([record["paper"] for record in good], axis=0)
        if method != "1PMB":
            small.held[f"{name} {method}"] = bool(mean[near].max() <= 0.01)
        large.held[f"{name} {method}"] = bool(mean[far].max() >= 10 * mean[near].max())
        notes.append(f"{name} {method}: {mean[near].max():.1e} near, {mean[far].max():.1e} far")
    small.numbers = large.numbers = "; ".join(notes)
    return [small, large]


def _claims_hybrid(figure: str, found: dict, ours: tuple[str, str], what: str) -> list[Claim]:
    ends = medians(figure, found, lambda name: -np.inf)
    best = {
        name: max(last for (n, _), (last, _) in ends.items() if n == name)
        for name in sets_of(found)
    }
    results = medians(figure, found, lambda name: 0.99 * best[name])
    better = Claim(
        figure, f"{what} is often better than 1PMB", "median of the last value", needed=0.5
    )
    faster = Claim(
        figure,
        f"{what} is often faster than 1PMB",
        "median seconds after which the value stays at 99 % of the best method's last one or more",
        needed=0.5,
    )
    for name in sets_of(found):
        row = {m: results[name, m] for m in (*ours, "1PMB") if (name, m) in results}
        if "1PMB" not in row or len(row) < 2:
            continue
        better.held[name] = max(row[m][0] for m in ours if m in row) > row["1PMB"][0]
        faster.held[name] = min(row[m][1] for m in ours if m in row) < row["1PMB"][1]
    better.numbers = "; ".join(f"{n} {m} {last:.4f}" for (n, m), (last, _) in results.items())
    faster.numbers = "; ".join(_times(results, method) for method in (*ours, "1PMB"))
    return [better, faster]


def claims(found: dict[str, dict]) -> list[Claim]:
    """What the paper says about the figures that were run, judged by the numbers."""
    judges = {
        "fig1": claims_fig1,
        "fig2": claims_fig2,
        "fig3": claims_fig3,
        "fig4": claims_fig4,
        "fig5": lambda f: _claims_hybrid("fig5", f, ("NEMSIS-NS", "NEMSIS"), "NEMSIS for Q"),
        "fig6": lambda f: _claims_hybrid("fig6", f, ("SCAN-NS", "SCAN"), "SCAN for CQReward"),
    }
    return [claim for figure, records in found.items() for claim in judges[figure](records)]
