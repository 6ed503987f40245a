"""Training on a Dask cluster in rounds of local passes and merging (iterative parameter mixing).

In each round, a copy of the current state makes one pass over each partition, and the resulting states are merged:
counts are added, and weights are averaged in proportion to the points they were learned from. The result depends on
the partitions and on `random_state`, but not on the number of workers or their timing. Partitions are merged in order,
and each pass is a pure function of its inputs, so a worker that dies costs only time. With one partition, the result is
that of the learner's own `fit`. The module needs the extra ``dask``.

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

import reprlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from joblib import parallel_config, register_parallel_backend
from joblib.parallel import BACKENDS
from sklearn.base import clone
from sklearn.utils import check_random_state, check_X_y
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._kernels.rows import as_rows
from quapy_nemsis._validation import (
    canonical,
    class_factors,
    encode,
    refuse_divergence,
    several_classes,
)
from quapy_nemsis.learners import NEMSISClassifier, SCANClassifier
from quapy_nemsis.learners.base import no_history
from quapy_nemsis.learners.calibration import Calibration
from quapy_nemsis.learners.scores import scale_of
from quapy_nemsis.learners.state import UNWEIGHTED, Data, State
from quapy_nemsis.learners.tuning import held_out_scores, tune
from quapy_nemsis.merging import Learner

__all__ = ["fit", "predict", "prevalence", "quapy_on_dask"]

# Number of rows, sampled from all partitions, for tuning and calibration; and the minimum number of each class among
# them, two for each of the five folds of tuning.
_SAMPLE, _LEAST = 120_000, 10

try:
    import dask
    import dask.array
except ImportError as error:
    raise ImportError(
        "quapy_nemsis.distributed needs Dask: pip install 'quapy-nemsis[dask]'"
    ) from error


def fit(learner: Learner, X: Any, y: Any = None, *, verbose: int = 0) -> Learner:
    """Train a learner on partitioned data, in `n_passes` rounds.

    Parameters
    ----------
    learner : NEMSISClassifier or SCANClassifier
        A learner whose parameters are used. The learner itself is not changed.
    X : dask array, dask DataFrame, or sequence of delayed pairs (X, y)
        Partitioned rows. They are kept in the memory of the workers (without a cluster, of this process). Empty
        partitions, as left by a filter, have no effect.
    y : dask array or Series, optional
        Labels, partitioned like X; None if X is a sequence of pairs.
    verbose : int, default=0
        If not 0, print a line per round.

    Returns
    -------
    NEMSISClassifier or SCANClassifier
        A fitted learner.
    """
    if not isinstance(learner, NEMSISClassifier | SCANClassifier):
        raise TypeError(
            f"only NEMSIS and SCAN learners can be distributed; got {type(learner).__name__}"
        )
    learner = clone(learner)
    learner.settings()  # raises an error for invalid parameters
    checked = (dask.delayed(_check_block)(pair, i) for i, pair in enumerate(_pairs(X, y)))
    blocks = dict(enumerate(dask.persist(*checked)))
    facts = dask.compute({i: dask.delayed(_facts)(block) for i, block in blocks.items()})[0]
    facts = {i: fact for i, fact in facts.items() if fact.rows}
    blocks = {i: blocks[i] for i in facts}
    _agree(facts)
    names = next(iter(facts.values())).common["columns"]
    if len(blocks) == 1:
        alone = [dask.delayed(_fit_alone)(learner, block) for block in blocks.values()]
        (learner,) = dask.compute(*alone)
    else:
        _fit_together(learner, blocks, list(facts.values()), verbose)
    if names is not None:
        learner.feature_names_in_ = np.array(names, dtype=object)
    return learner


def predict(learner: Learner, X: Any) -> Any:
    """Predict the labels of a dask collection lazily, partition by partition.

    Parameters
    ----------
    learner : NEMSISClassifier or SCANClassifier
        A fitted learner.
    X : dask array, dask DataFrame, or sequence of delayed matrices
        Rows.

    Returns
    -------
    dask array, dask Series, or list of delayed arrays
        Labels, partitioned like X.
    """
    check_is_fitted(learner)
    if _is_array(X):
        meta = learner.classes_[:0]
        return X.rechunk({1: -1}).map_blocks(_labels, learner, drop_axis=1, meta=meta)
    if _is_frame(X):
        return X.map_partitions(_labels_of_frame, learner, meta=(None, learner.classes_.dtype))
    return [dask.delayed(_labels)(part, learner) for part in _parts(X, "predict")]


def prevalence(learner: Learner, X: Any) -> np.ndarray:
    """Estimate the prevalence of the classes in a dask collection, without gathering its rows.

    Parameters
    ----------
    learner : NEMSISClassifier or SCANClassifier
        A fitted learner.
    X : dask array, dask DataFrame, or sequence of delayed matrices
        Rows.

    Returns
    -------
    ndarray of shape (n_classes,)
        Estimated prevalences, in the order of `classes_`.
    """
    check_is_fitted(learner)
    parts = [dask.delayed(_count)(part, learner) for part in _parts(X, "predict")]
    counts = np.sum(dask.compute(*parts), axis=0)
    if counts.sum() == 0:
        raise ValueError("X has no rows to count")
    return counts / counts.sum()


@contextmanager
def quapy_on_dask() -> Iterator[None]:
    """Run QuaPy's own parallel work, such as `quapy.model_selection.GridSearchQ`, on the current Dask client.

    QuaPy requests joblib's backend "loky" by name, so ``joblib.parallel_config(backend="dask")`` has no effect on it.
    Within this context, that name refers to joblib's Dask backend. Workers should have one thread each, because QuaPy's
    methods use numpy's global random state.

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
    with parallel_config(backend="dask"):  # this makes joblib register its Dask backend
        before, dask_backend = BACKENDS["loky"], BACKENDS["dask"]
        # Parallel(backend=name) passes a nesting level, which the Dask backend would pass on to every task.
        register_parallel_backend(
            "loky", lambda nesting_level=None, **options: dask_backend(**options)
        )
        try:
            yield
        finally:
            register_parallel_backend("loky", before)


