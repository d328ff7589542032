# `make run` installs and measures, also without a GPU. `make test` runs all tests. Both install into .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt
ARGS ?= all_reduce -b 8 -e 64M -f 2
FAULTS ?= --runs 300 --seed 1
RATES := tests/native/test_net_rates.py # judges by rates, which needs an idle machine
# start processes and networks, and mostly wait
SYSTEM := $(addprefix tests/,e2e faults native netlab) $(addprefix accel/tests/,e2e netlab)
NEWEST := 3.14 # of Python, for types in `make test-versions`; pyproject.toml has the oldest
# of pure functions and tables: 54 CPU seconds without what tries many examples (hypothesis)
FAST := -m "not hypothesis" $(addprefix tests/unit/,core history model test_style.py test_groups.py test_fact_tables.py \
	check/test_checks.py check/test_findings.py cli/test_option_meanings.py)
PLAIN := $(addprefix tests/unit/,check cli core docs history host launch measure model pattern report stats) # without PyTorch
# rustc links with cc. A cargo that is a proxy of rustup without a toolchain counts as missing.
CARGO := $(and $(shell command -v cc),$(shell cargo --version 2>/dev/null))
NATIVE := --manifest-path native/Cargo.toml
unexport PYTHONDONTWRITEBYTECODE # tests start hundreds of interpreters, which share compiled modules

.PHONY: help run check test test-tools test-times test-versions suite lint plugin cargo system format \
	docs site bench faults job-faults deep version dist clean

help: ## print this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'
$(BIN)/python: ; $(PYTHON) -m venv .venv
.venv/run.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[mpi]' && touch $@
.venv/lint.stamp: .venv/run.stamp requirements-dev.txt accel/pyproject.toml
	$(PIP) -r requirements-dev.txt -e accel && touch $@
.venv/test.stamp: .venv/lint.stamp
	$(PIP) -e '.[mpi,torch,cuda13,nixl-cu13]' -e accel && touch $@
.venv/dist.stamp: .venv/run.stamp requirements-dist.txt
	$(PIP) -r requirements-dist.txt && touch $@

run: .venv/run.stamp ## install, then measure all_reduce over 2 CPU ranks (ARGS=... for another run)
	$(BIN)/busbw run $(ARGS)

check: lint ## lint, and in under a minute of CPU time the tests of pure functions, tables and texts
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup $(FAST)

test: .venv/test.stamp ## lint, and run all tests; skips those whose program is missing (make test-tools)
ifeq ($(CARGO),)
	@echo "no cargo, or no cc: leaving out the Rust checks; install Rust 1.85 or newer (https://rustup.rs), and gcc (make test-tools)"
endif
	@$(MAKE) --no-print-directory --jobs=3 suite system $(if $(CARGO),cargo)

test-tools: ## install what tests look for, as root on Debian; starts no service
	tools/test_tools.sh

test-times: .venv/test.stamp ## the CPU seconds of each test file (TESTS=... for some of them)
	PYTHONPATH=tools $(BIN)/python -m pytest -q -n 2 --dist loadgroup -p cpu_times $(TESTS)

test-versions: .venv/lint.stamp ## unit tests that need no PyTorch, on each Python from 3.11 to 3.14 that is here
	$(BIN)/mypy --python-version $(NEWEST)
	tools/test_versions.sh $(PLAIN)

suite: .venv/test.stamp lint ## the tests of modules and of trainings
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(addprefix --ignore=,$(SYSTEM))

lint: .venv/lint.stamp ## check formatting, lint, types and import layers
	$(BIN)/ruff format --check . && $(BIN)/ruff check .
	$(BIN)/mypy && $(BIN)/lint-imports --no-cache

plugin: ## build the network plugin
	unset MAKEFLAGS MFLAGS; cargo build --quiet --release $(NATIVE) --package busbw-plugin

# all targets but documentation tests: no crate has any, and to look for them takes 5 CPU seconds
cargo: plugin ## check formatting and lint of native/, and test it
	unset MAKEFLAGS MFLAGS; export CARGO_INCREMENTAL=0; cargo fmt --all --check $(NATIVE) && \
	cargo clippy --quiet --all-targets $(NATIVE) -- -D warnings && \
	cargo test --quiet --all-targets $(NATIVE)

system: .venv/test.stamp $(if $(CARGO),plugin) ## the tests of whole runs: command lines, faults, networks, the plugin
	$(BIN)/python -m pytest -n 4 --dist loadgroup --ignore=$(RATES) $(SYSTEM)

format: .venv/lint.stamp ## format the code
	$(BIN)/ruff format . && $(BIN)/ruff check --fix . $(if $(CARGO),&& cargo fmt --all $(NATIVE))

.venv/site.stamp: .venv/run.stamp requirements-site.txt
	$(PIP) -r requirements-site.txt && touch $@

docs: .venv/test.stamp ## generate docs/reference, manual pages and schemas from the tables
	$(BIN)/python docs/generate.py

site: .venv/site.stamp ## build the documentation as web pages in site/, which need no server
	rm -rf site && $(BIN)/python -m sphinx -qEnW --keep-going -c docs/site -d build/site . site && echo "open site/index.html"

bench: .venv/test.stamp ## compare the mpi engine with a plain mpi4py loop, and the network plugin with plain TCP
	$(BIN)/python benchmarks/mpi_overhead.py && $(BIN)/python benchmarks/net_loopback.py && $(BIN)/python -m pytest -n 0 $(RATES)

faults: .venv/test.stamp ## inject 300 seeded faults on emulated hosts and check how each run ends (needs root; FAULTS=...)
	$(BIN)/python tests/faults/run.py $(FAULTS)

job-faults: .venv/test.stamp ## inject seeded faults into a training and see whom busbw watch job names (JOB_FAULTS="OUT --ranks 3 -- train.py ...")
	$(BIN)/python benchmarks/job_faults.py $(JOB_FAULTS)

deep: .venv/test.stamp ## many examples of each property; fuzz all readers of files; loom, fuzzing and AddressSanitizer for native/; minutes, needs nightly Rust
	HYPOTHESIS_PROFILE=deep $(BIN)/python -m pytest -q -n 2 --dist loadgroup -m hypothesis tests/unit
	$(BIN)/python tools/fuzz/readers.py --seconds 120
	native/deep.sh

version: ## copy the version of src/busbw/core/version.py to accel/ and native/
	$(PYTHON) tools/versions.py --write

dist: .venv/dist.stamp ## build wheels, sdists, SBOMs and checksums of busbw, busbw-accel and busbw-native in dist/, and check them
	$(BIN)/python tools/dist.py

clean: ## remove everything that make created
	rm -rf .venv build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis native/target native/fuzz/target && find . -name __pycache__ -type d -prune -exec rm -rf {} +
