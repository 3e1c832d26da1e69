#!/bin/sh
# Writes what of a release names the image: the chart, and a manifest for each way to install it with kubectl.
#
#     release/package.sh FOLDER DIGEST HELM KUSTOMIZE
set -eu
dist=$(realpath "$1") digest=$2 helm=$3 kustomize=$4
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
repository=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
owner=${repository#https://github.com/}
image=ghcr.io/${owner%%/*}/configmonitor-operator

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Helm writes the times of the files and the name of the folder into the package.
cp -R charts/configmonitor-operator "$work/"
sed -i "0,/repository: configmonitor-operator/s||repository: $image|; 0,/digest: \"\"/s||digest: $digest|" "$work/configmonitor-operator/values.yaml"
sed -i "s|image: configmonitor-operator:.*|image: $image:$version@$digest|" "$work/configmonitor-operator/Chart.yaml"
find "$work/configmonitor-operator" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
HOME=$work "$helm" package --destination "$dist" "$work/configmonitor-operator" >/dev/null

for manifest in "install ." "install-all-namespaces crd.yml deploy/cluster-roles.yml deploy/cluster-wide"; do
    name=${manifest%% *}
    mkdir "$work/$name"
    {
        echo "resources:"
        for resource in ${manifest#* }; do
            path=$(realpath --relative-to="$work/$name" "$resource")
            echo "  - $path"
        done
        printf 'images:\n  - {name: configmonitor-operator, newName: %s, newTag: %s, digest: %s}\n' "$image" "$version" "$digest"
    } >"$work/$name/kustomization.yaml"
    "$kustomize" build --load-restrictor LoadRestrictionsNone "$work/$name" >"$dist/$name.yaml"
    grep --quiet --fixed-strings "image: $image:$version@$digest" "$dist/$name.yaml" || {
        echo "error: $dist/$name.yaml does not name the image" >&2
        exit 1
    }
done
