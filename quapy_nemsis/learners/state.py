"""Learner states: the protocol that every state implements, and the functions that states share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from quapy_nemsis._jit import Record
from quapy_nemsis._kernels import nemsis as kernel
from quapy_nemsis._kernels.rows import Rows, as_rows
from quapy_nemsis.measures import ClassRates, Measure, Rates

if TYPE_CHECKING:
    from typing_extensions import Self

AVERAGES: dict[str, int] = {"last": kernel.LAST, "all": kernel.ALL, "suffix": kernel.SUFFIX}
#: Counts below this are exact even as float64.
MOST = 2**53
# Sums of rewards below this are rejected, because their squares would overflow a float.
_LEAST_REWARD = -1e100
# With fewer points than this, summed over all learners, threads cost more time than they save.
_WORTH_THREADS = 20_000


#: Weights of rows that have none.
UNWEIGHTED: np.ndarray = np.zeros(0)
#: Parts of rows that are not divided.
UNDIVIDED: np.ndarray = np.zeros(0, dtype=np.int8)
#: Weights and intercept: a vector and a number for two classes, a row and a number for each of more classes.
Model = tuple[np.ndarray, Any]


@dataclass(frozen=True)
class Data:
    """Checked rows with their labels (bool for two classes, positions of the classes for more) and weights, if any."""

    X: Any
    labels: np.ndarray
    n_classes: int
    weights: np.ndarray = field(default_factory=lambda: UNWEIGHTED)

    @cached_property
    def rows(self) -> Rows:
        """The rows as kernels take them, checked once."""
        return as_rows(self.X)

    def rarest(self) -> float:
        """Share of the rarest class."""
        if self.n_classes == 2:
            share = self.labels.mean()
            return float(min(share, 1.0 - share))
        counts = np.bincount(self.labels, minlength=self.n_classes)
        return float(counts[counts > 0].min() / len(self.labels))


class Settings(Protocol):
    """A learner's checked parameters, in the form its state uses. NaN marks a value that is still to be chosen."""

    @property
    def measure(self) -> Measure:
        """The measure that is optimised."""

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
    """Settings shared by all online learners."""

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
T = TypeVar("T")
R = TypeVar("R")


class State(Protocol[S]):
    """Everything that a learner carries from one point to the next.

    Learners, the stream tuner, merging, saving and Dask use states only through this protocol.
    """

    @property
    def settings(self) -> S:
        """The learner's checked parameters, with every value chosen."""

    @classmethod
    def start(cls, n_features: int, n_classes: int, settings: S) -> Self:
        """State before the first point."""

    def adopt(self, settings: S) -> None:
        """Continue with other settings; values that these leave open (NaN) stay as they are."""

    def learn(
        self, rows: Rows, labels: np.ndarray, order: np.ndarray, weights: np.ndarray = UNWEIGHTED
    ) -> bool:
        """Learn the rows in the given order; return False if the weights became infinite or NaN.

        Labels are bool for two classes, and the positions of the classes (int32) for more. There is one weight for
        each row, or none.
        """

    @classmethod
    def learn_together(
        cls,
        states: Sequence[Self],
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        weights: np.ndarray = UNWEIGHTED,
    ) -> list[bool]:
        """Let learners that have seen the same points learn the same rows; return for each whether it stayed finite.

        Each learns exactly what it would learn alone.
        """

    @classmethod
    def learn_parts(
        cls,
        states: Sequence[Self],
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        parts: np.ndarray,
        weights: np.ndarray = UNWEIGHTED,
    ) -> list[bool]:
        """Let learner k learn the rows that are not in part k; return for each whether it stayed finite.

        Each row has a part (int8). Each learner learns exactly what it would learn alone from its rows in this order.
        """

    def model(self) -> Model:
        """Weights and intercept, averaged according to the settings."""

    def rates(self) -> Rates | ClassRates:
        """Running estimates of the mean rewards and, for more than two classes, of the counted prevalences."""

    def tally(self) -> np.ndarray:
        """Points learned, sums of their rewards and predicted points, in three rows, for each class."""

    def place(self) -> tuple[int, ...]:
        """Position in the stream; learners at the same position can learn together."""

    @property
    def t(self) -> int:
        """Number of points seen."""

    @property
    def steps(self) -> int:
        """Number of points learned."""

    @property
    def seconds(self) -> float:
        """Time spent inside kernels."""

    def objective(self) -> Measure:
        """The measure that the steps increase."""

    def details(self) -> dict[str, Any]:
        """What a learner reports about its state, beyond weights and estimates."""

    def settled(self) -> State[S]:
        """The state of a single learner; while candidates are being compared, that of the best one."""

    def is_settled(self) -> bool:
        """Whether a single learner is left, and no candidates are being compared."""

    @classmethod
    def merge(cls, states: Sequence[Self], base: Self | None) -> Self:
        """Merge the states of several learners that started from the same base, or from scratch."""

    def copy(self) -> Self:
        """Independent copy."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All arrays and numbers, by name."""

    @classmethod
    def from_arrays(cls, arrays: Arrays, settings: S) -> Self:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""

    def check(self) -> None:
        """Raise a ValueError if the parts of the state are inconsistent."""


