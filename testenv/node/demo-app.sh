#!/bin/sh
# Makes the image of demo-app/ without a container daemon: as its Dockerfile does, but with Python from Debian's packages.
#
#     testenv/node/demo-app.sh NAME:TAG ARCHIVE
set -eu
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 1' HUP INT TERM
# Packages are extracted, not installed: none of their scripts has to run.
mmdebstrap --quiet --variant=extract --include=python3 --dpkgopt='path-exclude=/usr/share/doc/*' bookworm "$root" >&2
python3 -m pip --disable-pip-version-check --quiet install --root-user-action=ignore --no-cache-dir --require-hashes \
    --only-binary :all: --python-version 3.11 --implementation cp --platform "manylinux2014_$(uname -m)" \
    --target "$root/app/packages" --requirement demo-app/requirements.txt
cp demo-app/app.py "$root/app/"
deploy/image.sh "$1" demo-app/Dockerfile "$2" "$root"
