"""Learning from streams: sources of chunks from files of any size, live evaluation, and checkpoints to resume from.

A *source* yields chunks (X, y), where X is an array of floats or a CSR matrix and y is an array of labels. It can be
iterated again. The parsing is done by pandas, pyarrow and scikit-learn.

Examples
--------
>>> import numpy as np
>>> from quapy_nemsis import NEMSISClassifier
>>> from quapy_nemsis.streaming import chunks_of, fit_stream, shuffled
>>> rng = np.random.default_rng(0)
>>> X = rng.normal(size=(5000, 3))
>>> y = np.where(X[:, 0] + rng.normal(size=5000) > 1, "yes", "no")
>>> order = np.argsort(y)  # sorted by class, as sources often are
>>> source = shuffled(chunks_of(X[order], y[order], rows=500), buffer=5000, seed=0)
>>> result = fit_stream(NEMSISClassifier("q"), source, classes=["no", "yes"], window=1000)
>>> result.rows, result.curve["rows"]
(5000, [1000, 2000, 3000, 4000, 5000])
>>> bool(result.curve["value"][-1] > 0.8)
True
"""

from quapy_nemsis.streaming.learning import (
    CURVE,
    CheckpointError,
    Progress,
    StreamError,
    fit_stream,
)
from quapy_nemsis.streaming.plotting import plot_progress
from quapy_nemsis.streaming.shuffling import shuffled
from quapy_nemsis.streaming.sources import (
    Source,
    chunks_of,
    from_dicts,
    from_iterable,
    read_csv,
    read_libsvm,
    read_npz,
    read_parquet,
)

__all__ = [
    "CURVE",
    "CheckpointError",
    "Progress",
    "Source",
    "StreamError",
    "chunks_of",
    "fit_stream",
    "from_dicts",
    "from_iterable",
    "plot_progress",
    "read_csv",
    "read_libsvm",
    "read_npz",
    "read_parquet",
    "shuffled",
]
