"""Data sets: loading, preparing for methods, and downloading."""

from __future__ import annotations

import hashlib
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


def embedded(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return data that need no file.

    They are breast_cancer (malignant is 1), digits (an 8 against the rest), and drift: 60,000 generated rows, 5 % of
    them positive. Its classes are overlapping Gaussians with unequal spread, so that no linear model is exact.
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
    raise ValueError(f"unknown embedded data set {name!r}; choose from {', '.join(EMBEDDED)}")


@cache
def load(dataset: DataSet) -> LabelledData:
    """Return the features and labels of a data set, which are read once per process."""
    if dataset.path is not None:
        return load_file(dataset.path, dataset.target, dataset.positive)
    X, y = embedded(dataset.name)
    digest = hashlib.sha256(np.ascontiguousarray(X).tobytes() + y.tobytes()).hexdigest()
    return LabelledData(X, y == 1, {}, digest)


def describe(dataset: DataSet) -> str:
    """Return what there is to know about a data set before methods are compared on it."""
    loaded = load(dataset)
    rows, width = loaded.features.shape
    facts = [f"{rows:,} rows, {width:,} features, {100 * loaded.y.mean():.2f} % positive"]
    if loaded.positive:
        facts[0] += f" (label {loaded.positive})"
    if are_term_counts(loaded.features):
        facts.append("term counts, weighted by tf-idf")
    if loaded.missing:
        names = listed(list(loaded.missing), 5)
        facts.append(f"{sum(loaded.missing.values()):,} missing values filled in, in {names}")
    left_out = unused(loaded.features)
    facts += [f"not used because {why}: {listed(names, 5)}" for why, names in left_out.items()]
    return "; ".join(facts)


def prepare(dataset: DataSet, seed: int, test_size: float = TEST_SIZE) -> tuple:
    """Return a stratified split whose features are prepared on its first part: X, y, X_test, y_test, labels 0 and 1."""
    loaded = load(dataset)
    y, features = loaded.y.astype(int), loaded.features
    train, test = train_test_split(
        np.arange(len(y)), test_size=test_size, stratify=y, random_state=seed
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
        np.savez_compressed(file, y=np.where(y, 1, -1), **parts)
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
    dataset = qp.datasets.fetch_reviews(entry.quapy, tfidf=True, min_df=5)
    X = scipy.sparse.vstack([dataset.training.X, dataset.test.X])
    y = np.concatenate([dataset.training.y, dataset.test.y])
    return X, y == 1
