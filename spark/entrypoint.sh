#!/bin/bash
# Entry point of the image `spark`. Spark starts its pods with `executor`, or (spark-submit in cluster mode, the Spark
# operator) with `driver` and spark-submit's arguments; with anything else this is rocketmq-verify. pip's pyspark has no such script.
set -euo pipefail
# Hadoop's login, and with it Spark, fails where the user has no name, as with one that the platform assigned.
if ! whoami > /dev/null 2>&1; then
  export NSS_WRAPPER_PASSWD="${TMPDIR:-/tmp}/passwd" NSS_WRAPPER_GROUP=/etc/group
  { cat /etc/passwd && echo "spark:x:$(id -u):$(id -g)::${HOME:-/tmp}:/usr/sbin/nologin"; } > "$NSS_WRAPPER_PASSWD"
  export LD_PRELOAD=libnss_wrapper.so
fi
case ${1:-} in
  executor)
    options=()
    for name in $(compgen -v SPARK_JAVA_OPT_ | sort -t_ -k4 -n); do options+=("${!name}"); done
    cd "${SPARK_WORK_DIR:-/tmp}"
    exec java "${options[@]}" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
      -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
      --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
      --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  driver)
    shift
    exec "$SPARK_HOME/bin/spark-submit" --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" --deploy-mode client "$@"
    ;;
  *)
    exec rocketmq-verify "$@"
    ;;
esac
