# The book in one command, its checks in another. `make` alone says what there is.

# Another Python: make PYTHON=python3.12 book. Without, .venv keeps the one it was made with.
ifdef PYTHON
  ENVIRONMENT = $(PYTHON) tools/environment.py --chosen
else
  ENVIRONMENT = python3 tools/environment.py
endif
ifeq ($(OS),Windows_NT)
  PY = .venv/Scripts/python
else
  PY = .venv/bin/python
endif

BENCH = .venv-bench
SITE = _build/html
PORT ?= 8000
JOBS ?= logical
PYTEST = $(PY) -m pytest -n $(JOBS) --dist loadscope

# What a run gives must not depend on the machine: one thread to a process, no user's settings.
export OMP_NUM_THREADS = 1
export MKL_NUM_THREADS = 1
export OPENBLAS_NUM_THREADS = 1
export VECLIB_MAXIMUM_THREADS = 1
export PYTHONHASHSEED = 0
export PYDEVD_DISABLE_FILE_VALIDATION = 1
export TZ = UTC
unexport MPLBACKEND PYTHONPATH PYTHONHOME

.DEFAULT_GOAL = help
.PHONY: help setup book test slow bench check format notebooks address serve wheel clean

help:
	@echo "make book        builds the site from the stored notebooks:  $(SITE)/index.html"
	@echo "make test        every check: style, types, site, tests with coverage, every notebook run again"
	@echo "make slow        the tests that train models for minutes, which make test leaves out"
	@echo "make bench       measures the package beside other libraries, which it installs into .venv-bench"
	@echo "make serve       builds the site and serves it on this machine (PORT=8000)"
	@echo "make notebooks   runs every notebook and stores its outputs; one alone: NB=book/x.ipynb"
	@echo "make check       style and types only; make format mends the style"
	@echo "make address     writes the repository's address into the notebooks: REPOSITORY=https://github.com/owner/name"
	@echo "make wheel       builds the package into dist/"
	@echo "make clean       removes what the others made, except .venv and $(BENCH)"
	@echo
	@echo "Each sets up .venv first. Another Python: make PYTHON=python3.12 book"
	@echo "On Linux without a GPU this saves gigabytes: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make book"

setup:
	@$(ENVIRONMENT)

book: setup
	@$(PY) tools/build_site.py

test: setup
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory book
	$(PYTEST) -m "not slow" --cov --cov-report=term tests
	$(PYTEST) --nbval --nbval-current-env book
	@echo "Every check passed. The site that was checked: $(CURDIR)/$(SITE)/index.html"

slow: setup
	$(PYTEST) -m slow tests

bench: setup
	@test -e $(BENCH) || $(PY) -m venv $(BENCH)
	@$(PY) -m pip --python $(BENCH) install --quiet . -r benchmarks/requirements.txt -c constraints.txt
	$(subst .venv,$(BENCH),$(PY)) benchmarks/run.py

check: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: setup
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

notebooks: setup
	@$(PY) tools/notebooks.py $(NB)

address: setup
	@test -n "$(REPOSITORY)" || { echo "Which? make address REPOSITORY=https://github.com/owner/name" >&2; exit 1; }
	@$(PY) tools/notebooks.py --repository "$(REPOSITORY)"

serve: book
	@$(PY) tools/serve.py $(PORT)

wheel: setup
	@rm -rf dist
	@$(PY) -m hatchling build -t wheel
	@echo "The package is built: $$(ls dist/*.whl)"

clean:
	rm -rf _build dist .coverage htmlcov .pytest_cache .ruff_cache .mypy_cache .hypothesis
