# `make demo` runs the main job. `make test`, `make scenes` and `make trust` are the layers of the tests. `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# More than cores: the tests wait half of the time.
WORKERS ?= 4
UV     := $(BIN)/uv
# With it set, each synthesis would compile the CDK's Python again: 9 s instead of 4.
unexport PYTHONDONTWRITEBYTECODE
# Nothing is installed whose hash is not in the lock file; the project itself is built with what is installed already.
SYNC   := $(UV) pip sync --quiet --require-hashes
OURSELVES := $(UV) pip install --quiet --no-deps --no-build-isolation --editable .
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 1
export PATH := $(CURDIR)/$(BIN):$(CURDIR)/node_modules/.bin:$(PATH)

.DEFAULT_GOAL := help
.PHONY: findings dist docs pictures recording mutation sbom conformance trust test-pythons audit bench help kubernetes slurm setup demo sandbox test scenes lint test-system lock schema clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 14

demo: setup  ## deploy, fine-tune, look at a failure, destroy: all of it in a local AWS and a local Slurm; EKS=1: on Kubernetes; PCS=1: on AWS PCS; TUTORIAL=1: BERT-Large on Trn1
	@$(BIN)/python -m sandbox.slurm_packages --optional
	@$(BIN)/python -m sandbox.demo $(if $(PCS),--path pcs) $(if $(EKS),--path eks) $(if $(TUTORIAL),--tutorial)

sandbox: setup  ## a local AWS with a real Slurm, and a shell with trn and cdk that uses it; leaving the shell removes all; KUBERNETES=1: a real Kubernetes
	@$(if $(KUBERNETES),$(MAKE) --no-print-directory kubernetes,$(BIN)/python -m sandbox.slurm_packages)
	@trap '$(BIN)/python -m sandbox down' EXIT; trap 'exit 130' INT HUP TERM; \
	$(BIN)/python -m sandbox up $(if $(KUBERNETES),--kubernetes,--slurm) && { $(BIN)/python -m sandbox shell || true; }

# $(call run_tests,LAYER,LINTER): both beside each other; the linter's words are printed if it fails.
define run_tests
@mkdir -p .cache; ($(2)) >.cache/lint.log 2>&1 & lint=$$!; \
trap "kill $$lint 2>/dev/null" EXIT; trap "exit 130" INT TERM; \
$(BIN)/python -m pytest --layer=$(1) -n $(WORKERS) --dist loadscope --no-loadscope-reorder $(PYTEST_OPTIONS); code=$$?; \
wait $$lint || { cat .cache/lint.log; code=1; }; exit $$code
endef

test: setup  ## tables, templates, and each verb on a real Slurm (CI=true: nothing may be skipped)
	@if [ "$$CI" = true ]; then $(MAKE) --no-print-directory test-system slurm; else $(BIN)/python -m sandbox.slurm_packages --optional; fi
	$(call run_tests,test,$(BIN)/ruff check . && $(BIN)/ruff format --check .)

scenes: setup .venvs/docs/.done .venvs/audit/.done .venvs/torchx/.done .venvs/tensorboard/.done .venvs/jax/.done .venvs/sbom/.done .venvs/dist/.done  ## the same verbs on a real Kubernetes API and on PCS, deployments, clean roots, attacks, packaging; types
	@if [ "$$CI" = true ]; then $(MAKE) --no-print-directory test-system kubernetes slurm; else \
	  $(BIN)/python -m sandbox.slurm_packages --optional; \
	  if command -v go >/dev/null; then $(MAKE) --no-print-directory kubernetes || true; fi; fi
	$(call run_tests,scenes,$(BIN)/mypy)

PYTHONS := 3.11 3.12 3.13

test-pythons: $(PYTHONS:%=.venvs/py%/.done)  ## on each supported Python, the tests that need no server; the runner in clean roots of nodes
	@for v in $(PYTHONS); do echo "test-pythons: Python $$v"; \
	  PARTS=none .venvs/py$$v/bin/python -m pytest -n $(WORKERS) -q -r fE || exit 1; done
	@for root in $$($(BIN)/python -m tests.bootstrap.roots); do echo "test-pythons: the runner in $$root"; \
	  CLEAN_ROOT=$$root TRN_TEST_PYTHON=$(CURDIR)/tests/runner/python_in_root.sh \
	  $(BIN)/python -m pytest -n $(WORKERS) -q -r fE tests/runner/test_pod.py tests/runner/test_stage_ends.py || exit 1; done

