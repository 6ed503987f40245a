"""The learners. Each module holds one algorithm: its settings, its state and its classifier."""

from quapy_nemsis.learners.base import Learner, LinearClassifier, OnlineClassifier
from quapy_nemsis.learners.can import CANClassifier
from quapy_nemsis.learners.minibatch import OnePassMiniBatchClassifier
from quapy_nemsis.learners.nemsis import NEMSISClassifier
from quapy_nemsis.learners.pseudolinear import AMPClassifier, STAMPClassifier
from quapy_nemsis.learners.scan import SCANClassifier
from quapy_nemsis.learners.spade import SPADEClassifier
from quapy_nemsis.learners.svmperf import SVMPerfClassifier
from quapy_nemsis.learners.trees import (
    QuantificationForestClassifier,
    QuantificationTreeClassifier,
)

__all__ = [
    "AMPClassifier",
    "CANClassifier",
    "Learner",
    "LinearClassifier",
    "NEMSISClassifier",
    "OnePassMiniBatchClassifier",
    "OnlineClassifier",
    "QuantificationForestClassifier",
    "QuantificationTreeClassifier",
    "SCANClassifier",
    "SPADEClassifier",
    "STAMPClassifier",
    "SVMPerfClassifier",
]
