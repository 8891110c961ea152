# Every target sets up what it needs; nothing but Python 3.11+ (and a JDK 17+
# where Spark runs) has to be there before.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
READY := .venv/.ready
ARGS ?=
AREA ?= filters
BASE ?= HEAD~1
SOAK ?= 1h

# Tests start many processes, which would each compile every module anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo cluster-demo test check coverage generate lint style types soak bounds bench bench-compare docs wheel lock sbom audit clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt scripts/setup
	@scripts/setup

setup: $(READY) ## Make .venv with all dependencies

demo: $(READY) ## Run the demo; options: make demo ARGS="--for 30s"
	@scripts/need-java
	@$(BIN)/tidegate demo $(ARGS)

cluster-demo: $(READY) ## Run a real cluster on this machine: Spark, Kafka, PostgreSQL, two gateways; ARGS="--for 60s"
	@scripts/need-java
	@scripts/need-programs
	@$(BIN)/python -m examples.cluster_demo $(ARGS)

generate: $(READY) ## Generate the blocking client from the asyncio client
	$(BIN)/python scripts/generate_sync_client.py

style: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python scripts/generate_sync_client.py --check

types: $(READY)
	$(BIN)/mypy
	$(BIN)/lint-imports

lint: style types

QUICK := not spark and not kafka and not postgres and not browser and not processes

check: style ## The quick half of the tests: lint, types, layers, no Spark, no servers, few processes
	TIDEGATE_TESTS=quick scripts/beside types $(BIN)/python -m pytest -n 2 -m "$(QUICK)" --doctest-modules src tests $(ARGS)

coverage: $(READY) ## The tests of make check with coverage: a table, and HTML in .cache/coverage; no threshold
	TIDEGATE_TESTS=quick $(BIN)/python -m pytest -n 2 -m "$(QUICK)" --cov --cov-report=term:skip-covered --cov-report=html --doctest-modules src tests $(ARGS)

# One more than two cores: many tests wait for a process that starts.
test: style ## All tests, real Spark, Kafka, PostgreSQL and browser included: what CI runs
	@scripts/need-java
	@scripts/need-programs
	scripts/beside types $(BIN)/python -m pytest -n 4 --dist loadgroup --doctest-modules src tests $(ARGS)

# The first part stops at the budget; the second part, the kills, has the same budget again.
soak: $(READY) ## The long runs: 200,000 texts, deep property searches, twenty kills; a budget: make soak SOAK=20m
	@rm -f .cache/soak-report.txt
	TIDEGATE_TESTS=soak TIDEGATE_SOAK=$(SOAK) $(BIN)/python -m pytest -n 2 -m "not spark and not kafka and not postgres and not browser" tests $(ARGS)
	@scripts/need-java
	TIDEGATE_TESTS=soak TIDEGATE_SOAK=$(SOAK) $(BIN)/python -m pytest -s tests/pipelines/test_kill.py tests/pipelines/test_stateful.py tests/gateway/test_gateway_kill.py tests/pipelines/test_filters.py tests/cluster

bounds: $(READY) ## Test the gateway with the oldest and newest uvicorn, httpx and httpcore that the extras allow
	$(BIN)/python scripts/test_bounds.py $(ARGS)

bench: $(READY) ## Measure; options: make bench AREA=matching ARGS="--quick"
	$(BIN)/tidegate bench $(AREA) $(ARGS)

bench-compare: $(READY) ## Compare with another commit in one run: make bench-compare BASE=HEAD~1
	$(BIN)/python -m benchmarks.compare $(BASE) $(ARGS)

docs: $(READY) ## Check that the documents' examples and links hold
	$(BIN)/python -m pytest tests/docs $(ARGS)

wheel: $(READY) ## Build a wheel that carries the compiled connector, so that a JRE is enough
	@scripts/need-java
	$(BIN)/python -c 'from tidegate.pipelines.connector import build; print(build.package())'
	$(BIN)/python -m hatchling build -t wheel

lock: $(READY) ## Write the requirements of the container with hashes, after a change of constraints.txt
	scripts/lock

sbom: $(READY) ## Write dist/tidegate.cdx.json: the packages and jars that a container runs (CycloneDX)
	$(BIN)/python scripts/sbom.py $(ARGS)

audit: $(READY) ## Look for known vulnerabilities; without a network: make audit DATABASE=all.zip (an OSV export of PyPI)
	$(BIN)/python scripts/audit.py $(if $(DATABASE),--database $(DATABASE)) $(ARGS)

clean: ## Remove what was built, fetched and reported: all that git ignores
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build *.egg-info
	rm -rf spark-warehouse metastore_db derby.log benchmarks/results src/tidegate/pipelines/connector/*.jar
	find . -name __pycache__ -prune -exec rm -rf {} +
