"""Measures made of users' functions: the same as built-in ones, compiled, checked, pickled."""

import copy
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from joblib import Parallel, delayed
from numba import njit
from sklearn.base import clone

from quapy_nemsis import (
    BAKLD,
    CANClassifier,
    CQReward,
    GMean,
    NEMSISClassifier,
    NestedConcave,
    PseudoConcave,
    QMeasure,
    SCANClassifier,
    get_measure,
    make_measure,
)
from quapy_nemsis.measures.compiled import (
    measure_callback,
)
from tests.conftest import ROOT, make_points

# The built-in Q-measure and CQReward, written again by a user. Operations are in the same order, for equal bits.


def q_psi(x, y, p, theta):
    b2 = theta[0] * theta[0]
    x, y = max(x, 1e-12), max(y, 1e-12)
    return (1.0 + b2) * x * y / (b2 * x + y)


def q_psi_gradient(x, y, p, theta):
    b2 = theta[0] * theta[0]
    x, y = max(x, 1e-12), max(y, 1e-12)
    inverse = 1.0 / (b2 * x + y)
    return (1.0 + b2) * (y * inverse) ** 2, (1.0 + b2) * b2 * (x * inverse) ** 2


def ba(P, N, p, theta):
    return 0.5 * (P + N)


def ba_gradient(P, N, p, theta):
    return 0.5, 0.5


def nss(P, N, p, theta):
    return 1.0 - (p * (1.0 - P) - (1.0 - p) * (1.0 - N)) ** 2


def nss_gradient(P, N, p, theta):
    d = p * (1.0 - P) - (1.0 - p) * (1.0 - N)
    return 2.0 * p * d, -2.0 * (1.0 - p) * d


def quant(P, N, p, theta):
    return 1.0 + (p * (1.0 - P) - (1.0 - p) * (1.0 - N)) ** 2


def quant_gradient(P, N, p, theta):
    d = p * (1.0 - P) - (1.0 - p) * (1.0 - N)
    return -2.0 * p * d, 2.0 * (1.0 - p) * d


Q = {"psi": q_psi, "zeta1": ba, "zeta2": nss}
Q_GRADIENTS = (q_psi_gradient, ba_gradient, nss_gradient)
CQ = {"p_class": ba, "p_quant": quant}
CQ_GRADIENTS = (ba_gradient, quant_gradient)


@pytest.mark.parametrize("estimates", ["counts", "surrogate"])
@pytest.mark.parametrize("measure", [QMeasure(1.0), QMeasure(2.0), CQReward()], ids=repr)
def test_a_copy_of_a_measure_gives_identical_weights(estimates, measure):
    X, y = make_points(n=2000)
    custom, learner = PseudoConcave(**CQ, gradients=CQ_GRADIENTS, bounds=(1.0, 2.0)), SCANClassifier
    if isinstance(measure, QMeasure):
        custom = NestedConcave(**Q, parameters=[measure.beta], gradients=Q_GRADIENTS)
        learner = NEMSISClassifier
        assert not custom.affine
    fits = [learner(m, estimates=estimates, random_state=0).fit(X, y) for m in (custom, measure)]
    for name in ("coef_", "intercept_", *(["levels_"] if learner is SCANClassifier else [])):
        np.testing.assert_array_equal(*(getattr(fit, name) for fit in fits))
    assert custom.score(y, fits[0].predict(X)) == measure.score(y, fits[0].predict(X))


@pytest.mark.parametrize(
    ("measure", "custom", "parts"),
    [
        (QMeasure(2.0), NestedConcave(**Q, parameters=[2.0]), ("psi", "zeta1", "zeta2")),
        (CQReward(), PseudoConcave(**CQ), ("p_class", "p_quant")),
        (GMean(), make_measure(lambda P, N, p, theta: math.sqrt(P * N)), ()),
    ],
    ids=repr,
)
def test_gradients_obtained_for_the_user(measure, custom, parts):
    """By central differences: equal partial derivatives, and a model as good as with exact gradients."""
    X, y = make_points(n=2000)
    for part in parts:
        value, gradient = getattr(custom, part)(0.3, 0.8, 0.2)
        exact, exact_gradient = getattr(measure, part)(0.3, 0.8, 0.2)
        assert value == pytest.approx(exact, abs=1e-14)
        assert gradient == pytest.approx(exact_gradient, abs=1e-8)
    learner = SCANClassifier if measure == CQReward() else NEMSISClassifier
    fits = [learner(m, random_state=0).fit(X, y) for m in (custom, measure)]
    assert np.isfinite(fits[0].coef_).all()
    scores = [measure.score(y, fit.predict(X)) for fit in fits]
    assert scores[0] == pytest.approx(scores[1], abs=0.01)


