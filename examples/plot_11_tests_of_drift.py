"""
Has something changed, and what?
================================

These two tests need no labels. ``prevalence_test`` asks whether prevalences have changed. ``mixture_test`` asks
whether the rows are still a mixture of the training classes. If they are not, you cannot trust the estimates. A curve
on the diagonal means that the test finds nothing; a curve far above it means that the test rejects often.
"""

import matplotlib.pyplot as plt
import numpy as np

from quapy_nemsis import Quantifier, mixture_test, prevalence_test

rng = np.random.default_rng(0)


def draw(n, share, shift=0.0):
    y = rng.random(n) < share
    return rng.normal(size=(n, 2)) + np.outer(y, [3.0, 0.0]) + [shift, 0.0], y


quantifier = Quantifier(random_state=0).fit(*draw(2000, 0.4))
cases = {
    "no change": (0.4, 0.0),
    "prevalences changed": (0.6, 0.0),
    "rows within classes changed": (0.4, 1.0),
}
fig, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for ax, (name, (share, shift)) in zip(axes, cases.items(), strict=True):
    samples = [draw(500, share, shift)[0] for _ in range(40)]
    for test, colour in ((prevalence_test, "#009E73"), (mixture_test, "#D55E00")):
        p_values = np.sort([test(quantifier, sample).p_value for sample in samples])
        ax.step(p_values, np.arange(1, 41) / 40, color=colour, label=test.__name__)
    ax.plot([0, 1], [0, 1], ":", color="grey", lw=1)
    ax.set_title(name)
    ax.set_xlabel("p-value")
axes[0].set_ylabel("share of 40 samples")
axes[0].legend()
plt.show()
