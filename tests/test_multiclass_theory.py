"""What theory says of K classes: convergence, the alternation of levels, posteriors, and where concavity ends."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from scipy.special import log_softmax, softmax
from sklearn.base import clone

from quapy_nemsis import CANClassifier, CQReward, NEMSISClassifier, SCANClassifier, get_measure
from quapy_nemsis.learners.calibration import ClassCalibration
from quapy_nemsis.measures import BA
from tests.test_convergence import SIZES, THEORY

SHARES = {3: [30, 20, 10], 4: [24, 16, 12, 8]}


def population(k, seed=0, d=4, distance=0.6):
    """A distribution of finitely many points, so that its rates and its best model are known exactly."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(k), SHARES[k])
    return distance * rng.normal(size=(k, d))[y] + rng.normal(size=(len(y), d)), y


def softmax_rates(scores, y):
    """Mean rewards 1 + (ln 2/ln K)·ln softmax, counted mass and shares, written from the definitions."""
    n, k = scores.shape
    own = np.arange(n), y
    rewards = 1.0 + np.log(2.0) / np.log(k) * log_softmax(scores, axis=1)[own]
    others = scores.copy()
    others[own] = -np.inf
    mass = (1.0 - rewards)[:, None] * softmax(others, axis=1)
    mass[own] = rewards
    members = np.bincount(y, minlength=k)
    return np.bincount(y, rewards) / members, mass.mean(axis=0), members / n


def hinge_rates(scores, y):
    """The same with the reward of Crammer and Singer, min(1, f_own − highest other score)."""
    n, k = scores.shape
    own = np.arange(n), y
    others = scores.copy()
    others[own] = -np.inf
    rival = np.arange(n), others.argmax(axis=1)
    rewards = np.minimum(1.0, scores[own] - scores[rival])
    mass = np.zeros((n, k))
    mass[rival] = 1.0 - rewards
    mass[own] = rewards
    members = np.bincount(y, minlength=k)
    return np.bincount(y, rewards) / members, mass.mean(axis=0), members / n


def objective(measure, X, y, learner, rates=softmax_rates):
    """The measure at the exact mean rewards of a learner's model."""
    return measure.class_value(*rates(X @ learner.coef_.T + learner.intercept_, y))


def best_by_quasi_newton(measure, X, y):
    """The highest value of a smooth measure, with gradients taken numerically."""
    k = y.max() + 1

    def loss(model):
        parts = model.reshape(k, -1)
        return -measure.class_value(*softmax_rates(X @ parts[:, :-1].T + parts[:, -1], y))

    found = minimize(loss, np.zeros(k * (X.shape[1] + 1)), tol=1e-10)
    return -found.fun


def best_hinge_ba(X, y):
    """The highest BA of hinge rewards: a linear program in weights, intercepts and rewards."""
    n, k, d = len(y), y.max() + 1, X.shape[1] + 1
    rows = np.column_stack([X, np.ones(n)])
    blocks = []
    for i, own in enumerate(y):
        for j in set(range(k)) - {own}:  # reward_i − (f_own − f_j) ≤ 0
            line = np.zeros(k * d + n)
            line[own * d : (own + 1) * d], line[j * d : (j + 1) * d] = -rows[i], rows[i]
            line[k * d + i] = 1.0
            blocks.append(line)
    gain = np.concatenate([np.zeros(k * d), 1.0 / (k * np.bincount(y)[y])])
    bounds = [(None, None)] * (k * d) + [(None, 1.0)] * n
    found = linprog(-gain, np.array(blocks), np.zeros(len(blocks)), bounds=bounds)
    return -found.fun


def gaps_to(optimum, learner, measure, X, y, rates=softmax_rates, seeds=8):
    """Mean suboptimality of the averaged model after streams of so many points, over seeds."""
    gaps = np.zeros(len(SIZES))
    for seed in range(seeds):
        stream = np.random.default_rng(seed).integers(len(y), size=SIZES[-1])
        fresh, start = clone(learner), 0
        for i, stop in enumerate(SIZES):
            part = stream[start:stop]
            fresh.partial_fit(X[part], y[part], classes=np.arange(y.max() + 1))
            start = stop
            gaps[i] += (optimum - objective(measure, X, y, fresh, rates)) / seeds
    return gaps, fresh


def rate_of(gaps):
    """The exponent of T in the gaps."""
    return np.polyfit(np.log(SIZES), np.log(gaps), 1)[0]


# ------------------------------------------------------------------- convergence


@pytest.mark.parametrize("name", ["ba", "gmean", "hmean", "qmean"])
def test_suboptimality_shrinks_like_the_root_of_the_stream(name):
    """Measures that grow with the recalls, of concave rewards, are concave in W. 1/√T or better."""
    measure = get_measure(name)
    X, y = population(4)
    best = CANClassifier(measure, tol=1e-9).fit(X, y).levels_[-1]
    assert best == pytest.approx(best_by_quasi_newton(measure, X, y), abs=1e-5)
    gaps, _ = gaps_to(best, NEMSISClassifier(measure, **THEORY), measure, X, y)
    assert (gaps > 0).all()
    assert rate_of(gaps) <= -0.5
    assert gaps[-1] < 0.001


