"""Tables in the package: their preparation, their chunks, and the quantifier that takes them."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from quapy_nemsis import NEMSISClassifier, Quantifier, TableQuantifier, load, save
from quapy_nemsis.drift import mixture_test, prevalence_test
from quapy_nemsis.learners.state import Arrays
from quapy_nemsis.tables import chunking
from quapy_nemsis.tables.columns import GAPS, read_as, roles, typed
from quapy_nemsis.tables.formats import Fault, Reading
from quapy_nemsis.tables.preparing import (
    DenseScaling,
    SparseScaling,
    TablePreparation,
    TermWeights,
    packed,
    preparer,
    unpacked,
)
from tests.patients import patients
from tests.reference.preparation import pipeline
from tests.test_files import mixed
from tests.test_reading import clean

#: A quantifier that is trained fast, as nothing is tuned.
LEARNER = NEMSISClassifier("ba", reward="logistic", eta0=0.1, radius=10.0, n_passes=5)
FAST = Quantifier(LEARNER, features=None, n_draws=20)
FRAMES = {
    "clean": lambda: typed(clean(200).drop(columns="label")),
    "mixed": mixed,
    "few texts": lambda: typed(clean(60, seed=1).drop(columns="label"))[["review", "size"]],
    "times": lambda: pd.DataFrame(
        {"at": pd.date_range("2020-01-01", "2021-03-01", 90, tz="UTC").where(np.arange(90) % 7 > 0)}
    ),
    "rare": lambda: pd.DataFrame(
        {"x": [f"w{k % 90}" for k in range(200)], "y": [None, "a", "b", "c"] * 50}
    ),
}


@pytest.mark.parametrize("name", FRAMES)
@pytest.mark.filterwarnings("ignore:The matrix shape")
def test_the_preparation_is_that_of_scikit_learn_and_skrub(name, tmp_path):
    frame = FRAMES[name]()
    train = frame[: 2 * len(frame) // 3]
    taken_as = roles(frame)
    reference, found = pipeline(train, taken_as), preparer(train, taken_as=taken_as)
    np.testing.assert_allclose(
        found.fit_transform(train), reference.fit_transform(train), rtol=1e-10, atol=1e-12
    )
    expected = reference.transform(frame)
    np.testing.assert_allclose(found.transform(frame), expected, rtol=1e-10, atol=1e-12)
    assert found.width == expected.shape[1]
    save(found, tmp_path / "tools.npz")
    again = load(tmp_path / "tools.npz")
    np.testing.assert_array_equal(again.transform(frame), found.transform(frame))
    # A part of the rows is transformed as it is among the others, but for rounding of products.
    np.testing.assert_allclose(again.transform(frame[5:9]), found.transform(frame)[5:9], atol=1e-6)


@pytest.mark.parametrize("kind", [DenseScaling, SparseScaling, TermWeights])
def test_preparations_of_matrices_are_saved(kind, tmp_path):
    X = np.random.default_rng(0).poisson(0.3, size=(40, 6)).astype(np.float32)
    X = X if kind is DenseScaling else scipy.sparse.csr_matrix(X)
    tools = kind().fit(X[:30])
    save(tools, tmp_path / "tools.npz")
    again = load(tmp_path / "tools.npz").transform(X)
    expected = tools.transform(X)
    assert abs(again - expected).max() == 0.0
    assert again.dtype == np.float32


@pytest.mark.parametrize(
    "texts", [[], [""], ["a", "", "é", "\0", "a\0"], ["\ud800", "x" * 5000, "日本"]]
)
def test_texts_of_any_length_are_packed(texts):
    assert unpacked(Arrays(packed(texts), 0, 0)) == texts


@pytest.mark.parametrize("wrong", [[3, 2], [-1, 3], [1, 2], [1, 9]])
def test_texts_that_end_elsewhere_are_refused(wrong):
    arrays = packed(["a", "bc"])
    with pytest.raises(ValueError, match="do not end where they should"):
        unpacked(Arrays({**arrays, "ends": np.array(wrong)}, 0, 0))


def test_the_strings_that_are_gaps_are_those_of_skrub():
    frame = pd.DataFrame({gap or "empty": ["x", gap, "y", "x", "  "] for gap in GAPS})
    assert (typed(frame).isna().sum() == 2).all()
    for name in frame:
        assert read_as(frame[name], "category").isna().tolist() == [False, True, False, False, True]
    assert not typed(pd.DataFrame({"x": ["no", "-", "0", "unknown"]})).isna().any().any()


@pytest.mark.parametrize(
    ("values", "taken_as", "how", "expected"),
    [
        (["1", " 2.5", "x", "", "NA"], "number", "", [1, 2.5, None, None, None]),
        ([True, False], "number", "", [1, 0]),
        (pd.to_timedelta([1, 2], "s"), "number", "", [1, 2]),
        (pd.to_datetime(["2020-01-01"]), "number", "", [None]),
        (["TRUE", "false", "1", "0.0", "yes", "2"], "boolean", "", [1, 0, 1, 0, None, None]),
        ([1, 0, 2], "boolean", "", [1, 0, None]),
        (["a", "none", "?", " "], "category", "", ["a", None, None, None]),
        ([1, 2], "category", "", ["1", "2"]),
        (["13.02.2020", "2020-02-14", "x"], "date", "%d.%m.%Y", [13, 14, None]),
        (pd.to_datetime(["2020-02-13"]), "date", "%d.%m.%Y", [13]),
        (["2020-02-13 23:00-0200"], "date", "%Y-%m-%d %H:%M%z", [14]),
        ([3, 4], "date", "", [None, None]),
    ],
)
def test_columns_are_read_as_they_were(values, taken_as, how, expected):
    found = read_as(pd.Series(values), taken_as, how)
    found = found.dt.day if taken_as == "date" else found
    assert found.astype(object).where(found.notna(), None).tolist() == expected


# The quantifier


@pytest.fixture(scope="module")
def model():
    exact = Quantifier(LEARNER, features=None, n_draws=100)
    return TableQuantifier("outcome", "ill", exact).fit(patients(1200, 0.3, 0))


@pytest.fixture
def written(tmp_path):
    """The same rows in all formats."""
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    frame = patients(90, 0.6, 1)
    paths = {kind: tmp_path / f"new{kind}" for kind in (".csv", ".tsv", ".xlsx", ".parquet")}
    frame.to_csv(paths[".csv"], index=False)
    frame.to_csv(paths[".tsv"], index=False, sep="\t", decimal=",", encoding="cp1252")
    frame.to_excel(paths[".xlsx"], index=False)
    frame.assign(town=frame["town"].astype("category")).to_parquet(paths[".parquet"])
    return frame, paths


@pytest.mark.parametrize("rows", [31, 1000])
def test_formats_and_chunks_do_not_matter(model, written, rows, monkeypatch):
    frame, paths = written
    expected = model.estimate(frame, labels=True)
    monkeypatch.setattr(chunking.chunks, "__defaults__", (*chunking.chunks.__defaults__[:-1], rows))
    for path in (*paths.values(), frame):
        found = model.estimate(path, labels=True)
        np.testing.assert_allclose(found.scores.values, expected.scores.values, rtol=1e-12)
        for name in ("prevalences", "low", "high", "true"):
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
        assert found.n_rows == 90
        assert found.notes == ()


def test_dates_may_come_as_dates(model):
    frame = patients(60, 0.5, 2)
    dates = pd.to_datetime(frame["admitted"], format="%d.%m.%Y")
    expected = model.score(frame).scores.values
    for other in (dates, dates.dt.tz_localize("UTC"), dates.dt.strftime("%Y-%m-%d")):
        found = model.score(frame.assign(admitted=other)).scores.values
        np.testing.assert_array_equal(found, expected)


def test_it_is_saved_whole(model, tmp_path):
    save(model, tmp_path / "model.qn")
    again = load(tmp_path / "model.qn")
    assert (again.classes_, again.facts_) == (model.classes_, model.facts_)
    assert again.get_params()["target"] == "outcome"
    frame = patients(200, 0.5, 3)
    first, second = (each.estimate(frame, 0.8) for each in (model, again))
    np.testing.assert_array_equal(first.draws, second.draws)
    np.testing.assert_array_equal(first.prevalences, second.prevalences)
    for test in (prevalence_test, mixture_test):
        assert test(model.quantifier_, first.scores) == test(again.quantifier_, second.scores)


def test_rows_without_a_label_are_estimated_first():
    frame = patients(900, 0.3, 4)
    truth = frame["outcome"][600:]
    frame["outcome"] = frame["outcome"].mask(frame.index >= 600)
    model = TableQuantifier("outcome", quantifier=FAST).fit(frame)
    assert model.classes_ == ["ill", "well"]
    assert model.facts_["unlabelled rows"] == 300
    assert model.unlabelled_.n_rows == 300
    np.testing.assert_array_equal(
        model.unlabelled_.prevalences, model.estimate(frame[600:]).prevalences
    )
    assert model.unlabelled_.low[0] <= (truth == "ill").mean() <= model.unlabelled_.high[0]


def test_several_classes_and_texts(tmp_path):
    frame = patients(700, 0.4, 5, texts=True)
    frame["outcome"] = frame["outcome"].mask(frame["smoker"] & (frame["outcome"] == "ill"), "bad")
    model = TableQuantifier("outcome", quantifier=FAST).fit(frame[:400])
    assert model.classes_ == ["bad", "ill", "well"]
    save(model, tmp_path / "model.qn")
    rest = frame[400:]
    rest = rest[(rest["outcome"] != "well") | (rest.index % 4 == 0)]  # other prevalences
    found = load(tmp_path / "model.qn").estimate(rest, labels=True)
    np.testing.assert_allclose(found.prevalences.sum(), 1.0)
    np.testing.assert_array_equal(found.prevalences, model.estimate(rest).prevalences)
    assert found.true.sum() == pytest.approx(1.0)
    error, unchanged = (np.abs(p - found.true).sum() for p in (found.prevalences, found.training))
    assert error < 0.5 * unchanged


def test_matrices(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.random(500) < 0.4
    X = rng.normal(size=(500, 4)) + y[:, np.newaxis]
    np.savez(tmp_path / "train.npz", X=X[:300], y=y[:300])
    np.savez(tmp_path / "new.npz", X=X[300:], y=y[300:])
    np.savez(tmp_path / "bare.npz", X=X[300:])
    np.savez(tmp_path / "narrow.npz", X=X[300:, :3])
    model = TableQuantifier(quantifier=FAST).fit(tmp_path / "train.npz")
    found = model.estimate(tmp_path / "new.npz", labels=True)
    assert found.true[1] == y[300:].mean()
    assert found.low[1] <= found.true[1] <= found.high[1]
    bare = model.estimate(tmp_path / "bare.npz")
    np.testing.assert_array_equal(bare.prevalences, found.prevalences)
    for table, labels, words in (
        ("narrow.npz", False, "have 3 columns, and those of training 4"),
        ("bare.npz", True, "the file has no labels"),
    ):
        with pytest.raises(Fault, match=f"{table}: .*{words}"):
            model.estimate(tmp_path / table, labels=labels)
    with pytest.raises(Fault, match="trained on a matrix"):
        model.estimate(patients(20, 0.5, 1))


ODD = {
    "missing": (lambda f: f.drop(columns="age"), "are missing: 'age'; the file has 'visits'"),
    "renamed": (lambda f: f.rename(columns={"age": "Age"}), r"'age' \(did you mean 'Age'\?\)"),
    "retyped": (
        lambda f: f.assign(age="old"),
        "'age' held numbers in training, and 100 of 100 values are none, such as 'old'",
    ),
    "dates": (lambda f: f.assign(admitted="soon"), "'admitted' held dates.* such as 'soon'"),
    "recoded": (lambda f: f.assign(town="X"), "'town' has none of the categories of training"),
    "infinite": (lambda f: f.assign(age=np.inf), "infinite values in the columns 'age'"),
    "empty": (lambda f: f[:0], "no rows of data"),
    "gaps": (lambda f: pd.DataFrame(np.nan, f.index, f.columns), "the model needs have no values"),
    "two": (lambda f: f.set_axis([*f.columns[:-1], "age"], axis=1), "two columns 'age'"),
    "text file": (lambda f: f[["age"]], "only one: is the separator right"),
}


@pytest.mark.parametrize("what", ODD)
def test_tables_that_are_refused(model, what):
    odd, message = ODD[what]
    with pytest.raises(Fault, match=f"^the table: .*{message}"):
        model.estimate(odd(patients(100, 0.5, 6)))


NOTED = {
    "new": (lambda f: f.assign(more=1), "training did not have are not used: 'more'"),
    "labels": (lambda f: f.assign(outcome="x"), "'outcome' of labels is not used; `check`"),
    "few unreadable": (
        lambda f: f.assign(age=f["age"].astype(object).where(f.index > 2, "old")),
        "3 values of 'age' are not numbers, such as 'old'; they are treated as missing",
    ),
    "gaps": (
        lambda f: f.assign(age=f["age"].where(f.index > 4)),
        "5 values are missing in 'age', which had none missing in training; they are replaced by the median",
    ),
    "unseen": (
        lambda f: f.assign(town=f["town"].where(f.index > 6, "Bari")),
        "7 rows have categories of 'town' that training did not have, such as 'Bari'; they are",
    ),
}


@pytest.mark.parametrize("what", NOTED)
def test_what_is_odd_is_told(model, what):
    odd, note = NOTED[what]
    frame = patients(100, 0.5, 6).drop(columns="outcome")
    found = model.estimate(odd(frame))
    assert len(found.notes) == 1
    assert note in found.notes[0]
    assert model.estimate(frame).notes == ()
    assert abs(found.prevalences - model.estimate(frame).prevalences).max() < 0.1


def test_columns_that_are_not_used_need_not_be_there(model):
    frame = patients(100, 0.5, 6)
    found = model.estimate(frame.drop(columns=["patient", "outcome"]))
    assert found.notes == ()
    np.testing.assert_array_equal(found.draws, model.estimate(frame).draws)


def test_labels_that_are_not_known(model):
    frame = patients(100, 0.5, 6)
    with pytest.raises(
        Fault, match=r"label 'dead' is not known; training had '(ill|well)', '(ill|well)'"
    ):
        model.estimate(frame.assign(outcome="dead"), labels=True)
    with pytest.raises(Fault, match="no column 'outcome' of labels; did you mean 'Outcome'"):
        model.estimate(frame.rename(columns={"outcome": "Outcome"}), labels=True)
    found = model.estimate(
        frame.assign(outcome=frame["outcome"].where(frame.index > 9)), labels=True
    )
    assert found.n_rows == 90
    assert found.notes == ("10 rows without a label are left out",)


def test_decimal_commas_that_may_be_thousands(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.random(200) < 0.5
    rows = [
        f"{v:.3f};{'ab'[k]}\n".replace(".", ",")
        for v, k in zip(4 * y + 9 * rng.random(200), y * 1, strict=True)
    ]
    train, new = tmp_path / "train.csv", tmp_path / "new.csv"
    train.write_text("x;label\n" + "".join(rows[:190]).replace("9,", "12,"))
    new.write_text("x;label\n1,500;a\n2,250;b\n")
    model = TableQuantifier("label", quantifier=FAST).fit(train, reading=Reading(decimal=","))
    assert model.facts_["decimal"] == ","
    np.testing.assert_array_equal(
        model.score(new).scores.values, model.score(pd.DataFrame({"x": [1.5, 2.25]})).scores.values
    )


def test_classes_of_few_rows():
    frame = patients(60, 0.5, 7).assign(outcome=[f"c{k % 20}" for k in range(60)])
    with pytest.raises(
        Fault, match=r"of 20 classes, 'c0' has 3 rows, and 5 are needed.*--positive"
    ):
        TableQuantifier("outcome").fit(frame)


def test_what_to_expect_is_what_happens():
    """The expected error of held-out rows is near that of other files, and intervals cover as often as they say."""
    shares = np.linspace(0.05, 0.95, 12)
    files = [patients(500, p, 50 + k) for k, p in enumerate(shares)]
    expected, errors, inside = [], [], []
    for seed in range(5):
        exact = Quantifier(LEARNER, features=None, n_draws=100)
        model = TableQuantifier("outcome", "ill", exact).fit(patients(1200, 0.3, seed))
        found = [model.estimate(file, labels=True) for file in files]
        expected.append(model.facts_["expected"])
        errors.append(np.mean([abs(one.prevalences[1] - one.true[1]) for one in found]))
        inside.append(np.mean([one.inside[1] for one in found]))
    ratio = np.mean([one["mean absolute error"] for one in expected]) / np.mean(errors)
    assert 0.5 < ratio < 2.0
    assert np.mean([one["coverage"] for one in expected]) > 0.85
    assert np.mean(inside) >= 0.85


def test_no_pandas_no_tables(monkeypatch):
    import importlib
    import sys

    monkeypatch.setitem(sys.modules, "pandas", None)
    for name in [name for name in sys.modules if name.startswith("quapy_nemsis.tables.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match=r"need pandas: pip install 'quapy-nemsis\[files\]'"):
        importlib.import_module("quapy_nemsis.tables.quantifying")


@pytest.mark.parametrize("rows", [10])
def test_a_table_of_no_use(rows):
    with pytest.raises(ValueError, match="no column can be used"):
        TableQuantifier("y").fit(pd.DataFrame({"a": [1] * rows, "y": [0, 1] * (rows // 2)}))
    assert isinstance(preparer(pd.DataFrame({"a": range(rows)})), TablePreparation)
