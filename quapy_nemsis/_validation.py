"""Checks of parameters and data. Each error message names the value and says what to do."""

from __future__ import annotations

import numbers
import os
import reprlib
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite, check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, validate_data

from quapy_nemsis._kernels import batch
from quapy_nemsis._kernels.rows import Rows, as_rows, check_compressed

AUTO = "auto"
#: Rows as users give them: a two-dimensional array-like or a sparse matrix, for which numpy has no type.
MatrixLike: TypeAlias = Any
FLOATS = [np.float64, np.float32]


@contextmanager
def unchanged_on_error(learner: Any) -> Iterator[None]:
    """Restore all attributes of a learner if an exception is raised."""
    before = vars(learner).copy()
    try:
        yield
    except BaseException:
        vars(learner).clear()
        vars(learner).update(before)
        raise


# ------------------------------------------------------------------------ data


def checked_rows(learner: BaseEstimator, X: Any, *, reset: bool = False, **options: Any) -> Any:
    """Check rows and convert them to a C-ordered array or a canonical CSR matrix of floats."""
    _check_columns(X)
    _check_sparse(X)
    return canonical(
        validate_data(learner, X, accept_sparse="csr", order="C", reset=reset, **options)
    )


def checked_data(
    learner: BaseEstimator, X: Any, y: Any, *, reset: bool, **options: Any
) -> tuple[Any, np.ndarray]:
    """Check rows and labels, and convert the rows to a C-ordered array or a canonical CSR matrix of floats."""
    _check_columns(X)
    _check_sparse(X)
    check_labels(y)
    X, y = validate_data(learner, X, y, accept_sparse="csr", order="C", reset=reset, **options)
    return canonical(X), y


def _check_columns(X: Any) -> None:
    """Refuse dates, masked entries and duplicate columns, which scikit-learn accepts or refuses less clearly."""
    dtype = getattr(X, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        raise TypeError(f"X contains dates or times ({dtype}); convert them to numbers first")
    if np.ma.is_masked(X):
        raise ValueError("X has masked entries; fill them in, or drop their rows")
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    names = list(X.columns)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"X has several columns named {twice!r}; rename or drop the duplicates")
    for name, kind in zip(names, X.dtypes, strict=True):
        if getattr(kind, "kind", "O") in "mM" or str(kind).startswith("period"):
            raise TypeError(
                f"column {name!r} contains dates or times ({kind}); convert it to numbers, or drop it"
            )


def _check_sparse(X: Any) -> None:
    """Refuse a sparse matrix whose indices are out of range, before anything uses them."""
    if not scipy.sparse.issparse(X):
        return
    if X.format in ("csr", "csc", "bsr"):
        check_compressed(X)
    elif X.format == "coo":
        for axis, (places, size) in enumerate(zip((X.row, X.col), X.shape, strict=True)):
            if len(places) and not (places.min() >= 0 and places.max() < size):
                raise ValueError(
                    f"coordinates of a sparse matrix must be from 0 to {size - 1} along axis {axis}"
                )


