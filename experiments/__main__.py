"""Compare quantifiers, reproduce the paper's figures, list and fetch data: ``python -m experiments --help``.

The arguments are read and checked here, before anything slow is imported; `experiments.commands` does the work.
"""

from __future__ import annotations

import argparse
import difflib
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
from experiments.names import (
    AGGREGATIONS,
    ALL,
    DEMO,
    FIGURES,
    LEARNERS,
    METRICS,
    PRESET_METHODS,
    PRESETS,
    PROTOCOLS,
    REPORTS,
    base_name,
    expand,
)

_EXAMPLES = """examples:
  python -m experiments compare
      embedded data, eleven methods, QuaPy's artificial-prevalence protocol: a table and a report
  python -m experiments compare --sets adult letter --data-dir FOLDER --methods CC ACC "ACC(NEMSIS:q)" --jobs 2
      some methods on named sets in a folder of files
  python -m experiments compare --sets mine.csv --target outcome --positive yes
      your own file
  python -m experiments compare --sets a.csv b.xlsx --target a.csv:outcome b.xlsx:class --decimal ,
      files whose label columns differ, with a decimal comma (which is recognised if you do not give it)
  python -m experiments reproduce fig1 fig4 --data-dir FOLDER
      figures of the paper, with what the numbers say about its claims
  python -m experiments compare --dask tcp://host:8786
      on the workers of a Dask cluster
  python -m experiments compare --config paper.toml --shard 2/8
      a part of an experiment that a file describes
  python -m experiments data
      which sets there are, and where the others come from

A run that was stopped continues with the same command: finished cells are kept in the folder named with --out.
"""


_METHODS = f"""methods:
  AGGREGATION            one of {", ".join(AGGREGATIONS)},
                         on logistic regression (Quantifier has its own learner)
  AGGREGATION(LEARNER)   as EMQ(LR-isotonic), PACC(forest), ACC(NEMSIS:q)
  LEARNER                its predictions are counted
                         {", ".join(LEARNERS.split(", ")[:6])},
                         {", ".join(LEARNERS.split(", ")[6:11])},
                         {", ".join(LEARNERS.split(", ")[11:])}
  MODULE:NAME            your own class or function that makes a quantifier; in parentheses, one that makes a learner
  NAME                   of a package with an entry point quapy_nemsis.methods
  METHOD@plain           with default parameters; METHOD@tuned with those that GridSearchQ selects

A baseline that is tuned is trained on 60 % of the training part for each point of a grid. The point with the least mean
absolute error on samples of the other 40 % is trained again on all of it. Learners of this package choose their
parameters themselves. Seconds of training count all of that.
"""


def processes(text: str) -> int:
    """Read a number of processes."""
    if int(text) == 0:
        raise argparse.ArgumentTypeError("no work is done by 0 processes")
    return int(text)


