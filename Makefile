# `make help` lists the targets. `make demo` and `make test` need Rust alone.

CARGO_TARGET_DIR ?= target
# With a named target, RUSTFLAGS apply to the operator only and not to its build scripts.
HOST = $(shell rustc --version --verbose 2>/dev/null | sed -n 's/^host: //p')
TARGET = $(HOST)
PACKAGE = configmonitor-operator
OPERATOR = $(CARGO_TARGET_DIR)/$(TARGET)/release/configmonitor-operator
IMAGES = $(CARGO_TARGET_DIR)/images
OWNER = $(shell sed -n 's|^repository = "https://github.com/\([^/]*\)/.*|\1|p' Cargo.toml)
# The same folder as in testenv/src/binaries.rs.
CACHE = $(or $(CONFIGMONITOR_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/configmonitor-operator)
CARGO_MUTANTS = $(CACHE)/cargo-mutants-27.1.0/bin/cargo-mutants
CHECKS = bans licenses sources
CARGO_DENY = $(CACHE)/cargo-deny-0.20.2/bin/cargo-deny
CARGO_CYCLONEDX = $(CACHE)/cargo-cyclonedx-0.5.9/bin/cargo-cyclonedx
DIST = $(CARGO_TARGET_DIR)/dist
DARWIN = $(CARGO_TARGET_DIR)/darwin
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: help binaries demo test test-cluster test-packaging test-node test-versions nightly simulate explore chaos mutants deny bench build image release release-check release-darwin release-ready prepare tools chart coordinates lints go rust

help:
	@echo "make demo         edit a ConfigMap and see its pods restart, in a simulated cluster; needs Rust alone, at first two minutes"
	@echo "make demo CLUSTER=real"
	@echo "                  the same on a real control plane, which is built at first: ten minutes, with Go"
	@echo "make demo KEEP=1  the same, and leave it running to try it by hand"
	@echo "make demo RECORD=1"
	@echo "                  the same, and record it in docs/images/demo.svg, the picture in README.md"
	@echo "make test         everything that needs no cluster; needs Rust alone, at first ten minutes"
	@echo "make test-cluster the operator on a real control plane, which is built at first: ten minutes, with Go"
	@echo "make test-packaging"
	@echo "                  chart, manifests, alerts and a release with the programs that read them, and the licences; needs Go"
	@echo "make test-node    apply the manifests on a real kubelet with real containers; needs root and Debian"
	@echo "make test-versions"
	@echo "                  test-cluster, test-packaging and test-node on each version of Kubernetes in docs/versions.md; takes two hours"
	@echo "make test-versions VERSIONS='1.31 1.37'"
	@echo "                  these versions only"
	@echo "make nightly      what takes long and finds rarely, with a seed of the day: stories, courses, chaos, a hostile tenant, mutants"
	@echo "make simulate STORIES=100000 SEED=7 DEPTH=4"
	@echo "                  play random stories, and every story of DEPTH moves, with the real controller in a simulated cluster,"
	@echo "                  and check the rules in each"
	@echo "make explore K=3 ALONE=3 PAIRS=2"
	@echo "                  take a restart through every course with up to K deviations, up to ALONE without take-overs, and two restarts"
	@echo "                  of the same pods with up to PAIRS; takes ten minutes, and hours with one more"
	@echo "make chaos SEED=7 SECONDS=600"
	@echo "                  run users and faults of every kind at once, and check that no change is lost;"
	@echo "                  with an even seed, run two replicas with leader election"
	@echo "make mutants      check that the tests notice every change that cargo-mutants makes in src, and every patch in testenv/mutants;"
	@echo "                  takes hours"
	@echo "make mutants SINCE=main"
	@echo "                  the same for the changes since that commit only; a minute for ten changes"
	@echo "make bench        measure restarts, a storm, many objects and many namespaces for BENCHMARKS.md; takes an hour"
	@echo "make bench PART=storm"
	@echo "                  one part of it: restarts, rolling, storm, memory, namespaces or discover"
	@echo "make build        build the operator: $(OPERATOR)"
	@echo "make build PACKAGE=kubectl-cmon"
	@echo "                  build the plugin of kubectl"
	@echo "make chart        update the generated files of the Helm chart"
	@echo "make coordinates  write the owner of the repository in Cargo.toml into the pages, the chart and the image"
	@echo "make image        build the image for docker load and others: $(IMAGES)/configmonitor-operator.tar"
	@echo "make deny         check licences, sources and duplicates in Cargo.lock against deny.toml; part of make test-packaging"
	@echo "make release      build the files of a release, for amd64 and arm64: $(DIST); needs Debian 12"
	@echo "make release-check"
	@echo "                  check that another folder builds the same bytes from this commit, test the binaries for arm64 in an emulator, and"
	@echo "                  push the release to a registry on this machine and install it from there"
	@echo "make release-darwin"
	@echo "                  build the plugin for macOS, on a Mac: $(DARWIN)"

# What tests run. Each target has the same profile and features, so that a crate is built once.
binaries: rust
	cargo build --locked --bins -p configmonitor-operator -p kubectl-cmon -p testenv

PREPARE = $(CARGO_TARGET_DIR)/debug/prepare

demo: rust
	cargo build --locked -p configmonitor-operator -p demo
	@$(CARGO_TARGET_DIR)/debug/demo $(if $(filter real,$(CLUSTER)),real,simulated) $(if $(filter 1,$(KEEP)),--keep) $(if $(filter 1,$(RECORD)),--record docs/images/demo.svg)

test: rust lints
	@STORIES=$(or $(STORIES),3000) DEPTH=$(or $(DEPTH),3) testenv/parts.sh \
	    "format" "cargo fmt --all --check" \
	    "clippy" "cargo clippy --workspace --all-targets --locked -- -D warnings && cargo clippy --workspace --locked $(ON_A_CLUSTER) -- -D warnings" \
	    "documentation" "RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked" \
	    "compilation" "cargo test --workspace --locked --no-run" \
	    "tests" "RUST_TEST_THREADS=8 cargo test --workspace --locked"

# What cargo leaves out unless it is named.
ON_A_CLUSTER = --test operator --test alike --test node

# Tests wait for the cluster most of the time, so more of them run at once than there are cores.
CLUSTER_TESTS = cargo test --workspace --locked --test operator

test-cluster: prepare
	$(CLUSTER_TESTS) --test alike -- --test-threads=12 --skip packaging:: --skip nightly::

test-packaging: prepare tools deny
	$(CLUSTER_TESTS) -- --test-threads=6 packaging::

SEED_OF_THE_DAY := $(shell date +%Y%m%d)
A_DAY_AGO = $(shell git rev-list -1 --before='1 day ago' HEAD)

nightly: prepare tools
	@testenv/parts.sh \
	    "stories" "$(MAKE) simulate STORIES=50000 SEED=$(or $(SEED),$(SEED_OF_THE_DAY)00000)" \
	    "courses" "$(MAKE) explore" \
	    "chaos" "$(MAKE) chaos SEED=$(or $(SEED),$(SEED_OF_THE_DAY)) SECONDS=600" \
	    "other tests" "$(CLUSTER_TESTS) -- nightly:: --skip no_change_is_lost" \
	    $(if $(A_DAY_AGO),"changes" "$(MAKE) mutants SINCE=$(A_DAY_AGO)") \
	    "patches" "testenv/mutants/by-hand.sh"

# Part of make test, with fewer stories.
simulate: rust
	STORIES=$(or $(STORIES),20000) SEED=$(or $(SEED),0) DEPTH=$(or $(DEPTH),3) cargo test --workspace --locked --test simulation -- \
	    --nocapture --test-threads=1 runs:: plans::

# With 2 for each number, part of make test.
explore: rust
	K=$(or $(K),3) ALONE=$(or $(ALONE),3) PAIRS=$(or $(PAIRS),2) cargo test --workspace --locked --lib explore -- --nocapture

# A short run with a fixed seed is part of make nightly.
chaos: prepare
	CHAOS_SEED=$(or $(SEED),1) CHAOS_SECONDS=$(or $(SECONDS),60) $(CLUSTER_TESTS) -- no_change_is_lost --nocapture

mutants: rust $(CARGO_MUTANTS)
	@PATH="$(dir $(CARGO_MUTANTS)):$$PATH" testenv/mutants/generated.sh $(SINCE)
	@[ -n "$(SINCE)" ] || testenv/mutants/by-hand.sh

deny: rust $(CARGO_DENY)
	@PATH="$(dir $(CARGO_DENY)):$$PATH" cargo deny --locked check --deny warnings $(CHECKS)

# Installs CACHE/NAME-VERSION/bin/NAME, with the lock file of that version.
$(CARGO_MUTANTS) $(CARGO_DENY) $(CARGO_CYCLONEDX): root = $(@:/bin/$(@F)=)
$(CARGO_MUTANTS) $(CARGO_DENY) $(CARGO_CYCLONEDX):
	CARGO_TARGET_DIR="$(root)/build" CARGO_PROFILE_DEV_DEBUG=false cargo install --debug --locked \
	    --version $(patsubst $(@F)-%,%,$(notdir $(root))) --root "$(root)" $(@F)
	rm -rf "$(root)/build"

bench: prepare build
	@CONFIGMONITOR_OPERATOR=$(OPERATOR) cargo run --quiet --release --locked -p bench -- $(PART)

# First reports what this machine lacks. The test runs in its own Linux namespaces.
test-node: rust go
	@testenv/node/ready.sh
	$(MAKE) binaries
	$(PREPARE) --kubelet
	$(MAKE) image $(IMAGES)/demo-app.tar
	CONFIGMONITOR_IMAGES="$$(realpath "$(IMAGES)")" cargo test --workspace --locked --test node \
	    --config "target.'cfg(unix)'.runner = ['setpriv', '--pdeathsig', 'TERM', '$(CURDIR)/testenv/node/in-namespaces.sh']" -- --nocapture --test-threads=1

# Arguments of testenv/versions.sh. The oldest and the newest version are tested with each other's kubectl proxy, and on a real node, too.
VERSIONS = 1.31 1.33 1.34 1.35 1.36 1.37 1.31/1.37 1.37/1.31 node/1.31 node/1.37

test-versions: tools
	@testenv/versions.sh $(VERSIONS)

# The operator is static because its image is empty, the plugin so that it runs on every Linux. Every folder builds the same bytes.
build: rust
	CARGO_ENCODED_RUSTFLAGS="$$(printf '%s\037%s\037%s' -Ctarget-feature=+crt-static \
	    "--remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=cargo" "--remap-path-prefix=$(CURDIR)=.")" \
	    cargo build --release --locked --target $(TARGET) --package $(PACKAGE)

# Builds the image of deploy/Dockerfile without a container daemon.
image: build
	rm -rf "$(IMAGES)/root" && mkdir -p "$(IMAGES)/root" && cp "$(OPERATOR)" "$(IMAGES)/root/"
	deploy/image.sh configmonitor-operator:$(VERSION) deploy/Dockerfile "$(IMAGES)/configmonitor-operator.tar" "$(IMAGES)/root"

$(IMAGES)/demo-app.tar: Cargo.toml demo-app/app.py demo-app/requirements.txt demo-app/Dockerfile testenv/node/demo-app.sh deploy/image.sh
	testenv/node/demo-app.sh configmonitor-demo-app:$(VERSION) $@

release: rust go release-ready $(CARGO_CYCLONEDX)
	PATH="$(dir $(CARGO_CYCLONEDX)):$$PATH" release/make.sh "$(DIST)" "$(CACHE)" "$(DARWIN)"

release-check: release prepare
	release/check.sh "$(DIST)"

release-darwin: rust
	release/darwin.sh "$(DARWIN)"

# Reports what this machine lacks for a release.
release-ready: rust
	@release/ready.sh

# Builds the programs of the control plane. First reports what this machine lacks.
prepare: binaries go
	$(PREPARE)

# Builds the other programs that tests use, such as Prometheus and Helm.
tools: binaries go
	$(PREPARE) --tools

# Copies files of other folders and the image of kubectl into the chart, and generates its README.
chart: binaries go
	image=$$(sed -n 's/^ *image: registry.k8s.io.kubectl://p' deploy/operator/deployment.yml) && \
	    sed -i "s|\(image: registry.k8s.io/kubectl\):.*|\1:$$image|" charts/configmonitor-operator/Chart.yaml && \
	    sed -i "/registry.k8s.io.kubectl$$/,/pullPolicy/ { s/tag:.*/tag: $${image%@*}/; s/digest:.*/digest: $${image#*@}/ }" \
	    charts/configmonitor-operator/values.yaml
	cp crd.yml deploy/monitoring/rules.yml deploy/monitoring/dashboard.json charts/configmonitor-operator/files/
	mkdir -p charts/configmonitor-operator/files/policies && cp deploy/policies/*.yml charts/configmonitor-operator/files/policies/
	mkdir -p charts/configmonitor-operator/files/surge && cp deploy/surge/policy/policy.yml charts/configmonitor-operator/files/surge/
	"$$($(PREPARE) --tool helm-docs)" --chart-search-root charts

# Not into Cargo.toml, where it comes from.
coordinates: rust
	test -n "$(OWNER)"
	git grep -lE '(ghcr\.io|github\.com)/[A-Za-z0-9-]+/(charts/)?configmonitor-operator' -- ':!Cargo.toml' | \
	    xargs sed -E -i 's#(ghcr\.io/|github\.com/|--repo )[A-Za-z0-9-]+/((charts/)?configmonitor-operator)#\1$(OWNER)/\2#g'
	$(MAKE) chart

go:
	@command -v go >/dev/null || { echo "error: Go is needed to build the control plane: please install it"; exit 1; }

# The images of Rust lack these components.
lints: rust
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || rustup component add clippy rustfmt

rust:
	@command -v cargo >/dev/null || { echo "error: Rust (cargo) is needed: please install it"; exit 1; }
