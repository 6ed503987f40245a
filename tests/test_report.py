"""Statistics, figures and report of a comparison, on small made-up results."""

import base64
import hashlib
import re
import shutil
import subprocess
import warnings
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import quapy.error
import scipy.stats

from experiments import origin, plots, report, stats, vectors
from experiments.report import drift_block, ranking_blocks, text_table, write_report
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
        self.drawn = ""
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
        if attrs.get("role") == "img":
            self.images.append(attrs)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        inside = {tag for tag, _ in self.open}
        if "svg" in inside:
            self.drawn += data
        elif not inside & {"script", "style"}:
            self.text += data
        if {"figcaption", "summary"} & inside:
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


def split_means(cells, data, method, seeds=(0, 1)):
    """Mean absolute errors of the splits, computed apart from what is tested."""
    return np.array([absolute(cells, data, method, (seed,)).mean() for seed in seeds])


def test_corrected_t_test():
    rng = np.random.default_rng(0)
    first, second = rng.normal(0.3, 0.1, 8), rng.normal(0.25, 0.1, 8)
    # Without rows in the test part nothing is corrected.
    expected = scipy.stats.ttest_rel(first, second).pvalue
    assert stats.corrected_t_test(first, second, 0.0) == pytest.approx(expected)
    # By hand: differences 1, 2, 3 have mean 2 and variance 1, and the factor is 1/3 + 3/7.
    t = 2.0 / np.sqrt(1 / 3 + 3 / 7)
    expected = 2 * scipy.stats.t(2).sf(t)
    found = stats.corrected_t_test(np.array([2.0, 3.0, 4.0]), np.ones(3), 0.3)
    assert found == pytest.approx(expected)
    assert stats.corrected_t_test(np.ones(3), np.array([2.0, 3.0, 4.0]), 0.3) == found
    # The greater the share, the more splits overlap, and the less they show.
    shares = [stats.corrected_t_test(first, second, share) for share in (0.0, 0.1, 0.3, 0.9)]
    assert shares == sorted(shares)
    # Nothing differs; all differ alike; one split.
    assert stats.corrected_t_test(first, first, 0.3) == 1.0
    assert stats.corrected_t_test(np.ones(3), np.zeros(3), 0.3) == 0.0
    assert np.isnan(stats.corrected_t_test(np.ones(1), np.zeros(1), 0.3))


def test_corrected_t_test_keeps_its_level_where_the_plain_one_does_not():
    """Means over splits of the same rows: a part of the variance is common to all of them."""
    rng = np.random.default_rng(0)
    rejected = np.zeros(2)
    for _ in range(400):
        share, splits = 0.3, 10
        rho = share  # Nadeau and Bengio's estimate of the correlation of two splits
        common, own = rng.normal() * np.sqrt(rho), rng.normal(size=splits) * np.sqrt(1 - rho)
        differences = common + own
        plain = scipy.stats.ttest_1samp(differences, 0.0).pvalue
        found = stats.corrected_t_test(differences, np.zeros(splits), share)
        rejected += [plain < 0.05, found < 0.05]
    assert rejected[0] / 400 > 0.2
    assert rejected[1] / 400 < 0.08


def test_holm_by_hand():
    # Sorted 0.01, 0.02, 0.03, 0.9 are multiplied by 4, 3, 2, 1, and never fall.
    found = stats.holm(np.array([0.02, 0.9, np.nan, 0.01, 0.03]))
    np.testing.assert_allclose(found, [0.06, 0.9, np.nan, 0.04, 0.06])
    np.testing.assert_allclose(stats.holm(np.array([0.6, 0.7])), 1.0)
    assert stats.holm(np.zeros(0)).size == 0


def test_tests_against_the_best(cells, table):
    """The numbers of each column, computed anew from the samples."""
    for j, data in enumerate(DATA):
        best = METHODS[int(table.best[:, j].argmax())]
        raw = {}
        for method in METHODS:
            seeds = (0,) if (data, method) == FAILED[:2] else (0, 1)
            first, second = (split_means(cells, data, m, seeds) for m in (method, best))
            spread = (
                np.sqrt((1 / 2 + 3 / 7) * (first - second).var(ddof=1)) if len(seeds) > 1 else 0
            )
            if method != best and spread:
                t = abs((first - second).mean()) / spread
                raw[method] = 2 * scipy.stats.t.sf(t, df=1)
        corrected, least = {}, 0.0
        for k, method in enumerate(sorted(raw, key=raw.get)):
            least = corrected[method] = min(1.0, max(least, raw[method] * (len(raw) - k)))
        for i, method in enumerate(METHODS):
            expected = 1.0 if method == best else corrected.get(method, np.nan)
            np.testing.assert_allclose(table.pvalues[i, j], expected, rtol=1e-6)
            assert table.same_as_best[i, j] == (expected >= 0.05 and method != best)
    np.testing.assert_allclose(
        table.spreads[0], [split_means(cells, data, METHODS[0]).std(ddof=1) for data in DATA]
    )
    assert np.isnan(table.spreads[3, 2])
    assert table.same_as_best.any()


