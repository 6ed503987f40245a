"""From files to prevalences: a quantifier that reads tables, prepares their columns and says what is odd about them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._validation import check_seed
from quapy_nemsis.learners.calibration import Calibration
from quapy_nemsis.learners.state import Arrays, Saved, check_parameters
from quapy_nemsis.quantifiers.default import Quantifier, Scores
from quapy_nemsis.tables.formats import INSTALL, RECOGNISED, Fault, Reading

try:
    import pandas as pd

    from quapy_nemsis.tables.checking import Checks
    from quapy_nemsis.tables.chunking import chunks
    from quapy_nemsis.tables.columns import listed, text
    from quapy_nemsis.tables.preparing import Preparation, are_term_counts, preparer
    from quapy_nemsis.tables.reading import LabelledData, load_file, load_frame
except ImportError as error:
    if str(error.name).startswith("quapy_nemsis"):
        raise
    raise ImportError(f"tables need {error.name}: {INSTALL}") from error

if TYPE_CHECKING:
    from typing_extensions import Self

#: The least rows of a class that something can be learned from.
LEAST = 5
# Samples of held-out rows that tell how exact estimates will be, the rows of one, and the draws for its interval.
_SAMPLES, _SAMPLE_SIZE, _DRAWS = 40, 500, 100
Table = Any


@dataclass(frozen=True)
class Estimate:
    """Estimated class prevalences in a file or table, with intervals and notes."""

    #: Name of the file, or "the table".
    source: str
    n_rows: int
    classes: tuple[str, ...]
    prevalences: np.ndarray
    #: Ends of the interval of each class, and the probability with which it contains the prevalence.
    low: np.ndarray
    high: np.ndarray
    level: float
    #: Prevalences in training.
    training: np.ndarray
    #: What was odd about the file and what was done about it, in words.
    notes: tuple[str, ...] = ()
    #: Shares of the labels, if the file has them and they were asked for.
    true: np.ndarray | None = None
    scores: Scores | None = field(default=None, repr=False, compare=False)
    draws: np.ndarray | None = field(default=None, repr=False, compare=False)

    @property
    def inside(self) -> np.ndarray | None:
        """Whether each interval contains the share of the labels, if there are labels."""
        if self.true is None:
            return None
        return (self.low - 1e-9 <= self.true) & (self.true <= self.high + 1e-9)


class TableQuantifier(BaseEstimator):
    """Estimate class prevalences in tables, which may be files or DataFrames, with intervals.

    `fit` takes a labelled table, detects the types of its columns, turns them into numbers, and trains a `Quantifier`
    on these. `estimate` takes other tables with the same columns, reads them in chunks, and keeps only the scores of
    their rows. A table may be a CSV, Parquet, xlsx, npz or LIBSVM file, or a DataFrame. `quapy_nemsis.save` saves the
    quantifier.

    Parameters
    ----------
    target : str or None, default=None
        The column with the labels. npz and LIBSVM files have no column names, and do not need it.
    positive : str or None, default=None
        A label, as text, that is one class; all other labels are the other class. If None, each label is a class.
    quantifier : Quantifier or None, default=None
        None is ``Quantifier()`` with the random state below.
    random_state : int, default=0
        Seed for the quantifier and its intervals.

    Attributes
    ----------
    quantifier_ : Quantifier
        The fitted quantifier. Its classes are 0, 1 and so on.
    preparation_ : Preparation
        The transformer that turns columns into numbers.
    classes_ : list of str
        Names of the classes.
    facts_ : dict
        Facts about the training, as plain values: rows, columns, and how accurate estimates will be.
    unlabelled_ : Estimate or None
        Estimate for the rows without a label, if the training table had any.

    Examples
    --------
    >>> import pandas as pd
    >>> rng = np.random.default_rng(0)
    >>> def month(rows, share):
    ...     ill = rng.random(rows) < share
    ...     return pd.DataFrame({
    ...         "age": rng.normal(50 + 15 * ill, 10).round(),
    ...         "fever": rng.random(rows) < 0.2 + 0.6 * ill,
    ...         "town": rng.choice(["Pisa", "Rome"], rows),
    ...         "outcome": np.where(ill, "ill", "well"),
    ...     })
    >>> model = TableQuantifier(target="outcome", positive="ill").fit(month(1000, 0.3))
    >>> may = month(800, 0.6)
    >>> found = model.estimate(may.drop(columns="outcome"))
    >>> bool(found.low[1] <= (may["outcome"] == "ill").mean() <= found.high[1])
    True
    """

    quantifier_: Quantifier
    preparation_: Preparation
    classes_: list[str]
    facts_: dict[str, Any]
    unlabelled_: Estimate | None

    def __init__(
        self,
        target: str | None = None,
        positive: str | None = None,
        quantifier: Any = None,
        random_state: int = 0,
    ):
        self.target = target
        self.positive = positive
        self.quantifier = quantifier
        self.random_state = random_state

    def fit(self, table: Table, y: Any = None, *, reading: Reading = RECOGNISED) -> Self:
        """Train on a labelled table. If some rows have no label, their prevalences are estimated (see `unlabelled_`).

        Parameters
        ----------
        table : str, Path or DataFrame
            The table.
        y : None
            Ignored; labels are in the column `target`.
        reading : Reading
            How to read text files and workbooks. What is not given is detected.

        Returns
        -------
        self
            The fitted quantifier.
        """
        check_seed(self.random_state)
        options = (self.target, self.positive)
        if isinstance(table, pd.DataFrame):
            data = load_frame(table, *options, unlabelled=True)
        else:
            data = load_file(table, *options, reading, unlabelled=True)
        name = _name(table)
        rarest = int(data.counts.argmin())
        if data.counts[rarest] < LEAST:
            raise Fault(
                f"{name}: of {len(data.classes):,} classes, {data.classes[rarest]!r} has {data.counts[rarest]} rows, "
                f"and {LEAST} are needed. Add some, leave these rows out, name another column with --target, or one "
                "class with --positive, against all others"
            )
        rows, rest = np.flatnonzero(data.y >= 0), np.flatnonzero(data.y < 0)
        take = data.features.iloc if data.roles else data.features
        with _named(name):
            preparation = preparer(take[rows], are_term_counts(data.features), data.roles or None)
        quantifier = Quantifier() if self.quantifier is None else clone(self.quantifier)
        if quantifier.random_state is None:
            quantifier.random_state = self.random_state
        quantifier.fit(preparation.fit_transform(take[rows]), data.y[rows])
        self.preparation_, self.quantifier_ = preparation, quantifier
        self.classes_ = list(data.classes)
        self.facts_ = self._facts(data, name)
        self.unlabelled_ = None
        if len(rest):
            scores = quantifier.scores(preparation.transform(take[rest]))
            self.unlabelled_ = self._estimated(Scored(f"{name}, rows without a label", scores))
        return self

    def _facts(self, data: LabelledData, name: str) -> dict[str, Any]:
        """What is known about the training, in plain values."""
        labelled = int(data.counts.sum())
        return {
            "source": name,
            "sha256": data.fingerprint,
            "trained": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "rows": labelled,
            "unlabelled rows": len(data.y) - labelled,
            "counts": data.counts.tolist(),
            "columns": data.columns_table(),
            "features": self.preparation_.width,
            "codes": data.codes,
            "formats": data.formats,
            "decimal": (data.dialect or {}).get("decimal", "."),
            "dialect": data.note,
            "expected": expected_accuracy(self.quantifier_, self.random_state),
        }

    def score(self, table: Table, *, reading: Reading = RECOGNISED, labels: bool = False) -> Scored:
        """Score the rows of a table, chunk by chunk.

        Parameters
        ----------
        table : str, Path or DataFrame
            The table.
        reading : Reading
            How to read text files and workbooks.
        labels : bool, default=False
            Whether to read the labels, too. Rows without one are then left out.

        Returns
        -------
        Scored
            Scores of the rows, classes if asked for, and notes.
        """
        checks, parts, codes, n_scored = self._checks(), [], [], 0
        for part in self._prepared(table, checks, reading, labels):
            parts.append(self.quantifier_.scores(part.X, n_scored))
            if part.codes is not None:
                codes.append(part.codes)
            n_scored += len(parts[-1])
        with _named(_name(table)):
            return Scored(
                _name(table),
                Scores.joined(parts),
                np.concatenate(codes) if labels else None,
                tuple(checks.notes()),
            )

    def prepare(
        self,
        table: Table,
        *,
        reading: Reading = RECOGNISED,
        time: str | None = None,
        time_format: str = "",
        key: str | None = None,
        tell: Callable[[str], Any] | None = None,
    ) -> Iterator[Prepared]:
        """Yield the rows of a table as `quantifier_` takes them, chunk by chunk.

        `quapy_nemsis.tracking` follows a stream of such rows: ``Rows(part.X, times=part.times)``.

        Parameters
        ----------
        table : str, Path or DataFrame
            The table.
        reading : Reading
            How to read text files and workbooks.
        time : str, optional
            A column with the times of rows: dates in ISO 8601, or seconds since 1970.
        time_format : str, default=""
            Format of times in another form, such as "%d.%m.%Y %H:%M".
        key : str, optional
            A column that tells rows apart, by which labels that arrive later find them (see `labels`).
        tell : callable, optional
            Called with each note on what was odd about the table, once it is read.

        Yields
        ------
        Prepared
            Features of rows, their times, and their keys as texts.
        """
        checks = self._checks(time, time_format, key)
        yield from self._prepared(table, checks, reading)
        with _named(_name(table)):
            for note in checks.notes():
                if tell is not None:
                    tell(note)

    def labels(self, table: Table, key: str, *, reading: Reading = RECOGNISED) -> dict[str, int]:
        """Return the classes of the rows of a table by their keys, to be found among rows without labels.

        Parameters
        ----------
        table : str, Path or DataFrame
            A table that has the columns `key` and `target`. Others are not used.
        key : str
            A column that tells rows apart.
        reading : Reading
            How to read text files and workbooks.

        Returns
        -------
        dict
            The position of the class of each row that has a label, by the key as text. Of two rows with the same key,
            the later counts.
        """
        found: dict[str, int] = {}
        with _named(_name(table)):
            checks = self._checks(key=key)
            wanted = set() if self.target is None else {self.target}
            for rows, _ in chunks(table, wanted, reading, self.facts_["decimal"]):
                keys = checks.keys(rows)
                codes = self._codes(checks.labels(rows))
                given = np.flatnonzero((codes >= 0) & (keys != ""))
                found |= zip(keys[given].tolist(), codes[given].tolist(), strict=True)
        return found

    def _checks(
        self, time: str | None = None, time_format: str = "", key: str | None = None
    ) -> Checks:
        check_is_fitted(self)
        return Checks(
            self.preparation_, self.facts_["formats"], self.target, time, time_format, key
        )

    def _prepared(
        self, table: Table, checks: Checks, reading: Reading, labels: bool = False
    ) -> Iterator[Prepared]:
        """Features of the rows of a table in chunks, and classes if asked for. Rows without one are then left out."""
        with _named(_name(table)):
            numbers, empty = {*checks.numbers}, True
            numbers |= set() if self.target is None else {self.target}
            for rows, y in chunks(table, numbers, reading, self.facts_["decimal"]):
                codes = None
                if labels:
                    found = self._codes(
                        checks.labels(rows) if isinstance(rows, pd.DataFrame) else y
                    )
                    checks.unlabelled += int((found < 0).sum())
                    kept = np.flatnonzero(found >= 0)
                    rows = rows.iloc[kept] if isinstance(rows, pd.DataFrame) else rows[kept]
                    codes = found[kept]
                if rows.shape[0]:
                    features = self.preparation_.transform(checks.read(rows, labels))
                    times = None if checks.time is None else checks.times(rows)
                    keys = None if checks.key is None else checks.keys(rows)
                    empty = False
                    yield Prepared(features, codes, times, keys)
            if empty:
                wanted = "rows with a label" if labels else "rows of data"
                raise Fault(f"the file has no {wanted}; give one with some")

    def _codes(self, labels: Any) -> np.ndarray:
        """Classes of labels, −1 where there is none."""
        if labels is None:
            raise Fault("the file has no labels; give one with some")
        known, values = self.facts_["codes"], np.asarray(labels)
        missing = np.asarray(pd.isna(values))
        found = np.full(len(values), -1)
        for label in pd.unique(pd.Series(values[~missing])):
            spelled = text(label)
            if spelled not in known:
                raise Fault(
                    f"the label {spelled!r} is not known; training had {listed(list(known))}"
                )
            found[~missing & (values == label)] = known[spelled]
        return found

    def estimate(
        self,
        table: Table,
        level: float = 0.95,
        *,
        reading: Reading = RECOGNISED,
        labels: bool = False,
    ) -> Estimate:
        """Estimate the prevalences of the classes in a table, with intervals.

        Parameters
        ----------
        table : str, Path or DataFrame
            The table.
        level : float, default=0.95
            Probability that the interval of a class contains its prevalence among the rows.
        reading : Reading
            How to read text files and workbooks.
        labels : bool, default=False
            Whether to compare with the labels of the table (see `Estimate.true` and `Estimate.inside`).

        Returns
        -------
        Estimate
            Prevalences, intervals and notes.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"the interval must lie between 0 and 1, such as 0.95; got {level!r}")
        return self._estimated(self.score(table, reading=reading, labels=labels), level)

    def _estimated(self, scored: Scored, level: float = 0.95) -> Estimate:
        scores = scored.scores
        draws = self.quantifier_.draw(scores)
        tail = 0.5 * (1.0 - level)
        low, high = np.quantile(draws, [tail, 1.0 - tail], axis=0)
        true = None
        if scored.codes is not None:
            true = np.bincount(scored.codes, minlength=len(self.classes_)) / len(scores)
        return Estimate(
            source=scored.source,
            n_rows=len(scores),
            classes=tuple(self.classes_),
            prevalences=self.quantifier_.predict(scores),
            low=low,
            high=high,
            level=level,
            training=self.training_shares,
            notes=scored.notes,
            true=true,
            scores=scores,
            draws=draws,
        )

    @property
    def training_shares(self) -> np.ndarray:
        """Prevalences in training."""
        members = self.quantifier_.calibration_.members
        return np.asarray(members / members.sum())

    def to_saved(self) -> Saved:
        """What a file holds of the quantifier, which must be fitted."""
        check_is_fitted(self)
        parameters = {name: getattr(self, name) for name in ("target", "positive", "random_state")}
        parameters |= {"classes": self.classes_, "facts": self.facts_}
        parts = {"quantifier": self.quantifier_, "preparation": self.preparation_}
        return Saved(parameters, parts, {})

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], parts: dict[str, Any], arrays: Arrays) -> Self:
        """Inverse of `to_saved`; parts that do not fit together raise a ValueError."""
        names = ("target", "positive", "random_state", "classes", "facts")
        check_parameters(parameters, names, cls.__name__)
        quantifier, preparation = parts.get("quantifier"), parts.get("preparation")
        if (
            not isinstance(quantifier, Quantifier)
            or not hasattr(quantifier, "calibration_")
            or not isinstance(preparation, Preparation)
            or len(parts) != 2
        ):
            raise ValueError("it consists of no fitted Quantifier and preparation")
        features = quantifier.features_
        wanted = (quantifier.classifier if features is None else features).n_features_in_
        if preparation.width != wanted:
            raise ValueError("its preparation does not fit its quantifier")
        classes, facts = parameters["classes"], parameters["facts"]
        _check_facts(facts, classes, len(quantifier.classes_), preparation)
        found = cls(**{name: parameters[name] for name in names[:3]})
        for name in names[:2]:
            if not isinstance(parameters[name], str | None):
                raise ValueError(f"its {name} is no text")
        check_seed(found.random_state)
        found.quantifier_, found.preparation_ = quantifier, preparation
        found.classes_, found.facts_, found.unlabelled_ = classes, facts, None
        return found


