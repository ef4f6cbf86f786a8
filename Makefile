# One command each. `make` alone lists them. Everything runs in .venv, which `make setup` creates and keeps up to date.
SHELL := /bin/sh
VENV := .venv
PYTHON := $(VENV)/bin/python
DATA ?= strandline-data
BROKERS ?= 3
# Of each soak; where left out, storage gets 20 and the cluster 10.
MINUTES ?=
# Of a soak: how many moves an order of blows has, and which seeds are tried.
BLOWS ?= 6
SEEDS ?= 0-199
# Which blows make soak-clients deals, and the first round of make spark-soak.
SEED ?= 1
# How many rows go through source and sink in make spark-soak before that.
ROWS ?=
# The seeds of make soak-takeovers.
TAKEOVERS ?= 1-20
# How many records each client writes in make compat-clients.
RECORDS ?= 100000
# make test TESTS=tests/unit/storage runs a part.
TESTS ?= tests
.DEFAULT_GOAL := help
.PHONY: help setup check format docs test transcripts soak soak-cluster soak-moves soak-rolling soak-takeovers spark-soak demo up status down bench bench-background bench-clients bench-commands bench-control bench-failover bench-idle bench-kafka bench-metrics bench-scrape bench-spark bench-spark-sink bench-throttle compat compat-tools compat-clients compat-golden spark-conformance soak-clients soak-history docker-test docker-tools clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

setup: ## create .venv and install everything (idempotent)
	@scripts/setup

check: setup ## format, lint, types, house rules
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(PYTHON) -m pytest tests/unit/house

format: setup ## bring the code into shape
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: setup ## write the pages of docs/ that are made from tables and commands
	@mkdir -p docs
	@$(VENV)/bin/strandline broker --reference > docs/.configuration.md
	@mv docs/.configuration.md docs/configuration.md
	@PYTHONPATH=tests $(PYTHON) -m compat.spark_conformance --reference > docs/.spark-conformance.md
	@mv docs/.spark-conformance.md docs/spark-conformance.md
	@$(PYTHON) -m strandline.spark_connector.options.reference > docs/.spark-options.md
	@mv docs/.spark-options.md docs/spark-options.md
	@$(PYTHON) -m strandline.cli.command_pages docs/commands

transcripts: setup ## write the effects in tests/scenarios/*.txt anew, as they are now
	REWRITE_TRANSCRIPTS=1 $(PYTHON) -m pytest tests/scenarios/test_transcripts.py

test: setup ## run every test, in a process for each core and one that waits for brokers
	-@PYTHONPATH=$(CURDIR)/tests $(PYTHON) -m support.spark_classes
	$(PYTHON) -m pytest -n auto $(TESTS)

soak: setup ## property tests, crash points, orders of blows, the cluster under load for long (MINUTES=20)
	STRANDLINE_SOAK_MINUTES=$(or $(MINUTES),20) $(PYTHON) -m pytest -o faulthandler_timeout=0 \
		tests/soak tests/unit/storage/crash tests/unit/storage/segments/test_damage_indexes.py \
		tests/scenarios/test_stopped_controllers.py
	STRANDLINE_BLOWS=$(BLOWS) $(PYTHON) -m pytest -s -o faulthandler_timeout=0 tests/scenarios/test_orders_of_blows.py
	$(PYTHON) -m strandline.cli simulate --seeds $(SEEDS)
	$(PYTHON) tests/soak/cluster_soak.py --minutes $(or $(MINUTES),10) $(SOAK)

soak-cluster: setup ## only the cluster: a broker killed every 30 s (MINUTES=10)
	$(PYTHON) tests/soak/cluster_soak.py --minutes $(or $(MINUTES),10) $(SOAK)

soak-history: setup ## faults of many kinds on real processes, and what clients were told of a million records judged (SEED=1, SOAK="--records 100000")
	$(PYTHON) tests/soak/history_soak.py --seed $(SEED) $(SOAK)

soak-moves: setup ## partitions moved under load, brokers and controllers killed meanwhile (SEED=1, SOAK="--records 100000")
	$(PYTHON) tests/soak/moves_soak.py --seed $(SEED) $(SOAK)

soak-rolling: setup ## three brokers restarted in turn under load, until a million records (SEED=1, SOAK="--records 100000")
	$(PYTHON) tests/soak/rolling_soak.py --seed $(SEED) $(SOAK)

soak-takeovers: setup ## random takeovers between a real Kafka and ours (TAKEOVERS=1-20; needs Maven)
	@scripts/maven
	STRANDLINE_COMPAT=1 STRANDLINE_TAKEOVERS=$(TAKEOVERS) $(PYTHON) -m pytest -v tests/compat/test_random_takeovers.py

spark-soak: setup ## streams of Spark whose drivers, workers and brokers are killed (MINUTES=10 SEED=1 ROWS=10000000)
	$(PYTHON) tests/soak/spark_soak.py --minutes $(or $(MINUTES),10) --seed $(SEED) --rows $(or $(ROWS),0) $(SOAK)

demo: setup ## show the system at work; KEEP=1 leaves the cluster up
	@$(PYTHON) -m strandline.cli demo $(if $(KEEP),--keep)

up: setup ## start an embedded cluster (BROKERS=3 DATA=strandline-data)
	@$(VENV)/bin/strandline up --brokers $(BROKERS) --data '$(DATA)'