def test_marks_follow_the_means():
    """Where the differences of all methods vary alike, no marked method is worse than one without a mark."""
    rng = np.random.default_rng(0)
    outcomes = set()
    for _ in range(30):
        noise = rng.normal(0.0, 0.05, 6)
        noise -= noise.mean()
        means = np.array([0.1, *rng.uniform(0.11, 0.3, 7)])
        # Their differences to the first method have the same variance: signs change nothing.
        signs = rng.choice([-1.0, 1.0], 7)
        errors = [
            means[0] + 0 * noise,
            *(m + s * noise for m, s in zip(means[1:], signs, strict=True)),
        ]
        found = [{seed: float(e) for seed, e in enumerate(row)} for row in errors]
        pvalues = stats.against_best(found, np.array([row.mean() for row in errors]), 0.3)
        order = np.argsort([row.mean() for row in errors])
        assert (np.diff(pvalues[order]) <= 1e-12).all()
        outcomes |= set((pvalues >= 0.05).tolist())
    assert outcomes == {True, False}


def test_a_method_is_tested_on_the_splits_it_has():
    results = [{0: 0.1, 1: 0.2, 2: 0.3}, {0: 0.2, 2: 0.5}, {3: 0.4}, {}]
    means = np.array([0.2, 0.35, 0.4, np.nan])
    found = stats.against_best(results, means, 0.3)
    expected = stats.corrected_t_test(np.array([0.2, 0.5]), np.array([0.1, 0.3]), 0.3)
    np.testing.assert_allclose(found, [1.0, expected, np.nan, np.nan])
    assert np.isnan(stats.against_best([{}, {}], np.full(2, np.nan), 0.3)).all()


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


def test_ranks_by_hand():
    means = np.array([[0.1, 0.2, 0.3], [0.2, 0.2, np.nan], [0.3, 0.1, 0.2]])
    # Ranks by column: 1 2 3; 2.5 2.5 1; 2 3 1.
    np.testing.assert_allclose(stats.average_ranks(means), [5.5 / 3, 7.5 / 3, 5 / 3])


def test_pairwise_tests():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.1, 0.2, 10)
    means = np.array([base, base + rng.uniform(0.01, 0.05, 10), base + rng.normal(0, 0.01, 10)])
    found = stats.pairwise_tests(means)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 1.0)
    raw = [scipy.stats.wilcoxon(means[a], means[b]).pvalue for a, b in ((0, 1), (0, 2), (1, 2))]
    np.testing.assert_allclose(found[[0, 0, 1], [1, 2, 2]], stats.holm(np.array(raw)))
    # All ten differences have the same sign: by hand, 2/2^10, times the three pairs.
    assert found[0, 1] == pytest.approx(3 * 2 / 2**10)
    # A method without a result is the worst.
    means[0, 0] = np.nan
    assert stats.pairwise_tests(means)[0, 1] > found[0, 1]
    np.testing.assert_array_equal(stats.pairwise_tests(means[[1, 1]]), 1.0)


def ranking_of(means):
    means = np.array(means)
    shape = means.shape
    names = [f"m{k}" for k in range(shape[0])], [f"d{k}" for k in range(shape[1])]
    ones, zeros = np.ones(shape, dtype=int), np.zeros(shape, dtype=int)
    failed = np.isnan(means).astype(int)
    nan = np.full(shape, np.nan)
    return stats.rank(
        stats.ErrorTable("ae", *names, means, nan, nan, ones - failed, failed, zeros > 0)
    )


