"""AMP and STAMP (Narasimhan, Kar, Jain 2015): CAN and SCAN for pseudo-linear measures."""

from __future__ import annotations

from dataclasses import dataclass

from quapy_nemsis.learners.can import CANClassifier, CANParameters
from quapy_nemsis.learners.scan import SCANClassifier, SCANParameters, ScanSettings
from quapy_nemsis.measures import Measure, NestedMeasure, PseudoMeasure, get_measure


def _pseudo_linear(name: str, other: str, measure: Measure) -> PseudoMeasure:
    """The measure, if it is a ratio of linear functions of the rates; otherwise raise a ValueError."""
    if not isinstance(measure, PseudoMeasure) or not measure.is_pseudo_linear():
        raise ValueError(
            f"{name} optimises ratios of linear functions of the rates, such as 'f1', 'f:2' and 'jaccard'; got "
            f"{measure!r} ({measure.formula}): use {other}, which takes other measures"
        )
    return measure


@dataclass(eq=False, repr=False)
class STAMPParameters(SCANParameters):
    """Parameters of STAMP, shared by the classifier and the QuaPy quantifier (see `STAMPClassifier`)."""

    measure: str | Measure = "f1"


class STAMPClassifier(STAMPParameters, SCANClassifier):
    """Linear classifier trained by STAMP (Narasimhan, Kar and Jain, ICML 2015), for pseudo-linear measures.

    A pseudo-linear measure is a ratio of linear functions of the rates, such as the F-measures and the Jaccard index.
    The valuation P_class − v·P_quant at a level v is then linear in the rates, so its gradients, the weights of the
    classes, stay as they are during an epoch. For the F-measure of β they are (1 + β² − v)·p and v·n. STAMP alternates
    between epochs of weighted classification and the estimation of the level on points that it does not learn. Kar et
    al. (2016) derived SCAN from STAMP, and STAMP is SCAN with a linear valuation. This class is therefore
    `SCANClassifier` with another default, and refuses measures that are not pseudo-linear.

    Narasimhan et al. divide the valuation by the constant of the denominator and leave out the constant −v. The measure
    is then at least v where the valuation is at least v. Kar et al. kept this condition in CAN's listing, but not that
    valuation, so V ≥ 0 is meant there. As with SCAN, weights, estimates and step counter carry over from epoch to
    epoch.

    At level 0, the first epoch only learns to find positives. It is short, and later epochs correct it.

    Parameters
    ----------
    measure : str or Measure, default="f1"
        The pseudo-linear measure to optimise: "f1", "f:beta", "jaccard", or a custom `PseudoConcave` measure whose
        parts are linear in P and N.
    reward : {"hinge", "logistic", "auto"}, default="auto"
        Concave surrogate whose gradient updates the weights, as in `SCANClassifier`.
    estimates : {"counts", "surrogate"}, default="counts"
        Compute levels from 0-1 counts or from the surrogate rewards.
    monotone : bool, default=True
        Replace negative class gradients by 0. Those of "f1", "f:beta" and "jaccard" are never negative for two classes.
    eta0 : float or "auto", default="auto"
        Step size; step t uses η₀/√t. "auto" chooses it (see `quapy_nemsis.learners.tuning`).
    radius : float or "auto", default="auto"
        Radius of the ball onto which the weights (not the intercept) are projected. "auto" chooses it in `fit`; in a
        stream, "auto" means no limit (infinity).
    reward_bound : float, default=1
        Bound B: surrogate rewards are clipped to [−B, 1] before they enter the estimates.
    n_passes : int or "auto", default="auto"
        Number of passes of `fit` over the data, as in `NEMSISClassifier`. Epochs may span several passes.
    average : {"suffix", "all", "last"}, default="suffix"
        Which iterates the model averages: at least the last half ("suffix"), all of them, or only the last one.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    shuffle : bool, default=True
        Whether `fit` shuffles the rows before each pass.
    random_state : int, RandomState or None, default=None
        Seed for the random choices in `fit`, such as the order of the rows.
    first_epoch : int, default=100
        Number of points in the first learning phase, s₀.
    growth : float, default=2
        Ratio of an epoch's length to that of the previous epoch.
    level_share : float, default=0.25
        Length of a level phase relative to the learning phase of the same epoch, s'_e/s_e.
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
    levels_ : ndarray of shape (n_epochs,)
        The level after each finished epoch.
    classes_, coef_, intercept_, n_features_in_, t_, eta0_, radius_, tuning_, history_
        See `NEMSISClassifier`; `t_` includes the points of level phases.

    References
    ----------
    H. Narasimhan, P. Kar, P. Jain. Optimizing Non-decomposable Performance Measures: A Tale of Two Classes. ICML 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = STAMPClassifier("f1", random_state=0).fit(scale(X), y)
    >>> bool(learner.levels_[-1] > 0.97)
    True
    """

    def settings(self, n_classes: int = 2) -> ScanSettings:
        """Check the parameters and return them as settings."""
        _pseudo_linear("STAMP", "SCANClassifier or NEMSISClassifier", get_measure(self.measure))
        return super().settings(n_classes)


