# Each target makes .venv when it is missing or older than what it is made from.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test check bench clean

setup: .venv/.ready

.venv/.ready: pyproject.toml scripts/setup.sh
	PYTHON="$(PYTHON)" bash scripts/setup.sh
	touch $@

demo: .venv/.ready
	$(BIN)/reharness demo

check: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

test: check
	$(BIN)/python -m pytest -q

bench: .venv/.ready
	$(BIN)/python -m benchmarks

clean:
	rm -rf .venv build *.egg-info
