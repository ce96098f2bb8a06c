# Each target does its own set-up in .venv; a machine needs only Python 3.11 to 3.13 and make.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: quickstart test test-slow format clean

quickstart: $(VENV)/.installed
	$(PY) -m launch.quickstart

test: $(VENV)/.installed-test
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m pytest -m "not slow"

test-slow: $(VENV)/.installed-slow
	$(PY) -m pytest -m slow

format: $(VENV)/.installed-test
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else "Python 3.11 to 3.13 is needed, this is %d.%d: make PYTHON=python3.12" % v)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: setup.py | $(VENV)/bin/python
	$(PY) -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-test: setup.py | $(VENV)/bin/python
	$(PY) -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-slow: setup.py | $(VENV)/bin/python
	$(PY) -m pip install --quiet --editable '.[slow]'
	touch $@ $(VENV)/.installed $(VENV)/.installed-test

clean:
	rm -rf $(VENV) .cache build *.egg-info