@dataclass(eq=False, repr=False)
class AMPParameters(CANParameters):
    """Parameters of AMP, shared by the classifier and the QuaPy quantifier (see `AMPClassifier`)."""

    measure: str | Measure = "f1"


class AMPClassifier(AMPParameters, CANClassifier):
    """Linear classifier trained by AMP (Narasimhan, Kar and Jain, ICML 2015), for pseudo-linear measures, in batch.

    AMP alternates between w ← argmax of the valuation at level v, which is a weighted classification problem, and v ←
    the measure at w. Kar et al. (2016) derived CAN from AMP, and AMP is CAN with a linear valuation. This class is
    therefore `CANClassifier` with another default, and refuses measures that are not pseudo-linear. For two classes and
    "f1", "f:beta" or "jaccard", the valuation is a weighted sum of P and N with positive weights. The inner problem is
    then concave, and AMP finds the global maximum of the measure of the mean logistic rewards. With 0-1 rewards the
    same model need not be the best; `PlugInClassifier` chooses a threshold by 0-1 counts.

    Parameters
    ----------
    measure : str or Measure, default="f1"
        The pseudo-linear measure to optimise: "f1", "f:beta", "jaccard", or a custom `PseudoConcave` measure whose
        parts are linear in P and N.
    radius : float, default=inf
        R, the radius of the ball for the weights (not the intercept).
    tol : float, default=1e-6
        AMP stops when the level gains no more than this. It is also the tolerance of the maximisation (for the largest
        entry of the gradient).
    max_levels : int, default=50
        Maximum number of levels.
    max_iter : int, default=1000
        Maximum number of iterations of L-BFGS for one level.
    fit_intercept : bool, default=True
        Whether to learn an intercept.
    verbose : int, default=0
        If not 0, print a line per level.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn. They multiply the weights of the rows.
    posteriors : {"training", "balanced"} or None, default=None
        The prevalences at which `predict_proba` returns posteriors, or None for no posteriors, as in `CANClassifier`.

    Attributes
    ----------
    levels_ : ndarray of shape (n_iter_,)
        The level at the mean logistic rewards, after each maximisation.
    n_iter_ : int
        Number of maximisations.
    classes_, coef_, intercept_, n_features_in_
        See `NEMSISClassifier`.

    References
    ----------
    H. Narasimhan, P. Kar, P. Jain. Optimizing Non-decomposable Performance Measures: A Tale of Two Classes. ICML 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.preprocessing import scale
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> learner = AMPClassifier("f1", radius=5.0).fit(scale(X), y)
    >>> bool(learner.score(scale(X), y) > 0.97)
    True
    """

    def _checked_measure(self) -> NestedMeasure | PseudoMeasure:
        _pseudo_linear("AMP", "CANClassifier", get_measure(self.measure))
        return super()._checked_measure()
