"""Step sizes and radii that nobody has to choose, and posteriors."""

import copy
import warnings

import numpy as np
import pytest
import scipy.sparse
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from quapy_nemsis import (
    BA,
    NegKLD,
    NEMSISClassifier,
    QMeasure,
    SCANClassifier,
    SPADEClassifier,
    get_measure,
)
from quapy_nemsis._kernels.batch import score_all, score_all_in_fours
from quapy_nemsis._kernels.rows import as_rows
from quapy_nemsis.learners.calibration import Calibration
from quapy_nemsis.learners.nemsis import NemsisState
from quapy_nemsis.learners.state import UNWEIGHTED, Data, are_worth_fours, fours
from quapy_nemsis.learners.tuning import (
    STREAM_STEP_SIZES,
    CandidateScores,
    candidates,
    held_out_scores,
)
from tests.conftest import make_points

LEARNERS = [NEMSISClassifier("q"), NEMSISClassifier("kld"), SCANClassifier("cq")]


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
def test_defaults_do_well_at_any_scale(learner):
    X, y = make_points(n=6000, noise=1.0)
    measure, kind = get_measure(learner.measure), type(learner)

    def labels(scale, container=np.asarray, **parameters):
        rows = container(scale * X)
        one = kind(learner.measure, random_state=0, **parameters).fit(rows[:4000], y[:4000])
        return one.predict(rows[4000:])

    steps = (0.001, 0.01, 0.1, 1.0, 10.0)
    given = [labels(1.0, eta0=eta0, radius=np.inf) for eta0 in steps]
    best = max(measure.score(y[4000:], found) for found in given)
    for scale in (1e-4, 0.1, 1.0, 1e3):
        for container in (np.asarray, scipy.sparse.csr_matrix):
            found = labels(scale, container)
            assert measure.score(y[4000:], found) > best - 0.02
            assert BA().score(y[4000:], found) > 0.75


def test_the_record_of_a_choice():
    X, y = make_points(n=3000)
    learner = NEMSISClassifier("q", random_state=0).fit(X, y)
    table = learner.tuning_
    assert len(set(zip(table["eta0"], table["radius"], strict=True))) == 8 * 5
    pairs = list(zip(table["eta0"], table["radius"], strict=True))
    chosen = pairs.index((learner.eta0_, learner.radius_))
    # Posteriors decide between candidates that are as good as the best, up to two standard errors.
    assert table["value"][chosen] >= np.max(table["value"]) - 0.02
    # What was chosen is what is trained.
    same = NEMSISClassifier("q", shuffle=False, random_state=0).fit(X, y)
    again = NEMSISClassifier("q", eta0=same.eta0_, radius=same.radius_, shuffle=False).fit(X, y)
    np.testing.assert_array_equal(again.coef_, same.coef_)
    assert again.tuning_ == {}


def test_given_values_stay():
    X, y = make_points(n=1000)
    step = NEMSISClassifier(eta0=0.3, random_state=0).fit(X, y)
    assert set(step.tuning_["eta0"]) == {0.3}
    assert len(step.tuning_["radius"]) == 5
    ball = NEMSISClassifier(radius=0.5, random_state=0).fit(X, y)
    assert set(ball.tuning_["radius"]) == {0.5}
    assert np.linalg.norm(ball.coef_) <= 0.5
    assert NEMSISClassifier(eta0=0.3, radius=0.5).fit(X, y).tuning_ == {}


def test_the_grid_follows_the_scale():
    X, _ = make_points(n=100)
    settings = NEMSISClassifier().settings()
    plain, larger = candidates(X, settings, True), candidates(10.0 * X, settings, True)
    sparse = candidates(scipy.sparse.csr_matrix(X), settings, True)
    for one, other, same in zip(plain, larger, sparse, strict=True):
        assert other.eta0 == pytest.approx(one.eta0 / 100)
        assert other.radius == pytest.approx(one.radius / 10)
        assert (same.eta0, same.radius) == pytest.approx((one.eta0, one.radius))


