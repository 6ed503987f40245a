"""Commands take these names, and `parse_method` reads the name of a method. Nothing slow is imported here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from typing import Any

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
#: What a report can be written as.
REPORTS = ("html", "md", "latex", "csv", "parquet")
#: Experiments of the literature that are run like comparisons.
PRESETS = ("uci-multiclass", "lequa")
#: The methods that these compare if nothing is named.
PRESET_METHODS = ("Quantifier", "CC", "ACC", "PACC", "EMQ")

#: QuaPy's aggregations, and that of this package, by name, with the name of the class.
AGGREGATIONS = {
    **{name: name for name in ("CC", "PCC", "ACC", "PACC", "EMQ", "HDy", "DyS", "MS")},
    **{name: name for name in ("DMy", "BBSEhard", "BBSEsoft")},
    "KDEy": "KDEyML",
    "Quantifier": "Quantifier",
}
#: Those of QuaPy that `quapy_nemsis.aggregation` has compiled, under the same names of classes.
COMPILED = ("ACC", "PACC", "EMQ", "HDy", "DyS", "MS", "KDEy")
#: What model selection tries: parameters of learners, and of aggregations. Learners of this package choose their own.
_STRENGTHS = [1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3]
LEARNER_GRIDS: dict[str, dict[str, list[Any]]] = {
    "LR": {"C": _STRENGTHS, "class_weight": [None, "balanced"]},
    "LR-balanced": {"C": _STRENGTHS},
    "LR-isotonic": {"C": _STRENGTHS},
    "linear-SVM": {"estimator__C": _STRENGTHS},
    "forest": {"min_samples_leaf": [1, 5, 25]},
    "forest-isotonic": {"estimator__min_samples_leaf": [1, 5, 25]},
    "SVM": {"C": [0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0]},
    "QTree": {"min_samples_leaf": [1, 5, 25]},
    "QForest": {"min_samples_leaf": [1, 5, 25]},
}
AGGREGATION_GRIDS: dict[str, dict[str, list[Any]]] = {
    "EMQ": {"calib": [None, "bcts"]},
    "KDEy": {"bandwidth": [0.01, 0.02, 0.05, 0.1, 0.2]},
    "DMy": {"nbins": [4, 8, 16, 32]},
    "DyS": {"n_bins": [4, 8, 16, 32]},
}
#: EMQ whose learner is calibrated, which is the third way besides none and bcts, needs no posteriors out of fold.
WITHOUT_FOLDS: dict[str, list[Any]] = {"val_split": [None], "calib": [None]}
#: The methods that `compare` runs if nothing is named.
DEMO = [
    *("Quantifier", "CC", "ACC", "PACC", "EMQ", "EMQ(LR-isotonic)"),
    *("NEMSIS:kld", "NEMSIS:bakld", "NEMSIS:q", "EMQ(NEMSIS:ba)", "SVM(KLD)"),
]
#: The methods that "all" stands for.
ALL = [
    *AGGREGATIONS,
    *("EMQ(LR-isotonic)", "PACC(forest)", "ACC(linear-SVM)"),
    *("NEMSIS:kld", "NEMSIS:bakld", "NEMSIS:q"),
    *("NEMSIS-surrogate:kld", "NEMSIS-surrogate:bakld", "NEMSIS-surrogate:q"),
    *("SCAN:cq", "SCAN:bk", "CAN:cq", "SVM(KLD)", "SVM(Q)", "1PMB:kld"),
    *("ACC(NEMSIS:q)", "PACC(NEMSIS:ba)", "EMQ(NEMSIS:ba)"),
    *("QTree", "QForest", "EMQ(QForest)"),
]
SELECTIONS = ("tuned", "plain")
#: Packages offer methods under this name.
ENTRY_POINTS = "quapy_nemsis.methods"
_LEARNER = re.compile(
    r"(?P<online>(NEMSIS|SCAN|STAMP|SPADE)(-surrogate)?|CAN|AMP|1PMB|plug-in|QTree|QForest)(:(?P<objective>.*))?"
    r"|(?P<plain>LR|LR-balanced|LR-isotonic|linear-SVM|forest|forest-isotonic)|(?P<svm>SVM)\((?P<loss>\w+)\)"
)
#: Features that are appended to rows before a learner sees them, as in Fourier+NEMSIS:q.
FEATURES = ("Fourier", "Nystrom")
_FEATURES = re.compile(rf"((?P<features>{'|'.join(FEATURES)})\+)?(?P<learner>.*)", re.DOTALL)
_OWN = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
LEARNERS = (
    "LR, LR-balanced, LR-isotonic, linear-SVM, forest, forest-isotonic, NEMSIS:MEASURE, NEMSIS-surrogate:MEASURE, "
    "SCAN:MEASURE, CAN:MEASURE, SPADE:MEASURE, STAMP:MEASURE, AMP:MEASURE, plug-in:MEASURE, QTree:MEASURE, "
    "QForest:MEASURE, 1PMB:LOSS, SVM(LOSS), and Fourier+ or Nystrom+ before any of them"
)


@dataclass(frozen=True)
class MethodName:
    """The parts of a method's name: an aggregation, a learner, and the measure or loss of the learner.

    ``QForest`` alone has its own aggregation, of the same name, in which each tree counts.
    """

    aggregation: str
    learner: str
    #: It is empty where the learner's default is meant.
    objective: str = ""
    #: "tuned" or "plain"; empty where there is nothing to select.
    selection: str = ""
    #: Features that the learner sees besides the rows: a name in `FEATURES`, or empty.
    features: str = ""

    @property
    def grids(self) -> list[dict[str, list[Any]]]:
        """What model selection tries: parameters of the aggregation, and of its classifier; empty if nothing."""
        inner = LEARNER_GRIDS.get(self.learner, {})
        if self.aggregation == self.learner:  # a quantifier with the parameters of its learner
            return [dict(inner)]
        place = "classifier__learner__" if self.features else "classifier__"
        of_learner = {f"{place}{name}": values for name, values in inner.items()}
        grid = of_learner | AGGREGATION_GRIDS.get(self.aggregation, {})
        if (self.aggregation, self.learner) == ("EMQ", "LR"):
            return [grid, of_learner | {f"{place}isotonic": [True]} | WITHOUT_FOLDS]
        return [grid] if grid else []


def offered() -> dict[str, str]:
    """Return the methods that installed packages offer, by name, as MODULE:NAME."""
    return {entry.name: entry.value for entry in metadata.entry_points(group=ENTRY_POINTS)}


def parse_method(name: str) -> MethodName:
    """Return the parts of a name; whether the measure, loss or module exists is not checked here.

    A method of a user is MODULE:NAME, and has that as its learner and no aggregation.

    Examples
    --------
    >>> parse_method("ACC(NEMSIS:q)")
    MethodName(aggregation='ACC', learner='NEMSIS', objective='q', selection='', features='')
    >>> parse_method("QForest").aggregation, parse_method("CC(QForest)").aggregation
    ('QForest', 'CC')
    >>> parse_method("EMQ (plain)").selection, parse_method("EMQ (tuned)").learner
    ('plain', 'LR')
    >>> parse_method("EMQ(Nystrom+LR)").features
    'Nystrom'
    """
    bare, selection = name, ""
    for each in SELECTIONS:
        if name.endswith(f" ({each})"):
            bare, selection = name.removesuffix(f" ({each})"), each
    aggregation, parenthesis, inner = bare.partition("(")
    if aggregation not in AGGREGATIONS:
        aggregation, inner = "CC", bare
    elif not parenthesis:
        inner = "LR"
    elif inner.endswith(")"):
        inner = inner[:-1]
    else:
        raise ValueError(f"the parenthesis of {bare!r} is not closed")
    if bare == "Quantifier":
        return MethodName("Quantifier", "", selection=selection)
    prefix = _FEATURES.fullmatch(inner)
    features = (prefix and prefix["features"]) or ""
    alone, inner = inner == bare, prefix["learner"] if prefix else inner
    found = _LEARNER.fullmatch(inner)
    own = inner if _OWN.fullmatch(inner) else offered().get(inner)
    if found is None and own is None:
        raise ValueError(
            f"unknown method {name!r}; choose from {', '.join(AGGREGATIONS)} (also on a learner, as in "
            f"ACC(NEMSIS:q)), {LEARNERS}, or give your own as MODULE:NAME"
        )
    if found is None:
        if alone and features:
            raise ValueError(
                f"{name!r} puts features before a quantifier: give a learner, as in CC({bare})"
            )
        return MethodName("" if alone else aggregation, own or "", "", selection, features)
    learner = found["online"] or found["plain"] or found["svm"]
    if learner == "QForest" and alone and not features:
        aggregation = learner
    loss = (found["loss"] or "").lower()
    # SVM(Q) is the field's name for the structural SVM of the loss "qrecall"; "q" is the paper's Q-measure.
    loss = "qrecall" if loss == "q" else loss
    return MethodName(aggregation, learner, found["objective"] or loss, selection, features)


def expand(methods: list[str], selection: str, learner: str | None = None) -> list[str]:
    """Return the names of methods as tables show them: with what is selected, if there is something to select.

    Parameters
    ----------
    methods : list of str
        Names; NAME@plain or NAME@tuned says which of the two, whatever the selection.
    selection : {"tuned", "plain", "both"}
        Which of the two is meant for the others.
    learner : str, optional
        The learner that aggregations without one are put on, instead of LR.

    Examples
    --------
    >>> expand(["Quantifier", "EMQ", "CC@plain"], "both")
    ['Quantifier', 'EMQ (tuned)', 'EMQ (plain)', 'CC (plain)']
    >>> expand(["ACC"], "tuned", "forest")
    ['ACC(forest) (tuned)']
    """
    found = []
    for name in methods:
        bare, _, wanted = name.partition("@")
        if wanted and wanted not in SELECTIONS:
            raise ValueError(f"unknown selection in {name!r}: use {bare}@tuned or {bare}@plain")
        if learner and bare in AGGREGATIONS and bare != "Quantifier":
            bare = f"{bare}({learner})"
        chosen = SELECTIONS if (wanted or selection) == "both" else (wanted or selection,)
        has_grid = bool(parse_method(bare).grids)
        found += [f"{bare} ({each})" for each in chosen] if has_grid else [bare]
    return found


def base_name(metric: str) -> str:
    """Return the name of an error without the leading m of a mean; refuse unknown names."""
    name = metric.removeprefix("m")
    if name not in ERRORS:
        raise ValueError(f"unknown metric {metric!r}; choose from {', '.join(METRICS)}")
    return name
