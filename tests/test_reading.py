"""Dialects, formats, columns and folders: each is read as its clean twin in CSV."""

import json
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import quapy as qp
import scipy.sparse

from experiments import catalogue, compare, data
from experiments.__main__ import main
from experiments.catalogue import DataSet, Reading
from quapy_nemsis.tables.columns import roles, typed
from quapy_nemsis.tables.formats import Fault
from quapy_nemsis.tables.preparing import preparer
from quapy_nemsis.tables.reading import load_file


def clean(rows=120, seed=0):
    """A table of all kinds of columns, with gaps; é is in cp1252, and in two bytes of UTF-8."""
    rng = np.random.default_rng(seed)
    words = np.array(["slow", "good", "quiet", "hôtel", "near", "sea", "bad", "café", "loud", "ok"])
    gaps = rng.random((rows, 5)) < 0.1
    days = pd.Timestamp("2019-03-01") + pd.to_timedelta(rng.integers(0, 900, rows), "D")
    texts = [" ".join(rng.choice(words, 6)) for _ in range(rows)]
    frame = pd.DataFrame(
        {
            "size": rng.normal(50, 9, rows).round(9),  # as many digits as workbooks keep
            "count": rng.integers(0, 9, rows),
            "share": np.where(gaps[:, 0], np.nan, rng.random(rows).round(9)),
            "town": pd.Series(rng.choice(["Orléans", "Pisa", "Rome"], rows)).mask(gaps[:, 1]),
            "member": pd.Series(rng.random(rows) < 0.5, dtype=object).mask(gaps[:, 2]),
            "sure": rng.random(rows) < 0.5,
            "day": pd.Series(days.strftime("%Y-%m-%d")).mask(gaps[:, 3]),
            "review": pd.Series(texts).mask(gaps[:, 4]),
            "key": [f"k{row}" for row in range(rows)],
            "same": 1,
            "nothing": np.nan,
        }
    )
    return frame.assign(label=np.where(frame["count"] + rng.normal(size=rows) > 4, "yes", "no"))


TAKEN_AS = {
    **dict.fromkeys(("size", "count", "share"), "number"),
    **{"town": "category", "member": "boolean", "sure": "boolean", "day": "date"},
    **{"review": "text", "key": "identifier", "same": "constant", "nothing": "empty"},
}


@pytest.fixture
def twin(tmp_path):
    """The clean twin: its path, its rows, and what is made of them."""
    path = tmp_path / "twin.csv"
    clean().to_csv(path, index=False)
    return path, load_file(path, "label", None)


def prepared(loaded):
    """The features as numbers, prepared on the first part."""
    tools = preparer(loaded.features[:80], taken_as=loaded.roles).fit(loaded.features[:80])
    return tools.transform(loaded.features)


def assert_same(path, twin, reading=Reading()):  # noqa: B008
    """Check that a file gives the numbers of its clean twin."""
    found = load_file(path, "label", None, reading)
    assert found.roles == twin.roles
    assert found.missing == twin.missing
    assert found.classes == twin.classes
    np.testing.assert_array_equal(found.y, twin.y)
    np.testing.assert_array_equal(prepared(found), prepared(twin))
    return found


def test_columns_of_the_twin(twin):
    _, loaded = twin
    assert loaded.roles == TAKEN_AS
    assert loaded.note == ""
    X = prepared(loaded)
    assert np.isfinite(X).all()
    assert X.dtype == np.float64
    np.testing.assert_array_equal(X, prepared(loaded))
    # Numbers and booleans, two with gaps; towns and a gap; year, month, day and seconds, each with gaps; text.
    assert X.shape[1] > 5 + 2 + 4 + (4 + 4) + 30


