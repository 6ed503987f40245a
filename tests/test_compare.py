"""`python -m experiments`: the real thing, small."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from quapy.functional import num_prevalence_combinations
from sklearn.datasets import load_wine

from experiments import __main__ as command
from experiments import catalogue, compare, data, methods, names, reproduce
from experiments.errors import plain_errors
from experiments.reproduce import pieces
from experiments.reproduce.claims import settled
from experiments.store import Cell, Store, compute, replacing
from quapy_nemsis.tables import reading
from tests.conftest import ROOT, make_points

# Small samples, and a report that needs no figures.
SMALL = [
    *("--repeats", "2", "--prevalences", "5", "--sample-size", "50", "--seeds", "1"),
    *("--selection", "plain", "--format", "csv"),
]
PAGE = ["--format", "html", "md", "csv"]


def run(*arguments):
    command.main([str(argument) for argument in arguments])


def run_compare(out, *methods, sets=("breast_cancer",), options=()):
    run("compare", "--sets", *sets, "--methods", *methods, *SMALL, "--out", out, *options)


def cell_times(folder):
    """When each cell of a comparison was written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("cells/*.json")}


def results(folder):
    """The cells of a comparison by data, method (without "plain") and seed."""
    found = compare.finished([path.name for path in cell_times(folder)], folder / "cells")
    return {(cell.data, cell.method.removesuffix(" (plain)"), cell.seed): cell for cell in found}


# --------------------------------------------------------------------- store


def test_records_are_whole_or_not_there(tmp_path):
    store = Store(tmp_path)
    key = {"data": "a/b", "method": "ACC(LR)", "seed": 3}
    assert store.load(key) is None
    shares = np.array([[0.1, 0.9, 0.0], [1 / 3, 1 / 3, 1 / 3]]), np.full((2, 3), 0.3), np.ones(3)
    cell = Cell("a/b", "ACC(LR)", 3, ["x", "y", "z"], *shares, 1.0, 2.0)
    store.save(key, cell.record())
    again = Cell.from_record(store.load(key))
    for name in ("true", "estimated", "train_prevalence"):
        np.testing.assert_array_equal(getattr(again, name), getattr(cell, name))
    assert (again.method, again.fit_seconds, again.error) == ("ACC(LR)", 1.0, "")
    assert again.classes == ["x", "y", "z"]
    assert store.load({**key, "seed": 4}) is None
    # A broken file is as good as none, and a failed write leaves nothing behind.
    for content in ('{"data": "a', "[]", "{}", '{"key": {}, "record": {}}'):
        store.path(key).write_text(content)
        assert store.load(key) is None
    with pytest.raises(TypeError):
        store.save(key, {"value": object()})
    with pytest.raises(TypeError), replacing(store.path(key)) as file:
        file.writelines(["new", None])
    assert store.path(key).read_text() == content
    assert list(tmp_path.iterdir()) == [store.path(key)]


def test_old_records_have_the_positive_class_only():
    old = {"data": "a", "method": "CC", "seed": 0, "true": [0.1, 0.5], "estimated": [0.2, 0.25]}
    cell = Cell.from_record({**old, "train_prevalence": 0.25, "error": ""})
    np.testing.assert_array_equal(cell.true, [[0.9, 0.1], [0.5, 0.5]])
    np.testing.assert_array_equal(cell.estimated, [[0.8, 0.2], [0.75, 0.25]])
    np.testing.assert_array_equal(cell.train_prevalence, [0.75, 0.25])
    assert cell.classes == ["negative", "positive"]
    failed = {**old, "true": [], "estimated": [], "train_prevalence": float("nan"), "error": "no"}
    assert Cell.from_record(failed).error == "no"


