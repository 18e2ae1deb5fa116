# All commands for contributors; `make` lists them. Each target first creates what it needs, once:
# the stamps in .venv stay valid until pyproject.toml changes.
#
#   PYTHON=/usr/bin/python3 make test     another interpreter for a new .venv
#   make test ARGS='-k settling -x'       arguments for pytest (or for `gpumon demo`)
#   make gpu GPU_PYTHON=/path/to/python3  the interpreter whose torch is used
#   make gpu ARGS=--quick WHEELS=folder   only the capture, in two minutes, without network

PYTHON ?= python3
ARGS ?=

BIN := .venv/bin
JAX_BIN := .venv-jax/bin
# The frameworks that hooks are tested with, each in its own environment. Without a CPU build, torch
# downloads gigabytes of CUDA, so on a laptop only `make test TORCH=1` includes it.
FRAMEWORKS := jax tensorflow torch
# ... and the oldest supported Keras, with the JAX of its time.
ENVIRONMENTS := $(FRAMEWORKS) oldest-keras
TORCH ?= $(CI)
# Runs the suites in parallel, after `lint` if `check` is a goal too, and prints where the time went.
SUITES := tests/tools/run_suites.py
CHECK_COMES_FIRST := $(and $(filter check,$(MAKECMDGOALS)),$(filter test,$(MAKECMDGOALS)))

# With this variable, each of thousands of short processes would compile its imports again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo demo-keras test $(ENVIRONMENTS:%=test-%) test-multi-gpu check lint truth bench bench-hooks soak versions newest gpu gpu-multi golden pictures clean tools

, := ,
# Networks fail, so downloads are tried a second time.
twice = $(1) || { echo "Failed; once more in 5 seconds." >&2; sleep 5; $(1); }
# $(call install,ENVIRONMENT,EXTRAS,MORE): MORE are other packages, such as a framework. uv takes a
# third of the CPU time of pip, but must be given pip's places for wheels, such as torch for a CPU.
UV := $(BIN)/uv
export UV_FIND_LINKS ?= $(PIP_FIND_LINKS)
install = $(call twice,$(UV) pip install -q --python $(1) -e '.[$(2)]' $(3))
# Several tests import a framework at the same time, and each would compile it.
compile = KERAS_BACKEND=$(1) .venv-$(1)/bin/python -c 'import keras'
DEV := dev
DEV_BENCH := dev,bench

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

demo: .venv/.demo ## a starved training run, then the same with prefetch, on a simulated GPU
	@$(BIN)/gpumon demo $(ARGS)

demo-keras: .venv-jax/.dev ## the same demo with Keras on JAX (downloads 700 MB once)
	@$(JAX_BIN)/gpumon demo --keras $(ARGS)

test: .venv/.made ## all tests; installs the tools they need
	@$(BIN)/python $(SUITES) $(if $(CHECK_COMES_FIRST),--check) $(if $(TORCH),,--without-torch) \
		base multi-gpu $(ENVIRONMENTS) -- $(ARGS)

test-tensorflow: test-multi-gpu
$(ENVIRONMENTS:%=test-%): test-%: .venv-%/.dev ## the tests that train with one framework
	@.venv-$*/bin/python $(SUITES) $* -- $(ARGS)

test-multi-gpu: .venv-tensorflow/.dev
	@.venv-tensorflow/bin/python $(SUITES) multi-gpu -- $(ARGS)

check: $(if $(CHECK_COMES_FIRST),,lint) ## lint, format, types, import direction, layout
ifeq ($(CHECK_COMES_FIRST),)
	$(BIN)/python -m pytest -q tests/test_*.py
else
	@:  # the tests begin with lint and include the others
endif

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

