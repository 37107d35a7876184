#!/usr/bin/env bash
# The campaign (make campaign): faults on real processes, checked. CI installs missing packages; elsewhere the campaign
# names them. hack/campaign.sh [ARGUMENTS OF python -m tests.campaign]
set -euo pipefail
cd "$(dirname "$0")/.."
missing=$(.venv/bin/python -m tests.campaign.needs)
if [ -n "$missing" ] && [ "${CI:-}" = true ] && command -v apt-get > /dev/null; then
  apt-get update -qq
  # shellcheck disable=SC2086 - one word for each package
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing > /dev/null
fi
exec .venv/bin/python -m tests.campaign "$@"
