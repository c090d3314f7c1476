# The two commands: `make demo` shows the main job on real parts, `make test` runs every test.
# Built things are kept outside the checkout, so that the next clone on this machine is quick.

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kubectl-hibernate
export CARGO_TARGET_DIR ?= $(CACHE)/target
export HIBERNATE_BIN := $(CURDIR)/bin

PROGRAMS := kubectl-hibernate hibernate-webhook hibernate-controller hibernate-manifests testbed
# Always the whole workspace: with fewer packages cargo picks fewer features and compiles the AWS SDK (minutes) once more.
CARGO_FLAGS := --release --workspace --locked

.PHONY: help build demo demo-fdb test retest unit lint fmt deny manifests krew bench bench-hive clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: need-cargo ## Build every program into ./bin
	@echo "==> building (the first time takes about 10 minutes and 8 GB: the AWS SDK is large)"
	cargo build $(CARGO_FLAGS) --bins
	@mkdir -p bin
	@for program in $(PROGRAMS); do cp -f "$(CARGO_TARGET_DIR)/release/$$program" bin/ || exit 1; done
	@ln -sf kubectl-hibernate bin/kubectl_complete-hibernate

demo: need-all build ## Put a cluster to sleep and wake it, on real parts
	@bash tests/demo.sh

demo-fdb: need-all build ## Remove a FoundationDB process group by mistake, and bring it back
	@bash tests/demo-fdb.sh

test: need-all build ## Run every test; each file brings up the world that it needs
	cargo test $(CARGO_FLAGS) --no-fail-fast

retest: need-all
	cargo test $(CARGO_FLAGS) $(TARGETS) -- --exact $(NAMES)

unit: need-cargo ## Run the tests that need no world
	cargo test $(CARGO_FLAGS) --lib --bins

lint: need-cargo ## Check format and lints
	cargo fmt --all --check
	cargo clippy $(CARGO_FLAGS) --all-targets -- -D warnings

fmt: need-cargo ## Format
	cargo fmt --all

deny: need-cargo ## Check licences, sources and bans of the dependencies
	@command -v cargo-deny >/dev/null || { echo "cargo-deny is missing: cargo install cargo-deny --locked"; exit 1; }
	cargo deny check bans licenses sources

manifests: build ## Write manifests/ anew from their program
	bin/hibernate-manifests

krew: need-cargo ## Build, validate and install this platform's krew archive
	bash manifests/krew.sh

bench: need-all build ## Measure: start-up of the plugin, latency of the webhook
	cargo bench $(CARGO_FLAGS:--release=) --bench plugin_startup --bench admission_load

bench-hive: need-all build ## Measure the controller against Hive's own (about 15 minutes; SCENARIOS="a c" for some of them)
	cargo bench $(CARGO_FLAGS:--release=) --bench hive -- $(SCENARIOS)

clean: ## Remove what was built in this checkout (the cache stays)
	rm -rf bin dist

.PHONY: need-all need-cargo need-go need-python3 need-kubectl
need-all: need-cargo need-go need-python3 need-kubectl
need-cargo: ; @command -v cargo >/dev/null || { echo "make: cargo is missing: install Rust 1.95"; exit 1; }
	@# Checkouts share what is built, and cargo tells their crates apart by time stamps alone: make this one's the newest.
	@if [ "$$(cat $(CARGO_TARGET_DIR)/.checkout 2>/dev/null)" != "$(CURDIR)" ]; then \
		mkdir -p $(CARGO_TARGET_DIR) && find . -name '*.rs' -exec touch {} + && echo "$(CURDIR)" > $(CARGO_TARGET_DIR)/.checkout; fi
need-go: ; @command -v go >/dev/null || { echo "make: go is missing: install Go 1.26 (it builds the control plane for the tests)"; exit 1; }
need-python3: ; @command -v python3 >/dev/null || { echo "make: python3 is missing: install Python 3.10 or newer (it runs the EC2 simulator)"; exit 1; }
need-kubectl: ; @command -v kubectl >/dev/null || { echo "make: kubectl is missing: install kubectl 1.30 or newer"; exit 1; }
