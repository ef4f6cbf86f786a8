# One command each. `make` alone lists them. Everything runs in .venv, which `make setup` creates and keeps up to date.
SHELL := /bin/sh
VENV := .venv
PYTHON := $(VENV)/bin/python
DATA ?= strandline-data
BROKERS ?= 3
MINUTES ?= 20
# make test TESTS=tests/unit/storage runs a part.
TESTS ?= tests
.DEFAULT_GOAL := help
.PHONY: help setup check format docs test soak demo up status down bench compat docker-test clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## create .venv and install everything (idempotent)
	@scripts/setup

check: setup ## format, lint, types, house rules
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy -p strandline
	$(PYTHON) -m pytest tests/unit/house

format: setup ## bring the code into shape
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: setup ## write docs/configuration.md from the table of keys
	@mkdir -p docs
	@$(VENV)/bin/strandline broker --reference > docs/.configuration.md
	@mv docs/.configuration.md docs/configuration.md

test: setup ## run every test
	$(PYTHON) -m pytest $(TESTS)

soak: setup ## property tests and crash points for long (MINUTES=20)
	STRANDLINE_SOAK_MINUTES=$(MINUTES) $(PYTHON) -m pytest -o faulthandler_timeout=0 \
		tests/soak tests/unit/storage/crash

demo: setup ## show the system at work; KEEP=1 leaves the cluster up
	@$(PYTHON) -m strandline.cli demo $(if $(KEEP),--keep)

up: setup ## start an embedded cluster (BROKERS=3 DATA=strandline-data)
	@$(VENV)/bin/strandline up --brokers $(BROKERS) --data $(DATA)

status: setup ## show the embedded cluster
	@$(VENV)/bin/strandline status --data $(DATA)

down: setup ## stop the embedded cluster
	@$(VENV)/bin/strandline down --data $(DATA)

bench: setup ## measure the write and read path against the ceiling
	$(PYTHON) tests/benchmarks/bench.py $(BENCH)

compat: setup ## let a real Kafka read our files and take them over, and the other way round (needs Maven)
	@scripts/maven
	STRANDLINE_COMPAT=1 $(PYTHON) -m pytest tests/compat

docker-test: setup ## try the compose files on a Docker engine of the test's own (needs root)
	@scripts/docker-test

clean: ## remove what can be made again
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(VENV)
