"""Prevalences from likelihoods, and calibrated likelihoods, against slow references and truths."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit, softmax

from quapy_nemsis import prevalence
from quapy_nemsis.learners.calibration import Calibration
from tests.reference import prevalence as reference

PLENTY = 10**6  # training rows, so many that the training set has no uncertainty left


def gaussian_scores(rng, positive, distance=2.0):
    """Scores of unit variance; log-odds at equal prevalences are `distance` times the score."""
    return rng.normal(size=len(positive)) + distance * (positive - 0.5)


def gaussian_rows(scores, distance=2.0):
    """Exact likelihoods, up to a factor per row, of the classes of `gaussian_scores`."""
    return np.column_stack([expit(-distance * scores), expit(distance * scores)])


def sample(rng, n, shares, strength=1.5):
    """Labels of given frequencies and exact likelihoods of K classes with Gaussian features."""
    k = len(shares)
    labels = rng.choice(k, size=n, p=shares)
    features = rng.normal(size=(n, k))
    features[np.arange(n), labels] += strength
    return labels, softmax(strength * features, axis=1)


def flat_training(n_classes, size=PLENTY):
    return prevalence.Training(np.full(n_classes, 1 / n_classes), size, size)


# Likelihoods


def test_likelihoods_are_a_softmax_with_a_floor():
    log_odds = np.array([[0.0, 1.0, -2.0], [1000.0, 0.0, 0.0], [-5.0, -5.0, -5.0]])
    expected = np.maximum(softmax(log_odds, axis=1), 1e-12)
    found = prevalence.likelihoods(log_odds)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert found.min() >= 1e-12 * (1 - 1e-9)


# Maximum


@pytest.mark.parametrize("pseudo", [0.5, 2.0])
@pytest.mark.parametrize("strength", [0.5, 1.5, 3.0])
@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.6, 0.3, 0.1), (0.4, 0.3, 0.2, 0.05, 0.05)])
def test_maximum_is_that_of_a_generic_optimiser(shares, strength, pseudo):
    _, rows = sample(np.random.default_rng(len(shares)), 400, shares, strength)
    k = len(shares)
    found = prevalence.maximum(rows, np.full(k, 1 / k), pseudo)
    expected = reference.maximum(rows, pseudo)
    assert found.sum() == pytest.approx(1)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    gap = reference.penalised(rows, expected, pseudo) - reference.penalised(rows, found, pseudo)
    assert abs(gap) < 1e-3


def test_maximum_does_not_depend_on_the_start_or_on_factors_of_rows():
    rng = np.random.default_rng(1)
    _, rows = sample(rng, 300, (0.5, 0.3, 0.2))
    expected = prevalence.maximum(rows, np.full(3, 1 / 3), 0.5)
    for start in ([0.98, 0.01, 0.01], [0.01, 0.01, 0.98]):
        found = prevalence.maximum(rows, np.array(start), 0.5)
        np.testing.assert_allclose(found, expected, atol=1e-4)
    scaled = rows * rng.uniform(0.01, 100, size=(300, 1))
    np.testing.assert_allclose(
        prevalence.maximum(scaled, np.full(3, 1 / 3), 0.5), expected, atol=1e-4
    )


def test_maximum_without_pseudo_counts_can_lie_on_the_border():
    """Every row favours the first class, so the likelihood is greatest when it is alone."""
    rows = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]] * 20)
    found = prevalence.maximum(rows, np.array([0.5, 0.5]), 0.0)
    np.testing.assert_allclose(found, [1, 0], atol=1e-4)


def test_maximum_of_separated_rows_is_the_smoothed_share():
    rows = np.array([[1.0, 1e-12]] * 30 + [[1e-12, 1.0]] * 10)
    found = prevalence.maximum(rows, np.array([0.5, 0.5]), 2.0)
    np.testing.assert_allclose(found, [32 / 44, 12 / 44], atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    k=st.integers(2, 5),
    pseudo=st.floats(0.1, 3),
)
def test_maximum_is_in_the_simplex_and_not_improved_by_moves(seed, n, k, pseudo):
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(k, 0.3), size=n) + 1e-9
    found = prevalence.maximum(rows, np.full(k, 1 / k), pseudo)
    assert found.min() > 0
    assert found.sum() == pytest.approx(1)
    best = reference.penalised(rows, found, pseudo)
    for corner in np.eye(k):
        for step in (1e-3, 1e-2, 0.1):
            moved = (1 - step) * found + step * corner
            assert reference.penalised(rows, moved, pseudo) <= best + 1e-4


# Estimate

CASES = [
    # Shares of the sample, of the training set, rows, training rows, effective training rows.
    ((0.7, 0.3), (0.7, 0.3), 200, 1000, 1000),
    ((0.65, 0.35), (0.75, 0.25), 150, 500, 375),
    ((0.3, 0.7), (0.9, 0.1), 50, 300, 110),
    ((0.2, 0.5, 0.3), (0.25, 0.45, 0.3), 300, 200, 190),
    ((0.2, 0.2, 0.3, 0.3), (0.25, 0.25, 0.25, 0.25), 120, 4000, 4000),
    ((0.8, 0.1, 0.05, 0.05), (0.1, 0.2, 0.3, 0.4), 100, 1000, 700),
]


@pytest.mark.parametrize(("prior", "no_drift"), [(0.5, 0.5), (0.5, 0.0), (1.0, 0.9), (2.0, 0.1)])
@pytest.mark.parametrize("doubt", [1.0, 0.3])
@pytest.mark.parametrize("case", CASES)
def test_estimate_is_that_of_the_reference(case, doubt, prior, no_drift):
    shares, trained, n, size, effective = case
    _, rows = sample(np.random.default_rng(n), n, shares)
    training = prevalence.Training(np.array(trained), size, effective, doubt)
    found = prevalence.estimate(rows, training, prior=prior, no_drift=no_drift)
    expected = reference.estimate(rows, training, prior, no_drift)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_estimate_has_a_default_prior_and_default_odds():
    _, rows = sample(np.random.default_rng(7), 100, (0.6, 0.4))
    training = prevalence.Training(np.array([0.7, 0.3]), 500, 400)
    expected = prevalence.estimate(rows, training, prior=1.0, no_drift=0.3)
    np.testing.assert_array_equal(prevalence.estimate(rows, training), expected)
    assert abs(expected - prevalence.estimate(rows, training, no_drift=0.0)).max() > 1e-3


@pytest.mark.parametrize("shares", [(0.75, 0.25), (0.7, 0.3), (0.65, 0.35), (0.9, 0.1)])
@pytest.mark.parametrize("size", [300, 3000])
def test_evidence_of_two_classes_is_near_the_exact_integral(shares, size):
    """The Gaussian approximation is within 0.1 of quadrature, and the estimate follows it."""
    _, rows = sample(np.random.default_rng(3), 300, shares, strength=2.0)
    jeffreys, prior, no_drift = 0.5, 2.0, 0.5
    training = prevalence.Training(np.array([0.8, 0.2]), size, size)
    weight = 1 / (1 + len(rows) / size)
    mode = reference.maximum(rows, jeffreys / weight)
    exact = reference.exact_evidence(rows, weight, jeffreys)
    assert abs(reference.laplace_evidence(rows, mode, weight, jeffreys) - exact) < 0.1
    p = reference.maximum(rows, prior * len(rows) / size)
    same = reference.posterior(rows, training.shares).mean(axis=0)
    found = prevalence.estimate(rows, training, prior=prior, no_drift=no_drift)
    odds = reference.unchanged(rows, training, no_drift, exact)
    assert abs(same - p).max() > 1e-3
    np.testing.assert_allclose(
        found, odds * same + (1 - odds) * p, atol=0.1 / 4 * abs(same - p).max() + 1e-5
    )


def test_estimate_trusts_the_training_shares_only_while_the_sample_allows_it():
    """Much drift overrules any prior belief in none; without drift, belief reduces the error."""
    rng = np.random.default_rng(5)
    training = prevalence.Training(np.array([0.8, 0.2]), PLENTY, PLENTY)
    _, rows = sample(rng, 1000, (0.3, 0.7))
    changed = prevalence.estimate(rows, training, no_drift=0.0)
    np.testing.assert_allclose(prevalence.estimate(rows, training), changed, atol=1e-6)
    errors = {0.0: [], 0.5: []}
    for _ in range(100):
        labels, rows = sample(rng, 100, (0.8, 0.2), strength=1.0)
        for no_drift, found in errors.items():
            p = prevalence.estimate(rows, training, no_drift=no_drift)
            found.append(abs(p[1] - labels.mean()))
    assert np.mean(errors[0.5]) < 0.8 * np.mean(errors[0.0])


# Draws


def fixed(rows):
    """A recalibration that has no uncertainty."""
    return lambda indices, one: rows[indices]


@pytest.mark.parametrize("counts", [(70, 30), (99, 1), (50, 30, 20)])
def test_draws_of_separated_rows_are_their_share(counts):
    """The prevalence of a sample whose labels are known is not uncertain."""
    k, n = len(counts), sum(counts)
    rows = (np.eye(k) * (1 - k * 1e-9) + 1e-9)[np.repeat(np.arange(k), counts)]
    found = prevalence.draws(
        rows, fixed(rows), np.zeros((50, 1)), flat_training(k), np.random.default_rng(0)
    )
    assert found.shape == (50, k)
    np.testing.assert_allclose(found, np.tile(np.array(counts) / n, (50, 1)), atol=1e-4)


@pytest.mark.parametrize("k", [2, 3])
def test_draws_of_uninformative_rows_fill_the_simplex(k):
    rows = np.full((200, k), 1 / k)
    found = prevalence.draws(
        rows, fixed(rows), np.zeros((300, 1)), flat_training(k), np.random.default_rng(0)
    )
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert found.min() >= 0
    # The standard deviation of a component of the prior Dirichlet(0.5, ...) is 0.35 and 0.30.
    assert (found.std(axis=0) > 0.2).all()
    np.testing.assert_allclose(found.mean(axis=0), 1 / k, atol=0.1)


@pytest.mark.parametrize(("share", "distance"), [(0.5, 2.0), (0.1, 2.0), (0.3, 1.0), (0.02, 3.0)])
def test_draws_follow_the_exact_distribution_of_the_share(share, distance):
    """With exact likelihoods, the distribution of the number of positives can be computed."""
    rng = np.random.default_rng(11)
    n, n_draws = 100, 1000
    positive = np.arange(n) < share * n
    rows = gaussian_rows(gaussian_scores(rng, positive, distance), distance)
    found = prevalence.draws(rows, fixed(rows), np.zeros((n_draws, 1)), flat_training(2), rng)[:, 1]
    exact = reference.count_distribution(rows, 0.5)
    shares = np.arange(n + 1) / n
    mean = exact @ shares
    std = np.sqrt(exact @ (shares - mean) ** 2)
    # A Gaussian in log-odds is not exact near the border: its mean is up to 0.3 deviations off.
    assert abs(found.mean() - mean) < 0.4 * std
    assert found.std() == pytest.approx(std, rel=0.25)


def test_intervals_of_draws_contain_the_share_as_often_as_they_claim():
    rng = np.random.default_rng(12)
    n, n_draws, n_samples = 100, 100, 300
    inside = 0
    for _ in range(n_samples):
        positive = rng.random(n) < rng.beta(0.5, 0.5)
        rows = gaussian_rows(gaussian_scores(rng, positive))
        found = prevalence.draws(rows, fixed(rows), np.zeros((n_draws, 1)), flat_training(2), rng)
        low, high = np.quantile(found[:, 1], [0.025, 0.975])
        inside += low - 1e-9 <= positive.mean() <= high + 1e-9
    # The standard deviation of the share inside is 0.013; the ends of 100 draws are a bit inside.
    assert 0.90 <= inside / n_samples <= 0.99


@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.5, 0.3, 0.2)])
def test_draws_of_many_rows_are_centred_on_the_maximum(shares):
    rng = np.random.default_rng(13)
    n, k = 5000, len(shares)
    labels, rows = sample(rng, n, shares)
    found = prevalence.draws(rows, fixed(rows), np.zeros((200, 1)), flat_training(k), rng)
    centre = prevalence.maximum(rows, np.full(k, 1 / k), 0.5)
    assert found.shape == (200, k)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found.mean(axis=0), centre, atol=0.006)
    # Wide enough for the realised shares.
    truth = np.bincount(labels, minlength=k) / n
    assert (abs(truth - found.mean(axis=0)) < 4 * found.std(axis=0)).all()


@pytest.mark.parametrize("n", [300, 3000])
def test_draws_of_many_and_few_rows_have_the_exact_spread(n):
    """The deviation of the share of a large sample, by the exact distribution of the count."""
    rng = np.random.default_rng(14)
    positive = np.arange(n) < 0.3 * n
    rows = gaussian_rows(gaussian_scores(rng, positive))
    found = prevalence.draws(rows, fixed(rows), np.zeros((500, 1)), flat_training(2), rng)[:, 1]
    exact = reference.count_distribution(rows, 0.5)
    shares = np.arange(n + 1) / n
    mean = exact @ shares
    std = np.sqrt(exact @ (shares - mean) ** 2)
    assert found.std() == pytest.approx(std, rel=0.2)
    assert abs(found.mean() - mean) < 4 * std / np.sqrt(500 / 4)


@pytest.mark.parametrize("n", [500, 3000])
def test_uncertain_parameters_widen_the_draws(n):
    """A shift of all log-odds moves the estimate, so uncertainty about it must show."""
    rng = np.random.default_rng(15)
    positive = np.arange(n) < 0.4 * n
    scores = gaussian_scores(rng, positive)
    rows = gaussian_rows(scores)

    def shifted(indices, one):
        z = 2 * scores[indices] + one[0]
        return np.column_stack([expit(-z), expit(z)])

    spread = {}
    for deviation in (0.0, 0.5):
        shifts = deviation * rng.normal(size=(200, 1))
        found = prevalence.draws(rows, shifted, shifts, flat_training(2), rng)
        spread[deviation] = found[:, 1].std()
        if deviation:
            # The more every row looks like a positive, the more positives are found.
            assert np.corrcoef(shifts[:, 0], found[:, 1])[0, 1] > 0.5
            expected = [
                prevalence.maximum(shifted(np.arange(n), one), np.array([0.5, 0.5]), 0.5)[1]
                for one in shifts[:50]
            ]
    assert spread[0.5] > 1.5 * spread[0.0]
    both = np.hypot(np.std(expected), spread[0.0])
    assert spread[0.5] == pytest.approx(both, rel=0.3)


def test_draws_repeat_with_the_same_seed_and_differ_with_another():
    _, rows = sample(np.random.default_rng(16), 200, (0.6, 0.4))

    def one(seed):
        rng = np.random.default_rng(seed)
        return prevalence.draws(rows, fixed(rows), np.zeros((20, 1)), flat_training(2), rng)

    np.testing.assert_array_equal(one(1), one(1))
    assert (one(1) != one(2)).any()


# Calibration


def two_class_data(seed, n, share, distance=2.0):
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < share
    return gaussian_scores(rng, positive, distance), positive


def class_data(seed, n, k, strength=1.5, shares=None):
    """Labels, and scores that are log-likelihoods of the classes divided by two."""
    rng = np.random.default_rng(seed)
    shares = np.full(k, 1 / k) if shares is None else np.asarray(shares)
    labels, rows = sample(rng, n, shares, strength)
    return np.log(rows) / 2, labels.astype(np.int32)


def test_members_shares_and_effective_size():
    scores, positive = two_class_data(0, 500, 0.2)
    members = np.array([(~positive).sum(), positive.sum()])
    found = Calibration.of(scores, positive)
    np.testing.assert_allclose(found.members, members)
    np.testing.assert_allclose(found.shares, (members + 0.5) / (members + 0.5).sum())
    assert found.effective_size == pytest.approx(4 / np.sum(1 / (members + 0.5)))
    scores, labels = class_data(0, 300, 3, shares=(0.6, 0.3, 0.1))
    members = np.bincount(labels)
    found = Calibration.of(scores, labels)
    np.testing.assert_allclose(found.members, members)
    np.testing.assert_allclose(found.shares, (members + 0.5) / (members + 0.5).sum())
    assert found.effective_size == pytest.approx(9 / np.sum(1 / (members + 0.5)))


@pytest.mark.parametrize(("n", "share"), [(200, 0.5), (500, 0.1), (2000, 0.3), (60, 0.2)])
def test_two_classes_are_fitted_as_by_a_generic_optimiser(n, share):
    scores, positive = two_class_data(n, n, share)
    at = np.quantile(scores, np.linspace(0.01, 0.99, 41))
    found = Calibration.of(scores, positive).log_odds(at)
    expected = reference.two_class_log_odds(scores, positive, at)
    # Quantiles between scores can be told apart by a gap between scores, and move a bend by it.
    np.testing.assert_allclose(
        expit(found[:, 1] - found[:, 0]), expit(expected), atol=0.01 if n > 100 else 0.02
    )


@pytest.mark.parametrize(("n", "shares"), [(300, (0.5, 0.3, 0.2)), (1000, (0.7, 0.1, 0.1, 0.1))])
def test_classes_are_fitted_as_by_a_generic_optimiser(n, shares):
    scores, labels = class_data(n, n, len(shares), shares=shares)
    found = Calibration.of(scores, labels).log_odds(scores)
    expected = reference.class_log_odds(scores, labels, scores)
    np.testing.assert_allclose(softmax(found, axis=1), softmax(expected, axis=1), atol=1e-3)


def test_recovers_posteriors_of_rare_gaussian_positives():
    scores, positive = two_class_data(1, 20_000, 0.05)
    truth = expit(2 * scores + logit(0.05))
    found = Calibration.of(scores, positive).probabilities(scores)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.mean(abs(found[:, 1] - truth)) < 0.01


def test_recovers_balanced_posteriors_of_rare_gaussian_positives():
    scores, positive = two_class_data(2, 20_000, 0.05)
    grid = np.linspace(-2, 2, 41)
    found = Calibration.of(scores, positive).probabilities(grid, balanced=True)
    np.testing.assert_allclose(found[:, 1], expit(2 * grid), atol=0.06)
    assert np.mean(abs(found[:, 1] - expit(2 * grid))) < 0.02


def test_recovers_a_step():
    """A logistic curve in the score is wrong by more than 0.1 on at least one side."""
    rng = np.random.default_rng(3)
    scores = rng.uniform(-4, 4, size=200_000)
    low, high = 0.2, 0.8
    truth = np.where(scores > 0, high, low)
    positive = rng.random(len(scores)) < truth
    found = Calibration.of(scores, positive).probabilities(scores)[:, 1]
    # The knots are one apart, so a bend that belongs at the step can be one beside it.
    away = abs(scores) > 1.05
    assert abs(found - truth)[away].max() < 0.04
    slope, intercept = np.polyfit(scores[away], logit(truth)[away], 1)
    assert abs(expit(slope * scores + intercept) - truth)[away].max() > 0.1


def test_recovers_the_temperature_of_four_classes():
    shares = np.array([0.4, 0.3, 0.2, 0.1])
    scores, labels = class_data(4, 20_000, 4, shares=shares)
    truth = softmax(2 * scores + np.log(shares), axis=1)
    found = Calibration.of(scores, labels).probabilities(scores)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    assert np.mean(abs(found - truth)) < 0.01


def test_posteriors_balance_on_average():
    """Balanced posteriors weighted to equal classes are half of each class, as offsets are free."""
    scores, positive = two_class_data(5, 5000, 0.2)
    found = Calibration.of(scores, positive).probabilities(scores, balanced=True)[:, 1]
    assert (found[positive].mean() + found[~positive].mean()) / 2 == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_posteriors_of_several_classes_balance_on_average(shift):
    """Also if a learner prefers one of the classes, and few rows tell."""
    scores, labels = class_data(5, 2000, 4, shares=(0.4, 0.3, 0.28, 0.02))
    scores[:, 3] += shift
    found = Calibration.of(scores, labels).probabilities(scores, balanced=True)
    means = np.mean([found[labels == k].mean(axis=0) for k in range(4)], axis=0)
    np.testing.assert_allclose(means, 0.25, atol=0.01)


def test_loss_is_lower_for_better_scores():
    losses = []
    for distance in (0.0, 1.0, 2.0, 4.0):
        scores, positive = two_class_data(6, 2000, 0.3, distance)
        losses.append(Calibration.of(scores, positive).loss())
    assert np.isfinite(losses).all()
    assert (np.diff(losses) < 0).all()


@pytest.mark.parametrize("k", [2, 3])
def test_integer_weights_equal_repeated_rows(k):
    rng = np.random.default_rng(7)
    if k == 2:
        scores, labels = two_class_data(7, 300, 0.3)
    else:
        scores, labels = class_data(7, 300, 3)
    weights = rng.integers(0, 4, size=300)
    weighted = Calibration.of(scores, labels, weights.astype(float))
    repeated = Calibration.of(np.repeat(scores, weights, axis=0), np.repeat(labels, weights))
    np.testing.assert_allclose(weighted.members, repeated.members)
    np.testing.assert_allclose(
        weighted.probabilities(scores), repeated.probabilities(scores), rtol=1e-4, atol=1e-4
    )
    plain = Calibration.of(scores, labels)
    assert abs(plain.probabilities(scores) - weighted.probabilities(scores)).max() > 1e-3


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 200),
    share=st.floats(0.02, 0.98),
    distance=st.floats(-3, 3),
    ties=st.booleans(),
)
def test_posteriors_rise_with_the_score(seed, n, share, distance, ties):
    """Also where scores are worse than random, repeated, or few."""
    scores, positive = two_class_data(seed, n, share, distance)
    scores = np.round(scores) if ties else scores
    found = Calibration.of(scores, positive)
    grid = np.linspace(scores.min() - 2, scores.max() + 2, 200)
    for balanced in (False, True):
        p = found.probabilities(grid, balanced=balanced)
        assert np.isfinite(p).all()
        assert np.diff(p[:, 1]).min() >= -1e-9
    rng = np.random.default_rng(seed)
    for one in found.draw(3, rng):
        z = found.log_odds(grid, one)
        assert np.diff(z[:, 1] - z[:, 0]).min() >= -1e-9


@pytest.mark.parametrize("k", [2, 4])
def test_balanced_posteriors_are_training_ones_divided_by_shares(k):
    if k == 2:
        scores, labels = two_class_data(8, 500, 0.1)
    else:
        scores, labels = class_data(8, 500, 4, shares=(0.5, 0.3, 0.15, 0.05))
    found = Calibration.of(scores, labels)
    divided = found.probabilities(scores) / found.shares
    balanced = found.probabilities(scores, balanced=True)
    np.testing.assert_allclose(balanced, divided / divided.sum(axis=1, keepdims=True), atol=1e-9)
    np.testing.assert_allclose(balanced, softmax(found.log_odds(scores), axis=1), atol=1e-9)
    np.testing.assert_allclose(
        found.log_odds(scores), found.log_odds(scores, found._fitted.parameters), atol=1e-9
    )
    assert abs(balanced - found.probabilities(scores)).max() > 0.1


def finite_draws(found, scores):
    drawn = found.draw(20, np.random.default_rng(0))
    assert len(drawn) == 20
    assert np.isfinite(drawn).all()
    assert all(np.isfinite(found.log_odds(scores, one)).all() for one in drawn)


@pytest.mark.parametrize("value", [True, False])
def test_one_class_alone_gives_the_shares(value):
    scores = np.random.default_rng(9).normal(size=50)
    found = Calibration.of(scores, np.full(50, value))
    expected = np.array([0.5, 50.5] if value else [50.5, 0.5]) / 51
    np.testing.assert_allclose(found.shares, expected)
    np.testing.assert_allclose(found.probabilities(scores), np.tile(expected, (50, 1)), atol=1e-6)
    finite_draws(found, scores)


def test_a_missing_class_of_three_gives_finite_posteriors():
    scores, labels = class_data(9, 100, 3)
    labels = np.where(labels == 2, 1, labels).astype(np.int32)
    found = Calibration.of(scores, labels)
    p = found.probabilities(scores)
    assert np.isfinite(p).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    finite_draws(found, scores)


@pytest.mark.parametrize("value", [0.0, 3.0])
@pytest.mark.parametrize("k", [2, 3])
def test_constant_scores_give_the_shares(k, value):
    scores, labels = two_class_data(10, 200, 0.3) if k == 2 else class_data(10, 200, 3)
    scores = np.full_like(scores, value)
    # Numbers that are not finite could keep a decomposition busy for ever; an error is sooner seen.
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        found = Calibration.of(scores, labels)
        p = found.probabilities(scores)
    np.testing.assert_allclose(p, np.tile(found.shares, (200, 1)), atol=5e-3)
    finite_draws(found, scores)


@pytest.mark.parametrize("factor", [1e6, 1e-6])
@pytest.mark.parametrize("k", [2, 3])
def test_extreme_scores_are_finite(k, factor):
    scores, labels = two_class_data(11, 300, 0.3) if k == 2 else class_data(11, 300, 3)
    found = Calibration.of(factor * scores, labels)
    for at in (scores, factor * scores, 1e6 * scores):
        assert np.isfinite(found.probabilities(at)).all()
        assert np.isfinite(found.log_odds(at)).all()
    assert np.isfinite(found.loss())
    finite_draws(found, factor * scores)


@pytest.mark.parametrize("label", [True, False])
def test_an_outlier_among_scores_changes_little(label):
    """One score out of a thousand, fifty deviations away, on the right or on the wrong side."""
    scores, positive = two_class_data(12, 1000, 0.3)
    grid = np.linspace(-1.5, 1.5, 21)
    expected = Calibration.of(scores, positive).probabilities(grid)
    found = Calibration.of(np.append(scores, 70.0), np.append(positive, label)).probabilities(grid)
    np.testing.assert_allclose(found, expected, atol=0.05)


@pytest.mark.parametrize(
    ("factor", "shift"), [(1e-6, 7), (1e-3, 0), (0.5, -1000), (30.0, 7), (1e6, -7)]
)
def test_the_scale_and_the_zero_of_scores_do_not_matter(factor, shift):
    scores, positive = two_class_data(13, 400, 0.3)
    expected = Calibration.of(scores, positive).probabilities(scores)
    moved = factor * (scores + shift)
    found = Calibration.of(moved, positive).probabilities(moved)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    scores, labels = class_data(13, 400, 3)
    expected = Calibration.of(scores, labels).probabilities(scores)
    moved = factor * (scores + shift)
    found = Calibration.of(moved, labels).probabilities(moved)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def spreads(make, at, n_sets=200):
    """Deviations of log-odds at fixed scores: over data sets, and as drawn from a few of them."""
    over, drawn = [], []
    for seed in range(n_sets):
        found = Calibration.of(*make(seed))
        z = found.log_odds(at)
        over.append(z[:, 1:] - z[:, :1])
        if seed % 10 == 0:
            zs = [found.log_odds(at, one) for one in found.draw(200, np.random.default_rng(seed))]
            drawn.append(np.std([z[:, 1:] - z[:, :1] for z in zs], axis=0))
    return np.std(over, axis=0), np.mean(drawn, axis=0)


@pytest.mark.parametrize("share", [0.5, 0.15])
def test_draws_of_two_class_parameters_vary_as_fits_do(share):
    at = np.array([-1.5, -0.75, 0.0, 0.75, 1.5])
    over, drawn = spreads(lambda seed: two_class_data(1000 + seed, 500, share), at)
    # Draws keep half of the noise of the numbers of rows of each class, which weights cancel in fits.
    assert ((drawn / over > 0.9) & (drawn / over < 1.4)).all(), drawn / over


@pytest.mark.parametrize("shares", [(1 / 3, 1 / 3, 1 / 3), (0.7, 0.25, 0.05)])
def test_draws_of_class_parameters_vary_as_fits_do(shares):
    at = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, -1.0], [0.0, 0.0, 0.0]])
    over, drawn = spreads(lambda seed: class_data(1000 + seed, 1000, 3, shares=shares), at)
    # Draws keep half of the noise of the numbers of rows of each class, which weights cancel in fits.
    assert ((drawn / over > 0.9) & (drawn / over < 1.4)).all(), drawn / over


@pytest.mark.parametrize("k", [2, 3])
def test_draws_of_parameters_are_centred_and_repeat(k):
    scores, labels = two_class_data(14, 2000, 0.4) if k == 2 else class_data(14, 2000, 3)
    found = Calibration.of(scores, labels)
    drawn = found.draw(500, np.random.default_rng(0))
    assert drawn.shape == (500, *found._fitted.parameters.shape)
    np.testing.assert_array_equal(drawn, found.draw(500, np.random.default_rng(0)))
    z = np.array([found.log_odds(scores[:20], one) for one in drawn])
    distance = abs(z.mean(axis=0) - found.log_odds(scores[:20]))
    assert (distance <= z.std(axis=0) + 1e-9).all()


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("fitted_first", [True, False])
def test_a_pickled_calibration_is_the_same(k, fitted_first):
    scores, labels = two_class_data(15, 300, 0.3) if k == 2 else class_data(15, 300, 3)
    found = Calibration.of(scores, labels)
    if fitted_first:
        found.probabilities(scores)
    loaded = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(loaded.probabilities(scores), found.probabilities(scores))
    np.testing.assert_array_equal(
        loaded.draw(5, np.random.default_rng(1)), found.draw(5, np.random.default_rng(1))
    )
    assert loaded.effective_size == found.effective_size


def test_calibrated_draws_contain_the_share_of_a_new_sample():
    """The whole of it: calibrate on few labels, then bound the prevalence of drifted samples."""
    rng = np.random.default_rng(17)
    inside, n_sets = 0, 100
    for seed in range(n_sets):
        known = Calibration.of(*two_class_data(3000 + seed, 300, 0.5))
        positive = rng.random(200) < rng.uniform(0.1, 0.9)
        scores = gaussian_scores(rng, positive)
        rows = prevalence.likelihoods(known.log_odds(scores))

        def recalibrated(indices, one, known=known, scores=scores):
            return prevalence.likelihoods(known.log_odds(scores[indices], one))

        training = prevalence.Training(known.shares, 300, known.effective_size)
        found = prevalence.draws(rows, recalibrated, known.draw(100, rng), training, rng)
        low, high = np.quantile(found[:, 1], [0.025, 0.975])
        inside += low - 1e-9 <= positive.mean() <= high + 1e-9
    # Three standard deviations of 100 samples below, and anything above: caution is no defect.
    assert inside / n_sets >= 0.88
