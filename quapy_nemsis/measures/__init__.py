"""The measures that a quantifier can be trained for or evaluated with.

The notation is the paper's. P and N are the mean rewards on positives and on negatives (with the 0-1 reward, the
true positive and the true negative rate), p is the share of positives and n = 1 − p. Then

* p̂ = p·P + n·(1 − N) is the prevalence that classify-and-count estimates, n̂ = 1 − p̂;
* d = p·(1 − P) − n·(1 − N) = (FN − FP)/|S| is the signed quantification error, BA = (P + N)/2;
* s(v) = (v + ε)/(1 + 2ε) smooths a share; with ε = 1/(2|S|) it is the smoothing of `quapy.error`.

A *nested concave* measure is Ψ(ζ₁(P, N), ζ₂(P, N)) with three concave functions (Table 1 of the paper). NEMSIS
needs only their values and gradients. A *pseudo-concave* measure is P_class/P_quant with P_class concave and P_quant
convex and positive (Table 2); SCAN and CAN optimise it through the valuations P_class − v·P_quant. Rates may lie
outside the domain of a logarithm, a root or a ratio, because surrogate rewards may be negative. The function is then
evaluated at the nearest point of its domain.

`make_measure`, `NestedConcave` and `PseudoConcave` build custom measures from Python functions.

Examples
--------
>>> measure = get_measure("bakld:0.3")
>>> measure
BAKLD(C=0.3)
>>> round(measure.value(P=0.8, N=0.9, p=0.25), 4)
0.2539
>>> round(get_measure("q").score(["no", "no", "no", "yes"], ["no", "no", "yes", "yes"]), 4)
0.8824
"""

from __future__ import annotations

from quapy_nemsis.measures.compiled import (
    ClassFunctions,
    Functions,
)
from quapy_nemsis.measures.contract import (
    ClassRates,
    Measure,
    NestedMeasure,
    PseudoMeasure,
    Rates,
    Valuation,
)
from quapy_nemsis.measures.custom import NestedConcave, PseudoConcave, make_measure
from quapy_nemsis.measures.duals import DUALS
from quapy_nemsis.measures.losses import LOSSES, Loss, get_loss
from quapy_nemsis.measures.names import MEASURES, get_measure
from quapy_nemsis.measures.nested import BA, BAKLD, NSS, GMean, HMean, NegKLD, QMean, QMeasure
from quapy_nemsis.measures.pseudo import CQB, BKReward, CQReward, FMeasure, Jaccard

__all__ = [
    "BA",
    "BAKLD",
    "CQB",
    "DUALS",
    "LOSSES",
    "MEASURES",
    "NSS",
    "BKReward",
    "CQReward",
    "ClassFunctions",
    "ClassRates",
    "FMeasure",
    "Functions",
    "GMean",
    "HMean",
    "Jaccard",
    "Loss",
    "Measure",
    "NegKLD",
    "NestedConcave",
    "NestedMeasure",
    "PseudoConcave",
    "PseudoMeasure",
    "QMean",
    "QMeasure",
    "Rates",
    "Valuation",
    "get_loss",
    "get_measure",
    "make_measure",
]
