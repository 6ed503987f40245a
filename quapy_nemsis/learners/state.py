"""What a learner carries from one point to the next: the protocol that every state fulfils, and what states share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from quapy_nemsis._jit import Record
from quapy_nemsis._kernels import nemsis as kernel
from quapy_nemsis._kernels.rows import Rows
from quapy_nemsis.measures import Measure, Rates

if TYPE_CHECKING:
    from typing_extensions import Self

AVERAGES: dict[str, int] = {"last": kernel.LAST, "all": kernel.ALL, "suffix": kernel.SUFFIX}
#: Counts are exact below this, also as float64.
MOST = 2**53
# Sums of rewards below this are not believed: squares of them would be too large for a float.
_LEAST_REWARD = -1e100
# Points learned by all learners together below which threads cost more than they gain.
_WORTH_THREADS = 20_000


class Settings(Protocol):
    """A learner's checked parameters, as its state takes them. NaN stands for what is still to be chosen."""

    @property
    def measure(self) -> Measure:
        """What is optimised."""

    @property
    def eta0(self) -> float:
        """Step size."""

    @property
    def radius(self) -> float:
        """Radius of the ball onto which the weights are projected."""

    @property
    def resume_signature(self) -> tuple[int, ...]:
        """Values that must not change between calls, or learning cannot resume from the state."""

    def completed(self, eta0: float, radius: float) -> Self:
        """Settings in which these values replace those still to be chosen (NaN)."""


@dataclass(frozen=True)
class StepSettings:
    """What the settings of all learners have that take steps."""

    eta0: float
    radius: float
    fit_intercept: bool
    average: int

    def completed(self, eta0: float, radius: float) -> Self:
        """Settings in which these values replace those still to be chosen (NaN)."""
        return replace(
            self,
            eta0=eta0 if math.isnan(self.eta0) else self.eta0,
            radius=radius if math.isnan(self.radius) else self.radius,
        )


S = TypeVar("S", bound=Settings)


class State(Protocol[S]):
    """What a learner carries from one point to the next.

    A learner, the stream tuner, merging, saving and Dask ask nothing else of a state.
    """

    @property
    def settings(self) -> S:
        """The learner's checked parameters, complete."""

    @classmethod
    def start(cls, n_features: int, settings: S) -> Self:
        """State before the first point."""

    def adopt(self, settings: S) -> None:
        """Continue with other settings; values that these leave open (NaN) stay as they are."""

    def learn(self, rows: Rows, positive: np.ndarray, order: np.ndarray) -> bool:
        """Learn the rows in the given order; return False if the weights became infinite or NaN."""

    @classmethod
    def learn_together(
        cls, states: Sequence[Self], rows: Rows, positive: np.ndarray, order: np.ndarray
    ) -> list[bool]:
        """Let learners that have seen the same points learn the same rows; for each, whether it stayed finite.

        What each learns is what it would learn alone.
        """

    def model(self) -> tuple[np.ndarray, float]:
        """Weights and intercept, averaged as the settings say."""

    def rates(self) -> Rates:
        """Running estimates of the mean rewards."""

    def counted(self) -> tuple[float, float, float, float]:
        """Numbers of positives and negatives learned from, and the sums of their rewards."""

    def place(self) -> tuple[int, ...]:
        """Where in the stream it is: equal for learners that can learn together."""

    @property
    def t(self) -> int:
        """Number of points seen."""

    @property
    def steps(self) -> int:
        """Number of points learned from."""

    @property
    def seconds(self) -> float:
        """Time spent inside kernels."""

    def objective(self) -> Measure:
        """The measure that the steps increase."""

    def details(self) -> dict[str, Any]:
        """What a learner shows of its state beyond weights and estimates."""

    def settled(self) -> State[S]:
        """The state of one learner that is in here: the best, where a choice is still being made."""

    def is_settled(self) -> bool:
        """Whether no choice is being made any more."""

    @classmethod
    def merge(cls, states: Sequence[Self], base: Self | None) -> Self:
        """Merge the states of several learners that started from the same base, or from scratch."""

    def copy(self) -> Self:
        """Independent copy."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All numbers, by name."""

    @classmethod
    def from_arrays(cls, arrays: Arrays, settings: S) -> Self:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""

    def check(self) -> None:
        """Raise a ValueError if the parts of the state are inconsistent."""