def test_what_is_finished_is_not_computed_again(tmp_path, capsys):
    done = []

    def square(number):
        done.append(number)
        return {"value": number**2, "error": "odd" if number % 2 else ""}

    work = (square, [0, 1, 2, 3], [{"number": number} for number in range(4)], tmp_path)
    first = compute(*work, what="squares")
    assert [record["value"] for record in first] == [0, 1, 4, 9]
    assert compute(*work, what="squares") == first
    assert done == [0, 1, 2, 3]
    compute(*work, what="squares", retry=True)
    assert done == [0, 1, 2, 3, 1, 3]
    printed = capsys.readouterr().out
    assert f"4 of 4 squares are reused from {tmp_path}: the same code and versions" in printed
    assert "s left] " in printed


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_cells_are_computed_anew_after_an_edit(tmp_path):
    for name in ("quapy_nemsis", "experiments"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    options = ["--sets", "breast_cancer", "--methods", "CC", "PCC", *SMALL, "--out", "out"]
    line = [sys.executable, "-m", "experiments", "compare", *options]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def go():
        ended = subprocess.run(
            line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return len(cell_times(tmp_path / "out")), "2 of 2 cells are reused" in ended.stdout

    def error():
        table = (tmp_path / "out" / "results.csv").read_text().splitlines()
        return table[1].split(",")[3]

    assert go() == (2, False)
    before = error()
    edit(tmp_path / "experiments" / "report.py", "lower is better", "smaller is better")
    assert go() == (2, True)
    edit(tmp_path / "experiments" / "tuned.py", "C: float = 1.0", "C: float = 1e-4")
    assert go() == (4, False)
    assert error() != before
    modules = (tmp_path / "quapy_nemsis").rglob("*.py")
    with max(modules, key=lambda path: path.stat().st_size).open("a") as file:
        file.write("\nHALF = 0.5\n")
    assert go() == (6, False)


def test_a_task_is_filed_under_all_that_determines_it(monkeypatch):
    def key(name="digits", **options):
        task = compare.Task(catalogue.DataSet(name), "CC", 0, compare.Protocol(**options))
        return json.dumps(compare.keys([task]))

    first = key()
    assert first == key() != key(repeats=26)
    assert first != key("breast_cancer")
    for package in ("numpy", "scikit-learn", "scipy", "numba", "quapy", "quapy-nemsis"):
        assert f'"{package}": ' in first
    monkeypatch.setattr("importlib.metadata.version", lambda package: "99.0")
    assert first != key()


def test_which_code_aggregates_is_part_of_the_key_and_of_the_report(tmp_path, capsys):
    def key(name, quapy):
        task = compare.Task(catalogue.DataSet("digits"), name, 0, compare.Protocol(), quapy)
        return compare.keys([task])

    for name in names.COMPILED:
        assert key(name, True) != key(name, False)
    for name in ("CC", "DMy", "Quantifier", "NEMSIS:q"):
        assert key(name, True) == key(name, False)
    found = {}
    for options in ((), ("--quapy",)):
        run_compare(tmp_path, "ACC", "EMQ", "CC", options=[*options, "--format", "md"])
        found[options] = capsys.readouterr().out
        (path,) = tmp_path.glob("report.md")
        module = "quapy.method.aggregative" if options else "quapy_nemsis.aggregation.adjusting"
        assert f"{module}.ACC" in path.read_text().replace("\\_", "_")
    assert "compiled, with QuaPy's estimates (ACC, EMQ); --quapy runs" in found[()]
    assert "aggregations: QuaPy's own code (ACC, EMQ)" in found["--quapy",]
    assert "1 of 3 cells are reused" in found["--quapy",]  # CC has one code
    cells = compare.finished([path.name for path in cell_times(tmp_path)], tmp_path / "cells")
    for name in ("ACC", "EMQ"):
        ours, theirs = (cell for cell in cells if cell.method == f"{name} (plain)")
        np.testing.assert_array_equal(ours.true, theirs.true)
        np.testing.assert_allclose(ours.estimated, theirs.estimated, atol=1e-3)


# --------------------------------------------------------------------- methods and data


@pytest.mark.parametrize("name", names.ALL)
def test_methods_of_every_name(name):
    X, y = make_points(n=300, noise=0.5)
    quantifier = methods.method(name)(0)
    found = quantifier.fit(X, y.astype(int)).predict(X)
    assert abs(found[1] - y.mean()) < 0.15


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, "unknown method") for name in ("XYZ", "ACC(XYZ)", "CAN-surrogate:q")),
        ("LR:q", "the module of 'LR:q' cannot be imported"),
        ("numpy:nothing", "the module 'numpy' has no 'nothing'"),
        ("ACC(numpy:pi)", "'numpy:pi' is 3.14.*: give a class"),
        ("ACC(NEMSIS:q", "not closed"),
        *((name, "unknown") for name in ("NEMSIS:nothing", "SVM(nothing)", "1PMB:nothing")),
        ("NEMSIS:cq", "is pseudo-concave: use SCAN"),
        ("SCAN:q", "is nested concave: use NEMSIS"),
        ("CAN:cqb", "for evaluation only"),
    ],
)
def test_unknown_methods(name, message):
    with pytest.raises(ValueError, match=message):
        methods.method(name)


def test_a_data_set_of_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(catalogue.FOLDER_VARIABLE, raising=False)
    X, y = make_points(n=50)
    np.savez(tmp_path / "toy.npz", X=X, y=np.where(y, 1, -1))
    assert catalogue.locate("toy", tmp_path).path == tmp_path / "toy.npz"
    assert catalogue.locate(str(tmp_path / "toy.npz")).name == "toy"
    with pytest.raises(FileNotFoundError, match="no data set 'toy'"):
        catalogue.locate("toy")
    monkeypatch.setenv(catalogue.FOLDER_VARIABLE, str(tmp_path))
    assert catalogue.locate("toy").path == tmp_path / "toy.npz"
    assert catalogue.locate("drift").path is None
    X, y, _, y_test = data.prepare(catalogue.locate("toy"), seed=0)
    assert (len(y), len(y_test)) == (35, 15)
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-6)
    assert set(y) == {0, 1}


def test_every_file_is_read_once(tmp_path, monkeypatch):
    read = []

    def counted(path, *options):
        read.append(path.name)
        return load_file(path, *options)

    load_file = reading.load_file
    monkeypatch.setattr(data, "load_file", counted)
    for name in "abcd":
        X, y = make_points(n=200, seed=ord(name))
        np.savez(tmp_path / f"{name}.npz", X=X, y=y)
    sets = [tmp_path / f"{name}.npz" for name in "abcd"]
    run_compare(tmp_path / "out", "CC", sets=sets, options=["--seeds", 2])
    assert read == ["a.npz", "b.npz", "c.npz", "d.npz"]


