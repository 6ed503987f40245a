"""Sources of chunks (X, y) from files of any size. The parsing is done by pandas, pyarrow and scikit-learn."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from quapy_nemsis._validation import check_integer
from quapy_nemsis.tables.formats import PARQUET

Chunk = tuple[Any, Any]


class SourceError(ValueError):
    """A chunk cannot be read or used. The message names the source and the row."""


@dataclass
class Source:
    """Chunks (X, y) of a stream, which can be iterated repeatedly.

    X is converted to a CSR matrix or an array of floats, and y to an array. Chunks that cannot be converted are
    refused. So are NaN, infinity and missing labels; the message names the row. In a source without labels, y is None.

    Parameters
    ----------
    name : str
        Name of the source in messages, usually the name of the file.
    chunks : callable
        Function without arguments that returns a new iterator of chunks.
    ahead : bool, default=False
        Whether to read the next chunk in another thread while the current one is being used. The readers of files do
        this.
    labelled : bool, default=True
        Whether there are labels. A source without labels can be tracked (see `quapy_nemsis.tracking`), but no learner
        can be trained on it.
    """

    name: str
    chunks: Callable[[], Iterator[Chunk]]
    ahead: bool = False
    labelled: bool = True

    def __iter__(self) -> Iterator[Chunk]:
        return _read_ahead(self._checked()) if self.ahead else self._checked()

    def _checked(self) -> Generator[Chunk, None, None]:
        row = 0
        iterator = self.chunks()
        while True:
            try:
                X, y = _as_arrays(*next(iterator))
            except StopIteration:
                return
            except SourceError:  # raised by a source inside this one
                raise
            except Exception as error:  # readers raise many kinds of exceptions for a broken file
                raise SourceError(
                    f"{self.name}: cannot be read after row {row:,} ({type(error).__name__}: {error})"
                ) from error
            self._check(X, y, row)
            row += X.shape[0]
            yield X, y

    def _check(self, X: Any, y: np.ndarray | None, row: int) -> None:
        """Refuse NaN, infinity and missing labels, naming the row."""
        if y is None and self.labelled:
            raise SourceError(f"{self.name}: row {row + 1:,} has no label")
        missing = _missing(y) if y is not None else np.zeros(0, dtype=bool)
        if missing.any():
            bad = row + int(np.argmax(missing)) + 1
            raise SourceError(f"{self.name}: row {bad:,} has no label; drop the row")
        values = X.data if scipy.sparse.issparse(X) else X
        with np.errstate(over="ignore", invalid="ignore"):
            total = values.sum()  # a sum is cheap, and usually finite if all values are
        if np.isfinite(total) or np.isfinite(values).all():
            return
        if scipy.sparse.issparse(X):
            place = np.flatnonzero(~np.isfinite(values))[0]
            bad = int(np.searchsorted(X.indptr, place, side="right") - 1)
        else:
            bad = int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])
        raise SourceError(
            f"{self.name}: row {row + bad + 1:,} contains NaN or infinity; fill it in or drop the row"
        )


def _read_ahead(chunks: Generator[Chunk, None, None]) -> Iterator[Chunk]:
    """Read each chunk while the previous one is being used; a reading error is raised at the chunk it belongs to."""
    with closing(chunks), ThreadPoolExecutor(1, "read-ahead") as reader:
        coming = reader.submit(next, chunks, None)
        while (chunk := coming.result()) is not None:
            coming = reader.submit(next, chunks, None)
            yield chunk


def _as_arrays(X: Any, y: ArrayLike | None) -> Chunk:
    """Convert a chunk to the types that learners accept."""
    if scipy.sparse.issparse(X):
        X = X.tocsr()
    else:
        X = np.asarray(X)
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    if y is None and X.ndim == 2:
        return X, None
    y = np.asarray(y)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"X has shape {X.shape} and y {y.shape}: give one label per row")
    return X, y


def _missing(y: np.ndarray) -> np.ndarray:
    """Which labels are missing."""
    if y.dtype.kind == "f":
        return np.isnan(y)
    if y.dtype.kind != "O":
        return np.zeros(len(y), dtype=bool)
    import pandas as pd

    return pd.isna(y)


def read_csv(
    path: str | Path,
    target: str | None,
    *,
    columns: list[str] | None = None,
    rows: int = 10_000,
    **options: Any,
) -> Source:
    """Read chunks from a CSV file, plain or compressed as .gz, .bz2, .xz or .zst (which needs pyarrow).

    Parameters
    ----------
    path : str or Path
        The file.
    target : str or None
        Column with the labels; None if there are none (see `quapy_nemsis.tracking`).
    columns : list of str, optional
        Columns with the features, which must be numeric; by default all except the target.
    rows : int, default=10,000
        Number of rows in a chunk.
    **options
        Other options of `pandas.read_csv`.
    """
    import pandas as pd

    unknown = [name for name in options if name not in signature(pd.read_csv).parameters]
    if unknown:
        raise TypeError(f"neither read_csv nor pandas.read_csv has an option {unknown[0]!r}")
    ours = {"usecols": "columns=", "chunksize": "rows=", "nrows": "fit_stream(max_rows=)"}
    for name in ours.keys() & options.keys():
        raise TypeError(f"{name} is not an option of read_csv here: use {ours[name]} instead")
    check_integer("rows", rows)

    def chunks() -> Iterator[Chunk]:
        labels = [] if target is None else [target]
        wanted = None if columns is None else [*columns, *labels]
        with ExitStack() as stack:
            file = stack.enter_context(_unpacked(path)) if str(path).endswith(".zst") else path
            frames = pd.read_csv(file, chunksize=rows, usecols=wanted, **options)
            for frame in stack.enter_context(frames):
                yield from_frame(frame, target, columns)

    return Source(str(path), chunks, ahead=True, labelled=target is not None)


def read_parquet(
    path: str | Path, target: str | None, *, columns: list[str] | None = None, rows: int = 65_536
) -> Source:
    """Read chunks from a Parquet file (needs pyarrow), and only the columns that are used.

    Parameters
    ----------
    path : str or Path
        The file.
    target : str or None
        Column with the labels; None if there are none (see `quapy_nemsis.tracking`).
    columns : list of str, optional
        Columns with the features, which must be numeric; by default all except the target.
    rows : int, default=65,536
        Maximum number of rows in a chunk.
    """
    check_integer("rows", rows)

    def chunks() -> Iterator[Chunk]:
        import pyarrow.parquet as pq

        with pq.ParquetFile(path, **PARQUET) as file:
            names = _feature_names(file.schema_arrow, target, columns)
            labels = [] if target is None else [target]
            for batch in file.iter_batches(batch_size=rows, columns=[*names, *labels]):
                features = [batch.column(name).to_numpy(zero_copy_only=False) for name in names]
                X = np.stack(features, axis=1, dtype=np.float64, casting="unsafe")
                y = None if target is None else batch.column(target)
                yield X, None if y is None else y.to_numpy(zero_copy_only=False)

    return Source(str(path), chunks, ahead=True, labelled=target is not None)


def read_libsvm(path: str | Path, n_features: int, *, rows: int = 10_000) -> Source:
    """Read chunks from a LIBSVM text file, plain or .gz, as CSR matrices of a given width (indices start at 1).

    Parameters
    ----------
    path : str or Path
        The file.
    n_features : int
        Number of features, as the largest index in a stream is not known beforehand.
    rows : int, default=10,000
        Number of rows in a chunk.
    """
    from sklearn.datasets import load_svmlight_file

    check_integer("rows", rows)

    def chunks() -> Iterator[Chunk]:
        import gzip

        opened = gzip.open if str(path).endswith(".gz") else open
        with opened(path, "rb") as file:
            while lines := [line for _, line in zip(range(rows), file, strict=False)]:
                text = io.BytesIO(b"".join(lines))
                yield load_svmlight_file(text, n_features=n_features, zero_based=False)

    return Source(str(path), chunks, ahead=True)


def read_npz(path: str | Path, *, rows: int = 10_000) -> Source:
    """Read chunks from an npz file, compressed or not, with ``y`` and either ``X`` or the parts of a CSR matrix.

    The parts are named ``data``, ``indices``, ``indptr`` and ``shape``, as by `scipy.sparse.save_npz`. Arrays are read
    piece by piece, never as a whole, and Python objects in the file are not loaded.

    Parameters
    ----------
    path : str or Path
        The file.
    rows : int, default=10,000
        Number of rows in a chunk.
    """
    check_integer("rows", rows)

    def chunks() -> Iterator[Chunk]:
        with zipfile.ZipFile(path) as file, ExitStack() as stack:
            names = {name.removesuffix(".npy") for name in file.namelist()}
            if "format" in names:
                with np.load(path) as arrays:
                    kind = arrays["format"].item()
                if kind not in (b"csr", "csr"):
                    raise ValueError(f"the matrix is in the format {kind!r}: save it as CSR")
            parts = ("y", "X") if "X" in names else ("y", "data", "indices", "indptr", "shape")
            missing = [name for name in parts if name not in names]
            if missing:
                raise KeyError(f"the array {missing[0]!r} is missing; the file has {sorted(names)}")
            opened = {
                name: _Array(name, stack.enter_context(file.open(f"{name}.npy"))) for name in parts
            }
            yield from (_dense_rows if "X" in names else _csr_rows)(opened, rows)

    return Source(str(path), chunks, ahead=True)


class _Array:
    """An array in a file of numpy's format, read piece by piece."""

    def __init__(self, name: str, file: IO[bytes]):
        self.name, self.file = name, file
        form = np.lib.format
        headers = {(1, 0): form.read_array_header_1_0, (2, 0): form.read_array_header_2_0}
        self.shape, columns_first, self.dtype = headers[form.read_magic(file)](file)
        if self.dtype.hasobject:
            raise TypeError(f"{name!r} contains Python objects, which are not loaded: save numbers")
        if columns_first and len(self.shape) > 1:
            raise ValueError(f"{name!r} is in Fortran order: save numpy.ascontiguousarray of it")

    def take(self, count: int) -> np.ndarray:
        """Read the next `count` entries along the first axis."""
        inner = self.shape[1:]
        size = count * math.prod(inner) * self.dtype.itemsize
        content = self.file.read(size)
        if len(content) < size:
            raise EOFError(f"{self.name!r} ends too early")
        return np.frombuffer(content, self.dtype).reshape(count, *inner)


