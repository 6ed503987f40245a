"""Data sets: loading, preparing for methods, and downloading."""

from __future__ import annotations

import hashlib
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from experiments.bags import BagData, load_bags
from experiments.catalogue import EMBEDDED, DataSet, KnownSet, cache_folder, known_sets
from experiments.store import replacing
from quapy_nemsis.tables.columns import listed, typed, unused
from quapy_nemsis.tables.preparing import are_term_counts, preparer
from quapy_nemsis.tables.reading import LabelledData, load_file


def embedded(name: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return data that need no file, and the names of the classes.

    They are breast_cancer, digits (an 8 against the rest), digits3, and drift. In digits3 the classes are shapes: those
    of straight strokes (1, 7), open ones (2, 3, 4, 5) and those with a loop (0, 6, 8, 9). Of drift, 60,000 rows are
    generated, 5 % of them positive. Its classes are overlapping Gaussians with unequal spread, so that no linear model
    is exact.
    """
    if name == "breast_cancer":
        X, y = load_breast_cancer(return_X_y=True)
        return X, 1 - y, ["benign", "malignant"]
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X, (y == 8).astype(int), ["not 8", "8"]
    if name == "digits3":
        X, y = load_digits(return_X_y=True)
        shape_of_digit = np.array([2, 0, 1, 1, 1, 1, 2, 0, 2, 2])
        return X, shape_of_digit[y], ["straight", "open", "loop"]
    if name == "drift":
        rng = np.random.default_rng(0)
        y = (rng.random(60_000) < 0.05).astype(int)
        X = rng.normal(size=(60_000, 20)) * np.where(y == 1, 1.6, 1.0)[:, np.newaxis]
        X[:, :5] += 0.9 * y[:, np.newaxis]
        return X, y, ["narrow", "wide"]
    raise ValueError(f"unknown embedded data set {name!r}; choose from {', '.join(EMBEDDED)}")


@cache
def load(dataset: DataSet) -> LabelledData:
    """Return the features and labels of a data set, which are read once per process.

    A set is refused if a class has so few rows that the test part of a split may have none of it.
    """
    if dataset.path is not None:
        if dataset.path.is_dir():
            return load_bags(dataset.path, dataset.positive)
        loaded = load_file(dataset.path, dataset.target, dataset.positive, dataset.reading)
    else:
        X, y, classes = embedded(dataset.name)
        digest = hashlib.sha256(np.ascontiguousarray(X).tobytes() + y.tobytes()).hexdigest()
        loaded = LabelledData(X, y, classes, {}, digest)
    check_division(dataset, loaded)
    return loaded


def check_division(dataset: DataSet, loaded: LabelledData) -> None:
    """Refuse a set if the parts of its split cannot have rows of every class."""
    if dataset.split == "fold":
        if loaded.held_out is None:
            raise ValueError(
                f"{dataset.name} has no fold for --split fold: save an array 'fold' in an npz file, 0 for training and "
                "others for tests, or leave the option out"
            )
        for what, rows in (("training", ~loaded.held_out), ("test", loaded.held_out)):
            counts = np.bincount(loaded.y[rows], minlength=len(loaded.classes))
            if not counts.all():
                name = loaded.classes[int(counts.argmin())]
                raise ValueError(
                    f"{dataset.name} has no {what} rows of class {name!r} in its fold: add some, or leave --split out"
                )
        return
    rarest = int(loaded.counts.argmin())
    needed = math.ceil(1 / min(dataset.test_size, 1 - dataset.test_size))
    if loaded.counts[rarest] < needed:
        raise ValueError(
            f"{dataset.name} has {len(loaded.classes):,} classes, and {loaded.counts[rarest]} rows of class "
            f"{loaded.classes[rarest]!r}: a split needs {needed} of each. Add rows, leave the class out, name another "
            "column with --target, or one class with --positive, against all others"
        )


def describe(dataset: DataSet) -> str:
    """Return what there is to know about a data set before methods are compared on it."""
    loaded = load(dataset)
    rows, width = loaded.features.shape
    shares = [f"{100 * count / rows:.2f} %" for count in loaded.counts]
    if len(shares) == 2:
        labels = f"{shares[1]} positive (label {loaded.classes[1]})"
    else:
        named = (f"{name} ({share})" for name, share in zip(loaded.classes, shares, strict=True))
        labels = f"{len(shares)} classes: {', '.join(named)}"
    facts = [f"{rows:,} rows, {width:,} features, {labels}"]
    if are_term_counts(loaded.features):
        facts.append("term counts, weighted by tf-idf")
    if loaded.missing:
        names = listed(list(loaded.missing), 5)
        facts.append(f"{sum(loaded.missing.values()):,} missing values filled in, in {names}")
    facts += [f"read with {loaded.note}"] if loaded.note else []
    left_out = unused(loaded.roles)
    facts += [f"not used because {why}: {listed(names, 5)}" for why, names in left_out.items()]
    if isinstance(loaded, BagData):
        sizes = loaded.validation.total(), loaded.test.total()
        facts.append("{:,} bags for validation and {:,} for tests, in the folder".format(*sizes))
    elif dataset.split == "fold":
        facts.append(f"{held_out(dataset):,} rows for tests, by the fold of the file")
    return "; ".join(facts)


def held_out(dataset: DataSet) -> int | None:
    """Return the number of rows that samples are drawn from, or None if the test samples are bags of a folder."""
    loaded = load(dataset)
    if isinstance(loaded, BagData):
        return None
    if dataset.split == "fold":
        return int(loaded.held_out.sum())
    return int(dataset.test_size * len(loaded.y))


def columns_table(dataset: DataSet) -> list[list[str]]:
    """Return a row for each column of a table: its name, what it is taken as, its gaps, what is done with it."""
    return load(dataset).columns_table()


def columns_text(dataset: DataSet, most: int = 30) -> str:
    """Return the table of columns as text, its first rows only if there are many; empty for arrays."""
    rows = columns_table(dataset)
    if not rows:
        return ""
    shown = [["column", "taken as", "gaps", "what is done"], *rows[:most]]
    widths = [max(len(row[place]) for row in shown) for place in range(3)]
    lines = [
        f"  {name:{widths[0]}}  {kind:{widths[1]}}  {gaps:>{widths[2]}}  {done}"
        for name, kind, gaps, done in shown
    ]
    lines += [f"  ... and {len(rows) - most} more"] if len(rows) > most else []
    return "\n".join(lines)


def prepare(dataset: DataSet, seed: int) -> tuple:
    """Return a split as `split` does, of a data set that must have two classes."""
    classes = load(dataset).classes
    if len(classes) > 2:
        raise ValueError(f"{dataset.name} has {len(classes)} classes: give a data set of two")
    return split(dataset, seed)


def split(dataset: DataSet, seed: int) -> tuple:
    """Return a split whose features are prepared on its first part: X, y, X_test, y_test.

    It is random and stratified, or that of the file's fold. If there are too many rows for training, some of each class
    are left out.
    """
    loaded = load(dataset)
    y, features = loaded.y, loaded.features
    if dataset.split == "fold":
        train, test = np.flatnonzero(~loaded.held_out), np.flatnonzero(loaded.held_out)
    else:
        train, test = train_test_split(
            np.arange(len(y)), test_size=dataset.test_size, stratify=y, random_state=seed
        )
    most = dataset.train_rows
    if most is not None and len(train) > most:
        train, _ = train_test_split(train, train_size=most, stratify=y[train], random_state=seed)
    take = features.iloc if hasattr(features, "iloc") else features
    tools = preparer(take[train], are_term_counts(features), loaded.roles)
    X, X_test = tools.fit_transform(take[train]), tools.transform(take[test])
    return X, y[train], X_test, y[test]


def fetch(name: str) -> Path:
    """Download a known set into the cache folder, as npz, and return its path."""
    known = known_sets()
    if name not in known:
        raise ValueError(f"unknown data set {name!r}; choose from {', '.join(known)}")
    entry = known[name]
    if entry.manual:
        raise ValueError(f"{name} cannot be downloaded: {entry.manual}")
    try:
        X, y, *fold = _from_openml(*entry.openml) if entry.openml else _from_quapy(entry)
    except Exception as error:  # fetchers raise all sorts when there is no network
        raise OSError(
            f"{name} could not be downloaded ({type(error).__name__}: {error}). Is there a network? Otherwise put "
            f"{name}.npz, {name}.csv or {name}.libsvm into a folder and name it with --data-dir"
        ) from error
    parts = {"X": X}
    if scipy.sparse.issparse(X):
        X = X.tocsr()
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    parts |= {"fold": fold[0]} if fold else {}
    path = cache_folder() / f"{name}.npz"
    with replacing(path, "wb") as file:
        np.savez_compressed(file, y=np.where(y, 1, -1) if y.dtype == bool else y, **parts)
    return path


def _from_openml(identifier: int, positive: str) -> tuple[Any, np.ndarray]:
    from sklearn.datasets import fetch_openml

    bunch = fetch_openml(data_id=identifier, as_frame=True, parser="auto")
    y = bunch.target.astype(str).str.strip()
    matches = (y == positive) | (y == f"{positive}.0")
    columns = typed(bunch.data)
    X = preparer(columns).fit_transform(columns)
    return X, matches.to_numpy()


def _from_quapy(entry: KnownSet) -> tuple[Any, ...]:
    """Return the features, the labels and, if QuaPy divides the set, the fold."""
    import quapy as qp

    if entry.name.startswith("uci."):
        collection = qp.datasets.fetch_UCIBinaryLabelledCollection(entry.quapy)
        return collection.X, collection.y == collection.classes_[1]
    if entry.name.startswith("multi."):
        return qp.datasets.fetch_UCIMulticlassLabelledCollection(entry.quapy).Xy
    if entry.name.startswith("tweets."):
        dataset = qp.datasets.fetch_twitter(entry.quapy, min_df=5)
    else:
        dataset = qp.datasets.fetch_reviews(entry.quapy, tfidf=True, min_df=5)
    X = scipy.sparse.vstack([dataset.training.X, dataset.test.X])
    y = np.concatenate([dataset.training.y, dataset.test.y])
    fold = np.repeat([0, 1], [len(dataset.training), len(dataset.test)])
    return X, y if entry.name.startswith("tweets.") else y == 1, fold