class Arrays:
    """Arrays that came from a file, taken out by name; what has a wrong type or shape is refused.

    Compiled code does not look where it reads and writes, so nothing else may reach it.

    Parameters
    ----------
    arrays : dict
        Arrays by name.
    width : int
        Number of features.
    """

    def __init__(self, arrays: dict[str, np.ndarray], width: int):
        self.arrays, self.width = dict(arrays), width

    def take(self, name: str, *shape: int | None, types: tuple[type, ...] = (np.float64,)) -> Any:
        """An array of the given shape, of which None leaves a length open."""
        if name not in self.arrays:
            raise ValueError(f"there is no array {name!r}")
        array = self.arrays.pop(name)
        fits = array.ndim == len(shape) and all(
            wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype.type not in types or not array.dtype.isnative:
            raise ValueError(f"{name!r} has shape {array.shape} and type {array.dtype}")
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            raise ValueError(f"{name!r} holds bytes that are neither True nor False")
        return np.asarray(array, order="C")

    def any(self, name: str, *shape: int | None) -> Any:
        """An array of any type but Python objects."""
        found = self.arrays.get(name, np.zeros(0))
        if found.dtype == object:
            raise ValueError(f"{name!r} holds Python objects")
        return self.take(name, *shape, types=(found.dtype.type,))

    def columns(self, names: tuple[str, ...]) -> dict[str, list[Any]]:
        """Lists of numbers of equal length, one for each name."""
        numbers = (np.float64, np.int64, np.int32)
        columns = {name: self.take(name, None, types=numbers) for name in names}
        self.finish()
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError(f"{', '.join(names)} are not of equal length")
        return {name: column.tolist() for name, column in columns.items()}

    def record(self, name: str, record: Record) -> np.ndarray:
        """Numbers under names."""
        found = self.take(name, len(record.dtype.names or ()))
        return found.view(record.dtype).reshape(())

    def real(self, name: str, finite: bool = True) -> float:
        """A number."""
        value = float(self.take(name))
        if finite and not math.isfinite(value):
            raise ValueError(f"{name!r} is {value}")
        return value

    def count(self, name: str) -> int:
        """An integer that is not negative, and exact as a float."""
        value = int(self.take(name, types=(np.int64,)))
        if not 0 <= value < MOST:
            raise ValueError(f"{name!r} is {value}")
        return value

    def part(self, prefix: str) -> Arrays:
        """The arrays whose names begin with a word and a point, without these; they are taken out."""
        begin = f"{prefix}."
        names = [name for name in self.arrays if name.startswith(begin)]
        inner = {name.removeprefix(begin): self.arrays.pop(name) for name in names}
        return Arrays(inner, self.width)

    def finish(self) -> None:
        """Refuse arrays that nobody took."""
        if self.arrays:
            raise ValueError(f"nothing has an array {min(self.arrays)!r}")


def prefixed(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays under names that `Arrays.part` finds."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def columns_to_arrays(columns: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    """Lists of numbers as arrays."""
    return {name: np.array(column) for name, column in columns.items()}


def from_record(numbers: np.ndarray) -> np.ndarray:
    """A record as an array of its numbers, in their order."""
    return numbers.reshape(1).view(np.float64).copy()


@contextmanager
def together(parts: Sequence[tuple[np.ndarray, ...]]) -> Iterator[list[np.ndarray]]:
    """Tables with one row per learner; what is written to them goes back to the learners' own arrays."""
    if len(parts) == 1:
        yield [array[np.newaxis] for array in parts[0]]
        return
    tables = [np.stack(arrays) for arrays in zip(*parts, strict=True)]
    yield tables
    for row, arrays in enumerate(parts):
        for array, table in zip(arrays, tables, strict=True):
            array[...] = table[row]


def in_threads(work: Callable[[slice], np.ndarray], n_learners: int, n_points: int) -> np.ndarray:
    """Divide learners among threads, if there is enough to do; their results joined."""
    n_threads = min(os.cpu_count() or 1, n_learners)
    if n_threads == 1 or n_learners * n_points < _WORTH_THREADS:
        return work(slice(0, n_learners))
    edges = np.linspace(0, n_learners, n_threads + 1).round().astype(int)
    groups = [slice(a, b) for a, b in pairwise(edges)]
    with ThreadPoolExecutor(n_threads) as pool:
        return np.concatenate(list(pool.map(work, groups)))


def counted(numbers: np.ndarray) -> tuple[float, float, float, float]:
    """Numbers of positives and negatives in a record, and the sums of their rewards."""
    positives = float(numbers["positives"])
    negatives = float(numbers["steps"]) - positives
    return positives, negatives, float(numbers["reward_pos"]), float(numbers["reward_neg"])


def check_counted(positives: float, negatives: float, reward_pos: float, reward_neg: float) -> None:
    """Refuse numbers of points that are none, and sums of rewards, at most 1 each, that they cannot have."""
    for count, rewards in ((positives, reward_pos), (negatives, reward_neg)):
        if not (0 <= count < MOST and float(count).is_integer()):
            raise ValueError(f"it has counted {count} points of a class")
        if not _LEAST_REWARD < rewards <= count * (1.0 + 1e-9):
            raise ValueError(f"{count} points of a class have rewards of {rewards}")


def averaged(steps: int, average: int) -> tuple[int, int]:
    """Number of iterates that are averaged: since the average began, and in the finished window before.

    The suffix average began at the greatest power of two ≤ t, and its previous window at half of that.
    """
    if average != kernel.SUFFIX or steps == 0:
        return steps, 0
    began = 1 << (steps.bit_length() - 1)
    return steps - began + 1, began // 2
