"""lockInStrictMode between brokers that run: what `test_lock_quorum.py` shows without sockets."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_broker.consuming import lock_api
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.client import MessageQueue
from rocketmq_formats.remoting.command import request
from tests.broker.broker_kit import Group, running
from tests.broker.consuming.lock_kit import held, lock_body, queues

ALL = queues(0, 1)
AWAY = "127.0.0.1:1"


async def lock(group: Group, client: str) -> frozenset[MessageQueue]:
    return held(await group.call(request(RequestCode.LOCK_BATCH_MQ, None, lock_body(client, ALL))))


async def test_two_of_three_brokers_lock_for_one_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_api, "LOCK_SECONDS", 0)
    keys = {"lockInStrictMode": True, "totalReplicas": 3}
    async with running(tmp_path / "a", **keys) as one, running(tmp_path / "b", **keys) as other:
        assert await lock(one, "c1") == frozenset(), "alone"
        for group in (one, other):
            group.app.core.members.update({0: one.address, 2: other.address, 3: AWAY})
        assert await lock(one, "c1") == ALL
        assert await lock(other, "c2") == frozenset()
        assert await lock(other, "c1") == ALL
        await other.call(request(RequestCode.UNLOCK_BATCH_MQ, None, lock_body("c1", ALL)))
        assert await lock(other, "c2") == ALL
        assert await lock(one, "c1") == frozenset()


async def test_without_strict_mode_each_broker_locks_alone(tmp_path: Path) -> None:
    async with running(tmp_path / "a", totalReplicas=3) as one, running(tmp_path / "b", totalReplicas=3) as other:
        for group in (one, other):
            group.app.core.members.update({0: one.address, 2: other.address, 3: AWAY})
        assert await lock(one, "c1") == ALL
        assert await lock(other, "c2") == ALL


@pytest.mark.parametrize(("replicas", "warned"), [(1, 1), (3, 0)])
async def test_strict_mode_for_one_replica_warns_once(tmp_path: Path, replicas: int, warned: int) -> None:
    with capture_logs() as logs:
        async with running(tmp_path, lockInStrictMode=True, totalReplicas=replicas):
            pass
    warnings = [line for line in logs if "lockInStrictMode" in line["event"]]
    assert [line["log_level"] for line in warnings] == ["warning"] * warned
