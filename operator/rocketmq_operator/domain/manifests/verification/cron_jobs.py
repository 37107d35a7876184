"""Compares the replicas' logs (spec.verification): CronJobs whose pod is a Spark driver, and what that pod needs.

The driver runs in client mode: it starts its executors itself, as pods that it owns and that are deleted with it. They
find it under the DNS name that the pod of an indexed Job has behind a headless Service. Replicas are read through their
sidecars, so no pod here needs their volumes. The history's volume stays when spec.verification is removed, and is
deleted with the group.
"""

from typing import Final

from rocketmq_operator.domain.manifests import pods
from rocketmq_operator.domain.manifests.network_policies import Access, verification_policy
from rocketmq_operator.domain.manifests.objects import Images, Owner, config_map, headless_service
from rocketmq_operator.domain.manifests.verification.config_files import (
    CONFIG_FILE,
    GRPC_TLS,
    RETRIES,
    ROLE_LABEL,
    spark_arguments,
    spark_image,
    texts,
)
from rocketmq_resources import names
from rocketmq_resources.broker_group import BrokerGroup
from rocketmq_resources.decoding import Json
from rocketmq_resources.schema.common import Services
from rocketmq_resources.schema.verification import Verification

DRIVER_REQUESTS: Final = {"cpu": "250m", "memory": "1Gi"}
"""Requests unless the resource sets them."""
STARTING_SECONDS: Final = 300
"""How late a Job may start; later it is skipped."""
KEEP_SECONDS: Final = 7 * 24 * 3600
"""Finished Jobs and their logs."""
KEEP_JOBS: Final = 3
GRACE_SECONDS: Final = 30
FINAL_CODES: Final = (1, 2)
"""Exit codes of rocketmq-verify that another attempt would not change: a mismatch was found, the settings are wrong.
After 4, a mismatch that was found before this attempt's time was up, the next one reads the rest."""

_RBAC: Final = "rbac.authorization.k8s.io"
_HISTORY: Final = "history"
_WORK: Final = "work"
REMOVABLE: Final = (
    "CronJob",
    "NetworkPolicy",
    "Service",
    "ConfigMap",
    "RoleBinding",
    "Role",
    "ServiceAccount",
)
"""Kinds of objects that are removed with spec.verification, in that order."""


def candidates(group: str) -> tuple[tuple[str, str], ...]:
    """Kind and name of all objects that may exist and are removed when the spec does not need them."""
    name = names.verification(group)
    return (("CronJob", names.full_verification(group)), *((kind, name) for kind in REMOVABLE))


def verification_objects(group: BrokerGroup, images: Images, replicas: int, access: Access) -> tuple[Json, ...]:
    """All objects in the order to apply them; none without spec.verification.

    `replicas`: spec.replicas of the StatefulSet for now; 0 for a hibernated group, which suspends the CronJobs.
    """
    wanted = group.spec.verification
    if wanted is None:
        return ()
    owner, name = Owner("BrokerGroup", "verify", group.metadata), names.verification(group.name)
    count = replicas or group.spec.replicas
    suspended = wanted.suspend or group.spec.hibernated
    objects = [
        owner.new_object("v1", "ServiceAccount", name, automountServiceAccountToken=False),
        owner.new_object(f"{_RBAC}/v1", "Role", name, rules=_rules(group.name, wanted)),
        _binding(owner, name),
        config_map(owner, name, texts(owner, group, wanted, images, count)),
        _service(owner, name, group.spec.service),
        *verification_policy(owner, name, access),
        *_history(owner, name, wanted),
    ]
    schedules = [(name, wanted.schedule, False)]
    if wanted.full_schedule is not None:
        schedules.append((names.full_verification(group.name), wanted.full_schedule, True))
    for cron_job, schedule, full in schedules:
        pod = _pod(owner, group, wanted, images, full=full)
        objects.append(_cron_job(owner, cron_job, schedule, pod, wanted=wanted, suspended=suspended))
    return tuple(objects)


def _rules(group: str, wanted: Verification) -> list[Json]:
    """Rights to its group's status and Events, and to pods only with executors. A name cannot restrict `create`."""
    rules: list[Json] = [
        {"apiGroups": [names.GROUP], "resources": ["brokergroups"], "resourceNames": [group], "verbs": ["get"]},
        {
            "apiGroups": [names.GROUP],
            "resources": ["brokergroups/status"],
            "resourceNames": [group],
            "verbs": ["patch"],
        },
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]
    if wanted.executors:
        verbs = ["get", "list", "watch", "create", "delete", "deletecollection"]
        rules.append({"apiGroups": [""], "resources": ["pods"], "verbs": verbs})
    return rules


def _binding(owner: Owner, name: str) -> Json:
    return owner.new_object(
        f"{_RBAC}/v1",
        "RoleBinding",
        name,
        roleRef={"apiGroup": _RBAC, "kind": "Role", "name": name},
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": owner.metadata.namespace}],
    )


