"""Each function here runs a command of ``python -m experiments``, once their arguments are checked."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from experiments import catalogue, compare, data, methods, presets, reproduce
from experiments.names import COMPILED, FIGURES, PRESETS, REPORTS, parse_method
from experiments.origin import summary
from experiments.report import aligned, text_table, write_report
from experiments.stats import distinct
from experiments.store import Cell, on_dask, replacing

RUN_FILE = "run.json"
#: The options that tell one comparison from another.
COMPARED = (
    *("sets", "methods", "target", "positive", "protocol", "sample_size", "repeats"),
    *("prevalences", "alpha", "metrics", "seed", "seeds"),
    *("split", "test_size", "train_rows", "separator", "decimal", "encoding", "sheet", "quapy"),
)


def describe(dataset: catalogue.DataSet, options: dict) -> str:
    """Return facts about a data set, and what is special about the comparison on it."""
    facts, loaded, size = [data.describe(dataset)], data.load(dataset), options["sample_size"]
    held_out = data.held_out(dataset)
    if held_out is not None and size > held_out:
        facts.append(
            f"samples of {size} rows are drawn from a test part of {held_out}, so that rows repeat "
            "(--sample-size sets another size)"
        )
    if held_out is None:
        facts.append(f"relative errors are smoothed for samples of {size} rows (--sample-size)")
    n_classes = len(loaded.classes)
    if held_out is not None and options["protocol"] is None and n_classes > 2:
        drawn = compare.Protocol.chosen(options, n_classes).describe(n_classes)
        facts.append(
            f"{drawn}, because APP's grid grows with the classes (--protocol sets another)"
        )
    suited = methods.suited(options["methods"], n_classes)
    if left_out := [name for name in options["methods"] if name not in suited]:
        facts.append(f"left out: {', '.join(left_out)}, for two classes only")
    return "; ".join(facts)


def aggregations(options: dict) -> str:
    """Return in words whose code aggregates, if there is a choice; the text is empty otherwise."""
    used = distinct(parse_method(name).aggregation for name in options["methods"])
    if not (named := ", ".join(name for name in used if name in COMPILED)):
        return ""
    if options.get("quapy"):
        return f"QuaPy's own code ({named})"
    return f"compiled, with QuaPy's estimates ({named}); --quapy runs QuaPy's own code"


def plan(dataset: catalogue.DataSet, options: dict) -> list[compare.Task]:
    """Return the tasks on a data set; refuse a comparison that cannot be made on it."""
    n_classes = len(data.load(dataset).classes)
    suited = methods.suited(options["methods"], n_classes)
    if not suited:
        raise ValueError(
            f"{dataset.name} has {n_classes} classes, and {', '.join(options['methods'])} can only tell two apart: "
            "name another method, as ACC or NEMSIS:q, or one class with --positive, against all others"
        )
    protocol = compare.Protocol.of(data.load(dataset), options)
    protocol.check(n_classes)
    seeds = range(options["seed"], options["seed"] + options["seeds"])
    quapy = bool(options["quapy"])
    return [compare.Task(dataset, name, seed, protocol, quapy) for seed in seeds for name in suited]


def run_compare(options: dict) -> list[Cell]:
    """Compute what is missing, then print the table and write the report; return the finished cells."""
    for name in options["methods"]:
        methods.method(name)  # which refuses unknown measures, before data are read
    datasets, out = options["located"], options["out"]
    tasks = [task for dataset in datasets for task in plan(dataset, options)]
    facts = {dataset.name: describe(dataset, options) for dataset in datasets}
    for name, fact in facts.items():
        print(f"{name}: {fact}", flush=True)
    if text := aggregations(options):
        print(f"aggregations: {text}", flush=True)
    for dataset in datasets:
        if columns := data.columns_text(dataset):
            print(f"\ncolumns of {dataset.name}\n{columns}", flush=True)
    # Plain JSON, so that the report can be written again.
    kept = {name: options[name] for name in (*COMPARED, "line")}
    if is_of_another_run(out / RUN_FILE, kept):
        print(
            f"{out} holds another comparison: its cells are kept, its report is replaced. "
            "Use --out to keep both reports"
        )
    run = {"options": kept, "facts": facts, "files": compare.file_names(tasks, out / "cells")}
    bags = {task.dataset.name: task.protocol for task in tasks if task.protocol.name == "bags"}
    run["bags"] = {name: protocol.describe(0) for name, protocol in bags.items()}
    with replacing(out / RUN_FILE) as file:
        json.dump(run, file, indent=1)
    with on_dask(options["dask"]):
        part = compare.share_of(tasks, options["shard"])
        compare.run(part, out / "cells", options["jobs"], options["retry"])
    cells = compare.finished(run["files"], out / "cells")
    finish(run, cells, out, options["format"])
    return cells


def is_of_another_run(path: Path, options: dict) -> bool:
    """Tell whether a folder's run compares other things, or compares them otherwise."""
    try:
        past = json.loads(path.read_text(encoding="utf-8"))["options"]
        return any(past.get(name) != options[name] for name in COMPARED)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def finish(run: dict, cells: list[Cell], out: Path, formats: list[str]) -> None:
    """Print the table of each metric, write the report and say where it is."""
    options = run["options"]
    protocols: dict[str, list[str]] = {}
    for name, n_classes in {cell.data: len(cell.classes) or 2 for cell in cells}.items():
        drawn = compare.Protocol.chosen(options, n_classes).describe(n_classes)
        drawn = run.get("bags", {}).get(name, drawn)
        protocols.setdefault(drawn, []).append(name)
    under = " and ".join(distinct(drawn.partition(",")[0] for drawn in protocols))
    for metric in options["metrics"]:
        print(f"\n{metric} under {under}")
        print(text_table(cells, metric, options["sample_size"]))
    missing = len(run["files"]) - len(cells)
    several = len(protocols) > 1
    setting = {
        **{
            f"Protocol on {', '.join(names)}" if several else "Protocol": drawn
            for drawn, names in protocols.items()
        },
        "Splits": splits(options),
        **({"Aggregations": text} if (text := aggregations(options)) else {}),
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
        provenance=summary(cell.origin for cell in cells),
        formats=formats,
    )
    if missing:
        print(f"\n{missing} of {len(run['files'])} cells are not finished")
    failed = sum(bool(cell.error) for cell in cells)
    if failed:
        print(
            f"\n{failed} of {len(cells)} cells failed; the report says how, --retry computes them anew"
        )
    print(f"\nReport: {path}")
    if failed == len(cells):
        raise ValueError("every cell failed")


