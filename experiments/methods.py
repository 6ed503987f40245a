"""Quantifiers by name: QuaPy's aggregations, the learners of this package, and every combination of the two.

A name is an aggregation (``ACC``), an aggregation of a learner (``ACC(NEMSIS:q)``), or a learner, whose predictions are
counted (``NEMSIS:q``, ``SVM(KLD)``). An aggregation alone is put on logistic regression, except for ``Quantifier``,
which has its own learner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from quapy.method import aggregative
from sklearn.linear_model import LogisticRegression

from experiments.curves import choose_C
from experiments.names import AGGREGATIONS, parse_method
from experiments.tuned import isotonic
from quapy_nemsis import (
    CANClassifier,
    NEMSISClassifier,
    NestedMeasure,
    OnePassMiniBatchClassifier,
    PseudoMeasure,
    Quantifier,
    SCANClassifier,
    SVMPerfClassifier,
    get_loss,
    get_measure,
)

#: From training rows and a seed to a quantifier that is not fitted yet.
Maker = Callable[[Any, np.ndarray, int], Any]


def measure_for(learner: str, name: str) -> str:
    """Return the name of a measure if the learner can optimise it; refuse it otherwise."""
    measure = get_measure(name)
    families: dict[str, Any] = {
        "NEMSIS": NestedMeasure,
        "SCAN": PseudoMeasure,
        "CAN": (NestedMeasure, PseudoMeasure),
    }
    if not isinstance(measure, NestedMeasure | PseudoMeasure):
        raise ValueError(f"{measure!r} ({measure.formula}) is for evaluation only")
    if not isinstance(measure, families[learner]):
        kind = "nested concave" if isinstance(measure, NestedMeasure) else "pseudo-concave"
        other = "NEMSIS" if learner == "SCAN" else "SCAN"
        raise ValueError(
            f"{learner} cannot optimise {measure!r}, which is {kind}: use {other} or CAN"
        )
    return name


def learner(name: str, objective: str = "") -> Maker:
    """Return a function that makes the learner from training rows and a seed, and chooses the C of an SVM."""
    kind, _, surrogate = name.partition("-")
    if name == "LR-isotonic":
        return lambda X, y, seed: isotonic()
    if kind == "LR":
        weight = "balanced" if name == "LR-balanced" else None
        return lambda X, y, seed: LogisticRegression(max_iter=1000, class_weight=weight)
    if kind in ("SVM", "1PMB"):
        loss = objective or "kld"
        get_loss(loss)  # which says what is wrong with the name
        if kind == "SVM":
            return lambda X, y, seed: SVMPerfClassifier(loss, C=choose_C(loss, X, y, seed))
        return lambda X, y, seed: OnePassMiniBatchClassifier(loss, random_state=seed)
    measure = measure_for(kind, objective or ("q" if kind == "NEMSIS" else "cq"))
    if kind == "CAN":
        return lambda X, y, seed: CANClassifier(measure)
    online = NEMSISClassifier if kind == "NEMSIS" else SCANClassifier
    options: dict[str, Any] = {"estimates": "surrogate"} if surrogate else {}
    return lambda X, y, seed: online(measure, random_state=seed, **options)


def aggregation(name: str) -> Any:
    """Return the class of an aggregation: QuaPy's, or `Quantifier`."""
    if name == "Quantifier":
        return Quantifier
    found = getattr(aggregative, AGGREGATIONS[name], None)
    if found is None:
        raise ValueError(f"the installed QuaPy has no {AGGREGATIONS[name]}: update it")
    return found


def is_binary(name: str) -> bool:
    """Tell whether the method of a name is for two classes only.

    Examples
    --------
    >>> is_binary("HDy"), is_binary("ACC(1PMB:kld)"), is_binary("ACC")
    (True, True, False)
    """
    parts = parse_method(name)
    binary = issubclass(aggregation(parts.aggregation), aggregative.BinaryAggregativeQuantifier)
    return binary or parts.learner in ("SVM", "1PMB")


def suited(names: list[str], n_classes: int) -> list[str]:
    """Return the names of those methods that can tell so many classes apart."""
    return [name for name in names if n_classes == 2 or not is_binary(name)]


def method(name: str) -> Maker:
    """Return a function that makes the QuaPy quantifier of a name from training rows and a seed.

    Examples
    --------
    >>> X, y = np.zeros((1, 1)), np.zeros(1)
    >>> quantifier = method("ACC(NEMSIS:bakld)")(X, y, 7)
    >>> type(quantifier).__name__, quantifier.classifier
    ('ACC', NEMSISClassifier(measure='bakld', random_state=7))
    """
    if name == "Quantifier":
        return lambda X, y, seed: Quantifier(random_state=seed)
    parts = parse_method(name)
    make = learner(parts.learner, parts.objective)
    put_on = aggregation(parts.aggregation)
    return lambda X, y, seed: put_on(make(X, y, seed))
