"""Whether prevalences have changed since training. The commands ask here, and only here."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc

from quapy_nemsis.tables.quantifying import Estimate, TableQuantifier


class Change(NamedTuple):
    """Result of a test of the hypothesis that nothing has changed."""

    p_value: float
    statistic: float
    sentence: str


def change(model: TableQuantifier, estimate: Estimate) -> Change:
    """Test whether the rows of an estimate come from a population with the prevalences of training.

    The draws of an estimate are prevalences among its rows. Rows that are drawn anew from a population have others, and
    so have those of training. Let d be the difference of prevalences drawn for both populations, from Dirichlet
    distributions around the shares of the rows, with ½ added to each count. The statistic is m·C⁻¹·m for the mean m and
    the covariance C of d. It has a chi-squared distribution with one degree of freedom less than there are classes.
    """
    rng = np.random.default_rng(model.random_state)
    counts = np.asarray(model.facts_["counts"], dtype=float)
    drawn = np.asarray(estimate.draws)
    new = np.array([rng.dirichlet(estimate.n_rows * shares + 0.5) for shares in drawn])
    difference = new - rng.dirichlet(counts + 0.5, size=len(drawn))
    mean, covariance = difference.mean(axis=0), np.cov(difference, rowvar=False)
    statistic = float(mean @ np.linalg.pinv(covariance, hermitian=True) @ mean)
    p_value = float(chdtrc(len(counts) - 1, statistic))
    most = int(np.argmax(np.abs(estimate.prevalences - estimate.training)))
    most = 1 if len(counts) == 2 else most
    name = estimate.classes[most]
    shares = f"{name!r} had {estimate.training[most]:.1%} in training and has {estimate.prevalences[most]:.1%} now"
    return Change(p_value, statistic, f"{shares} (p = {p_value:.2g})")
