"""The experiment on tracking, on small data."""

import sys

import numpy as np
import pytest

from experiments import tracking
from tests.conftest import make_points


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    X, y = make_points(n=1500, d=3)
    np.savez(tmp_path / "two.npz", X=X, y=np.where(y, 1, -1))
    monkeypatch.setattr(tracking, "WINDOW", 100)
    monkeypatch.setattr(tracking, "CHANGES", (0.4,))
    folders = ["--data-dir", str(tmp_path), "--out", str(tmp_path / "out")]
    few = ["--rows", "500", "--seeds", "1", "--chunks", "30", "--streams", "1", "--fits", "1"]

    def run(part):
        options = ["--sets", "two", "--parts", part, "--windows", "10", *few]
        monkeypatch.setattr(sys, "argv", ["tracking", *folders, *options])
        tracking.main()
        return capsys.readouterr().out.splitlines()

    return run


def figures(lines, name):
    return [
        [float(value) for value in line[20:].split()] for line in lines if line.startswith(name)
    ]


def test_trackers(run):
    lines = run("trackers")
    for name in tracking.TRACKERS:
        assert len(figures(lines, f"{name:20}")) == 4
    error, _, accuracy, _ = figures(lines, f"{'oracle':20}")
    assert max(error) == 0.0
    assert min(accuracy) > figures(lines, f"{'base':20}")[2][-1] - 10.0
    # The prevalences of the first chunk are equal, and the base's are those of training.
    assert figures(lines, f"{'em, 10 chunks':20}")[0][-1] < figures(lines, f"{'base':20}")[0][-1]


def test_tests_and_alarms(run):
    # The standard error, without change, and with a change of 0.4.
    found = [line.split()[1:] for line in run("tests") if line.startswith("two")]
    prevalence, mixture, either = ([float(value) for value in line] for line in found)
    assert prevalence[2] == either[2] == 1.0  # found in each window
    assert max(prevalence[1], mixture[1], mixture[2]) <= 0.5
    assert either[1] <= prevalence[1] + mixture[1]
    line = run("alarms")[-1].split()
    assert line[0] == "two"
    assert line[-2:] == ["1.00", "1.0"]  # at once


def test_shifts_are_those_of_the_paper():
    rng = np.random.default_rng(0)
    kinds = {kind: tracking.shifts(kind, 4, 100, rng)[:, 0] for kind in tracking.SHIFTS}
    np.testing.assert_allclose(kinds["monotone"], 0.25 + 0.75 * np.arange(100) / 100)
    np.testing.assert_array_equal(kinds["square"][:25], [0.25] * 10 + [1.0] * 10 + [0.25] * 5)
    np.testing.assert_allclose(kinds["sinusoidal"][[0, 5, 10]], [0.25, 1.0, 0.25])
    assert set(kinds["bernoulli"]) == {0.25, 1.0}
    assert kinds["bernoulli"][0] == 0.25
