# make quick: a first result. make test: everything that CI checks. make docs: the site, in build/site, and the links,
# commands and code blocks of its pages. make wheel: the wheel, used where there is no checkout. make test-lowest-torch: the
# tests of trials with the lowest PyTorch. Each target sets up what it needs: .venv, or an environment of its own.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

# Each of the many processes of a run would compile again what it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: quick test test-all test-lowest test-lowest-torch fast docs wheel lint types collected clean

quick: .venv/run
	$(BIN)/lmsweep run quick

# The tests of a file share fixtures, so they stay in one process. If a process dies, the run ends. Many tests wait for the
# processes that they start: on two cores four workers leave none idle.
WITH := --dist=loadfile --max-worker-restart=0
PYTEST := $(BIN)/pytest --numprocesses=4 $(WITH)
BESIDE := $(MAKE) --no-print-directory --output-sync

# Only the lowest Python has wheels of the lowest versions.
HAS_LOWEST := $(shell $(PYTHON) --version | grep -F " 3.11.")

# An install waits for its disk and network, mypy keeps to one core, and tests wait for processes: each begins when what it
# needs is there. What the tests say appears at once, what the others say when they end.
test:
	@$(BESIDE) --jobs=4 fast lint types $(if $(HAS_LOWEST),test-lowest)

fast: collected
	+$(PYTEST) -m "not slow" --durations=20

# Reading, without PyTorch and Ray, with the lowest version of each dependency that pyproject.toml allows.
test-lowest: .venv-lowest/ready
	.venv-lowest/bin/python -m pytest --numprocesses=2 $(WITH) -q -m "not slow" $(addprefix tests/,data metrics presets tables/test_tables.py features/course/test_course.py features/report/test_share.py)

TRIALS := analytic code distributed features/alone features/check features/ddp features/explain features/operators features/precision isolation machine memory model prediction profiling spec timing workloads
test-lowest-torch: .venv-lowest-torch/ready
	.venv-lowest-torch/bin/python -m pytest --numprocesses=2 $(WITH) -q -m "not slow" $(addprefix tests/,$(TRIALS))

test-all: .venv/hf
	@$(BESIDE) --jobs=2 lint types collected
	$(PYTEST)

# Compiles what tests import, and rewrites their assertions, so that no worker does it again.
collected: .venv/test
	@$(BIN)/pytest --collect-only -q tests > /dev/null || true

docs: .venv/docs
	$(BIN)/pytest -q -m "not slow" tests/docs tests/notebooks
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

wheel:
	$(PYTHON) -m tools.wheel

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m tools.words

types: .venv/test
	$(BIN)/mypy

.venv/hf: .venv/test
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[test,hf,adapters,axe,docs,trackers]'
	touch $@

.venv/docs: .venv/test
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[test,docs]'
	touch $@

.venv/run: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e .
	touch $@

.venv/test: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --no-compile -c constraints.txt -e '.[test]'
	touch .venv/run $@

LOWEST = sed -n 's/^[ "]*\([A-Za-z0-9-]*\)>=\([0-9.]*\).*/\1==\2/p'
TOOLS := pytest pytest-timeout pytest-xdist hypothesis

.venv-lowest/ready: pyproject.toml requirements-read.txt constraints.txt
	$(PYTHON) -m venv --clear .venv-lowest
	$(LOWEST) requirements-read.txt > .venv-lowest/lowest.txt
	$(LOWEST) pyproject.toml | grep -E '^(psutil|matplotlib)=' | sort -u >> .venv-lowest/lowest.txt
	grep -E '^(pytest|hypothesis|execnet|sortedcontainers)' constraints.txt > .venv-lowest/tools.txt
	.venv-lowest/bin/pip install --quiet --no-compile -c .venv-lowest/tools.txt -r .venv-lowest/lowest.txt $(TOOLS)
	touch $@

.venv-lowest-torch/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear .venv-lowest-torch
	$(LOWEST) pyproject.toml | grep '^torch=' > .venv-lowest-torch/lowest.txt
	grep -v '^torch=' constraints.txt >> .venv-lowest-torch/lowest.txt
	.venv-lowest-torch/bin/pip install --quiet --no-compile -c .venv-lowest-torch/lowest.txt -e '.[test]'
	touch $@

clean:
	rm -rf .venv .venv-lowest .venv-lowest-torch build *.egg-info .mypy_cache .pytest_cache .ruff_cache
