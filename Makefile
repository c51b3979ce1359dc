# make demo, make test, make bench, make study, make docs: each creates .venv and installs what it needs first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
RUNTIME := $(VENV)/.runtime
DEMO_OUT ?= demo

# Many processes import torch here: each would compile thousands of files again if none could keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test lint bench study docs browser clean

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
	$(BIN)/python benchmarks/startup.py

# DATA is the folder of the raw files that benchmarks/prepare_data.py names. Stopped, it goes on where it was.
study: $(INSTALLED)
	@test -n "$(DATA)" || { echo "say where the raw data is: make study DATA=folder"; exit 2; }
	$(BIN)/python benchmarks/prepare_data.py $(DATA) runs/prepared
	$(BIN)/python benchmarks/headline.py $(DATA) runs/prepared --out runs/headline
	$(BIN)/python benchmarks/ablations.py $(DATA) --out runs/ablations
	$(BIN)/python benchmarks/verdicts.py $(DATA) runs/prepared --study runs/headline

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
