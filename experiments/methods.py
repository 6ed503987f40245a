"""Quantifiers by name: QuaPy's aggregations, the learners of this package, and every combination of the two.

A name is an aggregation (``ACC``), an aggregation of a learner (``ACC(NEMSIS:q)``), or a learner, whose predictions are
counted (``NEMSIS:q``, ``SVM(KLD)``). An aggregation alone is put on logistic regression, except for ``Quantifier``,
which has its own learner. ``MODULE:NAME`` is a class or function of a user. It makes a quantifier, or a classifier if
it stands inside of an aggregation. After a name, ``(tuned)`` says that GridSearchQ selects parameters, ``(plain)`` that
they are the defaults.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from quapy.method import aggregative
from quapy.method.base import BinaryQuantifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.svm import LinearSVC

from experiments.names import AGGREGATIONS, COMPILED, LEARNERS, parse_method
from experiments.tuned import RememberedLR, isotonic, selected
from quapy_nemsis import (
    AMPClassifier,
    CANClassifier,
    FourierFeatures,
    NEMSISClassifier,
    NestedMeasure,
    NystromFeatures,
    OnePassMiniBatchClassifier,
    PlugInClassifier,
    PseudoMeasure,
    QForest,
    QuantificationForestClassifier,
    QuantificationTreeClassifier,
    Quantifier,
    SCANClassifier,
    SPADEClassifier,
    STAMPClassifier,
    SVMPerfClassifier,
    get_loss,
    get_measure,
)
from quapy_nemsis import aggregation as compiled
from quapy_nemsis.tables.reading import fingerprint

#: Aggregations of this package by name.
OWN_AGGREGATIONS: dict[str, Any] = {"Quantifier": Quantifier, "QForest": QForest}
#: Features by name.
FEATURES: dict[str, Any] = {"Fourier": FourierFeatures, "Nystrom": NystromFeatures}
#: Learners of trees by name.
TREES: dict[str, Any] = {
    "QTree": QuantificationTreeClassifier,
    "QForest": QuantificationForestClassifier,
}


def measure_for(learner: str, name: str) -> str:
    """Return the name of a measure if the learner can optimise it; refuse it otherwise."""
    measure = get_measure(name)
    families: dict[str, Any] = {
        "NEMSIS": NestedMeasure,
        "SCAN": PseudoMeasure,
        "CAN": (NestedMeasure, PseudoMeasure),
    }
    if not isinstance(measure, NestedMeasure | PseudoMeasure):
        raise ValueError(f"{measure!r} ({measure.formula}) is for evaluation only")
    if not isinstance(measure, families[learner]):
        kind = "nested concave" if isinstance(measure, NestedMeasure) else "pseudo-concave"
        other = "NEMSIS" if learner == "SCAN" else "SCAN"
        raise ValueError(
            f"{learner} cannot optimise {measure!r}, which is {kind}: use {other} or CAN"
        )
    return name


#: Online learners by name, with the measures that they optimise by default.
ONLINE: dict[str, tuple[Any, str]] = {
    "NEMSIS": (NEMSISClassifier, "q"),
    "SCAN": (SCANClassifier, "cq"),
    "SPADE": (SPADEClassifier, "gmean"),
    "STAMP": (STAMPClassifier, "f1"),
}


def own(name: str) -> Callable[[], Any]:
    """Return the class or function MODULE:NAME of a user."""
    module, _, attribute = name.partition(":")
    try:
        found = attrgetter(attribute)(importlib.import_module(module))
    except ImportError as error:
        raise ValueError(
            f"the module of {name!r} cannot be imported ({error}): is it in this folder, or installed? Known learners "
            f"are {LEARNERS}"
        ) from error
    except AttributeError as error:
        raise ValueError(f"the module {module!r} has no {attribute!r}: check its name") from error
    if not callable(found):
        raise ValueError(f"{name!r} is {found!r}: give a class, or a function that makes an object")
    return found


def own_source(name: str) -> str:
    """Return the digest of the file of a user's method or learner; the text is empty for those that are built in."""
    parts = parse_method(name)
    if ":" not in parts.learner:
        return ""
    module = importlib.import_module(parts.learner.partition(":")[0])
    return fingerprint(Path(module.__file__)) if module.__file__ else ""


def _seeded(made: Any, seed: int) -> Any:
    """Return an object whose random state, if it has one that is None, is set."""
    if hasattr(made, "get_params") and made.get_params().get("random_state", 0) is None:
        made.set_params(random_state=seed)
    return made


