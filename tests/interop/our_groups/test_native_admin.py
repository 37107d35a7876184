"""The official mqadmin at a group of ours: all outputs for operators have sensible rows, and changes take effect."""

import re

import pytest

from tests.interop.lab import CLUSTER
from tests.interop.native import NativeGroup
from tests.lab import clients

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]

TOPIC, READERS = "native-admin", "native-admin-readers"
COUNT = 12


def test_tools(native: NativeGroup) -> None:
    view = native.whole()
    name, master = native.name, native.master(view).address
    slaves = sorted(one for one in view.addresses.values() if one != master)
    topic, group = native.mqadmin(
        f"updateTopic -t {TOPIC} -c {CLUSTER} -r 3 -w 3", f"updateSubGroup -g {READERS} -c {CLUSTER}"
    )
    assert f"create topic to {master} success" in topic
    assert f"create subscription group to {master} success" in group

    folder = native.folder / "admin"
    sent = clients.send(
        folder / "sender", nameservers=native.namesrv_addr, topic=TOPIC, ways=["sync"], count=COUNT, tags=["red"]
    )
    with clients.PushConsumer(
        folder / "reader", nameservers=native.namesrv_addr, group=READERS, topic=TOPIC
    ) as consumer:
        consumer.wait_until("all messages", lambda: len(consumer.received) == COUNT)
        (connections,) = native.mqadmin(f"consumerConnection -g {READERS}")
        consumer.finish()
    assert "@reader" in connections
    assert re.search(rf"^{TOPIC} +\*", connections, re.MULTILINE)
    asked = {
        "clusterList": "",
        "topicList": "",
        "topicRoute": f"-t {TOPIC}",
        "topicStatus": f"-t {TOPIC}",
        "brokerStatus": f"-b {master}",
        "consumerProgress": f"-g {READERS}",
        "haStatus": f"-b {master}",
        "getBrokerEpoch": f"-b {name}",
        "getSyncStateSet": f"-a {native.lab.controllers.addresses[0]} -b {name}",
        "queryMsgById": f"-t {TOPIC} -i {sent[0].offset_message_ids}",
        "getBrokerConfig": f"-b {master}",
    }
    answers = native.mqadmin(*(f"{command} {options}" for command, options in asked.items()))
    printed = dict(zip(asked, answers, strict=True))

    ids = {address: broker_id for broker_id, address in view.addresses.items()} | {master: 0}
    rows = [line.split() for line in printed["clusterList"].splitlines() if line.startswith(CLUSTER)]
    assert {(row[1], int(row[2]), row[3]) for row in rows} == {(name, ids[one], one) for one in [master, *slaves]}
    assert {row[3]: row[-1] for row in rows} == dict.fromkeys(slaves, "false") | {master: "true"}
    assert {row[4] for row in rows} == {"V5_3_3"}

    assert TOPIC in printed["topicList"].split()
    assert f"%RETRY%{READERS}" in printed["topicList"].split()
    assert {*re.findall(r'[023]:"([^"]+)"|[1]:"([^"]+)"', printed["topicRoute"])}
    assert all(one in printed["topicRoute"] for one in [master, *slaves])
    assert '"writeQueueNums":3' in printed["topicRoute"]

    rows = [line.split() for line in printed["topicStatus"].splitlines() if line.startswith(name)]
    assert [int(row[1]) for row in rows] == [0, 1, 2]
    assert sum(int(row[3]) - int(row[2]) for row in rows) == COUNT

    values = dict(re.findall(r"^(\S+) *: (.*)$", printed["brokerStatus"], re.MULTILINE))
    assert values["brokerVersionDesc"] == "V5_3_3"
    assert values["brokerActive"] == "true"
    assert int(values["commitLogMaxOffset"]) > 0
    assert int(values["msgPutTotalTodayNow"]) >= COUNT

    rows = [line.split() for line in printed["consumerProgress"].splitlines() if line.startswith(TOPIC)]
    assert [int(row[2]) for row in rows] == [0, 1, 2]
    assert sum(int(row[4]) for row in rows) == COUNT
    assert "Consume Diff Total: 0" in printed["consumerProgress"]

    facts = dict(re.findall(r"^#(\w+)\t(.*)$", printed["haStatus"], re.MULTILINE))
    assert (facts["MasterAddr"], facts["SlaveNum"], facts["InSyncSlaveNum"]) == (master, "2", "2")
    assert int(facts["MasterCommitLogMaxOffset"]) > 0

    entries = re.findall(r"EpochEntry\{epoch=(\d+), startOffset=0, endOffset=(\d+)\}", printed["getBrokerEpoch"])
    assert len(entries) == 3
    assert {*re.findall(r"#brokerAddr\t(\S+)", printed["getBrokerEpoch"])} == {master, *slaves}

    assert f"#MasterAddr\t{master}" in printed["getSyncStateSet"]
    in_sync = re.findall(r"InSyncReplica:.*brokerAddress='([^']+)', alive=true", printed["getSyncStateSet"])
    assert {*in_sync} == {master, *slaves}

    assert re.search(r"Tags: +\[red\]", printed["queryMsgById"])
    assert re.search(rf"Store Host: +{re.escape(master)}", printed["queryMsgById"])
    assert re.search(rf"consumerGroup={READERS}, trackType=\w+", printed["queryMsgById"])

    assert re.search(r"brokerName += +" + name, printed["getBrokerConfig"])
    assert re.search(r"durability += +strict", printed["getBrokerConfig"])


def test_offsets_are_reset_and_things_deleted(native: NativeGroup) -> None:
    topic, group = f"{TOPIC}-2", f"{READERS}-2"
    native.make_topics(topic, queues=1)
    folder = native.folder / "admin-2"
    clients.send(folder / "sender", nameservers=native.namesrv_addr, topic=topic, ways=["sync"], count=3)
    for turn in ("first", "again"):
        with clients.PushConsumer(folder / turn, nameservers=native.namesrv_addr, group=group, topic=topic) as consumer:
            consumer.wait_until("all messages", lambda consumer=consumer: len(consumer.received) == 3)
            consumer.finish()
        if turn == "first":
            (printed,) = native.mqadmin(f"resetOffsetByTime -g {group} -t {topic} -s 0")
            assert re.search(rf"^{native.name}( +\d+)+ +0 *$", printed, re.MULTILINE)
    (deleted_topic,) = native.mqadmin(f"deleteTopic -t {topic} -c {CLUSTER}")
    assert "success" in deleted_topic
    native.make_topics(topic, queues=1)
    clients.send(folder / "sender-again", nameservers=native.namesrv_addr, topic=topic, ways=["sync"], count=2)
    with clients.PushConsumer(
        folder / "made-again", nameservers=native.namesrv_addr, group=group, topic=topic
    ) as consumer:
        consumer.wait_until("the new messages", lambda: len(consumer.received) >= 2)
        consumer.finish()
    assert len(consumer.received) == 2, "and none of the old ones"
    deleted = native.mqadmin(f"deleteTopic -t {topic} -c {CLUSTER}", f"deleteSubGroup -g {group} -c {CLUSTER}")
    assert all("success" in printed for printed in deleted)
    (topics,) = native.mqadmin("topicList")
    assert topic not in topics.split()
