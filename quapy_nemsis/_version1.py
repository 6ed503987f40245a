"""Conversion of files of format version 1 to the current version.

Version 1 stored a learner as a tree of its attributes, ``{"object": NAME, "state": {…}}`` with ``{"array": k}`` for
array k, ``{"tuple": […]}`` and ``{"dict": {…}}``. Its loss "q" is now called "qrecall".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from quapy_nemsis.learners.state import prefixed

# Positions of the current state's numbers among the numbers of version 1.
_NEMSIS = [0, 1, 2, 3, 4, 5, 12, 6, 7, 8, 9, 10, 11]
_COUNTS, _INTERCEPTS = [0, 1, 2, 3], [6, 10, 11]
_LINEAR = {"classes_": "classes", "coef_": "coef", "intercept_": "intercept"}


def from_version1(
    content: list[Any], arrays: dict[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Convert class, parameters and extra values to version 2, and name the arrays as in version 2."""
    by_number = {int(name.removeprefix("a")): array for name, array in arrays.items()}
    tree, extra = content
    attributes = tree["state"]
    parameters = {
        name: _parameter(name, value)
        for name, value in attributes.items()
        if not name.startswith("_") and not name.endswith("_")
    }
    found: dict[str, np.ndarray] = {}
    if "classes_" in attributes:
        fitted = {
            name: _decoded(value, by_number)
            for name, value in attributes.items()
            if name not in parameters
        }
        found = _fitted(fitted)
    if by_number:
        raise ValueError("some of its arrays are not part of the learner")
    return {"class": tree["object"], "parameters": parameters, "extra": extra}, found


def _parameter(name: str, value: Any) -> Any:
    """Convert a parameter to version 2; measures and losses become names."""
    if name == "loss" and value == "q":
        return "qrecall"
    match value:
        case {"object": "_NamedLoss", "state": {"key": str(key)}}:
            return {"loss": "qrecall" if key == "q" else key}
        case {"object": "_MeasureLoss", "state": {"measure": {"object": kind, "state": own}}}:
            return {"loss of measure": _name(kind, own)}
        case {"object": str(kind), "state": dict(own)}:
            return {"measure": _name(kind, own)}
    return value


_MEASURES = {
    "NegKLD": "kld",
    "BAKLD": "bakld",
    "QMeasure": "q",
    "NSS": "nss",
    "BA": "ba",
    "GMean": "gmean",
    "HMean": "hmean",
    "QMean": "qmean",
    "CQReward": "cq",
    "BKReward": "bk",
    "CQB": "cqb",
}


def _name(kind: str, parameters: dict[str, Any]) -> str:
    return ":".join([_MEASURES[kind], *(repr(float(value)) for value in parameters.values())])


class _Object:
    """An object of version 1: the name of its class, and its attributes."""

    def __init__(self, kind: str, attributes: dict[str, Any]):
        self.kind, self.attributes = kind, attributes

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]


def _decoded(tree: Any, arrays: dict[int, np.ndarray]) -> Any:
    match tree:
        case list():
            return [_decoded(entry, arrays) for entry in tree]
        case {"array": int(k)}:
            return arrays.pop(k)
        case {"number": "nan" | "inf" | "-inf" as number}:
            return float(number)
        case {"tuple": list(entries)}:
            return tuple(_decoded(entry, arrays) for entry in entries)
        case {"dict": dict(entries)}:
            return {name: _decoded(entry, arrays) for name, entry in entries.items()}
        case {"object": str(kind), "state": dict(state)}:
            return _Object(kind, {name: _decoded(entry, arrays) for name, entry in state.items()})
    return tree


def _fitted(held: dict[str, Any]) -> dict[str, np.ndarray]:
    """Convert the fitted attributes of a learner to named arrays."""
    found = {new: held[old] for old, new in _LINEAR.items()}
    if "feature_names_in_" in held:
        found["feature_names"] = held["feature_names_in_"]
    for name in ("eta0", "radius", "n_iter", "gap", "levels"):
        if f"{name}_" in held:
            found[name] = np.array(held[f"{name}_"])
    for name in ("history", "tuning"):
        columns = held.get(f"{name}_", {})
        found |= prefixed(name, {key: np.array(column) for key, column in columns.items()})
    if "_kind" in held:
        found["resume_signature"] = np.array([int(entry) for entry in held["_kind"]])
        found |= prefixed("state", _state(held["_state"]))
    if "_calibration" in held:
        found |= prefixed("calibration", _calibration(held["_calibration"]))
    if held.get("_kept") is not None:
        planes = held["_kept"].attributes
        found |= prefixed("planes", {name: np.array(part) for name, part in planes.items()})
    return found


def _state(state: _Object) -> dict[str, np.ndarray]:
    if state.kind == "Race":
        alive = [k for k, one in enumerate(state["states"]) if one is not None]
        found = {
            "eta0": np.array([one["eta0"] for one in state["tries"]]),
            "alive": np.array(alive, dtype=np.int64),
            "marks": np.array(state["marks"]),
            "scores": state["scores"],
            "best": np.array(state["best"]),
        }
        for k in alive:
            found |= prefixed(str(k), _state(state["states"][k]))
        return found
    scalars, seconds = state["scalars"], np.array(float(state["seconds"]))
    vectors = {"v": state["v"], "previous": state["before"], "seconds": seconds}
    if state.kind == "MiniBatchState":
        counts = [*scalars[_COUNTS], state["batches"], *scalars[_INTERCEPTS]]
        waiting = state["waiting"] or ()
        names = {0: (), 1: ("X",)}.get(len(waiting), ("data", "indices", "indptr"))
        return {
            **vectors,
            "total": state["lag"],
            "numbers": np.array(counts),
            "labels": state["labels"],
            **dict(zip(names, waiting, strict=True)),
        }
    nemsis = {**vectors, "correction": state["lag"], "numbers": scalars[_NEMSIS]}
    if state.kind == "State":
        return nemsis
    whole = {name: np.array(int(state[name])) for name in ("learning", "left", "judged")}
    real = {name: np.array(float(state[name])) for name in ("level", "intercept")}
    levels = np.array(state["levels"], dtype=float)
    arrays = {"levels": levels, "weights": state["weights"], "sums": state["sums"]}
    return {**prefixed("nemsis", nemsis), **whole, **real, **arrays}


def _calibration(held: _Object) -> dict[str, np.ndarray]:
    found = {name: held[name] for name in ("scores", "positive", "weights")}
    measure = held["measure"]
    if measure is not None and measure.kind == "Valuation":
        found["level"] = np.array(float(measure["level"]))
        measure = measure["measure"]
    if measure is not None:
        found["measure"] = np.array(_name(measure.kind, measure.attributes))
    return found
