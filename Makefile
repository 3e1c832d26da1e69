# What a person runs. The first run builds a control plane, which takes about
# ten minutes on 2 cores; later ones find it in the cache.

CARGO_TARGET_DIR ?= target
# Named, so that the flags are for the operator alone and not for what builds it.
HOST = $(shell rustc --version --verbose 2>/dev/null | sed -n 's/^host: //p')
OPERATOR = $(CARGO_TARGET_DIR)/$(HOST)/release/configmonitor-operator
IMAGES = $(CARGO_TARGET_DIR)/images
# As testenv/src/binaries.rs has it.
CACHE = $(or $(CONFIGMONITOR_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/configmonitor-operator)
CARGO_MUTANTS_VERSION = 27.1.0
CARGO_MUTANTS = $(CACHE)/cargo-mutants-$(CARGO_MUTANTS_VERSION)
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: help demo test simulate test-node chaos mutants bench build image bundle prepare monitoring go rust

help:
	@echo "make demo         edit a ConfigMap on a real API server and see its pods restart"
	@echo "make demo KEEP=1  the same, and leave it running to try it by hand"
	@echo "make test         every check and every test"
	@echo "make simulate STORIES=100000 SEED=7 DEPTH=4"
	@echo "                  the rules in stories that the real controller plays in a simulated cluster: so many by chance,"
	@echo "                  and every small one of so many moves"
	@echo "make test-node    the manifests in real containers, on a real kubelet; as root, on Debian"
	@echo "make chaos SEED=7 SECONDS=600"
	@echo "                  users and faults of every kind at once, and a check that no change was lost"
	@echo "                  with an even seed two replicas elect a leader"
	@echo "make mutants      that the tests notice every change of src which cargo-mutants makes, and when what keeps a rule is taken"
	@echo "                  away; takes hours"
	@echo "make mutants SINCE=main"
	@echo "                  only what has changed since then; a minute for ten changes"
	@echo "make bench        what restarts, a storm, a stream of edits, many objects and many namespaces cost: BENCHMARKS.md; takes ninety minutes"
	@echo "make bench PART=storm"
	@echo "                  one part of it: restarts, rolling, storm, stream, memory or scale"
	@echo "make build        the operator: $(OPERATOR)"
	@echo "make image        its image, for docker load and others: $(IMAGES)/configmonitor-operator.tar"
	@echo "make bundle       the bundle for the Operator Lifecycle Manager, in bundle: docs/olm.md"
	@echo "make bundle IMAGE=registry.example.com/configmonitor-operator:$(VERSION)"
	@echo "                  the same with this image of the operator, in $(CARGO_TARGET_DIR)/bundle"

demo: prepare build
	@CONFIGMONITOR_OPERATOR=$(OPERATOR) cargo run --quiet --locked -p testenv --bin demo -- $(if $(filter 1,$(KEEP)),--keep)

test: prepare monitoring
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
chaos: prepare monitoring
	cargo build --locked
	CHAOS_SEED=$(or $(SEED),1) CHAOS_SECONDS=$(or $(SECONDS),60) cargo test --quiet -p testenv --locked --test operator \
	    no_change_is_lost -- --nocapture

mutants: rust $(CARGO_MUTANTS)/bin/cargo-mutants
	@PATH="$(CARGO_MUTANTS)/bin:$$PATH" testenv/mutants/generated.sh $(SINCE)
	@[ -n "$(SINCE)" ] || testenv/mutants/by-hand.sh

# With the lock file that it was released with.
$(CARGO_MUTANTS)/bin/cargo-mutants:
	CARGO_TARGET_DIR="$(CARGO_MUTANTS)/build" cargo install --locked --version $(CARGO_MUTANTS_VERSION) --root "$(CARGO_MUTANTS)" cargo-mutants
	rm -rf "$(CARGO_MUTANTS)/build"

bench: prepare monitoring build
	@CONFIGMONITOR_OPERATOR=$(OPERATOR) cargo run --quiet --release --locked -p testenv --bin bench -- $(PART)

# Says first what is missing on this machine. The test itself runs in namespaces of its own.
test-node: rust go
	@testenv/node/ready.sh
	cargo run --locked -p testenv --bin prepare -- --kubelet
	$(MAKE) image $(IMAGES)/demo-app.tar
	CONFIGMONITOR_IMAGES="$$(realpath "$(IMAGES)")" cargo test --locked -p testenv --test node \
	    --config "target.'cfg(unix)'.runner = ['setpriv', '--pdeathsig', 'TERM', '$(CURDIR)/testenv/node/in-namespaces.sh']" -- --nocapture --test-threads=1

# Static, so that it runs in an empty image; and the same bytes in whatever folder it is built.
build: rust
	CARGO_ENCODED_RUSTFLAGS="$$(printf '%s\037%s\037%s' -Ctarget-feature=+crt-static \
	    "--remap-path-prefix=$${CARGO_HOME:-$$HOME/.cargo}=cargo" "--remap-path-prefix=$(CURDIR)=.")" \
	    cargo build --release --locked --target $(HOST)

# What deploy/Dockerfile makes, without a container daemon.
image: build
	rm -rf "$(IMAGES)/root" && mkdir -p "$(IMAGES)/root" && cp "$(OPERATOR)" "$(IMAGES)/root/"
	deploy/image.sh configmonitor-operator:$(VERSION) deploy/Dockerfile "$(IMAGES)/root" "$(IMAGES)/configmonitor-operator.tar"

# With an image, it is not the one that is committed.
bundle: prepare
	@cargo run --quiet --locked -p testenv --bin bundle -- $(if $(IMAGE),"$(CARGO_TARGET_DIR)/bundle" "$(IMAGE)",bundle)

$(IMAGES)/demo-app.tar: Cargo.toml demo-app/app.py demo-app/requirements.txt demo-app/Dockerfile testenv/node/demo-app.sh deploy/image.sh
	testenv/node/demo-app.sh configmonitor-demo-app:$(VERSION) $@

# The control plane's programs. Says first what is missing on this machine.
prepare: rust go
	cargo run --locked -p testenv --bin prepare

# What scrapes the operator in tests, and checks the rules.
monitoring: rust go
	cargo run --locked -p testenv --bin prepare -- --monitoring

go:
	@command -v go >/dev/null || [ -n "$$KUBEBUILDER_ASSETS" ] || { echo "error: Go is needed to build the control plane: please install it"; exit 1; }

rust:
	@command -v cargo >/dev/null || { echo "error: Rust (cargo) is needed: please install it"; exit 1; }