def splits(options: dict) -> str:
    """Return in words how data sets were divided."""
    share = f"{100 - 100 * options.get('test_size', catalogue.TEST_SIZE):g} % for training"
    how = "by the fold of the file" if options.get("split") == "fold" else share
    if most := options.get("train_rows"):
        how += f", at most {most:,} rows"
    return f"{options['seeds']}, {how}, from seed {options['seed']}"


def read_run(folder: Path) -> tuple[dict, list[Cell]]:
    """Return what a folder says about its comparison, and the cells that are finished."""
    path = folder / RUN_FILE
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        return run, compare.finished(run["files"], folder / "cells")
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder} holds no {RUN_FILE}: name the folder that compare wrote to"
        ) from None
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"{path} is broken: run the comparison again ({error!r})") from error


def joined(folders: list[Path]) -> tuple[dict, list[Cell]]:
    """Return several comparisons as one; refuse those that were not made in the same way on the same rows.

    If two have a cell in common, the first one's is taken.
    """
    runs, parts = zip(*(read_run(folder) for folder in folders), strict=True)
    first = runs[0]["options"]
    for folder, run in zip(folders, runs, strict=True):
        for name in set(COMPARED) - {"sets", "methods", "target", "positive"}:
            if run["options"].get(name) != first.get(name):
                flag, values = name.replace("_", "-"), (run["options"].get(name), first.get(name))
                raise ValueError(
                    f"{folder} was computed with --{flag} {values[0]}, {folders[0]} with {values[1]}: join what was "
                    "computed in the same way"
                )
    cells: dict[tuple, Cell] = {}
    digests: dict[str, str] = {}
    for cell in (cell for part in parts for cell in part):
        cells.setdefault((cell.data, cell.method, cell.seed), cell)
        digest = cell.origin.get(f"sha256 of {cell.data}", "")
        if digests.setdefault(cell.data, digest) != digest:
            raise ValueError(
                f"the rows of {cell.data} are not the same in all folders: compute one anew"
            )
    options = {**first, "line": "; ".join(distinct(run["options"]["line"] for run in runs))}
    for name in ("sets", "methods"):
        options[name] = distinct(value for run in runs for value in run["options"][name])
    run = {"options": options, "facts": {}, "bags": {}, "files": []}
    for one in runs:
        run["facts"] |= one["facts"]
        run["bags"] |= one.get("bags", {})
        run["files"] += one["files"]
    order = {name: place for place, name in enumerate(options["methods"])}
    found = sorted(
        cells.values(),
        key=lambda cell: (options["sets"].index(cell.data), cell.seed, order[cell.method]),
    )
    run["files"] = distinct(run["files"])
    return run, found


