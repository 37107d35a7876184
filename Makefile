# make demo and make test are all a newcomer needs; every target sets up what it uses in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VERIFY := $(VENV)/.installed-verify
ENGINE ?= native
DEMO_ARGS ?=
BENCH_ARGS ?=
PYTEST_ARGS ?=
E2E_ARGS ?=
TAG ?= dev

.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench images sbom e2e format proto chart docs constraints clean

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(STAMP): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VERIFY): $(STAMP) constraints-verify.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r constraints-verify.txt
	@touch $@

setup: $(VERIFY) ## create .venv with the pinned packages (Spark too: make demo goes without) and this project

demo: $(STAMP) ## a whole group on loopback: faults, timeline, longest gap (ENGINE=apache: official brokers)
	$(BIN)/rocketmq-demo --engine $(ENGINE) $(DEMO_ARGS)

# What is pure shares all cores; what starts processes mostly waits for them, so two files are at work beside each other.
test: $(VERIFY) ## all tests, or PYTEST_ARGS="tests/store -k NAME" (with CI=true a missing tool is a failure, not a skip)
ifeq ($(PYTEST_ARGS),)
	$(BIN)/pytest -n auto --dist worksteal -m "not processes and not interop"
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "processes or interop"
else
	$(BIN)/pytest $(PYTEST_ARGS)
endif

check: $(VERIFY) ## format, lint, types, import borders, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python hack/proto.py --check
	$(BIN)/python hack/chart.py --check
	$(BIN)/python hack/crd_reference.py --check

bench: $(VERIFY) ## ours and Apache RocketMQ's side by side; results in build/bench
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

images: ## build the images as rocketmq-ha/NAME:TAG (TAG=dev)
	hack/images.sh $(TAG)

sbom: images ## the images' bills of materials, in build/sbom
	hack/sbom.sh $(TAG)

e2e: $(VERIFY) ## the suite on a real Kubernetes: needs docker, kind, kubectl (E2E_ARGS="-k NAME --keep-cluster")
	hack/e2e.sh run $(E2E_ARGS)

format: $(STAMP) ## rewrite the files as `make check` wants them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(STAMP) ## make the Python of libs/rocketmq_api/*.proto anew
	$(BIN)/python hack/proto.py

chart: $(STAMP) ## copy CRDs, version and the table of values into helm/rocketmq-ha
	$(BIN)/python hack/chart.py

docs: $(STAMP) ## make docs/crd-reference.md of crds/ anew
	$(BIN)/python hack/crd_reference.py

constraints: ## pin hack/requirements.in anew
	hack/constraints.sh

clean: ## remove everything that was made here
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .pytest-kind
