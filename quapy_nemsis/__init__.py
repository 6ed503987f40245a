"""Online learners that optimise quantification measures directly.

``Quantifier`` estimates class prevalences in a sample, with intervals. It is a QuaPy quantifier, and so are ``NEMSIS``,
``SCAN`` and ``CAN``. The classifiers behind these (``NEMSISClassifier``, ``SCANClassifier``, ``CANClassifier``) are
scikit-learn classifiers, and do not need QuaPy. ``get_measure`` returns the measures that they optimise, and
``make_measure`` makes custom ones. ``quapy_nemsis.aggregation`` has compiled versions of QuaPy's aggregations, and
``quapy_nemsis.tracking`` follows streams without labels. Each name is imported when it is first used. A command can
therefore print its help before anything slow is loaded, and QuaPy is only loaded with the first quantifier.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quapy_nemsis.drift import mixture_test, prevalence_test
    from quapy_nemsis.features import FourierFeatures, NystromFeatures
    from quapy_nemsis.learners import (
        AMPClassifier,
        CANClassifier,
        NEMSISClassifier,
        OnePassMiniBatchClassifier,
        QuantificationForestClassifier,
        QuantificationTreeClassifier,
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
        QForest,
        QTree,
        Quantifier,
        SVMPerf,
    )
    from quapy_nemsis.tables.quantifying import TableQuantifier

__version__ = version("quapy-nemsis")

#: The module that each name comes from.
_HOMES = {
    "drift": ("mixture_test", "prevalence_test"),
    "features": ("FourierFeatures", "NystromFeatures"),
    "learners": (
        "AMPClassifier",
        "CANClassifier",
        "NEMSISClassifier",
        "OnePassMiniBatchClassifier",
        "QuantificationForestClassifier",
        "QuantificationTreeClassifier",
        "SCANClassifier",
        "SPADEClassifier",
        "STAMPClassifier",
        "SVMPerfClassifier",
    ),
    "measures": (
        "BA",
        "BAKLD",
        "BKReward",
        "CQB",
        "CQReward",
        "FMeasure",
        "GMean",
        "HMean",
        "Jaccard",
        "Measure",
        "NSS",
        "NegKLD",
        "NestedConcave",
        "NestedMeasure",
        "PseudoConcave",
        "PseudoMeasure",
        "QMean",
        "QMeasure",
        "get_loss",
        "get_measure",
        "make_measure",
    ),
    "merging": ("merge",),
    "persistence": (
        "load",
        "save",
    ),
    "plugin": ("PlugInClassifier",),
    "quantifiers": (
        "AMP",
        "CAN",
        "NEMSIS",
        "OnePassMiniBatch",
        "QForest",
        "QTree",
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
    ),
    "tables.quantifying": ("TableQuantifier",),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

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
    "NystromFeatures",
    "OnePassMiniBatch",
    "OnePassMiniBatchClassifier",
    "PlugInClassifier",
    "PseudoConcave",
    "PseudoMeasure",
    "QForest",
    "QMean",
    "QMeasure",
    "QTree",
    "QuantificationForestClassifier",
    "QuantificationTreeClassifier",
    "Quantifier",
    "SCANClassifier",
    "SPADEClassifier",
    "STAMPClassifier",
    "SVMPerf",
    "SVMPerfClassifier",
    "TableQuantifier",
    "get_loss",
    "get_measure",
    "load",
    "make_measure",
    "merge",
    "mixture_test",
    "prevalence_test",
    "save",
]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        found = getattr(import_module(f"quapy_nemsis.{_MODULE_OF[name]}"), name)
        globals()[name] = found
        return found
    if name in _HOMES:
        return import_module(f"quapy_nemsis.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
