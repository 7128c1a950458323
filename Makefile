# make quick: a first result. make test: everything CI checks. make docs: links, commands and blocks of the pages. Each
# sets up .venv by itself.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: quick test test-all docs lint types clean

quick: .venv/bytecode
	$(BIN)/lmsweep run quick

# A file of tests stays in one process, as its tests share what it sets up. A process that dies ends the run.
PYTEST := $(BIN)/pytest --numprocesses=2 --dist=loadfile --max-worker-restart=0

test: lint types
	$(PYTEST) -m "not slow" --durations=20

test-all: lint types
	$(PYTEST)

docs: .venv/test
	$(BIN)/pytest -q tests/test_docs.py tests/test_notebooks.py

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/test
	$(BIN)/mypy

.venv/run: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e .
	touch $@

# Tests import a small part of what is installed: nothing is compiled ahead for them.
.venv/test: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[test]'
	touch .venv/run $@

# On all cores, where pip would use one; without bytecode the first minute of measuring would go into making it. Some
# packages bring files that no Python 3 compiles.
.venv/bytecode: .venv/run
	$(BIN)/python -m compileall -qq -j 0 .venv/lib orchestrator trials analysis || true
	touch $@

clean:
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache
