"""F-measures, SPADE, AMP, STAMP and plug-in classifiers against slow references, closed forms and known optima."""

import copy
import pickle
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from quapy.method.aggregative import ACC, CC, EMQ
from scipy.optimize import minimize
from sklearn import metrics
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, make_circles
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from experiments import learners, methods, nonlinear
from experiments import related as experiment
from experiments.names import parse_method
from quapy_nemsis import (
    AMP,
    SPADE,
    STAMP,
    AMPClassifier,
    CANClassifier,
    FMeasure,
    Jaccard,
    NEMSISClassifier,
    NystromFeatures,
    OnePassMiniBatchClassifier,
    PlugInClassifier,
    PseudoConcave,
    SCANClassifier,
    SPADEClassifier,
    STAMPClassifier,
    SVMPerfClassifier,
    get_loss,
    get_measure,
    load,
    make_measure,
    merge,
    save,
)
from quapy_nemsis.measures import DUALS
from quapy_nemsis.plugin import Achievable
from tests.conftest import make_classes, make_points, true_posteriors
from tests.reference import related as reference
from tests.reference import spade as from_values
from tests.test_classifier import CANNOT_PASS

# ------------------------------------------------------------------- F-measures

pseudo_linear = st.sampled_from([FMeasure(), FMeasure(0.5), FMeasure(3.0), Jaccard()])
rates, shares = st.floats(0.0, 1.0), st.floats(0.02, 0.98)


