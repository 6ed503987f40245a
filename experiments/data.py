"""Data sets: those that ship with scikit-learn, folders of files, downloads, and files of your own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from experiments.files import READERS, Table, known_suffix, read_file
from experiments.prepare import listed, preparer, unused

#: Points at a folder of data files, as ``--data-dir`` does.
FOLDER_VARIABLE = "QUAPY_NEMSIS_DATA"
#: Share of the rows that methods are tested on.
TEST_SIZE = 0.3
EMBEDDED = ("breast_cancer", "digits", "drift")
#: Term counts, to be weighted by tf-idf.
TEXT = ("imdb", "sms-spam", "mr-polarity")


@dataclass(frozen=True)
class Known:
    """A data set that has a name in this field."""

    name: str
    size: str
    positives: str
    #: "paper" or "quapy".
    origin: str
    #: Identifier and positive class on OpenML, or a fetcher of QuaPy.
    openml: tuple[int, str] | None = None
    quapy: str = ""
    #: How to get it if it cannot be downloaded.
    manual: str = ""


_NOT_PUBLIC = "supply NAME.npz (X, y in ±1), NAME.csv or NAME.libsvm in --data-dir"
PAPER = (
    Known("kddcup08", "102,294 x 117", "0.61 %", "paper", manual=f"KDD Cup 2008; {_NOT_PUBLIC}"),
    Known("ppi", "240,249 x 85", "1.19 %", "paper", manual=f"protein interactions; {_NOT_PUBLIC}"),
    Known("covtype", "581,012 x 54", "1.63 %", "paper", openml=(1596, "5")),
    Known("cheminfo", "2,142 x 55", "2.33 %", "paper", manual=f"virtual screening; {_NOT_PUBLIC}"),
    Known("letter", "20,000 x 16", "3.92 %", "paper", openml=(6, "N")),
    Known("ijcnn1", "141,691 x 22", "9.57 %", "paper", openml=(1575, "1")),
    Known("adult", "48,842 x 123", "23.93 %", "paper", openml=(1590, ">50K")),
    Known("cod-rna", "488,565 x 8", "33.33 %", "paper", openml=(351, "1")),
)


def known_sets() -> tuple[Known, ...]:
    """The paper's eight sets, and QuaPy's binary ones."""
    from quapy.data.datasets import REVIEWS_SENTIMENT_DATASETS, UCI_BINARY_DATASETS

    quapy = [Known(f"uci.{name}", "", "", "quapy", quapy=name) for name in UCI_BINARY_DATASETS]
    quapy += [
        Known(f"reviews.{name}", "", "", "quapy", quapy=name) for name in REVIEWS_SENTIMENT_DATASETS
    ]
    return (*PAPER, *quapy)


def cache_folder() -> Path:
    """Where downloads are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "quapy-nemsis" / "data"


@dataclass(frozen=True)
class Source:
    """Where a data set comes from: embedded, or a file."""

    name: str
    path: Path | None = None
    target: str | None = None
    positive: str | None = None


def folders(data_dir: Path | None) -> list[Path]:
    """Where named sets are looked for, in this order."""
    given = [data_dir] if data_dir else []
    variable = os.environ.get(FOLDER_VARIABLE)
    return [*given, *([Path(variable)] if variable else []), cache_folder()]


def find(name: str, data_dir: Path | None = None) -> Path | None:
    """File of a named set, if there is one."""
    for folder in folders(data_dir):
        for suffix in READERS:
            path = folder / f"{name}{suffix}"
            if path.is_file():
                return path
    return None


def source(
    name: str,
    data_dir: Path | None = None,
    target: str | None = None,
    positive: str | None = None,
) -> Source:
    """The source of a name: an embedded set, a file in a data folder, or the path of a file."""
    if name in EMBEDDED:
        return Source(name)
    path = find(name, data_dir)
    if path is None and (os.sep in name or Path(name).is_file()):
        path = Path(name)
        name = path.name if path.is_dir() else path.name[: -len(known_suffix(path))]
    if path is None:
        places = ", ".join(str(folder) for folder in folders(data_dir))
        raise FileNotFoundError(
            f"no data set {name!r}: not one of {', '.join(EMBEDDED)}, no such file, and no file of this name in "
            f"{places}. `python -m experiments data` lists what there is and what can be fetched"
        )
    return Source(name, path, target, positive)