def test_logarithms_have_gradients_at_the_edges():
    X, y = make_points(n=2000)
    logarithm = make_measure(lambda P, N, p, theta: np.log(P) + np.log(N))
    assert np.isfinite(NEMSISClassifier(logarithm, random_state=0).fit(X, y).coef_).all()


def test_affine_outer_functions_are_noticed():
    def mean(x, y, p, theta):
        return theta[0] * x + (1.0 - theta[0]) * y

    assert NestedConcave(mean, ba, nss, [0.3]).affine
    assert make_measure(ba).affine


def test_parameters_compile_nothing():
    X, y = make_points()
    NEMSISClassifier(NestedConcave(**Q, parameters=[1.0])).fit(X, y)
    before = measure_callback.cache_info().misses
    scores = set()
    for beta in (0.5, 2.0, 3.0):
        learner = NEMSISClassifier(NestedConcave(**Q, parameters=[beta]), random_state=0).fit(X, y)
        scores.add(tuple(learner.coef_[0]))
    assert measure_callback.cache_info().misses == before
    assert len(scores) == 3


def closure(c):
    def weighted(P, N, p, theta):
        return c * P + (1.0 - c) * N

    return weighted


def test_they_are_values():
    a, b = make_measure(closure(0.2)), make_measure(closure(0.7))
    assert a == make_measure(closure(0.2))
    assert hash(a) == hash(make_measure(closure(0.2)))
    assert a != b
    assert b.value(1.0, 0.0, 0.5) == pytest.approx(0.7)
    assert NestedConcave(**Q, parameters=[1.0]) != NestedConcave(**Q, parameters=[2.0])
    assert a != BAKLD(0.5)
    with pytest.raises(AttributeError, match="immutable"):
        a.affine = False
    named = PseudoConcave(**CQ, name="mine", formula="BA/(1+d²)")
    assert repr(named) == "PseudoConcave('mine', parameters=())"
    assert (named.name, named.formula) == ("mine", "BA/(1+d²)")


@pytest.mark.parametrize(
    "measure",
    [
        NestedConcave(**Q, parameters=[2.0], gradients=Q_GRADIENTS),
        make_measure(lambda P, N, p, theta: 0.25 * P + 0.75 * N),
        make_measure(closure(0.4)),
        PseudoConcave(**CQ, bounds=(1.0, 2.0)),
    ],
    ids=["module level", "lambda", "closure", "pseudo"],
)
def test_pickle_copy_clone_and_workers(measure):
    X, y = make_points()
    learner_type = SCANClassifier if isinstance(measure, PseudoConcave) else NEMSISClassifier
    learner = learner_type(measure, random_state=0)
    expected = clone(learner).fit(X, y).coef_
    for twin in (pickle.loads(pickle.dumps(measure)), copy.deepcopy(measure)):
        assert twin == measure
        assert twin.value(0.7, 0.6, 0.2) == measure.value(0.7, 0.6, 0.2)
    fitted = pickle.loads(pickle.dumps(learner.fit(X, y)))
    np.testing.assert_array_equal(fitted.coef_, expected)
    results = Parallel(n_jobs=2)(delayed(clone(learner).fit)(X, y) for _ in range(3))
    for result in results:
        np.testing.assert_array_equal(result.coef_, expected)


def test_functions_that_differ_inside_are_different():
    """In a nested function, a comprehension, a constant: each is compiled as it is."""

    def once(P, N, p, theta):
        inner = lambda v: v  # noqa: E731
        return inner(P) + N

    def five_times(P, N, p, theta):
        inner = lambda v: 5 * v  # noqa: E731
        return inner(P) + N

    first, second = make_measure(once), make_measure(five_times)
    assert first != second
    assert first.value(0.5, 0.5, 0.5) == 1.0
    assert second.value(0.5, 0.5, 0.5) == 3.0
    assert second.class_gradients(0.5, 0.5, 0.5) == pytest.approx((5.0, 1.0))
    X, y = make_points()
    weights = [
        NEMSISClassifier(m, eta0=0.1, radius=np.inf, random_state=0).fit(X, y).coef_
        for m in (first, second)
    ]
    assert not np.array_equal(*weights)


FACTOR = 1.0