@pytest.mark.parametrize(
    ("values", "density", "weighted"),
    [
        ([1, 2, 7], 0.02, True),
        ([1], 0.02, False),  # 0/1 indicators, as in adult and w8a
        ([1, 2, 7], 0.3, False),  # whole numbers in a sparse format
        ([1, 2.5], 0.02, False),
        ([1, -2], 0.02, False),
    ],
)
def test_term_counts_are_told_by_what_they_are(tmp_path, values, density, weighted):
    rng = np.random.default_rng(0)
    places = np.nonzero(rng.random((400, 100)) < density)
    numbers = rng.choice(np.array(values, dtype=float), size=len(places[0]))
    X = scipy.sparse.csr_matrix((numbers, places), shape=(400, 100))
    parts = {name: getattr(X, name) for name in ("data", "indices", "indptr", "shape")}
    for name in ("imdb", "other"):  # whatever the file is called
        np.savez(tmp_path / f"{name}.npz", y=rng.random(400) < 0.5, **parts)
        dataset = catalogue.locate(name, tmp_path)
        prepared = data.prepare(dataset, seed=0)[0]
        assert scipy.sparse.issparse(prepared) == weighted
        assert ("term counts, weighted by tf-idf" in data.describe(dataset)) == weighted
        if weighted:
            lengths = np.asarray(prepared.multiply(prepared).sum(axis=1)).ravel()
            np.testing.assert_allclose(lengths[lengths > 0], 1.0)


def test_a_file_named_like_a_text_collection(tmp_path):
    path = write_csv(tmp_path / "imdb.csv")
    X, *_ = data.prepare(catalogue.locate(str(path), target="outcome"), seed=0)
    np.testing.assert_allclose(X[:, :2].mean(axis=0), 0.0, atol=1e-9)


def test_text_collections_are_weighted_as_before(data_dir):
    kinds = {"imdb": True, "sms-spam": True, "mr-polarity": True, "adult": False, "w8a": False}
    for name, weighted in kinds.items():
        prepared = data.prepare(catalogue.locate(name, data_dir), seed=0)[0]
        assert scipy.sparse.issparse(prepared) == weighted, name


# ----------------------------------------------------------------------- compare


def test_compare_and_its_report(tmp_path, capsys):
    run_compare(tmp_path, "CC", "NEMSIS:q", options=["--seeds", 2, *PAGE])
    printed = capsys.readouterr().out
    assert "mae under APP" in printed
    assert str(tmp_path / "report.html") in printed
    found = results(tmp_path)
    assert len(found) == 4
    cell = found["breast_cancer", "CC", 0]
    assert (len(cell.true), cell.error) == (10, "")
    assert np.abs(cell.true - cell.estimated).mean() < 0.1
    assert "NEMSIS:q" in (tmp_path / "report.html").read_text()
    # The report can be written again, without computing anything.
    (tmp_path / "report.html").unlink()
    before = cell_times(tmp_path)
    run("report", tmp_path)
    assert (tmp_path / "report.html").is_file()
    assert before == cell_times(tmp_path)
    assert "not finished" not in capsys.readouterr().out
    # And of a run that is not finished, which it says.
    next(iter(before)).unlink()
    run("report", tmp_path)
    assert "1 of 4 cells are not finished" in capsys.readouterr().out
    assert "3 of 4 cells" in (tmp_path / "report.html").read_text()
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"run\.json is broken: run the comparison again"):
        run("report", tmp_path)


def test_one_report_of_several_folders(tmp_path, capsys):
    """It is that of a comparison of all methods; what was computed otherwise is refused."""
    folders = [tmp_path / name for name in ("first", "second", "other", "both")]
    run_compare(folders[0], "CC", "ACC")
    run_compare(folders[1], "ACC", "PCC")
    run_compare(folders[2], "PCC", options=["--train-rows", 100])
    run_compare(folders[3], "CC", "ACC", "PCC")
    capsys.readouterr()
    run("report", folders[3], "--format", "csv")
    expected = capsys.readouterr().out
    joined = tmp_path / "joined"
    run("report", *folders[:2], "--out", joined, "--format", "csv")
    found = capsys.readouterr().out
    assert found.replace(str(joined), str(folders[3])) == expected
    with pytest.raises(
        SystemExit, match=r"other was computed with --train-rows 100, .*first with None"
    ):
        run("report", folders[0], folders[2])
    cell = next((folders[1] / "cells").glob("*PCC*"))
    record = json.loads(cell.read_text())
    record["record"]["origin"]["sha256 of breast_cancer"] = "0" * 64
    cell.write_text(json.dumps(record))
    with pytest.raises(SystemExit, match="the rows of breast_cancer are not the same"):
        run("report", *folders[:2])


