"""Conversion of files of format version 3, in which calibrations knew a measure, to the current version."""

from __future__ import annotations

from typing import Any

import numpy as np


def from_version3(
    content: dict[str, Any], arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Convert class, parameters, extra values and arrays to version 4."""
    parameters = dict(content["parameters"])
    if content["class"] in ("NEMSISClassifier", "SCANClassifier"):
        parameters["posteriors"] = "training"
    gone = ("calibration.measure", "calibration.level")
    kept = {name: array for name, array in arrays.items() if name not in gone}
    return {**content, "parameters": parameters}, kept
