#!/usr/bin/env bash
# Runs cargo-mutants on src and counts the mutants that the tests notice. The unit tests run on every mutant. The mutants that survive meet 1,000
# stories of the simulation, and the survivors of these meet 10,000 stories and the wire tests.
#
# With an argument, only what has changed since that commit. .cargo/mutants.toml lists the accepted survivors, each with its reason.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$top/target/mutants
shares=$(nproc)
which=()
mkdir -p "$work"
if [ $# -gt 0 ]; then
    (cd "$top" && git diff "$1" -- src) >"$work/diff"
    which=(--in-diff "$work/diff")
fi

lists() { for kind; do cat "$work"/share-*/mutants.out/"$kind".txt 2>/dev/null || true; done | sort -u; }

# Judges a share of the changes in a copy of the tree. The build for one change serves the next.
judge_share() {
    local number=$1 code=0
    shift
    CARGO_TARGET_DIR=$work/build-$number cargo-mutants mutants --dir "$work/tree-$number" --in-place --output "$work/share-$number" \
        --sharding round-robin --shard "$number/$shares" "${which[@]}" "$@" >>"$work/share-$number/log" 2>&1 || code=$?
    # 2: some changes were not noticed. 3: some tests timed out, which counts as noticed.
    case $code in 0 | 2 | 3) ;; *) echo "error: see $work/share-$number/log" >&2 && exit 1 ;; esac
}

# Judges all changes that were not noticed before, all shares in parallel.
judge() {
    local jobs=() number noticed
    for number in $(seq 0 $((shares - 1))); do
        judge_share "$number" "$@" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job"; done
    # The next stage distributes the remaining changes.
    noticed=$(lists previously_caught caught timeout unviable)
    for number in $(seq 0 $((shares - 1))); do
        mkdir -p "$work/share-$number/mutants.out"
        echo "$noticed" >"$work/share-$number/mutants.out/previously_caught.txt"
    done
}

# An entry that excuses no change is about code that no longer exists.
every=$(cargo-mutants mutants --dir "$top" --list --no-config)
sed -n '/^exclude_re/,/^]/s/^ *"\(.*\)",$/\1/p' "$top/.cargo/mutants.toml" | while read -r entry; do
    grep -qE -- "$entry" <<<"$every" || { echo "error: .cargo/mutants.toml excuses nothing by: $entry" >&2 && exit 1; }
done

for number in $(seq 0 $((shares - 1))); do
    rm -rf "$work/tree-$number" "$work/share-$number"
    mkdir "$work/tree-$number" "$work/share-$number"
    (cd "$top" && git ls-files -z | tar --null -T - -cf -) | tar -xmf - -C "$work/tree-$number"
done
export FAILURES=0
judge -C=--lib
unviable=$(lists unviable)
STORIES=1000 DEPTH=1 judge --iterate -C=--test=simulation
STORIES=10000 DEPTH=2 judge --iterate -C=--test=simulation -C=--test=arrivals -C=--test=wire

alive=$(lists missed)
noticed=$(comm -23 <(lists previously_caught) <(echo "$unviable"))
for part in kube monitor controller metrics election; do
    seen=$(grep -c "^src/$part[/.]" <<<"$noticed" || true) missed=$(grep -c "^src/$part[/.]" <<<"$alive" || true)
    [ $((seen + missed)) -eq 0 ] || echo "$part: $seen of $((seen + missed)) noticed"
done
[ -z "$alive" ] || { echo "$alive"; exit 1; }