def _sizes(n: int, rows: int) -> Iterator[int]:
    return (min(rows, n - start) for start in range(0, n, rows))


def _dense_rows(parts: dict[str, _Array], rows: int) -> Iterator[Chunk]:
    X, y = parts["X"], parts["y"]
    if len(X.shape) != 2 or X.shape[:1] != y.shape:
        raise ValueError(f"X has shape {X.shape} and y {y.shape}: save one label per row")
    for size in _sizes(y.shape[0], rows):
        yield X.take(size).astype(np.float64), y.take(size)


def _csr_rows(parts: dict[str, _Array], rows: int) -> Iterator[Chunk]:
    n, width = (int(extent) for extent in parts["shape"].take(2))
    if parts["y"].shape != (n,) or parts["indptr"].shape != (n + 1,):
        raise ValueError(
            f"the matrix has {n} rows and y has shape {parts['y'].shape}: save one label per row"
        )
    begin = parts["indptr"].take(1)
    for size in _sizes(n, rows):
        ends = parts["indptr"].take(size)
        entries = int(ends[-1] - begin[0])
        bounds = np.concatenate([begin, ends]) - begin
        data = parts["data"].take(entries).astype(np.float64)
        X = scipy.sparse.csr_matrix(
            (data, parts["indices"].take(entries), bounds), shape=(size, width)
        )
        X.check_format(full_check=True)
        yield X, parts["y"].take(size)
        begin = ends[-1:]


