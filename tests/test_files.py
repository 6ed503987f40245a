"""User data files: every format, every kind of bad file, and the preparation of the features."""

import gzip
import hashlib
import io
import pickle
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.datasets import dump_svmlight_file

from quapy_nemsis.tables import formats, preparing, reading
from quapy_nemsis.tables.columns import roles, typed, unused
from quapy_nemsis.tables.preparing import preparer
from quapy_nemsis.tables.reading import load_file

TEXT = "age,town,member,label\n31,Rome,True,yes\n45,Pisa,,no\n,Rome,False,no\n28,,True,yes\n"
X = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [4.0, 0.0, 5.0], [0.0, 6.0, 7.0]])
Y = np.array([1, 0, 0, 1])


@pytest.fixture
def write(tmp_path):
    """Write text or bytes to a file with this name."""

    def writer(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return writer


def npz(**parts):
    """The bytes of an npz file."""
    file = io.BytesIO()
    np.savez(file, **parts)
    return file.getvalue()


def csr_parts(matrix):
    """The parts of a CSR matrix, as npz files hold them."""
    matrix = scipy.sparse.csr_matrix(matrix)
    names = ("data", "indices", "indptr", "shape")
    return {name: np.asarray(getattr(matrix, name)) for name in names}


def refuse(path, *words, target="label", positive=None, error=ValueError):
    """Check that the file is refused with its path and these words."""
    with pytest.raises(error) as caught:
        load_file(path, target, positive)
    for word in (str(path), *words):
        assert word in str(caught.value)


def check_prepared(prepared, rows):
    """Check the promise of the preparer: finite floats, in C order or CSR."""
    assert prepared.shape[0] == rows
    assert prepared.dtype in (np.float32, np.float64)
    if scipy.sparse.issparse(prepared):
        assert prepared.format == "csr"
        assert np.isfinite(prepared.data).all()
    else:
        assert prepared.flags.c_contiguous
        assert np.isfinite(prepared).all()


# Formats


@pytest.mark.parametrize("name", ["adult.csv", "adult.csv.gz", "adult.tsv", "ADULT.CSV"])
def test_text_files(write, name):
    content = TEXT.replace(",", "\t") if name.endswith("tsv") else TEXT
    content = gzip.compress(content.encode(), mtime=0) if name.endswith("gz") else content.encode()
    table = load_file(write(name, content), "label", None)
    assert list(table.features) == ["age", "town", "member"]
    assert table.classes == ["no", "yes"]
    assert table.y.tolist() == [True, False, False, True]
    assert table.missing == {"age": 1, "town": 1, "member": 1}
    assert table.fingerprint == hashlib.sha256(content).hexdigest()


def test_fingerprint_of_many_blocks(write):
    content = np.random.default_rng(0).bytes(1000)
    digest = reading.fingerprint(write("x.csv", content), block=64)
    assert digest == hashlib.sha256(content).hexdigest()


def test_text_with_mark_quotes_and_open_ends(write):
    content = '\ufeffname,x,label\n"Smith, ""A""\nand B",1,\n\nC,2,b\n'
    refuse(write("a.csv", content), "1 rows have no label", "row 1")
    content = content.replace("1,\n", "1,a\n")
    table = load_file(write("a.csv", content), "label", "b")
    assert list(table.features) == ["name", "x"]
    assert table.y.tolist() == [False, True]
    long = content.replace("Smith", "Smith" * 50_000)
    assert load_file(write("a.csv", long), "label", "b").y.tolist() == [False, True]
    table = load_file(write("a.csv", "a,b\n1,2,\n3,4,\n"), "b", None)
    assert table.features["a"].tolist() == [1, 3]


@pytest.mark.parametrize("suffix", [".parquet", ".pq"])
def test_parquet(tmp_path, suffix):
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    frame = pd.read_csv(io.StringIO(TEXT)).set_index(pd.Index([5, 6, 7, 8]))
    frame["town"] = frame["town"].astype("category")
    frame["age"] = frame["age"].astype("Int64")
    frame["member"] = frame["member"].astype("boolean")
    frame["day"] = pd.Timestamp("2020-01-01")
    frame["many"] = [[1, 2], [3], [4], [5]]
    path = tmp_path / f"adult{suffix}"
    frame.to_parquet(path)
    table = load_file(path, "label", None)
    assert table.y.tolist() == [True, False, False, True]
    assert table.missing == {"age": 1, "town": 1, "member": 1}
    assert unused(table.roles) == {"constant": ["day"], "no number, date or text": ["many"]}
    prepared = preparer(table.features).fit_transform(table.features)
    check_prepared(prepared, rows=4)
    assert prepared.shape[1] == 2 + 2 + 3  # age, member, their gaps; Pisa, Rome, a gap
    refuse(path, "cannot be sorted", target="many")
    path.write_bytes(path.read_bytes()[:-40])
    refuse(path, "broken or cut short", "write it again")


def test_parquet_without_pyarrow(write, monkeypatch):
    for name in ("pyarrow", "fastparquet"):
        monkeypatch.setitem(sys.modules, name, None)
    refuse(write("a.parquet", "PAR1"), "pip install pyarrow")


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool])
def test_npz(write, dtype):
    dense = X.astype(dtype)
    wanted = dtype if dtype == np.float32 else np.float64
    for parts in ({"X": dense}, csr_parts(dense)):
        table = load_file(write("a.npz", npz(y=Y, **parts)), None, None)
        assert table.features.dtype == wanted
        assert (table.features == dense).sum() == dense.size
        assert table.y.tolist() == [True, False, False, True]
        assert table.missing == {}
        check_prepared(preparer(table.features).fit_transform(table.features), rows=4)


