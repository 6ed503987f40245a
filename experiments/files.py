"""Data files of users: CSV, Parquet, npz and LIBSVM, read whole and checked.

Files larger than memory are for the sources of `quapy_nemsis.streaming`, which read chunk by chunk.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import hashlib
import io
import numbers
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.datasets import load_svmlight_file

from experiments.catalogue import FORMATS, known_suffix
from experiments.prepare import kind, listed, text

CSR_PARTS = ("data", "indices", "indptr", "shape")
UNREADABLE = (
    *(ValueError, OSError, EOFError, KeyError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)
#: Features, labels, and the names of the labels in rising order (None: they are named as they are).
Parsed = tuple[Any, Any, np.ndarray | None]


class Fault(ValueError):
    """What is wrong with a file and what to do."""


@dataclass(frozen=True)
class LabelledData:
    """The features and labels of a data set, the missing values of its columns, and the sha256 of the source."""

    features: Any
    #: The place of each row's class among the classes. Of two classes, 1 is the positive one.
    y: np.ndarray
    #: The names of the classes.
    classes: list[str]
    missing: dict[str, int]
    fingerprint: str

    @property
    def counts(self) -> np.ndarray:
        """Return the number of rows of each class."""
        return np.bincount(self.y, minlength=len(self.classes))


def load_file(path: Path, target: str | None, positive: str | None) -> LabelledData:
    """Read a data file, whose suffix tells the format.

    The target is the column of the labels, which CSV and Parquet files need. Each label is a class, in rising order; of
    two, the greater is the positive one. If a positive label is given (as text), all other labels are one class.
    """
    path = Path(path)
    suffix = known_suffix(path)
    try:
        if not os.access(path, os.R_OK):
            raise Fault("you have no permission to read the file; change its permissions")
        if path.stat().st_size == 0:
            raise Fault("the file is empty; give one with data")
        features, labels, names = PARSERS[FORMATS[suffix]](path, target)
        if features.shape[0] == 0:
            raise Fault("the file has no rows of data; give one with some")
        if features.shape[1] == 0 or (scipy.sparse.issparse(features) and features.nnz == 0):
            raise Fault("there are labels but no features; give a file with both")
        y, classes = encode(np.asarray(labels), names, positive)
        if infinite := column_counts(features, is_infinite):
            raise Fault(
                f"there are infinite values in the columns {listed(list(infinite))}; replace them with numbers or "
                "leave them empty"
            )
    except Fault as fault:
        raise Fault(f"{path}: {fault}") from fault.__cause__
    except UNREADABLE as error:
        wrong = f"the file is broken or cut short, or it is not a {suffix} file ({error})"
        raise Fault(f"{path}: {wrong}; fetch or write it again") from error
    missing = column_counts(features, pd.isna)
    return LabelledData(features, y, classes, missing, fingerprint(path))


def fingerprint(path: Path, block: int = 2**20) -> str:
    """Return the sha256 of the file's bytes, in hexadecimal; the file is read in blocks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(block):
            digest.update(chunk)
    return digest.hexdigest()


def opened(path: Path) -> BinaryIO:
    """Open the file for reading bytes, which are unpacked when it is a gz file."""
    return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")  # type: ignore[return-value]


def parse_text(path: Path, target: str | None) -> Parsed:
    """Return the features and labels of a CSV or TSV file in UTF-8."""
    separator = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with opened(path) as file, warnings.catch_warnings(record=True) as cut:
            warnings.simplefilter("always", pd.errors.ParserWarning)
            frame = pd.read_csv(file, sep=separator, index_col=False, low_memory=False)
    except pd.errors.EmptyDataError:
        raise Fault("the file is empty; give one with a header and rows") from None
    except pd.errors.ParserError as error:
        raise Fault(in_plain_words(error)) from error
    except UnicodeDecodeError as error:
        with opened(path) as file:
            lines = enumerate(file, start=1)
            bad = next(n for n, line in lines if line.decode(errors="ignore").encode() != line)
        raise Fault(f"line {bad} is not UTF-8; save the file as UTF-8") from error
    check_widths(path, separator, every=bool(cut) or bool(frame.iloc[:, -1].isna().any()))
    return split_target(frame, target)