status: setup ## show the embedded cluster
	@$(VENV)/bin/strandline status --data '$(DATA)'

down: setup ## stop the embedded cluster
	@$(VENV)/bin/strandline down --data '$(DATA)'

bench: setup ## measure the write and read path against the ceiling
	$(PYTHON) tests/benchmarks/bench.py $(BENCH)

bench-background: setup ## latency at 20 MB/s with and without background work, of one broker (BENCH="--brokers 3": of three)
	$(PYTHON) tests/benchmarks/background.py $(BENCH)

bench-clients: setup ## the Python client beside a bare round trip, and beside confluent-kafka and aiokafka where they are (BENCH="--only send": a part)
	$(PYTHON) tests/benchmarks/clients.py $(BENCH)

bench-commands: setup ## how long people wait for a million lines in and out, and for `up` after a kill (BENCH="--runs 1": fewer)
	$(PYTHON) tests/benchmarks/commands.py $(BENCH)

bench-control: setup ## 10,000 partitions led anew, 2000 created, brokers stopped and started in turn (BENCH="--case create": a part)
	$(PYTHON) tests/benchmarks/control_plane.py $(BENCH)

bench-failover: setup ## how long acks stay away after a SIGKILL, without and with 2000 partitions beside (BENCH="--runs 3": fewer; BENCH="--table": other faults beside Kafka)
	$(PYTHON) tests/benchmarks/failover.py $(BENCH)

bench-metrics: setup ## what counting costs a broker per request (BENCH="--rounds 2": fewer)
	$(PYTHON) tests/benchmarks/metrics_overhead.py $(BENCH)

bench-scrape: setup ## longest step of the loop while 10,000 partitions are told of (BENCH="--topics 10": one case)
	$(PYTHON) tests/benchmarks/scrape.py $(BENCH)

bench-idle: setup ## CPU of three brokers with 12, 1000 and 5000 idle partitions (BENCH="--partitions 1000": one case)
	$(PYTHON) tests/benchmarks/idle.py $(BENCH)

bench-kafka: setup ## Kafka 3.9 and ours in turn, with librdkafka as the client (BENCH="--runs 1 --case 16": a part)
	@scripts/maven
	@scripts/kafka-clients
	@scripts/librdkafka-tests
	@gcc -O2 tests/benchmarks/rdkperf.c -I.cache/librdkafka/src .cache/librdkafka/src/librdkafka.a \
		-lm -lz -lpthread -ldl -o .cache/rdkperf
	$(PYTHON) tests/benchmarks/against_kafka.py $(BENCH)

bench-spark: setup ## rows per second that Spark reads, beside its own Kafka source (BENCH="--query count --parts": a part, in stages)
	$(PYTHON) tests/benchmarks/spark_source.py $(BENCH)

bench-spark-sink: setup ## rows per second that Spark writes, beside its own Kafka sink; micro-batches, memory (BENCH="--part rates": a part)
	$(PYTHON) tests/benchmarks/spark_sink.py $(BENCH)

bench-throttle: setup ## latency of producers while a replica is filled: at full speed, throttled, not at all (BENCH="--rounds 1": fewer)
	$(PYTHON) tests/benchmarks/throttle.py $(BENCH)

compat: compat-tools ## try Kafka's clients and tools, and Prometheus, on us, let a real Kafka take our files over and back (needs Maven, kcat)
	@PYTHONPATH=tests $(PYTHON) -m compat.class_archives
	STRANDLINE_COMPAT=1 $(PYTHON) -m pytest -n 2 tests/compat

compat-tools: setup
	@scripts/maven
	@scripts/prometheus
	@scripts/kafka-clients
	@scripts/librdkafka-tests

compat-clients: setup ## only other Kafka clients, each with many records (RECORDS=100000), and librdkafka's tests
	@scripts/maven
	@scripts/kafka-clients
	@scripts/librdkafka-tests
	STRANDLINE_COMPAT=1 STRANDLINE_COMPAT_RECORDS=$(RECORDS) STRANDLINE_COMPAT_SUITE=long $(PYTHON) -m pytest -v \
		--durations=0 -o faulthandler_timeout=0 tests/compat/test_clients.py tests/compat/test_librdkafka_suite.py

soak-clients: setup ## other Kafka clients while brokers are killed, paused and stopped, for long (MINUTES=10 SEED=1)
	@scripts/maven
	@scripts/kafka-clients
	STRANDLINE_COMPAT=1 STRANDLINE_SOAK_MINUTES=$(or $(MINUTES),10) STRANDLINE_SEED=$(SEED) \
		$(PYTHON) -m pytest -v -s -o faulthandler_timeout=0 tests/compat/test_clients_under_faults.py

spark-conformance: setup ## every query against Spark's own Kafka connector and ours, and a table of where they differ (needs Maven; CASES="--case headers": a part)
	@scripts/maven
	@PYTHONPATH=tests $(PYTHON) -m compat.spark_conformance $(CASES)

compat-golden: setup ## write anew what Kafka's tools say about a real Kafka, which make compat compares (needs Maven)
	@scripts/maven
	PYTHONPATH=tests $(PYTHON) -m compat.record_golden

docker-test: setup ## try the compose files on a Docker engine of the test's own (needs root)
	@scripts/docker-test

docker-tools: setup
	@scripts/docker-test --install

clean: ## remove what can be made again
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis $(VENV)