# pyenv's commands work for the versions that it is told to use.
.venvs/py%/.done: requirements-dev.txt pyproject.toml node_modules/.done
	@echo "setup: Python $*"
	@PYENV_VERSION=$$(pyenv versions --bare 2>/dev/null | paste -sd:) $(UV) venv --quiet --clear --python $* .venvs/py$*
	@VIRTUAL_ENV=.venvs/py$* && export VIRTUAL_ENV && $(SYNC) requirements-dev.txt && $(OURSELVES)
	@touch $@

kubernetes: setup  ## the programs of the local Kubernetes with Kueue and JobSet, compiled from their Go modules (Go included): 5 minutes on two cores, 300 MB, once on a machine; CI=true: Volcano too
	@$(BIN)/python -m sandbox.kubernetes build $(if $(filter true,$(CI)),--all)

slurm: setup  ## Slurm of Debian or Ubuntu, unpacked into .cache without root; seconds, once
	@$(BIN)/python -m sandbox.slurm_packages

conformance: setup slurm  ## the job kinds against the vendors' own programs; UPSTREAM=FOLDERS: local sources; RECORD=1: records the run
	@$(BIN)/python -m sandbox.kubernetes build --all
	@for e in $$($(BIN)/python -m conformance.vendor); do $(MAKE) --no-print-directory .venvs/$$e/.done || exit 1; done
	$(BIN)/python -m pytest conformance -q $(if $(RECORD),--record)
	$(BIN)/python -m pytest tests/conformance tests/pcluster/test_upstream.py -q

.venvs/vendor/.done .venvs/torchtitan/.done .venvs/nemo/.done: .venvs/%/.done: conformance/requirements-%.txt $(VENV)/.done
	@echo "conformance: environment of $*, several GB"
	@$(UV) venv --quiet --clear --python $(BIN)/python .venvs/$*
	@VIRTUAL_ENV=.venvs/$* $(SYNC) $<
	@touch $@

ROOM ?= description/catalog
FAULTS ?= 40
MUTATION := .cache/mutation
CR := $(CURDIR)/.venvs/mutation/bin

mutation: setup .venvs/mutation/.done  ## small faults in what is committed, one at a time: which of them the tests miss; ROOM=description/catalog FAULTS=40
	@rm -rf $(MUTATION) && git clone -q . $(MUTATION) && ln -s $(CURDIR)/.venv $(CURDIR)/.venvs $(CURDIR)/node_modules $(MUTATION)
	@cd $(MUTATION) && export PARTS=none PYTHONPATH=$$PWD/constructs && \
	sed 's,@ROOM@,$(ROOM),; s,@TESTS@,$(wildcard tests/$(notdir $(ROOM)) tests/test_$(notdir $(ROOM)).py),' tools/mutation/cosmic-ray.toml > room.toml && \
	$(CR)/cosmic-ray init room.toml room.sqlite && $(CR)/cr-filter-operators room.sqlite room.toml && \
	$(CR)/python tools/mutation/sample.py room.sqlite $(FAULTS) && \
	$(CR)/cosmic-ray baseline room.toml && $(CR)/cosmic-ray exec room.toml room.sqlite && \
	$(CR)/cr-report --surviving-only --show-diff room.sqlite

audit: setup .venvs/audit/.done  ## every security scanner over every template, script, job and file: what is not acknowledged
	@tools/audit/run.sh $(ENVIRONMENTS)

trust: CI := true
trust: setup kubernetes slurm .venvs/audit/.done .venvs/types/.done  ## every long test: faults, crashes, bad networks, clean roots, random input: an hour
	tools/audit/run.sh
	CI=true EXAMPLES=many $(BIN)/python -m pytest -m sweep -n $(WORKERS) --dist loadscope --no-loadscope-reorder
	CI=true EXAMPLES=many $(BIN)/python -m pytest -n $(WORKERS) $$(grep -rl --include='test_*.py' 'many(' tests)

lint: setup  ## style and types, without the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

setup: $(VENV)/.done .venvs/aws/.done .venvs/pcluster/.done node_modules/.done  ## the environments, from pinned versions

$(VENV)/.done: requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "trainium-cdk needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 ...")'
	@echo "setup: Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.txt | $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r /dev/stdin
	@# uv again by itself: its cache then holds it too, for the environments that the tests make without a network.
	@VIRTUAL_ENV=$(VENV) && export VIRTUAL_ENV && $(SYNC) --reinstall-package uv requirements-dev.txt && $(OURSELVES)
	@touch $@

