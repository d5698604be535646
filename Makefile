# The two commands of the README, and what they stand on.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -name '*.py' -o -name '*.c')
# No more workers than cores: a test that has to share its core is a slow test. A Spark session wants 2 GB as well.
WORKERS := $(shell nproc)
SPARK_WORKERS := $(shell n=$$(nproc); echo $$((n < 4 ? n : 4)))
# What takes long is named at the end of each suite, so that it is seen before it hurts.
# Workers and suites compile a file once between them, also where the environment tells Python to keep nothing.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest --dist loadfile --durations 25

.PHONY: install dev develop demo check lint test test-unit test-wire test-spark test-pythons \
        reference docs compatibility simulate chaos fuzz independence nexmark database \
        keeper-kafka keeper-kazoo keeper-curator keeper-differential keeper-kills bench clean

# What a user of the demo needs: the hot modules compiled, where there is a C compiler, and Spark prepared.
install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml hatch_build.py tools/set_up.py $(SOURCES)
	@$(PYTHON) tools/set_up.py $(VENV)
	@touch $@

# What a contributor needs on top.
dev: $(VENV)/.dev

$(VENV)/.dev: $(VENV)/.installed
	@$(PYTHON) tools/set_up.py $(VENV) --tools
	@touch $@

# The source itself, interpreted: to work with.
develop:
	@$(PYTHON) tools/set_up.py $(VENV) --editable
	@touch $(VENV)/.installed $(VENV)/.dev

demo: install
	@$(BIN)/python examples/demo.py

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The inner loop: at most two minutes on two cores.
check: lint test-unit

# One suite after the other, the quick ones first, so that what is wrong is said soon.
test: check test-wire test-spark

test-unit: dev
	$(PYTEST) -n $(WORKERS) tests/unit tests/simulation

test-wire: dev
	$(PYTEST) -n $(WORKERS) --ignore tests/unit --ignore tests/simulation --ignore tests/streaming

# Each worker has one Spark session, which its tests share.
test-spark: dev
	$(PYTEST) -n $(SPARK_WORKERS) tests/streaming

# Unit tests and a wire smoke test on every supported Python of this machine, each in .venv-3.X.
test-pythons:
	$(PYTHON) tests/pythons.py

# docs/reference/ from the code; a test says when it is stale.
reference: dev
	$(BIN)/python docs/_reference

# The site, in site/; broken links and anchors end it.
docs: reference
	$(BIN)/properdocs build --strict # --quiet would take the warnings away, and with them the strictness

# Which client used which API in which versions, from a run of the wire tests; then `make reference`.
compatibility: dev
	$(BIN)/pytest tests/wire --record-requests docs/reference/compatibility.json

SEED ?=
SEEDED = $(if $(SEED),--seed $(SEED))

SEEDS ?= 2000
simulate: dev
	$(BIN)/pytest -n $(WORKERS) tests/simulation --seeds $(SEEDS)

# A history of all that clients sent, were told, read and committed while brokers and clients are killed.
MINUTES ?= 4
chaos: dev
	$(BIN)/pytest -s $(SEEDED) --minutes $(MINUTES) tests/faults/test_chaos.py tests/wire/test_transactions_chaos.py
	$(BIN)/pytest -s $(SEEDED) --minutes $(MINUTES) tests/streaming/test_exactly_once.py tests/streaming/test_refresh_processes.py

# Requests of every API and version, good and mutated, from several clients at once.
FRAMES ?= 1000000
fuzz: dev
	$(BIN)/pytest -s $(SEEDED) --frames $(FRAMES) tests/faults/test_fuzz.py

# Any split of a log into batches, runs and kills gives what one query over it gives: every kind of node, many logs.
# SEEDS=… of them; SEED=… is the first.
independence: dev
	$(BIN)/pytest -s $(SEEDED) --logs $(if $(filter command line environment,$(origin SEEDS)),$(SEEDS),20) tests/streaming/test_independence.py

# The queries of examples/nexmark against DuckDB, with random splits and a kill.
EVENTS ?= 20000
nexmark: dev
	$(BIN)/pytest -s $(SEEDED) --events $(EVENTS) tests/streaming/test_nexmark.py

# A database's changes, delivered again and out of order, against the database at every committed position.
CHANGES ?= 100000
database: dev
	$(BIN)/pytest -s $(SEEDED) --changes $(CHANGES) tests/streaming/test_database.py

# Three brokers of Apache Kafka 3.9 in ZooKeeper mode on a keeper, while all of them are killed.
keeper-kafka: dev
	$(BIN)/pytest -s $(SEEDED) --minutes $(MINUTES) tests/keeper/test_apache_kafka.py

# All of kazoo's own tests on a keeper.
keeper-kazoo: dev
	$(BIN)/pytest -s --whole tests/keeper/test_kazoo_suite.py -k all_of

# All of Curator's own tests on a keeper, but those that need an ensemble.
keeper-curator: dev
	$(BIN)/pytest -s --whole tests/keeper/test_curator.py -k all_of

# Seeded sequences on the keeper and on a real ZooKeeper: SEEDS=… of them, from SEED=… on.
keeper-differential: dev
	$(BIN)/pytest -s --seed $(or $(SEED),1) --sequences $(SEEDS) tests/keeper/test_differential.py -k answers_as

# kill -9 of a keeper again and again, and a history of what its clients were told.
keeper-kills: dev
	$(BIN)/pytest -s $(SEEDED) --minutes $(MINUTES) tests/keeper/test_kills.py

bench: dev
	$(BIN)/python bench/run.py

clean:
	rm -rf $(VENV) headrace-data bench/.work