def test_ranking():
    rng = np.random.default_rng(0)
    base = rng.uniform(0.1, 0.2, 12)
    means = [base, 2 * base, 4 * base * rng.uniform(0.9, 1.1, 12)]
    ranking = ranking_of(means)
    np.testing.assert_allclose(ranking.ranks, [1, 2, 3])
    assert ranking.friedman == pytest.approx(scipy.stats.friedmanchisquare(*means).pvalue)
    assert ranking.ratios[1, 0] == pytest.approx(2.0)
    assert ranking.ratios[2, 0] == pytest.approx(np.exp(np.log(means[2] / base).mean()))
    assert ranking.can_differ
    assert ranking.differ.sum() == 6
    # Four data sets cannot show it, however great the difference.
    few = ranking_of(np.array(means)[:, :4])
    assert not few.can_differ
    assert not few.differ.any()
    # Nor is a pair looked at where Friedman's test says that all may be alike.
    alike = stats.Ranking(["a", "b", "c"], few.ranks, 9, 0.2, np.zeros((3, 3)), few.ratios)
    assert not alike.differ.any()
    two = ranking_of(means[:2])
    assert np.isnan(two.friedman)
    assert two.differ.sum() == 2


def test_rankings_without_a_difference_or_a_result():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ranking_of(np.full((3, 4), 0.1)).friedman == 1.0
    ranking = ranking_of([[0.1, 0.2], [0.2, np.nan], [0.3, 0.4]])
    (grid,) = ranking_blocks(ranking, "mae")
    assert {row[0]: row[2] for row in grid.rows} == {"m0": "–", "m1": "–", "m2": "2.45"}
    assert "nan" not in str(grid)


@pytest.mark.parametrize(
    ("pairs", "groups"),
    [
        # Pairs, in the order of ranks, that differ, and the groups that are left.
        ([(0, 2), (0, 3), (1, 3)], [(1.0, 1.5), (1.5, 2.5), (2.5, 4.0)]),
        ([(0, 3)], [(1.0, 2.5), (1.5, 4.0)]),
        ([], [(1.0, 4.0)]),
        ([(a, b) for b in range(4) for a in range(b)], []),
        # A method that differs from one within a group ends it, even if it does not differ from its ends.
        ([(1, 2)], [(1.0, 1.5), (2.5, 4.0)]),
    ],
)
def test_cliques_are_the_largest(pairs, groups):
    ranks = np.array([4.0, 1.0, 1.5, 2.5])
    order = np.argsort(ranks)
    pvalues = np.ones((4, 4))
    for a, b in pairs:
        pvalues[order[a], order[b]] = pvalues[order[b], order[a]] = 0.01
    ranking = stats.Ranking(list("abcd"), ranks, 9, 0.01, pvalues, np.ones((4, 4)))
    assert stats.cliques(ranking) == groups


def test_ranking_needs_two_data_sets(cells, table):
    one = stats.error_table([c for c in cells if c.data == DATA[0]], "mae", SIZE)
    assert stats.rank(one) is None
    (words,) = ranking_blocks(None, "mae")
    assert "need at least two" in words.text
    ranking = stats.rank(table)
    assert ranking.n_data == 3
    assert ranking.ranks.sum() == pytest.approx(1 + 2 + 3 + 4)
    assert plots.rank_diagram(ranking) is None
    assert (
        "cannot show that two of so many methods differ" in ranking_blocks(ranking, "mae")[0].note
    )


def test_seconds(cells, table):
    means, spreads = stats.seconds(cells, table)
    np.testing.assert_allclose(means, np.repeat([[0.6], [1.1], [1.1], [0.9]], 3, axis=1))
    assert np.isnan(spreads).tolist() == (table.seeds == 1).tolist()
    np.testing.assert_allclose(plots.mean_seconds(cells, table), [0.6, 1.1, 1.1, 0.9])
    values = np.array([[1.0, np.nan], [np.nan, np.nan]])
    np.testing.assert_array_equal(stats.mean_of_finite(values), [1.0, np.nan])


# ---------------------------------------------------------------------- figures


def test_looks_differ():
    looks = [tuple(map(str, plots.look(k).values()))[:2] for k in range(35)]
    assert len(set(looks)) == 35


def test_labels_do_not_overlap():
    """Ten methods at almost the same place."""
    found = [make_cell("data", f"method number {k}", 0, rng=k) for k in range(10)]
    figure = plots.time_quality(found, stats.error_table(found, "mae", SIZE))
    figure.draw_without_rendering()
    boxes = [super(type(t), t).get_window_extent() for t in figure.axes[0].texts]
    assert len(boxes) == 10
    for k, box in enumerate(boxes):
        assert box.count_overlaps(boxes[:k]) == 0


