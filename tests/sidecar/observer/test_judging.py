"""What the observing sidecar makes of what it sees: role and readiness, hanging, pace, confirm offset."""

from typing import Any

import msgspec
import pytest

from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting.controller import EpochEntry, EpochEntryCache, InSyncReplica, ReplicasInfo
from rocketmq_formats.remoting.ha_info import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rocketmq_sidecar.domain.acting import ACTING
from rocketmq_sidecar.domain.observing.proof import CatchUpCheck, acknowledged
from rocketmq_sidecar.domain.observing.status import (
    BrokerStatus,
    GroupStatus,
    SlaveStatus,
    connected_slaves,
    read_broker,
    read_group,
)
from rocketmq_sidecar.domain.observing.verdict import HangDetector, PollInterval, Role, Standing, confirm_offset, judge
from tests.sidecar.observer.fakes import NOW_MS, STATUS

GROUP = GroupStatus(
    master_id=1,
    master_epoch=4,
    sync_state_set_epoch=7,
    in_sync=frozenset({1, 2}),
    addresses={1: "a:1", 2: "a:2", 3: "a:3"},
    alive=frozenset({1, 2, 3}),
)
MASTER = msgspec.structs.replace(STATUS, outward_id=0, active=True)
SLAVE = msgspec.structs.replace(STATUS, outward_id=2)
WITHOUT_ROLE = msgspec.structs.replace(STATUS, outward_id=1_000_001)
"""With the id that the operator writes into the file."""


def judged(**changes: Any) -> Standing:
    facts: dict[str, Any] = {
        "broker_id": 1,
        "broker": MASTER,
        "broker_error": "the broker does not listen",
        "group": GROUP,
        "controllers_error": None,
        "trouble": None,
        "unproven": None,
        "now_ms": NOW_MS,
    }
    return judge(**(facts | changes))


def test_who_serves_is_ready() -> None:
    assert judged() == Standing(Role.MASTER, "master of epoch 4", ready=True)
    assert judged(broker_id=2, broker=SLAVE) == Standing(Role.SLAVE, "slave in the SyncStateSet", ready=True)


def test_a_slave_outside_the_set_is_ready_while_it_receives_from_its_master() -> None:
    third = msgspec.structs.replace(STATUS, outward_id=3, last_read_ms=NOW_MS - 20_000)
    caught = judged(broker_id=3, broker=third)
    assert (caught.role, caught.ready) == (Role.SLAVE, True)
    assert "catching up" in caught.text
    alone = judged(
        broker_id=3, broker=msgspec.structs.replace(third, last_read_ms=NOW_MS - 20_001, master_ha_address="a:4")
    )
    assert (alone.role, alone.ready) == (Role.SLAVE, False)
    assert alone.unready is not None
    assert "does not replicate" in alone.unready
    assert "a:4" in alone.unready


def test_controllers_that_are_silent_do_not_make_a_serving_broker_unready() -> None:
    assert judged(controllers_error="no controller answers").ready
    assert judged(broker_id=2, broker=SLAVE, controllers_error="no controller answers").ready
    # but the master is not known
    lost = judged(broker_id=2, broker=MASTER, controllers_error="no controller answers")
    assert (lost.role, lost.unready) == (Role.NONE, "no controller answers")


@pytest.mark.parametrize(
    ("changes", "role", "reason"),
    [
        ({"broker": None}, Role.UNKNOWN, "does not listen"),
        ({"broker": None, "trouble": "another replica's store"}, Role.UNKNOWN, "another replica's store"),
        ({"trouble": "another replica's store"}, Role.MASTER, "another replica's store"),
        ({"broker_id": None}, Role.NONE, "no brokerId yet"),
        ({"group": None, "controllers_error": "no controller answers"}, Role.NONE, "no controller answers"),
        ({"group": None}, Role.NONE, "do not know the group"),
        ({"broker_id": 9}, Role.NONE, "do not know brokerId 9"),
        ({"broker_id": 2}, Role.NONE, "becoming slave of 1"),
        ({"broker_id": 2, "broker": msgspec.structs.replace(STATUS, outward_id=0)}, Role.NONE, "becoming slave of 1"),
        ({"broker_id": 2, "broker": WITHOUT_ROLE}, Role.NONE, "becoming slave of 1"),
        # elected, or started again: it does not take sends yet
        ({"broker": msgspec.structs.replace(STATUS, outward_id=0)}, Role.NONE, "becoming master"),
        ({"broker": STATUS}, Role.NONE, "becoming master"),
        ({"group": msgspec.structs.replace(GROUP, master_id=None)}, Role.NONE, "no master"),
        (
            {"broker_id": 2, "broker": SLAVE, "group": msgspec.structs.replace(GROUP, alive=frozenset({1}))},
            Role.NONE,
            "receive no heartbeats",
        ),
    ],
)
def test_a_replica_that_does_not_serve_reports_why(changes: dict[str, Any], role: Role, reason: str) -> None:
    standing = judged(**changes)
    assert (standing.role, standing.ready) == (role, False)
    assert reason in standing.text


