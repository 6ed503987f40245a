"""Quantification trees and forests: against a plain reference, known optima, scikit-learn's and QuaPy's contracts."""

import pickle

import numpy as np
import pytest
import quapy as qp
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from quapy.method.aggregative import ACC, CC, EMQ, PACC
from quapy.model_selection import GridSearchQ
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from experiments.methods import is_binary, method
from experiments.names import parse_method
from quapy_nemsis import (
    CQB,
    CQReward,
    QForest,
    QMeasure,
    QTree,
    QuantificationForestClassifier,
    QuantificationTreeClassifier,
    Quantifier,
    load,
    make_measure,
    save,
)
from quapy_nemsis._kernels import trees as kernel
from quapy_nemsis.learners.nodes import Bins, edges_of
from quapy_nemsis.quantifiers.trees import _adjusted
from tests.conftest import make_classes, make_points
from tests.reference import trees as reference

BOTH = (QuantificationTreeClassifier, QuantificationForestClassifier)
MEASURES = ["cqb", "eb", QMeasure(), CQReward()]


def tree(*arguments, **parameters):
    return QuantificationTreeClassifier(*arguments, **{"random_state": 0, **parameters})


def forest(*arguments, **parameters):
    return QuantificationForestClassifier(
        *arguments, **{"random_state": 0, "n_estimators": 20, **parameters}
    )


# --------------------------------------------------------------- the algorithm


def assert_same_tree(nodes, expected, X, node=0):
    """The nodes of a table are those of the reference: features, which rows go left, sides of missing values, counts.

    Thresholds may differ between values that a node has.
    """
    if expected.left is None:
        assert nodes.left[node] < 0
        np.testing.assert_allclose(nodes.counts[-1 - nodes.left[node]], expected.counts)
        return
    assert nodes.left[node] >= 0
    assert nodes.feature[node] == expected.feature
    assert nodes.missing_left[node] == expected.missing_left
    column = X[:, expected.feature]
    goes_left, as_expected = (
        np.where(np.isnan(column), expected.missing_left, column <= threshold)
        for threshold in (nodes.threshold[node], expected.threshold)
    )
    np.testing.assert_array_equal(goes_left, as_expected)
    assert_same_tree(nodes, expected.left, X[goes_left], nodes.left[node])
    assert_same_tree(nodes, expected.right, X[~goes_left], nodes.left[node] + 1)


