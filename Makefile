# Two commands, each doing all its set-up in .venv:  make demo  ·  make test
# On a machine with an NVIDIA GPU also:  make gpu
PYTHON ?= python3
BIN := .venv/bin
# What is imported is compiled then: all that is installed takes half a minute.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-warn-script-location --no-compile

GPU_PYTHON ?= $(BIN)/python

# Modules are compiled once, not by each of the hundreds of processes that tests start: that is a third of what each takes to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test tests-run docs gpu without-gpu check compiled install clean

# A demo that starts on guesses would show a loose bound: calibrate first, once a machine. Its 30 s are for searching: what numba
# compiles comes before.
demo: .venv/installed
	@$(BIN)/explore doctor --quiet > /dev/null || { $(BIN)/explore doctor --quiet; exit 3; }
	@$(BIN)/explore doctor | grep -q '^ok *calibration' || $(BIN)/explore calibrate
	@$(BIN)/explore show axpydot --size n=1000 > /dev/null
	$(BIN)/explore run bicgk --size n=4096 --time-limit 30s

# The linter and the types fill what tests leave of two cores while they wait for a process.
test: .venv/tools
	@$(MAKE) --no-print-directory -j2 check tests-run

# Most that numba compiles is there before tests begin, where each process would compile it for itself.
# A process a core, of two: a test that waits for one compiler leaves the other core idle. Expensive files come first
# (tests/budget.toml), and a file is run by one process, which makes its fixtures once. A test that takes three times its
# budget fails.
PROCESSES ?= 2
tests-run: compiled
	$(BIN)/pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder --hold-budget

# experiments/gpu.py: five pieces of at most five minutes, each of which goes on where it stopped; make gpu GPU_ARGS="contracts missed"
# for some. With GPU_PYTHON=python3 nothing is installed: that one has PyCUDA, NVRTC, pytest, Hypothesis and what the package needs,
# and CuPy or torch to compare with.
gpu:
	@$(PYTHON) -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2> /dev/null \
	  || { echo "make gpu needs an NVIDIA GPU and its driver: libcuda.so.1 was not found" >&2; exit 3; }
	@$(if $(filter $(BIN)/python,$(GPU_PYTHON)),$(MAKE) --no-print-directory .venv/gpu)
	@mkdir -p .types && ln -sfn .. .types/kernelscape
	PYTHONPATH="$(CURDIR)/.types$${PYTHONPATH:+:$$PYTHONPATH}" $(GPU_PYTHON) -m kernelscape.experiments.gpu $(GPU_ARGS)

# The backends of GPUs can be deleted: a copy without them is as green.  make without-gpu TESTS=tests/space for a part
without-gpu: .venv/tools
	$(BIN)/python tests/without_gpu.py $(TESTS)

# The folder of a checkout may have any name, and the package in it has one.
check: .venv/tools
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	@mkdir -p .types && ln -sfn .. .types/kernelscape
	MYPYPATH=.types $(BIN)/mypy --no-error-summary -p kernelscape
	@$(BIN)/lint-imports --no-logo > .types/layers.txt || { cat .types/layers.txt; exit 1; }

# The pages of docs/, in build/docs.
docs: .venv/tools
	$(BIN)/sphinx-build -q -W docs build/docs

compiled: .venv/tools
	@$(BIN)/explore --quiet show axpydot > /dev/null
	@$(if $(wildcard runtime/cuda),$(BIN)/explore --quiet show axpydot --target cuda > /dev/null)

install: .venv/installed

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "kernelscape needs Python 3.11 or newer: make PYTHON=python3.11" >&2; exit 3; }
	@$(PYTHON) -m venv .venv \
	  || { echo "python3 -m venv does not work: apt install python3-venv" >&2; exit 3; }

.venv/installed: .venv/bin/python pyproject.toml
	@$(PIP) -e . && touch $@

.venv/tools: .venv/bin/python pyproject.toml
	@$(PIP) -e '.[dev]' && touch $@ .venv/installed

.venv/gpu: .venv/tools
	@$(PIP) -e '.[dev,cuda]' torch && touch $@

clean:
	rm -rf .venv .types build *.egg-info .*_cache