@pytest.mark.parametrize("average", ["all", "suffix"])
def test_suboptimality_of_the_hinge_shrinks_too(average):
    """With the reward of Crammer and Singer, BA is piecewise linear, and a linear program knows its maximum."""
    X, y = population(4)
    options = {**THEORY, "reward": "hinge", "average": average}
    learner = NEMSISClassifier("ba", **options)
    gaps, _ = gaps_to(best_hinge_ba(X, y), learner, BA(), X, y, hinge_rates)
    assert (gaps > 0).all()
    assert rate_of(gaps) <= -0.35
    assert gaps[-1] < 0.01


@pytest.mark.parametrize(("name", "within"), [("q", 2e-3), ("bakld:0.5", 2e-3), ("q:3", 3e-3)])
def test_online_learners_are_near_the_batch_optimum(name, within):
    """Where counts matter, the step is not the exact gradient of what CAN maximises, but it ends up next to it."""
    measure = get_measure(name)
    X, y = population(4)
    best = CANClassifier(measure).fit(X, y)
    gaps, _ = gaps_to(
        objective(measure, X, y, best), NEMSISClassifier(measure, **THEORY), measure, X, y, seeds=2
    )
    assert -1e-6 < gaps[-1] < within
    assert gaps[-1] < gaps[0] / 10


# ------------------------------------------------------------------- levels


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [3, 4])
def test_theorem_2(k, seed):
    """The gap of CAN to the best level shrinks at least as fast as (1 − m/M)ᵗ, and P_quant stays within [m, M]."""
    X, y = population(k, seed=seed, distance=0.4)
    measure = CQReward()
    learner = CANClassifier(measure, tol=1e-9).fit(X, y)
    best = learner.levels_[-1]
    scores = X @ learner.coef_.T + learner.intercept_
    assert best == pytest.approx(measure.class_value(*softmax_rates(scores, y)), abs=1e-9)
    gap = best - measure.class_value(*softmax_rates(np.zeros_like(scores), y))
    m, M = measure.bounds
    assert gap > 0.0
    assert len(learner.levels_) > 1
    for t, level in enumerate(learner.levels_, start=1):
        assert best - level <= gap * (1.0 - m / M) ** t + 1e-9
    assert (np.diff(learner.levels_) >= -1e-9).all()
    for model in (scores, np.zeros_like(scores)):
        R, q, p = softmax_rates(model, y)
        assert m <= R.mean() / measure.class_value(R, q, p) <= M


@pytest.mark.parametrize("k", [3, 4])
def test_can_finds_the_best_level(k):
    """The level that CAN stops at is the maximum of the ratio itself, which has no use for levels."""
    X, y = population(k, seed=1)
    measure = CQReward()
    best = CANClassifier(measure, tol=1e-9).fit(X, y).levels_[-1]
    assert best == pytest.approx(best_by_quasi_newton(measure, X, y), abs=1e-6)


def test_theorem_4():
    """SCAN approaches the optimum that CAN finds as the stream grows."""
    X, y = population(3, distance=1.0)
    measure = CQReward()
    optimum = CANClassifier(measure, tol=1e-9).fit(X, y).levels_[-1]
    gaps, last = gaps_to(optimum, SCANClassifier(measure, **THEORY), measure, X, y)
    assert (gaps > -1e-9).all()
    assert rate_of(gaps) <= -0.5
    assert gaps[-1] < 0.001
    assert last.levels_[-1] == pytest.approx(optimum, abs=0.01)


@pytest.mark.parametrize("name", ["cq", "bk"])
def test_counts_of_scan_and_can_agree(name):
    """With 0-1 estimates, too: as good on the training rows as the batch optimum of the surrogate."""
    X, y, _ = gaussians(3000, seed=3)
    measure = get_measure(name)
    batch = measure.score(y, CANClassifier(name).fit(X, y).predict(X))
    online = SCANClassifier(name, random_state=0, eta0=30.0, radius=np.inf, n_passes=20).fit(X, y)
    assert measure.score(y, online.predict(X)) > batch - 0.01
    assert online.levels_[-1] == pytest.approx(measure.score(y, online.predict(X)), abs=0.02)


