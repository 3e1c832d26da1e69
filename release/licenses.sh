#!/bin/sh
# Prints the licences of all that is linked into the binaries of a package: its crates, Rust's standard library, and on Linux glibc and libgcc. A text
# that several have appears once.
#
#     release/licenses.sh PACKAGE
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

cargo metadata --locked --format-version 1 |
    jq -r '.packages[] | "\(.name) v\(.version)\t\(.license)\t\(.manifest_path | rtrimstr("Cargo.toml"))"' | LC_ALL=C sort >"$work/packages"
cargo tree --locked --package "$1" --edges normal --prefix none --format '{p}' --target x86_64-unknown-linux-gnu \
    --target aarch64-unknown-linux-gnu --target x86_64-apple-darwin --target aarch64-apple-darwin |
    cut -d ' ' -f 1,2 | LC_ALL=C sort -u | sed '/^$/d' >"$work/linked"

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
    IFS="$(printf '\t')" read -r _ license folder <<END
$(grep --fixed-strings "$name $version$(printf '\t')" "$work/packages")
END
    printf '=== %s %s: %s\n\n' "$name" "$version" "$license"
    # Of this project, the folder of the plugin has none.
    found=$(find "$folder" -maxdepth 1 -type f \( -iname 'licen*' -o -iname 'copying*' -o -iname 'unlicense*' -o -iname 'notice*' \) | LC_ALL=C sort)
    for file in ${found:-LICENSE}; do
        text "$file" "${file##*/} of $name"
    done
done <"$work/linked"

printf '=== the standard library of %s\n\n' "$(rustc --version)"
sed 's/<[^>]*>//g; s/&lt;/</g; s/&gt;/>/g; s/&quot;/"/g; s/&#39;/'"'"'/g; s/&amp;/\&/g' "$(rustc --print sysroot)/share/doc/rust/COPYRIGHT-library.html" |
    cat --squeeze-blank
for package in libc6-dev "libgcc-$(gcc -dumpversion)-dev"; do
    printf '\n=== %s %s, of Debian\n\n' "$package" "$(dpkg-query --show --showformat '${Version}' "$package")"
    text "/usr/share/doc/$package/copyright" "the licence of $package"
done
