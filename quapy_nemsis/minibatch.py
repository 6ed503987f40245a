"""1PMB, the mini-batch peer of the paper's experiments, for scikit-learn."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import RandomState

from quapy_nemsis._kernels import nemsis as k
from quapy_nemsis._kernels.batch import add, score
from quapy_nemsis._kernels.rows import join_rows, take_rows
from quapy_nemsis._linear import check_integer
from quapy_nemsis._state import Settings, State, in_threads
from quapy_nemsis._violation import Searcher
from quapy_nemsis.losses import Loss, get_loss
from quapy_nemsis.measures import Measure
from quapy_nemsis.online import OnlineClassifier


@dataclass(frozen=True)
class MiniBatchSettings(Settings):
    """Checked parameters of 1PMB; the measure is the loss."""

    measure: Loss
    buffer_size: int

    @property
    def kind(self) -> tuple:
        """What a state cannot go on without."""
        return self.average, self.buffer_size


@dataclass
class MiniBatchState(State):
    """Weights ``v``, the sum of the iterates since the average began (``lag``) and of the window before (``before``).

    Of ``scalars``, the counts, the 0-1 rewards of points before they are learned, and the intercept are used.
    """

    #: Rows that wait for the buffer to be full, and their labels.
    waiting: tuple | None = None
    labels: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    #: Steps taken, one per full buffer.
    batches: int = 0

    @property
    def t(self) -> int:
        """Number of points seen, waiting ones too."""
        return self.steps + len(self.labels)

    @classmethod
    def walk_together(
        cls,
        states: list[MiniBatchState],
        rows: tuple,
        positive: np.ndarray,
        order: np.ndarray,
        settings: list[MiniBatchSettings],
    ) -> list[bool]:
        """Let learners take the same rows, one after the other; for each, whether it stayed finite."""

        def learn(group: slice) -> np.ndarray:
            pairs = zip(states[group], settings[group], strict=True)
            return np.array([state._walk(rows, positive, order, chosen) for state, chosen in pairs])

        return in_threads(learn, len(states), len(order)).tolist()

    def _walk(self, rows, positive, order, settings: MiniBatchSettings) -> bool:
        begin = time.perf_counter()
        size = settings.buffer_size
        done = min(size - len(self.labels), len(order)) if len(self.labels) else 0
        if done:
            self._wait(rows, positive, order[:done])
            if len(self.labels) == size:
                self._step(self.waiting, self.labels, np.arange(size), settings)
                self.waiting, self.labels = None, self.labels[:0]
        while len(order) - done >= size:
            batch = order[done : done + size]
            self._step(rows, positive[batch], batch, settings)
            done += size
        if done < len(order):
            self._wait(rows, positive, order[done:])
        self.seconds += time.perf_counter() - begin
        return self.is_finite()

    def _wait(self, rows, positive, order) -> None:
        new = take_rows(rows, order)
        self.waiting = new if self.waiting is None else join_rows(self.waiting, new)
        self.labels = np.concatenate([self.labels, positive[order]])

    def _step(self, rows, labels, order, settings: MiniBatchSettings) -> None:
        """One step on a full buffer."""
        s = self.scalars
        weights = self.v[np.newaxis]
        scores = np.empty(len(order))
        score(rows, order, weights, s[k.INTERCEPT], scores)
        s[k.STEPS] += len(order)
        s[k.POSITIVES] += labels.sum()
        s[k.REWARD_POS] += np.count_nonzero(scores[labels] > 0.0)
        s[k.REWARD_NEG] += np.count_nonzero(scores[~labels] <= 0.0)
        self.batches += 1
        if settings.average == k.SUFFIX and (self.batches & (self.batches - 1)) == 0:
            self.before[:] = self.lag
            s[k.INTERCEPT_BEFORE] = s[k.INTERCEPT_SUM]
            self.lag[:] = 0.0
            s[k.INTERCEPT_SUM] = 0.0
        # A buffer of one class says nothing about rates.
        if 0 < labels.sum() < len(labels):
            change = Searcher(settings.measure, labels)(scores).weights
            change *= settings.eta0 / math.sqrt(self.batches)
            add(rows, order, change, weights)
            if settings.fit_intercept:
                s[k.INTERCEPT] += change.sum()
            norm = float(np.linalg.norm(self.v))
            if norm > settings.radius:
                self.v *= settings.radius / norm
        self.lag += self.v
        s[k.INTERCEPT_SUM] += s[k.INTERCEPT]

    def model(self, average: int) -> tuple[np.ndarray, float]:
        """Weights and intercept, averaged as asked over steps."""
        s = self.scalars
        if average == k.LAST or self.batches == 0:
            return self.v.copy(), float(s[k.INTERCEPT])
        weights, intercept, first = self.lag.copy(), s[k.INTERCEPT_SUM], 1
        if average == k.SUFFIX:
            weights += self.before
            intercept += s[k.INTERCEPT_BEFORE]
            first = max((1 << (self.batches.bit_length() - 1)) // 2, 1)
        count = self.batches - first + 1
        return weights / count, float(intercept / count)


class OnePassMiniBatchParameters:
    """Parameters of 1PMB, written once for the classifier and the quantifier (see `OnePassMiniBatchClassifier`)."""

    def __init__(
        self,
        loss: str | Measure = "kld",
        *,
        buffer_size: int = 500,
        eta0: float | str = "auto",
        radius: float | str = "auto",
        n_passes: int = 25,
        average: str = "suffix",
        fit_intercept: bool = True,
        shuffle: bool = True,
        random_state: int | RandomState | None = None,
        record_every: int | None = None,
        verbose: int = 0,
    ):
        self.loss = loss
        self.buffer_size = buffer_size
        self.eta0 = eta0
        self.radius = radius
        self.n_passes = n_passes
        self.average = average
        self.fit_intercept = fit_intercept
        self.shuffle = shuffle
        self.random_state = random_state
        self.record_every = record_every
        self.verbose = verbose


class OnePassMiniBatchClassifier(OnePassMiniBatchParameters, OnlineClassifier):
    """Linear classifier trained by 1PMB (Kar, Narasimhan, Jain, NIPS 2014), the online peer in the paper's experiments.

    Points gather in a buffer of s. When it is full, the weights take a step against the subgradient of the structural
    SVM's bound of the loss on the buffer (see `SVMPerfClassifier`): with ȳ the labelling that is violated most,

        w ← Π_R( w + η₀/√t · (1/s) Σ (y_i − ȳ_i) x_i ),

    t counting buffers, and the buffer is emptied. A buffer of one class moves nothing.

    Parameters
    ----------
    loss : str or Measure, default="kld"
        As for `SVMPerfClassifier`.
    buffer_size : int, default=500
        s, the points of a buffer. Points that do not fill one wait for the next pass or chunk.
    eta0 : float or "auto", default="auto"
        Step size; step t uses η₀/√t. "auto" chooses it (see `quapy_nemsis.tuning`).
    radius : float or "auto", default="auto"
        Radius of the ball that the weights (not the intercept) are projected on. "auto" chooses it in `fit`, and is
        infinite in a stream.
    n_passes : int, default=25
        Passes of `fit` over the data, as many as in the paper's experiments.
    average : {"suffix", "all", "last"}, default="suffix"
        Mean of at least the last half of the iterates, of all of them, or the last one.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    shuffle : bool, default=True
        Whether `fit` walks the rows in a fresh random order in each pass.
    random_state : int, RandomState or None, default=None
        Seed of that order.
    record_every : int or None, default=None
        Append to `history_` every so many samples.
    verbose : int, default=0
        Print what was chosen, and a line per pass of `fit`.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, t_, eta0_, radius_, tuning_, history_
        As for `NEMSISClassifier`; ``value`` is the loss, the smaller the better.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = OnePassMiniBatchClassifier("kld", buffer_size=50, random_state=0).fit(scale(X), y)
    >>> bool(abs(learner.predict(scale(X)).mean() - y.mean()) < 0.05)
    True
    """

    _state_type = MiniBatchState
    _fixed = "average and buffer_size"

    def _check_rows(self, X: Any, y: Any, reset: bool) -> tuple[Any, np.ndarray]:
        # Rows may wait long before they are looked at: refuse NaN and inf at once.
        return self._check_data(X, y, reset, dtype=[np.float64, np.float32])

    def _settings(self) -> MiniBatchSettings:
        check_integer("buffer_size", self.buffer_size)
        return MiniBatchSettings(
            measure=get_loss(self.loss),
            buffer_size=int(self.buffer_size),
            **self._common_settings(),
        )
