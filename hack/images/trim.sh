#!/bin/sh
# Removes Python's package installers from the base image (the Dockerfile runs it there): servers do not need it, and scanners report it.
set -eu
if dpkg -s python3-pip >/dev/null 2>&1; then # a base whose Python is Debian's
  # shellcheck disable=SC2046 # a list of names
  dpkg --purge $(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 'python3*-pip*' 'python3*-venv' 'python3-setuptools*' \
    python3-wheel python3-distutils python3-lib2to3 python3-pkg-resources | sed -n 's/^ii *//p') >/dev/null
else
  python3 -m pip uninstall --quiet --yes --root-user-action ignore pip setuptools wheel
fi
python3 - <<'PYTHON'
import importlib.util, pathlib, shutil
spec = importlib.util.find_spec("ensurepip")
if spec is not None and spec.origin is not None:
    shutil.rmtree(pathlib.Path(spec.origin).parent)
PYTHON
