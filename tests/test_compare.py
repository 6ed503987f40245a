"""`python -m experiments`: the real thing, small."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

import quapy_nemsis
from experiments import __main__ as command
from experiments import compare, data, methods, reproduce
from experiments.cells import Cell, Store, compute
from experiments.errors import plain_errors
from experiments.reproduce import pieces
from experiments.reproduce.claims import settled
from tests.conftest import make_points

ROOT = Path(__file__).parents[1]
SMALL = ["--repeats", "2", "--prevalences", "5", "--sample-size", "50"]


def run(*arguments):
    command.main([str(argument) for argument in arguments])


def cells_of(folder):
    """Every cell of a comparison."""
    return compare.finished([path.name for path in (folder / "cells").iterdir()], folder / "cells")


def results(folder):
    """The same by data, method and seed."""
    return {(cell.data, cell.method, cell.seed): cell for cell in cells_of(folder)}


# --------------------------------------------------------------------- pieces


def test_records_are_whole_or_not_there(tmp_path, monkeypatch):
    store = Store(tmp_path)
    key = {"data": "a/b", "method": "ACC(LR)", "seed": 3}
    assert store.load(key) is None
    cell = Cell("a/b", "ACC(LR)", 3, np.array([0.1, 1 / 3]), np.array([0.2, 0.3]), 0.25, 1.0, 2.0)
    store.save(key, cell.record())
    again = Cell.from_record(store.load(key))
    np.testing.assert_array_equal(again.true, cell.true)
    assert (again.method, again.fit_seconds, again.error) == ("ACC(LR)", 1.0, "")
    assert store.load({**key, "seed": 4}) is None
    # A broken file is as good as none, and a failed write leaves nothing behind.
    for content in ('{"data": "a', "[]", "{}", '{"key": {}, "record": {}}'):
        store.path(key).write_text(content)
        assert store.load(key) is None
    with pytest.raises(TypeError):
        store.save(key, {"value": object()})
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_what_is_finished_is_not_computed_again(tmp_path, capsys):
    done = []

    def square(number):
        done.append(number)
        return {"value": number**2, "error": "odd" if number % 2 else ""}

    keys = [{"number": number} for number in range(4)]
    first = compute(square, list(range(4)), keys, tmp_path)
    assert [record["value"] for record in first] == [0, 1, 4, 9]
    assert compute(square, list(range(4)), keys, tmp_path) == first
    assert done == [0, 1, 2, 3]
    compute(square, list(range(4)), keys, tmp_path, retry=True)
    assert done == [0, 1, 2, 3, 1, 3]
    printed = capsys.readouterr().out
    assert "4 of 4 are there already" in printed
    assert "s left] " in printed


@pytest.mark.parametrize("name", methods.ALL)
def test_methods_of_every_name(name):
    X, y = make_points(n=300, noise=0.5)
    quantifier = methods.method(name)(X, y.astype(int), 0)
    found = quantifier.fit(X, y.astype(int)).predict(X)
    assert abs(found[1] - y.mean()) < 0.15


@pytest.mark.parametrize(
    "name", ["XYZ", "ACC(XYZ)", "ACC(NEMSIS:q", "NEMSIS:nothing", "SVM(nothing)", "CAN-surrogate:q"]
)
def test_unknown_methods(name):
    with pytest.raises(ValueError, match=r"unknown|not closed"):
        methods.method(name)


def test_a_source_of_a_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(data.FOLDER_VARIABLE, raising=False)
    X, y = make_points(n=50)
    np.savez(tmp_path / "toy.npz", X=X, y=np.where(y, 1, -1))
    assert data.source("toy", tmp_path).path == tmp_path / "toy.npz"
    assert data.source(str(tmp_path / "toy.npz")).name == "toy"
    with pytest.raises(FileNotFoundError, match="no data set 'toy'"):
        data.source("toy")
    monkeypatch.setenv(data.FOLDER_VARIABLE, str(tmp_path))
    assert data.source("toy").path == tmp_path / "toy.npz"
    assert data.source("drift").path is None
    X, y, _, y_test = data.prepare(data.source("toy"), seed=0)
    assert (len(y), len(y_test)) == (35, 15)
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-6)
    assert set(y) == {0, 1}


# ----------------------------------------------------------------------- compare


def test_compare_and_its_report(tmp_path, capsys):
    out = tmp_path / "out"
    arguments = ["compare", "--sets", "breast_cancer", "--methods", "CC", "NEMSIS:q", *SMALL]
    run(*arguments, "--out", out, "--seeds", 2)
    printed = capsys.readouterr().out
    assert "mae under APP" in printed
    assert (out / "report.html").is_file()
    assert str(out / "report.html") in printed
    found = results(out)
    assert len(found) == 4
    cell = found["breast_cancer", "CC", 0]
    assert len(cell.true) == 10
    assert cell.error == ""
    assert np.abs(cell.true - cell.estimated).mean() < 0.1
    page = (out / "report.html").read_text()
    assert "NEMSIS:q" in page
    # The report can be written again, without computing anything.
    (out / "report.html").unlink()
    before = {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    run("report", out)
    assert (out / "report.html").is_file()
    assert before == {path: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    assert "not finished" not in capsys.readouterr().out
    # And of a run that is not finished, which it says.
    next((out / "cells").iterdir()).unlink()
    run("report", out)
    assert "1 of 4 cells are not finished" in capsys.readouterr().out
    assert "3 of 4 cells" in (out / "report.html").read_text()
    (out / "run.json").write_text("{}")
    with pytest.raises(SystemExit, match=r"run\.json is broken: run the comparison again"):
        run("report", out)


def test_what_a_user_is_told_beforehand(tmp_path, capsys):
    arguments = ["compare", "--sets", "breast_cancer", "--methods", "CC", *SMALL, "--out", tmp_path]
    run(*arguments)
    run(*arguments, "--jobs", 2)
    printed = capsys.readouterr().out
    assert "rows repeat" not in printed
    assert "another comparison" not in printed
    run(*arguments, "--sample-size", 200)
    printed = capsys.readouterr().out
    assert "samples of 200 rows are drawn from a test part of 170, so that rows repeat" in printed
    assert f"{tmp_path} holds another comparison: its cells are kept" in printed


def test_numbers_do_not_depend_on_jobs(tmp_path):
    names = ["ACC", "NEMSIS:q", "EMQ(NEMSIS:ba)", "1PMB:kld"]
    for jobs in (1, 2):
        out = tmp_path / str(jobs)
        arguments = ["compare", "--sets", "breast_cancer", "--methods", *names, *SMALL]
        run(*arguments, "--out", out, "--jobs", jobs)
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
    while time.monotonic() < deadline and len(list(killed.glob("cells/*.json"))) < 3:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in killed.glob("cells/*.json")}
    assert 3 <= len(before) < 24
    run(*arguments, "--out", killed)
    after = {path: path.stat().st_mtime_ns for path in killed.glob("cells/*.json")}
    assert len(after) == 24
    assert before.items() <= after.items()  # what was finished is not computed again
    whole = tmp_path / "whole"
    run(*arguments, "--out", whole)
    first, second = results(killed), results(whole)
    for key, cell in second.items():
        np.testing.assert_array_equal(first[key].estimated, cell.estimated)


def test_a_method_that_fails_stops_nothing(tmp_path, monkeypatch, capsys):
    real = methods.method

    def broken(name):
        if name == "ACC":
            raise_it = ZeroDivisionError("no <luck>")

            def build(X, y, seed):
                raise raise_it

            return build
        return real(name)

    monkeypatch.setattr(methods, "method", broken)
    out = tmp_path / "out"
    arguments = ["compare", "--sets", "breast_cancer", "--methods", "CC", "ACC", *SMALL]
    run(*arguments, "--out", out)
    assert "ZeroDivisionError: no <luck>" in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert "no &lt;luck&gt;" in page
    assert results(out)["breast_cancer", "CC", 0].error == ""
    monkeypatch.undo()
    run(*arguments, "--out", out)
    assert results(out)["breast_cancer", "ACC", 0].error
    run(*arguments, "--out", out, "--retry")
    assert results(out)["breast_cancer", "ACC", 0].error == ""


@pytest.mark.parametrize("protocol", ["NPP", "UPP"])
def test_other_protocols(tmp_path, protocol):
    out = tmp_path / "out"
    arguments = ["compare", "--sets", "breast_cancer", "--methods", "CC", "--protocol", protocol]
    run(*arguments, "--repeats", 7, "--sample-size", 60, "--metrics", "mkld", "--out", out)
    assert len(results(out)["breast_cancer", "CC", 0].true) == 7


def write_csv(path):
    X, y = make_points(n=400, noise=0.5)
    lines = ["a,b,colour,outcome"]
    for i, (row, label) in enumerate(zip(X, y, strict=True)):
        colour = ("red", "green", "")[i % 3]
        lines.append(f"{row[0]:.4f},{row[1]:.4f},{colour},{'yes' if label else 'no'}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_file_of_ones_own(tmp_path, capsys):
    path = write_csv(tmp_path / "mine.csv")
    out = tmp_path / "out"
    arguments = ["compare", "--sets", path, "--methods", "CC", "NEMSIS:q", *SMALL]
    run(*arguments, "--target", "outcome", "--positive", "yes", "--out", out)
    told = "400 rows, 3 features, 26.25 % positive (label yes); 133 missing values filled in, in 'colour'"
    assert told in capsys.readouterr().out
    assert told in (out / "report.md").read_text()
    found = results(out)
    assert found["mine", "CC", 0].error == ""
    assert found["mine", "CC", 0].train_prevalence == pytest.approx(0.3, abs=0.06)
    assert np.abs(found["mine", "CC", 0].true - found["mine", "CC", 0].estimated).mean() < 0.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "outcom", "--positive", "yes"], "outcome"),
        (["--target", "outcome", "--positive", "perhaps"], "perhaps"),
        (["--target", "outcome", "--metrics", "mxe"], "unknown metric 'mxe'"),
        (["--target", "outcome", "--methods", "NEMSIS:x"], "unknown measure 'x'"),
        (["--target", "outcome", "--repeats", "0"], "--repeats must be at least 1"),
        (["--target", "outcome", "--prevalences", "1"], "--prevalences must be at least 2"),
        (["--target", "outcome", "--methods", "NEMSIS:cq"], "is pseudo-concave"),
        (["--target", "outcome", "--methods", "CC", "CC"], "two methods 'CC'"),
        (["--target", "outcome", "--sets", "digits", "digits"], "two data sets 'digits'"),
        (["--target", "outcome", "--sets", "tests/"], "is a folder"),
    ],
)
def test_mistakes_are_pointed_out_before_anything_runs(tmp_path, arguments, message):
    path = write_csv(tmp_path / "mine.csv")
    with pytest.raises(SystemExit, match=message):
        run("compare", "--sets", path, "--methods", "CC", "--out", tmp_path / "out", *arguments)
    assert not (tmp_path / "out" / "cells").exists()


def test_another_label_is_another_comparison(tmp_path, capsys):
    path = write_csv(tmp_path / "mine.v2.csv")
    arguments = ["compare", "--sets", path, "--methods", "CC", *SMALL, "--target", "outcome"]
    run(*arguments, "--positive", "yes", "--out", tmp_path / "out")
    run(*arguments, "--positive", "no", "--out", tmp_path / "out")
    assert "there already" not in capsys.readouterr().out
    shares = {cell.train_prevalence for cell in cells_of(tmp_path / "out")}
    assert len(shares) == 2
    assert sum(shares) == pytest.approx(1.0, abs=0.01)
    path.unlink()
    run("report", tmp_path / "out")  # needs the cells only
    assert "mine.v2" in capsys.readouterr().out


def test_columns_that_are_not_used_are_named(tmp_path):
    path = write_csv(tmp_path / "mine.csv")
    lines = path.read_text().splitlines()
    more = [f"{line},x,n{i}" for i, line in enumerate(lines[1:])]
    path.write_text("\n".join([f"{lines[0]},same,name", *more]) + "\n")
    told = data.describe(data.source(str(path), target="outcome"))
    assert "not used because constant: 'same'; not used because all values differ: 'name'" in told


def test_how_a_command_ends(capfd):
    with pytest.raises(SystemExit, match="the same command goes on"), plain_errors():
        raise KeyboardInterrupt
    with pytest.raises(SystemExit, match="error: no such thing"), plain_errors():
        raise ValueError("no such thing")
    code = "import sys; from experiments.__main__ import main; main(['data'])"
    line = f'{sys.executable} -c "{code}" | head -1'
    ended = subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("embedded: ")
    assert ended.stderr == ""


def test_more_mistakes(tmp_path):
    with pytest.raises(SystemExit, match="no data set 'nowhere'"):
        run("compare", "--sets", "nowhere", "--out", tmp_path)
    with pytest.raises(SystemExit, match=r"holds no run\.json"):
        run("report", tmp_path)
    with pytest.raises(SystemExit, match="unknown data set 'nothing'"):
        run("data", "fetch", "nothing")
    with pytest.raises(SystemExit, match=r"ppi cannot be downloaded: .*supply"):
        run("data", "fetch", "ppi")
    with pytest.raises(SystemExit, match="name what to fetch"):
        run("data", "fetch")


def test_the_list_of_data(tmp_path, capsys):
    np.savez(tmp_path / "letter.npz", X=np.zeros((2, 2)), y=np.array([-1, 1]))
    run("data", "--data-dir", tmp_path)
    lines = capsys.readouterr().out.splitlines()
    letter = next(line for line in lines if line.startswith("letter"))
    assert "yes" in letter
    assert str(tmp_path / "letter.npz") in letter
    assert any(line.startswith("kddcup08") and "supply" in line for line in lines)
    assert any(line.startswith("uci.") for line in lines)


def test_a_download_goes_into_the_cache(tmp_path, monkeypatch):
    """The fetcher itself needs a network; what is done with its result does not."""
    X, y = make_points(n=60)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(data, "_from_openml", lambda identifier, positive: (X, y))
    path = data.fetch("letter")
    assert path == data.find("letter")
    loaded, labels = data.from_npz(path.parent, "letter")
    np.testing.assert_allclose(loaded, X)
    np.testing.assert_array_equal(labels == 1, y)

    def unreachable(identifier, positive):
        raise ConnectionError("no route")

    monkeypatch.setattr(data, "_from_openml", unreachable)
    with pytest.raises(OSError, match=r"could not be downloaded .*no route.*--data-dir"):
        data.fetch("adult")


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


@pytest.mark.parametrize("figure", reproduce.FIGURES)
def test_each_figure_on_tiny_data(figure, tiny_folder, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv(data.FOLDER_VARIABLE, raising=False)
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
    records = [json.loads(path.read_text()) for path in (out / "pieces").iterdir()]
    assert not [record["error"] for record in records if record.get("error")]
    picture = next((out / "figures").glob(f"*{figure}*.png"))
    assert plt.imread(picture).std() > 0.05
    page = (out / "report.html").read_text()
    for line in verdicts:
        text = line.split(maxsplit=1)[1]
        assert text.removeprefix("NOT ").split(maxsplit=1)[1][:30] in page
    # Killed or not, what is there is not computed again.
    run(*arguments, "--out", out)
    assert f"{len(records)} of {len(records)} are there already" in capsys.readouterr().out


def test_verdicts_follow_the_numbers():
    claim = reproduce.Claim("fig1", "", "")
    assert claim.verdict == "not run"
    claim.held = {"a": True, "b": True, "c": True, "d": True, "e": False}
    assert claim.verdict == "supported"
    claim.held["a"] = claim.held["b"] = False
    assert claim.verdict == "partly"
    claim.held["c"] = False
    assert claim.verdict == "not supported"
    record = {"seconds": [1.0, 2.0, 3.0, 4.0], "value": [-1.0, -1e-4, -1e-2, -1e-5]}
    assert settled(record, -1e-3) == 4.0
    assert settled(record, -2.0) == 1.0
    assert settled(record, -1e-6) == np.inf

    def curves(end, seconds):
        return [{"seconds": [seconds, 2 * seconds], "value": [end, end]}] * 3

    found = {
        ("adult", "NEMSIS-NS"): curves(-1e-5, 0.1),
        ("adult", "NEMSIS"): curves(-1e-5, 0.2),
        ("adult", "1PMB"): curves(-1e-4, 1.0),
        ("adult", "SVM(KLD)"): curves(-1e-4, 10.0),
    }
    verdicts = [claim.verdict for claim in reproduce.claims({"fig1": found})]
    assert verdicts == ["supported"] * 4
    found["adult", "NEMSIS-NS"] = curves(-0.5, 0.1)
    found["adult", "NEMSIS"] = curves(-0.5, 0.2)
    verdicts = [claim.verdict for claim in reproduce.claims({"fig1": found})]
    assert verdicts == ["not supported"] * 4


def test_help_teaches(capsys):
    for arguments in ([], ["compare"], ["reproduce"], ["data"], ["report"]):
        with pytest.raises(SystemExit):
            command.parser().parse_args([*arguments, "--help"])
        assert "usage: python -m experiments" in capsys.readouterr().out


def test_a_task_is_filed_under_all_that_determines_it(monkeypatch):
    task = compare.Task(data.Source("digits"), "CC", 0, compare.Protocol())
    key = task.key("x")
    same = compare.Task(data.Source("digits"), "CC", 0, compare.Protocol(repeats=26))
    assert task.key("x") != same.key("x")
    assert task.key("x") != task.key("y")
    monkeypatch.setattr(quapy_nemsis, "__version__", "99.0")
    assert task.key("x") != key
