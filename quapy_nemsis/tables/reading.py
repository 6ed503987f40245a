"""Data files of users: CSV, xlsx, Parquet, npz and LIBSVM, checked and read whole; columns are recognised."""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import hashlib
import io
import itertools
import numbers
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.datasets import load_svmlight_file

from quapy_nemsis.tables.columns import USED, cleaned, listed, nested, roles, text, treatment
from quapy_nemsis.tables.formats import (
    FORMATS,
    INSTALL,
    RECOGNISED,
    SEPARATORS,
    Fault,
    Reading,
    known_suffix,
)

CSR_PARTS = ("data", "indices", "indptr", "shape")
UNREADABLE = (
    *(ValueError, OSError, EOFError, KeyError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error),
)
#: Strings that stand for a gap in any column, besides those that pandas knows.
UNKNOWN = ["?"]
#: Numbers with a decimal comma, and those whose comma may as well be between thousands.
COMMA = r"\s*[+-]?\d*(?:,\d+)?(?:[eE][+-]?\d+)?\s*"
THOUSANDS = r"\s*[+-]?[1-9]\d{0,2}(?:,\d{3})?\s*"
USUAL = {"separator": ",", "decimal": ".", "encoding": "utf-8-sig"}
#: The rows of a text file that its separator is recognised from.
LOOKED_AT = 1000


class Parsed(NamedTuple):
    """What a file holds."""

    features: Any
    labels: Any
    #: The names of the labels in rising order; if None, they are named as they are.
    names: np.ndarray | None = None
    #: The part of each row: 0 is for training, others for tests.
    fold: np.ndarray | None = None
    #: The separator, the decimal mark and the encoding of a text file.
    dialect: dict[str, str] | None = None

    @property
    def note(self) -> str:
        """Return what is not usual about the dialect, in words."""
        found = USUAL | (self.dialect or {})
        return ", ".join(f"{name} {found[name]!r}" for name in USUAL if found[name] != USUAL[name])


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
    #: What each column of a table is taken as (see `quapy_nemsis.tables.columns.roles`).
    roles: dict[str, str] = field(default_factory=dict)
    #: Whether a row is for tests, if the file says so.
    held_out: np.ndarray | None = None
    #: How the file was read, in words, if this had to be recognised.
    note: str = ""
    #: The class of each label, by the label as text.
    codes: dict[str, int] = field(default_factory=dict)
    #: The formats of dates that are texts, by the column.
    formats: dict[str, str] = field(default_factory=dict)
    #: The separator, the decimal mark and the encoding of a text file.
    dialect: dict[str, str] | None = None

    @property
    def counts(self) -> np.ndarray:
        """Return the number of rows of each class."""
        return np.bincount(self.y[self.y >= 0], minlength=len(self.classes))

    def columns_table(self) -> list[list[str]]:
        """Return a row for each column of a table: its name, what it is taken as, its gaps, what is done with it."""
        return [
            [
                name,
                kind if kind in USED else "nothing",
                f"{self.missing.get(name, 0):,}",
                treatment(self.features[name], kind),
            ]
            for name, kind in self.roles.items()
        ]


def load_file(
    path: str | Path,
    target: str | None,
    positive: str | None,
    reading: Reading = RECOGNISED,
    unlabelled: bool = False,
) -> LabelledData:
    """Read a data file, whose suffix tells the format.

    The target is the column of the labels, which CSV, xlsx and Parquet files need. Each label is a class, in rising
    order; of two, the greater is the positive one. If a positive label is given (as text), all other labels are one
    class. Rows without a label are refused, unless ``unlabelled`` says that they are allowed; their class is then −1.
    """
    path = Path(path)
    suffix = known_suffix(path)
    with named_faults(path, suffix):
        check_access(path)
        parsed = PARSERS[FORMATS[suffix]](path, target, reading)
        return labelled(parsed, positive, unlabelled, fingerprint(path))


def load_frame(
    frame: pd.DataFrame, target: str | None, positive: str | None, unlabelled: bool = False
) -> LabelledData:
    """Return the features and labels of a DataFrame, as if it had been read from a file (see `load_file`)."""
    with named_faults("the table", "DataFrame"):
        parsed = split_target(as_if_text(frame.reset_index(drop=True)), target)
        return labelled(parsed, positive, unlabelled, "")


