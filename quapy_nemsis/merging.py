"""Merging of learners that were trained on different parts of the data."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from quapy_nemsis.learners import NEMSISClassifier, SCANClassifier, SPADEClassifier
from quapy_nemsis.learners.calibration import Calibration
from quapy_nemsis.learners.scores import scale_of
from quapy_nemsis.learners.state import State

Learner = NEMSISClassifier | SCANClassifier | SPADEClassifier
L = TypeVar("L", bound=NEMSISClassifier | SCANClassifier | SPADEClassifier)


def merge(learners: Sequence[L], base: L | None = None) -> L:
    """Merge learners that were trained on different rows into one learner.

    Counts and sums of rewards are added exactly. Weights and averaged weights are means, in proportion to the number of
    points that each learner learned. The merged learner can continue to learn as if it had seen all points. A SCAN
    learner continues in the phase of the most advanced learner, at the mean level of the learners in that phase, and
    with the points of all of them. Posteriors are calibrated on the points that each learner keeps for calibration (in
    a stream, the latest 4,096). Points of the base are used once, as far as all learners still keep them.

    Parameters
    ----------
    learners : list of NEMSISClassifier, of SCANClassifier, of STAMPClassifier or of SPADEClassifier
        Fitted learners with the same parameters, classes and features. None of them may still be choosing its step size
        in a stream: set `eta0`, or learn more rows until a step size is chosen.
    base : learner of the same class, optional
        The learner that all of them started from, if they did not start from scratch. Its points are counted once.

    Returns
    -------
    learner
        A new learner of the same class; the given ones are not changed. Its `history_` and `tuning_` are those of the
        first learner.

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
        # Some learners chose their step size in the stream and carry a stream tuner; others were given it.
        states = [state.settled() for state in states]
        start = start.settled() if start is not None else None
    merged.take_over(states[0].merge(states, start), merged.classes_)
    merged.calibration_ = _joined(learners, base, merged.coef_)
    merged.committee_ = merged.members_ = None
    return merged


def _check(learners: Sequence[Learner], base: Learner | None) -> None:
    if not isinstance(learners, Sequence):
        raise TypeError(
            f"give a list of learners, as in merge([a, b]); got {type(learners).__name__}"
        )
    if not learners:
        raise ValueError("there is nothing to merge: give at least one learner")
    first = learners[0]
    for learner in [*learners, *([base] if base is not None else [])]:
        if not isinstance(learner, Learner):
            raise TypeError(
                "only NEMSIS, SCAN, STAMP and SPADE learners can be merged; got "
                f"{type(learner).__name__}"
            )
        if not hasattr(learner, "state_"):
            raise ValueError("a learner is not fitted: fit all learners before merging them")
        if not learner.state_.is_settled():
            raise ValueError("a learner is still choosing its step size: set eta0 to merge streams")
        same = (
            type(learner) is type(first)
            and learner.get_params() == first.get_params()
            and np.array_equal(learner.classes_, first.classes_)
            and learner.n_features_in_ == first.n_features_in_
            and (learner.eta0_, learner.radius_) == (first.eta0_, first.radius_)
        )
        if not same:
            raise ValueError(
                "the learners differ in type, parameters, labels or features, and only equal ones can be merged"
            )
    seen = min(learner.t_ for learner in learners)
    if base is not None and seen < base.t_:
        raise ValueError(
            f"a learner has seen {seen} points and the base {base.t_}, so it did not start from this base"
        )


def _joined(learners: Sequence[Learner], base: Learner | None, weights: np.ndarray) -> Calibration:
    """Calibration on the points of all learners, preceded by the points of the base that all of them still keep.

    With more than two classes, the scores of all points get the scale of the merged weights.
    """
    parts = [learner.calibration_ for learner in learners]
    known = [0] * len(parts)
    if base is not None:
        # Points are kept in order, so a learner's own points are the last ones.
        own = [learner.t_ - base.t_ for learner in learners]
        known = [max(len(part.scores) - n, 0) for part, n in zip(parts, own, strict=True)]
    least = int(np.argmin(known))
    pieces = [(parts[least], slice(known[least]))]
    pieces += [(part, slice(n, None)) for part, n in zip(parts, known, strict=True)]
    factors = [1.0] * len(pieces)
    if len(weights) > 1 and scale_of(weights) > 0.0:
        scales = [scale_of(learner.coef_) or 1.0 for learner in learners]
        factors = [scale_of(weights) / scale for scale in (scales[least], *scales)]
    scores = [part.scores[points] for part, points in pieces]
    return Calibration.of(
        np.concatenate([one * factor for one, factor in zip(scores, factors, strict=True)]),
        np.concatenate([part.labels[points] for part, points in pieces]),
        np.concatenate([part.weights[points] for part, points in pieces]),
    )
