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
from experiments.store import Cell, both

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
    shares = (both(values) for values in (true, np.clip(estimated, 0.0, 1.0), train))
    return Cell(data, method, seed, ["no", "yes"], *shares, 0.1 + slope, 0.2)


@pytest.fixture(scope="module")
def cells():
    """CC is off under drift; ACC and its twin differ by chance only; one cell failed."""
    slopes = dict(zip(METHODS, (0.5, 1.0, 1.0, 0.8), strict=True))
    found = []
    for i, data in enumerate(DATA):
        for seed in range(2):
            for j, method in enumerate(METHODS):
                rng = 100 * i + 10 * seed + j
                found.append(make_cell(data, method, seed, slopes[method], rng=rng))
                if (data, method, seed) == FAILED:
                    found[-1] = Cell(*FAILED, error="ValueError: <script>alert(1)</script>")
    return found


@pytest.fixture(scope="module")
def table(cells):
    return stats.error_table(cells, "mae", SIZE)


@pytest.fixture(scope="module")
def folder(cells, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "new"
    setting = {"protocol": "APP, 21 & more"}
    options = {"title": "Under drift <now>", "setting": setting, "command": COMMAND}
    path = write_report(cells, folder, **options, metrics=["mae", "mkld"], sample_size=SIZE)
    assert path == folder / "report.html"
    return folder


class Page(HTMLParser):
    """Tables, images and text of a page; complains about tags that do not balance."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tables, self.images, self.tags, self.text = [], [], [], [], ""
        self.caption = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs, self.open[-1] if self.open else None))
        if tag not in VOID:
            self.open.append((tag, attrs.get("class")))
        if tag == "table":
            self.tables.append({"caption": self.caption, "rows": [], "bold": set()})
            assert attrs["aria-label"] == self.caption != ""
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
            self.images.append(attrs)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text += data
        inside = {tag for tag, _ in self.open}
        if "figcaption" in inside:
            self.caption += data
        if {"td", "th"} & inside:
            self.tables[-1]["rows"][-1][-1] += data


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def table_of(page, words):
    return next(t for t in page.tables if words in t["caption"])


def absolute(cells, data, method, seeds=(0, 1)):
    """Absolute errors, computed apart from what is tested."""
    found = [c for c in cells if (c.data, c.method) == (data, method) and c.seed in seeds]
    return np.concatenate([np.abs(c.true - c.estimated)[:, 1] for c in found if not c.error])


def pixels(png):
    return matplotlib.image.imread(io.BytesIO(png), format="png")


# ---------------------------------------------------------------------- statistics


@pytest.mark.parametrize("name", ["ae", "se", "rae", "nae", "nrae", "kld", "nkld"])
def test_errors_are_those_of_quapy(name):
    cell = make_cell("data", "method", 0, slope=0.7)
    true, estimated = (np.column_stack([1 - p[:, 1], p[:, 1]]) for p in (cell.true, cell.estimated))
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


def test_table_means_and_best(cells, table):
    assert (table.methods, table.data) == (list(METHODS), list(DATA))
    expected = [[absolute(cells, d, m).mean() for d in DATA] for m in METHODS]
    np.testing.assert_allclose(table.means, expected)
    np.testing.assert_array_equal(table.best.argmax(axis=0), np.argmin(expected, axis=0))
    np.testing.assert_allclose(table.averages, np.mean(expected, axis=1))
    assert np.argwhere(table.partial).tolist() == [[3, 2]]
    assert table.failed.sum() == 1


def test_tests_agree_with_scipy(cells, table):
    for j, data in enumerate(DATA):
        best = METHODS[int(table.best[:, j].argmax())]
        for i, method in enumerate(METHODS):
            seeds = (0,) if (data, method) == FAILED[:2] else (0, 1)
            first, second = (absolute(cells, data, m, seeds) for m in (method, best))
            expected = 1.0 if method == best else scipy.stats.wilcoxon(first, second).pvalue
            assert table.pvalues[i, j] == pytest.approx(expected, rel=1e-6)
            assert table.same_as_best[i, j] == (expected >= 0.05 and method != best)
    # Both outcomes occur, or the test would not tell them apart.
    assert table.same_as_best.any()
    assert not table.same_as_best[0].any()


def test_special_cases_of_tables():
    one, two = (make_cell("data", method, 0) for method in ("one", "two"))
    equal = stats.error_table([one, two], "mae", SIZE)
    assert equal.best.all()
    assert not equal.same_as_best.any()
    np.testing.assert_array_equal(equal.pvalues, 1.0)
    # One method failed on the seed on which the other has its only result.
    other = make_cell("data", "two", 1, slope=0.5)
    failures = [Cell("data", "one", 1, error="no"), Cell("data", "two", 0, error="no")]
    apart = stats.error_table([one, other, *failures], "mae", SIZE)
    assert np.isnan(apart.pvalues[1, 0])
    assert not apart.same_as_best.any()
    assert apart.partial.all()
    # Estimates that are no numbers count as failed.
    two.estimated[3] = np.nan
    broken = stats.error_table([one, two], "mae", SIZE)
    np.testing.assert_array_equal(broken.failed, [[0], [1]])
    assert np.isnan(broken.means[1, 0])
    # Cells that are no pairs are refused.
    with pytest.raises(ValueError, match="more than one cell"):
        stats.error_table([one, one], "mae", SIZE)
    with pytest.raises(ValueError, match="other samples"):
        stats.error_table([one, make_cell("data", "two", 0, samples=21)], "mae", SIZE)


def test_ranks_and_critical_difference_by_hand():
    means = np.array([[0.1, 0.2, 0.3], [0.2, 0.2, np.nan], [0.3, 0.1, 0.2]])
    # Ranks by column: 1 2 3; 2.5 2.5 1; 2 3 1.
    np.testing.assert_allclose(stats.average_ranks(means), [5.5 / 3, 7.5 / 3, 5 / 3])
    # Demsar (2006), table 5: q = 2.343 for three methods and 2.569 for four.
    assert stats.critical_difference(3, 3) == pytest.approx(2.343 * np.sqrt(12 / 18), abs=1e-3)
    assert stats.critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)


@pytest.mark.parametrize(
    ("difference", "groups"),
    [
        (1.2, [(1.0, 1.5), (1.5, 2.5)]),
        (1.5, [(1.0, 2.5), (2.5, 4.0)]),
        (0.4, []),
        (3.0, [(1.0, 4.0)]),
    ],
)
def test_cliques_are_the_largest(difference, groups):
    assert stats.cliques(np.array([4.0, 1.0, 1.5, 2.5]), difference) == groups


def test_ranking_needs_two_data_sets(cells, table):
    one = stats.error_table([c for c in cells if c.data == DATA[0]], "mae", SIZE)
    assert stats.rank(one) is None
    (words,) = ranking_blocks(None, "mae")
    assert "need at least two" in words.text
    ranking = stats.rank(table)
    assert ranking.n_data == 3
    assert ranking.ranks.sum() == pytest.approx(1 + 2 + 3 + 4)
    assert plots.rank_diagram(None) is None
    assert plots.rank_diagram(stats.Ranking(["a", "b"], np.array([1.0, 2.0]), 1.0, 2)) is None


# ---------------------------------------------------------------------- figures


def test_looks_differ():
    looks = [tuple(map(str, plots.look(k).values()))[:2] for k in range(35)]
    assert len(set(looks)) == 35


def test_labels_do_not_overlap():
    """Ten methods at almost the same place."""
    found = [make_cell("data", f"method number {k}", 0, rng=k) for k in range(10)]
    figure = plots.time_quality(found, stats.error_table(found, "mae", SIZE))
    plots.png(figure)
    boxes = [super(type(t), t).get_window_extent() for t in figure.axes[0].texts]
    assert len(boxes) == 10
    for k, box in enumerate(boxes):
        assert box.count_overlaps(boxes[:k]) == 0


def test_drift_curve_values(cells, table):
    ax = plots.drift_curves(cells, table, SIZE).axes[0]
    assert ax.get_title() == DATA[0]
    (line,) = [line for line in ax.get_lines() if line.get_label() == "CC(LR)"]
    drift = np.tile(np.abs(cells[0].true[:, 1] - 0.4), 2)
    assert line.get_xdata()[0] == pytest.approx(drift[drift < 0.1].mean())
    expected = absolute(cells, DATA[0], "CC(LR)")[drift < 0.1].mean()
    assert line.get_ydata()[0] == pytest.approx(expected)


def drift_axes(n_methods, metric):
    """Axes, legend and caption of made-up methods, each worse than the one before."""
    slopes = np.linspace(1.0, 0.0, n_methods)
    found = [make_cell("data", f"m{k}", 0, slope, rng=k) for k, slope in enumerate(slopes)]
    table = stats.error_table(found, metric, SIZE)
    figure = plots.drift_curves(found, table, SIZE)
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    return figure.axes[0], names, drift_block(found, table, SIZE).caption


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
@pytest.mark.parametrize("metric", ["ae", "rae", "kld"])
def test_drift_curves_of_perfect_or_failed_methods(n_methods, metric):
    true = both(np.linspace(0.0, 1.0, 21))
    for result in ({"true": true, "estimated": true}, {"error": "broken"}):
        result |= {"classes": ["no", "yes"], "train_prevalence": both(0.4)}
        found = [Cell("data", f"m{k}", 0, **result) for k in range(n_methods)]
        table = stats.error_table(found, metric, SIZE)
        plots.png(plots.drift_curves(found, table, SIZE))


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
    ranks = np.array(ranks, dtype=float)
    ranking = stats.Ranking([f"m{k}" for k in range(len(ranks))], ranks, difference, 3)
    _, words, picture = ranking_blocks(ranking, "mae")
    return plots.rank_diagram(ranking), words.text, picture.caption


@pytest.mark.parametrize("n", [3, 12, 13, 24, 60])
def test_numbers_of_ranks_do_not_run_together(n):
    figure = diagram(range(1, n + 1), 1.5)[0]
    plots.png(figure)
    ax = figure.axes[0]
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert 3 <= len(boxes) <= 12
    gap = 0.3 * boxes[0].height
    assert all(b.x0 - a.x1 > gap for a, b in pairwise(boxes))
    assert ax.get_xlim() == (1.0, n)


@pytest.mark.parametrize("difference", [1.4, 1.6, 3.0, 9.0])
def test_a_difference_that_none_exceeds_has_no_bars(difference):
    """The best and the worst method are 2.5 apart."""
    figure, told, caption = diagram([1.0, 2.0, 3.5, 3.5], difference)
    ax = figure.axes[0]
    bars = [line for line in ax.get_lines() if line.get_linewidth() == 4]
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None)]
    (words,) = [t.get_text() for t in ax.texts if t.get_text().startswith("critical")]
    alike = difference > 2.5
    assert bool(bars) == bool(arrows) == (not alike)
    assert ("no two methods differ" in words) == ("no two methods differ" in caption) == alike
    assert ("can hardly tell methods apart" in told) == (difference > 1.5)
    # Names and ranks are there all the same.
    shown = {t.get_text().split()[0] for t in ax.texts if "(" in t.get_text()}
    assert shown == {"m0", "m1", "m2", "m3"}


# ---------------------------------------------------------------------- report


def test_page_is_whole_and_needs_nothing_else(folder, page):
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    names = [tag for tag, *_ in page.tags]
    assert not {"script", "link", "iframe", "b", "now"} & set(names)
    assert not re.search(r"https?://|url\(|@import", text)
    assert names.count("h1") == 1
    for words in ("Under drift <now>", COMMAND, "ValueError: <script>alert(1)</script>"):
        assert words in page.text
    metas = [attrs for tag, attrs, _ in page.tags if tag == "meta"]
    assert any(attrs.get("name") == "viewport" for attrs in metas)
    policies = [attrs["content"] for attrs in metas if "http-equiv" in attrs]
    assert policies == ["default-src 'none'; img-src data:; style-src 'unsafe-inline'"]


def test_tables_and_figures_are_accessible(page):
    """Each scrolls in its own box, by keyboard too, below or above a caption."""
    assert all(attrs["scope"] in ("row", "col") for tag, attrs, _ in page.tags if tag == "th")
    parents = [parent for tag, _, parent in page.tags if tag in ("table", "img")]
    assert parents == [("div", "scroll")] * (len(page.tables) + len(page.images))
    boxes = [attrs for _, attrs, _ in page.tags if attrs.get("class") == "scroll"]
    assert all((box["tabindex"], box["role"]) == ("0", "region") for box in boxes)
    assert all(box["aria-label"] for box in boxes)


def test_every_entry_is_on_the_page(cells, page):
    for metric in ("mae", "mkld"):
        table, expected = (
            table_of(page, f"({metric.upper()})"),
            stats.error_table(cells, metric, SIZE),
        )
        head, *rows = table["rows"]
        assert head == ["Method", *DATA, "average"]
        assert [row[0] for row in rows] == list(METHODS)
        shown = [[float(re.sub("[†‡]", "", v)) for v in row[1:]] for row in rows]
        values = np.column_stack([expected.means, expected.averages])
        np.testing.assert_allclose(shown, values, atol=5.1e-5)
        best = {(int(i) + 1, j + 1) for j, i in enumerate(values.argmin(axis=0))}
        assert table["bold"] == best
        for mark, marked in (("†", expected.same_as_best), ("‡", expected.partial)):
            np.testing.assert_array_equal([[mark in v for v in row[1:-1]] for row in rows], marked)
    assert "†: not significantly different from the best" in page.text
    assert f"{FAILED[1]} on {FAILED[0]}, seed {FAILED[2]}" in page.text


def test_versions_and_hardware(page):
    rows = dict(table_of(page, "made")["rows"])
    assert rows["numpy"] == np.__version__
    for name in ("processor", "cores", "Python", "numba", "matplotlib", "quapy", "quapy-nemsis"):
        assert rows[name]
    assert version("no-such-package-of-ours") == "not installed"


def test_figures(folder, page):
    # Ranks, drift and time for both metrics, and estimates on each data set.
    assert len(page.images) == 2 * 3 + 3
    embedded = []
    for image in page.images:
        assert len(image["alt"]) > 20
        head, _, data = image["src"].partition(",")
        assert head == "data:image/png;base64"
        embedded.append(base64.b64decode(data, validate=True))
        picture = pixels(embedded[-1])
        assert picture.shape[:2] == (int(image["height"]), int(image["width"]))
        assert picture[..., :3].std() > 0.02
    files = (folder / "figures").glob("*.png")
    assert sorted(file.read_bytes() for file in files) == sorted(embedded)


def test_markdown(folder, table):
    text = (folder / "report.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]*\.png)\)", text)
    assert len(links) == 9
    assert all((folder / link).is_file() for link in links)
    # Escaped but in the command, which is shown as it is.
    body, _, command = text.partition("## To repeat it\n")
    assert "<" not in body
    assert command.strip() == COMMAND
    assert text.startswith("# Under drift &lt;now&gt;\n\n")
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
    for row, cell in zip(rows.itertuples(), cells, strict=True):
        assert (row.data, row.method, int(row.seed)) == (cell.data, cell.method, cell.seed)
        assert row.error == cell.error
        if cell.error:
            assert row.mae == row.fit_seconds == ""
        else:
            assert float(row.mae) == pytest.approx(np.abs(cell.true - cell.estimated).mean())
            assert float(row.fit_seconds) == cell.fit_seconds
    samples = pd.read_csv(folder / "samples.csv", dtype=str)
    assert set(samples["class"]) == {"yes"}
    for name in ("true", "estimated"):
        expected = np.concatenate([getattr(c, name)[:, 1] for c in cells if not c.error])
        np.testing.assert_array_equal([float(value) for value in samples[name]], expected)
    files = {"report.html", "report.md", "results.csv", "samples.csv", "figures"}
    assert {path.name for path in folder.iterdir()} == files


def test_report_of_failures_only(tmp_path):
    """Nothing worked, and still there is a page that says so."""
    failed = [Cell("data", method, 0, error="broken") for method in ("one", "two")]
    path = write_report(failed, tmp_path, **OPTIONS)
    page = Page(path.read_text(encoding="utf-8"))
    assert table_of(page, "(MAE)")["rows"][1:] == [["one", "failed"], ["two", "failed"]]
    assert page.text.count("broken") == 2
    with pytest.raises(ValueError, match="at least one"):
        write_report([], tmp_path, **OPTIONS)


# ---------------------------------------------------------------------- several classes


def class_cell(data, method, seed=0, n_classes=3, slope=1.0, bias=0.0, samples=60):
    """Estimates between the training part and the truth, with some mass moved from the first class to the last."""
    rng = np.random.default_rng(seed)
    true = rng.dirichlet(np.ones(n_classes), size=samples)
    train = np.arange(1, n_classes + 1) / np.arange(1, n_classes + 1).sum()
    moved = bias * (np.eye(n_classes)[-1] - np.eye(n_classes)[0])
    estimated = train + slope * (true - train) + moved
    classes = [f"<c{k}> $ & |" for k in range(n_classes)]
    return Cell(data, method, seed, classes, true, estimated, train, 0.1 + slope, 0.2)


@pytest.fixture(scope="module")
def mixed():
    """Sets of two, three and twelve classes; one method was left out of the latter two, one failed on one."""
    found = [make_cell("two", method, 0, slope) for method, slope in (("A", 0.5), ("B", 0.9))]
    found.append(make_cell("two", "binary", 0, 0.7))
    for data, n_classes in (("three", 3), ("twelve", 12)):
        found += [class_cell(data, "A", seed, n_classes, 0.5) for seed in (0, 1)]
        found += [class_cell(data, "B", seed, n_classes, 0.9, 0.02) for seed in (0, 1)]
    found[-1] = Cell("twelve", "B", 1, error="broken")
    return found


@pytest.mark.parametrize("name", ["ae", "se", "rae", "nae", "nrae", "kld", "nkld"])
def test_errors_of_several_classes_are_those_of_quapy(name):
    cell = class_cell("data", "method", n_classes=5, slope=0.7)
    eps = {} if name in ("ae", "se", "nae") else {"eps": 0.01}
    expected = getattr(quapy.error, name)(cell.true, cell.estimated, **eps)
    np.testing.assert_array_equal(stats.errors(cell, f"m{name}", SIZE), expected)


def test_drift_is_half_the_sum_of_differences():
    two = make_cell("data", "method", 0)
    np.testing.assert_allclose(stats.drift(two), np.abs(two.true[:, 1] - 0.4))
    true, train = np.array([[0.0, 0.0, 1.0], [0.2, 0.2, 0.6]]), np.array([0.5, 0.3, 0.2])
    cell = Cell("data", "method", 0, ["a", "b", "c"], true, true, train)
    np.testing.assert_allclose(stats.drift(cell), [0.8, 0.4])
    assert stats.drift(class_cell("data", "method", n_classes=30)).max() < 1.0


def test_estimates_of_another_shape_are_failures():
    cell = class_cell("data", "method")
    cell.estimated = cell.estimated[:, :2]
    assert stats.failure(cell) == "(60, 2) estimates for (60, 3) prevalences"


def test_ranks_leave_out_what_was_not_run(mixed):
    ranking = stats.rank(stats.error_table(mixed, "mae", SIZE))
    assert (ranking.methods, ranking.n_data) == (["A", "B"], 3)
    # Of three data sets, one of which is not finished, the two others are ranked on.
    names = [f"m{k}" for k in range(5)]
    found = [make_cell(data, name, 0, rng=k) for data in "ab" for k, name in enumerate(names)]
    found.append(make_cell("c", "m0", 0))
    ranking = stats.rank(stats.error_table(found, "mae", SIZE))
    assert (ranking.methods, ranking.n_data) == (names, 2)


def test_triangles():
    corners = plots.on_triangle(np.eye(3))
    np.testing.assert_allclose(np.linalg.norm(corners - np.roll(corners, 1, axis=0), axis=1), 1.0)
    np.testing.assert_allclose(plots.on_triangle(np.full(3, 1 / 3)), corners.mean(axis=0))
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(3), size=5000)
    start, end = plots.displacements(true, 0.9 * true + 0.1 / 3)
    assert len(start) == plots.SIDE**2
    np.testing.assert_allclose(end, 0.9 * start + 0.1 / 3)
    # Each is about the centre of a small triangle: a third, or two thirds, between lattice lines.
    thirds = 3 * (plots.SIDE * start - np.floor(plots.SIDE * start))
    centres = np.broadcast_to(thirds.mean(axis=1, keepdims=True).round(), thirds.shape)
    np.testing.assert_allclose(thirds, centres, atol=0.3)
    start, _ = plots.displacements(np.eye(3), np.eye(3))
    np.testing.assert_allclose(np.sort(start.argmax(axis=1)), [0, 1, 2])


def three_of(mixed, data):
    return [c for c in mixed if c.data == data and not stats.failure(c)]


def test_heat_map_of_biases(mixed):
    found = three_of(mixed, "three")
    ax = plots.biases(found).axes[0]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["A", "B"]
    shown = np.array([float(text.get_text()) for text in ax.texts]).reshape(2, 3)
    for row, method in zip(shown, "AB", strict=True):
        pooled = [100 * (c.estimated - c.true).mean(axis=0) for c in found if c.method == method]
        np.testing.assert_allclose(row, np.mean(pooled, axis=0), atol=0.051)
    many = [class_cell("many", "A", n_classes=40)]
    assert not plots.biases(many).axes[0].texts


def test_panels_of_classes(mixed):
    table = stats.error_table(mixed, "mae", SIZE)
    for data, panels in (("three", 3), ("twelve", plots.MOST_PANELS)):
        found = three_of(mixed, data)
        figure = plots.class_diagonals(found, table)
        plots.png(figure)
        assert len(figure.axes) == panels
        # The last classes are the most frequent ones.
        names = [ax.get_title().replace("\\", "") for ax in figure.axes]
        assert names == found[0].classes[-panels:]
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == ["A", "B"]
        line = figure.axes[-1].get_lines()[0]
        x, y = line.get_data()
        train = found[0].train_prevalence[-1]
        np.testing.assert_allclose(y, train + 0.5 * (x - train))


def test_report_of_several_classes(mixed, tmp_path):
    path = write_report(mixed, tmp_path, **{**OPTIONS, "metrics": ["mae", "mrae"]})
    page = Page(path.read_text(encoding="utf-8"))
    names = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert [name for name in names if name.startswith(("diagonal", "bias", "simplex"))] == [
        *("bias-2.png", "bias-3.png"),
        *("diagonal-1.png", "diagonal-2.png", "diagonal-3.png"),
        "simplex-2.png",
    ]
    for data in ("three", "twelve"):
        found = three_of(mixed, data)
        table = table_of(page, f"{data}: mean absolute error on each class")
        head, *rows = table["rows"]
        assert head == ["Class", "Share in training", "A", "B"]
        assert [row[0] for row in rows] == found[0].classes
        shares = [float(row[1].removesuffix(" %")) for row in rows]
        np.testing.assert_allclose(shares, 100 * found[0].train_prevalence, atol=0.0051)
        for column, method in ((2, "A"), (3, "B")):
            pooled = np.concatenate(
                [np.abs(c.estimated - c.true) for c in found if c.method == method]
            )
            shown = [float(row[column]) for row in rows]
            np.testing.assert_allclose(shown, pooled.mean(axis=0), atol=5.1e-5)
        assert len(table["bold"]) == len(rows)
    assert [row[2] for row in table_of(page, "(MAE)")["rows"][1:]][-1] == "not run"
    samples = pd.read_csv(tmp_path / "samples.csv")
    counts = samples.groupby("data")["class"].agg(["size", "nunique"])
    assert counts.loc["two"].tolist() == [3 * 42, 1]
    assert counts.loc["three"].tolist() == [4 * 60 * 3, 3]
    assert counts.loc["twelve"].tolist() == [3 * 60 * 12, 12]
    part = samples[
        (samples["data"] == "three") & (samples["method"] == "A") & (samples["seed"] == 1)
    ]
    (cell,) = [c for c in mixed if (c.data, c.method, c.seed) == ("three", "A", 1)]
    np.testing.assert_allclose(part["true"].to_numpy().reshape(60, 3), cell.true)
    assert part["sample"].tolist() == np.repeat(np.arange(60), 3).tolist()


@pytest.mark.filterwarnings("error")
def test_report_of_perfect_or_failed_methods_on_several_classes(tmp_path):
    perfect = [class_cell("data", method) for method in ("one", "two")]
    write_report(perfect, tmp_path, **OPTIONS)
    failed = [Cell("data", "one", 0, ["a", "b", "c"], error="broken")]
    write_report(failed, tmp_path, **OPTIONS)


def test_text_table(cells, table):
    lines = text_table(cells, "mae", SIZE).splitlines()
    assert lines[0] == "Mean absolute error (MAE)"
    assert all(name in lines[1] for name in (*DATA, "average"))
    for i, (method, line) in enumerate(zip(METHODS, lines[2:], strict=False)):
        assert line.startswith(method)
        assert line.count("*") == table.best[i].sum() + (table.averages.argmin() == i)
        assert line.count("†") == table.same_as_best[i].sum()
        for mean in table.means[i]:
            assert f"{mean:.4f}" in line
    # Numbers stand below each other, whatever their marks.
    points = [[m.start() for m in re.finditer(r"\.\d{4}", line)] for line in lines[2:6]]
    assert points == [points[0]] * 4


def test_text_table_says_what_failed_or_is_missing():
    found = [make_cell("a", "one", 0), make_cell("b", "one", 0), Cell("a", "two", 0, error="no")]
    lines = text_table(found, "mrae", SIZE).splitlines()
    assert any(re.fullmatch(r"two +failed +not run +–", line) for line in lines)
