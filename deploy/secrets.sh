#!/bin/sh
# Writes deploy/secrets once: what compose.yaml mounts. Usage: sh deploy/secrets.sh http://HOST:PORT
# The folder is its owner's alone; the files in it can be read by the users of the containers.
set -eu
upstream=${1:?name the model server, as containers reach it: sh deploy/secrets.sh http://HOST:PORT}
cd "$(dirname "$0")"
mkdir -m 700 secrets || { echo "deploy/secrets is kept as it is: take it away for new secrets" >&2; exit 1; }
cd secrets
draw() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
umask 022
draw > postgres
draw > grafana
draw > prometheus
cat > serve.toml <<END
[serve]
host = "0.0.0.0"
hosts = ["proxy"]
operators = ["operator"]
store = "postgresql://ullage:$(cat postgres)@postgres/ullage"

[serve.tokens]
client = "$(draw)"
operator = "$(draw)"
prometheus = "$(cat prometheus)"

[[serve.upstreams]]
name = "model"
base_url = "$upstream"
END
chmod 444 ./*
echo "deploy/secrets: written; clients present the token 'client' of serve.toml as their API key"
