#!/usr/bin/env bash
# Copies each image's bill of materials to build/sbom/NAME.json (make sbom): hack/sbom.sh [TAG], by default dev.
set -euo pipefail
cd "$(dirname "$0")/.."
docker=${DOCKER:-docker}
mkdir -p build/sbom
for name in controller namesrv broker sidecar operator spark; do
  container=$("$docker" create "${REPOSITORY:-rocketmq-ha}/$name:${1:-dev}")
  "$docker" cp "$container:/usr/share/rocketmq-ha/sbom.json" - | tar -xO > "build/sbom/$name.json"
  "$docker" rm "$container" >/dev/null
  echo "build/sbom/$name.json"
done
