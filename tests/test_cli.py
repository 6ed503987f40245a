"""The command quapy-nemsis, as users run it."""

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

from quapy_nemsis import CANClassifier, TableQuantifier, __version__, load, save
from quapy_nemsis.cli import COMMANDS, main
from tests.conftest import ROOT
from tests.patients import patients

GIVEN = ("--target", "outcome", "--positive", "ill", "--out", "model.qn")
#: Prevalences of six months; in training it is 0.3.
MONTHS = {1: 0.3, 2: 0.55, 3: 0.3, 4: 0.08, 5: 0.3, 6: 0.75}


def command(*arguments, **options):
    """Start the command in a process of its own."""
    started = [sys.executable, "-m", "quapy_nemsis", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(
        started, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes, **options
    )


def ended(process):
    """What a process prints, and what it ends with."""
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def recipes(language):
    """Blocks of docs/files.md."""
    text = (ROOT / "docs" / "files.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def nightly_script(folder, tmp_path):
    """Start the script of the recipe for a nightly job, on the file of the last month."""
    (script,) = (block for block in recipes("sh") if block.startswith("#!/bin/sh"))
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
    return folder


@pytest.fixture(scope="module")
def model(folder):
    """A model that the command has written, and what it has printed."""
    code, out, err = ended(command("fit", "labelled.csv", *GIVEN, cwd=folder))
    assert (code, err) == (0, "")
    return folder / "model.qn", out


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
    assert words[-1] == "no"
    assert "1,200 with a label, 300 without" in model[1]


@pytest.mark.skipif(os.name != "posix", reason="the recipe is a shell script")
def test_six_months_while_the_nightly_script_runs(model, folder, tmp_path):
    """True values are inside of their intervals, changes are found where there are some; two at once agree."""
    files = [f"month{month}.csv" for month in MONTHS]
    both = [
        command("estimate", "model.qn", *files, "--json", "--html", "page.html", cwd=folder),
        nightly_script(folder, tmp_path),
    ]
    (code, out, err), script = map(ended, both)
    assert (code, err) == (2, "")
    assert script == (0, "prevalences have changed, see tonight.html\n", "")
    tonight = json.loads((folder / "history.jsonl").read_text())
    assert tonight["changed"]
    assert tonight["classes"] == json.loads(out.splitlines()[-1])["classes"]
    assert (folder / "tonight.html").exists()
    records = [json.loads(line) for line in out.splitlines()]
    assert [record["file"] for record in records] == files
    changed = [record["changed"] for record in records]
    assert changed == [share != 0.3 for share in MONTHS.values()]
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
    assert run("check", model[0], files[1], "--interval", "0.001") == 2
    out = capsys.readouterr().out.splitlines()
    assert out[0].split()[:4] == ["file", "rows", "class", "true"]
    assert out[1].endswith("no")


def test_estimates_in_every_form(model, folder, capsys, tmp_path):
    new = folder / "month2.csv"
    assert run("estimate", model[0], new) == 2
    out = capsys.readouterr().out
    assert out.splitlines()[0].split()[:3] == ["file", "rows", "class"]
    assert "changed, 'ill' had" in out
    assert run("estimate", model[0], new, "--json") == 2
    record = json.loads(capsys.readouterr().out)
    assert run("estimate", model[0], new, "--csv") == 2
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["class"] for row in rows] == ["well", "ill"]
    assert float(rows[1]["low"]) == record["classes"][1]["low"]
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
    assert not narrow["changed"]


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "labelled.csv", "--out", "m.qn"], "name the column of the labels with --target"),
        (["fit", "labelled.csv", "--target", "Outcom", "--out", "m.qn"], "did you mean 'outcome'"),
        (["fit", "labelled.csv", "--target", "outcome", "--positive", "x", "--out", "m.qn"], "'x'"),
        (["fit", "labelled.csv", "--target", "patient", "--out", "m.qn"], "has 1 rows, and 5"),
        (["fit", "labelled.csv", "--target", "outcome", "--out", "no/where.qn"], "--out no/where"),
        (["fit", "nowhere.csv", "--target", "x", "--out", "m.qn"], "there is no such file"),
        (["estimate", "nowhere.qn", "month1.csv"], "nowhere.qn"),
        (["estimate", "labelled.csv", "month1.csv"], "broken, truncated or not a file of"),
        (["estimate", "learner.qn", "month1.csv"], "holds a CANClassifier, which reads no files"),
        (["estimate", "model.qn", "month1.csv", "--separator", ";;"], "one character or 'tab'"),
        (["estimate", "model.qn", "month1.csv", "--encoding", "utf-99"], "utf-99"),
        (["check", "model.qn", "month1.csv"], "no column 'outcome' of labels"),
    ],
)
def test_what_cannot_be_done(model, folder, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    save(CANClassifier(), folder / "learner.qn")
    assert run(*arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ")
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
        "import sys; from quapy_nemsis.cli import main; main(['--help']); "
        "slow = {'numpy', 'numba', 'scipy', 'sklearn', 'pandas', 'quapy'} & set(sys.modules); "
        "sys.exit(str(slow) if slow else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: quapy-nemsis")


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
        if (
            arguments[0] == "fit" or ">>" in arguments
        ):  # the model is there, and the script is run above
            continue
        names = [name for word in arguments for name in (sorted(glob.glob(word)) or [word])]
        assert run(*names) in (0, 2), arguments
    assert "quapy_nemsis_changed" in (folder / "quapy_nemsis.prom").read_text()
    (fitted,) = (arguments for arguments in found if arguments[0] == "fit")
    assert fitted == ["fit", "labelled.csv", *GIVEN]  # as in the fixture


def test_the_recipe_of_a_notebook_runs(model, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (recipe,) = recipes("python")
    # A model that is trained already takes the place of training.
    trained = load(folder / "model.qn")
    monkeypatch.setattr(TableQuantifier, "fit", lambda self, table: trained)
    exec(compile(recipe, "files.md", "exec"), {})
    assert "'ill'" in capsys.readouterr().out


def test_the_command_is_installed():
    text = (ROOT / "pyproject.toml").read_text()
    assert 'quapy-nemsis = "quapy_nemsis.cli:main"' in text
