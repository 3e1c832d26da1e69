#!/bin/sh
# Removes the code of one rule after the other, and checks that a test notices: changes that cargo-mutants cannot make.
#
# Each *.patch begins with the behaviour that it causes, and a line "Seen by:" with the command that must fail. Arguments are the
# names of patches to try instead of all of them.
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
# Makes a new copy of the tree, with new times, so that cargo builds what has changed since the previous copy.
copy() {
    rm -rf "$tree"
    mkdir "$tree"
    (cd "$top" && git ls-files -z | tar --null -T - -cf -) | tar -xmf - -C "$tree"
}
# FAILURES=0 prints only the seeds of failing stories: shrinking a story takes longer than finding it.
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
        # Prints the rule that a story breaks, or the assertion, not only the name of the test.
        { grep '^seed [0-9]*: ' "$log" || grep -A1 'panicked at' "$log" | grep -v 'panicked at\|^--'; } | head -n 1 | cut -c1-160 |
            sed 's/^/    seen: /'
    else
        echo "    NO TEST RUN: see $log"
        unseen=$((unseen + 1))
    fi
done
[ "$unseen" -eq 0 ]