def test_training_rows_can_be_limited():
    whole = catalogue.locate("breast_cancer", None)
    X, y, _, y_test = data.split(whole, 3)
    few = data.split(dataclasses.replace(whole, train_rows=100), 3)
    assert few[0].shape == (100, X.shape[1])
    assert few[1].mean() == pytest.approx(y.mean(), abs=0.01)
    np.testing.assert_array_equal(few[3], y_test)
    many = data.split(dataclasses.replace(whole, train_rows=len(y)), 3)
    np.testing.assert_array_equal(many[0], X)


def test_what_a_user_is_told_beforehand(tmp_path, capsys):
    run_compare(tmp_path, "CC")
    run_compare(tmp_path, "CC", options=["--jobs", 2])
    printed = capsys.readouterr().out
    assert "rows repeat" not in printed
    assert "another comparison" not in printed
    run_compare(tmp_path, "CC", options=["--sample-size", 200])
    printed = capsys.readouterr().out
    assert "samples of 200 rows are drawn from a test part of 170, so that rows repeat" in printed
    assert f"{tmp_path} holds another comparison: its cells are kept" in printed


def test_numbers_do_not_depend_on_jobs(tmp_path):
    for jobs in ("1", "2"):
        learners = ("ACC", "NEMSIS:q", "EMQ(NEMSIS:ba)", "1PMB:kld")
        run_compare(tmp_path / jobs, *learners, options=["--jobs", jobs])
    first, second = results(tmp_path / "1"), results(tmp_path / "2")
    assert first.keys() == second.keys()
    for key, cell in first.items():
        assert cell.error == ""
        np.testing.assert_array_equal(cell.estimated, second[key].estimated)
        np.testing.assert_array_equal(cell.true, second[key].true)


def test_a_killed_run_goes_on(tmp_path):
    arguments = ["compare", "--sets", "breast_cancer", "digits", "--methods", "CC", "ACC"]
    arguments += ["NEMSIS:q", "NEMSIS:kld", *SMALL, "--seeds", "3"]
    killed = tmp_path / "killed"
    line = [sys.executable, "-m", "experiments", *arguments, "--out", str(killed)]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(cell_times(killed)) < 3:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = cell_times(killed)
    assert 3 <= len(before) < 24
    run(*arguments, "--out", killed)
    after = cell_times(killed)
    assert len(after) == 24
    assert before.items() <= after.items()  # what was finished is not computed again
    run(*arguments, "--out", tmp_path / "whole")
    first, second = results(killed), results(tmp_path / "whole")
    for key, cell in second.items():
        np.testing.assert_array_equal(first[key].estimated, cell.estimated)


def test_a_method_that_fails_stops_nothing(tmp_path, monkeypatch, capsys):
    real = methods.method

    def broken(name, quapy=False):
        def build(seed):
            raise ZeroDivisionError("no <luck>")

        return build if name == "ACC (plain)" else real(name, quapy)

    monkeypatch.setattr(methods, "method", broken)
    run_compare(tmp_path, "CC", "ACC", options=PAGE)
    assert "ZeroDivisionError: no <luck>" in capsys.readouterr().out
    assert "no &lt;luck&gt;" in (tmp_path / "report.html").read_text()
    assert results(tmp_path)["breast_cancer", "CC", 0].error == ""
    monkeypatch.undo()
    for options, failed in (([], True), (["--retry"], False)):
        run_compare(tmp_path, "CC", "ACC", options=options)
        assert bool(results(tmp_path)["breast_cancer", "ACC", 0].error) == failed


@pytest.mark.parametrize("protocol", ["NPP", "UPP"])
def test_other_protocols(tmp_path, protocol):
    options = ["--protocol", protocol, "--repeats", 7, "--metrics", "mkld"]
    run_compare(tmp_path, "CC", options=options)
    assert len(results(tmp_path)["breast_cancer", "CC", 0].true) == 7


def write_csv(path, columns="", tail=""):
    """A file of two numbers, a colour with gaps, and an outcome; the tail may name the row as {i}."""
    X, y = make_points(n=400, noise=0.5)
    lines = [f"a,b,colour,outcome{columns}"]
    for i, (row, label) in enumerate(zip(X, y, strict=True)):
        colour = ("red", "green", "")[i % 3]
        values = f"{row[0]:.4f},{row[1]:.4f},{colour},{'yes' if label else 'no'}"
        lines.append(values + tail.format(i=i))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_users_file(tmp_path, capsys):
    path = write_csv(tmp_path / "mine.v2.csv")
    out, options = tmp_path / "out", ["--target", "outcome", "--positive"]
    run_compare(out, "CC", "NEMSIS:q", sets=[path], options=[*options, "yes", *PAGE])
    told = "400 rows, 3 features, 26.25 % positive (label yes); 133 missing values filled in, in 'colour'"
    assert told in capsys.readouterr().out
    assert told in (out / "report.md").read_text()
    cell = results(out)["mine.v2", "CC", 0]
    assert cell.error == ""
    assert np.abs(cell.true - cell.estimated).mean() < 0.2
    # With another label it is another comparison.
    run_compare(out, "CC", sets=[path], options=[*options, "no"])
    assert "reused" not in capsys.readouterr().out
    other = compare.finished(json.loads((out / "run.json").read_text())["files"], out / "cells")[0]
    assert (cell.classes, other.classes) == (["no", "yes"], ["yes", "no"])
    np.testing.assert_allclose(other.train_prevalence, cell.train_prevalence[::-1], atol=0.01)
    path.unlink()
    run("report", out)  # needs the cells only
    assert "mine.v2" in capsys.readouterr().out


