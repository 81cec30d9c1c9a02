# Two commands set everything up: `make tui DIR=~/notes` and `make test`.
# The environment is a plain .venv, rebuilt when pyproject.toml or constraints.txt change.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DIR    ?=
ARGS   ?=

.PHONY: tui test faults lint env clean
.DEFAULT_GOAL := help

help:
	@echo "make tui DIR=~/notes   set up and open the app on a folder"
	@echo "make test              set up and run the tests"
	@echo "make faults            every fault-injection point (about six minutes)"
	@echo "make lint              style, types and import contracts"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "minagi needs Python 3.10 or newer; this is $$($(PYTHON) --version 2>&1). Set PYTHON=python3.11, for example."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "Could not make $(VENV). On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@echo "Setting up $(VENV): the first time takes a few minutes, most of it PyTorch."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

env: $(STAMP)

tui: $(STAMP)
	@test -n "$(DIR)" || { echo "Name the folder to read: make tui DIR=~/notes"; exit 2; }
	@$(BIN)/minagi-tui $(ARGS) "$(DIR)"

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

faults: $(STAMP)
	MINAGI_FAULTS=all $(BIN)/python -m pytest -n 2 --timeout=3600 tests/weights/test_weights_faults.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
