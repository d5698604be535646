# The two commands of the README, and what they stand on.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
SOURCES := $(shell find src -name '*.py')

.PHONY: install develop demo test test-wire test-rest test-spark lint reference docs compatibility simulate chaos bench clean

# What a user gets: the hot modules compiled, where there is a C compiler.
install: $(VENV)/.installed

# Compiling takes one core a minute, unpacking Spark another: both at once, and then the compiled wheel on top.
$(VENV)/.installed: pyproject.toml hatch_build.py $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	rm -rf $(VENV)/wheel
	$(PIP) wheel -q --no-deps -w $(VENV)/wheel . & wheel=$$!; \
	    HEADRACE_NATIVE=0 $(PIP) install -q '.[dev]' && wait $$wheel
	$(PIP) install -q --no-deps --force-reinstall $(VENV)/wheel/*.whl
	touch $@

# What a contributor works with: the source itself, interpreted.
develop:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q -e '.[dev]'
	rm -f $(VENV)/.installed

demo: install
	@$(BIN)/python examples/demo.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# All beside each other, for each waits a good deal; each prints what it did when it ends.
test: install
	@$(MAKE) --no-print-directory --output-sync=target -j4 lint test-spark test-wire test-rest

# In two, for each worker of pytest reads all the tests of its call.
test-wire: install
	$(BIN)/pytest -n 3 --dist loadfile tests/wire tests/faults tests/tools

test-rest: install
	$(BIN)/pytest -n 2 --dist loadfile --ignore tests/streaming --ignore tests/wire --ignore tests/faults --ignore tests/tools

test-spark: install # each of the two has a Spark session of its own, which its tests share
	$(BIN)/pytest -n 2 --dist loadfile tests/streaming

# docs/reference/ from the code; a test says when it is stale.
reference: install
	$(BIN)/python docs/_reference

# The site, in site/; broken links and anchors end it.
docs: reference
	$(BIN)/properdocs build --strict # --quiet would take the warnings away, and with them the strictness

# Which client used which API in which versions, from a run of the wire tests; then `make reference`.
compatibility: install
	$(BIN)/pytest tests/wire --record-requests docs/reference/compatibility.json

SEEDS ?= 2000
simulate: install
	$(BIN)/pytest -n 2 tests/simulation --seeds $(SEEDS)

MINUTES ?= 4
chaos: install
	$(BIN)/pytest -s tests/wire/test_transactions_chaos.py --minutes $(MINUTES)

bench: install
	$(BIN)/python bench/run.py

clean:
	rm -rf $(VENV) headrace-data bench/.work
