"""Structural SVM, its losses and its search, and 1PMB, against a slow reference written without seeing them."""

import copy
import pickle

import numpy as np
import pytest
import quapy.error
import scipy.sparse
from scipy.optimize import minimize as scipy_minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from quapy_nemsis import (
    BAKLD,
    CQB,
    NestedConcave,
    OnePassMiniBatchClassifier,
    QMeasure,
    SVMPerfClassifier,
    get_loss,
    get_measure,
)
from quapy_nemsis._kernels.rows import as_rows, join_rows
from quapy_nemsis._kernels.simplex import minimise
from quapy_nemsis.learners import svmperf
from quapy_nemsis.learners.separation import SeparationOracle
from quapy_nemsis.measures.losses import LOSSES
from tests.conftest import make_points
from tests.reference import structural as reference

MEASURES = ["bakld:0.3", QMeasure(), QMeasure(2.0), "nss", "gmean", "hmean", "qmean", "cq", "bk"]
ALL = [*LOSSES, *MEASURES]
COUNTING = ["kld", "nkld", "ae", "rae", "nss"]


def counted(loss):
    """The reference's loss: by name, or from a measure's value."""
    if loss in reference.LOSSES:
        return loss
    measure = get_measure(loss)

    def delta(FN, FP, n_pos, n_neg):
        n = n_pos + n_neg
        p, eps = n_pos / n, 0.5 / n
        best = measure.value(1.0, 1.0, p, eps)
        return best - measure.value(1.0 - FN / n_pos, 1.0 - FP / n_neg, p, eps)

    return delta


# ---------------------------------------------------------------------- losses


@pytest.mark.parametrize("loss", ALL, ids=str)
def test_values_of_losses(loss):
    for n_pos, n_neg in [(1, 1), (3, 5), (6, 2)]:
        for FN in range(n_pos + 1):
            for FP in range(n_neg + 1):
                n = n_pos + n_neg
                found = get_loss(loss).value(1 - FN / n_pos, 1 - FP / n_neg, n_pos / n, 0.5 / n)
                expected = reference.delta(counted(loss), FN, FP, n_pos, n_neg)
                assert found == pytest.approx(expected, abs=1e-14)
    assert get_loss(loss).value(1.0, 1.0, 0.3, 0.01) == pytest.approx(0.0, abs=1e-15)
    assert not get_loss(loss).greater_is_better
    assert get_loss(loss).prevalence_only == (str(loss) in COUNTING)


@pytest.mark.parametrize("loss", ["kld", "nkld", "ae", "rae"])
def test_losses_of_prevalence_are_quapys(loss):
    y, labels = np.array([0] * 30 + [1] * 10), np.array([0] * 20 + [1] * 20)
    options = {} if loss == "ae" else {"eps": 0.5 / 40}
    expected = getattr(quapy.error, loss)(np.array([0.75, 0.25]), np.array([0.5, 0.5]), **options)
    assert get_loss(loss).score(y, labels) == pytest.approx(expected)


@pytest.mark.parametrize("loss", [loss for loss in ALL if loss != "nss"], ids=str)
def test_what_bounds_rest_on(loss):
    """With the count's error apart, a loss falls as a rate rises and grows as the error does."""
    loss = get_loss(loss)
    assert loss.bounded
    rng = np.random.default_rng(0)
    for _ in range(300):
        P, N, p = rng.random(3)
        d = rng.uniform(-(1 - p), p)
        here = loss.function(P, N, d, p, 0.01, loss.theta)
        better = [P + (1 - P) * rng.random(), N + (1 - N) * rng.random()]
        assert loss.function(*better, d, p, 0.01, loss.theta) <= here + 1e-12
        nearer = d * rng.random()
        assert loss.function(P, N, nearer, p, 0.01, loss.theta) <= here + 1e-12


def test_names_of_losses():
    assert get_loss("mae") == get_loss("ae")
    assert get_loss("mrae") == get_loss("rae")
    assert get_loss(BAKLD(0.3)) == get_loss("bakld:0.3")
    assert get_loss("qrecall") != get_loss("q") == get_loss(QMeasure())
    assert get_loss(get_loss("kld")) is not None
    for loss in ALL:
        assert pickle.loads(pickle.dumps(get_loss(loss))) == get_loss(loss)
        assert get_loss(loss).formula
    with pytest.raises(ValueError, match=r"unknown loss 'klx'; known are 01, f1"):
        get_loss("klx")
    with pytest.raises(ValueError, match="evaluation only"):
        get_loss(CQB())
    with pytest.raises(ValueError, match="must be a number"):
        get_loss("bakld:x")
    with pytest.raises(TypeError, match="must be a name or a Measure"):
        get_loss(3)


