"""Compare quantifiers, reproduce the paper's figures, list and fetch data: ``python -m experiments --help``."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from experiments import compare, data, methods, reproduce
from experiments.cells import on_dask
from experiments.errors import at_least, plain_errors
from experiments.report import text_table, write_report
from experiments.stats import METRICS

_EXAMPLES = """examples:
  python -m experiments compare
      embedded data, ten methods, QuaPy's artificial-prevalence protocol: a table and a report
  python -m experiments compare --sets adult letter --data-dir FOLDER --methods CC ACC "ACC(NEMSIS:q)" --jobs 2
      some methods on named sets in a folder of files
  python -m experiments compare --sets mine.csv --target outcome --positive yes
      a file of your own
  python -m experiments reproduce fig1 fig4 --data-dir FOLDER
      figures of the paper, with what the numbers say about its claims
  python -m experiments compare --dask tcp://host:8786
      on the workers of a Dask cluster
  python -m experiments data
      which sets there are, and where the others come from

A run that was stopped goes on with the same command: finished cells are kept in the folder named with --out.
"""
DEMO_METHODS = (
    "CC",
    "ACC",
    "PACC",
    "EMQ",
    "NEMSIS:kld",
    "NEMSIS:bakld",
    "NEMSIS:q",
    "ACC(NEMSIS:q)",
    "EMQ(NEMSIS:ba)",
    "SVM(KLD)",
)
RUN_FILE = "run.json"


def processes(text: str) -> int:
    """A number of processes."""
    if int(text) == 0:
        raise argparse.ArgumentTypeError("no work is done by 0 processes")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m experiments",
        description="Quantifiers under drift: comparisons, the paper's figures, data.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument(
        "--data-dir",
        type=Path,
        help=f"folder of NAME.npz, NAME.csv, NAME.parquet or NAME.libsvm (or ${data.FOLDER_VARIABLE})",
    )
    work = argparse.ArgumentParser(add_help=False)
    work.add_argument(
        "--jobs", type=processes, default=1, help="processes (default 1; -1 for one per core)"
    )

    first = commands.add_parser(
        "compare", parents=[folder, work], help="data sets x methods under a protocol of QuaPy"
    )
    first.add_argument(
        "--sets",
        nargs="+",
        default=list(data.EMBEDDED),
        metavar="SET",
        help=f"names or files (default: the embedded {', '.join(data.EMBEDDED)})",
    )
    first.add_argument(
        "--methods",
        nargs="+",
        default=list(DEMO_METHODS),
        metavar="METHOD",
        help="names as in the default, or 'all': " + " ".join(methods.ALL),
    )
    first.add_argument("--target", help="column of the labels, for CSV and Parquet files")
    first.add_argument(
        "--positive", help="label of the positive class; the greater of two if not given"
    )
    first.add_argument("--protocol", choices=list(compare.PROTOCOLS), default="APP")
    first.add_argument(
        "--sample-size", type=int, default=100, help="rows of a test sample (default 100)"
    )
    first.add_argument(
        "--repeats",
        type=int,
        default=25,
        help="samples per prevalence of APP, in all of NPP and UPP (default 25)",
    )
    first.add_argument(
        "--prevalences", type=int, default=21, help="points of APP's grid (default 21)"
    )
    first.add_argument(
        "--metrics",
        nargs="+",
        default=["mae", "mrae"],
        metavar="METRIC",
        help=f"of {', '.join(METRICS)} (default mae mrae)",
    )
    first.add_argument("--seed", type=int, default=0, help="first seed (default 0)")
    first.add_argument("--seeds", type=int, default=1, help="how many splits (default 1)")
    first.add_argument("--retry", action="store_true", help="compute anew what failed before")
    first.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="scheduler of a Dask cluster to run on, as tcp://host:8786; its workers have one thread each, "
        "can import this package and see the data at the same paths",
    )
    first.add_argument(
        "--out",
        type=Path,
        default=Path("results/compare"),
        help="folder to write to (default %(default)s)",
    )

    second = commands.add_parser(
        "reproduce",
        parents=[folder, work],
        help="the paper's figures, and what they say about its claims",
    )
    second.add_argument(
        "figures",
        nargs="+",
        choices=[*reproduce.FIGURES, "all"],
        metavar="FIGURE",
        help="fig1 … fig6, or all",
    )
    second.add_argument("--seeds", type=int, default=5, help="splits (default 5)")
    second.add_argument(
        "--passes", type=int, default=25, help="of the curves over time (default 25)"
    )
    second.add_argument(
        "--out",
        type=Path,
        default=Path("results/reproduce"),
        help="folder to write to (default %(default)s)",
    )

    third = commands.add_parser(
        "report", help="write the report of a comparison again, of what is there"
    )
    third.add_argument("folder", type=Path, help="the folder that compare wrote to")

    fourth = commands.add_parser(
        "data", parents=[folder], help="list known data sets, or fetch one"
    )
    fourth.add_argument("action", nargs="?", choices=["list", "fetch"], default="list")
    fourth.add_argument("names", nargs="*", metavar="NAME")
    return top


def comparison_tasks(options: dict) -> list[compare.Task]:
    """What a comparison is made of; all names are checked before anything is computed."""
    names = list(methods.ALL) if options["methods"] == ["all"] else options["methods"]
    for name in names:
        methods.method(name)
    unknown = [metric for metric in options["metrics"] if metric not in METRICS]
    if unknown:
        raise ValueError(f"unknown metric {unknown[0]!r}; known are {', '.join(METRICS)}")
    at_least(options, 1, "sample_size", "repeats", "seeds")
    at_least(options, 2, "prevalences")
    folder = Path(options["data_dir"]) if options["data_dir"] else None
    sources = [
        data.source(name, folder, options["target"], options["positive"])
        for name in options["sets"]
    ]
    for what, given in (("method", names), ("data set", [source.name for source in sources])):
        twice = [name for name in given if given.count(name) > 1]
        if twice:
            raise ValueError(
                f"there are two {what}s {twice[0]!r}: leave one out, or rename one of two files"
            )
    protocol = compare.Protocol(
        options["protocol"], options["sample_size"], options["repeats"], options["prevalences"]
    )
    seeds = range(options["seed"], options["seed"] + options["seeds"])
    return [
        compare.Task(source, name, seed, protocol)
        for source in sources
        for seed in seeds
        for name in names
    ]


def describe(tasks: list[compare.Task], sample_size: int) -> dict[str, str]:
    """Facts about each data set, which are also printed."""
    facts = {}
    for source in dict.fromkeys(task.source for task in tasks):
        facts[source.name] = data.describe(source)
        held_out = int(data.TEST_SIZE * len(data.load(source).y))
        if sample_size > held_out:
            facts[source.name] += (
                f"; samples of {sample_size} rows are drawn from a test part of {held_out}, so that rows repeat "
                "(--sample-size sets another size)"
            )
        print(f"{source.name}: {facts[source.name]}", flush=True)
    return facts


def run_compare(options: dict) -> None:
    """Compute what is missing, then print the table and write the report."""
    tasks = comparison_tasks(options)
    facts = describe(tasks, options["sample_size"])
    out = Path(options["out"])
    out.mkdir(parents=True, exist_ok=True)
    if is_of_another_run(out / RUN_FILE, options):
        print(
            f"{out} holds another comparison: its cells are kept, its report is replaced. "
            "Use --out to keep both reports"
        )
    run = {"options": options, "facts": facts, "files": compare.file_names(tasks, out / "cells")}
    (out / RUN_FILE).write_text(json.dumps(run, indent=1), encoding="utf-8")
    with on_dask(options["dask"]):
        cells = compare.run(tasks, out / "cells", options["jobs"], options["retry"])
    finish(run, cells, out)


def is_of_another_run(path: Path, options: dict) -> bool:
    """Whether a folder's run compares other things, or compares them otherwise."""
    names = ("sets", "methods", "target", "positive", "protocol", "sample_size", "repeats")
    names += ("prevalences", "metrics", "seed", "seeds")
    try:
        past = json.loads(path.read_text(encoding="utf-8"))["options"]
        return any(past.get(name) != options[name] for name in names)
    except (OSError, ValueError, LookupError, TypeError):
        return False