def in_plain_words(error: Exception) -> str:
    """Return the message of the parser of pandas in plain words."""
    ragged = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    if ragged:
        return "line {1} has {2} fields, not {0}; repair or quote it".format(*ragged.groups())
    quote = re.search(r"EOF inside string starting at row (\d+)", str(error))
    if quote:
        return f"a quote opened in row {quote[1]} (the header is row 0) is not closed; close it"
    return f"the file cannot be parsed ({str(error).strip()}); repair it"


def check_widths(path: Path, separator: str, every: bool) -> None:
    """Compare the lengths of rows with the header: of the first row, or of every row.

    pandas refuses rows that are longer than those before; but after a long first row it cuts rows,
    with a warning, and it fills up short rows, so that these end in a missing value.
    """
    with opened(path) as file:
        csv.field_size_limit(2**31 - 1)  # texts may be long
        rows = csv.reader(io.TextIOWrapper(file, "utf-8-sig", newline=""), delimiter=separator)
        width = len(next(filter(None, rows)))
        for row in filter(None, rows):
            ends_open = len(row) == width + 1 and not row[-1]
            if len(row) != width and not ends_open and "".join(row).strip():
                wrong = f"line {rows.line_num} has {len(row)} fields, the header {width}"
                hint = "is the separator right?" if width == 1 else "repair or quote it"
                raise Fault(f"{wrong}; {hint}")
            if not every:
                return


def parse_parquet(path: Path, target: str | None) -> Parsed:
    """Return the features and labels of a Parquet file; an index that pandas stored in it is left out."""
    try:
        return split_target(pd.read_parquet(path).reset_index(drop=True), target)
    except ImportError as error:
        raise Fault("Parquet files need pyarrow: pip install pyarrow") from error


def split_target(frame: pd.DataFrame, target: str | None) -> Parsed:
    """Return the feature columns and the target column."""
    frame.columns = frame.columns.map(str)
    names = list(frame.columns)
    if target in names:
        return frame.drop(columns=target), frame[target], None
    columns = f"the columns are {listed(names)}"
    if len(names) == 1:
        columns += " (only one: is the separator right?)"
    if target is None:
        raise Fault(f"name the column of the labels with --target; {columns}")
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(target.lower(), lower, n=1)
    hint = f"did you mean {lower[close[0]]!r}? " if close else ""
    raise Fault(f"there is no column {target!r} for --target; {hint}{columns}")


def parse_npz(path: Path, target: str | None) -> Parsed:
    """Return what an npz file holds: X, or the CSR parts, y and, if given, classes. Python objects are not loaded."""
    if not zipfile.is_zipfile(path):
        raise zipfile.BadZipFile("not a whole npz file")
    parts = {}
    with np.load(path, allow_pickle=False) as file:
        for key in file.files:
            try:
                parts[key] = np.asarray(file[key])
            except ValueError as error:
                if "allow_pickle" not in str(error):
                    raise
                why = (
                    f"{key!r} holds Python objects, which are not loaded because they can run code"
                )
                raise Fault(f"{why}; save arrays of numbers or strings") from error
    if "y" not in parts or not ("X" in parts or set(CSR_PARTS) <= set(parts)):
        wanted = f"y and X, or y and the CSR parts {', '.join(CSR_PARTS)}"
        raise Fault(f"the file must hold {wanted}; it holds {listed(sorted(parts))}")
    X, y = parts["X"] if "X" in parts else csr(parts), parts["y"]
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        found = f"shape {X.shape} and type {X.dtype}"
        raise Fault(f"the features have {found}; save a two-dimensional array of numbers")
    if y.shape != X.shape[:1]:
        raise Fault(f"y has shape {y.shape}, the features {X.shape}; save one label per row")
    return X.astype(np.float32 if X.dtype == np.float32 else np.float64), y, parts.get("classes")


def csr(parts: dict[str, np.ndarray]) -> scipy.sparse.csr_matrix:
    """Return the CSR matrix of its parts, and check it."""
    try:
        if "format" in parts and parts["format"].item() not in (b"csr", "csr"):
            raise ValueError(f"the format is {parts['format'].item()!r}")
        data, indices, indptr, shape = (parts[name] for name in CSR_PARTS)
        X = scipy.sparse.csr_matrix((data, indices, indptr), shape=tuple(map(int, shape)))
        X.check_format(full_check=True)
        X.sum_duplicates()
    except (ValueError, TypeError, IndexError) as error:
        raise Fault(f"{', '.join(CSR_PARTS)} are not of a CSR matrix ({error})") from error
    return X


