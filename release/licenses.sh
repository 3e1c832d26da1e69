#!/bin/sh
# Prints the licences of all that is linked into the binaries of a package: its crates, Rust's standard library, and on Linux glibc and libgcc. A text
# that several have appears once.
#
#     release/licenses.sh PACKAGE
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

cargo metadata --locked --format-version 1 >"$work/metadata"
cargo tree --locked --package "$1" --edges normal --prefix none --format '{p}' --target x86_64-unknown-linux-gnu \
    --target aarch64-unknown-linux-gnu --target x86_64-apple-darwin --target aarch64-apple-darwin >"$work/tree"
cut -d ' ' -f 1,2 "$work/tree" | LC_ALL=C sort -u | sed '/^$/d' >"$work/linked"

text() {
    known=$work/$(sha256sum "$1" | cut -d ' ' -f 1)
    if [ -e "$known" ]; then
        echo "The same text as $(cat "$known")."
    else
        echo "$2" >"$known"
        cat "$1"
    fi
    echo
}

while read -r name version; do
    # One line for the licence, one for the folder. Of this project, only the first folder has a text.
    found=$(jq -r --arg name "$name" --arg version "${version#v}" '.workspace_root as $root | .packages[]
        | select(.name == $name and .version == $version)
        | .license, (if .source then .manifest_path | rtrimstr("Cargo.toml") else $root end)' "$work/metadata")
    printf '=== %s %s: %s\n\n' "$name" "$version" "${found%%
*}"
    find "${found#*
}" -maxdepth 1 -type f \( -iname 'licen*' -o -iname 'copying*' -o -iname 'unlicense*' -o -iname 'notice*' \) |
        LC_ALL=C sort >"$work/files"
    [ -s "$work/files" ] || {
        echo "error: $name $version has no text of its licence" >&2
        exit 1
    }
    while read -r file; do
        text "$file" "${file##*/} of $name"
    done <"$work/files"
done <"$work/linked"

printf '=== the standard library of %s\n\n' "$(rustc --version)"
library=$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html
sed 's/<[^>]*>//g; s/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&#39;/'"'"'/g; s/&amp;/\&/g' "$library" >"$work/library"
cat --squeeze-blank "$work/library"
for package in libc6-dev "libgcc-$(gcc -dumpversion)-dev"; do
    printf '\n=== %s %s, of Debian\n\n' "$package" "$(dpkg-query --show --showformat '${Version}' "$package")"
    text "/usr/share/doc/$package/copyright" "the licence of $package"
done
