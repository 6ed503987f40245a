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
from quapy_nemsis.quantifiers.default import Quantifier, Scores
from quapy_nemsis.quantifiers.trees import QForest, QTree

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
    "QForest",
    "QTree",
    "Quantifier",
    "SVMPerf",
    "Scores",
]
