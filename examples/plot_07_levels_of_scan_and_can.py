"""
Levels of SCAN and CAN
======================

For a ratio such as CQReward, the level of a model is the value of that ratio. CAN alternates between finding the best
model for a level and computing the level of that model. The gap to the best level shrinks at least linearly (Theorem
2 of the paper). SCAN does the same online, in epochs that grow.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification

from quapy_nemsis import CANClassifier, SCANClassifier

X, y = make_classification(30_000, n_informative=5, weights=[0.8], class_sep=0.8, random_state=0)
scan = SCANClassifier("cq", n_passes=3, random_state=0).fit(X, y)
can = CANClassifier("cq", radius=100.0).fit(X, y)

fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3.5), layout="constrained")
left.plot(range(1, len(scan.levels_) + 1), scan.levels_, "o-")
left.set_title("SCAN: CQReward of 0-1 counts")
left.set_xlabel("epoch")
left.set_ylabel("level")
right.semilogy(range(1, len(can.levels_)), can.levels_[-1] - can.levels_[:-1], "o-")
right.set_title("CAN: gap to its last level")
right.set_xlabel("maximisation")
plt.show()
