"""Model selection, own methods and learners, parts of the work, and experiments described by files."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import quapy as qp
from sklearn.linear_model import LogisticRegression

from experiments import compare, methods, names, origin, tuned
from experiments.__main__ import main
from quapy_nemsis.aggregation import EMQ
from tests.conftest import make_points

ROOT = Path(__file__).parent.parent
SMALL = [
    *("--repeats", "2", "--prevalences", "5", "--sample-size", "50", "--seeds", "1"),
    *("--format", "csv"),
]
OWN = """
from quapy.method.aggregative import CC, PCC
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

class Mine(PCC):
    def __init__(self):
        super().__init__(GaussianNB())

def make():
    return LogisticRegression(C=100.0)
"""


def run(*arguments):
    main([str(argument) for argument in arguments])


def cells(folder):
    paths = sorted((folder / "cells").glob("*.json"))
    return {
        (c.data, c.method, c.seed): c
        for c in compare.finished([p.name for p in paths], folder / "cells")
    }


@pytest.fixture(scope="module")
def rows():
    X, y = make_points(n=400, d=4, share=0.3, noise=1.0)
    return X, y.astype(int)


# ----------------------------------------------------------------- selection


def test_grids_are_of_parameters_that_exist(rows):
    for name in (*names.ALL, "CC(LR-balanced)"):
        parts = names.parse_method(name)
        for grid in parts.grids:
            quantifier = methods.method(f"{name} (tuned)")(0)
            assert grid.keys() <= quantifier.get_params(deep=True).keys(), name


def test_selection_takes_the_least_validation_error(rows):
    """Fitted here point by point, on the same validation samples."""
    X, y = rows
    chosen, words = methods.fitted("PCC (tuned)", X, y, 0, 50)
    train, held = qp.data.LabelledCollection(X, y).split_stratified(0.6, random_state=0)
    protocol = qp.protocol.APP(held, 50, n_prevalences=21, repeats=5, random_state=0)
    errors = {}
    for C in names.LEARNER_GRIDS["LR"]["C"]:
        for weight in (None, "balanced"):
            learner = LogisticRegression(C=C, class_weight=weight, max_iter=1000)
            quantifier = qp.method.aggregative.PCC(learner).fit(*train.Xy)
            errors[C, weight] = qp.evaluation.evaluate(quantifier, protocol, "mae")
    C, weight = min(errors, key=errors.get)
    assert words == f"C {C}, class_weight {weight}"
    expected = LogisticRegression(C=C, class_weight=weight, max_iter=1000).fit(X, y).coef_
    # Trained again on all rows, which come in another order.
    np.testing.assert_allclose(chosen.classifier.coef_, expected, rtol=0.02)


def test_plain_methods_have_their_defaults(rows):
    quantifier, words = methods.fitted("EMQ (plain)", *rows, 0, 50)
    assert (words, quantifier.calib, quantifier.classifier.C) == ("", None, 1.0)


def test_emq_can_choose_to_calibrate(rows, short_grids):
    quantifier, words = methods.fitted("EMQ (tuned)", *rows, 0, 50)
    assert "calib " in words
    assert quantifier.classifier.get_params()["isotonic"] == ("isotonic True" in words)


def test_the_best_point_of_all_grids_is_taken(rows):
    """Isotonic calibration is the best of three ways if the others are made worse than it is."""
    X, y = rows
    worst = {"classifier__C": [1e-9], "calib": [None]}
    good = {"classifier__C": [1.0], "classifier__isotonic": [True], **names.WITHOUT_FOLDS}
    for grids in ([worst, good], [good, worst]):
        model = methods.method("EMQ (tuned)")(0)
        found, chosen = tuned.selected(model, grids, X, y, 50)
        assert chosen == {name: values[0] for name, values in good.items()}
        expected = EMQ(tuned.isotonic(LogisticRegression(max_iter=1000))).fit(X, y)
        np.testing.assert_allclose(found.predict(X[:100]), expected.predict(X[:100]), rtol=1e-6)


def test_seconds_count_what_was_fitted_for_another_method(rows):
    X, y = rows
    with tuned.stopwatch("rows of this test") as seconds:
        tuned.RememberedLR(C=3.0).fit(X, y)
        first = seconds()
    fitted = next(iter(tuned._MEMORY.fitted.values()))[1]
    with tuned.stopwatch("rows of this test") as seconds:
        for _ in range(3):  # of which one is charged
            tuned.RememberedLR(C=3.0).fit(X, y)
        assert fitted < seconds() < 2 * first + 0.1
        assert tuned._MEMORY.saved_seconds == fitted


def test_a_remembered_model_is_that_of_scikit_learn(rows):
    X, y = rows
    for _ in range(2):
        for isotonic in (False, True):
            found = tuned.RememberedLR(C=10.0, isotonic=isotonic).fit(X, y)
            plain = LogisticRegression(C=10.0, max_iter=1000)
            expected = (tuned.isotonic(plain) if isotonic else plain).fit(X, y)
            np.testing.assert_allclose(found.predict_proba(X), expected.predict_proba(X))


@pytest.fixture
def short_grids(monkeypatch):
    for grid in (names.LEARNER_GRIDS, names.AGGREGATION_GRIDS):
        short = {each: {k: v[:2] for k, v in values.items()} for each, values in grid.items()}
        for each, values in short.items():
            monkeypatch.setitem(grid, each, values)


@pytest.mark.parametrize("name", ["KDEy", "DMy", "DyS", "ACC(linear-SVM)", "PACC(forest)"])
def test_other_methods_are_tuned(name, rows, short_grids):
    quantifier, words = methods.fitted(f"{name} (tuned)", *rows, 0, 50)
    assert words
    assert abs(quantifier.predict(rows[0])[1] - rows[1].mean()) < 0.1


def test_tuned_and_plain_cells(tmp_path):
    out = ["--out", tmp_path]
    options = ["compare", "--sets", "breast_cancer", "--methods", "CC", "NEMSIS:q", *SMALL, *out]
    run(*options, "--selection", "both")
    found = cells(tmp_path)
    assert {method for _, method, _ in found} == {"CC (tuned)", "CC (plain)", "NEMSIS:q"}
    assert not any(cell.error for cell in found.values())
    one, other = (found["breast_cancer", f"CC ({how})", 0] for how in ("tuned", "plain"))
    assert one.fit_seconds > other.fit_seconds
    assert one.chosen.startswith("C ")
    assert other.chosen == ""
    assert one.test_share == pytest.approx(0.3, abs=0.01)


def test_a_killed_run_with_tuning_goes_on_and_jobs_change_nothing(tmp_path):
    methods_ = ["CC", "PCC", "ACC@plain", "NEMSIS:q", "SVM(KLD)", "PCC@plain"]
    arguments = ["compare", "--sets", "breast_cancer", "--methods", *methods_, *SMALL]
    killed = tmp_path / "killed"
    line = [sys.executable, "-m", "experiments", *arguments, "--out", str(killed)]
    process = subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(killed.glob("cells/*.json"))) < 2:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in killed.glob("cells/*.json")}
    assert 2 <= len(before) < 6
    run(*arguments, "--out", killed)
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    run(*arguments, "--out", tmp_path / "whole", "--jobs", 2)
    first, second = cells(killed), cells(tmp_path / "whole")
    assert first.keys() == second.keys()
    for key, cell in first.items():
        assert cell.error == ""
        np.testing.assert_array_equal(cell.estimated, second[key].estimated)


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        (["EMQ"], ["EMQ (tuned)"]),
        (["EMQ@plain", "Quantifier"], ["EMQ (plain)", "Quantifier"]),
        (
            ["NEMSIS:q", "ACC(NEMSIS:q)", "KDEy(NEMSIS:ba)"],
            ["NEMSIS:q", "ACC(NEMSIS:q)", "KDEy(NEMSIS:ba) (tuned)"],
        ),
    ],
)
def test_tables_name_what_is_tuned(typed, shown):
    assert names.expand(typed, "tuned") == shown


def test_a_selection_that_does_not_exist():
    with pytest.raises(
        ValueError, match="unknown selection in 'EMQ@best': use EMQ@tuned or EMQ@plain"
    ):
        names.expand(["EMQ@best"], "tuned")


# --------------------------------------------------------------- own methods


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of a user in the folder where the command is run."""
    path = tmp_path / "mymodule.py"
    path.write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mymodule", raising=False)
    yield path
    sys.modules.pop("mymodule", None)