def canonical(X: Any) -> Any:
    """Check a CSR matrix and convert it to native byte order without duplicates; return anything else unchanged."""
    if not scipy.sparse.issparse(X):
        return X
    if not all(part.dtype.isnative for part in (X.indices, X.indptr)):
        kinds = [part.dtype.newbyteorder("=") for part in (X.indices, X.indptr)]
        parts = (X.data, X.indices.astype(kinds[0]), X.indptr.astype(kinds[1]))
        X = scipy.sparse.csr_matrix(parts, shape=X.shape)
    check_compressed(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def check_labels(y: Any, name: str = "y") -> None:
    """Refuse labels that are missing, or that cannot be sorted."""
    if np.ma.is_masked(y):
        raise ValueError(f"{name} has masked labels; drop their rows")
    dtype = getattr(y, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "biuU":
        return
    if isinstance(dtype, np.dtype) and dtype.kind == "S":
        raise TypeError(f"{name} holds bytes; convert them to strings")
    if isinstance(dtype, np.dtype) and dtype.kind == "f" and not np.isnan(y).any():
        return
    if not hasattr(y, "dtype"):
        if not isinstance(y, (list, tuple)):
            return
        y = np.fromiter(y, dtype=object, count=len(y))
    labels = np.ravel(np.asarray(y, dtype=object))
    found = set(map(type, labels))
    if found <= {str} or found <= {int, bool}:
        return  # nothing can be wrong with these, and there may be millions
    kinds: dict[str, Any] = {}
    for place, label in enumerate(labels):
        if label is None or type(label).__name__ in ("NAType", "NaTType") or label != label:
            raise ValueError(f"label {place} of {name} is missing ({label!r}); drop its row")
        if isinstance(label, complex):
            raise ValueError(
                f"Complex data not supported: label {place} of {name} is {label!r}; use real numbers or strings"
            )
        if isinstance(label, (tuple, list, dict, set)):
            raise ValueError(
                f"label {place} of {name} is {reprlib.repr(label)}; use numbers or strings as labels"
            )
        number = isinstance(label, (numbers.Number, np.bool_))
        kinds.setdefault("number" if number else type(label).__name__, label)
    if len(kinds) > 1:
        some = " and ".join(repr(label) for label in kinds.values())
        raise ValueError(
            f"{name} contains labels of different types, such as {some}; use only numbers or only strings"
        )


def two_classes(classes: np.ndarray, learner: BaseEstimator) -> np.ndarray:
    """Return the sorted distinct labels if there are two of them; otherwise raise a ValueError."""
    if len(classes) > 2:
        raise ValueError(
            "Only binary classification is supported. The type of the target is "
            f"{type_of_target(np.tile(classes, 3))}: {len(classes)} classes, {_some(classes)}. Use NEMSISClassifier, "
            "SCANClassifier or CANClassifier (NEMSIS, SCAN or CAN in QuaPy), which take any number of classes"
        )
    return several_classes(classes, learner)


def several_classes(classes: np.ndarray, learner: BaseEstimator) -> np.ndarray:
    """Return the sorted distinct labels if there are two or more of them; otherwise raise a ValueError."""
    # Each label thrice: scikit-learn warns of a regression if most of more than 20 labels are different.
    check_classification_targets(np.tile(classes, 3))
    if len(classes) < 2:
        hint = ". In a stream, give all with partial_fit(X, y, classes=...)"
        raise ValueError(
            f"{type(learner).__name__} needs two classes or more; the data contains one class, {classes.tolist()}"
            + (hint if hasattr(learner, "partial_fit") else "")
        )
    return classes


def _some(labels: np.ndarray) -> str:
    """The first few labels, for a message."""
    return f"{labels[:5].tolist()}{' and more' if len(labels) > 5 else ''}"


def distinct(y: np.ndarray) -> np.ndarray:
    """Sorted distinct labels, without sorting all of y if its beginning contains every label."""
    classes = np.unique(y[:1000])
    if len(classes) == 2 and ((y == classes[0]) | (y == classes[1])).all():
        return classes
    if y.dtype.kind in "biufU":
        known = classes[np.minimum(np.searchsorted(classes, y), len(classes) - 1)] == y
        if known.all():
            return classes
    return np.unique(y)


def encode(y: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Labels as kernels take them: whether each is the second of two classes, or its position among more."""
    if len(classes) == 2:
        return y == classes[1]
    return np.searchsorted(classes, y).astype(np.int32)


def checked_weights(
    sample_weight: Any, class_weight: Any, X: Any, y: np.ndarray, classes: np.ndarray
) -> np.ndarray | None:
    """Weights of the rows from `sample_weight` and `class_weight`, or None if all weights are 1."""
    if sample_weight is None and class_weight is None:
        return None
    codes = np.searchsorted(classes, y)
    factors = class_factors(class_weight, classes, np.bincount(codes, minlength=len(classes)))
    weights = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True, copy=True
    )
    if factors is not None:
        weights *= factors[codes]
    if not weights.any():
        raise ValueError("all weights are 0: give at least one row of each class a positive weight")
    return weights


def without_zeros(
    X: Any, y: np.ndarray, weights: np.ndarray | None
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """Rows, labels and weights without rows of weight 0, which are as good as absent."""
    if weights is None or weights.all():
        return X, y, weights
    kept = np.flatnonzero(weights)
    return X[kept], y[kept], weights[kept]


def class_factors(class_weight: Any, classes: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
    """The factor of each class in the weights of its rows, or None if there is no `class_weight`.

    With "balanced", the classes weigh the same: n/(K·n_j) for n_j of n rows, as in scikit-learn.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, dict):
        strange = [label for label in class_weight if label not in classes.tolist()]
        if strange:
            raise ValueError(
                f"class_weight names {strange[0]!r}, which is not among the classes {_some(classes)}"
            )
        for label, factor in class_weight.items():
            if not isinstance(factor, numbers.Real) or not 0.0 <= float(factor) < np.inf:
                raise ValueError(
                    f"class_weight of {label!r} must be a number from 0 on; got {factor!r}"
                )
        return np.array([float(class_weight.get(label, 1.0)) for label in classes.tolist()])
    if not isinstance(class_weight, str) or class_weight != "balanced":
        raise ValueError(
            f"class_weight must be 'balanced', a dict of labels and weights, or None; got {class_weight!r}"
        )
    return counts.sum() / (len(classes) * np.maximum(counts, 1.0))


def warn_of_scale(X: Any, stacklevel: int, rows: Rows | None = None) -> None:
    """Warn if the scales of the features differ so much that no step size suits them all.

    The scale of a feature is the root mean square of its nonzero entries, over at most 20,000 rows. A small
    feature that is constant in these rows is ignored, as its scale is unknown: a standardised feature of a rare
    category, for example, is close to 0 in most rows. ``rows`` are those of a sparse X, if they have been checked.
    """
    every = max(X.shape[0] // 10_000, 1)
    if scipy.sparse.issparse(X):
        squares, nonzero = np.zeros(X.shape[1]), np.zeros(X.shape[1])
        rows = as_rows(X) if rows is None else rows
        batch.squares(rows, np.arange(0, X.shape[0], every), squares, nonzero)
    else:
        # Converted if need be: einsum is slower if it is told a type, even that of its arguments.
        X = X[::every].astype(np.float64, copy=False)
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->j", X, X)
        nonzero = np.count_nonzero(X, axis=0)
    used = np.flatnonzero(squares > 0)
    sizes = np.sqrt(squares[used] / nonzero[used])
    if len(used) < 2 or not np.isfinite(sizes).all():
        return
    high = int(np.argmax(sizes))
    small = np.flatnonzero(sizes[high] > 300.0 * sizes)
    if not scipy.sparse.issparse(X):
        small = small[np.ptp(X[:, used[small]], axis=0) > 0]
    if len(small):
        low = small[np.argmin(sizes[small])]
        warnings.warn(
            f"features are on very different scales: feature {used[high]} is about {sizes[high]:.3g} in size and "
            f"feature {used[low]} about {sizes[low]:.3g}, and no step size suits both. Standardise them first, with "
            "sklearn.preprocessing.StandardScaler or, if sparse, MaxAbsScaler",
            UserWarning,
            stacklevel=stacklevel,
        )


def refuse_divergence(X: Any, when: str, eta0: Any) -> NoReturn:
    """Raise the error for weights that are not finite, either because X is not or because they diverged."""
    assert_all_finite(X, input_name="X")
    raise ValueError(
        f"the weights became infinite or NaN {when}: scale the features "
        f"(sklearn.preprocessing.StandardScaler) or lower eta0 (now {eta0!r})"
    )


# ------------------------------------------------------------------ parameters


def check_integer(name: str, value: Any, least: int = 1) -> None:
    """Refuse a value that is not an integer or is too small."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value!r}")


def check_share(name: str, value: Any) -> None:
    """Refuse a value that is not a number from 0 up to, but not including, 1."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number; got {value!r}")
    if not 0.0 <= float(value) < 1.0:
        raise ValueError(f"{name} must be at least 0 and below 1; got {value!r}")


def check_positive(name: str, value: Any, *, finite: bool = False, auto: bool = False) -> None:
    """Refuse a value that is neither a positive number nor, where allowed, "auto"."""
    if auto and isinstance(value, str) and value == AUTO:
        return
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        form = "a number or 'auto'" if auto else "a number"
        raise TypeError(f"{name} must be {form}; got {value!r}")
    if not float(value) > 0.0:
        raise ValueError(f"{name} must be positive; got {value!r}")
    if not finite and value == np.inf:
        return
    if not value <= np.finfo(float).max:
        raise ValueError(f"{name} must be finite; got {reprlib.repr(value)}")


def check_bool(name: str, value: Any) -> None:
    """Refuse a value that is not True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False; got {value!r}")


def check_option(name: str, value: Any, options: Collection[str]) -> None:
    """Refuse a name that is not one of the options."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string; got {value!r}")
    if value not in options:
        raise ValueError(f"{name} must be one of {sorted(options)}; got {value!r}")


def check_verbose(value: Any) -> None:
    """Refuse a value of `verbose` that is neither a flag nor an integer that is at least 0."""
    if not isinstance(value, (bool, np.bool_)):
        check_integer("verbose", value, least=0)


def check_seed(value: Any) -> None:
    """Refuse a value of `random_state` that scikit-learn does not accept."""
    try:
        check_random_state(value)
    except ValueError as error:
        raise ValueError(
            f"random_state must be an integer, a RandomState or None; got {value!r}"
        ) from error


def check_memory(n_bytes: float, what: str, advice: str) -> None:
    """Raise a MemoryError before memory is taken that the machine does not have."""
    try:
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not on every system
        return
    if n_bytes > available:
        raise MemoryError(
            f"{what} need {n_bytes / 2**30:.1f} GB, but this machine has {available / 2**30:.1f} GB: {advice}"
        )