@pytest.mark.parametrize("suffix", [".libsvm", ".svm", ".svmlight", ".txt"])
def test_libsvm(tmp_path, suffix):
    path = tmp_path / f"a9a{suffix}"
    dump_svmlight_file(X, 2 * Y - 1, str(path), zero_based=False)
    table = load_file(path, None, "+1")
    assert scipy.sparse.issparse(table.features)
    assert (table.features.toarray() == X).all()
    assert table.y.tolist() == [True, False, False, True]
    assert table.fingerprint == hashlib.sha256(path.read_bytes()).hexdigest()


def test_missing_values_of_arrays(write):
    table = load_file(write("a.libsvm", "1 1:nan 2:1\n0 1:nan 3:nan\n1 2:4\n"), None, None)
    assert table.missing == {"0": 2, "2": 1}
    holes = np.where(X == 0, np.nan, X)
    assert load_file(write("a.npz", npz(X=holes, y=Y)), None, None).missing == {
        "0": 2,
        "1": 2,
        "2": 1,
    }


# Labels


@pytest.mark.parametrize(
    ("labels", "positive", "wanted"),
    [
        ([1, 0, 1], "1", [1, 0, 1]),
        ([1, 0, 1], "1.0", [1, 0, 1]),
        ([1, 0, 1], "0", [0, 1, 0]),
        ([1.0, -1.0, 1.0], "1", [1, 0, 1]),
        ([1.0, -1.0, 1.0], "+1", [1, 0, 1]),
        ([0.5, 1.5, 0.5], "0.5", [1, 0, 1]),
        (["1", "a", "1"], "1", [1, 0, 1]),
        (["+1", "-1", "+1"], None, [0, 1, 0]),  # as text, - sorts after +
        ([b"x", b"y", b"x"], "x", [1, 0, 1]),
        ([True, False, True], "True", [1, 0, 1]),
        ([True, False, True], "false", [0, 1, 0]),
        ([True, False, True], None, [1, 0, 1]),
        (["no", "yes", "no"], None, [0, 1, 0]),
        ([3, 8, 5], "8", [0, 1, 0]),
    ],
)
def test_labels(write, labels, positive, wanted):
    path = write("a.npz", npz(X=X[:3], y=np.array(labels)))
    assert load_file(path, None, positive).y.tolist() == [bool(value) for value in wanted]


