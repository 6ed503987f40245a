"""`Quantifier`, the quantifier to start with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state, gen_batches
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis import prevalence
from quapy_nemsis._validation import (
    AUTO,
    MatrixLike,
    check_integer,
    check_option,
    check_positive,
    check_seed,
    check_share,
    encode,
)
from quapy_nemsis.features import FourierFeatures, RandomFeatures
from quapy_nemsis.learners.base import ProbabilisticOnlineClassifier
from quapy_nemsis.learners.calibration import Calibration
from quapy_nemsis.learners.nemsis import NEMSISClassifier
from quapy_nemsis.learners.state import Arrays, Saved, check_parameters
from quapy_nemsis.learners.trees import TreeClassifier
from quapy_nemsis.quantifiers._quapy import (
    AggregativeSoftQuantifier,
    ConfidenceRegionABC,
    WithConfidenceABC,
)

if TYPE_CHECKING:
    from typing_extensions import Self

# Random features are kept if they lower the cross-entropy of held-out rows below this share, and tried unless rows and
# features are more values than this. Rows are given their features in blocks.
_CLEARLY, _MOST_VALUES, _BLOCK = 0.95, 2**26, 65_536
# Learners that are calibrated on rows that they have not learned.
_CALIBRATED = (ProbabilisticOnlineClassifier, TreeClassifier)


@dataclass(frozen=True)
class Scores:
    """Scores of rows, as `Quantifier.scores` returns them. Methods of the quantifier take them in place of the rows."""

    #: Scores that the calibration takes: one for each row, or one for each row and class if there are more than two.
    values: np.ndarray
    #: Scores of which each is that of one of the learners that scored held-out rows in `fit`. They are distributed as
    #: `calibration_.scores` are if the rows are. Classifiers of other packages have none, and these are `values`.
    of_folds: np.ndarray

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.values)

    @staticmethod
    def joined(parts: Sequence[Scores]) -> Scores:
        """Scores of the rows of all parts, in order."""
        return Scores(
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.of_folds for part in parts]),
        )


class Quantifier(WithConfidenceABC, AggregativeSoftQuantifier):
    """Estimate the prevalence of each class in a sample, with an interval: the quantifier to start with.

    A learner gives each row a score for each class. The likelihood of a score in each class is calibrated on rows that
    the learner was not trained on. Expectation-maximisation then finds the prevalences that best explain the scores of
    the sample. A prior keeps the estimate from becoming extreme if the classes are hard to tell apart. If the sample
    looks as if nothing had changed, the estimate moves towards the mean posterior (see `quapy_nemsis.prevalence`).

    Only the prevalences may change between training and use, not the distribution of rows within a class.

    Parameters
    ----------
    classifier : estimator or None, default=None
        None is ``NEMSISClassifier("ba", reward="logistic")``. Learners of this package have out-of-fold posteriors.
        Other classifiers need `predict_proba`, and get out-of-fold posteriors from cross-validation.
    fit_classifier : bool, default=True
        False uses the classifier as it is. `fit` then only calibrates it, on the given rows; a learner of this
        package keeps its own calibration.
    val_split : int, float or tuple, default=5
        How QuaPy computes out-of-fold posteriors for other classifiers.
    features : "auto", transformer or None, default="auto"
        How `fit` transforms rows before the classifier sees them. "auto" trains an online learner of this package
        twice, on the rows as they are and on the rows with `FourierFeatures` appended. It keeps the second if that
        makes held-out rows clearly more likely (their cross-entropy falls by more than 5 %). It leaves sparse matrices,
        dense rows that would have more than 2²⁶ values with the features, and other classifiers as they are. A
        transformer is fitted and used. None uses the rows as they are.
    prior : float, default=1.0
        Strength of the prior for equal prevalences. It is worth ``prior``·u·n/m rows of each class, where n is the
        number of rows in the sample and m the effective number of held-out rows in the calibration. u is the share of
        the entropy of the classes that the scores leave open: 0 if they separate the classes, 1 if they say nothing.
    no_drift : float, default=0.3
        Prior probability that a sample has the training prevalences, at least 0 and below 1. With 0, the training
        prevalences do not influence the estimate.
    n_draws : int, default=200
        Number of draws from which intervals are computed.
    region : {"intervals", "ellipse", "ellipse-clr", "ellipse-ilr"}, default="intervals"
        Kind of region that `predict_conf` returns.
    random_state : int, RandomState or None, default=None
        Seed for the draws, and for the classifier if its `random_state` is None.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.
    calibration_ : Calibration
        The calibration, which turns scores into log-odds of the classes.
    features_ : transformer or None
        The fitted transformer of rows, if there is one.
    offsets_ : ndarray of shape (n_classes,)
        Offsets that turn the log posteriors of other classifiers into scores.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> scaler = StandardScaler().fit(X[:300])
    >>> quantifier = Quantifier(random_state=0).fit(scaler.transform(X[:300]), y[:300])
    >>> y[:300].mean().round(2), y[300:].mean().round(2)  # the prevalence changes
    (np.float64(0.51), np.float64(0.75))
    >>> estimate, region = quantifier.predict_conf(scaler.transform(X[300:]))
    >>> bool(abs(estimate[1] - y[300:].mean()) < 0.03)
    True
    >>> bool(region.I_low[1] < y[300:].mean() < region.I_high[1])
    True
    """

    classifier: Any
    calibration_: Calibration
    features_: Any
    offsets_: np.ndarray

    def __init__(
        self,
        classifier: Any = None,
        fit_classifier: bool = True,
        val_split: Any = 5,
        features: Any = AUTO,
        prior: float = 1.0,
        no_drift: float = 0.3,
        n_draws: int = 200,
        region: str = "intervals",
        random_state: Any = None,
    ):
        if classifier is None:
            classifier = NEMSISClassifier("ba", reward="logistic")
        if isinstance(classifier, _CALIBRATED):
            val_split = None  # it has posteriors out of fold of its own
        super().__init__(classifier, fit_classifier, val_split)
        self.features = features
        self.prior = prior
        self.no_drift = no_drift
        self.n_draws = n_draws
        self.region = region
        self.random_state = random_state

    def _check_init_parameters(self) -> None:
        """Refuse parameters that make no sense, before anything is fitted."""
        check_positive("prior", self.prior, finite=True)
        check_share("no_drift", self.no_drift)
        check_integer("n_draws", self.n_draws, least=2)
        check_option("region", self.region, self.REGION_TYPE)
        check_seed(self.random_state)
        if not (
            self.features is None or self.features == AUTO or hasattr(self.features, "transform")
        ):
            raise ValueError(
                f"features must be 'auto', None, or a transformer such as FourierFeatures(); got {self.features!r}"
            )

    def classifier_fit_predict(self, X: MatrixLike, y: ArrayLike) -> tuple[Any, Any]:
        """Train the classifier; return out-of-fold posteriors and their labels, unless it has its own."""
        classifier = self.classifier
        if self.fit_classifier and classifier.get_params().get("random_state", 0) is None:
            classifier.set_params(random_state=self.random_state)
        self.features_ = None
        if self.features is not None and self.features != AUTO:
            self.features_ = clone(self.features).fit(X, y)
            X = self.features_.transform(X)
        if isinstance(classifier, _CALIBRATED):
            if self.fit_classifier:
                classifier.fit(X, y)
                if self.features == AUTO and isinstance(classifier, ProbabilisticOnlineClassifier):
                    self._try_features(X, y)
            return None, None
        if not self.fit_classifier:
            return classifier.predict_proba(X), np.asarray(y)
        return super().classifier_fit_predict(X, y)

    def _try_features(self, X: MatrixLike, y: ArrayLike) -> None:
        """Train the learner with random features, too, and keep what explains held-out rows better."""
        features = FourierFeatures(random_state=self.random_state)
        rows, width = np.shape(X)
        if scipy.sparse.issparse(X) or rows * (width + features.n_components) > _MOST_VALUES:
            return
        other = clone(self.classifier).fit(features.fit_transform(X), y)
        if other.calibration_.loss() < _CLEARLY * self.classifier.calibration_.loss():
            self.classifier, self.features_ = other, features

    def partial_fit(self, X: MatrixLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Train the learner on more rows, in the given order, and calibrate it on those it has seen last.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        classes : array-like of shape (n_classes,), optional
            All labels that can occur. Required in the first call unless `y` contains them all.

        Returns
        -------
        self
            The quantifier.
        """
        self._check_init_parameters()
        if not isinstance(self.classifier, ProbabilisticOnlineClassifier):
            raise TypeError(
                f"partial_fit needs NEMSISClassifier or SCANClassifier; got {type(self.classifier).__name__}"
            )
        if not hasattr(self, "features_"):
            given = None if self.features == AUTO else self.features
            self.features_ = None if given is None else clone(given).fit(X, y)
        X = X if self.features_ is None else self.features_.transform(X)
        self.classifier.partial_fit(X, y, classes)
        self.aggregation_fit(None, None)
        return self

    def aggregation_fit(self, classif_predictions: Any, labels: Any) -> None:
        """Calibrate out-of-fold posteriors, or take the calibration of the learner.

        Parameters
        ----------
        classif_predictions : ndarray of shape (n_samples, n_classes) or None
            Out-of-fold posteriors, or None if the learner has a calibration.
        labels : array-like of shape (n_samples,) or None
            Their labels.
        """
        if classif_predictions is None:
            self.calibration_ = self.classifier.calibration_
        else:
            posteriors = np.asarray(classif_predictions, dtype=float)
            # Equal scores are to mean equal odds at equal prevalences.
            self.offsets_ = -np.log(posteriors.mean(axis=0))
            codes = encode(np.asarray(labels), self.classes_)
            self.calibration_ = Calibration.of(self._scores_of(posteriors), codes)

    def scores(self, X: MatrixLike | Scores, first: int = 0) -> Scores:
        """Return the scores of rows. Methods and the tests for drift take them in place of the rows.

        With scores, you can estimate from a file that does not fit into memory: score it in parts, and join the scores.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        first : int, default=0
            Position of the first row, if rows are scored in parts: the learners of the folds score rows in turn.

        Returns
        -------
        Scores
            The scores; `Scores.joined` joins those of several parts.
        """
        check_is_fitted(self, "calibration_")
        if isinstance(X, Scores):
            return X
        values, of_folds = [], []
        for begin, rows in self._with_features(X):
            values.append(self._score(rows))
            of_folds.append(self._fold_score(rows, first + begin, values[-1]))
        return Scores(np.concatenate(values), np.concatenate(of_folds))

    def _values(self, X: MatrixLike | Scores) -> np.ndarray:
        """Scores of rows, which the calibration takes."""
        check_is_fitted(self, "calibration_")
        if isinstance(X, Scores):
            return X.values
        return np.concatenate([self._score(rows) for _, rows in self._with_features(X)])

    def _with_features(self, X: MatrixLike) -> Iterator[tuple[int, MatrixLike]]:
        """Parts of the rows with their features, and the number of the first row of each."""
        if self.features_ is None:
            yield 0, X
            return
        for part in gen_batches(max(np.shape(X)[0], 1), _BLOCK):
            yield part.start, self.features_.transform(_safe_indexing(X, part))

    def _score(self, X: MatrixLike) -> np.ndarray:
        """Scores of rows that have their features."""
        if isinstance(self.classifier, _CALIBRATED):
            return self.classifier.committee_scores(X)
        return self._scores_of(self.classifier.predict_proba(X))

    def _fold_score(self, X: MatrixLike, first: int, otherwise: np.ndarray) -> np.ndarray:
        """Scores of the learners of folds, if there are such."""
        if isinstance(self.classifier, ProbabilisticOnlineClassifier):
            return self.classifier.fold_scores(X, first)
        return otherwise

    def _scores_of(self, posteriors: np.ndarray) -> np.ndarray:
        """Scores from posteriors of any classifier: log-odds of the second of two classes, logarithms for more."""
        logs = np.log(np.clip(posteriors, 1e-9, None)) + self.offsets_
        return logs[:, 1] - logs[:, 0] if logs.shape[1] == 2 else log_softmax(logs, axis=1)

    def classify(self, X: MatrixLike | Scores) -> np.ndarray:
        """Return calibrated posteriors at the training prevalences.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or Scores
            Rows, or their scores.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Posteriors.
        """
        values = self._values(X)
        return self.calibration_.probabilities(values)

    @property
    def training(self) -> prevalence.Training:
        """Class prevalences and numbers of rows in the data that the calibration was fitted to."""
        return prevalence.Training.of(self.calibration_)

    def aggregate(self, classif_predictions: np.ndarray) -> np.ndarray:
        """Estimate the prevalences of the classes in a sample from the posteriors of its rows.

        Parameters
        ----------
        classif_predictions : ndarray of shape (n_samples, n_classes)
            Posteriors, as `classify` returns them.

        Returns
        -------
        ndarray of shape (n_classes,)
            Estimated prevalences, in the order of `classes_`.
        """
        posteriors = np.asarray(classif_predictions, dtype=float)
        if not len(posteriors):
            raise ValueError("there are no rows to estimate prevalences from")
        known = self.training
        with np.errstate(divide="ignore"):  # posteriors of rows far away may be 0
            rows = prevalence.likelihoods(np.log(posteriors) - np.log(known.shares))
        return prevalence.estimate(rows, known, float(self.prior), float(self.no_drift))

    def predict_conf(
        self, instances: MatrixLike | Scores, confidence_level: float = 0.95
    ) -> tuple[np.ndarray, ConfidenceRegionABC]:
        """Estimate the prevalences of the classes in a sample of rows, with a confidence region.

        The region allows for the noise of the sample and of the calibration. Unlike the estimate, it does not use
        `no_drift`. It is about the prevalences among these rows, not in a population that they were drawn from.

        Parameters
        ----------
        instances : array-like or sparse matrix of shape (n_samples, n_features), or Scores
            Rows, or their scores.
        confidence_level : float, default=0.95
            Probability that the region contains the truth. For intervals, this is the prevalence of each class; for
            ellipses, the prevalences of all classes together.

        Returns
        -------
        tuple
            The estimate, as `predict` returns it, and the region, one of QuaPy's `ConfidenceRegionABC`.
        """
        if not 0.0 < confidence_level < 1.0:
            raise ValueError(
                f"confidence_level must lie between 0 and 1, such as 0.95; got {confidence_level!r}"
            )
        values = self._values(instances)
        drawn = self.draw_given(values, self._generator())
        point = self.aggregate(self.calibration_.probabilities(values))
        return point, self.construct_region(drawn, confidence_level, self.region)

    def draw(self, X: MatrixLike | Scores) -> np.ndarray:
        """Draw prevalences from their posterior distribution, given a sample (see `quapy_nemsis.prevalence.draws`).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features), or Scores
            Rows, or their scores.

        Returns
        -------
        ndarray of shape (n_draws, n_classes)
            Prevalences.
        """
        return self.draw_given(self._values(X), self._generator())

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))

    def draw_given(self, scores: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Draw prevalences from their posterior distribution, given the scores of a sample.

        Parameters
        ----------
        scores : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Scores, as `Scores.values`.
        rng : Generator
            Source of random numbers.

        Returns
        -------
        ndarray of shape (n_draws, n_classes)
            Prevalences.
        """
        known = self.calibration_
        return prevalence.draws(
            prevalence.likelihoods(known.log_odds(scores)),
            lambda rows, one: prevalence.likelihoods(known.log_odds(scores[rows], one)),
            known.draw(int(self.n_draws), rng),
            self.training,
            rng,
        )

    def to_saved(self) -> Saved:
        """What a file holds of the quantifier; a quantifier with objects of other packages is refused."""
        own = isinstance(self.classifier, _CALIBRATED)
        fitted = hasattr(self, "calibration_")
        features = (self.features, getattr(self, "features_", None))
        strange = [
            thing for thing in features if not isinstance(thing, RandomFeatures | None | str)
        ]
        for thing in [*strange, *([] if own else [self.classifier])]:
            raise TypeError(
                f"a Quantifier with a {type(thing).__name__} cannot be saved, only one with learners and features of "
                "this package. skops.io.dump writes such a quantifier, also without pickle; skops.io.load reads it"
            )
        parameters = self.get_params(deep=False)
        parts = {"classifier": parameters.pop("classifier")}
        if isinstance(self.features, RandomFeatures):
            parts["features"] = parameters.pop("features")
            parameters["features"] = None
        if fitted and self.features_ is not None:
            parts["fitted features"] = self.features_
        return Saved(parameters, parts, {"fitted": np.array(fitted)})

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], parts: dict[str, Any], arrays: Arrays) -> Self:
        """Inverse of `to_saved`; parts that do not fit together raise a ValueError."""
        expected = cls().get_params(deep=False).keys() - {"classifier"}
        check_parameters(parameters, expected, cls.__name__)
        learner, fitted = parts.get("classifier"), bool(arrays.take("fitted", types=(np.bool_,)))
        features = [parts.get(name) for name in ("features", "fitted features")]
        names = {"classifier", "features", "fitted features"}
        if (
            not isinstance(learner, _CALIBRATED)
            or not all(isinstance(part, RandomFeatures | None) for part in features)
            or not parts.keys() <= names
            or parameters.get("val_split") is not None
        ):
            raise ValueError("its learner or its features are of another kind")
        found = cls(clone(learner))
        for name, value in parameters.items():
            setattr(found, name, value)
        found.features = features[0] or found.features
        if not isinstance(found.fit_classifier, bool):
            raise ValueError("its fit_classifier is neither True nor False")
        found._check_init_parameters()
        found.classifier = learner
        if not fitted:
            return found
        if not hasattr(learner, "calibration_"):
            raise ValueError("its learner is not fitted")
        found.calibration_, found.features_ = learner.calibration_, features[1]
        width = getattr(
            features[1], "_n_features_out", None
        )  # none of features that are not fitted
        if found.features_ is not None and width != learner.n_features_in_:
            raise ValueError("its features do not fit its learner")
        return found
