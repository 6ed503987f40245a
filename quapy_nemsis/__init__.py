"""Online learners that optimise quantification measures directly.

Classifiers for scikit-learn (``NEMSISClassifier``), quantifiers for QuaPy (``NEMSIS``) and the measures they optimise
(``get_measure`` and the classes it returns). QuaPy is imported only when a quantifier is first used.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from quapy_nemsis.classifiers import NEMSISClassifier
from quapy_nemsis.measures import (
    BA,
    BAKLD,
    CQB,
    NSS,
    GMean,
    HMean,
    Measure,
    NegKLD,
    NestedMeasure,
    QMean,
    QMeasure,
    get_measure,
)

__version__ = version("quapy-nemsis")

_QUANTIFIERS = ("NEMSIS",)

__all__ = [
    "BA",
    "BAKLD",
    "CQB",
    "NEMSIS",
    "NSS",
    "GMean",
    "HMean",
    "Measure",
    "NEMSISClassifier",
    "NegKLD",
    "NestedMeasure",
    "QMean",
    "QMeasure",
    "get_measure",
]


def __getattr__(name: str) -> Any:
    if name in _QUANTIFIERS:
        from quapy_nemsis import quantifiers

        return getattr(quantifiers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_QUANTIFIERS])
