"""Experiments of the literature, on sets that are small here."""

import numpy as np
import pytest

from experiments import compare, presets
from experiments.__main__ import main
from experiments.names import PRESETS
from experiments.store import Cell
from tests.conftest import make_classes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    X, y = make_classes(n=900, d=4)
    np.savez(tmp_path / "mhr.npz", X=X, y=y)
    # Not the embedded set of this name.
    np.savez(tmp_path / "multi.digits.npz", X=X[:600], y=y[:600])
    real = presets.options
    monkeypatch.setattr(presets, "options", lambda *a, **k: {**real(*a, **k), "repeats": 5})
    return tmp_path


def test_sets_of_several_classes(folder, capsys):
    arguments = ["reproduce", "uci-multiclass", "--data-dir", folder, "--out", folder / "out"]
    main([str(word) for word in (*arguments, "--seeds", 1, "--methods", "Quantifier", "EMQ@plain")])
    printed = capsys.readouterr().out
    assert "left out, because they are not here: dry-bean, wine-quality" in printed
    assert "UPP, 5 samples of 500 rows" in (folder / "out/uci-multiclass/report.html").read_text()
    lines = printed[printed.index("ours and published") :].splitlines()
    head, first, second = (
        line for line in lines if "Quantifier" in line or line[:3] in ("mhr", "dig")
    )
    assert head.split("  ")[-1].strip() == "published best"
    files = [path.name for path in (folder / "out/uci-multiclass/cells").glob("*.json")]
    cells = compare.finished(files, folder / "out/uci-multiclass/cells")
    found = {(c.data, c.method): np.abs(c.true - c.estimated).mean() for c in cells}
    (mhr,) = (line for line in (first, second) if line.startswith("mhr"))
    assert mhr.split()[1:] == [
        f"{found['mhr', 'Quantifier']:.4f}",
        f"{found['mhr', 'EMQ (plain)']:.4f}",
        "0.0594",
        "0.0538",
    ]


def test_means_are_over_sets_with_published_figures():
    def cell(data, error):
        true = np.array([[0.5, 0.3, 0.2]])
        return Cell(data, "EMQ", 0, ["a", "b", "c"], true, true + np.array([[error, -error, 0.0]]))

    cells = [cell("mhr", 0.03), cell("cmc", 0.06), cell("digits", 0.3), cell("letter", np.nan)]
    head, *lines = presets.table("uci-multiclass", cells)
    assert head == ["", "EMQ", "published EM", "published best"]
    found = {line[0]: line[1:] for line in lines}
    assert found["digits"] == ["0.2000", "–", "–"]
    assert found["mean"] == ["0.0300", "0.0770", "0.0742"]
    assert found["geometric mean"][0] == f"{np.sqrt(0.02 * 0.04):.4f}"


def test_methods_of_figures_are_fixed():
    with pytest.raises(SystemExit, match="--methods is for uci-multiclass and lequa"):
        main(["reproduce", "fig1", "--methods", "EMQ"])


def test_without_data(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for preset in PRESETS:
        with pytest.raises(SystemExit, match=f"none of the data sets of {preset} is here"):
            main(["reproduce", preset, "--data-dir", str(tmp_path)])


def test_presets_are_run_alone():
    with pytest.raises(SystemExit, match="one at a time"):
        main(["reproduce", "lequa", "fig1"])


def test_published_figures_of_lequa():
    assert presets.published("lequa", "T1A")["published EMQ"] == 0.0236
    assert set(presets.PUBLISHED_LEQUA) == {"T1A", "T1B"}
