# All commands of the project. Nothing is installed outside this folder: Python packages go to .venv, Kafka to .kafka.
#
#   make demo         see it work: a group, and a real Spark, on brokers in Python   (BROKER=kafka: on a real Kafka)
#   make test         checks and tests; make test-long adds the long tests; make lint runs only the checks
#   make test-pythons tests without a broker and Spark, on each other Python on PATH or in pyenv (3.11 or newer)
#   make simulate     simulate thousands of clusters that fail, each from a seed   (N=10000; SEED=5 runs one again)
#   make mutants      change the code wrongly, one place at a time; list the changes that no fast test notices
#                     (N=500; SEED=5; MUTANT=1a2b3c4d runs one of them again)
#   make fuzz         look for batches that crash the C decoder, with sanitizers, and for answers that the parsers of
#                     SASL can't stand   (SECONDS=60; INPUTS=10000000; SEED=5)
#   make bench        compare it with other clients; make bench-rebalance: groups that rebalance; make bench-spark
#   make kafka        a local Kafka until Ctrl-C; prints its address   (ARGS="--nodes 3 --topic events:6 --version 2.8.2")
#   make wheel        build the wheel for this machine and this Python into dist/, and test it
#   make docs         build the documentation site into site/   (the pages and their pictures are in docs/)
#   make clean        remove what the other commands have made
#
# ARGS are passed on to the command, for instance to pytest: make test ARGS="tests/net -x". PYTHON chooses the
# interpreter (3.11 or newer).

SHELL := /bin/sh
.DEFAULT_GOAL := help

NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.15 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$name && break; done)
VENV_PYTHON := $(CURDIR)/.venv/bin/python

