"""What the learners compute, written down: ``python -m tests.golden.record`` makes the files of this folder anew.

A case is a name and a list of numbers: weights, intercept, the step size, levels and the like. `test_golden` computes
all cases again and compares. Make the record anew only when results are meant to change, and say in the changelog why.
Files in ``version1`` to ``version4`` were saved by these versions of the format and are never made anew.
"""

from __future__ import annotations

import itertools
import json
import platform
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import llvmlite.binding
import numba
import numpy as np
import scipy
import scipy.sparse
import sklearn

from quapy_nemsis import (
    CANClassifier,
    NEMSISClassifier,
    OnePassMiniBatchClassifier,
    SCANClassifier,
    SVMPerfClassifier,
    merge,
)

FOLDER = Path(__file__).parent
NESTED = ("kld", "bakld:0.3", "q", "q:2", "nss", "ba", "gmean", "hmean", "qmean")
RATIOS = ("cq", "bk")
REWARDS, ESTIMATES = ("hinge", "logistic"), ("counts", "surrogate")
AVERAGES = ("suffix", "all", "last")
LOSSES = (
    "01",
    "f1",
    "ba",
    "kld",
    "nkld",
    "ae",
    "rae",
    "qrecall",
    "qacc",
    "qf1",
    "qgm",
    "bakld:0.3",
    "cq",
    "bk",
)
CHUNKS = (0, 1, 40, 47, 200, 301)