def test_own_methods_and_learners(own, tmp_path):
    arguments = ["--methods", "mymodule:Mine", "PCC@plain", "--learner", "mymodule:make"]
    out = tmp_path / "out"
    run("compare", "--sets", "breast_cancer", *arguments, *SMALL, "--out", out)
    found = cells(out)
    assert {method for _, method, _ in found} == {"mymodule:Mine", "PCC(mymodule:make)"}
    assert not any(cell.error for cell in found.values())
    run("compare", "--sets", "breast_cancer", *arguments, *SMALL, "--out", out)
    assert len(cells(out)) == 2
    # A changed source is another method, also if only the learner is of the module.
    own.write_text(OWN.replace("GaussianNB())", "GaussianNB(var_smoothing=0.1))"))
    importlib.reload(sys.modules["mymodule"])
    run("compare", "--sets", "breast_cancer", *arguments, *SMALL, "--out", out)
    assert len(list((out / "cells").glob("*.json"))) == 4


def test_packages_offer_methods(own, monkeypatch):
    monkeypatch.setattr(names, "offered", lambda: {"mine": "mymodule:Mine"})
    assert type(methods.method("mine")(0)).__name__ == "Mine"
    assert names.parse_method("EMQ(mine)").learner == "mymodule:Mine"


def test_entry_points_are_found(tmp_path, monkeypatch):
    package = tmp_path / "other-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[quapy_nemsis.methods]\nmine = mymodule:Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert names.offered() == {"mine": "mymodule:Mine"}