.venvs/%/.done: sandbox/requirements-%.txt $(VENV)/.done
	@$(BIN)/python -m sandbox.install $*

.venvs/%/.done: requirements/%.txt $(VENV)/.done
	@$(BIN)/python -m sandbox.install $*

node_modules/.done: package-lock.json $(VENV)/.done
	@echo "setup: the CDK command line"
	@$(BIN)/npm ci --silent --no-progress
	@touch $@

test-system:  ## Debian packages of the tests' real parts; needs root
	@missing=$$(grep -v '^#' tests/debian-packages.txt | while read -r p; do dpkg -s "$$p" >/dev/null 2>&1 || echo "$$p"; done); \
	if [ -n "$$missing" ]; then echo "system: installing" $$missing; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi

bench: setup slurm $(if $(GOODPUT),kubernetes)  ## requests, synthesis, 2,000 jobs, memory, as ratios; GOODPUT=1: of a training with faults
	@$(BIN)/python -m tools.benchmarks $(if $(GOODPUT),goodput)

LOCK := $(UV) pip compile --quiet --python-version 3.11 --universal --generate-hashes --no-header --no-annotate
LOCKS := $(wildcard requirements/*.in sandbox/requirements-*.in conformance/requirements-*.in)

lock:  ## pin again, with hashes, what pyproject.toml and the .in files ask for
	@$(LOCK) pyproject.toml --extra cdk --extra jobs --extra dev --extra node -o requirements-dev.txt
	@$(LOCK) pyproject.toml --extra cdk --extra jobs --extra node --constraints requirements-dev.txt -o requirements.txt
	@for f in $(LOCKS:.in=); do $(LOCK) $$f.in -o $$f.txt; done

dist: setup .venvs/dist/.done  ## wheel and source distribution, in dist, checked as a package index would
	@rm -f dist/*.whl dist/*.tar.gz
	@$(BIN)/python -m build --no-isolation --outdir dist >.cache/dist.log 2>&1 || { cat .cache/dist.log; exit 1; }
	@.venvs/dist/bin/twine check --strict dist/*.whl dist/*.tar.gz
	@.venvs/dist/bin/check-wheel-contents dist/*.whl

SBOM := dist/sbom

sbom: setup .venvs/sbom/.done  ## bills of materials of every lock file (CycloneDX), in dist/sbom
	@mkdir -p $(SBOM)
	@for f in requirements requirements-dev $(LOCKS:.in=); do \
	  .venvs/sbom/bin/cyclonedx-py requirements $$f.txt --pyproject pyproject.toml --output-reproducible --no-validate --output-format JSON \
	    --output-file $(SBOM)/$$(basename $$f).cdx.json || exit 1; done
	@$(BIN)/npm sbom --sbom-format=cyclonedx --package-lock-only > $(SBOM)/node.cdx.json
	@ls $(SBOM)

docs: setup .venvs/docs/.done  ## the site, in dist/site: docs/, and references made from the code; every link is checked
	@$(BIN)/python -m tools.reference .cache/site
	@NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/mkdocs build --quiet
	@echo "docs: dist/site/index.html"

schema: setup  ## environment.schema.json: editors complete the environment file with it
	@$(BIN)/trn show schema > environment.schema.json

pictures: setup  ## of the docs: the stacks as flowcharts, drawings, and a report in a browser
	@$(BIN)/python -m tests.pictures

recording: setup slurm .venvs/recording/.done  ## of the home page: a job in the sandbox, as on a terminal; 5 minutes. HANG=1: of a job that hangs, 20 minutes
	@.venvs/recording/bin/python -m tools.recording $(if $(HANG),hang)

COMPILED = $${TRN_SANDBOX_HOME:-$${XDG_CACHE_HOME:-$$HOME/.cache}/trainium-sandbox}/kubernetes

findings:  ## what tools beside this project do unexpectedly: installs some 9 GB, one after the other; ten minutes
	@failed=; for f in findings/*.sh; do echo "== $$f"; bash $$f || failed="$$failed $$f"; done; \
	[ -z "$$failed" ] || { echo "changed since:$$failed"; exit 1; }

clean:  ## remove all that the other targets made here; the programs of Kubernetes stay for other clones
	rm -rf $(VENV) .venvs node_modules cdk.out dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@[ ! -d "$(COMPILED)" ] || echo "clean: all clones share the programs of Kubernetes. To remove them: rm -rf $(COMPILED)"
