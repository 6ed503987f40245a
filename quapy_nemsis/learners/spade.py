"""SPADE (Narasimhan, Kar, Jain 2015): settings, state and classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from quapy_nemsis._kernels import spade as kernel
from quapy_nemsis._kernels.rows import Rows
from quapy_nemsis._validation import check_positive
from quapy_nemsis.learners.base import ProbabilisticOnlineClassifier
from quapy_nemsis.learners.nemsis import NEMSISParameters, NemsisSettings, NemsisState
from quapy_nemsis.learners.state import UNWEIGHTED, Arrays, together
from quapy_nemsis.measures import DUALS, Measure, NestedMeasure, get_measure
from quapy_nemsis.measures.compiled import DUAL_THETA, dual_callback

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class SpadeSettings(NemsisSettings):
    """Checked parameters of SPADE: those of NEMSIS, and the step size of the dual variables."""

    dual_step: float

    def options(self) -> tuple:
        """Values of the kernel's options."""
        return tuple(getattr(self, name) for name in kernel.OPTIONS.names or ())


class SpadeState(NemsisState):
    """State of SPADE: weights and sums as in NEMSIS, and the dual variables (see `quapy_nemsis._kernels.spade`)."""

    record = kernel.NUMBERS
    lies_in_fours = False

    @classmethod
    def kind_for(cls, n_classes: int) -> type[NemsisState]:
        """The class of states for a number of classes, which must be two."""
        return SpadeState

    @classmethod
    def start(cls, n_features: int, n_classes: int, settings: NemsisSettings) -> SpadeState:
        """State before the first point: zero weights, and classes of the same weight."""
        state = cast(SpadeState, super().start(n_features, n_classes, settings))
        state.numbers["dual_pos"] = state.numbers["dual_neg"] = 0.5
        return state

    @classmethod
    def from_arrays(cls, arrays: Arrays, settings: NemsisSettings) -> SpadeState:
        """Inverse of `to_arrays`; arrays of the wrong name, type or shape raise a ValueError."""
        return cast(SpadeState, super().from_arrays(arrays, settings))

    def details(self) -> dict[str, Any]:
        """The dual variables."""
        return {"duals": np.array([self.numbers["dual_neg"], self.numbers["dual_pos"]])}

    @classmethod
    def learn_parts(
        cls,
        states: Sequence[Self],
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        parts: np.ndarray,
        weights: np.ndarray = UNWEIGHTED,
    ) -> list[bool]:
        """Let learner k learn the rows that are not in part k, each on its own: the kernel does not know parts."""
        return super(NemsisState, cls).learn_parts(states, rows, labels, order, parts, weights)

    @staticmethod
    def _learn(
        rows: Rows,
        labels: np.ndarray,
        order: np.ndarray,
        weights: np.ndarray,
        parts: np.ndarray,
        tasks: Sequence[tuple[int, NemsisState]],
    ) -> np.ndarray:
        """Run the kernel; the number of rows that each learner took."""
        states = [state for _, state in tasks]
        measure = states[0].settings.measure
        n_theta = len(measure.theta)
        compiled = dual_callback(DUALS[type(measure)], n_theta)
        asks = np.zeros((len(states), DUAL_THETA + n_theta))
        asks[:, DUAL_THETA:] = [state.settings.measure.theta for state in states]
        options = np.array([state.settings.options() for state in states], dtype=kernel.OPTIONS)
        taken = np.zeros(len(states), dtype=np.int64)
        with together([(s.v, s.correction, s.previous, s.numbers) for s in states]) as tables:
            kernel.spade(
                rows, order, labels, weights, compiled.address, asks, options, *tables, taken
            )
        return taken


@dataclass(eq=False, repr=False)
class SPADEParameters(NEMSISParameters):
    """Parameters of SPADE, shared by the classifier and the QuaPy quantifier (see `SPADEClassifier`)."""

    measure: str | Measure = "gmean"
    _: KW_ONLY
    dual_step: float = 1.0


