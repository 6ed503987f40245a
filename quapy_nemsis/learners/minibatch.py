"""1PMB (Kar, Narasimhan, Jain 2014), the mini-batch baseline of the paper: settings, state and classifier."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from quapy_nemsis._jit import Record
from quapy_nemsis._kernels.batch import add, score
from quapy_nemsis._kernels.nemsis import LAST, SUFFIX
from quapy_nemsis._kernels.rows import Rows, as_rows, join_rows
from quapy_nemsis._validation import check_integer
from quapy_nemsis.learners.base import PosteriorOnlineClassifier, StepParameters
from quapy_nemsis.learners.calibration import check_posteriors
from quapy_nemsis.learners.separation import SeparationOracle
from quapy_nemsis.learners.state import (
    UNWEIGHTED,
    Arrays,
    SingleState,
    StepSettings,
    averaged,
    check_tally,
    flat,
    in_threads,
    two_class_tally,
)
from quapy_nemsis.measures import Loss, Measure, get_loss

if TYPE_CHECKING:
    from typing_extensions import Self

NUMBERS = Record(
    sums=("steps", "positives", "reward_pos", "reward_neg", "batches"),
    means=("intercept",),
    derived=("intercept_sum", "intercept_previous"),
)


@dataclass(frozen=True)
class MiniBatchSettings(StepSettings):
    """Checked parameters of 1PMB; `measure` is the loss."""

    measure: Loss
    buffer_size: int

    @property
    def resume_signature(self) -> tuple[int, ...]:
        """Values that must not change between calls, or learning cannot resume from the state."""
        return self.average, self.buffer_size


@dataclass
class MiniBatchState(SingleState[MiniBatchSettings]):
    """State of 1PMB: weights, the sum of the iterates since the average began, and the previous window sum."""

    settings: MiniBatchSettings
    v: np.ndarray
    total: np.ndarray
    previous: np.ndarray
    #: Counts, sums of the 0-1 rewards of points before they are learned, the intercept and its sums.
    numbers: np.ndarray
    #: Time spent learning.
    seconds: float = 0.0
    #: Rows waiting for the buffer to be full, and their labels.
    waiting: Rows | None = None
    labels: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=bool))

    @classmethod
    def start(cls, n_features: int, n_classes: int, settings: MiniBatchSettings) -> Self:
        """State before the first point: zero weights."""
        v, total, previous = (np.zeros(n_features) for _ in range(3))
        return cls(settings, v, total, previous, NUMBERS.zeros())

    def copy(self) -> Self:
        """Independent copy; the waiting rows are shared, as they are never written to."""
        arrays = ("v", "total", "previous", "numbers", "labels")
        return replace(self, **{name: getattr(self, name).copy() for name in arrays})

    @property
    def steps(self) -> int:
        """Number of points learned."""
        return int(self.numbers["steps"])

    @property
    def batches(self) -> int:
        """Number of steps taken, one per full buffer."""
        return int(self.numbers["batches"])

    @property
    def t(self) -> int:
        """Number of points seen, including those waiting."""
        return self.steps + len(self.labels)

    def tally(self) -> np.ndarray:
        """Points learned, sums of their rewards and predicted points, in three rows, for each class."""
        names = ("steps", "positives", "reward_pos", "reward_neg")
        return two_class_tally(*(float(self.numbers[name]) for name in names))

    def objective(self) -> Loss:
        """The loss that the steps decrease."""
        return self.settings.measure

    @classmethod
    def learn_together(
        cls,
        states: Sequence[Self],
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        weights: np.ndarray = UNWEIGHTED,
    ) -> list[bool]:
        """Let several learners learn the same rows independently; return for each whether it stayed finite."""

        def learn(group: Sequence[MiniBatchState]) -> np.ndarray:
            return np.array([state.learn(rows, labels, order) for state in group])

        return in_threads(learn, states, len(order))

    def learn(
        self, rows: Rows, labels: np.ndarray, order: np.ndarray, weights: np.ndarray = UNWEIGHTED
    ) -> bool:
        """Learn the rows in the given order; return False if the weights became infinite or NaN."""
        begin = time.perf_counter()
        size = self.settings.buffer_size
        done = min(size - len(self.labels), len(order)) if len(self.labels) else 0
        if done:
            self._wait(rows, labels, order[:done])
            if len(self.labels) == size and self.waiting is not None:
                if not self._step(self.waiting, self.labels, np.arange(size)):
                    return False
                self.waiting, self.labels = None, self.labels[:0]
        while len(order) - done >= size:
            batch = order[done : done + size]
            if not self._step(rows, labels[batch], batch):
                return False
            done += size
        if done < len(order):
            self._wait(rows, labels, order[done:])
        self.seconds += time.perf_counter() - begin
        return self.is_finite()

    def _wait(self, rows: Rows, positive: np.ndarray, order: np.ndarray) -> None:
        new = rows.take(order)
        self.waiting = new if self.waiting is None else join_rows(self.waiting, new)
        self.labels = np.concatenate([self.labels, positive[order]])

    def _step(self, rows: Rows, labels: np.ndarray, order: np.ndarray) -> bool:
        """Take one step on a full buffer; return False if its scores are infinite or NaN."""
        settings = self.settings
        steps, seen, reward_pos, reward_neg, batches, b, b_sum, b_previous = self.numbers.item()
        weights = self.v[np.newaxis]
        scores = np.empty(len(order))
        score(rows, order, weights, b, scores)
        if not math.isfinite(np.add.reduce(scores)):
            return False
        positives = np.count_nonzero(labels)
        reward_pos += np.count_nonzero(scores[labels] > 0.0)
        reward_neg += np.count_nonzero(scores[~labels] <= 0.0)
        batches += 1
        if settings.average == SUFFIX and math.log2(batches).is_integer():
            self.previous[:] = self.total
            self.total[:] = 0.0
            b_previous, b_sum = b_sum, 0.0
        # A buffer of one class allows no step.
        if 0 < positives < len(labels):
            change = SeparationOracle(settings.measure, labels)(scores).weights
            change *= settings.eta0 / math.sqrt(batches)
            add(rows, order, change, weights)
            if settings.fit_intercept:
                b += change.sum()
            norm = float(np.linalg.norm(self.v))
            if norm > settings.radius:
                self.v *= settings.radius / norm
        self.total += self.v
        counts = (steps + len(order), seen + positives, reward_pos, reward_neg, batches)
        self.numbers[()] = (*counts, b, b_sum + b, b_previous)
        return True

    def is_finite(self) -> bool:
        """Whether every number of the state is finite."""
        parts = (self.v, self.total, self.previous, flat(self.numbers).copy())
        return all(np.isfinite(part).all() for part in parts)

    def model(self) -> tuple[np.ndarray, float]:
        """Weights and intercept, averaged over the steps according to the settings."""
        n, average, batches = self.numbers, self.settings.average, self.batches
        if average == LAST or batches == 0:
            return self.v.copy(), float(n["intercept"])
        weights, intercept = self.total.copy(), n["intercept_sum"]
        if average == SUFFIX:
            weights += self.previous
            intercept = intercept + n["intercept_previous"]
        count = sum(averaged(batches, average))
        return weights / count, float(intercept / count)

    @classmethod
    def merge(cls, states: Sequence[Self], base: Self | None) -> Self:
        """Raise a TypeError: 1PMB learners cannot be merged."""
        raise TypeError(
            "1PMB learners cannot be merged; only NEMSIS, SCAN, STAMP and SPADE learners can"
        )

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All arrays and numbers, including the waiting rows, by name."""
        arrays = {
            "v": self.v,
            "total": self.total,
            "previous": self.previous,
            "numbers": flat(self.numbers).copy(),
            "seconds": np.array(self.seconds),
            "labels": self.labels,
        }
        if self.waiting is not None:
            names = ("X",) if len(self.waiting.arrays) == 1 else ("data", "indices", "indptr")
            arrays |= dict(zip(names, self.waiting.arrays, strict=True))
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays, settings: MiniBatchSettings) -> Self:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""
        names = ("v", "total", "previous")
        v, total, previous = (arrays.take(name, arrays.width) for name in names)
        numbers = arrays.record("numbers", NUMBERS)
        labels = arrays.take("labels", None, types=(np.bool_,))
        floats, whole = (np.float64, np.float32), (np.int32, np.int64)
        waiting = None
        if "X" in arrays.arrays:
            waiting = as_rows(arrays.take("X", len(labels), arrays.width, types=floats))
        elif "data" in arrays.arrays:
            parts = (
                arrays.take("data", None, types=floats),
                arrays.take("indices", None, types=whole),
                arrays.take("indptr", len(labels) + 1, types=whole),
            )
            waiting = Rows(parts, arrays.width).checked()
        seconds = arrays.real("seconds")
        return cls(settings, v, total, previous, numbers, seconds, waiting, labels)

    def check(self) -> None:
        """Raise a ValueError if the parts of the state are inconsistent."""
        if (
            not self.is_finite()
            or not np.isfinite(self.waiting.arrays[0] if self.waiting else 0).all()
        ):
            raise ValueError("its weights, estimates or waiting rows are not finite")
        check_tally(self.tally())
        batches = float(self.numbers["batches"])
        if not (0 <= batches <= self.steps and batches.is_integer()):
            raise ValueError(f"it has taken {batches} steps on {self.steps} points")
        if len(self.waiting or ()) != len(self.labels):
            raise ValueError("the numbers of its waiting rows and of their labels differ")
        if len(self.labels) >= max(self.settings.buffer_size, 1):
            raise ValueError("it has more waiting rows than its buffer holds")


