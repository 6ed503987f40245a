"""The built-in measures for K classes: functions of recalls R, counted prevalences q and shares p, as arrays.

For two classes, with R = (N, P), they equal the functions of `quapy_nemsis.measures.nested` and
`quapy_nemsis.measures.pseudo`, which kernels for two classes use. Loops stand where numpy would allocate arrays:
kernels call these functions at every row.
"""

from __future__ import annotations

import math

from quapy_nemsis._jit import jitable
from quapy_nemsis.measures.compiled import (
    ClassFunctions,
    valuation_outer,
)
from quapy_nemsis.measures.formulas import (
    TINY,
    clip_share,
    inverse,
    q_gradient,
    q_mean,
    relative_log,
)


@jitable
def _mean(R):
    """BA, the mean recall."""
    total = 0.0
    for r in R:
        total += r
    return total / len(R)


@jitable
def _squared_error(q, p):
    """½‖p − q‖², which is d² for two classes."""
    total = 0.0
    for j in range(len(p)):
        total += (p[j] - q[j]) ** 2
    return 0.5 * total


@jitable
def _neg_kld(q, p, eps):
    """−KLD(p, q), smoothed as in `quapy.error.kld`."""
    below = 1.0 / (1.0 + len(p) * eps)
    total = 0.0
    for j in range(len(p)):
        total += relative_log((p[j] + eps) * below, (clip_share(q[j]) + eps) * below)
    return total


@jitable
def _write_equal(R, by_R):
    for j in range(len(R)):
        by_R[j] = 1.0 / len(R)


@jitable
def _write_nss(q, p, sign, by_q):
    """Gradient of sign·(1 − ½‖p − q‖²) by q."""
    for j in range(len(p)):
        by_q[j] = sign * (p[j] - q[j])


@jitable
def _write_neg_kld(q, p, eps, sign, by_q):
    """Gradient of sign·(−KLD(p, q)) by q."""
    below = sign / (1.0 + len(p) * eps)
    for j in range(len(p)):
        by_q[j] = (p[j] + eps) * below * inverse(clip_share(q[j]) + eps)


@jitable
def _floor(eps):
    return max(eps, 1e-12)


def first(x, y, p, eps, theta):
    """Ψ of a measure that is a single concave function ζ₁ (ζ₂ = 0)."""
    return x


def _ba_values(R, q, p, eps, theta):
    return _mean(R), 0.0


def _ba_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    _write_equal(R, by_R1)
    return 1.0, 0.0


def _nss_values(R, q, p, eps, theta):
    return 1.0 - _squared_error(q, p), 0.0


def _nss_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    _write_nss(q, p, 1.0, by_q1)
    return 1.0, 0.0


def _gmean_values(R, q, p, eps, theta):
    logs = 0.0
    for r in R:
        if r <= 0.0:
            return 0.0, 0.0
        logs += math.log(r)
    return math.exp(logs / len(R)), 0.0


def _gmean_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    low, logs = _floor(eps), 0.0
    for r in R:
        logs += math.log(max(r, low))
    mean = math.exp(logs / len(R)) / len(R)
    for j in range(len(R)):
        by_R1[j] = mean / max(R[j], low)
    return 1.0, 0.0


def _hmean_values(R, q, p, eps, theta):
    total = 0.0
    for r in R:
        if r <= 0.0:
            return 0.0, 0.0
        total += 1.0 / r
    return len(R) / total, 0.0


def _hmean_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    low, total = _floor(eps), 0.0
    for r in R:
        total += 1.0 / max(r, low)
    for j in range(len(R)):
        by_R1[j] = len(R) / (total * max(R[j], low)) ** 2
    return 1.0, 0.0


@jitable
def _root(R):
    """√ of the mean of (1 − R)²."""
    total = 0.0
    for r in R:
        total += (1.0 - r) ** 2
    return math.sqrt(total / len(R))


def _qmean_values(R, q, p, eps, theta):
    return 1.0 - _root(R), 0.0


