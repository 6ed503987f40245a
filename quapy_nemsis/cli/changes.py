"""What the tests for drift say about an estimate, or why they cannot be made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from quapy_nemsis.drift import LEAST_MEMBERS, LEAST_ROWS, Background, DriftResult
from quapy_nemsis.quantifiers import Scores
from quapy_nemsis.tables.quantifying import TableQuantifier

FAILS = "the prior-shift assumption fails"


class Changes(NamedTuple):
    """Results of both tests of `quapy_nemsis.drift` at a level for both together, or why there are none."""

    level: float
    prevalence: DriftResult | None = None
    mixture: DriftResult | None = None
    untested: str = ""

    @property
    def changed(self) -> bool | None:
        """Whether prevalences have changed since training; None if this was not tested."""
        return None if self.prevalence is None else self.prevalence.rejects

    @property
    def assumption_fails(self) -> bool | None:
        """Whether more has changed than prevalences; None if this was not tested."""
        return None if self.mixture is None else self.mixture.rejects

    @property
    def found(self) -> list[str]:
        """Sentences for the user: the tests that reject, or why there were none."""
        told = [f"not tested for changes: {self.untested}"] if self.untested else []
        if self.prevalence is not None and self.changed:
            told.append(f"changed. {self.prevalence.sentence}")
        if self.mixture is not None and self.assumption_fails:
            told.append(f"{FAILS}. {self.mixture.sentence}")
        return told

    @property
    def sentences(self) -> list[str]:
        """What follows from each test, or why there were none."""
        results = [result for result in (self.prevalence, self.mixture) if result is not None]
        return [result.sentence for result in results] or self.found


class DriftTests:
    """The tests for drift, for a model."""

    def __init__(self, model: TableQuantifier, level: float):
        self.level, self.scarce = level, too_few_labelled(model)
        self.known = None if self.scarce else Background.of(model.quantifier_, names=model.classes_)
        self.quantifier = model.quantifier_

    def of(self, scores: Scores | None) -> Changes:
        """Return what the tests say about rows with these scores."""
        if self.known is None or scores is None:
            return Changes(self.level, untested=self.scarce)
        if len(scores) < LEAST_ROWS:
            return Changes(
                self.level,
                untested=f"there are only {len(scores)} rows, and {LEAST_ROWS} are needed",
            )
        found = self.known.scores_of(self.quantifier, scores)
        return Changes(self.level, *self.known.tests(found, self.level))


def too_few_labelled(model: TableQuantifier) -> str:
    """Return which class has too few held-out rows for tests, if one has."""
    members = np.bincount(
        model.quantifier_.calibration_.labels.astype(np.intp), minlength=len(model.classes_)
    )
    rarest = int(members.argmin())
    if members[rarest] >= LEAST_MEMBERS:
        return ""
    return (
        f"{model.classes_[rarest]!r} has only {members[rarest]} held-out training rows, and "
        f"{LEAST_MEMBERS} are needed"
    )
