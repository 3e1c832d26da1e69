# What a person runs. The first run builds a control plane, which takes about
# ten minutes on 2 cores; later ones find it in the cache.

CARGO_TARGET_DIR ?= target
# Named, so that the flags are for the operator alone and not for what builds it.
HOST = $(shell rustc --version --verbose 2>/dev/null | sed -n 's/^host: //p')
TARGET = $(HOST)
OPERATOR = $(CARGO_TARGET_DIR)/$(TARGET)/release/configmonitor-operator
IMAGES = $(CARGO_TARGET_DIR)/images
# As testenv/src/binaries.rs has it.
CACHE = $(or $(CONFIGMONITOR_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/configmonitor-operator)
CARGO_MUTANTS = $(CACHE)/cargo-mutants-27.1.0/bin/cargo-mutants
CHECKS = bans licenses sources
CARGO_DENY = $(CACHE)/cargo-deny-0.20.2/bin/cargo-deny
CARGO_CYCLONEDX = $(CACHE)/cargo-cyclonedx-0.5.9/bin/cargo-cyclonedx
DIST = $(CARGO_TARGET_DIR)/dist
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: help demo test simulate test-node test-versions chaos mutants deny bench build image bundle release release-check release-ready prepare tools chart lints go rust

help:
	@echo "make demo         edit a ConfigMap on a real API server and see its pods restart"
	@echo "make demo KEEP=1  the same, and leave it running to try it by hand"
	@echo "make test         every check and every test"
	@echo "make simulate STORIES=100000 SEED=7 DEPTH=4"
	@echo "                  the rules in stories that the real controller plays in a simulated cluster: so many by chance,"
	@echo "                  and every small one of so many moves"
	@echo "make test-node    the manifests in real containers, on a real kubelet; as root, on Debian"
	@echo "make test-versions"
	@echo "                  the operator on each version of Kubernetes in docs/versions.md; takes two hours"
	@echo "make test-versions VERSIONS='1.30 1.36'"
	@echo "                  on these only"
	@echo "make chaos SEED=7 SECONDS=600"
	@echo "                  users and faults of every kind at once, and a check that no change was lost"
	@echo "                  with an even seed two replicas elect a leader"
	@echo "make mutants      that the tests notice every change of src which cargo-mutants makes, and when what keeps a rule is taken"
	@echo "                  away; takes hours"
	@echo "make mutants SINCE=main"
	@echo "                  only what has changed since then; a minute for ten changes"
	@echo "make bench        what restarts, a storm, a stream of edits, many objects and many namespaces cost: BENCHMARKS.md; takes ninety minutes"
	@echo "make bench PART=storm"
	@echo "                  one part of it: restarts, rolling, storm, stream, memory, scale or namespaces"
	@echo "make bench PART=pictures"
	@echo "                  only the pictures, from the data in docs/images/data"
	@echo "make build        the operator: $(OPERATOR)"
	@echo "make chart        what is generated of the Helm chart"
	@echo "make image        its image, for docker load and others: $(IMAGES)/configmonitor-operator.tar"
	@echo "make bundle       the bundle for the Operator Lifecycle Manager, in bundle: docs/olm.md"
	@echo "make bundle IMAGE=registry.example.com/configmonitor-operator:$(VERSION)"
	@echo "                  the same with this image of the operator, in $(CARGO_TARGET_DIR)/bundle"
	@echo "make deny         licences, sources and duplicates of Cargo.lock by the policy in deny.toml; part of make test"
	@echo "make release      what a release has, for amd64 and arm64: $(DIST); on Debian 12"
	@echo "make release-check"
	@echo "                  that another folder makes the same bytes of this commit, and that the binary for arm64 works, in an emulator"

demo: prepare build
	@CONFIGMONITOR_OPERATOR=$(OPERATOR) cargo run --quiet --locked -p testenv --bin demo -- $(if $(filter 1,$(KEEP)),--keep)

test: prepare tools lints deny
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
	cargo test --locked
	$(MAKE) simulate
	cargo build --locked
	cargo test -p testenv --locked

# Part of make test, with these numbers.
simulate: rust
	STORIES=$(or $(STORIES),10000) SEED=$(or $(SEED),0) DEPTH=$(or $(DEPTH),3) cargo test --locked --profile simulation --test world -- \
	    --nocapture --test-threads=1 runs::

# A short run with a fixed seed is part of make test.
chaos: prepare tools
	cargo build --locked
	CHAOS_SEED=$(or $(SEED),1) CHAOS_SECONDS=$(or $(SECONDS),60) cargo test --quiet -p testenv --locked --test operator \
	    no_change_is_lost -- --nocapture

mutants: rust $(CARGO_MUTANTS)
	@PATH="$(dir $(CARGO_MUTANTS)):$$PATH" testenv/mutants/generated.sh $(SINCE)
	@[ -n "$(SINCE)" ] || testenv/mutants/by-hand.sh

deny: rust $(CARGO_DENY)
	@PATH="$(dir $(CARGO_DENY)):$$PATH" cargo deny --locked check --deny warnings $(CHECKS)

# CACHE/NAME-VERSION/bin/NAME, with the lock file that it was released with.
$(CARGO_MUTANTS) $(CARGO_DENY) $(CARGO_CYCLONEDX): root = $(@:/bin/$(@F)=)
$(CARGO_MUTANTS) $(CARGO_DENY) $(CARGO_CYCLONEDX):
	CARGO_TARGET_DIR="$(root)/build" CARGO_PROFILE_DEV_DEBUG=false cargo install --debug --locked \
	    --version $(patsubst $(@F)-%,%,$(notdir $(root))) --root "$(root)" $(@F)
	rm -rf "$(root)/build"

bench: prepare tools build
	@CONFIGMONITOR_OPERATOR=$(OPERATOR) cargo run --quiet --release --locked -p testenv --bin bench -- $(PART)

# Says first what is missing on this machine. The test itself runs in namespaces of its own.
test-node: rust go
	@testenv/node/ready.sh
	cargo run --locked -p testenv --bin prepare -- --kubelet
	$(MAKE) image $(IMAGES)/demo-app.tar
	CONFIGMONITOR_IMAGES="$$(realpath "$(IMAGES)")" cargo test --locked -p testenv --test node \
	    --config "target.'cfg(unix)'.runner = ['setpriv', '--pdeathsig', 'TERM', '$(CURDIR)/testenv/node/in-namespaces.sh']" -- --nocapture --test-threads=1

# What testenv/versions.sh takes: the oldest and the newest also with each other's kubectl proxy, and on a real node.
VERSIONS = 1.30 1.33 1.34 1.35 1.36 1.30/1.36 1.36/1.30 node/1.30 node/1.36

test-versions: tools
	cargo build --locked
	@testenv/versions.sh $(VERSIONS)

# Static, so that it runs in an empty image; and the same bytes in whatever folder it is built.
build: rust
	CARGO_ENCODED_RUSTFLAGS="$$(printf '%s\037%s\037%s' -Ctarget-feature=+crt-static \
	    "--remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=cargo" "--remap-path-prefix=$(CURDIR)=.")" \
	    cargo build --release --locked --target $(TARGET)

# What deploy/Dockerfile makes, without a container daemon.
image: build
	rm -rf "$(IMAGES)/root" && mkdir -p "$(IMAGES)/root" && cp "$(OPERATOR)" "$(IMAGES)/root/"
	deploy/image.sh configmonitor-operator:$(VERSION) deploy/Dockerfile "$(IMAGES)/configmonitor-operator.tar" "$(IMAGES)/root"

# With an image, it is not the one that is committed.
bundle: prepare
	@cargo run --quiet --locked -p testenv --bin bundle -- $(if $(IMAGE),"$(CARGO_TARGET_DIR)/bundle" "$(IMAGE)",bundle)

$(IMAGES)/demo-app.tar: Cargo.toml demo-app/app.py demo-app/requirements.txt demo-app/Dockerfile testenv/node/demo-app.sh deploy/image.sh
	testenv/node/demo-app.sh configmonitor-demo-app:$(VERSION) $@

release: rust go release-ready $(CARGO_CYCLONEDX)
	PATH="$(dir $(CARGO_CYCLONEDX)):$$PATH" release/make.sh "$(DIST)" "$(CACHE)"

release-check: release prepare
	release/check.sh "$(DIST)"

# Says first what is missing on this machine.
release-ready: rust
	@release/ready.sh

# The control plane's programs. Says first what is missing on this machine.
prepare: rust go
	cargo run --locked -p testenv --bin prepare

# What tests use beside the control plane: Prometheus, Helm and so on.
tools: rust go
	cargo run --locked -p testenv --bin prepare -- --tools

# Copies what the chart has of other folders, and writes its README.
chart: rust go
	cp crd.yml deploy/monitoring/rules.yml deploy/monitoring/dashboard.json charts/configmonitor-operator/files/
	"$$(cargo run --quiet --locked -p testenv --bin prepare -- --tool helm-docs)" --chart-search-root charts

go:
	@command -v go >/dev/null || [ -n "$$KUBEBUILDER_ASSETS" ] || { echo "error: Go is needed to build the control plane: please install it"; exit 1; }

# Which the images of Rust lack.
lints: rust
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || rustup component add clippy rustfmt

rust:
	@command -v cargo >/dev/null || { echo "error: Rust (cargo) is needed: please install it"; exit 1; }
