#!/usr/bin/env bash
# Pins hack/requirements.in into constraints.txt, and what verification needs beside that into constraints-verify.txt: names,
# versions and hashes, no registry's address.
set -euo pipefail
cd "$(dirname "$0")/.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check pip-tools
compile() {
  "$work/venv/bin/pip-compile" --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
    --no-emit-index-url --no-emit-trusted-host --no-emit-find-links "$@"
}
compile --output-file "$work/out.txt" hack/requirements.in
{
  echo "# Every package that development, tests and the processes use, pinned with hashes."
  echo "# Made by \`make constraints\` from hack/requirements.in; why each is here: docs/dependencies.md."
  cat "$work/out.txt"
} > constraints.txt
compile --constraint constraints.txt --output-file "$work/verify.txt" hack/requirements-verify.in
{
  echo "# What verification (rocketmq-verify, Spark) needs beside constraints.txt, pinned with hashes."
  echo "# Made by \`make constraints\` from hack/requirements-verify.in; why each is here: docs/dependencies.md."
  # A package and its hashes go if the other file has them.
  awk 'NR == FNR { if (/^[^ #].*==/) known[$1] = 1; next } /^[^ #]/ { keep = !($1 in known) } keep' constraints.txt "$work/verify.txt"
} > constraints-verify.txt
