"""What the package takes from QuaPy, imported without the change of matplotlib's settings that comes with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _unchanged_style() -> Iterator[None]:
    """Restore matplotlib's settings, because importing QuaPy changes them for the whole process."""
    loaded = sys.modules.get("matplotlib")
    before = loaded.rcParams.copy() if loaded is not None else None
    yield
    import matplotlib

    known = before if before is not None else matplotlib.rcParamsOrig.copy()
    for name, value in matplotlib.rcParams.copy().items():
        if value != known[name]:
            matplotlib.rcParams[name] = known[name]


with _unchanged_style():
    import quapy as qp
    import quapy.functional as F
    from quapy.method import aggregative
    from quapy.method.aggregative import (
        AggregativeCrispQuantifier,
        AggregativeQuantifier,
        AggregativeSoftQuantifier,
        BinaryAggregativeQuantifier,
    )
    from quapy.method.confidence import ConfidenceRegionABC, WithConfidenceABC

__all__ = [
    "AggregativeCrispQuantifier",
    "AggregativeQuantifier",
    "AggregativeSoftQuantifier",
    "BinaryAggregativeQuantifier",
    "ConfidenceRegionABC",
    "F",
    "WithConfidenceABC",
    "aggregative",
    "qp",
]