def two_class_scores(positives, negatives, hits_pos, hits_neg):
    """Scores of candidates on one fold: what is not found in its class is counted for the other."""
    members, hits = np.array([negatives, positives]), np.column_stack([hits_neg, hits_pos])
    counted = hits + (members - hits)[:, ::-1]
    return CandidateScores(members[np.newaxis], hits[np.newaxis], counted[np.newaxis])


def test_ties_of_a_count_are_broken_by_ba():
    """Counts of two candidates are right within noise: the one that classifies wins; a wrong count does not."""
    found = two_class_scores(300.0, 700.0, [100.0, 260.0, 290.0], [505.0, 655.0, 400.0])
    ranking = found.ranking(NegKLD())
    assert np.argmax(ranking) == 1
    assert ranking[2] == -np.inf
    assert np.argmax(found.values(NegKLD())) in (0, 1)
    assert np.argmax(found.ranking(QMeasure())) == 1
    error, deviation = two_class_scores(2.0, 2.0, [2.0], [1.0]).count_errors()
    assert error[0] == 0.25
    assert deviation[0] == pytest.approx(np.std([0, 0, 1, 0]) / 2)


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("n", [700, 5000])  # in one thread, and in several
def test_learners_side_by_side_are_what_they_are_alone(learner, container, n):
    X, y = make_points(n=n, d=6)
    rows, order = as_rows(container(X)), np.random.default_rng(0).permutation(n)
    candidates = [
        copy.deepcopy(learner).set_params(eta0=eta0, radius=radius).settings()
        for eta0, radius in [(0.1, np.inf), (1.0, 0.5), (1e308, np.inf), (0.01, 3.0), (3.0, np.inf)]
    ]
    kind = learner.state_type
    states = [kind.start(6, 2, settings) for settings in candidates]
    alone = [state.copy() for state in states]
    fine = kind.learn_together(states, rows, y, order[:301])
    assert fine == [True, True, False, True, True]
    del states[2], alone[2]
    assert all(kind.learn_together(states, rows, y, order[301:]))
    for state, expected in zip(states, alone, strict=True):
        assert expected.learn(rows, y, order)
        assert state.t == expected.t == n
        weights, intercept = state.model()
        np.testing.assert_array_equal(weights, expected.model()[0])
        assert intercept == expected.model()[1]
        assert state.rates() == expected.rates()


def alone_and_in_parts(learner, X, y, n_classes, weights=UNWEIGHTED):
    """Models of learners that leave out a part each, and of learners that are only given the other parts."""
    rows, rng = as_rows(X), np.random.default_rng(0)
    parts = rng.integers(0, 4, len(y)).astype(np.int8)
    settings, kind = learner.settings(n_classes), learner.state_type
    together, alone = (
        [kind.start(X.shape[1], n_classes, settings) for _ in range(4)] for _ in range(2)
    )
    for _ in range(2):
        order = rng.permutation(len(y))
        assert kind.learn_parts(together, rows, y, order, parts, weights) == [True] * 4
        for k, state in enumerate(alone):
            assert state.learn(rows, y, order[parts[order] != k], weights)
    return together, alone


@pytest.mark.parametrize(
    "learner", [NEMSISClassifier("q"), SCANClassifier("cq"), SPADEClassifier("kld")], ids=str
)
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("cores", [1, 3])
def test_learners_of_folds_are_what_they_are_alone(learner, container, cores, monkeypatch):
    """In one walk over the rows, on any number of processors, each has the weights of its own rows in this order."""
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setattr("quapy_nemsis.learners.state._WORTH_THREADS", 0)
    learner = copy.deepcopy(learner).set_params(eta0=0.3, radius=1.5)
    X, y = make_points(n=700, d=6)
    cases = [alone_and_in_parts(learner, container(X), y, 2)]
    if not isinstance(learner, SPADEClassifier):
        codes, weights = (y + 2 * (X[:, 1] > 0.5)).astype(np.int32), 1.0 + np.arange(700.0) % 3
        cases.append(alone_and_in_parts(learner, container(X), codes, 4, weights))
    for states in cases:
        for state, expected in zip(*states, strict=True):
            assert state.t == expected.t
            for found, wanted in zip(state.model(), expected.model(), strict=True):
                np.testing.assert_array_equal(found, wanted)