def test_an_unproven_log_serves_only_as_slave_of_a_living_master() -> None:
    nobody = msgspec.structs.replace(GROUP, alive=frozenset({2}))
    slave = judged(broker_id=2, broker=SLAVE, unproven="lost power")
    assert slave == Standing(Role.SLAVE, "slave in the SyncStateSet", ready=True)
    for group in (nobody, msgspec.structs.replace(nobody, master_id=None)):
        waiting = judged(broker_id=2, broker=SLAVE, group=group, unproven="lost power")
        assert (waiting.role, waiting.unready) == (Role.NONE, "lost power")
        assert judged(broker_id=2, broker=SLAVE, group=nobody).ready


def test_a_slave_that_runs_a_master_s_services_acts() -> None:
    acting = msgspec.structs.replace(SLAVE, active=True)
    kept = judged(broker_id=2, broker=acting, controllers_error="no controller answers")
    assert (kept.role, kept.acting, kept.ready) == (Role.SLAVE, True, True)
    assert kept.remark == ACTING
    lost = judged(broker_id=2, broker=acting, group=msgspec.structs.replace(GROUP, master_id=None))
    assert (lost.acting, lost.remark) == (True, None)
    assert lost.unready == f"the group has no master; {ACTING}"
    assert judged(broker_id=2, broker=acting, trouble="another replica's store").acting
    for broker_id, broker in ((1, MASTER), (2, SLAVE), (2, None)):
        standing = judged(broker_id=broker_id, broker=broker)
        assert not standing.acting
        assert standing.remark is None


def test_what_a_master_acknowledged_is_what_its_slaves_in_sync_have() -> None:
    slaves = (SlaveStatus("h", 700, in_sync=True), SlaveStatus("h", 10, in_sync=False))
    master = msgspec.structs.replace(MASTER, max_offset=900, slaves=slaves)
    assert acknowledged(master, GROUP, stored=1) == 700
    assert acknowledged(master, msgspec.structs.replace(GROUP, in_sync=frozenset({1, 2, 3})), stored=1) == 0
    assert acknowledged(master, None, stored=1) == 0
    alone = msgspec.structs.replace(master, slaves=())
    assert acknowledged(alone, msgspec.structs.replace(GROUP, in_sync=frozenset({1})), stored=1) == 900
    slave = msgspec.structs.replace(SLAVE, max_offset=900)
    assert [acknowledged(slave, GROUP, stored=stored) for stored in (800, 950)] == [800, 900]


def test_a_slave_has_everything_with_what_its_master_had_when_it_was_first_seen() -> None:
    def at_end(broker: BrokerStatus, end: int, epoch: int = 4, start: int = 100) -> BrokerStatus:
        entries = (EpochEntry(epoch=1, start_offset=0), EpochEntry(epoch=epoch, start_offset=start, end_offset=end))
        return msgspec.structs.replace(broker, max_offset=end, epochs=entries)

    catch_up = CatchUpCheck()
    assert not catch_up.reached(at_end(SLAVE, 400), at_end(MASTER, 500), GROUP)
    assert not catch_up.reached(at_end(SLAVE, 600, epoch=3), at_end(MASTER, 500), GROUP)
    assert not catch_up.reached(at_end(SLAVE, 600, start=90), at_end(MASTER, 500), GROUP)
    assert not catch_up.reached(msgspec.structs.replace(SLAVE, max_offset=600), at_end(MASTER, 500), GROUP)
    assert catch_up.reached(at_end(SLAVE, 500), at_end(MASTER, 900), GROUP)
    before = (EpochEntry(epoch=1, start_offset=0),)  # the master's epoch has no message yet, so the slave has not heard
    for end, reached in ((499, False), (500, True), (501, False)):
        idle = msgspec.structs.replace(SLAVE, max_offset=end, epochs=before)
        master = at_end(MASTER, 500, start=500)
        ended = (msgspec.structs.replace(master.epochs[0], end_offset=500), master.epochs[1])
        assert CatchUpCheck().reached(idle, msgspec.structs.replace(master, epochs=ended), GROUP) is reached
    again = msgspec.structs.replace(at_end(MASTER, 900), started_ms=2)
    assert not catch_up.reached(at_end(SLAVE, 500), again, GROUP)
    idle = msgspec.structs.replace(at_end(MASTER, 100), active=False)
    assert not CatchUpCheck().reached(at_end(SLAVE, 500), idle, GROUP)


