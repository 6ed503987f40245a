"""The LaTeX tables of a report: read again by a small parser, and compiled where LaTeX is installed."""

import re
import shutil
import subprocess

import numpy as np
import pytest

from experiments import stats
from experiments.rendering import MOST_COLUMNS, Grid, as_latex, as_tex, parts
from experiments.report import latex
from tests.test_report import SIZE, make_cell

NASTY = r"""a_b & c% $x$ #1 {y} \z ~ ^ <t> | "q" -- [k] * `"""
SETTING = {"Protocol": "APP, 50 % & more", "Splits": "3", "Data: x": "not in captions"}


@pytest.fixture(scope="module")
def cells():
    sets = [NASTY, "[b]", "* c", *(f"set {k}" for k in range(6))]
    return [
        make_cell(data, method, seed, slope, rng=10 * k + seed)
        for k, data in enumerate(sets)
        for method, slope in (("ACC_x", 1.0), ("[CC]", 0.4), (NASTY, 0.99))
        for seed in range(3)
    ]


@pytest.fixture(scope="module")
def text(cells):
    return latex(cells, NASTY, SETTING, ["ae", "kld"], SIZE)


def environments(text):
    """Complain unless environments and braces close in the order in which they were opened."""
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    depth = 0
    for brace in re.findall(r"(?<!\\)(?:\\\\)*([{}])", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    # As many formulas begin as end.
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0


def tables(text):
    """Return caption, head and rows of each table."""
    found = []
    for table in re.findall(r"\\begin\{table\}(.*?)\\end\{table\}", text, flags=re.DOTALL):
        (columns,) = re.findall(r"\\begin\{tabular\}\{(\w+)\}", table)
        caption = re.search(r"\\caption\{(.*)\}\n", table)[1]
        body = table.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
        lines = [line for line in body.splitlines() if line and line != r"\midrule"]
        assert all(line.endswith(r" \\") for line in lines)
        rows = [re.split(r" (?<!\\)& ", line.removesuffix(r" \\")) for line in lines]
        assert {len(row) for row in rows} == {len(columns)}
        assert columns == "l" + "r" * (len(columns) - 1)
        found.append((caption, rows[0], rows[1:]))
    return found


def test_document_is_whole(text):
    environments(text)
    assert r"\usepackage{booktabs}" in text
    # Nothing but what LaTeX can read by itself; no row begins with what belongs to the end of the row before.
    assert text.isascii()
    assert not re.search(r"\\\\\s*[\[*]", text)


def test_tables_say_what_the_statistics_say(cells, text):
    found = tables(text)
    for metric, name in (("ae", "MAE"), ("kld", "MKLD")):
        table = stats.error_table(cells, metric, SIZE)
        here = [t for t in found if f"({name}), mean over" in t[0]]
        assert len(here) == 2  # nine data sets and the average
        assert [cell for t in here for cell in t[1][1:]] == [*map(as_tex, table.data), "average"]
        rows = [[cell for t in here for cell in t[2][i][1:]][: len(table.data)] for i in range(3)]
        for i, j in np.ndindex(table.means.shape):
            mean, _, spread = re.sub(r"\\textbf\{(.*)\}", r"\1", rows[i][j]).partition(r" $\pm$ ")
            digits = 5.1e-5 if table.means[i, j] >= 1e-3 else 0.051 * table.means[i, j]
            assert float(mean) == pytest.approx(table.means[i, j], abs=digits)
            assert float(spread.partition("$")[0]) == pytest.approx(table.spreads[i, j], abs=digits)
            assert rows[i][j].startswith(r"\textbf{") == table.best[i, j]
            assert rows[i][j].endswith(r"$^\dagger$") == table.same_as_best[i, j]
        for caption, _, body in here:
            for words in (
                r"APP, 50 \% \& more",
                f"Samples of {SIZE} rows, 3 splits.",
                "Bold: best",
            ):
                assert words in caption
            assert "not in captions" not in caption
            assert [row[0] for row in body] == [as_tex(m) for m in table.methods]
    assert sum("Mean rank" in t[0] for t in found) == 2
    assert sum("Seconds of" in t[0] for t in found) == 4


@pytest.mark.parametrize(("columns", "widths"), [(1, [1]), (6, [6]), (7, [3, 4]), (13, [4, 4, 5])])
def test_wide_tables_are_split(columns, widths):
    head = ["", *map(str, range(columns))]
    grid = Grid("c", head, [["r", *head[1:]]], frozenset({(0, columns)}))
    found = list(parts(grid))
    assert [len(part.head) - 1 for part in found] == widths
    assert max(widths) <= MOST_COLUMNS
    assert [name for part in found for name in part.head[1:]] == head[1:]
    assert [name for part in found for name in part.rows[0][1:]] == head[1:]
    assert [len(part.bold) for part in found] == [0] * (len(widths) - 1) + [1]
    assert found[-1].bold == {(0, widths[-1])}


def test_names_are_escaped():
    assert as_tex(r"\input{x}") == r"\textbackslash{}input\{x\}"
    assert as_tex("a---b\n c") == "a-{}-{}-b c"
    assert as_tex("é – 語") == r"é \textendash{} {[}U+8A9E]"
    environments(as_latex(NASTY, [Grid(NASTY, [NASTY, "[b"], [[NASTY, "*"]], note=NASTY)], NASTY))


@pytest.mark.skipif(
    not (shutil.which("tectonic") or shutil.which("pdflatex")), reason="LaTeX is not installed"
)
def test_it_compiles(text, tmp_path):
    (tmp_path / "report.tex").write_text(text, encoding="utf-8")
    command = ["tectonic"] if shutil.which("tectonic") else ["pdflatex", "-halt-on-error"]
    subprocess.run([*command, "report.tex"], cwd=tmp_path, check=True, timeout=300)
    assert (tmp_path / "report.pdf").stat().st_size > 10_000