def learner(name: str, objective: str = "") -> Callable[[int], Any]:
    """Return a function that makes the learner from a seed."""
    kind, _, surrogate = name.partition("-")
    if ":" in name:
        make = own(name)
        return lambda seed: _seeded(make(), seed)
    if kind == "LR":
        weight = "balanced" if name == "LR-balanced" else None
        is_isotonic = name == "LR-isotonic"
        return lambda seed: RememberedLR(class_weight=weight, isotonic=is_isotonic)
    if name == "linear-SVM":
        return lambda seed: CalibratedClassifierCV(LinearSVC(random_state=seed))
    if kind == "forest":
        calibrated = isotonic if name == "forest-isotonic" else lambda forest: forest
        return lambda seed: calibrated(RandomForestClassifier(200, random_state=seed))
    if kind in ("SVM", "1PMB"):
        loss = objective or "kld"
        get_loss(loss)  # which says what is wrong with the name
        if kind == "SVM":
            return lambda seed: SVMPerfClassifier(loss)
        return lambda seed: OnePassMiniBatchClassifier(loss, random_state=seed)
    if kind in TREES:
        tree, error = TREES[kind], objective or "cqb"
        tree(error).growth()  # which says what is wrong with the name
        return lambda seed: tree(error, random_state=seed)
    if name == "plug-in":
        measure = measure_for("CAN", objective or "q")
        return lambda seed: PlugInClassifier(
            LogisticRegression(max_iter=1000), measure, random_state=seed
        )
    if kind in ("CAN", "AMP"):
        measure = objective or ("cq" if kind == "CAN" else "f1")
        if kind == "CAN":
            measure_for(kind, measure)
            return lambda seed: CANClassifier(measure)
        STAMPClassifier(measure).settings()  # which says what is wrong with a measure of both
        return lambda seed: AMPClassifier(measure)
    online, default = ONLINE[kind]
    measure = objective or default
    if kind in ("NEMSIS", "SCAN"):
        measure_for(kind, measure)
    else:
        online(measure).settings()  # which says what is wrong with the measure
    options: dict[str, Any] = {"estimates": "surrogate"} if surrogate else {}
    return lambda seed: online(measure, random_state=seed, **options)


def on_features(name: str, inner: Callable[[int], Any]) -> Callable[[int], Any]:
    """Return a function that makes a learner from a seed, on features of a name if it is not empty."""
    if not name:
        return inner
    return lambda seed: Pipeline(
        [("features", FEATURES[name](random_state=seed)), ("learner", inner(seed))]
    )


def aggregation(name: str, quapy: bool = False) -> Any:
    """Return the class of an aggregation: compiled, or QuaPy's own where that is wanted or all there is."""
    if name in OWN_AGGREGATIONS:
        return OWN_AGGREGATIONS[name]
    if name in COMPILED and not quapy:
        return getattr(compiled, AGGREGATIONS[name])
    found = getattr(aggregative, AGGREGATIONS[name], None)
    if found is None:
        raise ValueError(f"the installed QuaPy has no {AGGREGATIONS[name]}: update it")
    return found


def implementation(name: str, quapy: bool = False) -> str:
    """Return the full name of the class that aggregates; the text is empty for a method of a user.

    Examples
    --------
    >>> implementation("ACC(forest)"), implementation("ACC", quapy=True)
    ('quapy_nemsis.aggregation.adjusting.ACC', 'quapy.method.aggregative.ACC')
    """
    parts = parse_method(name)
    if not parts.aggregation:
        return ""
    found = aggregation(parts.aggregation, quapy)
    return f"{found.__module__}.{found.__qualname__}"


def is_binary(name: str) -> bool:
    """Tell whether the method of a name is for two classes only.

    Examples
    --------
    >>> is_binary("HDy"), is_binary("ACC(1PMB:kld)"), is_binary("ACC")
    (True, True, False)
    """
    parts = parse_method(name)
    if not parts.aggregation:
        made = own(parts.learner)
        return isinstance(made, type) and issubclass(made, BinaryQuantifier)
    binary = issubclass(aggregation(parts.aggregation), BinaryQuantifier)
    return binary or parts.learner in ("SVM", "1PMB", "SPADE", "SPADE-surrogate")


def suited(names: list[str], n_classes: int) -> list[str]:
    """Return the names of those methods that can tell so many classes apart."""
    return [name for name in names if n_classes == 2 or not is_binary(name)]


def method(name: str, quapy: bool = False) -> Callable[[int], Any]:
    """Return a function that makes the quantifier of a name from a seed, with QuaPy's own aggregation if it is wanted.

    Examples
    --------
    >>> quantifier = method("ACC(NEMSIS:bakld)")(7)
    >>> type(quantifier).__name__, quantifier.classifier
    ('ACC', NEMSISClassifier(measure='bakld', random_state=7))
    """
    parts = parse_method(name)
    if not parts.aggregation:
        make = own(parts.learner)
        return lambda seed: _seeded(make(), seed)
    put_on = aggregation(parts.aggregation, quapy)
    if not parts.learner:
        return lambda seed: _seeded(put_on(), seed)
    inner = on_features(parts.features, learner(parts.learner, parts.objective))
    if parts.aggregation == "QForest":
        return lambda seed: QForest(**inner(seed).get_params())
    options: dict[str, Any] = {}
    if parts.aggregation == "EMQ" and parts.selection == "tuned":
        options = {"val_split": 5, "on_calib_error": "backup"}
    return lambda seed: _seeded(put_on(inner(seed), **options), seed)


def fitted(
    name: str,
    X: Any,
    y: np.ndarray,
    seed: int,
    size: int,
    held: Any = None,
    quapy: bool = False,
) -> tuple[Any, str]:
    """Return the quantifier of a name, fitted, and what model selection chose, in words.

    Parameters
    ----------
    name : str
        Name of the method.
    X, y : matrix, ndarray
        Training rows and labels.
    seed : int
        Seed of what is random.
    size : int
        Rows of a validation sample.
    held : protocol of QuaPy, optional
        Validation samples, if the data have their own.
    quapy : bool, default=False
        Whether to take QuaPy's own aggregation, where there is a compiled one.
    """
    parts, quantifier = parse_method(name), method(name, quapy)(seed)
    if parts.selection != "tuned":
        return quantifier.fit(X, y), ""
    model, chosen = selected(quantifier, parts.grids, X, y, size, held)
    chosen.pop("val_split", None)
    words = {key.rpartition("__")[2]: value for key, value in chosen.items()}
    return model, ", ".join(f"{key} {value}" for key, value in words.items())
