"""NEMSISClassifier as an estimator: scikit-learn's contract, streams, history, bad input."""

import copy
import inspect
import re
import tracemalloc

import joblib
import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from quapy_nemsis import (
    BA,
    BAKLD,
    CANClassifier,
    NegKLD,
    NEMSISClassifier,
    OnePassMiniBatchClassifier,
    SCANClassifier,
    SVMPerfClassifier,
)
from tests.conftest import make_points

LEARNERS = [NEMSISClassifier(), SCANClassifier(), OnePassMiniBatchClassifier()]
LEARNERS += [CANClassifier(), SVMPerfClassifier()]
BINARY = (OnePassMiniBatchClassifier, SVMPerfClassifier)
# Checks that learners with a random order of the rows, or of measures like balanced accuracy, cannot pass.
RANDOM_ORDER = (
    "integer weights equal repeated rows only without a random order of the rows; scikit-learn expects this failure of "
    "its own SGDClassifier"
)
CANNOT_PASS = {
    "check_sample_weight_equivalence_on_dense_data": RANDOM_ORDER,
    "check_sample_weight_equivalence_on_sparse_data": RANDOM_ORDER,
    "check_class_weight_classifiers": (
        "weights count as rows, so balanced accuracy, in which each class weighs the same, does not change with them"
    ),
}


def expected_failures(estimator):
    return CANNOT_PASS if isinstance(estimator, (NEMSISClassifier, SCANClassifier)) else {}


@parametrize_with_checks(LEARNERS, expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    """Any other check that fails, fails here."""
    check(estimator)
    assert check is not None


@pytest.mark.parametrize("kind", [NEMSISClassifier, SCANClassifier])
@pytest.mark.parametrize("check", CANNOT_PASS)
def test_each_expected_failure_is_one(kind, check):
    """A check that would pass must not be on the list of those that cannot."""
    with pytest.raises(AssertionError):
        getattr(estimator_checks, check)(kind.__name__, kind())


def test_a_pass_in_order_is_a_stream():
    X, y = make_points()
    fitted = NEMSISClassifier(n_passes=1, shuffle=False, eta0=0.1, radius=np.inf).fit(X, y)
    streamed = NEMSISClassifier(eta0=0.1).partial_fit(X, y)
    np.testing.assert_array_equal(fitted.coef_, streamed.coef_)
    fitted.partial_fit(X[:50], y[:50])
    streamed.partial_fit(X[:50], y[:50])
    np.testing.assert_array_equal(fitted.coef_, streamed.coef_)


def test_fit_forgets():
    X, y = make_points()
    learner = NEMSISClassifier(random_state=0).fit(X, y)
    weights = learner.coef_.copy()
    twin = copy.deepcopy(learner)
    assert not np.array_equal(learner.partial_fit(X, ~y).coef_, weights)
    np.testing.assert_array_equal(twin.coef_, weights)
    np.testing.assert_array_equal(learner.fit(X, y).coef_, weights)


def test_seed():
    X, y = make_points()
    first, again, other = (
        NEMSISClassifier(random_state=seed).fit(X, y).coef_ for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    generator = NEMSISClassifier(random_state=np.random.RandomState(0)).fit(X, y)
    np.testing.assert_array_equal(first, generator.coef_)


@pytest.mark.parametrize("container", [np.ascontiguousarray, scipy.sparse.csr_matrix])
def test_fit_copies_no_more_than_a_few_rows(container):
    X = np.random.default_rng(0).normal(size=(120_000, 40))
    y = X[:, 0] > 0.5
    X = container(X)
    learner = NEMSISClassifier(random_state=0, eta0=0.1, radius=np.inf, n_passes=1)
    learner.fit(X[:100], y[:100])  # compiles
    tracemalloc.start()
    learner.fit(X, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 120_000 * 40 * 8 / 3


def test_in_scikit_learn_pipelines():
    X, y = load_breast_cancer(return_X_y=True)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), NEMSISClassifier("ba", random_state=0)),
        {"nemsisclassifier__eta0": [1e-6, 0.1], "nemsisclassifier__measure": ["ba", BAKLD(0.9)]},
        n_jobs=2,
    ).fit(X, y)
    assert search.best_score_ > 0.95
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) > 1
    predicted = cross_val_predict(search.best_estimator_, X, y)
    assert BA().score(y, predicted) > 0.93
    X, y = load_iris(return_X_y=True)
    # One against the rest compares scores: with a common step size they are on one scale.
    one = NEMSISClassifier("ba", eta0=1.0, random_state=0)
    three = OneVsRestClassifier(one).fit(scale(X), y)
    assert three.score(scale(X), y) > 0.8


