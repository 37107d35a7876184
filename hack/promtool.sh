#!/usr/bin/env bash
# Prints the path of promtool, for the tests of the alerts: the one on PATH, or Debian's, taken out of its package `prometheus` into a
# cache folder (PROMTOOL_CACHE, by default ~/.cache/rocketmq-ha/promtool). Nothing is installed and no service started.
set -euo pipefail
cache=${PROMTOOL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rocketmq-ha/promtool}
if command -v promtool; then exit 0; fi
if [ ! -x "$cache/promtool" ]; then
  command -v apt-get >/dev/null || { echo "promtool is not there: install Prometheus (https://prometheus.io/download)" >&2; exit 1; }
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && apt-get download prometheus >&2 && dpkg -x prometheus_*.deb .)
  mkdir -p "$cache"
  cp "$work/usr/bin/promtool" "$cache/promtool.$$" && mv "$cache/promtool.$$" "$cache/promtool" # two at a time do no harm
fi
echo "$cache/promtool"