def written(write, tmp_path, suffix, labels):
    """A file of three columns and these labels, in a format."""
    rows = np.tile(X, (2, 1))[: len(labels)]
    if suffix == ".npz":
        return write("a.npz", npz(X=rows, y=np.array(labels)))
    path = tmp_path / f"a{suffix}"
    if suffix == ".libsvm":
        dump_svmlight_file(rows, labels, str(path), zero_based=False)
        return path
    frame = pd.DataFrame(rows, columns=["a", "b", "c"]).assign(label=labels)
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    return path


@pytest.mark.parametrize(
    ("suffix", "labels", "classes"),
    [
        (".csv", ["low", "high", "mid", "low", "low"], ["high", "low", "mid"]),
        (".csv", [3, 1, 2, 3, 3], ["1", "2", "3"]),
        (".parquet", ["low", "high", "mid", "low", "low"], ["high", "low", "mid"]),
        (".npz", ["low", "high", "mid", "low", "low"], ["high", "low", "mid"]),
        (".npz", [10, -3, 7, 10, 10], ["-3", "7", "10"]),
        (".libsvm", [10, 2, 7, 10, 10], ["2", "7", "10"]),
    ],
)
def test_each_label_is_a_class(write, tmp_path, suffix, labels, classes):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    path = written(write, tmp_path, suffix, labels)
    table = load_file(path, "label", None)
    assert table.classes == classes
    assert [table.classes[code] for code in table.y] == [str(label) for label in labels]
    assert table.counts.tolist() == [[str(v) for v in labels].count(name) for name in classes]
    # One against the rest.
    table = load_file(path, "label", classes[1])
    assert table.classes == [f"not {classes[1]}", classes[1]]
    assert table.y.tolist() == [int(str(label) == classes[1]) for label in labels]


def test_names_of_classes(write):
    parts = {**csr_parts(X), "y": np.array([4, 9, 9, 5])}
    path = write("a.npz", npz(classes=np.array(["cat", "ant", "bee"]), fold=np.zeros(4), **parts))
    table = load_file(path, None, None)
    assert table.classes == ["cat", "ant", "bee"]
    assert table.y.tolist() == [0, 2, 2, 1]
    for positive in ("9", "bee"):
        table = load_file(path, None, positive)
        assert table.classes == ["not bee", "bee"]
        assert table.y.tolist() == [0, 1, 1, 0]
    for names, found in ((["a", "b"], "2 different"), (["a", "b", "b"], "2 different")):
        bad = write("b.npz", npz(classes=np.array(names), **parts))
        refuse(bad, "3 labels", f"{found} names in 'classes'", "one name for each label")


@pytest.mark.parametrize("labels", [("TRUE", "FALSE", "TRUE"), ("1", "-1", "+1")])
def test_labels_of_text_files(write, labels):
    path = write("a.csv", "x,label\n1,{}\n2,{}\n3,{}\n".format(*labels))
    assert load_file(path, "label", labels[0]).y.tolist() == [True, False, True]


MANY = "x,label\n" + "".join(f"{i},c{i % 15:02}\n" for i in range(30))
TWO = "x,label\n1,0\n2,1\n"


@pytest.mark.parametrize(
    ("name", "content", "positive", "words"),
    [
        ("a.csv", MANY, "c99", ["no label is 'c99'", "'c00', 'c01'", "--positive"]),
        ("a.csv", "x,label\n1,a\n2,a\n", None, ["only label is 'a'", "two classes or more"]),
        ("a.csv", "x,label,z\n1,a,1\n2,,1\n3,b,1\n4,NA,1\n", None, ["2 rows", "row 2", "remove"]),
        ("a.libsvm", "1 1:1\nnan 1:2\n0 1:1\n", None, ["1 rows", "row 2"]),
        ("a.npz", npz(X=X, y=np.array([1, np.nan, 0, 1])), None, ["1 rows", "row 2"]),
        ("a.csv", TWO, "2", ["'2'", "'0', '1'"]),
        ("a.csv", TWO, "yes", ["'yes'", "'0', '1'"]),
    ],
    ids=range(7),
)
def test_bad_labels(write, name, content, positive, words):
    refuse(write(name, content), *words, positive=positive)