def finish(run: dict, cells: list, out: Path) -> None:
    """Print the table of each metric, write the report and say where it is."""
    options = run["options"]
    for metric in options["metrics"]:
        print(f"\n{metric} under {options['protocol']}")
        print(text_table(cells, metric, options["sample_size"]))
    missing = len(run["files"]) - len(cells)
    setting = {
        "Protocol": f"{options['protocol']}, samples of {options['sample_size']} rows",
        "Samples": f"{options['repeats']} per prevalence, {options['prevalences']} prevalences"
        if options["protocol"] == "APP"
        else str(options["repeats"]),
        "Splits": f"{options['seeds']}, 70 % for training, from seed {options['seed']}",
        **({"Finished": f"{len(cells)} of {len(run['files'])} cells"} if missing else {}),
        **{f"Data: {name}": fact for name, fact in run["facts"].items()},
    }
    path = write_report(
        cells,
        out,
        title="Quantifiers compared",
        setting=setting,
        command=options["line"],
        metrics=options["metrics"],
        sample_size=options["sample_size"],
    )
    if missing:
        print(f"\n{missing} of {len(run['files'])} cells are not finished")
    failed = sum(bool(cell.error) for cell in cells)
    if failed:
        print(f"\n{failed} of {len(cells)} cells failed; the report says how, --retry tries again")
    print(f"\nReport: {path}")
    if failed == len(cells):
        raise ValueError("every cell failed")


