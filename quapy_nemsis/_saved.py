"""What a learner that comes from a file must look like: names, types, shapes, and that its parts fit together.

Compiled code does not look where it reads and writes, so nothing else may reach it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from quapy_nemsis import _state, calibration, classifiers, losses, measures, minibatch, tuning
from quapy_nemsis._kernels.nemsis import N_SCALARS
from quapy_nemsis._linear import LinearClassifier
from quapy_nemsis.batch import CANClassifier
from quapy_nemsis.online import OnlineClassifier
from quapy_nemsis.structural import SVMPerfClassifier, _Planes

LEARNERS = (
    classifiers.NEMSISClassifier,
    classifiers.SCANClassifier,
    CANClassifier,
    SVMPerfClassifier,
    minibatch.OnePassMiniBatchClassifier,
)


@cache
def classes() -> dict[str, type]:
    """Classes that a file may hold objects of, by name."""
    known = [
        *LEARNERS,
        _state.State,
        _state.ScanState,
        _state.NemsisSettings,
        _state.ScanSettings,
        minibatch.MiniBatchState,
        minibatch.MiniBatchSettings,
        tuning.Race,
        tuning.Tuned,
        calibration.Calibration,
        measures.Valuation,
        losses._NamedLoss,
        losses._MeasureLoss,
        _Planes,
        *measures.MEASURES.values(),
    ]
    return {kind.__name__: kind for kind in known}


def build(kind: type, parts: dict[str, Any]) -> Any:
    """An object, if its attributes are those of its class."""
    names, optional = _held(kind).keys(), {"feature_names_in_"}
    if issubclass(kind, LinearClassifier) and "classes_" not in parts:
        # Not fitted; but a `fit` that failed may have come as far as these.
        optional = {"n_features_in_", "feature_names_in_", "_tuned"}
        names = {*kind._get_param_names(), *(names & optional)}
    if not names - optional <= parts.keys() <= names:
        wrong = sorted(parts.keys() ^ (names - optional))
        raise ValueError(f"{kind.__name__} has too many or too few attributes: {', '.join(wrong)}")
    if is_dataclass(kind):
        return kind(**parts)  # measures check their parameters
    built = object.__new__(kind)
    vars(built).update(parts)
    return built


@dataclass(frozen=True)
class _Array:
    """What an array must be: its types (none: any) and its shape. A name is the same number throughout an object."""

    types: tuple[type, ...]
    shape: tuple[int | str, ...]

    def fits(self, array: Any, sizes: dict[str, int]) -> bool:
        return (
            isinstance(array, np.ndarray)
            and (not self.types or array.dtype in self.types)
            and array.flags.c_contiguous
            and array.ndim == len(self.shape)
            and all(
                n == (sizes.setdefault(size, n) if isinstance(size, str) else size)
                for n, size in zip(array.shape, self.shape, strict=True)
            )
        )


def _reals(*shape: int | str) -> _Array:
    return _Array((np.float64,), shape)


def _flags(*shape: int | str) -> _Array:
    return _Array((np.bool_,), shape)


_COLUMNS = dict[str, list[float]]
# Attributes that constructors and annotations do not tell (enough) about. "width" is the number of features.
_HELD: dict[type, dict[str, Any]] = {
    LinearClassifier: {
        "classes_": _Array((), (2,)),
        "coef_": _reals(1, "width"),
        "intercept_": _reals(1),
        "n_features_in_": int,
        "feature_names_in_": _Array((), ("width",)),
    },
    OnlineClassifier: {
        "_state": _state.State | tuning.Race,
        "_kind": tuple,
        "_tuned": tuning.Tuned | None,
        "eta0_": float,
        "radius_": float,
        "tuning_": _COLUMNS,
        "history_": _COLUMNS,
    },
    classifiers._NestedClassifier: {"_calibration": calibration.Calibration},
    CANClassifier: {"levels_": _reals("levels"), "n_iter_": int},
    SVMPerfClassifier: {
        "n_iter_": int,
        "gap_": float,
        "history_": _COLUMNS,
        "_kept": _Planes | None,
    },
    _state.State: {
        **dict.fromkeys(("v", "lag", "before"), _reals("width")),
        "scalars": _reals(N_SCALARS),
    },
    _state.ScanState: {"weights": _reals("judged"), "sums": _reals(4)},
    minibatch.MiniBatchState: {"labels": _flags("waiting")},
    tuning.Race: {
        "tries": list[_state.Settings],
        "states": list[_state.State | None],
        "marks": list[_reals("tries", 4)],
        "scores": _reals("tries", 2),
        "best": int,
    },
    tuning.Tuned: {"scores": _reals("points"), "positive": _flags("points")},
    calibration.Calibration: {
        "scores": _reals("points"),
        "positive": _flags("points"),
        "weights": _reals("points"),
        "measure": measures.NestedMeasure | None,
    },
    _Planes: {
        "normals": _reals("planes", "width+1"),
        "gram": _reals("planes", "planes"),
        **dict.fromkeys(("losses", "alpha", "idle"), _reals("planes")),
    },
}


@cache
def _held(kind: type) -> dict[str, Any]:
    """Attributes of a class, and what each must be."""
    held: dict[str, Any] = {}
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        held = {field.name: hints[field.name] for field in fields(kind)}
    elif issubclass(kind, LinearClassifier):
        held = dict.fromkeys(kind._get_param_names(), object)
    for base in reversed(kind.__mro__):
        held |= _HELD.get(base, {})
    return held


def _fits(value: Any, hint: Any, sizes: dict[str, int]) -> bool:
    """Whether a value is what an annotation says; objects are checked inside. No integer here is negative."""
    if isinstance(hint, _Array):
        return hint.fits(value, sizes)
    kind, inside = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_fits(value, option, sizes) for option in inside)
    if kind in (int, float):
        return type(value) in (int, kind) and (kind is float or value >= 0)
    if not isinstance(value, kind):
        return False
    if inside:
        entries = value.values() if kind is dict else value
        return all(_fits(entry, inside[-1], sizes) for entry in entries)
    if hasattr(value, "__dict__"):
        check(value, sizes["width"])
    return True


def check(value: Any, width: int) -> None:
    """Refuse an object whose parts are not what they must be, or do not fit together."""
    name, sizes = type(value).__name__, {"width": width, "width+1": width + 1}
    for part, entry in vars(value).items():
        if not _fits(entry, _held(type(value))[part], sizes):
            raise ValueError(f"{part} of its {name} has a wrong type or shape")
    if not all(rule(value) for kind, rule in _RULES.items() if isinstance(value, kind)):
        raise ValueError(f"the parts of its {name} do not fit together")


def _online_fits(learner: OnlineClassifier) -> bool:
    """Whether its parameters are valid, and its states are of its kind."""
    settings, state = learner._settings(), getattr(learner, "_state", None)
    if state is None:
        return True
    is_race = isinstance(state, tuning.Race)
    states = [state.states[k] for k in state.alive] if is_race else [state]
    return (
        all(type(one) is learner._state_type for one in states)
        and all(
            type(one) is type(settings) and one.kind == learner._kind
            for one in (state.tries if is_race else [])
        )
        and all(
            len(one.labels) < learner._kind[1]  # the size of the buffer
            for one in states
            if isinstance(one, minibatch.MiniBatchState)
        )
    )


def _race_fits(race: tuning.Race) -> bool:
    """Whether there is a candidate for everything, and those alive have come equally far."""
    alive = [race.states[k] for k in race.alive]
    places = {(s.t, s.steps, getattr(s, "phase", None), getattr(s, "left", None)) for s in alive}
    complete = len(race.tries) == len(race.states) == len(race.scores) and len(race.marks) == 2
    return complete and race.best in race.alive and len(places) == 1


def _waiting_fits(state: minibatch.MiniBatchState) -> bool:
    """Whether the rows that wait are whole, one for each label."""
    n_rows, width, sizes = len(state.labels), len(state.v), {}
    numbers, integers = (np.float64, np.float32), (np.int32, np.int64)
    match state.waiting:
        case None:
            return n_rows == 0
        case (X,):
            return _Array(numbers, (n_rows, width)).fits(X, sizes)
        case (data, indices, indptr):
            return (
                _Array(numbers, ("entries",)).fits(data, sizes)
                and _Array(integers, ("entries",)).fits(indices, sizes)
                and _Array(integers, (n_rows + 1,)).fits(indptr, sizes)
                and indptr[0] == 0
                and indptr[-1] == len(data)
                and bool((indptr[:-1] <= indptr[1:]).all())
                and bool(((indices >= 0) & (indices < width)).all())
            )
    return False


# What must hold for an object of each class, once all of its parts are what they must be.
_RULES: dict[type, Callable[[Any], bool]] = {
    measures.Measure: lambda measure: isinstance(measure.value(0.5, 0.5, 0.5, 0.1), float),
    _state.State: _state.State.is_finite,
    # The model that is judged is there from the first level phase on.
    _state.ScanState: lambda s: len(s.weights) in ({0, len(s.v)} if s.learning else {len(s.v)}),
    minibatch.MiniBatchState: _waiting_fits,
    tuning.Race: _race_fits,
    _Planes: lambda planes: len(planes) > 0,
    OnlineClassifier: _online_fits,
}
