"""What the observing sidecar makes of what it sees: role and readiness, hanging, pace, confirm offset."""

from typing import Any

import msgspec
import pytest

from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting.controller import EpochEntry, EpochEntryCache, InSyncReplica, ReplicasInfo
from rocketmq_formats.remoting.ha_info import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo
from rocketmq_sidecar.domain.observer_looks import GroupLook, SlaveLook, connected_slaves, read_broker, read_group
from rocketmq_sidecar.domain.observing import Pace, Pulse, Role, Standing, confirm_offset, judge
from tests.sidecar.observer.fakes import LOOK, NOW_MS

GROUP = GroupLook(
    master_id=1,
    master_epoch=4,
    sync_state_set_epoch=7,
    in_sync=frozenset({1, 2}),
    addresses={1: "a:1", 2: "a:2", 3: "a:3"},
    alive=frozenset({1, 2, 3}),
)
MASTER = msgspec.structs.replace(LOOK, outward_id=0, active=True)
SLAVE = msgspec.structs.replace(LOOK, outward_id=2)


def judged(**changes: Any) -> Standing:
    facts: dict[str, Any] = {
        "broker_id": 1,
        "broker": MASTER,
        "silence": "the broker does not listen",
        "group": GROUP,
        "unheard": None,
        "trouble": None,
        "now_ms": NOW_MS,
    }
    return judge(**(facts | changes))


def test_who_serves_is_ready() -> None:
    assert judged() == Standing(Role.MASTER, "master of epoch 4", ready=True)
    assert judged(broker_id=2, broker=SLAVE) == Standing(Role.SLAVE, "slave in the SyncStateSet", ready=True)


def test_slave_outside_the_set_is_ready_while_it_hears_its_master() -> None:
    third = msgspec.structs.replace(LOOK, outward_id=3, last_read_ms=NOW_MS - 20_000)
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
    assert judged(unheard="no controller answers").ready
    assert judged(broker_id=2, broker=SLAVE, unheard="no controller answers").ready
    # but nobody says who is master now
    lost = judged(broker_id=2, broker=MASTER, unheard="no controller answers")
    assert (lost.role, lost.unready) == (Role.FENCED, "no controller answers")


@pytest.mark.parametrize(
    ("changes", "role", "reason"),
    [
        ({"broker": None}, Role.NONE, "does not listen"),
        ({"broker": None, "trouble": "another replica's store"}, Role.NONE, "another replica's store"),
        ({"trouble": "another replica's store"}, Role.MASTER, "another replica's store"),
        ({"broker_id": None}, Role.FENCED, "no brokerId yet"),
        ({"group": None, "unheard": "no controller answers"}, Role.FENCED, "no controller answers"),
        ({"group": None}, Role.FENCED, "do not know the group"),
        ({"broker_id": 9}, Role.FENCED, "do not know brokerId 9"),
        ({"broker_id": 2}, Role.FENCED, "becoming slave of 1"),
        ({"broker_id": 2, "broker": msgspec.structs.replace(LOOK, outward_id=0)}, Role.FENCED, "becoming slave of 1"),
        # elected, or started again: it does not take sends yet
        ({"broker": msgspec.structs.replace(LOOK, outward_id=0)}, Role.FENCED, "becoming master"),
        ({"broker": LOOK}, Role.FENCED, "becoming master"),
        ({"group": msgspec.structs.replace(GROUP, master_id=None)}, Role.FENCED, "no master"),
        (
            {"broker_id": 2, "broker": SLAVE, "group": msgspec.structs.replace(GROUP, alive=frozenset({1}))},
            Role.FENCED,
            "do not hear the broker",
        ),
    ],
)
def test_who_does_not_serve_says_why(changes: dict[str, Any], role: Role, reason: str) -> None:
    standing = judged(**changes)
    assert (standing.role, standing.ready) == (role, False)
    assert reason in standing.text


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
    look = read_broker(runtime, cache, status)
    assert look.serves_as_master
    assert (look.min_offset, look.max_offset, look.sends_waiting, look.started_ms) == (0, 500, 3, 17)
    assert [one.end_offset for one in look.epochs] == [200, 500]
    assert look.slaves == (SlaveLook("10.0.0.2", 480, in_sync=True), SlaveLook("[::1]", 10, in_sync=False))
    assert look.master_ha_address is None
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
    slaves = tuple(SlaveLook("h", ack, in_sync=in_sync) for ack, in_sync in acks)
    master = msgspec.structs.replace(MASTER, max_offset=900, slaves=slaves)
    assert confirm_offset(Role.MASTER, master, all_ack=True, stored=1) == 700
    assert confirm_offset(Role.MASTER, master, all_ack=False, stored=1) == 900
    assert confirm_offset(Role.SLAVE, master, all_ack=True, stored=600) == 600
    assert confirm_offset(Role.SLAVE, master, all_ack=True, stored=1000) == 900


def test_slaves_are_known_by_their_hosts() -> None:
    slaves = tuple(SlaveLook(host, 5, in_sync=True) for host in ("h2", "h3", "elsewhere"))
    master = msgspec.structs.replace(MASTER, slaves=slaves)
    group = msgspec.structs.replace(GROUP, addresses={1: "h1:1", 2: "h2:1", 3: "h3:1", 4: "h3:5"})
    assert connected_slaves(master, group) == {2: slaves[0]}


def test_only_who_answered_before_and_still_listens_hangs() -> None:
    pulse = Pulse(30)
    assert pulse.hung(1e9) is None
    pulse.on_answer(100)
    assert pulse.hung(130) is None
    assert pulse.hung(131) == "the broker has not answered for 31 s"
    pulse.on_gone()
    assert pulse.hung(1000) is None


def test_pace_is_slow_when_nothing_changes() -> None:
    pace = Pace()
    assert pace.pause(0, changed=False) == 3
    assert pace.pause(10, changed=True) == 1
    assert pace.pause(19, changed=False) == 1
    assert pace.pause(20, changed=False) == 3