def test_drift_curve_values(cells, table):
    """The curve is the mean of the splits, the band their standard deviation, on both sides of no drift."""
    ax = plots.drift_curves(cells, table, SIZE).axes[0]
    assert ax.get_title() == DATA[0]
    (line,) = [line for line in ax.get_lines() if line.get_label() == "CC(LR)"]
    drift = cells[0].true[:, 1] - 0.4
    inside = (drift >= -0.3) & (drift < -0.2)
    place = int(np.argmin(np.abs(line.get_xdata() + 0.25)))
    assert line.get_xdata()[place] == pytest.approx(drift[inside].mean())
    means = [absolute(cells, DATA[0], "CC(LR)", (seed,))[inside].mean() for seed in (0, 1)]
    assert line.get_ydata()[place] == pytest.approx(np.mean(means))
    (band,) = [c for c in ax.collections if c.get_gid() == "series-0-band-0"]
    heights = band.get_paths()[0].vertices
    at = heights[np.isclose(heights[:, 0], line.get_xdata()[place]), 1]
    assert at.max() == pytest.approx(np.mean(means) + np.std(means, ddof=1))
    assert line.get_xdata().min() < -0.3
    assert line.get_xdata().max() > 0.5


def test_splits_with_other_drifts():
    """A bin with samples of one split has no band; one without any is left out."""
    found = [make_cell("data", "m", seed, train=train) for seed, train in ((0, 0.3), (1, 0.5))]
    x, mean, spread = plots.over_splits(found, "ae", SIZE)
    assert np.isfinite([x, mean]).all()
    assert np.isnan(spread[[0, -1]]).all()
    assert np.isfinite(spread[3:-3]).all()
    assert (np.diff(x) > 0).all()


@pytest.mark.parametrize(("factor", "shared"), [(1.2, True), (20.0, False)])
def test_panels_share_the_errors_or_say_so(factor, shared):
    found = [
        make_cell(data, "m", seed, noise=noise, rng=seed)
        for data, noise in (("a", 0.01), ("b", 0.01 * factor))
        for seed in range(2)
    ]
    table = stats.error_table(found, "ae", SIZE)
    block = drift_block(found, table, SIZE)
    assert (len({ax.get_ylim() for ax in block.figure.axes}) == 1) == shared
    assert ("own scale" in block.caption) == (not shared)
    assert "Bands are one standard deviation" in block.caption


def curves(ax):
    return [line for line in ax.get_lines() if line.get_gid()]


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
    values = np.concatenate([line.get_ydata() for line in curves(ax)])
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
        figure = plots.drift_curves(found, table, SIZE)
        vectors.draw(figure, "drift")
        drawn = {line.get_label() for ax in figure.axes for line in ax.get_lines()}
        # A method that failed has no curve, one without errors has.
        assert ("m0" in drawn) == ("error" not in result)


@pytest.mark.parametrize("n_methods", [plots.MOST, 24])
def test_of_many_methods_the_best_are_in_colour(n_methods):
    ax, names, caption = drift_axes(n_methods, "ae")
    many = n_methods > plots.MOST
    shown = plots.IN_COLOUR if many else n_methods
    # One line for all others, and the last.
    assert names == [f"m{k}" for k in range(shown)] + ["others"] * many
    coloured = [line for line in curves(ax) if line.get_label() != "others"]
    grey = [line for line in curves(ax) if line.get_label() == "others"]
    assert (len(coloured), len(grey)) == (shown, n_methods - shown)
    # The same looks as in other figures.
    for k, line in enumerate(coloured):
        assert (line.get_color(), line.get_marker()) == tuple(plots.look(k).values())[:2]
    assert {line.get_color() for line in grey}.isdisjoint(plots.COLOURS)
    assert ("In colour: the 8 methods of best mean rank" in caption) == many
    if many:  # bad methods do not press the good ones to the ground
        highest = max(line.get_ydata().max() for line in coloured)
        assert highest < ax.get_ylim()[1] <= 2 * highest


def diagram(n, groups=1):
    """A diagram of methods that all differ but for those of the same group."""
    group = np.arange(n) * groups // n
    pvalues = np.where(group[:, np.newaxis] == group, 1.0, 0.001)
    ratios = np.ones((n, n))
    ranks = np.arange(1.0, n + 1)
    ranking = stats.Ranking([f"m{k}" for k in range(n)], ranks, 30, 1e-9, pvalues, ratios)
    return plots.rank_diagram(ranking), ranking_blocks(ranking, "mae")[-1]


