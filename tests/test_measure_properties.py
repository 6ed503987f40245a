"""What holds for all measures at all rates: gradients, concavity, nesting, the best value, labels of any name."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quapy_nemsis import (
    NestedConcave,
    PseudoConcave,
    PseudoMeasure,
    get_loss,
    get_measure,
    make_measure,
)
from tests.strategies import LOSSES, labels, many, seeds

# ------------------------------------------------------------------- strategies


def named(key, parameters):
    return parameters.map(lambda parameter: get_measure(f"{key}:{parameter!r}"))


def uneven_mean(P, N, p, theta):
    return P ** (theta[0] / (theta[0] + 1)) * N ** (1 / (theta[0] + 1))


def less_square(x, y, p, theta):
    return x - theta[0] * y * y


def ba(P, N, p, theta):
    return (P + N) / 2


def alarms(P, N, p, theta):
    return (1 - p) * (1 - N)


def off(P, N, p, theta):
    return 1 + theta[0] * (p * (1 - P) - (1 - p) * (1 - N)) ** 2


@lru_cache
def custom(kind, parameter):
    """A measure of one's own, without gradients."""
    if kind is NestedConcave:
        return NestedConcave(less_square, ba, alarms, [parameter])
    if kind is PseudoConcave:
        return PseudoConcave(ba, off, [parameter])
    return make_measure(uneven_mean, [parameter])


own = st.sampled_from([0.5, 1.0, 3.0])
plain = (st.just(get_measure(key)) for key in ("kld", "nss", "ba", "gmean", "hmean", "qmean"))
nested = st.one_of(*plain, named("bakld", st.floats(0.0, 1.0)), named("q", st.floats(0.1, 10.0)))
pseudo = st.just(get_measure("cq")) | st.just(get_measure("bk"))
built_in = nested | pseudo | st.just(get_measure("cqb"))
own_nested = st.builds(custom, st.sampled_from([make_measure, NestedConcave]), own)
every_nested = nested | own_nested
every_pseudo = pseudo | st.builds(custom, st.just(PseudoConcave), own)
levels = st.floats(0.0, 3.0)

rates = st.floats(0.0, 1.0)
inner_rates = st.floats(0.05, 0.95)
shares = st.floats(0.02, 0.98)
# Below the inner rates: the gradients of roots and ratios are taken no nearer to 0 than this.
smoothing = st.floats(1e-4, 0.04)


def parts_of(measure, P, N, p, eps):
    """Functions of two numbers that give value and gradient, and where to look at them."""
    at = p, eps
    if isinstance(measure, PseudoMeasure):
        inner, outer = (measure.p_class, measure.p_quant), None
    else:
        inner, outer = (measure.zeta1, measure.zeta2), measure.psi
        yield lambda *x: (measure.value(*x, *at), measure.class_gradients(*x, *at)), (P, N)
        yield lambda *x: outer(*x, *at), tuple(part(P, N, *at)[0] for part in inner)
    for part in inner:
        yield lambda *x, part=part: part(*x, *at), (P, N)


def check_gradients(measure, *point):
    h = 1e-5
    for part, (a, b) in parts_of(measure, *point):
        by_a = (part(a + h, b)[0] - part(a - h, b)[0]) / (2 * h)
        by_b = (part(a, b + h)[0] - part(a, b - h)[0]) / (2 * h)
        assert part(a, b)[1] == pytest.approx((by_a, by_b), rel=1e-5, abs=1e-6)


@many
@given(every_nested | every_pseudo, inner_rates, inner_rates, shares, smoothing)
def test_gradients_are_slopes(measure, P, N, p, eps):
    """Gradients of measures and of their parts are what central differences give."""
    check_gradients(measure, P, N, p, eps)


@many
@given(every_pseudo, levels, inner_rates, inner_rates, shares, smoothing)
def test_gradients_of_valuations_are_slopes(measure, level, P, N, p, eps):
    """Gradients of valuations and of their parts are what central differences give."""
    check_gradients(measure.valuation(level), P, N, p, eps)


# ------------------------------------------------------------------- concavity


def check_concave(function, a, b, place):
    """Above the chord, at a place between its ends."""
    between = [(1 - place) * x + place * y for x, y in zip(a, b, strict=True)]
    chord = (1 - place) * function(*a) + place * function(*b)
    assert function(*between) >= chord - 1e-9 * (1 + abs(chord))


@many
@given(every_nested, st.tuples(rates, rates), st.tuples(rates, rates), rates, shares, smoothing)
def test_nested_parts_are_concave(measure, a, b, place, p, eps):
    """ζ₁, ζ₂ and Ψ of every nested measure lie above their chords."""
    inner = [lambda *x, part=part: part(*x, p, eps)[0] for part in (measure.zeta1, measure.zeta2)]
    for part in inner:
        check_concave(part, a, b, place)
    ends = [[part(*rates) for part in inner] for rates in (a, b)]
    check_concave(lambda *x: measure.psi(*x, p, eps)[0], *ends, place)


