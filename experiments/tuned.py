"""Baselines with the care that they get in the literature: QuaPy's methods, calibrated, or tuned by GridSearchQ.

A tuned method is trained on 60 % of its rows for each point of its grid, and the point with the least mean absolute
error on samples of the other 40 % (APP for two classes, UPP for more) is trained again on all rows. That is QuaPy's
usual practice.
"""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import quapy as qp
import scipy.sparse
from quapy.method.aggregative import PCC
from quapy.model_selection import GridSearchQ
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from experiments.names import AGGREGATION_GRIDS, LEARNER_GRIDS
from quapy_nemsis import FourierFeatures
from quapy_nemsis.aggregation import ACC, EMQ, PACC, KDEyML


class _Memory:
    """Models that were fitted, what that took, and which of them the present method has used.

    Methods that are tuned on the same rows fit the same models. Each is fitted once, and its seconds are charged to
    each method that uses it.
    """

    def __init__(self) -> None:
        self.rows: Any = None
        self.fitted: dict[str, tuple[dict[str, Any], float]] = {}
        self.used: set[str] = set()
        self.saved_seconds = 0.0


_MEMORY = _Memory()


@contextmanager
def stopwatch(rows: Any) -> Iterator[Callable[[], float]]:
    """Measure the seconds that a method takes to train, as if nothing had been fitted before.

    Parameters
    ----------
    rows : object
        What the method is trained on. Models are remembered as long as it is the same.

    Yields
    ------
    callable
        Returns the seconds so far.
    """
    if rows != _MEMORY.rows:
        _MEMORY.fitted.clear()
        _MEMORY.rows = rows
    _MEMORY.used.clear()
    _MEMORY.saved_seconds, begin = 0.0, time.perf_counter()
    yield lambda: time.perf_counter() - begin + _MEMORY.saved_seconds


class RememberedLR(LogisticRegression):
    """Logistic regression that is fitted once for the same rows, labels and parameters.

    GridSearchQ fits the same models again and again, and so do methods that are compared on the same rows. `stopwatch`
    measures times all the same. With ``isotonic`` the posteriors are calibrated by isotonic regression on five folds.
    """

    def __init__(
        self,
        C: float = 1.0,
        class_weight: Any = None,
        max_iter: int = 1000,
        isotonic: bool = False,
    ):
        super().__init__(C=C, class_weight=class_weight, max_iter=max_iter)
        self.isotonic = isotonic

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> RememberedLR:
        """Fit the model, or take what was learned from the same rows before."""
        if sample_weight is not None:
            raise ValueError("rows have no weights here")
        if self.isotonic:
            plain = clone(self).set_params(isotonic=False)
            self.calibrated_ = isotonic(plain).fit(X, y)
            self.classes_ = self.calibrated_.classes_
            return self
        key = f"{_digest(X)} {_digest(np.asarray(y))} {self.get_params()}"
        if key not in _MEMORY.fitted:
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                super().fit(X, y)
            learned = {name: value for name, value in vars(self).items() if name.endswith("_")}
            _MEMORY.fitted[key] = learned, time.perf_counter() - begin
        elif key not in _MEMORY.used:
            _MEMORY.saved_seconds += _MEMORY.fitted[key][1]
        _MEMORY.used.add(key)
        vars(self).update(_MEMORY.fitted[key][0])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Labels, from calibrated posteriors if so asked."""
        return self.calibrated_.predict(X) if self.isotonic else super().predict(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Posteriors, calibrated if so asked."""
        return self.calibrated_.predict_proba(X) if self.isotonic else super().predict_proba(X)


def _digest(X: Any) -> str:
    parts = (X.data, X.indices, X.indptr) if scipy.sparse.issparse(X) else (X,)
    digest = hashlib.sha256(repr(X.shape).encode())
    for part in parts:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


Grids = list[dict[str, list[Any]]]


def selected(
    model: Any, grids: Grids, X: Any, y: np.ndarray, size: int, held: Any = None
) -> tuple[Any, dict[str, Any]]:
    """Return a model fitted with GridSearchQ, for samples of a size, and the parameters that it chose.

    Parameters
    ----------
    model : quantifier
        What is fitted.
    grids : list of dict
        Values of its parameters; the best point of all grids is taken.
    X, y : matrix, ndarray
        Training rows and labels.
    size : int
        Rows of a validation sample.
    held : protocol of QuaPy, optional
        Validation samples. Without it, samples are drawn from 40 % of the training rows, and the best model is
        fitted again to all rows.
    """
    refit = held is None
    train = qp.data.LabelledCollection(X, y)
    if held is None:
        train, rest = train.split_stratified(0.6, random_state=0)
        if train.n_classes == 2:
            held = qp.protocol.APP(rest, size, n_prevalences=21, repeats=5, random_state=0)
        else:
            held = qp.protocol.UPP(rest, size, repeats=100, random_state=0)
    searches = [
        GridSearchQ(model, grid, held, error="mae", refit=False, n_jobs=1).fit(*train.Xy)
        for grid in grids
    ]
    best = min(searches, key=lambda search: search.best_score_)
    found = best.best_model()
    return found.fit(X, y) if refit else found, best.best_params_


def tuned(model: Any, grids: Grids, size: int) -> Callable[[Any, Any], Any]:
    """Return a function that fits a model with GridSearchQ, for samples of a size."""
    return lambda X, y: selected(model, grids, X, y, size)[0]


def _fitted(model: Any) -> Callable[[Any, Any], Any]:
    return lambda X, y: model.fit(X, y)


def isotonic(learner: Any = None) -> CalibratedClassifierCV:
    """Logistic regression, or another learner, calibrated by isotonic regression on five folds."""
    learner = (
        LogisticRegression(max_iter=1000) if learner is None else learner
    )  # an unfitted forest has no length
    return CalibratedClassifierCV(learner, method="isotonic")


def _fourier(X: Any, y: np.ndarray) -> EMQ:
    """EMQ on calibrated logistic regression with random features, except for sparse rows."""
    learner = LogisticRegression(max_iter=1000)
    if not scipy.sparse.issparse(X):
        learner = make_pipeline(FourierFeatures(random_state=0), learner)
    return EMQ(isotonic(learner)).fit(X, y)


def baselines(size: int) -> dict[str, Callable[[Any, Any], Any]]:
    """Return functions that fit the baselines, by name, for test samples of a size."""
    of_learner = {f"classifier__{name}": values for name, values in LEARNER_GRIDS["LR"].items()}
    return {
        "EMQ(LR)": _fitted(EMQ(RememberedLR())),
        "EMQ(LR-isotonic)": _fitted(EMQ(isotonic())),
        "EMQ(LR-isotonic, Fourier)": _fourier,
        "EMQ(LR, bcts)": _fitted(
            EMQ(RememberedLR(), val_split=5, calib="bcts", on_calib_error="backup")
        ),
        "PCC(LR)": _fitted(PCC(RememberedLR())),
        "PCC(LR-isotonic)": _fitted(PCC(isotonic())),
        "EMQ tuned": tuned(
            EMQ(RememberedLR(), val_split=5, on_calib_error="backup"),
            [{**of_learner, **AGGREGATION_GRIDS["EMQ"]}],
            size,
        ),
        "ACC tuned": tuned(ACC(RememberedLR()), [of_learner], size),
        "PACC tuned": tuned(PACC(RememberedLR()), [of_learner], size),
        "KDEy tuned": tuned(
            KDEyML(RememberedLR()), [{**of_learner, **AGGREGATION_GRIDS["KDEy"]}], size
        ),
    }
