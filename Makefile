# Sets up a virtual environment on a fresh machine, then runs a demo (`make demo`), tests or linters,
# or draws the pictures in the docs.

VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin

.PHONY: demo test slow-test lint pictures

demo: $(VENV)/.installed
	$(BIN)/python examples/reviews/demo.py

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest

slow-test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

pictures: $(VENV)/.installed
	$(BIN)/python docs/pictures.py

$(VENV)/.created:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.installed: $(VENV)/.created setup.py
	$(BIN)/pip install --quiet -e .
	touch $@

$(VENV)/.installed-%: $(VENV)/.created setup.py
	$(BIN)/pip install --quiet -e ".[$*]"
	touch $@
