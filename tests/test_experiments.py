"""The experiments run for real, small."""

import sys

import numpy as np
import pytest

from experiments import accuracy, bench, demo
from experiments.data import embedded, from_npz, split
from quapy_nemsis import BA, NegKLD, NEMSISClassifier, get_measure
from tests.conftest import make_points


def test_demo(tmp_path, monkeypatch, capsys):
    arguments = ["demo", "--out", str(tmp_path), "--repeats", "2", "--sample-size", "50"]
    monkeypatch.setattr(sys, "argv", arguments)
    demo.main()
    printed = capsys.readouterr().out
    assert "breast_cancer" in printed
    for method in demo.methods():
        assert printed.count(method) >= 3
    png = (tmp_path / "drift.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert len(png) > 20_000


def test_bench(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bench", "--rows", "2000", "--repeats", "1"])
    bench.main()
    printed = capsys.readouterr().out
    for line in (
        "pass, q / X @ w",
        "pass, kld / SGDClassifier.fit",
        "own, without / built-in",
        "Peak memory",
        "disk cache",
    ):
        assert line in printed


def test_best_of_takes_the_best():
    times = iter([3.0, 1.0, 2.0])
    assert bench.best_of(3, task=lambda: next(times)) == {"task": 1.0}


@pytest.mark.parametrize("name", ["breast_cancer", "digits"])
def test_embedded_data(name):
    X, y, _, y_test = split(*embedded(name), seed=0)
    assert set(np.unique(y)) == set(np.unique(y_test)) == {0, 1}
    assert abs(y.mean() - y_test.mean()) < 0.01
    assert np.abs(X.mean(axis=0)).max() < 1e-9
    with pytest.raises(ValueError, match="unknown embedded data set 'wine'"):
        embedded("wine")


def test_npz_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="no data set 'adult'"):
        from_npz(tmp_path, "adult")
    X, y = make_points(n=50)
    np.savez(tmp_path / "odd.npz", Z=X, y=y)
    with pytest.raises(ValueError, match=r"it holds \['Z', 'y'\]"):
        from_npz(tmp_path, "odd")
    np.savez(tmp_path / "dense.npz", X=X, y=y)
    loaded, labels = from_npz(tmp_path, "dense")
    np.testing.assert_allclose(loaded, X, rtol=1e-6)
    np.testing.assert_array_equal(labels, y)


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


# Floors on real data: 70/30 split, seed 0, standardised, the step size chosen on a fifth of train.
FLOORS = {
    "bakld:0.5": {"adult": 0.400, "ijcnn1": 0.425, "letter": 0.41, "covtype": 0.358},
    "q": {"adult": 0.895, "ijcnn1": 0.935, "letter": 0.938, "covtype": 0.907},
    "cq": {"adult": 0.808, "ijcnn1": 0.878, "letter": 0.885, "covtype": 0.828},
    "bk": {"adult": 0.800, "ijcnn1": 0.865, "letter": 0.835, "covtype": 0.745},
}


@pytest.mark.parametrize("name", ["adult", "ijcnn1", "letter", "covtype"])
def test_values_on_real_data(name, data_dir):
    X, y, X_test, y_test = split(*from_npz(data_dir, name), seed=0)
    for measure, floors in FLOORS.items():
        learner = accuracy.online_learner(measure, passes=5, seed=0)
        learner.set_params(eta0=accuracy.choose_eta0(learner, X, y, seed=0))
        labels = learner.fit(X, y).predict(X_test)
        assert get_measure(measure).score(y_test, labels) >= floors[name]


@pytest.mark.parametrize(("name", "kld", "ba"), [("adult", 2e-4, 0.72), ("ijcnn1", 1e-3, 0.60)])
def test_kld_on_real_data(name, kld, ba, data_dir):
    X, y, X_test, y_test = split(*from_npz(data_dir, name), seed=0)
    learner = NEMSISClassifier("kld", random_state=0)
    learner.set_params(eta0=accuracy.choose_eta0(learner, X, y, seed=0))
    labels = learner.fit(X, y).predict(X_test)
    assert -NegKLD().score(y_test, labels) <= kld
    assert BA().score(y_test, labels) >= ba
    exact = NEMSISClassifier("kld", monotone=False, eta0=learner.eta0, random_state=0)
    assert BA().score(y_test, exact.fit(X, y).predict(X_test)) < ba