@many
@given(
    every_pseudo, levels, st.tuples(rates, rates), st.tuples(rates, rates), rates, shares, smoothing
)
def test_valuations_are_concave(measure, level, a, b, place, p, eps):
    """P_class and P_class − v·P_quant lie above their chords for every level v ≥ 0, P_quant below."""
    check_concave(lambda *x: measure.p_class(*x, p, eps)[0], a, b, place)
    check_concave(lambda *x: -measure.p_quant(*x, p, eps)[0], a, b, place)
    check_concave(lambda *x: measure.valuation(level).value(*x, p, eps), a, b, place)


# ------------------------------------------------------------------- values


@many
@given(every_nested, rates, rates, shares, smoothing)
def test_a_nested_measure_is_its_nesting(measure, P, N, p, eps):
    """The value of a nested measure is Ψ(ζ₁, ζ₂)."""
    inner = (measure.zeta1(P, N, p, eps)[0], measure.zeta2(P, N, p, eps)[0])
    expected = measure.psi(*inner, p, eps)[0]
    assert measure.value(P, N, p, eps) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@many
@given(every_pseudo, levels, rates, rates, shares, smoothing)
def test_a_pseudo_concave_measure_is_a_ratio(measure, level, P, N, p, eps):
    """The value is P_class/P_quant, and its valuation P_class − v·P_quant is 0 just at that level."""
    over, under = measure.p_class(P, N, p, eps)[0], measure.p_quant(P, N, p, eps)[0]
    value = measure.value(P, N, p, eps)
    assert value == pytest.approx(over / under, rel=1e-12)
    found = measure.valuation(level).value(P, N, p, eps)
    assert found == pytest.approx(over - level * under, rel=1e-12, abs=1e-12)
    assert measure.valuation(value).value(P, N, p, eps) == pytest.approx(0.0, abs=1e-12)


@many
@given(own, rates, rates, shares)
def test_a_measure_of_ones_own_is_its_functions(parameter, P, N, p):
    """A measure made of functions has the values that these give when they are called."""
    at = P, N, p, (parameter,)
    expected = {
        make_measure: uneven_mean(*at),
        NestedConcave: less_square(ba(*at), alarms(*at), p, (parameter,)),
        PseudoConcave: ba(*at) / off(*at),
    }
    for kind, value in expected.items():
        assert custom(kind, parameter).value(P, N, p) == pytest.approx(value, rel=1e-12)


@many
@given(built_in, rates, rates, rates, smoothing)
def test_nothing_is_better_than_perfect(measure, P, N, p, eps):
    """Perfect rates have the best value, whatever the share of positives."""
    gain = measure.value(1.0, 1.0, p, eps) - measure.value(P, N, p, eps)
    assert (gain if measure.greater_is_better else -gain) >= -1e-12


@many
@given(st.sampled_from(LOSSES), rates, rates, shares, smoothing)
def test_a_perfect_prediction_costs_nothing(name, P, N, p, eps):
    """A loss is 0 for perfect rates and at least 0 for others."""
    loss = get_loss(name)
    assert loss.value(1.0, 1.0, p, eps) == pytest.approx(0.0, abs=1e-12)
    assert loss.value(P, N, p, eps) >= -1e-12


@many
@given(nested | pseudo, rates, rates, shares, smoothing)
def test_a_loss_is_what_a_measure_lacks(measure, P, N, p, eps):
    """The loss of a measure is its value for perfect rates, less its value."""
    lacking = measure.value(1.0, 1.0, p, eps) - measure.value(P, N, p, eps)
    assert get_loss(measure).value(P, N, p, eps) == pytest.approx(lacking, rel=1e-9, abs=1e-9)


@many
@given(built_in)
def test_a_measure_is_found_by_its_name(measure):
    """The name of a measure, its parameter included, finds an equal one."""
    assert get_measure(measure.name) == measure


@many
@given(built_in, st.integers(2, 100), rates, rates, labels, seeds)
def test_scores_do_not_know_the_names_of_labels(measure, n, share, noise, names, seed):
    """A score is the value at the rates, for labels of any name and type, and whichever class is called positive."""
    rng = np.random.default_rng(seed)
    y = rng.random(n) < share
    y[rng.choice(n, 2, replace=False)] = False, True
    guess = y ^ (rng.random(n) < noise)
    score = measure.score(y, guess)
    true, predicted = (np.array(names)[entries.astype(int)] for entries in (y, guess))
    assert measure.score(true, predicted, pos_label=names[1]) == score
    assert measure.score(true.tolist(), predicted.tolist(), pos_label=names[1]) == score
    other = measure.score(true, predicted, pos_label=names[0])
    assert other == pytest.approx(score, rel=1e-9, abs=1e-12)
    value = measure.value(guess[y].mean(), 1.0 - guess[~y].mean(), y.mean(), 0.5 / n)
    size = n * n if measure.name == "cqb" else 1.0  # which counts rows
    assert score == pytest.approx(size * value, rel=1e-9, abs=1e-9)
