"""Batch learners on features that nobody scaled: they come back, and say what is wrong."""

import time
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning

from quapy_nemsis import CANClassifier, SVMPerfClassifier
from tests.conftest import make_points
from tests.reference import structural as reference

CANCER = load_breast_cancer(return_X_y=True)
# For a machine that does other things too; each takes a second or two, and took minutes.
SECONDS = 30.0


def fitted(learner, X, y):
    """The fitted learner and the warnings, if it was quick."""
    begin = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learner.fit(X, y)
    assert time.perf_counter() - begin < SECONDS
    assert np.isfinite(learner.coef_).all()
    assert np.isfinite(learner.intercept_).all()
    assert {str(warning.message).split(" ", 1)[0] for warning in caught} <= {"the", "features"}
    return learner, [str(w.message) for w in caught if w.category is ConvergenceWarning]


@pytest.mark.parametrize("scale", [1e4, 1e8, 1e100])
@pytest.mark.parametrize("loss", ["kld", "qrecall"])
@pytest.mark.parametrize("container", [np.asarray, scipy.sparse.csr_matrix])
def test_the_structural_svm_on_large_features(scale, loss, container):
    X, y = make_points(n=120)
    learner, messages = fitted(SVMPerfClassifier(loss, C=100.0), container(scale * X), y)
    largest = f"{scale * np.abs(X).max():.3g}"
    assert len(messages) == 1
    assert messages[0].startswith(f"the duality gap is {learner.gap_:.2g} after {learner.n_iter_} ")
    assert f"the features are up to {largest} in size: scale them" in messages[0]
    assert "StandardScaler" in messages[0]
    # The gap is that of the weights: J there, and a value that J is nowhere less than.
    weights = learner.coef_[0], learner.intercept_[0]
    primal = reference.objective(scale * X, y, *weights, 100.0, loss)
    dual = learner.history_["dual"][-1]
    assert primal == pytest.approx(learner.history_["primal"][-1], rel=1e-9)
    assert learner.gap_ == pytest.approx(primal - dual, rel=1e-9)
    scaled = SVMPerfClassifier(loss, C=1000.0).fit(X, y)
    others = [(0.0 * X[0], 0.0), (scaled.coef_[0] / scale, scaled.intercept_[0])]
    for w, b in others:
        assert dual <= reference.objective(scale * X, y, w, b, 100.0, loss)
    assert learner.score(container(scale * X), y) > 0.8


def test_the_structural_svm_on_small_features():
    X, y = make_points(n=120)
    learner, messages = fitted(SVMPerfClassifier(), 1e-8 * X, y)
    assert learner.gap_ <= learner.tol
    assert not messages


@pytest.mark.parametrize("C", [1.0, 1e6])
def test_the_structural_svm_on_raw_data(C):
    learner, messages = fitted(SVMPerfClassifier(C=C), *CANCER)
    assert (learner.gap_ <= learner.tol) == (not messages)
    assert learner.gap_ <= 0.1
    assert learner.score(*CANCER) > 0.9


@pytest.mark.parametrize("radius", [np.inf, 5.0])
@pytest.mark.parametrize("scale", [1.0, 1e6])
def test_can_on_raw_data(radius, scale):
    X, y = CANCER
    learner, messages = fitted(CANClassifier(radius=radius), scale * X, y)
    assert any("up to 4.25e+0" in m and "StandardScaler" in m for m in messages)
    assert (np.diff(learner.levels_) >= 0.0).all()
    assert learner.n_iter_ == len(learner.levels_)
    assert learner.levels_[-1] > 0.8
    assert learner.score(scale * X, y) > 0.9


@pytest.mark.parametrize("scale", [1e100, 1e200, 1e307])
@pytest.mark.parametrize("learner", [CANClassifier(), SVMPerfClassifier()], ids=str)
def test_features_that_overflow_are_named(scale, learner):
    X, y = make_points(n=120)
    try:
        _, messages = fitted(learner, scale * X, y)
    except ValueError as error:
        messages = [str(error)]
    assert any("scale" in message and "StandardScaler" in message for message in messages)


@pytest.mark.parametrize("learner", [CANClassifier(max_iter=5), SVMPerfClassifier(max_iter=5)])
def test_batch_learners_warn_of_different_scales(learner):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with pytest.warns(UserWarning, match="features are on very different scales: feature 23"):
            learner.fit(*CANCER)
