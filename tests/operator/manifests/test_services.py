"""spec.service: the IP families of every Service, and the addresses that pods announce in them."""

import pytest

from tests.operator.manifests import cases
from tests.operator.manifests.cases import Object

BOTH = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}


def made_with(service: Object) -> dict[str, list[Object]]:
    verified = {**cases.GROUPS["group"], "verification": {"schedule": "@daily", "executors": 1}}
    return {
        "group": cases.group_objects(cases.group({**verified, "service": service})),
        "apache": cases.group_objects(cases.group({**cases.GROUPS["group-apache"], "service": service})),
        "controllers": cases.cluster_objects(cases.cluster({"service": service})),
        "name servers": cases.name_server_objects_of(cases.name_server({"service": service})),
    }


@pytest.mark.parametrize("service", [{}, {"ipFamilyPolicy": "RequireDualStack"}, {"ipFamilies": ["IPv6"]}, BOTH])
def test_every_service_has_what_the_resource_says_and_nothing_else(service: Object) -> None:
    services = [each for objects in made_with(service).values() for each in objects if each["kind"] == "Service"]
    assert len(services) == 5
    for each in services:
        families = {key: value for key, value in each["spec"].items() if key.startswith("ipFamil")}
        assert families == service, each["metadata"]["name"]


@pytest.mark.parametrize("families", [["IPv6"], ["IPv4"], ["IPv6", "IPv4"]])
def test_pods_announce_an_address_of_the_first_family(families: list[str]) -> None:
    service = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": families}
    for name, objects in made_with(service).items():
        template = cases.one(objects, "StatefulSet")["spec"]["template"]
        assert template["metadata"]["annotations"]["rocketmq-ha.io/ip-family"] == families[0]
        for container in template["spec"]["containers"]:
            variables = cases.environment(container, pod="x-0", ips="10.0.0.7,fd00::7")
            assert (variables["POD_IPS"], variables["POD_IP_FAMILY"]) == ("10.0.0.7,fd00::7", families[0])
            announced = (variables.get("ROCKETMQ_BROKERIP1"), variables.get("ROCKETMQ_BROKERIPFAMILY"))
            ours = name == "group" or container["name"] == "sidecar"
            assert announced == (("10.0.0.7,fd00::7", families[0]) if ours else (None, None))


def test_without_families_pods_are_as_they_were() -> None:
    """No replica restarts because of a new operator."""
    for objects in made_with({}).values():
        template = cases.one(objects, "StatefulSet")["spec"]["template"]
        assert "rocketmq-ha.io/ip-family" not in template["metadata"]["annotations"]
        for container in template["spec"]["containers"]:
            assert not {"POD_IPS", "POD_IP_FAMILY"} & {entry["name"] for entry in container["env"]}


@pytest.mark.parametrize(("service", "bound"), [({}, "$(POD_IP)"), (BOTH, "0.0.0.0")])
def test_the_driver_of_a_verification_listens_where_its_name_points(service: Object, bound: str) -> None:
    cron_job = next(each for each in made_with(service)["group"] if each["kind"] == "CronJob")
    [container] = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    [arguments] = [entry["value"] for entry in container["env"] if entry["name"] == "PYSPARK_SUBMIT_ARGS"]
    assert f"spark.driver.bindAddress={bound} " in arguments
