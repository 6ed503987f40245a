"""Tests of drift against a reference, and their size and power."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chi2
from sklearn.linear_model import LogisticRegression

from quapy_nemsis import (
    NEMSISClassifier,
    Quantifier,
    mixture_test,
    prevalence,
    prevalence_test,
    save,
)
from quapy_nemsis.drift import Background, _coordinates, _parts
from quapy_nemsis.learners.calibration import Calibration
from quapy_nemsis.persistence import load
from tests.conftest import make_points
from tests.reference import drift as reference


def learner(seed=0):
    return NEMSISClassifier("ba", eta0=0.1, radius=5.0, n_passes=5, random_state=seed)


def background_of(scores, labels):
    known = Calibration.of(scores, labels)
    return Background(
        known, known.scores, known.labels, known.weights, np.arange(known.n_classes), False
    )


def make_scores(n, shares, rng, wide=1.0):
    """Scores of classes that are normal around a corner each, or around 0 and 1.5 for two classes."""
    K = len(shares)
    y = rng.choice(K, size=n, p=shares)
    if K == 2:
        return wide * rng.normal(size=n) + 1.5 * y, y == 1
    return wide * rng.normal(size=(n, K)) + 1.5 * np.eye(K)[y], y.astype(np.int32)


@pytest.fixture(scope="module")
def two():
    X, y = make_points(n=4000, d=4, noise=1.2)
    return Quantifier(learner(), features=None, random_state=0).fit(X[:1500], y[:1500]), X, y


@pytest.mark.parametrize("shares", [(0.7, 0.3), (0.5, 0.3, 0.2)])
def test_statistics_are_those_of_the_reference(shares):
    rng = np.random.default_rng(0)
    known = background_of(*make_scores(900, shares, rng))
    new = make_scores(300, shares[::-1], rng)[0]
    cal, K = known.calibration, len(shares)
    found = known.prevalence_test(new)
    args = cal.probabilities(new), cal.probabilities(known.scores), known.labels
    expected, p_value = reference.prevalence_statistic(*args, cal.shares, len(known.labels))
    assert found.statistic == pytest.approx(expected, rel=1e-6)
    assert found.freedom == K - 1
    assert found.p_value == pytest.approx(p_value, rel=1e-6)
    assert found.p_value > chi2.sf(expected, K - 1)  # the noise is not known exactly
    found = known.mixture_test(new)
    p = np.full(K, 1.0 / K)
    # Equally likely parts at the most likely prevalences; the reference is given the edges.
    log_odds = cal.log_odds(new)
    likely = prevalence.maximum(prevalence.likelihoods(log_odds), cal.shares, 0.5)
    edges = known._edges(likely, 300)
    places = [_parts(_coordinates(part), edges) for part in (log_odds, cal.log_odds(known.scores))]
    weights = (likely / np.bincount(known.labels))[known.labels]
    n_parts = 8 if K == 2 else 5
    assert all(len(at) == n_parts - 1 for at in edges)
    levels = 1.0 - weights @ places[1]
    np.testing.assert_allclose(
        levels, np.tile(np.arange(1, n_parts) / n_parts, len(edges)), atol=0.01
    )
    expected, p_value = reference.mixture_statistic(*places, known.labels, K, p)
    assert found.statistic == pytest.approx(expected, rel=1e-4)
    assert found.p_value == pytest.approx(p_value, rel=1e-3)
    assert found.freedom == places[0].shape[1] - (K - 1)


@pytest.mark.parametrize("shares", [(0.8, 0.2), (0.6, 0.25, 0.15)])
def test_false_alarms_are_as_rare_as_the_level_says(shares):
    """Each time with other labelled rows, of which there are fewer than new rows."""
    K, n, alarms = len(shares), 100, np.zeros(3)
    for seed in range(n):
        rng = np.random.default_rng(seed)
        known = background_of(*make_scores(400, shares, rng))
        same, other = make_scores(500, shares, rng)[0], make_scores(500, np.full(K, 1 / K), rng)[0]
        tests = known.prevalence_test(same), known.mixture_test(same), known.mixture_test(other)
        alarms += [test.p_value < 0.05 for test in tests]
    low, high = binom.ppf([0.0005, 0.9995], n, 0.05)
    assert (low <= alarms).all(), alarms
    assert (alarms <= high).all(), alarms


def test_both_tests_together_are_corrected_as_holm_does():
    rng = np.random.default_rng(0)
    known = background_of(*make_scores(900, (0.7, 0.3), rng))
    new = make_scores(300, (0.6, 0.4), rng, wide=1.2)[0]
    alone = known.prevalence_test(new), known.mixture_test(new)
    low, high = sorted(test.p_value for test in alone)
    assert 0.0 < low < high < 1.0

    def rejects(level):
        both = known.tests(new, level)
        assert [test.p_value for test in both] == [test.p_value for test in alone]
        assert [test.test for test in both] == ["prevalence", "mixture"]
        for test in both:
            assert test.rejects == ("changed" in test.sentence and "no evid" not in test.sentence)
        return sum(test.rejects for test in both)

    level = min(2.01 * low, 1.01 * high)
    assert rejects(1.99 * low) == 0
    assert rejects(level) == (1 if level < high else 2)
    assert rejects(max(2.01 * low, 1.01 * high)) == 2


def test_a_wrong_calibration_raises_no_false_alarms():
    """That of other scores: the posteriors are wrong, and the tests are not."""
    alarms = np.zeros(2)
    wrong = Calibration.of(*make_scores(2000, (0.7, 0.3), np.random.default_rng(0), wide=0.3))
    for seed in range(100):
        rng = np.random.default_rng(seed)
        scores, labels = make_scores(2000, (0.7, 0.3), rng)
        known = Background(wrong, scores, labels, np.ones(2000), np.arange(2), False)
        new = make_scores(300, (0.7, 0.3), rng)[0]
        alarms += [
            known.prevalence_test(new).p_value < 0.05,
            known.mixture_test(new).p_value < 0.05,
        ]
    assert (alarms <= binom.ppf(0.9995, 100, 0.05)).all(), alarms


def test_changes_are_found_and_told_apart(two):
    quantifier, X, y = two
    X, y = X[1500:], y[1500:]
    assert prevalence_test(quantifier, X).p_value > 0.05
    kept = y | (np.arange(len(y)) % 2 == 0)
    changed = prevalence_test(quantifier, X[kept])
    assert changed.p_value < 1e-4
    share = y[kept].mean()
    assert changed.sentence.startswith("The prevalences have changed since training (p < 0.001)")
    assert float(changed.sentence.split("about ")[1][:4]) == pytest.approx(share, abs=0.06)
    assert mixture_test(quantifier, X[kept]).p_value > 0.05
    moved = mixture_test(quantifier, X[:1000] * 2.0)
    assert moved.p_value < 1e-4
    assert "1,000 rows are not a mixture" in moved.sentence
    assert "no evidence" in prevalence_test(quantifier, X).sentence
    assert "look like a mixture" in mixture_test(quantifier, X).sentence
    with pytest.raises(AttributeError):
        moved.p_value = 1.0


def test_new_rows_are_scored_by_learners_of_folds_in_turn(two, tmp_path):
    quantifier, X, _ = two
    members = quantifier.classifier.members_
    assert len(members) == 5
    expected = [X[i] @ members[i % 5][0] + members[i % 5][1] for i in range(50)]
    np.testing.assert_allclose(quantifier.scores(X[:50]).of_folds, expected)
    np.testing.assert_allclose(quantifier.scores(X[7:50], first=7).of_folds, expected[7:])
    mean = np.mean([w for w, _ in members], axis=0)
    np.testing.assert_allclose(quantifier.classifier.committee_[0], mean)
    save(quantifier.classifier, tmp_path / "learner.npz")
    again = load(tmp_path / "learner.npz")
    np.testing.assert_array_equal(again.fold_scores(X), quantifier.scores(X).of_folds)
    # In a stream, there is only one learner.
    again.partial_fit(X[:10], two[2][:10])
    assert again.members_ is None
    np.testing.assert_array_equal(again.fold_scores(X), again.decision_function(X))


def test_scores_of_a_committee_would_look_like_drift():
    """With few rows and many features, a mean of learners is far less noisy than one of them."""
    alarms = np.zeros(2)
    for seed in range(25):
        X, y = make_points(n=1400, d=300, share=0.5, noise=1.5, seed=seed)
        quantifier = Quantifier(learner(seed), features=None).fit(X[:400], y[:400])
        known = Background.of(quantifier)
        for k, scores in enumerate(
            (known.scores_of(quantifier, X[400:]), quantifier.scores(X[400:]).values)
        ):
            alarms[k] += known.mixture_test(scores).p_value < 0.05
    assert alarms[0] <= binom.ppf(0.9995, 25, 0.05) < alarms[1], alarms


def test_labelled_rows_can_be_given():
    X, y = make_points(n=4000, d=4, noise=1.2)
    other = Quantifier(LogisticRegression(), random_state=0).fit(X[:1000], y[:1000])
    balanced = np.concatenate([np.flatnonzero(y[1000:] == k)[:300] for k in (0, 1)]) + 1000
    reference = X[balanced], y[balanced]
    assert prevalence_test(other, X[2500:], reference=reference).p_value > 0.05
    assert mixture_test(other, X[2500:], reference=reference).p_value > 0.05
    kept = X[2500:][y[2500:]]
    assert prevalence_test(other, kept, reference=reference).p_value < 1e-6
    assert mixture_test(other, kept, reference=reference).p_value > 0.01
    with pytest.raises(ValueError, match=r"label 7, which is not among \[False, True\]"):
        mixture_test(other, X, reference=(X[:3], [0, 1, 7]))
    with pytest.raises(ValueError, match="2 rows, but labels of shape"):
        mixture_test(other, X, reference=(X[:2], [False, True, True]))
    with pytest.raises(ValueError, match="has 1 labelled rows to compare with, and needs 5"):
        mixture_test(other, X, reference=(X[:9], [False] * 8 + [True]))


def test_what_cannot_be_tested(two):
    with pytest.raises(ValueError, match="needs at least 20 rows; got 3"):
        prevalence_test(two[0], two[1][:3])
    with pytest.raises(ValueError, match="not fitted"):
        mixture_test(Quantifier(), two[1])


@given(st.integers(0, 10**6), st.sampled_from([2, 3, 5]), st.integers(20, 60))
@settings(max_examples=25, deadline=None)
def test_any_rows_have_a_p_value(seed, n_classes, n):
    """Also rows of one class, or all alike."""
    rng = np.random.default_rng(seed)
    known = background_of(*make_scores(200, np.full(n_classes, 1.0 / n_classes), rng))
    shares = rng.permutation(np.eye(n_classes)[0])
    new = make_scores(n, shares, rng)[0]
    for scores in (new, np.repeat(new[:1], n, axis=0)):
        for test in (known.prevalence_test, known.mixture_test):
            assert 0.0 <= test(scores).p_value <= 1.0
            assert test(scores).statistic == pytest.approx(test(scores[::-1]).statistic, rel=1e-6)


def test_sentences_tell_what_follows_at_a_level_and_name_the_classes(two):
    quantifier, X, y = two
    rows = X[1500:][y[1500:] | (np.arange(2500) % 2 < 1)][:1000]  # half of class False left out
    found = prevalence_test(quantifier, rows)
    assert 0.0 < found.p_value < 0.05
    assert "have changed" in found.sentence
    assert "no evidence" in prevalence_test(quantifier, rows, level=found.p_value / 2).sentence
    wide = mixture_test(quantifier, 2.0 * rows)
    assert "are not a mixture" in wide.sentence
    assert "look like" in mixture_test(quantifier, 2.0 * rows, level=wide.p_value / 2).sentence
    named = Background.of(quantifier, names=["well", "ill"])
    told = named.prevalence_test(named.scores_of(quantifier, rows)).sentence
    assert told == found.sentence.replace("True", "ill")
    with pytest.raises(ValueError, match="there are 2 classes, and 1 names"):
        Background.of(quantifier, names=["ill"])
    with pytest.raises(ValueError, match="level must"):
        prevalence_test(quantifier, rows, level=5)


def test_on_census_data(data_dir):
    """Windows of people like those of training, with another prevalence, and of women only."""
    with np.load(data_dir / "adult.npz") as z:
        X = scipy.sparse.csr_matrix((z["data"], z["indices"], z["indptr"]), shape=tuple(z["shape"]))
        y = z["y"] > 0
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, rest = order[:8000], order[8000:]
    quantifier = Quantifier(
        NEMSISClassifier("ba", eta0=0.1, radius=10.0, reward="logistic"), random_state=0
    ).fit(X[train], y[train])
    known = Background.of(quantifier)
    scores, positive = known.scores_of(quantifier, X[rest]), y[rest]
    women = X[rest][:, [71]].toarray().ravel() > 0
    likely = np.where(positive, 0.5, 0.5 * positive.mean() / (1 - positive.mean()))
    kinds = {"same": None, "changed": likely / likely.sum(), "women": women / women.sum()}
    rates = {}
    for kind, p in kinds.items():
        windows = [scores[rng.choice(len(rest), 500, replace=False, p=p)] for _ in range(100)]
        for test in (known.prevalence_test, known.mixture_test):
            rates[kind, test.__name__] = np.mean([test(w).p_value < 0.05 for w in windows])
    assert rates["same", "prevalence_test"] < 0.12
    assert rates["same", "mixture_test"] < 0.12
    assert rates["changed", "prevalence_test"] > 0.95
    assert rates["changed", "mixture_test"] < 0.12
    assert rates["women", "mixture_test"] > 0.15
