"""
SVM(KLD) without a C program
============================

The structural SVM adds one cutting plane at a time, for the labelling of the rows that violates its constraints most.
The duality gap is a bound on the distance to the optimum.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification

from quapy_nemsis import SVMPerfClassifier

X, y = make_classification(5000, n_informative=5, weights=[0.8], class_sep=0.8, random_state=0)
fig, ax = plt.subplots(layout="constrained")
for C in (10.0, 100.0, 1000.0):
    learner = SVMPerfClassifier("kld", C=C).fit(X, y)
    ax.semilogy(learner.history_["gap"], label=f"C = {C:g}")
ax.set_xlabel("cutting planes")
ax.set_ylabel("duality gap, in units of the loss")
ax.legend()
plt.show()