truth: tools .venv/.dev .venv-jax/.dev .venv-tensorflow/.dev $(if $(TORCH),.venv-torch/.dev) ## accuracy on synthetic workloads, and the tests that CI leaves out
	GPUMON_WHOLE_TABLE=1 $(BIN)/python -m pytest -q -s tests/truth $(ARGS)
	$(BIN)/python -m tests.truth.input_model score
	$(BIN)/python -m tests.truth.score
	$(BIN)/python -m tests.truth.loops
	$(BIN)/python -m tests.truth.phases_table
	$(BIN)/python -m tests.truth.host
	$(BIN)/python -m tests.truth.advice
	$(BIN)/python -m tests.truth.untagged
	GPUMON_WHOLE_TABLE=1 $(BIN)/python -m pytest -q tests/unit/prometheus tests/unit/pipeline \
		tests/unit/trainer_hooks/balance tests/faults/test_every_answer_of_the_driver.py \
		tests/faults/test_any_sequence_of_faults.py \
		tests/faults/test_gpu_lost_half_of_the_time.py tests/faults/test_store.py \
		tests/e2e/test_kept_over_restarts.py tests/e2e/test_page_follows_the_daemon.py \
		tests/e2e/test_page_time.py tests/e2e/test_page_reading.py tests/e2e/test_top_on_a_terminal.py $(ARGS)
	GPUMON_WHOLE_TABLE=1 GPUMON_REQUIRE_KERAS=1 KERAS_BACKEND=tensorflow .venv-tensorflow/bin/python -m pytest -q \
		-m multi_gpu tests/multi_gpu $(ARGS)
	GPUMON_WHOLE_TABLE=1 GPUMON_REQUIRE_KERAS=1 KERAS_BACKEND=tensorflow .venv-tensorflow/bin/python -m pytest -q \
		-m keras_tensorflow tests/keras tests/stacks tests/e2e/test_run_with_frameworks.py \
		tests/e2e/test_trainer_bench.py $(ARGS)
	GPUMON_WHOLE_TABLE=1 GPUMON_REQUIRE_KERAS=1 KERAS_BACKEND=jax $(JAX_BIN)/python -m pytest -q \
		-m keras_jax tests/keras tests/loops tests/stacks tests/e2e/test_run_with_frameworks.py \
		tests/e2e/test_keras_under_serve.py tests/truth/test_phases_of_keras.py $(ARGS)
ifneq ($(TORCH),)
	GPUMON_WHOLE_TABLE=1 GPUMON_REQUIRE_KERAS=1 KERAS_BACKEND=torch .venv-torch/bin/python -m pytest -q \
		-m keras_torch tests/keras tests/loops tests/stacks tests/e2e/test_run_with_frameworks.py tests/e2e/test_logged_examples.py $(ARGS)
endif

