# The two commands: `make demo` shows the main job on real parts, `make test` runs every test of the product.
# Built things are kept outside the checkout, so that the next clone on this machine is quick.

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/kubectl-hibernate
export CARGO_TARGET_DIR ?= $(CACHE)/target
export HIBERNATE_BIN := $(CURDIR)/bin

DENY_VERSION := 0.20.2
DENY := $(CACHE)/cargo-deny/$(DENY_VERSION)

PROGRAMS := kubectl-hibernate hibernate-webhook hibernate-controller hibernate-manifests testbed
# Always the whole workspace: with fewer packages cargo picks fewer features and compiles the AWS SDK (minutes) once more.
# Tests and demos leave our own crates unoptimized: optimizing them costs CI 20 minutes.
export CARGO_FLAGS = --release --workspace --locked $(if $(UNOPTIMIZED),--config tests/unoptimized.toml)
# End-to-end tests that run side by side. Each of them mostly waits, so more than there are cores.
export THREADS ?= 14

.PHONY: help build prepare demo demo-fdb demo-kkp demo-rollout demo-schedule test test-openstack test-page screenshots test-testbed e2e unit test-times fuzz lint fmt deny advisories manifests krew images release test-release test-images bench bench-cgu bench-hive bench-kkp bench-rollouts bench-hostile bench-schedules bench-page clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo demo-fdb demo-kkp demo-rollout demo-schedule test test-openstack test-page screenshots test-testbed e2e unit lint manifests retest: export UNOPTIMIZED := 1

# What a target's world runs and cargo does not build: all of it for tests, less for a demo.
export ASSETS ?= python controlplane kubelet helm openstack
bench bench-cgu bench-hive bench-kkp bench-rollouts bench-hostile bench-schedules bench-page: export ASSETS := python controlplane kubelet
demo demo-kkp demo-rollout demo-schedule: export ASSETS := python controlplane
demo-fdb: export ASSETS := python controlplane kubelet

build: need-cargo ## Build every program into ./bin
	@echo "==> building (the first time takes 15 to 25 minutes and 8 GB of memory: the AWS SDK is large)"
	@$(CARGO) build $(CARGO_FLAGS) --bins
	@mkdir -p bin
	@for program in $(PROGRAMS); do cp -f "$(CARGO_TARGET_DIR)/release/$$program" bin/ || exit 1; done
	@ln -sf kubectl-hibernate bin/kubectl_complete-hibernate

# Go and Rust build side by side: cargo alone cannot keep two cores busy. If one fails, make waits for the other and fails.
prepare: need-all
	@$(MAKE) --no-print-directory -j2 build assets

demo: prepare ## Put a cluster to sleep and wake it, on real parts
	@bash tests/demo.sh

demo-fdb: prepare ## Remove a FoundationDB process group by mistake, and bring it back
	@bash tests/demo-fdb.sh

demo-kkp: prepare ## Put a user cluster of KKP to sleep with its machines and control plane, and bring it back
	@bash tests/demo-kkp.sh

demo-rollout: prepare ## Put twelve clusters to sleep in waves, halt a wake at its canary, retry it and undo it
	@bash tests/demo-rollout.sh

demo-schedule: prepare ## Let three clusters sleep at night by a schedule, from Friday to Monday, on a clock that jumps
	@bash tests/demo-schedule.sh

test: prepare ## Run the unit tests and the end-to-end tests (THREADS=14 of them side by side)
	@bash tests/run.sh unit doc e2e

test-openstack: prepare ## Run the long tests on OpenStack's own services: faults, changes of mind, conformance
	@bash tests/run.sh openstack

test-page: prepare ## Run the tests of the page in Chromium (on Debian: apt-get install chromium chromium-driver)
	@HIBERNATE_PAGE=1 bash tests/run.sh e2e -- page

screenshots: prepare ## Take pictures of every view of the page, light, dark and narrow, into dist/screenshots
	@HIBERNATE_PAGE=1 HIBERNATE_SCREENSHOTS=$(CURDIR)/dist/screenshots bash tests/run.sh e2e -- no_view_has

test-testbed: prepare ## Run the tests of the test world itself
	@bash tests/run.sh testbed

e2e: prepare ## Run the end-to-end tests whose names contain a word: make e2e TEST=hive_aws
	@bash tests/run.sh e2e -- $(TEST)

unit: need-cargo ## Run the tests that need no world
	@bash tests/run.sh unit doc

fuzz: need-cargo ## Feed mutated inputs to what reads untrusted input, each target for so long: make fuzz SECONDS=60, or INPUTS=1000000
	@FUZZ_SECONDS=$(or $(SECONDS),60) $(if $(INPUTS),FUZZ_INPUTS=$(INPUTS)) bash tests/run.sh fuzz

test-times: ## Show where the time of the last test run went
	@bash tests/times.sh

retest: need-all
	@bash tests/run.sh again $(SUITE) $(NAMES)

# clippy as the compiler of our crates, on top of the dependencies that the build has compiled already: `cargo clippy` compiles them all once
# more for itself, the AWS SDK among them. The arguments are how `cargo clippy` hands its own to the driver; rust-toolchain.toml pins the
# version that understands them. CI sets the wrapper for all that it builds: one compile lints our crates and tests them.
export CLIPPY_ARGS := -D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__

