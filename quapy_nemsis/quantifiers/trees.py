"""Quantification trees and forests as quantifiers."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._kernels.simplex import adjust
from quapy_nemsis._validation import MatrixLike, check_bool
from quapy_nemsis.learners.trees import (
    ForestParameters,
    QuantificationForestClassifier,
    QuantificationTreeClassifier,
    TreeParameters,
)
from quapy_nemsis.quantifiers.counting import _ClassifyAndCount


class QTree(TreeParameters, _ClassifyAndCount):
    """Quantifier that counts the predictions of a `QuantificationTreeClassifier` (Milli et al., ICDM 2013).

    The quantifier has the parameters of `quapy_nemsis.QuantificationTreeClassifier`. Under strong drift an adjusted
    count is better, as in ``ACC(QuantificationTreeClassifier())``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> quantifier = QTree(min_samples_leaf=5, random_state=0).fit(X, y)
    >>> quantifier.predict(X).round(1)
    array([0.4, 0.6])
    """

    learner = QuantificationTreeClassifier


@dataclass(eq=False, repr=False)
class QForestParameters(ForestParameters):
    """Parameters of `QForest`."""

    _: KW_ONLY
    adjust: bool = True


class QForest(QForestParameters, _ClassifyAndCount):
    """Quantifier in which each tree of a forest counts, and the counts are averaged (Milli et al., ICDM 2013).

    With `adjust`, each tree corrects its counts q by its errors out of bag before they are averaged: they are replaced
    by the prevalences p that minimise ‖Mp − q‖₂, where M_ij is the share of rows of class j for which the tree predicts
    class i. The other parameters are those of `quapy_nemsis.QuantificationForestClassifier`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> quantifier = QForest(random_state=0).fit(X[:300], y[:300])
    >>> bool(abs(quantifier.predict(X[300:])[1] - y[300:].mean()) < 0.05)
    True
    """

    learner = QuantificationForestClassifier

    def _check_init_parameters(self) -> None:
        """Refuse parameters that make no sense, before anything is fitted."""
        check_bool("adjust", self.adjust)

    def _learner_parameters(self) -> dict[str, Any]:
        return {name: v for name, v in super()._learner_parameters().items() if name != "adjust"}

    def classify(self, X: MatrixLike) -> np.ndarray:
        """Predict the labels of the rows with each tree.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_estimators)
            Positions in `classes_`.
        """
        check_is_fitted(self, "classifier_")
        return self.classifier.votes(X)

    def aggregate(self, classif_predictions: ArrayLike) -> np.ndarray:
        """Return the mean over the trees of their (adjusted) counts.

        Parameters
        ----------
        classif_predictions : ndarray of shape (n_samples, n_estimators)
            Positions in `classes_`, as `classify` returns them.

        Returns
        -------
        ndarray of shape (n_classes,)
            Estimated prevalences, in the order of `classes_`.
        """
        votes = np.asarray(classif_predictions)
        confusions = self.classifier.confusions_
        if votes.ndim != 2 or votes.shape[1] != len(confusions) or not len(votes):
            raise ValueError(
                f"classif_predictions must have a row for each of one or more rows and a column for each of the "
                f"{len(confusions)} trees, as classify returns them; got shape {votes.shape}"
            )
        n_classes = len(self.classes_)
        places = votes + n_classes * np.arange(votes.shape[1])
        counts = np.bincount(places.ravel(), minlength=n_classes * votes.shape[1])
        shares = counts.reshape(-1, n_classes) / len(votes)
        if self.adjust:
            pairs = zip(shares, confusions, strict=True)
            shares = np.array([_adjusted(count, confusion) for count, confusion in pairs])
        return shares.mean(axis=0)


def _adjusted(counts: np.ndarray, confusion: np.ndarray) -> np.ndarray:
    """The prevalences p on the simplex that minimise ‖Mp − q‖₂ for counts q; M is the confusion by true classes.

    A class of which no row is out of bag is taken to be predicted right.
    """
    members = confusion.sum(axis=0)
    rates = np.where(
        members > 0.0, confusion / np.where(members > 0.0, members, 1.0), np.eye(len(counts))
    )
    found = np.empty((1, len(counts)))
    adjust(np.ascontiguousarray(rates), counts[np.newaxis], found)
    return found[0]
