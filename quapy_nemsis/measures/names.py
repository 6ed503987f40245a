"""Built-in measures by name."""

from __future__ import annotations

from dataclasses import fields

import quapy_nemsis.measures.nested as nested
import quapy_nemsis.measures.pseudo as pseudo
from quapy_nemsis.measures.contract import (
    Measure,
)

#: The measures of the modules `nested` and `pseudo`, by key.
MEASURES: dict[str, type[Measure]] = {
    cls.key: cls
    for module in (nested, pseudo)
    for cls in vars(module).values()
    if isinstance(cls, type) and issubclass(cls, Measure) and isinstance(cls.key, str)
}

#: Other names of measures.
ALIASES = {"f1": "f:1"}


def get_measure(measure: str | Measure) -> Measure:
    """Return a measure by its short name, such as "q" or "q:2"; a measure object is returned as it is.

    Parameters
    ----------
    measure : str or Measure
        A name, with an optional parameter after a colon (kld, bakld, bakld:0.3, q, q:2, nss, ba, gmean, hmean, qmean,
        cq, bk, f1, f:2, jaccard, cqb), or a measure object.

    Examples
    --------
    >>> get_measure("q:2")
    QMeasure(beta=2.0)
    >>> get_measure(nested.NSS())
    NSS()
    """
    if isinstance(measure, Measure):
        return measure
    if not isinstance(measure, str):
        raise TypeError(
            f"measure must be a name or a Measure object; got {measure!r} of type "
            f"{type(measure).__name__}"
        )
    key, colon, text = ALIASES.get(measure, measure).partition(":")
    if key not in MEASURES:
        known = ", ".join([*MEASURES, *ALIASES])
        raise ValueError(f"unknown measure {measure!r}; known are {known}")
    cls = MEASURES[key]
    if not colon:
        return cls()
    if not fields(cls):  # type: ignore[arg-type]
        raise ValueError(f"measure {key!r} has no parameter; got {measure!r}: use {key!r}")
    try:
        parameter = float(text)
    except ValueError:
        raise ValueError(
            f"the parameter of measure {key!r} must be a number; got {text!r} in {measure!r}"
        ) from None
    return cls(parameter)  # type: ignore[call-arg]
