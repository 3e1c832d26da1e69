#!/bin/sh
# Checks a release: a clone in another folder builds the same bytes. In an emulator, the operator for arm64 passes tests on a control plane, and the
# plugin for arm64 starts. The commands of the workflow push and sign the release on a registry that runs here, and those of the pages install it.
#
#     release/check.sh FOLDER
set -eu
dist=$(realpath "$1")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
changes=$(git status --porcelain)
[ -z "$changes" ] || {
    echo "error: the tree has uncommitted changes, which the clone would lack" >&2
    exit 1
}
# In a workflow, the tag that started it.
tags=${GITHUB_REF_NAME:-$(git tag --points-at HEAD)}
[ -z "$tags" ] || echo "$tags" | grep --quiet --line-regexp --fixed-strings "v$version" || {
    echo "error: the version is $version, and this commit has the tag" $tags >&2
    exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

git clone --quiet . "$work/clone"
(cd "$work/clone" && make --no-print-directory release CARGO_TARGET_DIR="$work/target")
cmp "$work/target/dist/SHA256SUMS" "$dist/SHA256SUMS"
(cd "$work/target/dist" && sha256sum --check --strict --quiet SHA256SUMS)
echo "Another folder builds the same bytes."
rm -rf "$work/clone" "$work/target"

tar --extract --directory="$work" --file="$dist/kubectl-cmon-$version-linux-arm64.tar.gz" kubectl-cmon
qemu-aarch64-static "$work/kubectl-cmon" --version

printf '#!/bin/sh\nexec qemu-aarch64-static "%s" "$@"\n' "$dist/configmonitor-operator-$version-linux-arm64" >"$work/operator"
chmod +x "$work/operator"
export CONFIGMONITOR_OPERATOR="$work/operator"
cargo test --locked -p testenv --test operator -- changes:: rolling::
CONFIGMONITOR_RELEASE=$dist cargo test --locked -p testenv --test operator -- release::
