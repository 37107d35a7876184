#!/bin/bash
# run-broker.sh -c FILE: starts the official broker as its own runbroker.sh does, where only /tmp and the store can be written.
# POD_IP, if set, becomes brokerIP1, which no file can know beforehand; with POD_IP_FAMILY (IPv4 or IPv6) the first address of POD_IPS
# (10.0.0.7,fd00::7) of that family. JAVA_OPT_EXT comes last on Java's command line.
set -euo pipefail
if [ $# -ne 2 ] || [ "$1" != -c ]; then
  echo "usage: run-broker.sh -c FILE" >&2
  exit 2
fi
file=/tmp/broker.conf
rm -f "$file" # of an earlier start in this pod
cat "$2" > "$file" # not cp: a mounted file is read-only, its copy must not be
for address in $(echo "${POD_IPS:-}" | tr , ' '); do
  case "$address" in *:*) family=IPv6 ;; *) family=IPv4 ;; esac
  if [ "$family" = "${POD_IP_FAMILY:-}" ]; then
    POD_IP=$address
    break
  fi
done
case "${POD_IP:-}${POD_IPS:-}" in
  *:*) ipv4=false ;; # else it would not listen where IPv6 clients look for it
  *) ipv4=true ;;
esac
if [ -n "${POD_IP:-}" ]; then printf '\nbrokerIP1=%s\n' "$POD_IP" >> "$file"; fi
# shellcheck disable=SC2086 # JAVA_OPT_EXT is a list of words
exec java -server -XX:-UsePerfData -Dfile.encoding=UTF-8 "-Djava.net.preferIPv4Stack=$ipv4" --add-opens=java.base/java.lang=ALL-UNNAMED \
  -Dtls.server.mode=disabled -Duser.home=/tmp -Drocketmq.home.dir=/opt/rocketmq -Drmq.logback.configurationFile=/opt/rocketmq/logback.xml \
  ${JAVA_OPT_EXT:-} -cp '/opt/rocketmq/lib/*' org.apache.rocketmq.broker.BrokerStartup -c "$file"
