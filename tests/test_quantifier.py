"""The quantifiers inside QuaPy: protocols, evaluation, model selection, one-vs-all, ensembles, copies."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import quapy as qp
from quapy.data import LabelledCollection
from quapy.method.aggregative import (
    ACC,
    CC,
    EMQ,
    PACC,
    PCC,
    AggregativeQuantifier,
    DMy,
    HDy,
    KDEyML,
)
from quapy.method.base import newOneVsAll
from quapy.method.meta import Ensemble
from quapy.model_selection import GridSearchQ
from quapy.protocol import APP, NPP, UPP, DirichletProtocol
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import scale

from quapy_nemsis import (
    BAKLD,
    CAN,
    NEMSIS,
    SCAN,
    SVMAE,
    SVMKLD,
    SVMNKLD,
    SVMQ,
    SVMRAE,
    CANClassifier,
    NEMSISClassifier,
    OnePassMiniBatch,
    SCANClassifier,
    SVMPerf,
    SVMPerfClassifier,
)
from tests.conftest import make_classes, make_points

SIZE = 100

# One of each kind, and a grid that must change what it learns.
QUANTIFIERS = [
    NEMSIS("bakld", random_state=0),
    SCAN("cq", random_state=0),
    CAN("cq", radius=5.0),
    SVMPerf("qgm", C=100.0),
    SVMKLD(C=1000.0),
    OnePassMiniBatch("kld", buffer_size=50, random_state=0),
]
GRIDS = [
    (NEMSIS("q", random_state=0), {"eta0": [1e-9, 1e-2, 1.0], "measure": ["q", BAKLD(0.2)]}),
    (SCAN("cq", random_state=0), {"eta0": [1e-9, 1e-2, 1.0], "measure": ["cq", "bk"]}),
    (CAN("cq"), {"radius": [1e-3, 0.1, 10.0], "measure": ["bk", "kld"]}),
    (SVMPerf(), {"C": [1e-3, 10.0, 1000.0], "loss": ["q", "kld"]}),
    (SVMKLD(), {"C": [1e-3, 1.0, 1000.0], "fit_intercept": [True, False]}),
    (
        OnePassMiniBatch(buffer_size=50, random_state=0),
        {"eta0": [1e-9, 1e-2, 1.0], "loss": ["q", "kld"]},
    ),
]


@pytest.fixture(scope="module", autouse=True)
def sample_size():
    before = qp.environ["SAMPLE_SIZE"]
    qp.environ["SAMPLE_SIZE"] = SIZE
    yield
    qp.environ["SAMPLE_SIZE"] = before


@pytest.fixture(scope="module")
def train():
    X, y = make_points(n=1500, share=0.3, seed=0, noise=0.5)
    return X, y.astype(int)


@pytest.fixture(scope="module")
def unseen():
    X, y = make_points(n=3000, share=0.5, seed=1, noise=0.5)
    return LabelledCollection(X, y.astype(int), classes=[0, 1])


def protocol(kind, unseen):
    if kind is APP:
        return APP(unseen, sample_size=SIZE, n_prevalences=11, repeats=5, random_state=0)
    return kind(unseen, sample_size=SIZE, repeats=40, random_state=0)


def test_is_an_aggregative_quantifier_that_counts(train):
    X, y = train
    quantifier = NEMSIS("kld", random_state=0).fit(X, y)
    assert isinstance(quantifier, AggregativeQuantifier)
    labels = quantifier.classify(X)
    counted = [np.mean(labels == c) for c in (0, 1)]
    np.testing.assert_allclose(quantifier.predict(X), counted)
    np.testing.assert_allclose(quantifier.quantify(X), counted)
    np.testing.assert_allclose(quantifier.aggregate(labels), counted)
    np.testing.assert_allclose(quantifier.aggregate(np.array([1, 1, 0, 1])), [0.25, 0.75])
    np.testing.assert_array_equal(quantifier.classes_, [0, 1])
    assert SVMPerf(C=1.0).fit(X, y).pos_label == 1  # a quantifier of two classes only
    classifier = NEMSISClassifier("kld", random_state=0).fit(X, y)
    np.testing.assert_array_equal(quantifier.classifier.coef_, classifier.coef_)
    assert abs(counted[1] - y.mean()) < 0.01


def test_parameters_are_the_classifiers():
    for method in (NEMSIS, SCAN, CAN):
        assert method().get_params() == method.learner().get_params()
    quantifier = NEMSIS("q:2", eta0=0.7, n_passes=1, estimates="surrogate")
    quantifier.fit(*make_points())
    for name, value in quantifier.get_params().items():
        assert quantifier.classifier.get_params()[name] == value


@pytest.mark.parametrize("quantifier", QUANTIFIERS, ids=str)
@pytest.mark.parametrize("kind", [APP, NPP, UPP])
def test_protocols_and_reports(kind, quantifier, train, unseen):
    quantifier = clone(quantifier).fit(*train)
    reports = [
        qp.evaluation.evaluation_report(
            quantifier, protocol(kind, unseen), error_metrics=["mae", "mkld"], aggr_speedup=speedup
        )
        for speedup in ("force", False)
    ]
    assert len(reports[0]) == protocol(kind, unseen).total()
    np.testing.assert_allclose(reports[0]["mae"], reports[1]["mae"])
    assert reports[0]["mae"].mean() < 0.1
    # The same as counting the classifier's labels with QuaPy's own CC.
    reference = CC(quantifier.learner(**quantifier.get_params())).fit(*train)
    score = qp.evaluation.evaluate(reference, protocol(kind, unseen), "mae")
    assert reports[0]["mae"].mean() == pytest.approx(score)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(("quantifier", "grid"), GRIDS, ids=str)
def test_grid_search_reaches_the_learner(quantifier, grid, n_jobs, train, unseen):
    options = {"error": "mae", "refit": False, "raise_errors": True, "n_jobs": n_jobs}
    search = GridSearchQ(quantifier, grid, protocol(APP, unseen), **options).fit(*train)
    scores = list(search.param_scores_.values())
    assert len(scores) == 6
    assert len(set(np.round(scores, 10))) >= 3  # a silent no-op would make them all equal
    best = search.best_params_
    fresh = clone(quantifier).set_params(**best).fit(*train)
    assert qp.evaluation.evaluate(fresh, protocol(APP, unseen), "mae") == search.best_score_
    np.testing.assert_array_equal(search.best_model().classifier.coef_, fresh.classifier.coef_)


@pytest.mark.parametrize("method", [CC, ACC, PACC, EMQ, HDy])
@pytest.mark.filterwarnings("ignore:The learner NEMSISClassifier does not seem:UserWarning")
def test_classifier_under_quapys_methods(method, train, unseen):
    quantifier, grid = (
        method(NEMSISClassifier("ba", radius=np.inf, n_passes=1, random_state=0)),
        {"classifier__eta0": [1e-9, 0.1]},
    )
    options = {"error": "mae", "refit": False, "raise_errors": True}
    search = GridSearchQ(quantifier, grid, protocol(APP, unseen), **options).fit(*train)
    scores = list(search.param_scores_.values())
    assert scores[0] != scores[1]
    assert min(scores) < 0.09


@pytest.mark.parametrize(
    "binary", [NEMSIS("ba", random_state=0), SCAN(random_state=0), CAN(radius=5.0)], ids=str
)
def test_one_vs_all(binary):
    X, y = load_iris(return_X_y=True)
    X = scale(X)
    one, two = (newOneVsAll(clone(binary), n_jobs=jobs).fit(X, y).predict(X) for jobs in (1, 2))
    assert one.shape == (3,)
    assert one.sum() == pytest.approx(1.0)
    assert np.abs(one - 1 / 3).max() < 0.15
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("quantifier", QUANTIFIERS, ids=str)
def test_ensemble(quantifier, train, unseen):
    for policy, n_jobs in (("ave", 1), ("ptr", 2)):
        options = {"policy": policy, "n_jobs": n_jobs}
        with qp.util.temp_seed(0):
            ensemble = Ensemble(clone(quantifier), size=6, red_size=3, **options).fit(*train)
        assert np.abs(ensemble.predict(unseen.X) - unseen.prevalence()).max() < 0.15


@pytest.mark.parametrize("quantifier", QUANTIFIERS, ids=str)
def test_copies(quantifier, train):
    X, y = train
    quantifier = clone(quantifier).fit(X, y)
    expected = quantifier.predict(X)
    assert not hasattr(clone(quantifier), "classifier_")
    np.testing.assert_array_equal(clone(quantifier).fit(X, y).predict(X), expected)
    for twin in (copy.deepcopy(quantifier), pickle.loads(pickle.dumps(quantifier))):
        np.testing.assert_array_equal(twin.predict(X), expected)
        twin.set_params(**{"radius" if hasattr(twin, "radius") else "C": 1e-9}).fit(X, y)
        np.testing.assert_array_equal(quantifier.predict(X), expected)
    assert repr(NEMSIS("kld", eta0=3)) == "NEMSIS(eta0=3, measure='kld')"


@pytest.mark.parametrize("method", [NEMSIS, SCAN, OnePassMiniBatch])
def test_streams(method, train):
    X, y = train
    quantifier = method()
    for start in range(0, 1500, 100):
        quantifier.partial_fit(X[start : start + 100], y[start : start + 100], classes=[0, 1])
    classifier = method.learner().partial_fit(X, y)
    np.testing.assert_array_equal(quantifier.classifier.coef_, classifier.coef_)
    assert quantifier.predict(X).sum() == pytest.approx(1.0)
    weights = classifier.coef_.copy()
    with pytest.raises(ValueError, match="labels"):
        quantifier.partial_fit(X, y + 3)
    np.testing.assert_array_equal(quantifier.classifier.coef_, weights)
    unused = method()
    with pytest.raises(ValueError, match="one class"):
        unused.partial_fit(X[y == 1], y[y == 1])
    assert not hasattr(unused, "classifier_")


def test_bad_input_is_the_learners_to_explain(train):
    X, y = train
    for quantifier in (SVMPerf(), SVMKLD(), OnePassMiniBatch()):
        with pytest.raises(ValueError, match=r"Only binary .*NEMSIS, SCAN or CAN in QuaPy"):
            quantifier.fit(X, np.arange(len(y)) % 3)
    with pytest.raises(ValueError, match="eta0 must be positive; got -1"):
        NEMSIS(eta0=-1).fit(X, y)


@pytest.mark.parametrize("method", [NEMSIS, SCAN, CAN])
def test_unfitted(method, train):
    with pytest.raises(NotFittedError, match=f"{method.__name__} instance is not fitted"):
        method().predict(train[0])


def test_string_labels(train):
    X, y = train
    names = np.array(["ham", "spam"])[y]
    quantifier = NEMSIS("kld", random_state=0).fit(X, names)
    np.testing.assert_array_equal(quantifier.classes_, ["ham", "spam"])
    expected = NEMSIS("kld", random_state=0).fit(X, y).predict(X)
    np.testing.assert_array_equal(quantifier.predict(X), expected)


@pytest.mark.parametrize(
    ("quantifier", "loss"),
    [(SVMKLD, "kld"), (SVMNKLD, "nkld"), (SVMAE, "ae"), (SVMRAE, "rae"), (SVMQ, "qrecall")],
)
def test_structural_quantifiers_of_a_name(quantifier, loss, train):
    X, y = train
    found = quantifier(C=50.0, tol=1e-2).fit(X, y)
    expected = SVMPerfClassifier(loss, C=50.0, tol=1e-2).fit(X, y)
    np.testing.assert_array_equal(found.classifier_.coef_, expected.coef_)
    assert "loss" not in found.get_params()
    assert clone(found).C == 50.0
    share = expected.predict(X).mean()
    np.testing.assert_allclose(found.predict(X), [1.0 - share, share])


# ----------------------------------------------------------------------- more than two classes

NAMES = np.array(["ant", "bee", "cat"])
STEPS = {"n_passes": 3, "random_state": 0}
CLASS_QUANTIFIERS = [
    NEMSIS("q", eta0=1.0, **STEPS),
    SCAN("cq", eta0=1.0, **STEPS),
    CAN("cq", radius=5.0, tol=1e-4),
]
each_of_several = pytest.mark.parametrize("quantifier", CLASS_QUANTIFIERS, ids=str)


@pytest.fixture(scope="module")
def class_train():
    X, y = make_classes(n=900, d=4, distance=3.0)
    return X, NAMES[y]


@pytest.fixture(scope="module")
def class_unseen():
    X, y = make_classes(n=3000, d=4, shares=np.full(3, 1 / 3), seed=1, distance=3.0)
    return LabelledCollection(X, NAMES[y], classes=NAMES)


def class_protocol(kind, unseen):
    options = {"sample_size": SIZE, "random_state": 0}
    if kind is APP:
        return APP(unseen, n_prevalences=5, repeats=2, **options)
    if kind is DirichletProtocol:
        return DirichletProtocol(unseen, [1.0, 2.0, 0.5], repeats=20, **options)
    return kind(unseen, repeats=20, **options)


@each_of_several
@pytest.mark.parametrize("kind", [APP, NPP, UPP, DirichletProtocol])
def test_protocols_and_reports_of_several_classes(kind, quantifier, class_train, class_unseen):
    quantifier = clone(quantifier).fit(*class_train)
    assert quantifier.classes_.tolist() == NAMES.tolist()
    protocol = class_protocol(kind, class_unseen)
    reports = [
        qp.evaluation.evaluation_report(
            quantifier, protocol, error_metrics=["mae", "mkld"], aggr_speedup=speedup
        )
        for speedup in ("force", False)
    ]
    assert len(reports[0]) == protocol.total()
    assert len(reports[0]["estim-prev"][0]) == 3
    np.testing.assert_allclose(reports[0]["mae"], reports[1]["mae"])
    assert reports[0]["mae"].mean() < 0.04
    # The same as counting the classifier's labels with QuaPy's own CC.
    reference = CC(quantifier.learner(**quantifier.get_params())).fit(*class_train)
    score = qp.evaluation.evaluate(reference, protocol, "mae")
    assert reports[0]["mae"].mean() == pytest.approx(score)


@each_of_several
def test_counts_of_several_classes(quantifier, class_train):
    X, y = class_train
    quantifier = clone(quantifier).fit(X, y)
    labels = quantifier.classify(X)
    counted = [np.mean(labels == name) for name in NAMES]
    np.testing.assert_allclose(quantifier.predict(X), counted)
    # A class that is not predicted has its place.
    np.testing.assert_allclose(
        quantifier.aggregate(np.array(["cat", "ant", "cat"])), [1 / 3, 0, 2 / 3]
    )
    classifier = quantifier.learner(**quantifier.get_params()).fit(X, y)
    np.testing.assert_array_equal(quantifier.classifier_.coef_, classifier.coef_)
    expected = quantifier.predict(X)
    for twin in (copy.deepcopy(quantifier), pickle.loads(pickle.dumps(quantifier))):
        np.testing.assert_array_equal(twin.predict(X), expected)
    integers = np.searchsorted(NAMES, y)
    np.testing.assert_array_equal(clone(quantifier).fit(X, integers).predict(X), expected)


@pytest.mark.parametrize(
    ("quantifier", "grid"),
    [
        (NEMSIS("q", **STEPS), {"eta0": [1e-9, 1.0], "class_weight": [None, "balanced"]}),
        (SCAN(average="last", **STEPS), {"eta0": [0.01, 1000.0], "measure": ["cq", "bk"]}),
        (CAN(), {"radius": [1e-3, 10.0], "measure": ["bk", "kld"]}),
    ],
    ids=str,
)
def test_grid_search_with_several_classes(quantifier, grid, class_train, class_unseen):
    protocol = class_protocol(UPP, class_unseen)
    options = {"error": "mae", "refit": False, "raise_errors": True, "n_jobs": 2}
    search = GridSearchQ(quantifier, grid, protocol, **options).fit(*class_train)
    scores = list(search.param_scores_.values())
    assert len(scores) == 4
    assert len(set(np.round(scores, 10))) >= 3  # a silent no-op would make them all equal
    fresh = clone(quantifier).set_params(**search.best_params_).fit(*class_train)
    assert qp.evaluation.evaluate(fresh, protocol, "mae") == search.best_score_


@each_of_several
def test_an_ensemble_of_several_classes(quantifier, class_train, class_unseen):
    for policy, n_jobs in (("ave", 1), ("ptr", 2)):
        with qp.util.temp_seed(0):
            ensemble = Ensemble(
                clone(quantifier), size=5, red_size=3, policy=policy, n_jobs=n_jobs
            ).fit(*class_train)
        assert np.abs(ensemble.predict(class_unseen.X) - class_unseen.prevalence()).max() < 0.1


@pytest.mark.parametrize("method", [CC, PCC, ACC, PACC, EMQ, KDEyML, DMy])
@pytest.mark.parametrize(
    "classifier",
    [NEMSISClassifier("q", eta0=1.0, **STEPS), SCANClassifier("cq", eta0=1.0, **STEPS)],
    ids=str,
)
def test_classifiers_of_several_classes_under_quapys_methods(
    method, classifier, class_train, class_unseen
):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quantifier = method(clone(classifier)).fit(*class_train)
        error = qp.evaluation.evaluate(quantifier, class_protocol(UPP, class_unseen), "mae")
    assert error < (0.06 if method in (CC, PCC) else 0.045)


@pytest.mark.parametrize("method", [CC, ACC])
def test_can_of_several_classes_under_quapys_methods(method, class_train, class_unseen):
    quantifier = method(CANClassifier("cq", radius=5.0, tol=1e-3)).fit(*class_train)
    assert qp.evaluation.evaluate(quantifier, class_protocol(UPP, class_unseen), "mae") < 0.05


@pytest.mark.parametrize(
    "classifier",
    [NEMSISClassifier("q", eta0=1.0, **STEPS), CANClassifier("cq", radius=5.0, tol=1e-3)],
    ids=str,
)
def test_classifiers_adapt_to_a_shift(classifier, class_train):
    """QuaPy trains the classifier again with weights of the classes, which it gives as `class_weight`."""
    labelshift = pytest.importorskip("quapy.classification.labelshift")
    X, y = make_classes(n=2000, d=4, shares=(0.05, 0.05, 0.9), seed=2, distance=3.0)
    adapted = labelshift.LabelShiftedClassifier(
        clone(classifier), ACC(NEMSISClassifier("q", eta0=1.0, **STEPS))
    ).fit(*class_train)
    assert np.mean(adapted.predict(X) == NAMES[y]) > 0.93
    weights = adapted.get_classifier(X).class_weight
    np.testing.assert_allclose([weights[name] for name in NAMES], [0.1, 0.05 / 0.3, 4.5], rtol=0.3)


@pytest.mark.parametrize("method", [NEMSIS, SCAN])
def test_streams_of_several_classes(method, class_train):
    X, y = class_train
    quantifier = method()
    for start in range(0, 900, 100):
        chunk = slice(start, start + 100)
        quantifier.partial_fit(X[chunk], y[chunk], classes=NAMES)
    classifier = method.learner().partial_fit(X, y)
    np.testing.assert_array_equal(quantifier.classifier.coef_, classifier.coef_)
    assert quantifier.predict(X).shape == (3,)
    weights = classifier.coef_.copy()
    with pytest.raises(ValueError, match="labels"):
        quantifier.partial_fit(X, np.full(900, "dog"))
    np.testing.assert_array_equal(quantifier.classifier.coef_, weights)