def labelled(parsed: Parsed, positive: str | None, unlabelled: bool, digest: str) -> LabelledData:
    """Check what was read, and recognise what its columns are."""
    features = parsed.features
    formats: dict[str, str] = {}
    if features.shape[0] == 0:
        raise Fault("the file has no rows of data; give one with some")
    if features.shape[1] == 0 or (scipy.sparse.issparse(features) and features.nnz == 0):
        raise Fault("there are labels but no features; give a file with both")
    y, classes = encode(np.asarray(parsed.labels), parsed.names, positive, unlabelled)
    if isinstance(features, pd.DataFrame):
        features, formats = cleaned(features)
    check_finite(features)
    known = ~np.asarray(pd.isna(np.asarray(parsed.labels)))
    spelled = (text(label) for label in np.asarray(parsed.labels)[known])
    missing = column_counts(features, pd.isna)
    taken_as = roles(features) if isinstance(features, pd.DataFrame) else {}
    held_out = None if parsed.fold is None else parsed.fold != 0
    return LabelledData(
        *(features, y, classes, missing, digest, taken_as, held_out, parsed.note),
        codes=dict(zip(spelled, y[known].tolist(), strict=True)),
        formats={name: how for name, how in formats.items() if taken_as.get(name) == "date"},
        dialect=parsed.dialect,
    )


@contextmanager
def named_faults(path: str | Path, suffix: str) -> Iterator[None]:
    """Turn whatever is raised about a file into a fault that names it."""
    try:
        yield
    except Fault as fault:
        raise Fault(f"{path}: {fault}") from fault.__cause__
    except UNREADABLE as error:
        wrong = f"the file is broken or cut short, or it is not a {suffix} file ({error})"
        raise Fault(f"{path}: {wrong}; fetch or write it again") from error


def check_access(path: Path) -> None:
    """Refuse a file that cannot be read, or is empty."""
    if not os.access(path, os.R_OK):
        raise Fault("you have no permission to read the file; change its permissions")
    if path.stat().st_size == 0:
        raise Fault("the file is empty; give one with data")


def check_finite(features: Any) -> None:
    """Refuse infinite numbers."""
    if infinite := column_counts(features, is_infinite):
        raise Fault(
            f"there are infinite values in the columns {listed(list(infinite))}; replace them with numbers or leave "
            "them empty"
        )


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


def parse_text(path: Path, target: str | None, reading: Reading) -> Parsed:
    """Return the features and labels of a text file; what is not said of its dialect is recognised."""
    with opened(path) as file:
        content = file.read()
    if not content.strip():
        raise Fault("the file is empty; give one with a header and rows")
    encoding = encoding_of(io.BytesIO(content), reading.encoding)
    separator = reading.separator or separator_of(text_of(content, encoding))
    frame = read_text(content, encoding, separator, reading.decimal or ".")
    decimal = reading.decimal or "."
    if reading.decimal is None and (commas := comma_columns(frame)):
        decimal = ","
        again = read_text(content, encoding, separator, decimal)
        check_decimals(frame, again, commas)
        frame = again
    found = {"separator": separator, "decimal": decimal, "encoding": encoding}
    return split_target(frame, target)._replace(dialect=found)


def text_of(content: bytes, encoding: str) -> io.TextIOWrapper:
    """Return the content as a text file."""
    return io.TextIOWrapper(io.BytesIO(content), encoding, newline="")


def encoding_of(file: BinaryIO, said: str | None) -> str:
    """Return the encoding of a text: what is said, else UTF-8, UTF-16 with a byte order mark, or cp1252.

    Printable text in latin-1 reads the same as cp1252. The file is read in blocks.
    """
    if said is None and file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        said = "utf-16"
    if said is None and any(b"\0" in block for block in blocks(file)):
        raise Fault("the file holds bytes that are no text; check its format")
    tried = [said] if said else ["utf-8-sig", "cp1252"]
    for encoding in tried:
        bad = undecodable_line(file, encoding)
        if not bad:
            break
    else:
        advice = "name the encoding with --encoding, or save the file as UTF-8"
        raise Fault(f"line {bad} is not {' nor '.join(tried)}; {advice}")
    if said is None and encoding == "cp1252":
        file.seek(0)
        first: dict[bool, int] = {}
        for number, line in enumerate(file, start=1):
            if not line.isascii():
                first.setdefault(is_utf8(line), number)
        if True in first:
            wrong = f"line {first[True]} looks like UTF-8, and line {first[False]} is not UTF-8"
            raise Fault(f"{wrong}; repair one of them, or name the encoding with --encoding")
    return encoding


