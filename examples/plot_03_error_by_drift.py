"""
Error by drift
==============

How large are errors if prevalences have changed a little, and if they have changed a lot? Three of QuaPy's methods on
logistic regression, and ``Quantifier``, on the breast cancer data. The aggregations are those of
``quapy_nemsis.aggregation``: they give QuaPy's estimates, for all samples at once.
"""

import matplotlib.pyplot as plt
from quapy.data import LabelledCollection
from quapy.method.aggregative import CC
from quapy.protocol import APP
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from quapy_nemsis import Quantifier
from quapy_nemsis.aggregation import EMQ, PACC
from quapy_nemsis.displays import DriftErrorDisplay

train, test = LabelledCollection(*load_breast_cancer(return_X_y=True)).split_stratified(
    0.5, random_state=0
)
scaler = StandardScaler().fit(train.X)
protocol = APP(
    LabelledCollection(scaler.transform(test.X), test.y),
    sample_size=100,
    repeats=20,
    random_state=0,
)
fig, ax = plt.subplots(layout="constrained")
for name, quantifier in {
    "CC": CC(LogisticRegression()),
    "PACC": PACC(LogisticRegression()),
    "EMQ": EMQ(LogisticRegression()),
    "Quantifier": Quantifier(random_state=0),
}.items():
    quantifier.fit(scaler.transform(train.X), train.y)
    DriftErrorDisplay.from_estimator(
        quantifier, protocol, train.prevalence(), name=name, n_bins=8, band=False, ax=ax
    )
plt.show()