@dataclass(eq=False, repr=False)
class OnePassMiniBatchParameters(StepParameters):
    """Parameters of 1PMB, shared by the classifier and the quantifier (see `OnePassMiniBatchClassifier`)."""

    loss: str | Measure = "kld"
    _: KW_ONLY
    buffer_size: int = 500
    n_passes: int = 25
    posteriors: str | None = None


class OnePassMiniBatchClassifier(
    OnePassMiniBatchParameters, PosteriorOnlineClassifier[MiniBatchSettings]
):
    """Linear classifier trained by 1PMB (Kar, Narasimhan, Jain, NIPS 2014), the online baseline in the paper.

    Points are collected in a buffer of size s. When it is full, the weights take a step against the subgradient of the
    structural SVM's bound of the loss on the buffer (see `SVMPerfClassifier`):

        w ← Π_R( w + η₀/√t · (1/s) Σ (y_i − ȳ_i) x_i ),

    where ȳ is the labelling of the most violated constraint and t counts buffers. Then the buffer is emptied. A buffer
    that holds one class only does not change the weights.

    Parameters
    ----------
    loss : str or Measure, default="kld"
        The loss to minimise, as in `SVMPerfClassifier`.
    buffer_size : int, default=500
        s, the number of points in a buffer. Points that do not fill a buffer wait for the next pass or chunk.
    eta0 : float or "auto", default="auto"
        Step size; step t uses η₀/√t. "auto" chooses it (see `quapy_nemsis.learners.tuning`).
    radius : float or "auto", default="auto"
        Radius of the ball onto which the weights (not the intercept) are projected. "auto" chooses it in `fit`; in a
        stream, "auto" means no limit (infinity).
    n_passes : int, default=25
        Number of passes of `fit` over the data. The default is the number in the paper's experiments.
    average : {"suffix", "all", "last"}, default="suffix"
        Which iterates the model averages: at least the last half ("suffix"), all of them, or only the last one.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    shuffle : bool, default=True
        Whether `fit` shuffles the rows before each pass.
    random_state : int, RandomState or None, default=None
        Seed for the random choices in `fit`, such as the order of the rows.
    record_every : int or None, default=None
        Add an entry to `history_` every `record_every` samples. None records nothing.
    verbose : int, default=0
        If not 0, `fit` prints the chosen step size and radius, and a line per pass.
    posteriors : {"training", "balanced"} or None, default=None
        If given, `fit` trains up to five more learners, each on four fifths of the rows, and calibrates posteriors on
        their scores for the other rows, as in `NEMSISClassifier`. `predict_proba` then returns posteriors at the
        training prevalences or at equal prevalences. With None, there is no `predict_proba`, and `fit` needs no extra
        time.

    Attributes
    ----------
    classes_, coef_, intercept_, n_features_in_, t_, eta0_, radius_, tuning_, history_
        See `NEMSISClassifier`; ``value`` is the loss (lower is better).

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = OnePassMiniBatchClassifier("kld", buffer_size=50, random_state=0).fit(scale(X), y)
    >>> bool(abs(learner.predict(scale(X)).mean() - y.mean()) < 0.05)
    True
    """

    state_type = MiniBatchState
    resume_parameters = "average and buffer_size"
    # Rows may wait a long time before the kernel reads them.
    notices_nan = False

    def settings(self, n_classes: int = 2) -> MiniBatchSettings:
        """Check the parameters and return them as settings."""
        check_integer("buffer_size", self.buffer_size)
        check_integer("n_passes", self.n_passes)
        check_posteriors(self.posteriors)
        return MiniBatchSettings(
            measure=get_loss(self.loss), buffer_size=int(self.buffer_size), **self.checked_steps()
        )
