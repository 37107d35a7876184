#!/usr/bin/env bash
# Builds rocketmq-ha/apache-broker:VERSION from the jars that interop tests and demo use (make e2e-images; needs a JDK and Maven once).
# DOCKER, DOCKER_BUILD_ARGS and BASE as in hack/images.sh.
set -euo pipefail
cd "$(dirname "$0")/../../.."
python=${PYTHON:-.venv/bin/python}
context=build/e2e/apache
lines=$("$python" - <<'PYTHON'
import os
from rocketmq_demo.apache import jars
print(jars.ROCKETMQ_VERSION, *(entry for entry in jars.classpath().split(os.pathsep) if entry.endswith(".jar")), sep="\n")
PYTHON
)
version=${lines%%$'\n'*}
rm -rf "$context" && mkdir -p "$context/lib"
printf '%s\n' "${lines#*$'\n'}" | xargs cp --preserve=timestamps --target-directory "$context/lib"
cp --preserve=mode e2e/images/apache/{Dockerfile,run-broker.sh,logback.xml} "$context/"
image="${REPOSITORY:-rocketmq-ha}/apache-broker:$version"
# shellcheck disable=SC2086 # DOCKER_BUILD_ARGS is a list of words
DOCKER_BUILDKIT=1 "${DOCKER:-docker}" build --quiet ${DOCKER_BUILD_ARGS:-} ${BASE:+--build-arg BASE} -t "$image" "$context" >/dev/null
echo "$image"
