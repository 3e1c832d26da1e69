#!/bin/sh
# Builds the files of a release: a static binary for each architecture, one image for both, the chart, an SBOM of each, and the checksums.
#
#     release/make.sh FOLDER CACHE
set -eu
mkdir -p "$1" "$2"
dist=$(realpath "$1") cache=$(realpath "$2")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
name=configmonitor-operator-$version
# The time in the SBOMs.
[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
rm -rf "$dist"
mkdir -p "$dist"
sha256() { sha256sum "$1" | cut -d " " -f 1; }

# cargo cyclonedx writes its files beside the manifests, so it gets a copy.
mkdir "$work/tree"
cp -R Cargo.toml Cargo.lock src testenv "$work/tree/"

# libc for arm64, in the version that this machine has for amd64. It is extracted, not installed, so the machine does not change.
libc=$(dpkg-query --show --showformat '${Version}' libc6-dev)
sysroot=$cache/libc6-dev-arm64-$libc
if [ ! -d "$sysroot" ]; then
    rm -rf "$sysroot.unfinished"
    mmdebstrap --quiet --variant=extract --architectures=arm64 "--include=libc6-dev=$libc" bookworm "$sysroot.unfinished" || {
        echo "error: libc6-dev $libc is not available for arm64: if it is outdated, please run apt-get update and apt-get install libc6-dev" >&2
        exit 1
    }
    printf '#!/bin/sh\nexec aarch64-linux-gnu-gcc "--sysroot=%s" "$@"\n' "$sysroot" >"$sysroot.unfinished/linker"
    chmod +x "$sysroot.unfinished/linker"
    mv "$sysroot.unfinished" "$sysroot"
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER="$sysroot/linker"

for architecture in amd64 arm64; do
    case $architecture in
        amd64) target=x86_64-unknown-linux-gnu ;;
        arm64) target=aarch64-unknown-linux-gnu ;;
    esac
    make --no-print-directory build TARGET="$target"
    binary=$name-linux-$architecture
    mkdir -p "$work/root/$architecture"
    cp "${CARGO_TARGET_DIR:-target}/$target/release/configmonitor-operator" "$work/root/$architecture/"
    cp "$work/root/$architecture/configmonitor-operator" "$dist/$binary"

    (cd "$work/tree" && cargo cyclonedx --quiet --format json --spec-version 1.5 --target "$target" --override-filename bom)
    jq -r '.metadata.component, .components[] | "\(.name) v\(.version)"' "$work/tree/bom.json" | LC_ALL=C sort -u >"$work/described"
    cargo tree --locked --package configmonitor-operator --edges normal,build --target "$target" --prefix none --format '{p}' |
        cut -d ' ' -f 1,2 | LC_ALL=C sort -u | sed '/^$/d' >"$work/locked"
    diff "$work/locked" "$work/described" || {
        echo "error: the SBOM of $binary has other packages than cargo tree" >&2
        exit 1
    }
    jq -L release --arg file "$binary" --arg sha256 "$(sha256 "$dist/$binary")" 'include "sbom"; binary($file; $sha256; $ARGS.positional)' \
        "$work/tree/bom.json" --args "target=$target" "rustc=$(rustc --version)" "libc=glibc $libc" >"$dist/$binary.cdx.json"
done

image=$dist/$name-image.tar
deploy/image.sh "configmonitor-operator:$version" deploy/Dockerfile "$image" "amd64=$work/root/amd64" "arm64=$work/root/arm64"
digest=$(tar --extract --to-stdout --file="$image" index.json | sed 's/.*"digest":"\(sha256:[0-9a-f]*\)".*/\1/')
case $digest in
    sha256:*) ;;
    *) echo "error: $image has no digest" >&2 && exit 1 ;;
esac
jq -L release --slurp --arg digest "$digest" 'include "sbom"; image($digest)' \
    "$dist/$name-linux-amd64.cdx.json" "$dist/$name-linux-arm64.cdx.json" >"$image.cdx.json"

# Helm writes the times of the files and the name of the folder into the package.
helm=$(cargo run --quiet --locked -p testenv --bin prepare -- --tool helm)
cp -R charts/configmonitor-operator "$work/"
find "$work/configmonitor-operator" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
HOME=$work "$helm" package --destination "$dist" "$work/configmonitor-operator" >/dev/null
chart=$dist/$name.tgz
images=$(HOME=$work "$helm" template configmonitor-operator "$chart" | sed -n 's/^ *image: "\(.*\)"$/\1/p')
# Unquoted: each image is an argument of its own.
jq -L release --arg file "$name.tgz" --arg sha256 "$(sha256 "$chart")" 'include "sbom"; chart($file; $sha256; $ARGS.positional)' \
    "$image.cdx.json" --args $images >"$chart.cdx.json"

# The checksums of all files so far.
(cd "$dist" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
cat "$dist/SHA256SUMS"