def with_global(P, N, p, theta):
    return FACTOR * P + N


def test_a_global_is_taken_as_it_was(monkeypatch):
    """A measure stays what it was when it was made; made again after a change, it is another one."""
    X, y = make_points()

    def fit(measure):
        return NEMSISClassifier(measure, eta0=0.1, radius=np.inf, random_state=0).fit(X, y).coef_

    first = make_measure(with_global)
    before = fit(first)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    second = make_measure(with_global)
    assert first != second
    assert (first.value(0.5, 0.5, 0.5), second.value(0.5, 0.5, 0.5)) == (1.0, 3.0)
    np.testing.assert_array_equal(fit(first), before)
    literal = make_measure(lambda P, N, p, theta: 5.0 * P + N)
    np.testing.assert_array_equal(fit(second), fit(literal))


@pytest.mark.parametrize(
    "function",
    [
        lambda P, N, p, theta: math.sqrt(P * N),
        lambda P, N, p, theta: 2.0 * P * N / (P + N),
        lambda P, N, p, theta: P**0.75 * N**0.25,
        lambda P, N, p, theta: math.log(P + 1e-9) + math.log(N + 1e-9),
    ],
)
def test_outside_the_domain(function):
    """Surrogate rewards may be negative, and counts 0: values are those of the nearest point that has one."""
    measure = make_measure(function)
    X, y = make_points(n=300, noise=1.5)
    for P, N in ((0.0, 0.0), (-0.5, 0.5), (-1.0, -2.0), (1.0, 0.0)):
        assert np.isfinite(measure.value(P, N, 0.3))
        assert np.isfinite(measure.class_gradients(P, N, 0.3)).all()
    assert np.isfinite(measure.score(y, np.zeros_like(y)))
    learner = NEMSISClassifier(measure, record_every=1, eta0=0.1, radius=np.inf).fit(X, y)
    assert np.isfinite(learner.history_["value"]).all()
    batch = CANClassifier(measure, radius=5.0).fit(X, y)
    assert batch.levels_[-1] <= 1.0
    assert batch.score(X, y) > 0.6


def test_jitted_functions_are_taken():
    measure = make_measure(njit(ba))
    assert measure == make_measure(ba)


CACHED = """
import sys
sys.path.insert(0, {root!r})
import numpy as np
from quapy_nemsis import NEMSISClassifier, make_measure
from quapy_nemsis._kernels.nemsis import nemsis
X = np.random.default_rng(0).normal(size=(50, 3))
measure = make_measure(lambda P, N, p, theta: {weight} * P + N)
print(*NEMSISClassifier(measure, random_state=0).fit(X, X[:, 0] > 0).coef_[0])
(kernel,) = nemsis.compiled.values()
print(sum(kernel.stats.cache_hits.values()))
"""


