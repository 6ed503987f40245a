"""Measures against their definitions, QuaPy's errors and the conjugate form."""

import copy
import itertools
import pickle

import numpy as np
import pytest
import quapy.error
from scipy.optimize import minimize, minimize_scalar

from quapy_nemsis import (
    BA,
    BAKLD,
    CQB,
    NSS,
    BKReward,
    CQReward,
    GMean,
    HMean,
    Measure,
    NegKLD,
    NestedMeasure,
    QMean,
    QMeasure,
    get_measure,
)

NESTED = [NegKLD(), BAKLD(0.5), BAKLD(0.3), QMeasure(1), QMeasure(2), NSS(), BA(), GMean()]
NESTED += [HMean(), QMean()]
PSEUDO = [CQReward(), BKReward()]
ALL = [*NESTED, *PSEUDO, CQB()]
NAMES = "kld bakld bakld:0.3 q q:2 nss ba gmean hmean qmean cq bk cqb"
POINTS = list(itertools.product([0.15, 0.5, 0.93], [0.2, 0.7, 0.95], [0.04, 0.3, 0.6]))


def definition(measure, P, N, p, eps):
    """The measures as the literature defines them, from the shares of the confusion matrix."""
    tp, fn, tn, fp = p * P, p * (1 - P), (1 - p) * N, (1 - p) * (1 - N)
    ba = (tp / (tp + fn) + tn / (tn + fp)) / 2
    nss = 1 - (fn - fp) ** 2
    kld = quapy.error.kld(np.array([1 - p, p]), np.array([tn + fn, tp + fp]), eps=eps)
    if isinstance(measure, NegKLD):
        return -kld
    if isinstance(measure, BAKLD):
        return measure.C * ba - (1 - measure.C) * kld
    if isinstance(measure, CQReward):
        return ba / (2 - nss)
    if isinstance(measure, BKReward):
        return ba / (1 + kld)
    if isinstance(measure, QMeasure):
        b2 = measure.beta**2
        return (1 + b2) * ba * nss / (b2 * ba + nss)
    return {
        NSS: nss,
        BA: ba,
        GMean: np.sqrt(P * N),
        HMean: 2 / (1 / P + 1 / N),
        QMean: 1 - np.sqrt(((1 - P) ** 2 + (1 - N) ** 2) / 2),
    }[type(measure)]


@pytest.mark.parametrize("measure", [*NESTED, *PSEUDO], ids=repr)
@pytest.mark.parametrize("eps", [1e-9, 1e-3, 0.05])
def test_value_is_the_definition(measure, eps):
    for P, N, p in POINTS:
        expected = definition(measure, P, N, p, eps)
        assert measure.value(P, N, p, eps) == pytest.approx(expected, abs=1e-12)
        if getattr(measure, "bounds", None):
            assert measure.bounds[0] <= measure.p_quant(P, N, p, eps)[0] <= measure.bounds[1]


def test_kld_of_predictions_is_quapys():
    rng = np.random.default_rng(1)
    y, y_pred = rng.random(200) < 0.1, rng.random(200) < 0.4
    quapy.environ["SAMPLE_SIZE"] = 200
    true, estimated = np.array([1 - y.mean(), y.mean()]), [1 - y_pred.mean(), y_pred.mean()]
    assert NegKLD().score(y, y_pred) == pytest.approx(
        -quapy.error.kld(true, np.array(estimated)), abs=1e-14
    )


# Lines 15-17 of the algorithm: α = argmin_α {α·r − ζ*(α)} with the concave conjugate ζ*(α) = inf_z {α·z − ζ(z)}.
# A conjugate is finite only on the set of gradients, so the argmin is searched over α = ∇ζ(z), with the gradient
# taken numerically: neither the closed form nor the formula of a conjugate is used.


def _numeric_gradient(f, z, h=1e-5):
    return np.array(
        [
            (f(z[0] + h, z[1]) - f(z[0] - h, z[1])) / (2 * h),
            (f(z[0], z[1] + h) - f(z[0], z[1] - h)) / (2 * h),
        ]
    )


def _argmin_of_conjugate_form(f, r):
    side = np.linspace(1e-4, 1.0 - 1e-4, 41)
    grid = np.array(list(itertools.product(side, side)))
    values = np.array([f(*z) for z in grid])

    def conjugate(alpha):
        start = grid[np.argmin(grid @ alpha - values)]
        box = [(side[0], side[-1])] * 2
        inner = minimize(lambda z: alpha @ z - f(*z), start, bounds=box, options={"ftol": 1e-15})
        return inner.fun

    def objective(z):
        alpha = _numeric_gradient(f, z)
        return alpha @ r - conjugate(alpha)

    best = minimize(
        objective, np.full(2, 0.5), method="Nelder-Mead", options={"xatol": 1e-5, "fatol": 1e-12}
    )
    return _numeric_gradient(f, best.x)


@pytest.mark.parametrize(
    ("measure", "part"),
    [
        *itertools.product([BAKLD(0.5), NegKLD()], ["zeta1", "zeta2"]),
        *itertools.product([QMeasure(1), QMeasure(2)], ["psi"]),
        (QMeasure(1), "zeta2"),
        *itertools.product([NSS(), GMean(), HMean(), QMean()], ["zeta1"]),
    ],
    ids=lambda x: str(x),
)
def test_closed_form_duals_are_the_argmin_of_the_conjugate_form(measure, part):
    function = getattr(measure, part)
    p, eps = 0.3, 0.02
    for r in ([0.4, 0.6], [0.7, 0.55]):
        numeric = _argmin_of_conjugate_form(lambda a, b: function(a, b, p, eps)[0], np.array(r))
        assert function(*r, p, eps)[1] == pytest.approx(numeric, abs=2e-3)


