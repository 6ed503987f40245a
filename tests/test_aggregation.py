"""Compiled aggregations against QuaPy's, and their kernels against slow references."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import quapy as qp
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from quapy.data import LabelledCollection
from quapy.method import aggregative
from quapy.model_selection import GridSearchQ
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity

from quapy_nemsis import aggregation
from quapy_nemsis._kernels import density, mixture, simplex
from quapy_nemsis.aggregation import likelihood
from tests.conftest import make_classes
from tests.reference import aggregation as reference

CLASSES = (2, 3, 10, 26)
BINARY = ("HDy", "DyS", "MS")
EVERY = ("ACC", "PACC", "EMQ", "KDEyML", *BINARY)


class Case:
    """A trained classifier of so many classes, test rows, and samples of them, some of them extreme."""

    def __init__(self, n_classes):
        shares = np.full(n_classes, 1 / n_classes)
        make = {"d": max(n_classes, 3), "shares": shares, "distance": 1.7}
        self.X, self.y = make_classes(n=30 * n_classes + 200, **make)
        self.test = LabelledCollection(
            *make_classes(n=600, seed=1, **make), classes=range(n_classes)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.classifier = LogisticRegression(C=0.1).fit(self.X, self.y)
        rng = np.random.default_rng(0)
        labels = self.test.labels
        of_first, others = np.flatnonzero(labels == 0), np.flatnonzero(labels != 0)
        self.samples = [
            rng.integers(0, 600, 100),
            self.test.sampling_index(300, *rng.dirichlet(shares), random_state=0),
            rng.choice(of_first, 40),  # prevalences 1 and 0
            rng.choice(others, 60),  # a class is absent
            rng.choice(of_first, 1),
            rng.choice(others, 2),
            np.repeat(rng.choice(others, 3), 20),  # ties
            np.full(50, of_first[0]),
        ]

    def both(self, name, **options):
        """QuaPy's quantifier and the compiled one, fitted to the same predictions."""
        options = {"fit_classifier": False, "val_split": None, **options}
        found = []
        for module in (aggregative, aggregation):
            model = getattr(module, name)(copy.deepcopy(self.classifier), **options)
            found.append(model.fit(self.X, self.y))
        return found


@pytest.fixture(scope="module", params=CLASSES)
def case(request):
    return Case(request.param)


@pytest.fixture(scope="module")
def two():
    return Case(2)


@pytest.fixture(scope="module")
def three():
    return Case(3)


def quiet(function, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


def estimates(case, theirs, ours):
    """Predictions of the test rows, and the estimates of QuaPy and of ours on all samples."""
    predictions = ours.classify(case.test.instances)
    expected = np.array([quiet(theirs.aggregate, predictions[rows]) for rows in case.samples])
    found = ours.aggregate_samples(predictions, case.samples)
    alone = [ours.aggregate(predictions[rows]) for rows in case.samples]
    # One transformation of posteriors is a product of matrices, which rounds rows differently in each table.
    tolerance = 1e-9 if getattr(ours, "kernel", "") == "ilr" else 0.0
    np.testing.assert_allclose(found, alone, rtol=0.0, atol=tolerance)
    assert found.min() >= 0.0
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-12)
    return predictions, expected, found


# Kernels


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 5), rank=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_least_squares_over_the_simplex(n, rank, seed):
    rng = np.random.default_rng(seed)
    rates = rng.dirichlet(np.full(n, 0.5), size=n).T
    if rank < n:
        rates[:, rank:] = rates[:, :1]  # classes that cannot be told apart
    shares = rng.dirichlet(np.full(n, 0.3), size=3)
    found = np.empty((3, n))
    simplex.adjust(np.ascontiguousarray(rates), shares, found)
    assert found.min() >= 0.0
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-13)
    for p, q in zip(found, shares, strict=True):
        best = reference.least_squares(rates, q)
        assert np.linalg.norm(rates @ p - q) <= np.linalg.norm(rates @ best - q) + 1e-9
        if rank >= n and np.linalg.cond(rates) < 100:
            np.testing.assert_allclose(p, best, atol=1e-7)
        elif rank < n:  # near equal prevalences, by which classes that are alike get alike
            np.testing.assert_allclose(p[rank:], p[0], atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    n=st.sampled_from(CLASSES),
    size=st.sampled_from([1, 2, 30]),
    spread=st.sampled_from([0.01, 1.0, 30.0]),
    seed=st.integers(0, 10**6),
)
def test_prevalences_of_greatest_likelihood(n, size, spread, seed):
    logs = spread * np.random.default_rng(seed).normal(size=(size, n))
    rows = np.exp(logs - logs.max(axis=1, keepdims=True)) + 1e-12
    p = np.full((1, n), 1 / n)
    samples = np.arange(size), np.array([0, size])
    gap = mixture.maximise_samples(rows, *samples, p, 1e-10, 200)
    assert gap <= 1e-10
    assert reference.missing_likelihood(rows, p[0]) <= 1.1e-10
    assert p.min() >= 0.0
    assert p.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("bandwidth", [0.01, 0.1, 3.0])