def test_the_kernel_comes_from_the_cache_and_the_measure_does_not(tmp_path):
    """A second process loads the kernel; a changed function is never answered with the old one."""

    def run(weight):
        (tmp_path / "script.py").write_text(CACHED.format(root=str(ROOT), weight=weight))
        command = [sys.executable, "script.py"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
        return done.stdout.splitlines()

    first, second, changed = run(1.0), run(1.0), run(9.0)
    assert second[1] == changed[1] == "1"
    assert first[0] == second[0] != changed[0]


def not_compilable(P, N, p, theta):
    return float(str(P)) if {}.get(P) else P


def imports(P, N, p, theta):
    import math

    return math.sqrt(P)


def negative(P, N, p, theta):
    return P + N - 1.0


def infinite_gradient(P, N, p, theta):
    return 0.5 / math.sqrt(P) if P > 0.0 else math.inf, 0.0


REFUSED = {
    ValueError: [
        (
            lambda: make_measure(lambda P, N, p, theta: P * P + N),
            r"the function is not concave: halfway .* at p=0.05",
        ),
        (
            lambda: make_measure(lambda P, N, p, theta: -1 / (P - 0.5) ** 2 if N > 0.9 else 0.0),
            r"the function .*at P=0\.5, N=1, p=",
        ),
        (
            lambda: make_measure(lambda P, N, p, theta: math.sqrt(P - 0.9)),
            r"the function raises ValueError .* at P=7.*e-06",
        ),
        (
            lambda: make_measure(not_compilable),
            r"the function cannot be compiled by numba: .*\(test_custom.py, line \d+\)",
        ),
        (lambda: make_measure(ba, [np.nan]), "finite numbers; got nan"),
        (lambda: make_measure(ba, ["x"]), "finite numbers; got 'x'"),
        (
            lambda: make_measure(ba, gradient=lambda P, N, p, theta: (0.5, 0.6)),
            "gradient of the function disagrees with its values at P=0.1, N=0.1, p=0.05: ∂N is 0.6",
        ),
        (
            lambda: make_measure(lambda P, N, p, theta: math.sqrt(P), gradient=infinite_gradient),
            "gradient of the function is not finite at P=0, N=0",
        ),
        (
            lambda: NestedConcave(lambda x, y, p, theta: x * x, ba, nss),
            r"psi is not concave: halfway between x=",
        ),
        (lambda: PseudoConcave(ba, lambda P, N, p, theta: 2.0 - P * P), "p_quant is not convex"),
        (lambda: PseudoConcave(ba, negative), r"p_quant must be positive; got -1 at P=7\.\d+e-06"),
        (lambda: PseudoConcave(negative, quant), "p_class must not be negative"),
        (
            lambda: PseudoConcave(ba, quant, bounds=(1.0, 1.1)),
            r"p_quant leaves its bounds \(1.0, 1.1\): got ",
        ),
        (lambda: PseudoConcave(ba, quant, bounds=(0.0, 1.0)), "0 < m ≤ M; got"),
        (lambda: PseudoConcave(ba, quant, bounds=("a", 1.0)), "must be a tuple"),
        (lambda: PseudoConcave(ba, quant, bounds=[1.0, 2.0]), "must be a tuple"),
        (lambda: make_measure(imports), r"cannot be compiled .*test_custom.py, line"),
        (lambda: make_measure(lambda P, N, p, theta: nowhere(P)), r"test_custom.py, line \d+"),  # noqa: F821
        (lambda: make_measure(lambda P, N, p, theta: float(f"{P}")), "cannot be compiled by numba"),
    ],
    TypeError: [
        (
            lambda: make_measure(lambda P, N, p, theta: (P, N)),
            r"the function must return one number; it returns 2 numbers \(line \d+\)",
        ),
        (
            lambda: make_measure(lambda P, N: P),
            r"the function must take \(P, N, p, theta\); it takes \(P, N\)",
        ),
        (
            lambda: make_measure(lambda P, N, p, theta, k=2.0: P),
            r"it takes \(P, N, p, theta, k=2.0\)",
        ),
        (lambda: make_measure("ba"), "the function must be a Python function; got 'ba'"),
        (lambda: make_measure(math.sqrt), "the function must be a Python function"),
        (lambda: make_measure(ba, 3.0), "sequence of numbers; got 3.0"),
        (lambda: make_measure(ba, gradient=ba), "of the function must return two numbers"),
        (
            lambda: NestedConcave(**Q, parameters=[1.0], gradients=Q_GRADIENTS[:2]),
            "gradients must be the gradients of psi, zeta1, zeta2",
        ),
    ],
}


@pytest.mark.parametrize(
    ("error", "make", "message"),
    [(error, *case) for error, cases in REFUSED.items() for case in cases],
)
def test_refusals(error, make, message):
    with pytest.raises(error, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


# --------------------------------------------------------------------------- measures of K classes


def mean_recall(R, q, p, theta):
    return R.mean()


def mean_recall_gradient(R, q, p, theta):
    return np.full(len(R), 1.0 / len(R)), np.zeros(len(R))


def squares(R, q, p, theta):
    return 1.0 - 0.5 * np.sum((p - q) ** 2)


def squares_gradient(R, q, p, theta):
    return np.zeros(len(R)), p - q


def harmonic(x, y, p, theta):
    b2 = theta[0] ** 2
    return (1.0 + b2) * x * y / (b2 * x + y)


def harmonic_gradient(x, y, p, theta):
    b2 = theta[0] ** 2
    below = 1.0 / (b2 * x + y)
    return (1.0 + b2) * (y * below) ** 2, (1.0 + b2) * b2 * (x * below) ** 2


GRADIENTS = (harmonic_gradient, mean_recall_gradient, squares_gradient)


def q_of_classes(**options):
    functions = (harmonic, mean_recall, squares)
    return NestedConcave(*functions, [2.0], of="classes", name="my q", **options)


def some_classes(k, n=400):
    rng = np.random.default_rng(k)
    y = rng.choice(k, n, p=np.arange(1, k + 1) / (k * (k + 1) / 2))
    return rng.normal(size=(k, 4))[y] + rng.normal(size=(n, 4)), y


@pytest.mark.parametrize("k", [2, 3, 6])
def test_a_measure_of_classes_learns_what_the_built_in_one_learns(k):
    X, y = some_classes(k)
    fixed = {"eta0": 0.3, "radius": np.inf, "random_state": 0, "n_passes": 2}
    built_in = NEMSISClassifier("q:2", **fixed).fit(X, y)
    given = NEMSISClassifier(q_of_classes(gradients=GRADIENTS), **fixed).fit(X, y)
    np.testing.assert_allclose(given.coef_, built_in.coef_, atol=1e-9)
    # Differences keep away from rates of 0 and 1, by 1/(2t), so the first steps are others.
    by_differences = NEMSISClassifier(q_of_classes(), **fixed).fit(X, y)
    found, expected = (each.state_.rates() for each in (by_differences, built_in))
    assert get_measure("q:2").at(found) == pytest.approx(get_measure("q:2").at(expected), abs=0.01)


def test_values_of_a_measure_of_classes():
    rng, built_in = np.random.default_rng(0), get_measure("q:2")
    for measure in (q_of_classes(), q_of_classes(gradients=GRADIENTS)):
        for _ in range(20):
            R, q, p = rng.random(5), rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5))
            assert measure.class_value(R, q, p) == pytest.approx(built_in.class_value(R, q, p))
            for ours, theirs in zip(
                measure.gradients(R, q, p), built_in.gradients(R, q, p), strict=True
            ):
                np.testing.assert_allclose(ours, theirs, atol=1e-5)
            P, N, share = rng.random(3)
            assert measure.value(P, N, share) == pytest.approx(built_in.value(P, N, share))
            assert measure.class_gradients(P, N, share) == pytest.approx(
                built_in.class_gradients(P, N, share), abs=1e-5
            )


