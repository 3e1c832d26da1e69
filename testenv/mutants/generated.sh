#!/usr/bin/env bash
# Changes src in every way that cargo-mutants knows, one place after the other, and counts what the tests notice. First the unit tests and a
# thousand stories judge each change; who survives these meets the tests of the wire and ten thousand stories.
#
# Arguments go to cargo-mutants: --file, --shard, --in-diff and others. What is let live stands in .cargo/mutants.toml, with its reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
out=${CARGO_TARGET_DIR:-target}/mutants-generated
mutants=${CARGO_MUTANTS:?}
rm -rf "$out"
mkdir -p "$out"

# 2 is: some were missed. 3 is: some tests took too long, which counts as noticed.
judge() {
    local code=0
    # Each of the jobs has a copy of the tree, and builds there.
    env -u CARGO_TARGET_DIR "$mutants" mutants --output "$out" --jobs "${JOBS:-2}" "$@" || code=$?
    case $code in 0 | 2 | 3) ;; *) exit "$code" ;; esac
}

FAILURES=0 STORIES=1000 DEPTH=1 judge -C=--lib -C=--test=world "$@"
cp -r "$out/mutants.out" "$out/first"
if [ -s "$out/first/missed.txt" ]; then
    FAILURES=0 STORIES=10000 DEPTH=2 judge --iterate -C=--test=wire -C=--test=arrivals -C=--test=world "$@"
fi

missed=$out/mutants.out/missed.txt
for folder in kube monitor controller; do
    noticed=$(cat "$out"/first/{caught,timeout}.txt "$out"/mutants.out/{caught,timeout}.txt | grep "^src/$folder/" | sort -u | wc -l)
    alive=$(grep -c "^src/$folder/" "$missed" || true)
    [ $((noticed + alive)) -eq 0 ] || echo "$folder: $noticed of $((noticed + alive)) noticed"
done
cat "$missed"
[ ! -s "$missed" ]
