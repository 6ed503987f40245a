"""Compiled versions of QuaPy's aggregations, and the evaluation of all samples of a protocol at once.

``ACC``, ``PACC``, ``EMQ``, ``KDEyML``, ``HDy``, ``DyS`` and ``MS`` are subclasses of QuaPy's quantifiers of the same
names, with the same parameters, attributes and estimates. ``prediction``, ``evaluate`` and ``evaluation_report`` are
QuaPy's functions of the same names. They classify each row once, and aggregate all samples in one compiled call.
"""

from quapy_nemsis.aggregation.adjusting import ACC, PACC
from quapy_nemsis.aggregation.evaluation import evaluate, evaluation_report, prediction
from quapy_nemsis.aggregation.likelihood import EMQ, KDEyML
from quapy_nemsis.aggregation.matching import DyS, HDy
from quapy_nemsis.aggregation.thresholds import MS

__all__ = [
    "ACC",
    "EMQ",
    "MS",
    "PACC",
    "DyS",
    "HDy",
    "KDEyML",
    "evaluate",
    "evaluation_report",
    "prediction",
]
