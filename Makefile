# Needs only Python 3.11 (or later), make and git: the first target that is run creates .venv and installs everything.
PYTHON ?= $(firstword $(shell command -v python3.11 python3 2>/dev/null))
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TOOLS := $(VENV)/.tools
PYTEST := $(BIN)/python -m pytest -rs
DEMO := jitter_bbr_sd2ms
RECORDINGS := datasets
CAPTURES := datasets tests/golden/classes
MINUTES := 10

# The packages are installed without bytecode: unless Python may keep what it compiles, each of the suite's processes
# (workers, notebooks, commands) would compile SciPy, pandas and cctrace anew, for a second or more.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow lint check check-external bench validate fuzz notebooks docs clean
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

# A half-made environment leaves no stamp, so that the next run starts it afresh. Python compiles what is imported, when it
# is (pip would take a dozen seconds for all of it); the last step compiles what the commands call, so that none waits.
$(STAMP): setup.cfg pyproject.toml
	@test -n "$(PYTHON)" || { echo "cctrace needs Python 3.11: install it, or run make PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable .
	$(BIN)/python -m cctrace.prepare
	touch $@

# What tests, benchmarks and developers need besides.
$(TOOLS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

demo: $(STAMP) ## explain a shipped recording: writes cctrace-report/report.html
	$(BIN)/cctrace analyze datasets/$(DEMO)/sender.pcap.zst --tcpinfo datasets/$(DEMO)/tcpinfo.csv.zst -o cctrace-report

test: $(TOOLS) ## the tests that every change must pass, minutes on two cores
	$(PYTEST) -n 2 -m "not slow and not external"

test-slow: $(TOOLS) ## the tests that take minutes each
	$(PYTEST) -n 2 -m "slow and not external"

lint: $(TOOLS) ## format, lint, types, layers, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell $$(git ls-files ':!cctrace/_data')

check: lint test ## lint, then the tests, which also compare the generated pages with the code

check-external: $(TOOLS) ## tests against tshark, tcptrace and a browser; installs what it can with apt-get
	@command -v tshark >/dev/null && command -v tcptrace >/dev/null && command -v chromium >/dev/null \
		|| timeout 60 apt-get update -qq >/dev/null 2>&1 || true
	@for program in tshark tcptrace chromium; do command -v $$program >/dev/null \
		|| DEBIAN_FRONTEND=noninteractive timeout 180 apt-get install -qq -y --no-install-recommends $$program >/dev/null \
		|| echo "could not install $$program: its tests will be skipped"; done
	$(PYTEST) -m external
	$(BIN)/python -m benchmarks.peers $(CAPTURES)

bench: $(TOOLS) ## what the README claims about speed; peers that are not installed are left out
	$(BIN)/python -m benchmarks.ingest datasets/$(DEMO)/sender.pcap.zst
	$(BIN)/python -m benchmarks.flows datasets/$(DEMO)/sender.pcap.zst
	$(BIN)/python -m benchmarks.replay
	$(BIN)/python -m benchmarks.main_job

validate: $(STAMP) ## agreement with the kernel's tcp_info: make validate [RECORDINGS=DIR]
	$(BIN)/cctrace validate $(sort $(dir $(wildcard $(RECORDINGS)/*/tcpinfo.csv*)))

fuzz: $(TOOLS) ## look for files that crash a reader or an analysis: make fuzz [MINUTES=10]; inputs in fuzz-failures/
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[fuzz]"
	$(BIN)/python -m fuzz --minutes $(MINUTES)

notebooks: $(TOOLS) ## run the notebooks and keep their outputs, minutes; the tests compare: make notebooks [ONLY="03 07"]
	$(BIN)/python notebooks/rebuild.py $(ONLY)

docs: $(TOOLS) ## the pages that are generated from the code, and the site: docs/_build/index.html; warnings are errors
	$(BIN)/python docs/make_variants.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build
	@echo "the site: file://$(CURDIR)/docs/_build/index.html"

clean: ## remove the environment and everything that was generated
	rm -rf $(VENV) build dist docs/_build docs/commands.md docs/notebooks docs/jupyter_execute *.egg-info cctrace-report .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
