#!/bin/sh
# Runs a program in namespaces of its own for the network, mounts and processes. Its children end with the program or with this
# script, and no files or containers are left.
set -u

base=${TMPDIR:-/tmp}
# The folders that some programs use whatever their settings are.
places="/run /var/lib/cni /var/lib/kubelet /var/log/containers"

# Removes a run's files, and the control groups of the containers that were running at its end, which are in no namespace. The
# last process may take a moment to leave its control group.
clean() {
    for container in "$1"/*/*/containerd-state/io.containerd.runtime.v2.task/k8s.io/*; do
        for group in /sys/fs/cgroup/k8s.io/"${container##*/}" /sys/fs/cgroup/*/k8s.io/"${container##*/}"; do
            for _ in 1 2 3 4 5 6 7 8 9 10; do
                [ -d "$group" ] || break
                rmdir "$group" 2>/dev/null || sleep 0.2
            done
        done
    done
    rmdir /sys/fs/cgroup/k8s.io /sys/fs/cgroup/*/k8s.io 2>/dev/null
    rm -rf "$1"
    # Not while another run is going on.
    ls -d "$base"/configmonitor-node-* >/dev/null 2>&1 || rmdir $places 2>/dev/null
}

# Removes what a run has left whose script was killed.
for run in "$base"/configmonitor-node-*; do
    [ -d "$run" ] && ! kill -0 "${run##*-}" 2>/dev/null && clean "$run"
done

export TMPDIR="$base/configmonitor-node-$$"
mkdir "$TMPDIR" || exit
mkdir -p $places
setpriv --pdeathsig KILL -- unshare --net --mount --ipc --pid --fork --kill-child --mount-proc -- sh -c '
    for place in '"$places"'; do
        mount -t tmpfs tmpfs "$place" || exit
    done
    exec "$@"
' sh "$@" &
program=$!
trap 'kill -KILL $program 2>/dev/null' HUP INT TERM
wait $program
status=$?
# Waits once more, if a signal has ended the first wait.
wait $program 2>/dev/null
clean "$TMPDIR"
exit $status
