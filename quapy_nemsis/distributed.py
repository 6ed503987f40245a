"""Training on a Dask cluster: rounds of local passes and merging (iterative parameter mixing).

In each round every partition makes one pass over its rows, starting from the same state, and the states are merged:
counts add up, weights are averaged in proportion to the points they were learned from. The result depends on the
partitioning and on `random_state`, not on the number of workers or on their timing: partitions are merged in their
order, and each pass is a pure function of what it is given, so a worker that dies costs time only. One partition gives
what `fit` gives. Needs the extra ``dask``.

Examples
--------
>>> import dask.array as da
>>> from sklearn.datasets import load_breast_cancer
>>> from sklearn.preprocessing import scale
>>> from quapy_nemsis import NEMSISClassifier
>>> from quapy_nemsis.distributed import fit, prevalence
>>> X, y = load_breast_cancer(return_X_y=True)
>>> X, y = da.from_array(scale(X), chunks=(200, 30)), da.from_array(y, chunks=200)
>>> learner = fit(NEMSISClassifier("bakld", random_state=0), X, y)
>>> prevalence(learner, X).round(1)
array([0.4, 0.6])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse
from joblib import parallel_config, register_parallel_backend
from joblib.parallel import BACKENDS
from sklearn.base import clone
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._kernels.rows import as_rows
from quapy_nemsis._state import Settings, State
from quapy_nemsis.classifiers import NEMSISClassifier, SCANClassifier
from quapy_nemsis.merging import Learner, merge_states
from quapy_nemsis.online import HISTORY

# How many rows, over all partitions, step size and radius are chosen on and posteriors are calibrated on.
_SAMPLE = 120_000

try:
    import dask
except ImportError as error:
    raise ImportError(
        "quapy_nemsis.distributed needs Dask: pip install 'quapy-nemsis[dask]'"
    ) from error


def fit(learner: Learner, X: Any, y: Any = None, *, verbose: int = 0) -> Learner:
    """Train on partitions, in `n_passes` rounds.

    Parameters
    ----------
    learner : NEMSISClassifier or SCANClassifier
        Its parameters are used; it is not changed.
    X : dask array, dask DataFrame, or sequence of delayed pairs (X, y)
        Rows, in partitions; they are kept in the memory of the workers (or of this process, without a cluster).
    y : dask array or Series, optional
        Labels, partitioned as X; None if X is a sequence of pairs.
    verbose : int, default=0
        Print a line per round.

    Returns
    -------
    NEMSISClassifier or SCANClassifier
        A fitted learner.
    """
    if not isinstance(learner, NEMSISClassifier | SCANClassifier):
        raise TypeError(f"NEMSIS and SCAN can be distributed; got {type(learner).__name__}")
    learner = clone(learner)
    settings = learner._settings()
    checked = (dask.delayed(_check_block)(pair, i) for i, pair in enumerate(_pairs(X, y)))
    blocks = dask.persist(*checked)
    if len(blocks) == 1:
        return dask.compute(dask.delayed(_fit_alone)(learner, blocks[0]))[0]
    facts = dask.compute(*(dask.delayed(_facts)(block) for block in blocks))
    classes = learner._two_classes(np.unique(np.concatenate([fact[0] for fact in facts])))
    widths = {fact[2] for fact in facts}
    if len(widths) > 1:
        raise ValueError(f"partitions have different numbers of features: {sorted(widths)}")
    learner.n_features_in_ = widths.pop()
    seed = int(check_random_state(learner.random_state).randint(2**31 - 1))
    total = sum(fact[1] for fact in facts)
    sampled = _gather(blocks, [fact[1] for fact in facts], total, classes, seed)
    rng = np.random.default_rng(seed)
    settings = learner._tune(*sampled, settings, rng)
    state = learner._state_type.start(learner.n_features_in_, settings)
    state = _rounds(learner, blocks, state, settings, classes, seed, verbose)
    learner.history_ = {column: [] for column in HISTORY}
    learner._keep(state, [], settings, classes)
    learner._calibrate(*sampled, settings, rng)
    return learner


def predict(learner: Learner, X: Any) -> Any:
    """Labels of a dask collection, partition by partition, not gathered.

    Parameters
    ----------
    learner : NEMSISClassifier or SCANClassifier
        Fitted.
    X : dask array, dask DataFrame, or sequence of delayed matrices
        Rows.

    Returns
    -------
    dask array, dask Series, or list of delayed arrays
        Labels, partitioned as X.
    """
    check_is_fitted(learner)
    if _is_array(X):
        return X.rechunk({1: -1}).map_blocks(
            learner.predict, drop_axis=1, dtype=learner.classes_.dtype
        )
    if _is_frame(X):
        meta = (None, learner.classes_.dtype)
        return X.map_partitions(_predict_frame, learner, meta=meta)
    return [dask.delayed(learner.predict)(part) for part in X]


def prevalence(learner: Learner, X: Any) -> np.ndarray:
    """Shares of the predicted labels over a dask collection, which is not gathered.

    Parameters
    ----------
    learner : NEMSISClassifier or SCANClassifier
        Fitted.
    X : dask array, dask DataFrame, or sequence of delayed matrices
        Rows.

    Returns
    -------
    ndarray of shape (2,)
        Estimated prevalence of `classes_[0]` and `classes_[1]`.
    """
    check_is_fitted(learner)
    parts = [dask.delayed(_count)(learner, part) for part in _parts(X)]
    counts = np.sum(dask.compute(*parts), axis=0)
    if counts.sum() == 0:
        raise ValueError("there are no rows to count")
    return counts / counts.sum()


@contextmanager
def quapy_on_dask() -> Iterator[None]:
    """Let QuaPy's own parallel work, such as `quapy.model_selection.GridSearchQ`, run on the current Dask client.

    QuaPy asks joblib for its backend "loky" by name, so that ``joblib.parallel_config(backend="dask")`` has no effect
    on it; within this context joblib's Dask backend answers to that name. Workers should have one thread each, because
    QuaPy's methods draw from numpy's global random state.

    Examples
    --------
    >>> import quapy as qp
    >>> from distributed import Client
    >>> from quapy_nemsis import NEMSIS
    >>> from quapy_nemsis.distributed import quapy_on_dask
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> data = qp.data.LabelledCollection(scale(X), y)
    >>> training, validation = data.split_stratified(0.6, random_state=0)
    >>> protocol = qp.protocol.APP(validation, 50, n_prevalences=5, repeats=2, random_state=0)
    >>> search = qp.model_selection.GridSearchQ(NEMSIS(), {"eta0": [0.1, 1.0]}, protocol)
    >>> with Client(processes=False, threads_per_worker=1, dashboard_address=None), quapy_on_dask():
    ...     search.fit(*training.Xy).best_params_
    {'eta0': ...}
    """
    with parallel_config(backend="dask"):  # which makes joblib register its backend
        before, dask_backend = BACKENDS["loky"], BACKENDS["dask"]
        # Parallel(backend=name) gives a nesting level, which the Dask backend would hand on to every task.
        register_parallel_backend(
            "loky", lambda nesting_level=None, **options: dask_backend(**options)
        )
        try:
            yield
        finally:
            register_parallel_backend("loky", before)


# ---------------------------------------------------------------- on the client


def _is_array(X: Any) -> bool:
    return hasattr(X, "map_blocks") and hasattr(X, "to_delayed")


def _is_frame(X: Any) -> bool:
    return hasattr(X, "map_partitions") and hasattr(X, "columns")


def _parts(X: Any) -> list:
    """Delayed partitions of rows."""
    if _is_array(X):
        return list(X.rechunk({1: -1}).to_delayed().ravel())
    return list(X.to_delayed()) if _is_frame(X) else list(X)


def _pairs(X: Any, y: Any) -> list:
    """Delayed pairs (X, y)."""
    if y is None:
        if not isinstance(X, Sequence) or not len(X):
            raise TypeError("without y, X must be a sequence of delayed pairs (X, y)")
        return list(X)
    rows = _parts(X)
    labels = list(np.ravel(np.array(y.to_delayed(), dtype=object)))
    if len(rows) != len(labels):
        raise ValueError(
            f"X has {len(rows)} partitions and y has {len(labels)}: partition both alike (rechunk)"
        )
    return [dask.delayed(tuple)([a, b]) for a, b in zip(rows, labels, strict=True)]


def _gather(
    blocks: tuple, sizes: list[int], total: int, classes: np.ndarray, seed: int
) -> tuple[Any, np.ndarray]:
    """Rows at random out of all partitions, in proportion to their sizes, and whether they are positive."""
    wanted = [-(-min(_SAMPLE, total) * size // total) for size in sizes]
    tasks = [
        dask.delayed(_sample)(block, number, (seed, 0, i))
        for i, (block, number) in enumerate(zip(blocks, wanted, strict=True))
    ]
    rows, labels = zip(*dask.compute(*tasks), strict=True)
    stack = scipy.sparse.vstack if scipy.sparse.issparse(rows[0]) else np.vstack
    X = stack(rows)
    return (X.tocsr() if scipy.sparse.issparse(X) else X), np.concatenate(labels) == classes[1]


def _rounds(
    learner: Learner,
    blocks: tuple,
    state: State,
    settings: Settings,
    classes: np.ndarray,
    seed: int,
    verbose: int,
) -> State:
    for i in range(learner.n_passes):
        base = dask.delayed(state)
        tasks = [
            dask.delayed(_local_pass)(
                base, block, classes[1], settings, learner.shuffle, (seed, i + 1, number)
            )
            for number, block in enumerate(blocks)
        ]
        states = dask.compute(*tasks)
        failed = [number for number, found in enumerate(states) if found is None]
        if failed:
            raise ValueError(
                f"the weights became infinite or NaN in partition {failed[0]}: scale the features "
                f"(sklearn.preprocessing.StandardScaler) or lower eta0 (now {learner.eta0!r})"
            )
        state = merge_states(list(states), settings, state)
        if verbose:
            value = state.value(settings.measure)
            print(
                f"{type(learner).__name__}: round {i + 1}/{learner.n_passes}, {state.t} samples, "
                f"{settings.measure.name} {value:.5f}",
                flush=True,
            )
    return state


# --------------------------------------------------------------- on the workers


def _check_block(pair: tuple, number: int) -> tuple[Any, np.ndarray]:
    try:
        X, y = pair
        return check_X_y(X, y, accept_sparse="csr", dtype=[np.float64, np.float32], order="C")
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error


def _facts(block: tuple) -> tuple[np.ndarray, int, int]:
    X, y = block
    return np.unique(y), X.shape[0], X.shape[1]


def _fit_alone(learner: Learner, block: tuple) -> Learner:
    return learner.fit(*block)


def _sample(block: tuple, number: int, seed: tuple) -> tuple[Any, np.ndarray]:
    X, y = block
    rows = np.random.default_rng(seed).permutation(len(y))[:number]
    return X[rows], y[rows]


def _local_pass(
    base: State, block: tuple, label: Any, settings: Settings, shuffle: bool, seed: tuple
) -> State | None:
    X, y = block
    order = np.random.default_rng(seed).permutation(len(y)) if shuffle else np.arange(len(y))
    state = base.copy()
    return state if state.walk(as_rows(X), y == label, order, settings) else None


def _predict_frame(frame: Any, learner: Learner) -> Any:
    import pandas as pd

    return pd.Series(learner.predict(frame.to_numpy()), index=frame.index)


def _count(learner: Learner, part: Any) -> np.ndarray:
    if not part.shape[0]:
        return np.zeros(2)
    labels = learner.predict(part.to_numpy() if hasattr(part, "to_numpy") else part)
    return np.array([(labels == label).sum() for label in learner.classes_], dtype=float)