def blocks(file: BinaryIO, size: int = 2**20) -> Iterator[bytes]:
    """Yield the bytes of a file from its beginning, in blocks."""
    file.seek(0)
    while block := file.read(size):
        yield block


def undecodable_line(file: BinaryIO, encoding: str) -> int:
    """Return the number of the first line that is not text in an encoding, or 0. Lines are counted in bytes."""
    decoder, lines = codecs.getincrementaldecoder(encoding)(), 0
    for block in itertools.chain(blocks(file), [b""]):
        try:
            decoder.decode(block, final=not block)
        except UnicodeError as error:
            decoded = getattr(error, "object", block)
            return lines + decoded.count(b"\n", 0, getattr(error, "start", 0)) + 1
        lines += block.count(b"\n")
    return 0


def is_utf8(line: bytes) -> bool:
    """Tell whether a line can be read as UTF-8."""
    try:
        line.decode()
    except UnicodeError:
        return False
    return True


def separator_of(file: io.TextIOWrapper) -> str:
    """Return the separator that splits the header, and the rows after it into as many fields; the most fields win."""
    lines = list(itertools.islice(file, LOOKED_AT))
    csv.field_size_limit(2**31 - 1)  # texts may be long
    regular, widths = {}, {}
    for separator in SEPARATORS:
        rows = [row for row in csv.reader(lines, delimiter=separator) if "".join(row).strip()]
        rows = rows[:-1] if len(lines) == LOOKED_AT else rows  # the last may be cut
        widths[separator] = len(rows[0]) if rows else 0
        regular[separator] = all(
            len(row) == len(rows[0]) or (len(row) == len(rows[0]) + 1 and not row[-1])
            for row in rows
        )
    possible = [separator for separator in SEPARATORS if widths[separator] > 1]
    possible = [separator for separator in possible if regular[separator]] or possible
    most = max((widths[separator] for separator in possible), default=0)
    best = [separator for separator in possible if widths[separator] == most]
    if len(best) > 1:
        shown = " and ".join(map(repr, best))
        raise Fault(f"{shown} both split the file into {most} columns; say which with --separator")
    return best[0] if best else ","


def read_text(content: bytes | str, encoding: str, separator: str, decimal: str) -> pd.DataFrame:
    """Return the table of a text file."""
    content = content.encode(encoding) if isinstance(content, str) else content
    options: dict[str, Any] = {"sep": separator, "decimal": decimal, "encoding": encoding}
    options |= {"na_values": UNKNOWN, "index_col": False, "low_memory": False}
    frame, cut = parsed(lambda: pd.read_csv(io.BytesIO(content), **options))
    every = cut or bool(frame.iloc[:, -1].isna().any())
    check_widths(text_of(content, encoding), separator, every)
    return frame


def comma_columns(frame: pd.DataFrame) -> list[str]:
    """Return the columns of strings that are numbers with a decimal comma."""
    strings = {
        name: frame[name].dropna()
        for name in frame
        if pd.api.types.infer_dtype(frame[name], skipna=True) == "string"
    }
    return [
        name
        for name, values in strings.items()
        if values.str.fullmatch(COMMA).all() and values.str.contains(",").any()
    ]


def check_decimals(
    points: pd.DataFrame, commas: pd.DataFrame, found: list[str], usual: str = "."
) -> None:
    """Refuse columns that may have a decimal comma or not: the same text is read with either mark."""
    numeric = pd.api.types.is_numeric_dtype
    others = [name for name in points if numeric(points[name]) and not numeric(commas[name])]
    if others:
        wrong = (
            f"numbers have a comma in the columns {listed(found)} and a point in {listed(others)}"
        )
        raise Fault(f"{wrong}; write them alike, or say --decimal")
    if usual != "," and all(points[name].dropna().str.fullmatch(THOUSANDS).all() for name in found):
        wrong = f"the commas in the columns {listed(found)} may be between thousands, or decimal"
        raise Fault(
            f"{wrong}; say --decimal ',' if they are decimal, else write the numbers without"
        )