def embedded(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Data that need no file.

    breast_cancer (malignant is 1), digits (an 8 against the rest), and drift: 60,000 generated rows, 5 % positive, the
    classes overlapping Gaussians with unequal spread, so that no linear model is exact.
    """
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return X, 1 - y
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X, (y == 8).astype(int)
    if name == "drift":
        rng = np.random.default_rng(0)
        y = (rng.random(60_000) < 0.05).astype(int)
        X = rng.normal(size=(60_000, 20)) * np.where(y == 1, 1.6, 1.0)[:, np.newaxis]
        X[:, :5] += 0.9 * y[:, np.newaxis]
        return X, y
    raise ValueError(f"unknown embedded data set {name!r}; known are {', '.join(EMBEDDED)}")


@lru_cache(maxsize=2)
def load(source: Source) -> Table:
    """Features and labels of a source."""
    if source.path is not None:
        return read_file(source.path, source.target, source.positive)
    X, y = embedded(source.name)
    return Table(X, y == 1, source.name, {}, _fingerprint([X, y]))


def describe(source: Source) -> str:
    """What there is to know about a data set before methods are compared on it."""
    table = load(source)
    rows, width = table.features.shape
    facts = [f"{rows:,} rows, {width:,} features, {100 * table.y.mean():.2f} % positive"]
    if table.positive:
        facts[0] += f" (label {table.positive})"
    if table.missing:
        facts.append(
            f"{sum(table.missing.values()):,} missing values filled in, in {listed(list(table.missing), 5)}"
        )
    left_out: dict[str, list[str]] = {}
    for name, reason in unused(table.features).items():
        left_out.setdefault(reason, []).append(name)
    facts += [
        f"not used because {reason}: {listed(names, 5)}" for reason, names in left_out.items()
    ]
    return "; ".join(facts)


def _fingerprint(arrays: Iterable[np.ndarray]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def prepare(source: Source, seed: int, test_size: float = TEST_SIZE) -> tuple:
    """A stratified split, with features prepared on its first part: X, y, X_test, y_test; labels are 0 and 1."""
    table = load(source)
    y = table.y.astype(int)
    train, test = train_test_split(
        np.arange(len(y)), test_size=test_size, stratify=y, random_state=seed
    )
    features = table.features
    take = features.iloc if hasattr(features, "iloc") else features
    tools = TfidfTransformer() if source.name in TEXT else preparer(take[train])
    X, X_test = tools.fit_transform(take[train]), tools.transform(take[test])
    return X, y[train], X_test, y[test]


def from_npz(folder: Path, name: str) -> tuple[Any, np.ndarray]:
    """X and y, in ±1, of ``folder/name.npz``."""
    path = Path(folder) / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(f"no data set {name!r}: {path} does not exist")
    table = read_file(path, None, None)
    X = table.features
    if not scipy.sparse.issparse(X):
        X = np.ascontiguousarray(X, dtype=np.float32)
    return X, np.where(table.y, 1, -1)


def split(X: Any, y: np.ndarray, seed: int, test_size: float = TEST_SIZE) -> tuple:
    """Stratified, shuffled split with features standardised on the first part: X, y, X_test, y_test.

    Sparse data are made dense, because centring fills them anyway; they must be narrow enough for that.
    """
    if scipy.sparse.issparse(X):
        if X.shape[0] * X.shape[1] > 10**8:
            raise ValueError(f"a sparse matrix of shape {X.shape} is too large to standardise")
        X = X.toarray()
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=test_size, stratify=y, random_state=seed
    )
    scaler = StandardScaler().fit(X_train)
    return scaler.transform(X_train), y_train, scaler.transform(X_test), y_test


def fetch(name: str) -> Path:
    """Download a known set into the cache folder, as npz.

    Raises
    ------
    ValueError
        If it is not known, or cannot be downloaded.
    OSError
        If the download fails.
    """
    known = {entry.name: entry for entry in known_sets()}
    if name not in known:
        raise ValueError(f"unknown data set {name!r}; known are {', '.join(known)}")
    entry = known[name]
    if entry.manual:
        raise ValueError(f"{name} cannot be downloaded: {entry.manual}")
    try:
        X, y = _from_openml(*entry.openml) if entry.openml else _from_quapy(entry)
    except Exception as error:  # fetchers raise all sorts when there is no network
        raise OSError(
            f"{name} could not be downloaded ({type(error).__name__}: {error}). Is there a network? Otherwise put "
            f"{name}.npz, {name}.csv or {name}.libsvm into a folder and name it with --data-dir"
        ) from error
    path = cache_folder() / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {"X": X}
    if scipy.sparse.issparse(X):
        X = X.tocsr()
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    temporary = path.with_suffix(".part.npz")
    np.savez_compressed(temporary, y=np.where(y, 1, -1), **parts)
    os.replace(temporary, path)
    return path


def _from_openml(identifier: int, positive: str) -> tuple[Any, np.ndarray]:
    from sklearn.datasets import fetch_openml

    bunch = fetch_openml(data_id=identifier, as_frame=True, parser="auto")
    y = bunch.target.astype(str).str.strip()
    matches = (y == positive) | (y == f"{positive}.0")
    X = preparer(bunch.data).fit_transform(bunch.data)
    return X, matches.to_numpy()


def _from_quapy(entry: Known) -> tuple[Any, np.ndarray]:
    import quapy as qp

    if entry.name.startswith("uci."):
        collection = qp.datasets.fetch_UCIBinaryLabelledCollection(entry.quapy)
        return collection.X, collection.y == collection.classes_[1]
    dataset = qp.datasets.fetch_reviews(entry.quapy, tfidf=True, min_df=5)
    X = scipy.sparse.vstack([dataset.training.X, dataset.test.X])
    y = np.concatenate([dataset.training.y, dataset.test.y])
    return X, y == 1
