"""Statistics, figures and report of a comparison, on small made-up results."""

import base64
import io
import re
from html.parser import HTMLParser
from itertools import pairwise

import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import quapy.error
import scipy.stats

from experiments import plots, stats
from experiments.report import drift_block, ranking_blocks, text_table, version, write_report
from experiments.store import Cell

DATA = ("cancer", "<b>digits</b> & $co", "adult|x")
METHODS = ("CC(LR)", "ACC(LR)", "ACC twin", "NEMSIS:q")
COMMAND = "python -m experiments compare --sets 'a<b'"
SIZE = 50
OPTIONS = {"title": "t", "setting": {}, "command": "c", "metrics": ["mae"], "sample_size": SIZE}
FAILED = ("adult|x", "NEMSIS:q", 1)
VOID = {"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}


def make_cell(data, method, seed, slope=1.0, noise=0.03, train=0.4, samples=42, rng=0):
    generator = np.random.default_rng(rng)
    true = np.linspace(0.0, 1.0, samples)
    estimated = train + slope * (true - train) + generator.normal(0.0, noise, samples)
    return Cell(data, method, seed, true, np.clip(estimated, 0.0, 1.0), train, 0.1 + slope, 0.2)


@pytest.fixture(scope="module")
def cells():
    """CC is off under drift; ACC and its twin differ by chance only; one cell failed."""
    slopes = dict(zip(METHODS, (0.5, 1.0, 1.0, 0.8), strict=True))
    found = []
    for i, data in enumerate(DATA):
        for seed in range(2):
            for j, method in enumerate(METHODS):
                if (data, method, seed) == FAILED:
                    found.append(Cell(*FAILED, error="ValueError: <script>alert(1)</script>"))
                else:
                    rng = 100 * i + 10 * seed + j
                    found.append(make_cell(data, method, seed, slopes[method], rng=rng))
    return found


@pytest.fixture(scope="module")
def folder(cells, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "new"
    path = write_report(
        cells,
        folder,
        title="Under drift <now>",
        setting={"protocol": "APP, 21 & more"},
        command=COMMAND,
        metrics=["mae", "mkld"],
        sample_size=SIZE,
    )
    assert path == folder / "report.html"
    return folder


class Page(HTMLParser):
    """Tables, images, headings and text of a page; complains about tags that do not balance."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.images, self.tags, self.text = [], [], [], [], ""
        self.caption = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append({"caption": self.caption, "rows": [], "bold": set()})
            assert dict(attrs)["aria-label"] == self.caption
        if tag == "figure":
            self.caption = ""
        if tag == "tr":
            self.tables[-1]["rows"].append([])
        if tag in ("td", "th"):
            self.tables[-1]["rows"][-1].append("")
        if tag == "strong":
            rows = self.tables[-1]["rows"]
            self.tables[-1]["bold"].add((len(rows) - 1, len(rows[-1]) - 1))
        if tag == "img":
            self.images.append(dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "figcaption" in self.open:
            self.caption += data
        if {"td", "th"} & set(self.open):
            self.tables[-1]["rows"][-1][-1] += data


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def table_of(page, metric):
    return next(t for t in page.tables if f"({metric})" in t["caption"])


def good(cells, data, method):
    return [c for c in cells if (c.data, c.method) == (data, method) and not c.error]


def absolute(cells, data, method):
    """Absolute errors, computed apart from what is tested."""
    found = good(cells, data, method)
    return np.concatenate([np.abs(c.true - c.estimated) for c in found])


def pixels(png):
    return matplotlib.image.imread(io.BytesIO(png), format="png")


# ---------------------------------------------------------------------- statistics


@pytest.mark.parametrize("name", ["ae", "se", "rae", "nae", "nrae", "kld", "nkld"])
def test_errors_are_those_of_quapy(name):
    cell = make_cell("data", "method", 0, slope=0.7)
    true, estimated = (np.column_stack([1 - p, p]) for p in (cell.true, cell.estimated))
    eps = {} if name in ("ae", "se", "nae") else {"eps": 0.01}
    found = stats.errors(cell, name, SIZE)
    np.testing.assert_array_equal(found, getattr(quapy.error, name)(true, estimated, **eps))
    np.testing.assert_array_equal(found, stats.errors(cell, f"m{name}", SIZE))
    assert found.mean() == pytest.approx(getattr(quapy.error, f"m{name}")(true, estimated, **eps))


@pytest.mark.parametrize("name", ["", "m", "mmae", "f1e", "AE"])
def test_unknown_metric(name, tmp_path):
    cell = make_cell("data", "method", 0)
    with pytest.raises(ValueError, match=r"unknown metric .*mae.*nkld"):
        stats.errors(cell, name, SIZE)
    with pytest.raises(ValueError, match="unknown metric"):
        write_report([cell], tmp_path / "out", **{**OPTIONS, "metrics": ["mae", name]})
    assert not (tmp_path / "out").exists()


def test_table_means_and_best(cells):
    table = stats.error_table(cells, "mae", SIZE)
    assert (table.methods, table.data) == (list(METHODS), list(DATA))
    expected = [[absolute(cells, d, m).mean() for d in DATA] for m in METHODS]
    np.testing.assert_allclose(table.means, expected)
    np.testing.assert_array_equal(table.best.argmax(axis=0), np.argmin(expected, axis=0))
    np.testing.assert_allclose(table.averages, np.mean(expected, axis=1))
    assert np.argwhere(table.partial).tolist() == [[3, 2]]
    assert table.failed.sum() == 1


def test_tests_agree_with_scipy(cells):
    table = stats.error_table(cells, "mae", SIZE)
    for j, data in enumerate(DATA):
        best = METHODS[int(table.best[:, j].argmax())]
        for i, method in enumerate(METHODS):
            if method == best:
                assert table.pvalues[i, j] == 1.0
                assert not table.same_as_best[i, j]
                continue
            seeds = {c.seed for c in good(cells, data, method)}
            first, second = (
                absolute([c for c in cells if c.seed in seeds], data, m) for m in (method, best)
            )
            expected = scipy.stats.wilcoxon(first, second, alternative="two-sided").pvalue
            assert table.pvalues[i, j] == pytest.approx(expected, rel=1e-6)
            assert table.same_as_best[i, j] == (expected >= 0.05)
    # Both outcomes occur, or the test would not tell them apart.
    assert table.same_as_best.any()
    assert not table.same_as_best[0].any()


def test_equal_methods_are_all_best():
    one, two = (make_cell("data", method, 0) for method in ("one", "two"))
    table = stats.error_table([one, two], "mae", SIZE)
    assert table.best.all()
    assert not table.same_as_best.any()
    np.testing.assert_array_equal(table.pvalues, 1.0)


def test_nothing_to_compare():
    """One method failed on the seed on which the other has its only result."""
    one, two = make_cell("data", "one", 0), make_cell("data", "two", 1, slope=0.5)
    failures = [Cell("data", "one", 1, error="no"), Cell("data", "two", 0, error="no")]
    table = stats.error_table([one, two, *failures], "mae", SIZE)
    assert np.isnan(table.pvalues[1, 0])
    assert not table.same_as_best.any()
    assert table.partial.all()


def test_estimates_that_are_no_numbers_count_as_failed():
    broken = make_cell("data", "broken", 0)
    broken.estimated[3] = np.nan
    table = stats.error_table([make_cell("data", "fine", 0), broken], "mae", SIZE)
    np.testing.assert_array_equal(table.failed, [[0], [1]])
    assert np.isnan(table.means[1, 0])


def test_unpaired_cells_are_refused():
    cell = make_cell("data", "one", 0)
    with pytest.raises(ValueError, match="more than one cell"):
        stats.error_table([cell, cell], "mae", SIZE)
    with pytest.raises(ValueError, match="other samples"):
        stats.error_table([cell, make_cell("data", "two", 0, samples=21)], "mae", SIZE)


def test_ranks_and_critical_difference_by_hand():
    means = np.array([[0.1, 0.2, 0.3], [0.2, 0.2, np.nan], [0.3, 0.1, 0.2]])
    # Ranks by column: 1 2 3; 2.5 2.5 1; 2 3 1.
    np.testing.assert_allclose(stats.average_ranks(means), [5.5 / 3, 7.5 / 3, 5 / 3])
    # Demsar (2006), table 5: q = 2.343 for three methods and 2.569 for four.
    assert stats.critical_difference(3, 3) == pytest.approx(2.343 * np.sqrt(12 / 18), abs=1e-3)
    assert stats.critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)


def test_cliques_are_the_largest():
    ranks = np.array([4.0, 1.0, 1.5, 2.5])
    assert stats.cliques(ranks, 1.2) == [(1.0, 1.5), (1.5, 2.5)]
    assert stats.cliques(ranks, 1.5) == [(1.0, 2.5), (2.5, 4.0)]
    assert stats.cliques(ranks, 0.4) == []
    assert stats.cliques(ranks, 3.0) == [(1.0, 4.0)]


def test_the_report_says_what_ranks_are_worth(cells):
    one = stats.error_table([c for c in cells if c.data == cells[0].data], "mae", SIZE)
    (words,) = ranking_blocks(stats.rank(one), "mae")
    assert "need at least two" in words.text
    ranks = np.array([1.0, 2.0, 3.0, 4.0])
    for difference, doubt in ((1.4, False), (1.6, True)):
        ranking = stats.Ranking(list("abcd"), ranks, difference, 3)
        words = ranking_blocks(ranking, "mae")[1].text
        assert ("can hardly tell methods apart" in words) == doubt


def test_ranking_needs_two_data_sets(cells):
    one = [c for c in cells if c.data == DATA[0]]
    assert stats.rank(stats.error_table(one, "mae", SIZE)) is None
    ranking = stats.rank(stats.error_table(cells, "mae", SIZE))
    assert ranking.n_data == 3
    assert ranking.ranks.sum() == pytest.approx(1 + 2 + 3 + 4)
    assert plots.rank_diagram(None) is None
    assert plots.rank_diagram(stats.Ranking(["a", "b"], np.array([1.0, 2.0]), 1.0, 2)) is None


# ---------------------------------------------------------------------- figures


def test_looks_differ():
    looks = [tuple(map(str, plots.look(k).values())) for k in range(35)]
    assert len(set(looks)) == 35
    assert len({look[:2] for look in looks}) == 35


def test_labels_do_not_overlap():
    """Ten methods at almost the same place."""
    names = [f"method number {k}" for k in range(10)]
    table_cells = [make_cell("data", name, 0, rng=k) for k, name in enumerate(names)]
    figure = plots.time_quality(table_cells, stats.error_table(table_cells, "mae", SIZE))
    plots.png(figure)
    boxes = [super(type(t), t).get_window_extent() for t in figure.axes[0].texts]
    assert len(boxes) == 10
    for k, box in enumerate(boxes):
        assert box.count_overlaps(boxes[:k]) == 0


def test_drift_curve_values(cells):
    figure = plots.drift_curves(cells, "mae", SIZE)
    ax = figure.axes[0]
    assert ax.get_title() == DATA[0]
    (line,) = [line for line in ax.get_lines() if line.get_label() == "CC(LR)"]
    found = good(cells, DATA[0], "CC(LR)")
    drift = np.concatenate([np.abs(c.true - 0.4) for c in found])
    first = drift < 0.1
    assert line.get_xdata()[0] == pytest.approx(drift[first].mean())
    expected = absolute(cells, DATA[0], "CC(LR)")[first].mean()
    assert line.get_ydata()[0] == pytest.approx(expected)


def drift_axes(n_methods, metric):
    """Axes, legend and caption of made-up methods, each worse than the one before."""
    slopes = np.linspace(1.0, 0.0, n_methods)
    found = [make_cell("data", f"m{k}", 0, slope, rng=k) for k, slope in enumerate(slopes)]
    figure = plots.drift_curves(found, metric, SIZE)
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    return figure.axes[0], names, drift_block(found, metric, SIZE).caption


@pytest.mark.parametrize("metric", ["ae", "rae", "nrae", "kld", "nkld"])
def test_errors_that_divide_by_prevalences_have_a_log_axis(metric):
    ax, _, caption = drift_axes(3, metric)
    scale = "linear" if metric == "ae" else "log"
    assert ax.get_yscale() == scale
    assert ("log scale" in caption) == (scale == "log")
    # Nothing is cut off.
    values = np.concatenate([line.get_ydata() for line in ax.get_lines()])
    low, high = ax.get_ylim()
    assert low <= values.min() <= values.max() <= high


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("n_methods", [1, 12])
def test_drift_curves_of_perfect_or_failed_methods(n_methods):
    true = np.linspace(0.0, 1.0, 21)
    for make in (
        lambda name: Cell("data", name, 0, true, true, 0.4, 1.0, 1.0),
        lambda name: Cell("data", name, 0, error="broken"),
    ):
        found = [make(f"m{k}") for k in range(n_methods)]
        for metric in ("ae", "rae", "kld"):
            plots.png(plots.drift_curves(found, metric, SIZE))


@pytest.mark.parametrize("n_methods", [plots.MOST, 24])
def test_of_many_methods_the_best_are_in_colour(n_methods):
    ax, names, caption = drift_axes(n_methods, "ae")
    many = n_methods > plots.MOST
    shown = plots.IN_COLOUR if many else n_methods
    # One line for all others, and the last.
    assert names == [f"m{k}" for k in range(shown)] + ["others"] * many
    coloured = [line for line in ax.get_lines() if line.get_label() != "others"]
    grey = [line for line in ax.get_lines() if line.get_label() == "others"]
    assert (len(coloured), len(grey)) == (shown, n_methods - shown)
    # The same looks as in other figures.
    for k, line in enumerate(coloured):
        assert (line.get_color(), line.get_marker()) == tuple(plots.look(k).values())[:2]
    assert {line.get_color() for line in grey}.isdisjoint(plots.COLOURS)
    assert ("In colour: the 8 methods of best mean rank" in caption) == many
    if many:  # bad methods do not press the good ones to the ground
        highest = max(line.get_ydata().max() for line in coloured)
        assert highest < ax.get_ylim()[1] <= 2 * highest


def diagram(ranks, difference):
    methods = [f"m{k}" for k in range(len(ranks))]
    ranking = stats.Ranking(methods, np.array(ranks, dtype=float), difference, 3)
    figure = plots.rank_diagram(ranking)
    return figure, ranking_blocks(ranking, "mae")[-1].caption


@pytest.mark.parametrize("n", [3, 12, 13, 24, 60])
def test_numbers_of_ranks_do_not_run_together(n):
    figure, _ = diagram(range(1, n + 1), 1.5)
    plots.png(figure)
    ax = figure.axes[0]
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert 3 <= len(boxes) <= 12
    gap = 0.3 * boxes[0].height
    assert all(b.x0 - a.x1 > gap for a, b in pairwise(boxes))
    assert ax.get_xlim() == (1.0, n)


@pytest.mark.parametrize("difference", [1.5, 3.0, 9.0])
def test_a_difference_that_none_exceeds_has_no_bars(difference):
    """The best and the worst method are 2.5 apart."""
    figure, caption = diagram([1.0, 2.0, 3.5, 3.5], difference)
    ax = figure.axes[0]
    bars = [line for line in ax.get_lines() if line.get_linewidth() == 4]
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None)]
    (words,) = [t.get_text() for t in ax.texts if t.get_text().startswith("critical")]
    alike = difference > 2.5
    assert bool(bars) == bool(arrows) == (not alike)
    assert ("no two methods differ" in words) == alike
    assert caption.endswith(
        "no two methods differ significantly."
        if alike
        else "bars join methods that do not differ significantly."
    )
    # Names and ranks are there all the same.
    assert {f"m{k}" for k in range(4)} == {
        t.get_text().split()[0] for t in ax.texts if "(" in t.get_text()
    }


# ---------------------------------------------------------------------- report


def test_page_is_whole_and_needs_nothing_else(folder, page):
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    names = [tag for tag, _ in page.tags]
    assert not {"script", "link", "iframe", "b", "now"} & set(names)
    assert not re.search(r"https?://|url\(|@import", text)
    assert [tag for tag in names if tag == "h1"] == ["h1"]
    assert "Under drift <now>" in page.text
    assert COMMAND in page.text
    assert "ValueError: <script>alert(1)</script>" in page.text
    assert any(attrs.get("name") == "viewport" for tag, attrs in page.tags if tag == "meta")
    policies = [attrs["content"] for _, attrs in page.tags if "http-equiv" in attrs]
    assert policies == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]
    assert all(table["caption"] for table in page.tables)
    assert all(attrs["scope"] in ("row", "col") for tag, attrs in page.tags if tag == "th")


def test_tables_and_figures_scroll_in_their_own_boxes(page):
    parents, opened = [], []
    for tag, attrs in page.tags:
        if tag in ("table", "img"):
            parents.append(opened[-1])
        elif tag not in VOID:
            opened.append((tag, attrs.get("class")))
    assert set(parents) == {("div", "scroll")}
    assert len(parents) == len(page.tables) + len(page.images)
    boxes = [attrs for _, attrs in page.tags if attrs.get("class") == "scroll"]
    assert all((box["tabindex"], box["role"]) == ("0", "region") for box in boxes)
    assert all(box["aria-label"] for box in boxes)


def test_every_entry_is_on_the_page(cells, page):
    for metric in ("mae", "mkld"):
        table, expected = table_of(page, metric.upper()), stats.error_table(cells, metric, SIZE)
        head, *rows = table["rows"]
        assert head == ["Method", *DATA, "average"]
        assert [row[0] for row in rows] == list(METHODS)
        shown = [[float(re.sub("[†‡]", "", v)) for v in row[1:]] for row in rows]
        values = np.column_stack([expected.means, expected.averages])
        np.testing.assert_allclose(shown, values, atol=5.1e-5)
        best = {(int(i) + 1, j + 1) for j, i in enumerate(values.argmin(axis=0))}
        assert table["bold"] == best
        daggers = [["†" in v for v in row[1:-1]] for row in rows]
        np.testing.assert_array_equal(daggers, expected.same_as_best)
        partial = [["‡" in v for v in row[1:-1]] for row in rows]
        np.testing.assert_array_equal(partial, expected.partial)
    assert "†: not significantly different from the best" in page.text
    assert f"{FAILED[1]} on {FAILED[0]}, seed {FAILED[2]}" in page.text


def test_versions_and_hardware(page):
    rows = dict(next(t["rows"] for t in page.tables if "made" in t["caption"]))
    assert rows["numpy"] == np.__version__
    for name in ("processor", "cores", "Python", "numba", "matplotlib", "quapy", "quapy-nemsis"):
        assert rows[name]
    assert version("no-such-package-of-ours") == "not installed"


def test_figures(folder, page):
    # Ranks, drift and time for both metrics, and estimates on each data set.
    assert len(page.images) == 2 * 3 + 3
    files = sorted((folder / "figures").glob("*.png"))
    assert len(files) == len(page.images)
    embedded = set()
    for image in page.images:
        assert len(image["alt"]) > 20
        head, _, data = image["src"].partition(",")
        assert head == "data:image/png;base64"
        png = base64.b64decode(data, validate=True)
        embedded.add(png)
        picture = pixels(png)
        assert picture.shape[:2] == (int(image["height"]), int(image["width"]))
        assert picture[..., :3].std() > 0.02
    assert {file.read_bytes() for file in files} == embedded


def test_markdown(folder, cells):
    text = (folder / "report.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]*\.png)\)", text)
    assert len(links) == 9
    for link in links:
        assert (folder / link).is_file()
    # Escaped but in the command, which is shown as it is.
    body, _, command = text.partition("## To repeat it\n")
    assert "<" not in body
    assert command.strip() == COMMAND
    assert "# Under drift &lt;now&gt;" in text
    table = stats.error_table(cells, "mae", SIZE)
    assert f"**{table.means[:, 0].min():.4f}**" in text
    # As many columns in each line of a table, in spite of the | in a name.
    lines = text.splitlines()
    first = next(k for k, line in enumerate(lines) if "| cancer |" in line)
    for line in lines[first : first + 2 + len(METHODS)]:
        assert len(re.findall(r"(?<!\\)\|", line)) == 6


def test_csv_files(folder, cells):
    rows = pd.read_csv(folder / "results.csv", keep_default_na=False, dtype=str)
    numbers = ["mae", "mkld", "fit_seconds", "predict_seconds"]
    assert list(rows) == ["data", "method", "seed", *numbers, "error"]
    assert len(rows) == len(cells) == 24
    for row, cell in zip(rows.itertuples(), cells, strict=True):
        assert (row.data, row.method, int(row.seed)) == (cell.data, cell.method, cell.seed)
        assert row.error == cell.error
        if cell.error:
            assert row.mae == row.fit_seconds == ""
        else:
            assert float(row.mae) == pytest.approx(np.abs(cell.true - cell.estimated).mean())
            assert float(row.fit_seconds) == cell.fit_seconds
    samples = pd.read_csv(folder / "samples.csv", dtype=str)
    for name in ("true", "estimated"):
        expected = np.concatenate([getattr(c, name) for c in cells])
        np.testing.assert_array_equal([float(value) for value in samples[name]], expected)
    assert set(samples["data"]) == set(DATA)


def test_no_half_files_are_left(folder):
    files = {"report.html", "report.md", "results.csv", "samples.csv", "figures"}
    assert {path.name for path in folder.iterdir()} == files


def test_report_of_failures_only(tmp_path):
    """Nothing worked, and still there is a page that says so."""
    failed = [Cell("data", method, 0, error="broken") for method in ("one", "two")]
    path = write_report(failed, tmp_path, **OPTIONS)
    page = Page(path.read_text(encoding="utf-8"))
    assert table_of(page, "MAE")["rows"][1:] == [["one", "failed"], ["two", "failed"]]
    assert page.text.count("broken") == 2
    with pytest.raises(ValueError, match="at least one"):
        write_report([], tmp_path, **OPTIONS)


def test_text_table(cells):
    lines = text_table(cells, "mae", SIZE).splitlines()
    assert lines[0] == "Mean absolute error (MAE)"
    assert all(name in lines[1] for name in (*DATA, "average"))
    table = stats.error_table(cells, "mae", SIZE)
    for i, method in enumerate(METHODS):
        line = lines[2 + i]
        assert line.startswith(method)
        assert line.count("*") == table.best[i].sum() + (table.averages.argmin() == i)
        assert line.count("†") == table.same_as_best[i].sum()
        for mean in table.means[i]:
            assert f"{mean:.4f}" in line
    # Numbers stand below each other, whatever their marks.
    points = [[m.start() for m in re.finditer(r"\.\d{4}", line)] for line in lines[2:6]]
    assert points == [points[0]] * 4


def test_text_table_says_what_failed_or_is_missing():
    cells = [
        make_cell("a", "one", 0),
        make_cell("b", "one", 0),
        Cell("a", "two", 0, error="no"),
    ]
    text = text_table(cells, "mrae", SIZE)
    row = next(line for line in text.splitlines() if line.startswith("two"))
    assert re.fullmatch(r"two +failed +not run +–", row)
