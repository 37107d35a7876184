"""Configuration that no ConfigMap holds: said in the status with the way out, and nothing is applied."""

from collections.abc import Mapping

import msgspec
import pytest

from rocketmq_operator.domain.conditions import find
from rocketmq_operator.domain.observed import ObservedNameServer
from rocketmq_operator.domain.plan import config_size
from rocketmq_operator.domain.plan.controller_cluster import plan_controller_cluster
from rocketmq_operator.domain.plan.groups.plan import plan_group
from rocketmq_operator.domain.plan.name_server import plan_name_server
from rocketmq_operator.domain.plan.step import Plan, PlanSettings
from rocketmq_resources.name_server import parse_name_server
from tests.operator.model.driver import Driver, well
from tests.operator.model.world import NOW, World
from tests.operator.plan.test_controller_cluster_plan import Quorum

AT_THE_LIMITS = {f"key{number}": "x" * 4096 for number in range(128)}
"""What the CRDs take at most of ASCII; other characters take six bytes each."""
FOREIGN = dict.fromkeys(AT_THE_LIMITS, "\u4e2d" * 4096)
TWO_FIT = {f"key{number}": "x" * 4096 for number in range(126)}


def group_plan(replicas: int, config: Mapping[str, str], *, running: bool = False) -> Plan:
    world = World({"replicas": 2}, seed=3)
    if running:
        Driver(world).run(well)
    observed = world.observe()
    spec = msgspec.structs.replace(observed.group.spec, config=config, replicas=replicas)
    group = msgspec.structs.replace(observed.group, spec=spec)
    return plan_group(msgspec.structs.replace(observed, group=group), PlanSettings(), NOW)


def check(plan: Plan, *words: str) -> None:
    assert (plan.first, plan.objects, plan.removals) == ((), (), ())
    assert not any(action.disruptive for action in plan.actions)
    assert plan.status is not None
    conditions = plan.status["conditions"]
    for kind, status in (("Ready", "False"), ("Degraded", "True"), ("Progressing", "False")):
        found = find(conditions, kind)
        assert (found["status"], found["reason"]) == (status, "ConfigTooLarge")
        for word in (*words, str(config_size.MAX_BYTES), "shorten spec.config"):
            assert word in str(found["message"])


@pytest.mark.parametrize("running", [False, True])
def test_files_of_all_replicas(running: bool) -> None:
    plan = group_plan(9, AT_THE_LIMITS, running=running)
    check(plan, "spec.config in each of 9 files", "or set fewer spec.replicas")
    assert plan.status is not None
    assert plan.status["phase"] == ("Degraded" if running else "Pending")


@pytest.mark.parametrize(("replicas", "config"), [(2, TWO_FIT), (9, {})])
def test_what_fits_is_applied(replicas: int, config: Mapping[str, str]) -> None:
    plan = group_plan(replicas, config)
    assert plan.objects
    files = next(desired for desired in plan.objects if desired["kind"] == "ConfigMap")["data"]
    assert isinstance(files, dict)
    assert sum(map(len, files.values())) <= config_size.MAX_BYTES


def test_the_file_of_controllers() -> None:
    quorum = Quorum(config=FOREIGN)
    check(plan_controller_cluster(quorum.observe(), PlanSettings(), NOW), "ConfigMap c-controller")


def test_the_file_of_name_servers() -> None:
    body = {"metadata": {"name": "n", "namespace": "ns", "uid": "u", "generation": 1}, "spec": {"config": FOREIGN}}
    observed = ObservedNameServer(name_server=parse_name_server(body))
    check(plan_name_server(observed, PlanSettings(), NOW), "ConfigMap n-namesrv")
