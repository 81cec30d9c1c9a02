# Two commands set everything up: `make tui DIR=~/notes` and `make test`.
# The environment is a plain .venv, brought up to date when pyproject.toml or constraints.txt change.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DIR    ?=
ARGS   ?=

.PHONY: help tui test faults soak lint env clean named
.DEFAULT_GOAL := help

help:
	@echo "make tui DIR=~/notes   set up and open the app on a folder"
	@echo "make test              set up and run the tests"
	@echo "make faults            every fault-injection point (about six minutes)"
	@echo "make soak              two hundred kill -9 in real training (a quarter of an hour)"
	@echo "make lint              style, types and import contracts"

# Whatever can be told is told before anything is downloaded; a half-made environment does not stay.
$(STAMP): pyproject.toml constraints.txt
	@command -v "$(PYTHON)" >/dev/null || { echo "There is no $(PYTHON) here. minagi needs Python 3.10 or newer; name one, as in: make PYTHON=python3.12 …"; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "minagi needs Python 3.10 or newer; this is $$("$(PYTHON)" --version 2>&1). Name another one, as in: make PYTHON=python3.12 …"; exit 1; }
	@mkdir -p $(VENV) && test -w $(VENV) || { echo "Nothing can be written in $$PWD, and that is where the environment goes. Copy the checkout to a folder of your own."; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || "$(PYTHON)" -m venv --clear $(VENV) || { rm -rf $(VENV); echo "The environment $(VENV) could not be made. On Debian and Ubuntu this helps: apt install python3-venv"; exit 1; }
	@if test -e $(STAMP); then \
	  echo "Bringing the packages of minagi up to date: a minute or so, in silence."; \
	else \
	  echo "minagi sets itself up here, this once: it fetches PyTorch and smaller packages"; \
	  echo "(1 to 6 GB) into the folder .venv. That takes two to ten minutes, in silence;"; \
	  echo "after that it starts at once. ctrl+c stops it, and the same command goes on."; \
	fi
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]' || { echo "The packages could not be installed; pip's own words are above. The same command again goes on from there."; exit 1; }
	@touch $(STAMP)

env: $(STAMP)

named:
	@test -n "$$DIR" || { echo "Name the folder to read, as in: make tui DIR=~/notes"; exit 2; }

tui: named $(STAMP)
	@$(BIN)/python -m tui $(ARGS) "$$DIR"

test: $(STAMP)
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

soak: $(STAMP)
	MINAGI_SOAK=$${MINAGI_SOAK:-200} $(BIN)/python -m pytest -s tests/training/test_soak.py

faults: $(STAMP)
	MINAGI_FAULTS=all $(BIN)/python -m pytest -n 2 --timeout=3600 tests/weights/test_weights_faults.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
