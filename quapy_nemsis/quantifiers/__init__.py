"""Quantifiers for QuaPy: `Quantifier`, and the learners as quantifiers that count their predictions."""

from quapy_nemsis.quantifiers.counting import (
    CAN,
    NEMSIS,
    SCAN,
    SVMAE,
    SVMKLD,
    SVMNKLD,
    SVMQ,
    SVMRAE,
    OnePassMiniBatch,
    SVMPerf,
)
from quapy_nemsis.quantifiers.default import Quantifier, Scores

__all__ = [
    "CAN",
    "NEMSIS",
    "SCAN",
    "SVMAE",
    "SVMKLD",
    "SVMNKLD",
    "SVMQ",
    "SVMRAE",
    "OnePassMiniBatch",
    "Quantifier",
    "SVMPerf",
    "Scores",
]
