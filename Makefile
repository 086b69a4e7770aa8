# Two commands do all set-up: `make demo` (the main job on real weights) and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint typecheck wheel clean
.DEFAULT_GOAL := demo

# The environment is remade when what it is made from changes.
$(VENV)/ready: pyproject.toml constraints.txt
	rm -rf adapterc.egg-info  # metadata of an earlier build would hide the entry points of this one
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt -e '.[demo,dev,prove]'
	touch $@

demo: $(VENV)/ready
	$(BIN)/python -m adapterc.demo

test: $(VENV)/ready lint typecheck
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -q --durations=15

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy and editors do not follow package-dir, so they get a folder of links with the installed names.
typecheck: $(VENV)/ready
	rm -rf .typecheck && mkdir -p .typecheck/adapterc
	cd .typecheck/adapterc && ln -s ../../adapterc/* . && ln -s ../../adapter_specs ../../dsl ../../verify ../../codegen ../../spyre_runtime .
	cd .typecheck && ../$(BIN)/mypy --config-file ../pyproject.toml -p adapterc

wheel: $(VENV)/ready
	$(BIN)/pip wheel --quiet --no-deps -w dist .

clean:
	rm -rf $(VENV) .typecheck build dist
