"""Random features, and `Quantifier` with them."""

import numpy as np
import pytest
import scipy.sparse
from quapy.data import LabelledCollection
from quapy.evaluation import evaluate
from quapy.protocol import APP
from sklearn.base import clone
from sklearn.datasets import make_circles
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import parametrize_with_checks

from quapy_nemsis import FourierFeatures, Quantifier
from tests.conftest import make_points


@parametrize_with_checks([FourierFeatures(n_components=20, random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def rows(n=40, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def random_part(features, X):
    return features.transform(X)[:, X.shape[1] :] / features.scale_


@pytest.mark.parametrize("bandwidth", [0.7, 2.0])
def test_inner_products_approximate_the_gaussian_kernel(bandwidth):
    X = rows()
    found = random_part(FourierFeatures(20_000, bandwidth, random_state=0).fit(X), X)
    distances = ((X[:, np.newaxis] - X) ** 2).sum(axis=2)
    kernel = np.exp(-distances / (2.0 * bandwidth**2))
    np.testing.assert_allclose(found @ found.T, kernel, atol=0.03)


def test_orthogonal_directions_approximate_better_than_independent_ones():
    X, bandwidth = rows(d=8), 3.0
    kernel = np.exp(-((X[:, np.newaxis] - X) ** 2).sum(axis=2) / (2.0 * bandwidth**2))
    errors = []
    for seed in range(20):
        found = random_part(FourierFeatures(32, bandwidth, random_state=seed).fit(X), X)
        free = X @ np.random.default_rng(seed).normal(size=(8, 16)) / bandwidth
        independent = np.hstack([np.cos(free), np.sin(free)]) / 4.0
        errors.append([((each @ each.T - kernel) ** 2).mean() for each in (found, independent)])
    orthogonal, independent = np.mean(errors, axis=0)
    assert orthogonal < 0.8 * independent


def test_rows_come_first_and_weigh_as_much_as_their_features():
    X = rows(500)
    found = FourierFeatures(random_state=0).fit(X).transform(X)
    np.testing.assert_array_equal(found[:, :3], X)
    np.testing.assert_allclose((found[:, 3:] ** 2).sum(axis=1), (X**2).sum(axis=1).mean(), rtol=0.1)


def test_the_bandwidth_is_half_the_median_distance():
    X = rows(2000)
    pairs = np.sqrt(((X[:1000] - X[1000:]) ** 2).sum(axis=1))
    assert FourierFeatures(random_state=0).fit(X).bandwidth_ == pytest.approx(
        0.5 * np.median(pairs), rel=0.1
    )


def test_sparse_rows_have_the_same_features():
    X = rows(300) * (rows(300, seed=1) > 0.0)
    dense = FourierFeatures(random_state=0).fit(X)
    sparse = FourierFeatures(random_state=0).fit(scipy.sparse.csr_matrix(X))
    found = sparse.transform(scipy.sparse.csr_matrix(X))
    np.testing.assert_allclose(found, dense.transform(X), atol=1e-12)


def test_later_parts_of_a_stream_change_nothing():
    features = FourierFeatures(10, random_state=0).partial_fit(rows())
    before = features.transform(rows(seed=2))
    features.partial_fit(100.0 * rows(seed=3))
    np.testing.assert_array_equal(features.transform(rows(seed=2)), before)


def test_equal_rows_have_features():
    assert np.isfinite(FourierFeatures(random_state=0).fit_transform(np.ones((5, 2)))).all()


@pytest.mark.parametrize(
    "wrong", [{"n_components": 0}, {"bandwidth": 0.0}, {"bandwidth": "wide"}, {"random_state": "x"}]
)
def test_parameters_that_make_no_sense_are_refused(wrong):
    (name,) = wrong
    with pytest.raises((TypeError, ValueError), match=name):
        FourierFeatures(**wrong).fit(rows())


@pytest.fixture(scope="module")
def circles():
    X, y = make_circles(4000, noise=0.15, factor=0.6, random_state=0)
    return LabelledCollection(X[:1000], y[:1000]), LabelledCollection(X[1000:], y[1000:])


def error(quantifier, test):
    return evaluate(quantifier, APP(test, 200, n_prevalences=11, repeats=3, random_state=0), "mae")


def test_a_quantifier_uses_features_where_they_tell_classes_apart(circles):
    train, test = circles
    plain = Quantifier(features=None, random_state=0).fit(*train.Xy)
    found = Quantifier(random_state=0).fit(*train.Xy)
    given = Quantifier(features=FourierFeatures(random_state=0), random_state=0).fit(*train.Xy)
    assert plain.features_ is None
    assert isinstance(found.features_, FourierFeatures)
    assert error(found, test) < 0.05 < 3.0 * error(found, test) < error(plain, test)
    np.testing.assert_array_equal(found.classify(test.X), given.classify(test.X))
    np.testing.assert_array_equal(found.draw(test.X[:50]), given.draw(test.X[:50]))


def test_a_quantifier_does_without_features_where_a_linear_score_will_do():
    X, y = make_points(n=2000, d=4, share=0.3, noise=0.8)
    assert Quantifier(random_state=0).fit(X, y).features_ is None


def test_sparse_rows_stay_as_they_are(circles):
    quantifier = Quantifier(random_state=0).fit(scipy.sparse.csr_matrix(circles[0].X), circles[0].y)
    assert quantifier.features_ is None


def test_many_rows_are_given_their_features_in_blocks(circles, monkeypatch):
    quantifier = Quantifier(random_state=0).fit(*circles[0].Xy)
    expected = quantifier.classify(circles[1].X)
    monkeypatch.setattr("quapy_nemsis.quantifiers.default._BLOCK", 700)
    np.testing.assert_allclose(quantifier.classify(circles[1].X), expected, rtol=1e-9)


def test_other_classifiers_and_streams_take_a_given_transformer(circles):
    train, test = circles
    squares = PolynomialFeatures(2)
    other = Quantifier(LogisticRegression(), features=squares, random_state=0).fit(*train.Xy)
    assert error(other, test) < 0.05
    stream = Quantifier(features=squares, random_state=0)
    for part in range(0, 1000, 250):
        stream.partial_fit(train.X[part : part + 250], train.y[part : part + 250])
    plain = Quantifier(features=None, random_state=0).fit(*train.Xy)
    assert error(stream, test) < 0.5 * error(plain, test)
    assert clone(stream).features is not squares
    assert not hasattr(squares, "n_features_in_")


def test_features_that_make_no_sense_are_refused(circles):
    with pytest.raises(ValueError, match="features must be 'auto', None, or a transformer"):
        Quantifier(features="all").fit(*circles[0].Xy)