def _qmean_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    # Where every recall is 1, the measure has its maximum but no gradient; 0 is a supergradient there.
    below = len(R) * max(_root(R), 1e-12)
    for j in range(len(R)):
        by_R1[j] = (1.0 - R[j]) / below
    return 1.0, 0.0


def _kld_values(R, q, p, eps, theta):
    return _neg_kld(q, p, eps), 0.0


def _kld_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    _write_neg_kld(q, p, eps, 1.0, by_q1)
    return 1.0, 0.0


def _bakld_values(R, q, p, eps, theta):
    return _mean(R), _neg_kld(q, p, eps)


def bakld_outer(x, y, p, eps, theta):
    """Ψ(x, y) = C·x + (1 − C)·y."""
    return theta[0] * x + (1.0 - theta[0]) * y


def _bakld_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    _write_equal(R, by_R1)
    _write_neg_kld(q, p, eps, 1.0, by_q2)
    return theta[0], 1.0 - theta[0]


def _q_values(R, q, p, eps, theta):
    return _mean(R), 1.0 - _squared_error(q, p)


def q_outer(x, y, p, eps, theta):
    """Ψ of the Q-measure."""
    return q_mean(x, y, theta[0])


def _q_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    _write_equal(R, by_R1)
    _write_nss(q, p, 1.0, by_q2)
    return q_gradient(x, y, theta[0])


def _cq_values(R, q, p, eps, theta):
    return _mean(R), 1.0 + _squared_error(q, p)


def _cq_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    _write_equal(R, by_R1)
    _write_nss(q, p, -1.0, by_q2)
    return 1.0, -theta[0]


def _bk_values(R, q, p, eps, theta):
    return _mean(R), 1.0 - _neg_kld(q, p, eps)


def _bk_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    _write_equal(R, by_R1)
    _write_neg_kld(q, p, eps, -1.0, by_q2)
    return 1.0, -theta[0]


@jitable
def _found(R, p):
    """Share of points that are in another class than the first and predicted right."""
    total = 0.0
    for j in range(1, len(p)):
        total += p[j] * R[j]
    return total


@jitable
def _write_found(p, factor, by_R):
    for j in range(1, len(p)):
        by_R[j] = factor * p[j]
    by_R[0] = 0.0


def _f_values(R, q, p, eps, theta):
    beta2 = theta[1] * theta[1]
    below = beta2 * (1.0 - p[0]) + 1.0 - q[0]
    return (1.0 + beta2) * _found(R, p), max(below, TINY)


def _f_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    _write_found(p, 1.0 + theta[1] * theta[1], by_R1)
    by_q2[0] = -1.0
    return 1.0, -theta[0]


def _jaccard_values(R, q, p, eps, theta):
    found = _found(R, p)
    return found, max(2.0 - p[0] - q[0] - found, TINY)


def _jaccard_gradient(R, q, x, y, p, eps, theta, by_R1, by_q1, by_R2, by_q2):
    _write_found(p, 1.0, by_R1)
    _write_found(p, -1.0, by_R2)
    by_q2[0] = -1.0
    return 1.0, -theta[0]


BA = ClassFunctions(_ba_values, first, _ba_gradient)
NSS = ClassFunctions(_nss_values, first, _nss_gradient)
GMEAN = ClassFunctions(_gmean_values, first, _gmean_gradient)
HMEAN = ClassFunctions(_hmean_values, first, _hmean_gradient)
QMEAN = ClassFunctions(_qmean_values, first, _qmean_gradient)
KLD = ClassFunctions(_kld_values, first, _kld_gradient)
BAKLD = ClassFunctions(_bakld_values, bakld_outer, _bakld_gradient)
Q = ClassFunctions(_q_values, q_outer, _q_gradient)
CQ = ClassFunctions(_cq_values, valuation_outer, _cq_gradient)
BK = ClassFunctions(_bk_values, valuation_outer, _bk_gradient)
F = ClassFunctions(_f_values, valuation_outer, _f_gradient)
JACCARD = ClassFunctions(_jaccard_values, valuation_outer, _jaccard_gradient)
