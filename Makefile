# make run           a live monitor over a real producer, on an embedded broker (or BOOTSTRAP=host:9092)
# make test          all tests, on real services; installs missing packages
# make check         the quick loop: format, lint, types, unit tests that are not slow
# make docs          the documentation site, built with --strict into site/
# make advisories    known security advisories of every pinned package and jar; reports if the database is unreachable
# make faults        every scenario of tests/scenarios/faults against real and embedded brokers, 45 minutes at most
# make faults-long   100,000 messages per scenario and a thousand kills; resumes after an interrupt
# make bench         every benchmark that fits in an hour, into benchmarks/README.md; resumes after an interrupt
# make bench-quick   the same at tiny counts, in two minutes, to verify that each benchmark runs
# make soak          half an hour of steady sending while the network fails at random, to find leaks (MINUTES=60)
# make pipeline-test the Spark jobs at full size, with kill -9 of drivers and workers; resumes after an interrupt
# make tokens-long   an hour of sending with tokens of 30 seconds, while their source and the broker fail in turn
# make native-long   the native core: 200 kill -9 on real brokers, and random calls under ASan and UBSan; needs gcc
# make replays-long  200,000 dead letters per scenario, replayed under kill -9, SIGSTOP and lost responses; resumes too
# Without bytecode, each test process compiles every module again: five to ten times the CPU time.
unexport PYTHONDONTWRITEBYTECODE
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PORT ?= 8501
MINUTES ?= 30
AGAIN = { echo "Failed tests run once more, alone:"; $(BIN)/python -m pytest --last-failed --last-failed-no-failures none; }
PIP := VIRTUAL_ENV=.venv $(BIN)/uv pip install --quiet

.PHONY: help run test check lint quick units docs advisories format lock clean setup setup-dev services faults faults-long replays-long native-long tokens-long bench bench-quick soak pipeline-test

help:
	@sed -n 's/^# //p' $(MAKEFILE_LIST)

run: .venv/.run
	@exec $(BIN)/python -m producer_core.simulate.live --port $(PORT) $(if $(BOOTSTRAP),--bootstrap-servers $(BOOTSTRAP))

# Tests of real processes can be late on a loaded machine. Failed tests run once more, alone, and both results are shown:
# a real fault fails twice. Services wait more than they compute, so four workers share two cores.
test: export PRODUCER_CORE_REQUIRE_SERVICES := 1
test: .venv/.dev services units
	@bad=0; \
	$(BIN)/python -m pytest -n 4 --dist loadgroup --no-loadscope-reorder -m "not browser and not jupyter" tests/integration tests/acceptance tests/scenarios || $(AGAIN) || bad=1; \
	$(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "browser or jupyter" tests/acceptance || $(AGAIN) || bad=1; exit $$bad

check: lint quick

lint: .venv/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file tests/mypy.ini tests/integration tests/acceptance tests/scenarios tests/processes

quick: .venv/.dev
	@$(BIN)/python -m pytest -q -n 3 -m "not slow" tests/unit || $(AGAIN)

units: quick
	@$(BIN)/python -m pytest -q -n 3 -m slow tests/unit || $(AGAIN)

faults: .venv/.dev services
	@$(BIN)/python -m tests.scenarios.faults run --out artifacts/faults

faults-long: .venv/.dev services
	@$(BIN)/python -m tests.scenarios.faults run --long --resume --out artifacts/faults-long

replays-long: .venv/.dev services
	@$(BIN)/python -m tests.scenarios.replays run --dead-letters 200000 --resume --out artifacts/replays-long

tokens-long: .venv/.dev services
	@PRODUCER_CORE_TOKENS_SECONDS=3600 $(BIN)/python -m pytest tests/integration/kafka/test_tokens.py -k 30_seconds

native-long: .venv/.dev services
	@mkdir -p artifacts && $(BIN)/python scripts/build_native.py artifacts/core-asan.so -fsanitize=address,undefined -g
	@ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD="$$(gcc -print-file-name=libasan.so):$$(gcc -print-file-name=libubsan.so)" \
		$(BIN)/python -m tests.processes.native_fuzz 600 $$RANDOM artifacts/core-asan.so
	@PRODUCER_CORE_KILLS=200 $(BIN)/python -m pytest --timeout 3600 -k "killed_repeatedly and native" \
		tests/integration/delivery/exactly_once/test_transactional_transport.py

bench: .venv/.dev services
	@$(BIN)/python -m benchmarks --write

bench-quick: .venv/.dev services
	@$(BIN)/python -m benchmarks --quick

soak: .venv/.dev services
	@$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)

pipeline-test: .venv/.dev services
	@$(BIN)/python -m tests.scenarios.pipelines run --resume --out artifacts/pipelines

docs: .venv-docs/.done
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict --quiet
	@echo "The documentation is in site/. To read and search it: python3 -m http.server -d site"

advisories:
	@$(PYTHON) scripts/advisories.py

format: .venv/.dev
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

services: .venv/.dev
	@scripts/setup_services.sh $(BIN)

# Two sets of packages, both pinned with hashes. The larger contains the smaller, so no package is ever removed.
.venv/.uv:
	@scripts/make_venv.sh $(PYTHON)
	@touch $@

.venv/.run: .venv/.uv requirements.lock pyproject.toml
	@test -e .venv/.dev || { echo "Installing what the demo needs (once) …" && $(PIP) --require-hashes -r requirements.lock; }
	@$(PIP) --no-deps -e .
	@touch $@

.venv/.dev: .venv/.uv requirements-dev.lock pyproject.toml
	@echo "Installing what the tests need (once; PySpark alone is 430 MB) …"
	@$(PIP) --require-hashes -r requirements-dev.lock
	@$(PIP) --no-deps -e .
	@$(BIN)/python scripts/build_native.py
	@touch $@ .venv/.run

# A virtual environment of its own, so that .venv keeps the packages of the tests only.
.venv-docs/.done: .venv/.uv requirements-docs.lock
	@test -e .venv-docs/bin/python || $(BIN)/uv venv --quiet --python $(BIN)/python .venv-docs
	@VIRTUAL_ENV=.venv-docs $(BIN)/uv pip install --quiet --require-hashes -r requirements-docs.lock
	@touch $@

lock: .venv/.uv
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--extra run pyproject.toml -o requirements.lock
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--extra all --group dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
		--group docs -c requirements-dev.lock pyproject.toml -o requirements-docs.lock

clean:
	@rm -rf .venv .venv-docs site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