def in_plain_words(error: Exception) -> str:
    """Return the message of the parser of pandas in plain words."""
    ragged = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", str(error))
    if ragged:
        return "line {1} has {2} fields, not {0}; repair or quote it".format(*ragged.groups())
    quote = re.search(r"EOF inside string starting at row (\d+)", str(error))
    if quote:
        return f"a quote opened in row {quote[1]} (the header is row 0) is not closed; close it"
    return f"the file cannot be parsed ({str(error).strip()}); repair it"


def check_widths(file: io.TextIOWrapper, separator: str, every: bool) -> None:
    """Compare the lengths of rows with the header: of the first row, or of every row. Refuse two columns of a name.

    pandas refuses rows that are longer than those before; but after a long first row it cuts rows,
    with a warning, and it fills up short rows, so that these end in a missing value. The second column of a name gets
    another one.
    """
    csv.field_size_limit(2**31 - 1)  # texts may be long
    rows = csv.reader(file, delimiter=separator)
    names = next(filter(None, rows))
    check_names([name for name in names if name])
    width = len(names)
    for row in filter(None, rows):
        ends_open = len(row) == width + 1 and not row[-1]
        if len(row) != width and not ends_open and "".join(row).strip():
            wrong = f"line {rows.line_num} has {len(row)} fields, the header {width}"
            hint = (
                "is the separator right? --separator says it"
                if width == 1
                else "repair or quote it"
            )
            raise Fault(f"{wrong}; {hint}")
        if not every:
            return


def parse_parquet(path: Path, target: str | None, reading: Reading) -> Parsed:
    """Return the features and labels of a Parquet file; an index that pandas stored in it is left out."""
    try:
        frame = pd.read_parquet(path)
    except ImportError as error:
        raise Fault("Parquet files need pyarrow: pip install pyarrow") from error
    return split_target(as_if_text(frame.reset_index(drop=True)), target)


def parse_excel(path: Path, target: str | None, reading: Reading) -> Parsed:
    """Return the features and labels of the only sheet of a workbook, or of the one that is named."""
    return split_target(as_if_text(read_sheet(path, reading)), target)


def read_sheet(path: Path, reading: Reading) -> pd.DataFrame:
    """Return the only sheet of a workbook, or the one that is named, as Python objects."""
    try:
        sheets = pd.read_excel(path, sheet_name=None, dtype=object, engine="openpyxl")
    except ImportError as error:
        raise Fault(f"xlsx files need openpyxl: {INSTALL}") from error
    full = {name: frame for name, frame in sheets.items() if frame.size}
    if reading.sheet is not None and reading.sheet not in sheets:
        raise Fault(f"there is no sheet {reading.sheet!r}; --sheet can be {listed(list(sheets))}")
    if reading.sheet is None and len(full) > 1:
        raise Fault(f"several sheets hold data; say which with --sheet: {listed(list(full))}")
    if not full:
        raise Fault("the file has no rows of data; give one with some")
    sheet = next(iter(full)) if reading.sheet is None else reading.sheet
    frame = sheets[sheet]
    if any(str(name).rpartition(".")[0] in set(map(str, frame.columns)) for name in frame.columns):
        # pandas may have given the second column of a name another one.
        header = pd.read_excel(path, sheet_name=sheet, header=None, nrows=1, engine="openpyxl")
        check_names([str(name) for name in header.iloc[0].dropna()])
    # Empty rows are skipped, as in text files.
    return frame.dropna(how="all").reset_index(drop=True).rename(columns=str)