def test_columns_that_are_not_used_are_named(tmp_path):
    path = write_csv(tmp_path / "mine.csv", ",same,name", ",x,n{i}")
    told = data.describe(catalogue.locate(str(path), target="outcome"))
    assert "not used because constant: 'same'; not used because all values differ: 'name'" in told


# ----------------------------------------------------------------------- several classes


def write_classes(path, n_classes=3, n=600, noise=1.0, **parts):
    """An npz file of Gaussian classes around the axes, with names, not equally frequent."""
    rng = np.random.default_rng(0)
    y = rng.choice(
        n_classes, size=n, p=np.arange(1, n_classes + 1) / np.arange(1, n_classes + 1).sum()
    )
    X = rng.normal(size=(n, n_classes + 1), scale=noise)
    X[np.arange(n), y] += 2.0
    np.savez(path, X=X, y=y, classes=np.array([f"c{k}" for k in range(n_classes)]), **parts)
    return path


def test_compare_several_classes(tmp_path, capsys):
    path = write_classes(tmp_path / "three.npz")
    out, options = tmp_path / "out", ["--metrics", "mae"]
    binary = ("HDy", "SVM(KLD)", "ACC(1PMB:kld)")
    run_compare(out, "CC", "EMQ", *binary, sets=[path, "breast_cancer"], options=[*options, *PAGE])
    printed = capsys.readouterr().out
    three, two = (
        line for line in printed.splitlines() if " rows, " in line and " features" in line
    )
    assert three.startswith("three: 600 rows, 4 features, 3 classes: c0 (")
    assert "UPP, 10 samples of 50 rows, because APP's grid grows with the classes" in three
    assert "left out: HDy (plain), SVM(KLD) (plain), ACC(1PMB:kld), for two classes only" in three
    assert "UPP" not in two
    assert "left out" not in two
    assert "mae under UPP and APP" in printed
    found = results(out)
    assert sum(data == "three" for data, *_ in found) == 2
    for method in ("CC", "EMQ"):
        cell = found["three", method, 0]
        assert (cell.error, cell.classes) == ("", ["c0", "c1", "c2"])
        assert cell.true.shape == cell.estimated.shape == (10, 3)
        for shares in (cell.true, cell.estimated, cell.train_prevalence):
            np.testing.assert_allclose(shares.sum(axis=-1), 1.0)
        assert np.abs(cell.true - cell.estimated).mean() < 0.1
        assert found["breast_cancer", method, 0].true.shape == (10, 2)
    page = (out / "report.html").read_text()
    for words in (
        "Protocol on three",
        "APP, 2 samples of 50 rows at each of 5 prevalences",
        "c2 (",
    ):
        assert words in page
    rows = pd.read_csv(out / "samples.csv")
    assert set(rows[rows["data"] == "three"]["class"]) == {"c0", "c1", "c2"}
    assert set(rows[rows["data"] == "breast_cancer"]["class"]) == {"malignant"}
    run("report", out)  # says the same again
    assert "mae under UPP and APP" in capsys.readouterr().out
    # One class against the rest is a set of two.
    run_compare(out, "HDy", sets=[path], options=["--positive", "c1", *options])
    assert results(out)["three", "HDy", 0].classes == ["not c1", "c1"]


def test_numbers_of_several_classes_do_not_depend_on_jobs(tmp_path):
    path = write_classes(tmp_path / "four.npz", 4)
    for jobs in ("1", "2"):
        learners = ("ACC", "EMQ", "KDEy", "DMy")
        run_compare(tmp_path / jobs, *learners, sets=[path], options=["--jobs", jobs])
    second = results(tmp_path / "2")
    for key, cell in results(tmp_path / "1").items():
        assert cell.error == ""
        np.testing.assert_array_equal(cell.estimated, second[key].estimated)


@pytest.mark.parametrize(
    ("options", "samples", "told"),
    [
        ([], 10, "UPP, 10 samples of 50 rows"),
        (["--protocol", "APP"], 30, "APP, 2 samples of 50 rows at each of 15 prevalences"),
        (["--protocol", "UPP"], 2, "UPP, 2 samples of 50 rows"),
        (["--protocol", "NPP"], 2, "NPP, 2 samples of 50 rows"),
        (["--protocol", "Dirichlet"], 2, "Dirichlet (0.5), 2 samples of 50 rows"),
        (["--protocol", "Dirichlet", "--alpha", 0.1], 2, "Dirichlet (0.1), 2 samples"),
    ],
)
def test_protocols_of_three_classes(tmp_path, options, samples, told):
    path = write_classes(tmp_path / "three.npz")
    run_compare(tmp_path, "CC", sets=[path], options=[*options, "--format", "html"])
    assert results(tmp_path)["three", "CC", 0].true.shape == (samples, 3)
    assert told in (tmp_path / "report.html").read_text()


