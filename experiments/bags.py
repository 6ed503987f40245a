"""Folders of bags, in the layout of the LeQua competitions: training rows, and samples whose prevalences are known.

The folder, or the folder ``public`` in it, holds

- ``training_data.txt``: a CSV file of rows, with a column ``label``
- ``dev_samples``: CSV files ``0.txt``, ``1.txt`` and so on, of rows without labels
- ``dev_prevalences.txt``: a CSV file with a column ``id``, and a column for the share of each class
- ``test_samples`` and ``test_prevalences.txt``: the same, for tests
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from quapy.protocol import AbstractProtocol

from quapy_nemsis.tables.columns import listed, roles, typed
from quapy_nemsis.tables.formats import Fault
from quapy_nemsis.tables.preparing import preparer
from quapy_nemsis.tables.reading import LabelledData, encode, fingerprint, is_infinite


class Bags(AbstractProtocol):
    """The bags of a folder, each with the prevalences of its classes: a protocol of QuaPy.

    Parameters
    ----------
    folder : Path
        Holds a file for each bag.
    prevalences : DataFrame
        The share of each class, in a row for each bag.
    columns : Series
        The types of the columns, by their names.
    tools : transformer
        Makes features of a bag's rows.
    """

    def __init__(
        self, folder: Path, prevalences: pd.DataFrame, columns: pd.Series, tools: Any
    ) -> None:
        self.folder, self.prevalences = folder, prevalences
        self.columns, self.tools = columns, tools

    def __call__(self) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield the features and the prevalences of each bag; the same ones with every call."""
        shares = self.prevalences.to_numpy(dtype=float)
        for name, prevalence in zip(self.prevalences.index, shares, strict=True):
            yield self.tools.transform(self.rows(self.folder / f"{name}.txt")), prevalence

    def rows(self, path: Path) -> pd.DataFrame:
        """Return the rows of a bag, with the columns of the training rows."""
        try:
            frame = pd.read_csv(path)[list(self.columns.index)]
            frame = frame.astype(
                {name: t for name, t in self.columns.items() if t.kind not in "iuf"}
            )
        except (OSError, ValueError, KeyError) as error:
            raise Fault(f"{path}: the bag cannot be read ({error}); fetch it again") from error
        if any(is_infinite(frame[name]).any() for name in frame):
            raise Fault(f"{path}: there are infinite values; replace them, or leave them empty")
        return frame

    def total(self) -> int:
        """Return the number of bags."""
        return len(self.prevalences)


@dataclass(frozen=True)
class BagData(LabelledData):
    """Training rows, and bags with known prevalences for validation and for tests."""

    #: The prepared features of the training rows.
    X: Any = None
    validation: Bags | None = None
    test: Bags | None = None


def load_bags(folder: Path, positive: str | None = None) -> BagData:
    """Read the training rows and the prevalences of a folder; bags are read when they are needed."""
    if positive is not None:
        raise Fault(
            f"{folder}: the prevalences of bags are those of all classes; leave --positive out"
        )
    base = folder / "public" if (folder / "public").is_dir() else folder
    path = base / "training_data.txt"
    frame = table(path)
    if "label" not in frame:
        raise Fault(f"{path}: there is no column 'label', of {listed(list(frame))}")
    try:
        y, classes = encode(frame.pop("label").to_numpy(), None, None)
    except Fault as fault:
        raise Fault(f"{path}: {fault}") from fault.__cause__
    features = typed(frame)
    taken_as = roles(features)
    tools = preparer(features, taken_as=taken_as)
    X = tools.fit_transform(features)
    found = {}
    digest = hashlib.sha256(fingerprint(path).encode())
    for part in ("dev", "test"):
        prevalences = known_prevalences(base / f"{part}_prevalences.txt", classes)
        bags = base / f"{part}_samples"
        sizes = {file.name: file.stat().st_size for file in sorted(bags.glob("*.txt"))}
        if lacking := [name for name in prevalences.index if f"{name}.txt" not in sizes]:
            raise Fault(f"{bags}: there is no file for the bags {listed(lacking)}; fetch them")
        digest.update(fingerprint(base / f"{part}_prevalences.txt").encode() + repr(sizes).encode())
        found[part] = Bags(bags, prevalences, features.dtypes, tools)
    gaps = {name: int(count) for name, count in features.isna().sum().items() if count}
    return BagData(
        features, y, classes, gaps, digest.hexdigest(), taken_as,
        X=X, validation=found["dev"], test=found["test"],
    )  # fmt: skip


def table(path: Path) -> pd.DataFrame:
    """Return the table of a CSV file."""
    try:
        return pd.read_csv(path)
    except FileNotFoundError:
        raise Fault(f"{path}: there is no such file; see the layout in {__name__}") from None
    except (OSError, ValueError) as error:
        raise Fault(f"{path}: the file cannot be read ({error}); fetch it again") from error


def known_prevalences(path: Path, classes: list[str]) -> pd.DataFrame:
    """Return the prevalences of each bag, which have an identifier."""
    frame = table(path)
    if "id" not in frame or list(frame.columns.drop("id")) != classes:
        wanted = listed(["id", *classes])
        raise Fault(f"{path}: the columns must be {wanted}; they are {listed(list(frame))}")
    frame = frame.set_index("id")
    try:
        shares = frame.to_numpy(dtype=float)
    except ValueError as error:
        raise Fault(f"{path}: prevalences must be numbers ({error})") from error
    bad = ~(np.isclose(shares.sum(axis=1), 1, atol=1e-3) & (shares >= 0).all(axis=1))
    if bad.any():
        raise Fault(f"{path}: the shares of bag {frame.index[bad][0]} do not add up to 1")
    return frame
