"""`Quantifier`: estimates, intervals, QuaPy's uses, and the warning that leads to it."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import quapy as qp
import scipy.sparse
from quapy.data import LabelledCollection
from quapy.method.aggregative import EMQ, PACC, PCC
from quapy.model_selection import GridSearchQ
from quapy.protocol import APP, NPP, UPP
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

from quapy_nemsis import NEMSIS, CANClassifier, NEMSISClassifier, Quantifier, SCANClassifier
from tests.conftest import make_classes, make_points
from tests.reference.prevalence import estimate


@pytest.fixture(scope="module")
def two():
    """Rows to train on, of which 10 % are positive, and rows to test on."""
    X, y = make_points(n=9000, d=4, share=0.1, noise=1.2)
    return LabelledCollection(X[:3000], y[:3000]), LabelledCollection(X[3000:], y[3000:])


@pytest.fixture(scope="module")
def three():
    X, y = make_classes(n=9000, d=4)
    names = np.array(["ant", "bee", "cat"])[y]
    return LabelledCollection(X[:3000], names[:3000]), LabelledCollection(X[3000:], names[3000:])


@pytest.fixture(scope="module")
def fitted(two):
    return Quantifier(random_state=0).fit(*two[0].Xy)


def error(quantifier, protocol):
    return qp.evaluation.evaluate(quantifier, protocol, "mae")


def drift(test, **options):
    return APP(test, sample_size=300, n_prevalences=11, repeats=5, random_state=0, **options)


def test_drift_is_followed(fitted, two):
    counted = PCC(LogisticRegression()).fit(*two[0].Xy)
    assert error(fitted, drift(two[1])) < 0.04 < 0.1 < error(counted, drift(two[1]))
    assert error(fitted, drift(two[1])) < 1.3 * error(
        EMQ(LogisticRegression()).fit(*two[0].Xy), drift(two[1])
    )


def test_the_more_no_drift_is_expected_the_nearer_is_the_mean_posterior(fitted, two):
    """Without drift, the mean posterior is hard to beat. The default pays for drift that it cannot rule out."""
    protocol = NPP(two[1], sample_size=300, repeats=100, random_state=0)
    best = error(PCC(LogisticRegression()).fit(*two[0].Xy), protocol)
    errors = {}
    for no_drift in (0.0, fitted.no_drift, 0.9):
        quantifier = copy.copy(fitted).set_params(no_drift=no_drift)
        errors[no_drift] = error(quantifier, protocol)
    assert errors[0.9] < 1.1 * best
    assert errors[0.9] < errors[fitted.no_drift] < 0.8 * errors[0.0]


def test_several_classes_with_names(three):
    quantifier = Quantifier(random_state=0).fit(*three[0].Xy)
    assert quantifier.classes_.tolist() == ["ant", "bee", "cat"]
    protocol = UPP(three[1], sample_size=300, repeats=30, random_state=0)
    plain = EMQ(LogisticRegression()).fit(*three[0].Xy)
    assert error(quantifier, protocol) < 1.1 * error(plain, protocol)
    point, region = quantifier.predict_conf(three[1].X[:300])
    assert point.sum() == pytest.approx(1.0)
    assert (region.I_low <= point).all()
    assert (point <= region.I_high).all()


def test_the_estimate_is_that_of_the_reference(fitted, two):
    posteriors = fitted.classify(two[1].X[:400])
    np.testing.assert_allclose(posteriors.sum(axis=1), 1.0)
    known = fitted.calibration_
    rows = posteriors / known.shares
    # The balanced cross-entropy of the held-out labels, over that of a guess; its penalty is negligible here.
    balanced = known.probabilities(known.scores, balanced=True)
    logs = np.log(balanced[np.arange(len(balanced)), known.labels.astype(int)])
    doubt = -np.average(logs, weights=1 / known.shares[known.labels.astype(int)]) / np.log(2)
    assert fitted.training.doubt == pytest.approx(doubt, rel=0.01)
    training = fitted.training
    np.testing.assert_array_equal(training.shares, known.shares)
    assert training.size == known.members.sum()
    expected = estimate(rows, training, prior=1.0, no_drift=0.3)
    np.testing.assert_allclose(fitted.aggregate(posteriors), expected, atol=1e-4)
    np.testing.assert_array_equal(fitted.predict(two[1].X[:400]), fitted.aggregate(posteriors))


def test_posteriors_are_those_of_the_committee(fitted, two):
    X, learner = two[1].X[:50], fitted.classifier
    scores = X @ learner.committee_[0] + learner.committee_[1]
    np.testing.assert_allclose(learner.committee_scores(X), scores)
    np.testing.assert_allclose(fitted.classify(X), learner.calibration_.probabilities(scores))
    assert np.abs(scores - learner.decision_function(X)).max() > 1e-6


def test_a_committee_is_forgotten_in_a_stream(two):
    learner = NEMSISClassifier("ba", random_state=0, n_passes=5).fit(*two[0].Xy)
    learner.partial_fit(two[1].X[:500], two[1].y[:500])
    assert learner.committee_ is None
    X = two[1].X[:20]
    np.testing.assert_array_equal(learner.committee_scores(X), learner.decision_function(X))


@pytest.mark.parametrize("region", ["intervals", "ellipse", "ellipse-clr", "ellipse-ilr"])
def test_regions(region, three):
    quantifier = Quantifier(n_draws=50, region=region, random_state=0).fit(*three[0].Xy)
    point, found = quantifier.predict_conf(three[1].X[:200], confidence_level=0.9)
    np.testing.assert_array_equal(point, quantifier.predict(three[1].X[:200]))
    again = quantifier.predict_conf(three[1].X[:200], confidence_level=0.9)[1]
    np.testing.assert_array_equal(found.samples, again.samples)
    assert found.samples.shape == (50, 3)


def test_intervals_contain_the_truth_as_often_as_they_say():
    """400 samples of 20 training sets of 300 rows, of which 30 are positive."""
    inside = []
    for seed in range(20):
        X, y = make_points(n=4300, d=4, share=0.1, noise=1.2, seed=seed)
        learner = NEMSISClassifier("ba", eta0=0.1, radius=5.0, n_passes=10)
        quantifier = Quantifier(learner, n_draws=100, random_state=seed)
        quantifier.fit(X[:300], y[:300])
        test = LabelledCollection(X[300:], y[300:])
        for sample, true in APP(test, 150, n_prevalences=10, repeats=2, random_state=seed)():
            region = quantifier.predict_conf(sample)[1]
            inside.append(region.coverage(true.round(9)))
    assert 0.9 < np.mean(inside) <= 0.99


def three_classes(n, p, rng, within):
    """Three classes: apart from each other, or the third within the first."""
    y = rng.choice(3, size=n, p=p)
    X = rng.normal(size=(n, 4))
    if within:
        X[y == 1, 0] += 2.0
        X[y == 2] *= 0.4
    else:
        X += 1.5 * np.eye(3, 4)[y]
    return X, y


@pytest.mark.parametrize(("within", "n_fits"), [(False, 12), (True, 3)])
def test_intervals_of_several_classes_contain_the_truth_as_often_as_they_say(within, n_fits):
    """Training sets of 400 rows, 20 samples each, of any prevalences.

    Each class counts, not their mean alone. The learner is tuned where one class is within another: the scores of a
    linear one are then far from what the calibration of several classes can express, and intervals too narrow.
    """
    inside = []
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        X, y = three_classes(400, np.full(3, 1 / 3), rng, within)
        learner = NEMSISClassifier("ba", eta0=0.1, radius=5.0, n_passes=5, random_state=seed)
        given = {} if within else {"classifier": learner, "features": None}
        quantifier = Quantifier(**given, n_draws=100, random_state=seed).fit(X, y)
        for _ in range(20):
            sample, labels = three_classes(200, rng.dirichlet(np.ones(3)), rng, within)
            true = np.bincount(labels, minlength=3) / 200
            low, high = np.quantile(quantifier.draw(sample), [0.025, 0.975], axis=0)
            inside.append((low - 1e-9 <= true) & (true <= high + 1e-9))
    # The ends of 100 draws are a bit inside, and samples of a fit err together.
    assert 0.88 < np.mean(inside) <= 0.985
    assert np.mean(inside, axis=0).min() > 0.8


@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_other_classifiers_are_calibrated_on_posteriors_out_of_fold(container, two):
    X, y = container(two[0].X), two[0].y
    test = LabelledCollection(container(two[1].X), two[1].y)
    quantifier = Quantifier(LogisticRegression(C=1e-4), random_state=0).fit(X, y)
    assert len(quantifier.calibration_.scores) == len(y)
    # So much regularised, its own posteriors are far too near to the prevalence of training.
    plain = EMQ(LogisticRegression(C=1e-4)).fit(X, y)
    assert 5.0 * error(quantifier, drift(test)) < error(plain, drift(test))
    prefitted = LogisticRegression().fit(X[:1500], y[:1500])
    given = Quantifier(prefitted, fit_classifier=False, val_split=None)
    assert error(given.fit(X[1500:], y[1500:]), drift(test)) < 0.04
    once = given.predict(test.X)
    np.testing.assert_array_equal(given.fit(X[1500:], y[1500:]).predict(test.X), once)
    with pytest.raises(TypeError, match=r"needs NEMSISClassifier .* got LogisticRegression"):
        given.partial_fit(X, y)


def test_a_fitted_learner_keeps_its_calibration(fitted, two):
    given = Quantifier(fitted.classifier, fit_classifier=False).fit(*two[1].Xy)
    np.testing.assert_array_equal(given.predict(two[1].X), fitted.predict(two[1].X))


@pytest.mark.parametrize("learner", [NEMSISClassifier("q"), SCANClassifier("cq")], ids=str)
def test_other_learners_and_streams(learner, two):
    quantifier = Quantifier(learner, random_state=0)
    for start in range(0, 3000, 500):
        chunk = slice(start, start + 500)
        quantifier.partial_fit(two[0].X[chunk], two[0].y[chunk], classes=[False, True])
    assert error(quantifier, drift(two[1])) < 0.08


def test_grid_search_reaches_every_parameter(two):
    grid = {"classifier__eta0": [1e-9, 0.1], "no_drift": [0.0, 0.9], "prior": [0.5, 50.0]}
    quantifier = Quantifier(NEMSISClassifier("ba", radius=5.0, n_passes=3), random_state=0)
    options = {"error": "mae", "refit": False, "raise_errors": True}
    search = GridSearchQ(quantifier, grid, drift(two[1]), **options).fit(*two[0].Xy)
    assert len({round(score, 9) for score in search.param_scores_.values()}) >= 6
    fresh = clone(quantifier).set_params(**search.best_params_).fit(*two[0].Xy)
    assert error(fresh, drift(two[1])) == pytest.approx(search.best_score_)


def test_copies(fitted, two):
    X = two[1].X[:100]
    for copied in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(copied.predict(X), fitted.predict(X))
    same = clone(fitted)
    assert not hasattr(same, "calibration_")
    assert same.get_params()["classifier"].get_params()["measure"] == "ba"
    np.testing.assert_array_equal(same.fit(*two[0].Xy).predict(X), fitted.predict(X))
    assert "NEMSISClassifier" in repr(same)


@pytest.mark.parametrize(
    ("parameters", "kind", "message"),
    [
        ({"prior": 0.0}, ValueError, "prior must be .*got 0.0"),
        ({"prior": "much"}, TypeError, "prior must be .*got 'much'"),
        ({"no_drift": 1.0}, ValueError, "no_drift must be at least 0 and below 1; got 1.0"),
        ({"no_drift": None}, TypeError, "no_drift must be a number; got None"),
        ({"n_draws": 1}, ValueError, "n_draws must be at least 2; got 1"),
        ({"region": "circle"}, ValueError, "region .*'circle'"),
        ({"random_state": "x"}, (TypeError, ValueError), "random_state.*'x'"),
    ],
)
def test_parameters_that_are_refused(parameters, kind, message, two):
    with pytest.raises(kind, match=message):
        Quantifier(**parameters).fit(*two[0].Xy)


def test_questions_that_are_refused(fitted):
    with pytest.raises(ValueError, match=r"confidence_level must lie between 0 and 1.*got 95"):
        fitted.predict_conf(np.zeros((5, 4)), confidence_level=95)
    with pytest.raises(ValueError, match="no rows to estimate"):
        fitted.aggregate(np.zeros((0, 2)))
    with pytest.raises(ValueError, match="5 features"):
        fitted.predict(np.zeros((5, 5)))
    with pytest.raises(ValueError, match="not fitted"):
        Quantifier().predict(np.zeros((5, 5)))


def test_posteriors_at_equal_prevalences(two):
    learner = NEMSISClassifier("ba", eta0=0.1, radius=5.0, n_passes=5, random_state=0)
    learner.fit(*two[0].Xy)
    X = two[1].X[:200]
    training = learner.predict_proba(X)
    learner.set_params(posteriors="balanced")
    balanced = training / learner.calibration_.shares
    balanced /= balanced.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(learner.predict_proba(X), balanced)
    with pytest.raises(ValueError, match=r"posteriors.*'uniform'"):
        clone(learner).set_params(posteriors="uniform").fit(*two[0].Xy)


def test_matching_wants_posteriors_at_equal_prevalences():
    """Where a class is rare: 3 % of 4,000 rows, whose classes overlap."""
    X, y = make_points(n=12_000, d=4, share=0.03, noise=1.0)
    test = LabelledCollection(X[4000:], y[4000:])
    errors = {}
    for prior in ("training", "balanced"):
        learner = NEMSISClassifier("ba", posteriors=prior, n_passes=10, random_state=0)
        errors[prior] = error(PACC(learner).fit(X[:4000], y[:4000]), drift(test))
    assert errors["balanced"] < 0.9 * errors["training"]


def test_a_count_that_is_off_is_pointed_out(two):
    with pytest.warns(
        UserWarning, match=r"NEMSIS counts \S+ of class .*10\.\d% are true.*Quantifier"
    ):
        NEMSIS("q", random_state=0).fit(*two[0].Xy)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        NEMSIS("kld", random_state=0).fit(*two[0].Xy)


def test_counting_few_rows_without_drift():
    """398 rows are enough for a count that is right where prevalence stays."""
    X, y = load_breast_cancer(return_X_y=True)
    data = LabelledCollection(scale(X), y)
    train, test = data.split_stratified(0.7, random_state=0)
    protocol = NPP(test, sample_size=100, repeats=100, random_state=0)
    assert error(NEMSIS("kld", random_state=0).fit(*train.Xy), protocol) < 0.03


def test_learners_without_posteriors_are_wrapped_by_quapy(two):
    with pytest.warns(UserWarning, match="does not seem to be probabilistic"):
        quantifier = Quantifier(CANClassifier("ba"), random_state=0).fit(*two[0].Xy)
    assert error(quantifier, drift(two[1])) < 0.05