def chunks_of(X: Any, y: ArrayLike, *, rows: int = 10_000) -> Source:
    """Make a source from a matrix in memory, or from a memory map, by dividing it into chunks.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,)
        Labels.
    rows : int, default=10,000
        Number of rows in a chunk.
    """
    check_integer("rows", rows)
    X = X.tocsr() if scipy.sparse.issparse(X) else np.asarray(X)
    y = np.asarray(y)
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"X has shape {X.shape} and y {y.shape}: give one label per row")

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(y), rows):
            yield X[start : start + rows], y[start : start + rows]

    return Source("the matrix", chunks)


def from_iterable(
    iterable: Iterable[Chunk] | Callable[[], Iterable[Chunk]], name: str = "the iterable"
) -> Source:
    """Make a source from any iterable of chunks (X, y), or from a function that returns one.

    Parameters
    ----------
    iterable : iterable of (X, y), or callable
        Chunks, or a function that returns a new iterable of chunks. If the source is to be read more than once, give a
        list or a function, not a generator.
    name : str
        Name of the source in messages.
    """
    return Source(name, lambda: iter(iterable() if callable(iterable) else iterable))


def from_dicts(
    iterable: Iterable[tuple[dict, Any]], *, n_features: int = 2**18, rows: int = 1000
) -> Source:
    """Make a source from pairs (dictionary of features, label), as in River, hashed to a given width.

    Parameters
    ----------
    iterable : iterable of (dict, label), or callable
        Points, or a function that returns a new iterable of points.
    n_features : int, default=2**18
        Width of the hashed rows.
    rows : int, default=1000
        Number of rows in a chunk.
    """
    from sklearn.feature_extraction import FeatureHasher

    check_integer("rows", rows)
    hasher = FeatureHasher(n_features)

    def chunks() -> Iterator[Chunk]:
        points = iter(iterable() if callable(iterable) else iterable)
        while some := [point for _, point in zip(range(rows), points, strict=False)]:
            yield hasher.transform(x for x, _ in some), np.array([label for _, label in some])

    return Source("the dictionaries", chunks)