def test_answers_are_read_together() -> None:
    runtime = {
        "brokerActive": "true",
        "commitLogMinOffset": "-1",
        "commitLogMaxOffset": "500",
        "startAcceptSendRequestTimeStamp": "0",
        "bootTimestamp": "17",
        "sendThreadPoolQueueSize": "3",
    }
    entries = (EpochEntry(epoch=1, start_offset=0, end_offset=200), EpochEntry(epoch=3, start_offset=200))
    cache = EpochEntryCache(broker_id=0, broker_name="b", cluster_name="c", epoch_list=entries, max_offset=500)
    status = HARuntimeInfo(
        master=True,
        ha_connection_info=(
            HAConnectionRuntimeInfo(addr="/10.0.0.2:4711", slave_ack_offset=480, in_sync=True),
            HAConnectionRuntimeInfo(addr="[::1]:4711", slave_ack_offset=10),
        ),
        ha_client_runtime_info=HAClientRuntimeInfo(master_addr="", last_read_timestamp=5),
    )
    found = read_broker(runtime, cache, status)
    assert found.serves_as_master
    assert (found.min_offset, found.max_offset, found.sends_waiting, found.started_ms) == (0, 500, 3, 17)
    assert [one.end_offset for one in found.epochs] == [200, 500]
    assert found.slaves == (SlaveStatus("10.0.0.2", 480, in_sync=True), SlaveStatus("::1", 10, in_sync=False))
    assert found.master_ha_address is None
    for text in ("", "x", "9" * 30, "-2"):
        with pytest.raises(BodyError, match="commitLogMaxOffset"):
            read_broker({**runtime, "commitLogMaxOffset": text}, cache, status)


def test_group_is_read_from_1006() -> None:
    replicas = [
        InSyncReplica(alive=alive, broker_address=f"a:{one}", broker_id=one, broker_name="b")
        for one, alive in ((1, True), (2, False), (3, True))
    ]
    info = ReplicasInfo(
        in_sync_replicas=replicas[:2],
        not_in_sync_replicas=replicas[2:],
        master_epoch=4,
        sync_state_set_epoch=7,
        master_broker_id=1,
    )
    assert read_group(info) == msgspec.structs.replace(GROUP, alive=frozenset({1, 3}))


def test_confirm_offset_is_javas() -> None:
    acks = ((700, True), (800, True), (10, False))
    slaves = tuple(SlaveStatus("h", ack, in_sync=in_sync) for ack, in_sync in acks)
    master = msgspec.structs.replace(MASTER, max_offset=900, slaves=slaves)
    assert confirm_offset(Role.MASTER, master, all_ack=True, stored=1) == 700
    assert confirm_offset(Role.MASTER, master, all_ack=False, stored=1) == 900
    assert confirm_offset(Role.SLAVE, master, all_ack=True, stored=600) == 600
    assert confirm_offset(Role.SLAVE, master, all_ack=True, stored=1000) == 900


def test_slaves_are_known_by_their_hosts() -> None:
    slaves = tuple(SlaveStatus(host, 5, in_sync=True) for host in ("h2", "h3", "elsewhere"))
    master = msgspec.structs.replace(MASTER, slaves=slaves)
    group = msgspec.structs.replace(GROUP, addresses={1: "h1:1", 2: "h2:1", 3: "h3:1", 4: "h3:5"})
    assert connected_slaves(master, group) == {2: slaves[0]}
    six = (SlaveStatus("fd00::2", 5, in_sync=True), SlaveStatus("", 5, in_sync=True))
    group = msgspec.structs.replace(GROUP, addresses={2: "fd00:0:0:0:0:0:0:2:10911", 3: "[fd00::3]:10911", 4: "none"})
    assert connected_slaves(msgspec.structs.replace(master, slaves=six), group) == {2: six[0]}


def test_only_who_answered_before_and_still_listens_hangs() -> None:
    pulse = HangDetector(30)
    assert pulse.hung(1e9) is None
    pulse.on_answer(100)
    assert pulse.hung(130) is None
    assert pulse.hung(131) == "the broker has not answered for 31 s"
    pulse.on_disconnect()
    assert pulse.hung(1000) is None


def test_pace_is_slow_when_nothing_changes() -> None:
    pace = PollInterval()
    assert pace.pause(0, changed=False) == 3
    assert pace.pause(10, changed=True) == 1
    assert pace.pause(19, changed=False) == 1
    assert pace.pause(20, changed=False) == 3