DIALECTS = {
    "semicolon": {"sep": ";"},
    "tab": {"sep": "\t"},
    "bar": {"sep": "|"},
    "decimal comma": {"sep": ";", "decimal": ","},
    "decimal comma, tab": {"sep": "\t", "decimal": ","},
    "decimal comma, quoted": {"decimal": ","},
    "mark": {"encoding": "utf-8-sig"},
    "cp1252": {"encoding": "cp1252"},
    "latin-1": {"encoding": "latin-1"},
    "utf-16": {"encoding": "utf-16", "sep": "\t"},
    "as of Excel": {"encoding": "cp1252", "sep": ";", "decimal": ",", "lineterminator": "\r\n"},
    "question marks": {"na_rep": "?"},
    "NA": {"na_rep": "NA", "sep": ";", "decimal": ","},
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz"])
def test_dialects(tmp_path, twin, dialect, suffix):
    path = tmp_path / f"other{suffix}"
    clean().to_csv(path, index=False, **DIALECTS[dialect])
    assert_same(path, twin[1])


def test_what_is_recognised_is_said(tmp_path):
    path = tmp_path / "other.csv"
    clean().to_csv(path, index=False, sep=";", decimal=",", encoding="cp1252")
    told = data.describe(DataSet("other", path, "label"))
    assert "read with separator ';', decimal ',', encoding 'cp1252'" in told


def test_what_is_said_wins(tmp_path, twin):
    path = tmp_path / "other.csv"
    clean().to_csv(path, index=False, sep="/", encoding="cp037")
    with pytest.raises(ValueError, match=r"--target|--encoding"):
        load_file(path, "label", None)
    assert_same(path, twin[1], Reading(separator="/", encoding="cp037"))
    # Three digits after each comma may be thousands.
    path.write_text("x;label\n1,500;a\n2,250;b\n")
    with pytest.raises(ValueError, match="thousands"):
        load_file(path, "label", None)
    numbers = load_file(path, "label", None, Reading(decimal=",")).features["x"]
    assert numbers.tolist() == [1.5, 2.25]
    assert load_file(path, "label", None, Reading(decimal=".")).roles == {"x": "identifier"}
    # A column of pairs is no column of numbers with a comma.
    path.write_text('x,label\n"1,5",a\n"2,5",b\n')
    assert load_file(path, "label", None, Reading(decimal=".")).roles == {"x": "identifier"}


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"separator": ";;"}, "one character"),
        ({"separator": ",", "decimal": ","}, "both ','"),
        ({"encoding": "utf-99"}, "utf-99.* not known.*cp1252"),
    ],
)
def test_what_cannot_be_said(said, wrong):
    with pytest.raises(ValueError, match=wrong):
        Reading(**said)


