#!/usr/bin/env bash
# Changes src in every way that cargo-mutants knows, one place after the other, and counts what the tests notice. The unit tests judge each
# change, those that survive them a thousand stories of the simulation, and those that survive these ten thousand, and the tests of the wire.
#
# With an argument, only what has changed since that commit. What is let live stands in .cargo/mutants.toml, with its reason.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$top/target/mutants
jobs=$(nproc)
mkdir -p "$work"
which=()
if [ $# -gt 0 ]; then
    (cd "$top" && git diff "$1" -- src) >"$work/diff"
    which=(--in-diff "$work/diff")
fi

# A share of the changes, in a copy of the tree of its own. What was built for one change serves the next.
share() {
    local number=$1
    local tree=$work/tree-$number out=$work/generated-$number
    rm -rf "$tree" "$out"
    mkdir "$tree" "$out"
    (cd "$top" && git ls-files -z | tar --null -T - -cf -) | tar -xmf - -C "$tree"
    # With 2, some were not noticed, and with 3, tests did not end, which is to notice.
    judge() {
        CARGO_TARGET_DIR=$work/build-$number FAILURES=0 cargo-mutants mutants --dir "$tree" --in-place --output "$out" \
            --shard "$number/$jobs" "${which[@]}" "$@" || [[ $? = [23] ]]
    }
    judge -C=--lib
    [ ! -s "$out/mutants.out/missed.txt" ] || STORIES=1000 DEPTH=1 judge --iterate -C=--test=world
    [ ! -s "$out/mutants.out/missed.txt" ] || STORIES=10000 DEPTH=2 judge --iterate -C=--test=world -C=--test=arrivals -C=--test=wire
}

for number in $(seq 0 $((jobs - 1))); do
    share "$number" >"$work/generated-$number.log" 2>&1 &
done
failed=0
for job in $(jobs -p); do
    wait "$job" || failed=1
done
[ "$failed" -eq 0 ] || { echo "error: see $work/generated-*.log" >&2; exit 1; }

of_all() { for kind; do cat "$work"/generated-*/mutants.out/"$kind".txt 2>/dev/null || true; done | sort -u; }
alive=$(of_all missed)
for folder in kube monitor controller; do
    noticed=$(of_all previously_caught caught timeout | grep -c "^src/$folder/" || true)
    missed=$(grep -c "^src/$folder/" <<<"$alive" || true)
    [ $((noticed + missed)) -eq 0 ] || echo "$folder: $noticed of $((noticed + missed)) noticed"
done
[ -z "$alive" ] || { echo "$alive"; exit 1; }
