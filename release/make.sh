#!/bin/sh
# Builds the files of a release: for each architecture a static binary of the operator and an archive with that of the plugin, one image for both,
# the chart, manifests, an SBOM of each, the licences, the checksums, and the plugin's manifest for krew. If the folder DARWIN exists, packs the plugin
# for macOS from it.
#
#     release/make.sh FOLDER CACHE DARWIN
set -eu
mkdir -p "$1" "$2"
dist=$(realpath "$1") cache=$(realpath "$2") darwin=$3
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
name=configmonitor-operator-$version
repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
here=$(echo "${GITHUB_SERVER_URL:-}/${GITHUB_REPOSITORY:-}" | tr '[:upper:]' '[:lower:]')
[ "$here" = / ] || [ "$here" = "$repository" ] || {
    echo "error: Cargo.toml names the repository $repository, and this is $here: please set it, and run make coordinates" >&2
    exit 1
}
# The time in the SBOMs and in the archives.
[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
rm -rf "$dist"
mkdir -p "$dist"
sha256() { sha256sum "$1" | cut -d " " -f 1; }

for package in configmonitor-operator kubectl-cmon; do
    release/licenses.sh "$package" >"$dist/$package-$version-licenses.txt"
done

# krew wants the licence in the archive. The archive contains no time, owner or umask of this machine.
mkdir "$work/archive"
cp LICENSE "$work/archive/"
cp "$dist/kubectl-cmon-$version-licenses.txt" "$work/archive/LICENSES.txt"
archive() {
    install -m 755 "$1" "$work/archive/kubectl-cmon"
    tar --create --format=gnu --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --directory="$work/archive" \
        --file="$work/archive.tar" LICENSE LICENSES.txt kubectl-cmon
    gzip -n -9 <"$work/archive.tar" >"$2"
}

# cargo cyclonedx writes its files beside the manifests, so it gets a copy.
mkdir "$work/tree"
cp -R Cargo.toml Cargo.lock src kubectl-cmon testenv "$work/tree/"

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
    (cd "$work/tree" && cargo cyclonedx --quiet --format json --spec-version 1.5 --target "$target" --override-filename bom)
    for package in configmonitor-operator kubectl-cmon; do
        # Each in a build of its own, because cargo gives packages of one build the features of both.
        make --no-print-directory build PACKAGE="$package" TARGET="$target"
        binary=${CARGO_TARGET_DIR:-target}/$target/release/$package
        case $package in
            configmonitor-operator)
                bom=$work/tree/bom.json file=$package-$version-linux-$architecture
                mkdir -p "$work/root/$architecture"
                cp "$binary" "$work/root/$architecture/"
                cp "$dist/$package-$version-licenses.txt" "$work/root/$architecture/LICENSES.txt"
                cp "$binary" "$dist/$file"
                ;;
            kubectl-cmon)
                bom=$work/tree/$package/bom.json file=$package-$version-linux-$architecture.tar.gz
                archive "$binary" "$dist/$file"
                ;;
        esac

        jq -r '.metadata.component, .components[] | "\(.name) v\(.version)"' "$bom" | LC_ALL=C sort -u >"$work/described"
        cargo tree --locked --package "$package" --edges normal,build --target "$target" --prefix none --format '{p}' |
            cut -d ' ' -f 1,2 | LC_ALL=C sort -u | sed '/^$/d' >"$work/locked"
        diff "$work/locked" "$work/described" || {
            echo "error: the SBOM of $file has other packages than cargo tree" >&2
            exit 1
        }
        jq -L release --arg file "$file" --arg sha256 "$(sha256 "$dist/$file")" 'include "sbom"; binary($file; $sha256; $ARGS.positional)' \
            "$bom" --args "target=$target" "rustc=$(rustc --version)" "libc=glibc $libc" >"$dist/$file.cdx.json"
    done
done

image=$dist/$name-image.tar
REVISION=$(git rev-parse HEAD) deploy/image.sh "configmonitor-operator:$version" deploy/Dockerfile "$image" "amd64=$work/root/amd64" "arm64=$work/root/arm64"
digest=$(tar --extract --to-stdout --file="$image" index.json | sed 's/.*"digest":"\(sha256:[0-9a-f]*\)".*/\1/')
case $digest in
    sha256:*) ;;
    *) echo "error: $image has no digest" >&2 && exit 1 ;;
esac
jq -L release --slurp --arg digest "$digest" 'include "sbom"; image($digest)' \
    "$dist/$name-linux-amd64.cdx.json" "$dist/$name-linux-arm64.cdx.json" >"$image.cdx.json"

tool() { cargo run --quiet --locked -p testenv --bin prepare -- --tool "$1"; }
helm=$(tool helm)
release/package.sh "$dist" "$digest" "$helm" "$(tool kustomize)"
chart=$dist/$name.tgz
images=$(HOME=$work "$helm" template configmonitor-operator "$chart" | sed -n 's/^ *image: "\(.*\)"$/\1/p')
# Unquoted: each image is an argument of its own.
jq -L release --arg file "$name.tgz" --arg sha256 "$(sha256 "$chart")" 'include "sbom"; chart($file; $sha256; $ARGS.positional)' \
    "$image.cdx.json" --args $images >"$chart.cdx.json"

# The checksums of all files so far, which every machine can make.
(cd "$dist" && sha256sum -- * >"$work/SHA256SUMS" && mv "$work/SHA256SUMS" .)
cat "$dist/SHA256SUMS"

if [ -d "$darwin" ]; then
    for binary in "$darwin"/*; do
        archive "$binary" "$dist/${binary##*/}.tar.gz"
    done
    (cd "$dist" && sha256sum -- *-darwin-* | tee SHA256SUMS-darwin)
fi

# Not in SHA256SUMS, as it has the checksums of the archives for macOS.
{
    sed "/^ *# /d; s|VERSION|$version|; s|REPOSITORY|$repository|" release/krew.yaml
    for archive in "$dist"/kubectl-cmon-*.tar.gz; do
        file=${archive##*/}
        platform=${file#"kubectl-cmon-$version-"}
        platform=${platform%.tar.gz}
        cat <<END
    - selector:
        matchLabels:
          os: ${platform%-*}
          arch: ${platform#*-}
      uri: $repository/releases/download/v$version/$file
      sha256: $(sha256 "$archive")
      bin: kubectl-cmon
END
    done
} >"$dist/configmonitor.yaml"
