"""
How a measure improves during training
======================================

With ``record_every``, a learner records its rates while it learns. The Q-measure settles after a few thousand rows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification

from quapy_nemsis import NEMSISClassifier

X, y = make_classification(20_000, n_informative=5, weights=[0.8], class_sep=0.8, random_state=0)
fig, ax = plt.subplots(layout="constrained")
for eta0 in (0.001, 0.1, 10.0):
    learner = NEMSISClassifier(
        "q", eta0=eta0, radius=10.0, n_passes=1, record_every=200, random_state=0
    ).fit(X, y)
    ax.plot(learner.history_["samples"], learner.history_["value"], label=f"step size {eta0:g}")
ax.set_xlabel("rows learned")
ax.set_ylabel("Q-measure of the rates counted so far")
ax.legend()
plt.show()
