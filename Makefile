# Everything works from a fresh clone with Python 3.11 or newer and the package index.
PYTHON ?= python3
BIN := .venv/bin
# Python compiles a module when it is first imported; for pip to compile all of them takes longer than their downloads.
export PIP_NO_COMPILE := 1
# uv installs the same packages in a quarter of the time; pip does it where uv cannot, as with an index of pip.conf alone.
install = $(BIN)/uv pip install --quiet --python $(BIN)/python --editable $(1) || $(BIN)/pip install --quiet --editable $(1)
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo paper flower test test-all check docs linkcheck bench clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

setup: .venv/ready ## Make the virtual environment of developers (the other targets make what they need)

.venv/made:
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "fedpick needs Python 3.11 or newer; set PYTHON=python3.x")'
	$(PYTHON) -m venv .venv
	-$(BIN)/pip install --quiet uv
	touch $@

# What fedpick itself needs, without the extras: some 0.6 GB, where the tests and the docs bring 2 GB.
.venv/light: .venv/made pyproject.toml
	$(call install,.)
	touch $@

.venv/flower: .venv/light
	$(call install,'.[flower]')
	touch $@

.venv/ready: .venv/made pyproject.toml
	$(call install,'.[dev]')
	touch .venv/light .venv/flower $@

demo: .venv/light ## Compare the strategies: the table, the answer, and a page (comparison/report.html)
	$(BIN)/fedpick compare

paper: .venv/light ## Reproduce the paper: a smaller form of all, paper-quick/paper.html (in full: fedpick paper --all)
	$(BIN)/fedpick paper --all --quick

flower: .venv/flower ## Run Power-of-Choice on Flower: a SuperLink and eight SuperNodes as processes on this machine
	$(BIN)/fedpick federate --clients 8 --rounds 5

# Compiling is a good part of the tests: here it is done quickly, and in test-all as users have it. XLA ends a process
# that gives it a flag it does not know, so the flags that another version of it may lack are tried first.
QUICK := --xla_backend_optimization_level=0
QUICKER := $(QUICK) --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1

# Measuring the coverage takes time: make test COVERAGE= goes without.
COVERAGE ?= --cov --cov-report=term

test: setup ## Run the tests and show the branch coverage
	flags="$(QUICKER)"; XLA_FLAGS="$$flags" $(BIN)/python -c 'import jax; jax.numpy.zeros(1)' 2>/dev/null || flags="$(QUICK)"; \
	XLA_FLAGS="$$XLA_FLAGS $$flags" $(BIN)/pytest -n 2 --dist loadfile -m 'not slow' $(COVERAGE)

test-all: setup ## Run the tests, the heavy ones too
	$(BIN)/pytest -n 2 --dist loadfile $(COVERAGE)

check: setup ## Format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: setup ## Build the site from docs/ (build/docs/index.html); a warning is an error
	$(BIN)/sphinx-build -W --keep-going -q -d build/doctrees -b html docs build/docs
	@echo build/docs/index.html

linkcheck: setup ## Try every external link of the docs and of README (needs a network)
	$(BIN)/sphinx-build -W --keep-going -q -d build/linkcheck/doctrees -b linkcheck docs build/linkcheck

bench: setup ## Measure selection up to a million clients, how a round's cost grows, skews, and the peers (downloads PyTorch)
	$(BIN)/python benchmarks/selection.py
	$(BIN)/python benchmarks/scaling.py
	$(BIN)/python benchmarks/theory.py
	$(BIN)/python benchmarks/peers.py --make

clean: ## Remove the virtual environment and every cache
	rm -rf .venv .peers .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