@pytest.mark.parametrize(("n", "d"), [(1, 2), (64, 1), (65, 3), (700, 10)])
def test_kernel_densities(n, d, bandwidth):
    rng = np.random.default_rng(n)
    centres, points = rng.dirichlet(np.full(d, 0.4), size=n), rng.random((50, d))
    found = np.empty(len(points))
    density.log_densities(points, *density.blocks(centres), n, bandwidth, found)
    np.testing.assert_allclose(found, reference.log_density(points, centres, bandwidth), rtol=1e-12)


def test_densities_of_small_bandwidths_are_not_those_of_scikit_learn():
    """What the documentation of KDEyML says: scikit-learn loses the tails, unless its tree is one leaf."""
    rng = np.random.default_rng(0)
    centres, points = (rng.dirichlet(np.full(10, 0.3), size=n) for n in (2000, 50))
    found = np.empty(len(points))
    density.log_densities(points, *density.blocks(centres), len(centres), 0.01, found)
    one_leaf, tree = (
        KernelDensity(bandwidth=0.01, leaf_size=size).fit(centres).score_samples(points)
        for size in (2000, 40)
    )
    np.testing.assert_allclose(found, one_leaf, rtol=1e-10)
    assert abs(found - tree).max() > 1.0


# Agreement with QuaPy


@pytest.mark.parametrize("method", ["inversion", "invariant-ratio"])
@pytest.mark.parametrize("name", ["ACC", "PACC"])
def test_adjusted_counts(case, name, method):
    theirs, ours = case.both(name, method=method)
    np.testing.assert_array_equal(ours.Pte_cond_estim_, theirs.Pte_cond_estim_)
    predictions, expected, found = estimates(case, theirs, ours)
    rates = ours.Pte_cond_estim_.copy()
    counting = theirs.cc if name == "ACC" else theirs.pcc
    if method == "invariant-ratio":
        rates[-1] = 1.0
    weakest = np.linalg.svd(rates, compute_uv=False)[-1]
    for rows, p, other in zip(case.samples, found, expected, strict=True):
        q = counting.aggregate(predictions[rows])
        if method == "invariant-ratio":
            q[-1] = 1.0
        loss, their_loss = (np.linalg.norm(rates @ each - q) for each in (p, other))
        assert loss <= their_loss + 1e-9
        # QuaPy's solver stops when the loss changes by less than 1e-6.
        assert their_loss - loss < 1e-4
        # A minimum of least squares over a convex set is this close to points that are almost as good.
        distance = np.linalg.norm(p - other)
        assert distance <= np.sqrt(max(their_loss**2 - loss**2, 0.0)) / weakest + 1e-7


@pytest.mark.parametrize("options", [{}, {"exact_train_prev": False}])
def test_expectation_maximisation(case, options):
    theirs, ours = case.both("EMQ", **options)
    predictions, expected, found = estimates(case, theirs, ours)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    rows = case.samples[0]
    strict, other = (each.aggregate(predictions[rows], epsilon=1e-8) for each in (ours, theirs))
    np.testing.assert_allclose(strict, other, atol=1e-12)


@pytest.mark.parametrize("calib", ["bcts", "ts", "vs", "nbvs"])
def test_calibrated_expectation_maximisation(three, calib):
    pytest.importorskip("abstention", reason="calibration needs the package abstention")
    theirs, ours = three.both("EMQ", calib=calib, val_split=(three.X, three.y))
    _, expected, found = estimates(three, theirs, ours)
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_expectation_maximisation_without_a_class_in_training_or_without_end(three):
    theirs, ours = three.both("EMQ")
    for each in (theirs, ours):
        each.train_prevalence = np.array([0.5, 0.5, 0.0])
    _, expected, found = estimates(three, theirs, ours)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    posteriors = ours.classify(three.test.instances)
    with pytest.warns(UserWarning, match="1000 steps on 1 of 1 samples"):
        found = ours.aggregate(posteriors, epsilon=0.0)
    np.testing.assert_allclose(found, quiet(theirs.aggregate, posteriors, 0.0), atol=1e-10)


