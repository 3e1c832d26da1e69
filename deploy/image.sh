#!/bin/sh
# Packs folders into an image archive without a container daemon. The archive is an OCI image layout, which `ctr images import`, `skopeo` and
# `docker load` read. The same files produce the same bytes.
#
#     deploy/image.sh NAME:TAG DOCKERFILE ARCHIVE [ARCHITECTURE=]FOLDER...
#
# Each folder is the root of the image for one architecture; the default is that of this machine. LABEL and ENV (one per line), USER and ENTRYPOINT
# (as a list) come from the last stage of the Dockerfile; $REVISION, the commit, from the environment.
set -eu
name=$1 dockerfile=$2 archive=$3
shift 3

settings=$(awk '
    /^FROM /       { env = user = entrypoint = labels = "" }
    /^ENV /        { env = env (env ? "," : "") "\"" $2 "\"" }
    /^USER /       { user = $2 }
    /^ENTRYPOINT / { entrypoint = substr($0, 12) }
    /^LABEL / {
        name = value = substr($0, 7)
        sub(/=.*/, "", name)
        sub(/^[^=]*=/, "", value)
        gsub(/"/, "", value)
        if (value == "$REVISION") value = ENVIRON["REVISION"]
        if (value) labels = labels (labels ? "," : "") "\"" name "\":\"" value "\""
    }
    END { printf "{%s}\n{\"Entrypoint\":%s,\"User\":\"%s\",\"Env\":[%s],\"Labels\":{%s}}", labels, entrypoint, user, env, labels }
' "$dockerfile")
labels=${settings%%
*} settings=${settings#*
}

this_machine() {
    case $(uname -m) in
        x86_64) echo amd64 ;;
        aarch64) echo arm64 ;;
        *) echo "error: images cannot be built for $(uname -m)" >&2; exit 1 ;;
    esac
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# The archive contains no time, owner or umask of this machine.
pack() { tar --create --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX "$@"; }

# Moves a file to the path of its digest, and prints the start of its descriptor.
store() {
    digest=$(sha256sum "$2" | cut -d ' ' -f 1)
    mv "$2" "$work/layout/blobs/sha256/$digest"
    size=$(stat -c %s "$work/layout/blobs/sha256/$digest")
    echo "\"mediaType\":\"application/vnd.oci.image.$1\",\"digest\":\"sha256:$digest\",\"size\":$size"
}
digest_of() { expr "$1" : '.*"digest":"sha256:\([0-9a-f]*\)"'; }

mkdir -p "$work/layout/blobs/sha256"
manifests=
for image; do
    folder=${image#*=} architecture=${image%%=*}
    [ "$folder" != "$image" ] || architecture=$(this_machine)
    pack --directory="$folder" --file="$work/file" .
    layer=$(store layer.v1.tar "$work/file")
    printf '{"architecture":"%s","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
        "$architecture" "$settings" "$(digest_of "$layer")" >"$work/file"
    config=$(store config.v1+json "$work/file")
    printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{%s},"layers":[{%s}]}' \
        "$config" "$layer" >"$work/file"
    manifest=$(store manifest.v1+json "$work/file")
    manifests="$manifests${manifests:+,}{$manifest,\"platform\":{\"architecture\":\"$architecture\",\"os\":\"linux\"}}"
done

index() { printf '{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s]%s}' "$1" "${2:-}"; }
# Registries show what is at the index, not the labels below it.
index "$manifests" ",\"annotations\":$labels" >"$work/file"
image=$(store index.v1+json "$work/file")
# containerd needs the full name.
case $name in */*) full=$name ;; *) full=docker.io/library/$name ;; esac
index "{$image,\"annotations\":{\"io.containerd.image.name\":\"$full\",\"org.opencontainers.image.ref.name\":\"${name##*:}\"}}" \
    >"$work/layout/index.json"
printf '{"imageLayoutVersion":"1.0.0"}' >"$work/layout/oci-layout"
# An older `docker load` reads this file instead. It supports one architecture only.
[ $# -gt 1 ] || printf '[{"Config":"blobs/sha256/%s","RepoTags":["%s"],"Layers":["blobs/sha256/%s"]}]' \
    "$(digest_of "$config")" "$name" "$(digest_of "$layer")" >"$work/layout/manifest.json"

mkdir -p "$(dirname "$archive")"
(cd "$work/layout" && pack --file="$work/archive" *)
mv "$work/archive" "$archive.unfinished"
mv "$archive.unfinished" "$archive"
