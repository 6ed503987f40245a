"""What a learner carries from one point to the next, and how it walks over rows."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from quapy_nemsis._jit import THETA, duals_callback
from quapy_nemsis._kernels import nemsis as k
from quapy_nemsis.measures import NestedMeasure

AVERAGES: dict[str, int] = {"last": k.LAST, "all": k.ALL, "suffix": k.SUFFIX}


@dataclass(frozen=True)
class Settings:
    """A learner's checked parameters, as the kernel takes them."""

    measure: NestedMeasure
    reward: int
    counts: bool
    monotone: bool
    eta0: float
    radius: float
    reward_bound: float
    fit_intercept: bool
    average: int


@dataclass
class State:
    """Weights, sums for the averaged model, counts and estimates (see `quapy_nemsis._kernels.nemsis`)."""

    v: np.ndarray
    lag: np.ndarray
    before: np.ndarray
    scalars: np.ndarray
    #: Time spent inside the kernel.
    seconds: float = 0.0

    @classmethod
    def start(cls, n_features: int) -> State:
        """State before the first point: zero weights."""
        scalars = np.zeros(k.N_SCALARS)
        scalars[k.SCALE] = 1.0
        return cls(np.zeros(n_features), np.zeros(n_features), np.zeros(n_features), scalars)

    def copy(self) -> State:
        """Independent copy."""
        return State(
            self.v.copy(), self.lag.copy(), self.before.copy(), self.scalars.copy(), self.seconds
        )

    @property
    def t(self) -> int:
        """Number of points seen."""
        return int(self.scalars[k.STEPS])

    @property
    def p(self) -> float:
        """Share of positives among the points seen."""
        return float(self.scalars[k.POSITIVES] / max(self.t, 1))

    @property
    def rewards(self) -> tuple[float, float]:
        """Running estimates (P, N) of the mean reward per class."""
        positives = self.scalars[k.POSITIVES]
        return (
            float(self.scalars[k.REWARD_POS] / max(positives, 1.0)),
            float(self.scalars[k.REWARD_NEG] / max(self.t - positives, 1.0)),
        )

    def value(self, measure: NestedMeasure) -> float:
        """Measure at the running estimates."""
        return measure.value(*self.rewards, self.p, 0.5 / max(self.t, 1))

    def walk(
        self, rows: tuple, positive: np.ndarray, order: np.ndarray, settings: Settings
    ) -> bool:
        """Take the rows in the given order; False if the weights ceased to be finite on the way."""
        measure = settings.measure
        theta = measure.theta
        duals = np.zeros(THETA + len(theta))
        duals[THETA:] = theta
        callback = duals_callback(
            measure._gradient, None if measure.affine else measure._values, len(theta)
        )
        begin = time.perf_counter()
        taken = k.nemsis(
            rows,
            positive,
            order,
            callback.address,
            duals,
            measure.affine,
            settings.reward,
            settings.counts,
            settings.monotone,
            settings.eta0,
            settings.radius,
            settings.reward_bound,
            settings.fit_intercept,
            settings.average,
            self.v,
            self.lag,
            self.before,
            self.scalars,
        )
        self.seconds += time.perf_counter() - begin
        return taken == len(order) and self.is_finite()

    def is_finite(self) -> bool:
        """Whether every number of the state is finite."""
        return all(np.isfinite(part).all() for part in (self.v, self.lag, self.scalars))

    def model(self, average: int) -> tuple[np.ndarray, float]:
        """Weights and intercept, averaged as asked.

        The suffix average is over the current window, which began at the greatest power of two ≤ t, and the one
        before it.
        """
        s = self.scalars
        if average == k.LAST or self.t == 0:
            return s[k.SCALE] * self.v, float(s[k.INTERCEPT])
        weights = s[k.SCALE_SUM] * self.v - self.lag
        intercept = s[k.INTERCEPT_SUM]
        first = 1
        if average == k.SUFFIX:
            weights += self.before
            intercept += s[k.INTERCEPT_BEFORE]
            first = max((1 << (self.t.bit_length() - 1)) // 2, 1)
        count = self.t - first + 1
        return weights / count, float(intercept / count)
