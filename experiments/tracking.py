"""Track prevalences of streams without labels, and test for drift, on real data.

``python -m experiments.tracking --data-dir FOLDER`` prints, for three sets of two classes and three of more,

* ``trackers``: mean absolute error of the tracked prevalence and accuracy of the adapted classifier under monotone,
  square, sinusoidal and Bernoulli shifts, as in Baby et al. (2023): 1,000 chunks of 10 rows, whose prevalences move
  between equal ones and those of a single class;
* ``alarms``: false alarms of `track` in 100 windows of 500 rows without change, and how soon a change of the
  prevalence is found;
* ``tests``: how often the tests of drift reject at the level 5 %, each alone and either of them with Holm's correction:
  without change, with other prevalences, and (on adult) in another subgroup.

``--parts`` selects among these. A finished cell is kept in the folder ``--out``, and a run that was stopped goes on
with the same command.
"""

from __future__ import annotations

import argparse
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.model_selection import train_test_split

from experiments.catalogue import locate
from experiments.data import load
from experiments.errors import plain_errors
from experiments.quantification import Cells, quietly
from quapy_nemsis import NEMSISClassifier, Quantifier
from quapy_nemsis.drift import Background
from quapy_nemsis.tables.preparing import are_term_counts, preparer
from quapy_nemsis.tracking import Labelled, Tracker, track
from quapy_nemsis.tracking.trackers import get_tracker

SETS = ("adult", "cod-rna", "ijcnn1", "satellite", "connect-4", "academic-success")
SHIFTS = ("monotone", "square", "sinusoidal", "bernoulli")
#: Chunks of a stream, and their rows.
CHUNKS, ROWS = 1000, 10
#: Names of trackers in the table, with their method and options.
TRACKERS: dict[str, tuple[str, dict[str, Any]]] = {
    "em, 1 chunk": ("em", {"no_drift": 0.0}),
    "em, 10 chunks": ("em", {"chunks": 10, "no_drift": 0.0}),
    "forgetting-em, 0.7": ("forgetting-em", {"forget": 0.7}),
    "forgetting-em, 0.9": ("forgetting-em", {"forget": 0.9}),
    "fth": ("fth", {}),
    "rogd": ("rogd", {"horizon": CHUNKS}),
    "uogd": ("uogd", {"horizon": CHUNKS}),
    "atlas": ("atlas", {"horizon": CHUNKS}),
    "flh-ftl, rate 1/K": ("flh-ftl", {"rate": "1/K"}),
    "flh-ftl": ("flh-ftl", {}),
    "flh-ftl, local em": ("flh-ftl", {"local": "em"}),
}
#: Columns of adult in LIBSVM's encoding that say that a person is a woman, or a man.
WOMEN, MEN = 71, 72
#: By how much prevalences change in the tests: the share of the rows that are replaced by rows of the rarest class.
CHANGES = (0.02, 0.05, 0.1, 0.2)
WINDOW = 500
#: Rows that windows are drawn from, at most.
MOST = 20_000