bench: tools .venv/.bench ## the benchmarks, each next to a peer in the same run
	@missed=0; for file in $$(grep -l __main__ benchmarks/*.py | grep -v -e bench_day -e bench_short_runs); do \
		question=benchmarks.$$(basename "$$file" .py); \
		echo "== python -m $$question"; $(BIN)/python -m "$$question" $(ARGS) || missed=1; \
	done; [ $$missed = 0 ] || { echo "A goal was missed; docs/performance.md says which are known."; exit 1; }

bench-hooks: tools .venv/.dev .venv-rivals/.dev ## cost and findings of the hooks, next to nvitop, TraceML, gpuprof
	@missed=0; for question in bench_hooks_keras bench_hooks_torch_loop; do \
		$(BIN)/python -m benchmarks.$$question $(ARGS) || missed=1; \
	done; [ $$missed = 0 ] || { echo "A goal was missed; docs/performance.md says which are known."; exit 1; }

soak: .venv/.dev ## minutes of load and fuzzing, 20 minutes of short runs, a simulated day; checks memory and descriptors
	$(BIN)/python -m pytest -s -m soak $(ARGS)
	$(BIN)/python -m benchmarks.bench_short_runs
	$(BIN)/python -m benchmarks.bench_day

versions: .venv/.dev ## tests on the oldest and newest Keras, Lightning and Transformers; writes the table in docs/hooks.md
	$(BIN)/python tests/tools/run_versions.py $(ARGS)

newest: .venv/.dev ## the same on pre-releases
	$(BIN)/python tests/tools/run_versions.py --newest $(ARGS)

gpu: ## the tests that need an NVIDIA GPU, and a capture of its behaviour (with the torch of GPU_PYTHON)
	@GPU_PYTHON="$(GPU_PYTHON)" WHEELS="$(WHEELS)" $(PYTHON) tests/tools/run_gpu_tests.py $(ARGS)

gpu-multi: ## the tests that need two GPUs or more, with the TensorFlow and torch of GPU_PYTHON ("A B")
	@GPU_PYTHON="$(GPU_PYTHON)" WHEELS="$(WHEELS)" $(PYTHON) tests/tools/run_gpu_tests.py --multi $(ARGS)

golden: .venv/.dev ## rewrite the golden files and the dashboard; read the diff before you commit it
	$(BIN)/python -m grafana.generate
	GPUMON_UPDATE_GOLDEN=1 $(BIN)/python -m pytest -q tests -k golden

pictures: tools .venv/.dev ## draw the pictures of docs/images that are older than what they show
	$(BIN)/python -m tests.tools.draw_pictures $(ARGS)

clean: ## remove the environments, caches and builds
	rm -rf .venv $(ENVIRONMENTS:%=.venv-%) .venv-node .venv-rivals .venv-lanes .venv-gpu* build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

tools: # Debian packages for tests, and a library of Grafana; does nothing if all are installed.
	@sh tests/tools/apt_install.sh dstat promtool=prometheus amtool=prometheus-alertmanager \
		victoria-metrics chromium gcc groff=groff-base node=nodejs npm tmux \
		/usr/include/stdio.h=libc6-dev systemd-analyze=systemd ip=iproute2 unshare=util-linux || [ -z "$$CI" ]
	@! command -v npm >/dev/null || $(MAKE) -s --no-print-directory .venv-node/.dev || [ -z "$$CI" ]

# Only for tests: what Grafana's own transformations make of a table.
.venv-node/.dev: tests/grafana_data/package.json tests/grafana_data/package-lock.json
	@echo "Installing @grafana/data into .venv-node (130 MB) ..."
	@mkdir -p .venv-node && cp $^ .venv-node
	@$(call twice,npm ci --prefix .venv-node --silent --ignore-scripts --legacy-peer-deps)
	@touch $@

.venv/.made:
	@sh tests/tools/make_venv.sh "$(PYTHON)" .venv
	@touch $@

$(UV): .venv/.made
	@$(call twice,$(BIN)/python -m pip install -q uv)

# With the interpreter of .venv.
$(ENVIRONMENTS:%=.venv-%/.made) .venv-rivals/.made: %/.made: $(UV)
	@$(UV) venv -q --allow-existing --python $(BIN)/python $*
	@touch $@

.venv/.demo: .venv/.made pyproject.toml setup.py
	@echo "Installing gpumon into .venv ..."
	@$(call twice,$(BIN)/python -m pip install -q --no-compile -e .)
	@touch $@

.venv/.dev: $(UV) pyproject.toml setup.py
	@echo "Installing gpumon and the test tools into .venv ..."
	@$(call install,.venv,$(DEV))
	@touch $@

.venv/.bench: .venv/.dev
	@echo "Installing the peers of the benchmarks into .venv ..."
	@$(call install,.venv,$(DEV_BENCH))
	@touch $@

.venv-jax/.dev: .venv-jax/.made pyproject.toml setup.py
	@echo "Installing gpumon, Keras and JAX into .venv-jax (700 MB) ..."
	@$(call install,.venv-jax,test$(,)stacks$(,)keras,\
		nvtx datasets grain orbax-checkpoint)
	@$(call compile,jax)
	@touch $@

.venv-tensorflow/.dev: .venv-tensorflow/.made pyproject.toml setup.py
	@echo "Installing gpumon, Keras and TensorFlow into .venv-tensorflow (1.6 GB) ..."
	@$(call install,.venv-tensorflow,test$(,)stacks,\
		'tensorflow-cpu>=2.16' 'keras>=3.7' tensorboard wandb mlflow-skinny pandas)
	@$(call compile,tensorflow)
	@touch $@

.venv-torch/.dev: .venv-torch/.made pyproject.toml setup.py
	@echo "Installing gpumon, torch, Keras, Lightning and Transformers into .venv-torch (1.5 GB) ..."
	@$(call install,.venv-torch,test$(,)stacks$(,)lightning$(,)huggingface,\
		torch==2.13.0 'keras>=3.7' webdataset tensorboard wandb mlflow-skinny)
	@$(call compile,torch)
	@touch $@

# Only for `make bench-hooks`. nvitop's callback runs on TensorFlow and has its own folder.
.venv-rivals/.dev: .venv-rivals/.made .venv-torch/.dev
	@echo "Installing torch, TraceML, gpuprof and nvitop into .venv-rivals (1 GB) ..."
	@$(UV) pip install -q --python .venv-rivals torch==2.13.0 traceml-ai==0.5.0 'gpuprof[host]==0.7.1'
	@$(UV) pip install -q --python .venv-rivals --target .venv-rivals/nvitop nvitop==1.6.0
	@touch $@

.venv-oldest-keras/.dev: .venv-oldest-keras/.made pyproject.toml setup.py
	@echo "Installing gpumon and the oldest supported Keras into .venv-oldest-keras (700 MB) ..."
	@$(call install,.venv-oldest-keras,test,keras==3.7.0 jax==0.4.30)
	@touch $@
