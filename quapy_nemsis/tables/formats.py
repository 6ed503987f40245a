"""Formats of data files, and how to read them. Nothing slow is imported here."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path

#: What may be between two fields of a text file, if it is not said.
SEPARATORS = (",", ";", "\t", "|")
#: The suffixes of data files, and their formats.
FORMATS = {
    **dict.fromkeys((".csv", ".csv.gz", ".tsv"), "text"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    ".xlsx": "excel",
    ".npz": "npz",
    **dict.fromkeys((".libsvm", ".svm", ".svmlight", ".txt"), "libsvm"),
}
#: Options for opening Parquet files: buffered without prefetching, so that memory does not grow with the row groups.
PARQUET = {"pre_buffer": False, "buffer_size": 2**20}
#: What to do if a package is missing that tables need.
INSTALL = "pip install 'quapy-nemsis[files]'"


class Fault(ValueError):
    """What is wrong with a file and what to do."""


@dataclass(frozen=True)
class Reading:
    """How to read text files and workbooks; what is None is recognised."""

    #: What is between two fields, of `SEPARATORS` or another character.
    separator: str | None = None
    #: The decimal mark, "." or ",".
    decimal: str | None = None
    encoding: str | None = None
    #: The name of the sheet, in a workbook of several.
    sheet: str | None = None

    def __post_init__(self) -> None:
        """Refuse what no file can be read with."""
        if self.separator is not None and len(self.separator) != 1:
            raise ValueError(f"--separator must be one character or 'tab'; got {self.separator!r}")
        if self.separator is not None and self.separator == self.decimal:
            raise ValueError(f"--separator and --decimal are both {self.decimal!r}; change one")
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            raise ValueError(
                f"--encoding {self.encoding!r} is not known; give one such as utf-8, cp1252 or latin-1"
            ) from None


RECOGNISED = Reading()


def known_suffix(path: Path) -> str:
    """Return the suffix of a data file, in lower case; refuse a file that is missing or of no known format."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file; check the path")
    for suffix in FORMATS:
        if path.name.lower().endswith(suffix):
            return suffix
    raise ValueError(f"{path}: unknown format; known suffixes are {', '.join(FORMATS)}")
