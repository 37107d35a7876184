#!/usr/bin/env bash
# Checks .github/workflows with actionlint: the one on PATH, or the pinned release that Go builds into a cache folder
# (ACTIONLINT_CACHE, by default ~/.cache/rocketmq-ha/actionlint). Go compares the module with the public checksum database.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v1.7.7
cache=${ACTIONLINT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rocketmq-ha/actionlint}/$version
if ! tool=$(command -v actionlint); then
  tool=$cache/actionlint
  if [ ! -x "$tool" ]; then
    command -v go >/dev/null || { echo "actionlint is not there: install it, or Go (https://github.com/rhysd/actionlint)" >&2; exit 69; }
    GOBIN=$cache go install "github.com/rhysd/actionlint/cmd/actionlint@$version" >&2
  fi
fi
# It would run shellcheck and pyflakes on each step if they are there; the result must not depend on that.
"$tool" -shellcheck= -pyflakes= "$@"
