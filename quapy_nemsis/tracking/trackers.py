"""Trackers: the prevalences of a stream of rows without labels, chunk by chunk, and the classifier that goes with them.

Only the prevalences may change (label shift). A tracker sees the calibrated posteriors of a chunk of rows, at the
prevalences of training, and returns its prevalences. What it knows of training is in `Labelled`.

The methods of Wu et al. (2021), Bai et al. (2022) and Baby et al. (2023) start from an estimate qₜ of the prevalences
in chunk t alone. With ``local="bbse"``, as in these papers, it is C⁻¹ times the mean posterior of the chunk, where
column j of C is the mean posterior of labelled rows of class j (black box shift estimation, Lipton et al. 2018). It is
unbiased, and entries can be negative. With ``local="em"``, it is the most likely prevalence, which is less noisy.

References
----------
.. [1] R. Wu, C. Guo, Y. Su and K. Q. Weinberger. Online adaptation to label distribution shift. NeurIPS 2021.
.. [2] Y. Bai, Y.-J. Zhang, P. Zhao, M. Sugiyama and Z.-H. Zhou. Adapting to online label shift with provable
   guarantees. NeurIPS 2022.
.. [3] D. Baby, S. Garg, T.-C. Yen, S. Balakrishnan, Z. C. Lipton and Y.-X. Wang. Online label shift: optimal dynamic
   regret meets practical algorithms. NeurIPS 2023.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import log_softmax, softmax

from quapy_nemsis import prevalence
from quapy_nemsis._validation import check_integer, check_option, check_positive, check_share
from quapy_nemsis.drift import Background

LOCAL = ("bbse", "em")
# Gradients are means over at most so many labelled rows. Chunks whose weight has fallen below this are forgotten.
_MOST_LABELLED, _LEAST_WEIGHT = 5_000, 0.01
# ROGD keeps prevalences this far from 0, as the gradient of its loss has no bound there.
_MARGIN = 0.01


class Labelled(NamedTuple):
    """What a tracker knows about training: the prevalences, and posteriors of labelled rows that were held out.

    Examples
    --------
    >>> from quapy_nemsis.prevalence import Training
    >>> training = Training(np.array([0.5, 0.5]), 100.0, 100.0)
    >>> known = Labelled(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0, 1]), training)
    >>> known.confusion()
    array([[0.8, 0.2],
           [0.2, 0.8]])
    """

    #: Posteriors at the training prevalences, a row for each labelled row, and the position of its class.
    posteriors: np.ndarray
    labels: np.ndarray
    training: prevalence.Training

    @classmethod
    def of(cls, background: Background) -> Labelled:
        """Posteriors of some of the labelled rows of a background."""
        known = background.calibration
        part = slice(None, None, max(len(background.labels) // _MOST_LABELLED, 1))
        labels, scores = background.labels[part], background.scores[part]
        if len(np.unique(labels)) < known.n_classes:  # a class that is too rare to be met
            labels, scores = background.labels, background.scores
        return cls(known.probabilities(scores), labels, prevalence.Training.of(known))

    @property
    def shares(self) -> np.ndarray:
        """Prevalences of training."""
        return self.training.shares

    def means(self, values: np.ndarray) -> np.ndarray:
        """Mean of values of the labelled rows in each class, a row per class."""
        sums = np.zeros((len(self.shares), values.shape[1]))
        np.add.at(sums, self.labels, values)
        return sums / np.bincount(self.labels)[:, np.newaxis]

    def confusion(self) -> np.ndarray:
        """Matrix C: column j is the mean posterior of the labelled rows of class j."""
        return self.means(self.posteriors).T


class Tracker:
    """Base class of trackers.

    Parameters
    ----------
    labelled : Labelled
        What the tracker knows about training.

    Attributes
    ----------
    prevalence : ndarray of shape (n_classes,)
        Prevalences after the last chunk. Before the first chunk, these are the training prevalences.
    chunks : int
        Number of chunks so far.
    """

    key: ClassVar[str]

    def __init__(self, labelled: Labelled):
        self.labelled = labelled
        self.prevalence = labelled.shares.copy()
        self.chunks = 0

    def update(self, posteriors: np.ndarray) -> np.ndarray:
        """Return the prevalences after one more chunk.

        Parameters
        ----------
        posteriors : ndarray of shape (n_samples, n_classes)
            Posteriors of the rows of the chunk, at the training prevalences.

        Returns
        -------
        ndarray of shape (n_classes,)
            Prevalences.
        """
        posteriors = np.asarray(posteriors, dtype=float)
        if posteriors.ndim != 2 or posteriors.shape[1] != len(self.prevalence):
            raise ValueError(
                f"posteriors have shape {posteriors.shape}; give a row for each row of the chunk, with "
                f"{len(self.prevalence)} columns"
            )
        if not len(posteriors):
            raise ValueError("there are no rows in the chunk")
        self.chunks += 1
        self.prevalence = self._step(posteriors)
        return self.prevalence

    def _step(self, posteriors: np.ndarray) -> np.ndarray:
        raise TypeError(f"{type(self).__name__} is abstract")

    def adapted(self, posteriors: np.ndarray) -> np.ndarray:
        """Return posteriors of the adapted classifier, from posteriors at the training prevalences."""
        ratio = self.prevalence / self.labelled.shares
        moved = np.asarray(posteriors, dtype=float) * ratio
        return moved / moved.sum(axis=1, keepdims=True)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """All that changes from chunk to chunk, as arrays by name."""
        found = {"prevalence": self.prevalence, "chunks": np.array(self.chunks)}
        return {**found, **{name: np.asarray(getattr(self, name)) for name in self._state()}}

    def from_arrays(self, arrays: dict[str, np.ndarray]) -> None:
        """Inverse of `to_arrays`; arrays that are missing or of the wrong shape raise a ValueError."""
        names = {"prevalence", "chunks", *self._state()}
        if names != arrays.keys():
            raise ValueError(
                f"{type(self).__name__} has the arrays {sorted(names)}; got {sorted(arrays)}"
            )
        if arrays["prevalence"].shape != self.prevalence.shape:
            raise ValueError(f"prevalence has the shape {arrays['prevalence'].shape}")
        self.prevalence = arrays["prevalence"].astype(float)
        self.chunks = int(arrays["chunks"])
        for name in self._state():
            setattr(self, name, arrays[name].copy())

    def _state(self) -> tuple[str, ...]:
        """Names of attributes that change from chunk to chunk, which are arrays."""
        return ()


class WindowedEM(Tracker):
    """The estimate of `Quantifier` from the latest chunks: the most likely prevalences, with a prior.

    Parameters
    ----------
    labelled : Labelled
        What the tracker knows about training.
    chunks : int, default=1
        Number of chunks that the estimate is made from.
    prior, no_drift : float, default=1.0 and 0.3
        Parameters of `quapy_nemsis.prevalence.estimate`.

    Examples
    --------
    >>> from quapy_nemsis.prevalence import Training
    >>> training = Training(np.array([0.5, 0.5]), 100.0, 100.0)
    >>> known = Labelled(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0, 1]), training)
    >>> chunk = np.array([[0.8, 0.2]] * 30 + [[0.2, 0.8]] * 10)
    >>> WindowedEM(known, no_drift=0.0).update(chunk).round(2)
    array([0.88, 0.12])
    """

    key = "em"

    def __init__(
        self, labelled: Labelled, chunks: int = 1, prior: float = 1.0, no_drift: float = 0.3
    ):
        check_integer("chunks", chunks)
        check_positive("prior", prior, finite=True)
        check_share("no_drift", no_drift)
        super().__init__(labelled)
        self.most, self.prior, self.no_drift = int(chunks), float(prior), float(no_drift)
        self.latest = np.empty((0, len(labelled.shares)))
        self.ends = np.empty(0, dtype=np.int64)

    def _step(self, posteriors: np.ndarray) -> np.ndarray:
        sizes = [*np.diff(self.ends, prepend=0), len(posteriors)][-self.most :]
        self.latest = np.concatenate([self.latest, posteriors])[-sum(sizes) :]
        self.ends = np.cumsum(sizes)
        rows = _likelihoods(self.latest, self.labelled)
        return prevalence.estimate(rows, self.labelled.training, self.prior, self.no_drift)

    def _state(self) -> tuple[str, ...]:
        return ("latest", "ends")


class ForgettingEM(Tracker):
    """The most likely prevalences of all chunks, with weights that decrease with the age of a row.

    The estimate maximises Σᵢ λᵃⁱ·ln Σⱼ pⱼ·Lᵢⱼ + α·(1 + n/m)·Σⱼ ln pⱼ, where aᵢ is how many chunks ago row i was,
    Lᵢⱼ its likelihood in class j, n = Σᵢ λᵃⁱ, m the effective number of labelled rows (see
    `quapy_nemsis.prevalence`), and α is `pseudo_rows`. Chunks that count less than 1 % are forgotten, so memory is
    bounded.

    Parameters
    ----------
    labelled : Labelled
        What the tracker knows about training.
    forget : float, default=0.5
        The factor λ by which a row counts less with each chunk that follows, at least 0 and below 1.
    pseudo_rows : float, default=0.5
        Number of rows of each class that the prior adds, times 1 + n/m; the prior is a Dirichlet distribution. The
        `prior` of `Quantifier` and `WindowedEM` is another parameter, which is multiplied by n/m only.

    Examples
    --------
    >>> from quapy_nemsis.prevalence import Training
    >>> training = Training(np.array([0.5, 0.5]), 100.0, 100.0)
    >>> known = Labelled(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0, 1]), training)
    >>> chunk = np.array([[0.8, 0.2]] * 30 + [[0.2, 0.8]] * 10)
    >>> tracker = ForgettingEM(known, forget=0.5)
    >>> for _ in range(3):
    ...     p = tracker.update(chunk)
    >>> p.round(2)
    array([0.87, 0.13])
    """

    key = "forgetting-em"

    def __init__(self, labelled: Labelled, forget: float = 0.5, pseudo_rows: float = 0.5):
        check_share("forget", forget)
        check_positive("pseudo_rows", pseudo_rows, finite=True)
        super().__init__(labelled)
        self.forget, self.pseudo_rows = float(forget), float(pseudo_rows)
        self.latest = np.empty((0, len(labelled.shares)))
        self.weights = np.empty(0)

    def _step(self, posteriors: np.ndarray) -> np.ndarray:
        older = self.forget * self.weights
        kept = older >= _LEAST_WEIGHT
        self.latest = np.concatenate([self.latest[kept], posteriors])
        self.weights = np.concatenate([older[kept], np.ones(len(posteriors))])
        rows = _likelihoods(self.latest, self.labelled)
        ratio = self.weights.sum() / self.labelled.training.effective_size
        pseudo = self.pseudo_rows * (1.0 + ratio)
        return prevalence.maximum(rows, self.labelled.shares, pseudo, weights=self.weights)

    def _state(self) -> tuple[str, ...]:
        return ("latest", "weights")


class _FromLocal(Tracker):
    """Base class of trackers that start from an estimate for each chunk alone."""

    def __init__(self, labelled: Labelled, local: str = "bbse"):
        check_option("local", local, LOCAL)
        super().__init__(labelled)
        self.local = local
        self.inverse = np.linalg.pinv(labelled.confusion())

    def _local(self, posteriors: np.ndarray) -> np.ndarray:
        """Prevalences qₜ of a chunk alone."""
        if self.local == "bbse":
            return self.inverse @ posteriors.mean(axis=0)
        return prevalence.maximum(
            _likelihoods(posteriors, self.labelled), self.labelled.shares, 0.5
        )


class FTH(_FromLocal):
    """Follow the history (Wu et al. 2021, section 4.2): the mean of the estimates of all chunks so far.

    The mean is projected onto the simplex, which the paper leaves out.

    Parameters
    ----------
    labelled : Labelled
        What the tracker knows about training.
    local : {"bbse", "em"}, default="bbse"
        The estimate of a chunk alone.

    Examples
    --------
    >>> from quapy_nemsis.prevalence import Training
    >>> training = Training(np.array([0.5, 0.5]), 100.0, 100.0)
    >>> known = Labelled(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0, 1]), training)
    >>> chunk = np.array([[0.8, 0.2]] * 30 + [[0.2, 0.8]] * 10)
    >>> FTH(known).update(chunk).round(2)
    array([0.75, 0.25])
    """

    key = "fth"

    def __init__(self, labelled: Labelled, local: str = "bbse"):
        super().__init__(labelled, local)
        self.mean = np.zeros(len(labelled.shares))

    def _step(self, posteriors: np.ndarray) -> np.ndarray:
        self.mean = self.mean + (self._local(posteriors) - self.mean) / self.chunks
        return project(self.mean)

    def _state(self) -> tuple[str, ...]:
        return ("mean",)


class ROGD(_FromLocal):
    """Online gradient descent on the prevalences with which posteriors are re-weighted (Wu et al. 2021, algorithm 1).

    The loss of prevalences p in chunk t is ℓₜ(p) = Σⱼ qₜⱼ·(1 − Aⱼ(p)), where Aⱼ(p) is the mean, over labelled rows of
    class j, of their posterior of class j at the prevalences p. It is the expected error of a classifier that draws its
    answer from these posteriors, the smooth one of the two losses in the paper. The step is
    p ← Π(p − η·∇ℓₜ(p)), where Π projects onto the prevalences that are at least 0.01 (and at most half of 1/K). The
    step size is that of theorem 2, η = √(2/T)/G, where G is the largest norm of the gradient at the corners, in the
    middle and at 100 random points, as in the authors' code.

    Parameters
    ----------
    labelled : Labelled
        What the tracker knows about training.
    local : {"bbse", "em"}, default="bbse"
        The estimate of a chunk alone.
    step : float, optional
        The step size η; that of the theorem by default.
    horizon : int, default=1000
        The number T of chunks that the step size of the theorem is for.

    Examples
    --------
    >>> from quapy_nemsis.prevalence import Training
    >>> training = Training(np.array([0.5, 0.5]), 100.0, 100.0)
    >>> known = Labelled(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0, 1]), training)
    >>> chunk = np.array([[0.8, 0.2]] * 30 + [[0.2, 0.8]] * 10)
    >>> tracker = ROGD(known)
    >>> bool(0.5 < tracker.update(chunk)[0] < 0.6)
    True
    """

    key = "rogd"

    def __init__(
        self,
        labelled: Labelled,
        local: str = "bbse",
        step: float | None = None,
        horizon: int = 1000,
    ):
        check_integer("horizon", horizon)
        if step is not None:
            check_positive("step", step, finite=True)
        super().__init__(labelled, local)
        K = len(labelled.shares)
        self.margin = min(_MARGIN, 0.5 / K)
        self.ratios = labelled.posteriors / labelled.shares
        self.step = float(step) if step is not None else np.sqrt(2.0 / horizon) / self._bound()

    def gradient(self, p: np.ndarray, q: np.ndarray) -> np.ndarray:
        """Derivative of the loss by p, if the prevalences of the chunk are q."""
        labels = self.labelled.labels
        own = self.ratios[np.arange(len(labels)), labels]
        total = self.ratios @ p
        weights = (q / np.bincount(labels))[labels]
        direct = np.bincount(labels, weights * own / total, len(p))
        return (weights * p[labels] * own / total**2) @ self.ratios - direct

    def _bound(self) -> float:
        K = len(self.labelled.shares)
        rng = np.random.default_rng(0)
        points = [*np.eye(K), np.full(K, 1.0 / K), *rng.dirichlet(np.ones(K), 100)]
        inside = [project(p, self.margin) for p in points]
        return max(
            float(np.linalg.norm(self.gradient(p, q))) for p in inside for q in self.inverse.T
        )

    def _step(self, posteriors: np.ndarray) -> np.ndarray:
        slope = self.gradient(self.prevalence, self._local(posteriors))
        return project(self.prevalence - self.step * slope, self.margin)


class Layer(NamedTuple):
    """A linear layer on the log-likelihoods of rows, and the labelled rows that its risk is estimated from.

    An input x has the log-likelihoods of a row in each class, centred, divided by their root mean square ``unit``, and
    a 1. The posteriors are softmax(θx). At the start, they are those of the calibration.
    """

    unit: float
    rows: np.ndarray
    labels: np.ndarray
    start: np.ndarray
    #: The labelled rows of each class, a bound of the norm of gradients, and the radius of the ball of parameters.
    members: np.ndarray
    bound: float
    radius: float

    @classmethod
    def of(cls, labelled: Labelled) -> Layer:
        """The layer that returns the posteriors of the calibration."""
        logs = _log_likelihoods(labelled.posteriors, labelled)
        unit = float(np.sqrt((logs**2).mean())) or 1.0
        K = logs.shape[1]
        start = np.column_stack([unit * np.eye(K), np.log(labelled.shares)])
        rows = np.column_stack([logs / unit, np.ones(len(logs))])
        norms = np.linalg.norm(rows, axis=1)[:, np.newaxis]
        bound = float(np.sqrt(2.0) * labelled.means(norms).max())
        members = np.bincount(labelled.labels)
        radius = 2.0 * float(np.linalg.norm(start))
        return cls(unit, rows, labelled.labels, start, members, bound, radius)

    def posteriors(
        self, theta: np.ndarray, posteriors: np.ndarray, labelled: Labelled
    ) -> np.ndarray:
        """Posteriors of the layer, from those of the calibration."""
        logs = _log_likelihoods(posteriors, labelled) / self.unit
        return softmax(logs @ theta[:, :-1].T + theta[:, -1], axis=1)

    def risk(self, theta: np.ndarray, q: np.ndarray) -> tuple[float, np.ndarray]:
        """Cross-entropy Σₖ qₖ·Rₖ(θ), where Rₖ is the mean over labelled rows of class k, and its gradient."""
        logs = log_softmax(self.rows @ theta.T, axis=1)
        weights = (q / self.members)[self.labels]
        at = np.arange(len(self.labels)), self.labels
        wrong = np.exp(logs) * weights[:, np.newaxis]
        wrong[at] -= weights
        return -float(weights @ logs[at]), wrong.T @ self.rows

    def moved(self, theta: np.ndarray, gradient: np.ndarray, step: float) -> np.ndarray:
        """Parameters after a gradient step, projected onto the ball."""
        theta = theta - step * gradient
        return theta * min(1.0, self.radius / float(np.linalg.norm(theta)))


class UOGD(_FromLocal):
    """Online gradient descent on an unbiased estimate of the risk (Bai et al. 2022, section 3.1).

    The risk of parameters θ in chunk t is Rₜ(θ) = Σₖ qₜₖ·Rₖ(θ), where Rₖ is the mean cross-entropy of labelled rows of
    class k. The step is θ ← Π(θ − η·∇Rₜ(θ)).

    The paper trains the parameters of any convex model, such as the last layer of a network. Here the model is a linear
    layer on the calibrated log-likelihoods of a row, which starts as the calibration itself, so it is smaller: it has
    K·(K + 1) parameters. Π projects onto the ball around 0 of twice the norm of the starting point, of diameter Γ. The
    step size is Γ/(G·√T), where G bounds the norm of gradients. The method returns no prevalence: `prevalence` is the
    mean posterior of the adapted classifier in the latest chunk.

    Parameters
    ----------
    labelled : Labelled
        What the tracker knows about training.
    local : {"bbse", "em"}, default="bbse"
        The estimate of a chunk alone.
    step : float, optional
        The step size η; Γ/(G·√T) by default.
    horizon : int, default=1000
        The number T of chunks that the default step size is for.

    Examples
    --------
    >>> from quapy_nemsis.prevalence import Training
    >>> training = Training(np.array([0.5, 0.5]), 100.0, 100.0)
    >>> known = Labelled(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0, 1]), training)
    >>> chunk = np.array([[0.8, 0.2]] * 30 + [[0.2, 0.8]] * 10)
    >>> tracker = UOGD(known)
    >>> before = tracker.adapted(chunk).mean(axis=0)
    >>> bool(tracker.update(chunk)[0] > before[0])
    True
    """

    key = "uogd"

    def __init__(
        self,
        labelled: Labelled,
        local: str = "bbse",
        step: float | None = None,
        horizon: int = 1000,
    ):
        check_integer("horizon", horizon)
        if step is not None:
            check_positive("step", step, finite=True)
        super().__init__(labelled, local)
        self.layer = Layer.of(labelled)
        default = 2.0 * self.layer.radius / (self.layer.bound * np.sqrt(horizon))
        self.step = default if step is None else float(step)
        self.theta = self.layer.start.copy()

    def _step(self, posteriors: np.ndarray) -> np.ndarray:
        _, gradient = self.layer.risk(self.theta, self._local(posteriors))
        self.theta = self.layer.moved(self.theta, gradient, self.step)
        return self.adapted(posteriors).mean(axis=0)

    def adapted(self, posteriors: np.ndarray) -> np.ndarray:
        """Posteriors of the adapted classifier, which is the layer."""
        return self.layer.posteriors(self.theta, np.asarray(posteriors, dtype=float), self.labelled)

    def _state(self) -> tuple[str, ...]:
        return ("theta",)


class ATLAS(_FromLocal):
    """Several UOGD learners of different step sizes, weighed by their risks (Bai et al. 2022, algorithm 1).

    There are N = 1 + ⌈½·log₂(1 + 2T)⌉ learners. Learner i has the step size Γσ/(2G·√(KT))·2ⁱ⁻¹, where σ is the smallest
    singular value of the matrix C (theorem 2). Their weights are proportional to exp(−ε·Σₛ Rₛ(θₛᵢ)) with
    ε = 2·√(ln N/T), and the adapted classifier has the weighted mean of their parameters. Model, ball and `prevalence`
    are those of `UOGD`, with what is said there.

    Parameters
    ----------
    labelled : Labelled
        What the tracker knows about training.
    local : {"bbse", "em"}, default="bbse"
        The estimate of a chunk alone.
    horizon : int, default=1000
        The number T of chunks that step sizes are for.

    Examples
    --------
    >>> from quapy_nemsis.prevalence import Training
    >>> training = Training(np.array([0.5, 0.5]), 100.0, 100.0)
    >>> known = Labelled(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0, 1]), training)
    >>> chunk = np.array([[0.8, 0.2]] * 30 + [[0.2, 0.8]] * 10)
    >>> tracker = ATLAS(known)
    >>> before = tracker.adapted(chunk).mean(axis=0)
    >>> bool(tracker.update(chunk)[0] > before[0])
    True
    """

    key = "atlas"

    def __init__(self, labelled: Labelled, local: str = "bbse", horizon: int = 1000):
        check_integer("horizon", horizon)
        super().__init__(labelled, local)
        self.layer = layer = Layer.of(labelled)
        K = len(labelled.shares)
        n = 1 + int(np.ceil(0.5 * np.log2(1.0 + 2.0 * horizon)))
        sigma = float(np.linalg.svd(labelled.confusion(), compute_uv=False)[-1])
        least = 2.0 * layer.radius * sigma / (2.0 * layer.bound * np.sqrt(K * horizon))
        self.steps = least * 2.0 ** np.arange(n)
        self.rate = 2.0 * np.sqrt(np.log(n) / horizon)
        self.thetas = np.repeat(layer.start[np.newaxis], n, axis=0)
        self.risks = np.zeros(n)

    def _step(self, posteriors: np.ndarray) -> np.ndarray:
        q = self._local(posteriors)
        found = [self.layer.risk(theta, q) for theta in self.thetas]
        self.risks = self.risks + [risk for risk, _ in found]
        learners = zip(self.thetas, found, self.steps, strict=True)
        self.thetas = np.array(
            [self.layer.moved(theta, slope, step) for theta, (_, slope), step in learners]
        )
        return self.adapted(posteriors).mean(axis=0)

    def adapted(self, posteriors: np.ndarray) -> np.ndarray:
        """Posteriors of the adapted classifier, which is the layer with the weighted mean of all parameters."""
        theta = np.tensordot(softmax(-self.rate * self.risks), self.thetas, 1)
        return self.layer.posteriors(theta, np.asarray(posteriors, dtype=float), self.labelled)

    def _state(self) -> tuple[str, ...]:
        return ("thetas", "risks")


class FLHFTL(_FromLocal):
    """Follow the leading history, with experts that follow the leader (Baby et al. 2023).

    Expert i is the mean of the estimates qᵢ, …, qₜ. The expert that begins with chunk t has weight 1/t, and the weights
    of the others are multiplied by 1 − 1/t. Before that, the weight of each is multiplied by exp(−α·‖qₜ − xₜᵢ‖²), where
    xₜᵢ was its prediction, and weights are divided by their sum (Hazan and Seshadhri 2009). The prevalence is the
    weighted mean of the experts, projected onto the simplex.

    All t experts are remembered in the paper. With ``prune``, the expert of chunk i = r·2ᵏ, with r odd, is dropped
    after 2ᵏ⁺² + 1 chunks, as Hazan and Seshadhri do. Their number then grows as ln t.

    Parameters
    ----------
    labelled : Labelled
        What the tracker knows about training.
    local : {"bbse", "em"}, default="bbse"
        The estimate of a chunk alone.
    rate : float, optional
        The learning rate α. In the authors' code it is 1/K, whatever the number of rows in a chunk. By default, it is
        1/(2σ²), where σ² is the variance of an entry of qₜ from as many rows as chunk t has, at equal prevalences. An
        expert then loses weight as an unlikely explanation would.
    prune : bool, default=True
        Whether old experts are dropped.

    Examples
    --------
    >>> from quapy_nemsis.prevalence import Training
    >>> training = Training(np.array([0.5, 0.5]), 100.0, 100.0)
    >>> known = Labelled(np.array([[0.8, 0.2], [0.2, 0.8]]), np.array([0, 1]), training)
    >>> chunk = np.array([[0.8, 0.2]] * 30 + [[0.2, 0.8]] * 10)
    >>> tracker = FLHFTL(known)
    >>> for _ in range(10):
    ...     p = tracker.update(chunk)
    >>> p.round(2)
    array([0.75, 0.25])
    >>> for _ in range(10):
    ...     p = tracker.update(chunk[:, ::-1])
    >>> p.round(2)
    array([0.25, 0.75])
    """

    key = "flh-ftl"

    def __init__(
        self,
        labelled: Labelled,
        local: str = "bbse",
        rate: float | None = None,
        prune: bool = True,
    ):
        if rate is not None:
            check_positive("rate", rate, finite=True)
        super().__init__(labelled, local)
        K = len(labelled.shares)
        self.rate, self.prune = None if rate is None else float(rate), bool(prune)
        weights = 1.0 / (K * np.bincount(labelled.labels))[labelled.labels]
        centred = (labelled.posteriors - weights @ labelled.posteriors) @ self.inverse.T
        self.noise = float(weights @ (centred**2).mean(axis=1))
        self.births = np.empty(0, dtype=np.int64)
        self.experts, self.logs = np.empty((0, K)), np.empty(0)

    def _step(self, posteriors: np.ndarray) -> np.ndarray:
        t, q = self.chunks, self._local(posteriors)
        rate = len(posteriors) / (2.0 * self.noise) if self.rate is None else self.rate
        logs = self.logs - rate * ((self.experts - q) ** 2).sum(axis=1)
        births = np.append(self.births, t)
        ages = (t + 1 - births)[:, np.newaxis]  # how many estimates each is the mean of
        experts = np.vstack([self.experts, q])
        experts += (q - experts) / ages
        if t > 1:
            logs = log_softmax(logs) + np.log1p(-1.0 / t)
        logs = np.append(logs, -np.log(t))
        if self.prune:
            kept = t <= births + 4 * (births & -births) + 1
            births, experts, logs = births[kept], experts[kept], log_softmax(logs[kept])
        self.births, self.experts, self.logs = births, experts, logs
        return project(np.exp(logs) @ experts)

    def _state(self) -> tuple[str, ...]:
        return ("births", "experts", "logs")


TRACKERS: dict[str, type[Tracker]] = {
    kind.key: kind for kind in (WindowedEM, ForgettingEM, FTH, ROGD, UOGD, ATLAS, FLHFTL)
}


def get_tracker(method: str, labelled: Labelled, options: dict[str, Any] | None = None) -> Tracker:
    """Tracker by name, with options."""
    check_option("method", method, TRACKERS)
    known = [name for name in signature(TRACKERS[method]).parameters if name != "labelled"]
    unknown = [name for name in options or {} if name not in known]
    if unknown:
        wrong = f"the method {method!r} cannot take {', '.join(map(repr, unknown))}"
        raise TypeError(f"{wrong}; its options are {', '.join(known)}")
    return TRACKERS[method](labelled, **(options or {}))


def project(v: np.ndarray, least: float = 0.0) -> np.ndarray:
    """Nearest prevalences that are all at least so large (Duchi et al. 2008).

    Examples
    --------
    >>> project(np.array([0.6, 0.6, -0.1]))
    array([0.5, 0.5, 0. ])
    """
    room = 1.0 - len(v) * least
    shifted = np.asarray(v, dtype=float) - least
    ordered = np.sort(shifted)[::-1]
    excess = (np.cumsum(ordered) - room) / np.arange(1, len(v) + 1)
    threshold = excess[np.flatnonzero(ordered > excess)[-1]]
    return np.maximum(shifted - threshold, 0.0) + least


def _likelihoods(posteriors: np.ndarray, labelled: Labelled) -> np.ndarray:
    """Likelihoods of rows, up to a factor, from posteriors at the training prevalences."""
    with np.errstate(divide="ignore"):
        return prevalence.likelihoods(np.log(posteriors) - np.log(labelled.shares))


def _log_likelihoods(posteriors: np.ndarray, labelled: Labelled) -> np.ndarray:
    """Log-likelihoods of rows in each class, centred."""
    logs = np.log(_likelihoods(posteriors, labelled))
    return logs - logs.mean(axis=1, keepdims=True)
