"""Conversion of files of format version 2, which knew two classes and no weights of rows, to the current version."""

from __future__ import annotations

from typing import Any

import numpy as np

from quapy_nemsis.learners.state import two_class_tally

_ONLINE = ("NEMSISClassifier", "SCANClassifier")


def from_version2(
    content: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Convert class, parameters, extra values and arrays to version 3."""
    online = content["class"] in _ONLINE
    parameters = dict(content["parameters"])
    if online or content["class"] == "CANClassifier":
        parameters["class_weight"] = None
    found = {}
    for name, array in arrays.items():
        if name == "calibration.positive":
            name = "calibration.labels"
        elif name.endswith("numbers") and online:
            # The weight of the points is new. It was their number, which comes first.
            array = np.insert(array, 1, array[:1])
        elif name == "state.marks":
            array = np.array([[_tally(*row) for row in mark] for mark in array])
        found[name] = array
    extra = {"dict": _progress(content["extra"]["dict"])} if content["extra"] else None
    return {**content, "parameters": parameters, "extra": extra}, found


def _tally(positives: float, negatives: float, reward_pos: float, reward_neg: float) -> np.ndarray:
    return two_class_tally(positives + negatives, positives, reward_pos, reward_neg)


def _progress(extra: dict[str, Any]) -> dict[str, Any]:
    """Convert what a checkpoint keeps: counts of two classes to one number for each class."""
    tp, fn, fp, tn = extra.pop("window")
    positives = extra.pop("positives")
    before = extra["rows"] - (tp + fn + fp + tn)
    window = [[fp + tn, tp + fn], [tn, tp], [fn + tn, tp + fp]]
    return {**extra, "window": window, "members": [before - positives, positives]}
