"""
Do posteriors mean what they say?
=================================

Among rows with a posterior of 0.7, 70 % should be positive. If you only pass the scores of a hinge learner through a
sigmoid, this is not so. ``predict_proba`` calibrates them on out-of-fold scores, and then it is. Bars are 95 %
intervals.
"""

import matplotlib.pyplot as plt
from scipy.special import expit
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from quapy_nemsis import NEMSISClassifier
from quapy_nemsis.displays import ReliabilityDisplay

X, y = make_classification(20_000, n_informative=6, weights=[0.7], flip_y=0.1, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
learner = NEMSISClassifier("ba", random_state=0).fit(X_train, y_train)

fig, ax = plt.subplots(layout="constrained")
raw = expit(learner.decision_function(X_test))
ReliabilityDisplay.from_predictions(y_test, raw, name="sigmoid of the score", ax=ax)
ReliabilityDisplay.from_estimator(learner, X_test, y_test, name="predict_proba", ax=ax)
plt.show()
