"""The command quapy-nemsis, as users run it."""

import contextlib
import csv
import glob
import io
import json
import os
import re
import shlex
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from quapy_nemsis import CANClassifier, TableQuantifier, __version__, load, save
from quapy_nemsis.cli import COMMANDS, METHODS, main
from quapy_nemsis.cli.changes import DriftTests
from quapy_nemsis.drift import mixture_test, prevalence_test
from quapy_nemsis.learners.calibration import Calibration
from quapy_nemsis.tracking import TRACKERS
from tests.conftest import ROOT
from tests.patients import patients

GIVEN = ("--target", "outcome", "--positive", "ill", "--out", "model.qn")
#: Prevalences of six months; in training it is 0.3.
MONTHS = {1: 0.3, 2: 0.55, 3: 0.3, 4: 0.08, 5: 0.3, 6: 0.75}
#: Prevalences of the files of a stream.
LOGS = (0.3, 0.3, 0.65)


def recipes(language):
    """Blocks of docs/files.md."""
    text = (ROOT / "docs" / "files.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def nightly_script(folder, tmp_path):
    """Start the script of the recipe for a nightly job, on the file of the last month."""
    script = next(block for block in recipes("sh") if block.startswith("#!/bin/sh"))
    program = tmp_path / "quapy-nemsis"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m quapy_nemsis "$@"\n')
    program.chmod(0o755)
    (folder / "tonight.csv").write_bytes((folder / "month6.csv").read_bytes())
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(["sh", "-c", script], cwd=folder, env={**os.environ, **path}, **pipes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A labelled file, some of whose rows have no label, and six files of known prevalences."""
    folder = tmp_path_factory.mktemp("nightly")
    train = patients(1500, 0.3, 0)
    train["outcome"] = train["outcome"].mask(train.index >= 1200)
    train.to_csv(folder / "labelled.csv", index=False)
    for month, share in MONTHS.items():
        frame = patients(800, share, 100 + month)
        frame.to_csv(folder / f"true{month}.csv", index=False)
        frame.drop(columns="outcome").to_csv(folder / f"month{month}.csv", index=False)
    times = pd.date_range("2024-05-01", periods=1800, freq="30min")
    for log, share in enumerate(LOGS):
        frame = patients(600, share, 201 + log).drop(columns="outcome")
        frame.assign(when=times[600 * log :][:600]).to_csv(folder / f"log{log}.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    """A model that the command has written, and what it has printed."""
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as out:
        patch.chdir(folder)
        assert main(["fit", "labelled.csv", *GIVEN]) == 0
    fitted = load(folder / "model.qn")
    fitted.quantifier_.n_draws = 100  # enough for intervals of tests
    save(fitted, folder / "model.qn")
    return folder / "model.qn", out.getvalue()


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_fit_tells_the_unlabelled_rows_first(model, folder):
    lines = model[1].splitlines()
    assert lines[0] == "rows without a label"
    frame = patients(1500, 0.3, 0)
    true = 100 * (frame["outcome"][1200:] == "ill").mean()
    words = lines[2].replace(",", "").split()
    shares = [float(words[k - 1]) for k, word in enumerate(words) if word == "%"]
    estimate, low, high, training = shares
    assert low <= true <= high
    assert low <= estimate <= high
    assert training == round(100 * (frame["outcome"][:1200] == "ill").mean(), 1)
    assert words[-3:] == ["no", "not", "refuted"]
    assert "1,200 with a label, 300 without" in model[1]


@pytest.mark.skipif(os.name != "posix", reason="the recipe is a shell script")
def test_six_months_while_the_nightly_script_runs(model, folder, tmp_path, capsys, monkeypatch):
    """True values are inside of their intervals, changes are found where there are some; two at once agree."""
    monkeypatch.chdir(folder)
    files = [f"month{month}.csv" for month in MONTHS]
    script = nightly_script(folder, tmp_path)
    code = run("estimate", "model.qn", *files, "--json", "--html", "page.html")
    out, err = capsys.readouterr()
    printed = script.communicate(timeout=300)
    assert (code, err) == (2, "")
    assert printed == ("something has changed, see tonight.html\n", "")
    assert script.returncode == 0
    tonight = json.loads((folder / "history.jsonl").read_text())
    assert tonight["changed"]
    assert tonight["classes"] == json.loads(out.splitlines()[-1])["classes"]
    assert (folder / "tonight.html").exists()
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["file"] for record in records] == files
    changed = [record["changed"] for record in records]
    assert changed == [share != 0.3 for share in MONTHS.values()]
    assert not any(record["assumption_fails"] for record in records)
    inside = 0
    for month, record in zip(MONTHS, records, strict=True):
        true = (patients(800, MONTHS[month], 100 + month)["outcome"] == "ill").mean()
        ill = record["classes"][1]
        assert ill["class"] == "ill"
        inside += ill["low"] <= true <= ill["high"]
        assert abs(ill["prevalence"] - true) < 0.08
        assert sum(each["prevalence"] for each in record["classes"]) == pytest.approx(1.0)
    assert inside >= 5
    page = (folder / "page.html").read_text()
    assert "<strong>3 of 6 files have changed.</strong>" in page
    drawn = page[page.index('<svg viewBox="') : page.rindex("</svg>") + 6]
    assert len(ElementTree.fromstring(drawn).findall(".//circle")) == 6
    assert "http" not in page
    assert not list(folder.glob(".*"))


#: Columns of adult, and how many columns each has in LIBSVM's encoding.
CENSUS = {
    "age": 5,
    "work": 8,
    "weight": 5,
    "school": 16,
    "years": 5,
    "marital": 7,
    "job": 14,
    "role": 6,
}
CENSUS |= {"race": 5, "sex": 2, "gain": 2, "loss": 2, "hours": 5, "country": 41}


def test_six_months_of_the_census(data_dir, tmp_path, monkeypatch, capsys):
    """Three months as in training, one with more and one with fewer that earn well, and one of women only."""
    with np.load(data_dir / "adult.npz") as z:
        X = scipy.sparse.csr_matrix((z["data"], z["indices"], z["indptr"]), shape=tuple(z["shape"]))
        y = z["y"] > 0
    parts = np.split(X.toarray(), np.cumsum(list(CENSUS.values()))[:-1], axis=1)
    codes = {name: part.argmax(axis=1) for name, part in zip(CENSUS, parts, strict=True)}
    frame = pd.DataFrame({name: [f"{name}{k}" for k in code] for name, code in codes.items()})
    frame["earns"] = np.where(y, "well", "less")
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    train, rest = order[:3000], order[3000:]
    monkeypatch.chdir(tmp_path)
    frame.iloc[train].to_csv("labelled.csv", index=False)
    truths = []
    for month, share in enumerate([None, 0.4, None, 0.1, None, "women"]):
        if share == "women":
            chosen = rng.choice(rest[codes["sex"][rest] == 0], 800, replace=False)
        elif share is None:
            chosen = rng.choice(rest, 800, replace=False)
        else:
            sizes = {True: int(800 * share), False: 800 - int(800 * share)}
            kinds = [rng.choice(rest[y[rest] == k], n, replace=False) for k, n in sizes.items()]
            chosen = rng.permutation(np.concatenate(kinds))
        truths.append(y[chosen].mean())
        frame.iloc[chosen].drop(columns="earns").to_csv(f"month{month}.csv", index=False)
    given = ["--target", "earns", "--positive", "well", "--out", "model.qn"]
    assert run("fit", "labelled.csv", *given) == 0
    capsys.readouterr()
    assert run("estimate", "model.qn", *sorted(glob.glob("month*.csv")), "--json") == 2
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["changed"] for one in found] == [False, True, False, True, False, True]
    assert [one["assumption_fails"] for one in found] == [False] * 5 + [True]
    ends = [(one["classes"][1]["low"], one["classes"][1]["high"]) for one in found]
    inside = [low <= true <= high for (low, high), true in zip(ends, truths, strict=True)]
    assert sum(inside[:5]) >= 4
    assert not inside[5]  # as the flag says


def test_check_tells_whether_it_was_right(model, folder, capsys):
    files = [folder / f"true{month}.csv" for month in MONTHS]
    code = run("check", model[0], *files, "--json")
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    inside = [record["inside"] for record in records]
    assert sum(inside) >= 5
    assert code == (0 if all(inside) else 2)
    for month, record in zip(MONTHS, records, strict=True):
        true = (patients(800, MONTHS[month], 100 + month)["outcome"] == "ill").mean()
        assert record["classes"][1]["true"] == pytest.approx(true)
    assert run("check", model[0], *files, "--interval", "0.001") == 2
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[:4] == ["file", "rows", "class", "true"]
    assert sum(line.endswith("no") for line in out[1:]) >= 4


def test_estimates_in_every_form(model, folder, capsys, tmp_path):
    new = folder / "month2.csv"
    assert run("estimate", model[0], new) == 2
    out = capsys.readouterr().out
    assert out.splitlines()[0].split()[:3] == ["file", "rows", "class"]
    assert "month2.csv: changed. The prevalences have changed since training (p < 0.001)" in out
    assert "the prevalence of ill is about 0.5" in out
    assert run("estimate", model[0], new, "--json") == 2
    record = json.loads(capsys.readouterr().out)
    assert run("estimate", model[0], new, "--csv") == 2
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["class"] for row in rows] == ["well", "ill"]
    assert float(rows[1]["low"]) == record["classes"][1]["low"]
    fitted = load(model[0])
    for test in (prevalence_test, mixture_test):
        result = test(fitted.quantifier_, fitted.estimate(new).scores)
        assert record[f"p_{result.test}"] == result.p_value
        assert float(rows[0][f"p_{result.test}"]) == result.p_value
    assert run("estimate", model[0], new, "--prometheus", tmp_path / "metrics.prom") == 2
    printed = capsys.readouterr().out
    assert "prevalence" in printed
    lines = (tmp_path / "metrics.prom").read_text().splitlines()
    assert f'quapy_nemsis_changed{{file="{new}"}} 1' in lines
    start = f'quapy_nemsis_prevalence{{file="{new}",class="ill"}} '
    (line,) = (line for line in lines if line.startswith(start))
    assert float(line.removeprefix(start)) == pytest.approx(record["classes"][1]["prevalence"])
    assert run("estimate", model[0], new, "--prometheus", "-") == 2
    assert capsys.readouterr().out.splitlines() == lines
    # A wider interval, and no change at a level that is never reached.
    assert run("estimate", model[0], new, "--json", "--interval", "0.5", "--alpha", "1e-300") == 0
    narrow = json.loads(capsys.readouterr().out)
    assert narrow["classes"][1]["high"] < record["classes"][1]["high"]
    assert (record["alpha"], narrow["alpha"]) == (0.05, 1e-300)
    run("estimate", model[0], new, "--json", "--interval", "0.5")
    assert json.loads(capsys.readouterr().out)["alpha"] == 0.05
    assert not narrow["changed"]


def test_more_has_changed_than_prevalences(model, folder, tmp_path, capsys):
    wide = pd.read_csv(folder / "month1.csv")
    wide["age"] = 50 + 4 * (wide["age"] - 50)
    wide.to_csv(tmp_path / "wide.csv", index=False)
    files = ["--prometheus", tmp_path / "wide.prom", "--html", tmp_path / "wide.html"]
    assert run("estimate", model[0], tmp_path / "wide.csv", *files) == 2
    out = capsys.readouterr().out.splitlines()
    assert out[0].endswith("assumption")
    assert out[1].endswith("fails")
    told = "wide.csv: the prior-shift assumption fails. The 800 rows are not a mixture"
    assert any(told in line for line in out[2:])
    page = (tmp_path / "wide.html").read_text()
    assert "In 1 of 1 files, the prior-shift assumption fails, and estimates may be off." in page
    assert "estimates of prevalences may be wrong" in page
    metrics = (tmp_path / "wide.prom").read_text()
    assert f'quapy_nemsis_assumption_fails{{file="{tmp_path / "wide.csv"}"}} 1' in metrics


def test_the_mixture_test_alone_ends_with_2(model, folder, tmp_path, capsys):
    """Ages that differ more within the classes, at a level at which prevalences look as in training."""
    wide = pd.read_csv(folder / "month1.csv")
    wide["age"] = 42 + 3 * (wide["age"] - 52.5)
    wide.to_csv(tmp_path / "wide.csv", index=False)
    assert run("estimate", model[0], tmp_path / "wide.csv", "--json", "--alpha", "1e-3") == 2
    record = json.loads(capsys.readouterr().out)
    assert (record["changed"], record["assumption_fails"]) == (False, True)


def test_what_is_too_small_is_not_tested(model, folder, tmp_path, capsys):
    few = tmp_path / "few.csv"
    pd.read_csv(folder / "month6.csv")[:19].to_csv(few, index=False)
    told = "not tested for changes: there are only 19 rows, and 20 are needed"
    assert run("estimate", model[0], few, "--prometheus", tmp_path / "few.prom") == 0
    assert f"{few}: {told}" in capsys.readouterr().out
    assert "changed" not in (tmp_path / "few.prom").read_text()
    assert run("estimate", model[0], few, "--json", "--html", tmp_path / "few.html") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["changed"], record["p_mixture"], record["sentences"]) == (None, None, [told])
    assert told in (tmp_path / "few.html").read_text()


def test_classes_of_few_held_out_rows_are_not_tested(model, folder, tmp_path, capsys):
    scarce = load(model[0])
    known = scarce.quantifier_.calibration_
    ill = known.labels == 1
    rows = np.concatenate([np.flatnonzero(~ill), np.flatnonzero(ill)[:4]])
    scarce.quantifier_.calibration_ = Calibration.of(known.scores[rows], known.labels[rows])
    told = "'ill' has only 4 held-out training rows, and 5 are needed"
    result = DriftTests(scarce, 0.05).of(scarce.score(folder / "month1.csv").scores)
    assert (result.changed, result.assumption_fails, result.untested) == (None, None, told)


# Streams


def tracked(capsys, *arguments):
    """What `track` ends with, and the windows that it prints."""
    code = run("track", *arguments, "--json")
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def logs(folder, suffix="csv"):
    return [folder / f"log{k}.{suffix}" for k in range(3)]


def test_windows_of_rows_have_the_prevalences_of_their_rows(model, folder, capsys, tmp_path):
    written = ("--html", tmp_path / "track.html", "--prometheus", tmp_path / "track.prom")
    code, windows = tracked(capsys, model[0], *logs(folder), "--window", 280, *written)
    assert code == 2
    ends = [280 * k for k in range(1, 7)]
    assert [(one["begin"], one["end"]) for one in windows] == [(e - 280, e) for e in ends]
    rows, fitted = pd.concat(map(pd.read_csv, logs(folder)), ignore_index=True), load(model[0])
    for one in windows:
        expected = fitted.estimate(rows[one["begin"] : one["end"]]).prevalences
        found = [each["prevalence"] for each in one["classes"]]
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert all(each["low"] <= each["high"] for each in one["classes"])
    # The prevalence changes at row 1200, within the fifth window.
    assert [one["alarms"] for one in windows] == [[]] * 4 + [["prevalence"]] * 2
    assert [len(one["sentences"]) for one in windows] == [0, 0, 0, 0, 1, 0]
    assert "the prevalence of ill is about 0.5" in windows[4]["sentences"][0]
    page = (tmp_path / "track.html").read_text()
    assert "<strong>1 alarms in 6 windows, 1,800 rows.</strong>" in page
    drawn = ElementTree.fromstring(page[page.index('<svg viewBox="') : page.rindex("</svg>") + 6])
    assert len(drawn.find(".//polyline").get("points").split()) == 6
    assert len(drawn.findall(".//path")) == 2
    assert "http" not in page
    metrics = (tmp_path / "track.prom").read_text().splitlines()
    assert "quapy_nemsis_track_rows 1800" in metrics
    assert 'quapy_nemsis_track_alarm{test="prevalence"} 1' in metrics
    last = windows[-1]["classes"][1]["prevalence"]
    assert f'quapy_nemsis_track_prevalence{{class="ill"}} {last:.9g}' in metrics
    # The same for people and in CSV.
    assert run("track", model[0], *logs(folder), "--window", 280) == 2
    lines = capsys.readouterr().out.splitlines()
    assert sum("alarm: prevalence" in line for line in lines) == 2
    assert lines[-1] == "1,800 rows, 120 of them in a window that is not full yet"
    assert run("track", model[0], *logs(folder), "--window", 280, "--csv") == 2
    entries = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(entry["prevalence"]) for entry in entries[1::2]] == [
        one["classes"][1]["prevalence"] for one in windows
    ]


def test_windows_of_time(model, folder, capsys, tmp_path):
    pytest.importorskip("pyarrow", reason="Parquet files need pyarrow")
    frames = [pd.read_csv(path) for path in logs(folder)]
    days = pd.to_datetime(pd.concat(frames)["when"])
    weeks = (days - pd.Timestamp(0)) // pd.Timedelta(days=7)
    counts = weeks.value_counts(sort=False).sort_index()
    timed = ("--window", "1w", "--time", "when", "--method", "flh-ftl")
    _, windows = tracked(capsys, model[0], *logs(folder), *timed)
    assert [one["end"] for one in windows] == counts.cumsum().tolist()[:-1]
    starts = [str(pd.Timestamp(0) + week * pd.Timedelta(days=7)) for week in counts.index[:-1]]
    assert [one["start"] for one in windows] == starts
    # Other formats of files and times.
    frames[0].assign(when=days[:600].dt.strftime("%d.%m.%Y %H:%M")).to_csv(
        tmp_path / "log0.csv", index=False
    )
    seconds = (days.iloc[600:1200] - pd.Timestamp(0)) // pd.Timedelta("1s")
    frames[1].assign(when=seconds.to_numpy()).to_parquet(tmp_path / "log1.parquet")
    frames[2].assign(when=days.iloc[1200:].to_numpy()).to_parquet(tmp_path / "log2.parquet")
    _, first = tracked(
        *(capsys, model[0], tmp_path / "log0.csv", *timed, "--time-format", "%d.%m.%Y %H:%M")
    )
    assert first == windows[: len(first)]
    others = (tmp_path / "log1.parquet", tmp_path / "log2.parquet")
    _, rest = tracked(capsys, model[0], folder / "log0.csv", *others, *timed)
    assert rest == windows


def test_a_stream_goes_on_the_next_night(model, folder, capsys, tmp_path):
    options = ("--window", 250, "--method", "forgetting-em", "--option", "forget=0.9")
    _, expected = tracked(capsys, model[0], *logs(folder), *options)
    kept = (*options, "--checkpoint", tmp_path / "track.state", "--resume")
    code, first = tracked(capsys, model[0], *logs(folder)[:2], *kept)
    assert code == 0
    (tmp_path / "broken.csv").write_text("age,visits\n1,2\n")
    assert run("track", model[0], *logs(folder)[:2], tmp_path / "broken.csv", *kept) == 1
    err = capsys.readouterr().err
    assert err.count("error: ") == 1
    assert f"error: {tmp_path / 'broken.csv'}: columns that the model needs are missing" in err
    code, second = tracked(capsys, model[0], *logs(folder), *kept)
    assert code == 2
    assert first + second == expected
    assert tracked(capsys, model[0], *logs(folder), *kept) == (0, [])


def test_labels_arrive_later(model, folder, capsys, tmp_path):
    """Those of the first file the next night, and later those of the second, in a file that also has the first."""
    true = [patients(600, share, 201 + log) for log, share in enumerate(LOGS)]
    kept = ("--window", 300, "--checkpoint", tmp_path / "late.state", "--resume")
    given = ("--labels", tmp_path / "labels.csv", "--key", "patient")
    _, first = tracked(capsys, model[0], *logs(folder)[:2], *kept)
    assert [one["labelled"] for one in first] == [0] * 4
    assert first[0]["classes"][1]["true"] is None
    columns = ["patient", "outcome"]
    ahead = patients(5, 0.5, 99)  # labels whose rows have not arrived
    pd.concat([true[0], ahead])[columns].to_csv(tmp_path / "labels.csv", index=False)
    html = ("--html", tmp_path / "late.html")
    assert run("track", model[0], *logs(folder), *kept, *html, *given, "--json") == 2
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == "5 of 605 labels do not belong to any row so far"
    third, second = [json.loads(line) for line in out.splitlines()][:2], out.splitlines()[2:]
    assert [one["end"] for one in third] == [1500, 1800]
    for begin, line in zip((0, 300), second, strict=True):
        again, rows = json.loads(line), true[0][begin : begin + 300]
        assert (again["begin"], again["labelled"]) == (begin, 300)
        share = (rows["outcome"] == "ill").mean()
        assert again["classes"][1]["true"] == pytest.approx(share)
        assert again["classes"][1]["prevalence"] == first[begin // 300]["classes"][1]["prevalence"]
    page = (tmp_path / "late.html").read_text()
    drawn = ElementTree.fromstring(page[page.index('<svg viewBox="') : page.rindex("</svg>") + 6])
    assert len(drawn.findall(".//g[@class='truth']/circle")) == 2
    assert f"labels: ill {100 * share:.1f} % of 300 rows" in page
    # Labels are counted once, however often they are given.
    pd.concat(true[:2])[columns].to_csv(tmp_path / "more.csv", index=False, sep=";")
    given = ("--labels", tmp_path / "labels.csv", tmp_path / "more.csv", "--key", "patient")
    code, last = tracked(capsys, model[0], *logs(folder), *kept, *given)
    assert code == 0
    assert [(one["begin"], one["labelled"]) for one in last] == [(600, 300), (900, 300)]
    # All at once: each window is printed with its labels.
    code, whole = tracked(capsys, model[0], *logs(folder), "--window", 300, *given)
    assert [one["labelled"] for one in whole] == [300] * 4 + [0] * 2
    assert whole[2:4] == last
    assert run("track", model[0], *logs(folder), "--window", 300, *given) == 2
    assert "% of 300 rows" in capsys.readouterr().out.splitlines()[0]


def test_methods_are_those_of_the_package():
    assert tuple(TRACKERS) == METHODS


def test_names_of_files_and_classes_are_escaped(model, folder, capsys, tmp_path):
    odd = tmp_path / 'a"<b>&.csv'
    odd.write_bytes((folder / "month1.csv").read_bytes())
    assert run("estimate", model[0], odd, "--prometheus", "-", "--html", tmp_path / "p.html") == 0
    assert r"a\"<b>&.csv" in capsys.readouterr().out
    assert "a&quot;&lt;b&gt;&amp;.csv" in (tmp_path / "p.html").read_text()


def test_show(model, capsys):
    assert run("show", model[0]) == 0
    out = capsys.readouterr().out
    for word in ("labelled.csv", "expected error", "admitted  date", "dropped: all values differ"):
        assert word in out
    assert run("show", model[0], "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert known["classes"] == ["well", "ill"]
    assert known["rows"] == 1200


WRONG = {
    "empty.csv": (b"", "the file is empty"),
    "header.csv": (b"age,visits\n", "no rows"),
    "nowhere.csv": (None, "there is no such file"),
    "strange.doc": (b"x", "unknown format"),
    "broken.parquet": (b"PAR1x", "broken or cut short"),
    "binary.csv": (b"a,b\n\0\1", "no text"),
    "mixed.csv": (b"age,town\n1,caf\xc3\xa9\n2,caf\xe9\n", "line 2 looks like UTF-8"),
    "unknown.csv": (b"age,town\n1,caf\x81\n", "line 2 is not utf-8-sig nor cp1252"),
    "twice.csv": (b"age,town,age\n1,a,2\n", "two columns 'age'"),
    "gaps.csv": (b"age,visits,pressure,smoker,town,admitted\n,,,NA,,\n", "needs have no values"),
    "ragged.csv": (b"age,town\n1,a\n2,b,c\n", "line 3 has 3 fields"),
    "separator.csv": (b"age/visits\n1/2\n", "only one: is the separator right"),
    "columns.csv": (b"Age,visit,x\n1,2,3\n", "'age' (did you mean 'Age'?), 'visits' (did you"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_do_not_stop_others(model, folder, name, tmp_path, capsys):
    content, message = WRONG[name]
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert run("estimate", model[0], tmp_path / name, folder / "month1.csv", "--json") == 1
    out, err = capsys.readouterr()
    first, second = map(json.loads, out.splitlines())
    assert first["file"] == str(tmp_path / name)
    assert message in first["error"]
    assert str(tmp_path / name) in first["error"]
    assert err == f"error: {first['error']}\n"
    assert second["rows"] == 800
    assert not list(tmp_path.glob(".*"))


def test_odd_columns_are_told(model, folder, tmp_path, capsys):
    frame = pd.read_csv(folder / "month1.csv")
    frame.loc[:4, "town"] = "Bari"
    frame["age"] = frame["age"].astype(object)
    frame.loc[:2, "age"] = "old"
    frame.assign(more=np.nan).to_csv(tmp_path / "odd.csv", index=False, sep=";", encoding="cp1252")
    assert run("estimate", model[0], tmp_path / "odd.csv", "--json") == 0
    notes = json.loads(capsys.readouterr().out)["notes"]
    assert len(notes) == 3
    for note, words in zip(notes, ("'more'", "3 values of 'age'", "'Bari'"), strict=True):
        assert words in note
    assert run("estimate", model[0], tmp_path / "odd.csv") == 0
    assert len(capsys.readouterr().err.splitlines()) == 3


TIMED = ["track", "model.qn", "log0.csv", "--window", "1d"]
WEEKS = ["--window", "1w", "--time", "when"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "labelled.csv", "--out", "m.qn"], "name the column of the labels with --target"),
        (["fit", "labelled.csv", "--target", "Outcom", "--out", "m.qn"], "did you mean 'outcome'"),
        (["fit", "labelled.csv", "--target", "outcome", "--positive", "x", "--out", "m.qn"], "'x'"),
        (["fit", "labelled.csv", "--target", "patient", "--out", "m.qn"], "has 1 rows, and 5"),
        (["fit", "labelled.csv", "--target", "outcome", "--out", "no/where.qn"], "--out no/where"),
        (["fit", "nowhere.csv", "--target", "x", "--out", "m.qn"], "there is no such file"),
        (["estimate", "nowhere.qn", "month1.csv"], "nowhere.qn: No such file"),
        (["estimate", "labelled.csv", "month1.csv"], "broken, truncated or not a file of"),
        (["estimate", "learner.qn", "month1.csv"], "holds a CANClassifier, which reads no files"),
        (["estimate", "model.qn", "month1.csv", "--separator", ";;"], "one character or 'tab'"),
        (["estimate", "model.qn", "month1.csv", "--encoding", "utf-99"], "utf-99"),
        (["check", "model.qn", "month1.csv"], "no column 'outcome' of labels"),
        (["track", "model.qn", "log0.csv", "nowhere.csv"], "nowhere.csv: there is no such file"),
        (["track", "model.qn", "log0.csv", "--window", "1x"], "such as '30min', '6h'"),
        (["track", "model.qn", "log0.csv", "--window", "0"], "window must be"),
        (["track", "model.qn", "log0.csv", "--window", "1d"], "column of times with --time"),
        (["track", "model.qn", "log0.csv", "--time", "when"], "--time is for windows of time"),
        ([*TIMED, "--time", "When"], "did you mean 'when'?"),
        ([*TIMED, "--time", "town"], "times of the column 'town' cannot be read, such as"),
        ([*TIMED[:2], "log1.csv", "log0.csv", *WEEKS], "sort rows by time"),
        (
            ["track", "model.qn", "log0.csv", "--html", "no/where.html"],
            "--html no/where.html: give",
        ),
        (
            ["estimate", "model.qn", "month1.csv", "--prometheus", "."],
            "--prometheus .: give a file",
        ),
        (["track", "model.qn", "log0.csv", "--resume"], "name it with --checkpoint"),
        (
            ["track", "model.qn", "log0.csv", "--labels", "true1.csv"],
            "--labels and --key go together",
        ),
        (
            ["track", "model.qn", "log0.csv", "--labels", "true1.csv", "--key", "Patient"],
            "true1.csv: there is no column 'Patient' of keys; did you mean 'patient'?",
        ),
        (
            ["track", "model.qn", "log0.csv", "--labels", "month1.csv", "--key", "patient"],
            "month1.csv: there is no column 'outcome' of labels",
        ),
        (
            ["track", "model.qn", "log0.csv", "--checkpoint", "model.qn"],
            "continue from it with --resume",
        ),
        (
            ["track", "model.qn", "log0.csv", "--option", "forget=2"],
            "'em' cannot take 'forget'; its options are chunks, prior, no_drift",
        ),
    ],
)
def test_what_cannot_be_done(model, folder, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    save(CANClassifier(), folder / "learner.qn")
    assert run(*arguments) == 1
    err = capsys.readouterr().err
    assert err.splitlines()[-1].startswith("error: ")
    assert message in err
    assert not (folder / "m.qn").exists()


def test_arguments_are_refused_before_anything_is_done(capsys):
    assert run("estimate", "model.qn") == 1
    assert run("estimate", "model.qn", "x.csv", "--interval", "95") == 1
    assert "must lie between 0 and 1" in capsys.readouterr().err
    assert run() == 1
    assert run("--help") == 0
    assert all(f"    {name}" in capsys.readouterr().out for name in list(COMMANDS)[:1])
    assert run("--version") == 0
    assert capsys.readouterr().out.strip() == __version__


def test_nothing_slow_is_imported_to_say_what_it_does():
    code = (
        "import sys; from quapy_nemsis.cli import main; "
        "main(['show', 'nowhere.qn']); main(['estimate', '.', 'x.csv']); main(['--help']); "
        "slow = {'numpy', 'numba', 'scipy', 'sklearn', 'pandas', 'quapy'} & set(sys.modules); "
        "sys.exit(str(slow) if slow else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: quapy-nemsis")
    assert "nowhere.qn: No such file" in done.stderr


WRITER = """
import os, sys
from quapy_nemsis._files import replacing
path, mark, rounds = sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])
for _ in range(rounds):
    with replacing(path) as file:
        file.write(mark * 50_000)
        file.flush()
        if rounds == 1:
            os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(
    os.name != "posix", reason="what is killed is cleared up where files can be locked"
)
def test_killed_and_crowded_writers_leave_whole_files(tmp_path):
    path = tmp_path / "page.html"
    path.write_bytes(b"old")
    writer = [sys.executable, "-c", WRITER, str(path)]
    assert subprocess.run([*writer, "x", "1"], cwd=ROOT).returncode == -9
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2
    crowd = [subprocess.Popen([*writer, mark, "40"], cwd=ROOT) for mark in "abc"]
    while any(process.poll() is None for process in crowd):
        content = path.read_bytes()
        assert content == b"old" or (len(content) == 50_000 and len(set(content)) == 1)
    assert [process.returncode for process in crowd] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == [path]


