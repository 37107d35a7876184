# The images, a target each: controller, namesrv, broker, sidecar, operator, spark; tester is for tests (e2e/). All at once: `make images`.
# Images share layers; which package is in which layer: hack/images/layers.py.
ARG BASE=python:3.11-slim-bookworm

# Build tools: nothing of this stage is in an image.
FROM ${BASE} AS tools
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PATH=/build/venv/bin:$PATH
WORKDIR /src
RUN python3 -m venv /build/venv && python3 -m venv --without-pip /opt/rocketmq-ha \
    && rm /opt/rocketmq-ha/bin/[Aa]ctivate*
COPY constraints.txt ./
RUN --mount=type=cache,target=/root/.cache/pip \
    for name in hatchling editables setuptools packaging pathspec pluggy trove-classifiers; do \
      sed -n "/^$name==/,/[^\\\\]\$/p" constraints.txt; done > /build/tools.txt \
    && pip install --quiet --no-deps --require-hashes -r /build/tools.txt

# Which packages are in which layer. They are installed again only when that changes.
FROM tools AS lists
COPY pyproject.toml ./
COPY hack/images/layers.py hack/images/
RUN --mount=type=cache,target=/root/.cache/pip python hack/images/layers.py /build/layers

# One folder per layer: its packages as in /opt/rocketmq-ha, compiled.
FROM tools AS packages
COPY hack/images/install.sh hack/images/
COPY --from=lists /build/layers /build/layers
RUN --mount=type=cache,target=/root/.cache/pip \
    for list in /build/layers/*.txt; do name=$(basename "$list" .txt) \
    && if [ -s "$list" ]; then pip wheel --quiet --no-deps --no-build-isolation --require-hashes -w "/build/$name" -r "$list"; fi \
    && sh hack/images/install.sh "/build/$name" "/layers/$name" || exit 1; done

# Spark and its packages in a stage of their own: they are large, and only one image has them.
FROM tools AS spark-packages
COPY pyproject.toml constraints-verify.txt ./
COPY hack/images/layers.py hack/images/install.sh hack/images/trim-spark.sh hack/images/
RUN --mount=type=cache,target=/root/.cache/pip python hack/images/layers.py /build/layers spark \
    && pip wheel --quiet --no-deps --no-build-isolation --require-hashes -w /build/spark -r /build/layers/spark.txt \
    && sh hack/images/install.sh /build/spark /layers/spark && rm -r /build/spark
RUN sh hack/images/trim-spark.sh /layers/spark/opt/rocketmq-ha/lib/python*/site-packages

FROM tools AS project
COPY LICENSE README.md pyproject.toml ./
COPY admin admin
COPY broker broker
COPY broker_sidecar broker_sidecar
COPY controller_core controller_core
COPY demo demo
COPY kubectl kubectl
COPY libs libs
COPY nameserver nameserver
COPY operator operator
COPY spark spark
COPY hack/images/install.sh hack/images/
RUN pip wheel --quiet --no-deps --no-build-isolation -w /build/project . \
    && sh hack/images/install.sh /build/project /layers/project

# The base of all images: without package installers, with a user and the virtual environment.
FROM ${BASE} AS common
COPY hack/images/trim.sh /tmp/
RUN sh /tmp/trim.sh && rm /tmp/trim.sh && useradd --uid 1000 --user-group --create-home --shell /usr/sbin/nologin rocketmq
COPY --from=tools /opt/rocketmq-ha /opt/rocketmq-ha
COPY --from=packages /layers/common/opt /opt
WORKDIR /home/rocketmq
ENV PATH=/opt/rocketmq-ha/bin:$PATH LANG=C.UTF-8 PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ARG VERSION=unknown
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.version=$VERSION org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.source=$SOURCE org.opencontainers.image.licenses=Apache-2.0

FROM common AS with-loop
COPY --from=packages /layers/loop/opt /opt
FROM with-loop AS with-grpc
COPY --from=packages /layers/grpc/opt /opt
FROM with-grpc AS with-grpc-server
COPY --from=packages /layers/grpc-server/opt /opt
FROM with-grpc-server AS with-raft
COPY --from=packages /layers/raft/opt /opt

FROM with-loop AS broker
COPY --from=packages /layers/rest-broker/opt /opt
COPY --from=project /layers/project/opt /opt
COPY --from=project /layers/project/commands/rocketmq-broker /opt/rocketmq-ha/bin/
RUN --mount=type=bind,source=hack/images/sbom.py,target=/tmp/sbom.py python /tmp/sbom.py broker
USER 1000:1000
EXPOSE 10911 10909
LABEL org.opencontainers.image.title="rocketmq-ha broker" org.opencontainers.image.description="a native broker, beside a sidecar"
ENTRYPOINT ["rocketmq-broker"]

