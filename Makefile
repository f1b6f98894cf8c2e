.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCKED := .venv-locked

.PHONY: help demo test real lint bench bench-check chaos fresh soak nightly locked floors audit lock version release released image-check conformance clean

help: ## Show this menu.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.running ## Play eight stories about pod affinity on an embedded cluster (ARGS="--story 5").
	@$(BIN)/affinity-scheduler demo $(ARGS)

# Much of it is waiting for other processes: more workers than a small machine has cores. Each file is run by one of
# them, in the order of tests/support/gathering.py. WORKERS=0 is one test after another in one process.
WORKERS ?= 4
# Hundreds of processes of the product are started, and each would compile it anew.
test: export PYTHONDONTWRITEBYTECODE =
# `lint` runs beside the tests and is told below them where it fails, so that pytest's summary is the last of a good run.
test: $(VENV)/.installed ## Run every test, import contracts, ruff and mypy (WORKERS=8 on a large machine).
	@mkdir -p build
	@$(MAKE) --no-print-directory lint >build/lint.txt 2>&1 & linting=$$!; \
		trap 'kill $$linting' INT TERM; tested=0; \
		$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 \
			--durations 20 --durations-min 2 || tested=$$?; \
		wait $$linting || { cat build/lint.txt; exit 1; }; exit $$tested

real: $(VENV)/.installed ## Tests on a real API server alone (KUBEBUILDER_ASSETS: a folder with etcd and kube-apiserver).
	@$(BIN)/python -m pytest -m real

lint: $(VENV)/.installed ## ruff, mypy --strict and the import contracts.
	@$(BIN)/ruff check scheduler tests manifests/examples
	@$(BIN)/ruff format --check scheduler tests manifests/examples
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

bench: $(VENV)/.installed ## Measure what scheduling costs, in a few minutes (ARGS="--shape basic --nodes 1000").
	@$(BIN)/python -m tests.bench $(ARGS)

bench-check: $(VENV)/.installed ## Fail where a ratio of the core's costs has grown by more than 25 %.
	@$(BIN)/python -m tests.bench --check $(ARGS)

chaos: $(VENV)/.installed ## Break everything that can break, by seed, for five minutes (ARGS="--seconds 3600 --seed 1").
	@$(BIN)/python -m tests.proof.chaos $(ARGS)

# Two kinds at a time. The first line of each is the command that repeats it.
fresh: $(VENV)/.installed ## Break everything from seeds that nobody has tried, each kind for forty seconds.
	@printf '%s --shrink 0\n' '' --groups --fallbacks --devices --volumes --rebalancing | \
		xargs -P 2 -L 1 $(BIN)/python -m tests.proof.chaos --seconds 40

soak: $(VENV)/.installed ## Ten minutes of churn against a scheduler whose memory is measured (ARGS="--seconds 3600").
	@$(BIN)/python -m tests.proof.soak $(ARGS)

locked: ## Install .venv with the exact versions of CI, by hash; the other commands then use them.
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r config/locks/ci.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(VENV)/.running $(VENV)/.installed

floors: ## Install .venv with the oldest versions that pyproject.toml allows; the other commands then use them.
	@$(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --resolution lowest-direct -e '.[tls,webhook,speed]'
	@touch $(VENV)/.running

audit: $(LOCKED)/.installed ## Licences, pins, imports and known vulnerabilities of what is locked (STRICT=1).
	@$(LOCKED)/bin/python -m tests.release audit $(if $(STRICT),--strict)

lock: $(VENV)/.installed ## Write the lock files anew (ARGS=--upgrade for newer versions).
	@$(BIN)/python -m tests.release lock $(ARGS)

version: $(VENV)/.installed ## Set the version and close the changelog's section (VERSION=1.0.0 CHART_VERSION=1.0.0).
	@$(BIN)/python -m tests.release version "$(VERSION)" --chart-version "$(CHART_VERSION)"

release: released $(LOCKED)/.installed ## After `version` and a commit: a release in dist/ (VERSION= IMAGE= IMAGE_DIGEST=).
	@$(LOCKED)/bin/python -m tests.release build "$(VERSION)" --image "$(IMAGE)" --image-digest "$(IMAGE_DIGEST)"

# Before minutes of installation.
released:
	@grep -qx 'version = "$(VERSION)"' pyproject.toml || \
		{ echo 'VERSION: found "$(VERSION)", expected that of pyproject.toml; make version VERSION=... sets it, then commit' >&2; exit 2; }

image-check: $(VENV)/.installed ## Build the image and run it as its pods do (ARGS="--build-arg BASE=..." for the engine).
	@$(BIN)/python -m tests.system.image $(ARGS)

conformance: $(VENV)/.installed ## Write CONFORMANCE.md from the recordings and the records of nights.
	@$(BIN)/python -m tests.conformance.page

# Exactly what config/locks/ci.txt says, by hash: what is released and audited depends on nothing else of the machine.
$(LOCKED)/.installed: config/locks/ci.txt
	@$(PYTHON) -m venv --clear $(LOCKED)
	@echo "installing config/locks/ci.txt into $(LOCKED) ..."
	@$(LOCKED)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# Coverage for mutation, and coverage-guided fuzzing where there is a wheel of atheris.
nightly: $(VENV)/.installed ## All proofs by seed for two hours (HOURS=8 or TIME=900 in seconds; RECORD=1 keeps the rows; ARGS=--weekly).
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,nightly]'
	@nice $(BIN)/python -m tests.proof.nightly $(if $(TIME),--seconds $(TIME),$(if $(HOURS),--hours $(HOURS))) $(if $(RECORD),--record) $(ARGS)

# One environment that grows: what running needs, and then what developing needs.
$(VENV)/.running: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed; found " + sys.version.split()[0] + " (make PYTHON=python3.12 ... picks another)")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "this Python cannot make virtual environments: install its venv package (Debian, Ubuntu: python3-venv)"; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[tls,webhook]'
	@touch $@

$(VENV)/.installed: $(VENV)/.running
	@echo "installing what developing needs into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean: ## Remove the virtual environment and everything built.
	rm -rf $(VENV) $(LOCKED) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