@pytest.mark.parametrize(
    "options", [{}, {"bandwidth": 0.3}, {"bandwidth": "scott"}, {"kernel": "ilr", "shrinkage": 0.1}]
)
def test_kernel_density_likelihood(case, options):
    theirs, ours = case.both("KDEyML", **options)
    predictions, expected, found = estimates(case, theirs, ours)
    n_classes = len(ours.classes_)
    points = theirs.transform_posteriors(predictions, theirs.kernel)
    logs = np.column_stack(
        [
            reference.log_density(points, np.asarray(kde.tree_.data), kde.bandwidth_)
            for kde in theirs.mix_densities
        ]
    )
    own = [ours.pdf(kde, predictions, ours.kernel, True) for kde in ours.mix_densities]
    np.testing.assert_allclose(np.column_stack(own), logs, rtol=1e-10, atol=1e-10)
    many = n_classes >= (30 if ours.kernel == "gaussian" else 20)
    rows = np.exp(logs - logs.max(axis=1, keepdims=True)) if many else np.exp(logs) + 1e-12
    for sample, p, other in zip(case.samples, found, expected, strict=True):
        part = rows[sample]
        assert reference.missing_likelihood(part, p) <= 1e-9
        other = np.maximum(other, 0.0) / np.maximum(other, 0.0).sum()
        value, their_value = (np.log(part @ each + 1e-300).sum() for each in (p, other))
        assert value >= their_value - 1e-8
        if ours.kernel == "gaussian" or n_classes < 10:  # QuaPy's densities are right
            assert value - their_value < 1e-3


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("HDy", {}),
        ("DyS", {}),
        ("DyS", {"n_bins": 4}),
        ("DyS", {"n_bins": 30, "tol": 1e-3}),
        ("DyS", {"n_bins": 200}),
        ("DyS", {"divergence": qp.functional.TopsoeDistance}),
        ("MS", {}),
    ],
)
def test_aggregations_of_two_classes_are_those_of_quapy_to_the_last_bit(two, name, options):
    theirs, ours = two.both(name, **options)
    _, expected, found = estimates(two, theirs, ours)
    np.testing.assert_array_equal(found, expected)


def test_topsoe(two):
    theirs, ours = two.both("DyS", divergence="topsoe")
    _, expected, found = estimates(two, theirs, ours)
    np.testing.assert_allclose(found, expected, atol=1e-4)  # ten times the tolerance of the search


@pytest.mark.parametrize("dtype", [float, np.float32])
@pytest.mark.parametrize("name", ["HDy", "DyS"])
def test_histograms_of_posteriors_on_the_edges_of_bins(two, name, dtype):
    theirs, ours = two.both(name)
    grid = (np.arange(0, 111) / 110).astype(dtype)
    for positive in (grid, grid[:1], grid[-1:], grid[::10], np.full(7, 0.1, dtype), grid[:3]):
        posteriors = np.column_stack([1 - positive, positive])
        np.testing.assert_array_equal(ours.aggregate(posteriors), theirs.aggregate(posteriors))


@pytest.mark.parametrize("name", ["HDy", "DyS"])
def test_histograms_of_classes_that_are_alike(two, name):
    """All mixtures are the same but for rounding, which then decides."""
    theirs, ours = two.both(name)
    labels = np.arange(200) % 2
    posteriors = two.classifier.predict_proba(np.repeat(two.X[:100], 2, axis=0))
    for each in (theirs, ours):
        each.aggregation_fit(posteriors, labels)
    np.testing.assert_array_equal(ours.aggregate(posteriors), theirs.aggregate(posteriors))


def test_median_sweep_learns_the_thresholds_of_quapy(two):
    scores = np.round(two.classifier.decision_function(two.X), 1)  # with ties
    for labels in (two.y, np.zeros_like(two.y), np.ones_like(two.y)):
        found = []
        for each in two.both("MS"):
            each.aggregation_fit(scores, labels)
            found.append(np.column_stack([each.thresholds, each.tprs, each.fprs]))
        np.testing.assert_array_equal(found[1], found[0])


def test_scores_that_are_not_numbers_reach_no_threshold(two):
    theirs, ours = two.both("MS")
    scores = np.array([np.nan, 0.3, -np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(ours.aggregate(scores), theirs.aggregate(scores))


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "exact-cc"},
        {"solver": "exact-raise", "norm": "mapsimplex"},
        {"norm": "condsoftmax"},
    ],
)
@pytest.mark.parametrize("name", ["ACC", "PACC"])
def test_parameters_that_run_quapys_own_code(three, name, options):
    theirs, ours = three.both(name, **options)
    _, expected, found = estimates(three, theirs, ours)
    np.testing.assert_array_equal(found, expected)


