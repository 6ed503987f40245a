"""Follow docs/extending.md: make its changes in a copy of the package, and run its programs there."""

import os
import re
import shutil
import subprocess
import sys

from tests.conftest import ROOT

BLOCKS = re.findall(
    r"^```(diff|python)\n(.*?)^```",
    (ROOT / "docs" / "extending.md").read_text(encoding="utf-8"),
    flags=re.DOTALL | re.MULTILINE,
)


def apply(diff, folder):
    """Make the changes of a diff; what stays must be in its file, exactly once."""
    for file in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        name, *hunks = re.split(r"\n@@\n", file.rstrip("\n"))
        path = folder / name
        text = path.read_text(encoding="utf-8")
        for hunk in hunks:
            lines = hunk.splitlines()
            old = "\n".join(line[1:] for line in lines if line[:1] != "+")
            new = "\n".join(line[1:] for line in lines if line[:1] != "-")
            assert text.count(old) == 1, f"{name} has this {text.count(old)} times:\n{old}"
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")


def test_the_walk_throughs(tmp_path):
    shutil.copytree(
        ROOT / "quapy_nemsis",
        tmp_path / "quapy_nemsis",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    programs = []
    for kind, text in BLOCKS:
        first = text.partition("\n")[0]
        if kind == "diff":
            apply(text, tmp_path)
        elif first.startswith("# quapy_nemsis/"):
            path = tmp_path / first.removeprefix("# ")
            assert not path.exists()
            path.write_text(text, encoding="utf-8")
        else:
            programs.append(text)
    assert len(programs) == 4
    (tmp_path / "programs.py").write_text("\n".join(programs), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "programs.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONWARNINGS": "error::SyntaxWarning"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cost:0.9")
