"""Quantifiers by name: QuaPy's aggregations, the learners of this package, and every combination of the two.

A name is an aggregation (``ACC``), an aggregation of a learner (``ACC(NEMSIS:q)``), or a learner, whose predictions are
counted (``NEMSIS:q``, ``SVM(KLD)``). An aggregation alone is put on logistic regression.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from quapy.method import aggregative
from sklearn.linear_model import LogisticRegression

from experiments.curves import choose_C
from quapy_nemsis import (
    CANClassifier,
    NEMSISClassifier,
    OnePassMiniBatchClassifier,
    SCANClassifier,
    SVMPerfClassifier,
    get_loss,
    get_measure,
)

AGGREGATIONS: dict[str, type] = {
    "CC": aggregative.CC,
    "PCC": aggregative.PCC,
    "ACC": aggregative.ACC,
    "PACC": aggregative.PACC,
    "EMQ": aggregative.EMQ,
    "HDy": aggregative.HDy,
    "DyS": aggregative.DyS,
    "MS": aggregative.MS,
    "KDEy": aggregative.KDEyML,
}
#: After the name of an online learner: surrogate estimates, the paper's variants without NS.
SURROGATE = "-surrogate"
_SVM = re.compile(r"SVM\((?P<loss>\w+)\)")
_ONLINE = {"NEMSIS": (NEMSISClassifier, "q"), "SCAN": (SCANClassifier, "cq")}

#: Everything that `compare` runs if nothing is named.
ALL = (
    "CC",
    "PCC",
    "ACC",
    "PACC",
    "EMQ",
    "HDy",
    "DyS",
    "MS",
    "KDEy",
    "NEMSIS:kld",
    "NEMSIS:bakld",
    "NEMSIS:q",
    "NEMSIS-surrogate:kld",
    "NEMSIS-surrogate:bakld",
    "NEMSIS-surrogate:q",
    "SCAN:cq",
    "SCAN:bk",
    "CAN:cq",
    "SVM(KLD)",
    "SVM(Q)",
    "1PMB:kld",
    "ACC(NEMSIS:q)",
    "PACC(NEMSIS:ba)",
    "EMQ(NEMSIS:ba)",
)

Maker = Callable[[Any, np.ndarray, int], Any]


def _fresh(kind: type, parameters: dict[str, Any], X: Any, y: np.ndarray, seed: int) -> Any:
    return kind(**parameters, random_state=seed)


def _unseeded(kind: type, parameters: dict[str, Any], X: Any, y: np.ndarray, seed: int) -> Any:
    return kind(**parameters)


def _tuned_svm(loss: str, X: Any, y: np.ndarray, seed: int) -> SVMPerfClassifier:
    return SVMPerfClassifier(loss, C=choose_C(loss, X, y, seed))


def learner(name: str) -> Maker:
    """What makes the learner of a name, from training rows and a seed.

    ``LR``, ``LR-balanced``, ``NEMSIS:measure``, ``NEMSIS-surrogate:measure``, ``SCAN:measure``, ``CAN:measure``,
    ``1PMB:loss``, ``SVM(LOSS)``. The C of a structural SVM is chosen on a fifth of the rows.
    """
    kind, _, objective = name.partition(":")
    options = {"estimates": "surrogate"} if kind.endswith(SURROGATE) else {}
    kind = kind.removesuffix(SURROGATE)
    if kind in _ONLINE:
        learner_type, default = _ONLINE[kind]
        measure = objective or default
        learner_type(measure)._settings()  # says what is wrong with it
        return partial(_fresh, learner_type, {"measure": measure, **options})
    if not options:
        if kind == "1PMB":
            get_loss(objective or "kld")
            return partial(_fresh, OnePassMiniBatchClassifier, {"loss": objective or "kld"})
        if kind == "CAN":
            get_measure(objective or "cq")
            return partial(_unseeded, CANClassifier, {"measure": objective or "cq"})
        if name in ("LR", "LR-balanced"):
            weight = "balanced" if name == "LR-balanced" else None
            parameters = {"max_iter": 1000, "class_weight": weight}
            return partial(_unseeded, LogisticRegression, parameters)
        match = _SVM.fullmatch(name)
        if match:
            loss = match["loss"].lower()
            get_loss(loss)
            return partial(_tuned_svm, loss)
    raise ValueError(
        f"unknown method {name!r}; known are {', '.join(AGGREGATIONS)} (also on a learner, as in ACC(NEMSIS:q)), "
        "LR, LR-balanced, NEMSIS:MEASURE, NEMSIS-surrogate:MEASURE, SCAN:MEASURE, CAN:MEASURE, 1PMB:LOSS, SVM(LOSS)"
    )


def method(name: str) -> Maker:
    """What makes the QuaPy quantifier of a name, from training rows and a seed; not fitted.

    Examples
    --------
    >>> X, y = np.zeros((1, 1)), np.zeros(1)
    >>> quantifier = method("ACC(NEMSIS:bakld)")(X, y, 7)
    >>> type(quantifier).__name__, quantifier.classifier
    ('ACC', NEMSISClassifier(measure='bakld', random_state=7))
    """
    aggregation, parenthesis, inner = name.partition("(")
    if aggregation in AGGREGATIONS:
        if parenthesis and not inner.endswith(")"):
            raise ValueError(f"the parenthesis of {name!r} is not closed")
        make = learner(inner.removesuffix(")") if parenthesis else "LR")
        kind = AGGREGATIONS[aggregation]
    else:
        make, kind = learner(name), aggregative.CC

    def build(X: Any, y: np.ndarray, seed: int) -> Any:
        return kind(make(X, y, seed))

    return build
