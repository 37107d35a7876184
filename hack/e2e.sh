#!/usr/bin/env bash
# The end-to-end suite (make e2e) and everything it needs: hack/e2e.sh machine | prepare | run [PYTEST ARGUMENTS]. `machine` makes the
# Docker engine and the programs of the cluster, `prepare` the images too. E2E_PHASE names what runs in the records of the gate.
# E2E_PREPARED=true: the images are those of this checkout already.
# With the docker, kind and kubectl of this machine; if ../shared/k8s-local exists, with the Docker engine and the one-node cluster of its
# scripts. There a running cluster is used and kept, but CI begins with a new one.
set -euo pipefail
cd "$(dirname "$0")/.."
local=../shared/k8s-local
arguments=()
if [ -x "$local/kind" ]; then
  export DOCKER=/usr/bin/docker DOCKER_BUILD_ARGS="--network host"
  "$local/build.sh"
  # First: the process ids that a dead cluster left behind may by now be those of other processes, also of a new Docker engine.
  [ "${CI:-}" != true ] || "$local/kind" delete cluster
  "$local/docker-up.sh"
  "$local/base-image.sh"
  arguments=(--kind-bin hack/local_kind.sh --kind-kubectl-bin "$(command -v kubectl)")
fi
[ "${1:-run}" != machine ] || exit 0
if [ "${E2E_PREPARED:-}" != true ]; then
  hack/images.sh
  e2e/images/apache/build.sh || [ "${CI:-}" != true ]
fi
if [ "${1:-run}" = prepare ]; then # minutes before the first pod: the images are there, and need their place
  images=$("${DOCKER:-docker}" info --format '{{.DockerRootDir}}')
  [ ! -d "$images" ] || .venv/bin/python -m e2e.kit.ground "$images"
  exit
fi
if [ -x "$local/kind" ] && running=$("$local/kind" get clusters 2>/dev/null) && [ -n "$running" ]; then
  arguments+=(--cluster-name "$running" --keep-cluster)
fi
[[ " ${*:2}" == *" e2e"* ]] || arguments+=(e2e) # unless files are named
exec .venv/bin/python -m tests.gate "${E2E_PHASE:-e2e}" "${arguments[@]}" "${@:2}"
