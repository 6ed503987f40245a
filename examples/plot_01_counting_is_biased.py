"""
Counting predictions is biased
==============================

Samples are drawn at prevalences from 0 to 1. Counting the predictions of a classifier (CC) is only right near the
training prevalence. ``Quantifier`` stays on the diagonal.
"""

import matplotlib.pyplot as plt
import numpy as np
from quapy.data import LabelledCollection
from quapy.method.aggregative import CC
from quapy.protocol import APP
from sklearn.linear_model import LogisticRegression

from quapy_nemsis import Quantifier
from quapy_nemsis.displays import DiagonalDisplay

rng = np.random.default_rng(0)
y = rng.random(4000) < 0.3
X = rng.normal(size=(4000, 2)) + np.outer(y, [1.5, 0.5])
X_train, y_train, X_test, y_test = X[:1500], y[:1500], X[1500:], y[1500:]

# %%
# Both quantifiers are trained on the same rows, and estimate the same samples.
protocol = APP(LabelledCollection(X_test, y_test), sample_size=200, repeats=10, random_state=0)
fig, ax = plt.subplots(layout="constrained")
for name, quantifier in {
    "CC": CC(LogisticRegression()),
    "Quantifier": Quantifier(random_state=0),
}.items():
    quantifier.fit(X_train, y_train)
    DiagonalDisplay.from_estimator(quantifier, protocol, name=name, ax=ax)
ax.axvline(y_train.mean(), color="grey", lw=1)
ax.annotate("training", (y_train.mean(), 0.95), xytext=(4, 0), textcoords="offset points")
plt.show()
