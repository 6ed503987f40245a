"""
Where classes are not linearly separable
========================================

The learners of this package are linear. ``Quantifier`` therefore also trains one on random Fourier features, and
keeps it if it makes held-out rows clearly more likely. One class inside a ring of the other shows the difference.
"""

import matplotlib.pyplot as plt
from quapy.data import LabelledCollection
from quapy.protocol import APP
from sklearn.datasets import make_circles

from quapy_nemsis import Quantifier
from quapy_nemsis.displays import DiagonalDisplay

X, y = make_circles(4000, noise=0.2, factor=0.4, random_state=0)
train, test = LabelledCollection(X, y).split_stratified(0.5, random_state=0)
protocol = APP(test, sample_size=200, repeats=5, random_state=0)

fig, (left, right) = plt.subplots(1, 2, figsize=(8.5, 4), layout="constrained")
left.scatter(*train.X.T, c=train.y, s=4, cmap="coolwarm")
left.set_title("training rows")
for name, features in {"features=None": None, "features='auto' (default)": "auto"}.items():
    quantifier = Quantifier(features=features, random_state=0).fit(*train.Xy)
    DiagonalDisplay.from_estimator(quantifier, protocol, name=name, ax=right)
plt.show()