# ---------------------------------------------------------------- on the client


def _is_array(X: Any) -> bool:
    return isinstance(X, dask.array.Array) and X.ndim == 2


def _is_frame(X: Any) -> bool:
    # Check the type, as a delayed object has every attribute.
    return hasattr(type(X), "map_partitions") and getattr(X, "ndim", 0) == 2


def _parts(X: Any, method: str) -> list:
    """Delayed partitions of rows."""
    if _is_array(X):
        return list(X.rechunk({1: -1}).to_delayed().ravel())
    if _is_frame(X):
        return list(X.to_delayed())
    if isinstance(X, Sequence) and not isinstance(X, str):
        return list(X)
    raise TypeError(
        "X must be a dask array of two dimensions, a dask DataFrame or a sequence of delayed parts; got "
        f"{type(X)}. For data in memory, use learner.{method}"
    )


def _pairs(X: Any, y: Any) -> list:
    """Delayed pairs (X, y)."""
    if y is None:
        if not isinstance(X, Sequence) or isinstance(X, str) or not len(X):
            raise TypeError(
                f"without y, X must be a sequence of delayed pairs (X, y); got {type(X)}"
            )
        return list(X)
    rows = _parts(X, "fit")
    if not isinstance(y, dask.array.Array) and not hasattr(type(y), "map_partitions"):
        raise TypeError(
            f"y must be a dask array or Series; got {type(y)}. For data in memory, use learner.fit"
        )
    labels = list(np.ravel(np.array(y.to_delayed(), dtype=object)))
    if len(rows) != len(labels):
        raise ValueError(
            f"X has {len(rows)} partitions and y has {len(labels)}: rechunk them to the same partitions"
        )
    return [dask.delayed(tuple)([a, b]) for a, b in zip(rows, labels, strict=True)]


def _agree(facts: dict[int, _Facts]) -> None:
    """Refuse partitions that differ in features, matrix type, label type or columns."""
    if not facts:
        raise ValueError("all partitions are empty: there are no rows to learn from")
    first, fact = next(iter(facts.items()))
    for number, other in facts.items():
        for what, here in fact.common.items():
            if here != other.common[what]:
                raise ValueError(
                    f"partitions {first} and {number} have different {what}: "
                    f"{reprlib.repr(here)} and {reprlib.repr(other.common[what])}"
                )


