"""Learners of three classes and more: labels, streams, containers, symmetry, weights, posteriors, bad input."""

import copy
import os
import re
import tracemalloc
import warnings
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import scale
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight

from quapy_nemsis import (
    BA,
    CANClassifier,
    NEMSISClassifier,
    SCANClassifier,
    get_measure,
    make_measure,
)
from quapy_nemsis.learners.tuning import STREAM_STEP_SIZES
from tests.conftest import SHARES, make_classes, true_posteriors
from tests.reference import multiclass as reference

csr = scipy.sparse.csr_matrix
STEPS = {"eta0": 0.5, "radius": 5.0, "n_passes": 2, "random_state": 0}
LEARNERS = {
    "nemsis": NEMSISClassifier("q", **STEPS),
    "nemsis hinge": NEMSISClassifier("kld", reward="hinge", **STEPS),
    "scan": SCANClassifier("cq", first_epoch=20, **STEPS),
    "can": CANClassifier("cq", radius=3.0, tol=1e-4),
}
ONLINE = [name for name in LEARNERS if name != "can"]
each_learner = pytest.mark.parametrize("name", LEARNERS)
each_online = pytest.mark.parametrize("name", ONLINE)
X, y = make_classes(n=300, d=4)


def new(name, **parameters):
    return clone(LEARNERS[name]).set_params(**parameters)


def same(first, second):
    """Equal bit for bit, posteriors included."""
    for attribute in ("classes_", "coef_", "intercept_", "levels_", "t_"):
        if hasattr(first, attribute):
            np.testing.assert_array_equal(getattr(first, attribute), getattr(second, attribute))
    if hasattr(first, "predict_proba"):
        np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))


# ---------------------------------------------------------------------- labels and shapes


@each_learner
def test_the_shapes_of_a_model(name):
    learner = new(name).fit(X, y)
    assert learner.coef_.shape == (3, 4)
    assert learner.intercept_.shape == (3,)
    scores = learner.decision_function(X)
    np.testing.assert_allclose(scores, X @ learner.coef_.T + learner.intercept_, atol=1e-12)
    np.testing.assert_array_equal(learner.predict(X), np.argmax(scores, axis=1))
    np.testing.assert_array_equal(learner.predict(csr(X)), learner.predict(X))
    assert learner.score(X, y) > 0.75
    # What one class gains, others lose.
    np.testing.assert_allclose(learner.coef_.sum(axis=0), 0.0, atol=1e-9)
    assert learner.__sklearn_tags__().classifier_tags.multi_class


LABELLINGS = {
    "strings": np.array(["ant", "bee", "cat"])[y],
    "objects": np.array(["ant", "bee", "cat"], dtype=object)[y],
    "a list": y.tolist(),
    "floats": np.array([-1.0, 0.0, 7.0])[y],
    "small floats": y.astype(np.float32),
    "bytes of integers": y.astype(np.uint8),
    "large integers": np.array([-(2**62), 0, 2**62])[y],
    "categories": pd.Series(pd.Categorical(np.array(["u", "v", "w"])[y])),
    "nullable": pd.Series(y, dtype="Int64"),
}


@each_learner
@pytest.mark.parametrize("kind", LABELLINGS)
def test_labels_of_any_type(name, kind):
    labels, plain = LABELLINGS[kind], new(name).fit(X, y)
    learner = new(name).fit(X, labels)
    names = np.unique(np.asarray(labels))
    assert learner.classes_.tolist() == names.tolist()
    np.testing.assert_array_equal(learner.coef_, plain.coef_)
    assert learner.predict(X).tolist() == names[plain.predict(X)].tolist()
    if name != "can":
        np.testing.assert_array_equal(learner.predict_proba(X), plain.predict_proba(X))
        streamed = new(name).partial_fit(X, labels)
        np.testing.assert_array_equal(streamed.coef_, new(name).partial_fit(X, y).coef_)


@each_learner
def test_flags_are_two_classes(name):
    learner = new(name).fit(X, y == 1)
    assert learner.coef_.shape == (1, 4)
    assert learner.classes_.tolist() == [False, True]
    assert learner.decision_function(X).shape == (300,)