class SingleState(Generic[S]):
    """What the states of single learners share; the stream tuner has several of them."""

    settings: S

    def adopt(self, settings: S) -> None:
        """Continue with other settings; values that these leave open (NaN) stay as they are."""
        self.settings = settings.completed(self.settings.eta0, self.settings.radius)

    @property
    def steps(self) -> int:
        """Number of points learned from."""
        raise TypeError(f"{type(self).__name__} is abstract")

    @property
    def t(self) -> int:
        """Number of points seen."""
        return self.steps

    def place(self) -> tuple[int, ...]:
        """Position in the stream; learners at the same position can learn together."""
        return self.t, self.steps

    def tally(self) -> np.ndarray:
        """Points learned, sums of their rewards and predicted points, in three rows, for each class."""
        raise TypeError(f"{type(self).__name__} is abstract")

    def rates(self) -> Rates | ClassRates:
        """Running estimates of the mean rewards and, for more than two classes, of the counted prevalences."""
        return rates_of(self.tally())

    @classmethod
    def learn_together(
        cls,
        states: Sequence[Self],
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        weights: np.ndarray = UNWEIGHTED,
    ) -> list[bool]:
        """Let learners that have seen the same points learn the same rows; for each, whether it stayed finite."""
        raise TypeError(f"{cls.__name__} is abstract")

    @classmethod
    def learn_parts(
        cls,
        states: Sequence[Self],
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        parts: np.ndarray,
        weights: np.ndarray = UNWEIGHTED,
    ) -> list[bool]:
        """Let learner k learn the rows that are not in part k; for each, whether it stayed finite."""

        def learn(tasks: Sequence[tuple[int, Self]]) -> list[bool]:
            own = (order[parts[order] != part] for part, _ in tasks)
            return [
                state.learn(rows, labels, some, weights)
                for (_, state), some in zip(tasks, own, strict=True)
            ]

        return in_threads(learn, list(enumerate(states)), len(order))

    def learn(
        self, rows: Rows, labels: np.ndarray, order: np.ndarray, weights: np.ndarray = UNWEIGHTED
    ) -> bool:
        """Learn the rows in the given order; return False if the weights became infinite or NaN."""
        return self.learn_together([self], rows, labels, order, weights)[0]

    def details(self) -> dict[str, Any]:
        """Empty, as a rule: a state has nothing to show beyond weights and estimates."""
        return {}

    def settled(self) -> Self:
        """The state itself, as it has no candidates to choose from."""
        return self

    def is_settled(self) -> bool:
        """True, as the state has no candidates to choose from."""
        return True


