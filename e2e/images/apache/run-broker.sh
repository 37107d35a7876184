#!/bin/bash
# run-broker.sh -c FILE: starts the official broker as its own runbroker.sh does, where only /tmp and the store can be written.
# POD_IP, if set, becomes brokerIP1, which no file can know beforehand. JAVA_OPT_EXT comes last on Java's command line.
set -euo pipefail
if [ $# -ne 2 ] || [ "$1" != -c ]; then
  echo "usage: run-broker.sh -c FILE" >&2
  exit 2
fi
file=/tmp/broker.conf
rm -f "$file" # of an earlier start in this pod
cat "$2" > "$file" # not cp: a mounted file is read-only, its copy must not be
if [ -n "${POD_IP:-}" ]; then printf '\nbrokerIP1=%s\n' "$POD_IP" >> "$file"; fi
# shellcheck disable=SC2086 # JAVA_OPT_EXT is a list of words
exec java -server -XX:-UsePerfData -Dfile.encoding=UTF-8 -Djava.net.preferIPv4Stack=true --add-opens=java.base/java.lang=ALL-UNNAMED \
  -Dtls.server.mode=disabled -Duser.home=/tmp -Drocketmq.home.dir=/opt/rocketmq -Drmq.logback.configurationFile=/opt/rocketmq/logback.xml \
  ${JAVA_OPT_EXT:-} -cp '/opt/rocketmq/lib/*' org.apache.rocketmq.broker.BrokerStartup -c "$file"
