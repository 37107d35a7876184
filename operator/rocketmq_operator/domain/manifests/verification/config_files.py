"""The files of a verification: rocketmq-verify's settings, Spark's, and the template of the executors' pods."""

from typing import Final

import msgspec

from rocketmq_operator.domain.manifests import pods
from rocketmq_operator.domain.manifests.objects import Images, Owner, PropertyValue, properties_text
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.common import memory_promised
from rocketmq_resources.decoding import Json
from rocketmq_resources.quantity import parse_quantity
from rocketmq_resources.schema.common import Services
from rocketmq_resources.schema.verification import Verification

CONFIG_FILE: Final = "verify.conf"
SPARK_FILE: Final = "spark-defaults.conf"
TEMPLATE_FILE: Final = "executor.yaml"
API_SERVER: Final = "k8s://https://kubernetes.default.svc"
ROLE_LABEL: Final = "spark-role"
"""Spark's own label: driver or executor."""
GRPC_TLS: Final = "grpc-tls"
"""The volume with the certificate for the sidecars."""
MEMORY: Final = 2**30
"""Bytes of driver or executor unless the resource sets them."""
LEAST_HEAP_MIB: Final = 450
"""Spark refuses less."""
EXECUTOR_CPU: Final = "250m"
RETRIES: Final = 2
"""Of a Job whose run ended without a final exit code."""
BUDGET: Final = 0.75 / (1 + RETRIES)
"""Of the Job's time, for each attempt: then a run ends by itself, and the next one continues. The rest is for starts
and last legs. All attempts have to end before the Job is killed, which would be published instead of what was found."""


def texts(owner: Owner, group: BrokerGroup, wanted: Verification, images: Images, replicas: int) -> dict[str, str]:
    """The files by name; those of Spark on Kubernetes only with executors."""
    files = {
        CONFIG_FILE: properties_text(_settings(group, wanted, replicas)),
        SPARK_FILE: properties_text(_driver(wanted) | (_cluster(group, wanted, images) if wanted.executors else {})),
    }
    if wanted.executors:
        files[TEMPLATE_FILE] = _template(owner, group, images)
    return files


def spark_image(wanted: Verification, images: Images) -> str:
    """Of driver and executors."""
    return wanted.image or images.of("spark")


def spark_arguments(service: str, namespace: str, families: Services) -> str:
    """PYSPARK_SUBMIT_ARGS: what differs between pods, as Kubernetes fills it in."""
    host = names.pod_host("$(JOB_NAME)-0", service, namespace)
    conf = {
        "spark.driver.host": host,
        # Executors resolve the name. The driver listens on the address, so that it does not wait for DNS; on all where
        # the name may have the other family's. Java takes 0.0.0.0 for both.
        "spark.driver.bindAddress": "0.0.0.0" if families.ip_families else "$(POD_IP)",  # noqa: S104
        "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
    }
    return " ".join(f"--conf {key}={value}" for key, value in conf.items()) + " pyspark-shell"


def _settings(group: BrokerGroup, wanted: Verification, replicas: int) -> dict[str, PropertyValue]:
    """rocketmq-verify's own keys."""
    sources = (
        f"{names.pod_name(group.name, ordinal)}=sidecar:"
        f"{names.pod_host(names.pod_name(group.name, ordinal), group.name, group.namespace)}:{names.PORT_SIDECAR_GRPC}"
        for ordinal in range(replicas)
    )
    values: dict[str, PropertyValue] = {
        "brokerName": group.broker_name,
        "brokerClusterName": group.cluster_name,
        "replicas": ";".join(sources),
        "rereadDays": wanted.reread_days,
        "chunkSize": wanted.chunk_size,
        "rateLimit": wanted.rate_limit,
        **({"sparkMaster": API_SERVER} if wanted.executors else {"engine": "local"}),
        "namespace": group.namespace,
        "brokerGroup": group.name,
        "logFormat": "json",
        "logLevel": "info",
    }
    if group.spec.grpc_tls_secret_name is not None:
        values["tlsCertFile"] = f"{names.PATH_GRPC_TLS}/tls.crt"
        values["tlsKeyFile"] = f"{names.PATH_GRPC_TLS}/tls.key"
        values["tlsCaFile"] = f"{names.PATH_GRPC_TLS}/ca.crt"
    if wanted.history is not None:
        values["historyPath"] = wanted.history.path or names.PATH_HISTORY
        values["timeBudgetSeconds"] = int(wanted.timeout_seconds * BUDGET)
    return values


