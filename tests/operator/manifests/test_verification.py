"""What is made of spec.verification, and that it goes again."""

import json
from pathlib import Path

import msgspec
import pytest

from rocketmq_formats import properties
from rocketmq_operator.domain.manifests.network_policies import Access
from rocketmq_operator.domain.manifests.verification.cron_jobs import REMOVABLE, candidates, verification_objects
from rocketmq_resources import names
from rocketmq_resources.broker_group import parse_broker_group
from rocketmq_resources.decoding import SpecError
from rocketmq_verify.options import parse, request_of
from rocketmq_verify.run import EngineKind
from tests.operator.manifests import cases
from tests.operator.manifests.cases import Object, one

LEAST: Object = {"schedule": "0 * * * *"}


def made(verification: Object, **spec: object) -> list[Object]:
    group = cases.group(
        {"controllerRef": {"name": "main"}, "nameServerRef": {"name": "main"}, "verification": verification, **spec}
    )
    return [dict(each) for each in verification_objects(group, cases.IMAGES, group.pods_wanted, Access())]


def pod_of(cron_job: Object) -> Object:
    found: Object = cron_job["spec"]["jobTemplate"]["spec"]["template"]
    return found


def files(objects: list[Object]) -> dict[str, dict[str, str]]:
    data = one(objects, "ConfigMap")["data"]
    return {name: properties.parse(text.encode()) for name, text in data.items() if not name.endswith(".yaml")}


def test_nothing_without_it() -> None:
    assert verification_objects(cases.group(cases.GROUPS["group-single"]), cases.IMAGES, 1, Access()) == ()


def test_all_that_may_be_made_may_be_taken_away() -> None:
    objects = made({**LEAST, "fullSchedule": "@weekly", "history": {"storage": {}}})
    kept = {("PersistentVolumeClaim", "broker-a-verify")}
    assert {(each["kind"], each["metadata"]["name"]) for each in objects} - kept == set(candidates("broker-a"))
    assert {each["kind"] for each in objects} == {*REMOVABLE, "PersistentVolumeClaim"}