# ---------------------------------------------------------------------- search


def check_violation(scores, y, loss, expected):
    violation = SeparationOracle(get_loss(loss), y)(scores)
    assert violation.value == pytest.approx(expected, abs=1e-12)
    # What is returned is a labelling, and it has that value.
    n = len(y)
    flipped = violation.weights != 0.0
    np.testing.assert_allclose(violation.weights[flipped], np.where(y, 2 / n, -2 / n)[flipped])
    FN, FP = int((flipped & y).sum()), int((flipped & ~y).sum())
    delta = reference.delta(counted(loss), FN, FP, int(y.sum()), int((~y).sum()))
    assert violation.loss == pytest.approx(delta, abs=1e-12)
    assert delta - violation.weights @ scores == pytest.approx(expected, abs=1e-12)


def draw(rng, n, kind):
    y = np.zeros(n, dtype=bool)
    y[rng.permutation(n)[: rng.integers(1, n)]] = True
    scores = rng.normal(size=n) * rng.choice([0.1, 1.0, 10.0]) + np.where(y, 0.5, -0.5)
    if kind == "ties":
        scores = np.round(scores)
    if kind == "zeros":
        scores = np.zeros(n)
    return scores, y


@pytest.mark.parametrize("loss", ALL, ids=str)
@pytest.mark.parametrize("kind", ["plain", "ties", "zeros"])
def test_the_most_violated_of_all_labellings(loss, kind):
    rng = np.random.default_rng(0)
    for n in (2, 5, 8, 10):
        scores, y = draw(rng, n, kind)
        expected, _ = reference.most_violated_by_labellings(scores, y, counted(loss))
        check_violation(scores, y, loss, expected)


@pytest.mark.parametrize("loss", ALL, ids=str)
@pytest.mark.parametrize("kind", ["plain", "ties"])
def test_the_most_violated_of_all_counts(loss, kind):
    rng = np.random.default_rng(1)
    for n in (30, 90, 200):
        scores, y = draw(rng, n, kind)
        expected, *_ = reference.most_violated_by_counts(scores, y, counted(loss))
        check_violation(scores, y, loss, expected)


def _rate_sum(x, y, p, theta):
    return x + y


def _root_P(P, N, p, theta):
    return np.sqrt(max(P, 0.0) + 0.01)


def _both(P, N, p, theta):
    return 0.3 * P + 0.1 * N


def test_a_custom_measure_is_searched_in_full():
    own = NestedConcave(_rate_sum, _root_P, _both, name="own")
    loss = get_loss(own)
    assert not loss.bounded
    rng = np.random.default_rng(3)
    scores, y = draw(rng, 60, "plain")
    expected, *_ = reference.most_violated_by_counts(scores, y, counted(own))
    check_violation(scores, y, own, expected)
    X, y = make_points(n=60)
    learner = SVMPerfClassifier(own, C=10.0).fit(X, y)
    assert learner.gap_ <= 1e-3
    assert learner.score(X, y) > 0.8


def test_a_search_does_not_depend_on_the_one_before():
    rng = np.random.default_rng(4)
    _, y = draw(rng, 150, "plain")
    searcher = SeparationOracle(get_loss("qgm"), y)
    for _ in range(5):
        scores = rng.normal(size=150)
        fresh = SeparationOracle(get_loss("qgm"), y)(scores)
        assert searcher(scores).value == pytest.approx(fresh.value, abs=1e-14)
    assert searcher.prediction_loss(np.where(y, 1.0, -1.0)) == 0.0
    everything = get_loss("qgm").value(1.0, 0.0, y.mean(), 0.5 / 150)
    assert searcher.prediction_loss(np.ones(150)) == pytest.approx(everything)


# ------------------------------------------------------------------ the small QP


