"""
Counting and classifying
========================

The measure BAKLD(C) weighs balanced accuracy against the divergence of the counted prevalence. With C = 0, only the
count matters; with C = 1, only classification. In between, both can be good. This is Figure 2 of the paper, on a
small data set.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from quapy_nemsis import BA, BAKLD, NegKLD, NEMSISClassifier

X, y = make_classification(
    20_000, n_features=10, n_informative=5, weights=[0.85], class_sep=0.7, random_state=0
)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
shares = np.linspace(0, 1, 11)
ba, kld = [], []
for share in shares:
    learner = NEMSISClassifier(BAKLD(share), random_state=0).fit(X_train, y_train)
    predicted = learner.predict(X_test)
    ba.append(BA().score(y_test, predicted))
    kld.append(-NegKLD().score(y_test, predicted))

fig, left = plt.subplots(layout="constrained")
left.plot(shares, ba, "o-", color="#0072B2")
left.set_xlabel("C, the weight of classification")
left.set_ylabel("balanced accuracy", color="#0072B2")
right = left.twinx()
right.semilogy(shares, kld, "s--", color="#D55E00")
right.set_ylabel("KLD (lower is better)", color="#D55E00")
plt.show()
