# make quick: a first result. make test: everything CI checks. Both set up .venv by themselves.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# Bytecode of all that is imported, made on every core while installing: pip would take one core, and without bytecode
# the first trial would wait for it. compileall's exit code counts files that are not meant to compile.
COMPILE = -$(BIN)/python -m compileall -qq -j 0 .venv/lib orchestrator trials analysis

.PHONY: quick test test-all lint types clean

quick: .venv/run
	$(BIN)/lmsweep run quick

test: lint types
	$(BIN)/pytest -m "not slow" --durations=20

test-all: lint types
	$(BIN)/pytest

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/test
	$(BIN)/mypy

.venv/run: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e .
	$(COMPILE)
	touch $@

.venv/test: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[test]'
	$(COMPILE)
	touch .venv/run $@

clean:
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache
