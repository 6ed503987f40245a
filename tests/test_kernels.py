"""Compiled code follows no number that was not checked; flags of measures change speed, never weights."""

import numpy as np
import pytest
import scipy.sparse

from quapy_nemsis import NEMSISClassifier, SCANClassifier, SVMPerfClassifier, get_measure
from quapy_nemsis._kernels import multiclass
from quapy_nemsis._kernels.batch import add, score
from quapy_nemsis._kernels.level import SUMS, level
from quapy_nemsis._kernels.nemsis import NUMBERS, OPTIONS, SHARED, nemsis
from quapy_nemsis._kernels.rows import as_rows
from quapy_nemsis.learners.state import UNDIVIDED, UNWEIGHTED
from quapy_nemsis.measures import MEASURES, Functions, NestedMeasure, PseudoMeasure
from quapy_nemsis.measures.compiled import (
    CLASSES,
    HEAD,
    N_BLOCKS,
    THETA,
    class_asks,
    class_callback,
    measure_callback,
    place,
)
from tests.conftest import make_points

X, Y = make_points(n=40, d=5)
values, _, gradient = get_measure("ba").functions
CALLBACK = measure_callback(values, gradient, True, 1)


def run_nemsis(rows, order, positive, width, weights=UNWEIGHTED, parts=UNDIVIDED):
    tables = [np.zeros((1, width)) for _ in range(3)]
    options, numbers = np.zeros(1, OPTIONS), np.zeros(1, NUMBERS.dtype)
    numbers["scale"] = 1.0
    taken = np.zeros(1, dtype=np.int64)
    asks = np.zeros((1, THETA + 1))
    scratch = (np.zeros((1, SHARED)), np.zeros((1, 2)), np.zeros((0, 8)), taken)
    state = (CALLBACK.address, asks, options, *tables, numbers, *scratch)
    nemsis(rows, order, positive, weights, parts, np.zeros(1, dtype=np.int64), *state)


def run_level(rows, order, positive, width, weights=UNWEIGHTED):
    model, sums = np.zeros((1, width)), np.zeros(1, SUMS.dtype)
    taken = np.zeros(1, dtype=np.int64)
    level(rows, order, positive, weights, 0, True, 1.0, model, np.zeros(1), sums, taken)


def run_score(rows, order, positive, width):
    score(rows, order, np.zeros((1, width)), 0.0, np.zeros(len(order)))


def run_add(rows, order, positive, width):
    add(rows, order, np.ones(len(order)), np.zeros((1, width)))


KERNELS = [run_nemsis, run_level, run_score, run_add]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_kernels_refuse_what_does_not_fit_the_rows(kernel, container):
    rows, order = as_rows(container(X)), np.arange(40)
    kernel(rows, order, Y, 5)
    for places in ([40], [-1], [0, 2**62]):
        with pytest.raises(ValueError, match="there are 40 rows"):
            kernel(rows, np.array(places), Y, 5)
    with pytest.raises(ValueError, match="5 features"):
        kernel(rows, order, Y, 4)
    if kernel in (run_nemsis, run_level):
        with pytest.raises(ValueError, match="one label for each of the 40 rows"):
            kernel(rows, order, Y[:39], 5)
        kernel(rows, order, Y, 5, np.ones(40))
        for n in (1, 39, 41):
            with pytest.raises(ValueError, match="one weight for each of the 40 rows, or none"):
                kernel(rows, order, Y, 5, np.ones(n))


CODES = (np.arange(40) % 3).astype(np.int32)


def run_classes(rows, order, codes, width, weights=UNWEIGHTED):
    """NEMSIS of three classes; how many rows were taken, and the numbers that it keeps."""
    measure = get_measure("ba")
    values, _, gradient = measure.class_form()
    callback = class_callback(values, gradient, True, 1)
    shape = (1, width, 3) if len(rows.arrays) == 3 else (1, 3, width)
    tables, options = [np.zeros(shape) for _ in range(3)], np.zeros(1, OPTIONS)
    numbers, taken = multiclass.NUMBERS.zeros(3), np.zeros(1, dtype=np.int64)
    numbers["scale"] = 1.0
    asks = class_asks(3, measure.theta[np.newaxis])
    parts = (part[np.newaxis] for part in multiclass.NUMBERS.split(numbers))
    state = (*tables, *parts, np.zeros((3, 3)), taken)
    left_out = np.zeros(1, dtype=np.int64)
    state = (left_out, callback.address, asks, options, *state)
    multiclass.nemsis(rows, order, codes, weights, UNDIVIDED, *state)
    return int(taken[0]), numbers


def run_class_level(rows, order, codes, width, weights=UNWEIGHTED):
    """A level phase of three classes."""
    shape = (1, width, 3) if len(rows.arrays) == 3 else (1, 3, width)
    sums, taken = multiclass.SUMS.zeros(3), np.zeros(1, dtype=np.int64)
    part = multiclass.SUMS.split(sums)[1][np.newaxis]
    tables = (np.zeros(shape), np.zeros((1, 3)), part, np.zeros((2, 3)), taken)
    multiclass.level(rows, order, codes, weights, 0, True, 1.0, *tables)
    return int(taken[0]), sums


