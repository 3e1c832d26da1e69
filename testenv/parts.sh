#!/usr/bin/env bash
# Runs the parts of a check, each given by its name and its command, and stops at the first that fails. At the end, prints the seconds of each. A
# part that exits with 75 is not possible on this machine, and has said why.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

table=
code=0
while [ $# -gt 1 ] && [ $code -eq 0 ]; do
    start=$SECONDS
    echo "$2"
    bash -c "$2" || code=$?
    table+=$(printf '%-16s %5d s' "$1" $((SECONDS - start)))
    case $code in
        0) ;;
        75) table+="  not possible on this machine" code=0 ;;
        *) table+="  failed" ;;
    esac
    table+=$'\n'
    shift 2
done
printf '\n%s%-16s %5d s\n' "$table" "in all" "$SECONDS"
exit $code