@dataclass(frozen=True)
class Scored:
    """Scores of the rows of a table, their classes if it has labels, and what was odd about it."""

    source: str
    scores: Scores
    codes: np.ndarray | None = None
    notes: tuple[str, ...] = ()


class Prepared(NamedTuple):
    """Features of some rows of a table, their classes if asked for, and times and keys if a column was named."""

    X: Any
    codes: np.ndarray | None = None
    times: np.ndarray | None = None
    keys: np.ndarray | None = None


def expected_accuracy(quantifier: Quantifier, seed: int = 0) -> dict[str, Any]:
    """Tell how exact estimates will be, from rows that the learner has not learned.

    Half of the held-out scores calibrate. The other half gives samples, with prevalences drawn uniformly from all
    possible ones. The quantifier itself is calibrated with all of them, and so somewhat more exact.

    Returns
    -------
    dict
        Number and size of the samples, the mean absolute error of a prevalence, the share of 95 % intervals that
        contain it, and their mean width; empty if there are too few rows.
    """
    known = quantifier.calibration_
    n_classes, rng = known.n_classes, np.random.default_rng(seed)
    labels = known.labels.astype(int)
    if np.bincount(labels, minlength=n_classes).min() < 2 * LEAST:
        return {}
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    half, rest = order[::2], order[1::2]
    judge = copy(quantifier)
    judge.n_draws = min(_DRAWS, int(quantifier.n_draws))
    judge.calibration_ = Calibration.of(known.scores[half], known.labels[half], known.weights[half])
    pools = [rest[labels[rest] == k] for k in range(n_classes)]
    size = min(_SAMPLE_SIZE, len(rest))
    errors, widths, inside = [], [], []
    for _ in range(_SAMPLES):
        counts = rng.multinomial(size, rng.dirichlet(np.ones(n_classes)))
        chosen = np.concatenate(
            [rng.choice(pool, k) for pool, k in zip(pools, counts, strict=True)]
        )
        scores = Scores(known.scores[chosen], known.scores[chosen])
        low, high = np.quantile(judge.draw(scores), [0.025, 0.975], axis=0)
        true = counts / size
        errors.append(np.abs(judge.predict(scores) - true).mean())
        widths.append((high - low).mean())
        inside.append(((low - 1e-9 <= true) & (true <= high + 1e-9)).mean())
    return {
        "samples": _SAMPLES,
        "sample size": size,
        "mean absolute error": float(np.mean(errors)),
        "coverage": float(np.mean(inside)),
        "mean width": float(np.mean(widths)),
    }


