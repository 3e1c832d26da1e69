#!/bin/bash
# Runs the tests on each of these versions of Kubernetes:
#   1.31       the tests of the operator but those of the night, and a check that the simulated API server answers like the real one
#   1.31/1.37  the same with kubectl, and thus the proxy, of 1.37
#   node/1.31  the tests of a real node, if this machine can run one
#
# A failed version does not stop the others. At the end, each version has a line, and the exit code is 1 if a version has failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
summary=
failed=0

run() {
    case $1 in
        node/*) testenv/node/ready.sh && make test-node ;;
        *)
            make prepare &&
            cargo test --workspace --locked --no-fail-fast --test operator --test alike -- --test-threads=12 --skip nightly:: ;;
    esac
}

for version in "$@"; do
    echo "Kubernetes $version"
    pair=${version#node/}
    export CONFIGMONITOR_KUBERNETES=${pair%/*} CONFIGMONITOR_KUBECTL=${pair#*/}
    run "$version" 2>&1 | tee "$log"
    status=$?
    # test result: ok. 112 passed; 0 failed; ...
    result=$(awk '/^test result: / { passed += $4; failed += $6 } END { print passed + 0 " passed, " failed + 0 " failed" }' "$log")
    case $status in
        0) summary+="$version: $result"$'\n' ;;
        75) summary+="$version: not possible on this machine"$'\n' ;;
        *) summary+="$version: FAILED, $result"$'\n' failed=1 ;;
    esac
done

printf '%s' "$summary"
exit "$failed"
