"""The experiments run for real, small."""

import json
import sys

import numpy as np
import pytest

from experiments import accuracy, baselines, curves, defaults
from experiments.bench import cost, processes, scale, trees
from experiments.bench.__main__ import main as bench
from experiments.bench.passes import WIDTHS
from experiments.bench.processes import can_measure_memory, stream_memory
from experiments.bench.tables import BenchTable, best_of
from experiments.catalogue import DataSet, locate
from experiments.data import embedded, load, prepare, split
from quapy_nemsis import BA, NegKLD, NEMSISClassifier, SVMPerfClassifier, get_measure
from tests.conftest import make_points


def test_bench(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    X, y = make_points(n=1500)
    np.savez(tmp_path / "toy.npz", X=X, y=y)
    sizes = ["--rows", "1000", "--repeats", "1", "--stream-rows", "5000", "--gigabytes", "0.02"]
    # Workers are threads of this process, and nothing is compiled anew: other tests have clusters and empty caches.
    monkeypatch.setattr(scale, "WORKERS", {**scale.WORKERS, "processes": False})
    monkeypatch.setattr("experiments.bench.aggregations.CLASSES", (2, 3))
    monkeypatch.setattr("experiments.bench.aggregations.SAMPLE_SIZE", 50)
    one = "QuantificationForestClassifier"
    monkeypatch.setattr(trees, "LEARNERS", {one: trees.LEARNERS[one]})
    real = processes.run_python
    monkeypatch.setattr(processes, "run_python", lambda code, **environment: real(code))
    bench([*sizes, "--set", str(tmp_path / "toy.npz"), "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "bench.json").read_text())["tables"]
    assert all(table["title"] in printed for table in found)
    tables = {table["name"]: table["rows"] for table in found}
    here = {"width", "nonzeros", "rows", "quality", "dask", "tuning", "side by side", "custom"}
    here |= {"trees"} if can_measure_memory() else set()
    assert here <= set(tables)
    for name, rows in tables.items():
        for row in rows:
            values = [value for value in row.values() if not isinstance(value, str)]
            assert np.isfinite(values).all(), name
    assert [row["features"] for row in tables["width"]] == list(WIDTHS)
    dense = {row["task"]: row for row in tables["dense"]}
    peer = dense["SGDClassifier.fit"]["ms"]
    assert dense["pass, q"]["/ SGDClassifier.fit"] == pytest.approx(dense["pass, q"]["ms"] / peer)
    values = {(row["how"], row["who"]): row["q"] for row in tables["dask"]}
    hows = {how for how, _ in values}
    assert len(hows) == 3
    for how in hows:  # the number of workers changes nothing
        assert values[how, "1 worker"] == values[how, "2 workers"]
        assert values[how, "serial"] > 0.5
    for row in tables["aggregations"]:
        assert row["largest difference"] < 0.01
    assert {row["classes"] for row in tables["aggregations"]} == {2, 3}
    assert (tmp_path / "figures" / "bench.svg").stat().st_size > 20_000
    assert "nonzeros a row" in (tmp_path / "report.html").read_text()
    with pytest.raises(ValueError, match="unknown benchmark 'speed'; choose from dense"):
        bench(["speed"])
    with pytest.raises(ValueError, match="--rows must be at least 1000; got 0"):
        bench(["--rows", "0"])


def test_best_of_takes_the_best():
    times = iter([3.0, 1.0, 2.0])
    assert best_of(3, task=lambda: next(times)) == {"task": 1.0}


def test_cost_on_many_machines():
    """By hand: 40 ns and 1.5 ns a feature, 10⁸ rows on 10 workers, 5 rounds, 2 ms a task."""
    width = BenchTable(
        "width", "", [{"features": d, "NEMSIS, float64": 40 + 1.5 * d} for d in (5, 50, 500)]
    )
    assert cost.per_row(width) == pytest.approx((40e-9, 1.5e-9))
    found = cost.cost(width, 0.002, n_rows=1e8, d=100, workers=10)
    reading, passes, exchange, tasks, everything = (row["seconds"] for row in found.rows)
    assert reading == pytest.approx(8.0)  # 8 GB a worker at 1 GB/s
    assert passes == pytest.approx(5 * 1e7 * 190e-9)
    assert 24 * 100 < cost.state_bytes(100) < 2 * 24 * 100
    assert exchange == pytest.approx(100 * cost.state_bytes(100) / 1.25e9)
    assert tasks == pytest.approx(0.1)
    assert everything == pytest.approx(reading + passes + exchange + tasks)
    # More than fits into memory is read in every round.
    large = cost.cost(width, 0.002, n_rows=1e10, d=100, workers=10)
    assert large.rows[0]["seconds"] == pytest.approx(5 * 800.0)


@pytest.mark.skipif(not can_measure_memory(), reason="needs Linux")
def test_memory_does_not_grow_with_the_stream(tmp_path):
    peaks = []
    for gigabytes in (0.05, 0.25):
        _, imported, peak, rows = stream_memory(gigabytes, tmp_path)
        assert rows * 50 * 8 > 0.97 * gigabytes * 2**30
        assert peak - imported < 120
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 10
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(not can_measure_memory(), reason="needs Linux")
def test_memory_of_a_long_stream(tmp_path):
    stream_memory(0.1, tmp_path)  # which compiles: that takes 30 MB more, once on a machine
    start, _, peak, rows = stream_memory(20.0, tmp_path)
    assert rows > 53_000_000
    assert peak - start < 300


@pytest.mark.parametrize(
    ("name", "n_classes"), [("breast_cancer", 2), ("digits", 2), ("digits3", 3)]
)
def test_embedded_data(name, n_classes):
    X, y, _, y_test = split(DataSet(name), seed=0)
    assert len(load(DataSet(name)).classes) == n_classes
    assert set(np.unique(y)) == set(np.unique(y_test)) == set(range(n_classes))
    np.testing.assert_allclose(
        np.bincount(y) / len(y), np.bincount(y_test) / len(y_test), atol=0.01
    )
    assert np.abs(X.mean(axis=0)).max() < 1e-9
    if n_classes > 2:
        with pytest.raises(ValueError, match="digits3 has 3 classes: give a data set of two"):
            prepare(DataSet(name), seed=0)
    with pytest.raises(ValueError, match="unknown embedded data set 'wine'"):
        embedded("wine")


def test_step_size_of_a_count_is_chosen_among_equals_by_ba():
    """With KLD, step sizes that count equally well are told apart by how well they classify."""
    X, y = make_points(n=4000, noise=0.7)
    y = np.where(y, 1, -1)
    learner = NEMSISClassifier("kld", random_state=0)
    eta0 = accuracy.choose_eta0(learner, X, y, seed=0)
    scores = {
        eta: BA().score(y, NEMSISClassifier("kld", eta0=eta, random_state=0).fit(X, y).predict(X))
        for eta in accuracy.GRID
    }
    assert scores[eta0] > np.median(list(scores.values())) - 0.02


def test_accuracy_prints_a_line_per_method(tmp_path, monkeypatch, capsys):
    X, y = make_points(n=400)
    np.savez(tmp_path / "toy.npz", X=X, y=np.where(y, 1, -1))
    arguments = ["accuracy", "--data-dir", str(tmp_path), "--sets", "toy", "--passes", "1", "--can"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--measures", "q", "cq"])
    accuracy.main()
    lines = capsys.readouterr().out.splitlines()
    methods = [line.split()[1:3] for line in lines[1:]]
    assert methods == [["q", "NEMSIS"], ["q", "CAN"], ["cq", "SCAN"], ["cq", "CAN"]]
    values = [float(line.split()[4]) for line in lines[1:]]
    assert min(values) > 0.5


def test_curves_end_where_a_fit_does():
    X, y = make_points(n=1200)
    svm = SVMPerfClassifier("kld", C=100.0)
    stages = list(curves.structural_curve(svm, X, y))
    np.testing.assert_array_equal(stages[-1][1].coef_, svm.fit(X, y).coef_)
    assert [stage.n_iter_ for _, stage in stages][:4] == [1, 2, 3, 5]
    assert all(seconds > 0 for seconds, _ in stages)
    assert curves.choose_C("kld", X, y, seed=0) in curves.CS
    points = [
        (seconds, learner.t_)
        for seconds, learner in curves.online_curve(NEMSISClassifier("kld"), X, y, 2, seed=0)
    ]
    assert [t for _, t in points] == [500, 750, 1125, 1687, 2400]
    assert (np.diff([seconds for seconds, _ in points]) > 0).all()


def test_baselines_on_small_data(tmp_path, monkeypatch, capsys):
    X, y = make_points(n=2000)
    labels = np.where(y, 1, -1)
    for name in ("adult", "cod-rna", "ijcnn1"):
        np.savez(tmp_path / f"{name}.npz", X=X, y=labels, fold=np.arange(2000) % 3 == 0)
    monkeypatch.setattr(sys, "argv", ["baselines", "--data-dir", str(tmp_path)])
    baselines.main()
    lines = capsys.readouterr().out.splitlines()
    gaps = [float(line.split()[3]) for line in lines[2:9]]
    assert max(gaps) <= 1e-3
    assert len([line for line in lines if line.startswith(("qrecall ", "f1 ", "qgm "))]) == 9


def test_defaults_on_small_data(tmp_path, monkeypatch, capsys):
    X, y = make_points(n=1500, noise=0.5)
    np.savez(tmp_path / "toy.npz", X=X, y=np.where(y, 1, -1))
    arguments = ["defaults", "--data-dir", str(tmp_path), "--sets", "toy", "--seeds", "1"]
    monkeypatch.setattr(sys, "argv", [*arguments, "--measures", "q"])
    defaults.main()
    lines = capsys.readouterr().out.splitlines()
    gap = next(line for line in lines if line.startswith("toy") and "mean" in line)
    assert abs(float(gap.split()[3])) < 3.0


# Floors on real data: 70/30 split, seed 0, standardised, the step size chosen on a fifth of train.
FLOORS = {
    "bakld:0.5": {"adult": 0.400, "ijcnn1": 0.425, "letter": 0.41, "covtype": 0.358},
    "q": {"adult": 0.895, "ijcnn1": 0.935, "letter": 0.938, "covtype": 0.907},
    "cq": {"adult": 0.808, "ijcnn1": 0.878, "letter": 0.885, "covtype": 0.828},
    "bk": {"adult": 0.800, "ijcnn1": 0.865, "letter": 0.835, "covtype": 0.745},
}


@pytest.mark.parametrize(
    "name", ["adult", "ijcnn1", "letter", pytest.param("covtype", marks=pytest.mark.slow)]
)
def test_values_on_real_data(name, data_dir):
    X, y, X_test, y_test = prepare(locate(name, data_dir), seed=0)
    for measure, floors in FLOORS.items():
        learner = accuracy.online_learner(measure, passes=5, seed=0)
        learner.set_params(eta0=accuracy.choose_eta0(learner, X, y, seed=0))
        labels = learner.fit(X, y).predict(X_test)
        assert get_measure(measure).score(y_test, labels) >= floors[name]


@pytest.mark.parametrize(("name", "kld", "ba"), [("adult", 2e-4, 0.72), ("ijcnn1", 1e-3, 0.60)])
def test_kld_on_real_data(name, kld, ba, data_dir):
    X, y, X_test, y_test = prepare(locate(name, data_dir), seed=0)
    learner = NEMSISClassifier("kld", random_state=0)
    learner.set_params(eta0=accuracy.choose_eta0(learner, X, y, seed=0))
    labels = learner.fit(X, y).predict(X_test)
    assert -NegKLD().score(y_test, labels) <= kld
    assert BA().score(y_test, labels) >= ba
    exact = NEMSISClassifier("kld", monotone=False, eta0=learner.eta0, random_state=0)
    assert BA().score(y_test, exact.fit(X, y).predict(X_test)) < ba