class SPADEClassifier(SPADEParameters, ProbabilisticOnlineClassifier[SpadeSettings]):
    """Linear classifier trained by SPADE (Algorithm 1 of Narasimhan, Kar and Jain, ICML 2015).

    A concave measure of the rates is the lowest of its tangents, Ψ(P, N) = min over (α, β) of α·P + β·N − Ψ*(α, β).
    SPADE seeks the saddle point. Each point (x, y) moves the weights up and the dual variables down:

        w ← Π_R( w + η₀/√t · (α/p or β/n) · ∇ reward(w; x, y) ),
        (α, β) ← Π_A( (α, β) − η'₀/√t · ((r⁺, r⁻) − ∇Ψ*(α, β)) ),

    where r⁺ = reward/p for a positive and 0 for a negative, r⁻ the reverse. The region A and Ψ* are closed forms for
    each measure (see `quapy_nemsis.measures.duals`). NEMSIS replaces the second line by the gradient of Ψ at the
    running means of the rewards, which needs no step size. Kar et al. (2016) say that η'₀ needs fine tuning. Rates have
    a fixed scale, unlike features, and so has η'₀: values from 0.1 to 3 gave nearly the same results on the data sets
    ijcnn1 and letter. With much smaller values, the dual variables lag behind, above all for "kld".

    As in `NEMSISClassifier`, the share of positives p is that of the points seen so far, there is an intercept, and the
    rewards of the second line are 0-1 counts unless `estimates` says otherwise (the paper has surrogate rewards). GMean
    has no Lipschitz constant, as the paper demands; rates count as at least 1/(2t), which bounds α and β.

    It takes two classes. The paper's measures are functions of P and N. A dual of K recalls exists, but its projections
    have no closed form; `NEMSISClassifier` optimises these measures for K classes.

    Parameters
    ----------
    measure : str or Measure, default="gmean"
        The concave measure to optimise: "gmean", "hmean", "qmean", "ba", "kld", "nss" or "bakld:C". The dual of the
        Q-measure has no closed form, and that of a custom measure is not known.
    reward : {"hinge", "logistic", "auto"}, default="auto"
        Concave surrogate whose gradient updates the weights; "auto" is "hinge".
    estimates : {"counts", "surrogate"}, default="counts"
        Whether the dual variables follow 0-1 counts or the surrogate rewards.
    monotone : bool, default=True
        Replace negative dual variables, which only "kld", "nss" and "bakld" have, by 0 in the step of the weights.
    eta0 : float or "auto", default="auto"
        Step size η₀ of the weights. "auto" chooses it (see `quapy_nemsis.learners.tuning`).
    radius : float or "auto", default="auto"
        Radius of the ball onto which the weights (not the intercept) are projected. "auto" chooses it in `fit`; in a
        stream, "auto" means no limit (infinity).
    reward_bound : float, default=1
        B. Surrogate rewards are clipped to [−B, 1] before they move the dual variables.
    n_passes : int or "auto", default="auto"
        Passes of `fit` over the data, as in `NEMSISClassifier`.
    average : {"suffix", "all", "last"}, default="suffix"
        Which iterates the model averages: at least the last half ("suffix"), all of them (the paper), or only the last
        one.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    shuffle : bool, default=True
        Whether `fit` shuffles the rows before each pass.
    random_state : int, RandomState or None, default=None
        Seed for the random choices in `fit`, such as the order of the rows.
    dual_step : float, default=1
        Step size η'₀ of the dual variables.
    record_every : int or None, default=None
        Add an entry to `history_` every `record_every` samples. None records nothing.
    verbose : int, default=0
        If not 0, `fit` prints the chosen step size and radius, and a line per pass.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in `NEMSISClassifier`.
    posteriors : {"training", "balanced"}, default="training"
        The class prevalences that the posteriors of `predict_proba` assume, as in `NEMSISClassifier`.

    Attributes
    ----------
    duals_ : ndarray of shape (2,)
        The dual variables β and α, in the order of `classes_`.
    classes_, coef_, intercept_, n_features_in_, t_, eta0_, radius_, tuning_, history_
        See `NEMSISClassifier`.

    References
    ----------
    H. Narasimhan, P. Kar, P. Jain. Optimizing Non-decomposable Performance Measures: A Tale of Two Classes. ICML 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = SPADEClassifier("gmean", random_state=0).fit(scale(X), y)
    >>> bool(learner.score(scale(X), y) > 0.97)
    True
    >>> bool(learner.duals_.prod() >= 0.2499)  # the region of the geometric mean
    True
    """

    state_type = SpadeState
    multiclass = False
    resume_parameters = "average and estimates"

    @property
    def duals_(self) -> np.ndarray:
        """The dual variables β and α, in the order of `classes_`."""
        check_is_fitted(self)
        return self.state_.details()["duals"]

    def settings(self, n_classes: int = 2) -> SpadeSettings:
        """Check the parameters and return them as settings."""
        measure = get_measure(self.measure)
        if not isinstance(measure, NestedMeasure) or type(measure) not in DUALS:
            names = ", ".join(kind.key for kind in DUALS)  # type: ignore[attr-defined]
            raise ValueError(
                f"SPADE descends in the dual of a measure, and that of {measure!r} is not known: choose one "
                f"of {names}, or use NEMSISClassifier or SCANClassifier, which need no dual"
            )
        check_positive("dual_step", self.dual_step, finite=True)
        steps = self.step_settings(measure, 2)
        given = {field.name: getattr(steps, field.name) for field in fields(steps)}
        return SpadeSettings(**given, dual_step=float(self.dual_step))
