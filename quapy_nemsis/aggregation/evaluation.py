"""Predictions for all samples of a protocol: rows are classified once, samples aggregated together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from quapy_nemsis.aggregation.samples import CompiledAggregation, Samples, class_codes
from quapy_nemsis.quantifiers._quapy import qp


def _draws_rows(protocol: Any) -> bool:
    """Whether the samples of a protocol are rows of one collection, so that row indices say all about them."""
    base = qp.protocol.OnLabelledCollectionProtocol
    return (
        isinstance(protocol, base)
        and type(protocol).sample is base.sample
        and type(protocol).__call__ is base.__call__
        and protocol.random_state != -1
    )


def prediction(
    model: Any,
    protocol: Any,
    aggr_speedup: str | bool = "auto",
    verbose: bool = False,
    n_jobs: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the prevalences of all samples of a protocol, as `quapy.evaluation.prediction` does.

    If the quantifier is from `quapy_nemsis.aggregation` and the samples are drawn from one collection (APP, UPP, NPP,
    Dirichlet), each row is classified only once, and all samples are aggregated together. Otherwise, QuaPy's function
    does the work.

    Parameters
    ----------
    model : quantifier
        A fitted quantifier.
    protocol : protocol of QuaPy
        The protocol that draws the samples.
    aggr_speedup : {"auto", "force", True, False}, default="auto"
        As in QuaPy. False classifies each sample on its own.
    verbose : bool, default=False
        Whether QuaPy's function shows progress.
    n_jobs : int, optional
        Number of threads (see `CompiledAggregation.aggregate_samples`).

    Returns
    -------
    tuple of ndarray
        True and estimated prevalences, each of shape (n_samples, n_classes).

    Examples
    --------
    >>> from quapy.data import LabelledCollection
    >>> from quapy.protocol import UPP
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from quapy_nemsis.aggregation import PACC
    >>> X, y = load_iris(return_X_y=True)
    >>> quantifier = PACC(LogisticRegression(max_iter=1000)).fit(X, y)
    >>> protocol = UPP(LabelledCollection(X, y), sample_size=100, repeats=50)
    >>> true, estimated = prediction(quantifier, protocol)
    >>> true.shape, bool(abs(true - estimated).mean() < 0.02)
    ((50, 3), True)
    """
    together = isinstance(model, CompiledAggregation) and _draws_rows(protocol)
    if not together or aggr_speedup not in (True, "auto", "force"):
        return qp.evaluation.prediction(model, protocol, aggr_speedup, verbose)
    with qp.util.temp_seed(protocol.random_state):
        indices = protocol.samples_parameters()
    data = protocol.get_labelled_collection()
    samples = Samples.of(indices, len(data))
    drawn, places = np.unique(samples.rows, return_inverse=True)
    rows = data.instances if len(drawn) == len(data) else _safe_indexing(data.instances, drawn)
    renumbered = Samples(places.astype(np.int64), samples.starts)
    estimated = model.aggregate_samples(model.classify(rows), list(renumbered.each()), n_jobs)
    return samples.shares(class_codes(data.labels, data.classes_), data.n_classes), estimated


def evaluate(
    model: Any,
    protocol: Any,
    error_metric: str | Callable[..., Any],
    aggr_speedup: str | bool = "auto",
    verbose: bool = False,
    n_jobs: int | None = None,
) -> Any:
    """Evaluate a quantifier on all samples of a protocol, as `quapy.evaluation.evaluate` does.

    Parameters
    ----------
    model, protocol, aggr_speedup, verbose, n_jobs
        As for `prediction`.
    error_metric : str or callable
        A function of true and estimated prevalences, or the name of a function in `quapy.error`, such as "mae".

    Returns
    -------
    float or ndarray
        What the metric returns.

    Examples
    --------
    >>> from quapy.data import LabelledCollection
    >>> from quapy.protocol import UPP
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from quapy_nemsis.aggregation import EMQ
    >>> X, y = load_iris(return_X_y=True)
    >>> quantifier = EMQ(LogisticRegression(max_iter=1000)).fit(X, y)
    >>> evaluate(quantifier, UPP(LabelledCollection(X, y), sample_size=100), "mae") < 0.02
    np.True_
    """
    metric = qp.error.from_name(error_metric) if isinstance(error_metric, str) else error_metric
    return metric(*prediction(model, protocol, aggr_speedup, verbose, n_jobs))


def evaluation_report(
    model: Any,
    protocol: Any,
    error_metrics: str | Iterable[str | Callable[..., Any]] = "mae",
    aggr_speedup: str | bool = "auto",
    verbose: bool = False,
    n_jobs: int | None = None,
) -> Any:
    """Evaluate a quantifier on each sample of a protocol, as `quapy.evaluation.evaluation_report` does.

    Parameters
    ----------
    model, protocol, aggr_speedup, verbose, n_jobs
        As for `prediction`.
    error_metrics : str, callable or iterable of them, default="mae"
        Functions of true and estimated prevalences, or names of those in `quapy.error`.

    Returns
    -------
    DataFrame
        True and estimated prevalences and all errors, with a row for each sample.

    Examples
    --------
    >>> from quapy.data import LabelledCollection
    >>> from quapy.protocol import UPP
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> from quapy_nemsis.aggregation import ACC
    >>> X, y = load_iris(return_X_y=True)
    >>> quantifier = ACC(LogisticRegression(max_iter=1000)).fit(X, y)
    >>> report = evaluation_report(quantifier, UPP(LabelledCollection(X, y), 100), ["mae", "mse"])
    >>> list(report.columns), len(report)
    (['true-prev', 'estim-prev', 'mae', 'mse'], 100)
    """
    found = prediction(model, protocol, aggr_speedup, verbose, n_jobs)
    return qp.evaluation._prevalence_report(*found, error_metrics)