def shifts(kind: str, n_classes: int, chunks: int, rng: np.random.Generator) -> np.ndarray:
    """Prevalences of each chunk, between equal ones and those of the first class alone (Baby et al. 2023)."""
    first, second = np.full(n_classes, 1.0 / n_classes), np.eye(n_classes)[0]
    t, period = np.arange(chunks), int(np.sqrt(chunks))
    if kind == "monotone":
        share = t / chunks
    elif kind == "square":
        share = (t // period) % 2.0
    elif kind == "sinusoidal":
        share = np.sin((t % period) * np.pi / period)
    else:
        share = np.cumsum(rng.random(chunks) < 1.0 / np.sqrt(chunks)) % 2.0
        share = np.concatenate([[0.0], share[:-1]])
    return np.outer(1.0 - share, first) + np.outer(share, second)


@lru_cache(maxsize=1)
def fitted(
    name: str,
    folder: Path,
    seed: int,
    rows: int,
    only: int | None = None,
    most: int | None = None,
    untuned: bool = False,
) -> tuple[Quantifier, Any, Any, np.ndarray]:
    """Return a quantifier trained on some rows of a set, and the other rows, as they are and prepared, with labels.

    With ``only``, it is trained on rows in which this column is not 0. The other rows are all, or ``most`` of them.
    With ``untuned``, its learner has a given step size, and no random features are tried. The latest answer is kept:
    the streams of all shifts have the same quantifier.
    """
    inner = folder if (folder / f"{name}.npz").is_file() else folder / "multiclass"
    loaded = load(locate(name, inner))
    features, y = loaded.features, loaded.y
    every = np.arange(len(y)) if only is None else np.flatnonzero(_column(features, only))
    train, _ = train_test_split(every, train_size=rows, random_state=seed)
    rest = np.setdiff1d(np.arange(len(y)), train)
    if most is not None and len(rest) > most:
        rest = np.sort(np.random.default_rng(seed).choice(rest, most, replace=False))
    tools = preparer(features[train], counts=are_term_counts(features))
    X = tools.fit_transform(features[train])
    quantifier = Quantifier(n_draws=2, random_state=seed)
    if untuned:
        learner = NEMSISClassifier("ba", reward="logistic", eta0=0.1, radius=10.0, n_passes=5)
        quantifier = Quantifier(learner, features=None, n_draws=2, random_state=seed)
    quantifier.fit(X, y[train])
    return quantifier, features[rest], tools.transform(features[rest]), y[rest]


def _column(features: Any, place: int) -> np.ndarray:
    """A column of a matrix, sparse or not."""
    column = features[:, [place]]
    return np.asarray(column.toarray() if scipy.sparse.issparse(column) else column).ravel()


def sample(y: np.ndarray, p: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    """Rows with labels drawn from prevalences p, without repetition as long as there are enough of each class."""
    found = []
    for k, count in enumerate(rng.multinomial(size, p)):
        own = np.flatnonzero(y == k)
        found.append(rng.choice(own, count, replace=count > len(own)))
    return rng.permutation(np.concatenate(found))


def trackers(name: str, folder: Path, seed: int, rows: int, kind: str, chunks: int) -> dict:
    """Error and accuracy of each tracker in a stream."""

    def evaluate() -> dict:
        quantifier, _, X, y = fitted(name, folder, seed, rows)
        rng = np.random.default_rng(seed)
        K = len(quantifier.classes_)
        truth = shifts(kind, K, chunks, rng)
        posteriors = quantifier.classify(X)
        labelled = Labelled.of(Background.of(quantifier))
        every: dict[str, Tracker] = {
            shown: get_tracker(
                method, labelled, {k: 1.0 / K if v == "1/K" else v for k, v in options.items()}
            )
            for shown, (method, options) in TRACKERS.items()
        }
        errors = {shown: np.zeros(chunks) for shown in ("base", "oracle", *every)}
        right = {shown: np.zeros(chunks) for shown in errors}
        for t, p in enumerate(truth):
            chosen = sample(y, p, ROWS, rng)
            chunk, labels = posteriors[chosen], y[chosen]
            errors["base"][t] = np.abs(labelled.shares - p).mean()
            right["base"][t] = (chunk.argmax(axis=1) == labels).mean()
            right["oracle"][t] = ((chunk * p / labelled.shares).argmax(axis=1) == labels).mean()
            for shown, tracker in every.items():
                # Rows are classified before the tracker sees them.
                right[shown][t] = (tracker.adapted(chunk).argmax(axis=1) == labels).mean()
                errors[shown][t] = np.abs(tracker.update(chunk) - p).mean()
        return {
            "error": {shown: float(values.mean()) for shown, values in errors.items()},
            "accuracy": {shown: float(values.mean()) for shown, values in right.items()},
        }

    return quietly(seed, evaluate)


def changed(shares: np.ndarray, change: float) -> np.ndarray:
    """Prevalences of which a share is moved to the rarest class."""
    rare = np.eye(len(shares))[int(shares.argmin())]
    return (1.0 - change) * shares + change * rare


def alarms(name: str, folder: Path, seed: int, rows: int) -> dict:
    """Windows with a false alarm in a stream without change, and the delay of alarms after a change."""

    def evaluate() -> dict:
        quantifier, _, X, y = fitted(name, folder, seed, rows, most=MOST)
        rng = np.random.default_rng(seed)
        shares = np.bincount(y) / len(y)

        def run(prevalences: list[np.ndarray]) -> list[list[str]]:
            source = (X[np.sort(sample(y, p, WINDOW, rng))] for p in prevalences)
            return [window.alarms for window in track(quantifier, source, window=WINDOW).windows]

        quiet = run([shares] * 100)
        found: dict[str, Any] = {
            "false prevalence": sum("prevalence" in on for on in quiet),
            "false mixture": sum("mixture" in on for on in quiet),
        }
        for change in CHANGES:
            after = run([changed(shares, change)] * 10)
            heard = [t for t, on in enumerate(after, 1) if "prevalence" in on]
            found[str(change)] = heard[0] if heard else None
            found[f"mixture {change}"] = sum("mixture" in on for on in after)
        return found

    return quietly(seed, evaluate)


def tests(
    name: str, folder: Path, seed: int, rows: int, windows: int, only: int | None, untuned: bool
) -> dict:
    """Numbers of windows in which the tests reject."""

    def evaluate() -> dict:
        quantifier, raw, X, y = fitted(name, folder, seed, rows, only, MOST, untuned)
        rng = np.random.default_rng(seed)
        background = Background.of(quantifier)
        scores = background.scores_of(quantifier, X)
        groups = {"all": np.arange(len(y))}
        if name == "adult":
            if only is not None:
                groups["all"] = np.flatnonzero(_column(raw, only))
            groups["women"] = np.flatnonzero(_column(raw, WOMEN))
        found: dict[str, int] = {}

        def count(title: str, part: np.ndarray) -> None:
            both = background.tests(scores[part])
            rejects = {result.test: result.p_value < 0.05 for result in both}
            rejects["either"] = any(result.rejects for result in both)
            for test, rejected in rejects.items():
                key = f"{title}: {test}"
                found[key] = found.get(key, 0) + int(rejected)

        own = groups["all"]
        shares = np.bincount(y[own]) / len(own)
        for _ in range(windows):
            count("no change", rng.choice(own, WINDOW, replace=False))
            for change in CHANGES:
                p = changed(shares, change)
                count(f"change {change}", own[sample(y[own], p, WINDOW, rng)])
            if "women" in groups:
                count("women", rng.choice(groups["women"], WINDOW, replace=False))
        return found

    return quietly(seed, evaluate)


def print_trackers(options: argparse.Namespace) -> None:
    """Print errors and accuracies of trackers."""
    cells = Cells(options.out / "trackers.jsonl")

    def keys(name: str, kind: str) -> list[tuple]:
        return [(name, seed, options.rows, kind, options.chunks) for seed in range(options.seeds)]

    # Streams with the same quantifier follow each other.
    every = [
        (name, seed, options.rows, kind, options.chunks)
        for name in options.sets
        for seed in range(options.seeds)
        for kind in SHIFTS
    ]
    cells.run(trackers, every, options.data_dir, options.jobs)
    for what, title, scale in (
        ("error", "mean absolute error of the prevalence, in %", 100),
        ("accuracy", "accuracy of the adapted classifier, in %", 100),
    ):
        print(f"\n{title}")
        for group, columns in (
            ("by shift", [(kind, [(n, kind) for n in options.sets]) for kind in SHIFTS]),
            ("by set", [(name, [(name, kind) for kind in SHIFTS]) for name in options.sets]),
        ):
            print(
                f"{group:20}"
                + "".join(f"{shown[:11]:>12}" for shown, _ in columns)
                + f"{'mean':>9}"
            )
            for shown in ("base", *TRACKERS, "oracle"):
                means = [
                    scale
                    * np.mean([cells[key][what][shown] for pair in pairs for key in keys(*pair)])
                    for _, pairs in columns
                ]
                print(
                    f"{shown:20}" + "".join(f"{v:12.2f}" for v in means) + f"{np.mean(means):9.2f}"
                )


def print_alarms(options: argparse.Namespace) -> None:
    """Print false alarms and delays."""
    cells = Cells(options.out / "alarms.jsonl")

    def keys(name: str) -> list[tuple]:
        return [(name, seed, options.rows) for seed in range(options.streams)]

    cells.run(alarms, [k for n in options.sets for k in keys(n)], options.data_dir, options.jobs)
    print(
        f"\nalarms of track, windows of {WINDOW} rows: streams of 100 windows without change that have a false alarm;"
        "\nthen, for each change of prevalence: streams in which it is found within 10 windows, mean delay in windows"
    )
    print(
        f"{'':18}{'prevalence':>11}{'mixture':>9}" + "".join(f"{change:>14}" for change in CHANGES)
    )
    for name in options.sets:
        found = [cells[key] for key in keys(name)]
        false = [np.mean([c[f"false {k}"] > 0 for c in found]) for k in ("prevalence", "mixture")]
        line = f"{name:18}{false[0]:11.2f}{false[1]:9.2f}"
        for change in CHANGES:
            heard = [cell[str(change)] for cell in found if cell[str(change)] is not None]
            delay = f"{np.mean(heard):.1f}" if heard else "-"
            line += f"{len(heard) / len(found):8.2f} {delay:>5}"
        print(line)


def print_tests(options: argparse.Namespace) -> None:
    """Print how often tests reject."""
    cells = Cells(options.out / "tests.jsonl")
    each = -(-options.windows // options.fits)

    def keys(name: str, only: int | None = None) -> list[tuple]:
        return [
            (name, seed, options.rows, each, only, options.untuned) for seed in range(options.fits)
        ]

    groups = {name: keys(name) for name in options.sets}
    if "adult" in options.sets:
        groups["adult, men"] = keys("adult", MEN)
    cells.run(tests, [k for g in groups.values() for k in g], options.data_dir, options.jobs)
    print(
        f"\nshare of {each * options.fits:,} windows of {WINDOW} rows in which a test rejects at 5 %, and the standard "
        "error\nwithout change, over quantifiers; either: with Holm's correction, 5 % for both tests together"
    )
    titles = ["no change", *(f"change {change}" for change in CHANGES), "women"]
    for test in ("prevalence", "mixture", "either"):
        print(f"\n{test:18}" + "".join(f"{title:>12}" for title in ["error", *titles]))
        for name, group in groups.items():
            found = [cells[key] for key in group]
            quiet = np.array([cell[f"no change: {test}"] / each for cell in found])
            line = f"{name:18}{quiet.std() / np.sqrt(len(quiet)):12.4f}"
            for title in titles:
                key = f"{title}: {test}"
                if key in found[0]:
                    line += f"{sum(c[key] for c in found) / (each * options.fits):12.3f}"
            print(line)


def main() -> None:
    """Run the parts."""
    parts = {"trackers": print_trackers, "alarms": print_alarms, "tests": print_tests}
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tracking", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("--data-dir", type=Path, required=True, help="folder of data files, as NAME.npz")
    add("--parts", nargs="+", choices=parts, default=list(parts), metavar="PART")
    add("--sets", nargs="+", default=list(SETS), metavar="SET", help="names of data sets")
    add("--rows", type=int, default=2000, help="training rows (default %(default)s)")
    add("--seeds", type=int, default=3, help="streams of each shift (default %(default)s)")
    add("--chunks", type=int, default=CHUNKS, help="chunks of a stream (default %(default)s)")
    add("--streams", type=int, default=20, help="streams with alarms (default %(default)s)")
    add("--fits", type=int, default=50, help="quantifiers that are tested (default %(default)s)")
    add("--untuned", action="store_true", help="tests with learners that are fitted faster")
    add("--windows", type=int, default=1000, help="windows of each set (default %(default)s)")
    add("--jobs", type=int, default=1, help="processes (default %(default)s)")
    add("--out", type=Path, default=Path("results/tracking"), help="folder of finished cells")
    options = parser.parse_args()
    for part in options.parts:
        parts[part](options)


if __name__ == "__main__":
    with plain_errors():
        main()
