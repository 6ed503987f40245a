"""Compare quantifiers, reproduce the paper's figures, list and fetch data: ``python -m experiments --help``.

The arguments are read and checked here, before anything slow is imported; `experiments.commands` does the work.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from pathlib import Path

from experiments.catalogue import (
    EMBEDDED,
    FOLDER_VARIABLE,
    TEST_SIZE,
    DataSet,
    Reading,
    locate,
    target_of,
)
from experiments.errors import at_least, plain_errors
from experiments.names import ALL, DEMO, FIGURES, METRICS, PROTOCOLS, base_name, parse_method

_EXAMPLES = """examples:
  python -m experiments compare
      embedded data, ten methods, QuaPy's artificial-prevalence protocol: a table and a report
  python -m experiments compare --sets adult letter --data-dir FOLDER --methods CC ACC "ACC(NEMSIS:q)" --jobs 2
      some methods on named sets in a folder of files
  python -m experiments compare --sets mine.csv --target outcome --positive yes
      your own file
  python -m experiments compare --sets a.csv b.xlsx --target a.csv:outcome b.xlsx:class --decimal ,
      files with other columns of labels and a decimal comma, which is recognised if it is not said
  python -m experiments reproduce fig1 fig4 --data-dir FOLDER
      figures of the paper, with what the numbers say about its claims
  python -m experiments compare --dask tcp://host:8786
      on the workers of a Dask cluster
  python -m experiments data
      which sets there are, and where the others come from

