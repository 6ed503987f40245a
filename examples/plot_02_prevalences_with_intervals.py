"""
Prevalences of ten classes, with intervals
==========================================

In the training rows, all handwritten digits are equally frequent. In the new rows, only 30 % of the digits 3, 7 and 8
are kept. ``predict_conf`` estimates the prevalence of each digit, with an interval.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from quapy_nemsis import Quantifier
from quapy_nemsis.displays import PrevalenceDisplay

X, y = load_digits(return_X_y=True)
X_train, X_new, y_train, y_new = train_test_split(X / 16, y, test_size=0.5, random_state=0)
rng = np.random.default_rng(0)
kept = ~np.isin(y_new, [3, 7, 8]) | (rng.random(len(y_new)) < 0.3)
X_new, y_new = X_new[kept], y_new[kept]

quantifier = Quantifier(random_state=0).fit(X_train, y_train)
PrevalenceDisplay.from_estimator(quantifier, X_new, y_new)
plt.show()