def test_the_cron_job() -> None:
    [cron_job] = [each for each in made({**LEAST, "timeoutSeconds": 900}) if each["kind"] == "CronJob"]
    spec = cron_job["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["suspend"]) == ("0 * * * *", "Etc/UTC", False)
    assert (spec["concurrencyPolicy"], spec["startingDeadlineSeconds"]) == ("Forbid", 300)
    job = spec["jobTemplate"]["spec"]
    assert (job["activeDeadlineSeconds"], job["backoffLimit"], job["completionMode"]) == (900, 2, "Indexed")
    pod = pod_of(cron_job)
    assert names.LABEL_MANAGED_BY not in pod["metadata"]["labels"]  # not watched
    assert names.selector("verify", "broker-a").items() <= pod["metadata"]["labels"].items()
    assert not names.selector("broker", "broker-a").items() <= pod["metadata"]["labels"].items()


@pytest.mark.parametrize("spec", [{"hibernated": True}, {"verification": {**LEAST, "suspend": True}}])
def test_it_waits(spec: Object) -> None:
    objects = made(spec.pop("verification", LEAST), **spec)
    assert one(objects, "CronJob")["spec"]["suspend"] is True
    assert files(objects)["verify.conf"]["replicas"].count("sidecar:") == 3


def test_the_full_one_differs_in_time_and_in_what_it_reads() -> None:
    first, second = (each for each in made({**LEAST, "fullSchedule": "@weekly"}) if each["kind"] == "CronJob")
    assert (second["metadata"]["name"], second["spec"]["schedule"]) == ("broker-a-verify-full", "@weekly")
    full = [
        {entry["name"]: entry.get("value") for entry in pod_of(each)["spec"]["containers"][0]["env"]}["ROCKETMQ_FULL"]
        for each in (first, second)
    ]
    assert full == ["false", "true"]


def test_settings() -> None:
    settings = files(
        made({**LEAST, "rereadDays": 5, "rateLimit": "5M", "chunkSize": "4Mi", "history": {"path": "s3a://b/h"}})
    )
    conf = settings["verify.conf"]
    assert conf["replicas"].split(";")[1] == "broker-a-1=sidecar:broker-a-1.broker-a.shop.svc:10920"
    assert (conf["rereadDays"], conf["rateLimit"], conf["chunkSize"], conf["historyPath"]) == (
        "5",
        "5M",
        "4Mi",
        "s3a://b/h",
    )
    assert (conf["namespace"], conf["brokerGroup"], conf["brokerName"]) == ("shop", "broker-a", "broker-a")
    assert conf["sparkMaster"].startswith("k8s://")


def test_the_driver_is_found_by_name_and_listens_on_its_address() -> None:
    objects = made(LEAST)
    service, pod = one(objects, "Service"), pod_of(one(objects, "CronJob"))
    assert pod["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    [container] = pod["spec"]["containers"]
    arguments = next(entry["value"] for entry in container["env"] if entry["name"] == "PYSPARK_SUBMIT_ARGS")
    assert "spark.driver.host=$(JOB_NAME)-0.broker-a-verify.shop.svc " in arguments
    assert "spark.driver.bindAddress=$(POD_IP) " in arguments
    assert arguments.endswith(" pyspark-shell")


def test_executors_are_as_restricted_as_all_pods_and_have_no_token() -> None:
    objects = made({**LEAST, "executors": 3, "resources": {"executor": {"limits": {"cpu": "1500m", "memory": "4Gi"}}}})
    spark = files(objects)["spark-defaults.conf"]
    assert (spark["spark.executor.instances"], spark["spark.executor.cores"]) == ("3", "2")
    assert (spark["spark.executor.memory"], spark["spark.executor.memoryOverhead"]) == ("2048m", "2048m")
    assert (spark["spark.kubernetes.executor.request.cores"], spark["spark.kubernetes.executor.limit.cores"]) == (
        "1500m",
        "1500m",
    )
    template = json.loads(one(objects, "ConfigMap")["data"]["executor.yaml"])
    assert template["spec"]["automountServiceAccountToken"] is False
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    driver = pod_of(one(objects, "CronJob"))["spec"]
    assert driver["securityContext"] == template["spec"]["securityContext"]


def test_executors_come_and_go_only_where_that_is_asked_for() -> None:
    fixed, dynamic = (
        {key: value for key, value in files(made(spec))["spark-defaults.conf"].items() if "dynamicAllocation" in key}
        for spec in ({**LEAST, "executors": 2}, {**LEAST, "executors": 2, "maxExecutors": 8})
    )
    assert fixed == {}
    assert dynamic == {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "2",
        "spark.dynamicAllocation.maxExecutors": "8",
    }


def test_the_drivers_own_pod_needs_no_rights_to_pods() -> None:
    objects = made({**LEAST, "executors": 0})
    assert all(rule["resources"] != ["pods"] for rule in one(objects, "Role")["rules"])
    assert set(one(objects, "ConfigMap")["data"]) == {"verify.conf", "spark-defaults.conf"}
    environment = [entry["name"] for entry in pod_of(one(objects, "CronJob"))["spec"]["containers"][0]["env"]]
    assert "PYSPARK_SUBMIT_ARGS" not in environment


def test_a_pod_alone_reads_without_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its options are those of rocketmq-verify, which takes Spark's configuration for a wish to use Spark."""
    data = one(made({**LEAST, "executors": 0, "history": {"storage": {}}}), "ConfigMap")["data"]
    for name, text in data.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    options = parse(["--config", str(tmp_path / "verify.conf")])
    assert options is not None
    assert options.unknown_keys == ()
    request = request_of(options)
    assert (request.engine, request.spark.master) == (EngineKind.LOCAL, None)
    assert (request.history_path, request.time_budget) == ("/history", 900)


def test_its_role_is_of_this_group_alone() -> None:
    rules = one(made(LEAST), "Role")["rules"]
    ours = [rule for rule in rules if rule["apiGroups"] == [names.GROUP]]
    assert all(rule["resourceNames"] == ["broker-a"] for rule in ours)
    assert {verb for rule in ours for verb in rule["verbs"]} == {"get", "patch"}
    assert {resource for rule in rules for resource in rule["resources"]} == {
        "brokergroups",
        "brokergroups/status",
        "events",
        "pods",
    }


def test_the_brokers_let_it_in() -> None:
    def asking(spec: Object) -> object:
        objects = cases.group_objects(cases.group({**cases.GROUPS["group-single"], **spec}))
        policy = next(
            each for each in objects if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "broker-a"
        )
        [rule] = [rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == names.PORT_SIDECAR_GRPC]
        return rule["from"]

    verify = {"podSelector": {"matchLabels": names.selector("verify", "broker-a")}}
    assert verify not in asking({})  # type: ignore[operator] # a list
    assert verify in asking({"verification": LEAST})  # type: ignore[operator]


def test_a_volume_for_the_history() -> None:
    objects = made({**LEAST, "history": {"storage": {"size": "3Gi", "storageClassName": "fast"}}})
    claim = one(objects, "PersistentVolumeClaim")
    assert claim["spec"]["resources"]["requests"]["storage"] == "3Gi"
    assert claim["spec"]["storageClassName"] == "fast"
    assert files(objects)["verify.conf"]["historyPath"] == "/history"
    assert {"name": "history", "mountPath": "/history"} in pod_of(one(objects, "CronJob"))["spec"]["containers"][0][
        "volumeMounts"
    ]


@pytest.mark.parametrize(
    ("verification", "path"),
    [
        ({**LEAST, "chunkSize": "much"}, "spec.verification.chunkSize"),
        ({**LEAST, "history": {}}, "spec.verification.history"),
        ({**LEAST, "history": {"path": "s3a://b/h", "storage": {}}}, "spec.verification.history"),
        ({**LEAST, "rereadDays": 366}, "spec.verification.rereadDays"),
        ({**LEAST, "executors": 0, "maxExecutors": 1}, "spec.verification.maxExecutors"),
        ({**LEAST, "executors": 3, "maxExecutors": 2}, "spec.verification.maxExecutors"),
        ({**LEAST, "resources": {"driver": {"limits": {"memory": "lots"}}}}, "spec.verification.resources.driver"),
    ],
)
def test_what_cannot_be_carried_out(verification: Object, path: str) -> None:
    with pytest.raises(SpecError) as raised:
        made(verification)
    assert raised.value.path.startswith(path)


def test_a_name_that_is_too_long_for_cron_jobs() -> None:
    body = cases.body("x" * 41, {"controllerRef": {"name": "main"}, "verification": LEAST})
    with pytest.raises(SpecError):
        parse_broker_group(body)
    assert len(names.full_verification("x" * names.MAX_VERIFIED_GROUP_NAME)) <= 52


def test_equal_specs_give_equal_objects() -> None:
    assert msgspec.json.encode(made(LEAST)) == msgspec.json.encode(made(LEAST))


@pytest.mark.parametrize("executors", [0, 2])
def test_it_shows_the_groups_certificate_to_the_sidecars(executors: int) -> None:
    objects = made({**LEAST, "executors": executors}, grpcTlsSecretName="tls")
    settings = files(objects)["verify.conf"]
    assert settings["tlsCertFile"] == f"{names.PATH_GRPC_TLS}/tls.crt"
    assert settings["tlsKeyFile"] == f"{names.PATH_GRPC_TLS}/tls.key"
    assert settings["tlsCaFile"] == f"{names.PATH_GRPC_TLS}/ca.crt"
    [cron_job] = [each for each in objects if each["kind"] == "CronJob"]
    specs = [pod_of(cron_job)["spec"]]
    if executors:
        specs.append(json.loads(one(objects, "ConfigMap")["data"]["executor.yaml"])["spec"])
    for spec in specs:
        assert {"name": "grpc-tls", "secret": {"secretName": "tls", "defaultMode": 0o440}} in spec["volumes"]
        mounts = spec["containers"][0]["volumeMounts"]
        assert {"name": "grpc-tls", "mountPath": names.PATH_GRPC_TLS, "readOnly": True} in mounts