@pytest.mark.parametrize("name", ["nemsis", "scan"])
def test_many_classes_raise_no_warning(name):
    """Nobody is told that labels look like numbers to predict, because there are many classes."""
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(400, 3)), np.arange(400) % 40
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner = new(name).fit(rows, labels)
        new(name).partial_fit(rows, labels, classes=np.arange(50))
    assert learner.coef_.shape == (40, 3)
    np.testing.assert_allclose(learner.predict_proba(rows).sum(axis=1), 1.0)


def test_in_scikit_learn():
    rows, labels = load_iris(return_X_y=True)
    rows = scale(rows)
    for learner in (
        NEMSISClassifier("ba", n_passes=20, eta0=1.0, random_state=0),
        SCANClassifier("cq", n_passes=20, eta0=1.0, random_state=0),
        CANClassifier("cq", radius=10.0),
    ):
        predicted = cross_val_predict(learner, rows, labels)
        assert BA().score(labels, predicted) > 0.92


# ---------------------------------------------------------------------- streams


@each_online
@pytest.mark.parametrize("container", [np.asarray, csr])
@pytest.mark.parametrize("eta0", [0.5, "auto"])
def test_chunks_change_nothing(name, container, eta0):
    rows, weights = container(X), np.random.default_rng(0).uniform(0.5, 2.0, 300)
    whole = new(name, eta0=eta0).partial_fit(rows, y, classes=range(3), sample_weight=weights)
    cut = new(name, eta0=eta0)
    for chunk in np.split(np.arange(300), [1, 2, 40, 47, 200, 256]):
        cut.partial_fit(rows[chunk], y[chunk], classes=range(3), sample_weight=weights[chunk])
    for attribute in ("coef_", "intercept_", "t_", "eta0_", "levels_"):
        if hasattr(whole, attribute):
            np.testing.assert_array_equal(getattr(cut, attribute), getattr(whole, attribute))


@each_learner
def test_dense_csr_and_float32_rows_teach_the_same(name):
    rows = np.round(X, 2)
    rows[np.abs(rows) < 0.5] = 0.0
    dense, sparse = new(name).fit(rows, y), new(name).fit(csr(rows), y)
    tolerance = 1e-6 if name == "can" else 1e-9
    for attribute in ("coef_", "intercept_"):
        found, expected = getattr(sparse, attribute), getattr(dense, attribute)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    for container in (np.asarray, csr):
        short = container(rows.astype(np.float32))
        first, second = new(name).fit(short, y), new(name).fit(short.astype(float), y)
        same(first, second)
        assert first.coef_.dtype == np.float64
        assert first.coef_.flags.c_contiguous


@each_online
@pytest.mark.parametrize("eta0", [0.5, "auto"])
def test_a_stream_may_switch_between_dense_and_csr(name, eta0):
    plain, mixed = new(name, eta0=eta0), new(name, eta0=eta0)
    kinds = [np.asarray, csr, partial(csr, dtype=np.float32), scipy.sparse.csc_array, np.asarray]
    rows = X.astype(np.float32).astype(float)
    for k in range(10):
        chunk = slice(30 * k, 30 * k + 30)
        plain.partial_fit(rows[chunk], y[chunk], classes=range(3))
        mixed.partial_fit(kinds[k % 5](rows[chunk]), y[chunk], classes=range(3))
    np.testing.assert_allclose(mixed.coef_, plain.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mixed.predict_proba(X), plain.predict_proba(X), atol=1e-6)


def test_a_pass_in_order_is_a_stream():
    fitted = NEMSISClassifier(n_passes=1, shuffle=False, eta0=0.1, radius=np.inf).fit(X, y)
    streamed = NEMSISClassifier(eta0=0.1).partial_fit(X, y)
    np.testing.assert_array_equal(fitted.coef_, streamed.coef_)
    again = [one.partial_fit(csr(X[:50]), y[:50]).coef_ for one in (fitted, streamed)]
    np.testing.assert_array_equal(*again)


@pytest.mark.parametrize("learner", [NEMSISClassifier("q"), SCANClassifier("cq")], ids=str)
def test_the_tuner_of_a_stream_settles(learner):
    rows, labels = make_classes(n=17_000, d=4)
    whole = clone(learner).partial_fit(rows, labels)
    assert whole.state_.is_settled()
    assert whole.eta0_ in STREAM_STEP_SIZES
    assert len(whole.tuning_["value"]) == len(STREAM_STEP_SIZES)
    # The winner is what it would be alone, and as good as any.
    alone = clone(learner).set_params(eta0=whole.eta0_).partial_fit(rows, labels)
    np.testing.assert_array_equal(whole.coef_, alone.coef_)
    measure = get_measure(learner.measure)
    others = [clone(learner).set_params(eta0=eta0).partial_fit(rows, labels) for eta0 in (0.1, 1.0)]
    best = max(measure.score(labels, other.predict(rows)) for other in others)
    assert measure.score(labels, whole.predict(rows)) > best - 0.02