def test_history():
    X, y = make_points(n=1000)
    learner = NEMSISClassifier("kld", record_every=300, n_passes=2, random_state=0).fit(X, y)
    history = learner.history_
    assert history["samples"] == [300, 600, 900, 1200, 1500, 1800]
    assert all(a < b for a, b in zip(history["seconds"], history["seconds"][1:], strict=False))
    # What is written down is the measure at the running estimates: 0-1 rewards of each point before it is learned.
    short = NEMSISClassifier("kld", eta0=0.1, record_every=900, average="last").partial_fit(
        X[:900], y[:900]
    )
    P, N = short.history_["P"][0], short.history_["N"][0]
    p = y[:900].mean()
    expected = short.history_["value"][0]
    assert NegKLD().value(P, N, p, eps=1 / 1800) == pytest.approx(expected)
    hits = []
    stepwise = NEMSISClassifier("kld", eta0=0.1, average="last")
    for i in range(900):
        score = stepwise.decision_function(X[i : i + 1])[0] if i else 0.0
        hits.append(score > 0 if y[i] else score < 0)
        stepwise.partial_fit(X[i : i + 1], y[i : i + 1], classes=[False, True])
    assert np.mean(np.array(hits)[y[:900]]) == pytest.approx(P)
    plain = NEMSISClassifier("kld", n_passes=2, random_state=0).fit(X, y)
    assert plain.history_ == {c: [] for c in history}
    np.testing.assert_array_equal(plain.coef_, learner.coef_)  # recording changes nothing


def test_verbose(capsys):
    X, y = make_points()
    NEMSISClassifier("bakld:0.3", n_passes=2, verbose=1, random_state=0).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert re.match(r"NEMSISClassifier: eta0 \S+, radius \S+ chosen out of 40 pairs", lines[0])
    assert re.match(r"NEMSISClassifier: pass 2/2, 800 samples, bakld:0.3 0\.\d+, P ", lines[2])


def test_monotone_steps_never_spoil_a_point():
    """The exact gradient of KLD evens the count by getting points of one class wrong; monotone weights never do."""
    X, y = make_points(n=300)
    lowest = {}
    for monotone in (True, False):
        learner = NEMSISClassifier("kld", monotone=monotone, average="last")
        gains = []
        for i in range(300):
            point, sign = X[i : i + 1], 1 if y[i] else -1
            before = learner.decision_function(point)[0] if i else 0.0
            learner.partial_fit(point, y[i : i + 1], classes=[False, True])
            gains.append(sign * (learner.decision_function(point)[0] - before))
        lowest[monotone] = min(gains)
    assert lowest[True] >= -1e-12
    assert lowest[False] < -0.01


