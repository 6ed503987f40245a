"""What the paper says about each figure, judged by the numbers of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from experiments.reproduce.pieces import FACTORS, METHODS


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
        """A claim is supported if it held in the share of cases that it needs, partly if in at least half of that."""
        if not self.held:
            return "not run"
        share = sum(self.held.values()) / len(self.held)
        if share >= self.needed:
            return "supported"
        return "partly" if share >= self.needed / 2 else "not supported"


def settled(record: dict, target: float, by: str = "seconds") -> float:
    """Return the seconds from which on a curve is at least at the target; infinite if it does not end there.

    By "seen" it is the number of points instead.
    """
    values, places = np.array(record["value"]), np.array(record[by])
    below = np.flatnonzero(values < target)
    if not len(below):
        return float(places[0])
    return float(places[below[-1] + 1]) if below[-1] + 1 < len(values) else np.inf


def fewer_points(
    frame: pd.DataFrame, target: float, first: str, second: str
) -> dict[str, list[int]]:
    """Return in how many splits of a data set the first method needs fewer points to the target, as many, and more."""
    online = frame[frame["method"].isin([first, second])]
    needed = online.assign(
        points=[settled(record, target, "seen") for record in online.to_dict("records")]
    )
    table = needed.pivot_table("points", ["data", "seed"], "method", sort=False)[[first, second]]
    signs = np.sign(table[first].fillna(np.inf) - table[second].fillna(np.inf)).fillna(0.0)
    return {
        str(name): [int((part == sign).sum()) for sign in (-1, 0, 1)]
        for name, part in signs.groupby(level="data", sort=False)
    }


def medians(frame: pd.DataFrame, targets: dict[str, float] | float) -> pd.DataFrame:
    """Return medians by data set and method: of the last value, and of the time from which on the target is kept."""
    goals = frame["data"].map(targets) if isinstance(targets, dict) else [targets] * len(frame)
    last = frame["value"].str[-1]
    time = [
        settled(record, goal) for record, goal in zip(frame.to_dict("records"), goals, strict=True)
    ]
    grouped = frame.assign(last=last, time=time).groupby(["data", "method"], sort=False)
    return grouped[["last", "time"]].median()


def _times(results: pd.DataFrame, *methods: str) -> str:
    words = results["time"].map(lambda time: f"{time:.3g} s" if np.isfinite(time) else "never")
    parts = {m: words[words.index.get_level_values("method") == m] for m in methods}
    return "; ".join(
        f"{method}: " + ", ".join(f"{name} {word}" for (name, _), word in part.items())
        for method, part in parts.items()
    )


def claims_fig1(frame: pd.DataFrame) -> list[Claim]:
    """Judge KLD over time."""
    converged = "median seconds after which KLD stays at 1e-3 or less"
    better = f"{converged}; of the two the better"
    comparable = Claim(
        "fig1",
        "NEMSIS-NS and NEMSIS end with a KLD comparable to 1PMB's and SVM(KLD)'s, or lower",
        "the better of both at most twice the better baseline's, or at most 1e-4",
    )
    faster = Claim(
        "fig1", "They converge significantly faster than SVM(KLD)", f"ten times: {better}"
    )
    than_batch = Claim("fig1", "They are often faster than 1PMB", better, needed=0.5)
    text = "NEMSIS-NS converges faster than NEMSIS, on three of four sets"
    ns = Claim(
        "fig1",
        text,
        "it needs fewer points until KLD stays at 1e-3 or less in most of the splits where the two differ",
        needed=0.75,
    )
    results = medians(frame, -1e-3)
    ours, both = ["NEMSIS-NS", "NEMSIS"], ["1PMB", "SVM(KLD)"]
    counts = fewer_points(frame, -1e-3, *ours)
    for name, row in results.groupby(level="data", sort=False):
        last, time = row.loc[name, "last"], row.loc[name, "time"]
        if len(row) == len(METHODS["fig1"]):
            best = time[ours].min()
            comparable.held[name] = -last[ours].max() <= max(2 * -last[both].max(), 1e-4)
            faster.held[name] = 10 * best <= time["SVM(KLD)"] and np.isfinite(best)
            than_batch.held[name] = best < time["1PMB"]
            fewer, _, more = counts[name]
            ns.held[name] = fewer > more
    comparable.numbers = "; ".join(
        f"{name} {method} {-last:.1e}" for (name, method), last in results["last"].items()
    )
    faster.numbers = _times(results, *ours, "SVM(KLD)")
    than_batch.numbers = _times(results, *ours, "1PMB")
    ns.numbers = "splits with fewer, equal, more points: " + "; ".join(
        f"{name} {', '.join(map(str, found))}" for name, found in counts.items()
    )
    return [comparable, faster, than_batch, ns]


def claims_fig2(frame: pd.DataFrame) -> list[Claim]:
    """Judge BA and KLD over CWeight."""
    spot = Claim(
        "fig2",
        "There is a CWeight where quantification and classification are both good",
        "BA within 5 % of its best and KLD at most 1e-3 at the same CWeight, means over splits",
    )
    notes = []
    means = frame.groupby(["data", "method"], sort=False)[["ba", "kld"]].mean()
    for name, rows in means.groupby(level="data", sort=False):
        top = rows["ba"].max()
        sweet = rows[(rows["ba"] >= 0.95 * top) & (rows["kld"] <= 1e-3)]
        spot.held[name] = bool(len(sweet))
        best = sweet["ba"].idxmax() if len(sweet) else (rows["ba"] - rows["kld"]).idxmax()
        ba, kld = rows.loc[best]
        weight = float(best[1])
        notes.append(f"{name}: CWeight {weight:g} has BA {ba:.3f} (best {top:.3f}), KLD {kld:.1e}")
    spot.numbers = "; ".join(notes)
    return [spot]


def claims_fig3(frame: pd.DataFrame) -> list[Claim]:
    """Judge KLD per data set."""
    better = Claim(
        "fig3",
        "The NEMSIS family has a lower KLD than 1PMB and SVM(KLD), at any class proportion",
        "mean KLD over splits, the better of NEMSIS and NEMSIS-NS against the better of the others",
    )
    family = frame["method"].str.startswith("NEMSIS").rename("ours")
    means = frame.groupby(["data", family, "method"], sort=False)["kld"].mean()
    least = (
        means.groupby(level=["data", "ours"], sort=False)
        .min()
        .unstack()
        .reindex(columns=[True, False])
    )
    least = least.loc[frame["data"].unique()]
    better.held = dict((least[True] < least[False]).items())
    better.numbers = "; ".join(
        f"{name}: {ours:.1e} against {theirs:.1e}" for name, ours, theirs in least.itertuples()
    )
    return [better]


def claims_fig4(frame: pd.DataFrame) -> list[Claim]:
    """Judge KLD under drift, with the paper's way of sampling."""
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
    factors = np.array(FACTORS)
    for (name, method), rows in frame.groupby(["data", "method"], sort=False):
        mean = np.mean(rows["paper"].tolist(), axis=0)
        near = mean[(factors >= 0.75) & (factors <= 1.25)].max()
        far = mean[factors >= 2.0].max()
        if method != "1PMB":
            small.held[f"{name} {method}"] = bool(near <= 0.01)
        large.held[f"{name} {method}"] = bool(far >= 10 * near)
        notes.append(f"{name} {method}: {near:.1e} near, {far:.1e} far")
    small.numbers = large.numbers = "; ".join(notes)
    return [small, large]


