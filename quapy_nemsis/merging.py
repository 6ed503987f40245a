"""Learners trained on different parts of the data, made one."""

from __future__ import annotations

import copy

import numpy as np

from quapy_nemsis._kernels import nemsis as k
from quapy_nemsis._state import AVERAGES, ScanState, State
from quapy_nemsis.calibration import Calibration
from quapy_nemsis.classifiers import NEMSISClassifier, SCANClassifier
from quapy_nemsis.tuning import Race

Learner = NEMSISClassifier | SCANClassifier

# Of the scalars, those that are sums over points.
_SUMS = [k.STEPS, k.POSITIVES, k.REWARD_POS, k.REWARD_NEG, k.Q1, k.Q2, k.SIZES]


def merge(learners: list[Learner], base: Learner | None = None) -> Learner:
    """One learner out of several that were trained on different rows.

    Counts and sums of rewards add up exactly. Weights, and averaged weights, are means in proportion to the points that
    each learned from; so is SCAN's level. The result goes on learning as if it had seen all points.

    Parameters
    ----------
    learners : list of NEMSISClassifier or of SCANClassifier
        Fitted, with the same parameters, classes and features. None of them may still be choosing its step size in a
        stream: give `eta0`.
    base : the same, optional
        What all of them started from, if they did not start from nothing: its points count once.

    Returns
    -------
    NEMSISClassifier or SCANClassifier
        A new learner; the given ones stay as they are. Its `history_` and `tuning_` are the first one's.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> from quapy_nemsis import NEMSISClassifier, merge
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> parts = [NEMSISClassifier("q", eta0=0.1).partial_fit(scale(X)[i::2], y[i::2]) for i in (0, 1)]
    >>> merge(parts).t_
    569
    """
    _check(learners, base)
    first = copy.deepcopy(learners[0])
    settings = first._settings()
    states = [learner._state for learner in learners]
    start = base._state if base is not None else None
    state = merge_states(states, AVERAGES[first.average], start)
    first._keep(state, [], first._chosen(settings), first.classes_)
    first._calibration = _joined([learner._calibration for learner in learners])
    return first


def merge_states(states: list[State], average: int, base: State | None = None) -> State:
    """The same for what learners carry along."""
    before = base.steps if base is not None else 0
    evidence = np.array([state.steps - before for state in states], dtype=float)
    if len(states) == 1 or evidence.sum() == 0.0:
        return states[0].copy()
    if np.count_nonzero(evidence) == 1:
        return states[int(np.argmax(evidence))].copy()
    share = evidence / evidence.sum()
    # SCAN's epochs are those of the learner that is furthest.
    merged = max(states, key=lambda state: state.t).copy()
    known = base.scalars[_SUMS] if base is not None else np.zeros(len(_SUMS))
    scalars = np.array([state.scalars for state in states])
    merged.scalars[_SUMS] = known + (scalars[:, _SUMS] - known).sum(axis=0)
    merged.v = share @ np.array([state.scalars[k.SCALE] * state.v for state in states])
    merged.scalars[k.SCALE] = 1.0
    merged.scalars[k.NORM2] = merged.v @ merged.v
    merged.scalars[k.INTERCEPT] = share @ scalars[:, k.INTERCEPT]
    _set_average(merged, [state.model(average) for state in states], share, average)
    merged.seconds = max(state.seconds for state in states)
    if isinstance(merged, ScanState):
        merged.level = float(share @ [state.level for state in states])
        seen = base.judged if base is not None else 0
        merged.judged = seen + sum(state.judged - seen for state in states)
    return merged


def _set_average(merged: State, models: list, share: np.ndarray, average: int) -> None:
    """Let the sums of the merged state give the mean of the averaged models."""
    first = 1
    if average == k.SUFFIX:
        first = max((1 << (merged.steps.bit_length() - 1)) // 2, 1)
    count = merged.steps - first + 1
    merged.scalars[k.SCALE_SUM] = 0.0
    merged.lag = -count * (share @ np.array([weights for weights, _ in models]))
    merged.before = np.zeros_like(merged.lag)
    merged.scalars[k.INTERCEPT_SUM] = count * (share @ [intercept for _, intercept in models])
    merged.scalars[k.INTERCEPT_BEFORE] = 0.0


def _check(learners: list[Learner], base: Learner | None) -> None:
    if not learners:
        raise ValueError("there is nothing to merge: give at least one learner")
    everyone = [*learners, *([base] if base is not None else [])]
    first = learners[0]
    if not isinstance(first, Learner):
        raise TypeError(f"NEMSIS and SCAN learners can be merged; got {type(first).__name__}")
    for learner in everyone:
        if not hasattr(learner, "_state"):
            raise ValueError("a learner to be merged is not fitted")
        if isinstance(learner._state, Race):
            raise ValueError(
                "a learner is still choosing its step size: give eta0 to merge streams"
            )
        same = (
            type(learner) is type(first)
            and learner.get_params() == first.get_params()
            and np.array_equal(learner.classes_, first.classes_)
            and learner.n_features_in_ == first.n_features_in_
            and (learner.eta0_, learner.radius_) == (first.eta0_, first.radius_)
        )
        if not same:
            raise ValueError(
                "learners differ in class, parameters, classes or features: only equal ones can be merged"
            )


def _joined(calibrations: list[Calibration]) -> Calibration:
    return Calibration(
        np.concatenate([part.scores for part in calibrations]),
        np.concatenate([part.positive for part in calibrations]),
        np.concatenate([part.weights for part in calibrations]),
        calibrations[0].measure,
    )
