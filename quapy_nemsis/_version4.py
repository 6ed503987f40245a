"""Conversion of files of format version 4, which held learners only, to the current version."""

from __future__ import annotations

from typing import Any

import numpy as np

# Learners that had no posteriors.
_WITHOUT_POSTERIORS = ("CANClassifier", "SVMPerfClassifier", "OnePassMiniBatchClassifier")


def from_version4(
    content: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Convert class, parameters, extra values and arrays to version 5: a learner consists of no other objects."""
    parameters = dict(content["parameters"])
    if content["class"] in _WITHOUT_POSTERIORS:
        parameters["posteriors"] = None
    return {**content, "parameters": parameters, "parts": {}}, arrays
