#!/bin/sh
# Applies one patch after the other, each of which removes a safeguard, and checks that a test fails. cargo-mutants makes no such change.
#
# Each *.patch begins with what it removes, and a line "Seen by:" with the command that must fail. With arguments, tries only the patches
# with these names.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
work=$top/target/mutants
tree=$work/tree
log=$work/log
mkdir -p "$work"

if [ $# -eq 0 ]; then
    set -- $(cd "$here" && ls -- *.patch)
fi
# A new copy of the tree, with new times, so that cargo rebuilds what differs from the previous copy.
copy() {
    rm -rf "$tree"
    mkdir "$tree"
    (cd "$top" && git ls-files -z | tar --null -T - -cf -) | tar -xmf - -C "$tree"
}
# FAILURES=0: stories are reported by their seed only, because shrinking them takes longer than finding them.
try() { (cd "$tree" && CARGO_TARGET_DIR="$work/build" FAILURES=0 sh -ec "$1") >"$log" 2>&1; }

copy
for name; do
    command=$(sed -n 's/^Seen by: //p' "$here/${name%.patch}.patch")
    if ! try "$command"; then
        echo "error: without a mutant, this fails, see $log: $command" >&2
        exit 1
    fi
done
unseen=0
for name; do
    mutant=$here/${name%.patch}.patch
    copy
    (cd "$tree" && patch -s -p1 <"$mutant")
    command=$(sed -n 's/^Seen by: //p' "$mutant")
    echo "${name%.patch}: $command"
    if try "$command"; then
        echo "    NOT SEEN: every test passes"
        unseen=$((unseen + 1))
    elif grep -q '^test result: FAILED' "$log"; then
        # Prints the rule that a story breaks, or the failed assertion, because the name of a test says too little.
        { grep '^seed [0-9]*: ' "$log" || grep -A1 'panicked at' "$log" | grep -v 'panicked at\|^--'; } | head -n 1 | cut -c1-160 |
            sed 's/^/    seen: /'
    else
        echo "    NO TEST RUN: see $log"
        unseen=$((unseen + 1))
    fi
done
[ "$unseen" -eq 0 ]
