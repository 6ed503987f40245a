"""
A custom measure
================

You can write a measure as a plain function of the true positive rate P, the true negative rate N and the share of
positives p. ``make_measure`` checks, differentiates and compiles it. Here, a missed positive costs three times as
much as a false alarm.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from quapy_nemsis import NEMSISClassifier, make_measure


def uneven_mean(P, N, p, theta):
    return P ** (theta[0] / (theta[0] + 1)) * N ** (1 / (theta[0] + 1))


uneven = make_measure(uneven_mean, parameters=[3.0], name="uneven")
X, y = make_classification(5000, n_informative=4, flip_y=0.2, weights=[0.7], random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

# %%
# The plot shows contour lines of the custom measure, and the rates that two learners reach on test rows.
grid = np.linspace(0.4, 1, 40)
P, N = np.meshgrid(grid, grid)
values = np.vectorize(lambda P, N: uneven.value(P=P, N=N, p=0.3))(P, N)
fig, ax = plt.subplots(layout="constrained")
ax.clabel(ax.contour(P, N, values, levels=8, cmap="viridis"))
for name, measure in {"geometric mean": "gmean", "uneven mean": uneven}.items():
    predicted = NEMSISClassifier(measure, random_state=0).fit(X_train, y_train).predict(X_test)
    rates = [(predicted == y_test)[y_test == label].mean() for label in (1, 0)]
    ax.plot(*rates, "o", label=f"{name}: {uneven.score(y_test, predicted):.3f}")
ax.set_xlabel("P, true positive rate")
ax.set_ylabel("N, true negative rate")
ax.legend(loc="lower left")
plt.show()