def test_a_wrong_encoding(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("x,label\n1,a\n2,é\n".encode())
    with pytest.raises(ValueError, match="line 3 is not ascii; name the encoding"):
        load_file(path, "label", None, Reading(encoding="ascii"))


@pytest.mark.parametrize("typed_dates", [False, True])
@pytest.mark.parametrize("suffix", [".parquet", ".xlsx"])
def test_other_formats(tmp_path, twin, suffix, typed_dates):
    frame = clean()
    if typed_dates:
        frame["day"] = pd.to_datetime(frame["day"])
    path = tmp_path / f"other{suffix}"
    if suffix == ".xlsx":
        frame.to_excel(path, index=False)
    else:
        pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
        frame.to_parquet(path)
    assert_same(path, twin[1])


def test_types_of_parquet_do_not_matter(tmp_path, twin):
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    frame = clean()
    frame["count"] = frame["count"].astype("category")
    frame["share"] = frame["share"].astype(str).replace("nan", "?")
    frame["town"] = frame["town"].astype("category")
    frame["member"] = frame["member"].map({True: "TRUE", False: "FALSE"})
    frame["sure"] = frame["sure"].astype("boolean")
    frame["day"] = pd.to_datetime(frame["day"]).dt.date
    frame["same"] = frame["same"].astype("Int64")
    path = tmp_path / "other.parquet"
    frame.to_parquet(path)
    assert_same(path, twin[1])


def test_zones_of_time(tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    hours = pd.date_range("2020-01-01", "2020-12-01", 40, tz="Europe/Rome").floor("h")
    frame = pd.DataFrame({"time": hours, "label": ["a", "b"] * 20})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    assert_same(tmp_path / "a.parquet", load_file(tmp_path / "a.csv", "label", None))


def test_rows_of_many_lines(tmp_path):
    """The separator is recognised from the first lines, though the last of them ends within a field."""
    path = tmp_path / "a.csv"
    rows = [f'{row};"a, b\nc, d\ne";{"no" if row % 2 else "yes"}\n' for row in range(600)]
    path.write_text("x;a, b;label\n" + "".join(rows))
    assert list(load_file(path, "label", None).features) == ["x", "a, b"]


def test_sheets(tmp_path, twin):
    path = tmp_path / "other.xlsx"
    with pd.ExcelWriter(path) as book:
        pd.DataFrame().to_excel(book, sheet_name="empty")
        clean().to_excel(book, sheet_name="rows", index=False)
    assert_same(path, twin[1])
    with pd.ExcelWriter(path) as book:
        clean(30, seed=1).to_excel(book, sheet_name="old", index=False)
        clean().to_excel(book, sheet_name="new", index=False)
    with pytest.raises(ValueError, match=r"several sheets.*--sheet: 'old', 'new'"):
        load_file(path, "label", None)
    with pytest.raises(ValueError, match=r"no sheet 'news'.*'old', 'new'"):
        load_file(path, "label", None, Reading(sheet="news"))
    assert_same(path, twin[1], Reading(sheet="new"))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="broken or cut short"):
        load_file(path, "label", None)


def test_columns_of_the_same_name_in_a_sheet(tmp_path):
    path = tmp_path / "twice.xlsx"
    for names, twice in ((["a", "a.1", "label"], False), (["a", "a", "label"], True)):
        pd.DataFrame([[1, 2, "x"], [3, 4, "y"]] * 5).to_excel(path, index=False, header=names)
        with pytest.raises(Fault, match="two columns 'a'") if twice else nullcontext():
            assert list(load_file(path, "label", None).features.columns) == ["a", "a.1"]


@pytest.mark.parametrize("name", ["imdb", "letter", "leq.tsv", "day;count"])
def test_names_do_not_matter(tmp_path, twin, name):
    path = tmp_path / f"{name}.csv"
    clean().to_csv(path, index=False)
    assert_same(path, twin[1])


@pytest.mark.parametrize(
    ("values", "taken_as"),
    [
        (["2020-01-05", "2020-02-01", None], "date"),
        (["05.01.2020", "13.02.2020", "14.02.2020"], "date"),
        (["2020-01-05 10:00", "2020-02-01 11:30", "2020-02-01 11:31"], "date"),
        ([2019, 2020, 2021], "number"),
        ([str(10**30), "1", "2"], "number"),
        (["a", "b", "a"], "category"),
        (["a", None, None], "category"),
        (["a", "b", "c"], "identifier"),
        (["a", "a", "a"], "constant"),
        ([None, None, None], "empty"),
        (["I like it", "not for me", "it is all right"], "text"),
        (["some college degree"] * 4 + ["no college degree"], "category"),
        ([[1], [2], [2]], "other"),
    ],
)
def test_roles(values, taken_as):
    assert roles(typed(pd.DataFrame({"x": values}))) == {"x": taken_as}


def test_roles_are_those_of_all_rows():
    """A training part may hold one value, or none; still its columns are those of all rows."""
    frame = typed(clean().drop(columns="label"))
    train = frame[:60].assign(town="Rome", review=None, day=pd.NaT, share=np.nan, member=None)
    train = train.astype(frame.dtypes)
    tools = preparer(train, taken_as=roles(frame)).fit(train)
    X = tools.transform(frame)
    assert np.isfinite(X).all()
    assert len(X) == 120


def test_the_table_of_columns(tmp_path, twin, capsys):
    path, loaded = twin
    rows = data.columns_table(DataSet("twin", path, "label"))
    done = {name: rest for name, *rest in rows}
    gaps = {name: str(count) for name, count in loaded.missing.items()}
    assert done["size"] == ["number", "0", "scaled"]
    assert done["share"] == ["number", gaps["share"], "median, gaps marked, scaled"]
    assert done["town"] == ["category", gaps["town"], "4 categories, gaps are one of them"]
    assert done["review"][2] == "letter n-grams, at most 100 components"
    assert done["key"] == ["nothing", "0", "dropped: all values differ"]
    assert done["nothing"] == ["nothing", "120", "dropped: empty"]
    assert data.columns_table(DataSet("digits")) == []
    lines = data.columns_text(DataSet("twin", path, "label"), most=4).splitlines()
    assert len(lines) == 6
    assert lines[-1].strip() == "... and 7 more"
    run_compare(tmp_path / "out", path, "--target", "label")
    printed = capsys.readouterr().out
    assert "columns of twin\n  column " in printed
    assert "dropped: constant" in printed


def run_compare(out, *arguments):
    """Run a small comparison."""
    sizes = ["--repeats", "2", "--prevalences", "3", "--sample-size", "20", "--methods", "CC@plain"]
    sizes += ["--seeds", "1", "--format", "csv"]
    main(["compare", "--out", str(out), *sizes, "--sets", *map(str, arguments)])
    run = json.loads((out / "run.json").read_text())
    return compare.finished(run["files"], out / "cells")


# Divisions


def with_fold(path, fold):
    """An npz file with a fold."""
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 50)
    np.savez(path, X=rng.normal(size=(100, 3)) + y[:, np.newaxis], y=y, fold=fold)
    return path


