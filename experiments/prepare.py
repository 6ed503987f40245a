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
from skrub import Cleaner, DatetimeEncoder, StringEncoder

DENSE_LIMIT = 10**8
#: Share of nonzero entries up to which whole numbers in a sparse matrix are taken for term counts.
MOST_DENSE_TEXT = 0.05
#: Strings of which more differ are text, if they have several words.
MANY_TEXTS = 40
#: The most columns that a category and a text are made of.
MOST_CATEGORIES, TEXT_WIDTH = 50, 100
#: The columns that methods learn from, and those that are left out, with the reason.
USED = ("number", "boolean", "date", "category", "text")
UNUSED = {
    "empty": "empty",
    "constant": "constant",
    "identifier": "all values differ",
    "other": "no number, date or text",
}


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


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns as what they hold: numbers, booleans, dates or strings, with gaps where nothing is known.

    skrub's ``Cleaner`` finds the dates, and the strings that stand for a gap.
    """
    plain = [name for name in frame if not nested(frame[name])]
    clean = Cleaner(drop_null_fraction=None).fit_transform(frame[plain])
    for name, column in dict(clean.items()).items():
        found = pd.api.types.infer_dtype(column, skipna=True)
        if found == "boolean":
            clean[name] = column.astype("boolean")
        elif isinstance(column.dtype, pd.DatetimeTZDtype):
            clean[name] = column.dt.tz_convert("UTC")  # text knows no zones, only offsets
        elif found.startswith("timedelta"):
            clean[name] = column.dt.total_seconds()
        elif found in ("integer", "decimal", "mixed-integer-float") and column.dtype == object:
            clean[name] = column.astype("float64")
        elif found == "string":
            values = pd.to_numeric(column, errors="coerce")
            if values.notna().equals(column.notna()) and len(column.dropna()):
                clean[name] = values.astype("float64")
    return pd.concat([clean, frame.drop(columns=plain)], axis=1)[list(frame)]


def nested(column: pd.Series) -> bool:
    """Tell whether values of a column are lists or the like."""
    values = column.dropna() if column.dtype == object else []
    return any(map(pd.api.types.is_list_like, values))


def roles(frame: pd.DataFrame) -> dict[str, str]:
    """Return what each typed column is taken as (see `typed`): a role of `USED`, or of `UNUSED` if it is left out."""
    return {name: role(frame[name]) for name in frame}


def role(column: pd.Series) -> str:
    """Return what a typed column is taken as.

    Strings are text if they have three words or more on average, and if most of them (or many) differ. Other strings
    are categories, and identifiers if all of them differ.
    """
    known, types = column.dropna(), pd.api.types
    if known.empty:
        return "empty"
    if nested(column):
        return "other"
    if column.nunique(dropna=False) == 1:
        return "constant"
    if types.is_bool_dtype(column):
        return "boolean"
    if types.is_numeric_dtype(column):
        return "number"
    if types.is_datetime64_any_dtype(column):
        return "date"
    strings = known.astype(str)
    different = strings.nunique()
    if strings.str.split().str.len().mean() >= 3 and different > min(MANY_TEXTS, len(known) / 2):
        return "text"
    return "identifier" if different == len(known) > 1 else "category"


def treatment(column: pd.Series, taken_as: str) -> str:
    """Return in words what is done with a typed column."""
    if taken_as in UNUSED:
        return f"dropped: {UNUSED[taken_as]}"
    gaps = bool(column.isna().any())
    if taken_as == "text":
        return f"letter n-grams, at most {TEXT_WIDTH} components"
    if taken_as == "category":
        different = column.nunique(dropna=False)
        rest = f", the rarest {different - MOST_CATEGORIES + 1} as one"
        own = ", gaps are one of them" if gaps else ""
        return f"{different:,} categories{own}{rest if different > MOST_CATEGORIES else ''}"
    parts = "year, month, day and so on, " if taken_as == "date" else ""
    return f"{parts}median, gaps marked, scaled" if gaps else f"{parts}scaled"


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


def preparer(features: Any, counts: bool = False, taken_as: dict[str, str] | None = None) -> Any:
    """Return a transformer, not fitted, that makes finite numbers of features such as these.

    Call it with the training part and fit it there.

    Parameters
    ----------
    features : array, sparse matrix or DataFrame of typed columns
        The training part.
    counts : bool
        Whether the features are term counts (see `are_term_counts`), which are weighted by tf-idf.
    taken_as : dict of str, optional
        The roles of the columns of a DataFrame, as `roles` returns them for all rows; those of the training part if
        not given.
    """
    if counts:
        return TfidfTransformer()
    if isinstance(features, pd.DataFrame):
        columns = of_columns(features, roles(features) if taken_as is None else taken_as)
        return make_pipeline(columns, FunctionTransformer(as_dense))
    if scipy.sparse.issparse(features) and features.shape[0] * features.shape[1] > DENSE_LIMIT:
        return make_pipeline(FunctionTransformer(without_gaps), MaxAbsScaler())
    gaps = SimpleImputer(strategy="median", keep_empty_features=True)
    return make_pipeline(FunctionTransformer(as_dense), gaps, StandardScaler())


def of_columns(frame: pd.DataFrame, taken_as: dict[str, str]) -> ColumnTransformer:
    """Return the transformer of the columns that are used."""
    if not set(USED) & set(taken_as.values()):
        raise ValueError(f"no column can be used, of {listed(list(frame.columns))}")
    median = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    scaled = make_pipeline(FunctionTransformer(as_floats), median, StandardScaler())
    codes = OneHotEncoder(
        handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES, sparse_output=False
    )
    named = {kind: [name for name in taken_as if taken_as[name] == kind] for kind in USED}
    steps: list[tuple] = [
        ("number", scaled, [name for name in taken_as if taken_as[name] in ("number", "boolean")]),
        ("category", make_pipeline(FunctionTransformer(as_texts), codes), named["category"]),
    ]
    # The encoders of skrub take a column each, which must not be empty.
    width = max(1, min(TEXT_WIDTH, len(frame) - 1))
    encoders = {
        "date": make_pipeline(DatetimeEncoder(), scaled),
        "text": StringEncoder(n_components=width, random_state=0),
    }
    for kind, encoder in encoders.items():
        full = [name for name in named[kind] if frame[name].notna().any()]
        steps += [(f"{kind} {place}", encoder, name) for place, name in enumerate(full)]
    return ColumnTransformer(steps, sparse_threshold=0.0)


def unused(taken_as: dict[str, str]) -> dict[str, list[str]]:
    """Return the columns that are not used, by the reason."""
    found: dict[str, list[str]] = {}
    for name, kind in taken_as.items():
        if kind in UNUSED:
            found.setdefault(UNUSED[kind], []).append(name)
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