X, Y = make_points(n=60, d=3)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"eta0": 0}, ValueError, "eta0 must be positive; got 0"),
        ({"eta0": -0.5}, ValueError, "got -0.5"),
        ({"eta0": np.nan}, ValueError, "got nan"),
        ({"eta0": np.inf}, ValueError, "eta0 must be finite; got inf"),
        ({"eta0": "big"}, TypeError, "eta0 must be a number or 'auto'; got 'big'"),
        ({"eta0": True}, TypeError, "eta0 must be a number or 'auto'; got True"),
        ({"radius": 0.0}, ValueError, "radius must be positive; got 0.0"),
        ({"radius": -1}, ValueError, "got -1"),
        ({"radius": None}, TypeError, "radius must be a number or 'auto'; got None"),
        ({"reward_bound": -1}, ValueError, "reward_bound must be positive; got -1"),
        ({"n_passes": 0}, ValueError, "n_passes must be at least 1; got 0"),
        ({"n_passes": 1.5}, TypeError, "n_passes must be an integer; got 1.5"),
        ({"record_every": 0}, ValueError, "record_every must be at least 1; got 0"),
        ({"measure": "accuracy"}, ValueError, "unknown measure 'accuracy'"),
        ({"measure": "bakld:2"}, ValueError, r"must be in \[0, 1\]; got 2.0"),
        ({"measure": "q:0"}, ValueError, "positive and finite; got 0.0"),
        ({"measure": "cqb"}, ValueError, "CQB.* is for evaluation only"),
        ({"measure": None}, TypeError, "got None"),
        ({"reward": "exp"}, ValueError, "reward must be one of .*got 'exp'"),
        ({"estimates": "both"}, ValueError, "estimates must be one of .*got 'both'"),
        ({"estimates": []}, TypeError, "estimates must be a string; got"),
        ({"average": "mean"}, ValueError, "average must be one of .*got 'mean'"),
        ({"monotone": 1}, TypeError, "monotone must be True or False; got 1"),
        ({"fit_intercept": "yes"}, TypeError, "fit_intercept must be True or False; got 'yes'"),
        ({"shuffle": None}, TypeError, "shuffle must be True or False; got None"),
    ],
    ids=str,
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        NEMSISClassifier(**parameters).fit(X, Y)
    with pytest.raises(error, match=message):
        NEMSISClassifier(**parameters).partial_fit(X, Y)


@pytest.mark.parametrize("learner", LEARNERS, ids=str)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(60), r"needs two classes or more; the data contains one class, \[0.0\]"),
        (Y[:-1], "inconsistent numbers of samples"),
        (np.linspace(0, 1, 60), "continuous"),
    ],
    ids=["one class", "short", "continuous"],
)
def test_bad_labels(learner, labels, message):
    with pytest.raises(ValueError, match=message):
        clone(learner).fit(X, labels)


@pytest.mark.parametrize("kind", BINARY)
def test_learners_of_two_classes_name_those_of_more(kind):
    message = r"Only binary .* 3 classes, .* Use NEMSISClassifier, SCANClassifier or CANClassifier"
    with pytest.raises(ValueError, match=message):
        kind().fit(X, np.arange(60) % 3)


@pytest.mark.parametrize(
    ("rows", "labels", "classes", "message"),
    [
        (X, np.where(Y, 1, 5), None, r"labels \[5\] that are not among the classes \[0, 1\]"),
        (X, Y.astype(int), [0, 1, 2], "differ from those of the first call"),
        (X * 1e200, Y.astype(int), None, r"NaN after sample .*scale .* or lower eta0 \(now 10.0\)"),
    ],
)
def test_a_bad_chunk_loses_nothing(rows, labels, classes, message):
    learner = NEMSISClassifier(eta0=10.0, record_every=10).partial_fit(X, Y.astype(int))
    before = joblib.hash(vars(learner))
    with pytest.raises(ValueError, match=message):
        learner.partial_fit(rows, labels, classes)
    assert joblib.hash(vars(learner)) == before


def test_first_chunk_of_a_stream():
    with pytest.raises(ValueError, match=r"one class, \[True\].*classes="):
        NEMSISClassifier().partial_fit(X[Y], Y[Y])
    learner = NEMSISClassifier().partial_fit(X[Y], Y[Y], classes=[False, True])
    assert learner.t_ == Y.sum()
    with pytest.raises(ValueError, match=r"Only binary .* Use NEMSISClassifier"):
        OnePassMiniBatchClassifier().partial_fit(X, Y, classes=[0, 1, 2])
    with pytest.raises(NotFittedError):
        NEMSISClassifier().t_  # noqa: B018
    learner.set_params(average="last")
    with pytest.raises(ValueError, match="average and estimates cannot change"):
        learner.partial_fit(X, Y)


@pytest.mark.parametrize("learner", [type(learner) for learner in LEARNERS])
def test_docstring_names_every_parameter(learner):
    text = inspect.cleandoc(learner.__doc__).split("Attributes\n")[0]
    documented = re.findall(r"^(\w+) : .*?(?:default=(.*))?$", text, flags=re.MULTILINE)
    parameters = inspect.signature(learner).parameters
    assert {name for name, _ in documented} == set(parameters)
    for name, default in documented:
        expected = parameters[name].default
        same = default.strip('"') == str(expected) or float(default) == expected
        assert same, f"{name}: documented as {default}, is {expected}"