def _check_facts(facts: Any, classes: Any, n_classes: int, preparation: Preparation) -> None:
    """Raise a ValueError if what is known about the training is not usable."""
    texts = isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    if not texts or len(classes) != n_classes:
        raise ValueError("its classes do not fit its quantifier")
    kinds: dict[str, Any] = {
        **dict.fromkeys(("source", "sha256", "trained", "decimal", "dialect"), str),
        **dict.fromkeys(("rows", "unlabelled rows", "features"), int),
        **dict.fromkeys(("codes", "formats", "expected"), dict),
        **dict.fromkeys(("counts", "columns"), list),
    }
    if not isinstance(facts, dict) or facts.keys() != kinds.keys():
        raise ValueError("what it knows about its training is incomplete")
    wrong = [name for name, kind in kinds.items() if not isinstance(facts[name], kind)]
    codes, formats, counts = facts["codes"], facts["formats"], facts["counts"]
    if (
        wrong
        or not all(type(code) is int and 0 <= code < n_classes for code in codes.values())
        or not all(isinstance(how, str) for how in formats.values())
        or not all(type(count) is int and count >= 0 for count in counts)
        or len(counts) != n_classes
        or not all(isinstance(value, int | float) for value in facts["expected"].values())
        or not all(
            isinstance(row, list) and len(row) == 4 and all(isinstance(v, str) for v in row)
            for row in facts["columns"]
        )
    ):
        raise ValueError("what it knows about its training is not valid")


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Add the name of a table to faults that do not begin with it."""
    try:
        yield
    except Fault as fault:
        if str(fault).startswith(f"{name}: "):
            raise
        raise Fault(f"{name}: {fault}") from fault.__cause__


def _name(table: Table) -> str:
    return "the table" if isinstance(table, pd.DataFrame) else str(Path(table))