def _unpacked(path: str | Path) -> Any:
    """Open a zst file that is unpacked as it is read. Unlike other readers, pyarrow detects a truncated file."""
    import pyarrow as pa

    return pa.input_stream(str(path), compression="zstd")


def _feature_names(schema: Any, target: str | None, columns: list[str] | None) -> list[str]:
    """Feature columns of a Parquet file. They must be numeric, and exclude an index that pandas stored."""
    import pyarrow.types as kinds

    index = (schema.pandas_metadata or {}).get("index_columns", [])
    names = columns or [name for name in schema.names if name != target and name not in index]
    for name in (*names, *([] if target is None else [target])):
        if name not in schema.names:
            raise KeyError(
                f"there is no column {name!r}; the columns are {', '.join(schema.names)}"
            )
    numeric = (kinds.is_boolean, kinds.is_integer, kinds.is_floating, kinds.is_decimal)
    for name in names:
        if not any(is_kind(schema.field(name).type) for is_kind in numeric):
            raise TypeError(f"column {name!r} is not numeric; choose other columns with columns=")
    return names


def from_frame(frame: Any, target: str | None, columns: list[str] | None) -> Chunk:
    """Rows and labels of a data frame; a column that is missing or not numeric raises an error."""
    if target is not None and target not in frame.columns:
        names = ", ".join(map(str, frame.columns))
        raise KeyError(f"there is no column {target!r}; the columns are {names}")
    if not len(frame):
        raise ValueError("there are no rows below the header")
    features = frame.drop(columns=target or []) if columns is None else frame[columns]
    text = [name for name, kind in features.dtypes.items() if kind.kind not in "biuf"]
    if text:
        raise TypeError(f"column {text[0]!r} is not numeric; choose other columns with columns=")
    y = None if target is None else frame[target].to_numpy()
    return np.ascontiguousarray(features.to_numpy(dtype=np.float64)), y
