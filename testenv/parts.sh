#!/usr/bin/env bash
# Runs the parts of a check, each given by its name and its command, and stops at the first that fails. At the end, prints the seconds of each.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

table=
code=0
while [ $# -gt 1 ] && [ $code -eq 0 ]; do
    start=$SECONDS
    echo "$2"
    bash -c "$2" || code=$?
    table+=$(printf '%-16s %5d s' "$1" $((SECONDS - start)))
    [ $code -eq 0 ] || table+="  failed"
    table+=$'\n'
    shift 2
done
printf '\n%s%-16s %5d s\n' "$table" "in all" "$SECONDS"
exit $code
