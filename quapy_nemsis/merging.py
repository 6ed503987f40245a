"""Learners trained on different parts of the data, made one."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from quapy_nemsis._kernels import nemsis as k
from quapy_nemsis._state import ScanSettings, ScanState, Settings, State
from quapy_nemsis.calibration import Calibration
from quapy_nemsis.classifiers import NEMSISClassifier, SCANClassifier
from quapy_nemsis.tuning import Race

Learner = NEMSISClassifier | SCANClassifier

# Of the scalars, those that are sums over points.
_SUMS = [k.STEPS, k.POSITIVES, k.REWARD_POS, k.REWARD_NEG, k.Q1, k.Q2, k.SIZES]


def merge(learners: list[Learner], base: Learner | None = None) -> Learner:
    """One learner out of several that were trained on different rows.

    Counts and sums of rewards add up exactly. Weights, and averaged weights, are means in proportion to the points that
    each learned from. The result goes on learning as if it had seen all points. SCAN's goes on in the phase of the
    learner that is furthest, at the mean level of those in that phase, and with the points of all of them. Posteriors
    are calibrated on the points that each learner keeps for that (a stream: the latest 4,096); of the base's, on those
    that all of them still keep, once.

    Parameters
    ----------
    learners : list of NEMSISClassifier or of SCANClassifier
        Fitted, with the same parameters, classes and features. None of them may still be choosing its step size in a
        stream: give `eta0`, or learn on until one is chosen.
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
    settings = first._chosen(first._settings())
    start = _runner(base._state) if base is not None else None
    state = merge_states([_runner(learner._state) for learner in learners], settings, start)
    if isinstance(first._state, Race):  # which knows what the step size was chosen out of
        first._state.states[first._state.best] = state
        state = first._state
    first._keep(state, [], settings, first.classes_)
    first._calibration = _joined(learners, base)
    return first


def merge_states(states: list[State], settings: Settings, base: State | None = None) -> State:
    """The same for what learners carry along."""
    moved = [state for state in states if base is None or state.t > base.t]
    if len(moved) <= 1:
        return (moved or states)[0].copy()
    # SCAN's epochs are those of the learner that is furthest.
    merged = max(moved, key=lambda state: state.t).copy()
    scalars = np.array([state.scalars for state in moved])
    known = base.scalars[_SUMS] if base is not None else np.zeros(len(_SUMS))
    merged.scalars[_SUMS] = known + (scalars[:, _SUMS] - known).sum(axis=0)
    learned = np.array([state.steps - (base.steps if base is not None else 0) for state in moved])
    if learned.any():  # in a level phase of SCAN nothing is
        share = learned / learned.sum()
        merged.v = share @ np.array([state.scalars[k.SCALE] * state.v for state in moved])
        merged.scalars[k.SCALE] = 1.0
        merged.scalars[k.NORM2] = merged.v @ merged.v
        merged.scalars[k.INTERCEPT] = share @ scalars[:, k.INTERCEPT]
        _set_average(merged, [state.model(settings.average) for state in moved], share, settings)
    merged.seconds = max(state.seconds for state in moved)
    if isinstance(merged, ScanState):
        _join_phases(merged, moved, settings, base)
    return merged


def _set_average(merged: State, models: list, share: np.ndarray, settings: Settings) -> None:
    """Let the sums of both windows be those of iterates that all equal the mean of the averaged models."""
    weights = share @ np.array([weights for weights, _ in models])
    intercept = float(share @ [intercept for _, intercept in models])
    now, past = merged.windows(settings.average)
    merged.scalars[k.SCALE_SUM] = 0.0
    merged.lag, merged.before = -now * weights, past * weights
    merged.scalars[k.INTERCEPT_SUM] = now * intercept
    merged.scalars[k.INTERCEPT_BEFORE] = past * intercept


def _join_phases(
    merged: ScanState, states: list[ScanState], settings: ScanSettings, base: ScanState | None
) -> None:
    """Add up what learners in the merged one's phase have taken of it; it may be over with that."""
    seen = base.judged if base is not None else 0
    merged.judged = seen + sum(state.judged - seen for state in states)
    here = [state for state in states if state.phase == merged.phase]
    start = base if base is not None and base.phase == merged.phase else None
    length = start.left if start is not None else settings.phase_length(*merged.phase)
    merged.left = max(length - sum(length - state.left for state in here), 0)
    merged.level = float(
        np.average([state.level for state in here], weights=[state.t for state in here])
    )
    if merged.learning:
        return
    known = start.sums if start is not None else np.zeros_like(merged.sums)
    merged.sums = known + sum(state.sums - known for state in here)
    if start is None:
        merged.weights, merged.intercept = merged.model(settings.average)


def _runner(state: State | Race) -> State:
    """The state itself, or of a race that is over its winner's."""
    over = isinstance(state, Race) and len(state.alive) == 1
    return state.states[state.best] if over else state


def _check(learners: list[Learner], base: Learner | None) -> None:
    if not isinstance(learners, Sequence):
        raise TypeError(f"give a list of learners, merge([a, b]); got {type(learners).__name__}")
    if not learners:
        raise ValueError("there is nothing to merge: give at least one learner")
    first = learners[0]
    for learner in [*learners, *([base] if base is not None else [])]:
        if not isinstance(learner, Learner):
            raise TypeError(f"NEMSIS and SCAN learners can be merged; got {type(learner).__name__}")
        if not hasattr(learner, "_state"):
            raise ValueError("a learner to be merged is not fitted")
        if isinstance(_runner(learner._state), Race):
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
    seen = min(learner.t_ for learner in learners)
    if base is not None and seen < base.t_:
        raise ValueError(
            f"a learner has seen {seen} points and the base {base.t_}: it did not start from it"
        )


def _joined(learners: list[Learner], base: Learner | None) -> Calibration:
    """Calibration on the points of all learners, after what all of them have kept of the base's."""
    parts = [learner._calibration for learner in learners]
    known = [0] * len(parts)
    if base is not None:
        # Points are kept in their order: a learner's own are the last ones.
        own = [learner.t_ - base.t_ for learner in learners]
        known = [max(len(part.scores) - n, 0) for part, n in zip(parts, own, strict=True)]
    least = int(np.argmin(known))
    pieces = [(parts[least], slice(known[least]))]
    pieces += [(part, slice(n, None)) for part, n in zip(parts, known, strict=True)]
    return Calibration(
        np.concatenate([part.scores[points] for part, points in pieces]),
        np.concatenate([part.positive[points] for part, points in pieces]),
        np.concatenate([part.weights[points] for part, points in pieces]),
        parts[0].measure,
    )
