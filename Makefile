# Everything a stranger needs: `make demo` and `make test` set up by themselves. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Seconds of faults for each configuration of `make chaos`, its seed, and where it leaves histories and results.
SECONDS := 180
SEED := 1
CHAOS_OUT := chaos-results

# The tests whose brokers and clients are cores in their own process.
SIMULATED := $(addprefix tests/,broker papers pipeline reweave routing simulation testing)

.PHONY: help setup java demo test validate lint check chaos clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    see it work"
	@echo "make test    run the tests"
	@echo "make validate  run the simulated tests; every core checks its invariants after every stimulus"
	@echo "make check   linters, types, layers and tests: all that CI runs"
	@echo "make chaos   14 networks of processes under faults, 180 s each (SECONDS=, SEED=, CHAOS_OUT=)"
	@echo "make setup   install into $(VENV) (done by the others when needed)"
	@echo "make clean   remove $(VENV) and all caches"

setup: $(STAMP) java

# Again only when what is installed would differ.
$(STAMP): pyproject.toml constraints.txt
	@tools/ensure-venv "$(PYTHON)" "$(VENV)"
	@echo "installing into $(VENV) (a minute or so)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade -c constraints.txt pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --build-constraint constraints.txt --editable . --group dev
	@touch $@

java:
	@tools/ensure-java

demo: setup
	@$(BIN)/overweave demo

test: setup
	$(BIN)/python -m pytest -n 3 --dist loadfile

validate: setup
	OVERWEAVE_VALIDATE=all $(BIN)/python -m pytest -n 2 --dist loadfile -m "not spark" $(SIMULATED)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test

chaos: setup
	$(BIN)/python -m overweave.testing.chaos --seconds $(SECONDS) --seed $(SEED) --out $(CHAOS_OUT)

clean:
	rm -rf $(VENV) .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
