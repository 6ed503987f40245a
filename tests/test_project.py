"""The project's own rules: direction of imports, documentation, a README that runs."""

import ast
import inspect
import re
import subprocess
import sys
from importlib import import_module

import matplotlib
import pytest
from matplotlib import pyplot
from setuptools import find_packages

import quapy_nemsis
from tests.conftest import ROOT

# Each module may import from those of an earlier line only.
LAYERS = [
    {"_sources", "_files"},
    {"_jit"},
    {"surrogates", "measures.formulas"},
    {"measures.compiled"},
    {"measures.contract"},
    {"measures.classes"},
    {"measures.checks", "measures.nested", "measures.pseudo"},
    {"measures.custom", "measures.names"},
    {"measures.losses", "measures.duals"},
    {"measures"},
    {"_kernels.rows"},
    {
        "_kernels.nemsis",
        "_kernels.level",
        "_kernels.batch",
        "_kernels.calibration",
        "_kernels.oracle",
        "_kernels.simplex",
        "_kernels.density",
        "_kernels.aggregation",
        "_kernels.trees",
    },
    {"_kernels.multiclass", "_kernels.mixture", "_kernels.spade"},
    {"_validation"},
    {"learners.state", "learners.scores", "learners.separation"},
    {"learners.calibration", "learners.nodes"},
    {"learners.tuning"},
    {"learners.base"},
    {"learners.nemsis", "learners.can", "learners.svmperf", "learners.minibatch", "learners.trees"},
    {"learners.scan", "learners.spade"},
    {"learners.pseudolinear"},
    {"learners"},
    {"features", "prevalence", "plugin"},
    {"quantifiers._quapy"},
    {"quantifiers.counting", "quantifiers.default"},
    {"quantifiers.trees"},
    {"quantifiers"},
    {"tables", "tables.formats"},
    {"tables.columns"},
    {"tables.preparing", "tables.reading"},
    {"tables.chunking", "tables.checking"},
    {"tables.quantifying"},
    {"_version1", "_version2", "_version3", "_version4"},
    {"persistence", "merging"},
    {"distributed", "streaming.sources"},
    {"streaming.learning", "streaming.shuffling"},
    {"streaming.plotting"},
    {"streaming"},
    {"aggregation.samples"},
    {"aggregation.adjusting", "aggregation.likelihood", "aggregation.matching"},
    {"aggregation.thresholds", "aggregation.evaluation"},
    {"aggregation"},
    {"drift"},
    {"tracking.trackers", "tracking.windows", "tracking.checkpoints"},
    {"tracking.records"},
    {"tracking.following"},
    {"tracking.plotting"},
    {"tracking"},
    {"displays"},
    {"cli"},
    {"__main__", "cli.changes"},
    {"cli.rendering"},
    {"cli.windows"},
    {"cli.commands"},
]
NUMBA_ALLOWED = {"_jit"}
QUAPY_ALLOWED = {"quantifiers._quapy"}


def modules():
    for path in sorted((ROOT / "quapy_nemsis").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / "quapy_nemsis").with_suffix("").parts)
        name = name.removesuffix("__init__").rstrip(".")
        if name and path.stat().st_size:
            yield name, path


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from names
            # "from package import module" needs only the module, not what the package exports.
            if not all((ROOT / (name.replace(".", "/") + ".py")).exists() for name in names):
                yield node.module


def test_every_module_has_its_layer():
    assert {name for name, _ in modules()} == set().union(*LAYERS)


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=[name for name, _ in modules()])
def test_imports_point_one_way(name, path):
    layer = next(i for i, names in enumerate(LAYERS) if name in names)
    below = set().union(*LAYERS[:layer])
    every = set().union(*LAYERS)
    for module in imports(path):
        assert module.split(".")[0] not in ("tests", "experiments"), f"{name} imports {module}"
        if module.split(".")[0] == "quapy":
            assert name in QUAPY_ALLOWED, f"{name} imports quapy"
        if module.split(".")[0] in ("numba", "llvmlite"):
            assert name in NUMBA_ALLOWED, f"{name} imports numba"
        inner = module.removeprefix("quapy_nemsis.")
        if inner in every and module != inner:
            assert inner in below, f"{name} imports {inner}, which is not below it"


