#!/bin/sh
# trim-spark.sh SITE-PACKAGES: removes from pip's pyspark what verification never loads (the Dockerfile runs it there): streaming's
# state store, Spark Connect, Hive, ML, graphs, YARN, shells, TLS libraries of other systems. Runs of local[*] and with executor pods,
# data sources in Python, aggregation and Parquet were tried without these; jts-core and orc look alike, but Parquet and SQL load them.
set -eu
cd "$1/pyspark"
rm -rf examples data sbin bin/*.cmd
cd jars
rm -rf connect-repl
rm rocksdbjni-* spark-connect_* spark-pipelines_* hive-beeline-* hive-cli-* hive-common-* hive-exec-* hive-jdbc-* hive-metastore-* \
  hive-serde-* hive-service-* hive-shims-* spark-hive* derby* datanucleus-* jdo-api-* javax.jdo-* HikariCP-* spark-mllib_* spark-graphx_* \
  breeze* spire* cats-kernel_* algebra_* lapack-* arpack* blas-* JTransforms-* JLargeArrays-* spark-yarn_* spark-repl_* scala-compiler-* \
  jline-* volcano-* netty-tcnative-boringssl-static-*-osx-* netty-tcnative-boringssl-static-*-windows-*
