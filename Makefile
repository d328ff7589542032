# `make run` measures on a fresh machine without a GPU; `make test` is the test command. Everything lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile -c constraints.txt
ARGS ?= all_reduce -b 8 -e 64M -f 2
FAULTS ?= --runs 200 --seed 1
QUIET := tests/native/test_net_rates.py
WAITING := $(filter-out %/test_net_loaders.py $(QUIET),$(wildcard tests/native/test_*.py)) tests/netlab/test_launch_two_hosts.py # without PyTorch's NCCL
NATIVE := --manifest-path native/Cargo.toml
unexport PYTHONDONTWRITEBYTECODE # tests start hundreds of interpreters: what one has compiled serves the others

.PHONY: help run test suite lint cargo waiting format docs bench faults deep clean

help: ## this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'
$(BIN)/python: ; $(PYTHON) -m venv .venv
.venv/run.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[mpi]' && touch $@
.venv/lint.stamp: .venv/run.stamp requirements-dev.txt
	$(PIP) -r requirements-dev.txt && touch $@
.venv/test.stamp: .venv/lint.stamp
	$(PIP) -e '.[mpi,torch,cuda13]' && touch $@

run: .venv/run.stamp ## install, then measure all_reduce over 2 CPU ranks (ARGS=... for another run)
	$(BIN)/busbw run $(ARGS)

test: ## install all that the tests need, lint, and run every test: what waits beside what computes, then what needs a quiet machine
	@$(MAKE) --no-print-directory --jobs=2 suite waiting && $(BIN)/python -m pytest -n 0 $(QUIET)
suite: .venv/test.stamp lint
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(patsubst %,--ignore %,$(WAITING) $(QUIET))

lint: .venv/lint.stamp ## format, lint, types and the layers of the house
	$(BIN)/ruff format --check . && $(BIN)/ruff check .
	$(BIN)/mypy && $(BIN)/lint-imports --no-cache

cargo: ## format, lint, tests and the library of native/
	unset MAKEFLAGS MFLAGS; cargo fmt --all --check $(NATIVE) && cargo clippy --quiet --all-targets $(NATIVE) -- -D warnings && \
	cargo test --quiet $(NATIVE) && cargo build --quiet --release $(NATIVE) --package plugin

waiting: .venv/lint.stamp cargo ## the tests that mostly wait, links that fail beside the others
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(WAITING)

format: .venv/lint.stamp ## rewrite the code in the house's format
	$(BIN)/ruff format . && $(BIN)/ruff check --fix . && cargo fmt --all $(NATIVE)

docs: .venv/test.stamp ## make docs/reference from the tables
	$(BIN)/python docs/generate.py

bench: .venv/test.stamp ## the mpi engine beside a bare mpi4py loop, and the net plugin beside raw TCP, on this machine
	$(BIN)/python benchmarks/mpi_overhead.py && $(BIN)/python benchmarks/net_loopback.py

faults: .venv/test.stamp ## 200 seeded faults on emulated hosts: no hang, the right name, nothing left, no row lost (root; FAULTS=...)
	$(BIN)/python tests/faults/run.py $(FAULTS)

deep: ## loom, fuzzing and AddressSanitizer for native/, some minutes; needs a nightly toolchain
	native/deep.sh

clean: ## remove what make made
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis native/target native/fuzz/target && find . -name __pycache__ -type d -prune -exec rm -rf {} +
