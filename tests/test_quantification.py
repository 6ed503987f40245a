"""The comparison of `Quantifier` with tuned baselines, on small data."""

import json
import sys

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from experiments import quantification, tuned
from tests.conftest import make_points


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a part on a small set; return what it prints."""
    X, y = make_points(n=700, d=3)
    np.savez(tmp_path / "two.npz", X=X, y=np.where(y, 1, -1))
    monkeypatch.setattr(quantification, "SIZE", 50)
    monkeypatch.setattr(quantification, "ROWS", (100, 300))
    monkeypatch.setattr(quantification, "COVERAGE", {"two": (200,)})

    def run(part, *options):
        folder = ["--data-dir", str(tmp_path), "--out", str(tmp_path / "out"), "--jobs", "1"]
        monkeypatch.setattr(sys, "argv", ["quantification", part, *folder, *options])
        quantification.main()
        return capsys.readouterr().out

    run.out = tmp_path / "out"
    return run


def test_under_drift(run):
    methods = ["--methods", "Quantifier", "EMQ(LR-isotonic)", "PACC tuned"]
    options = ["--sets", "two", "--splits", "1", "--samples", "21", *methods]
    printed = run("drift", *options)
    assert "MAE under APP" in printed
    assert "mean rank under APP: Quantifier" in printed
    cells = (run.out / "drift.jsonl").read_text()
    assert all(0.0 < json.loads(line)[1]["drift"] < 0.2 for line in cells.splitlines())
    # What is there is not computed again.
    assert run("drift", *options) == printed.split("cells\n", 1)[1]
    assert (run.out / "drift.jsonl").read_text() == cells


def test_rows_coverage_and_seconds(run):
    few = ["--splits", "2", "--samples", "21", "--repeats", "2"]
    printed = run("rows", "--sets", "two", "--methods", "Quantifier", "EMQ(LR)", *few)
    assert "two: MAE under APP by training rows" in printed
    errors = {}
    for line in (run.out / "rows.jsonl").read_text().splitlines():
        (_, _, size, method, _), found = json.loads(line)
        errors.setdefault((method, size), []).append(found["drift"])
    ratios = [np.mean(errors["Quantifier", n]) / np.mean(errors["EMQ(LR)", n]) for n in (100, 300)]
    line = printed[printed.index("as a multiple") :].splitlines()[2]
    assert [float(word.rstrip("*")) for word in line.split()[1:]] == pytest.approx(
        ratios, abs=0.006
    )
    assert (run.out / "rows.png").stat().st_size > 10_000
    line = run("coverage", "--sets", "two", *few).splitlines()[-1].split()
    assert line[:2] == ["two", "200"]
    assert 0.7 < float(line[2]) <= 1.0
    assert "calibrated LR" in run("seconds", "--sets", "two")


def test_a_remembered_regression_is_the_regression():
    X, y = make_points(n=300, d=3)
    for C in (0.01, 1.0):
        learner = tuned.RememberedLR(C=C).fit(X, y)
        np.testing.assert_allclose(learner.coef_, LogisticRegression(C=C).fit(X, y).coef_)
        again = tuned.RememberedLR(C=C).fit(X, y)
        assert again.coef_ is learner.coef_
    with tuned.stopwatch("other rows"):
        assert tuned.RememberedLR(C=1.0).fit(X, y).coef_ is not learner.coef_


def test_every_baseline_can_be_fitted(monkeypatch):
    monkeypatch.setitem(tuned.LEARNER_GRIDS, "LR", {"C": [0.1, 1.0]})
    X, y = make_points(n=250, d=3)
    for name, fit in tuned.baselines(50).items():
        if "bcts" in name or name == "EMQ tuned":
            pytest.importorskip("abstention", reason="bcts needs the package abstention")
        found = fit(X, y).predict(X)
        assert found.sum() == pytest.approx(1.0), name
        assert abs(found[1] - y.mean()) < 0.1, name