class Arrays:
    """Arrays read from a file. Each is taken out by name, and refused if its type or shape is wrong.

    Compiled code does not check its array bounds, so only checked arrays may reach it.

    Parameters
    ----------
    arrays : dict
        Arrays by name.
    width : int
        Number of features.
    n_classes : int
        Number of classes.
    """

    def __init__(self, arrays: dict[str, np.ndarray], width: int, n_classes: int):
        self.arrays, self.width, self.n_classes = dict(arrays), width, n_classes

    def take(self, name: str, *shape: int | None, types: tuple[type, ...] = (np.float64,)) -> Any:
        """Take out an array of the given shape, in which None allows any length."""
        if name not in self.arrays:
            raise ValueError(f"the array {name!r} is missing")
        array = self.arrays.pop(name)
        fits = array.ndim == len(shape) and all(
            wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype.type not in types or not array.dtype.isnative:
            raise ValueError(f"{name!r} has the wrong shape {array.shape} or type {array.dtype}")
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            raise ValueError(f"{name!r} contains bytes that are neither True nor False")
        return np.asarray(array, order="C")

    def any(self, name: str, *shape: int | None) -> Any:
        """Take out an array of any type except Python objects."""
        found = self.arrays.get(name, np.zeros(0))
        if found.dtype == object:
            raise ValueError(f"{name!r} contains Python objects")
        return self.take(name, *shape, types=(found.dtype.type,))

    def columns(
        self, names: tuple[str, ...], per_class: tuple[str, ...] = ()
    ) -> dict[str, list[Any]]:
        """Take out columns of equal length, as a list for each name: of numbers or, per class, of rows of numbers."""
        numbers, columns = (np.float64, np.int64, np.int32), {}
        for name in names:
            # A column without entries does not tell how many numbers they would have.
            wide = name in per_class and self.arrays.get(name, np.zeros(0)).size
            columns[name] = self.take(name, None, *[self.n_classes] * bool(wide), types=numbers)
        self.finish()
        if len({len(column) for column in columns.values()}) > 1:
            raise ValueError(f"{', '.join(names)} differ in length")
        return {name: column.tolist() for name, column in columns.items()}

    def record(self, name: str, record: Record) -> np.ndarray:
        """Take out a record of named numbers."""
        dtype = record.dtype_for(self.n_classes)
        return self.take(name, dtype.itemsize // 8).view(dtype).reshape(())

    def real(self, name: str, finite: bool = True) -> float:
        """Take out a single number."""
        value = float(self.take(name))
        if finite and not math.isfinite(value):
            raise ValueError(f"{name!r} is {value}, not a finite number")
        return value

    def count(self, name: str) -> int:
        """Take out an integer that is not negative and exact as a float."""
        value = int(self.take(name, types=(np.int64,)))
        if not 0 <= value < MOST:
            raise ValueError(f"{name!r} is {value}, which is negative or too large")
        return value

    def part(self, prefix: str) -> Arrays:
        """Take out the arrays whose names start with the prefix and a dot, and drop both from the names."""
        begin = f"{prefix}."
        names = [name for name in self.arrays if name.startswith(begin)]
        inner = {name.removeprefix(begin): self.arrays.pop(name) for name in names}
        return Arrays(inner, self.width, self.n_classes)

    def finish(self) -> None:
        """Raise a ValueError if arrays are left that were not taken out."""
        if self.arrays:
            raise ValueError(f"there is an unexpected array {min(self.arrays)!r}")


class Saved(NamedTuple):
    """What a file holds of an object: plain parameters, the objects that it consists of, and arrays, each by name."""

    parameters: dict[str, Any]
    parts: dict[str, Any]
    arrays: dict[str, np.ndarray]


def check_parameters(parameters: dict[str, Any], expected: Iterable[str], name: str) -> None:
    """Raise a ValueError if the parameters of a file are not those of an object."""
    if parameters.keys() != set(expected):
        raise ValueError(f"the parameters of {name} are not {', '.join(parameters)}")


def prefixed(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add a prefix to the names of arrays, so that `Arrays.part` finds them."""
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def columns_to_arrays(columns: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    """Convert lists of numbers to arrays."""
    return {name: np.array(column) for name, column in columns.items()}


def flat(numbers: np.ndarray) -> np.ndarray:
    """View of the numbers of a record, in the order of its fields."""
    return numbers.reshape(1).view(np.float64)


def laid_out(weights: np.ndarray, rows: Rows) -> np.ndarray:
    """Weights of K classes, in the memory order that kernels need for these rows; copied only if it differs."""
    return np.asarray(weights, order="F" if len(rows.arrays) == 3 else "C")


def in_memory(weights: np.ndarray, rows: Rows) -> np.ndarray:
    """View of weights that are `laid_out`, with its axes in the order of memory."""
    return weights.T if len(rows.arrays) == 3 else weights


def weighted_mean(shares: np.ndarray, arrays: Sequence[Any] | np.ndarray) -> Any:
    """Mean of arrays of any equal shape, or of numbers, weighted by shares that sum to 1."""
    stacked = np.array(arrays)
    return (shares @ stacked.reshape(len(shares), -1)).reshape(stacked.shape[1:])[()]


@contextmanager
def together(parts: Sequence[tuple[np.ndarray, ...]]) -> Iterator[list[np.ndarray]]:
    """Stack the learners' arrays into tables with one row per learner; at the end, copy the rows back."""
    if len(parts) == 1:
        yield [array[np.newaxis] for array in parts[0]]
        return
    tables = [np.stack(arrays) for arrays in zip(*parts, strict=True)]
    yield tables
    for row, arrays in enumerate(parts):
        for array, table in zip(arrays, tables, strict=True):
            array[...] = table[row]


def are_worth_fours(n_learners: int, rows: Rows, n_points: int) -> bool:
    """Whether learners should lie in fours: several learners of CSR rows that make more steps than it takes copies."""
    if n_learners == 1 or len(rows.arrays) == 1:
        return False
    nonzeros = len(rows.arrays[0]) / max(len(rows), 1)
    return nonzeros * n_points > rows.width


def fours(n_learners: int, width: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Zeros for learners that lie in fours (see `quapy_nemsis._kernels.rows`), and a view for each of them.

    The two rows of a view are the weights and the corrections of a learner.
    """
    shape = -(-n_learners // 4), width, 8
    # A four of a feature must not lie in two cache lines of 64 bytes.
    space = np.zeros(math.prod(shape) + 7)
    start = -(space.ctypes.data // 8) % 8
    weights = space[start : start + math.prod(shape)].reshape(shape)
    return weights, [weights[k // 4, :, k % 4 :: 4].T for k in range(n_learners)]


@contextmanager
def in_fours(parts: Sequence[tuple[np.ndarray, ...]]) -> Iterator[list[np.ndarray]]:
    """Do as `together`, but let weights and corrections lie in fours."""
    weights, lanes = fours(len(parts), len(parts[0][0]))
    with together([arrays[2:] for arrays in parts]) as tables:
        for lane, (v, correction, *_) in zip(lanes, parts, strict=True):
            lane[...] = v, correction
        yield [weights, weights, *tables]
        for lane, (v, correction, *_) in zip(lanes, parts, strict=True):
            v[...], correction[...] = lane


def in_threads(
    work: Callable[[Sequence[T]], Iterable[R]], tasks: Sequence[T], n_points: int, least: int = 1
) -> list[R]:
    """Divide the tasks, of so many points each, among threads if there is enough work; the results in order.

    There are no more threads than are needed for ``least`` tasks each.
    """
    n_threads = min(os.cpu_count() or 1, -(-len(tasks) // least))
    if n_threads <= 1 or len(tasks) * n_points < _WORTH_THREADS:
        return list(work(tasks))
    edges = np.linspace(0, len(tasks), n_threads + 1).round().astype(int)
    groups = [tasks[a:b] for a, b in pairwise(edges)]
    with ThreadPoolExecutor(n_threads) as pool:
        return [result for part in pool.map(work, groups) for result in part]


def two_class_tally(
    total: float, positives: float, reward_pos: float, reward_neg: float
) -> np.ndarray:
    """Tally of two classes: a point of a class that is not counted for it is counted for the other."""
    members = np.array([total - positives, positives])
    rewards = np.array([reward_neg, reward_pos])
    return np.array([members, rewards, rewards + (members - rewards)[::-1]], dtype=float)


def rates_of(tally: np.ndarray) -> Rates | ClassRates:
    """Rates from a tally of points, rewards and predicted points of each class."""
    if tally.shape[1] > 2:
        return ClassRates.of(*tally)
    (negatives, positives), (reward_neg, reward_pos), _ = tally.tolist()
    return Rates.of(reward_pos, positives, reward_neg, negatives)


def check_tally(tally: np.ndarray) -> None:
    """Raise a ValueError for impossible class counts, or for sums of rewards (at most 1 each) that do not fit them.

    Each point is predicted once, so that the predicted points add up to the points.
    """
    members, rewards, predicted = tally
    for count, sum_of_rewards in zip(members.tolist(), rewards.tolist(), strict=True):
        if not 0 <= count < MOST:
            raise ValueError(f"its number of points of a class is {count}")
        if not _LEAST_REWARD < sum_of_rewards <= count * (1.0 + 1e-9):
            raise ValueError(
                f"its {count} points of a class cannot have rewards of {sum_of_rewards}"
            )
    total = members.sum()
    if not abs(predicted.sum() - total) <= 1e-6 * max(total, np.abs(rewards).sum(), 1.0):
        raise ValueError(f"its predicted points do not add up to {total}")


def averaged(steps: int, average: int) -> tuple[int, int]:
    """Numbers of iterates in the average: those since the current window began, and those in the previous window.

    The current window of a suffix average began at the largest power of two ≤ t, the previous one at half of that.
    """
    if average != kernel.SUFFIX or steps == 0:
        return steps, 0
    began = 1 << (steps.bit_length() - 1)
    return steps - began + 1, began // 2
