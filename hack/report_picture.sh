#!/bin/sh
# Draws docs/img/verification-report.png again: the report of real stores with real damage, in a real browser.
# usage: hack/report_picture.sh [REPORT.html [OUT.png [HEIGHT]]]   needs chromium (BROWSER=...), Java and .venv (make setup)
# Without a report it runs a group for two minutes: hack/report_stores.py.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
report=${1:-}
if [ -z "$report" ]; then
  .venv/bin/python hack/report_stores.py "$work/stores"
  report=$work/stores/damaged.html
fi
out=${2:-docs/img/verification-report.png}
mkdir -p "$(dirname "$out")"
"${BROWSER:-chromium}" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
  --window-size="1180,${3:-1570}" --screenshot="$out" "file://$(realpath "$report")" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
ls -l "$out"
