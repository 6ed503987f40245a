"""A catalogue knows which data sets there are and where their files lie. Nothing slow is imported here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quapy_nemsis.tables.formats import FORMATS, RECOGNISED, Reading, known_suffix

#: Points at a folder of data files, as ``--data-dir`` does.
FOLDER_VARIABLE = "QUAPY_NEMSIS_DATA"
#: Share of the rows that methods are tested on.
TEST_SIZE = 0.3
EMBEDDED = ("breast_cancer", "digits", "drift", "digits3")


@dataclass(frozen=True)
class DataSet:
    """A data set by name: an embedded one, or a file with its column of labels and its positive label.

    A folder of bags, as of the LeQua competitions, is a data set too.
    """

    name: str
    path: Path | None = None
    target: str | None = None
    positive: str | None = None
    reading: Reading = RECOGNISED
    #: "random", or "fold": the rows whose ``fold`` is 0 in the npz file are for training, all others for tests.
    split: str = "random"
    #: Share of the rows that methods are tested on, of a random split.
    test_size: float = TEST_SIZE
    #: How many of the other rows are for training at most; all by default.
    train_rows: int | None = None


@dataclass(frozen=True)
class KnownSet:
    """A data set that has a name in this field, and where it comes from."""

    name: str
    size: str = ""
    positives: str = ""
    #: Identifier and positive class on OpenML, or the name that a fetcher of QuaPy takes.
    openml: tuple[int, str] | None = None
    quapy: str = ""
    #: How to get the set if it cannot be downloaded.
    manual: str = ""


_NOT_PUBLIC = "supply NAME.npz (X, y in ±1), NAME.csv or NAME.libsvm in --data-dir"
PAPER = (
    KnownSet("kddcup08", "102,294 x 117", "0.61 %", manual=f"KDD Cup 2008; {_NOT_PUBLIC}"),
    KnownSet("ppi", "240,249 x 85", "1.19 %", manual=f"protein interactions; {_NOT_PUBLIC}"),
    KnownSet("covtype", "581,012 x 54", "1.63 %", (1596, "5")),
    KnownSet("cheminfo", "2,142 x 55", "2.33 %", manual=f"virtual screening; {_NOT_PUBLIC}"),
    KnownSet("letter", "20,000 x 16", "3.92 %", (6, "N")),
    KnownSet("ijcnn1", "141,691 x 22", "9.57 %", (1575, "1")),
    KnownSet("adult", "48,842 x 123", "23.93 %", (1590, ">50K")),
    KnownSet("cod-rna", "488,565 x 8", "33.33 %", (351, "1")),
)


def known_sets() -> dict[str, KnownSet]:
    """Return the paper's eight sets, and QuaPy's: binary ones, reviews, tweets, and sets of several classes."""
    from quapy.data import datasets

    named = {
        "uci": datasets.UCI_BINARY_DATASETS,
        "reviews": datasets.REVIEWS_SENTIMENT_DATASETS,
        "tweets": datasets.TWITTER_SENTIMENT_DATASETS_TEST,
        "multi": datasets.UCI_MULTICLASS_DATASETS,
    }
    quapy = [KnownSet(f"{kind}.{name}", quapy=name) for kind in named for name in named[kind]]
    return {known.name: known for known in (*PAPER, *quapy)}


def cache_folder() -> Path:
    """Return the folder where downloads are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "quapy-nemsis" / "data"


def folders(data_dir: Path | None) -> list[Path]:
    """Return the folders where named sets are looked for, in this order."""
    given = (data_dir, os.environ.get(FOLDER_VARIABLE), cache_folder())
    return [Path(folder) for folder in given if folder]


def find(name: str, data_dir: Path | None = None) -> Path | None:
    """Return the file of a named set, or None if there is none."""
    paths = (folder / f"{name}{suffix}" for folder in folders(data_dir) for suffix in FORMATS)
    return next((path for path in paths if path.is_file()), None)


def is_bags(path: Path) -> bool:
    """Tell whether a folder holds training rows and bags, in the layout of the LeQua competitions."""
    return any((path / part / "training_data.txt").is_file() for part in ("", "public"))


def target_of(name: str, targets: list[str] | None, sets: list[str]) -> str | None:
    """Return the column of the labels of a set, of what ``--target`` says: COLUMN for all sets, or FILE:COLUMN."""

    def column(target: str, name: str) -> str | None:
        spellings = (name, Path(name).name, Path(name).stem)
        fitting = (f"{spelling}:" for spelling in spellings if target.startswith(f"{spelling}:"))
        return next((target.removeprefix(start) for start in fitting), None)

    targets = targets or []
    own = [found for target in targets if (found := column(target, name)) is not None]
    shared = [target for target in targets if not any(column(target, other) for other in sets)]
    for chosen in (own, shared):
        if len(chosen) > 1:
            raise ValueError(
                f"--target names {chosen[0]!r} and {chosen[1]!r} for {name}: name one column for all sets, or "
                "FILE:COLUMN for each, where FILE is in --sets"
            )
    return next(iter(own or shared), None)


def locate(
    name: str,
    data_dir: Path | None = None,
    target: str | None = None,
    positive: str | None = None,
    reading: Reading = RECOGNISED,
    **division: Any,
) -> DataSet:
    """Return the data set of a name: an embedded set, a file in a data folder, or the path of a file or folder of bags.

    Other options say how it is divided: ``split`` and ``test_size`` (see `DataSet`).
    """
    if name in EMBEDDED:
        return DataSet(name, **division)
    path = find(name, data_dir)
    if path is None and is_bags(Path(name)):
        path = Path(name)
        name = path.resolve().name
    elif path is None and (os.sep in name or Path(name).is_file()):
        path = Path(name)
        name = path.name[: -len(known_suffix(path))]
    if path is None:
        places = ", ".join(str(folder) for folder in folders(data_dir))
        raise FileNotFoundError(
            f"there is no data set {name!r}: it is not one of {', '.join(EMBEDDED)}, it is not a file, and no file "
            f"of this name is in {places}. `python -m experiments data` lists what there is and what can be fetched"
        )
    return DataSet(name, path, target, positive, reading, **division)