@pytest.mark.parametrize("m", [2, 5, 12])
def test_the_quadratic_programme(m):
    rng = np.random.default_rng(m)
    A = rng.normal(size=(m, 4))
    gram, linear = A @ A.T, rng.normal(size=m)
    alpha = np.zeros(m)
    alpha[0] = 3.0
    steps = minimise(gram, linear, alpha, 1e-10, 1_000_000)
    assert 0 < steps < 1_000_000
    assert alpha.sum() == pytest.approx(3.0)
    assert (alpha >= 0).all()

    def value(a):
        return 0.5 * a @ gram @ a - linear @ a

    peer = scipy_minimize(
        value,
        np.full(m, 3.0 / m),
        jac=lambda a: gram @ a - linear,
        bounds=[(0, None)] * m,
        constraints={"type": "eq", "fun": lambda a: a.sum() - 3.0},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert value(alpha) == pytest.approx(peer.fun, abs=1e-6)
    assert value(alpha) <= peer.fun + 1e-9
    # At the minimum no slope of a positive coordinate is above the least.
    slope = gram @ alpha - linear
    assert slope[alpha > 0].max() - slope.min() <= 1.01e-10
    assert minimise(gram, linear, alpha, 1e-10, 1_000_000) <= 1
    assert minimise(gram, linear, np.full(m, 1.0), 1e-10, 1) == 1


# -------------------------------------------------------------- structural SVM


@pytest.mark.parametrize("loss", ALL, ids=str)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_optimum_of_all_constraints_together(loss, fit_intercept):
    """Small problems, every labelling a constraint, solved by another method."""
    rng = np.random.default_rng(0)
    for n, C in ((6, 0.3), (7, 5.0), (8, 100.0)):
        X = rng.normal(size=(n, 2))
        y = np.arange(n) < rng.integers(2, n - 1)
        w, b, value = reference.solve(X, y, C, counted(loss), fit_intercept)
        learner = SVMPerfClassifier(loss, C=C, tol=1e-10, fit_intercept=fit_intercept).fit(X, y)
        found = learner.coef_[0], learner.intercept_[0]
        assert reference.objective(X, y, *found, C, counted(loss)) == pytest.approx(value, abs=1e-8)
        np.testing.assert_allclose(found[0], w, atol=1e-3)
        assert found[1] == pytest.approx(b, abs=1e-3)


@pytest.mark.parametrize("loss", ["kld", "qrecall", "f1", "bakld:0.5"])
@pytest.mark.parametrize("C", [0.1, 10.0, 1000.0])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_the_gap_from_scratch(loss, C, container):
    """Primal and dual recomputed: J by the reference, the dual from its planes, each of which must hold."""
    X, y = make_points(n=150, d=4)
    learner = SVMPerfClassifier(loss, C=C, tol=1e-3, warm_start=True).fit(container(X), y)
    w, b = learner.coef_[0], learner.intercept_[0]
    primal = reference.objective(X, y, w, b, C, counted(loss))
    planes = learner.planes_
    assert (planes.alpha >= 0).all()
    assert planes.alpha.sum() == pytest.approx(C)
    mixed = planes.alpha @ planes.normals
    dual = (planes.alpha @ planes.losses - 0.5 * mixed @ mixed) / C
    assert primal - dual <= 1e-3 + 1e-12
    assert primal - dual == pytest.approx(learner.gap_, abs=1e-10)
    assert learner.history_["primal"][-1] == pytest.approx(primal, abs=1e-10)
    assert learner.history_["dual"][-1] == pytest.approx(dual, abs=1e-10)
    rng = np.random.default_rng(0)
    for _ in range(10):
        any_w = rng.normal(size=5) * rng.choice([0.1, 1.0, 10.0])
        risk, *_ = reference.most_violated_by_counts(X @ any_w[:4] + any_w[4], y, counted(loss))
        assert (planes.losses - planes.normals @ any_w <= risk + 1e-9).all()


@pytest.mark.parametrize("C", [1.0, 100.0])
def test_where_nothing_beats_weights_of_zero(C):
    """Rare positives: J is least at 0, to within the tolerance, and weights are found that classify all the same."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 4))
    scores = X[:, 0] + rng.normal(size=1000)
    y = scores >= np.sort(scores)[-30]
    learner = SVMPerfClassifier("qrecall", C=C).fit(X, y)
    at_zero = reference.objective(X, y, np.zeros(4), 0.0, C, counted("qrecall"))
    found = reference.objective(
        X, y, learner.coef_[0], learner.intercept_[0], C, counted("qrecall")
    )
    assert at_zero - learner.history_["dual"][-1] <= 1e-3
    assert found - learner.history_["dual"][-1] == pytest.approx(learner.gap_, abs=1e-10)
    assert learner.gap_ <= 1e-3
    assert get_loss("qrecall").score(y, learner.predict(X)) < 0.5  # 1 if all rows have one label
    # Without anything to learn from there are no other weights.
    nothing = SVMPerfClassifier("qrecall", C=C, fit_intercept=False).fit(np.zeros((1000, 4)), y)
    assert not nothing.coef_.any()
    assert nothing.gap_ <= 1e-3


def test_history_is_of_every_iteration():
    X, y = make_points(n=500)
    learner = SVMPerfClassifier("kld", C=1000.0, tol=1e-4).fit(X, y)
    history = learner.history_
    assert {len(column) for column in history.values()} == {learner.n_iter_}
    assert learner.n_iter_ > 5
    assert (np.diff(history["seconds"]) > 0).all()
    assert (np.diff(history["primal"]) <= 0).all()
    assert (np.diff(history["dual"]) >= -1e-9).all()
    np.testing.assert_allclose(
        history["gap"], np.subtract(history["primal"], history["dual"]), atol=1e-12
    )
    assert history["gap"][-1] == learner.gap_ <= 1e-4
    # The first weights are zero, and predict nobody positive.
    assert history["loss"][0] == pytest.approx(get_loss("kld").score(y, np.zeros(500, dtype=bool)))


def test_the_zero_one_loss_is_the_linear_svm():
    X, y = make_points(n=300, d=5)
    for C in (1.0, 100.0):
        learner = SVMPerfClassifier("01", C=C, tol=1e-7, max_iter=5000).fit(X, y)
        svc = LinearSVC(loss="hinge", C=4 * C / 300, tol=1e-10, max_iter=1_000_000, random_state=0)
        svc.fit(X, y)
        np.testing.assert_allclose(2 * learner.coef_, svc.coef_, atol=2e-3)
        np.testing.assert_allclose(2 * learner.intercept_, svc.intercept_, atol=2e-3)
        near = np.abs(svc.decision_function(X)) < 1e-2
        np.testing.assert_array_equal(learner.predict(X)[~near], svc.predict(X)[~near])
        # LinearSVC's objective at its weights, in units of ours: (½‖2w‖² + C_svc·Σ hinge)/(4C).
        w = np.append(svc.coef_[0], svc.intercept_[0])
        hinge = np.maximum(1 - np.where(y, 1, -1) * svc.decision_function(X), 0).sum()
        theirs = (0.5 * w @ w + 4 * C / 300 * hinge) / (4 * C)
        assert learner.history_["primal"][-1] == pytest.approx(theirs, abs=1e-6)


def test_warm_start_over_a_grid():
    X, y = make_points(n=400)
    warm = SVMPerfClassifier("kld", warm_start=True, tol=1e-4)
    steps = []
    for C in (1.0, 10.0, 100.0, 1000.0):
        warm.set_params(C=C).fit(X, y)
        cold = SVMPerfClassifier("kld", C=C, tol=1e-4).fit(X, y)
        primal = [learner.history_["primal"][-1] for learner in (warm, cold)]
        assert abs(primal[0] - primal[1]) <= 1e-4
        steps.append((warm.n_iter_, cold.n_iter_))
    assert steps[-1][0] < steps[-1][1]
    assert warm.fit(X, y).n_iter_ <= 3
    # Planes of other data, of another loss or without an intercept are of no use.
    for change in ({"loss": "ae"}, {"fit_intercept": False}):
        other = copy.deepcopy(warm).set_params(**change).fit(X, y)
        fresh = clone(other).fit(X, y)
        np.testing.assert_array_equal(other.coef_, fresh.coef_)
    np.testing.assert_array_equal(warm.fit(2 * X, y).coef_, clone(warm).fit(2 * X, y).coef_)
    assert SVMPerfClassifier("kld").fit(X, y).planes_ is None


def test_planes_that_do_not_matter_are_dropped(monkeypatch):
    X, y = make_points(n=500)
    kept = SVMPerfClassifier("kld", C=1e4, tol=1e-4, warm_start=True).fit(X, y)
    monkeypatch.setattr(svmperf, "_IDLE", 2)
    dropped = SVMPerfClassifier("kld", C=1e4, tol=1e-4, warm_start=True).fit(X, y)
    assert len(dropped.planes_) < len(kept.planes_)
    assert dropped.gap_ <= 1e-4
    primal = [learner.history_["primal"][-1] for learner in (kept, dropped)]
    assert abs(primal[0] - primal[1]) <= 1e-4


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"C": 0.0}, r"C must be positive; got 0\.0"),
        ({"C": -1}, "C must be positive; got -1"),
        ({"C": np.inf}, "C must be finite"),
        ({"tol": 0}, "tol must be positive"),
        ({"max_iter": 0}, "max_iter must be at least 1"),
        ({"loss": "hinge"}, "unknown loss 'hinge'"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y = make_points(n=50)
    with pytest.raises(ValueError, match=message):
        SVMPerfClassifier(**parameters).fit(X, y)


def test_no_convergence():
    X, y = make_points(n=200)
    learner = SVMPerfClassifier("kld", C=1e4, max_iter=3)
    with pytest.warns(ConvergenceWarning, match=r"gap is .* after max_iter=3 cutting planes"):
        learner.fit(X, y)
    assert learner.n_iter_ == 3
    assert learner.gap_ > 1e-3


def test_progress_is_printed(capsys):
    X, y = make_points(n=200)
    SVMPerfClassifier("kld", C=100.0, verbose=1).fit(X, y)
    assert "cutting planes" in capsys.readouterr().out


# ------------------------------------------------------------------------ 1PMB


def one_pass(loss, **parameters):
    parameters = {"eta0": 0.5, "radius": np.inf, "buffer_size": 20, **parameters}
    return OnePassMiniBatchClassifier(loss, n_passes=1, shuffle=False, **parameters)


@pytest.mark.parametrize("loss", ["kld", "nkld", "ae", "rae", "01", "ba", "bakld:0.3"])
@pytest.mark.parametrize("average", ["last", "all", "suffix"])
@pytest.mark.parametrize("radius", [np.inf, 0.4])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("intercept", [True, False])
def test_one_pass_against_the_reference(loss, average, radius, container, intercept):
    """Losses with one maximum only at zero weights, where all scores tie."""
    X, y = make_points(n=330, d=4, share=0.2, seed=5)
    X[np.abs(X) < 0.3] = 0.0
    y[:20] = False  # a buffer without positives
    options = {"average": average, "radius": radius, "fit_intercept": intercept}
    expected = reference.one_pass_mini_batch(
        X, y, counted(loss), 0.5, radius, 20, average, intercept
    )
    learner = one_pass(loss, **options).fit(container(X), y)
    np.testing.assert_allclose(learner.coef_[0], expected.coef, atol=1e-10)
    assert learner.intercept_[0] == pytest.approx(expected.intercept, abs=1e-10)
    assert learner.t_ == 330


@pytest.mark.parametrize("loss", ["kld", "qrecall", "f1", "q"], ids=str)
def test_one_pass_with_defaults_learns(loss):
    X, y = make_points(n=6000, noise=1.0)
    learner = OnePassMiniBatchClassifier(loss, random_state=0).fit(X[:4000], y[:4000])
    assert len(learner.tuning_["eta0"]) == 16
    value = get_loss(loss).score(y[4000:], learner.predict(X[4000:]))
    peer = SVMPerfClassifier(loss, C=1000.0).fit(X[:4000], y[:4000])
    assert value < get_loss(loss).score(y[4000:], peer.predict(X[4000:])) + 0.02
    assert get_measure("ba").score(y[4000:], learner.predict(X[4000:])) > 0.75
    same = OnePassMiniBatchClassifier(loss, random_state=0).fit(X[:4000], y[:4000])
    np.testing.assert_array_equal(same.coef_, learner.coef_)
    if not get_loss(loss).prevalence_only:
        # A candidate may have had its best value in an early pass, and have been overtaken.
        pairs = list(zip(learner.tuning_["eta0"], learner.tuning_["radius"], strict=True))
        chosen = pairs.index((learner.eta0_, learner.radius_))
        assert learner.tuning_["value"][chosen] <= np.nanmin(learner.tuning_["value"]) + 0.02


def test_one_pass_refuses():
    X, y = make_points(n=100)
    with pytest.raises(ValueError, match="buffer_size must be at least 1"):
        OnePassMiniBatchClassifier(buffer_size=0).fit(X, y)
    with pytest.raises(ValueError, match="unknown loss"):
        OnePassMiniBatchClassifier("nothing").fit(X, y)
    learner = one_pass("kld").partial_fit(X, y)
    with pytest.raises(ValueError, match="average and buffer_size cannot change"):
        learner.set_params(buffer_size=10).partial_fit(X, y)
    assert learner.set_params(buffer_size=20).partial_fit(X, y).t_ == 200


def test_rows_taken_and_joined():
    X, _ = make_points(n=50)
    X[np.abs(X) < 0.8] = 0.0
    order = np.array([3, 3, 49, 0, 7])
    for container in (np.asarray, scipy.sparse.csr_matrix):
        rows = as_rows(container(X))
        expected = X[np.concatenate([order, order[:2]])]
        for other in (rows, as_rows(X), as_rows(scipy.sparse.csr_matrix(X))):
            both = join_rows(rows.take(order), other.take(order[:2]))
            assert len(both) == len(expected)
            matrix = scipy.sparse.csr_matrix(both.matrix())
            np.testing.assert_array_equal(matrix.toarray(), expected)