@pytest.mark.parametrize(("k", "seed"), [(2, 0), (2, 1), (3, 2), (6, 3)])
def test_f_measures_are_those_of_scikit_learn(k, seed):
    """With more classes, micro averages of all but the first."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(k), rng.integers(k, size=200))
    guess = np.where(rng.random(len(y)) < 0.6, y, rng.integers(k, size=len(y)))
    some = {"labels": list(range(1, k)), "average": "micro"}
    for beta in (0.5, 1.0, 2.0):
        expected = metrics.fbeta_score(y, guess, beta=beta, **some)
        assert FMeasure(beta).score(y, guess) == pytest.approx(expected, abs=1e-12)
    assert Jaccard().score(y, guess) == pytest.approx(metrics.jaccard_score(y, guess, **some))
    # All classes: the accuracy, as the docstring says.
    assert metrics.f1_score(y, guess, average="micro") == pytest.approx((y == guess).mean())


@given(pseudo_linear, rates, rates, shares, st.floats(0.0, 1.0))
def test_valuations_of_f_measures_are_linear(measure, P, N, p, level):
    """V = V(0, 0) + a⁺·P + a⁻·N, with weights that are not negative; and V ≥ 0 exactly where the measure is ≥ v."""
    valuation = measure.valuation(level)
    pos, neg = valuation.class_gradients(0.3, 0.8, p)
    assert min(pos, neg) >= 0.0
    expected = valuation.value(0.0, 0.0, p) + pos * P + neg * N
    found = valuation.value(P, N, p)
    assert found == pytest.approx(expected, abs=1e-12)
    if abs(found) > 1e-9:
        assert (found > 0.0) == (measure.value(P, N, p) > level)


@given(pseudo_linear, st.floats(-1.0, 1.0), st.floats(-1.0, 1.0), shares)
def test_f_measures_of_two_classes_are_those_of_k(measure, P, N, p):
    estimate = p * P + (1 - p) * (1 - N)
    at = np.array([N, P]), np.array([1 - estimate, estimate]), np.array([1 - p, p])
    assert measure.class_value(*at) == pytest.approx(measure.value(P, N, p), rel=1e-6, abs=1e-9)
    valuation = measure.valuation(0.4)
    alpha, by_count = valuation.gradients(*at)
    slope = by_count[1] - by_count[0]
    found = alpha[1] + p * slope, alpha[0] - (1 - p) * slope
    assert found == pytest.approx(valuation.class_gradients(P, N, p), abs=1e-12)
    if P < 0.0:
        assert measure.value(P, N, p) < 0.0


def test_names_of_f_measures():
    assert get_measure("f1") == get_measure("f") == get_measure("f:1") == FMeasure()
    assert get_measure(FMeasure(0.5).name) == FMeasure(0.5)
    assert get_measure("jaccard") == Jaccard()
    for P, N in ((0.3, 0.9), (1.0, 1.0), (0.8, 0.2)):
        f = FMeasure().value(P, N, 0.2)
        assert Jaccard().value(P, N, 0.2) == pytest.approx(f / (2 - f))
        assert get_loss("f1").value(P, N, 0.2) == pytest.approx(1 - f)
        assert get_loss(FMeasure()).value(P, N, 0.2) == pytest.approx(1 - f)
    with pytest.raises(ValueError, match=r"beta of FMeasure must be positive and finite; got 0.0"):
        get_measure("f:0")
    with pytest.raises(ValueError, match="'jaccard' has no parameter"):
        get_measure("jaccard:1")


# ------------------------------------------------------------------- AMP and STAMP


def share_found(P, N, p, theta):
    return p * P


def share_sought(P, N, p, theta):
    return theta[0] * (p + p * P + (1 - p) * (1 - N))


def test_stamp_is_scan_with_constant_class_weights():
    """Weights of an epoch by hand: those of F₁ at level v are (2 − v)·p and v·n, divided by the shares p and n."""
    X, y = make_points(n=130, seed=1)
    learner = STAMPClassifier("f1", reward="hinge", eta0=0.2, radius=np.inf, first_epoch=40)
    learner.set_params(average="last", level_share=0.5, fit_intercept=False).partial_fit(X, y)
    w, level, t, at = np.zeros(6), 0.0, 0, 0
    seen = {True: 0, False: 0}
    levels = []
    for size in (40, 80):
        for x, positive in zip(X[at : at + size], y[at : at + size].tolist(), strict=True):
            t += 1
            seen[positive] += 1
            sign = 1.0 if positive else -1.0
            if t > 1 and sign * (w @ x) < 1.0:
                w = w + 0.2 / np.sqrt(t) * (2.0 - level if positive else level) * sign * x
        at += size
        part = slice(at, at + size // 2)
        at += size // 2
        if at > len(X):
            break
        guess = X[part] @ w > 0
        P, N, p = guess[y[part]].mean(), (~guess[~y[part]]).mean(), seen[True] / t
        level = 2 * p * P / (p + p * P + (1 - p) * (1 - N))
        levels.append(level)
    np.testing.assert_allclose(learner.coef_[0], w, rtol=1e-9)
    np.testing.assert_allclose(learner.levels_, levels)
    same = SCANClassifier(**learner.get_params()).partial_fit(X, y)
    np.testing.assert_array_equal(same.coef_, learner.coef_)


@pytest.mark.parametrize("measure", ["f1", "f:2", "jaccard"])
def test_amp_finds_the_maximum(measure):
    """Of the measure of mean logistic rewards, which SLSQP maximises directly, without levels."""
    X, y = make_points(n=150, d=3, share=0.3, seed=4, noise=1.5)
    p, f = y.mean(), get_measure(measure)

    def loss(theta):
        rewards = 1.0 - np.logaddexp(0.0, -np.where(y, 1.0, -1.0) * (X @ theta[:3] + theta[3]))
        return -f.value(rewards[y].mean(), rewards[~y].mean(), p)

    starts = np.random.default_rng(0).normal(size=(5, 4))
    best = -min(minimize(loss, start, method="BFGS").fun for start in starts)
    learner = AMPClassifier(measure, tol=1e-9).fit(X, y)
    assert learner.levels_[-1] == pytest.approx(best, abs=1e-6)
    assert (np.diff(learner.levels_) >= 0.0).all()
    same = CANClassifier(measure, tol=1e-9).fit(X, y)
    np.testing.assert_array_equal(same.coef_, learner.coef_)


def test_amp_and_stamp_take_ratios_of_linear_functions_only():
    X, y = make_points(n=60)
    custom = PseudoConcave(share_found, share_sought, [0.5])
    assert custom.is_pseudo_linear()
    AMPClassifier(custom).fit(X, y)
    STAMPClassifier(custom, eta0=0.1, radius=1.0).fit(X, y)
    for measure in ("cq", "bk", "q", "ba", "cqb"):
        with pytest.raises(
            ValueError, match=r"AMP optimises ratios of linear .* use CANClassifier"
        ):
            AMPClassifier(measure).fit(X, y)
        with pytest.raises(ValueError, match=r"STAMP optimises ratios of .* use SCANClassifier or"):
            STAMPClassifier(measure).partial_fit(X, y)


def test_stamp_of_several_classes_finds_all_but_the_first():
    X, y = make_classes(n=600, shares=(0.8, 0.1, 0.1), distance=2.0)
    f1 = FMeasure()
    learner = STAMPClassifier("f1", eta0=0.3, radius=np.inf, random_state=0).fit(X, y)
    plain = LogisticRegression().fit(X, y)
    assert f1.score(y, learner.predict(X)) > f1.score(y, plain.predict(X)) - 0.005
    best = PlugInClassifier(plain, "f1", cv="prefit").fit(X, y).value_
    assert f1.score(y, learner.predict(X)) > best - 0.03


# ------------------------------------------------------------------- SPADE

Spade = partial(SPADEClassifier, reward="hinge", eta0=0.3, radius=np.inf)


@pytest.mark.parametrize("measure", reference.SPADE_MEASURES)
@pytest.mark.parametrize(
    ("reward", "estimates", "monotone"),
    [("hinge", "counts", True), ("logistic", "surrogate", False)],
)
def test_spade_point_by_point(measure, reward, estimates, monotone):
    X, y = make_points(n=220, d=4, share=0.25, seed=3)
    options = {"reward": reward, "monotone": monotone, "eta0": 0.3, "dual_step": 0.7}
    learner = SPADEClassifier(measure, estimates=estimates, radius=np.inf, **options)
    for stop in (1, 2, 7, 60, 220):
        coef, intercept, dual = reference.spade(
            X[:stop], y[:stop], measure=measure, counts=estimates == "counts", **options
        )
        fresh = clone(learner).partial_fit(X[:stop], y[:stop], classes=[False, True])
        np.testing.assert_allclose(fresh.duals_[::-1], dual, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(fresh.coef_[0], coef, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(fresh.intercept_[0], intercept, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("measure", ["gmean", "hmean", "qmean", "kld"])
def test_spade_against_a_reference_that_knows_the_measure_only(measure):
    X, y = make_points(n=120, d=4, share=0.25, seed=5)
    options = {"eta0": 0.3, "dual_step": 0.7, "radius": 0.8}
    learner = SPADEClassifier(
        measure, reward="hinge", average="last", fit_intercept=False, **options
    )
    for stop in (7, 120):
        coef, dual = from_values.spade(X[:stop], y[:stop], measure, **options)
        fresh = clone(learner).partial_fit(X[:stop], y[:stop], classes=[False, True])
        # The polygon of the reference has 4,000 edges.
        np.testing.assert_allclose(fresh.duals_[::-1], dual, atol=2e-4)
        np.testing.assert_allclose(fresh.coef_[0], coef, atol=2e-4)


@pytest.mark.parametrize("average", ["last", "all"])
def test_spade_options(average):
    X, y = make_points(n=150, seed=2)
    options = {"average": average, "radius": 0.4, "fit_intercept": False, "eta0": 0.3}
    coef, _, _ = reference.spade(X, y, measure="qmean", **options)
    for container in (np.asarray, scipy.sparse.csr_matrix):
        learner = Spade("qmean", **options).partial_fit(container(X), y)
        np.testing.assert_allclose(learner.coef_[0], coef, rtol=1e-8)


@pytest.mark.parametrize("kind", DUALS)
@given(
    inner=st.tuples(st.floats(0.05, 0.95), st.floats(0.05, 0.95)),
    other=st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)),
    p=st.floats(0.05, 0.95),
)
def test_duals_are_tangents(kind, inner, other, p):
    """The gradient at rates (P, N) is in the region, and there the dual rests if the rates it sees are (P, N)."""
    measure, eps = kind(), 1e-3
    gradient = measure.class_gradients(*inner, p, eps)
    descend = DUALS[kind]

    def moved(dual, rates, step):
        return np.array(descend(*dual, *rates, step, p, eps, measure.theta))

    np.testing.assert_allclose(moved(gradient, inner, 0.0), gradient, atol=1e-8)
    # A small step along the region's edge: the projection takes back what is normal to it.
    step = 1e-4
    assert np.abs(moved(gradient, inner, step) - gradient).max() < 20.0 * step**2 + 1e-9
    # The lowest tangent at other rates is that of the gradient there, so that descent from elsewhere gets lower.
    dual = np.array(gradient)
    for _ in range(30):
        dual = moved(dual, other, 0.01)
    tangent = measure.value(*inner, p, eps) + gradient @ (np.array(other) - inner)
    assert measure.value(*other, p, eps) <= tangent + 1e-9


def test_spade_in_a_stream_does_not_depend_on_its_chunks():
    X, y = make_points(n=500)
    whole = Spade("gmean").partial_fit(X, y)
    parts = Spade("gmean")
    for part in (slice(0, 3), slice(3, 256), slice(256, 500)):
        parts.partial_fit(X[part], y[part], classes=[False, True])
    np.testing.assert_array_equal(whole.coef_, parts.coef_)
    np.testing.assert_array_equal(whole.duals_, parts.duals_)


@pytest.mark.parametrize("measure", ["gmean", "kld"])
def test_spade_and_nemsis_reach_the_same(measure):
    X, y = make_points(n=4000, share=0.15, seed=5)
    found = get_measure(measure)
    values = [
        found.score(
            y[2000:], kind(measure, random_state=0).fit(X[:2000], y[:2000]).predict(X[2000:])
        )
        for kind in (SPADEClassifier, NEMSISClassifier)
    ]
    assert values[0] == pytest.approx(values[1], abs=0.01)


def test_merged_spade_counts_all_points():
    X, y = make_points(n=400)
    parts = [Spade("hmean").partial_fit(X[k::2], y[k::2]) for k in (0, 1)]
    merged = merge(parts)
    assert merged.t_ == 400
    np.testing.assert_allclose(merged.coef_, np.mean([part.coef_ for part in parts], axis=0))
    np.testing.assert_allclose(merged.duals_, np.mean([part.duals_ for part in parts], axis=0))


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"measure": "q"}, ValueError, "dual of a measure, and that of QMeasure.* is not known"),
        ({"measure": "cq"}, ValueError, "use NEMSISClassifier or SCANClassifier"),
        ({"measure": make_measure(share_found)}, ValueError, "is not known: choose one of ba, gm"),
        ({"dual_step": 0}, ValueError, "dual_step must be positive; got 0"),
        ({"dual_step": "auto"}, TypeError, "dual_step must be a number; got 'auto'"),
        ({"eta0": -1}, ValueError, "eta0 must be positive; got -1"),
        ({"posteriors": "no"}, ValueError, "posteriors must be one of .*got 'no'"),
    ],
)
def test_bad_parameters_of_spade(parameters, error, message):
    X, y = make_points(n=60)
    for way in ("fit", "partial_fit"):
        learner = SPADEClassifier(**parameters)
        before = joblib.hash(vars(learner))
        with pytest.raises(error, match=message):
            getattr(learner, way)(X, y)
        assert joblib.hash(vars(learner)) == before
    with pytest.raises(ValueError, match=r"Only binary .* 3 classes"):
        SPADEClassifier().fit(X, np.arange(60) % 3)


# ------------------------------------------------------------------- all learners

ONLINE = {"eta0": 0.3, "radius": 5.0, "n_passes": 2, "random_state": 0}
LEARNERS = [SPADEClassifier(**ONLINE), STAMPClassifier(**ONLINE), AMPClassifier(radius=3.0)]


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: type(learner).__name__)
def test_saved_and_loaded(learner, tmp_path):
    X, y = make_points(n=300)
    learner = clone(learner).fit(X, np.where(y, "yes", "no"))
    save(learner, tmp_path / "learner.npz")
    for twin in (load(tmp_path / "learner.npz"), pickle.loads(pickle.dumps(learner))):
        assert type(twin) is type(learner)
        assert twin.get_params() == learner.get_params()
        np.testing.assert_array_equal(twin.decision_function(X), learner.decision_function(X))
        if hasattr(learner, "partial_fit"):
            original = copy.deepcopy(learner).partial_fit(X[:50], learner.predict(X[:50]))
            twin.partial_fit(X[:50], learner.predict(X[:50]))
            np.testing.assert_array_equal(twin.coef_, original.coef_)
            np.testing.assert_array_equal(twin.predict_proba(X), original.predict_proba(X))


@pytest.mark.parametrize("kind", [SPADEClassifier, STAMPClassifier])
def test_a_stream_chooses_its_step_size(kind):
    X, y = make_points(n=5000, seed=1)
    learner = kind().partial_fit(X, y)
    assert learner.eta0_ in learner.tuning_["eta0"]
    assert learner.score(X, y) > 0.7


def test_quantifiers():
    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    for quantifier in (
        SPADE("kld", random_state=0),
        STAMP("f1", random_state=0),
        AMP("f1", radius=5.0),
        ACC(SPADEClassifier("gmean", random_state=0)),
        EMQ(STAMPClassifier("f1", random_state=0)),
        CC(PlugInClassifier(LogisticRegression(), "kld", random_state=0)),
    ):
        assert quantifier.fit(X, y).predict(X)[1] == pytest.approx(y.mean(), abs=0.03)
    assert clone(SPADE("kld", dual_step=3.0)).get_params()["dual_step"] == 3.0


# ------------------------------------------------------------------- plug-in


def table(k, m=6, seed=0, n=4000):
    """Rows with one feature of m values, and a tree whose posteriors are the frequencies of labels at these values."""
    rng = np.random.default_rng(seed)
    chances = rng.dirichlet(np.full(k, 0.8), size=m)
    x = rng.integers(m, size=n)
    y = np.array([rng.choice(k, p=chances[value]) for value in x])
    tree = DecisionTreeClassifier().fit(x[:, np.newaxis], y)
    eta = tree.predict_proba(np.arange(m)[:, np.newaxis])
    return x[:, np.newaxis], y, tree, eta, np.bincount(x, minlength=m) / n


def value_of(measure, p, n):
    """The measure as a function of the confusion matrix."""

    def value(C):
        R, q = np.diag(C) / p, C.sum(axis=0)
        return measure.class_value(R, q, p, 0.5 / n)

    return value


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", ["gmean", "hmean", "qmean", "q", "bakld:0.3", "ba"])
def test_frank_wolfe_reaches_the_convex_optimum(name, k):
    X, y, tree, eta, mass = table(k)
    measure, p = get_measure(name), np.bincount(y) / len(y)
    learner = PlugInClassifier(tree, name, cv="prefit", randomised=True, tol=1e-5).fit(X, y)
    best = reference.best_randomised(value_of(measure, p, len(y)), eta, mass)
    assert learner.gap_ <= 1e-5
    assert best - 2e-5 <= learner.mixture_value_ <= best + 1e-6
    assert learner.weights_.sum() == pytest.approx(1.0)
    # What is drawn has the value that is expected, up to chance.
    assert measure.score(y, learner.set_params(random_state=0).predict(X)) == pytest.approx(
        best, abs=0.02
    )


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("name", ["f1", "f:2", "jaccard"])
def test_bisection_finds_the_best_of_all_rules(name, k):
    """For a ratio of linear functions it is deterministic: all k⁶ are tried."""
    X, y, tree, eta, mass = table(k, seed=1)
    measure, p = get_measure(name), np.bincount(y) / len(y)
    learner = PlugInClassifier(tree, name, cv="prefit").fit(X, y)
    best = reference.best_deterministic(value_of(measure, p, len(y)), eta, mass)
    assert learner.mixture_value_ == pytest.approx(best, abs=1e-9)
    assert learner.value_ == pytest.approx(best, abs=1e-9)
    assert measure.score(y, learner.predict(X)) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("name", ["cq", "bk"])
def test_bisection_of_concave_over_convex(name):
    X, y, tree, eta, mass = table(3, seed=2)
    measure, p = get_measure(name), np.bincount(y) / len(y)
    learner = PlugInClassifier(tree, name, cv="prefit", randomised=True, tol=1e-5).fit(X, y)
    best = reference.best_randomised(value_of(measure, p, len(y)), eta, mass)
    assert learner.mixture_value_ == pytest.approx(best, abs=5e-5)


@pytest.mark.parametrize("name", ["f1", "jaccard", "gmean", "q", "cq", "kld"])
def test_the_single_rule_is_the_best_threshold(name):
    X, y = make_points(n=400, share=0.2, seed=6)
    inner = LogisticRegression().fit(X, y)
    measure, scores = get_measure(name), inner.predict_proba(X)[:, 1]
    values = [measure.score(y, scores > t) for t in np.append(np.unique(scores), -1.0)]
    learner = PlugInClassifier(inner, name, cv="prefit").fit(X, y)
    found = measure.score(y, learner.predict(X))
    assert found == pytest.approx(learner.value_)
    if name == "kld":  # within noise of the best, the best by BA
        assert found >= max(values) - 0.01
        assert metrics.balanced_accuracy_score(y, learner.predict(X)) > 0.7
    else:
        assert found == pytest.approx(max(values), abs=1e-12)


def uneven(P, N, p, theta):
    return P ** theta[0] * N ** (1 - theta[0])


def test_custom_measures_and_all_ways_to_posteriors():
    X, y = make_points(n=600, share=0.2)
    measure = make_measure(uneven, [0.7])
    for cv in (3, 0.4):
        learner = PlugInClassifier(GaussianNB(), measure, cv=cv, random_state=0).fit(X, y)
        assert measure.score(y, learner.predict(X)) > 0.75
        again = clone(learner).fit(X, y)
        np.testing.assert_array_equal(again.factors_, learner.factors_)
        np.testing.assert_array_equal(again.offsets_, learner.offsets_)
    np.testing.assert_array_equal(learner.predict_proba(X), learner.estimator_.predict_proba(X))
    twin = pickle.loads(pickle.dumps(learner))
    np.testing.assert_array_equal(twin.predict(X), learner.predict(X))
    with pytest.raises(ValueError, match="measure of two classes"):
        PlugInClassifier(GaussianNB(), measure).fit(X, np.arange(600) % 3)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    strings = PlugInClassifier(pipeline, "f1", random_state=0).fit(X, np.where(y, "b", "a"))
    assert set(strings.predict(X)) == {"a", "b"}


def test_cross_fitting_scores_rows_that_were_not_learned():
    """A tree knows its own rows by heart: only posteriors of other rows tell what its rule is worth."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.random(400) < 0.5
    flattered = PlugInClassifier(DecisionTreeClassifier().fit(X, y), "ba", cv="prefit").fit(X, y)
    honest = PlugInClassifier(DecisionTreeClassifier(random_state=0), "ba", random_state=0).fit(
        X, y
    )
    assert flattered.value_ == 1.0
    assert honest.value_ < 0.6