def _driver(wanted: Verification) -> dict[str, PropertyValue]:
    heap, _ = _memory(wanted.resources.driver, "driver")
    return {"spark.driver.memory": f"{heap}m"}


def _cluster(group: BrokerGroup, wanted: Verification, images: Images) -> dict[str, PropertyValue]:
    """Client mode: the driver runs already and starts executors. Spark creates only pods, so it needs few rights."""
    heap, rest = _memory(wanted.resources.executor, "executor")
    request, limit = _cpu(wanted.resources.executor)
    values: dict[str, PropertyValue] = {
        "spark.kubernetes.namespace": group.namespace,
        "spark.kubernetes.container.image": spark_image(wanted, images),
        "spark.kubernetes.container.image.pullPolicy": group.spec.image.pull_policy,
        "spark.kubernetes.executor.podTemplateFile": f"{names.PATH_CONFIG}/{TEMPLATE_FILE}",
        "spark.kubernetes.executor.podTemplateContainerName": names.CONTAINER_EXECUTOR,
        "spark.kubernetes.executor.disableConfigMap": True,
        "spark.kubernetes.driver.ownPersistentVolumeClaim": False,
        "spark.kubernetes.driver.reusePersistentVolumeClaim": False,
        "spark.kubernetes.driver.service.deleteOnTermination": False,
        "spark.kubernetes.executor.request.cores": request,
        "spark.executor.instances": wanted.executors,
        "spark.executor.cores": _slots(limit or request),
        "spark.executor.memory": f"{heap}m",
        "spark.executor.memoryOverhead": f"{rest}m",
        "spark.driver.port": names.PORT_SPARK_DRIVER,
        "spark.driver.blockManager.port": names.PORT_SPARK_BLOCKS,
        "spark.blockManager.port": names.PORT_SPARK_BLOCKS,
        "spark.authenticate": True,
        "spark.executorEnv.HOME": "/tmp",  # noqa: S108 - its own volume
    }
    if limit is not None:
        values["spark.kubernetes.executor.limit.cores"] = limit
    if wanted.max_executors is not None:
        values |= {
            "spark.dynamicAllocation.enabled": True,
            # without a shuffle service an executor stays while another may read its shuffle files
            "spark.dynamicAllocation.shuffleTracking.enabled": True,
            "spark.dynamicAllocation.minExecutors": wanted.executors,
            "spark.dynamicAllocation.maxExecutors": wanted.max_executors,
        }
    return values


def _template(owner: Owner, group: BrokerGroup, images: Images) -> str:
    """JSON is YAML too. Spark adds the image, the environment, resources and folders for its own files."""
    labels = {key: value for key, value in owner.labels.items() if key != names.LABEL_MANAGED_BY}
    mounts = [pods.mount(pods.TEMPORARY, "/tmp")]  # noqa: S108 - its own volume
    volumes = [pods.empty_dir(pods.TEMPORARY, "2Gi")]
    if group.spec.grpc_tls_secret_name is not None:
        volumes.append(pods.secret_volume(GRPC_TLS, group.spec.grpc_tls_secret_name))
        mounts.append(pods.mount(GRPC_TLS, names.PATH_GRPC_TLS, read_only=True))
    container: Json = {
        "name": names.CONTAINER_EXECUTOR,
        "workingDir": "/tmp",  # noqa: S108 - its own volume
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    spec: dict[str, object] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": pods.pod_security(images),
        "containers": [container],
        "volumes": volumes,
        **pods.helper_scheduling(group.spec),
    }
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels}, "spec": spec}
    return msgspec.json.format(msgspec.json.encode(body), indent=1).decode() + "\n"


def _memory(wanted: Json, who: str) -> tuple[int, int]:
    """MiB of Spark's heap, and MiB for Python and the JVM itself."""
    promised = memory_promised(wanted, f"spec.verification.resources.{who}") or MEMORY
    total = promised // 2**20
    heap = max(total // 2, LEAST_HEAP_MIB)
    return heap, max(total - heap, LEAST_HEAP_MIB)


def _cpu(wanted: Json) -> tuple[str, str | None]:
    """Request and limit of an executor, as Kubernetes writes them."""
    found: list[str | None] = []
    for part in ("requests", "limits"):
        amounts = wanted.get(part)
        value = amounts.get("cpu") if isinstance(amounts, dict) else None
        found.append(None if value is None else str(value))
    request, limit = found
    return request or limit or EXECUTOR_CPU, limit


def _slots(cpu: str) -> int:
    """Tasks at a time: one for each started core."""
    return max(parse_quantity(cpu), 1)
