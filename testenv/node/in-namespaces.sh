#!/bin/sh
# Runs a program with a network, mounts and processes of its own; all of it ends with the program. If this script is killed
# so is the program.
started=$(mktemp)
setpriv --pdeathsig KILL -- unshare --net --mount --ipc --pid --fork --kill-child --mount-proc -- "$@"
status=$?

# The containers' control groups are in no namespace. The last process may take a moment to leave; then they are empty.
for _ in 1 2 3 4 5 6 7 8 9 10; do
    groups=$(find /sys/fs/cgroup -depth -type d -path '*/k8s.io*' -newer "$started")
    [ -n "$groups" ] || break
    rmdir $groups 2>/dev/null || sleep 0.2
done
rm "$started"
exit $status
