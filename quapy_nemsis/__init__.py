"""Online learners that optimise quantification measures directly.

Classifiers for scikit-learn (``NEMSISClassifier``, ``SCANClassifier``, ``CANClassifier``), quantifiers for QuaPy
(``NEMSIS``, ``SCAN``, ``CAN``) and the measures they optimise (``get_measure`` and the classes it returns;
``make_measure`` for your own). QuaPy is imported only when a quantifier is first used.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from quapy_nemsis.batch import CANClassifier
from quapy_nemsis.classifiers import NEMSISClassifier, SCANClassifier
from quapy_nemsis.measures import (
    BA,
    BAKLD,
    CQB,
    NSS,
    BKReward,
    CQReward,
    GMean,
    HMean,
    Measure,
    NegKLD,
    NestedConcave,
    NestedMeasure,
    PseudoConcave,
    PseudoMeasure,
    QMean,
    QMeasure,
    get_measure,
    make_measure,
)

__version__ = version("quapy-nemsis")

_QUANTIFIERS = ("CAN", "NEMSIS", "SCAN")

__all__ = [
    "BA",
    "BAKLD",
    "CAN",
    "CQB",
    "NEMSIS",
    "NSS",
    "SCAN",
    "BKReward",
    "CANClassifier",
    "CQReward",
    "GMean",
    "HMean",
    "Measure",
    "NEMSISClassifier",
    "NegKLD",
    "NestedConcave",
    "NestedMeasure",
    "PseudoConcave",
    "PseudoMeasure",
    "QMean",
    "QMeasure",
    "SCANClassifier",
    "get_measure",
    "make_measure",
]


def __getattr__(name: str) -> Any:
    if name in _QUANTIFIERS:
        from quapy_nemsis import quantifiers

        return getattr(quantifiers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_QUANTIFIERS])
