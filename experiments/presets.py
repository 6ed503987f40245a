"""Experiments of the literature as commands, with the published figures beside ours.

``reproduce uci-multiclass`` runs QuaPy's UCI sets of several classes: 70 % for training, then 1,000 samples of 500 rows
under UPP. ``reproduce lequa`` runs the folders of the LeQua 2022 competition, tasks T1A and T1B.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from quapy.data.datasets import UCI_MULTICLASS_DATASETS

from experiments.catalogue import TEST_SIZE, DataSet, find, folders, is_bags
from experiments.names import PRESET_METHODS, expand
from experiments.report import number
from experiments.stats import errors, failure
from experiments.store import Cell

#: Rows of a sample. Those of LeQua's folders have as many, and relative errors are smoothed for that.
SAMPLE_SIZES = {"uci-multiclass": 500, "lequa": 250}
#: QuaPy leaves out the training rows of a UCI set beyond so many.
MOST_ROWS = 25_000
#: Mean absolute errors on QuaPy's UCI sets: EM, and the best of EM, EM-BCTS, smoothed EM and Dirichlet-MAP EM, all with
#: logistic regression tuned by GridSearchQ. They were published with the repository pglez82/emq-stabilization (2026).
PUBLISHED_UCI: dict[str, tuple[float, float]] = {
    "mhr": (0.0594, 0.0538),
    "cmc": (0.0946, 0.0946),
    "hcv": (0.2078, 0.1683),
    "yeast": (0.0439, 0.0425),
    "phishing": (0.0290, 0.0234),
    "obesity": (0.0062, 0.0062),
    "molecular": (0.0085, 0.0079),
    "abalone": (0.0707, 0.0509),
    "academic-success": (0.0307, 0.0307),
    "page_block": (0.0244, 0.0206),
    "satellite": (0.0095, 0.0093),
    "wine-quality": (0.0764, 0.0608),
    "nursery": (0.0058, 0.0058),
    "letter": (0.0054, 0.0051),
    "shuttle": (0.0625, 0.0470),
    "connect-4": (0.0365, 0.0340),
}
#: Absolute errors on the tests of LeQua 2022 (T1A has two classes, T1B has 28); HistNetQ is of Pérez-Mon et al. (2024).
PUBLISHED_LEQUA: dict[str, dict[str, float]] = {
    "T1A": {"CC": 0.0916, "ACC": 0.0372, "PACC": 0.0298, "EMQ": 0.0236, "HistNetQ": 0.0224},
    "T1B": {"CC": 0.0141, "ACC": 0.0184, "PACC": 0.0158, "EMQ": 0.0118, "HistNetQ": 0.0107},
}


def published(preset: str, name: str) -> dict[str, float]:
    """Return the published errors on a data set, by the name of their column; there may be none."""
    if preset == "lequa":
        return {f"published {method}": value for method, value in PUBLISHED_LEQUA[name].items()}
    if name not in PUBLISHED_UCI:
        return {}
    return dict(zip(("published EM", "published best"), PUBLISHED_UCI[name], strict=True))


def data_sets(preset: str, data_dir: Path | None) -> tuple[list[DataSet], list[str]]:
    """Return the sets of a preset that are in the folders of data, and the names of the others.

    QuaPy's sets are called NAME, or multi.NAME if ``data fetch`` wrote them. Those of LeQua are folders.
    """
    if preset == "lequa":
        places = {name: [f / name for f in folders(data_dir)] for name in PUBLISHED_LEQUA}
        found = {name: next(filter(is_bags, paths), None) for name, paths in places.items()}
    else:
        found = {
            name: find(f"multi.{name}", data_dir) or find(name, data_dir)
            for name in UCI_MULTICLASS_DATASETS
        }
    most = MOST_ROWS if preset == "uci-multiclass" else None
    here = [DataSet(name, path, train_rows=most) for name, path in found.items() if path]
    return here, [name for name, path in found.items() if path is None]


def table(preset: str, cells: list[Cell]) -> list[list[str]]:
    """Return a head, mean absolute errors of each data set (ours, then those published), and their means, as rows."""
    sets = list(dict.fromkeys(cell.data for cell in cells))
    ours = list(dict.fromkeys(cell.method for cell in cells))
    known = {name: published(preset, name) for name in sets}
    columns = list(dict.fromkeys(column for found in known.values() for column in found))
    values: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        if not failure(cell):
            mean = float(errors(cell, "mae", 1).mean())
            values.setdefault((cell.data, cell.method), []).append(mean)
    rows, complete = [["", *ours, *columns]], []
    for name in sets:
        found = [values.get((name, method), []) for method in ours]
        means = [float(np.mean(one)) if one else math.nan for one in found]
        both = [*means, *(known[name].get(column, math.nan) for column in columns)]
        shown = ["failed" if math.isnan(mean) else number(mean) for mean in means]
        rows.append(
            [name, *shown, *("–" if math.isnan(v) else number(v) for v in both[len(ours) :])]
        )
        if np.isfinite(both).all():
            complete.append(both)
    if len(complete) > 1:
        rows.append(["mean", *map(number, np.mean(complete, axis=0))])
        rows.append(["geometric mean", *map(number, np.exp(np.mean(np.log(complete), axis=0)))])
    return rows


def options(
    preset: str, datasets: list[DataSet], methods: list[str] | None, **given: Any
) -> dict[str, Any]:
    """Return the options of a preset, as `compare` has them; without methods, those of the preset."""
    return {
        "sets": [dataset.name for dataset in datasets],
        "located": datasets,
        "methods": expand(list(methods or PRESET_METHODS), "tuned"),
        "protocol": "UPP" if preset == "uci-multiclass" else None,
        "sample_size": SAMPLE_SIZES[preset],
        "repeats": 1000,
        "prevalences": 21,
        "alpha": 0.5,
        "metrics": ["mae", "mrae"],
        "seed": 0,
        "split": "random",
        "test_size": TEST_SIZE,
        "train_rows": MOST_ROWS if preset == "uci-multiclass" else None,
        **given,
    }