@st.composite
def problems(draw):
    """Small data with ties, missing values and integer weights, in which every class occurs."""
    n_classes = draw(st.integers(2, 4))
    n_rows = draw(st.integers(n_classes, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.integers(0, draw(st.integers(2, 9)), size=(n_rows, 3)).astype(float)
    X[rng.random(X.shape) < draw(st.sampled_from([0.0, 0.2]))] = np.nan
    y = rng.integers(0, n_classes, size=n_rows)
    y[:n_classes] = np.arange(n_classes)
    weights = rng.integers(1, 4, size=n_rows).astype(float)
    return X, y, weights, n_classes


@settings(max_examples=60, deadline=None)
@given(
    problem=problems(),
    measure=st.sampled_from(MEASURES),
    scope=st.sampled_from(["node", "tree"]),
    ties=st.sampled_from(["gini", "stop"]),
    limits=st.sampled_from([{}, {"max_depth": 2}, {"min_samples_leaf": 3}]),
)
def test_a_tree_is_that_of_the_reference(problem, measure, scope, ties, limits):
    X, y, weights, n_classes = problem
    options = {"scope": scope, "ties": ties, **limits}
    grown = tree(measure, **options).fit(X, y, sample_weight=weights)
    expected = reference.Grower(X, y, weights, n_classes, measure, **options).grow()
    assert_same_tree(grown.nodes_, expected, X)
    np.testing.assert_array_equal(grown.predict(X), expected.predict(X))


@settings(max_examples=30, deadline=None)
@given(problem=problems(), measure=st.sampled_from(MEASURES))
def test_a_stump_is_the_best_of_all_and_two_splits_are_no_better_than_the_best_two(
    problem, measure
):
    X, y, weights, n_classes = problem

    def lost(predicted):
        return reference.loss(measure, y, predicted, weights, n_classes)

    stump, deeper = (
        lost(tree(measure, max_depth=d, scope="tree").fit(X, y, weights).predict(X)) for d in (1, 2)
    )
    best, best_of_two = (
        min(map(lost, reference.all_predictions(X, y, weights, n_classes, d))) for d in (1, 2)
    )
    assert stump == pytest.approx(best, abs=1e-9)
    assert best_of_two - 1e-9 <= deeper <= stump + 1e-9


def test_two_splits_are_the_best_two_where_the_first_is():
    """An interval: cutting off one side is the best first split, and leaves a problem of one split."""
    X = np.arange(12.0)[:, np.newaxis]
    y = ((X[:, 0] > 3) & (X[:, 0] < 9)).astype(int)
    for measure in ("cqb", "eb"):
        every = reference.all_predictions(X, y, np.ones(12), 2, 2)
        best = min(reference.loss(measure, y, one, np.ones(12), 2) for one in every)
        grown = tree(measure, max_depth=2).fit(X, y)
        assert best == 0.0 == reference.loss(measure, y, grown.predict(X), np.ones(12), 2)
        assert grown.score(X, y) == 1.0


def test_gini_is_the_tree_of_scikit_learn():
    X, y = make_classes(n=250, d=4)
    limits = {"max_depth": 3, "min_samples_leaf": 15}  # deeper, splits are equally good
    ours = tree("gini", **limits).fit(X, y)
    theirs = DecisionTreeClassifier(**limits, random_state=0).fit(X, y)
    assert len(ours.nodes_.left) == theirs.tree_.node_count
    np.testing.assert_allclose(ours.feature_importances_, theirs.feature_importances_)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_cqb_balances_errors_where_gini_does_not():
    """On the rows that a shallow tree has learned."""
    X, y = make_points(n=4000, share=0.3, noise=2.0)
    trees = {m: tree(m, scope="tree", max_depth=3).fit(X, y) for m in ("cqb", "eb", "gini")}
    counts = {measure: grown.predict(X).mean() for measure, grown in trees.items()}
    assert abs(counts["cqb"] - y.mean()) < 0.01
    assert abs(counts["eb"] - y.mean()) < 0.01
    assert abs(counts["gini"] - y.mean()) > 0.03


def test_a_measure_object_cqb_is_the_name():
    X, y = make_points(n=200)
    same_nodes(tree(CQB()).fit(X, y), tree("cqb").fit(X, y))


def test_custom_measures():
    X, y = make_points(n=300, noise=2.0)
    custom = make_measure(lambda P, N, p, theta: 1.0 - (p * (1.0 - P) - (1.0 - p) * (1.0 - N)) ** 2)
    same_nodes(tree(custom).fit(X, y), tree("nss").fit(X, y))
    X, y = make_classes(n=300)
    with pytest.raises(ValueError, match="measure of two classes, and there are 3"):
        tree(custom).fit(X, y)


def same_nodes(first, second):
    for name, array in first.nodes_.to_arrays().items():
        np.testing.assert_array_equal(array, second.nodes_.to_arrays()[name], err_msg=name)


def test_weights_count_rows():
    X, y = make_classes(n=120)
    weights = np.random.default_rng(0).integers(0, 4, size=120)
    weights[:3] = 1
    many = tree("q", min_samples_leaf=4).fit(np.repeat(X, weights, 0), np.repeat(y, weights))
    weighted = tree("q", min_samples_leaf=4).fit(X, y, sample_weight=weights)
    same_nodes(many, weighted)
    by_class = tree(class_weight={0: 2.0, 2: 3.0}).fit(X, y)
    same_nodes(by_class, tree().fit(X, y, sample_weight=np.array([2.0, 1.0, 3.0])[y]))
    shares = np.bincount(y, weights) / weights.sum()
    np.testing.assert_allclose(weighted.class_prior_, shares)


def test_tiny_weights_do_not_stop_growth():
    X, y = make_points(n=200)
    same = tree().fit(X, y, sample_weight=np.full(200, 2.0**-20))
    assert len(same.nodes_.left) == len(tree().fit(X, y).nodes_.left)


# -------------------------------------------------------- bins, missing, sparse


def test_bins_hold_every_value_if_they_can():
    column = np.array([3.0, 1.0, np.nan, 1.0, 7.0])
    np.testing.assert_array_equal(edges_of(column, 255), [2.0, 5.0])
    assert edges_of(np.full(5, np.nan), 255).size == edges_of(np.ones(5), 255).size == 0
    near = np.array([1.0, np.nextafter(1.0, 2.0)])
    np.testing.assert_array_equal(edges_of(near, 255), [1.0])  # which x <= 1 tells apart
    huge = np.array([-1.7e308, 1.7e308])
    np.testing.assert_array_equal(edges_of(huge, 255), [0.0])


@pytest.mark.parametrize("max_bins", [2, 10, 255])
def test_bins_of_many_values_are_quantiles(max_bins):
    column = np.random.default_rng(0).exponential(size=20_000)
    edges = edges_of(column, max_bins)
    assert len(edges) == max_bins - 1
    bins = Bins.of(column[:, np.newaxis], max_bins)
    sizes = np.bincount(bins.codes[0], minlength=max_bins)
    assert sizes.max() - sizes.min() <= 2
    np.testing.assert_array_equal(bins.codes[0], np.searchsorted(edges, column))


def test_a_value_with_many_rows_has_one_bin():
    column = np.concatenate([np.zeros(5000), np.random.default_rng(0).random(5000)])
    edges = edges_of(column, 16)
    assert 0.0 < edges[0] < 1e-2
    assert (np.diff(edges) > 0).all()


def test_missing_values_go_to_the_better_side():
    x = np.array([1.0, 2.0, 3.0, 4.0, np.nan, np.nan])[:, np.newaxis]
    for y, side in (([0, 0, 1, 1, 1, 1], 1), ([0, 0, 1, 1, 0, 0], 0)):
        grown = tree().fit(x, y)
        assert grown.score(x, y) == 1.0
        assert grown.predict([[np.nan]]) == [side]
    grown = tree().fit(x, [0, 0, 0, 0, 1, 1])  # that a value is missing is all that tells
    np.testing.assert_array_equal(grown.predict([[1e300], [-1e300], [np.nan]]), [0, 0, 1])


def test_missing_values_that_were_never_seen_go_to_the_larger_side():
    x = np.arange(10.0)[:, np.newaxis]
    assert tree().fit(x, x[:, 0] > 6).predict([[np.nan]]) == [False]
    assert tree().fit(x, x[:, 0] > 2).predict([[np.nan]]) == [True]


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_rows_are_the_same_rows(kind, dtype):
    X, y = make_classes(n=300)
    X = np.where(np.abs(X) > 1.0, X, 0.0).astype(dtype)
    dense, sparse = (kind(random_state=0).fit(c(X), y) for c in (np.array, scipy.sparse.csr_matrix))
    same_nodes(dense, sparse)
    new = make_classes(n=50, seed=1)[0].astype(dtype)
    expected = dense.predict_proba(new)
    np.testing.assert_array_equal(sparse.predict_proba(scipy.sparse.csc_matrix(new)), expected)


def test_rows_of_training_find_the_leaves_they_grew():
    """Thresholds of values and codes of bins lead the same way, also where quantiles make the bins."""
    X, y = make_points(n=3000)
    X[::7, 1] = np.nan
    grown = tree(max_bins=20, min_samples_leaf=5).fit(X, y)
    (_, leaves), *rest = grown.nodes_.leaves(X)
    assert not rest
    counts = np.zeros_like(grown.nodes_.counts)
    np.add.at(counts, (leaves[:, 0], y.astype(int)), 1.0)
    np.testing.assert_array_equal(counts, grown.nodes_.counts)
    assert counts.sum(axis=1).min() >= 5


def test_blocks_do_not_matter(monkeypatch):
    X, y = make_points(n=500)
    grown = forest().fit(X, y)
    expected, votes = grown.predict_proba(X), grown.votes(X)
    monkeypatch.setattr("quapy_nemsis.learners.nodes._BLOCK", 600)
    np.testing.assert_array_equal(grown.predict_proba(X), expected)
    np.testing.assert_array_equal(grown.votes(X), votes)
    same_nodes(forest().fit(X, y), grown)


# ------------------------------------------------------------- trees and forests


def test_forests_do_not_depend_on_threads():
    X, y = make_classes(n=300)
    first, again = (forest(n_jobs=n).fit(X, y).to_arrays() for n in (None, 3))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name], err_msg=name)
    other = forest(random_state=1).fit(X, y).to_arrays()
    assert not np.array_equal(first["confusions"], other["confusions"])
    trees = forest(n_estimators=2).fit(X, y).nodes_  # which differ from one another
    assert len(trees.left) != 2 * trees.roots[1] or (
        trees.feature[0] != trees.feature[trees.roots[1]]
    )