def test_presets_of_quapy_are_compiled():
    ratio = aggregation.ACC.newInvariantRatioEstimation(LogisticRegression(), val_split=3)
    expected = aggregative.ACC.newInvariantRatioEstimation(LogisticRegression(), val_split=3)
    assert type(ratio) is aggregation.ACC
    assert str(ratio.get_params()) == str(expected.get_params())
    calibrated = aggregation.EMQ.EMQ_BCTS(LogisticRegression())
    assert type(calibrated) is aggregation.EMQ
    assert str(calibrated.get_params()) == str(
        aggregative.EMQ.EMQ_BCTS(LogisticRegression()).get_params()
    )


# Use


@pytest.mark.parametrize("name", EVERY)
def test_threads_clones_and_pickles_estimate_the_same(two, name):
    ours = two.both(name)[1]
    predictions = ours.classify(two.test.instances)
    expected = ours.aggregate_samples(predictions, two.samples)
    for n_jobs in (2, 3, 100, -1):
        found = ours.aggregate_samples(predictions, two.samples, n_jobs=n_jobs)
        np.testing.assert_array_equal(found, expected)
    predictions.setflags(write=False)  # as joblib passes large arrays on
    for copied in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        found = copied.aggregate_samples(predictions, two.samples)
        np.testing.assert_array_equal(found, expected)
    unfitted = getattr(aggregation, name)(LogisticRegression(C=0.1))
    cloned = clone(unfitted)
    assert str(cloned.get_params()) == str(unfitted.get_params())
    theirs = getattr(aggregative, name)(LogisticRegression(C=0.1))
    assert list(cloned.get_params()) == list(theirs.get_params())


@pytest.mark.parametrize("name", ["ACC", "PACC", "EMQ", "KDEyML"])
def test_labels_that_are_words_and_other_classifiers(three, name):
    words = np.array(["b", "a", "c"])
    options = {"val_split": 2} if name != "EMQ" else {}
    theirs, ours = (
        getattr(module, name)(GaussianNB(), **options).fit(three.X, words[three.y])
        for module in (aggregative, aggregation)
    )
    rows = three.test.instances[three.samples[1]]
    np.testing.assert_allclose(ours.predict(rows), theirs.predict(rows), atol=2e-3)


PROTOCOLS = {
    "APP": {"n_prevalences": 5, "repeats": 2},
    "UPP": {"repeats": 8},
    "NPP": {"repeats": 8},
    "DirichletProtocol": {"repeats": 8, "alpha": 0.5},
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_predictions_under_protocols(three, protocol):
    options = {"sample_size": 30, "random_state": 7, **PROTOCOLS[protocol]}
    drawing = getattr(qp.protocol, protocol)(three.test, **options)
    theirs, ours = three.both("EMQ")
    expected = qp.evaluation.prediction(theirs, drawing)
    found = aggregation.prediction(ours, drawing)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], atol=1e-12)
    for other in (
        aggregation.prediction(ours, drawing, aggr_speedup=False),
        aggregation.prediction(theirs, drawing),
        qp.evaluation.prediction(ours, drawing),
    ):
        np.testing.assert_allclose(other[1], expected[1], atol=1e-12)
    assert aggregation.evaluate(ours, drawing, "mae") == pytest.approx(
        qp.evaluation.evaluate(theirs, drawing, "mae")
    )
    report, their_report = (
        module.evaluation_report(model, drawing, error_metrics=["mae", qp.error.mse])
        for module, model in ((aggregation, ours), (qp.evaluation, theirs))
    )
    assert list(report.columns) == list(their_report.columns)
    np.testing.assert_allclose(report["mse"], their_report["mse"])


def test_predictions_for_sparse_rows_of_words_and_for_samples_of_a_user(three):
    words = np.array(["x", "y", "z"])
    test = LabelledCollection(
        scipy.sparse.csr_matrix(three.test.instances), words[three.test.labels]
    )
    model = aggregation.ACC(LogisticRegression(C=0.1)).fit(three.X, words[three.y])
    drawing = qp.protocol.UPP(test, sample_size=20, repeats=4)
    true, found = aggregation.prediction(model, drawing)
    expected = qp.evaluation.prediction(model, drawing)
    np.testing.assert_array_equal(true, expected[0])
    np.testing.assert_array_equal(found, expected[1])
    samples = [three.test.sampling_from_index(rows) for rows in three.samples]
    model = three.both("PACC")[1]
    _, found = aggregation.prediction(model, qp.protocol.IterateProtocol(samples))
    np.testing.assert_allclose(found[0], model.predict(samples[0].instances))


