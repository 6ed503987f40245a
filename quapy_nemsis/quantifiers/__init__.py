"""Quantifiers for QuaPy: `Quantifier`, and the learners as quantifiers that count their predictions."""

from quapy_nemsis.quantifiers.counting import (
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
    SVMPerf,
)
from quapy_nemsis.quantifiers.default import Quantifier

__all__ = [
    "AMP",
    "CAN",
    "NEMSIS",
    "SCAN",
    "SPADE",
    "STAMP",
    "SVMAE",
    "SVMKLD",
    "SVMNKLD",
    "SVMQ",
    "SVMRAE",
    "OnePassMiniBatch",
    "Quantifier",
    "SVMPerf",
]
