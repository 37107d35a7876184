#!/bin/sh
# install.sh WHEELS ROOT: puts the wheels of a folder, if there are any, below ROOT/opt as they will lie in /opt: compiled, without tests.
# Their commands go to ROOT/commands: an image gets its own only. The Dockerfile calls it once for each layer. Compiled files are never
# compared with their sources, because images are not edited.
set -eu
wheels=$1 root=$2
mkdir -p "$root/opt/rocketmq-ha"
[ -d "$wheels" ] || exit 0
pip --python /opt/rocketmq-ha/bin/python install --quiet --no-deps --no-index --no-compile --no-warn-script-location \
  --root "$root" "$wheels"/*.whl
site=$(echo "$root"/opt/rocketmq-ha/lib/python*/site-packages)
find "$site" -depth -type d \( -name tests -o -name test \) -exec rm -r {} +
find "$site" -name direct_url.json -delete
if [ -d "$root/opt/rocketmq-ha/bin" ]; then mv "$root/opt/rocketmq-ha/bin" "$root/commands"; fi
python -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" "$site"