@pytest.mark.parametrize("measure", ["q", "kld", "gmean"])
def test_what_fit_chooses_does_well(measure):
    rows, labels = make_classes(n=3000, d=4)
    train, test = slice(2000), slice(2000, None)
    score = partial(get_measure(measure).score, labels[test])
    given = [
        NEMSISClassifier(measure, eta0=eta0, radius=np.inf, n_passes=5, random_state=0)
        for eta0 in (0.01, 0.1, 1.0)
    ]
    best = max(score(one.fit(rows[train], labels[train]).predict(rows[test])) for one in given)
    chosen = NEMSISClassifier(measure, n_passes=5, random_state=0)
    for factor in (1e-3, 1.0, 1e3):
        chosen.fit(factor * rows[train], labels[train])
        predicted = chosen.predict(factor * rows[test])
        assert score(predicted) > best - 0.03
        assert BA().score(labels[test], predicted) > 0.7
    assert len(chosen.tuning_["eta0"]) == 40


# ---------------------------------------------------------------------- symmetry


SYMMETRIC = [
    *(NEMSISClassifier(measure, reward="logistic", **STEPS) for measure in ("ba", "hmean")),
    *(
        NEMSISClassifier(measure, reward="logistic", estimates="surrogate", **STEPS)
        for measure in ("q", "kld", "bakld:0.3")
    ),
    *(
        SCANClassifier(measure, estimates="surrogate", first_epoch=30, **STEPS)
        for measure in ("cq", "bk")
    ),
]


@pytest.mark.parametrize(
    ("learner", "way"),
    [
        *((learner, way) for learner in SYMMETRIC for way in ("fit", "partial_fit")),
        (CANClassifier("q", radius=2.0), "fit"),
    ],
    ids=lambda value: (
        value if isinstance(value, str) else f"{type(value).__name__} {value.measure}"
    ),
)
@pytest.mark.parametrize("order", [[2, 0, 1], [1, 0, 2]])
def test_permuted_classes_permute_the_result(learner, way, order):
    """Softmax has no ties, and a measure of the recalls does not ask which class a tie counts for."""
    order = np.array(order)
    first = getattr(clone(learner), way)(X, y)
    second = getattr(clone(learner), way)(X, order[y])
    tolerance = 1e-4 if isinstance(learner, CANClassifier) else 1e-8
    for attribute in ("coef_", "intercept_"):
        found, expected = getattr(second, attribute)[order], getattr(first, attribute)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    if hasattr(learner, "predict_proba"):
        found = second.predict_proba(X)[:, order]
        np.testing.assert_allclose(found, first.predict_proba(X), atol=1e-4)


# ---------------------------------------------------------------------- weights

WEIGHTS = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], size=300)


@each_learner
@pytest.mark.parametrize("container", [np.asarray, csr])
@pytest.mark.parametrize("flags", [False, True])
def test_rows_of_weight_0_are_as_good_as_absent(name, container, flags):
    rows, labels, kept = container(X), (y == 1 if flags else y), WEIGHTS > 0
    first = new(name).fit(rows, labels, sample_weight=WEIGHTS)
    second = new(name).fit(rows[kept], labels[kept], sample_weight=WEIGHTS[kept])
    same(first, second)
    if name == "can":
        return
    first = new(name).partial_fit(rows, labels, sample_weight=WEIGHTS)
    second = new(name).partial_fit(rows[kept], labels[kept], sample_weight=WEIGHTS[kept])
    same(first, second)
    assert first.t_ == kept.sum()


@each_learner
def test_weights_of_1_are_none(name):
    plain = new(name).fit(X, y)
    np.testing.assert_array_equal(
        new(name).fit(X, y, sample_weight=np.ones(300)).coef_, plain.coef_
    )
    np.testing.assert_array_equal(new(name, class_weight={}).fit(X, y).coef_, plain.coef_)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("reward", ["hinge", "logistic"])
