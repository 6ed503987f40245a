"""
Prevalences of a stream without labels
======================================

The prevalence of the second class jumps at row 6,000 and falls slowly afterwards. The first 2,000 rows are for
training. ``track`` follows the prevalences in the others, with a band for each window, and reports when an alarm
begins.
"""

import matplotlib.pyplot as plt
import numpy as np

from quapy_nemsis import Quantifier
from quapy_nemsis.displays import TrackDisplay
from quapy_nemsis.tracking import track

rng = np.random.default_rng(0)
share = np.concatenate([np.full(6000, 0.3), np.linspace(0.8, 0.4, 10_000)])
y = rng.random(len(share)) < share
X = rng.normal(size=(len(y), 2)) + np.outer(y, [2.0, 0.5])
quantifier = Quantifier(random_state=0).fit(X[:2000], y[:2000])

found = track(quantifier, X[2000:], window=500)
for alarm in found.alarms:
    print(f"row {alarm.end:,}: {alarm.sentence}")

fig, ax = plt.subplots(layout="constrained")
TrackDisplay.from_predictions(found, ax=ax)
ax.plot(np.arange(len(share) - 2000), share[2000:], "k:", lw=1, label="true prevalence")
ax.legend()
plt.show()
