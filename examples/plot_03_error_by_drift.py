"""
Error by drift
==============

How large are errors if prevalences have changed a little, or a lot? This script compares three of QuaPy's methods on
logistic regression with ``Quantifier``. The task is to count the eights among handwritten digits; a tenth of the
training rows are eights. ``EMQ`` and ``PACC`` come from ``quapy_nemsis.aggregation``, where they estimate all samples
of a protocol at once.
"""

import matplotlib.pyplot as plt
from quapy.data import LabelledCollection
from quapy.method.aggregative import CC
from quapy.protocol import APP
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from quapy_nemsis import Quantifier
from quapy_nemsis.aggregation import EMQ, PACC
from quapy_nemsis.displays import DriftErrorDisplay

X, y = load_digits(return_X_y=True)
train, test = LabelledCollection(X / 16, y == 8).split_stratified(0.5, random_state=0)
protocol = APP(test, sample_size=100, repeats=10, random_state=0)
fig, ax = plt.subplots(layout="constrained")
for name, quantifier in {
    "CC": CC(LogisticRegression()),
    "PACC": PACC(LogisticRegression()),
    "EMQ": EMQ(LogisticRegression()),
    "Quantifier": Quantifier(random_state=0),
}.items():
    quantifier.fit(*train.Xy)
    DriftErrorDisplay.from_estimator(
        quantifier, protocol, train.prevalence(), name=name, n_bins=8, ax=ax
    )
plt.show()