# The recipes of docs/files.md


def test_commands_of_the_recipes_run(model, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    lines = [line for block in recipes("sh") for line in block.splitlines()]
    found = [shlex.split(line)[1:] for line in lines if line.startswith("quapy-nemsis")]
    assert {line[0] for line in found} == set(COMMANDS)
    for arguments in found:
        if arguments[0] == "fit" or "history.jsonl" in arguments:
            continue  # the model is there, and the script is run above
        words = arguments[: arguments.index(">>")] if ">>" in arguments else arguments
        names = [name for word in words for name in (sorted(glob.glob(word)) or [word])]
        assert run(*names) in (0, 2), arguments
        if "weeks.jsonl" in arguments:
            assert "alarm" in (folder / "track.prom").read_text()
            assert "alarms in" in (folder / "weeks.html").read_text()
    assert "quapy_nemsis_changed" in (folder / "quapy_nemsis.prom").read_text()
    (fitted,) = (arguments for arguments in found if arguments[0] == "fit")
    assert fitted == ["fit", "labelled.csv", *GIVEN]  # as in the fixture


def test_recipes_in_python_run(model, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    notebook, stream = recipes("python")
    # A model that is trained already takes the place of training.
    trained = load(folder / "model.qn")
    monkeypatch.setattr(TableQuantifier, "fit", lambda self, table: trained)
    exec(compile(notebook, "files.md", "exec"), {})
    assert "'ill'" in capsys.readouterr().out
    messages = pd.concat(map(pd.read_csv, logs(folder))).to_dict("records")
    consumer = (messages[begin : begin + 70] for begin in range(0, len(messages), 70))
    exec(compile(stream, "files.md", "exec"), {"consumer": consumer})
    lines = capsys.readouterr().out.splitlines()
    _, windows = tracked(capsys, "model.qn", *logs(folder), "--window", 500)
    assert [int(line.split()[0]) for line in lines] == [500, 1000, 1500]
    for line, window in zip(lines, windows, strict=True):
        assert f"'ill': {window['classes'][1]['prevalence']:.6f}"[:-1] in line


def test_the_command_is_installed():
    text = (ROOT / "pyproject.toml").read_text()
    assert 'quapy-nemsis = "quapy_nemsis.cli:main"' in text
