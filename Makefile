# Each target does its own set-up in .venv; a machine needs only Python 3.11 to 3.13 and make.
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

.PHONY: quickstart test test-slow test-sglang docs format clean

quickstart: $(VENV)/.installed
	$(PY) -m launch.quickstart

test: $(VENV)/.installed-test
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m pytest -m "not slow and not sglang" -n auto --maxprocesses=4 --dist=loadfile

test-slow: $(VENV)/.installed-slow
	$(PY) -m pytest -m slow

# Against a real SGLang server on the CPU, in an environment of its own; Python 3.11.
test-sglang: $(VENV)/.installed-test .venv-sglang/.installed
	$(PY) -m pytest -m sglang

.venv-sglang/.installed: tests/sglang/requirements.txt
	$(PYTHON) -m venv .venv-sglang
	.venv-sglang/bin/pip install --quiet -r $<
	.venv-sglang/bin/pip install --quiet --no-deps torchvision==0.28.0 sglang==0.5.14
	touch $@

# These pages and an API reference, in build/docs.
docs: $(VENV)/.installed-docs
	$(PY) -m sphinx -W --keep-going docs build/docs

format: $(VENV)/.installed-test
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v < (3, 14) else "Python 3.11 to 3.13 is needed, this is %d.%d: make PYTHON=python3.12" % v)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: setup.py | $(VENV)/bin/python
	$(PY) -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-docs: setup.py | $(VENV)/bin/python
	$(PY) -m pip install --quiet --editable '.[docs]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-test: setup.py | $(VENV)/bin/python
	$(PY) -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-slow: setup.py | $(VENV)/bin/python
	$(PY) -m pip install --quiet --editable '.[slow]'
	touch $@ $(VENV)/.installed $(VENV)/.installed-test

clean:
	rm -rf $(VENV) .cache build *.egg-info