# ------------------------------------------------- parts, files, where it was


def test_parts_of_the_work_make_the_whole(tmp_path, capsys):
    arguments = ["compare", "--sets", "breast_cancer", "--methods", "CC@plain", "PCC@plain", *SMALL]
    arguments += ["--seeds", 3]
    for part in (1, 2):
        run(*arguments, "--out", tmp_path / "parts", "--shard", f"{part}/2")
        assert len(cells(tmp_path / "parts")) == 3 * part
    assert "3 of 6 cells are not finished" in capsys.readouterr().out
    run(*arguments, "--out", tmp_path / "whole")
    parts, whole = cells(tmp_path / "parts"), cells(tmp_path / "whole")
    for key, cell in whole.items():
        np.testing.assert_array_equal(cell.estimated, parts[key].estimated)


@pytest.mark.parametrize("wrong", ["0/2", "3/2", "1", "a/b"])
def test_parts_that_do_not_exist(wrong, capsys):
    with pytest.raises(SystemExit):
        run("compare", "--shard", wrong)
    assert "give a part of the work as 1/4" in capsys.readouterr().err


def test_an_experiment_in_a_file(tmp_path):
    path = tmp_path / "paper.toml"
    path.write_text(
        'sets = ["breast_cancer"]\nmethods = ["CC", "ACC"]\nselection = "plain"\nrepeats = 2\n'
        'prevalences = 5\nsample_size = 50\nseeds = 2\nformat = ["csv"]\n'
    )
    out = tmp_path / "out"
    run("compare", "--config", path, "--methods", "PCC", "--out", out)
    assert set(cells(out)) == {("breast_cancer", "PCC (plain)", seed) for seed in (0, 1)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("setts = 3", "unknown key 'setts'; did you mean 'sets'"),
        ("sets = [", "is not a TOML file"),
    ],
)
def test_files_that_are_wrong(text, message, tmp_path):
    path = tmp_path / "paper.toml"
    path.write_text(text)
    with pytest.raises(SystemExit, match=message):
        run("compare", "--config", path)


def test_each_cell_says_where_it_comes_from(tmp_path):
    page = [*SMALL, "--format", "html"]
    run("compare", "--sets", "breast_cancer", "--methods", "CC@plain", *page, "--out", tmp_path)
    (cell,) = cells(tmp_path).values()
    assert cell.origin["numpy"] == np.__version__
    assert cell.origin["date"].startswith("20")
    assert len(cell.origin["sha256 of breast_cancer"]) == 64
    page = (tmp_path / "report.html").read_text()
    assert cell.origin["sha256 of breast_cancer"] in page
    assert cell.origin["processor"] in page


def test_origins_are_summed_up():
    first = {"date": "2026-01-01", "numpy": "2.0"}
    rows = origin.summary([first, {"date": "2026-02-01", "numpy": "2.1"}, first])
    assert rows == [["date", "2026-01-01 to 2026-02-01"], ["numpy", "2.0; 2.1"]]


def test_records_are_json(tmp_path):
    run("compare", "--sets", "breast_cancer", "--methods", "CC@plain", *SMALL, "--out", tmp_path)
    (path,) = (tmp_path / "cells").glob("*.json")
    assert json.loads(path.read_text())["record"]["origin"]["Python"]