lint: need-cargo ## Check format and lints
	cargo fmt --all --check
	RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo build $(CARGO_FLAGS) --all-targets

fmt: need-cargo ## Format
	cargo fmt --all

deny: $(DENY)/bin/cargo-deny ## Check licenses, sources and bans of the dependencies (installs cargo-deny into the cache)
	$< check bans licenses sources

advisories: $(DENY)/bin/cargo-deny ## Check the dependencies for known vulnerabilities (downloads the RustSec database)
	$< check advisories

$(DENY)/bin/cargo-deny: | need-cargo
	@echo "==> installing cargo-deny $(DENY_VERSION) (about 3 minutes, once)"
	@env -u CARGO_TARGET_DIR -u RUSTC_WORKSPACE_WRAPPER -u MAKEFLAGS -u MFLAGS cargo install --quiet --locked --root $(DENY) cargo-deny@$(DENY_VERSION)

manifests: build ## Write manifests/ anew from their program
	bin/hibernate-manifests

krew: need-cargo ## Build, validate and install this platform's krew archive
	bash manifests/krew.sh

images: build ## Build the images of webhook and controller into dist/
	bash manifests/images/build.sh bin dist

release: need-cargo ## Build everything of a release into dist/; publishes nothing
	bash manifests/release.sh

test-release: assets ## Run what make release has built
	bash manifests/release-test.sh

test-images: images assets ## Run the images as Pods run them: a refusal and a sleep
	bash manifests/images/test.sh dist

bench: prepare ## Measure: start-up of the plugin, latency of the webhook
	cargo bench $(CARGO_FLAGS:--release=) --bench plugin_startup --bench admission_load

bench-hive: prepare ## Measure the controller against Hive's own (about 15 minutes; SCENARIOS="a c" for some of them)
	cargo bench $(CARGO_FLAGS:--release=) --bench hive -- $(SCENARIOS)

bench-rollouts: prepare ## Measure rollouts against plain patches, and over ten thousand fake clusters (SCENARIOS=pairs for some of them)
	cargo bench $(CARGO_FLAGS:--release=) --bench rollouts -- $(SCENARIOS)

bench-kkp: prepare ## Measure what dehydration costs a KKP seed (about 10 minutes; SCENARIOS="fleet races" for some)
	cargo bench $(CARGO_FLAGS:--release=) --bench kkp -- $(SCENARIOS)

bench-cgu: prepare ## Measure upgrades of fleets as TALM was measured (about 10 minutes; SCENARIOS="c50 waits" for some)
	cargo bench $(CARGO_FLAGS:--release=) --bench cgu -- $(SCENARIOS)

bench-hostile: prepare ## Measure our ports and the controller under attack (about 15 minutes; SCENARIOS="ports spokes" for some)
	cargo bench $(CARGO_FLAGS:--release=) --bench hostile -- $(SCENARIOS)

bench-schedules: prepare ## Measure what schedules cost, beside kubectl (about 15 minutes; SCENARIOS="cold edge" for some)
	cargo bench $(CARGO_FLAGS:--release=) --bench schedules -- $(SCENARIOS)

bench-page: prepare ## Measure the page with ten thousand targets (about 8 minutes)
	cargo bench $(CARGO_FLAGS:--release=) --bench page

clean: ## Remove what was built in this checkout (the cache stays)
	rm -rf bin dist

.PHONY: assets retest need-all need-cargo need-go need-python3 need-kubectl
# What the test world runs and cargo does not build. Nice, because the Rust build is the longer one.
assets: ; @nice bash tests/assets.sh $(if $(KUBEBUILDER_ASSETS),$(filter-out controlplane,$(ASSETS)),$(ASSETS)) >/dev/null

# Without make's job server, which would leave cargo one core.
CARGO := env -u MAKEFLAGS -u MFLAGS cargo

need-all: need-cargo need-go need-python3 need-kubectl
need-cargo: ; @command -v cargo >/dev/null || { echo "make: cargo is missing: install Rust 1.95"; exit 1; }
	@# Checkouts share what is built, and cargo tells their crates apart by time stamps alone: make this one's the newest.
	@if [ "$$(cat $(CARGO_TARGET_DIR)/.checkout 2>/dev/null)" != "$(CURDIR)" ]; then \
		mkdir -p $(CARGO_TARGET_DIR) && find . -name '*.rs' -exec touch {} + && echo "$(CURDIR)" > $(CARGO_TARGET_DIR)/.checkout; fi
need-go: ; @command -v go >/dev/null || { echo "make: go is missing: install Go 1.26 (it builds the control plane for the tests)"; exit 1; }
need-python3: ; @command -v python3 >/dev/null || { echo "make: python3 is missing: install Python 3.10 or newer (it runs the EC2 simulator)"; exit 1; }
need-kubectl: ; @command -v kubectl >/dev/null || { echo "make: kubectl is missing: install kubectl 1.30 or newer"; exit 1; }
