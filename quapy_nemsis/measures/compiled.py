"""The functions that a measure gives to kernels, their compilation, and the memory between a measure and a kernel.

`quapy_nemsis.measures.contract` says what the functions are. A kernel writes its question into an array, calls the
measure, and reads the answer from the same array. For two classes the array has `HEAD` numbers, then blocks with two
numbers each, then the measure's parameters. Class 0 is negative, class 1 is positive, and R = (N, P); the blocks of
counted prevalences are unused. For K classes the array is a table. Its first row has the `HEAD` numbers and the
measure's parameters, and a row follows for each block (see `class_asks`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from quapy_nemsis._jit import REORDERED, callback, carray, jitable

# Numbers that do not depend on a class: the question has x, y, ε and the number of classes, the answer ζ₁ and ζ₂ and,
# for K classes, ∂Ψ/∂x and ∂Ψ/∂y.
(X, Y, EPS, CLASSES, ZETA1, ZETA2, BY_X, BY_Y, HEAD) = range(9)
# Blocks with one number for each class. The question has the shares p, the recalls R and the counted prevalences q. The
# answer has the gradients of ζ₁ and ζ₂ by R and by q and, for two classes, the class gradients of the measure.
(
    SHARES,
    RECALLS,
    COUNTS,
    ZETA1_BY_RECALL,
    ZETA1_BY_COUNT,
    ZETA2_BY_RECALL,
    ZETA2_BY_COUNT,
    BY_RECALL,
    N_BLOCKS,
) = range(9)
#: Rows of the table for K classes: one for the numbers without a class, and all blocks but the last.
N_ROWS = 1 + BY_RECALL


def place(block: int, label: int = 0) -> int:
    """Index in the array for two classes of the number that a block holds for a class."""
    return HEAD + 2 * block + label


NEGATIVE, POSITIVE = 0, 1
SHARE_POS = place(SHARES, POSITIVE)
RECALL_POS, RECALL_NEG = place(RECALLS, POSITIVE), place(RECALLS, NEGATIVE)
CLASS_GRADIENT_POS, CLASS_GRADIENT_NEG = place(BY_RECALL, POSITIVE), place(BY_RECALL, NEGATIVE)
ZETA1_POS, ZETA1_NEG = place(ZETA1_BY_RECALL, POSITIVE), place(ZETA1_BY_RECALL, NEGATIVE)
ZETA2_POS, ZETA2_NEG = place(ZETA2_BY_RECALL, POSITIVE), place(ZETA2_BY_RECALL, NEGATIVE)
THETA = place(N_BLOCKS)

# Layout for a loss: the question has the rates, the quantification error, the share and ε, the answer is one number.
(LOSS_RECALL_POS, LOSS_RECALL_NEG, LOSS_D, LOSS_SHARE_POS, LOSS_EPS, LOSS, LOSS_THETA) = range(7)

# Layout for a step in the dual variables, which are overwritten: the question has an estimate of the rates, the step
# size, the share and ε besides.
(
    DUAL_POS,
    DUAL_NEG,
    DUAL_RATE_POS,
    DUAL_RATE_NEG,
    DUAL_STEP,
    DUAL_SHARE_POS,
    DUAL_EPS,
    DUAL_THETA,
) = range(8)

Values = Callable[[float, float, float, float, np.ndarray], tuple[float, float]]
Outer = Callable[[float, float, float, float, np.ndarray], float]
Gradient = Callable[
    [float, float, float, float, float, float, np.ndarray],
    tuple[float, float, float, float, float, float],
]
ClassValues = Callable[[np.ndarray, np.ndarray, np.ndarray, float, np.ndarray], tuple[float, float]]
ClassOuter = Callable[[float, float, np.ndarray, float, np.ndarray], float]
ClassGradient = Callable[..., tuple[float, float]]
LossFunction = Callable[[float, float, float, float, float, np.ndarray], float]


class Functions(NamedTuple):
    """The three functions of a measure of two classes (see `quapy_nemsis.measures.contract`)."""

    values: Values
    outer: Outer
    gradient: Gradient


class ClassFunctions(NamedTuple):
    """The three functions of a measure of K classes (see `quapy_nemsis.measures.contract`)."""

    values: ClassValues
    outer: ClassOuter
    gradient: ClassGradient


@lru_cache(maxsize=256)
def measure_callback(values: Values, gradient: Gradient, affine: bool, n_theta: int) -> Any:
    """Compile the functions of a measure into one function for kernels (see the docstring of this module).

    If Ψ is affine, kernels do not need ζ₁ and ζ₂, and ``values`` is not called.
    """
    length = THETA + n_theta
    values, gradient = jitable(values), jitable(gradient)

    def answer(pointer):
        a = carray(pointer, (length,))
        P, N, p, eps, theta = a[RECALL_POS], a[RECALL_NEG], a[SHARE_POS], a[EPS], a[THETA:]
        a1, a2, b1, b2, g1, g2 = gradient(P, N, a[X], a[Y], p, eps, theta)
        a[CLASS_GRADIENT_POS] = g1 * a1 + g2 * b1
        a[CLASS_GRADIENT_NEG] = g1 * a2 + g2 * b2
        if not affine:
            a[ZETA1], a[ZETA2] = values(P, N, p, eps, theta)
            a[ZETA1_POS], a[ZETA1_NEG] = a1, a2
            a[ZETA2_POS], a[ZETA2_NEG] = b1, b2

    return callback(answer)


def class_asks(n_classes: int, thetas: np.ndarray) -> np.ndarray:
    """Tables through which kernels of K classes exchange data with a measure, one for each row of parameters."""
    width = max(n_classes, HEAD + thetas.shape[1])
    asks = np.zeros((len(thetas), N_ROWS, width))
    asks[:, 0, HEAD : HEAD + thetas.shape[1]] = thetas
    asks[:, 0, CLASSES] = n_classes
    return asks


@lru_cache(maxsize=256)
def class_callback(values: ClassValues, gradient: ClassGradient, affine: bool, n_theta: int) -> Any:
    """Compile the functions of a measure of K classes into one function for kernels; K is a number in the array.

    If Ψ is not affine, it answers ζ₁ and ζ₂ linearised: ζ − ∇ζ·(R, q + p/(K − 1)), to which a kernel adds ∇ζ·(what a
    point says of R and q).
    """
    values, gradient = jitable(values), jitable(gradient)

    def answer(pointer):
        n = int(carray(pointer, (HEAD,))[CLASSES])
        table = carray(pointer, (N_ROWS, max(n, HEAD + n_theta)))
        a, theta = table[0], table[0, HEAD : HEAD + n_theta]
        p, R, q = table[1 + SHARES, :n], table[1 + RECALLS, :n], table[1 + COUNTS, :n]
        by_R1, by_q1 = table[1 + ZETA1_BY_RECALL, :n], table[1 + ZETA1_BY_COUNT, :n]
        by_R2, by_q2 = table[1 + ZETA2_BY_RECALL, :n], table[1 + ZETA2_BY_COUNT, :n]
        eps = a[EPS]
        a[BY_X], a[BY_Y] = gradient(R, q, a[X], a[Y], p, eps, theta, by_R1, by_q1, by_R2, by_q2)
        if not affine:
            x, y = values(R, q, p, eps, theta)
            over = 1.0 / (n - 1)
            for j in range(n):
                count = q[j] + over * p[j]
                x -= by_R1[j] * R[j] + by_q1[j] * count
                y -= by_R2[j] * R[j] + by_q2[j] * count
            a[ZETA1], a[ZETA2] = x, y

    return callback(answer, REORDERED)


@lru_cache(maxsize=256)
def loss_callback(function: LossFunction, n_theta: int) -> Any:
    """Compile the function ``f(P, N, d, p, eps, theta)`` of a loss into one for kernels."""
    length = LOSS_THETA + n_theta
    function = jitable(function)

    def answer(pointer):
        a = carray(pointer, (length,))
        a[LOSS] = function(
            a[LOSS_RECALL_POS],
            a[LOSS_RECALL_NEG],
            a[LOSS_D],
            a[LOSS_SHARE_POS],
            a[LOSS_EPS],
            a[LOSS_THETA:],
        )

    return callback(answer)


@lru_cache(maxsize=256)
def dual_callback(descend: Callable[..., tuple[float, float]], n_theta: int) -> Any:
    """Compile the function of a step in the dual variables (see `quapy_nemsis.measures.duals`) into one for kernels."""
    length = DUAL_THETA + n_theta
    descend = jitable(descend)

    def answer(pointer):
        a = carray(pointer, (length,))
        a[DUAL_POS], a[DUAL_NEG] = descend(
            a[DUAL_POS],
            a[DUAL_NEG],
            a[DUAL_RATE_POS],
            a[DUAL_RATE_NEG],
            a[DUAL_STEP],
            a[DUAL_SHARE_POS],
            a[DUAL_EPS],
            a[DUAL_THETA:],
        )

    return callback(answer)


def ratio(x, y, p, eps, theta):
    """The value of a pseudo-concave measure, P_class/P_quant, from ζ₁ and ζ₂."""
    return x / y


@lru_cache(maxsize=256)
def value_callback(values: Any, outer: Any, two_classes: bool, n_theta: int) -> Any:
    """Compile a function that answers the value of a measure in place of ζ₁, from a table for K classes.

    Parameters
    ----------
    values, outer : callable
        Functions of a measure of K classes or, if ``two_classes``, of P and N.
    two_classes : bool
        Which of the two.
    n_theta : int
        Number of parameters.
    """
    values, outer = jitable(values), jitable(outer)

    def answer_classes(pointer):
        n = int(carray(pointer, (HEAD,))[CLASSES])
        table = carray(pointer, (N_ROWS, max(n, HEAD + n_theta)))
        a, theta = table[0], table[0, HEAD : HEAD + n_theta]
        p, R, q = table[1 + SHARES, :n], table[1 + RECALLS, :n], table[1 + COUNTS, :n]
        x, y = values(R, q, p, a[EPS], theta)
        a[ZETA1] = outer(x, y, p, a[EPS], theta)

    def answer_two(pointer):
        table = carray(pointer, (N_ROWS, HEAD + n_theta))
        a, theta = table[0], table[0, HEAD : HEAD + n_theta]
        p, R = table[1 + SHARES], table[1 + RECALLS]
        x, y = values(R[1], R[0], p[1], a[EPS], theta)
        a[ZETA1] = outer(x, y, p[1], a[EPS], theta)

    return callback(answer_two if two_classes else answer_classes)


def two_class_form(form: ClassFunctions) -> Functions:
    """The functions of P and N of a measure that is given by functions of R, q and p; slower than handwritten ones."""
    class_values, class_outer, class_gradient = (jitable(function) for function in form)

    def values(P, N, p, eps, theta):
        estimate = p * P + (1.0 - p) * (1.0 - N)
        R, q = np.array([N, P]), np.array([1.0 - estimate, estimate])
        return class_values(R, q, np.array([1.0 - p, p]), eps, theta)

    def outer(x, y, p, eps, theta):
        return class_outer(x, y, np.array([1.0 - p, p]), eps, theta)

    def gradient(P, N, x, y, p, eps, theta):
        estimate = p * P + (1.0 - p) * (1.0 - N)
        R, q = np.array([N, P]), np.array([1.0 - estimate, estimate])
        r1, q1, r2, q2 = np.zeros(2), np.zeros(2), np.zeros(2), np.zeros(2)
        g1, g2 = class_gradient(R, q, x, y, np.array([1.0 - p, p]), eps, theta, r1, q1, r2, q2)
        # A positive that is no longer missed moves mass from class 0 to class 1.
        slope1, slope2 = q1[1] - q1[0], q2[1] - q2[0]
        return (
            r1[1] + p * slope1,
            r1[0] - (1.0 - p) * slope1,
            r2[1] + p * slope2,
            r2[0] - (1.0 - p) * slope2,
            g1,
            g2,
        )

    return Functions(values, outer, gradient)


def valuation_outer(x, y, p, eps, theta):
    """Ψ(x, y) = x − v·y."""
    return x - theta[0] * y