@pytest.mark.parametrize("n", [3, 12, 13, 24, 60])
def test_numbers_of_ranks_do_not_run_together(n):
    figure, _ = diagram(n, groups=2)
    figure.draw_without_rendering()
    ax = figure.axes[0]
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert 3 <= len(boxes) <= 12
    gap = 0.3 * boxes[0].height
    assert all(b.x0 - a.x1 > gap for a, b in pairwise(boxes))
    assert ax.get_xlim() == (1.0, n)


@pytest.mark.parametrize(("groups", "n_bars"), [(2, 2), (3, 3), (6, 0)])
def test_bars_join_what_does_not_differ(groups, n_bars):
    figure, picture = diagram(6, groups)
    ax = figure.axes[0]
    bars = [line for line in ax.get_lines() if line.get_linewidth() == 4]
    assert len(bars) == n_bars
    assert ("bars join" in picture.caption) == bool(n_bars)
    assert {t.get_text().split()[0] for t in ax.texts} == {f"m{k}" for k in range(6)}
    assert diagram(6, 1)[0] is None


def test_figures_are_the_same_each_time_and_apart_from_each_other(cells, table):
    first, again, other = (
        vectors.draw(plots.drift_curves(cells, table, SIZE), name) for name in ("a", "a", "b")
    )
    assert first == again
    every = [e.get("id") for e in ElementTree.fromstring(first.svg).iter() if e.get("id")]
    assert len(every) == len(set(every))
    ids = [set(re.findall(r' id="([^"]*)"', "".join(d.parts))) for d in (first, other)]
    assert ids[0]
    assert not ids[0] & ids[1]
    # All that is referred to is there.
    for drawing, known in zip((first, other), ids, strict=True):
        text = "".join([*drawing.parts, *(key.swatch for key in drawing.keys)])
        assert set(re.findall(r"#([\w-]+)[\")]", text)) <= known
        # Names are text, and ink is the page's.
        assert "cancer" in text
        assert not re.search(r"#000000|#ffffff|<image|<metadata|<style", text)
    assert [key.name for key in first.keys] == list(METHODS)
    assert [key.series for key in first.keys] == [f"series-{k}" for k in range(4)]


def test_panels_of_a_figure_are_alike(cells, table):
    drawing = vectors.draw(plots.drift_curves(cells, table, SIZE), "drift")
    views = [re.search('viewBox="([^"]*)"', part)[1].split() for part in drawing.parts]
    assert len(views) == 3
    assert len({tuple(view[2:]) for view in views}) == 1
    assert float(views[0][2]) == pytest.approx(0.75 * drawing.width, abs=1)
    # Axes that are no panels keep their figure whole.
    whole = vectors.draw(plots.biases([class_cell("data", "m")]), "bias")
    assert len(whole.parts) == 1
    assert whole.keys == []


@pytest.mark.filterwarnings("error")
def test_names_that_no_svg_may_hold():
    names = ["\x00\x1b[0m", "]]>", "<script>", "a\nb", "&amp;", "$\\frac"]
    found = [make_cell("d\x07", name, 0) for name in names]
    drawing = vectors.draw(
        plots.drift_curves(found, stats.error_table(found, "mae", SIZE), SIZE), "drift"
    )
    ElementTree.fromstring(drawing.svg)
    assert [key.name for key in drawing.keys] == [
        "[0m",
        "]]>",
        "<script>",
        "a b",
        "&amp;",
        "$\\frac",
    ]
    assert "<script" not in "".join(drawing.parts)


# ---------------------------------------------------------------------- report


def test_page_is_whole_and_needs_nothing_else(folder, page):
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    names = [tag for tag, *_ in page.tags]
    assert not {"img", "link", "iframe", "b", "now"} & set(names)
    assert not re.search(r"https?://|url\((?!#)|@import", text)
    assert names.count("h1") == 1
    for words in ("Under drift <now>", COMMAND, "ValueError: <script>alert(1)</script>"):
        assert words in page.text
    metas = [attrs for tag, attrs, _ in page.tags if tag == "meta"]
    assert any(attrs.get("name") == "viewport" for attrs in metas)
    policies = [attrs["content"] for attrs in metas if "http-equiv" in attrs]
    # The page's own script may run, and no other.
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    expected = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert policies == [expected]
    assert not re.search(r"\son\w+=|javascript:", text.replace(script, ""))


