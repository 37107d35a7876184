"""Official clients at a group of ours: every way to send, groups that share queues and keep their offsets through
failovers, tags, delays, and redelivered messages."""

import pytest

from rocketmq_demo.calls import call
from rocketmq_demo.replica import Replica
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import PullMessageRequestHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.store.config_files import ConsumerOffsetsFile, decode_config
from rocketmq_formats.store.message import Record, read_records
from tests.interop.native import NativeGroup
from tests.lab import clients
from tests.lab.clients import PullConsumer, PushConsumer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]

WAYS = ("sync", "batch", "async", "oneway")
COUNT = 6


def test_every_way_to_send_and_to_receive(native: NativeGroup) -> None:
    topic, folder, namesrv = "native-ways", native.folder / "ways", native.namesrv_addr
    native.make_topics(topic, queues=2)
    sent = clients.send(
        folder / "sender", nameservers=namesrv, topic=topic, ways=WAYS, count=COUNT, tags=["red", "green"]
    )
    assert {one.status for one in sent} == {"SEND_OK"}
    assert [one.way for one in sent] == ["sync"] * COUNT + ["batch"] + ["async"] * COUNT
    assert all(len(one.offset_message_ids.split(",")) == (COUNT if one.way == "batch" else 1) for one in sent)

    everything = sorted(f"{way} {number}" for way in WAYS for number in range(COUNT))
    red = sorted(f"{way} {number}" for way in WAYS for number in range(0, COUNT, 2))
    pushed = PushConsumer(folder / "pushed", nameservers=namesrv, group="ways-pushed", topic=topic)
    tagged = PushConsumer(folder / "tagged", nameservers=namesrv, group="ways-tagged", topic=topic, tags="red || blue")
    pulled = PullConsumer(
        folder / "pulled", nameservers=namesrv, group="ways-pulled", topic=topic, count=len(everything)
    )
    with pushed, tagged, pulled:
        pushed.wait_until("everything", lambda: sorted(pushed.bodies) == everything)
        tagged.wait_until("what is red", lambda: sorted(tagged.bodies) == red)
        pulled.join()
        assert sorted(pulled.bodies) == everything
        assert {one.tags for one in tagged.received} == {"red"}
        places = {(one.queue_id, one.queue_offset) for one in pushed.received}
        assert len(places) == len(everything)
        batch = sorted(one.queue_offset for one in pushed.received if one.body.startswith("batch"))
        assert batch == list(range(batch[0], batch[0] + COUNT)), "one after the other"
        pushed.finish()
        tagged.finish()
    master = native.master(native.whole())
    records = [record for queue_id in range(2) for record in pull(master, topic, queue_id, "red")]
    assert len(records) == len(red)
    assert all(b"TAGS\x01red" in record.properties for record in records), "the broker sends nothing else"


def test_a_group_through_joining_leaving_and_failovers(native: NativeGroup) -> None:
    topic, group, folder, namesrv = "native-shared", "native-sharers", native.folder / "shared", native.namesrv_addr
    native.make_topics(topic)
    expected: list[str] = []

    def send(prefix: str) -> list[str]:
        clients.send(folder / prefix, nameservers=namesrv, topic=topic, ways=["async"], count=40, prefix=prefix)
        bodies = [f"{prefix}async {number}" for number in range(40)]
        expected.extend(bodies)
        return bodies

    def member(name: str) -> PushConsumer:
        return PushConsumer(folder / name, nameservers=namesrv, group=group, topic=topic)

    with member("one") as one, member("two") as two:
        one.wait_until("half of the queues each", lambda: {*map(size, (one, two))} == {2})
        assert (one.queues or frozenset()) | (two.queues or frozenset()) == {0, 1, 2, 3}
        send("shared")
        one.wait_until("all messages by both", lambda: sorted(one.bodies + two.bodies) == sorted(expected))
        assert one.received
        assert two.received
        two.finish()
        one.wait_until("all queues", lambda: size(one) == 4)
        left = one.bodies
        later = send("alone")
        one.wait_until("all later messages", lambda: sorted(one.bodies[len(left) :]) == sorted(later))

        before = native.whole()
        old = native.master(before)
        old.process.kill9()
        after = native.elected(before)
        later = send("after-kill")
        # messages not committed on the new master yet are redelivered
        one.wait_until("all messages after the kill", lambda: {*later} <= {*one.bodies})
        assert {*one.bodies, *two.bodies} == {*expected}
        old.start()
        before = native.whole()
        assert before.master_id == after.master_id
        one.finish()
        offsets = offsets_of(native.master(before), group, topic)
        assert sum(offsets.values()) == len(expected), "committed when it left"

    native.wait("offsets on all", lambda _: all(offsets_of(r, group, topic) == offsets for r in native.replicas))
    old = native.master(before)
    old.process.stop()
    native.elected(before)
    with member("three") as three:
        three.wait_until("all queues", lambda: size(three) == 4)
        later = send("after-stop")
        three.wait_until("the last messages", lambda: {*later} <= {*three.bodies})
        assert sorted(three.bodies) == sorted(later), "nothing comes again"
        three.finish()
    old.start()
    native.whole()


def test_delayed_and_again(native: NativeGroup) -> None:
    topic, group, folder, namesrv = "native-later", "native-laters", native.folder / "later", native.namesrv_addr
    native.make_topics(topic)
    with PushConsumer(folder / "reader", nameservers=namesrv, group=group, topic=topic, again="sync") as consumer:
        clients.send(folder / "sender", nameservers=namesrv, topic=topic, ways=["sync", "delayed"], count=2)
        expected = ["delayed 0", "delayed 1", "sync 0", "sync 0", "sync 1", "sync 1"]
        consumer.wait_until("all of it", lambda: sorted(consumer.bodies) == expected)
        consumer.finish()
    late = [one for one in consumer.received if one.body.startswith("delayed")]
    assert all(one.seen - one.born >= 900 for one in late), late
    times = sorted((one.body, one.reconsume_times, one.topic) for one in consumer.received if one not in late)
    assert times == [(f"sync {number}", turn, topic) for number in range(2) for turn in range(2)]
    assert len(pull(native.master(native.whole()), f"%RETRY%{group}", 0, "*")) == 2


def size(consumer: PushConsumer) -> int:
    """Number of its queues."""
    return len(consumer.queues or ())


def pull(replica: Replica, topic: str, queue_id: int, tags: str) -> list[Record]:
    """Messages from the start of a queue."""
    header = PullMessageRequestHeader(
        consumer_group="native-puller",
        topic=topic,
        queue_id=queue_id,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,  # the subscription is in the header
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=tags,
        expression_type="TAG",
    )
    answer = call(replica.address, request(RequestCode.PULL_MESSAGE, header))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return read_records(answer.body, check_crc=True)


def offsets_of(replica: Replica, group: str, topic: str) -> dict[int, int]:
    """The group's offset in each queue, in this replica."""
    answer = call(replica.address, request(RequestCode.GET_ALL_CONSUMER_OFFSET))
    return dict(decode_config(ConsumerOffsetsFile, answer.body).offset_table.get(f"{topic}@{group}", {}))
