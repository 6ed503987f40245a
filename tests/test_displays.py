"""Displays hold and draw the right numbers: compared with QuaPy, scikit-learn and plain loops."""

from itertools import pairwise

import matplotlib
import numpy as np
import pytest
import quapy as qp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.figure import Figure
from quapy.data import LabelledCollection
from quapy.method.aggregative import CC
from quapy.protocol import APP, UPP
from scipy.stats import norm
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression

from quapy_nemsis import Quantifier
from quapy_nemsis.displays import (
    DiagonalDisplay,
    DriftErrorDisplay,
    PrevalenceDisplay,
    ReliabilityDisplay,
    TrackDisplay,
)
from quapy_nemsis.tracking import plot_track, track
from tests.conftest import make_classes, make_points


@pytest.fixture(autouse=True)
def without_a_screen():
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def new_ax():
    return Figure().subplots()


def drawn(ax, label):
    """What the line with this label goes through."""
    (line,) = (line for line in ax.get_lines() if line.get_label() == label)
    return np.column_stack(line.get_data())


@pytest.fixture(scope="module")
def two():
    X, y = make_points(1200, share=0.3)
    return Quantifier(random_state=0).fit(X[:600], y[:600]), X, y


@pytest.fixture(scope="module")
def three():
    """A counting quantifier of three classes with labels that are names, and labelled rows."""
    X, y = make_classes(900)
    names = np.array(["a", "b", "c"])[y]
    return CC(LogisticRegression()).fit(X[:500], names[:500]), X[500:], names[500:]


def test_prevalences_with_intervals(two):
    quantifier, X, y = two
    ax = new_ax()
    display = PrevalenceDisplay.from_estimator(
        quantifier, X[600:], y[600:], confidence_level=0.8, ax=ax, name="found"
    )
    estimate, region = quantifier.predict_conf(X[600:], 0.8)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert drawn(ax, "found").tolist() == [[0, estimate[0]], [1, estimate[1]]]
    (bars,) = ax.collections
    ends = np.array([segment[:, 1] for segment in bars.get_segments()])
    np.testing.assert_allclose(ends, np.column_stack([region.I_low, region.I_high]))
    np.testing.assert_allclose(drawn(ax, "truth")[:, 1], [1 - y[600:].mean(), y[600:].mean()])
    np.testing.assert_allclose(drawn(ax, "training")[:, 1], quantifier.training.shares)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["False", "True"]


def test_prevalences_of_a_quantifier_without_intervals(three):
    quantifier, X, y = three
    display = PrevalenceDisplay.from_estimator(quantifier, X, y)
    assert display.low is None
    assert not display.ax_.collections
    np.testing.assert_allclose(drawn(display.ax_, "estimate")[:, 1], quantifier.predict(X))
    np.testing.assert_allclose(display.truth, [(y == name).mean() for name in "abc"])


def test_error_by_drift_against_a_loop():
    rng = np.random.default_rng(0)
    true, found = rng.dirichlet(np.ones(3), 200), rng.dirichlet(np.ones(3), 200)
    training = np.array([0.5, 0.3, 0.2])
    display = DriftErrorDisplay.from_predictions(
        true, found, training, n_bins=7, ax=new_ax(), name="x"
    )
    # As QuaPy defines drift and error.
    drift = qp.error.ae(true, np.tile(training, (200, 1)))
    error = qp.error.ae(true, found)
    edges = np.linspace(0, drift.max(), 8)
    expected = []
    for i, (low, high) in enumerate(pairwise(edges)):
        inside = (drift >= low) & ((drift < high) | (i == 6))
        if inside.any():
            expected.append(
                [drift[inside].mean(), error[inside].mean(), error[inside].std(), inside.sum()]
            )
    stored = [display.drift, display.error, display.spread, display.counts]
    np.testing.assert_allclose(np.column_stack(stored), expected)
    np.testing.assert_allclose(drawn(display.ax_, "x"), np.array(expected)[:, :2])


def test_error_by_drift_of_a_quantifier(three):
    quantifier, X, y = three
    protocol = UPP(LabelledCollection(X, y), sample_size=50, repeats=20, random_state=0)
    display = DriftErrorDisplay.from_estimator(quantifier, protocol, [0.5, 0.3, 0.2], n_bins=1)
    mae = qp.evaluation.evaluate(quantifier, protocol, "mae")
    assert display.error == pytest.approx([mae])
    assert display.counts.tolist() == [20]
    assert display.name == "CC"
    with pytest.raises(ValueError, match=r"CC does not tell the prevalences .* training="):
        DriftErrorDisplay.from_estimator(quantifier, protocol)


def test_diagonal_of_a_quantifier(three):
    quantifier, X, y = three
    protocol = APP(LabelledCollection(X, y), 50, n_prevalences=5, repeats=3, random_state=0)
    true, found = qp.evaluation.prediction(quantifier, protocol)
    display = DiagonalDisplay.from_estimator(quantifier, protocol, label="b", n_bins=5)
    assert display.counts.sum() == len(true)
    np.testing.assert_allclose(display.true, np.linspace(0, 1, 5), atol=0.03)
    near = np.abs(true[:, 1] - 0.5) < 0.1
    place = int(np.argmin(np.abs(display.true - 0.5)))
    assert display.counts[place] == near.sum()
    assert display.estimated[place] == pytest.approx(found[near, 1].mean())
    assert display.spread[place] == pytest.approx(found[near, 1].std())
    np.testing.assert_allclose(
        drawn(display.ax_, "CC"), np.column_stack([display.true, display.estimated])
    )