def test_the_answer_and_the_contents_come_first(page):
    tags = [(tag, attrs) for tag, attrs, _ in page.tags]
    order = [tag for tag, _ in tags if tag in ("h1", "nav", "h2", "figure")]
    assert order[:3] == ["h1", "nav", "h2"]
    assert tags[[tag for tag, _ in tags].index("h1") + 1] == ("p", {"class": "lead"})
    links = [attrs["href"] for tag, attrs in tags if tag == "a"]
    assert links == [f"#{attrs['id']}" for tag, attrs in tags if tag == "h2"]
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))


def test_tables_and_figures_are_accessible(page):
    """Each scrolls in its own box, by keyboard too, below or above a caption."""
    assert all(attrs["scope"] in ("row", "col") for tag, attrs, _ in page.tags if tag == "th")
    assert all(parent == ("div", "scroll") for tag, _, parent in page.tags if tag == "table")
    drawn = {parent for tag, _, parent in page.tags if tag == "svg"}
    assert drawn == {("div", "panels"), ("div", "whole"), ("li", None)}
    wholes = {parent for _, attrs, parent in page.tags if attrs.get("class") == "whole"}
    assert wholes == {("div", "scroll")}
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
        shown = [[float(re.sub("[†‡]", "", v).split(" ± ")[0]) for v in row[1:]] for row in rows]
        values = np.column_stack([expected.means, expected.averages])
        np.testing.assert_allclose(shown, values, atol=5.1e-5)
        assert [["±" in v for v in row[1:-1]] for row in rows] == (expected.seeds > 1).tolist()
        best = {(int(i) + 1, j + 1) for j, i in enumerate(values.argmin(axis=0))}
        assert table["bold"] == best
        for mark, marked in (("†", expected.same_as_best), ("‡", expected.partial)):
            np.testing.assert_array_equal([[mark in v for v in row[1:-1]] for row in rows], marked)
    assert "†: not significantly different from the best" in page.text
    assert f"{FAILED[1]} on {FAILED[0]}, seed {FAILED[2]}" in page.text


def test_versions_and_hardware(page):
    rows = dict(table_of(page, "computed, when")["rows"])
    assert rows["numpy"] == np.__version__
    for name in ("processor", "cores", "Python", "numba", "matplotlib", "quapy", "quapy-nemsis"):
        assert rows[name]
    assert origin.version("no-such-package-of-ours") == "not installed"


def test_figures(folder, page):
    # Drift and time for both metrics, and estimates on each data set.
    assert len(page.images) == 2 * 2 + 3
    assert all(len(image["aria-label"]) > 20 for image in page.images)
    for name in (*DATA, *METHODS):
        assert name.split()[-1] in page.drawn
    names = {file.name for file in (folder / "figures").iterdir()}
    stems = {"drift-ae", "time-ae", "drift-kld", "time-kld", *(f"diagonal-{k}" for k in (1, 2, 3))}
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("svg", "pdf")}
    for file in (folder / "figures").iterdir():
        if file.suffix == ".svg":
            assert ElementTree.parse(file).getroot().tag.endswith("svg")
        else:
            assert file.read_bytes().startswith(b"%PDF")


def test_markdown(folder, table):
    text = (folder / "report.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)]*\.svg)\)", text)
    assert len(links) == 7
    assert all((folder / link).is_file() for link in links)
    # Escaped but in the command, which is shown as it is.
    body, _, command = text.partition("## To repeat it\n")
    assert "<" not in body
    assert command.strip() == COMMAND
    assert text.startswith("# Under drift &lt;now&gt;\n\n")
    assert f"**{table.means[:, 0].min():.4f} ± " in text
    # As many columns in each line of a table, in spite of the | in a name.
    lines = text.splitlines()
    first = next(k for k, line in enumerate(lines) if "| cancer |" in line)
    for line in lines[first : first + 2 + len(METHODS)]:
        assert len(re.findall(r"(?<!\\)\|", line)) == 6


