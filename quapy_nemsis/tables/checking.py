"""Checks of a table whose columns should be those of training: what is wrong or odd, and what is done about it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse

from quapy_nemsis.tables.columns import known as known_values
from quapy_nemsis.tables.columns import listed, read_as, text
from quapy_nemsis.tables.formats import Fault
from quapy_nemsis.tables.preparing import Preparation, TablePreparation
from quapy_nemsis.tables.reading import check_finite, closest

# Examples in messages, and different unseen categories that are counted.
_SHOWN, _MOST_UNSEEN = 3, 1000


class Checks:
    """Reads chunks of a table as the table of training was read, and counts what is odd.

    Parameters
    ----------
    preparation : Preparation
        What makes numbers of the columns.
    formats : dict
        Formats of dates that are texts, by the column.
    target : str or None
        The column of the labels.
    time, time_format, key
        Columns of times and of keys, as `TableQuantifier.prepare` takes them.
    """

    def __init__(
        self,
        preparation: Preparation,
        formats: dict[str, str],
        target: str | None,
        time: str | None = None,
        time_format: str = "",
        key: str | None = None,
    ):
        self.preparation, self.formats, self.target = preparation, formats, target
        self.time, self.time_format, self.key = time, time_format, key
        table = self.preparation if isinstance(self.preparation, TablePreparation) else None
        self.used = {} if table is None else table.used
        self.table = table
        self.categories = {} if table is None else {each.name: each for each in table.categories}
        self.numbers = [name for name, kind in self.used.items() if kind == "number"]
        self.known: Counter[str] = Counter()
        self.unreadable: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}
        self.gaps: Counter[str] = Counter()
        self.unseen: dict[str, Counter[str]] = {}
        self.unlabelled = 0
        self.names: list[str] | None = None
        self.new: list[str] = []
        self.has_target = False

    def read(self, rows: Any, labels: bool) -> Any:
        """Return a chunk as the preparation takes it."""
        if self.table is None:
            return self._matrix(rows)
        if not isinstance(rows, pd.DataFrame):
            raise Fault(
                f"the file has no names of columns; the model needs {listed(list(self.used))}"
            )
        if self.names is None:
            self._look_at_names(self.table, list(rows.columns), labels)
        found = {name: self._column(name, rows[name]) for name in self.used}
        frame = pd.DataFrame(found, index=rows.index)
        check_finite(frame)
        self._look_at_gaps(self.table, frame)
        return frame

    def _matrix(self, rows: Any) -> Any:
        if isinstance(rows, pd.DataFrame):
            raise Fault("the model was trained on a matrix; give an npz or LIBSVM file")
        width = self.preparation.width
        if scipy.sparse.issparse(rows) and rows.shape[1] < width:
            rows.resize(rows.shape[0], width)  # LIBSVM files do not say how many columns there are
        if rows.shape[1] != width:
            raise Fault(f"the rows have {rows.shape[1]} columns, and those of training {width}")
        check_finite(rows)
        return rows

    def labels(self, rows: pd.DataFrame) -> Any:
        """Return the column of labels of a chunk."""
        return self._named_column(rows, str(self.target), "labels").to_numpy()

    def times(self, rows: Any) -> np.ndarray:
        """Return the times of a chunk: dates in UTC, or seconds since 1970."""
        name = str(self.time)
        raw = self._named_column(rows, name, "times")
        found = read_as(raw, "number")
        if self.time_format or not found.notna().all():
            found = read_as(raw, "date", self.time_format or self.formats.get(name, ""))
        if found.isna().any():
            raise Fault(
                f"{int(found.isna().sum()):,} times of the column {name!r} cannot be read, such as "
                f"{listed(raw[found.isna()].tolist(), 1)}; write them in ISO 8601, or say --time-format"
            )
        return found.to_numpy()

    def keys(self, rows: Any) -> np.ndarray:
        """Return the keys of a chunk as texts, empty where there is none."""
        raw = self._named_column(rows, str(self.key), "keys")
        known = known_values(raw).to_numpy()
        return np.array(
            [text(value) if ok else "" for value, ok in zip(raw, known, strict=True)], dtype=object
        )

    def _named_column(self, rows: Any, name: str, holds: str) -> pd.Series:
        """Return a column that was named by the user."""
        if not isinstance(rows, pd.DataFrame):
            raise Fault(f"the file has no names of columns, and so no column {name!r} of {holds}")
        if name not in rows.columns:
            names = list(rows.columns)
            raise Fault(
                f"there is no column {name!r} of {holds}; {closest(name, names)}the columns are {listed(names)}"
            )
        return rows[name]

    def _look_at_names(self, table: TablePreparation, names: list[str], labels: bool) -> None:
        """Refuse a table in which columns are missing; note new ones."""
        self.names, target = names, self.target
        known = {*table.taken_as, target, self.time, self.key}
        self.new = [name for name in names if name not in known]
        self.has_target = target in names and not labels
        missing = [name for name in self.used if name not in names]
        if not missing:
            return
        hints = {name: closest(name, self.new) for name in missing}
        told = [
            f"{name!r} ({hint.strip()})" if hint else repr(name) for name, hint in hints.items()
        ]
        shown = ", ".join(told[:20]) + (f" and {len(told) - 20} more" if len(told) > 20 else "")
        only = " (only one: is the separator right? --separator says it)" if len(names) == 1 else ""
        raise Fault(
            f"columns that the model needs are missing: {shown}; the file has {listed(names)}{only}. Rename or add "
            "them, or train again without them"
        )

    def _column(self, name: str, raw: pd.Series) -> pd.Series:
        """Return a column as what it was taken as; count values that cannot be read."""
        taken_as = self.used[name]
        values = read_as(raw, taken_as, self.formats.get(name, ""))
        known = known_values(raw)
        lost = known & values.isna()
        self.known[name] += int(known.sum())
        if lost.any():
            self.unreadable[name] += int(lost.sum())
            examples = self.examples.setdefault(name, [])
            examples += [text(v) for v in pd.unique(raw[lost])[: _SHOWN - len(examples)]]
            if 2 * self.unreadable[name] > self.known[name]:
                raise Fault(
                    f"the column {name!r} held {_PLURAL[taken_as]} in training, and {self.unreadable[name]:,} of "
                    f"{self.known[name]:,} values are none, such as {listed(examples)}; write it as it was, or train "
                    "again"
                )
        return values

    def _look_at_gaps(self, table: TablePreparation, frame: pd.DataFrame) -> None:
        """Count gaps where training had none, and categories that training had not."""
        names = table.named("number", "boolean")
        marked = set() if table.numbers is None else {names[k] for k in table.numbers.marked}
        marked |= {date.name for date in table.dates if len(date.numbers.marked)}
        marked |= set(table.named("text"))
        for name in self.used:
            if name not in marked and (count := int(frame[name].isna().sum())):
                self.gaps[name] += count
        for category in table.categories:
            codes = category.codes(frame[category.name])
            if category.places[-1] != category.other:
                self.gaps.pop(category.name, None)
            unseen = frame[category.name][codes < 0]
            if len(unseen):
                counted = self.unseen.setdefault(category.name, Counter())
                for value, count in unseen.value_counts().items():
                    if value in counted or len(counted) < _MOST_UNSEEN:
                        counted[str(value)] += int(count)

    def notes(self) -> list[str]:
        """Return what was odd, and what was done about it."""
        notes = []
        if self.used and self.names and not self.known.total():
            raise Fault("the columns that the model needs have no values; give a file with some")
        if self.new:
            notes.append(f"columns that training did not have are not used: {listed(self.new, 5)}")
        if self.has_target:
            notes.append(
                f"the column {self.target!r} of labels is not used; `check` compares estimates with it"
            )
        for name, count in self.unreadable.items():
            notes.append(
                f"{count:,} values of {name!r} are not {_PLURAL[self.used[name]]}, such as "
                f"{listed(self.examples[name])}; they are treated as missing"
            )
        for name, count in (self.gaps - self.unreadable).items():
            filled = self.used[name] in ("number", "boolean", "date")
            done = "replaced by the median" if filled else "treated as an unseen category"
            notes.append(
                f"{count:,} values are missing in {name!r}, which had none missing in training; they are {done}"
            )
        for name, counted in self.unseen.items():
            category = self.categories[name]
            total = sum(counted.values())
            done = "a rare category" if category.other >= 0 else "none of the known categories"
            if total == self.known[name]:
                raise Fault(
                    f"the column {name!r} has none of the categories of training, such as {listed(category.known, 3)}, "
                    f"but {listed(list(counted), 3)}; write it as it was, or train again"
                )
            notes.append(
                f"{total:,} rows have categories of {name!r} that training did not have, such as "
                f"{listed([value for value, _ in counted.most_common(_SHOWN)])}; they are treated as {done}"
            )
        if self.unlabelled:
            notes.append(f"{self.unlabelled:,} rows without a label are left out")
        return notes


_PLURAL = {
    "number": "numbers",
    "boolean": "booleans",
    "date": "dates of that format",
    "category": "categories",
    "text": "texts",
}