def run_report(options: dict) -> None:
    """The report of what a comparison has finished so far; the data need not be there any more."""
    folder = options["folder"]
    path = folder / RUN_FILE
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        cells = compare.finished(run["files"], folder / "cells")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder} holds no {RUN_FILE}: name the folder that compare wrote to"
        ) from None
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is broken: run the comparison again ({error!r})") from error
    if not cells:
        raise ValueError(f"no cell in {folder} is finished yet")
    finish(run, cells, folder)


def run_reproduce(options: dict) -> None:
    """Run figures, judge claims, write the page."""
    at_least(options, 1, "seeds", "passes")
    figures = list(reproduce.FIGURES) if "all" in options["figures"] else options["figures"]
    out = Path(options["out"])
    found = reproduce.run(
        figures,
        lambda name: data.source(name, options["data_dir"]),
        out / "pieces",
        seeds=options["seeds"],
        passes=options["passes"],
        jobs=options["jobs"],
    )
    found = {figure: records for figure, records in found.items() if records}
    if not found:
        raise FileNotFoundError("none of the data sets is here; see `python -m experiments data`")
    claims = reproduce.claims(found)
    for claim in claims:
        print(f"{claim.figure} {claim.verdict.upper():14} {claim.text}")
    pictures = {figure: reproduce.draw(figure, records) for figure, records in found.items()}
    names = dict.fromkeys(name for records in found.values() for name, _ in records)
    facts = {name: data.describe(data.source(name, options["data_dir"])) for name in names}
    path = reproduce.write_page(claims, pictures, facts, out, options["seeds"], options["line"])
    print(f"\nReport: {path}")


def run_data(options: dict) -> None:
    """List known sets, or fetch some."""
    if options["action"] == "fetch":
        if not options["names"]:
            raise ValueError("name what to fetch: python -m experiments data fetch NAME")
        for name in options["names"]:
            print(f"{name}: {data.fetch(name)}")
        return
    print(f"embedded: {', '.join(data.EMBEDDED)}")
    print(f"{'name':22} {'rows x features':17} {'positives':10} {'here?':6} comes from")
    for known in data.known_sets():
        here = data.find(known.name, options["data_dir"])
        origin = known.manual or (
            f"data fetch {known.name} (OpenML {known.openml[0]})"
            if known.openml
            else f"data fetch {known.name} (QuaPy)"
        )
        place = str(here) if here else origin
        print(
            f"{known.name:22} {known.size:17} {known.positives:10} {'yes' if here else 'no':6} {place}"
        )
    print(
        f"looked for in: {', '.join(str(folder) for folder in data.folders(options['data_dir']))}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Run a command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = vars(parser().parse_args(arguments))
    options["line"] = f"python -m experiments {shlex.join(arguments)}"
    if options["command"] == "compare":
        # Plain JSON, so that the report can be written again.
        for name in ("out", "data_dir"):
            options[name] = str(options[name]) if options[name] else None
    commands = {
        "compare": run_compare,
        "reproduce": run_reproduce,
        "report": run_report,
        "data": run_data,
    }
    with plain_errors():
        commands[options["command"]](options)


if __name__ == "__main__":
    main()