def as_if_text(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table as if it came from a text file, whose strings may be numbers, booleans or gaps.

    So the same columns are the same in all formats. Columns of numbers, dates or lists stay as they are.
    """
    frame.columns = frame.columns.map(str)
    check_names(list(frame.columns))
    strings = [
        name for name in frame if frame[name].dtype.kind not in "biufmM" and not nested(frame[name])
    ]
    if strings and len(frame):
        content = frame[strings].to_csv(index=False, na_rep="NA")
        frame[strings] = read_text(content, "utf-8", ",", ".")
    return frame


def split_target(frame: pd.DataFrame, target: str | None) -> Parsed:
    """Return the feature columns and the target column."""
    frame.columns = frame.columns.map(str)
    names = list(frame.columns)
    if target in names:
        return Parsed(frame.drop(columns=target), frame[target])
    columns = f"the columns are {listed(names)}"
    if len(names) == 1:
        columns += " (only one: is the separator right? --separator says it)"
    if target is None:
        raise Fault(f"name the column of the labels with --target; {columns}")
    raise Fault(f"there is no column {target!r} for --target; {closest(target, names)}{columns}")


def closest(name: str, names: list[str]) -> str:
    """Return a hint at the name that is most like another, if one is."""
    lower = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"did you mean {lower[close[0]]!r}? " if close else ""


def parse_npz(path: Path, target: str | None, reading: Reading) -> Parsed:
    """Return what an npz file holds: X, or the CSR parts, y and, if given, classes and fold."""
    parts = npz_parts(path)
    if "y" not in parts:
        raise Fault(_lacking(parts, "y and X, or y and"))
    X, y = npz_features(parts, "y and X, or y and"), parts["y"]
    if y.shape != X.shape[:1]:
        raise Fault(f"y has shape {y.shape}, the features {X.shape}; save one label per row")
    fold = parts.get("fold")
    if fold is not None and fold.shape != y.shape:
        raise Fault(f"fold has shape {fold.shape}, y {y.shape}; save one number per row")
    return Parsed(X, y, parts.get("classes"), fold)


def npz_parts(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of an npz file. Python objects are not loaded."""
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
    return parts


def npz_features(parts: dict[str, np.ndarray], wanted: str = "X, or") -> Any:
    """Return the features among the arrays of an npz file: X, or the CSR parts."""
    if not ("X" in parts or set(CSR_PARTS) <= set(parts)):
        raise Fault(_lacking(parts, wanted))
    X = parts["X"] if "X" in parts else csr(parts)
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        found = f"shape {X.shape} and type {X.dtype}"
        raise Fault(f"the features have {found}; save a two-dimensional array of numbers")
    return X.astype(np.float32 if X.dtype == np.float32 else np.float64)


def _lacking(parts: dict[str, np.ndarray], wanted: str) -> str:
    wanted = f"{wanted} the CSR parts {', '.join(CSR_PARTS)}"
    return f"the file must hold {wanted}; it holds {listed(sorted(parts))}"


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


def parse_libsvm(path: Path, target: str | None, reading: Reading) -> Parsed:
    """Return the features and labels of a LIBSVM text file. The first bad line is found by halving."""
    try:
        return Parsed(*load_svmlight_file(str(path)))
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


def parsed(read: Callable[[], Any]) -> tuple[Any, bool]:
    """Return what pandas reads, and whether it has cut rows; its errors become faults."""
    try:
        with warnings.catch_warnings(record=True) as cut:
            warnings.simplefilter("always", pd.errors.ParserWarning)
            found = read()
    except pd.errors.EmptyDataError:
        raise Fault("the file is empty; give one with a header and rows") from None
    except pd.errors.ParserError as error:
        raise Fault(in_plain_words(error)) from error
    return found, bool(cut)


def check_names(names: list[str]) -> None:
    """Refuse two columns of the same name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Fault(f"there are two columns {listed(twice)}; rename one of them")


PARSERS: dict[str, Callable[[Path, str | None, Reading], Parsed]] = {
    "text": parse_text,
    "excel": parse_excel,
    "parquet": parse_parquet,
    "npz": parse_npz,
    "libsvm": parse_libsvm,
}


def encode(
    values: np.ndarray,
    names: np.ndarray | None,
    positive: str | None,
    unlabelled: bool = False,
) -> tuple[np.ndarray, list[str]]:
    """Return the class of each label, as a number, and the names of the classes; see `load_file` for rows without."""
    gaps = np.asarray(pd.isna(values))
    missing = np.flatnonzero(gaps)
    if len(missing) and unlabelled:
        if gaps.all():
            raise Fault("no row has a label; give a file in which some have")
        codes, classes = encode(values[~gaps], names, positive)
        y = np.full(len(values), -1)
        y[~gaps] = codes
        return y, classes
    if len(missing):
        wrong = (
            f"{len(missing)} rows have no label, the first of them row {missing[0] + 1} of the data"
        )
        counted = "in text files, NA, None, nan, null and ? also count as missing"
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
        numeric = pd.api.types.is_numeric_dtype(values)
        return np.isinf(values.astype("float64")) if numeric else np.zeros(1)
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