# Bad files


def test_no_file_or_target(tmp_path, write):
    refuse(write("c.csv", TEXT), "--target", "'age', 'town'", target=None)
    refuse(tmp_path / "a.csv", "no such file", "check the path", error=FileNotFoundError)
    (tmp_path / "b.csv").mkdir()
    refuse(tmp_path / "b.csv", "is a folder: name a file", error=IsADirectoryError)


@pytest.mark.parametrize("suffix", list(formats.FORMATS))
def test_empty_file(write, suffix):
    refuse(write(f"a{suffix}", ""), "empty")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.xls", "x", ["unknown format", ".csv", ".xlsx", ".parquet", ".npz", ".libsvm"]),
        ("a.xlsx", "x", ["broken or cut short"]),
        ("a.csv", npz(X=X, y=Y), ["no text", "format"]),
        ("a.csv.gz", gzip.compress(b"", mtime=0), ["empty"]),
        ("a.csv", "\n\n", ["empty"]),
        ("a.csv", "x,label\n", ["no rows"]),
        ("a.csv", "x,label,x\n1,a,2\n2,b,3\n", ["two columns 'x'", "rename"]),
        ("a.libsvm", "# only a comment\n", ["no rows"]),
        ("a.csv", "label\na\nb\n", ["no features"]),
        ("a.libsvm", "1\n0\n", ["no features"]),
        ("a.csv", "x,Labels\n1,a\n", ["'label'", "did you mean 'Labels'?", "'x', 'Labels'"]),
        ("a.csv", "x,y\n1,a\n", ["no column 'label'", "'x', 'y'"]),
        ("a.csv", "x/label\n1/a\n", ["'x/label'", "--separator"]),
        ("a.csv", "x,y;label\n1,5;a\n2,5;b\n", ["',' and ';'", "2 columns", "--separator"]),
        ("a.csv", "x;y;label\n1,5;0.5;a\n2,5;1;b\n", ["comma", "'x'", "point in 'y'", "--decimal"]),
        ("a.csv", "x;label\n1,500;a\n2,500;b\n", ["'x'", "thousands", "--decimal"]),
        ("a.csv", "x,label\n1,a\n2,b,3\n", ["line 3 has 3 fields, not 2", "repair"]),
        ("a.csv", "x,label\n1,a,5\n2,b,6\n", ["line 2 has 3 fields", "header 2"]),
        ("a.csv", "x,label\n1,a,\n2,b,6\n", ["line 3 has 3 fields", "header 2"]),
        ("a.csv", "x,label,z\n1,a,3\n2,b\n", ["line 3 has 2 fields", "header 3"]),
        ("a.tsv", "x\tlabel\tz\n\n1\ta\n2\tb\t5\n", ["line 3 has 2 fields", "header 3"]),
        ("a.csv", 'x,label\n1,"a\n2,b\n', ["quote", "row 1", "close it"]),
        ("a.csv", b"x,label\n1,a\n2,caf\x81\n", ["line 3 is not utf-8", "--encoding"]),
        ("a.csv", b"x,label\n1,caf\xc3\xa9\n2,caf\xe9\n", ["line 2 looks like", "line 3 is not"]),
        ("a.csv.gz", gzip.compress(b"x,label\n1,caf\x81\n", mtime=0), ["line 2 is not utf-8"]),
        ("a.csv.gz", gzip.compress(TEXT.encode(), mtime=0)[:-12], ["broken or cut short", "again"]),
        ("a.csv.gz", TEXT, ["broken or cut short"]),
        ("a.npz", npz(X=X, y=Y)[:-30], ["broken or cut short", "again"]),
        ("a.npz", npz(X=X, y=Y).replace(X.tobytes(), X.tobytes()[::-1]), ["broken or cut short"]),
        ("a.npz", "no zip file", ["broken or cut short"]),
        ("a.npz", npz(X=X), ["must hold y and X", "it holds 'X'"]),
        ("a.npz", npz(y=Y, data=Y), ["CSR parts data, indices", "it holds 'data', 'y'"]),
        ("a.npz", npz(X=X, y=np.array(["a", 1, 2, 3], dtype=object)), ["'y'", "Python objects"]),
        ("a.npz", npz(X=X[0], y=Y), ["shape (3,)", "two-dimensional"]),
        ("a.npz", npz(X=X.astype(str), y=Y), ["type <U", "numbers"]),
        ("a.npz", npz(X=X, y=Y[:3]), ["y has shape (3,)", "one label per row"]),
        ("a.npz", npz(y=Y, **{**csr_parts(X), "shape": [4, 2]}), ["not of a CSR matrix"]),
        ("a.npz", npz(y=Y, format="csc", **csr_parts(X)), ["not of a CSR matrix", "'csc'"]),
        ("a.svm", "1 1:1\n0 2:x\n1 1:1\n", ["line 2", "'0 2:x'", "label index:value"]),
        ("a.svm", "1 1:1\n0 2:1\nyes 1:1\n", ["line 3", "'yes 1:1'"]),
        ("a.svm", "1 2:1 1:1\n0 2:1\n", ["line 1", "rising"]),
        ("a.svm", "1 99999999999999999999:1\n", ["line 1"]),
        ("a.csv", "x,inf,label\n1,2,a\n2,inf,b\n", ["infinite", "columns 'inf'", "replace"]),
        ("a.csv", "x,label\n1,a\n-inf,b\n", ["infinite", "'x'"]),
        ("a.svm", "1 1:1 2:inf\n0 1:2\n", ["infinite", "'1'"]),
        ("a.npz", npz(X=np.where(X == 6, -np.inf, X), y=Y), ["infinite", "'1'"]),
    ],
    ids=lambda value: type(value).__name__,  # the same in every process
)
def test_bad_file(write, name, content, words):
    refuse(write(name, content), *words)