def _service(owner: Owner, name: str, families: Services) -> Json:
    """Gives the driver a DNS name before it is ready."""
    ports = {"driver": names.PORT_SPARK_DRIVER, "blocks": names.PORT_SPARK_BLOCKS}
    selector = {**owner.selector, ROLE_LABEL: "driver"}
    return headless_service(owner, name, ports, families, selector=selector, named_targets=False)


def _history(owner: Owner, name: str, wanted: Verification) -> tuple[Json, ...]:
    if wanted.history is None or wanted.history.storage is None:
        return ()
    storage = wanted.history.storage
    spec: dict[str, object] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
        "volumeMode": "Filesystem",
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return (owner.new_object("v1", "PersistentVolumeClaim", name, spec=spec),)


def _cron_job(owner: Owner, name: str, schedule: str, pod: Json, *, wanted: Verification, suspended: bool) -> Json:
    """Its Jobs are indexed with one pod, because only pods of indexed Jobs have a predictable host name."""
    final = {"containerName": names.CONTAINER_VERIFY, "operator": "In", "values": list(FINAL_CODES)}
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    job: Json = {
        "completionMode": "Indexed",
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": RETRIES,
        "activeDeadlineSeconds": wanted.timeout_seconds,
        "ttlSecondsAfterFinished": KEEP_SECONDS,
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": final},
                {"action": "Ignore", "onPodConditions": [disrupted]},
            ]
        },
        "template": pod,
    }
    return owner.new_object(
        "batch/v1",
        "CronJob",
        name,
        spec={
            "schedule": schedule,
            "timeZone": "Etc/UTC",
            "suspend": suspended,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": STARTING_SECONDS,
            "successfulJobsHistoryLimit": KEEP_JOBS,
            "failedJobsHistoryLimit": KEEP_JOBS,
            "jobTemplate": {"metadata": {"labels": pod_labels(owner, "driver")}, "spec": job},
        },
    )


def pod_labels(owner: Owner, role: str) -> dict[str, str]:
    """Labels of driver and executors, for Service and NetworkPolicies. The operator does not watch these pods."""
    kept = {key: value for key, value in owner.labels.items() if key != names.LABEL_MANAGED_BY}
    return {**kept, ROLE_LABEL: role}


def _pod(owner: Owner, group: BrokerGroup, wanted: Verification, images: Images, *, full: bool) -> Json:
    name = names.verification(group.name)
    volumes = [pods.config_volume(name), pods.empty_dir(pods.TEMPORARY, "2Gi"), pods.empty_dir(_WORK, "4Gi")]
    mounts = [*pods.common_mounts(), pods.mount(_WORK, "/work")]
    if wanted.history is not None and wanted.history.storage is not None:
        volumes.append({"name": _HISTORY, "persistentVolumeClaim": {"claimName": name}})
        mounts.append(pods.mount(_HISTORY, names.PATH_HISTORY))
    if group.spec.grpc_tls_secret_name is not None:
        volumes.append(pods.secret_volume(GRPC_TLS, group.spec.grpc_tls_secret_name))
        mounts.append(pods.mount(GRPC_TLS, names.PATH_GRPC_TLS, read_only=True))
    spec: dict[str, object] = {
        "restartPolicy": "Never",
        "serviceAccountName": name,
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "subdomain": name,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": pods.pod_security(images),
        "containers": [_container(group, wanted, images, mounts, full=full)],
        "volumes": volumes,
        **pods.helper_scheduling(group.spec),
    }
    return {"metadata": {"labels": pod_labels(owner, "driver")}, "spec": spec}


def _container(group: BrokerGroup, wanted: Verification, images: Images, mounts: list[Json], *, full: bool) -> Json:
    """The environment contains what differs between pods: names, address, and whether everything is compared."""
    environment: list[Json] = [
        pods.field_variable("POD_NAME", "metadata.name"),
        pods.field_variable("POD_NAMESPACE", "metadata.namespace"),
        pods.field_variable("POD_IP", "status.podIP"),
        pods.field_variable("JOB_NAME", "metadata.labels['batch.kubernetes.io/job-name']"),
        {"name": names.ENV_FULL, "value": "true" if full else "false"},
        {"name": "SPARK_CONF_DIR", "value": names.PATH_CONFIG},
        {"name": "SPARK_LOCAL_DIRS", "value": "/work"},
        {"name": "HOME", "value": "/tmp"},  # noqa: S108 - its own volume
    ]
    if wanted.executors:
        arguments = spark_arguments(names.verification(group.name), group.namespace, group.spec.service)
        environment.append({"name": "PYSPARK_SUBMIT_ARGS", "value": arguments})
    return {
        "name": names.CONTAINER_VERIFY,
        "image": spark_image(wanted, images),
        "imagePullPolicy": group.spec.image.pull_policy,
        "args": ["--config", f"{names.PATH_CONFIG}/{CONFIG_FILE}"],
        "env": environment,
        "ports": [
            {"name": "driver", "containerPort": names.PORT_SPARK_DRIVER, "protocol": "TCP"},
            {"name": "blocks", "containerPort": names.PORT_SPARK_BLOCKS, "protocol": "TCP"},
        ],
        "resources": pods.resources(wanted.resources.driver, DRIVER_REQUESTS),
        "securityContext": pods.container_security(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