def platform_key() -> dict[str, str]:
    """What exact numbers depend on beside this package."""
    return {
        "machine": platform.machine(),
        "processor": llvmlite.binding.get_host_cpu_name(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


# Whether, and with which seed, points are moved by a rounding error each.
_nudge: int | None = None


def points() -> tuple[np.ndarray, np.ndarray]:
    """301 rows of 6 features, of which many entries are 0; 29 % positive."""
    rng = np.random.default_rng(7)
    y = rng.random(301) < 0.3
    X = rng.normal(size=(301, 6)) * (rng.random((301, 6)) < 0.7)
    X[:, 0] += np.where(y, 0.8, -0.6)
    X[:, 1] -= np.where(y, 0.3, 0.0)
    if _nudge is not None:
        X *= 1.0 + np.random.default_rng(_nudge).choice([-1.0, 0.0, 1.0], X.shape) * 2.0**-52
    return X, y


def step_size(value: float) -> float:
    """A step size, moved by a few rounding errors where points are: float32 rows cannot be moved so little."""
    return value if _nudge is None else value * (1.0 + (_nudge - 4) * 2.0**-52)


def kinds_of_rows() -> dict[str, object]:
    """The same rows, dense and CSR, in both precisions."""
    X, _ = points()
    single = X.astype(np.float32)
    return {
        "dense64": X,
        "dense32": single,
        "csr64": scipy.sparse.csr_matrix(X),
        "csr32": scipy.sparse.csr_matrix(single),
    }


def train(learner, X, how: str):
    """Train by `fit`, or by `partial_fit` over chunks."""
    y = points()[1]
    if how == "fit":
        return learner.fit(X, y)
    for start, stop in itertools.pairwise(CHUNKS):
        learner.partial_fit(X[start:stop], y[start:stop], classes=[False, True])
    return learner


def numbers(learner) -> list[float]:
    """All that a case holds of a fitted learner."""
    found = [*learner.coef_[0], *learner.intercept_]
    for name in ("eta0_", "radius_", "t_", "n_iter_", "gap_"):
        if hasattr(learner, name):
            found.append(getattr(learner, name))
    if hasattr(learner, "levels_"):
        found += [len(learner.levels_), *learner.levels_[-3:]]
    history = getattr(learner, "history_", {})
    found += [
        history[name][-1]
        for name in ("P", "N", "value", "primal", "dual", "loss")
        if history.get(name)
    ]
    return [float(number) for number in found]


def online_cases(
    kind: type, measures: tuple[str, ...], passes: int
) -> Iterator[tuple[str, Callable]]:
    """Everything that NEMSIS and SCAN can be told."""
    rows = kinds_of_rows()
    choices = itertools.product(
        measures, REWARDS, ESTIMATES, AVERAGES, (True, False), rows, ("fit", "chunks")
    )
    for measure, reward, estimates, average, monotone, form, how in choices:
        options = {
            "measure": measure,
            "reward": reward,
            "estimates": estimates,
            "average": average,
            "monotone": monotone,
        }

        def given(options=options, form=form, how=how):
            radius = 2.0 if options["monotone"] else np.inf
            learner = kind(
                **options,
                eta0=step_size(0.3),
                radius=radius,
                n_passes=passes,
                random_state=3,
                record_every=100,
            )
            return train(learner, rows[form], how), rows[form]

        yield f"{measure} {reward} {estimates} {average} {monotone} {form} {how} given", given
        if (average, monotone) == ("suffix", True) and form in ("dense64", "csr32"):

            def chosen(options=options, form=form, how=how):
                return train(
                    kind(**options, n_passes=passes, random_state=3), rows[form], how
                ), rows[form]

            yield f"{measure} {reward} {estimates} {average} {monotone} {form} {how} auto", chosen


def scan_cases() -> Iterator[tuple[str, Callable]]:
    """SCAN, and with other epochs."""
    yield from online_cases(SCANClassifier, RATIOS, 3)
    X = points()[0]
    for epochs in (
        {"first_epoch": 7},
        {"growth": 1.0},
        {"level_share": 1.5, "fit_intercept": False},
    ):
        for how in ("fit", "chunks"):
            learner = SCANClassifier("cq", eta0=0.5, n_passes=5, random_state=0, **epochs)
            yield f"{epochs} {how}", lambda learner=learner, how=how: (train(learner, X, how), X)


def nemsis_cases() -> Iterator[tuple[str, Callable]]:
    """NEMSIS, and what is left: no intercept, no shuffling, a bound, a tiny radius, a long stream, merging."""
    yield from online_cases(NEMSISClassifier, NESTED, 2)
    X, y = points()
    others = (
        {"fit_intercept": False},
        {"shuffle": False},
        {"estimates": "surrogate", "reward_bound": 0.2},
        {"radius": 1e-3, "eta0": 30.0, "n_passes": 40},
        {"reward": "logistic", "n_passes": 300},
        {"eta0": "auto", "radius": 1.0},
        {"radius": "auto"},
    )
    for options in others:
        learner = NEMSISClassifier(
            "q", **{"eta0": 0.3, "radius": 3.0, "random_state": 1, "n_passes": 5, **options}
        )
        yield f"{options}", lambda learner=learner: (learner.fit(X, y), X)

    def raced():
        learner = NEMSISClassifier("bakld", random_state=0)
        order = np.random.default_rng(1).integers(0, len(y), 20_000)
        for part in np.array_split(order, 7):
            learner.partial_fit(X[part], y[part], classes=[False, True])
        return learner, X

    yield "a stream that ends its choice", raced
    for kind, measure in ((NEMSISClassifier, "q"), (SCANClassifier, "cq")):

        def merged(kind=kind, measure=measure):
            base = kind(measure, eta0=0.3).partial_fit(X[:100], y[:100])
            parts = [train_on(base, X[k::3], y[k::3]) for k in range(3)]
            return merge(parts, base).partial_fit(X[:50], y[:50]), X

        yield f"merged {kind.__name__}", merged


def train_on(base, X, y):
    """A copy of a learner, trained on further rows."""
    import copy

    return copy.deepcopy(base).partial_fit(X, y)


def minibatch_cases() -> Iterator[tuple[str, Callable]]:
    """1PMB, every loss."""
    rows = kinds_of_rows()
    for loss, average, form, how in itertools.product(LOSSES, AVERAGES, rows, ("fit", "chunks")):

        def given(loss=loss, average=average, form=form, how=how):
            options = {
                "eta0": step_size(0.7),
                "radius": 4.0,
                "n_passes": 4,
                "random_state": 3,
                "record_every": 100,
            }
            learner = OnePassMiniBatchClassifier(loss, buffer_size=40, average=average, **options)
            return train(learner, rows[form], how), rows[form]

        yield f"{loss} {average} {form} {how} given", given
        # Losses of measures could not choose in a stream when the record was made: they divided by 0.
        can_choose = how == "fit" or loss not in ("bakld:0.3", "cq", "bk")
        if average == "suffix" and form in ("dense64", "csr32") and can_choose:

            def chosen(loss=loss, form=form, how=how):
                learner = OnePassMiniBatchClassifier(
                    loss, buffer_size=40, n_passes=3, random_state=3
                )
                return train(learner, rows[form], how), rows[form]

            yield f"{loss} {average} {form} {how} auto", chosen


def can_cases() -> Iterator[tuple[str, Callable]]:
    """CAN, every measure, where the radius binds and where it does not."""
    rows, y = kinds_of_rows(), points()[1]
    choices = itertools.product((*NESTED, *RATIOS), (0.5, 20.0), rows, (True, False))
    for measure, radius, form, intercept in choices:
        learner = CANClassifier(measure, radius=radius, fit_intercept=intercept)
        yield (
            f"{measure} {radius} {form} {intercept}",
            lambda learner=learner, form=form: (learner.fit(rows[form], y), rows[form]),
        )


def svmperf_cases() -> Iterator[tuple[str, Callable]]:
    """The structural SVM, every loss."""
    rows, y = kinds_of_rows(), points()[1]
    for loss, C, form, intercept in itertools.product(LOSSES, (1.0, 100.0), rows, (True, False)):
        learner = SVMPerfClassifier(loss, C=C, fit_intercept=intercept, max_iter=200)
        yield (
            f"{loss} {C} {form} {intercept}",
            lambda learner=learner, form=form: (learner.fit(rows[form], y), rows[form]),
        )


GROUPS: dict[str, Callable[[], Iterator[tuple[str, Callable]]]] = {
    "nemsis": nemsis_cases,
    "scan": scan_cases,
    "can": can_cases,
    "svmperf": svmperf_cases,
    "minibatch": minibatch_cases,
}


def compute(group: str) -> dict[str, list[float]]:
    """Numbers of every case of a group."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, make in GROUPS[group]():
            found[name] = numbers(make()[0])
    return found


def sensitive(group: str, cases: dict[str, list[float]]) -> np.ndarray:
    """Which cases a rounding error of the data changes by more than 1e-9: a prediction or a choice that it flips.

    Such cases cannot agree on another platform.
    """
    global _nudge
    found = np.zeros(len(cases), dtype=bool)
    for seed in range(8):
        _nudge = seed
        others = compute(group)
        found |= [not close(others[name], values) for name, values in cases.items()]
    _nudge = None
    return found


def close(found, expected) -> bool:
    """Whether numbers agree to 1e-9."""
    return len(found) == len(expected) and np.allclose(
        found, expected, rtol=1e-9, atol=1e-9, equal_nan=True
    )


def solve_the_same(name: str, found, expected) -> bool:
    """Whether two solutions of a structural SVM are of one problem, by the bounds that come with them.

    On another platform, a rounding error may change which cutting planes come next. The minimum lies between the dual
    and the primal value of each solution. As the objective contains ‖w‖²/(2C), weights are within √(2C·gap) of the
    best, where the gap is the difference of the values.
    """
    C = float(name.split()[1])
    primal, dual = (np.array([found[at], expected[at]]) for at in (-3, -2))
    distance = np.linalg.norm(np.subtract(found[:7], expected[:7]))
    return dual.max() <= primal.min() and distance <= np.sqrt(2.0 * C * (primal - dual)).sum()


def write(group: str) -> None:
    """Make the record of a group anew."""
    cases = compute(group)
    np.savez_compressed(
        FOLDER / f"{group}.npz",
        names=np.array(list(cases)),
        lengths=np.array([len(values) for values in cases.values()]),
        values=np.concatenate(list(cases.values())),
        sensitive=sensitive(group, cases),
        platform=np.array(json.dumps(platform_key())),
    )
    print(f"{group}: {len(cases)} cases")


def read(group: str) -> tuple[dict[str, np.ndarray], set[str], dict[str, str]]:
    """The record of a group, the names of sensitive cases, and the platform that it was made on."""
    with np.load(FOLDER / f"{group}.npz") as file:
        parts = np.split(file["values"], np.cumsum(file["lengths"])[:-1])
        cases = dict(zip(file["names"].tolist(), parts, strict=True))
        frail = set(file["names"][file["sensitive"]].tolist())
        return cases, frail, json.loads(file["platform"].item())


if __name__ == "__main__":
    for group in GROUPS:
        write(group)