def same_states(states, others):
    """Whether every number of the states is the same, to the last bit."""
    names = ("v", "correction", "previous", "numbers")
    return all(
        getattr(state, name).tobytes() == getattr(other, name).tobytes()
        for state, other in zip(states, others, strict=True)
        for name in names
    )


@pytest.mark.parametrize("n_learners", [2, 5, 8, 13])
@pytest.mark.parametrize(
    ("average", "reward", "dtype"),
    [("suffix", "logistic", np.float64), ("last", "hinge", np.float32), ("all", "hinge", float)],
)
def test_learners_in_fours_are_what_they_are_alone(n_learners, average, reward, dtype, monkeypatch):
    """Learners of CSR rows, of which four share a cache line, in all that is done to weights now and then."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    X, y = make_points(n=2000, d=5)
    X = scipy.sparse.csr_matrix((X * (np.abs(X) > 0.5)).astype(dtype))
    # Small radii make the scale so small that weights are multiplied by it; a norm is computed anew at 65,536.
    radii, rng = np.geomspace(1e-5, 1e3, n_learners), np.random.default_rng(0)
    learner = NEMSISClassifier("q", average=average, reward=reward, eta0=1.0)
    settings = [learner.set_params(radius=radius).settings() for radius in radii]
    states, alone = ([NemsisState.start(5, 2, one) for one in settings] for _ in range(2))
    rows, order, weights = as_rows(X), rng.integers(0, 2000, 66_000), 1.0 + np.arange(2000.0) % 2
    assert NemsisState.learn_together(states, rows, y, order, weights) == [True] * n_learners
    assert all(state.learn(rows, y, order, weights) for state in alone)
    assert same_states(states, alone)
    # Learners that leave rows out, of which one is infinite and one too large for its square.
    X.data[X.indptr[7]], X.data[X.indptr[11]] = np.inf, 3e38 if dtype is np.float32 else 1e200
    parts = np.full(2000, n_learners, dtype=np.int8)
    parts[[7, 11]] = 1
    stayed = NemsisState.learn_parts(states, rows, y, order, parts, weights)
    left = parts[order] != 1
    assert stayed[1]
    assert stayed == [
        state.learn(rows, y, order[left] if k == 1 else order, weights)
        for k, state in enumerate(alone)
    ]
    assert same_states(states[1:2], alone[1:2])


@pytest.mark.parametrize("n_models", [1, 4, 6, 9])
def test_models_in_fours_score_as_they_do_alone(n_models):
    X, rng = make_points(n=300, d=7)[0], np.random.default_rng(0)
    rows, places = as_rows(scipy.sparse.csr_matrix(X * (X > 0.0))), rng.permutation(300)
    models, intercepts = rng.normal(size=(n_models, 7)), rng.normal(size=n_models)
    weights, lanes = fours(n_models, 7)
    assert weights.ctypes.data % 64 == 0
    for lane, model in zip(lanes, models, strict=True):
        lane[0] = model
    scores = [np.zeros((300, n_models)) for _ in range(2)]
    for kernel, table, found in zip(
        (score_all, score_all_in_fours), (models, weights), scores, strict=True
    ):
        scratch = np.zeros((len(weights), 8)), np.zeros((n_models, 2))
        kernel(rows, places, table, intercepts, *scratch, found)
    np.testing.assert_array_equal(*scores)
    np.testing.assert_allclose(scores[0], rows.matrix()[places] @ models.T + intercepts)


def test_learners_lie_in_fours_if_they_make_enough_steps():
    X = scipy.sparse.random(100, 5000, density=0.01, format="csr", random_state=0)
    assert are_worth_fours(2, as_rows(X), 101)
    assert not are_worth_fours(2, as_rows(X), 99)
    assert not are_worth_fours(1, as_rows(X), 1000)
    assert not are_worth_fours(2, as_rows(X.toarray()), 1000)


def test_candidates_that_diverge_do_no_harm():
    """Rows so large that the greater steps overflow: they are recorded as failed, and the rest decides."""
    X, y = make_points(n=1000)
    X[:5] *= 1e153
    learner = NEMSISClassifier("ba", radius=np.inf, random_state=0)
    learner.fit(X, y)
    assert np.isfinite(learner.coef_).all()


@pytest.mark.parametrize("learner", [NEMSISClassifier("q"), SCANClassifier("cq")], ids=str)
def test_the_tuner_of_a_stream(learner):
    X, y = make_points(n=20_000)
    whole = copy.deepcopy(learner).partial_fit(X, y)
    assert len(whole.state_.alive) == 1
    assert whole.eta0_ in STREAM_STEP_SIZES
    assert len(whole.tuning_["value"]) == len(STREAM_STEP_SIZES)
    measure = get_measure(learner.measure)
    best = copy.deepcopy(learner).set_params(eta0=1.0).partial_fit(X, y)
    score = measure.score(y, whole.predict(X))
    assert score > measure.score(y, best.predict(X)) - 0.02
    # The winner is what it would be alone.
    alone = copy.deepcopy(learner).set_params(eta0=whole.eta0_).partial_fit(X, y)
    np.testing.assert_array_equal(whole.coef_, alone.coef_)


def test_what_was_chosen_stays():
    """A stream that goes on after `fit`, and a step size that is given in the middle of a choice."""
    X, y = make_points(n=2000)
    learner = NEMSISClassifier(eta0=0.5, shuffle=False, n_passes=1, random_state=0).fit(X, y)
    given = NEMSISClassifier(eta0=0.5, radius=learner.radius_, shuffle=False, n_passes=1)
    given.fit(X, y).partial_fit(X, y)
    np.testing.assert_array_equal(learner.partial_fit(X, y).coef_, given.coef_)
    tuned = NEMSISClassifier().partial_fit(X, y)
    best = copy.deepcopy(tuned.state_.states[tuned.state_.best])
    tuned.set_params(eta0=0.01).partial_fit(X, y)
    assert tuned.eta0_ == 0.01
    assert tuned.t_ == 4000
    assert best.t == 2000
    tuned.partial_fit(X, y)
    assert tuned.t_ == 6000


def test_the_tuner_drops_halves():
    X, y = make_points(n=20_000)
    learner = NEMSISClassifier("q")
    alive = []
    for stop in (1000, 4095, 4096, 8192, 16384):
        chunk = slice(learner.t_ if alive else 0, stop)
        learner.partial_fit(X[chunk], y[chunk])
        alive.append(len(learner.state_.alive))
    assert alive == [8, 8, 4, 2, 1]
    assert learner.state_.is_settled()
    assert learner.predict(X).shape == (20_000,)


def test_a_bad_chunk_in_a_tuner_loses_nothing():
    X, y = make_points(n=3000)
    learner = NEMSISClassifier("q").partial_fit(X[:1500], y[:1500])
    with pytest.raises(ValueError, match="contains NaN"):
        learner.partial_fit(X * np.nan, y)
    learner.partial_fit(X[1500:], y[1500:])
    np.testing.assert_array_equal(learner.coef_, NEMSISClassifier("q").partial_fit(X, y).coef_)


def test_a_stream_keeps_the_latest_scores():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=5000)
    positive = rng.random(5000) < expit(scores)
    few = Calibration.of(scores[:900], positive[:900])
    assert len(Calibration.latest(few, scores[:1], positive[:1], UNWEIGHTED).scores) == 901
    # Of 900 scores that grow with the posterior and 5,000 that fall with it, the last 4,096 fall.
    late = Calibration.latest(few, -scores, positive, UNWEIGHTED)
    assert len(late.scores) == 4096
    assert np.ptp(late.probabilities(np.linspace(-1, 1, 50))[:, 1]) < 0.05 < positive.mean()


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_held_out_scores_are_those_of_learners_that_have_not_learned_the_rows(n_classes, shuffle):
    """A row's own label is learned by heart where every row has a feature of its own, unless the row is held out."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, n_classes, 200).astype(np.int32)
    X = np.eye(200)
    data = Data(X, labels == 1 if n_classes == 2 else labels, n_classes)
    settings = NEMSISClassifier("ba", eta0=1.0, radius=np.inf, fit_intercept=False).settings(
        n_classes
    )
    state_type = NEMSISClassifier.state_type
    points, model, members = held_out_scores(data, settings, state_type, 3, shuffle, rng)
    assert len(points.labels) == 200
    np.testing.assert_array_equal(np.bincount(points.labels), np.bincount(data.labels))
    np.testing.assert_array_equal(points.scores, 0.0)
    assert (np.abs(model[0]).sum(axis=0) > 0).all()  # four of five have learned each row
    assert len(members) == 5
    np.testing.assert_allclose(model[0], np.mean([weights for weights, _ in members], axis=0))
    again = held_out_scores(data, settings, state_type, 3, shuffle, np.random.default_rng(3))
    other = held_out_scores(data, settings, state_type, 3, shuffle, np.random.default_rng(3))
    np.testing.assert_array_equal(again[1][0], other[1][0])


