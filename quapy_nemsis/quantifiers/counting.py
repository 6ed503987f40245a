"""Quantifiers that count the predictions of a learner."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._validation import MatrixLike
from quapy_nemsis.learners.base import (
    Learner,
    OnlineClassifier,
    ProbabilisticOnlineClassifier,
)
from quapy_nemsis.learners.can import CANClassifier, CANParameters
from quapy_nemsis.learners.minibatch import OnePassMiniBatchClassifier, OnePassMiniBatchParameters
from quapy_nemsis.learners.nemsis import NEMSISClassifier, NEMSISParameters
from quapy_nemsis.learners.pseudolinear import (
    AMPClassifier,
    AMPParameters,
    STAMPClassifier,
    STAMPParameters,
)
from quapy_nemsis.learners.scan import SCANClassifier, SCANParameters
from quapy_nemsis.learners.scores import predicted_codes
from quapy_nemsis.learners.spade import SPADEClassifier, SPADEParameters
from quapy_nemsis.learners.state import Arrays, Saved, check_parameters
from quapy_nemsis.learners.svmperf import (
    CuttingPlaneParameters,
    SVMPerfClassifier,
    SVMPerfParameters,
)
from quapy_nemsis.quantifiers._quapy import (
    AggregativeCrispQuantifier,
    BinaryAggregativeQuantifier,
    F,
)

if TYPE_CHECKING:
    from typing_extensions import Self

# A count that is off by more standard errors than this, and by a larger share of the rows, is worth a warning.
_NOISE, _TOLERATED = 3.0, 0.01


def _warn_of_count(name: str, learner: ProbabilisticOnlineClassifier[Any]) -> None:
    """Warn if a count of predictions is off by more than noise, on rows that were not learned."""
    held = learner.calibration_
    counted = np.bincount(predicted_codes(held.scores), held.weights, held.n_classes)
    total = held.members.sum()
    error = (counted - held.members) / total
    wrong = held.weights * (predicted_codes(held.scores) != held.labels)
    involved = np.bincount(held.labels, wrong, held.n_classes)
    involved += np.bincount(predicted_codes(held.scores), wrong, held.n_classes)
    noise = np.sqrt(np.maximum(involved / total - error**2, 0.0) / total)
    worst = len(error) - 1 - int(np.argmax(np.abs(error[::-1])))  # of two classes, the positive
    if abs(error[worst]) > max(_NOISE * noise[worst], _TOLERATED):
        label = learner.classes_.tolist()[worst]
        warnings.warn(
            f"{name} counts {counted[worst] / total:.1%} of class {label!r} among held-out rows, where "
            f"{held.members[worst] / total:.1%} are true: its predictions optimise the measure {learner.measure!r}, "
            "and counting them is wrong. quapy_nemsis.Quantifier estimates prevalences; measure='kld' counts correctly "
            "as long as prevalences do not change",
            stacklevel=5,
        )


class _ClassifyAndCount(AggregativeCrispQuantifier):
    """A classify-and-count quantifier whose parameters are those of its learner.

    QuaPy's aggregative quantifiers are given a classifier. Here `fit` builds the learner from parameters that
    `set_params` can change. If it were built earlier, a grid search would train the same learner at every grid point.
    """

    #: The type of the learner, which takes the quantifier's own parameters.
    learner: ClassVar[type[Learner]]

    # Attributes that QuaPy's own constructor would set: the classifier is always trained, without a validation split.
    fit_classifier = True
    val_split = None

    def fit(self, X: MatrixLike, y: ArrayLike) -> Self:
        """Train the learner.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels of any type.

        Returns
        -------
        self
            The fitted quantifier.
        """
        # Not the fit of QuaPy's binary quantifiers: the learner refuses labels with a more helpful message.
        return AggregativeCrispQuantifier.fit(self, X, y)

    def classifier_fit_predict(self, X: MatrixLike, y: ArrayLike) -> tuple[None, None]:
        """Train the learner; counting needs no predictions on training data."""
        self.classifier = self.learner(**self._learner_parameters()).fit(X, y)
        if isinstance(self.classifier, ProbabilisticOnlineClassifier):
            _warn_of_count(type(self).__name__, self.classifier)
        return None, None

    def _learner_parameters(self) -> dict[str, Any]:
        return self.get_params(deep=False)

    def classify(self, X: MatrixLike) -> np.ndarray:
        """Predict the labels of the rows with the learner."""
        check_is_fitted(self, "classifier_")
        return super().classify(X)

    def aggregation_fit(self, classif_predictions: Any, labels: Any) -> None:
        """Do nothing: counting predictions needs no training."""

    def to_saved(self) -> Saved:
        """What a file holds of the quantifier."""
        fitted = hasattr(self, "classifier_")
        return Saved(
            self.get_params(deep=False), {"classifier": self.classifier} if fitted else {}, {}
        )

    @classmethod
    def from_saved(cls, parameters: dict[str, Any], parts: dict[str, Any], arrays: Arrays) -> Self:
        """Inverse of `to_saved`; parts that do not fit together raise a ValueError."""
        check_parameters(parameters, cls().get_params(deep=False), cls.__name__)
        found = cls(**parameters)
        if parts:
            learner = parts.get("classifier")
            if (
                len(parts) > 1
                or type(learner) is not cls.learner
                or not hasattr(learner, "classes_")
            ):
                raise ValueError(
                    f"{cls.__name__} counts the predictions of a fitted {cls.learner.__name__}"
                )
            found.classifier = learner
        return found

    def aggregate(self, classif_predictions: ArrayLike) -> np.ndarray:
        """Return the share of each class among the predicted labels.

        Parameters
        ----------
        classif_predictions : array-like of shape (n_samples,)
            Labels, as `classify` returns them.

        Returns
        -------
        ndarray of shape (n_classes,)
            Estimated prevalences, in the order of `classes_`.
        """
        return F.prevalence_from_labels(classif_predictions, self.classes_)


class _BinaryClassifyAndCount(_ClassifyAndCount, BinaryAggregativeQuantifier):
    """A quantifier of two classes."""


class _OnlineClassifyAndCount(_ClassifyAndCount):
    """A classify-and-count quantifier with an online learner, which adds `partial_fit`."""

    learner: ClassVar[type[OnlineClassifier[Any]]]

    def partial_fit(self, X: MatrixLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Train the learner on more rows, in the given order.

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
        learner = getattr(self, "classifier_", None) or self.learner()
        learner.set_params(**self.get_params(deep=False)).partial_fit(X, y, classes)
        self.classifier = learner
        return self


class NEMSIS(NEMSISParameters, _OnlineClassifyAndCount):
    """Quantifier that counts the predictions of a `NEMSISClassifier` trained for a quantification measure.

    The quantifier has the parameters of `quapy_nemsis.NEMSISClassifier` itself, so that QuaPy's grid search can set
    them. It takes any number of classes, with labels of any type. Under strong drift an adjusted count is better: give
    the classifier to a QuaPy method instead, as in ``ACC(NEMSISClassifier("q"))``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> quantifier = NEMSIS(measure="kld", random_state=0).fit(scale(X), y)
    >>> quantifier.predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    learner = NEMSISClassifier


