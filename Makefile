# Everything a developer runs. Needs python3.11 or newer and make; `make help` lists the targets.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PYTEST := $(BIN)/python -m pytest
JOBS ?= 2
export PYTHONPATH := src

DEV := $(VENV)/.installed-dev
DEMO := $(VENV)/.installed-demo

.DEFAULT_GOAL := help
.PHONY: help demo test check bench test-kafka test-faults test-mutants format lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: $(DEMO) ## see it work: a broker of its own, sample traffic, what comes out (ARGS="--seconds 60")
	$(BIN)/python -m acs_aaep_bridge demo $(ARGS)

test: $(DEV) ## all tests but faults, mutants and benchmarks; real Kafka where Java or Docker can be had (ARGS="-k name", JOBS=4)
	$(PYTEST) -m "not faults and not mutants" -n $(JOBS) --dist loadgroup $(ARGS)

check: $(DEV) ## formatting, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(DEV) ## format the code and mend what lint can mend by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DEV) ## how fast: each stage and the whole beside a bare copy, on real Kafka (ARGS="--quick")
	$(BIN)/python -m benchmarks $(ARGS)

test-kafka: $(DEV) ## only the tests that need a real Kafka
	$(PYTEST) -m "kafka and not faults and not mutants" $(ARGS)

test-faults: $(DEV) ## kill processes and brokers for some minutes, then account for every record (ARGS="--long")
	$(PYTEST) -m faults tests/faults $(ARGS)

test-mutants: $(DEV) ## break the delivery code on purpose: the fault tests must notice each time
	$(PYTEST) -m mutants tests/faults $(ARGS)

# pip-compile cannot read dependency groups, so all three inputs are written out from pyproject.toml.
LOCK := $(BIN)/pip-compile --quiet --no-emit-index-url --no-emit-find-links --strip-extras --generate-hashes --allow-unsafe
lock: $(DEV) ## renew requirements/*.txt from pyproject.toml (ARGS="--upgrade")
	$(BIN)/python requirements/inputs.py
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(ARGS) -o requirements/runtime.txt requirements/runtime.in
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(ARGS) -o requirements/build.txt requirements/build.in
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(ARGS) -o requirements/demo.txt requirements/demo.in
	CUSTOM_COMPILE_COMMAND="make lock" $(LOCK) $(ARGS) -o requirements/dev.txt requirements/dev.in

clean: ## remove what make made; the Kafka jars stay in ~/.cache/acs-aaep-bridge
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)

$(DEMO): requirements/demo.txt | $(VENV)/bin/python
	$(PIP) install --require-hashes -r requirements/demo.txt
	@touch $@

$(DEV): requirements/dev.txt | $(VENV)/bin/python
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
