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

from experiments.catalogue import EMBEDDED, DataSet, KnownSet, cache_folder, known_sets
from experiments.files import LabelledData, load_file
from experiments.prepare import are_term_counts, listed, preparer, unused
from experiments.store import replacing

#: Share of the rows that methods are tested on.
TEST_SIZE = 0.3


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
        loaded = load_file(dataset.path, dataset.target, dataset.positive)
    else:
        X, y, classes = embedded(dataset.name)
        digest = hashlib.sha256(np.ascontiguousarray(X).tobytes() + y.tobytes()).hexdigest()
        loaded = LabelledData(X, y, classes, {}, digest)
    rarest, needed = int(loaded.counts.argmin()), math.ceil(1 / TEST_SIZE)
    if loaded.counts[rarest] < needed:
        raise ValueError(
            f"{dataset.name} has {len(loaded.classes):,} classes, and {loaded.counts[rarest]} rows of class "
            f"{loaded.classes[rarest]!r}: a split needs {needed} of each. Add rows, leave the class out, name another "
            "column with --target, or one class with --positive, against all others"
        )
    return loaded


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
    left_out = unused(loaded.features)
    facts += [f"not used because {why}: {listed(names, 5)}" for why, names in left_out.items()]
    return "; ".join(facts)


def prepare(dataset: DataSet, seed: int) -> tuple:
    """Return a split as `split` does, of a data set that must have two classes."""
    classes = load(dataset).classes
    if len(classes) > 2:
        raise ValueError(f"{dataset.name} has {len(classes)} classes: give a data set of two")
    return split(dataset, seed)


def split(dataset: DataSet, seed: int) -> tuple:
    """Return a stratified split whose features are prepared on its first part: X, y, X_test, y_test."""
    loaded = load(dataset)
    y, features = loaded.y, loaded.features
    train, test = train_test_split(
        np.arange(len(y)), test_size=TEST_SIZE, stratify=y, random_state=seed
    )
    take = features.iloc if hasattr(features, "iloc") else features
    tools = preparer(take[train], counts=are_term_counts(features))
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
        X, y = _from_openml(*entry.openml) if entry.openml else _from_quapy(entry)
    except Exception as error:  # fetchers raise all sorts when there is no network
        raise OSError(
            f"{name} could not be downloaded ({type(error).__name__}: {error}). Is there a network? Otherwise put "
            f"{name}.npz, {name}.csv or {name}.libsvm into a folder and name it with --data-dir"
        ) from error
    parts = {"X": X}
    if scipy.sparse.issparse(X):
        X = X.tocsr()
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    path = cache_folder() / f"{name}.npz"
    with replacing(path, "wb") as file:
        np.savez_compressed(file, y=np.where(y, 1, -1) if y.dtype == bool else y, **parts)
    return path


def _from_openml(identifier: int, positive: str) -> tuple[Any, np.ndarray]:
    from sklearn.datasets import fetch_openml

    bunch = fetch_openml(data_id=identifier, as_frame=True, parser="auto")
    y = bunch.target.astype(str).str.strip()
    matches = (y == positive) | (y == f"{positive}.0")
    X = preparer(bunch.data).fit_transform(bunch.data)
    return X, matches.to_numpy()


def _from_quapy(entry: KnownSet) -> tuple[Any, np.ndarray]:
    import quapy as qp

    if entry.name.startswith("uci."):
        collection = qp.datasets.fetch_UCIBinaryLabelledCollection(entry.quapy)
        return collection.X, collection.y == collection.classes_[1]
    if entry.name.startswith("multi."):
        return qp.datasets.fetch_UCIMulticlassLabelledCollection(entry.quapy).Xy
    dataset = qp.datasets.fetch_reviews(entry.quapy, tfidf=True, min_df=5)
    X = scipy.sparse.vstack([dataset.training.X, dataset.test.X])
    y = np.concatenate([dataset.training.y, dataset.test.y])
    return X, y == 1