class SCAN(SCANParameters, _OnlineClassifyAndCount):
    """Quantifier that counts the predictions of a `SCANClassifier`, for pseudo-concave measures.

    The quantifier has the parameters of `quapy_nemsis.SCANClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> quantifier = SCAN(measure="bk", random_state=0).fit(scale(X), y)
    >>> quantifier.predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    learner = SCANClassifier


class CAN(CANParameters, _ClassifyAndCount):
    """Quantifier that counts the predictions of a `CANClassifier`, the exact batch optimum of a measure.

    The quantifier has the parameters of `quapy_nemsis.CANClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> quantifier = CAN(measure="cq", radius=5.0).fit(scale(X), y)
    >>> quantifier.predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    learner = CANClassifier


class AMP(AMPParameters, _ClassifyAndCount):
    """Quantifier that counts the predictions of an `AMPClassifier`, the batch optimum of an F-measure.

    The quantifier has the parameters of `quapy_nemsis.AMPClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> quantifier = AMP("f1", radius=5.0).fit(scale(X), y)
    >>> quantifier.predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    learner = AMPClassifier


class STAMP(STAMPParameters, _OnlineClassifyAndCount):
    """Quantifier that counts the predictions of a `STAMPClassifier`, for F-measures and the Jaccard index.

    The quantifier has the parameters of `quapy_nemsis.STAMPClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> quantifier = STAMP("f1", random_state=0).fit(scale(X), y)
    >>> quantifier.predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    learner = STAMPClassifier


class SPADE(SPADEParameters, _OnlineClassifyAndCount, _BinaryClassifyAndCount):
    """Quantifier that counts the predictions of a `SPADEClassifier`, for concave measures of the rates.

    The quantifier has the parameters of `quapy_nemsis.SPADEClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> quantifier = SPADE("kld", random_state=0).fit(scale(X), y)
    >>> quantifier.predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    learner = SPADEClassifier


class OnePassMiniBatch(
    OnePassMiniBatchParameters, _OnlineClassifyAndCount, _BinaryClassifyAndCount
):
    """Quantifier that counts the predictions of a `OnePassMiniBatchClassifier`, the paper's 1PMB.

    The quantifier has the parameters of `quapy_nemsis.OnePassMiniBatchClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> quantifier = OnePassMiniBatch("kld", buffer_size=50, random_state=0).fit(scale(X), y)
    >>> quantifier.predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    learner = OnePassMiniBatchClassifier


