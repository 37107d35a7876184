#!/usr/bin/env bash
# Builds all images as rocketmq-ha/NAME:TAG and :VERSION (make images, make e2e): hack/images.sh [TAG], by default dev.
# DOCKER names the command, DOCKER_BUILD_ARGS more arguments of `docker build`, e.g. --network host. Proxies and pip's settings come
# from the environment: PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST. BASE is another base image (Debian-like, with Python 3.11).
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${1:-dev}
docker=${DOCKER:-docker}
repository=${REPOSITORY:-rocketmq-ha}
names=(controller namesrv broker sidecar operator spark tester)
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' libs/rocketmq_runtime/version.py)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
source=$(git remote get-url origin 2>/dev/null | grep '^https://[^@]*$' || echo unknown)
arguments=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "SOURCE=$source")
for name in BASE PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST; do
  [ -z "${!name:-}" ] || arguments+=(--build-arg "$name")
done
export DOCKER_BUILDKIT=1
logs=build/images
mkdir -p "$logs"
build() { # shellcheck disable=SC2086 # DOCKER_BUILD_ARGS is a list of words
  if ! "$docker" build --progress plain ${DOCKER_BUILD_ARGS:-} "${arguments[@]}" --target "$1" \
    -t "$repository/$1:$tag" -t "$repository/$1:$version" . > "$logs/$1.log" 2>&1; then
    grep -v ' \(sha256:\|DONE \|CACHED\)' "$logs/$1.log" | tail -n 30 >&2 || true
    echo "image $1 was not built, see $logs/$1.log" >&2
    return 1
  fi
}
# The first build makes the layers of all of them; the others only put theirs on top. One after the other: BuildKit panicked
# ("failed to get edge") and ended the Docker engine when it built all of them at once.
for name in "${names[@]}"; do build "$name"; done
for name in "${names[@]}"; do echo "$repository/$name:$tag"; done
