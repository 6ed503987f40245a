"""Features become finite numbers on comparable scales here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, OneHotEncoder, StandardScaler

DENSE_LIMIT = 10**8
#: Share of nonzero entries up to which whole numbers in a sparse matrix are taken for term counts.
MOST_DENSE_TEXT = 0.05
NUMBERS = ("boolean", "integer", "floating", "mixed-integer-float", "decimal")


def text(label: Any) -> str:
    """Return the label as text; whole numbers have no decimal point."""
    if isinstance(label, bytes):
        return label.decode("utf-8", errors="replace")
    whole = isinstance(label, float | np.floating) and float(label).is_integer()
    return str(int(label)) if whole else str(label)


def listed(values: Any, most: int = 20) -> str:
    """Return the values as text, the first ones only when there are many."""
    shown = ", ".join(repr(text(value)) for value in values[:most])
    return shown if len(values) <= most else f"{shown} and {len(values) - most} more"


def kind(column: pd.Series) -> str:
    """Tell what a column holds: number (also booleans), text (also categories) or other."""
    found = pd.api.types.infer_dtype(column, skipna=True)
    if found in NUMBERS:
        return "number"
    return "text" if found in ("string", "categorical", "mixed-integer") else "other"


def use(column: pd.Series) -> str:
    """Tell the use of a column: number or text. Those called constant, identifier and other are not used."""
    if column.isna().all():
        return "constant"
    found = kind(column)
    if found == "number":
        return found if column.nunique(dropna=False) > 1 else "constant"
    if found == "text" and column.nunique() in (1, column.count()):
        return "constant" if column.nunique() == 1 else "identifier"
    return found


def are_term_counts(features: Any) -> bool:
    """Tell whether features are counts of terms in texts, which are to be weighted by tf-idf.

    They are if they come as a sparse matrix of whole numbers, none negative and some above 1, of which at most one
    entry in twenty is not 0. So 0/1 indicators are no counts, nor are other numbers in a sparse format.
    """
    if not scipy.sparse.issparse(features) or not features.nnz:
        return False
    if features.nnz > MOST_DENSE_TEXT * features.shape[0] * features.shape[1]:
        return False
    values = features.data
    return bool(values.min() >= 0 and values.max() > 1 and (values == np.floor(values)).all())


def preparer(features: Any, counts: bool = False) -> Any:
    """Return a transformer, not fitted, that makes finite numbers of features such as these.

    Call it with the training part and fit it there. Columns that are not used (see `unused`) are dropped. With
    ``counts`` the features are term counts (see `are_term_counts`) and are weighted by tf-idf.
    """
    if counts:
        return TfidfTransformer()
    if isinstance(features, pd.DataFrame):
        return make_pipeline(of_columns(features), FunctionTransformer(as_dense))
    if scipy.sparse.issparse(features) and features.shape[0] * features.shape[1] > DENSE_LIMIT:
        return make_pipeline(FunctionTransformer(without_gaps), MaxAbsScaler())
    gaps = SimpleImputer(strategy="median", keep_empty_features=True)
    return make_pipeline(FunctionTransformer(as_dense), gaps, StandardScaler())


def of_columns(frame: pd.DataFrame) -> ColumnTransformer:
    """Return the transformer of the columns that are used: medians and scaling, or one column per text."""
    uses = {name: use(frame[name]) for name in frame}
    median = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    frequent = SimpleImputer(strategy="most_frequent", keep_empty_features=True)
    codes = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=50, sparse_output=False
    )
    steps = {
        "number": make_pipeline(FunctionTransformer(as_floats), median, StandardScaler()),
        "text": make_pipeline(FunctionTransformer(as_texts), frequent, codes),
    }
    chosen = [(k, step, [name for name in uses if uses[name] == k]) for k, step in steps.items()]
    if not set(steps) & set(uses.values()):
        raise ValueError(f"no column can be used, of {listed(list(frame.columns))}")
    return ColumnTransformer(chosen, sparse_threshold=0.0)


def unused(features: Any) -> dict[str, list[str]]:
    """Return the columns of a table that are not used, by the reason."""
    why = {"constant": "constant", "identifier": "all values differ", "other": "no number or text"}
    found: dict[str, list[str]] = {}
    for name in features if isinstance(features, pd.DataFrame) else ():
        if (reason := use(features[name])) in why:
            found.setdefault(why[reason], []).append(name)
    return found


def as_floats(values: Any) -> Any:
    """Return columns as floats, missing values as nan."""
    return values.astype("float64")


def as_texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Return columns as Python strings, missing values as nan."""
    return frame.astype(str).astype(object).where(frame.notna(), np.nan)


def as_dense(X: Any) -> np.ndarray:
    """Return the matrix as an array in C order."""
    return np.ascontiguousarray(X.toarray() if scipy.sparse.issparse(X) else X)


def without_gaps(X: Any) -> Any:
    """Return the matrix as CSR, with zeros for missing values."""
    X = X.tocsr(copy=True)
    X.data = np.nan_to_num(X.data)
    return X