def parse_libsvm(path: Path, target: str | None) -> Parsed:
    """Return the features and labels of a LIBSVM text file. The first bad line is found by halving."""
    try:
        return *load_svmlight_file(str(path)), None
    except (ValueError, OverflowError) as error:
        lines = path.read_bytes().split(b"\n")
        start, stop = 0, len(lines)
        while stop - start > 1:
            middle = (start + stop) // 2
            try:
                load_svmlight_file(io.BytesIO(b"\n".join(lines[start:middle])))
                start = middle
            except (ValueError, OverflowError):
                stop = middle
        shown = lines[start].decode("utf-8", errors="replace")[:60]
        wanted = "'label index:value index:value ...' with rising indices"
        raise Fault(
            f"line {start + 1} is not LIBSVM text ({shown!r}: {error}); lines must read {wanted}"
        ) from error


PARSERS: dict[str, Callable[[Path, str | None], Parsed]] = {
    "text": parse_text,
    "parquet": parse_parquet,
    "npz": parse_npz,
    "libsvm": parse_libsvm,
}


def encode(
    values: np.ndarray, names: np.ndarray | None, positive: str | None
) -> tuple[np.ndarray, list[str]]:
    """Return the class of each label, as a number, and the names of the classes."""
    missing = np.flatnonzero(pd.isna(values))
    if len(missing):
        wrong = (
            f"{len(missing)} rows have no label, the first of them row {missing[0] + 1} of the data"
        )
        counted = "in text files, NA, None, nan and null also count as missing"
        raise Fault(f"{wrong}; fill them in or remove these rows ({counted})")
    try:
        labels, codes = np.unique(values, return_inverse=True)
    except (TypeError, ValueError) as error:
        raise Fault(f"the labels cannot be sorted ({error}); use numbers or text") from error
    if len(labels) < 2:
        raise Fault(f"the only label is {listed(labels)}; give a file with two classes or more")
    classes = [text(name) for name in (labels if names is None else names)]
    if len(classes) != len(labels) or len(set(classes)) != len(classes):
        given = f"{len(labels)} labels, and {len(set(classes))} different names in 'classes'"
        raise Fault(f"there are {given}; save one name for each label, in the order of the labels")
    if positive is None:
        return codes, classes
    pairs = enumerate(zip(labels, classes, strict=True))
    chosen = [k for k, (label, name) in pairs if is_same(label, positive) or name == positive]
    if not chosen:
        raise Fault(f"no label is {positive!r}; give --positive one of {listed(classes)}")
    name = classes.pop(chosen[0])
    rest = classes[0] if len(classes) == 1 else f"not {name}"
    return (codes == chosen[0]).astype(int), [rest, name]


def is_same(label: Any, wanted: str) -> bool:
    """Tell whether a label is the one given as text; 1 is also 1.0 and +1, True is also true."""
    if isinstance(label, bool | np.bool_):
        return text(label).lower() == wanted.lower()
    try:
        equal = isinstance(label, numbers.Real) and float(label) == float(wanted)
        return equal or text(label) == wanted
    except ValueError:
        return False


def is_infinite(values: Any) -> Any:
    """Tell which values are infinite numbers."""
    if isinstance(values, pd.Series):
        return np.isinf(values.astype("float64")) if kind(values) == "number" else np.zeros(1)
    return np.isinf(values)


def column_counts(features: Any, test: Callable[[Any], Any]) -> dict[str, int]:
    """Count the values that pass the test in each column where any do; columns of arrays count from 0."""
    if isinstance(features, pd.DataFrame):
        found = {name: int(test(features[name]).sum()) for name in features}
    elif scipy.sparse.issparse(features):
        columns = np.bincount(features.indices, test(features.data))
        found = {str(k): int(count) for k, count in enumerate(columns)}
    else:
        found = {str(k): int(count) for k, count in enumerate(test(features).sum(axis=0))}
    return {name: count for name, count in found.items() if count}
