#!/usr/bin/env bash
# What kind of ../shared/k8s-local does, for the end-to-end suite. Two things of the last cluster would be in the way of `create cluster`:
# * The node's address. `create` adds it if it does not find it, and one time in four it does not find what is there (`ip | grep -q`
#   under pipefail fails if grep ends first).
# * The API server and etcd, which take seconds to end after `delete cluster`, and keep their ports.
set -euo pipefail
local=$(cd "$(dirname "$0")/../../shared/k8s-local" && pwd)
ENDING_SECONDS=60
ETCD=http://127.0.0.1:12379 # in the command lines of both
if [ "${1:-} ${2:-}" = "create cluster" ] && [ -z "$("$local/kind" get clusters 2>/dev/null)" ]; then
  until [ "$SECONDS" -ge "$ENDING_SECONDS" ] || ! pgrep -f "$ETCD" > /dev/null; do sleep 0.1; done
  (. "$local/env.sh" && ip address del "$NODE_IP/32" dev lo 2>/dev/null) || true
fi
exec "$local/kind" "$@"