@pytest.mark.parametrize("reward", ["hinge", "logistic"])
@pytest.mark.parametrize("share", [0.5, 0.05])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("learner", [NEMSISClassifier("ba"), SCANClassifier("cq")], ids=str)
def test_posteriors_are_calibrated_under_imbalance(reward, share, stream, learner):
    """Gaussian classes: the true posterior is known, and the learner's must come near it."""
    X, y = make_points(n=40_000, d=3, share=share, seed=0)
    learner = copy.deepcopy(learner).set_params(reward=reward, random_state=0)
    if stream:
        for start in range(0, 40_000, 2000):
            chunk = slice(start, start + 2000)
            learner.partial_fit(X[chunk], y[chunk], classes=[False, True])
    else:
        learner.fit(X, y)
    posterior = learner.predict_proba(X)
    assert posterior.shape == (40_000, 2)
    np.testing.assert_allclose(posterior.sum(axis=1), 1.0)
    true = expit(2.0 * X[:, 0] + np.log(share / (1 - share)))
    assert np.abs(posterior[:, 1] - true).mean() < 0.03
    assert posterior[:, 1].mean() == pytest.approx(y.mean(), abs=0.02)
    order = np.argsort(learner.decision_function(X))
    assert (np.diff(posterior[order, 1]) >= 0).all()
    near = LogisticRegression().fit(X, y).predict_proba(X)[:, 1]
    assert np.abs(posterior[:, 1] - near).mean() < 0.03


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_features_on_different_scales_are_pointed_out(container, call):
    X, y = make_points(n=500)
    X[:, 2] *= 1e4
    with pytest.warns(UserWarning, match=r"feature 2 is about \S+e\+0[34] .*StandardScaler"):
        getattr(NEMSISClassifier(random_state=0), call)(container(X), y)
    X[:, 2] /= 1e4
    X[:, 3] = 0.0
    X[7, 4] = 30.0  # an outlier is not a scale
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(NEMSISClassifier(random_state=0), call)(container(X), y)
        # Nor is a rare feature, as such or standardised; nor one that was standardised over more rows than these.
        rare = (np.arange(500) == 3).astype(float)
        for column in (rare, (rare - rare.mean()) / rare.std(), np.full(500, -1e-4)):
            getattr(NEMSISClassifier(random_state=0), call)(np.column_stack([X, column]), y)


@pytest.mark.parametrize("n", [20_000, 150_000])
def test_posteriors_outlive_the_change_from_fit_to_a_stream(n):
    X, y = make_points(n=n, d=3, share=0.2, noise=0.7)
    learner = NEMSISClassifier("ba", eta0=0.1, radius=1.0, n_passes=1, random_state=0).fit(X, y)
    before = learner.predict_proba(X)[:, 1]
    after = learner.partial_fit(X[:50], y[:50]).predict_proba(X)[:, 1]
    assert before.mean() == pytest.approx(y.mean(), abs=0.01)
    assert after.mean() == pytest.approx(y.mean(), abs=0.02)
    assert np.abs(after - before).mean() < 0.02


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
def test_the_warning_of_scales_points_to_the_caller(way):
    X, y = make_points(n=100)
    X[:, 0] *= 1e6
    with pytest.warns(UserWarning, match="very different scales") as caught:
        getattr(NEMSISClassifier(), way)(X, y)
    assert caught[0].filename == __file__
