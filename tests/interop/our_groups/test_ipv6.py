"""Official clients and tools at a group of ours on ::1: its hosts and ids are as long as Java's with IPv6."""

from collections.abc import Iterator

import pytest

from rocketmq_demo.calls import call
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.client import PullMessageRequestHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.store.message import Record, SysFlag, read_records
from tests.interop.lab import Lab
from tests.interop.native import NativeGroup
from tests.ip_families import LOOPBACK_6, needs_ipv6
from tests.lab.clients import IPV6, PushConsumer, send
from tests.lab.mqadmin import run_mqadmin

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True), needs_ipv6]

TOPIC, WAYS, COUNT = "ipv6-ways", ("sync", "batch", "async"), 4
ID_DIGITS = 56
"""Of 16 bytes of address, 4 of port and 8 of offset."""


@pytest.fixture(scope="module")
def group(lab: Lab) -> Iterator[NativeGroup]:
    group = NativeGroup(lab, "broker-6", replicas=2, host=LOOPBACK_6)
    try:
        group.start()
        yield group
    finally:
        group.close()


def test_official_clients_send_consume_and_find_messages_through_a_failover(group: NativeGroup) -> None:
    group.make_topics(TOPIC, queues=1)
    folder, name_servers = group.folder / "clients", group.namesrv_addr
    assert name_servers.startswith("[::1]:")
    sent = send(folder / "before", nameservers=name_servers, topic=TOPIC, ways=WAYS, count=COUNT, options=IPV6)
    assert {one.status for one in sent} == {"SEND_OK"}
    ids = [message_id for one in sent for message_id in one.offset_message_ids.split(",")]
    assert {len(message_id) for message_id in ids} == {ID_DIGITS}
    expected = [f"{way} {number}" for way in WAYS for number in range(COUNT)]

    records = group_records(group)
    assert len(records) == len(expected)
    both = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
    assert all(record.sys_flag & both == both for record in records)
    found = mqadmin(group, "queryMsgById", "-t", TOPIC, "-i", ids[0])
    assert ids[0] in found
    assert "ipv6-ways" in found
    assert group.master(group.whole()).address in mqadmin(group, "topicRoute", "-t", TOPIC)

    before = group.whole()
    with PushConsumer(
        folder / "reader", nameservers=name_servers, group="ipv6-readers", topic=TOPIC, options=IPV6
    ) as reader:
        reader.wait_until("all messages", lambda: sorted(reader.bodies) == sorted(expected))
        old = group.master(before)
        old.process.kill9()
        after = group.elected(before)
        group.wait_named(group.master(after).address)
        old.start()
        group.whole()
        again = send(
            folder / "after",
            nameservers=name_servers,
            topic=TOPIC,
            ways=["sync"],
            count=COUNT,
            prefix="later ",
            options=IPV6,
        )
        assert {one.status for one in again} == {"SEND_OK"}
        later = [f"later sync {number}" for number in range(COUNT)]
        reader.wait_until("the later ones", lambda: set(later) <= set(reader.bodies))
        reader.finish()


def mqadmin(group: NativeGroup, *command: str) -> str:
    done = run_mqadmin([*command, "-n", group.namesrv_addr], folder=group.folder / "tools", options=IPV6)
    assert "Exception" not in done.stderr, done.stderr
    return done.stdout


def group_records(group: NativeGroup) -> list[Record]:
    """What a pull of the first queue brings."""
    master = group.master(group.whole())
    header = PullMessageRequestHeader(
        consumer_group="ipv6-raw",
        topic=TOPIC,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,  # the subscription is in the header
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
        expression_type="TAG",
    )
    answer = call(master.address, request(RequestCode.PULL_MESSAGE, header))
    return read_records(answer.body, check_crc=True)
