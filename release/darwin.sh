#!/bin/sh
# Builds the plugin for macOS, on a Mac. make release packs it, if it finds the folder.
#
#     release/darwin.sh FOLDER
set -eu
rm -rf "$1"
mkdir -p "$1"
# The Rust of the other binaries.
RUSTUP_TOOLCHAIN=$(sed -n 's/^FROM rust:\([0-9.]*\).*/\1/p' deploy/Dockerfile)
export RUSTUP_TOOLCHAIN
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

rustup toolchain install "$RUSTUP_TOOLCHAIN" --profile minimal --no-self-update --target x86_64-apple-darwin --target aarch64-apple-darwin
for architecture in amd64 arm64; do
    case $architecture in
        amd64) target=x86_64-apple-darwin ;;
        arm64) target=aarch64-apple-darwin ;;
    esac
    make --no-print-directory build PACKAGE=kubectl-cmon TARGET="$target"
    cp "${CARGO_TARGET_DIR:-target}/$target/release/kubectl-cmon" "$1/kubectl-cmon-$version-darwin-$architecture"
done
# The runner is an arm64 Mac. macOS kills a binary whose signature stripping has broken.
"$1/kubectl-cmon-$version-darwin-arm64" --version
