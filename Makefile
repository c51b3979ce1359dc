# make demo, make test, make bench, make docs: each creates .venv and installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
DEMO_OUT ?= demo

.PHONY: demo test lint bench docs browser clean

demo: $(RUNTIME)
	$(BIN)/okapi demo --out $(DEMO_OUT)

test: $(INSTALLED) lint browser
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(INSTALLED)
	$(BIN)/python benchmarks/matching.py
	$(BIN)/python benchmarks/pacs_matching.py
	$(BIN)/python benchmarks/training.py

docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	$(BIN)/sphinx-build -W -b html docs docs/_build

# Without --no-compile pip compiles every file of every package, most of which are never imported.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e ".[dev]"
	touch $(RUNTIME) $@

# What users have, without what is needed to work on it, which takes longer to install.
$(RUNTIME): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e .
	touch $@

# The page is tested in a real browser. Where one cannot be installed those tests skip and say why.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq >/dev/null && apt-get install -y -qq chromium >/dev/null; } \
		|| echo "no chromium and no right to install it: browser tests will be skipped"

clean:
	rm -rf $(VENV) docs/_build
