"""The learners, one algorithm a module: settings, state and classifier together."""

from quapy_nemsis.learners.base import LinearClassifier, OnlineClassifier
from quapy_nemsis.learners.can import CANClassifier
from quapy_nemsis.learners.minibatch import OnePassMiniBatchClassifier
from quapy_nemsis.learners.nemsis import NEMSISClassifier
from quapy_nemsis.learners.scan import SCANClassifier
from quapy_nemsis.learners.svmperf import SVMPerfClassifier

__all__ = [
    "CANClassifier",
    "LinearClassifier",
    "NEMSISClassifier",
    "OnePassMiniBatchClassifier",
    "OnlineClassifier",
    "SCANClassifier",
    "SVMPerfClassifier",
]
