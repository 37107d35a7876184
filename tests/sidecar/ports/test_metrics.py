"""What /metrics of a sidecar shows."""

from pathlib import Path

import msgspec
from prometheus_client import generate_latest

from rocketmq_formats.replica_link import N_ANSWERS, Counts
from rocketmq_sidecar.ports.metrics import SidecarMetrics, Snapshot
from rocketmq_sidecar.replication.ha_server import SlaveLag
from tests.sidecar.replication.replica_kit import in_sync, replicas

COMMON = 'broker_id="1",broker_set="broker-a",cluster="C"'


def snapshot(*slaves: SlaveLag, disk_used: float | None = None, counts: Counts | None = None) -> Snapshot:
    return Snapshot(
        cluster="C",
        broker_set="broker-a",
        broker_id=1,
        role="master",
        master_epoch=7,
        in_sync=2,
        lease_seconds=1.5,
        max_offset=2000,
        confirm_offset=1000,
        broker_connected=True,
        controller_known=True,
        slaves=slaves,
        disk_used=disk_used,
        counts=counts,
    )


def shown(now: Snapshot) -> set[str]:
    text = generate_latest(SidecarMetrics(lambda: now).registry).decode()
    return {line for line in text.splitlines() if not line.startswith("#")}


def test_a_replica_is_shown_with_its_names() -> None:
    lines = shown(snapshot())
    assert {
        f'rocketmq_sidecar_role{{{COMMON},role="master"}} 1.0',
        f'rocketmq_sidecar_role{{{COMMON},role="slave"}} 0.0',
        f"rocketmq_sidecar_master_epoch{{{COMMON}}} 7.0",
        f"rocketmq_sidecar_in_sync_replicas{{{COMMON}}} 2.0",
    } <= lines
    assert not [line for line in lines if "disk" in line or "slave_" in line]


def test_a_slave_shows_that_it_acts_for_a_missing_master() -> None:
    slave = msgspec.structs.replace(snapshot(), role="slave")
    assert f"rocketmq_sidecar_acting_master{{{COMMON}}} 0.0" in shown(slave)
    acting = shown(msgspec.structs.replace(slave, acting=True))
    assert f"rocketmq_sidecar_acting_master{{{COMMON}}} 1.0" in acting
    assert f'rocketmq_sidecar_role{{{COMMON},role="slave"}} 1.0' in acting, "the log's role is another fact"


def test_lost_messages_are_counted() -> None:
    assert f"rocketmq_sidecar_log_given_up{{{COMMON}}} 0.0" in shown(snapshot())
    assert f"rocketmq_sidecar_log_given_up{{{COMMON}}} 2.0" in shown(msgspec.structs.replace(snapshot(), given_up=2))


def test_a_master_shows_its_slaves_and_its_disk() -> None:
    lines = shown(snapshot(SlaveLag(2, 0, in_sync=True), SlaveLag(3, 500, in_sync=False), disk_used=0.25))
    assert {
        f'rocketmq_sidecar_slave_lag_bytes{{{COMMON},slave_broker_id="3"}} 500.0',
        f'rocketmq_sidecar_slave_in_sync{{{COMMON},slave_broker_id="2"}} 1.0',
        f'rocketmq_sidecar_slave_in_sync{{{COMMON},slave_broker_id="3"}} 0.0',
        f"rocketmq_sidecar_disk_used_ratio{{{COMMON}}} 0.25",
    } <= lines


def test_a_broker_is_shown_by_its_sidecar() -> None:
    answers = [1, 2, *[0] * (N_ANSWERS - 3), 4]
    counts = Counts(put_messages=10, pulls_missed=6, sends_refused=3, answers=answers, answer_seconds=1.5)
    lines = shown(snapshot(counts=counts))
    assert {
        f"rocketmq_broker_messages_put_total{{{COMMON}}} 10.0",
        f"rocketmq_broker_sends_refused_total{{{COMMON}}} 3.0",
        f'rocketmq_broker_pulls_total{{{COMMON},result="missed"}} 6.0',
        f'rocketmq_broker_send_seconds_bucket{{{COMMON},le="0.0005"}} 1.0',
        f'rocketmq_broker_send_seconds_bucket{{{COMMON},le="3.0"}} 3.0',
        f'rocketmq_broker_send_seconds_bucket{{{COMMON},le="+Inf"}} 7.0',
        f"rocketmq_broker_send_seconds_sum{{{COMMON}}} 1.5",
    } <= lines
    assert not [line for line in shown(snapshot()) if line.startswith("rocketmq_broker_")]


async def test_slaves_are_those_that_are_connected(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3) as (one, two, three):
        assert one.replication.slaves == ()
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two, three)
        both = (SlaveLag(2, 0, in_sync=True), SlaveLag(3, 0, in_sync=True))
        await one.until(lambda: one.replication.slaves == both)  # they count before the controllers have agreed
        assert two.replication.slaves == ()
        one.agree_at_once = False
        await two.replication.stop()
        await one.until(lambda: one.wishes[-1] == {1, 3})
        assert one.replication.slaves == (SlaveLag(3, 0, in_sync=True),)