def architecture():
    """The rows of the table of modules in docs/architecture.md: lists of names, such as ["merging", "distributed"]."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text.split("| module |")[1].split("\n\n")[0]
    for row in table.splitlines()[2:]:
        names = re.findall(r"`([\w.]+)`", row.split("|")[1])
        package = names[0].rpartition(".")[0]
        yield [package + name if name.startswith(".") else name for name in names]


def test_every_module_is_in_the_table_of_the_architecture():
    named = [name for row in architecture() for name in row]
    assert sorted(named) == sorted(name for name, _ in modules())


def test_imports_point_up_the_table_of_the_architecture():
    row_of = {name: i for i, row in enumerate(architecture()) for name in row}
    for name, path in modules():
        for module in imports(path):
            inner = module.removeprefix("quapy_nemsis.")
            if inner != module and inner in row_of:
                assert row_of[inner] <= row_of[name], f"{name} imports {inner}"


@pytest.mark.parametrize("name", quapy_nemsis.__all__)
def test_public_names_are_documented_with_an_example(name):
    thing = getattr(quapy_nemsis, name)
    assert thing.__doc__
    if not inspect.isabstract(thing) and name not in ("Measure", "NestedMeasure", "PseudoMeasure"):
        assert ">>>" in thing.__doc__, f"{name} has no example"


PAGES = [
    "README.md",
    *(f"docs/{name}.md" for name in ("quantification", "posteriors", "classes")),
    *(f"docs/{name}.md" for name in ("custom", "structural", "streams")),
]


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_pages_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, page, "exec"), {})


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
)
def test_links_of_pages_point_somewhere(page):
    for link in re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text()):
        if not link.startswith("http"):
            assert (ROOT / page).parent.joinpath(link).exists(), link


@pytest.mark.parametrize("page", PAGES)
def test_no_example_scales_before_it_splits(page):
    """That would leak the test rows into training, and readers copy what they see."""
    assert not re.search(r"\bscale\(|fit_transform\(", (ROOT / page).read_text())


def test_readme_is_one_page():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_public_name_has_a_page():
    """The site makes a page of each name in docs/api.rst."""
    wanted = set(quapy_nemsis.__all__)
    for module in ("aggregation", "displays", "distributed", "drift", "streaming", "tracking"):
        wanted |= set(import_module(f"quapy_nemsis.{module}").__all__)
    listed = re.findall(
        r"^   (?:drift\.)?(\w+)$", (ROOT / "docs" / "api.rst").read_text(), re.MULTILINE
    )
    assert sorted(listed) == sorted(wanted)


def test_every_page_is_in_the_site():
    docs = ROOT / "docs"
    pages = {path.stem for path in docs.glob("*.md")} - {"index"}
    toctrees = "".join(
        block
        for path in docs.glob("*.md")
        for block in re.findall(r"```{toctree}(.*?)```", path.read_text(), flags=re.DOTALL)
    )
    listed = re.findall(r"^(?:\w+ <)?([\w/]+)>?$", toctrees, flags=re.MULTILINE)
    assert pages | {"api", "gallery/index"} == set(listed)


GALLERY = sorted((ROOT / "examples").glob("plot_*.py"))


@pytest.mark.parametrize("path", GALLERY, ids=[path.stem for path in GALLERY])
def test_scripts_of_the_gallery_are_sound(path):
    """``make docs`` runs them all; here, each is compiled and what it imports must exist."""
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree).splitlines()[1].startswith("===")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names)
    assert path.read_text().endswith("plt.show()\n")


@pytest.mark.parametrize("number", ["06", "12"])
def test_scripts_of_the_gallery_run(number, monkeypatch):
    matplotlib.use("Agg")
    pyplot.close("all")
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    (path,) = (path for path in GALLERY if path.name.startswith(f"plot_{number}_"))
    exec(compile(path.read_text(), path, "exec"), {"__name__": "__main__"})
    (number_of_figure,) = pyplot.get_fignums()
    assert pyplot.figure(number_of_figure).axes[0].lines
    pyplot.close("all")


def test_gallery_has_a_dozen_scripts():
    assert len(GALLERY) >= 12


def test_citation_has_this_version():
    text = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {quapy_nemsis.__version__}\n" in text


def test_readme_commands_are_targets_of_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    readme = (ROOT / "README.md").read_text()
    for target in set(re.findall(r"\bmake ([a-z]+)", readme)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_every_folder_is_packaged():
    packages = set(find_packages(str(ROOT), include=["quapy_nemsis*"]))
    folders = {path.parent for path in (ROOT / "quapy_nemsis").rglob("*.py")}
    assert packages == {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert 'include = ["quapy_nemsis*"]' in (ROOT / "pyproject.toml").read_text()


def test_version_is_in_the_changelog():
    assert f"## {quapy_nemsis.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_users_see_types(tmp_path):
    """Also of quantifiers, which are imported when they are first used."""
    program = tmp_path / "program.py"
    calls = {
        "NEMSIS('q').fit([[1.0]], [1])": "quapy_nemsis.quantifiers.counting.NEMSIS",
        "NEMSISClassifier('q').fit([[1.0]], [1])": "quapy_nemsis.learners.nemsis.NEMSISClassifier",
        "load('learner.npz')": "Any",
        "merge([SCANClassifier()])": "quapy_nemsis.learners.scan.SCANClassifier",
    }
    names = "NEMSIS, NEMSISClassifier, SCANClassifier, load, merge"
    lines = [f"from quapy_nemsis import {names}", *(f"reveal_type({call})" for call in calls)]
    program.write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
    assert re.findall(r'Revealed type is "([\w.]+)"', done.stdout) == list(calls.values())