def test_bad_line_is_found_among_many(write):
    for number in (1, 2, 500, 999, 1000):
        lines = ["1 1:2 3:4"] * 1000
        lines[number - 1] = "1 1:2 3"
        refuse(write("a.libsvm", "\n".join(lines)), f"line {number} ")


def test_pickles_do_not_run(write, tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    trap = np.array([Trap()], dtype=object)
    refuse(write("a.npz", npz(X=trap, y=Y)), "'X' holds Python objects", "save arrays")
    refuse(write("b.npz", pickle.dumps(trap)), "broken")
    with zipfile.ZipFile(write("c.npz", npz(y=Y)), "a") as archive:
        archive.writestr("X", "not an array")
    refuse(tmp_path / "c.npz", "two-dimensional")
    assert not (tmp_path / "ran").exists()


# Preparation


def mixed(rows=60, seed=0):
    """A frame of all kinds of columns, with missing values."""
    random = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "size": random.normal(50, 9, rows),
            "gaps": np.where(random.random(rows) < 0.3, np.nan, random.normal(size=rows)),
            "count": random.integers(0, 9, rows),
            "flag": random.random(rows) < 0.5,
            "huge": [10**30, *range(rows - 1)],
            "maybe": pd.Series([True, None, False] * (rows // 3), dtype=object),
            "town": pd.Series(["Rome", None, "Pisa"] * (rows // 3)),
            "grade": pd.Categorical(["1st", "2nd", None] * (rows // 3)),
            "same": 1.0,
            "word": "a",
            "nothing": np.nan,
            "key": [f"k{row}" for row in range(rows)],
            "day": pd.Timestamp("2020-01-01"),
        }
    ).pipe(typed)


def test_mixed_columns():
    frame = mixed()
    assert unused(roles(frame)) == {
        "constant": ["same", "word", "day"],
        "empty": ["nothing"],
        "all values differ": ["key"],
    }
    prepare = preparer(frame)
    prepared = prepare.fit_transform(frame)
    check_prepared(prepared, rows=60)
    assert prepared.shape[1] == 6 + 2 + 3 + 3  # numbers, gaps of two of them, towns, grades
    assert np.allclose(prepared[:, :8].mean(axis=0), 0)
    assert np.allclose(prepared[:, :8].std(axis=0), 1)
    assert set(np.unique(prepared[:, 8:])) == {0, 1}
    assert (prepared == pickle.loads(pickle.dumps(prepare)).transform(frame)).all()


def test_fitted_on_the_training_part_only():
    frame = mixed()
    train, test = frame[:40], frame[40:].copy()
    prepare = preparer(train).fit(train)
    once = prepare.transform(test)
    check_prepared(once, rows=20)
    test["size"] += 1000
    test.loc[test.index[0], "town"] = "Oslo"
    test.loc[test.index[1], ["size", "count"]] = np.nan
    test.loc[test.index[2], "flag"] = True
    again = prepare.transform(test)
    check_prepared(again, rows=20)
    assert again.shape == once.shape
    moved = (again[2:, 0] - once[2:, 0]) * train["size"].std(ddof=0)
    assert np.allclose(moved, 1000)
    middle = (train["size"].median() - train["size"].mean()) / train["size"].std(ddof=0)
    assert np.isclose(again[1, 0], middle)
    assert (again[0, 8:11] == 0).all()  # a town that was not seen is none of those that were


def test_part_without_values():
    frame = mixed()
    prepare = preparer(frame[["gaps", "town", "maybe"]])
    train = frame[:30].assign(gaps=np.nan, maybe=None, town=None)
    prepare.fit(train)
    check_prepared(prepare.transform(train), rows=30)
    check_prepared(prepare.transform(frame[30:]), rows=30)


def test_many_texts():
    words = pd.DataFrame({"word": [f"w{row % 90}" for row in range(200)], "x": range(200)})
    prepared = preparer(words).fit_transform(words)
    assert prepared.shape == (200, 1 + 50)
    assert (prepared[:, 1:].sum(axis=1) == 1).all()


def test_identifiers_with_gaps():
    frame = pd.DataFrame({"x": [1, 2, 3, 4], "key": ["a", None, "b", "c"]})
    assert unused(roles(frame)) == {"all values differ": ["key"]}


def test_no_useful_column():
    with pytest.raises(ValueError, match="no column can be used, of 'a', 'b'"):
        preparer(pd.DataFrame({"a": [1, 1], "b": [None, None]}))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(dtype, order):
    holes = np.asarray(np.where(X == 0, np.nan, X), dtype=dtype, order=order)
    holes = np.hstack([holes, np.full((4, 1), np.nan, dtype)]).copy(order=order)
    prepared = preparer(holes).fit(holes[:3]).transform(holes)
    check_prepared(prepared, rows=4)
    assert prepared.dtype == dtype
    assert prepared.shape == (4, 4)
    assert np.allclose(prepared[:3].mean(axis=0), 0, atol=1e-6)


def test_sparse_matrices(monkeypatch):
    matrix = scipy.sparse.csr_matrix(X)
    matrix.data[0] = np.nan
    dense = preparer(matrix).fit_transform(matrix)
    assert isinstance(dense, np.ndarray)
    check_prepared(dense, rows=4)
    monkeypatch.setattr(preparing, "DENSE_LIMIT", 11)
    sparse = preparer(matrix).fit_transform(matrix)
    check_prepared(sparse, rows=4)
    assert scipy.sparse.issparse(sparse)
    assert np.allclose(sparse.toarray(), np.nan_to_num(matrix.toarray()) / [4, 6, 7])
    assert np.isnan(matrix.data[0])  # the caller's matrix is left as it was


def test_large_sparse_matrix():
    rows, columns = np.arange(200), np.arange(200) * 5000
    wide = scipy.sparse.csr_matrix((rows - 99.5, (rows, columns)), shape=(200, 1_000_000))
    prepared = preparer(wide).fit(wide[:100]).transform(wide)
    check_prepared(prepared, rows=200)
    assert prepared.shape == wide.shape