@pytest.mark.parametrize(
    ("max_features", "tried"),
    [(None, 50), ("sqrt", 7), ("log2", 6), (3, 3), (99, 50), (0.1, 5), (1e-9, 1)],
)
def test_how_many_features_are_tried(max_features, tried):
    assert tree(max_features=max_features).growth(50).n_tried == tried


def test_drawn_features_are_drawn_alike_and_constant_ones_do_not_count():
    rng = np.random.default_rng(0)
    X = np.zeros((200, 12))
    X[:, 6:] = rng.normal(size=(200, 6))
    y = rng.random(200) < 0.5
    grown = forest(max_features=1, max_depth=1, n_estimators=600, ties="gini").fit(X, y)
    used = np.bincount(grown.nodes_.feature[grown.nodes_.roots], minlength=12)
    assert used[:6].sum() == 0
    assert used.sum() == 600
    assert used[6:].min() > 60


def test_importances():
    X, y = make_points(n=500, noise=0.5)
    for learner in (tree(), forest()):
        importances = learner.fit(X, y).feature_importances_
        assert importances.sum() == pytest.approx(1.0)
        assert np.argmax(importances) == 0
    alone = tree().fit(np.ones((10, 2)), np.arange(10) % 2)
    np.testing.assert_array_equal(alone.feature_importances_, [0.0, 0.0])
    np.testing.assert_allclose(alone.predict_proba(np.ones((1, 2))), [[0.5, 0.5]])