def test_dirichlet_favours_few_classes():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, size=1000)
    collection = compare.qp.data.LabelledCollection(rng.normal(size=(1000, 2)), labels)
    largest = []
    for alpha in (0.1, 1.0, 10.0):
        protocol = compare.Protocol("Dirichlet", repeats=200, alpha=alpha)
        drawn = protocol.on(collection, seed=0)
        largest.append(np.mean([prevalence.max() for _, prevalence in drawn()]))
    assert largest[0] > largest[1] + 0.1 > largest[2] + 0.2


def test_the_grid_of_app_may_be_too_large(tmp_path):
    compare.Protocol(n_prevalences=21, repeats=25).check(3)
    for n_classes in (2, 3, 7):
        assert compare.Protocol().points(n_classes) == num_prevalence_combinations(21, n_classes)
    for n_classes, n_prevalences in ((5, 21), (20, 3), (5000, 1001)):
        with pytest.raises(ValueError, match=rf"{n_classes} classes, 25 times, draws more .*UPP"):
            compare.Protocol(n_prevalences=n_prevalences).check(n_classes)
        compare.Protocol("UPP").check(n_classes)
    path = write_classes(tmp_path / "ten.npz", 10)
    with pytest.raises(SystemExit, match=r"10 classes, 25 times, .*choose --protocol UPP"):
        run("compare", "--sets", path, "--protocol", "APP", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_aggregation_that_an_old_quapy_lacks(monkeypatch):
    monkeypatch.delattr(methods.aggregative, "BBSEsoft")
    for use in (methods.method, methods.is_binary):
        with pytest.raises(ValueError, match="QuaPy has no BBSEsoft: update it"):
            use("BBSEsoft(NEMSIS:q)")


def test_methods_for_two_classes():
    known = {"HDy", "DyS", "MS", "SVM(KLD)", "SVM(Q)", "1PMB:kld"}
    assert {name for name in names.ALL if methods.is_binary(name)} == known
    assert methods.suited(names.ALL, 2) == names.ALL
    assert methods.suited(["MS", "ACC", "ACC(SVM(Q))"], 3) == ["ACC"]


@pytest.mark.parametrize(
    "name", [name for name in names.AGGREGATIONS if not methods.is_binary(name)]
)
def test_aggregations_of_several_classes(name):
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    X = rng.normal(size=(400, 4)) + 3.0 * np.eye(4)[y]
    quantifier = methods.method(name)(0).fit(X, y)
    found = quantifier.predict(X[y != 2])
    np.testing.assert_allclose(found, [1 / 3, 1 / 3, 0.0, 1 / 3], atol=0.1)


def test_sets_that_cannot_be_compared_on(tmp_path):
    path = write_classes(tmp_path / "three.npz")
    with pytest.raises(
        SystemExit, match=r"three has 3 classes, and MS \(plain\), 1PMB can only tell two.*ACC"
    ):
        run_compare(tmp_path / "out", "MS", "1PMB", sets=["breast_cancer", path])
    X, y = make_points(n=100)
    np.savez(tmp_path / "rare.npz", X=X, y=np.where(np.arange(100) < 3, 7, y))
    with pytest.raises(SystemExit, match=r"rare has 3 classes, and 3 rows of class '7': .*needs 4"):
        run_compare(tmp_path / "out", "CC", sets=[tmp_path / "rare.npz"])
    # A column of measurements is no column of labels.
    table = write_csv(tmp_path / "mine.csv")
    with pytest.raises(SystemExit, match=r"1 rows of class .* name another column with --target"):
        run_compare(tmp_path / "out", "CC", sets=[table], options=["--target", "a"])
    assert not (tmp_path / "out").exists()


def test_as_few_rows_as_a_split_needs(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "few.npz", X=rng.normal(size=(90, 2)), y=np.minimum(np.arange(90) // 4, 5))
    for seed in range(20):
        _, y, _, y_test = data.split(catalogue.locate("few", tmp_path), seed)
        assert np.bincount(y).min() >= 2
        assert np.bincount(y_test).min() >= 1


def test_a_comparison_of_an_earlier_version_is_reported(tmp_path):
    """Its cells hold the shares of the positive class, and its options no alpha."""
    run_compare(tmp_path, "CC", "ACC", options=["--protocol", "APP"])
    before = pd.read_csv(tmp_path / "results.csv")
    for path in cell_times(tmp_path):
        entry = json.loads(path.read_text())
        record = entry["record"]
        del record["classes"]
        record["train_prevalence"] = record["train_prevalence"][1]
        for name in ("true", "estimated"):
            record[name] = [shares[1] for shares in record[name]]
        path.write_text(json.dumps(entry))
    written = json.loads((tmp_path / "run.json").read_text())
    del written["options"]["alpha"]
    (tmp_path / "run.json").write_text(json.dumps(written))
    run("report", tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "results.csv"), before)


def test_public_sets_of_several_classes(data_dir):
    """All that are here can be read; one small and one of texts are compared on."""
    folder = data_dir / "multiclass"
    if not (folder / "cmc.npz").is_file():
        pytest.skip("the data sets of several classes are not here")
    sets = [path for path in sorted(folder.glob("*.npz")) if path.stat().st_size < 400_000]
    for path in sets:
        dataset = catalogue.locate(str(path))
        with np.load(path) as parts:
            assert data.load(dataset).classes == [str(name) for name in parts["classes"]]
            assert data.load(dataset).y.tolist() == parts["y"].tolist()
        assert f" {len(data.load(dataset).classes)} classes: " in data.describe(dataset)
    for name in ("cmc", "reuters-r8"):
        task = compare.Task(
            catalogue.locate(name, folder), "ACC", 0, compare.Protocol("UPP", repeats=20)
        )
        cell = compare.run_task(task)
        assert cell.error == ""
        assert np.abs(cell.true - cell.estimated).mean() < 0.2


# ----------------------------------------------------------------------- mistakes

MISTAKES = [
    (["--alpha", "0"], "--alpha must be a positive number; got 0.0"),
    (["--alpha", "nan"], "--alpha must be a positive number; got nan"),
    (["--metrics", "mxe"], "unknown metric 'mxe'"),
    (["--methods", "XYZ"], "unknown method 'XYZ'"),
    (["--repeats", "0"], "--repeats must be at least 1"),
    (["--prevalences", "1"], "--prevalences must be at least 2"),
    (["--methods", "CC", "CC"], r"two methods 'CC \(tuned\)'"),
    (["--sets", "digits", "digits"], "two data sets 'digits'"),
    (["--sets", "tests/"], "is a folder"),
    (["--sets", "nowhere"], "no data set 'nowhere'"),
]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *MISTAKES,
        (["--target", "outcom", "--positive", "yes"], "outcome"),
        (["--positive", "perhaps"], "perhaps"),
        (["--methods", "NEMSIS:x"], "unknown measure 'x'"),
        (["--methods", "NEMSIS:cq"], "is pseudo-concave"),
    ],
)
def test_mistakes_are_pointed_out_before_anything_runs(tmp_path, arguments, message, monkeypatch):
    monkeypatch.delenv(catalogue.FOLDER_VARIABLE, raising=False)
    path = write_csv(tmp_path / "mine.csv")
    if "--methods" in arguments:
        monkeypatch.setattr(data, "load", lambda dataset: pytest.fail("data were read"))
    line = ["compare", "--sets", path, "--methods", "CC", "--out", tmp_path / "out"]
    with pytest.raises(SystemExit, match=message):
        run(*line, "--target", "outcome", *arguments)
    assert not (tmp_path / "out").exists()


