"""Random features, and `Quantifier` with them."""

import pickle

import numpy as np
import pytest
import scipy.sparse
from quapy.data import LabelledCollection
from quapy.evaluation import evaluate
from quapy.protocol import APP
from sklearn.base import clone
from sklearn.datasets import make_circles
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from quapy_nemsis import FourierFeatures, NEMSISClassifier, NystromFeatures, Quantifier, load, save
from tests.conftest import make_points
from tests.forging import forged, opened, put

KINDS = (FourierFeatures, NystromFeatures)


@parametrize_with_checks([kind(n_components=20, random_state=0) for kind in KINDS])
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


def gaussian(X, Z, bandwidth):
    return np.exp(-((X[:, np.newaxis] - Z) ** 2).sum(axis=2) / (2.0 * bandwidth**2))


def test_nystrom_features_are_the_projection_onto_the_landmarks():
    X, bandwidth = rows(60), 1.3
    features = NystromFeatures(15, bandwidth, random_state=0).fit(X)
    found, Z = random_part(features, X), features.landmarks_
    assert len(Z) == 15
    assert all((z == X).all(axis=1).any() for z in Z)
    # Williams and Seeger (2001): the kernel of all rows, from that of all rows and the landmarks.
    cross = gaussian(X, Z, bandwidth)
    expected = cross @ np.linalg.solve(gaussian(Z, Z, bandwidth), cross.T)
    np.testing.assert_allclose(found @ found.T, expected, atol=1e-8)
    np.testing.assert_allclose(found @ random_part(features, Z).T, cross, atol=1e-8)


