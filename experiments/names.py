"""Commands take these names, and `parse_method` reads the name of a method. Nothing slow is imported here."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: QuaPy's errors, and what they are called in words.
ERRORS = {
    "ae": "absolute error",
    "nae": "normalised absolute error",
    "rae": "relative absolute error",
    "nrae": "normalised relative absolute error",
    "se": "squared error",
    "kld": "Kullback-Leibler divergence",
    "nkld": "normalised Kullback-Leibler divergence",
}
#: All metrics that are understood: QuaPy puts an m before the mean of an error.
METRICS = (*(f"m{name}" for name in ERRORS), *ERRORS)
PROTOCOLS = ("APP", "NPP", "UPP", "Dirichlet")
FIGURES = ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6")

#: QuaPy's aggregations, and that of this package, by name, with the name of the class.
AGGREGATIONS = {
    **{name: name for name in ("CC", "PCC", "ACC", "PACC", "EMQ", "HDy", "DyS", "MS")},
    **{name: name for name in ("DMy", "BBSEhard", "BBSEsoft")},
    "KDEy": "KDEyML",
    "Quantifier": "Quantifier",
}
#: The methods that `compare` runs if nothing is named.
DEMO = [
    *("Quantifier", "CC", "ACC", "PACC", "EMQ", "EMQ(LR-isotonic)"),
    *("NEMSIS:kld", "NEMSIS:bakld", "NEMSIS:q", "EMQ(NEMSIS:ba)", "SVM(KLD)"),
]
#: The methods that "all" stands for.
ALL = [
    *AGGREGATIONS,
    *("NEMSIS:kld", "NEMSIS:bakld", "NEMSIS:q"),
    *("NEMSIS-surrogate:kld", "NEMSIS-surrogate:bakld", "NEMSIS-surrogate:q"),
    *("SCAN:cq", "SCAN:bk", "CAN:cq", "SVM(KLD)", "SVM(Q)", "1PMB:kld"),
    *("ACC(NEMSIS:q)", "PACC(NEMSIS:ba)", "EMQ(NEMSIS:ba)"),
]
_LEARNER = re.compile(
    r"(?P<online>(NEMSIS|SCAN)(-surrogate)?|CAN|1PMB)(:(?P<objective>.*))?"
    r"|(?P<plain>LR|LR-balanced|LR-isotonic)|(?P<svm>SVM)\((?P<loss>\w+)\)"
)


@dataclass(frozen=True)
class MethodName:
    """The parts of a method's name: an aggregation, a learner, and the measure or loss of the learner."""

    aggregation: str
    learner: str
    #: It is empty where the learner's default is meant.
    objective: str = ""


def parse_method(name: str) -> MethodName:
    """Return the parts of a name; whether the measure or loss exists is not checked here.

    Examples
    --------
    >>> parse_method("ACC(NEMSIS:q)")
    MethodName(aggregation='ACC', learner='NEMSIS', objective='q')
    """
    aggregation, parenthesis, inner = name.partition("(")
    if aggregation not in AGGREGATIONS:
        aggregation, inner = "CC", name
    elif not parenthesis:
        inner = "LR"
    elif inner.endswith(")"):
        inner = inner[:-1]
    else:
        raise ValueError(f"the parenthesis of {name!r} is not closed")
    found = _LEARNER.fullmatch(inner)
    if found is None:
        raise ValueError(
            f"unknown method {name!r}; choose from {', '.join(AGGREGATIONS)} (also on a learner, as in "
            "ACC(NEMSIS:q)), LR, LR-balanced, LR-isotonic, NEMSIS:MEASURE, NEMSIS-surrogate:MEASURE, SCAN:MEASURE, "
            "CAN:MEASURE, 1PMB:LOSS, SVM(LOSS)"
        )
    learner = found["online"] or found["plain"] or found["svm"]
    loss = (found["loss"] or "").lower()
    # SVM(Q) is the field's name for the structural SVM of the loss "qrecall"; "q" is the paper's Q-measure.
    loss = "qrecall" if loss == "q" else loss
    return MethodName(aggregation, learner, found["objective"] or loss)


def base_name(metric: str) -> str:
    """Return the name of an error without the leading m of a mean; refuse unknown names."""
    name = metric.removeprefix("m")
    if name not in ERRORS:
        raise ValueError(f"unknown metric {metric!r}; choose from {', '.join(METRICS)}")
    return name