def run_report(options: dict) -> None:
    """Write the report of what comparisons have finished so far; the data need not be there any more."""
    folders = options["folders"]
    out = options["out"] or folders[0]
    run, cells = read_run(folders[0]) if len(folders) == 1 else joined(folders)
    if not cells:
        raise ValueError(f"no cell in {', '.join(map(str, folders))} is finished yet")
    finish(run, cells, out, options["format"])


def run_preset(preset: str, options: dict) -> None:
    """Run an experiment of the literature as a comparison, and print published figures beside ours."""
    datasets, missing = presets.data_sets(preset, options["data_dir"])
    if missing:
        print(f"left out, because they are not here: {', '.join(missing)}", flush=True)
    if not datasets:
        raise FileNotFoundError(
            f"none of the data sets of {preset} is here; `python -m experiments data` says where they come from"
        )
    kept = {name: options[name] for name in ("methods", "seeds", "jobs", "line")}
    alone = {
        "format": REPORTS,
        "dask": None,
        "retry": False,
        "shard": (1, 1),
        "out": options["out"] / preset,
    }
    unused = {name: None for name in COMPARED}
    given = {**unused, **presets.options(preset, datasets, **kept, **alone)}
    cells = run_compare(given)
    print(
        "\n".join(
            ["", "mean absolute error, ours and published", *aligned(presets.table(preset, cells))]
        )
    )


def run_reproduce(options: dict) -> None:
    """Run figures, judge claims, write the page; or run a preset."""
    if options["figures"][0] in PRESETS:
        run_preset(options["figures"][0], options)
        return
    figures = list(FIGURES) if "all" in options["figures"] else options["figures"]
    located = {}

    def locate(name: str) -> catalogue.DataSet:
        located[name] = catalogue.locate(name, options["data_dir"])
        return located[name]

    sizes = {name: options[name] for name in ("seeds", "passes", "jobs")}
    found = reproduce.run(figures, locate, options["out"] / "pieces", **sizes)
    if not located:
        raise FileNotFoundError("none of the data sets is here; see `python -m experiments data`")
    if not found:
        raise ValueError("every piece failed")
    claims = reproduce.claims(found)
    for claim in claims:
        print(f"{claim.figure} {claim.verdict.upper():14} {claim.text}")
    pictures = {figure: reproduce.draw(figure, records) for figure, records in found.items()}
    facts = {name: data.describe(dataset) for name, dataset in located.items()}
    line, seeds = options["line"], options["seeds"]
    path = reproduce.write_claims(claims, pictures, facts, options["out"], seeds, line)
    print(f"\nReport: {path}")


def run_data(options: dict) -> None:
    """List known sets, or fetch some."""
    if options["action"] == "fetch":
        for name in options["names"]:
            print(f"{name}: {data.fetch(name)}")
        return
    print(f"embedded: {', '.join(catalogue.EMBEDDED)}")
    print(f"{'name':23} {'rows x features':17} {'positives':10} {'here?':6} comes from")
    for known in catalogue.known_sets().values():
        here = catalogue.find(known.name, options["data_dir"])
        origin = f"OpenML {known.openml[0]}" if known.openml else "QuaPy"
        place = here or known.manual or f"data fetch {known.name} ({origin})"
        facts = f"{known.name:23} {known.size:17} {known.positives:10}"
        print(f"{facts} {'yes' if here else 'no':6} {place}")
    places = ", ".join(str(folder) for folder in catalogue.folders(options["data_dir"]))
    print(f"looked for in: {places}")


COMMANDS = {
    "compare": run_compare,
    "reproduce": run_reproduce,
    "report": run_report,
    "data": run_data,
}