def test_a_ratio_of_classes():
    def quant(R, q, p, theta):
        return 1.0 + 0.5 * np.sum((p - q) ** 2)

    X, y = some_classes(3)
    measure = PseudoConcave(mean_recall, quant, of="classes", name="my cq", bounds=(1.0, 2.0))
    fixed = {"eta0": 0.3, "radius": np.inf, "random_state": 0, "n_passes": 2}
    ours = SCANClassifier(measure, **fixed).fit(X, y)
    theirs = SCANClassifier("cq", **fixed).fit(X, y)
    np.testing.assert_allclose(ours.levels_, theirs.levels_, atol=1e-6)
    ours = CANClassifier(measure, radius=3.0).fit(X, y)
    theirs = CANClassifier("cq", radius=3.0).fit(X, y)
    np.testing.assert_allclose(ours.levels_, theirs.levels_, atol=1e-6)


def test_measures_of_classes_are_pickled_and_compared():
    measure = q_of_classes()
    again = pickle.loads(pickle.dumps(measure))
    assert again == measure
    assert hash(again) == hash(measure)
    assert measure != q_of_classes(gradients=GRADIENTS)
    R, q, p = np.array([0.5, 1.0, 0.75]), np.array([0.2, 0.3, 0.5]), np.array([0.3, 0.3, 0.4])
    assert again.class_value(R, q, p) == measure.class_value(R, q, p)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_measure(lambda R, q, p, theta: R.mean()), "give of='classes'"),
        (lambda: make_measure(mean_recall, of="class"), "of must be 'rates' or 'classes'"),
        (
            lambda: make_measure(lambda R, q, p, theta: R[0] ** 2, of="classes"),
            r"not concave: halfway between R=\[.*, q=\[.* at p=\[",
        ),
        (lambda: make_measure(lambda R, q, p, theta: R, of="classes"), "must return one number"),
        (
            lambda: make_measure(mean_recall, gradient=lambda R, q, p, theta: 1.0, of="classes"),
            "two arrays, the partial derivatives by R and by q",
        ),
        (
            lambda: make_measure(mean_recall, gradient=squares_gradient, of="classes"),
            r"disagrees with its values at R=.*: ∂R\[0\]",
        ),
        (
            lambda: make_measure(lambda R, q, p, theta: np.log(q - 1.0).sum(), of="classes"),
            "is not finite at R=",
        ),
        (
            lambda: NEMSISClassifier(make_measure(lambda P, N, p, theta: P)).fit(*some_classes(3)),
            "measure of two classes",
        ),
    ],
)
def test_refusals_of_measures_of_classes(make, message):
    with pytest.raises((ValueError, TypeError), match=message), np.errstate(all="ignore"):
        make()
