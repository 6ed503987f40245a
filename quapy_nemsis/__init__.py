"""Online learners that optimise quantification measures directly.

``Quantifier`` estimates the prevalences of classes in a sample, with intervals. It is a quantifier for QuaPy, as are
``NEMSIS``, ``SCAN`` and ``CAN``. The classifiers behind them are for scikit-learn (``NEMSISClassifier``,
``SCANClassifier``, ``CANClassifier``), and so are the measures that they optimise (``get_measure`` and the classes it
returns; ``make_measure`` for custom measures). QuaPy is imported only when a quantifier is first used.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from quapy_nemsis.features import FourierFeatures
from quapy_nemsis.learners import (
    AMPClassifier,
    CANClassifier,
    NEMSISClassifier,
    OnePassMiniBatchClassifier,
    SCANClassifier,
    SPADEClassifier,
    STAMPClassifier,
    SVMPerfClassifier,
)
from quapy_nemsis.measures import (
    BA,
    BAKLD,
    CQB,
    NSS,
    BKReward,
    CQReward,
    FMeasure,
    GMean,
    HMean,
    Jaccard,
    Measure,
    NegKLD,
    NestedConcave,
    NestedMeasure,
    PseudoConcave,
    PseudoMeasure,
    QMean,
    QMeasure,
    get_loss,
    get_measure,
    make_measure,
)
from quapy_nemsis.merging import merge
from quapy_nemsis.persistence import load, save
from quapy_nemsis.plugin import PlugInClassifier

if TYPE_CHECKING:
    from quapy_nemsis.quantifiers import (
        AMP,
        CAN,
        NEMSIS,
        SCAN,
        SPADE,
        STAMP,
        SVMAE,
        SVMKLD,
        SVMNKLD,
        SVMQ,
        SVMRAE,
        OnePassMiniBatch,
        Quantifier,
        SVMPerf,
    )

__version__ = version("quapy-nemsis")

_QUANTIFIERS = (
    "AMP",
    "CAN",
    "NEMSIS",
    "OnePassMiniBatch",
    "Quantifier",
    "SCAN",
    "SPADE",
    "STAMP",
    "SVMAE",
    "SVMKLD",
    "SVMNKLD",
    "SVMPerf",
    "SVMQ",
    "SVMRAE",
)

__all__ = [
    "AMP",
    "BA",
    "BAKLD",
    "CAN",
    "CQB",
    "NEMSIS",
    "NSS",
    "SCAN",
    "SPADE",
    "STAMP",
    "SVMAE",
    "SVMKLD",
    "SVMNKLD",
    "SVMQ",
    "SVMRAE",
    "AMPClassifier",
    "BKReward",
    "CANClassifier",
    "CQReward",
    "FMeasure",
    "FourierFeatures",
    "GMean",
    "HMean",
    "Jaccard",
    "Measure",
    "NEMSISClassifier",
    "NegKLD",
    "NestedConcave",
    "NestedMeasure",
    "OnePassMiniBatch",
    "OnePassMiniBatchClassifier",
    "PlugInClassifier",
    "PseudoConcave",
    "PseudoMeasure",
    "QMean",
    "QMeasure",
    "Quantifier",
    "SCANClassifier",
    "SPADEClassifier",
    "STAMPClassifier",
    "SVMPerf",
    "SVMPerfClassifier",
    "get_loss",
    "get_measure",
    "load",
    "make_measure",
    "merge",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _QUANTIFIERS:
        from quapy_nemsis import quantifiers

        return getattr(quantifiers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_QUANTIFIERS])