@pytest.mark.parametrize("make", [tree, forest])
def test_posteriors_are_honest(make):
    """Labels that rows say nothing about: leaves are sure of them, posteriors are not."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2000, 5)), rng.random(2000) < 0.3
    new = rng.random(2000) < 0.3
    learner = make().fit(X, y)
    rows = rng.normal(size=(2000, 5))
    honest = log_loss(new, learner.predict_proba(rows))
    assert honest < log_loss(new, np.tile([0.7, 0.3], (2000, 1))) + 0.01
    assert log_loss(new, learner.mean_posteriors(rows)) > honest + 0.02


@pytest.mark.parametrize("shares", [(0.9, 0.1), (0.6, 0.3, 0.1)])
@pytest.mark.parametrize("make", [tree, forest])
def test_posteriors_are_calibrated(make, shares):
    X, y = make_classes(n=4000, shares=shares)
    new, labels = make_classes(n=4000, shares=shares, seed=1)
    many = {"n_estimators": 100} if make is forest else {}  # of a few, hardly any are out of bag
    learner = make(min_samples_leaf=5, **many).fit(X, y)
    posteriors = learner.predict_proba(new)
    np.testing.assert_allclose(posteriors.sum(axis=1), 1.0)
    np.testing.assert_allclose(posteriors.mean(axis=0), shares, atol=0.025)
    assert log_loss(labels, posteriors) < log_loss(labels, learner.mean_posteriors(new)) + 1e-3


def test_errors_out_of_bag_are_those_of_new_rows():
    X, y = make_classes(n=3000)
    grown = forest(min_samples_leaf=5).fit(X, y)
    new, labels = make_classes(n=3000, seed=1)
    votes = grown.votes(new)
    for t in range(5):
        found = grown.confusions_[t] / grown.confusions_[t].sum()
        assert grown.confusions_[t].sum() == pytest.approx(3000 / np.e, rel=0.1)
        new_errors = np.zeros((3, 3))
        np.add.at(new_errors, (votes[:, t], labels), 1.0 / 3000)
        np.testing.assert_allclose(found, new_errors, atol=0.04)


def test_a_few_rows():
    for make in (tree, forest):
        learner = make(**({"n_estimators": 1} if make is forest else {})).fit(
            [[0.0], [1.0]], [0, 1]
        )
        assert np.isfinite(learner.predict_proba([[0.0], [1.0]])).all()


def test_scope_tree_stops_when_all_is_balanced():
    X, y = make_points(n=1000, share=0.5, noise=2.0)
    whole, nodes = (tree(scope=scope).fit(X, y) for scope in ("tree", "node"))
    assert len(whole.nodes_.left) < len(nodes.nodes_.left)
    assert whole.predict(X).mean() == pytest.approx(y.mean(), abs=2e-3)


# ----------------------------------------------------------------- scikit-learn

RANDOM = "folds and bootstrap samples are drawn from rows, and a row of weight 2 is one row"
CANNOT_PASS = {
    "check_sample_weight_equivalence_on_dense_data": RANDOM,
    "check_sample_weight_equivalence_on_sparse_data": RANDOM,
}
CANNOT_PASS_ALONE = {
    "check_class_weight_classifiers": (
        "a leaf of one class predicts it, however little its rows weigh; scikit-learn's trees pass because the check "
        "sets min_weight_fraction_leaf"
    ),
}


def expected_failures(estimator):
    alone = isinstance(estimator, QuantificationTreeClassifier)
    return CANNOT_PASS | CANNOT_PASS_ALONE if alone else CANNOT_PASS


@parametrize_with_checks([tree(), forest()], expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("kind", "check"), [(kind, check) for kind in BOTH for check in expected_failures(kind())]
)
def test_each_expected_failure_is_one(kind, check):
    with pytest.raises(AssertionError):
        getattr(estimator_checks, check)(kind.__name__, kind())


@pytest.mark.parametrize("kind", [*BOTH, QTree, QForest])
@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"measure": "nothing"}, ValueError, "unknown measure 'nothing'.*trees also know cqb, eb"),
        ({"measure": 3}, TypeError, "measure must be a name or a Measure object; got 3"),
        ({"scope": "leaf"}, ValueError, "scope must be one of .*'node', 'tree'.*got 'leaf'"),
        ({"ties": None}, TypeError, "ties must be a string; got None"),
        ({"max_depth": 0}, ValueError, "max_depth must be at least 1; got 0"),
        ({"max_depth": 2.5}, TypeError, "max_depth must be an integer; got 2.5"),
        ({"min_samples_leaf": 0.5}, ValueError, "min_samples_leaf must be at least 1; got 0.5"),
        ({"min_samples_leaf": np.nan}, ValueError, "min_samples_leaf must be at least 1; got nan"),
        ({"min_samples_leaf": "5"}, TypeError, "min_samples_leaf must be a number; got '5'"),
        ({"max_features": 0}, ValueError, "max_features must be at least 1; got 0"),
        ({"max_features": 1.5}, ValueError, "max_features must be a share .* got 1.5"),
        ({"max_features": "all"}, ValueError, "max_features must be one of .* got 'all'"),
        ({"max_features": True}, TypeError, "max_features must be a number, .* got True"),
        ({"max_bins": 256}, ValueError, "max_bins must be at most 255; got 256"),
        ({"max_bins": 1}, ValueError, "max_bins must be at least 2; got 1"),
        ({"random_state": "x"}, ValueError, "random_state must be an integer"),
        ({"class_weight": {7: 1.0}}, ValueError, "class_weight names 7"),
    ],
)
def test_bad_parameters(kind, parameters, error, message):
    X, y = make_points(n=60)
    learner = kind(**parameters)
    with pytest.raises(error, match=message):
        learner.fit(X, y)
    assert not hasattr(learner, "classes_") if kind in BOTH else True
    if kind in BOTH:
        kept = kind(max_depth=1, random_state=0).fit(X, y)
        before = kept.to_arrays()
        with pytest.raises(error, match=message):
            kept.set_params(**parameters).fit(X, y)
        assert kept.to_arrays().keys() == before.keys()


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"n_estimators": 0}, ValueError, "n_estimators must be at least 1; got 0"),
        ({"n_estimators": "x"}, TypeError, "n_estimators must be an integer; got 'x'"),
        ({"n_jobs": 0}, ValueError, "n_jobs must not be 0"),
        ({"n_jobs": 1.5}, TypeError, "n_jobs must be an integer; got 1.5"),
        ({"adjust": 1}, TypeError, "adjust must be True or False; got 1"),
    ],
)
def test_bad_parameters_of_forests(parameters, error, message):
    X, y = make_points(n=60)
    with pytest.raises(error, match=message):
        QForest(**parameters).fit(X, y)


def test_bad_data():
    X, y = make_points(n=60)
    with pytest.raises(ValueError, match="infinity"):
        tree().fit(np.where(X > 1.0, np.inf, X), y)
    with pytest.raises(ValueError, match="needs two classes or more"):
        tree().fit(X, np.ones(60))
    with pytest.raises(ValueError, match="at least one non-zero"):
        tree().fit(X, y, sample_weight=np.zeros(60))
    with pytest.raises(ValueError, match="features"):
        tree().fit(X, y).predict(X[:, :2])


# ------------------------------------------------------------------------ QuaPy


@pytest.fixture(scope="module")
def drift():
    X, y = make_points(n=3000, noise=1.0)
    new, labels = make_points(n=3000, noise=1.0, seed=1)
    return X, y, qp.data.LabelledCollection(new, labels.astype(int))


def error(quantifier, test):
    protocol = qp.protocol.APP(test, 300, n_prevalences=11, repeats=2, random_state=0)
    return qp.evaluation.evaluate(quantifier, protocol, error_metric="mae")


def test_quapy_methods_take_the_classifiers(drift):
    X, y, test = drift
    y = y.astype(int)
    counted = error(QForest(adjust=False, random_state=0, n_estimators=20).fit(X, y), test)
    learner = forest(min_samples_leaf=5)
    quantifiers = [EMQ(clone(learner)), ACC(clone(learner)), PACC(clone(learner))]
    quantifiers += [Quantifier(clone(learner)), QForest(n_estimators=20, random_state=0)]
    quantifiers += [EMQ(tree(min_samples_leaf=20))]
    for quantifier in quantifiers:
        assert error(quantifier.fit(X, y), test) < 0.6 * counted, quantifier
    assert Quantifier(clone(learner)).val_split is None


def test_quantifier_takes_the_posteriors_out_of_bag():
    X, y = make_classes(n=600)
    quantifier = Quantifier(forest(), random_state=0).fit(X, y)
    assert quantifier.calibration_ is quantifier.classifier.calibration_
    estimate, region = quantifier.predict_conf(X)
    np.testing.assert_allclose(estimate, np.bincount(y) / 600, atol=0.06)
    assert (region.I_low <= region.I_high).all()


def test_trees_count(drift):
    X, y, test = drift
    names = np.where(y, "yes", "no")
    quantifier = QTree(max_depth=4, random_state=0).fit(X, names)
    assert quantifier.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(quantifier.predict(X), [1.0 - y.mean(), y.mean()], atol=0.02)
    one = QForest(n_estimators=1, adjust=False, random_state=0).fit(X, names)
    votes = one.classifier.votes(test.X)[:, 0]
    np.testing.assert_allclose(one.predict(test.X), np.bincount(votes) / len(votes))


def test_the_forest_averages_what_its_trees_count(drift):
    X, y, test = drift
    quantifier = QForest(n_estimators=7, random_state=0).fit(X, y)
    votes, expected = quantifier.classify(test.X), []
    for t in range(7):
        (tn, fn), (fp, tp) = quantifier.classifier.confusions_[t]
        tpr, fpr = tp / (tp + fn), fp / (fp + tn)
        expected.append(np.clip((votes[:, t].mean() - fpr) / (tpr - fpr), 0.0, 1.0))
    assert quantifier.predict(test.X)[1] == pytest.approx(np.mean(expected), abs=1e-9)
    quantifier.set_params(adjust=False)
    assert quantifier.predict(test.X)[1] == pytest.approx(votes.mean())


@pytest.mark.parametrize("quantifier", [QTree(max_depth=3), QForest(n_estimators=3)])
def test_quantifiers_are_saved(drift, quantifier, tmp_path):
    X, y, test = drift
    quantifier = clone(quantifier).fit(X, np.where(y, "yes", "no"))
    save(quantifier, tmp_path / "quantifier.npz")
    again = load(tmp_path / "quantifier.npz")
    assert repr(again) == repr(quantifier)
    assert again.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(again.predict(test.X), quantifier.predict(test.X))


def test_counts_of_several_classes_are_adjusted():
    rng = np.random.default_rng(0)
    for n_classes in (2, 3, 6):
        rates = rng.dirichlet(np.ones(n_classes), size=n_classes).T + np.eye(n_classes)
        rates /= rates.sum(axis=0)
        p = rng.dirichlet(np.ones(n_classes))
        found = _adjusted(rates @ p, rates * rng.uniform(1.0, 9.0, size=n_classes))
        np.testing.assert_allclose(found, p, atol=1e-6)
    np.testing.assert_allclose(_adjusted(np.array([0.2, 0.8]), np.diag([5.0, 0.0])), [0.2, 0.8])


def test_what_cannot_be_aggregated(drift):
    X, y, _ = drift
    quantifier = QForest(n_estimators=3, random_state=0).fit(X[:200], y[:200])
    for predictions in (np.zeros(5), np.zeros((5, 2), dtype=int), np.zeros((0, 3), dtype=int)):
        with pytest.raises(ValueError, match="a column for each of the 3 trees"):
            quantifier.aggregate(predictions)


def test_model_selection(drift):
    X, y, test = drift
    protocol = qp.protocol.APP(test, 100, n_prevalences=5, repeats=1, random_state=0)
    model = QForest(n_estimators=5, random_state=0)
    grid = {"min_samples_leaf": [1, 10], "measure": ["cqb", "gini"]}
    found = GridSearchQ(model, grid, protocol, error="mae", n_jobs=1).fit(X, y.astype(int))
    assert found.best_params_.keys() == grid.keys()
    assert found.best_model().classifier.min_samples_leaf == found.best_params_["min_samples_leaf"]
    assert clone(model).get_params() == model.get_params()


def test_names_in_experiments():
    forest_of_eb = method("QForest:eb (tuned)")(3)
    assert isinstance(forest_of_eb, QForest)
    assert (forest_of_eb.measure, forest_of_eb.random_state) == ("eb", 3)
    assert parse_method("QForest:eb (tuned)").grids == [{"min_samples_leaf": [1, 5, 25]}]
    for name, kind in (("EMQ(QForest)", EMQ), ("ACC(QTree:gini)", ACC), ("QTree", CC)):
        made = method(name)(3)
        assert isinstance(made, kind)
        assert isinstance(made.classifier, BOTH)
        assert parse_method(name).grids[0]["classifier__min_samples_leaf"] == [1, 5, 25]
    for name in ("QTree:nothing", "EMQ(QForest:x)"):
        with pytest.raises(ValueError, match="trees also know cqb, eb, gini"):
            method(name)
    assert not is_binary("QForest")
    assert isinstance(method("EMQ(forest-isotonic)")(3).classifier, CalibratedClassifierCV)


# ------------------------------------------------------------------------ files


@pytest.mark.parametrize("make", [tree, forest])
def test_saved_learners_come_back(make, tmp_path):
    X, y = make_classes(n=200)
    X[::9, 0] = np.nan
    learner = make(QMeasure(2.0), max_depth=4).fit(X, np.array(["a", "b", "c"])[y])
    save(learner, tmp_path / "learner.npz")
    for again in (load(tmp_path / "learner.npz"), pickle.loads(pickle.dumps(learner))):
        assert repr(again) == repr(learner)
        same_nodes(again, learner)
        np.testing.assert_array_equal(again.predict_proba(X), learner.predict_proba(X))


FORGED = {
    "a child before its parent": ("nodes.left", lambda a: np.where(a > 0, 0, a)),
    "a child of its own": ("nodes.left", lambda a: np.where(a > 0, np.arange(len(a)), a)),
    "a child behind the end": ("nodes.left", lambda a: np.where(a > 0, len(a) - 1, a)),
    "a far child": ("nodes.left", lambda a: np.where(a > 0, 2**31 - 1, a)),
    "a far leaf": ("nodes.left", lambda a: np.where(a < 0, -(2**31), a)),
    "no such feature": ("nodes.feature", lambda a: np.where(a >= 0, 6, a)),
    "a negative feature": ("nodes.feature", lambda a: np.full_like(a, -5)),
    "no number": ("nodes.threshold", lambda a: np.full_like(a, np.nan)),
    "a far root": ("nodes.roots", lambda a: a + 10**6),
    "a negative root": ("nodes.roots", lambda a: a - 10**6),
    "no root": ("nodes.roots", lambda a: a[:0]),
    "an empty leaf": ("nodes.counts", lambda a: 0.0 * a),
    "a negative leaf": ("nodes.counts", lambda a: -a),
    "an infinite leaf": ("nodes.counts", lambda a: a + np.inf),
    "fewer leaves": ("nodes.counts", lambda a: a[:-1]),
    "a class too many": ("nodes.counts", lambda a: np.hstack([a, a])),
    "no prior": ("class_prior", lambda a: np.array([1.0, 0.0])),
    "importances": ("importances", lambda a: a + np.nan),
    "negative errors": ("confusions", lambda a: -1.0 - a),
    "errors of fewer trees": ("confusions", lambda a: a[1:]),
    "calibration": ("calibration.scores", lambda a: a + np.nan),
}


@pytest.mark.parametrize("how", FORGED)
def test_forged_tables_are_refused(how, tmp_path):
    from tests.forging import forged, opened

    X, y = make_points(n=100)
    save(forest(n_estimators=3).fit(X, y), tmp_path / "learner.npz")
    header, arrays = opened(tmp_path / "learner.npz")
    name, change = FORGED[how]
    with pytest.raises(ValueError, match="does not hold a learner of this package"):
        forged(tmp_path / "forged.npz", header, {**arrays, name: change(arrays[name])})
    assert forged(tmp_path / "forged.npz", header, arrays).score(X, y) > 0.9


def test_kernels_agree_on_codes_and_values():
    assert kernel.MISSING == 255
    bins = Bins.of(np.array([[np.nan], [0.0], [2.0]]), 255)
    np.testing.assert_array_equal(bins.codes, [[255, 0, 1]])
