"""The installed command ``quapy-nemsis``: estimates class prevalences in files, and tests whether they have changed.

Arguments are read and checked here, before anything slow is imported. A command is an entry of `COMMANDS`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from quapy_nemsis.tables.formats import Reading

#: Exit statuses.
FINE, ERROR, CHANGED = 0, 1, 2
_EXAMPLES = """examples:
  quapy-nemsis fit labelled.csv --target outcome --positive yes --out model.qn
  quapy-nemsis estimate model.qn new*.csv
  quapy-nemsis estimate model.qn tonight.csv --json --html tonight.html
  quapy-nemsis check model.qn labelled_new.csv
  quapy-nemsis track model.qn log*.csv --window 1d --time when --html track.html
  quapy-nemsis show model.qn

exit status:
  0 if all is well; 2 if something has changed (estimate: a test rejects; track: there is an alarm; check: a true
  prevalence is outside its interval); 1 if there is an error."""
#: The methods of `quapy_nemsis.tracking`, which are not imported here.
METHODS = ("em", "forgetting-em", "fth", "rogd", "uogd", "atlas", "flh-ftl")


def _interval(text: str) -> float:
    value = float(text)
    if not 0.0 < value < 1.0:
        raise argparse.ArgumentTypeError(f"must lie between 0 and 1, such as 0.95; got {text}")
    return value


def _window(text: str) -> int | str:
    return int(text) if text.strip().isdecimal() else text


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, such as forget=0.7; got {text!r}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _reading_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("file format, detected unless given")
    group.add_argument(
        "--separator", metavar="CHAR", help="character between two fields; 'tab' for tabs"
    )
    group.add_argument("--decimal", choices=[".", ","], help="decimal mark")
    group.add_argument(
        "--encoding", metavar="NAME", help="encoding, such as utf-8, cp1252 or latin-1"
    )
    group.add_argument("--sheet", metavar="NAME", help="sheet of an xlsx file")


def _level_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--interval",
        type=_interval,
        default=0.95,
        metavar="SHARE",
        help="probability that an interval contains the prevalence (default: 0.95)",
    )


def _fit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "labelled", metavar="LABELLED", help="a file with labels: CSV, Parquet, xlsx, npz or LIBSVM"
    )
    parser.add_argument("--target", metavar="COLUMN", help="the column with the labels")
    parser.add_argument(
        "--positive",
        metavar="LABEL",
        help="make this label one class and all others the other; otherwise, each label is a class",
    )
    parser.add_argument("--out", metavar="MODEL", required=True, help="the model file to write")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="random seed (default: 0)")
    _reading_options(parser)


def _estimate_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model file written by fit")
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="files with the same columns as in training"
    )
    _level_option(parser)
    parser.add_argument(
        "--alpha",
        type=_interval,
        default=0.05,
        metavar="SHARE",
        help="probability that either test flags a file in which nothing has changed (default: 0.05)",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print a line of JSON for each file")
    shown.add_argument(
        "--csv", action="store_true", help="print CSV, with a line for each file and class"
    )
    parser.add_argument("--html", metavar="PAGE", help="write a web page with a plot to this file")
    parser.add_argument(
        "--prometheus",
        metavar="TEXT",
        help="write metrics for Prometheus to this file; - prints them",
    )
    _reading_options(parser)


def _check_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model file written by fit")
    parser.add_argument("files", metavar="FILE", nargs="+", help="files with labels")
    _level_option(parser)
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each file")
    _reading_options(parser)


def _track_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model file written by fit")
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="files with the same columns as in training, in the order of the stream",
    )
    parser.add_argument(
        "--window",
        type=_window,
        default=1000,
        metavar="ROWS|TIME",
        help="number of rows in a window, or its length in time, such as 30min, 6h or 1d (default: 1000)",
    )
    parser.add_argument(
        "--time", metavar="COLUMN", help="the column with the times, in ascending order"
    )
    parser.add_argument(
        "--time-format",
        default="",
        metavar="FORMAT",
        help="format of the times, such as %%d.%%m.%%Y (default: ISO 8601, or seconds since 1970)",
    )
    parser.add_argument(
        "--labels",
        nargs="+",
        default=[],
        metavar="FILE",
        help="files with all labels that have arrived so far; needs --key",
    )
    parser.add_argument(
        "--key",
        metavar="COLUMN",
        help="the column that identifies a row, both in the stream and in the files of labels",
    )
    parser.add_argument(
        "--method", choices=METHODS, default="em", help="how to track (default: em)"
    )
    parser.add_argument(
        "--option",
        type=_option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a parameter of the method, such as forget=0.7; can be given several times",
    )
    _level_option(parser)
    parser.add_argument(
        "--false-alarms",
        type=_interval,
        default=0.05,
        metavar="SHARE",
        help="probability of a false alarm in 100 windows in which nothing has changed (default: 0.05)",
    )
    parser.add_argument(
        "--checkpoint",
        metavar="STATE",
        help="write the state to this file, to continue from it later",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue from the checkpoint, if it exists; name all files again, followed by the new ones",
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="print a line of JSON for each window")
    shown.add_argument(
        "--csv", action="store_true", help="print CSV, with a line for each window and class"
    )
    parser.add_argument("--html", metavar="PAGE", help="write a web page with a plot to this file")
    parser.add_argument(
        "--prometheus",
        metavar="TEXT",
        help="write metrics of the latest window for Prometheus to this file",
    )
    _reading_options(parser)


def _show_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a model file written by fit")
    parser.add_argument("--json", action="store_true", help="print JSON")


class Command(NamedTuple):
    """A command: what it does, its options, and the function that runs it, as "module:function"."""

    help: str
    options: Callable[[argparse.ArgumentParser], None]
    run: str


COMMANDS = {
    "fit": Command(
        "train a model on a labelled file", _fit_options, "quapy_nemsis.cli.commands:fit"
    ),
    "estimate": Command(
        "estimate the prevalences in new files, and test whether they have changed",
        _estimate_options,
        "quapy_nemsis.cli.commands:estimate",
    ),
    "check": Command(
        "compare estimates with the labels in files",
        _check_options,
        "quapy_nemsis.cli.commands:check",
    ),
    "track": Command(
        "follow the prevalences of a stream of rows, window by window",
        _track_options,
        "quapy_nemsis.cli.commands:track",
    ),
    "show": Command("show what is in a model", _show_options, "quapy_nemsis.cli.commands:show"),
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    whole = argparse.ArgumentParser(
        prog="quapy-nemsis",
        description="Estimate how many rows of each class there are in a file, after training on a labelled file.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="store_true", help="print the version")
    inner = whole.add_subparsers(dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        command.options(inner.add_parser(name, help=command.help, description=command.help))
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Arguments. By default, the arguments of the process.

    Returns
    -------
    int
        0 if all is well, 2 if something has changed, 1 if there is an error.

    Examples
    --------
    >>> main(["show", "nowhere.qn"])
    1
    """
    try:
        options = parser().parse_args(arguments)
    except SystemExit as end:  # argparse exits with 2, which means a change here
        return ERROR if end.code else FINE
    if options.version:
        from quapy_nemsis import __version__

        print(__version__)
        return FINE
    if options.command is None:
        parser().print_help()
        return ERROR
    try:
        if hasattr(options, "separator"):
            separator = "\t" if options.separator == "tab" else options.separator
            options.reading = Reading(separator, options.decimal, options.encoding, options.sheet)
        if hasattr(options, "model"):
            open(options.model, "rb").close()  # what is missing is told at once
        module, _, function = COMMANDS[options.command].run.partition(":")
        return int(getattr(import_module(module), function)(options))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    except BrokenPipeError:  # as in `… | head`; nothing more can be printed, not even at the end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        told = str(error) if error.filename is None else f"{error.filename}: {error.strerror}"
        print(f"error: {told}", file=sys.stderr)
    except (ValueError, TypeError, ImportError, MemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
    return ERROR
