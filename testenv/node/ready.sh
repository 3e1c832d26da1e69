#!/bin/sh
# Checks whether this machine can run a node: if not, one line says what is missing, and the exit code is 75. On Debian, missing
# programs are installed.
set -u
absent() {
    echo "make test-node is not possible here: $1"
    exit 75
}

[ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || absent "it needs root on Linux"

packages=
needs() { [ -x "$1" ] || command -v "$1" >/dev/null || packages="$packages $2"; }
needs containerd containerd
needs runc runc
needs /usr/lib/cni/bridge containernetworking-plugins
needs ip iproute2
needs unshare util-linux
needs mmdebstrap mmdebstrap
python3 -m pip --version >/dev/null 2>&1 || packages="$packages python3-pip"
if [ -n "$packages" ]; then
    [ -e /etc/debian_version ] || absent "it needs$packages"
    echo "Installing$packages."
    export DEBIAN_FRONTEND=noninteractive
    # An unrelated package source may fail.
    apt-get update --quiet --quiet
    # Never replaces an installed package, such as another containerd.
    apt-get install --quiet --quiet --yes --no-install-recommends --no-remove $packages >/dev/null || {
        echo "error: apt-get cannot install$packages"
        exit 1
    }
fi

[ -r /dev/kmsg ] || absent "a kubelet needs /dev/kmsg"

in_namespaces() { unshare --net --mount --ipc --pid --fork --kill-child --mount-proc -- "$@" 2>/dev/null; }
in_namespaces true || absent "it may not make namespaces (unshare)"
in_namespaces ip link add bridge0 type bridge || absent "the kernel has no bridges"
in_namespaces ip link add veth0 type veth peer name veth1 || absent "the kernel has no veth devices"
in_namespaces mount --bind /dev/null /proc/sys/kernel/panic || absent "it may not mount"

# Containers are copies of their images.
[ "$(df --output=avail --block-size=G "${TMPDIR:-/tmp}" | tail -n 1 | tr -dc 0-9)" -ge 4 ] ||
    absent "it needs 4 GiB of disk at ${TMPDIR:-/tmp}"

# Control groups version 1 have a folder for each controller, version 2 a list of the delegated ones.
for controller in cpu memory pids; do
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        grep -qw "$controller" /sys/fs/cgroup/cgroup.subtree_control ||
            echo "+$controller" 2>/dev/null >/sys/fs/cgroup/cgroup.subtree_control ||
            absent "it may not make control groups for $controller"
    else
        mkdir -p "/sys/fs/cgroup/$controller/configmonitor-testenv" 2>/dev/null ||
            absent "it may not make control groups for $controller"
        # Another run may have just created it too.
        rmdir "/sys/fs/cgroup/$controller/configmonitor-testenv" 2>/dev/null
    fi
done
exit 0