def test_the_fold_of_a_file(tmp_path, capsys):
    fold = np.arange(100) // 40  # parts 0, 1 and 2
    path = with_fold(tmp_path / "a.npz", fold)
    dataset = catalogue.locate(str(path), split="fold")
    _, y, X_test, y_test = data.split(dataset, seed=0)
    assert (len(y), len(y_test)) == (40, 60)
    np.testing.assert_array_equal(X_test, data.split(dataset, seed=1)[2])
    cells = run_compare(tmp_path / "out", path, "--split", "fold")
    assert "60 rows for tests, by the fold of the file" in capsys.readouterr().out
    assert not cells[0].error
    assert cells[0].train_prevalence.tolist() == [0.5, 0.5]
    with pytest.raises(SystemExit, match=r"digits has no fold for --split fold.*'fold'"):
        run_compare(tmp_path / "out", "digits", "--split", "fold")
    with_fold(tmp_path / "b.npz", np.tile([0, 1], 50))
    with pytest.raises(ValueError, match="no training rows of class '1' in its fold"):
        data.load(catalogue.locate(str(tmp_path / "b.npz"), split="fold"))
    with_fold(tmp_path / "c.npz", np.zeros(3))
    with pytest.raises(ValueError, match=r"fold has shape \(3,\), y \(100,\)"):
        data.load(catalogue.locate(str(tmp_path / "c.npz")))


def test_the_size_of_the_test_part(tmp_path):
    path = with_fold(tmp_path / "a.npz", np.zeros(100))
    for size, rows in ((0.3, 30), (0.5, 50), (0.8, 80)):
        dataset = catalogue.locate(str(path), test_size=size)
        assert len(data.split(dataset, seed=0)[3]) == rows
        assert data.held_out(dataset) == rows
    for size in ("0", "1", "nan", "-0.5"):
        with pytest.raises(SystemExit, match="--test-size must be between 0 and 1"):
            run_compare(tmp_path / "out", path, f"--test-size={size}")