def test_a_typo_costs_no_imports():
    lines = [*(mistake for mistake, _ in MISTAKES), ["--protocol", "NONSENSE"], ["--help"]]
    code = (
        "import sys\n"
        "from experiments.__main__ import main\n"
        "slow = {'quapy', 'numba', 'numpy', 'sklearn', 'pandas', 'matplotlib', 'skrub'}\n"
        f"for line in {lines!r}:\n"
        "    try:\n"
        "        main(['compare', *line])\n"
        "    except SystemExit as end:\n"
        "        assert line == ['--help'] or end.code, line\n"
        "    assert not slow & set(sys.modules), line\n"
        "print('done')"
    )
    begin = time.monotonic()
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert time.monotonic() - begin < 3.0  # a tenth of a second on a machine that does nothing else
    assert ended.stdout.endswith("done\n")


def test_how_a_command_ends():
    with pytest.raises(SystemExit, match="the same command continues"), plain_errors():
        raise KeyboardInterrupt
    with pytest.raises(SystemExit, match="error: no such thing"), plain_errors():
        raise ValueError("no such thing")
    line = f"{sys.executable} -m experiments data | head -1"
    ended = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("embedded: ")
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "."], r"holds no run\.json"),
        (["data", "fetch", "nothing"], "unknown data set 'nothing'"),
        (["data", "fetch", "ppi"], r"ppi cannot be downloaded: .*supply"),
        (["data", "fetch"], "name what to fetch"),
        (["reproduce", "fig1", "--seeds", "0"], "--seeds must be at least 1"),
    ],
)
def test_mistakes_in_other_commands(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match=message):
        run(*arguments)


def test_the_list_of_data(tmp_path, capsys):
    np.savez(tmp_path / "letter.npz", X=np.zeros((2, 2)), y=np.array([-1, 1]))
    run("data", "--data-dir", tmp_path)
    lines = capsys.readouterr().out.splitlines()
    letter = next(line for line in lines if line.startswith("letter"))
    assert "yes" in letter
    assert str(tmp_path / "letter.npz") in letter
    assert any(line.startswith("kddcup08") and "supply" in line for line in lines)
    for kind in ("uci.", "reviews.", "multi."):
        assert any(line.startswith(kind) for line in lines)