# The environment is made once, and again when dev.lock, pyproject.toml, the C extension or the interpreter change.
# Without a C compiler it has no extension, and records are decoded in Python. setuptools comes first, since pip builds
# PySpark from source: in an environment of its own it would use a setuptools that no hash vouches for.
KEY := $(shell cat dev.lock pyproject.toml aiokc/_native/*.[ch] | $(PYTHON) -c \
	'import hashlib, sys; print(hashlib.sha256((sys.stdin.read() + sys.version).encode()).hexdigest()[:12])' 2>/dev/null)
READY := .venv/ready-$(KEY)
PIP := $(VENV_PYTHON) -m pip --disable-pip-version-check

# Spark starts its Python workers with these interpreters.
export PYSPARK_PYTHON := $(VENV_PYTHON)
export PYSPARK_DRIVER_PYTHON := $(VENV_PYTHON)
export AIOKC_KAFKA_HOME ?= $(CURDIR)/.kafka
# Where no bytecode may be written, as in many containers, each of hundreds of processes would compile all of aiokc again.
unexport PYTHONDONTWRITEBYTECODE
ARGS ?=
# What the demo runs on: cluster (aiokc's brokers in Python) or kafka.
BROKER ?= cluster
N ?= 1000
SEED ?=
MUTANT ?=
SECONDS ?= 60
INPUTS ?= 10000000

LINT = { echo "== ruff" && $(VENV_PYTHON) -m ruff check . && $(VENV_PYTHON) -m ruff format --check . && \
	echo "== mypy --strict" && $(VENV_PYTHON) -m mypy && $(VENV_PYTHON) -m mypy docs/demo && $(VENV_PYTHON) -m mypy docs/site && \
	echo "== layers" && $(VENV_PYTHON) -c 'from importlinter.cli import lint_imports_command; lint_imports_command()'; }

# The tests of records once more, without the extension. Skipped if ARGS selects some tests. Not those that compare the
# code in C with Python's, nor tests/_native: they call code in C by name, which who has no extension does not have.
BOTH_BY_NAME := $(addprefix tests/records/,columns/test_columns.py packed/test_packed_runs.py test_record_span.py)
OTHER_DECODER = $(if $(ARGS),:,echo "== tests of records decoded in Python" && AIOKC_NATIVE=0 $(VENV_PYTHON) -m pytest -q $(1) \
	$(BOTH_BY_NAME:%=--ignore=%) --ignore tests/records/compression tests/records tests/test_record_contract.py)

# `make test` without ARGS runs lint and four parts beside each other, since most tests wait more than they work: those
# that start programs (Spark, Kafka, other processes); those of groups, of security and of the test cluster; those of
# clients, of the simulation, and of what others read and write; and all others, behind them the decoder in Python and
# the C decoder under sanitizers. All but the last one's output comes at the end.
SANITIZED := tests/_native/test_sanitized.py
# With security the file of the doctor, which else would be the only one to start a Kafka with TLS among the clients'.
GROUPS := tests/client/group tests/security tests/testing tests/client/doctor/test_doctor_with_kafka.py
CLIENTS := tests/client tests/scenarios tests/simulation tests/written
# Spark comes last, when the other parts are done or nearly so: it gives its Python processes 10 s to start, which no
# option changes, and on a busy machine that may be too little beside three parts.
PROGRAMS := tests/docs tests/testing/kafka tests/suite/test_conftest.py tests/test_wheel.py tests/spark
PYTEST = $(VENV_PYTHON) -m pytest -m "not long"
OF_PROGRAMS = { echo "== tests of what starts programs" && $(PYTEST) -q $(PROGRAMS); }
OF_GROUPS = { echo "== tests of groups and security" && $(PYTEST) -q $(GROUPS) $(PROGRAMS:%=--ignore=%); }
OF_CLIENTS = { echo "== tests of clients" && $(PYTEST) -q $(CLIENTS) $(GROUPS:%=--ignore=%); }
OF_ALL_ELSE = { echo "== tests" && \
	$(PYTEST) --deselect $(SANITIZED) $(PROGRAMS:%=--ignore=%) $(GROUPS:%=--ignore=%) $(CLIENTS:%=--ignore=%); first=$$?; \
	$(call OTHER_DECODER,-m "not long") && echo "== the C decoder under sanitizers" && $(PYTEST) -q $(SANITIZED) && \
	test $$first -eq 0; }

# Tests on real old brokers, which aiokc promises to work with.
OLD_VERSIONS = from aiokc.testing.kafka.jars import OLD_VERSIONS; print(*OLD_VERSIONS)
OLD_KAFKAS = $(if $(ARGS),:,for version in $$($(VENV_PYTHON) -c '$(OLD_VERSIONS)'); do echo "== tests on Kafka $$version" && \
	$(VENV_PYTHON) -m pytest -q --kafka $$version || exit 1; done)

# Tests on older releases of Spark.
OLD_SPARKS = from tests.suite.spark_releases import OLD_SPARKS; print(*OLD_SPARKS)
ON_OLD_SPARKS = $(shell grep -rls --include='test_*.py' every_spark tests/spark)
OLDER_SPARKS = $(if $(ARGS),:,for version in $$($(VENV_PYTHON) -c '$(OLD_SPARKS)'); do echo "== tests on PySpark $$version" && \
	AIOKC_SPARK=$$version $(VENV_PYTHON) -m pytest -q $(ON_OLD_SPARKS) || exit 1; done)

# Tests on other Pythons: those that need neither a broker nor Spark.
OTHER_PYTHONS = $(if $(ARGS),:,$(VENV_PYTHON) -m tests.suite.other_pythons)

.PHONY: help setup jars demo lint test test-long test-pythons simulate mutants fuzz bench bench-rebalance bench-spark kafka wheel docs clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(READY)

$(READY):
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer on PATH: install one (apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { echo "error: $(PYTHON) is no Python 3.11 or newer: name another one, make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "error: $(PYTHON) cannot make virtual environments: install its venv package (apt-get install python3-venv), or name another one, make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@echo "== setting up .venv with $$($(PYTHON) --version) (once; a few minutes where nothing is cached)"
	@wanted=$$($(PYTHON) --version); test "$$($(VENV_PYTHON) --version 2>/dev/null)" = "$$wanted" || $(PYTHON) -m venv --clear .venv
	@rm -f .venv/ready-*
	sed -n '/^setuptools==/,/[^\\]$$/p' dev.lock | $(PIP) install --require-hashes -r /dev/stdin
	$(PIP) install --no-build-isolation --require-hashes -r dev.lock
	$(PIP) install --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
	@touch $@

jars: $(READY)
	@$(VENV_PYTHON) -m aiokc.testing.kafka --fetch

demo: $(if $(filter kafka,$(BROKER)),jars,$(READY))
	@$(VENV_PYTHON) docs/demo --broker $(BROKER) $(ARGS)

lint: $(READY)
	@$(LINT)

test: $(if $(ARGS),lint) jars
ifneq ($(ARGS),)
	@echo "== tests" && $(PYTEST) $(ARGS)
else
	@said=$$(mktemp -d) && { \
	$(LINT) > "$$said/lint" 2>&1 & lint=$$!; \
	$(OF_PROGRAMS) > "$$said/programs" 2>&1 & programs=$$!; \
	$(OF_GROUPS) > "$$said/groups" 2>&1 & groups=$$!; \
	$(OF_CLIENTS) > "$$said/clients" 2>&1 & clients=$$!; \
	trap 'kill $$lint $$programs $$groups $$clients; rm -rf "$$said"; exit 130' INT TERM; \
	$(OF_ALL_ELSE); all=$$?; for part in $$lint $$programs $$groups $$clients; do wait $$part || all=1; done; \
	cat "$$said/lint" "$$said/clients" "$$said/groups" "$$said/programs"; rm -rf "$$said"; exit $$all; }
endif

test-long: lint jars
	@echo "== tests, the long ones too" && $(VENV_PYTHON) -m pytest --hypothesis-profile thorough $(ARGS)
	@$(OLD_KAFKAS)
	@$(OLDER_SPARKS)
	@$(call OTHER_DECODER)
	@$(OTHER_PYTHONS)

test-pythons: jars
	@$(VENV_PYTHON) -m tests.suite.other_pythons $(ARGS)

simulate: $(READY)
	@$(VENV_PYTHON) -m tests.simulation $(if $(SEED),--seed $(SEED),-n $(N)) $(ARGS)

mutants: $(READY)
	@nice $(VENV_PYTHON) -m tests.mutants $(if $(MUTANT),--mutant $(MUTANT)) $(if $(filter-out file,$(origin N)),-n $(N)) \
		$(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: $(READY)
	@$(VENV_PYTHON) -m tests._native.fuzz $(SECONDS) $(SEED)
	@$(VENV_PYTHON) -m tests.core.sasl.fuzz $(INPUTS) $(SEED)

bench: jars
	@$(VENV_PYTHON) -m benchmarks $(ARGS)

bench-rebalance: jars
	@$(VENV_PYTHON) -m benchmarks.rebalance $(ARGS)

bench-spark: jars
	@$(VENV_PYTHON) -m benchmarks.spark $(ARGS)

kafka: jars
	@exec $(VENV_PYTHON) -m aiokc.testing.kafka $(ARGS)

docs: $(READY)
	@$(VENV_PYTHON) docs/site

wheel: $(READY)
	@$(VENV_PYTHON) -m wheels

clean:
	rm -rf .venv .kafka build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf .mutants site spark-warehouse aiokc/_native/extension.*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
