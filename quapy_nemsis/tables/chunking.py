"""Data files of users in chunks, so that they need not fit into memory. What their columns are must be known."""

from __future__ import annotations

import io
import itertools
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from quapy_nemsis.tables.formats import FORMATS, PARQUET, RECOGNISED, Fault, Reading, known_suffix
from quapy_nemsis.tables.reading import (
    LOOKED_AT,
    UNKNOWN,
    check_access,
    check_decimals,
    check_names,
    check_widths,
    comma_columns,
    encoding_of,
    named_faults,
    npz_features,
    npz_parts,
    opened,
    parse_libsvm,
    parsed,
    read_sheet,
    separator_of,
)

#: The rows of a chunk.
CHUNK = 50_000


def chunks(
    source: str | Path | pd.DataFrame,
    numbers: Collection[str] = (),
    reading: Reading = RECOGNISED,
    usual_decimal: str = ".",
    rows: int = CHUNK,
) -> Iterator[tuple[Any, Any]]:
    """Yield the rows of a file or DataFrame in chunks, so that a CSV or Parquet file of any size can be read.

    Parameters
    ----------
    source : str, Path or DataFrame
        The file, whose suffix tells the format, or a table in memory.
    numbers : collection of str
        The columns of a text file that hold numbers or labels. All others are read as texts.
    reading : Reading
        How to read text files and workbooks.
    usual_decimal : str, default="."
        The decimal mark if numbers such as 1,500 leave it open.
    rows : int
        The most rows of a chunk.

    Yields
    ------
    tuple
        The rows, a DataFrame with the columns as they stand in the file, or a matrix; and for a matrix the labels, if
        the file has some, else None.
    """
    if isinstance(source, pd.DataFrame):
        source = source.rename(columns=str)
        check_names(list(source.columns))
        yield from ((part, None) for part in _parts(source, rows))
        return
    path = Path(source)
    suffix = known_suffix(path)
    kind = FORMATS[suffix]
    with named_faults(path, suffix):
        check_access(path)
        if kind == "text":
            yield from (
                (part, None) for part in text_chunks(path, numbers, reading, usual_decimal, rows)
            )
        elif kind == "parquet":
            yield from ((part, None) for part in parquet_chunks(path, rows))
        elif kind == "excel":
            yield from ((part, None) for part in _parts(read_sheet(path, reading), rows))
        else:
            X, y = npz_matrix(path) if kind == "npz" else parse_libsvm(path, None, reading)[:2]
            for start in range(0, X.shape[0], rows):
                part = slice(start, start + rows)
                yield X[part], None if y is None else y[part]


def _parts(frame: pd.DataFrame, rows: int) -> Iterator[pd.DataFrame]:
    return (frame.iloc[start : start + rows] for start in range(0, len(frame), rows))


def text_chunks(
    path: Path, numbers: Collection[str], reading: Reading, usual_decimal: str, rows: int
) -> Iterator[pd.DataFrame]:
    """Yield the rows of a text file; see `chunks`. What is not said of its dialect is recognised."""
    with opened(path) as file:
        encoding = encoding_of(file, reading.encoding)
        file.seek(0)
        wrapper = io.TextIOWrapper(file, encoding, newline="")
        separator = reading.separator or separator_of(wrapper)
        wrapper.seek(0)
        if not any(line.strip() for line in itertools.islice(wrapper, LOOKED_AT)):
            raise Fault("the file is empty; give one with a header and rows")
    options: dict[str, Any] = {"sep": separator, "encoding": encoding, "na_values": UNKNOWN}
    options |= {"index_col": False, "low_memory": False}
    names = [str(name) for name in parsed(lambda: pd.read_csv(path, nrows=0, **options))[0].columns]
    options["dtype"] = {name: str for name in names if name not in numbers}
    decimal = reading.decimal
    if decimal is None:
        first = parsed(lambda: pd.read_csv(path, nrows=min(rows, LOOKED_AT), **options))[0]
        inside = [name for name in first if name in numbers]
        decimal = "."
        if commas := comma_columns(first[inside]):
            decimal = ","
            again = pd.read_csv(path, nrows=min(rows, LOOKED_AT), decimal=",", **options)
            check_decimals(first[inside], again[inside], commas, usual_decimal)
    checked = False
    with pd.read_csv(path, chunksize=rows, decimal=decimal, **options) as reader:
        for number in itertools.count():
            frame, cut = parsed(lambda: next(reader, None))
            if frame is None:
                break
            every = cut or bool(frame.iloc[:, -1].isna().any())
            if not number or (every and not checked):
                # What pandas cuts or fills up is found by reading the lines once more.
                with io.TextIOWrapper(opened(path), encoding, newline="") as file:
                    check_widths(file, separator, every)
                checked = checked or every
            yield frame


def parquet_chunks(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    """Yield the rows of a Parquet file; an index that pandas stored in it is left out."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise Fault("Parquet files need pyarrow: pip install pyarrow") from error
    with pq.ParquetFile(path, **PARQUET) as file:
        stored = (file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
        names = [name for name in file.schema_arrow.names if name not in stored]
        check_names(names)
        for batch in file.iter_batches(batch_size=rows, columns=names):
            yield batch.to_pandas(ignore_metadata=True)


def npz_matrix(path: Path) -> tuple[Any, np.ndarray | None]:
    """Return the features of an npz file, and its labels if it has some."""
    found = npz_parts(path)
    X = npz_features(found)
    y = found.get("y")
    if y is not None and y.shape != X.shape[:1]:
        raise Fault(f"y has shape {y.shape}, the features {X.shape}; save one label per row")
    return X, y