def test_cells_differ_by_the_division(tmp_path):
    path = with_fold(tmp_path / "a.npz", np.arange(100) // 40)
    ways = (
        {},
        {"test_size": 0.5},
        {"split": "fold"},
        {"reading": Reading(decimal=",")},
        {"positive": "1"},
    )
    sets = [catalogue.locate(str(path), **way) for way in ways]
    keys = compare.keys([compare.Task(one, "CC", 0, compare.Protocol()) for one in sets])
    assert len({json.dumps(key, sort_keys=True) for key in keys}) == len(ways)


def test_targets_of_files(tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.xlsx"
    clean().to_csv(first, index=False)
    clean(seed=1).rename(columns={"label": "out:come"}).to_excel(second, index=False)
    given = ["--target", f"{first}:label", "b.xlsx:out:come"]
    cells = run_compare(tmp_path / "out", first, second, *given)
    assert [cell.classes for cell in cells] == [["no", "yes"]] * 2
    sets = [str(first), str(second)]
    for targets, wanted in (
        (["label"], ["label", "label"]),
        (["a:x"], ["x", None]),
        (["label", "b.xlsx:out:come"], ["label", "out:come"]),
        (["time:of:day"], ["time:of:day"] * 2),
        (None, [None, None]),
    ):
        assert [catalogue.target_of(name, targets, sets) for name in sets] == wanted
    with pytest.raises(ValueError, match=r"'x' and 'y' for .*a.csv"):
        catalogue.target_of(sets[0], ["x", "y"], sets)


# Tweets


def test_tweets(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(catalogue.FOLDER_VARIABLE, raising=False)
    rng = np.random.default_rng(0)
    X, y = scipy.sparse.csr_matrix(rng.random((60, 4))), np.arange(60) % 3

    def fetcher(name, min_df):
        parts = (
            qp.data.LabelledCollection(X[part], y[part]) for part in (slice(45), slice(45, 60))
        )
        return qp.data.Dataset(*parts, name=name)

    monkeypatch.setattr(qp.datasets, "fetch_twitter", fetcher)
    assert data.fetch("tweets.gasp") == catalogue.find("tweets.gasp")
    dataset = catalogue.locate("tweets.gasp", split="fold")
    np.testing.assert_array_equal(data.load(dataset).y, y)
    assert data.held_out(dataset) == 15


# Folders of bags


def write_bags(folder, n_classes=2, texts=False, bags=(3, 5), rows=30):
    """A folder in the layout of LeQua."""
    rng = np.random.default_rng(0)
    public = folder / "public"

    def features(y):
        if texts:
            words = np.array([["bad", "poor"], ["good", "fine"], ["so", "fair"]])[y]
            return pd.DataFrame({"text": [" ".join(rng.choice(row, 6)) for row in words]})
        X = rng.normal(size=(len(y), 5))
        X[np.arange(len(y)), y] += 2
        return pd.DataFrame(X).round(6)

    public.mkdir(parents=True)
    y = rng.integers(0, n_classes, 200)
    train = features(y)
    train.insert(0, "label", y)
    train.to_csv(public / "training_data.txt", index=False)
    for part, count in zip(("dev", "test"), bags, strict=True):
        (public / f"{part}_samples").mkdir()
        shares = []
        for place in range(count):
            y = rng.choice(n_classes, rows, p=rng.dirichlet(np.ones(n_classes)))
            shares.append(np.bincount(y, minlength=n_classes) / rows)
            bag = features(y)
            bag.to_csv(public / f"{part}_samples" / f"{place}.txt", index=False)
        table = pd.DataFrame(shares).rename_axis("id")
        table.to_csv(public / f"{part}_prevalences.txt")
    return folder


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_bags(tmp_path, n_classes, texts, capsys):
    folder = write_bags(tmp_path / "T1A", n_classes, texts)
    dataset = catalogue.locate(str(folder))
    assert dataset.name == "T1A"
    assert catalogue.locate(str(folder / "public")).name == "public"
    loaded = data.load(dataset)
    assert loaded.classes == [str(k) for k in range(n_classes)]
    assert loaded.X.shape[0] == len(loaded.y) == 200
    assert (loaded.validation.total(), loaded.test.total()) == (3, 5)
    first, again = list(loaded.test()), list(loaded.test())
    assert len(first) == 5
    for (X, prevalence), (X_again, prevalence_again) in zip(first, again, strict=True):
        assert X.shape == (30, loaded.X.shape[1])
        np.testing.assert_array_equal(X, X_again)
        np.testing.assert_array_equal(prevalence, prevalence_again)
        assert np.isclose(prevalence.sum(), 1)
    known = pd.read_csv(folder / "public" / "test_prevalences.txt", index_col="id")
    [cell] = run_compare(tmp_path / "out", folder)
    assert cell.error == ""
    np.testing.assert_allclose(cell.true, known, atol=1e-12)
    assert np.abs(cell.true - cell.estimated).mean() < 0.15
    printed = capsys.readouterr().out
    assert "3 bags for validation and 5 for tests" in printed
    assert "mae under 5 bags of the folder" in printed


def test_bags_as_quapy_reads_them(tmp_path, monkeypatch):
    from quapy.data import _lequa

    folder = write_bags(tmp_path / "T1A") / "public"
    monkeypatch.setattr(_lequa, "TEST_SAMPLES", 5)
    path = folder / "test_prevalences.txt"

    def read(path):
        return pd.read_csv(path).to_numpy(float), None

    theirs = _lequa.SamplesFromDir(str(folder / "test_samples"), str(path), read)
    loaded = data.load(catalogue.locate(str(folder)))
    scaler = loaded.features.to_numpy()
    pairs = list(zip(loaded.test(), theirs(), strict=True))
    assert len(pairs) == 5
    for (X, prevalence), (raw, wanted) in pairs:
        np.testing.assert_allclose(X, (raw - scaler.mean(axis=0)) / scaler.std(axis=0), atol=1e-9)
        np.testing.assert_array_equal(prevalence, wanted)


def test_cells_differ_by_the_bags(tmp_path):
    folder = write_bags(tmp_path / "T1A")
    before = data.load(catalogue.locate(str(folder))).fingerprint
    data.load.cache_clear()
    assert data.load(catalogue.locate(str(folder))).fingerprint == before
    path = folder / "public" / "test_samples" / "4.txt"
    path.write_text(path.read_text() + "0,0,0,0,0\n")
    data.load.cache_clear()
    assert data.load(catalogue.locate(str(folder))).fingerprint != before


@pytest.mark.parametrize(
    ("name", "change", "wrong"),
    [
        ("training_data.txt", ("label", "class"), "no column 'label', of 'class', '0'"),
        ("dev_prevalences.txt", ("id,0,1", "id,0,2"), "columns must be 'id', '0', '1'"),
        ("test_prevalences.txt", ("\n4,", "\n9,"), "no file for the bags '9'"),
        ("test_prevalences.txt", ("\n0,", "\n0,7"), "bag 0 do not add up to 1"),
    ],
)
def test_broken_folders(tmp_path, name, change, wrong):
    folder = write_bags(tmp_path / "T1A")
    path = folder / "public" / name
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(ValueError, match=wrong):
        data.load(catalogue.locate(str(folder)))
    path.unlink()
    with pytest.raises((ValueError, OSError), match=r"no such file|is a folder"):
        data.load(catalogue.locate(str(folder)))


def test_a_broken_bag_and_a_positive_label(tmp_path):
    folder = write_bags(tmp_path / "T1A")
    with pytest.raises(ValueError, match="leave --positive out"):
        data.load(catalogue.locate(str(folder), positive="1"))
    (folder / "public" / "test_samples" / "2.txt").write_text("0,1\n1,2\n")
    loaded = data.load(catalogue.locate(str(folder)))
    with pytest.raises(ValueError, match=r"2\.txt: the bag cannot be read"):
        list(loaded.test())
    with pytest.raises(IsADirectoryError, match="is a folder"):
        catalogue.locate(f"{tmp_path}/")
