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
from quapy_nemsis.measures.compiled import (
    two_class_form,
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


# ------------------------------------------------------------------- K classes


def arrays(k, entries):
    return st.lists(entries, min_size=k, max_size=k).map(np.array)


def distributions(k, least):
    """Shares of k classes, each at least so much before they are made to sum to 1."""
    return arrays(k, st.floats(least, 1.0)).map(lambda v: (v + 1e-9) / (v + 1e-9).sum())


class_recalls = st.just(0.0) | st.floats(1e-9, 1.0)  # 1/recall is finite


@st.composite
def class_rates(draw, ends=1, recalls=class_recalls, least=0.0):
    """Shares p of two to six classes, and recalls R and counts q of one or more models."""
    k = draw(st.integers(2, 6))
    parts = [arrays(k, recalls), distributions(k, least)] * ends
    return draw(st.tuples(distributions(k, 0.02), *parts))


surrogate_rates = st.floats(-1.0, 1.0, allow_subnormal=False)
built_in_objectives = nested | st.builds(lambda m, v: m.valuation(v), pseudo, levels)


@many
@given(nested | pseudo, surrogate_rates, surrogate_rates, shares, smoothing)
def test_two_classes_are_two_classes(measure, P, N, p, eps):
    """The functions of K classes equal those of P and N, also where surrogate rewards give p̂ outside [0, 1]."""
    estimate = p * P + (1 - p) * (1 - N)
    at = np.array([N, P]), np.array([1 - estimate, estimate]), np.array([1 - p, p]), eps
    expected = measure.value(P, N, p, eps)
    assert measure.class_value(*at) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@many
@given(built_in_objectives, surrogate_rates, surrogate_rates, shares, smoothing)
def test_gradients_of_two_classes_are_class_gradients(measure, P, N, p, eps):
    """A unit of P is p of the points, which move from class 0 to class 1, and the reverse for N."""
    estimate = p * P + (1 - p) * (1 - N)
    at = np.array([N, P]), np.array([1 - estimate, estimate]), np.array([1 - p, p]), eps
    alpha, by_count = measure.gradients(*at)
    slope = by_count[1] - by_count[0]
    found = alpha[1] + p * slope, alpha[0] - (1 - p) * slope
    assert found == pytest.approx(measure.class_gradients(P, N, p, eps), rel=1e-7, abs=1e-9)
    # The functions of P and N that are made from those of K classes.
    values, outer, gradient = two_class_form(measure.class_functions)
    x, y = values(P, N, p, eps, measure.theta)
    assert outer(x, y, p, eps, measure.theta) == pytest.approx(measure.class_value(*at), rel=1e-12)
    a1, a2, b1, b2, g1, g2 = gradient(P, N, x, y, p, eps, measure.theta)
    assert (g1 * a1 + g2 * b1, g1 * a2 + g2 * b2) == pytest.approx(found, rel=1e-9, abs=1e-12)


@many
@given(nested | pseudo, class_rates(), smoothing, st.randoms(use_true_random=False))
def test_the_order_of_classes_does_not_matter(measure, point, eps, random):
    """A permutation of the classes leaves the value as it is, and permutes the gradients."""
    p, R, q = point
    order = random.sample(range(len(p)), len(p))
    value = measure.class_value(R, q, p, eps)
    assert measure.class_value(R[order], q[order], p[order], eps) == pytest.approx(value, rel=1e-9)
    objective = measure.valuation(0.5) if isinstance(measure, PseudoMeasure) else measure
    before = objective.gradients(R, q, p, eps)
    after = objective.gradients(R[order], q[order], p[order], eps)
    for old, new in zip(before, after, strict=True):
        assert new == pytest.approx(old[order], rel=1e-9)


@many
@given(built_in_objectives, class_rates(recalls=inner_rates, least=0.1), smoothing)
def test_gradients_of_classes_are_slopes(measure, point, eps):
    """By each recall and by each count, as if all of them were free."""
    p, R, q = point
    h = 1e-5
    found = measure.gradients(R, q, p, eps)
    for j, step in enumerate(h * np.eye(len(p))):
        by_R = measure.class_value(R + step, q, p, eps) - measure.class_value(R - step, q, p, eps)
        by_q = measure.class_value(R, q + step, p, eps) - measure.class_value(R, q - step, p, eps)
        expected = by_R / (2 * h), by_q / (2 * h)
        assert (found[0][j], found[1][j]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


@many
@given(built_in_objectives, class_rates(ends=2), rates, smoothing)
def test_measures_of_classes_are_concave(measure, points, place, eps):
    """Every nested measure and every valuation lies above its chords, in recalls and counts jointly."""
    p, R1, q1, R2, q2 = points
    check_concave(lambda R, q: measure.class_value(R, q, p, eps), (R1, q1), (R2, q2), place)


@many
@given(pseudo, class_rates(ends=2), rates, smoothing)
def test_ratios_of_classes_have_a_convex_denominator(measure, points, place, eps):
    """P_quant, which is 1/value at perfect recalls, lies below its chords and within its bounds."""
    p, _, q1, _, q2 = points

    def p_quant(q):
        return 1.0 / measure.class_value(np.ones(len(p)), q, p, eps)

    check_concave(lambda q: -p_quant(q), (q1,), (q2,), place)
    low, high = measure.bounds or (1.0, np.inf)
    assert low - 1e-12 <= p_quant(q1) <= high + 1e-12


@pytest.mark.parametrize("k", [2, 3, 7])
def test_the_bounds_of_cq_are_reached(k):
    """½‖p − q‖² is 1 where all points are in one class and predicted in another, and nowhere more."""
    vertices, cq = np.eye(k), get_measure("cq")
    assert 1.0 / cq.class_value(np.ones(k), vertices[0], vertices[0]) == cq.bounds[0]
    assert 1.0 / cq.class_value(np.ones(k), vertices[1], vertices[0]) == cq.bounds[1]


@many
@given(nested | pseudo, class_rates(), smoothing)
def test_nothing_is_better_than_perfect_classes(measure, point, eps):
    """Recalls of 1 and right counts have the best value, whatever the shares."""
    p, R, q = point
    best = measure.class_value(np.ones(len(p)), p, p, eps)
    assert measure.class_value(R, q, p, eps) <= best + 1e-12


@st.composite
def surrogate_counts(draw):
    """Shares of three or more classes, and counts of rewards in [−B, 1] whose misses go to any other classes."""
    k, bound = draw(st.integers(3, 6)), draw(st.floats(0.0, 5.0))
    members = draw(arrays(k, st.integers(0, 3) | st.integers(0, 1000))) + 1
    p = members / members.sum()
    q = np.zeros(k)
    for i in range(k):
        reward = draw(st.just(-bound) | st.floats(-bound, 1.0))
        others = np.delete(np.arange(k), i)
        q[i] += p[i] * reward
        q[others] += p[i] * (1.0 - reward) * draw(distributions(k - 1, 0.0))
    return bound, p, q, 0.5 / members.sum()


@many
@given(surrogate_counts())
def test_clipped_counts_make_kld_hardly_negative(point):
    """Counts below 0 are clipped one by one, so that their sum exceeds 1, and KLD may fall below 0: not by much.

    A count is at least −B·p_j, and the term of a class that is clipped grows with p_j. So KLD is at least
    −(exp(B) − 1 − B)·Kε/(1 + Kε): more than −0.72 for B = 1, and for n points about −0.36·K/n.
    """
    bound, p, q, eps = point
    k = len(p)
    kld = -get_measure("kld").class_value(np.ones(k), q, p, eps)
    assert kld >= -(np.exp(bound) - 1 - bound) * k * eps / (1 + k * eps) - 1e-12


def test_clipped_counts_can_make_kld_negative():
    """One point of a hundred, with the reward −1."""
    p, q = np.array([0.01, 0.495, 0.495]), np.array([-0.01, 0.505, 0.505])
    kld = -get_measure("kld").class_value(np.ones(3), q, p, 0.005)
    assert -0.72 * 0.015 < kld < 0.0


@st.composite
def crisp(draw):
    """True and predicted codes of three to five classes, each of which occurs."""
    k = draw(st.integers(3, 5))
    codes = st.lists(st.integers(0, k - 1), min_size=k, max_size=60)
    y = np.concatenate([np.arange(k), draw(codes)])
    return y, draw(arrays(len(y), st.integers(0, k - 1)))


@many
@given(nested | pseudo, crisp(), st.permutations(["e", "aa", "z", "b", "cc"]))
def test_scores_of_classes_do_not_know_the_names_of_labels(measure, codes, names):
    """A score is the value at the rates of the confusion matrix, whatever the labels are called."""
    y, guess = codes
    k = y.max() + 1
    R = [(guess[y == j] == j).mean() for j in range(k)]
    p, q = (np.bincount(labels, minlength=k) / len(y) for labels in (y, guess))
    value = measure.class_value(R, q, p, 0.5 / len(y))
    assert measure.score(y, guess) == pytest.approx(value, rel=1e-12)
    renamed = (np.array(names)[labels] for labels in (y, guess))
    assert measure.score(*renamed) == pytest.approx(value, rel=1e-9, abs=1e-12)
