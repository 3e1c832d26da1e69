#!/bin/sh
# Packs a folder into an image archive, without a container daemon; `docker load` and `ctr images import` read it. The same
# files make the same bytes.
#
#     deploy/image.sh NAME:TAG DOCKERFILE FOLDER ARCHIVE
#
# From the last stage of the Dockerfile come ENV (one a line), USER and ENTRYPOINT (as a list); the files are those in FOLDER.
set -eu
name=$1 dockerfile=$2 folder=$3 archive=$4

config=$(awk '
    /^FROM /       { env = user = entrypoint = "" }
    /^ENV /        { env = env (env ? "," : "") "\"" $2 "\"" }
    /^USER /       { user = $2 }
    /^ENTRYPOINT / { entrypoint = substr($0, 12) }
    END            { printf "{\"Entrypoint\":%s,\"User\":\"%s\",\"Env\":[%s]}", entrypoint, user, env }
' "$dockerfile")

case $(uname -m) in
    x86_64) architecture=amd64 ;;
    aarch64) architecture=arm64 ;;
    *) echo "error: images are not made for $(uname -m)" >&2; exit 1 ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# Nothing of this machine: no time, no owner, no umask.
pack() { tar --create --format=gnu --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX "$@"; }

pack --directory="$folder" --file="$work/layer.tar" .
layer=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
cat > "$work/config.json" <<JSON
{"architecture":"$architecture","os":"linux","config":$config,"rootfs":{"type":"layers","diff_ids":["sha256:$layer"]}}
JSON
cat > "$work/manifest.json" <<JSON
[{"Config":"config.json","RepoTags":["$name"],"Layers":["layer.tar"]}]
JSON
mkdir -p "$(dirname "$archive")"
pack --directory="$work" --file="$archive.unfinished" manifest.json config.json layer.tar
mv "$archive.unfinished" "$archive"
