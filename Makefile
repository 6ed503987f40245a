# Every target makes the virtual environment it needs in .venv, once, and reuses it.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: demo test docs dist slow bench lint clean

demo: $(VENV)/ready
	$(RUN) -m experiments compare --jobs 2 --out results/demo

# Files in order: those with few tests take longest, and would come last otherwise.
test: lint
	$(RUN) -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# The site, into docs/_build/html: pages, gallery (which is run) and API reference. Warnings are errors.
docs: $(VENV)/ready-docs
	$(RUN) -m sphinx --fail-on-warning --keep-going --jobs auto docs docs/_build/html

# A wheel and an sdist, checked, in dist.
dist: $(VENV)/ready-dist
	rm -rf dist build
	$(RUN) -m build --quiet
	$(RUN) -m twine check --strict dist/*

slow: $(VENV)/ready
	$(RUN) -m pytest -m slow

bench: $(VENV)/ready
	$(RUN) -m experiments.bench

lint: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

$(VENV)/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(v < (3, 10) and f"Python 3.10 or later is needed, $(PYTHON) is {v[0]}.{v[1]}: run make PYTHON=python3.x")'
	@echo "Making the virtual environment in $(VENV) (a minute or two, once) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[experiments,test]"
	@touch $@

$(VENV)/ready-docs: $(VENV)/ready
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $@

$(VENV)/ready-dist: $(VENV)/ready
	@$(RUN) -m pip install --quiet --disable-pip-version-check build twine
	@touch $@

clean:
	rm -rf $(VENV) results build dist docs/_build docs/api docs/gallery *.egg-info
