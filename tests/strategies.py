"""What properties are tried on: rows, cuttings, labels and learners of all kinds, and how often."""

import itertools
from dataclasses import dataclass

import numpy as np
import scipy.sparse
from hypothesis import settings
from hypothesis import strategies as st

from quapy_nemsis import (
    CANClassifier,
    NEMSISClassifier,
    OnePassMiniBatchClassifier,
    SCANClassifier,
    SVMPerfClassifier,
)

# The same examples in every run, so that a failure is a change of the code.
settings.register_profile("properties", max_examples=20, deadline=None, derandomize=True)
settings.load_profile("properties")
few, several, many = (settings(max_examples=n) for n in (5, 50, 300))

# ------------------------------------------------------------------- rows

CLASSES = [False, True]
#: The classes where there are more than two.
FOUR = [0, 1, 2, 3]
seeds = st.integers(0, 2**31 - 1)


@dataclass(frozen=True)
class Points:
    """Rows and labels, told by a few numbers that a failure can show."""

    n: int
    features: int
    share: float
    size: float
    filled: float
    rounded: bool
    seed: int

    def rows(self, classes=CLASSES):
        """X, and y of all of the classes."""
        rng = np.random.default_rng(self.seed)
        y = rng.random(self.n) < self.share
        y[rng.choice(self.n, 2, replace=False)] = CLASSES
        X = self.size * rng.normal(size=(self.n, self.features))
        X[:, 0] += y
        if classes is FOUR:  # divide each of both
            half = rng.random(self.n) < self.share
            X[:, 1] += half
            y = 2 * y + half
            y[rng.choice(self.n, 4, replace=False)] = FOUR
        X[rng.random(X.shape) > self.filled] = 0.0
        return np.round(X) if self.rounded else X, y


sizes, booleans = st.integers(30, 200), st.booleans()


def points(n=sizes, rounded=booleans):
    """Rows of various sizes, some with many zeros and some rounded, so that rows and scores are equal."""
    return st.builds(
        Points,
        n=n,
        features=st.integers(2, 6),
        share=st.floats(0.05, 0.95),
        size=st.sampled_from([0.1, 1.0, 5.0]),
        filled=st.sampled_from([0.3, 1.0]),
        rounded=rounded,
        seed=seeds,
    )


# Where rounding errors may differ, rows without ties: a tie may be broken by them.
smooth_points = points(rounded=st.just(False))


def cuttings(n, least=1, most=8):
    """Slices that cut n rows into so many chunks: at random places, or evenly."""
    places = st.sets(st.integers(1, n - 1), min_size=least - 1, max_size=most - 1)
    even = st.integers(least, most).map(lambda k: np.linspace(0, n, k + 1).astype(int)[1:-1])
    edges = (places | even).map(lambda inner: [0, *sorted(int(place) for place in inner), n])
    return edges.map(lambda edges: [slice(a, b) for a, b in itertools.pairwise(edges)])


containers = st.sampled_from([np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csr_array])
labels = st.sampled_from([[0, 1], [7, 3], [False, True], ["no", "yes"], ["above", "a"]])
four_labels = st.sampled_from([[9, 1, -7, 3], [0.0, 1.0, 2.0, 4.0], ["d", "bb", "c", "a"]])
ways = st.sampled_from(["fit", "partial_fit"])

# ------------------------------------------------------------------- learners

NESTED = ["kld", "bakld", "bakld:0.9", "q", "q:2", "nss", "ba", "gmean", "hmean", "qmean"]
PSEUDO = ["cq", "bk"]
LOSSES = ["kld", "nkld", "ae", "rae", "qrecall", "qacc", "qgm", "01", "ba"]
LOSSES += ["f1", "qf1", "gmean", "bakld:0.3", "cq"]

auto = st.just("auto")
steps, radii = st.floats(1e-3, 10.0), st.floats(0.05, 50.0) | st.just(np.inf)
buffers = st.integers(2, 60)


def online(kind, *measure, eta0=steps | auto, radius=radii | auto, **more):
    """Online learners of one kind."""
    return st.builds(
        kind,
        *measure,
        eta0=eta0,
        radius=radius,
        n_passes=st.integers(1, 3),
        average=st.sampled_from(["suffix", "all", "last"]),
        fit_intercept=booleans,
        shuffle=booleans,
        random_state=seeds,
        record_every=st.none() | st.integers(1, 50),
        **more,
    )


def nemsis(measures=NESTED, kind=NEMSISClassifier, **more):
    """NEMSIS with any parameters."""
    return online(
        kind,
        st.sampled_from(measures),
        reward=st.sampled_from(["hinge", "logistic"]),
        estimates=st.sampled_from(["counts", "surrogate"]),
        monotone=booleans,
        reward_bound=st.floats(0.1, 5.0),
        **more,
    )


def scan(**more):
    """SCAN with any parameters."""
    return nemsis(
        PSEUDO,
        SCANClassifier,
        first_epoch=st.integers(1, 60),
        growth=st.floats(1.0, 3.0),
        level_share=st.floats(0.01, 1.0),
        **more,
    )


def minibatch(buffer_size=buffers, **more):
    """1PMB with any parameters."""
    losses = st.sampled_from(LOSSES)
    return online(OnePassMiniBatchClassifier, losses, buffer_size=buffer_size, **more)


def can():
    """CAN with any parameters."""
    return st.builds(
        CANClassifier,
        st.sampled_from([*NESTED, *PSEUDO]),
        radius=radii,
        max_levels=st.integers(1, 5),
        max_iter=st.integers(5, 50),
        fit_intercept=booleans,
    )


def svm():
    """Structural SVMs with any parameters."""
    return st.builds(
        SVMPerfClassifier,
        st.sampled_from(LOSSES),
        C=st.floats(0.1, 1000.0),
        max_iter=st.integers(1, 30),
        fit_intercept=booleans,
        warm_start=booleans,
    )