@pytest.mark.parametrize("reward", ["hinge", "logistic"])
def test_levels_of_surrogates_stay_in_range(reward):
    """Surrogate rewards of rare classes give counts below 0; levels stay in [0, 1] and are not stuck at 0."""
    rng = np.random.default_rng(0)
    y = rng.choice(5, size=4000, p=[0.5, 0.4, 0.05, 0.03, 0.02])
    X = 3.0 * rng.normal(size=(5, 3))[y] + rng.normal(size=(len(y), 3))
    learner, lowest = SCANClassifier("bk", reward=reward, estimates="surrogate", eta0=10.0), 0.0
    for part in np.split(np.arange(len(y)), [*range(2, 60, 2), 1000, 2000]):
        learner.partial_fit(X[part], y[part], classes=range(5))
        lowest = min(lowest, learner.state_.rates().q.min())
    assert lowest < -0.05
    assert ((learner.levels_ >= 0.0) & (learner.levels_ <= 1.0)).all()
    assert learner.levels_[-1] > 0.5


# ------------------------------------------------------------------- posteriors


def gaussians(n, seed):
    """Rows of four classes of unequal size with a common covariance, and their exact posteriors."""
    rng = np.random.default_rng(0)
    p, means = np.array([0.55, 0.25, 0.15, 0.05]), 1.2 * rng.normal(size=(4, 3))
    root = np.eye(3) + 0.4 * rng.normal(size=(3, 3))
    rng = np.random.default_rng(seed)
    y = rng.choice(4, size=n, p=p)
    X = means[y] + rng.normal(size=(n, 3)) @ root.T
    weights = means @ np.linalg.inv(root @ root.T)
    scores = X @ weights.T - 0.5 * (weights * means).sum(axis=1) + np.log(p)
    return X, y, softmax(scores, axis=1)


@pytest.mark.parametrize("name", ["ba", "bakld:0.5"])
def test_posteriors_of_gaussians_are_those_of_bayes(name):
    """The scores estimate ln(α_j·η_j/p_j) up to a constant, so ln(p_j/α_j) turns them into posteriors."""
    X, y, _ = gaussians(20_000, seed=1)
    fresh, _, posteriors = gaussians(2000, seed=2)
    learner = NEMSISClassifier(name, random_state=0).fit(X, y)
    found = learner.predict_proba(fresh)
    assert np.abs(found - posteriors).mean() < 0.01
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    if name == "ba":  # T = 1, and nothing is fitted
        scores = learner.decision_function(fresh)
        plain = softmax(scores + np.log(np.bincount(y) / len(y)), axis=1)
        assert np.abs(plain - posteriors).mean() < 0.01
        # Without the offsets they would be the posteriors of classes of equal size.
        assert np.abs(softmax(scores, axis=1) - posteriors).mean() > 0.03


@pytest.mark.parametrize("temperature", [0.2, 1.0, 5.0])
def test_calibration_finds_temperature_and_offsets(temperature):
    """Of scores that are exact but for their scale, the posteriors are exact but for the noise of labels.

    Softened targets forbid posteriors that are many orders of magnitude below 1, and so does this.
    """
    _, y, posteriors = gaussians(20_000, seed=5)
    shares = np.array([0.55, 0.25, 0.15, 0.05])
    posteriors = np.maximum(posteriors, 1e-5)
    posteriors /= posteriors.sum(axis=1, keepdims=True)
    scores = np.log(posteriors / shares) / temperature
    calibration = ClassCalibration(scores, y.astype(np.int32))
    assert np.abs(calibration.probabilities(scores) - posteriors).mean() < 0.005
    # The likelihood is that at equal prevalences.
    there = posteriors / shares
    there /= there.sum(axis=1, keepdims=True)
    expected = np.average(-np.log(there[np.arange(len(y)), y]), weights=1.0 / shares[y])
    assert calibration.loss() == pytest.approx(expected, abs=0.02)


# ------------------------------------------------------------------- where concavity ends


def test_valuations_that_count_need_not_be_concave_in_the_weights():
    """With three classes or more: even where every force a_ij and every recall is positive.

    What a row lacks goes to the other classes in proportion to their softmax, and that share is no concave function of
    the scores. Rows are unit vectors here, so that scores are weights.
    """
    y = np.repeat(np.arange(3), 10)
    scores = np.zeros((30, 3))
    scores[y == 0, 0] = scores[y == 2, 2] = 20.0
    scores[y == 1] = [-20.0, 0.0, 1.3]  # taken for class 2, with a reward just above 0
    valuation, values, recalls = CQReward().valuation(1.0), [], []
    for shift in (-0.3, 0.0, 0.3):
        scores[0] = [-5.0, np.log(0.25) + shift, 0.0]
        R, q, p = softmax_rates(scores, y)
        alpha, by_count = valuation.gradients(R, q, p)
        forces = (alpha / p + by_count)[:, None] - by_count
        assert min(R.min(), forces.min()) > 0.0
        values.append(valuation.class_value(R, q, p))
        recalls.append(R.mean())
    assert values[1] < (values[0] + values[2]) / 2 - 1e-5
    assert (
        recalls[1] > (recalls[0] + recalls[2]) / 2
    )  # of recalls alone, the mean is above its chord
