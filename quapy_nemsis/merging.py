"""Learners trained on different parts of the data, made one."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from quapy_nemsis.learners import NEMSISClassifier, SCANClassifier
from quapy_nemsis.learners.calibration import Calibration
from quapy_nemsis.learners.state import State

Learner = NEMSISClassifier | SCANClassifier
L = TypeVar("L", bound=NEMSISClassifier | SCANClassifier)


def merge(learners: Sequence[L], base: L | None = None) -> L:
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
    merged = copy.deepcopy(learners[0])
    states: list[State[Any]] = [learner.state_ for learner in learners]
    start: State[Any] | None = base.state_ if base is not None else None
    if len({type(state) for state in (*states, start) if state is not None}) > 1:
        # Some know what their step size was chosen out of, others were given it.
        states = [state.settled() for state in states]
        start = start.settled() if start is not None else None
    merged.take_over(states[0].merge(states, start), merged.classes_)
    merged.calibration_ = _joined(learners, base)
    return merged


def _check(learners: Sequence[Learner], base: Learner | None) -> None:
    if not isinstance(learners, Sequence):
        raise TypeError(f"give a list of learners, merge([a, b]); got {type(learners).__name__}")
    if not learners:
        raise ValueError("there is nothing to merge: give at least one learner")
    first = learners[0]
    for learner in [*learners, *([base] if base is not None else [])]:
        if not isinstance(learner, Learner):
            raise TypeError(f"NEMSIS and SCAN learners can be merged; got {type(learner).__name__}")
        if not hasattr(learner, "state_"):
            raise ValueError("a learner to be merged is not fitted")
        if not learner.state_.is_settled():
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


def _joined(learners: Sequence[Learner], base: Learner | None) -> Calibration:
    """Calibration on the points of all learners, after what all of them have kept of the base's."""
    parts = [learner.calibration_ for learner in learners]
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
