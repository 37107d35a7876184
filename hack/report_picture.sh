#!/bin/sh
# Draws docs/img/verification-report.png anew: a report with planted faults, seen by a real browser.
# usage: hack/report_picture.sh [REPORT.html [OUT.png [HEIGHT]]]   needs chromium (BROWSER=...) and .venv (make setup)
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
report=${1:-}
if [ -z "$report" ]; then
  report=$work/report.html
  .venv/bin/python -m tests.verify.report_sample "$report"
fi
out=${2:-docs/img/verification-report.png}
mkdir -p "$(dirname "$out")"
"${BROWSER:-chromium}" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" \
  --window-size="1180,${3:-1330}" --screenshot="$out" "file://$(realpath "$report")" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
ls -l "$out"