def test_a_weight_of_3_is_that_of_the_formulas(n_classes, reward):
    """For two classes too, whose weights are the difference of those of the formulas."""
    labels, weights = y % n_classes, np.where(np.arange(300) % 7 == 0, 3.0, 1.0)
    options = {"reward": reward, "eta0": 0.5, "average": "last"}
    expected = reference.nemsis(X, labels, n_classes, measure="q", sample_weight=weights, **options)
    learner = NEMSISClassifier("q", **options).partial_fit(X, labels, sample_weight=weights)
    coef, intercept = expected.coef, expected.intercept
    if n_classes == 2:
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    np.testing.assert_allclose(learner.coef_, coef, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(learner.intercept_, intercept, rtol=1e-8, atol=1e-10)
    unweighted = NEMSISClassifier("q", **options).partial_fit(X, labels)
    assert np.abs(learner.coef_ - unweighted.coef_).max() > 1e-3


@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_of_can_are_repeated_rows(n_classes):
    """CAN has no order of rows."""
    labels, times = y % n_classes, np.random.default_rng(0).integers(0, 4, 300)
    weighted = new("can").fit(X, labels, sample_weight=times)
    repeated = new("can").fit(np.repeat(X, times, axis=0), np.repeat(labels, times))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(weighted.levels_[-1], repeated.levels_[-1], atol=1e-5)


@each_learner
@pytest.mark.parametrize("text", [False, True])
def test_weights_of_classes_are_weights_of_rows(name, text):
    labels = np.array(["ant", "bee", "cat"])[y] if text else y
    factors = {"bee": 2.0, "cat": 0.5} if text else {1: 2.0, 2: 0.5}
    weights = np.array([1.0, 2.0, 0.5])[y]
    same(new(name, class_weight=factors).fit(X, labels), new(name).fit(X, labels, weights))
    both = new(name, class_weight=factors).fit(X, labels, sample_weight=WEIGHTS)
    same(both, new(name).fit(X, labels, sample_weight=WEIGHTS * weights))
    balanced = compute_sample_weight("balanced", labels)
    same(new(name, class_weight="balanced").fit(X, labels), new(name).fit(X, labels, balanced))
    if name == "can":
        return
    streamed = new(name).partial_fit(X, labels, sample_weight=weights)
    same(new(name, class_weight=factors).partial_fit(X, labels), streamed)
    # All rows of a class left out: the class stays, as other chunks may have it.
    first = np.unique(labels)[0]
    without = new(name, class_weight={first: 0.0}).partial_fit(X, labels)
    rest = y != 0
    expected = new(name).partial_fit(X[rest], labels[rest], classes=np.unique(labels))
    same(without, expected)


@each_online
def test_balanced_classes_are_refused_in_a_stream(name):
    with pytest.raises(ValueError, match=r"class_weight='balanced' needs all rows.*give a dict"):
        new(name, class_weight="balanced").partial_fit(X, y)
    factors = compute_class_weight("balanced", classes=np.arange(3), y=y)
    learner = new(name, class_weight=dict(enumerate(factors))).partial_fit(X, y)
    shares = learner.state_.tally()[0] / learner.state_.tally()[0].sum()
    if name != "scan":  # whose level phases take no part
        np.testing.assert_allclose(shares, 1 / 3)
    with pytest.raises(
        ValueError, match=r"class_weight must be 'balanced', a dict .* got 'balance'"
    ):
        new(name, class_weight="balance").partial_fit(X, y)


def test_weights_change_the_shares_that_posteriors_refer_to():
    rows, labels = make_classes(n=4000, d=4)
    learner = NEMSISClassifier("ba", eta0=0.5, radius=np.inf, n_passes=3, random_state=0)
    balanced = clone(learner).set_params(class_weight="balanced").fit(rows, labels)
    for one, shares in ((learner.fit(rows, labels), SHARES), (balanced, np.full(3, 1 / 3))):
        assert np.abs(one.predict_proba(rows) - true_posteriors(rows, shares)).mean() < 0.03


# ---------------------------------------------------------------------- history and output


@each_online
def test_history(name):
    learner = new(name, record_every=100).fit(X, y)
    history = learner.history_
    assert list(history) == ["samples", "seconds", "R", "q", "value"]
    assert history["samples"] == [100, 200, 300, 400, 500, 600]
    assert (np.diff(history["seconds"]) >= 0).all()
    rates = learner.state_.rates()
    np.testing.assert_array_equal(history["R"][-1], rates.R)
    np.testing.assert_array_equal(history["q"][-1], rates.q)
    assert history["value"][-1] == learner.settings(3).measure.at(rates)
    np.testing.assert_allclose(np.sum(history["q"], axis=1), 1.0)
    np.testing.assert_array_equal(learner.coef_, new(name).fit(X, y).coef_)


def test_history_is_that_of_predictions_before_each_row():
    learner = NEMSISClassifier("q", eta0=0.3, average="last", record_every=300).partial_fit(X, y)
    stepwise, predicted = NEMSISClassifier("q", eta0=0.3, average="last"), []
    for i in range(300):
        scores = stepwise.decision_function(X[i : i + 1])[0] if i else np.zeros(3)
        others = [k for k in range(3) if k != y[i]]
        rival = max(others, key=lambda k: scores[k])
        predicted.append(y[i] if scores[y[i]] > scores[rival] else rival)
        stepwise.partial_fit(X[i : i + 1], y[i : i + 1], classes=range(3))
    predicted = np.array(predicted)
    recalls = [np.mean(predicted[y == k] == k) for k in range(3)]
    np.testing.assert_allclose(learner.history_["R"][0], recalls)
    np.testing.assert_allclose(learner.history_["q"][0], np.bincount(predicted) / 300)
    assert learner.history_["value"][0] == pytest.approx(get_measure("q").score(y, predicted))


def test_verbose(capsys):
    NEMSISClassifier("bakld:0.3", n_passes=2, verbose=1, random_state=0).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert re.match(r"NEMSISClassifier: eta0 \S+, radius \S+ chosen out of 40 pairs", lines[0])
    expected = (
        r"NEMSISClassifier: pass 2/2, 600 samples, bakld:0.3 -?0\.\d+, recalls 0\.\d+ to 0\.\d+, "
    )
    assert re.match(expected, lines[2])
    new("can", verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert re.match(r"CANClassifier: level 1, cq 0\.\d{8}$", lines[0])


# ---------------------------------------------------------------------- posteriors


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("shares", [SHARES, (0.9, 0.08, 0.02)], ids=["even", "uneven"])
@pytest.mark.parametrize(
    "learner",
    [
        NEMSISClassifier("ba"),
        NEMSISClassifier("q", reward="hinge"),
        SCANClassifier("cq"),
    ],
    ids=str,
)
def test_posteriors_are_calibrated(learner, shares, stream):
    """Gaussian classes: the true posteriors are known, and the learner's must come near them."""
    rows, labels = make_classes(n=17_000, d=4, shares=shares)
    learner = clone(learner).set_params(random_state=0, n_passes=3)
    true = true_posteriors(rows, shares)
    if stream:
        # Also while step sizes compete: the best one changes, and with it the scale of the scores.
        for start in range(0, 17_000, 250):
            chunk = slice(start, start + 250)
            learner.partial_fit(rows[chunk], labels[chunk], classes=range(3))
            if start % 1000 == 750:
                assert np.abs(learner.predict_proba(rows[::10]) - true[::10]).mean() < 0.04
    else:
        learner.fit(rows, labels)
    posteriors = learner.predict_proba(rows)
    assert posteriors.shape == (17_000, 3)
    assert posteriors.min() > 0.0
    assert posteriors.max() < 1.0
    np.testing.assert_allclose(posteriors.sum(axis=1), 1.0)
    assert np.abs(posteriors - true).mean() < 0.03
    np.testing.assert_allclose(posteriors.mean(axis=0), shares, atol=0.02)
    near = LogisticRegression().fit(rows, labels).predict_proba(rows)
    assert np.abs(posteriors - near).mean() < 0.03


def test_posteriors_of_a_measure_of_counts():
    """KLD alone says little about the direction of the weights, but the shares of the classes are right."""
    rows, labels = make_classes(n=10_000, d=4)
    learner = NEMSISClassifier("kld", n_passes=3, random_state=0).fit(rows, labels)
    posteriors = learner.predict_proba(rows)
    np.testing.assert_allclose(posteriors.mean(axis=0), SHARES, atol=0.03)
    assert np.abs(posteriors - true_posteriors(rows)).mean() < 0.1


def test_posteriors_of_a_class_without_points_and_of_separable_classes():
    learner = new("nemsis").partial_fit(X, y, classes=range(5))
    posteriors = learner.predict_proba(X)
    assert posteriors.shape == (300, 5)
    np.testing.assert_allclose(posteriors.sum(axis=1), 1.0)
    assert 0.0 < posteriors[:, 3:].max() < 0.1
    rows, labels = make_classes(n=300, d=4, distance=50.0)
    posteriors = new("nemsis").fit(rows, labels).predict_proba(rows)
    assert np.isfinite(posteriors).all()
    np.testing.assert_array_equal(np.argmax(posteriors, axis=1), labels)


# ---------------------------------------------------------------------- bad input


def snapshot(learner):
    return joblib.hash(vars(learner)), sorted(vars(learner))


@each_online
def test_a_class_that_never_occurs(name):
    learner = new(name).partial_fit(X, y, classes=range(4))
    assert learner.coef_.shape == (4, 4)
    assert np.isfinite(learner.coef_).all()
    assert not (learner.predict(X) == 3).any()
    assert learner.predict_proba(X)[:, 3].max() < 0.05


@each_learner
def test_a_class_that_occurs_once(name):
    labels = np.where(np.arange(300) == 7, 9, y)
    for tuned in (False, True):
        learner = new(name).set_params(**({"eta0": "auto"} if tuned and name != "can" else {}))
        learner.fit(X, labels)
        assert learner.classes_.tolist() == [0, 1, 2, 9]
        assert np.isfinite(learner.coef_).all()
        assert BA().score(y[y != 9], np.where(learner.predict(X) == 9, y, learner.predict(X))) > 0.6


@each_online
def test_a_class_that_disappears(name):
    learner = new(name, eta0="auto").partial_fit(X, y)
    rest = y != 2
    for _ in range(20):
        learner.partial_fit(X[rest], y[rest])
    assert np.isfinite(learner.coef_).all()
    assert learner.predict_proba(X[rest])[:, 2].mean() < 0.05
    learner.partial_fit(X, y)  # and comes back
    assert np.isfinite(learner.predict_proba(X)).all()


MIXED = np.array([0, "a", 2.5] * 100, dtype=object)
NAN = np.where(X > 2.0, np.nan, X)
BAD = {
    "one class": ((X, np.zeros(300)), r"needs two classes or more; .* one class, \[0.0\]"),
    "mixed labels": ((X, MIXED), "labels of different types, such as 0 and 'a'"),
    "fractions": ((X, y + 0.5), "continuous"),
    "nan": ((NAN, y), "contains NaN"),
    "infinite": ((np.where(X > 2.0, np.inf, X), y), "contains infinity"),
    "csr nan": ((csr(NAN), y), "contains NaN"),
    "negative weights": ((X, y, None, -np.ones(300)), "Negative values"),
    "nan weights": ((X, y, None, np.full(300, np.nan)), "contains NaN"),
    "few weights": ((X, y, None, np.ones(5)), r"expected \(300,\)"),
    "no weights": ((X, y, None, np.zeros(300)), "at least one non-zero"),
}
PARAMETERS = {
    "unknown class": (
        {7: 1.0},
        r"class_weight names 7, which is not among the classes \[0, 1, 2\]",
    ),
    "negative": ({1: -1.0}, "class_weight of 1 must be a number from 0 on; got -1.0"),
    "nan": ({1: np.nan}, "got nan"),
    "infinite": ({1: np.inf}, "got inf"),
    "text": ({1: "x"}, "got 'x'"),
    "list": ([1.0, 2.0, 3.0], r"'balanced', a dict of labels and weights, or None; got \[1.0, 2.0"),
}
STREAM = {
    "unseen label": ((X, y + 1), r"labels \[3\] that are not among the classes \[0, 1, 2\]"),
    "labels as text": ((X, y.astype(str)), "labels .* that are not among the classes"),
    "more classes": ((X, y, range(4)), "differ from those of the first call"),
    "fewer classes": ((X, y, range(2)), "differ from those of the first call"),
    "features": ((X[:, :3], y), "X has 3 features, but .* is expecting 4"),
}
WAYS = [*((name, "fit") for name in LEARNERS), *((name, "partial_fit") for name in ONLINE)]


@pytest.mark.parametrize(("name", "way"), WAYS)
@pytest.mark.parametrize("fitted", [False, True])
def test_what_is_refused_changes_nothing(name, way, fitted):
    def refuse(learner, message, X, y, classes=None, weights=None):
        before = snapshot(learner)
        options = {"classes": classes} if way == "partial_fit" else {}
        with pytest.raises(ValueError, match=message):
            getattr(learner, way)(X, y, sample_weight=weights, **options)
        assert snapshot(learner) == before

    learner = new(name)
    if fitted:
        getattr(learner, way)(X, y)
    for bad, (data, message) in BAD.items():
        later = fitted and way == "partial_fit"
        if later and bad == "one class":
            continue  # a chunk may have one class
        message = "not among the classes" if later and bad == "fractions" else message
        refuse(learner, message, *data)
    for factors, message in PARAMETERS.values():
        refuse(learner.set_params(class_weight=factors), message, X, y)
    learner.set_params(class_weight=None)
    if fitted and way == "partial_fit":
        for data, message in STREAM.values():
            refuse(learner, message, *data)
    getattr(learner, way)(X, y)


def test_all_classes_but_one_of_weight_0():
    with pytest.raises(ValueError, match=r"needs two classes or more; .* one class, \[1\]"):
        new("nemsis").fit(X, y, sample_weight=y == 1)
    assert new("nemsis").fit(X, y, sample_weight=y != 1).classes_.tolist() == [0, 2]


def test_divergence_is_refused_and_changes_nothing():
    learner = new("nemsis", radius=np.inf).partial_fit(X, y)
    before = snapshot(learner)
    with pytest.raises(ValueError, match=r"infinite or NaN after sample 300.*scale the features"):
        learner.partial_fit(1e200 * X, y)
    assert snapshot(learner) == before
    with pytest.raises(ValueError, match="the score of row 3 is too large for a float"):
        learner.decision_function(np.vstack([X[:3], 1.7e308 * np.sign(learner.coef_[:1])]))


def _sum(P, N, p, theta):
    return P + N


def test_measures_of_two_classes_are_refused_for_more():
    measure = make_measure(_sum)
    for learner in (NEMSISClassifier(measure, eta0=0.5), CANClassifier(measure)):
        before = snapshot(learner)
        with pytest.raises(ValueError, match="two classes"):
            learner.fit(X, y)
        assert snapshot(learner) == before
        assert learner.fit(X, y == 1).coef_.shape == (1, 4)


def machine_of(gigabytes):
    """A stand-in for `os.sysconf` on a machine with so much memory."""
    real = os.sysconf
    pages = int(gigabytes * 2**30 / real("SC_PAGE_SIZE"))
    return lambda name: pages if name == "SC_PHYS_PAGES" else real(name)


@pytest.mark.parametrize("way", ["fit", "partial_fit"])
@pytest.mark.parametrize("kind", [NEMSISClassifier, SCANClassifier])
def test_weights_that_do_not_fit_into_memory(kind, way, monkeypatch):
    """10,000 classes, 1,000 features and 8 step sizes need more than 5 GB in a stream; refused before it is taken."""
    monkeypatch.setattr(os, "sysconf", machine_of(5.0))
    rows, labels = np.zeros((10_000, 1000), dtype=np.float32), np.arange(10_000)
    learner = kind()
    before = snapshot(learner)
    tracemalloc.start()
    with pytest.raises(
        MemoryError, match=r"10,000 classes and 1,000 features in \d+ learners need"
    ):
        getattr(learner, way)(rows, labels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100e6
    assert snapshot(learner) == before


@pytest.mark.parametrize("kind", [NEMSISClassifier, SCANClassifier])
def test_a_stream_of_many_classes(kind):
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.arange(2000), rng.integers(0, 2000, 200)])
    centres = rng.normal(size=(2000, 5))
    rows = centres[labels] + 0.1 * rng.normal(size=(2200, 5))
    learner = kind().partial_fit(rows, labels)
    assert learner.coef_.shape == (2000, 5)
    np.testing.assert_allclose(learner.predict_proba(rows[:20]).sum(axis=1), 1.0)
    given = kind(eta0=1.0, radius=np.inf, n_passes=3, random_state=0).fit(rows, labels)
    assert given.score(rows, labels) > 0.01  # by chance: 0.0005


def test_copies_of_a_learner_go_their_own_way():
    learner = new("nemsis").partial_fit(X, y)
    weights, twin = learner.coef_.copy(), copy.deepcopy(learner)
    twin.partial_fit(csr(X), y)
    np.testing.assert_array_equal(learner.coef_, weights)
    assert not np.array_equal(twin.coef_, weights)
