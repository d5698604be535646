# The two commands of the README, and what they stand on.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo test lint unit wire simulate bench clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

demo: install
	@$(BIN)/python examples/demo.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/pytest -n 2 --dist loadfile --ignore tests/streaming
	$(BIN)/pytest tests/streaming # one process, one JVM: every worker of xdist would start a Spark of its own

SEEDS ?= 2000
simulate: install
	$(BIN)/pytest -n 2 tests/simulation --seeds $(SEEDS)

bench: install
	$(BIN)/python bench/run.py

clean:
	rm -rf $(VENV) headrace-data bench/.work