def test_dual_of_the_logarithm_in_one_dimension():
    """ζ₁ of NegKLD is ln s(p̂): its dual by p̂ is 1/(p̂ + ε), here from the conjugate of ln s alone."""
    eps, p_hat = 0.01, 0.35

    def conjugate(a):
        inner = minimize_scalar(
            lambda u: a * u - np.log((u + eps) / (1 + 2 * eps)),
            bounds=(0, 50),
            method="bounded",
            options={"xatol": 1e-10},
        )
        return inner.fun

    outer = minimize_scalar(lambda a: a * p_hat - conjugate(a), bounds=(0.2, 20), method="bounded")
    p = 0.25
    # P and N with p̂ = 0.35
    gradient = NegKLD().zeta1(0.8, 0.8, p, eps)[1]
    assert p * 0.8 + 0.75 * 0.2 == pytest.approx(p_hat)
    assert gradient == pytest.approx((p * outer.x, -(1 - p) * outer.x), rel=1e-4)


@pytest.mark.parametrize("measure", NESTED, ids=repr)
def test_outside_the_domain_everything_stays_finite(measure):
    for P, N, x, y in itertools.product([-1.0, 0.0, 1.0], repeat=4):
        parts = [measure.psi(x, y, 0.1, 0.01), measure.zeta1(P, N, 0.1, 0.01)]
        parts += [measure.zeta2(P, N, 0.1, 0.01)]
        for value, gradient in parts:
            assert np.isfinite([value, *gradient]).all()


def test_limits_without_smoothing():
    assert NegKLD().value(0.0, 1.0, 0.5) == -np.inf  # nothing predicted positive
    assert NegKLD().value(0.3, 1.0, 0.0) == 0.0  # no positives, none predicted
    assert BAKLD(1.0).value(0.4, 0.6, 0.2) == pytest.approx(0.5)


def test_cqb():
    y = np.array([0] * 6 + [1] * 4)
    y_pred = np.array([0, 0, 0, 1, 1, 1, 0, 1, 1, 1])  # FP 3, FN 1
    assert CQB().score(y, y_pred) == 8.0
    assert CQB().value(P=0.75, N=0.5, p=0.4) == pytest.approx(8.0 / 100)
    assert not CQB().greater_is_better


@pytest.mark.parametrize("measure", ALL, ids=repr)
def test_measures_are_values(measure):
    assert get_measure(measure) is measure
    assert get_measure(measure.name) == measure
    for twin in (pickle.loads(pickle.dumps(measure)), copy.deepcopy(measure)):
        assert twin == measure
        assert hash(twin) == hash(measure)
    assert eval(repr(measure)) == measure
    assert measure.formula
    with pytest.raises(AttributeError):
        measure.key_parameter = 1


def test_lookup():
    assert [get_measure(name) for name in NAMES.split()] == ALL
    assert BAKLD(0.3) != BAKLD(0.4)
    assert BAKLD(0.5) != QMeasure(0.5)
    assert isinstance(BA(), NestedMeasure)
    assert isinstance(BA(), Measure)
    assert not isinstance(CQB(), NestedMeasure)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: get_measure("klr"), ValueError, "unknown measure 'klr'; known are kld"),
        (lambda: get_measure("bakld:x"), ValueError, "number; got 'x'"),
        (lambda: get_measure("bakld:"), ValueError, "number; got ''"),
        (lambda: get_measure("kld:3"), ValueError, "'kld' has no parameter"),
        (lambda: get_measure(3), TypeError, "got 3 of type int"),
        (lambda: get_measure("bakld:1.5"), ValueError, "got 1.5"),
        (lambda: BAKLD(-0.1), ValueError, r"\[0, 1\]; got -0.1"),
        (lambda: BAKLD(float("nan")), ValueError, "got nan"),
        (lambda: BAKLD("0.5"), ValueError, "got '0.5'"),
        (lambda: QMeasure(0), ValueError, "positive and finite; got 0"),
        (lambda: QMeasure(-1), ValueError, "got -1"),
        (lambda: QMeasure(float("inf")), ValueError, "got inf"),
        (lambda: BA().value(0.5, 0.5, 1.5), ValueError, r"share in \[0, 1\]; got 1.5"),
        (lambda: BA().value(0.5, 0.5, 0.5, eps=-1), ValueError, "eps must be at least 0; got -1"),
        (lambda: BA().score([0, 1], [0]), ValueError, "equal length"),
        (lambda: BA().score([1, 1], [1, 1]), ValueError, r"at least two classes; got \[1\]"),
        (
            lambda: BA().score([0, 1, 2], [0, 1, 1], pos_label=1),
            ValueError,
            r"there must be two classes; y_true holds 3, \[0, 1, 2\]",
        ),
        (lambda: BA().score([0, 1], [0, 3]), ValueError, r"y_true does not have: \[3\]"),
        (lambda: BA().score([0, 1], [0, 1], pos_label=7), ValueError, "pos_label 7"),
        (lambda: Measure().value(0.5, 0.5, 0.5), TypeError, "abstract"),
    ],
)
def test_bad_input(make, error, message):
    with pytest.raises(error, match=message):
        make()
