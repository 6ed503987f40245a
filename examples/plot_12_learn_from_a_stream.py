"""
Training and testing on the same stream
=======================================

``fit_stream`` tests a learner on each chunk before training on it. The evaluation is honest, and no row is wasted.
"""

import matplotlib.pyplot as plt
import numpy as np

from quapy_nemsis import NEMSISClassifier
from quapy_nemsis.streaming import chunks_of, fit_stream

rng = np.random.default_rng(0)
X = rng.normal(size=(50_000, 5))
y = X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=50_000) > 1
fig, ax = plt.subplots(layout="constrained")
for measure in ("kld", "q"):
    progress = fit_stream(
        NEMSISClassifier(measure), chunks_of(X, y, rows=500), classes=[False, True], window=2500
    )
    ax.semilogy(progress.curve["rows"], progress.curve["kld"], "o-", ms=3, label=measure)
ax.set_xlabel("rows")
ax.set_ylabel("KLD of the counted prevalence (lower is better)")
ax.legend(title="measure")
plt.show()