def test_a_protocol_without_a_fixed_seed_draws_anew(three):
    model = three.both("PACC")[1]
    drawing = qp.protocol.UPP(three.test, sample_size=20, repeats=4, random_state=None)
    first, second = (aggregation.prediction(model, drawing)[0] for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("KDEyML", {"bandwidth": [0.05, 0.2], "classifier__C": [0.1, 1.0]}),
        ("PACC", {"classifier__C": [1e-5, 1.0]}),
    ],
)
def test_model_selection_chooses_what_it_chooses_with_quapys(three, name, grid):
    held = qp.protocol.UPP(three.test, sample_size=50, repeats=5, random_state=0)
    chosen = []
    for module in (aggregative, aggregation):
        model = getattr(module, name)(LogisticRegression(), val_split=2)
        search = GridSearchQ(model, grid, held, error="mae", refit=False, n_jobs=1)
        chosen.append(search.fit(three.X, three.y))
    assert chosen[1].best_params_ == chosen[0].best_params_
    assert chosen[1].best_score_ == pytest.approx(chosen[0].best_score_, abs=1e-3)
    assert type(chosen[1].best_model()) is getattr(aggregation, name)


def test_likelihoods_are_remembered_and_forgotten(three, monkeypatch):
    model = three.both("KDEyML")[1]
    posteriors = model.classify(three.test.instances)
    expected = [model.aggregate(posteriors[rows]) for rows in three.samples]
    known = len(model._remembered)
    assert known == len(np.unique(posteriors[np.concatenate(three.samples)], axis=0))
    assert not pickle.loads(pickle.dumps(model))._remembered
    monkeypatch.setattr(likelihood, "_MOST_ROWS", 100)
    model.aggregate(posteriors[500:])
    assert len(model._remembered) == 100
    again = [model.aggregate(posteriors[rows]) for rows in three.samples]
    np.testing.assert_array_equal(again, expected)
    # Another fit has other densities.
    model.aggregation_fit(posteriors, three.test.labels)
    assert not model._remembered
    assert not np.array_equal(model.aggregate(posteriors[three.samples[0]]), expected[0])


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([[0, 600]], "those of 600 rows; got 0 to 600"),
        ([[-1]], "those of 600 rows; got -1 to -1"),
        ([[0], []], "row indices for each sample; got .* float64"),
        ([[0], np.zeros(0, int)], "there are no rows"),
        ([[0.5]], "row indices for each sample; got .* float64"),
        (np.zeros((2, 2, 2), int), r"shape \(2, 2\)"),
    ],
)
def test_samples_that_cannot_be(two, indices, message):
    model = two.both("ACC")[1]
    with pytest.raises(ValueError, match=message):
        model.aggregate_samples(model.classify(two.test.instances), indices)


@pytest.mark.parametrize("name", EVERY)
def test_samples_without_rows(two, name):
    model = two.both(name)[1]
    predictions = model.classify(two.test.instances)
    assert model.aggregate_samples(predictions, []).shape == (0, 2)
    with pytest.raises(ValueError, match="there are no rows"):
        model.aggregate(predictions[:0])


@pytest.mark.parametrize("name", ["PACC", "EMQ", "KDEyML"])
def test_posteriors_that_cannot_be(three, name):
    model = three.both(name)[1]
    posteriors = model.classify(three.test.instances)
    for wrong in (posteriors[:, :2], np.hstack([posteriors, posteriors]), posteriors[:, 0]):
        for use in (model.aggregate, lambda rows: model.aggregate_samples(rows, [[0, 1]])):
            with pytest.raises(
                ValueError, match=r"a column for each of the 3 classes.*got an array"
            ):
                use(wrong)
    if name == "KDEyML":
        posteriors[0] = np.nan
        with pytest.raises(ValueError, match="finite numbers"):
            model.aggregate(posteriors)


@pytest.mark.parametrize(("name", "what"), [("ACC", "label"), ("MS", "score")])
def test_labels_and_scores_that_cannot_be(two, name, what):
    model = two.both(name)[1]
    with pytest.raises(ValueError, match=rf"one {what} for each row; got .* \(600, 2\)"):
        model.aggregate(np.zeros((600, 2)))


@pytest.mark.parametrize("name", aggregation.__all__)
def test_public_names_have_an_example(name):
    assert ">>>" in getattr(aggregation, name).__doc__