def test_with_all_rows_as_landmarks_the_kernel_is_exact():
    X = np.vstack([rows(30), rows(5)])  # five of them twice
    features = NystromFeatures(100, 0.9, random_state=0).fit(X)
    found = random_part(features, X)
    np.testing.assert_allclose(found @ found.T, gaussian(X, X, 0.9), atol=1e-6)
    assert list(features.get_feature_names_out()[[0, -1]]) == [
        "nystromfeatures0",
        "nystromfeatures37",
    ]


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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_sparse_rows_have_the_same_features(kind, method):
    X = rows(300) * (rows(300, seed=1) > 0.0)
    dense, sparse = kind(20, random_state=0), kind(20, random_state=0)
    getattr(dense, method)(X)
    getattr(sparse, method)(scipy.sparse.csr_matrix(X))
    found = sparse.transform(scipy.sparse.csr_matrix(X))
    np.testing.assert_allclose(found, dense.transform(X), atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_has_the_same_features_however_it_is_divided(kind):
    X = rows(3000) * np.linspace(0.1, 3.0, 3000)[:, np.newaxis]
    whole = kind(10, random_state=0).partial_fit(X)
    for sizes in ([1, 2, 996, 1, 1500, 500], [1000] * 3):
        parts = kind(10, random_state=0)
        for part in np.split(X, np.cumsum(sizes)[:-1]):
            parts.partial_fit(part)
        assert parts.reservoir_.seen == 3000
        np.testing.assert_array_equal(parts.transform(X[:50]), whole.transform(X[:50]))
    assert whole.reservoir_ is None
    assert kind(10, random_state=0).fit(X).bandwidth_ == pytest.approx(whole.bandwidth_, rel=0.1)


def test_each_row_of_a_stream_is_as_likely_to_be_kept():
    X, counts = np.arange(4000.0)[:, np.newaxis], np.zeros(8)
    for seed in range(40):
        features = NystromFeatures(10, random_state=seed)
        for part in np.array_split(X, 7):
            features.partial_fit(part)
        kept = features.reservoir_.rows.ravel()
        assert len(np.unique(kept)) == 1000
        counts += np.bincount((kept // 500).astype(int), minlength=8)
    # 40,000 rows without replacement from a fourth: the standard deviation of a count is about 61.
    np.testing.assert_allclose(counts, 5000.0, atol=5 * 61)


@pytest.mark.parametrize("kind", KINDS)
def test_later_parts_of_a_stream_change_nothing(kind):
    features = kind(10, random_state=0).partial_fit(rows())
    before = features.transform(rows(seed=2))
    features.partial_fit(100.0 * rows(seed=3))
    np.testing.assert_array_equal(features.transform(rows(seed=2)), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_cannot_be_used_changes_nothing(kind):
    features = kind(10, random_state=0).partial_fit(rows())
    known = features.reservoir_
    for bad, message in ((rows() * np.nan, "NaN"), (rows(d=4), "4 features")):
        with pytest.raises(ValueError, match=message):
            features.partial_fit(bad)
        assert features.reservoir_ is known


@pytest.mark.parametrize("kind", KINDS)
def test_equal_rows_have_features(kind):
    assert np.isfinite(kind(random_state=0).fit_transform(np.ones((5, 2)))).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", [None, "fit", "partial_fit"])
def test_features_are_saved_pickled_and_cloned(kind, method, tmp_path):
    features = kind(6, random_state=0)
    if method:
        getattr(features, method)(rows())
    save(features, tmp_path / "features.npz")
    for again in (load(tmp_path / "features.npz"), pickle.loads(pickle.dumps(features))):
        assert repr(again) == repr(features) == repr(clone(again))
        if method == "partial_fit":  # the stream goes on
            np.testing.assert_array_equal(
                again.partial_fit(rows(seed=1)).transform(rows(seed=2)),
                clone(features)
                .partial_fit(rows())
                .partial_fit(rows(seed=1))
                .transform(rows(seed=2)),
            )
        elif method:
            np.testing.assert_array_equal(again.transform(rows()), features.transform(rows()))


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("0.landmarks", put(np.nan, 0), "landmarks, projection, bandwidth or scale"),
        ("0.landmarks", lambda a: a[:0], "'projection' has the wrong shape"),
        ("0.projection", lambda a: a[1:], "'projection' has the wrong shape"),
        ("0.bandwidth", put(0.0), "bandwidth or scale are not valid"),
        ("0.reservoir.keys", lambda a: a[::-1], "reservoir is not valid"),
        ("0.reservoir.rows", put(np.inf, 0), "reservoir is not valid"),
        ("0.reservoir.rows", lambda a: a[:, 1:], "'rows' has the wrong shape"),
        ("0.reservoir.seen", put(3), "reservoir is not valid"),
        ("0.reservoir.more", lambda a: np.zeros(1), "unexpected array 'more'"),
        ("names", ["one", "one"], "names of its steps"),
        ("names", ["one"], "names of its steps"),
        ("names", [1, "two"], "names of its steps"),
        ("names", None, "not iterable|names of its steps"),
    ],
)
def test_forged_pipelines_are_refused(name, wrong, message, tmp_path):
    features = NystromFeatures(6, random_state=0).partial_fit(rows())
    save(make_pipeline(features, NEMSISClassifier("q")), tmp_path / "pipeline.npz")
    header, arrays = opened(tmp_path / "pipeline.npz")
    if name == "names":
        header["parameters"]["names"] = wrong
    else:
        arrays[name] = wrong(arrays.get(name))
    with pytest.raises(ValueError, match=rf"does not hold .*({message})"):
        forged(tmp_path / "pipeline.npz", header, arrays)


@pytest.mark.parametrize("kind", KINDS)
def test_a_pipeline_is_saved(kind, tmp_path):
    X, y = rows(200), np.linalg.norm(rows(200), axis=1) > 1.5
    learner = NEMSISClassifier("ba", eta0=0.3, radius=10.0, n_passes=2, random_state=0)
    pipeline = make_pipeline(kind(6, random_state=0), learner)
    save(pipeline, tmp_path / "pipeline.npz")
    assert repr(load(tmp_path / "pipeline.npz")) == repr(pipeline)
    save(pipeline.fit(X, y), tmp_path / "pipeline.npz")
    again = load(tmp_path / "pipeline.npz")
    np.testing.assert_array_equal(again.predict_proba(X), pipeline.predict_proba(X))
    pipeline.steps[0] = ("other", kind(8, random_state=0).fit(X))
    with pytest.raises(ValueError, match="do not fit its learner"):
        save(pipeline, tmp_path / "pipeline.npz")
    for wrong in (
        make_pipeline(StandardScaler(), learner),
        make_pipeline(kind(), LogisticRegression()),
    ):
        with pytest.raises(
            TypeError, match=r"save takes .*Pipeline.*; got (StandardScaler|Logistic)"
        ):
            save(wrong, tmp_path / "pipeline.npz")
    with pytest.raises(ValueError, match="random features and then a learner"):
        save(make_pipeline(learner, kind()), tmp_path / "pipeline.npz")


@pytest.mark.parametrize(
    "wrong", [{"n_components": 0}, {"bandwidth": 0.0}, {"bandwidth": "wide"}, {"random_state": "x"}]
)
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_that_make_no_sense_are_refused(kind, wrong):
    (name,) = wrong
    for method in ("fit", "partial_fit"):
        with pytest.raises((TypeError, ValueError), match=name):
            getattr(kind(**wrong), method)(rows())


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