def test_csv_files(folder, cells):
    rows = pd.read_csv(folder / "results.csv", keep_default_na=False, dtype=str)
    numbers = ["mae", "mkld", "fit_seconds", "predict_seconds"]
    assert list(rows) == ["data", "method", "seed", *numbers, "chosen", "error"]
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
    pages = {"report.html", "report.md", "report.tex", "figures"}
    numbers = {"results.csv", "samples.csv", "samples.parquet"}
    assert {path.name for path in folder.iterdir()} == pages | numbers


def test_parquet_holds_what_the_csv_holds(folder, monkeypatch, tmp_path, capsys, cells):
    pytest.importorskip("pyarrow")
    found = pd.read_parquet(folder / "samples.parquet")
    pd.testing.assert_frame_equal(found, pd.read_csv(folder / "samples.csv"), check_exact=False)
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    write_report(cells, tmp_path, **OPTIONS, formats=["parquet"])
    assert not list(tmp_path.iterdir())
    assert "samples.parquet is left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("formats", "files"),
    [
        (["csv"], {"results.csv", "samples.csv"}),
        (["latex"], {"report.tex"}),
        (["md"], {"report.md", "figures"}),
        (["html"], {"report.html", "figures"}),
    ],
)
def test_formats(formats, files, tmp_path):
    cells = [make_cell("data", "method", 0)]
    path = write_report(cells, tmp_path, **OPTIONS, formats=formats)
    assert {path.name for path in tmp_path.iterdir()} == files
    assert path == (tmp_path / f"report.{formats[0]}" if "figures" in files else tmp_path)


def test_unknown_format(tmp_path):
    with pytest.raises(ValueError, match="unknown format 'pdf'; choose from html, md"):
        write_report([make_cell("data", "method", 0)], tmp_path, **OPTIONS, formats=["pdf"])


def test_times_choices_and_provenance(tmp_path):
    found = [make_cell("data", method, seed) for method in ("a", "b") for seed in range(3)]
    for cell, seconds in zip(found, (1.0, 2.0, 3.0, 100.0, 100.0, 100.0), strict=True):
        cell.fit_seconds = seconds
        cell.chosen = "C=<1>" if cell.method == "a" and cell.seed != 1 else ""
    path = write_report(found, tmp_path, **OPTIONS, provenance=[["cores", "<2>"]], formats=["html"])
    page = Page(path.read_text(encoding="utf-8"))
    assert table_of(page, "Seconds of training")["rows"][1:] == [
        ["a", "2.00 ± 1.00"],
        ["b", "100 ± 0"],
    ]
    assert table_of(page, "Seconds of prediction")["rows"][1][1] == "0.200 ± 0.000"
    assert table_of(page, "chose")["rows"][1:] == [["a", "data", "0, 2", "C=<1>"]]
    assert table_of(page, "computed, when")["rows"][1:] == [["cores", "<2>"]]
    assert "details" in [tag for tag, *_ in page.tags]


def told(found, metric="mae"):
    return report.answer(found, stats.error_table(found, metric, SIZE))


def timed(method, slope, seconds, sets=("data",), seeds=(0, 1, 2), rng=0):
    """Cells of a method whose error grows as its slope falls below one."""
    found = [
        make_cell(data, method, seed, slope, 0.01, rng=[rng, k, seed])
        for k, data in enumerate(sets)
        for seed in seeds
    ]
    for cell in found:
        cell.fit_seconds = seconds
    return found


def test_answer_about_one_data_set():
    best, bad = timed("A (tuned)", 1.0, 9.0), timed("C", 0.2, 0.1, rng=1)
    near = timed("A (plain)", 0.998, 0.5, rng=2)
    words = told([*best, *near, *bad])
    assert re.fullmatch(
        r"Best on data: A \(tuned\) \(MAE 0\.\d+\)\. "
        r"Not shown to be worse than the best over the splits: A \(plain\)\. "
        r"Fastest within 10 % of it: A \(plain\) \(MAE 0\.\d+, 0\.500 s of training instead of 9\.00 s\)\. "
        r"As good without tuning: A \(plain\)\.",
        words,
    )
    words = told([*best, *bad])
    assert "All others are shown to be worse than the best over the splits." in words
    assert "No other is within 10 % of it." in words
    assert "tuning" not in words
    assert told([*near, *bad]).endswith("It was not tuned.")
    one = [cell for cell in [*best, *bad] if cell.seed == 0]
    assert "One split and so few data sets cannot show that another is worse." in told(one)
    assert re.fullmatch(r"Best on data: C \(MAE 0\.\d+\)\.", told(bad))


