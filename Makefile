# Everything for development, each as the only command typed on a fresh clone. `make help` lists the targets.

# The first Python that is new enough; `make test PYTHON=/path/to/python` takes another one, whichever, with an
# environment of its own.
ifndef PYTHON
VENV   := .venv
PYTHON := $(shell for python in python3.13 python3.12 python3.11 python3 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
else
VENV   := .venv-$(shell $(PYTHON) -c 'import sys; print(sys.implementation.cache_tag + sys.abiflags)' 2>/dev/null)
endif
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.made

.DEFAULT_GOAL := help
COVERED := connectors dashboard elastic flow kernels operators plan rows store

.PHONY: help env demo test test-speeds coverage lint bench bench-peers chaos docs screenshot clean check-python check-java

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'

env: $(STAMP)  ## make .venv with everything for development

# Made again when the dependencies change; otherwise there is nothing to do.
$(STAMP): pyproject.toml | check-python
	@echo "making $(VENV) with $$($(PYTHON) --version); this takes a few minutes the first time"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make environments; on Debian and Ubuntu: sudo apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary grpcio,zstandard --editable '.[dev]' || { \
		echo "not everything can be had for $$($(PYTHON) --version): only what the tests need is installed" >&2; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'; }
	@touch $@

check-python:
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "Penstock needs Python 3.11 or later, and $(or $(PYTHON),no python3 here) is not; install one from" >&2; \
		echo "https://www.python.org/downloads/ or your package manager, or name it: make PYTHON=/path/to/python" >&2; \
		exit 1; }

# Before the environment, which takes minutes to make: nobody should wait to hear that Java is missing.
check-java: | check-python
	@$(PYTHON) .ci/check_java.py

demo: check-java $(STAMP)  ## run the demonstration: about a minute
	@$(BIN)/python -m penstock.lab.demo

test: check-java $(STAMP)  ## run the tests
	$(BIN)/python -m pytest -m "not slow" --numprocesses logical --dist loadgroup

test-speeds: check-java $(STAMP)  ## run tests as on slower, faster and busy machines; ARGS=--quick takes the few that look at times
	$(BIN)/python -m tests.speeds $(ARGS)

coverage: $(STAMP)  ## print the branch coverage of the rooms whose tests need no Spark; fails where it has fallen
	@rm -rf .coverage && mkdir .coverage
	$(BIN)/python -m coverage run -m pytest -m "not slow and not spark" --numprocesses logical --dist loadgroup \
		$(COVERED:%=tests/%) tests/conformance/test_*_columns.py
	@$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

lint: $(STAMP)  ## check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: check-java $(STAMP)  ## list the benchmarks; run one with: make bench ARGS="w1_spark --json"
	$(BIN)/python -m bench $(ARGS)

bench-peers: check-java $(STAMP)  ## compare with the alternatives, each in an environment of its own: 4 GB to install the first time
	$(BIN)/python -m bench run all_peers --markdown peers.md --save peers.json $(ARGS)

chaos: check-java $(STAMP)  ## run the tests that kill processes, the other slow ones, and properties on new examples
	$(BIN)/python -m pytest -m slow
	$(BIN)/python -m pytest -m "not slow and not spark" --hypothesis-profile new --numprocesses logical --dist loadgroup

docs: $(STAMP)  ## build the documentation, to site/index.html
	$(BIN)/python -m mkdocs build --strict

screenshot: $(STAMP)  ## take the pictures of the page that the README and the docs show
	$(BIN)/python -m tests.browser.screenshot docs/images/page.png
	$(BIN)/python -m tests.browser.screenshot docs/images/threads-timeline.png --part timeline
	$(BIN)/python -m tests.browser.screenshot docs/images/spark-timeline.png --part timeline --engine spark

clean:  ## remove the environment and everything that was made
	rm -rf .venv .venv-* build dist site .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find src -name '*.egg-info' -type d -prune -exec rm -rf {} +
