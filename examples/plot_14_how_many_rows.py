"""
How many rows does an estimate need?
====================================

Intervals become narrower as the sample grows, but only up to a point, because the noise of the training rows remains.
To make them narrower still, you need more training rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from quapy_nemsis import Quantifier

rng = np.random.default_rng(0)


def draw(n, share):
    y = rng.random(n) < share
    return rng.normal(size=(n, 2)) + np.outer(y, [1.5, 0.5]), y


sizes = [50, 100, 200, 500, 1000, 2000]
fig, ax = plt.subplots(layout="constrained")
for n_training in (300, 1000, 5000):
    quantifier = Quantifier(random_state=0).fit(*draw(n_training, 0.3))
    widths = []
    for size in sizes:
        _, region = quantifier.predict_conf(draw(size, 0.6)[0])
        widths.append(region.I_high[1] - region.I_low[1])
    ax.loglog(sizes, widths, "o-", label=f"{n_training:,} training rows")
ax.set_xlabel("rows in the sample")
ax.set_ylabel("width of the 95 % interval")
ax.legend()
plt.show()