class SVMPerf(SVMPerfParameters, _BinaryClassifyAndCount):
    """Quantifier that counts the predictions of an `SVMPerfClassifier`, the structural SVM for any loss.

    The quantifier has the parameters of `quapy_nemsis.SVMPerfClassifier`. `SVMKLD`, `SVMNKLD`, `SVMAE`, `SVMRAE` and
    `SVMQ` are this quantifier with the losses of QuaPy's quantifiers of the same names.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> quantifier = SVMPerf("qgm", C=100.0).fit(scale(X), y)
    >>> quantifier.predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    learner = SVMPerfClassifier


class _FixedLoss(CuttingPlaneParameters, _BinaryClassifyAndCount):
    """A structural SVM with a fixed loss."""

    learner = SVMPerfClassifier
    loss: ClassVar[str]

    def _learner_parameters(self) -> dict[str, Any]:
        return {"loss": self.loss, **super()._learner_parameters()}


class SVMKLD(_FixedLoss):
    """SVM(KLD) (Esuli and Sebastiani 2015): structural SVM for the Kullback-Leibler divergence (see `SVMPerf`).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> SVMKLD(C=1000.0).fit(scale(X), y).predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    loss = "kld"


class SVMNKLD(_FixedLoss):
    """SVM(NKLD): structural SVM for the normalised Kullback-Leibler divergence (see `SVMPerf`).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> SVMNKLD(C=100.0).fit(scale(X), y).predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    loss = "nkld"


class SVMAE(_FixedLoss):
    """SVM(AE): structural SVM for the absolute error of the prevalence (see `SVMPerf`).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> SVMAE(C=1000.0).fit(scale(X), y).predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    loss = "ae"


class SVMRAE(_FixedLoss):
    """SVM(RAE): structural SVM for the relative absolute error of the prevalence (see `SVMPerf`).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> SVMRAE(C=100.0).fit(scale(X), y).predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    loss = "rae"


class SVMQ(_FixedLoss):
    """SVM(Q) (Barranquero et al. 2015): structural SVM for recall and prevalence error, "qrecall" (see `SVMPerf`).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> SVMQ(C=100.0).fit(scale(X), y).predict(scale(X)).round(1)
    array([0.4, 0.6])
    """

    loss = "qrecall"
