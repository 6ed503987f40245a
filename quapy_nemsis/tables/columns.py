"""Columns of tables: what they hold, what they are taken as, and how they are read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from quapy_nemsis.tables.formats import INSTALL

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
#: Strings that stand for a gap, as do those of white space only.
GAPS = (
    *("", "?", "...", "NA", "N/A", "n/a", "<NA>", "#NA", "#N/A", "#N/A N/A", "nan", "NaN", "-nan"),
    *("-NaN", "null", "NULL", "none", "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
#: Spellings of booleans that text files may have, as pandas reads them.
BOOLEANS = {
    **dict.fromkeys(("True", "TRUE", "true"), True),
    **dict.fromkeys(("False", "FALSE", "false"), False),
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


def cleaned(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return the columns as what they hold (see `typed`), and the format of dates that were texts, by the column."""
    try:
        from skrub import Cleaner
    except ImportError as error:
        raise ImportError(f"recognising columns needs skrub: {INSTALL}") from error
    plain = [name for name in frame if not nested(frame[name])]
    cleaner = Cleaner(drop_null_fraction=None)
    clean = cleaner.fit_transform(frame[plain])
    steps = cleaner.all_processing_steps_.items()
    found_formats = {name: getattr(step, "format_", None) for name, all_ in steps for step in all_}
    formats = {name: how for name, how in found_formats.items() if how}
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
    return pd.concat([clean, frame.drop(columns=plain)], axis=1)[list(frame)], formats


def typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns as what they hold: numbers, booleans, dates or strings, with gaps where nothing is known.

    skrub's ``Cleaner`` finds the dates, and the strings that stand for a gap.
    """
    return cleaned(frame)[0]


def read_as(column: pd.Series, taken_as: str, date_format: str = "") -> pd.Series:
    """Return a column as what another file's column of the same name was taken as.

    Nothing is recognised, so that any part of a file gives the same values as the whole. A value that cannot be read
    becomes a gap.

    Parameters
    ----------
    column : Series
        Values as they stand in a file, or as a program holds them.
    taken_as : str
        A role of `USED`.
    date_format : str, default=""
        Format of dates that are texts; those that do not follow it may be in ISO 8601.
    """
    types = pd.api.types
    if taken_as == "date":
        return _as_dates(column, date_format)
    if taken_as in ("category", "text"):
        return _as_strings(column)
    if types.is_timedelta64_dtype(column):
        return column.dt.total_seconds()
    if types.is_datetime64_any_dtype(column):
        return pd.Series(np.nan, index=column.index)
    if types.is_numeric_dtype(column):
        values = column.astype("float64")
    else:
        strings = _as_strings(column)
        values = pd.to_numeric(strings, errors="coerce").astype("float64")
        if taken_as == "boolean":
            values = values.fillna(strings.map(BOOLEANS).astype("float64"))
    return values.where(values.isin([0.0, 1.0])) if taken_as == "boolean" else values


def known(column: pd.Series) -> pd.Series:
    """Tell which values of a column are no gaps."""
    kinds = pd.api.types
    if kinds.is_numeric_dtype(column) or kinds.is_datetime64_any_dtype(column):
        return column.notna()
    return _as_strings(column).notna()


def _as_strings(column: pd.Series) -> pd.Series:
    """Return values as Python strings, gaps as nan."""
    if pd.api.types.infer_dtype(column, skipna=True) == "string":
        # Most values occur often, and each is looked at once.
        codes, different = pd.factorize(column)
        strings = _as_different_strings(pd.Series(different))
        table = np.append(
            strings.to_numpy(object), np.nan
        )  # the last is for gaps, whose code is −1
        return pd.Series(table[codes], index=column.index, dtype=object)
    return _as_different_strings(column)


def _as_different_strings(column: pd.Series) -> pd.Series:
    strings = column.astype(str).astype(object)
    gaps = column.isna() | strings.isin(GAPS) | (strings.str.strip() == "")
    return strings.mask(gaps, np.nan)


def _as_dates(column: pd.Series, date_format: str) -> pd.Series:
    """Return values as dates in UTC without a zone."""
    if not pd.api.types.is_datetime64_any_dtype(column):
        if pd.api.types.is_numeric_dtype(column) and not date_format:
            return pd.Series(pd.NaT, index=column.index, dtype="datetime64[ns]")
        strings = _as_strings(column)
        read = {"errors": "coerce", "utc": True}
        column = pd.to_datetime(strings, format=date_format or "ISO8601", **read)
        if date_format and (left := column.isna() & strings.notna()).any():
            others = pd.to_datetime(strings[left], format="ISO8601", **read)
            column = column.mask(left, others)
    return column.dt.tz_convert(None) if column.dt.tz is not None else column


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


def unused(taken_as: dict[str, str]) -> dict[str, list[str]]:
    """Return the columns that are not used, by the reason."""
    found: dict[str, list[str]] = {}
    for name, kind in taken_as.items():
        if kind in UNUSED:
            found.setdefault(UNUSED[kind], []).append(name)
    return found