@pytest.mark.parametrize("kernel", [run_classes, run_class_level])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_kernels_of_several_classes_refuse_what_does_not_fit_the_rows(kernel, container):
    rows, order = as_rows(container(X)), np.arange(40)
    taken, numbers = kernel(rows, order, CODES, 5)
    assert taken == 40
    np.testing.assert_array_equal(numbers["members"], np.bincount(CODES))
    for places in ([40], [-1], [0, 2**62]):
        with pytest.raises(ValueError, match="there are 40 rows"):
            kernel(rows, np.array(places), CODES, 5)
    for width in (3, 4, 6):
        with pytest.raises(ValueError, match="5 features"):
            kernel(rows, order, CODES, width)
    with pytest.raises(ValueError, match="one label for each of the 40 rows"):
        kernel(rows, order, CODES[:39], 5)
    with pytest.raises(ValueError, match="one weight for each of the 40 rows, or none"):
        kernel(rows, order, CODES, 5, np.ones(39))
    # A label that is no class ends the work, and nothing is written beyond the classes.
    for label in (3, -1, 2**31 - 1):
        codes = CODES.copy()
        codes[17] = label
        taken, numbers = kernel(rows, order, codes, 5)
        assert taken == 17
        np.testing.assert_array_equal(numbers["members"], np.bincount(CODES[:17]))


def forge(part, change):
    matrix = scipy.sparse.csr_matrix(X)
    setattr(matrix, part, change(getattr(matrix, part).copy()))
    return matrix


def first(value):
    def change(array):
        array[0] = value
        return array

    return change


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("indices", lambda array: array + 5),
        ("indices", first(-1)),
        ("indices", lambda array: array.astype(float)),
        ("indices", lambda array: array[:-1]),
        ("indices", lambda array: array.astype(">i4")),
        ("indptr", first(1)),
        ("indptr", lambda array: array[::-1].copy()),
        ("indptr", lambda array: array + array[-1]),
        ("indptr", lambda array: array[:-1]),
        ("data", lambda array: array[:-1]),
        ("data", lambda array: array.astype(">f8")),
        ("data", lambda array: array.astype(int)),
    ],
)
def test_rows_are_checked_before_a_kernel_sees_them(part, change):
    with pytest.raises(ValueError, match=r"indices|indptr|rows must be"):
        as_rows(forge(part, change))


@pytest.mark.parametrize(
    "array", [X.astype(int), X.T, X[:, ::2], X.astype(">f8"), X.astype(np.float16), X[0]]
)
def test_dense_rows_are_checked_before_a_kernel_sees_them(array):
    with pytest.raises(ValueError, match="rows must be"):
        as_rows(array)


# ------------------------------------------------------------------ measures that say nothing of themselves


def forgetful(name):
    """A measure with the functions of a built-in one, and none of its flags."""
    known = get_measure(name)
    base = NestedMeasure if isinstance(known, NestedMeasure) else PseudoMeasure

    class Forgetful(base):
        key, formula, functions = "forgetful", known.formula, Functions(*known.functions)
        parameters = known.parameters

    return Forgetful()


@pytest.mark.parametrize("estimates", ["counts", "surrogate"])
@pytest.mark.parametrize("name", [*(key for key in MEASURES if key != "cqb"), "q:2", "bakld:0.1"])
def test_a_measure_that_forgets_its_flags_is_trained_right(name, estimates):
    points, y = make_points(n=300)
    plain = forgetful(name)
    learner = NEMSISClassifier if isinstance(plain, NestedMeasure) else SCANClassifier
    options = {"eta0": 0.5, "radius": 3.0, "estimates": estimates, "random_state": 0}
    expected = learner(name, **options).fit(points, y)
    found = learner(plain, **options).fit(points, y)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.intercept_, expected.intercept_)


@pytest.mark.parametrize("name", ["kld", "q", "cq"])
def test_the_search_of_a_measure_that_forgets_its_flags_is_right(name):
    points, y = make_points(n=60)
    expected = SVMPerfClassifier(get_measure(name), C=10.0).fit(points, y)
    found = SVMPerfClassifier(forgetful(name), C=10.0).fit(points, y)
    assert found.gap_ <= 1e-3
    assert found.history_["primal"][-1] == pytest.approx(expected.history_["primal"][-1], abs=2e-3)


@pytest.mark.parametrize("name", [*MEASURES])
def test_flags_of_measures_hold(name):
    """Ψ is affine where a measure says so: its gradient is the same wherever it is asked for."""
    measure = get_measure(name)
    rng = np.random.default_rng(0)
    if isinstance(measure, NestedMeasure):
        slopes = {measure.psi(*rng.random(2), 0.3, 0.01)[1] for _ in range(20)}
        assert measure.affine == (len(slopes) == 1)
    if measure.prevalence_only:
        # The rates change, the count does not.
        same = [measure.value(0.5 + 0.7 * t, 0.5 + 0.3 * t, 0.3, 0.01) for t in (0.0, 0.2, 0.4)]
        assert same == pytest.approx([same[0]] * 3)


def test_the_memory_of_two_classes_has_a_place_for_every_number():
    places = [place(block, label) for block in range(N_BLOCKS) for label in range(2)]
    assert places == list(range(HEAD, HEAD + 2 * N_BLOCKS))
    assert place(N_BLOCKS) == THETA


def test_the_table_of_several_classes_has_room_for_all():
    for K, thetas in ((3, np.ones((2, 1))), (26, np.ones((1, 5))), (3, np.ones((1, 40)))):
        asks = class_asks(K, thetas)
        assert asks.shape[2] >= max(K, HEAD + thetas.shape[1])
        assert (asks[:, 0, CLASSES] == K).all()
        assert (asks[:, 0, HEAD : HEAD + thetas.shape[1]] == 1.0).all()
        assert asks[:, 1:].sum() == 0.0
