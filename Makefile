# Everything a contributor runs; `make` alone lists it. Each target makes what it needs first
# and does so once: the stamps in .venv remember it until pyproject.toml changes.
#
#   PYTHON=/usr/bin/python3 make test     another interpreter, for a .venv that is yet to be made
#   make test ARGS='-k settling -x'       words for pytest (or for `gpumon demo`)

PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
JAX_BIN := .venv-jax/bin

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo demo-keras test check truth bench soak gpu golden clean tools

# $(call install,ENVIRONMENT,EXTRAS): networks fail, so what downloads is tried a second time.
pip_install = $(1)/bin/python -m pip install -q -e '.[$(2)]'
install = $(pip_install) || { echo "Failed; once more in 5 seconds." >&2; sleep 5; $(pip_install); }
DEV := demo,dev
DEV_KERAS := demo,dev,keras
DEV_BENCH := demo,dev,bench

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: .venv/.demo ## a starved training, then the same with prefetch, on a simulated GPU
	@$(BIN)/gpumon demo $(ARGS)

demo-keras: .venv-jax/.dev ## the same demo with Keras on JAX (downloads 700 MB once)
	@$(JAX_BIN)/gpumon demo --keras $(ARGS)

test: tools .venv/.dev ## all tests; fetches the tools they need
	@if $(MAKE) --no-print-directory .venv-jax/.dev; then \
		KERAS_BACKEND=jax GPUMON_REQUIRE_KERAS=$${CI:+1} $(JAX_BIN)/python -m pytest -m keras_jax $(ARGS); \
	elif [ -n "$$CI" ]; then exit 1; \
	else echo "SKIPPED: the tests marked keras_jax, for .venv-jax could not be made."; fi
	@$(BIN)/python -m pytest $(ARGS)

check: .venv/.dev ## lint, format, types, import direction, layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_*.py

truth: .venv/.dev ## accuracy against worlds whose truth is known
	$(BIN)/python -m pytest -q -s tests/truth $(ARGS)

bench: tools .venv/.bench ## the benchmarks, each against a peer in the same run
	@missed=0; for file in $$(grep -l __main__ benchmarks/*.py); do \
		question=benchmarks.$$(basename "$$file" .py); \
		echo "== python -m $$question"; $(BIN)/python -m "$$question" $(ARGS) || missed=1; \
	done; [ $$missed = 0 ] || { echo "A goal was missed; docs/performance.md says which are known."; exit 1; }

soak: .venv/.dev ## minutes of load, with memory and descriptors watched
	$(BIN)/python -m pytest -s -m soak $(ARGS)

gpu: .venv/.dev ## the tests that need an NVIDIA GPU
	$(BIN)/python -m pytest -m gpu $(ARGS)

golden: .venv/.dev ## renew the golden files and the dashboard; read the diff before you commit it
	$(BIN)/python -m grafana.generate
	GPUMON_UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q tests -k golden

clean: ## remove both environments, caches and builds
	rm -rf .venv .venv-jax build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

tools: # Debian packages that only tests start; nothing happens where all are there.
	@sh tests/tools/apt_install.sh dstat promtool=prometheus chromium gcc \
		/usr/include/stdio.h=libc6-dev systemd-analyze=systemd || [ -z "$$CI" ]

.venv/.made:
	@sh tests/tools/make_venv.sh "$(PYTHON)" .venv
	@touch $@

.venv-jax/.made:
	@sh tests/tools/make_venv.sh "$(PYTHON)" .venv-jax
	@touch $@

.venv/.demo: .venv/.made pyproject.toml setup.py
	@echo "Installing gpumon into .venv ..."
	@$(call install,.venv,demo)
	@touch $@

.venv/.dev: .venv/.made pyproject.toml setup.py
	@echo "Installing gpumon and the test tools into .venv ..."
	@$(call install,.venv,$(DEV))
	@touch $@

.venv/.bench: .venv/.dev
	@echo "Installing the peers of the benchmarks into .venv ..."
	@$(call install,.venv,$(DEV_BENCH))
	@touch $@

.venv-jax/.dev: .venv-jax/.made pyproject.toml setup.py
	@echo "Installing gpumon, Keras and JAX into .venv-jax (700 MB) ..."
	@$(call install,.venv-jax,$(DEV_KERAS))
	@touch $@