def _claims_hybrid(frame: pd.DataFrame, figure: str, what: str) -> list[Claim]:
    better = Claim(
        figure, f"{what} is often better than 1PMB", "median of the last value", needed=0.5
    )
    faster = Claim(
        figure,
        f"{what} is often faster than 1PMB",
        "median seconds after which the value stays at 99 % of the best method's last one or more",
        needed=0.5,
    )
    best = medians(frame, -np.inf)["last"].groupby(level="data").max()
    results = medians(frame, (0.99 * best).to_dict())
    for name, row in results.groupby(level="data", sort=False):
        row = row.droplevel("data")
        ours = row.drop("1PMB", errors="ignore")
        if len(ours) and len(ours) < len(row):
            better.held[name] = ours["last"].max() > row.loc["1PMB", "last"]
            faster.held[name] = ours["time"].min() < row.loc["1PMB", "time"]
    better.numbers = "; ".join(f"{n} {m} {last:.4f}" for (n, m), last in results["last"].items())
    faster.numbers = _times(results, *METHODS[figure])
    return [better, faster]


def claims(found: dict[str, pd.DataFrame]) -> list[Claim]:
    """Judge what the paper says about the figures that were run by their numbers."""
    judges = {
        "fig1": claims_fig1,
        "fig2": claims_fig2,
        "fig3": claims_fig3,
        "fig4": claims_fig4,
        "fig5": lambda frame: _claims_hybrid(frame, "fig5", "NEMSIS for Q"),
        "fig6": lambda frame: _claims_hybrid(frame, "fig6", "SCAN for CQReward"),
    }
    return [claim for figure, frame in found.items() for claim in judges[figure](frame)]