def test_answer_about_several_data_sets():
    sets = [f"s{k}" for k in range(8)]
    many = [*timed("A", 1.0, 9.0, sets, (0,)), *timed("B", 0.3, 1.0, sets, (0,))]
    assert told(many).startswith("Best on average: A (MAE ")
    assert "All others are shown to be worse than the best over the data sets." in told(many)
    # Two data sets can show nothing, but their splits can.
    few = [
        *timed("A", 1.0, 1.0, "ab"),
        *timed("B", 0.3, 1.0, "ab"),
        *timed("A2", 1.0, 9.0, "ab", rng=3),
    ]
    assert "Not shown to be worse than the best on any data set: A" in told(few)
    assert "B" not in told(few).replace("Best", "")
    assert "All others are shown to be worse than the best on some data set." in told(few[:12])
    failed = [Cell("data", "A", 0, error="no"), make_cell("other", "A", 0)]
    assert told(failed) == "No method has a result on all data sets, so that none is best."


# ---------------------------------------------------------------------- browser


PROBE = """
document.addEventListener("securitypolicyviolation", (e) => { document.title += " VIOLATION " + e.violatedDirective; });
addEventListener("error", (e) => { document.title += " ERROR " + e.message; });
addEventListener("load", () => {
  const table = document.querySelector("table:not(.words)");
  const head = table.tHead.rows[0].cells[1];
  const column = () => [...table.tBodies[0].rows].map((row) => row.cells[0].textContent).join();
  const seen = [column()];
  for (const _ of "123") {
    head.querySelector("button").click();
    seen.push(head.getAttribute("aria-sort"), column());
  }
  const key = document.querySelector(".keys button");
  const parts = key.closest("figure").querySelectorAll("g." + key.parentNode.dataset.series);
  const hidden = () => [...parts].filter((p) => getComputedStyle(p).visibility === "hidden").length;
  key.click();
  seen.push(key.getAttribute("aria-pressed"), hidden() === parts.length && hidden() > 0);
  key.click();
  seen.push(hidden());
  seen.push(document.documentElement.scrollWidth <= innerWidth);
  document.title = "SEEN;" + seen.join(";") + ";" + document.title;
});
"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
def test_the_page_in_a_browser(folder, table, tmp_path):
    """No error, nothing that the policy forbids; tables are sorted and lines hidden; nothing is wider than a phone."""
    text = (folder / "report.html").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(PROBE.encode()).digest()).decode()
    text = text.replace("script-src ", f"script-src 'sha256-{digest}' ")
    text = text.replace("</title>", f"</title>\n<script>{PROBE}</script>")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    command = [
        "chromium",
        *options,
        "--window-size=390,800",
        f"--user-data-dir={tmp_path / 'user'}",
    ]
    done = subprocess.run(
        [*command, "--dump-dom", (tmp_path / "page.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "CONSOLE" not in done.stderr
    (title,) = re.findall("<title>(.*)</title>", done.stdout)
    seen = title.split(";")
    names = list(METHODS)
    up = [names[k] for k in np.argsort(table.means[:, 0])]
    orders = ["ascending", ",".join(up), "descending", ",".join(up[::-1]), "none", ",".join(names)]
    assert seen[:10] == ["SEEN", ",".join(names), *orders, "false", "true"]
    assert seen[10:12] == ["0", "true"]
    assert not re.search("VIOLATION|ERROR", title)


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


def test_drift_has_a_sign_for_two_classes_and_is_half_a_sum_for_more():
    two = make_cell("data", "method", 0)
    np.testing.assert_allclose(stats.drift(two), two.true[:, 1] - 0.4)
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
        vectors.draw(figure, "classes")
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
    assert [name for name in names if re.match("(diagonal|bias|simplex).*svg", name)] == [
        *("bias-2.svg", "bias-3.svg"),
        *("diagonal-1.svg", "diagonal-2.svg", "diagonal-3.svg"),
        "simplex-2.svg",
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
    points = [{m.start() for m in re.finditer(r"\.\d{4}", line)} for line in lines[2:6]]
    assert all(p <= points[0] and len(p) >= 6 for p in points)


def test_text_table_says_what_failed_or_is_missing():
    found = [make_cell("a", "one", 0), make_cell("b", "one", 0), Cell("a", "two", 0, error="no")]
    lines = text_table(found, "mrae", SIZE).splitlines()
    assert any(re.fullmatch(r"two +failed +not run +–", line) for line in lines)