def test_displays_share_axes(three):
    quantifier, X, y = three
    protocol = UPP(LabelledCollection(X, y), sample_size=50, repeats=5, random_state=0)
    ax = new_ax()
    for name in ("first", "second"):
        display = DiagonalDisplay.from_estimator(quantifier, protocol, name=name, ax=ax)
    assert len(ax.get_lines()) == 3  # two curves, one diagonal
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["first", "second"]
    for found in ([0.6], [0.9]):
        DriftErrorDisplay.from_predictions([0.5], found, 0.5, ax=(drift := new_ax()))
        DriftErrorDisplay.from_predictions([0.5], [0.7], 0.5, ax=drift)
        low, high = drift.get_ylim()
        assert low == 0.0
        assert high > max(abs(found[0] - 0.5), 0.2)
    again = new_ax()
    display.plot(again)
    assert display.ax_ is again


def test_reliability_of_a_classifier():
    X, y = make_points(2000)
    classifier = LogisticRegression().fit(X[:500], y[:500])
    display = ReliabilityDisplay.from_estimator(classifier, X[500:], y[500:], n_bins=8)
    posteriors = classifier.predict_proba(X[500:])[:, 1]
    share, mean = calibration_curve(y[500:], posteriors, n_bins=8, strategy="quantile")
    np.testing.assert_allclose(display.observed, share)
    np.testing.assert_allclose(display.posterior, mean)
    np.testing.assert_allclose(
        drawn(display.ax_, "LogisticRegression"), np.column_stack([mean, share])
    )
    other = ReliabilityDisplay.from_estimator(classifier, X[500:], y[500:], label=False, n_bins=8)
    np.testing.assert_allclose(other.observed[::-1], 1 - share)


def test_reliability_of_the_posteriors_of_a_quantifier(two):
    quantifier, X, y = two
    display = ReliabilityDisplay.from_estimator(quantifier, X[600:], y[600:], n_bins=1)
    assert display.posterior == pytest.approx([quantifier.classify(X[600:])[:, 1].mean()])
    assert display.observed == pytest.approx([y[600:].mean()])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 500), st.data())
def test_intervals_of_shares_are_wilsons(n, data):
    """Their ends are the shares that a score test at 5 % just does not reject."""
    k = data.draw(st.integers(0, n))
    labels = np.arange(n) < k
    display = ReliabilityDisplay.from_predictions(labels, np.full(n, 0.5), ax=new_ax())
    for end in (display.low[0], display.high[0]):
        z = abs(k / n - end) / np.sqrt(max(end * (1 - end), 1e-300) / n)
        assert z == pytest.approx(norm.ppf(0.975), rel=1e-3) or abs(k / n - end) < 1e-9


@settings(max_examples=30, deadline=None)
@given(arrays(float, st.integers(1, 40), elements=st.floats(0, 1)), st.integers(2, 12))
def test_bins_lose_no_sample(true, n_bins):
    found = true[::-1]
    diagonal = DiagonalDisplay.from_predictions(true, found, n_bins=n_bins, ax=new_ax())
    drift = DriftErrorDisplay.from_predictions(true, found, 0.3, n_bins=n_bins, ax=new_ax())
    n = len(true)
    assert diagonal.counts.sum() == drift.counts.sum() == n
    assert diagonal.counts @ diagonal.estimated / n == pytest.approx(true.mean())
    assert drift.counts @ drift.error / n == pytest.approx(np.abs(true - found).mean())


def test_a_tracked_stream(two):
    quantifier, X, _ = two
    found = track(quantifier, X, window=300)
    display = TrackDisplay.from_estimator(quantifier, X, window=300)
    np.testing.assert_allclose(drawn(display.ax_, "True")[:, 1], found.prevalences[:, 1])
    assert [axis.get_ylabel() for axis in display.figure_.axes] == ["prevalence", "p-value"]
    assert display.figure_.axes == [display.ax_, display.tests_ax_]
    alone = TrackDisplay.from_predictions(found, ax=new_ax())
    assert alone.tests_ax_ is None
    assert alone.ax_.get_xlabel() == "rows"
    of_function = plot_track(found).axes[0]
    np.testing.assert_allclose(drawn(alone.ax_, "True"), drawn(of_function, "True"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: DiagonalDisplay.from_predictions([0.2], [0.2, 0.3]), r"shapes \(1,\) and \(2,\)"),
        (lambda: DiagonalDisplay.from_predictions([[0.2, 0.8]], [[0.3, 0.7]]), "of one class"),
        (lambda: DiagonalDisplay.from_predictions([0.2], [1.5]), r"estimated must lie .* got"),
        (lambda: DriftErrorDisplay.from_predictions([0.2], [np.nan], 0.5), "estimated must lie"),
        (lambda: DriftErrorDisplay.from_predictions([0.2], [0.3], [0.5] * 3), "each of the 2"),
        (lambda: PrevalenceDisplay.from_predictions([0.2, 0.8], low=[0.1, 0.7]), "both ends"),
        (lambda: PrevalenceDisplay.from_predictions([0.2, 0.8], classes=["a"]), "the 1 classes"),
        (lambda: ReliabilityDisplay.from_predictions(["a"], [0.5]), "0 and 1 .* 'a'"),
        (lambda: ReliabilityDisplay.from_predictions([1, 0], [0.5]), r"\(2,\) and \(1,\)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unknown_labels_are_named(three):
    quantifier, X, _ = three
    with pytest.raises(ValueError, match=r"\['d'\]"):
        PrevalenceDisplay.from_estimator(quantifier, X[:1], ["d"])
    with pytest.raises(ValueError, match=r"\['a', 'b', 'c'\]; got 'd'"):
        DiagonalDisplay.from_estimator(quantifier, None, label="d")