def test_the_gradient_of_a_mixture_has_no_better_rule():
    """The duality gap is what the best rule for the gradient gains, which is 0 at the maximum."""
    X, y, tree, _, _ = table(3)
    room = Achievable(tree.predict_proba(X), y)
    found = room.maximise(get_measure("gmean"), 1e-6, 2000)
    gradient = room.gradient(get_measure("gmean"), found.at)
    gains = (gradient * (room.reached(room.best_rule(gradient), 0) - found.at)).sum()
    assert gains <= 1e-6
    assert found.weights @ [
        room.reached(found.rules, k)[0, 0] for k in range(len(found.weights))
    ] == (pytest.approx(found.at[0, 0]))


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"measure": "cqb"}, ValueError, "CQB.* is for evaluation only"),
        ({"measure": "what"}, ValueError, "unknown measure 'what'"),
        ({"cv": 1}, ValueError, "cv must be at least 2; got 1"),
        ({"cv": 1.5}, ValueError, "cv must be a number of folds .* got 1.5"),
        ({"cv": None}, ValueError, "got None"),
        ({"cv": "fold"}, ValueError, "cv must be one of .*got 'fold'"),
        ({"randomised": 1}, TypeError, "randomised must be True or False; got 1"),
        ({"tol": 0.0}, ValueError, "tol must be positive; got 0.0"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1; got 0"),
        (
            {"estimator": LinearSVC()},
            TypeError,
            "must have predict_proba; .*CalibratedClassifierCV",
        ),
        ({"random_state": "x"}, ValueError, "random_state must be an integer"),
    ],
)
def test_bad_parameters_of_plug_in(parameters, error, message):
    X, y = make_points(n=60)
    with pytest.raises(error, match=message):
        PlugInClassifier(**parameters).fit(X, y)