def _fit_together(learner: Learner, blocks: dict, facts: list[_Facts], verbose: int) -> None:
    """Train a learner on several partitions."""
    labels, counts = (np.concatenate(column) for column in list(zip(*facts, strict=True))[:2])
    classes = several_classes(np.unique(labels), learner)
    totals = np.array([counts[labels == label].sum() for label in classes])
    factors = class_factors(learner.class_weight, classes, totals)
    learner.n_features_in_ = facts[0].common["numbers of features"]
    seed = int(check_random_state(learner.random_state).randint(2**31 - 1))
    sizes = [fact.rows for fact in facts]
    n_passes = learner.passes(sum(sizes))
    X, codes, added = _gather(list(blocks.values()), sizes, classes, totals, seed)
    data = Data(X, codes, len(classes), _weights(codes, factors))
    rng = np.random.default_rng(seed)
    settings: Any = learner.settings(len(classes))
    state_type: type[State[Any]] = learner.state_type
    tuned = tune(data, settings, state_type, n_passes, True, rng)
    table = {}
    if tuned is not None:
        settings, table = tuned.settings, tuned.table
    state = state_type.start(learner.n_features_in_, len(classes), settings)
    work = _Round(classes, factors, learner.shuffle, seed)
    state = _rounds(learner, blocks, state, work, n_passes, verbose)
    learner.history_, learner.tuning_ = no_history(len(classes)), table
    learner.take_over(state, classes)
    found = held_out_scores(data, settings, state_type, n_passes, learner.shuffle, rng)
    if found is None:
        refuse_divergence(X, "on parts of the sampled rows", learner.eta0)
    # The committee has learned a sample, and the merged learner all rows. Its scores have another scale.
    points, weights = found.points, found.committee[0]
    own, other = scale_of(state.model()[0]), scale_of(weights)
    factor = own / other if min(own, other) > 0.0 else 1.0
    learner.calibration_ = Calibration.of(points.scores * factor, points.labels, points.weights)
    learner.committee_ = learner.members_ = None
    if added:
        # The sample contains too many rows of rare classes; reweight the points so that the posteriors are right.
        ratios = totals / totals.sum() / (np.bincount(codes, minlength=len(classes)) / len(codes))
        learner.calibration_.weights *= ratios[points.labels.astype(int)]


