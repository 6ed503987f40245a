"""Tests for drift on rows without labels: have prevalences changed since training, and has anything else changed.

Both tests compare the scores of new rows with those of labelled rows that the learner had not learned (`Background`).
A function φ of the scores has a mean μⱼ and a covariance Sⱼ in class j, estimated from mⱼ such rows. If only the
prevalences have changed, the mean of φ over n new rows is Σⱼ pⱼ·μⱼ, up to noise with the covariance

    V(p) = (Σⱼ pⱼ·(Sⱼ + μⱼμⱼᵀ) − μμᵀ)/n + Σⱼ pⱼ²·Sⱼ/mⱼ,   μ = Σⱼ pⱼ·μⱼ.

The second term is the noise of the labelled rows. A wrong calibration therefore does not cause false alarms: φ may be
any function, as long as it is the same for new and for labelled rows.

* `prevalence_test`: φ is the posterior at the prevalences π of training, which is the derivative of the likelihood of
  prevalences at π (Rao's score test). The statistic is the squared distance of its mean from Σⱼ πⱼ·μⱼ, in units of V(π)
  and of the noise of π itself.
* `mixture_test`: φ says in which part of their range the scores of a row lie. The statistic is the smallest squared
  distance from any Σⱼ pⱼ·μⱼ, in units of V(p) (Hansen's test of overidentifying restrictions, 1982).

Under the null hypothesis, both statistics have a χ² distribution as numbers of rows grow. As V is estimated, from few
rows if a class is rare, p-values come from Hotelling's distribution instead. Of d equations, the mixture test uses up
K − 1 for fitted prevalences, and the other test none; q are left. The statistic times (ν − d + 1)/(ν·q) has an F
distribution with q and ν − d + 1 degrees of freedom. Here 1/ν = Σⱼ wⱼ²/(mⱼ − 1), where wⱼ is the share of class j in
the noise (Welch and Satterthwaite).

If you ask both questions at once, there are two chances of a false alarm. `Background.tests` answers both with Holm's
correction (1979). If nothing has changed, the probability that either test rejects is at most the level. If only the
prevalences have changed, the probability that the mixture test rejects is at most the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import fdtrc, log_softmax

from quapy_nemsis import prevalence
from quapy_nemsis._validation import MatrixLike, check_labels, check_share, encode
from quapy_nemsis.learners.calibration import Calibration

if TYPE_CHECKING:
    from quapy_nemsis.quantifiers import Quantifier, Scores

#: Fewer rows are not tested, and classes need this many labelled rows.
LEAST_ROWS, LEAST_MEMBERS = 20, 5
# Into how many parts the range of scores is divided: for two classes, up to three, up to six, and for more. A part has
# at least so many of the new rows.
_PARTS = ((2, 8), (3, 5), (6, 4), (10**9, 3))
_LEAST_IN_PART = 5
# More labelled rows would not make the tests more powerful, but slower.
_MOST_ROWS = 100_000
_TOLERANCE, _MOST_STEPS = 1e-7, 20
# Directions in which φ varies less, relative to that in which it varies most, are rounding errors.
_RANK = 1e-9


@dataclass(frozen=True)
class DriftResult:
    """Result of a test for drift.

    Parameters
    ----------
    test : {"prevalence", "mixture"}
        Which of the two tests it is.
    statistic : float
        Squared distance from the value that is expected without drift, in units of its noise.
    freedom : int
        Degrees of freedom of the statistic: how many equations are tested.
    p_value : float
        Probability of a statistic that is at least this large, if there is no drift.
    rows : int
        Number of rows that were tested.
    rejects : bool
        Whether the test finds drift at its level.
    sentence : str
        The result in words.

    Examples
    --------
    >>> result = DriftResult("mixture", 20.5, 6, 0.0023, 500, True, "The 500 rows are not a mixture.")
    >>> result.rejects, result.p_value
    (True, 0.0023)
    """

    test: str
    statistic: float
    freedom: int
    p_value: float
    rows: int
    rejects: bool
    sentence: str


def prevalence_test(
    quantifier: Quantifier,
    X: MatrixLike | Scores,
    *,
    reference: tuple[MatrixLike, ArrayLike] | None = None,
    level: float = 0.05,
) -> DriftResult:
    """Test whether the prevalences of the classes in a population differ from those of training.

    The test assumes that nothing but the prevalences may have changed (see `mixture_test`). It allows for the noise of
    the new rows, of the labelled rows, and of the training prevalences (see `quapy_nemsis.drift`). Over many
    quantifiers, false alarms are as frequent as the level says. For a single quantifier, they may be rarer or more
    frequent, because all its windows are compared with the same training rows (docs/tracking.md has figures). If
    training rows were sampled with fixed shares of the classes, the training prevalences have less noise than assumed,
    and false alarms are rarer.

    Parameters
    ----------
    quantifier : Quantifier
        A fitted quantifier.
    X : array-like or sparse matrix of shape (n_samples, n_features), or Scores
        At least 20 rows, or their scores (see `Quantifier.scores`).
    reference : tuple (X, y), optional
        Labelled rows from the time of training that the classifier was not trained on. By default, these are the rows
        that calibrate the quantifier. Give your own rows if the classifier is not from this package. Otherwise new rows
        are scored by another learner than the calibration rows, which may cause false alarms.
    level : float, default=0.05
        The test rejects if the p-value is below this level.

    Returns
    -------
    DriftResult
        The p-value, the statistic and a sentence.

    Examples
    --------
    >>> from quapy_nemsis import Quantifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(2000) < 0.3
    >>> X = rng.normal(size=(2000, 2)) + np.outer(y, [1.5, 0.0])
    >>> quantifier = Quantifier(random_state=0).fit(X[:1000], y[:1000])
    >>> bool(prevalence_test(quantifier, X[1000:]).p_value > 0.05)
    True
    >>> kept = y[1000:] | (rng.random(1000) < 0.5)  # half of the negatives
    >>> print(prevalence_test(quantifier, X[1000:][kept]).sentence)
    The prevalences have changed since training (p < 0.001): the prevalence of True is about 0.48, and was 0.28.
    """
    background = Background.of(quantifier, reference)
    return background.prevalence_test(background.scores_of(quantifier, X), level)


def mixture_test(
    quantifier: Quantifier,
    X: MatrixLike | Scores,
    *,
    reference: tuple[MatrixLike, ArrayLike] | None = None,
    level: float = 0.05,
) -> DriftResult:
    """Test whether rows are a mixture of the training classes, in any proportions, judged by their scores.

    If they are not, more has changed than the prevalences, and estimates of prevalences may be wrong. The range of
    scores is divided into parts that are equally likely at the fitted prevalences: 8 parts for two classes; for K > 2
    classes, 3 to 5 parts of the range of the log-odds of each class. If a change within the classes leaves the
    distribution of scores a mixture, it cannot be found without labels.

    Parameters
    ----------
    quantifier : Quantifier
        A fitted quantifier.
    X : array-like or sparse matrix of shape (n_samples, n_features), or Scores
        At least 20 rows, or their scores (see `Quantifier.scores`).
    reference : tuple (X, y), optional
        Labelled rows from the time of training that the classifier was not trained on (see `prevalence_test`). Their
        prevalences do not matter.
    level : float, default=0.05
        The test rejects if the p-value is below this level.

    Returns
    -------
    DriftResult
        The p-value, the statistic and a sentence.

    Examples
    --------
    >>> from quapy_nemsis import Quantifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(3000) < np.repeat([0.3, 0.7], [1000, 2000])  # the prevalence changes
    >>> X = rng.normal(size=(3000, 2)) + np.outer(y, [2.0, 0.0])
    >>> quantifier = Quantifier(random_state=0).fit(X[:1000], y[:1000])
    >>> bool(mixture_test(quantifier, X[1000:]).p_value > 0.05)
    True
    >>> print(mixture_test(quantifier, 1.5 * X[1000:]).sentence)
    The 2,000 rows are not a mixture of the training classes (p < 0.001): more has changed than the prevalences, and
    estimates of prevalences may be wrong.
    """
    background = Background.of(quantifier, reference)
    return background.mixture_test(background.scores_of(quantifier, X), level)


class Moments(NamedTuple):
    """Means and covariances of a function of labelled rows in each class, and how many rows tell."""

    means: np.ndarray
    covariances: np.ndarray
    sizes: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, labels: np.ndarray, weights: np.ndarray, n: int) -> Moments:
        """Moments of values, a row per labelled row, in each of n classes."""
        means, covariances, sizes = [], [], []
        for k in range(n):
            own = labels == k
            w = weights[own] / weights[own].sum()
            size = 1.0 / float(w @ w)
            mean = w @ values[own]
            centred = values[own] - mean
            covariances.append((centred * w[:, np.newaxis]).T @ centred * (size / (size - 1.0)))
            means.append(mean)
            sizes.append(size)
        return cls(np.array(means), np.array(covariances), np.array(sizes))

    def noise(self, p: np.ndarray, n_rows: int) -> np.ndarray:
        """Covariance V(p) of the mean of that many rows around Σⱼ pⱼ·μⱼ."""
        centred = self.means - p @ self.means
        of_a_row = np.tensordot(p, self.covariances, 1) + (centred * p[:, np.newaxis]).T @ centred
        return of_a_row / n_rows + np.tensordot(p**2 / self.sizes, self.covariances, 1)

    def certainty(self, p: np.ndarray, n_rows: int, inverse: np.ndarray, rank: int) -> float:
        """Degrees of freedom ν of an estimate of V(p), given its inverse and rank."""
        spreads = np.einsum("ij,kji->k", inverse, self.covariances)
        shares = (p / n_rows + p**2 / self.sizes) * spreads / rank
        return float(1.0 / max((shares**2 / (self.sizes - 1.0)).sum(), 1e-12))


class _Statistic(NamedTuple):
    """A squared distance in units of its noise, in so many directions, of which some were used up by a fit."""

    test: str
    value: float
    directions: int
    freedom: int
    #: Degrees of freedom of the estimate of the noise.
    certainty: float

    @property
    def p_value(self) -> float:
        """Probability of a distance that is at least as large, without drift (Hotelling)."""
        if not self.freedom:
            return 1.0
        left = max(self.certainty - self.directions + 1.0, 1.0)
        scaled = self.value * left / (max(self.certainty, left) * self.freedom)
        return float(fdtrc(self.freedom, left, scaled))


class Background:
    """Scores of labelled rows that the learner was not trained on; the tests compare new scores with them.

    Parameters
    ----------
    calibration : Calibration
        The calibration, which turns scores into log-odds of the classes.
    scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of labelled rows.
    labels : ndarray of shape (n_samples,)
        Positions of their classes.
    weights : ndarray of shape (n_samples,)
        How many rows each of them stands for.
    classes : ndarray of shape (n_classes,)
        Names of the classes.
    of_folds : bool
        Whether each score comes from one of the learners of the folds, and not from their mean.

    Examples
    --------
    >>> from quapy_nemsis.learners.calibration import Calibration
    >>> rng = np.random.default_rng(0)
    >>> y = rng.random(4000) < 0.5
    >>> scores = rng.normal(size=4000) + 2.0 * y
    >>> known = Calibration.of(scores[:2000], y[:2000])
    >>> background = Background(
    ...     known, known.scores, known.labels, known.weights, np.array(["no", "yes"]), False
    ... )
    >>> bool(background.mixture_test(scores[2000:]).p_value > 0.05)
    True
    """

    def __init__(
        self,
        calibration: Calibration,
        scores: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        classes: np.ndarray,
        of_folds: bool,
    ):
        part = slice(None, None, max(len(scores) // _MOST_ROWS, 1))
        self.calibration = calibration
        self.scores, self.weights = scores[part], weights[part].astype(float)
        self.labels = labels[part].astype(np.intp)
        self.classes, self.of_folds = classes, of_folds
        members = np.bincount(self.labels, minlength=len(classes))
        if members.min() < LEAST_MEMBERS:
            rarest = classes[int(members.argmin())]
            raise ValueError(
                f"class {rarest!r} has {members.min()} labelled rows to compare with, and needs {LEAST_MEMBERS}: give "
                "more rows with reference=(X, y)"
            )

    @classmethod
    def of(
        cls,
        quantifier: Quantifier,
        reference: tuple[MatrixLike, ArrayLike] | None = None,
        names: Sequence[str] | None = None,
    ) -> Background:
        """Scores of the rows that calibrate a fitted quantifier, or of other labelled rows.

        Sentences call the classes by their names, by default those that the quantifier has learned.
        """
        if not hasattr(quantifier, "calibration_"):
            raise ValueError("the quantifier is not fitted: call fit(X, y) first")
        known, classes = quantifier.calibration_, np.asarray(quantifier.classes_)
        if names is not None and len(names) != len(classes):
            raise ValueError(f"there are {len(classes)} classes, and {len(names)} names: {names}")
        called = classes if names is None else np.asarray(names)
        if reference is None:
            return cls(known, known.scores, known.labels, known.weights, called, True)
        X, y = reference
        check_labels(y)
        y = np.asarray(y)
        strange = set(np.unique(y).tolist()) - set(classes.tolist())
        if strange:
            raise ValueError(
                f"reference has the label {min(strange, key=str)!r}, which is not among {classes.tolist()}"
            )
        scores = quantifier.scores(X).values
        if y.shape != scores.shape[:1]:
            raise ValueError(f"reference has {len(scores)} rows, but labels of shape {y.shape}")
        return cls(known, scores, encode(y, classes), np.ones(len(y)), called, False)

    def scores_of(self, quantifier: Quantifier, X: MatrixLike | Scores) -> np.ndarray:
        """Scores of new rows, by learners like those that scored the labelled rows."""
        found = quantifier.scores(X)
        return found.of_folds if self.of_folds else found.values

    def prevalence_test(self, scores: np.ndarray, level: float = 0.05) -> DriftResult:
        """Test of prevalences on the scores of new rows (see `prevalence_test`)."""
        check_share("level", level)
        return self._told(self._prevalence_statistic(scores), scores, level)

    def mixture_test(self, scores: np.ndarray, level: float = 0.05) -> DriftResult:
        """Test of the mixture on the scores of new rows (see `mixture_test`)."""
        check_share("level", level)
        return self._told(self._mixture_statistic(scores), scores, level)

    def tests(self, scores: np.ndarray, level: float = 0.05) -> tuple[DriftResult, DriftResult]:
        """Both tests on the scores of new rows, with Holm's correction.

        A test rejects if its p-value is below half of the level or, if that of the other test is, below the level.

        Parameters
        ----------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores of at least 20 rows, as `scores_of` returns them.
        level : float, default=0.05
            Probability of any false alarm.

        Returns
        -------
        tuple of DriftResult
            Results of the prevalence test and of the mixture test.
        """
        check_share("level", level)
        first, second = self._prevalence_statistic(scores), self._mixture_statistic(scores)
        levels = [
            level if other.p_value < 0.5 * level else 0.5 * level for other in (second, first)
        ]
        return self._told(first, scores, levels[0]), self._told(second, scores, levels[1])

    def _prevalence_statistic(self, scores: np.ndarray) -> _Statistic:
        n_rows, known, moments = _enough(scores), self.calibration, self._posteriors
        values = known.probabilities(scores)[:, 1:]
        shares, means = known.shares, moments.means
        total = float(known.members.sum())
        of_shares = means.T @ ((np.diag(shares) - np.outer(shares, shares)) / total) @ means
        away = values.mean(axis=0) - shares @ means
        inverse, rank = _inverse(moments.noise(shares, n_rows) + of_shares)
        certainty = moments.certainty(shares, n_rows, inverse, rank)
        return _Statistic("prevalence", float(away @ inverse @ away), rank, rank, certainty)

    def _mixture_statistic(self, scores: np.ndarray) -> _Statistic:
        n_rows, known = _enough(scores), self.calibration
        log_odds = known.log_odds(scores)
        p = prevalence.maximum(prevalence.likelihoods(log_odds), known.shares, 0.5)
        edges = self._edges(p, n_rows)
        values = _parts(_coordinates(log_odds), edges).mean(axis=0)
        moments = Moments.of(
            _parts(self._places, edges), self.labels, self.weights, known.n_classes
        )
        return _least_distance(values, moments, p, n_rows)

    def _told(self, found: _Statistic, scores: np.ndarray, level: float) -> DriftResult:
        """Result of a test at a level, in words."""
        p_value, n_rows, rejects = found.p_value, len(scores), found.p_value < level
        if found.test == "mixture":
            said = f"The scores of {n_rows:,} rows look like a mixture of the training classes ({_shown(p_value)})."
            if rejects:
                said = (
                    f"The {n_rows:,} rows are not a mixture of the training classes ({_shown(p_value)}): more has "
                    "changed than the prevalences, and estimates of prevalences may be wrong."
                )
        else:
            said = (
                f"{n_rows:,} rows give no evidence that the prevalences have changed since training "
                f"({_shown(p_value)})."
            )
            if rejects:
                known = self.calibration
                rows, shares = prevalence.likelihoods(known.log_odds(scores)), known.shares
                now = prevalence.maximum(rows, shares, 0.5)
                k = int(np.abs(now - shares).argmax()) if len(shares) > 2 else 1
                said = (
                    f"The prevalences have changed since training ({_shown(p_value)}): the prevalence of "
                    f"{self.classes[k]} is about {now[k]:.2f}, and was {shares[k]:.2f}."
                )
        value, freedom = found.value, found.freedom
        return DriftResult(found.test, value, freedom, p_value, n_rows, rejects, said)

    @cached_property
    def _posteriors(self) -> Moments:
        values = self.calibration.probabilities(self.scores)[:, 1:]
        return Moments.of(values, self.labels, self.weights, self.calibration.n_classes)

    @cached_property
    def _places(self) -> np.ndarray:
        return _coordinates(self.calibration.log_odds(self.scores))

    @cached_property
    def _order(self) -> np.ndarray:
        return np.argsort(self._places, axis=0, kind="stable")

    def _edges(self, p: np.ndarray, n_rows: int) -> list[np.ndarray]:
        """Borders of parts of each coordinate that are equally likely at the prevalences p."""
        K = self.calibration.n_classes
        n_parts = next(parts for most, parts in _PARTS if most >= K)
        n_parts = max(min(n_parts, n_rows // _LEAST_IN_PART), 2)
        weights = self.weights * (p / np.bincount(self.labels, self.weights, K))[self.labels]
        levels = np.arange(1, n_parts) / n_parts
        found = []
        for place, order in zip(self._places.T, self._order.T, strict=True):
            reached = np.cumsum(weights[order])
            borders = np.searchsorted(reached, levels * reached[-1])
            edges = np.unique(place[order[borders]])
            found.append(edges[edges < place[order[-1]]])
        return found


def _enough(scores: np.ndarray) -> int:
    if len(scores) < LEAST_ROWS:
        raise ValueError(f"a test of drift needs at least {LEAST_ROWS} rows; got {len(scores)}")
    return len(scores)


def _coordinates(log_odds: np.ndarray) -> np.ndarray:
    """Log-odds of the second of two classes, or of each of more against all others, at equal prevalences."""
    if log_odds.shape[1] == 2:
        return log_odds[:, 1:] - log_odds[:, :1]
    logs = log_softmax(log_odds, axis=1)
    return logs - np.log1p(-np.minimum(np.exp(logs), 1.0 - 1e-12))


def _parts(places: np.ndarray, edges: list[np.ndarray]) -> np.ndarray:
    """Which edges of each coordinate lie below a row, as 0 and 1."""
    columns = [place[:, np.newaxis] > at for place, at in zip(places.T, edges, strict=True)]
    return np.hstack(columns).astype(float)


def _inverse(noise: np.ndarray) -> tuple[np.ndarray, int]:
    """Pseudo-inverse of a covariance, and its rank."""
    values, vectors = np.linalg.eigh(noise)
    kept = values > _RANK * max(values[-1], 1e-300)
    return (vectors[:, kept] / values[kept]) @ vectors[:, kept].T, int(kept.sum())


def _least_distance(values: np.ndarray, moments: Moments, p: np.ndarray, n_rows: int) -> _Statistic:
    """Smallest squared distance of values from a mixture, in units of noise.

    Prevalences of the fitted mixture add up to 1, but may be negative. With the constraint, the statistic of rows
    without one of the classes would not have a χ² distribution.
    """
    directions = (moments.means[1:] - moments.means[0]).T
    for _ in range(_MOST_STEPS):
        inside = np.clip(p, 1e-9, None)
        inside /= inside.sum()
        inverse, rank = _inverse(moments.noise(inside, n_rows))
        left = directions.T @ inverse
        x = np.linalg.lstsq(left @ directions, left @ (values - moments.means[0]), rcond=None)[0]
        before, p = p, np.concatenate([[1.0 - x.sum()], x])
        if np.abs(p - before).max() < _TOLERANCE:
            break
    away = values - p @ moments.means
    certainty = moments.certainty(inside, n_rows, inverse, rank)
    value, freedom = float(away @ inverse @ away), max(rank - len(x), 0)
    return _Statistic("mixture", value, rank, freedom, certainty)


def _shown(p_value: float) -> str:
    return "p < 0.001" if p_value < 0.001 else f"p = {p_value:.3f}"


__all__: list[Any] = ["Background", "DriftResult", "mixture_test", "prevalence_test"]