def test_bad_labels_of_plug_in():
    X, y = make_points(n=60)
    with pytest.raises(ValueError, match="needs two classes or more"):
        PlugInClassifier().fit(X, np.zeros(60))
    with pytest.raises(ValueError, match="has one row, and cross-fitting needs two"):
        PlugInClassifier().fit(X, np.arange(60) == 7)
    inner = LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match=r"labels \[2\] that the estimator does not know"):
        PlugInClassifier(inner, cv="prefit").fit(X, np.where(y, 2, 0))


def expected_failures(estimator):
    return CANNOT_PASS if isinstance(estimator, SPADEClassifier) else {}


@parametrize_with_checks(
    [PlugInClassifier(GaussianNB(), cv=2), SPADEClassifier(random_state=0)],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


# ------------------------------------------------------------------- posteriors of batch learners and of 1PMB

OPTIONAL = [
    CANClassifier("ba", radius=3.0),
    SVMPerfClassifier("01", C=10.0, tol=1e-2),
    OnePassMiniBatchClassifier("ba", buffer_size=50, eta0=1.0, radius=5.0, random_state=0),
]
each_optional = pytest.mark.parametrize("learner", OPTIONAL, ids=lambda one: type(one).__name__)


@each_optional
def test_posteriors_change_no_weights_and_are_calibrated(learner):
    X, y = make_points(n=1200, share=0.2, seed=7)
    fresh, y_fresh = make_points(n=4000, share=0.2, seed=8)
    plain, learner = clone(learner).fit(X, y), clone(learner).set_params(posteriors="training")
    assert not hasattr(plain, "predict_proba")
    learner.fit(X, y)
    np.testing.assert_array_equal(learner.coef_, plain.coef_)
    np.testing.assert_array_equal(learner.intercept_, plain.intercept_)
    found = learner.predict_proba(fresh)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    # The true log-odds of the two classes are 2·x₀ + ln(0.2/0.8).
    truth = 1.0 / (1.0 + np.exp(-2.0 * fresh[:, 0] - np.log(0.25)))
    best = metrics.log_loss(y_fresh, truth)
    assert metrics.log_loss(y_fresh, found) < best + 0.015
    balanced = learner.set_params(posteriors="balanced").predict_proba(fresh)
    odds = np.log(balanced[:, 1] / balanced[:, 0]) - np.log(found[:, 1] / found[:, 0])
    np.testing.assert_allclose(odds, np.log((1 - y.mean()) / y.mean()), atol=1e-2)


@each_optional
def test_posteriors_come_from_rows_that_were_not_learned(learner):
    """Labels without a pattern and many features: the scores of learned rows would promise much."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 60)), rng.random(150) < 0.5
    learner = clone(learner).set_params(posteriors="training").fit(X, y)
    assert learner.score(X, y) > 0.75
    assert metrics.log_loss(y, learner.predict_proba(X)) > 0.5
    assert learner.calibration_.loss() > 0.6


@each_optional
def test_posteriors_are_saved_and_used_by_quapy(learner, tmp_path):
    X, y = make_points(n=800)
    learner = clone(learner).set_params(posteriors="training").fit(X, y)
    save(learner, tmp_path / "learner.npz")
    again = load(tmp_path / "learner.npz")
    np.testing.assert_array_equal(again.predict_proba(X), learner.predict_proba(X))
    np.testing.assert_array_equal(again.committee_scores(X), learner.committee_scores(X))
    quantifier = EMQ(clone(learner)).fit(X, y)
    assert isinstance(quantifier.classifier_, type(learner))  # not put into another
    assert quantifier.predict(X)[1] == pytest.approx(y.mean(), abs=0.03)
    # Fitted again without, it has none; and asked for them afterwards, it says what to do.
    learner.set_params(posteriors=None).fit(X, y)
    save(learner, tmp_path / "learner.npz")
    assert not hasattr(load(tmp_path / "learner.npz"), "calibration_")
    with pytest.raises(
        ValueError, match="was fitted without posteriors: set posteriors='training'"
    ):
        learner.set_params(posteriors="training").predict_proba(X)
    with pytest.raises(ValueError, match=r"posteriors must be one of .*got 'all'"):
        clone(learner).set_params(posteriors="all").fit(X, y)


def test_posteriors_of_several_classes_with_weights():
    X, y = make_classes(n=1200)
    weights = np.where(y == 2, 2.0, 1.0)
    learner = CANClassifier("ba", radius=5.0, posteriors="training").fit(X, y, weights)
    shares = np.array([0.5, 0.3, 0.4]) / 1.2
    truth = true_posteriors(X, shares)
    found = learner.predict_proba(X)
    assert np.abs(found - truth).mean() < 0.04
    np.testing.assert_allclose(found.mean(axis=0), truth.mean(axis=0), atol=0.03)
    with pytest.raises(ValueError, match="posteriors need two rows of each class"):
        SVMPerfClassifier(posteriors="training").fit(X[:2], [0, 1])


def test_posteriors_of_1pmb_in_a_stream():
    X, y = make_points(n=2000, seed=3)
    learner = OnePassMiniBatchClassifier("ba", eta0=1.0, buffer_size=50, posteriors="training")
    for part in np.array_split(np.arange(2000), 4):
        learner.partial_fit(X[part], y[part])
    assert metrics.roc_auc_score(y, learner.predict_proba(X)[:, 1]) > 0.85
    assert metrics.log_loss(y, learner.predict_proba(X)) < 0.5


# ------------------------------------------------------------------- experiments


def test_names_of_methods():
    for name, kind in (
        ("SPADE:gmean", SPADEClassifier),
        ("STAMP:f1", STAMPClassifier),
        ("AMP:f1", AMPClassifier),
        ("plug-in:kld", PlugInClassifier),
        ("ACC(SPADE-surrogate:hmean)", SPADEClassifier),
    ):
        made = methods.method(name)(7).classifier
        assert type(made) is kind
        assert made.measure == name.rstrip(")").partition(":")[2]
    assert methods.is_binary("SPADE:gmean")
    assert not methods.is_binary("plug-in:q")
    for name, message in (
        ("SPADE:q", "is not known"),
        ("AMP:cq", "optimises ratios of linear"),
        ("plug-in:cqb", "evaluation only"),
    ):
        with pytest.raises(ValueError, match=message):
            methods.method(name)


def test_the_experiment_writes_a_table_and_a_figure(tmp_path, monkeypatch, capsys):
    X, y = make_points(n=300, share=0.2)
    np.savez(tmp_path / "toy.npz", X=X, y=np.where(y, 1, -1))
    arguments = ["related", "--data-dir", str(tmp_path), "--sets", "toy", "--seeds", "1"]
    arguments += ["--measures", "f1", "--figure-measures", "f1", "--passes", "3"]
    monkeypatch.setattr("sys.argv", [*arguments, "--out", str(tmp_path / "out")])
    experiment.main()
    printed = capsys.readouterr().out
    assert (tmp_path / "out" / "table.md").read_text().strip() in printed
    assert "| f1 | toy |" in printed
    assert (tmp_path / "out" / "curves.svg").stat().st_size > 5_000
    found = pd.read_csv(tmp_path / "out" / "values.csv").set_index(["measure", "method"])["value"]
    assert set(found["f1"].index) == {"LR", "STAMP", "AMP", "plug-in"}
    assert found.between(0.3, 1.0).all()


def test_learners_by_name_take_features():
    made = methods.method("EMQ(Nystrom+LR)")(7).classifier
    assert isinstance(made["features"], NystromFeatures)
    assert made["features"].random_state == 7
    assert parse_method("EMQ(Nystrom+LR) (tuned)").grids[0].keys() >= {
        "classifier__learner__C",
        "calib",
    }
    assert methods.is_binary("Fourier+SPADE:gmean")
    assert parse_method("Fourier+QForest").aggregation == "CC"
    for name, message in (("Fourier+", "unknown method"), ("Fourier+a:b", "give a learner")):
        with pytest.raises(ValueError, match=message):
            parse_method(name)


def test_the_table_of_learners_is_written_and_kept(tmp_path, monkeypatch, capsys):
    for name, (X, y) in {
        "two": make_points(n=300, share=0.3),
        "three": make_classes(n=300),
    }.items():
        np.savez(tmp_path / f"{name}.npz", X=X, y=y.astype(int))
    arguments = ["learners", "--data-dir", str(tmp_path), "--class-data-dir", str(tmp_path)]
    arguments += ["--sets", "two", "--class-sets", "three", "--samples", "21"]
    arguments += ["--learners", "Fourier+plug-in:q", "SPADE:gmean"]
    monkeypatch.setattr("sys.argv", [*arguments, "--out", str(tmp_path / "out")])
    learners.main()
    printed = capsys.readouterr().out
    two, several = (tmp_path / "out" / "table.md").read_text().split("\n\n")
    assert two in printed
    assert "SPADE" in two
    assert "SPADE" not in several
    for row in (*two.splitlines()[2:], *several.splitlines()[2:]):
        errors = [float(error) for error in row.split(" | ")[1].split(" / ")]
        assert len(errors) == 3
        assert 0.0 < min(errors) < max(errors) < 0.35
    learners.main()
    assert "cells" not in capsys.readouterr().out  # all are known


def test_learning_curves_are_drawn(tmp_path, monkeypatch, capsys):
    X, y = make_circles(1000, noise=0.1, factor=0.5, random_state=0)
    np.savez(tmp_path / "toy.npz", X=X, y=y)
    arguments = ["nonlinear", "--data-dir", str(tmp_path), "--sets", "toy"]
    monkeypatch.setattr("sys.argv", [*arguments, "--out", str(tmp_path / "out")])
    nonlinear.main()
    assert (tmp_path / "out" / "tables.md").read_text().strip() in capsys.readouterr().out
    assert (tmp_path / "out" / "nonlinear.svg").stat().st_size > 5_000
    found = pd.read_csv(tmp_path / "out" / "curves.csv").set_index(["method", "rows"])["error"]
    assert set(found["RBF-SVM"].index) == {500, 700}
    assert found["NEMSIS:ba", 700] > 0.3 > 0.05 > found["Nystrom+NEMSIS:ba", 700]
    chosen = pd.read_csv(tmp_path / "out" / "choices.csv").set_index(["method", "how"])["chosen"]
    assert (chosen["Fourier+NEMSIS:ba"] < 0.05).all()