def test_a_download_goes_into_the_cache(tmp_path, monkeypatch):
    """The fetcher itself needs a network; what is done with its result does not."""
    X, y = make_points(n=60)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(catalogue.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(data, "_from_openml", lambda identifier, positive: (X, y))
    path = data.fetch("letter")
    assert path == catalogue.find("letter")
    loaded = data.load(catalogue.locate("letter"))
    np.testing.assert_allclose(loaded.features, X)
    np.testing.assert_array_equal(loaded.y, y)

    def unreachable(identifier, positive):
        raise ConnectionError("no route")

    monkeypatch.setattr(data, "_from_openml", unreachable)
    with pytest.raises(OSError, match=r"could not be downloaded .*no route.*--data-dir"):
        data.fetch("adult")


def test_a_download_of_several_classes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(catalogue.FOLDER_VARIABLE, raising=False)
    X, y = load_wine(return_X_y=True)
    asked = []

    def fetcher(name):
        asked.append(name)
        return compare.qp.data.LabelledCollection(X, y)

    monkeypatch.setattr(compare.qp.datasets, "fetch_UCIMulticlassLabelledCollection", fetcher)
    assert data.fetch("multi.wine-quality") == catalogue.find("multi.wine-quality")
    assert asked == ["wine-quality"]
    loaded = data.load(catalogue.locate("multi.wine-quality"))
    np.testing.assert_allclose(loaded.features, X)
    np.testing.assert_array_equal(loaded.y, y)
    assert loaded.classes == ["0", "1", "2"]

    def unreachable(name):
        raise ConnectionError("no route")

    monkeypatch.setattr(compare.qp.datasets, "fetch_UCIMulticlassLabelledCollection", unreachable)
    with pytest.raises(OSError, match=r"multi\.yeast could not be downloaded .*no route"):
        data.fetch("multi.yeast")


# --------------------------------------------------------------------- reproduce


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory):
    """Small data under the names of the paper's."""
    folder = tmp_path_factory.mktemp("data")
    names = {name for sets in pieces.SETS.values() for name in sets} - {"ijcnn1"}
    for seed, name in enumerate(sorted(names)):
        X, y = make_points(n=1500, d=4, share=0.3, seed=seed)
        np.savez(folder / f"{name}.npz", X=X, y=np.where(y, 1, -1))
    return folder


@pytest.mark.parametrize("figure", names.FIGURES)
def test_each_figure_on_tiny_data(figure, tiny_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv(catalogue.FOLDER_VARIABLE, raising=False)
    monkeypatch.setattr(pieces, "CWEIGHTS", (0.0, 0.5, 1.0))
    out = tmp_path / "out"
    arguments = ["reproduce", figure, "--data-dir", tiny_folder, "--seeds", 2, "--passes", 2]
    run(*arguments, "--out", out)
    printed = capsys.readouterr().out
    if "ijcnn1" in pieces.SETS[figure]:
        assert f"{figure}: ijcnn1 is left out" in printed
    verdicts = [line for line in printed.splitlines() if line.startswith(f"{figure} ")]
    assert verdicts
    assert all(line.split()[1] in ("SUPPORTED", "PARTLY", "NOT") for line in verdicts)
    records = [json.loads(path.read_text())["record"] for path in (out / "pieces").iterdir()]
    assert not [record["error"] for record in records if record.get("error")]
    assert (out / "figures" / f"{figure}.svg").read_text().count("<path") > 20
    page = (out / "report.html").read_text()
    for line in verdicts:
        text = line.split(maxsplit=1)[1]
        assert text.removeprefix("NOT ").split(maxsplit=1)[1][:30] in page
    # Killed or not, what is there is not computed again.
    run(*arguments, "--out", out)
    assert f"{len(records)} of {len(records)} pieces are reused" in capsys.readouterr().out


def test_verdicts_follow_the_numbers():
    claim = reproduce.Claim("fig1", "", "")
    assert claim.verdict == "not run"
    for held, verdict in ((4, "supported"), (2, "partly"), (1, "not supported")):
        claim.held = {str(k): k < held for k in range(5)}
        assert claim.verdict == verdict
    record = {"seconds": [1.0, 2.0, 3.0, 4.0], "value": [-1.0, -1e-4, -1e-2, -1e-5]}
    for target, seconds in ((-1e-3, 4.0), (-2.0, 1.0), (-1e-6, np.inf)):
        assert settled(record, target) == seconds

    for ours, verdict in ((-1e-5, "supported"), (-0.5, "not supported")):
        ends = {"NEMSIS-NS": (ours, 0.1), "NEMSIS": (ours, 0.2)}
        ends |= {"1PMB": (-1e-4, 1.0), "SVM(KLD)": (-1e-4, 10.0)}
        rows = [
            {
                "data": "adult",
                "method": method,
                "seed": seed,
                "seconds": [at, 2 * at],
                # NEMSIS is late, and as late in the third split.
                "value": [-1.0 if method == "NEMSIS" and seed < 2 else end, end],
                "seen": [500, 750],
            }
            for method, (end, at) in ends.items()
            for seed in range(3)
        ]
        claims = reproduce.claims({"fig1": pd.DataFrame(rows)})
        assert [claim.verdict for claim in claims] == [verdict] * 4


@pytest.mark.parametrize("arguments", [[], ["compare"], ["reproduce"], ["data"], ["report"]])
def test_help_teaches(arguments, capsys):
    with pytest.raises(SystemExit):
        command.parser().parse_args([*arguments, "--help"])
    assert "usage: python -m experiments" in capsys.readouterr().out