def _gather(
    blocks: list, sizes: list[int], classes: np.ndarray, totals: np.ndarray, seed: int
) -> tuple[Any, np.ndarray, bool]:
    """Sample random rows from all partitions, in proportion to their sizes; return them and their encoded labels.

    If a class has too few rows in the sample, more are added; the third value tells whether this was done.
    """
    total = sum(sizes)
    wanted = [-(-min(_SAMPLE, total) * size // total) for size in sizes]

    def sample(parts: list[slice], *label: Any) -> tuple[Any, np.ndarray]:
        tasks = [
            dask.delayed(_sample)(block, part, (seed, 0, i), *label)
            for i, (block, part) in enumerate(zip(blocks, parts, strict=True))
        ]
        rows, labels = zip(*dask.compute(*tasks), strict=True)
        return _stacked(rows), np.concatenate(labels)

    X, y = sample([slice(number) for number in wanted])
    taken = len(y)
    for label, available in zip(classes, totals, strict=True):
        missing = min(_LEAST, int(available)) - int((y == label).sum())
        if missing > 0:
            more, labels = sample([slice(number, None) for number in wanted], label, missing)
            chosen = np.random.default_rng((seed, 0)).permutation(len(labels))[:missing]
            X, y = _stacked([X, more[chosen]]), np.concatenate([y, labels[chosen]])
    return X, encode(y, classes), len(y) > taken


def _stacked(matrices: Sequence) -> Any:
    if scipy.sparse.issparse(matrices[0]):
        return scipy.sparse.vstack(matrices, format="csr")
    return np.vstack(matrices)


class _Round(NamedTuple):
    """What a worker needs for a pass over its partition, besides the rows."""

    classes: np.ndarray
    #: Weights of the classes, if any.
    factors: np.ndarray | None
    shuffle: bool
    seed: int


def _weights(codes: np.ndarray, factors: np.ndarray | None) -> np.ndarray:
    """Weights of rows with these labels."""
    return UNWEIGHTED if factors is None else factors[codes.astype(np.intp)]


def _rounds(
    learner: Learner,
    blocks: dict,
    state: State[Any],
    work: _Round,
    n_passes: int,
    verbose: int,
) -> State[Any]:
    for i in range(n_passes):
        base = dask.delayed(state)
        tasks = [
            dask.delayed(_local_pass)(base, block, work, (i + 1, number))
            for number, block in enumerate(blocks.values())
        ]
        states = dask.compute(*tasks)
        failed = [number for number, found in zip(blocks, states, strict=True) if found is None]
        if failed:
            raise ValueError(
                f"the weights became infinite or NaN in partition {failed[0]}: scale the features "
                f"(sklearn.preprocessing.StandardScaler) or lower eta0 (now {learner.eta0!r})"
            )
        state = state.merge(list(states), state)
        if verbose:
            measure = state.settings.measure
            print(
                f"{type(learner).__name__}: round {i + 1}/{n_passes}, {state.t} samples, "
                f"{measure.name} {measure.at(state.rates()):.5f}",
                flush=True,
            )
    return state


# --------------------------------------------------------------- on the workers


class _Block(NamedTuple):
    """Checked rows of a partition, their labels, and the names of the columns if all are strings."""

    X: Any
    y: np.ndarray
    names: tuple | None


def _check_block(pair: tuple, number: int) -> _Block:
    try:
        X, y = pair
        names = tuple(getattr(X, "columns", ()))
        X, y = check_X_y(
            X,
            y,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            ensure_min_samples=0,
        )
    except ValueError as error:
        raise ValueError(f"partition {number}: {error}") from error
    X = canonical(X)
    named = names and all(isinstance(name, str) for name in names)
    return _Block(X, y, names if named else None)


class _Facts(NamedTuple):
    """Facts about a partition that the client needs."""

    labels: np.ndarray
    counts: np.ndarray
    #: Properties that all partitions must share.
    common: dict[str, Any]

    @property
    def rows(self) -> int:
        return int(self.counts.sum())


def _facts(block: _Block) -> _Facts:
    labels, counts = np.unique(block.y, return_counts=True)
    kinds = {"number" if isinstance(c, Number) else type(c).__name__ for c in labels.tolist()}
    common = {
        "numbers of features": block.X.shape[1],
        "kinds of matrices": "sparse" if scipy.sparse.issparse(block.X) else "dense",
        "types of labels": " and ".join(sorted(kinds)),
        "columns": block.names,
    }
    return _Facts(labels, counts, common)


def _fit_alone(learner: Learner, block: _Block) -> Learner:
    return learner.fit(block.X, block.y)


def _sample(
    block: _Block, part: slice, seed: tuple, label: Any = None, most: int | None = None
) -> tuple[Any, np.ndarray]:
    """A part of the rows in random order; with a label, only the first `most` rows of that label."""
    rows = np.random.default_rng(seed).permutation(len(block.y))[part]
    if label is not None:
        rows = rows[block.y[rows] == label][:most]
    return block.X[rows], block.y[rows]


def _local_pass(
    base: State[Any], block: _Block, work: _Round, place: tuple[int, int]
) -> State[Any] | None:
    n, rng = len(block.y), np.random.default_rng((work.seed, *place))
    order = rng.permutation(n) if work.shuffle else np.arange(n)
    codes, state = encode(block.y, work.classes), base.copy()
    fine = state.learn(as_rows(block.X), codes, order, _weights(codes, work.factors))
    return state if fine else None


def _labels(part: Any, learner: Learner) -> np.ndarray:
    """Predict the labels of a partition, which may be empty."""
    part = part if hasattr(part, "shape") else np.asarray(part)
    if not part.shape[0]:
        return learner.classes_[:0]
    # Column names are checked if the learner has feature names. If not, drop them, or scikit-learn would warn.
    if hasattr(part, "to_numpy") and not hasattr(learner, "feature_names_in_"):
        part = part.to_numpy()
    return learner.predict(part)


def _labels_of_frame(frame: Any, learner: Learner) -> Any:
    import pandas as pd

    return pd.Series(_labels(frame, learner), index=frame.index)


def _count(part: Any, learner: Learner) -> np.ndarray:
    labels = _labels(part, learner)
    return np.array([(labels == label).sum() for label in learner.classes_], dtype=float)
