# Everything a person or a CI machine calls. Nothing needs root; Python 3.11 or newer does (make PYTHON=python3.12 ...).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?= 2
MODELS ?=
TARGETS ?= cpu
MINUTES ?= 10
FIRST ?= 0
ANY_SIZE_OF ?= 4
FUZZED ?= .fuzz
# tested as on smaller processors too, as far as this one runs their code
OF_THE_PROCESSOR := tests/codegen/llvm tests/ops/test_on_cpu.py
EXTRAS := $(if $(shell command -v nvidia-smi 2>/dev/null),[cuda13])

# headers alone: what these packages depend on is for running them on a GPU
CUTLASS := "nvidia-cutlass>=4.2" "nvidia-cuda-runtime>=13,<14" "nvidia-cuda-crt>=13,<14" "nvidia-cuda-cccl>=13,<14"

NATIVE := build/native

.PHONY: help demo native env test quick lint format docs dist bench conformance layouts fuzz fuzz-loader fuzz-native check-native clean

help:
	@echo "make demo    compile a trained network for every device here and let it read handwriting"
	@echo "make native  libgpucomp_rt and gpucomp-run, which need no Python, in $(NATIVE)"
	@echo "make env     the environment alone: .venv, with gpucomp so that changes count at once, and what the tests need"
	@echo "make test    the whole test suite        make quick   without the slow tests"
	@echo "make lint    ruff and mypy               make format  ruff format"
	@echo "make docs    the pages of docs/, as a site in site/; a broken link is an error"
	@echo "make dist    wheels and sources of gpucomp and gpucomp-runtime in dist/; the same bytes each time"
	@echo "make bench   every benchmark model beside onnxruntime (MODELS='resnet18 vgg16' TARGETS='cpu opencl')"
	@echo "make fuzz    random models beside onnxruntime and ONNX's evaluator (MINUTES=10 FIRST=0, a seed, TARGETS='cpu opencl');"
	@echo "             one in ANY_SIZE_OF=4 is compiled for any size too, and run at several"
	@echo "make conformance  ONNX's own suite on cpu and opencl, and through NVRTC; writes docs/conformance.md"
	@echo "make layouts  fragments, swizzles, descriptors and tensor maps of CUDA kernels beside CuTe's, from CUTLASS's headers"
	@echo "make fuzz-loader  change bytes of models, artefacts and records, guided by coverage (MINUTES=10 for each)"
	@echo "make fuzz-native  the same for opening compiled models in C, with libFuzzer (clang-19)"
	@echo "make check-native  the C runtime: 100,000 changed files, ThreadSanitizer, valgrind, clang-tidy-19; writes bench/results"
	@echo "make clean   remove the virtual environment and caches"

demo: $(VENV)/.demo
	$(BIN)/python -m examples.digits.demo

native:
	cmake -S gpucomp/native -B $(NATIVE)
	cmake --build $(NATIVE)

env: $(VENV)/.dev

# the tests start hundreds of processes: what these import is compiled once, whatever the environment says of bytecode
test quick: export PYTHONDONTWRITEBYTECODE :=
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS)
	for level in x86-64-v2 x86-64-v3; do \
		$(BIN)/python -m pytest -n $(WORKERS) --processor $$level $(OF_THE_PROCESSOR) || exit 1; done

quick: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format

docs: $(VENV)/.docs
	$(BIN)/python -m mkdocs build

# the time of the last commit is the time of every file, so that the same sources make the same bytes
dist: export SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),1580601600)
dist: $(VENV)/.build
	rm -rf dist
	for folder in . runtime; do (cd $$folder && $(abspath $(BIN))/python -m hatchling build --directory $(CURDIR)/dist) || exit 1; done

bench: $(VENV)/.dev
	$(BIN)/python -m bench.suite $(addprefix --target ,$(TARGETS)) $(MODELS)

fuzz: $(VENV)/.dev
	$(BIN)/python -m tests.fuzz $(addprefix --target ,$(TARGETS)) --minutes $(MINUTES) --first $(FIRST) --workers $(WORKERS) \
		--any-size-of $(ANY_SIZE_OF) --journal $(FUZZED)/models.jsonl --save $(FUZZED)/models

conformance: $(VENV)/.dev
	$(BIN)/python -m bench.conformance --target cpu --target opencl --target cuda:sm_80 --write

layouts: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(CUTLASS)
	$(BIN)/python -m pytest tests/cuda_on_cpu/test_layouts.py tests/cuda_on_cpu/test_tensor_memory_layouts.py

fuzz-loader: $(VENV)/.fuzz
	for kind in loader artifact manifest records; do \
		$(BIN)/python -m tests.hostile.fuzz_loader $$kind $(MINUTES) $(FUZZED) || exit 1; done

fuzz-native: $(VENV)/.dev
	$(BIN)/python -m tests.c_runtime.fuzz $(MINUTES) $(FUZZED)

check-native: $(VENV)/.dev
	$(BIN)/python -m tests.c_runtime.checks --write

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis site $(NATIVE)

# The environment with a dependency group of pyproject.toml. The stamps are in it, so that they go when it goes.
$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".$(EXTRAS)" --group $*
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV) || \
		{ rm -rf $(VENV); echo "python3 -m venv does not work here: apt-get install python3-venv" >&2; exit 2; }
