# Everything is reached from here. `make help` lists the targets; demo and the test targets set themselves up.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
PYTEST := $(BIN)/python -m pytest
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: setup demo test test-live check agents bench soak help clean

setup: $(STAMP) ## Create .venv with turnlog and the development tools (quick the second time)

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,postgres]'
	@touch $@

demo: setup ## Show turnlog at work on a real OpenCode and a local model stub
	@command -v opencode >/dev/null || bash tools/agents.sh opencode
	$(BIN)/python -m turnlog.testing.demo

test: setup ## Run the tests that need no agent program (ARGS="-k name" is passed on)
	$(PYTEST) -n 2 -m "not live and not soak and not bench" $(ARGS)

test-live: setup agents ## Run the tests that drive real agent programs
	$(PYTEST) -n 2 -m live $(ARGS)

check: setup ## Lint, format, types, layers, documentation, file sizes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -q tests/test_frame.py $(wildcard tests/docs)

agents: ## Install the agent programs of agents.txt into .agents/
	@bash tools/agents.sh

bench: setup agents ## Measure against the budgets
	$(PYTEST) -s -m bench $(ARGS)

soak: setup agents ## Run the long tests
	$(PYTEST) -n 2 -m soak $(ARGS)

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

clean: ## Remove everything that make created
	rm -rf $(VENV) .agents dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
