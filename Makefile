# Every target makes the virtual environment it needs in .venv, once, and reuses it.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: demo test slow bench lint clean

demo: $(VENV)/ready
	$(RUN) -m experiments compare --jobs 2 --out results/demo

test: lint
	$(RUN) -m pytest --numprocesses 2 --dist loadfile

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

clean:
	rm -rf $(VENV) results build dist *.egg-info
