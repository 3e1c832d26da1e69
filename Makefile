# What a person runs. The first run builds a control plane, which takes about
# ten minutes on 2 cores; later ones find it in the cache.

CARGO_TARGET_DIR ?= target
# Named, so that the flags are for the operator alone and not for what builds it.
HOST = $(shell rustc --version --verbose 2>/dev/null | sed -n 's/^host: //p')
OPERATOR = $(CARGO_TARGET_DIR)/$(HOST)/release/configmonitor-operator

.PHONY: help demo test build prepare go rust

help:
	@echo "make demo         edit a ConfigMap on a real API server and see its pods restart"
	@echo "make demo KEEP=1  the same, and leave it running to try it by hand"
	@echo "make test         every check and every test"
	@echo "make build        the operator: $(OPERATOR)"

demo: prepare build
	@CONFIGMONITOR_OPERATOR=$(OPERATOR) cargo run --quiet --locked -p testenv --bin demo -- $(if $(filter 1,$(KEEP)),--keep)

test: prepare
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
	cargo test --locked
	cargo build --locked
	cargo test -p testenv --locked

# Static: it runs in an empty image.
build: rust
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --release --locked --target $(HOST)

# The control plane's programs. Says first what is missing on this machine.
prepare: rust go
	cargo run --locked -p testenv --bin prepare

go:
	@command -v go >/dev/null || [ -n "$$KUBEBUILDER_ASSETS" ] || { echo "error: Go is needed to build the control plane: please install it"; exit 1; }

rust:
	@command -v cargo >/dev/null || { echo "error: Rust (cargo) is needed: please install it"; exit 1; }