FROM with-grpc-server AS sidecar
COPY --from=packages /layers/rest-sidecar/opt /opt
COPY --from=project /layers/project/opt /opt
COPY --from=project /layers/project/commands/rocketmq-sidecar /opt/rocketmq-ha/bin/
RUN --mount=type=bind,source=hack/images/sbom.py,target=/tmp/sbom.py python /tmp/sbom.py sidecar
USER 1000:1000
EXPOSE 10912 10920 5558
LABEL org.opencontainers.image.title="rocketmq-ha sidecar" org.opencontainers.image.description="identity, role and replication of a native replica"
ENTRYPOINT ["rocketmq-sidecar"]

FROM with-raft AS controller
COPY --from=packages /layers/rest-controller/opt /opt
COPY --from=project /layers/project/opt /opt
COPY --from=project /layers/project/commands/rocketmq-controller /opt/rocketmq-ha/bin/
RUN --mount=type=bind,source=hack/images/sbom.py,target=/tmp/sbom.py python /tmp/sbom.py controller
USER 1000:1000
EXPOSE 9878 9879 9880 5557
LABEL org.opencontainers.image.title="rocketmq-ha controller" org.opencontainers.image.description="the controllers' quorum"
ENTRYPOINT ["rocketmq-controller"]

FROM with-raft AS namesrv
COPY --from=packages /layers/rest-namesrv/opt /opt
COPY --from=project /layers/project/opt /opt
COPY --from=project /layers/project/commands/rocketmq-namesrv /opt/rocketmq-ha/bin/
RUN --mount=type=bind,source=hack/images/sbom.py,target=/tmp/sbom.py python /tmp/sbom.py namesrv
USER 1000:1000
EXPOSE 9876 9878 9879 9880 5557
LABEL org.opencontainers.image.title="rocketmq-ha namesrv" org.opencontainers.image.description="name server, with a controller inside if asked for"
ENTRYPOINT ["rocketmq-namesrv"]

FROM common AS operator
COPY --from=packages /layers/grpc/opt /opt
COPY --from=packages /layers/rest-operator/opt /opt
COPY --from=project /layers/project/opt /opt
COPY --from=project /layers/project/commands/rocketmq-operator /opt/rocketmq-ha/bin/
RUN --mount=type=bind,source=hack/images/sbom.py,target=/tmp/sbom.py python /tmp/sbom.py operator
USER 1000:1000
EXPOSE 8080 8081
LABEL org.opencontainers.image.title="rocketmq-ha operator" org.opencontainers.image.description="the Kubernetes operator"
ENTRYPOINT ["rocketmq-operator"]

# Driver and executors of the verification; Spark starts its own pods with `executor` or `driver` as first argument.
FROM common AS with-java
RUN apt-get update -q && mkdir -p /usr/share/man/man1 \
    && apt-get install -q -y --no-install-recommends openjdk-17-jre-headless libnss-wrapper \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log /var/log/alternatives.log

FROM with-java AS spark
COPY --from=packages /layers/grpc/opt /opt
COPY --from=spark-packages /layers/spark/opt /opt
COPY --from=project /layers/project/opt /opt
COPY --from=project /layers/project/commands/rocketmq-verify /opt/rocketmq-ha/bin/
COPY --chmod=755 spark/entrypoint.sh spark/verify.p[y] /opt/spark/
RUN --mount=type=bind,source=hack/images/sbom.py,target=/tmp/sbom.py python /tmp/sbom.py spark \
    && ln -s "$(python -c 'import pyspark; print(pyspark.__path__[0])')" /opt/spark/home
ENV SPARK_HOME=/opt/spark/home PYSPARK_PYTHON=/opt/rocketmq-ha/bin/python PYSPARK_DRIVER_PYTHON=/opt/rocketmq-ha/bin/python
USER 1000:1000
EXPOSE 7078 7079
LABEL org.opencontainers.image.title="rocketmq-ha spark" org.opencontainers.image.description="verification: driver and executors of Spark"
ENTRYPOINT ["/opt/spark/entrypoint.sh"]

FROM with-raft AS tester
COPY --from=packages /layers/rest-demo/opt /opt
COPY --from=project /layers/project/opt /opt
COPY --from=project /layers/project/commands /opt/rocketmq-ha/bin
RUN --mount=type=bind,source=hack/images/sbom.py,target=/tmp/sbom.py python /tmp/sbom.py tester
USER 1000:1000
LABEL org.opencontainers.image.title="rocketmq-ha tester" org.opencontainers.image.description="what tests run inside a cluster: clients, rocketmq-admin"
ENTRYPOINT ["python"]