def shard(text: str) -> tuple[int, int]:
    """Read which part of the work is meant, as 2/8."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"give a part of the work as 1/4 … 4/4, not {text!r}")
    return int(number), int(count)


def from_config(path: Path, known: argparse.ArgumentParser) -> list[str]:
    """Return the arguments that a TOML file stands for: keys are the long options, without dashes."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with path.open("rb") as file:
            given = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not a TOML file ({error}): repair it") from error
    options = {action.dest.replace("_", "-"): action for action in known._actions}
    arguments = []
    for key, value in given.items():
        name = key.replace("_", "-")
        if name not in options or name in ("help", "config"):
            close = difflib.get_close_matches(name, options, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(options)}"
            raise ValueError(f"{path}: unknown key {key!r}; {hint}")
        if isinstance(value, bool):
            arguments += [f"--{name}"] if value else []
        else:
            values = value if isinstance(value, list) else [value]
            arguments += [f"--{name}", *map(str, values)]
    return arguments


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
    first = commands.add_parser(
        "compare",
        parents=[folder, work],
        help=told,
        epilog=_METHODS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    first.set_defaults(parser=first)  # for `from_config`, which takes the same options
    add = first.add_argument
    sets = f"names, files, or folders of bags as of LeQua (default: the embedded {', '.join(EMBEDDED)})"
    add("--sets", nargs="+", default=list(EMBEDDED), metavar="SET", help=sets)
    known = (
        f"(default {' '.join(DEMO)}), or 'all': {' '.join(ALL)}; see below for what a name can be"
    )
    add("--methods", nargs="+", default=DEMO, metavar="METHOD", help=known)
    add(
        "--selection",
        choices=["tuned", "plain", "both"],
        default="tuned",
        help="whether GridSearchQ selects the parameters of baselines on validation samples, or they have their "
        f"defaults; NAME@plain and NAME@tuned say so for one method {shown}",
    )
    other = "learner of aggregations that name none, instead of LR: one of LEARNER, or MODULE:NAME"
    add("--learner", help=other)
    labels = "column of the labels, for CSV, xlsx and Parquet files; FILE:COLUMN is for one of them"
    add("--target", nargs="+", metavar="COLUMN", help=labels)
    add("--separator", help="of text files: a character, or 'tab' (default: recognised)")
    add("--decimal", choices=[".", ","], help="mark of text files (default: recognised)")
    add("--encoding", help="of text files, as cp1252 (default: recognised)")
    add("--sheet", help="of a workbook with several")
    divided = f"'fold' is the split that npz files hold in their array fold, 0 for training {shown}"
    add("--split", choices=["random", "fold"], default="random", help=divided)
    add("--test-size", type=float, default=TEST_SIZE, help=f"share of rows for tests {shown}")
    fewer = "training rows at most, drawn from each class in proportion (default: all)"
    add("--train-rows", type=int, metavar="N", help=fewer)
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
    add("--seeds", type=int, default=3, help=f"how many splits {shown}")
    own = "aggregate with QuaPy's own code where it is compiled here, which takes longer and gives the same estimates"
    add("--quapy", action="store_true", help=own)
    add("--retry", action="store_true", help="compute anew what failed before")
    part = "do one of several parts of the work, as 2/8; all parts share the folder --out"
    add("--shard", type=shard, default=(1, 1), metavar="I/N", help=part)
    told = "TOML file with options, by their long names; what the command line says comes first"
    add("--config", type=Path, metavar="FILE", help=told)
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
    figures = [*FIGURES, "all", *PRESETS]
    meant = f"fig1 … fig6, or all of them; or one of {', '.join(PRESETS)}, with published figures"
    add("figures", nargs="+", choices=figures, metavar="FIGURE", help=meant)
    compared = f"what {' and '.join(PRESETS)} compare (default {' '.join(PRESET_METHODS)})"
    add("--methods", nargs="+", metavar="METHOD", help=compared)
    add("--seeds", type=int, default=5, help=f"splits {shown}")
    add("--passes", type=int, default=25, help=f"passes of the curves over time {shown}")
    add("--out", type=Path, default=Path("results/reproduce"), help=written)

    told = "write the report of a comparison again, of what is finished so far"
    third = commands.add_parser("report", help=told)
    told = "the folder that compare wrote to; of several, whose methods or sets differ, one report is written"
    third.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help=told)
    third.add_argument("--out", type=Path, help="folder to write to (default: the first one)")
    for each in (first, third):
        each.add_argument(
            "--format",
            nargs="+",
            choices=REPORTS,
            default=list(REPORTS),
            help=f"what to write, of {', '.join(REPORTS)} (default all)",
        )

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
    how |= {name: options[name] for name in ("split", "test_size", "train_rows")}
    sets, targets = options["sets"], options["target"]
    return [
        locate(name, options["data_dir"], target_of(name, targets, sets), **how) for name in sets
    ]


def check(options: dict) -> None:
    """Refuse what can be seen to be wrong without reading data; sets of a comparison are located."""
    if options["command"] == "compare":
        named = ALL if options["methods"] == ["all"] else options["methods"]
        options["methods"] = expand(named, options["selection"], options["learner"])
        for metric in options["metrics"]:
            base_name(metric)
        at_least(options, 1, "sample_size", "repeats", "seeds")
        at_least(options, 2, "prevalences", *(["train_rows"] if options["train_rows"] else []))
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
        if len(options["figures"]) > 1 and set(options["figures"]) & set(PRESETS):
            raise ValueError(f"run {' and '.join(PRESETS)} one at a time, and without figures")
        if options["methods"] and options["figures"][0] not in PRESETS:
            raise ValueError(f"--methods is for {' and '.join(PRESETS)}: figures have their own")
    elif options["command"] == "data" and options["action"] == "fetch" and not options["names"]:
        raise ValueError("name what to fetch: python -m experiments data fetch NAME")


def main(arguments: list[str] | None = None) -> None:
    """Run a command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    known = parser()
    options = vars(known.parse_args(arguments))
    options["line"] = f"python -m experiments {shlex.join(arguments)}"
    with plain_errors():
        if options.get("config"):
            given = from_config(options["config"], options["parser"])
            both = known.parse_args([arguments[0], *given, *arguments[1:]])
            options |= vars(both)
        check(options)
        # Only now, because it takes seconds.
        from experiments import commands

        commands.COMMANDS[options["command"]](options)


if __name__ == "__main__":
    main()