A run that was stopped continues with the same command: finished cells are kept in the folder named with --out.
"""


def processes(text: str) -> int:
    """Read a number of processes."""
    if int(text) == 0:
        raise argparse.ArgumentTypeError("no work is done by 0 processes")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Quantifiers under drift: comparisons, the paper's figures, data.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shown = "(default %(default)s)"
    files = f"folder of NAME.npz, NAME.csv, NAME.parquet or NAME.libsvm (or ${FOLDER_VARIABLE})"
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--data-dir", type=Path, help=files)
    work = argparse.ArgumentParser(add_help=False)
    work.add_argument(
        "--jobs", type=processes, default=1, help=f"processes, -1 for all cores {shown}"
    )

    told = "compare methods on data sets under a protocol of QuaPy"
    first = commands.add_parser("compare", parents=[folder, work], help=told)
    add = first.add_argument
    sets = f"names, files, or folders of bags as of LeQua (default: the embedded {', '.join(EMBEDDED)})"
    add("--sets", nargs="+", default=list(EMBEDDED), metavar="SET", help=sets)
    known = f"names as in the default ({' '.join(DEMO)}), or 'all': {' '.join(ALL)}"
    add("--methods", nargs="+", default=DEMO, metavar="METHOD", help=known)
    labels = "column of the labels, for CSV, xlsx and Parquet files; FILE:COLUMN is for one of them"
    add("--target", nargs="+", metavar="COLUMN", help=labels)
    add("--separator", help="of text files: a character, or 'tab' (default: recognised)")
    add("--decimal", choices=[".", ","], help="mark of text files (default: recognised)")
    add("--encoding", help="of text files, as cp1252 (default: recognised)")
    add("--sheet", help="of a workbook with several")
    divided = f"'fold' is the split that npz files hold in their array fold, 0 for training {shown}"
    add("--split", choices=["random", "fold"], default="random", help=divided)
    add("--test-size", type=float, default=TEST_SIZE, help=f"share of rows for tests {shown}")
    rest = "label of the positive class, against all others; each label is a class if not given"
    add("--positive", help=rest)
    usual = (
        "default APP, and for more than two classes UPP with as many samples as APP draws of two"
    )
    add("--protocol", choices=PROTOCOLS, help=usual)
    add("--sample-size", type=int, default=100, help=f"rows of a test sample {shown}")
    drawn = f"samples per prevalence of APP, in all of the others {shown}"
    add("--repeats", type=int, default=25, help=drawn)
    add("--prevalences", type=int, default=21, help=f"points of APP's grid {shown}")
    spread = f"concentration of Dirichlet; 1 is UPP, less favours few classes {shown}"
    add("--alpha", type=float, default=0.5, help=spread)
    errors = f"of {', '.join(METRICS)} (default mae mrae)"
    add("--metrics", nargs="+", default=["mae", "mrae"], metavar="METRIC", help=errors)
    add("--seed", type=int, default=0, help=f"first seed {shown}")
    add("--seeds", type=int, default=1, help=f"how many splits {shown}")
    add("--retry", action="store_true", help="compute anew what failed before")
    cluster = (
        "scheduler of a Dask cluster to run on, as tcp://host:8786; its workers have one thread each, can import "
        "this package and see the data at the same paths"
    )
    add("--dask", metavar="ADDRESS", help=cluster)
    written = f"folder to write to {shown}"
    add("--out", type=Path, default=Path("results/compare"), help=written)

    told = "draw the paper's figures, and say what they mean for its claims"
    second = commands.add_parser("reproduce", parents=[folder, work], help=told)
    add = second.add_argument
    figures = [*FIGURES, "all"]
    add("figures", nargs="+", choices=figures, metavar="FIGURE", help="fig1 … fig6, or all")
    add("--seeds", type=int, default=5, help=f"splits {shown}")
    add("--passes", type=int, default=25, help=f"passes of the curves over time {shown}")
    add("--out", type=Path, default=Path("results/reproduce"), help=written)

    told = "write the report of a comparison again, of what is finished so far"
    third = commands.add_parser("report", help=told)
    third.add_argument("folder", type=Path, help="the folder that compare wrote to")

    fourth = commands.add_parser("data", parents=[folder], help="list known sets, or fetch one")
    fourth.add_argument("action", nargs="?", choices=["list", "fetch"], default="list")
    fourth.add_argument("names", nargs="*", metavar="NAME")
    return top


def located(options: dict) -> list[DataSet]:
    """Return the data sets of a comparison."""
    if not 0 < options["test_size"] < 1:
        raise ValueError(f"--test-size must be between 0 and 1; got {options['test_size']}")
    separator = {"tab": "\t", "\\t": "\t"}.get(options["separator"], options["separator"])
    reading = Reading(separator, *(options[name] for name in ("decimal", "encoding", "sheet")))
    how = {"positive": options["positive"], "reading": reading}
    how |= {name: options[name] for name in ("split", "test_size")}
    sets, targets = options["sets"], options["target"]
    return [
        locate(name, options["data_dir"], target_of(name, targets, sets), **how) for name in sets
    ]


def check(options: dict) -> None:
    """Refuse what can be seen to be wrong without reading data; sets of a comparison are located."""
    if options["command"] == "compare":
        options["methods"] = ALL if options["methods"] == ["all"] else options["methods"]
        for name in options["methods"]:
            parse_method(name)
        for metric in options["metrics"]:
            base_name(metric)
        at_least(options, 1, "sample_size", "repeats", "seeds")
        at_least(options, 2, "prevalences")
        if not 0 < options["alpha"] < math.inf:
            raise ValueError(f"--alpha must be a positive number; got {options['alpha']}")
        options["located"] = located(options)
        sets = [dataset.name for dataset in options["located"]]
        for what, given in (("method", options["methods"]), ("data set", sets)):
            twice = [name for name in given if given.count(name) > 1]
            if twice:
                raise ValueError(
                    f"there are two {what}s {twice[0]!r}: leave one out, or rename one of two files"
                )
    elif options["command"] == "reproduce":
        at_least(options, 1, "seeds", "passes")
    elif options["command"] == "data" and options["action"] == "fetch" and not options["names"]:
        raise ValueError("name what to fetch: python -m experiments data fetch NAME")


def main(arguments: list[str] | None = None) -> None:
    """Run a command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = vars(parser().parse_args(arguments))
    options["line"] = f"python -m experiments {shlex.join(arguments)}"
    with plain_errors():
        check(options)
        # Only now, because it takes seconds.
        from experiments import commands

        commands.COMMANDS[options["command"]](options)


if __name__ == "__main__":
    main()
