"""Plug-in classifiers: the best decision rule for a measure, given the posteriors of any classifier."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, cross_val_predict
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import (
    _num_samples,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
)

from quapy_nemsis._validation import (
    MatrixLike,
    check_bool,
    check_integer,
    check_labels,
    check_option,
    check_positive,
    check_seed,
    several_classes,
    unchanged_on_error,
)
from quapy_nemsis.learners.tuning import CandidateScores
from quapy_nemsis.measures import (
    BA,
    ClassRates,
    Measure,
    NestedMeasure,
    PseudoMeasure,
    Rates,
    get_measure,
)
from quapy_nemsis.measures.formulas import smoothing

if TYPE_CHECKING:
    from typing_extensions import Self

# Weight of BA beside a measure of the count alone, which does not tell good classifiers from bad ones.
_TIE_BREAK = 1e-3
# How many thresholds are tried at most if there are two classes.
_MOST_THRESHOLDS = 5_000
# How often weight is moved between the rules of a mixture before the next rule is sought, at most.
_MOST_MOVES = 50
PREFIT = "prefit"


class Rules(NamedTuple):
    """Decision rules, one in each row: argmax over the classes j of factor_j·η_j + offset_j for posteriors η."""

    factors: np.ndarray
    offsets: np.ndarray

    def codes(self, posteriors: np.ndarray, which: int) -> np.ndarray:
        """Positions of the classes that a rule predicts."""
        return np.argmax(posteriors * self.factors[which] + self.offsets[which], axis=1)


class Solution(NamedTuple):
    """A mixture of rules, what each of them reaches, a bound on what is missing to the maximum, and steps taken."""

    weights: np.ndarray
    rules: Rules
    points: np.ndarray
    gap: float
    steps: int

    @property
    def at(self) -> np.ndarray:
        """Recalls and counted prevalences of the mixture, in two rows."""
        return np.tensordot(self.weights, self.points, 1)


class Achievable:
    """The recalls and counted prevalences that decision rules on posteriors reach on some rows.

    They stand for the confusion matrix C: recall R_i = C_ii/p_i and counts q_j = Σ_i C_ij. All measures here are
    functions of these. A mixture of rules reaches the mixture of what they reach.

    Parameters
    ----------
    posteriors : ndarray of shape (n_samples, n_classes)
        Posteriors of the rows.
    labels : ndarray of shape (n_samples,)
        Positions of the classes of the rows.
    """

    def __init__(self, posteriors: np.ndarray, labels: np.ndarray):
        self.posteriors, self.labels = posteriors, labels
        self.n_classes = posteriors.shape[1]
        self.members = np.bincount(labels, minlength=self.n_classes).astype(float)
        self.p = self.members / self.members.sum()
        self.eps = float(smoothing(self.members.sum()))

    def tally(self, rules: Rules, which: int) -> np.ndarray:
        """Rows that a rule predicts right, and rows that it predicts, of each class."""
        codes = rules.codes(self.posteriors, which)
        right = codes[codes == self.labels]
        return np.array([np.bincount(found, minlength=self.n_classes) for found in (right, codes)])

    def reached(self, rules: Rules, which: int) -> np.ndarray:
        """Recalls and counted prevalences of a rule, in two rows."""
        hits, counted = self.tally(rules, which)
        return np.array([hits / np.maximum(self.members, 1.0), counted / self.members.sum()])

    def rates(self, at: np.ndarray) -> Rates | ClassRates:
        """Recalls and counts as the rates of a measure."""
        if self.n_classes > 2:
            return ClassRates(at[0], at[1], self.p, self.eps)
        return Rates(float(at[0, 1]), float(at[0, 0]), float(self.p[1]), self.eps)

    def value(self, measure: Measure, at: np.ndarray) -> float:
        """Value of a measure; BA tells apart what a measure of the count alone does not."""
        value = measure.at(self.rates(at))
        return value + _TIE_BREAK * BA().at(self.rates(at)) if measure.prevalence_only else value

    def gradient(self, measure: NestedMeasure, at: np.ndarray) -> np.ndarray:
        """Gradient of `value` by recalls and counts; with two classes all of it is by the recalls."""
        rates = self.rates(at)
        if isinstance(rates, Rates):
            by_recall = np.array(measure.class_gradients(*rates)[::-1])
            found = np.array([by_recall, np.zeros(2)])
        else:
            found = np.array(measure.gradients(*rates))
        if measure.prevalence_only:
            found[0] += _TIE_BREAK / self.n_classes
        return found

    def best_rule(self, gradient: np.ndarray) -> Rules:
        """The rule with the highest Σ gradient·(recalls, counts), if the posteriors are right."""
        below = np.where(self.p > 0.0, self.p, 1.0)
        rule = np.array([gradient[0] / below, gradient[1]])
        rule /= max(np.abs(rule).max(), 1e-300)
        return Rules(rule[:1], rule[1:])

    def maximise(
        self, measure: NestedMeasure, tol: float, max_iter: int, start: Solution | None = None
    ) -> Solution:
        """Frank-Wolfe for a concave measure, from a given mixture or from the best rule for BA."""
        if start is None:
            rules = self.best_rule(self.gradient(BA(), np.full((2, self.n_classes), 0.5)))
            start = Solution(np.ones(1), rules, self.reached(rules, 0)[np.newaxis], np.inf, 0)
        weights, rules, points, gap, steps = start
        at = np.tensordot(weights, points, 1)
        for _ in range(max_iter):
            steps += 1
            gradient = self.gradient(measure, at)
            rule = self.best_rule(gradient)
            target = self.reached(rule, 0)
            gap = float((gradient * (target - at)).sum())
            step = self._line_search(measure, at, target - at, 1.0) if gap > tol else 0.0
            if step == 0.0:
                break
            weights = np.append((1.0 - step) * weights, step)
            points = np.concatenate([points, target[np.newaxis]])
            rules = Rules(*(np.vstack(parts) for parts in zip(rules, rule, strict=True)))
            weights = self._balanced(measure, weights, points, 0.1 * gap)
            kept = weights > 0.0
            weights, points = weights[kept], points[kept]
            rules = Rules(*(part[kept] for part in rules))
            at = np.tensordot(weights, points, 1)
        return Solution(weights, rules, points, max(gap, 0.0), steps)

    def _balanced(
        self, measure: NestedMeasure, weights: np.ndarray, points: np.ndarray, tol: float
    ) -> np.ndarray:
        """Better weights of the same points, by moving weight from the worst to the best (pairwise Frank-Wolfe)."""
        for _ in range(_MOST_MOVES):
            at = np.tensordot(weights, points, 1)
            gains = (points * self.gradient(measure, at)).sum(axis=(1, 2))
            worst = int(np.argmin(np.where(weights > 0.0, gains, np.inf)))
            best = int(np.argmax(gains))
            if gains[best] - gains[worst] <= tol:
                break
            most = float(weights[worst])
            step = self._line_search(measure, at, points[best] - points[worst], most)
            if step == 0.0:
                break
            weights = weights.copy()
            weights[best] += step
            weights[worst] = 0.0 if step == most else most - step
        return weights

    def _line_search(
        self, measure: NestedMeasure, start: np.ndarray, direction: np.ndarray, most: float
    ) -> float:
        """The step along a direction with the highest value, or 0 if none is higher than at the start."""

        def loss(step: float) -> float:
            return -self.value(measure, start + step * direction)

        exact = {"xatol": 1e-9 * most}
        found = minimize_scalar(loss, bounds=(0.0, most), method="bounded", options=exact)
        return min([0.0, most, float(found.x)], key=loss)

    def bisect(
        self, measure: PseudoMeasure, tol: float, max_iter: int
    ) -> tuple[Solution, list[Rules]]:
        """Find the highest level v at which the valuation can reach 0, by bisection; also, the rules tried."""
        best = self.maximise(measure.valuation(0.0), tol, max_iter)
        low = self.value(measure, best.at)
        perfect = np.array([np.ones(self.n_classes), self.p])
        high, tried, steps = max(self.value(measure, perfect), low), [best.rules], best.steps
        while high - low > tol:
            level = 0.5 * (low + high)
            found = self.maximise(
                measure.valuation(level), 0.1 * tol, max_iter, best._replace(steps=steps)
            )
            steps = found.steps
            tried.append(found.rules)
            value = self.value(measure, found.at)
            if value > low:
                best, low = found, value
            if value < level:
                high = level
        return best._replace(gap=max(high - low, 0.0), steps=steps), tried

    def thresholds(self) -> tuple[Rules, np.ndarray]:
        """Rules for two classes that predict the second above a threshold, and their tallies.

        The thresholds lie between posteriors that occur: all of them, or many that divide the rows evenly.
        """
        odds = self.posteriors[:, 1] - self.posteriors[:, 0]
        values = np.unique(odds)
        between = np.concatenate([[-2.0], 0.5 * (values[1:] + values[:-1]), [2.0]])
        if len(between) > _MOST_THRESHOLDS:
            places = np.linspace(0, len(between) - 1, _MOST_THRESHOLDS).round().astype(int)
            between = between[places]
        below = [
            np.searchsorted(np.sort(odds[self.labels == label]), between, side="right")
            for label in (0, 1)
        ]
        found = self.members[1] - below[1]
        hits = np.column_stack([below[0], found])
        counted = np.column_stack([below[0] + below[1], found + self.members[0] - below[0]])
        offsets = np.column_stack([between, np.zeros(len(between))])
        return Rules(np.ones((len(between), 2)), offsets), np.stack([hits, counted], axis=1)

    def best_single(self, measure: Measure, tried: list[Rules]) -> tuple[Rules, float]:
        """The best of the rules by the measure on these rows, and its value; of two classes, also of all thresholds."""
        rules = Rules(*(np.vstack(parts) for parts in zip(*tried, strict=True)))
        rules = Rules(*np.hsplit(np.unique(np.hstack(rules), axis=0), 2))
        tallies = np.array([self.tally(rules, k) for k in range(len(rules.factors))])
        if self.n_classes == 2:
            more, further = self.thresholds()
            rules = Rules(*(np.vstack(parts) for parts in zip(rules, more, strict=True)))
            tallies = np.concatenate([tallies, further])
        scores = CandidateScores(
            self.members[np.newaxis], tallies[np.newaxis, :, 0], tallies[np.newaxis, :, 1]
        )
        best = slice(place := int(scores.order(measure)[0]), place + 1)
        chosen = Rules(rules.factors[best], rules.offsets[best])
        return chosen, measure.at(self.rates(self.reached(chosen, 0)))


class PlugInClassifier(MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    """The best decision rule for a measure on the posteriors of any classifier (Narasimhan et al. 2015).

    The learners of this package fit their weights to a measure. A plug-in method leaves the classifier as it is, and
    fits how its posteriors η(x) become predictions. For every measure here, the best rule or mixture of rules predicts

        argmax over j of  α_j/p_j · η_j(x) + λ_j,

    where α and λ are derivatives of the measure by the recalls and by the counted prevalences: the gain of the
    confusion matrix C is G_ij = [i = j]·α_i/p_i + λ_j.

    * A nested concave measure is maximised by the Frank-Wolfe method over the confusion matrices that can be reached.
      Each step finds the best rule for the measure's gradient and moves the mixture towards it. The step is the best
      one on the line (the paper has 2/(t + 1)). Then weight is moved between the rules of the mixture as long as it
      helps, which needs no data. The method stops when its duality gap is at most `tol`.
    * For a ratio P_class/P_quant, bisection finds the highest level v whose valuation P_class − v·P_quant can reach 0.
      The valuation of a ratio of linear functions (F-measures, Jaccard) has a best rule in closed form. Other
      valuations are maximised by Frank-Wolfe, as in Narasimhan (2018).

    As in the paper, confusion matrices are computed from predictions and labels, on rows that the classifier was not
    trained on. The paper divides the rows into two parts. Here, cross-fitting uses all rows for both purposes. The
    duality gap bounds the distance to the maximum if the posteriors are calibrated on these rows.

    In general, only a *mixture* of rules reaches the maximum of a concave measure; `randomised=True` draws one of its
    rules for each row. By default, the best single rule is used, out of all rules that were tried and, with two
    classes, out of all thresholds. For a measure of the count alone, such as "kld", random guesses at the right
    prevalence are optimal. BA is therefore added with a weight of 0.001, and decides between rules whose counts are
    equally good.

    Parameters
    ----------
    estimator : classifier, default=None
        A classifier with `predict_proba`; by default scikit-learn's `LogisticRegression`. Posteriors should be
        calibrated (see `sklearn.calibration.CalibratedClassifierCV`).
    measure : str or Measure, default="q"
        A name, such as "kld", "gmean" or "f1" (see `quapy_nemsis.get_measure`), or a measure object, built-in or
        custom.
    cv : int, float or "prefit", default=5
        How to obtain the posteriors. An integer is a number of folds: each row is scored by a classifier trained on the
        other folds, and the final classifier is trained on all rows. A float is the share of rows that are held out for
        the rule. With "prefit", the estimator is already fitted, and the rule is fitted to all rows; the estimator
        should not have been trained on them.
    randomised : bool, default=False
        Whether to predict by a mixture of rules.
    tol : float, default=1e-4
        Duality gap, or length of the interval of levels, at which to stop.
    max_iter : int, default=1000
        Maximum number of steps of the Frank-Wolfe method (for one level).
    random_state : int, RandomState or None, default=None
        Seed for the folds, or for the choice of held-out rows, and for randomised predictions.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    factors_, offsets_ : ndarray of shape (n_rules, n_classes)
        The rules: argmax over the classes of factor·posterior + offset.
    weights_ : ndarray of shape (n_rules,)
        Probabilities of the rules; a single 1 unless `randomised`.
    value_ : float
        Value of the measure on the rows that the rule was fitted to. For a mixture, this is the value at its expected
        confusion matrix.
    mixture_value_ : float
        Value of the measure for the mixture that Frank-Wolfe or bisection found, whether it is used or not.
    gap_ : float
        Duality gap, or length of the interval of levels, at the end.
    n_iter_ : int
        Number of rules that were computed.

    References
    ----------
    H. Narasimhan, H. Ramaswamy, A. Saha, S. Agarwal. Consistent Multiclass Algorithms for Complex Performance Measures.
    ICML 2015.

    H. Narasimhan. Learning with Complex Loss Functions and Constraints. AISTATS 2018.

    O. Koyejo, N. Natarajan, P. Ravikumar, I. Dhillon. Consistent Binary Classification with Generalized Performance
    Metrics. NIPS 2014.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> from quapy_nemsis import get_measure
    >>> X, y = make_classification(4000, weights=[0.9], flip_y=0.1, random_state=0)
    >>> f1 = get_measure("f1")
    >>> plain = LogisticRegression().fit(X[:2000], y[:2000])
    >>> learner = PlugInClassifier(LogisticRegression(), "f1", random_state=0).fit(X[:2000], y[:2000])
    >>> bool(f1.score(y[2000:], learner.predict(X[2000:])) > f1.score(y[2000:], plain.predict(X[2000:])))
    True
    """

    estimator_: Any
    classes_: np.ndarray
    factors_: np.ndarray
    offsets_: np.ndarray
    weights_: np.ndarray
    value_: float
    mixture_value_: float
    gap_: float
    n_iter_: int

    def __init__(
        self,
        estimator: Any = None,
        measure: str | Measure = "q",
        *,
        cv: int | float | str = 5,
        randomised: bool = False,
        tol: float = 1e-4,
        max_iter: int = 1000,
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.measure = measure
        self.cv = cv
        self.randomised = randomised
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Fit the classifier and then the rule.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows, of any kind that the estimator takes.
        y : array-like of shape (n_samples,)
            Labels of any type, of two or more classes.

        Returns
        -------
        self
            The fitted classifier.
        """
        measure = self._checked_measure()
        with unchanged_on_error(self):
            if y is None:
                raise ValueError(
                    "PlugInClassifier requires y to be passed, but the target y is None"
                )
            check_labels(y)
            y = column_or_1d(y, warn=True)
            check_consistent_length(X, y)
            self.estimator_, posteriors, labels = self._posteriors(X, np.asarray(y), measure)
            self.classes_ = self.estimator_.classes_
            room = Achievable(posteriors, labels)
            self._optimise(room, measure)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        return self

    def predict(self, X: MatrixLike) -> np.ndarray:
        """Predict the label of each row; with `randomised`, by a rule that is drawn for it.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels from `classes_`.
        """
        posteriors = self.predict_proba(X)
        rules, used = Rules(self.factors_, self.offsets_), np.flatnonzero(self.weights_)
        if len(used) == 1:
            return self.classes_[rules.codes(posteriors, used[0])]
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        drawn = rng.choice(len(self.weights_), size=len(posteriors), p=self.weights_)
        codes = np.empty(len(posteriors), dtype=np.intp)
        for which in np.unique(drawn):
            codes[drawn == which] = rules.codes(posteriors[drawn == which], which)
        return self.classes_[codes]

    def predict_proba(self, X: MatrixLike) -> np.ndarray:
        """Posteriors of the fitted classifier, unchanged: methods that need posteriors can use them.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Posteriors, in the order of `classes_`.
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    # ---------------------------------------------------------------- private

    def _checked_measure(self) -> NestedMeasure | PseudoMeasure:
        """Check the parameters and return the measure."""
        measure = get_measure(self.measure)
        if not isinstance(measure, NestedMeasure | PseudoMeasure):
            raise ValueError(
                f"{measure!r} ({measure.formula}) is for evaluation only; choose another"
            )
        if isinstance(self.cv, str):
            check_option("cv", self.cv, (PREFIT,))
        elif isinstance(self.cv, numbers.Integral):
            check_integer("cv", self.cv, least=2)
        elif not isinstance(self.cv, numbers.Real) or not 0.0 < float(self.cv) < 1.0:
            raise ValueError(
                "cv must be a number of folds (at least 2), a share of rows to hold out (between 0 and 1) or "
                f"'prefit'; got {self.cv!r}"
            )
        check_bool("randomised", self.randomised)
        check_positive("tol", self.tol, finite=True)
        check_integer("max_iter", self.max_iter)
        check_seed(self.random_state)
        if self.estimator is not None and not hasattr(self.estimator, "predict_proba"):
            raise TypeError(
                f"estimator must have predict_proba; got {self.estimator!r}: put it into "
                "sklearn.calibration.CalibratedClassifierCV"
            )
        return measure

    def _posteriors(
        self, X: Any, y: np.ndarray, measure: Measure
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """The fitted classifier, and the posteriors and label positions of rows that it has not learned."""
        inner = LogisticRegression() if self.estimator is None else self.estimator
        if isinstance(self.cv, str):
            check_is_fitted(inner)
            classes = inner.classes_
            strange = np.setdiff1d(y, classes)
            if len(strange):
                raise ValueError(
                    f"y contains labels {strange.tolist()} that the estimator does not know: {classes.tolist()}"
                )
        else:
            classes = several_classes(np.unique(y), self)
            inner = clone(inner)
        if len(classes) > 2 and isinstance(measure, NestedMeasure):
            measure.class_form()  # raises an error for a measure of two classes
        labels = np.searchsorted(classes, y)
        if isinstance(self.cv, str):
            return inner, inner.predict_proba(X), labels
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        if isinstance(self.cv, numbers.Integral):
            rarest = int(np.bincount(labels).min())
            n_folds = min(int(self.cv), rarest)
            if n_folds < 2:
                raise ValueError(
                    f"class {classes[np.bincount(labels).argmin()]!r} has one row, and cross-fitting needs two: add "
                    "rows, leave the class out, or give a fitted estimator and cv='prefit'"
                )
            folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
            found = cross_val_predict(inner, X, y, cv=folds, method="predict_proba")
            return inner.fit(X, y), found, labels
        split = StratifiedShuffleSplit(1, test_size=float(self.cv), random_state=seed)
        train, held = next(split.split(np.zeros(_num_samples(X)), y))
        take = X.iloc if hasattr(X, "iloc") else X if hasattr(X, "shape") else np.asarray(X)
        inner.fit(take[train], y[train])
        return inner, inner.predict_proba(take[held]), labels[held]

    def _optimise(self, room: Achievable, measure: NestedMeasure | PseudoMeasure) -> None:
        """Find the best mixture and, unless it is wanted, the best single rule."""
        tol, max_iter = float(self.tol), int(self.max_iter)
        if isinstance(measure, NestedMeasure):
            found = room.maximise(measure, tol, max_iter)
            tried = [found.rules]
        else:
            found, tried = room.bisect(measure, tol, max_iter)
        self.gap_, self.n_iter_ = found.gap, found.steps
        self.mixture_value_ = measure.at(room.rates(found.at))
        if self.randomised:
            rules, self.value_ = found.rules, self.mixture_value_
            self.weights_ = found.weights / found.weights.sum()
        else:
            rules, self.value_ = room.best_single(measure, tried)
            self.weights_ = np.ones(1)
        self.factors_, self.offsets_ = rules

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = LogisticRegression() if self.estimator is None else self.estimator
        tags.input_tags.sparse = get_tags(inner).input_tags.sparse
        return tags
