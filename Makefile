# A newcomer needs make demo and make test. Every target sets up what it uses in .venv.
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
MINUTES ?= 20
COUNT ?= 1000
SEED ?= $(shell date +%s)
CAMPAIGN_ARGS ?=
FRAMES ?= 100000
IDLE ?= 5000
# Images of containers often set it. Then each pytest would compile all test modules again.
export PYTHONDONTWRITEBYTECODE :=
DETERMINISTIC := not processes and not interop and not java
BY_TEST := -n auto --dist worksteal
BY_FILE := -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo test units units-short units-long quick unstable sim plant interop together check bench bench-compare images sbom e2e e2e-chart e2e-stories campaign fuzz format proto crds chart docs constraints clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(STAMP): constraints.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VERIFY): $(STAMP) constraints-verify.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r constraints-verify.txt
	@touch $@

setup: $(VERIFY) ## create .venv with the pinned packages and this project (make demo needs no Spark)

demo: $(STAMP) ## a whole group on loopback: faults, timeline, longest gap (ENGINE=apache: official brokers)
	$(BIN)/rocketmq-demo --engine $(ENGINE) $(DEMO_ARGS)

# Pure tests share all cores. Process tests mostly wait, so two files of them run side by side.
test: $(VERIFY) ## the tests that need no Java, or PYTEST_ARGS="tests/store -k NAME" (CI=true: a missing tool is a failure, not a skip)
ifeq ($(PYTEST_ARGS),)
	$(MAKE) units
	$(BIN)/python -m tests.gate processes $(BY_FILE) -m "processes and not interop and not java"
else
	$(BIN)/pytest $(PYTEST_ARGS)
endif

units: $(VERIFY) ## the deterministic part of make test
	$(BIN)/python -m tests.gate test $(BY_TEST) --hypothesis-seed=$(SEED) -m "$(DETERMINISTIC)"

# The two parts of make units, as .ci/run takes them. What is long only computes.
units-short: $(VERIFY)
	$(BIN)/python -m tests.gate test $(BY_TEST) --hypothesis-seed=$(SEED) -m "$(DETERMINISTIC) and not long"

units-long: $(VERIFY)
	$(BIN)/python -m tests.gate long $(BY_TEST) --hypothesis-seed=$(SEED) -m "$(DETERMINISTIC) and long" $$($(BIN)/python -m tests.gate.marked long)

quick: check ## make check, and the deterministic tests of the packages that differ from BASE (the last commit)
	$(BIN)/pytest $(BY_TEST) -m "$(DETERMINISTIC)" $$($(BIN)/python -m tests.gate.touched $(or $(BASE),HEAD))

plant: $(STAMP) ## damage stores at random and verify them (COUNT=10000, SEED=7, WAY=--sidecars)
	$(BIN)/python -m tests.verify.ways.planter $(COUNT) $(SEED) $(WAY)

sim: $(STAMP) ## simulate quorums, controllers, changes of members and groups from other seeds (COUNT=1000 of each, SEED=7)
	$(BIN)/python -m tests.sim --kind quorum controllers members groups outages --seed $(SEED) --count $(COUNT)

interop: $(VERIFY) ## the tests with Spark and with official brokers and clients: needs Java 17, Maven and Go
	$(BIN)/python -m tests.interop.needs
	$(BIN)/python -m tests.gate interop -m "interop or java" $(PYTEST_ARGS)

# Official brokers and Spark keep two cores busy: one file of them at a time, and beside it one of our own processes.
together: $(VERIFY) ## make interop, and at the same time the rest of make test
	$(BIN)/python -m tests.interop.needs
	$(BIN)/python -m tests.gate together $(BY_FILE) --gate-lanes -m "processes or interop or java" $$($(BIN)/python -m tests.gate.marked together)

unstable: $(VERIFY) ## the tests that have left the gate, with the reasons
	files=$$(grep -rlE 'mark\.unstable' tests --include='test_*.py' --exclude-dir=gate); \
	  if [ -n "$$files" ]; then $(BIN)/python -m tests.gate unstable -n 0 --gate-unstable $$files; else echo "no test has left the gate"; fi

check: $(VERIFY) ## format, lint, types, import borders, generated files, citations, plain English, tests that depend on speed, tasks whose failure is not reported
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python hack/proto.py --check
	$(BIN)/python hack/crds.py --check
	$(BIN)/python hack/chart.py --check
	$(BIN)/python hack/crd_reference.py --check
	$(BIN)/python hack/configuration.py --check
	$(BIN)/python hack/citations.py --check
	$(BIN)/python hack/english.py --check
	$(BIN)/python hack/real_time.py --check
	$(BIN)/python hack/background.py --check

bench: $(VERIFY) ## rocketmq-ha and Apache RocketMQ side by side; results in build/bench
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-compare: $(STAMP) ## this checkout against the commit BASE, without Java; results in build/bench-compare
	$(BIN)/python -m benchmarks.compare $(BASE) $(BENCH_ARGS)

images: ## build the images as rocketmq-ha/NAME:TAG (TAG=dev)
	hack/images.sh $(TAG)

sbom: images ## write the bills of materials of the images to build/sbom
	hack/sbom.sh $(TAG)

e2e: $(VERIFY) ## the tests on Kubernetes: needs docker, kind, kubectl and Helm (E2E_ARGS="-k NAME --keep-cluster")
	hack/e2e.sh run $(E2E_ARGS)

# The two parts of make e2e, as .ci/run takes them. The first one starts no group of brokers. Both wait most of the time, and so the stories
# run in two lanes: those with official brokers or Spark, and beside them those with our own processes only.
e2e-chart: $(VERIFY)
	E2E_PHASE=chart hack/e2e.sh run e2e/api e2e/chart e2e/test_images.py e2e/test_kit.py

e2e-stories: $(VERIFY)
	E2E_PHASE=stories hack/e2e.sh run $(BY_FILE) --gate-lanes e2e/stories

campaign: $(STAMP) ## inject faults into real processes and check the promises (MINUTES=20 SEED=7; needs root, a C compiler, and Java from 10 minutes on)
	hack/campaign.sh --minutes $(MINUTES) --seed $(SEED) $(CAMPAIGN_ARGS)

fuzz: $(VERIFY) ## send mutated frames and open idle connections to every port of a group on loopback (FRAMES=100000 IDLE=5000 SEED=7)
	$(BIN)/python -m tests.fuzz --frames $(FRAMES) --idle $(IDLE) --seed $(SEED)

format: $(STAMP) ## format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(STAMP) ## generate the Python code of libs/rocketmq_api/*.proto
	$(BIN)/python hack/proto.py

crds: $(STAMP) ## write crds/*.yaml from libs/rocketmq_resources/schema, then what is made from them
	$(BIN)/python hack/crds.py
	$(BIN)/python hack/chart.py
	$(BIN)/python hack/crd_reference.py

chart: $(STAMP) ## copy CRDs, version and the table of values into helm/rocketmq-ha
	$(BIN)/python hack/chart.py

docs: $(STAMP) ## generate docs/crd-reference.md and the tables of keys in docs/configuration.md and docs/operator.md
	$(BIN)/python hack/crd_reference.py
	$(BIN)/python hack/configuration.py

constraints: ## pin hack/requirements.in again
	hack/constraints.sh

clean: ## remove everything that the other targets created
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .pytest-kind
