#!/bin/sh
# Checks whether this machine can make a release, and reports what it lacks. As root, installs missing programs. A release needs Debian 12 and one
# version of Rust, because libc and the compiler determine the bytes of a static binary.
set -eu
absent() {
    echo "error: make release is not possible here: $1" >&2
    exit 1
}

case "$(uname -m) $(cat /etc/debian_version 2>/dev/null)" in
    "x86_64 12."*) ;;
    *) absent "it needs Debian 12 on amd64, such as the image of Rust in deploy/Dockerfile" ;;
esac

packages=
needs() { command -v "$1" >/dev/null || packages="$packages $2"; }
needs aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
needs qemu-aarch64-static qemu-user-static
needs mmdebstrap mmdebstrap
needs jq jq
# For make release-check.
needs skopeo skopeo
export DEBIAN_FRONTEND=noninteractive
# A broken package source does not matter if the others have the packages.
[ -z "$packages" ] || [ "$(id -u)" != 0 ] || apt-get update --quiet --quiet || true
# Debian serves only the newest version, and arm64 needs the version of amd64.
[ "$(dpkg-query --show --showformat '${Version}' libc6-dev)" = "$(apt-cache policy libc6-dev | sed -n 's/^  Candidate: //p')" ] ||
    packages="$packages libc6-dev"
if [ -n "$packages" ]; then
    [ "$(id -u)" = 0 ] || absent "please run, as root: apt-get install --no-install-recommends$packages"
    echo "Installing$packages."
    apt-get install --quiet --quiet --yes --no-install-recommends --no-remove $packages >/dev/null ||
        absent "apt-get cannot install$packages"
fi

rust=$(sed -n 's/^FROM rust:\([0-9.]*\).*/\1/p' deploy/Dockerfile)
[ "$(rustc --version | cut -d ' ' -f 2)" = "$rust" ] ||
    absent "it needs Rust $rust: please run rustup toolchain install $rust, and set RUSTUP_TOOLCHAIN=$rust"
target=aarch64-unknown-linux-gnu
[ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || rustup target add "$target" ||
    absent "it needs Rust's target $target: please run rustup target add $target"
