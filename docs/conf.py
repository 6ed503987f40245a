"""Configuration of the site: ``make docs`` builds it into docs/_build/html, with warnings as errors and no network."""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import quapy_nemsis  # noqa: E402
import quapy_nemsis.quantifiers  # noqa: E402  (QuaPy changes matplotlib's settings when it is imported first)

project = "quapy-nemsis"
copyright = "the quapy-nemsis developers"
version = release = quapy_nemsis.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/*.json"]
highlight_language = "none"
# A name in single backquotes is a link if there is such a name, and code otherwise.
default_role = "py:obj"
toc_object_entries = False
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
autodoc_docstring_signature = False
numpydoc_show_class_members = False
numpydoc_validation_checks: set[str] = set()

#: Methods of the machinery between our own modules.
INTERNAL = {
    *(
        "aggregation_fit",
        "checked_classes",
        "checked_steps",
        "classifier_fit_predict",
        "draw_given",
    ),
    *("from_arrays", "from_saved", "model", "passes", "settings", "step_settings", "take_over"),
    *("to_arrays", "to_saved"),
}


def methods_of(fullname: str) -> list[str]:
    """Names of the public methods of a class that are written in this package, inherited ones included."""
    module, _, name = fullname.rpartition(".")
    cls = getattr(sys.modules[module], name)
    homes = {}
    for base in reversed(cls.__mro__):
        homes.update(dict.fromkeys(vars(base), base.__module__))
    return [
        name
        for name, member in inspect.getmembers(cls)
        if not name.startswith("_")
        and callable(member)
        and inspect.getdoc(member)
        and homes.get(name, "").startswith("quapy_nemsis")
        and not name.endswith("_request")
        and name not in INTERNAL
    ]


autosummary_context = {"methods_of": methods_of}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"quapy-nemsis {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "header_links_before_dropdown": 8,
    "logo": {"text": "quapy-nemsis"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "start": [], "paper": [], "changes": []}


def check_public_names(app: Any, env: Any) -> None:
    """Stop if a public name has no page."""
    found = {name for name, *_ in env.get_domain("py").get_objects()}
    wanted = {f"{module}.{name}" for module, names in public_names().items() for name in names}
    if missing := sorted(wanted - found):
        raise RuntimeError(f"these public names have no page, add them to docs/api.rst: {missing}")


def public_names() -> dict[str, list[str]]:
    """Public names of the package, and those that only its modules for users have."""
    modules = ("aggregation", "displays", "distributed", "drift", "streaming", "tracking")
    found = {"quapy_nemsis": list(quapy_nemsis.__all__)}
    for name in modules:
        module = import_module(f"quapy_nemsis.{name}")
        found[module.__name__] = sorted(set(module.__all__) - set(quapy_nemsis.__all__))
    return found


def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape what docstrings mean literally: |S| is no substitution, and (n_iter_,) no reference."""
    for i, line in enumerate(lines):
        if ">>>" not in line:
            lines[i] = line = line.replace("|", r"\|")
        if "of shape (" in line:
            lines[i] = re.sub(r"(?<=\w)_(?=[ ,)])", r"\\_", line)


def setup(app: Any) -> None:
    """Connect the check, and the escapes, after numpydoc."""
    app.connect("autodoc-process-docstring", escape, priority=900)
    app.connect("env-check-consistency", check_public_names)
