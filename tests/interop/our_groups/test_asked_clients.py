"""The official mqadmin asks and moves official clients that are online, through a broker of ours."""

import re

import pytest

from rocketmq_demo.calls import call
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import OffsetResponseHeader, QueryConsumerOffsetRequestHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.headers import decode_header
from tests.interop.native import NativeGroup
from tests.lab import clients
from tests.processes.kit import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600, func_only=True)]

TOPIC, GROUP = "native-asked", "native-asked-readers"
COUNT = 4


def committed(master: str) -> int | None:
    header = QueryConsumerOffsetRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=0)
    answer = call(master, request(RequestCode.QUERY_CONSUMER_OFFSET, header))
    fields = answer.ext_fields or {}
    return decode_header(OffsetResponseHeader, fields).offset if answer.code == ResponseCode.SUCCESS else None


def test_tools_ask_consumers_and_move_them(native: NativeGroup) -> None:
    native.make_topics(TOPIC, queues=1)
    master = native.master(native.whole()).address
    folder, namesrv = native.folder / "asked", native.namesrv_addr
    sent = clients.send(folder / "sender", nameservers=namesrv, topic=TOPIC, ways=["sync"], count=COUNT)
    with clients.PushConsumer(folder / "asked", nameservers=namesrv, group=GROUP, topic=TOPIC) as consumer:
        consumer.wait_until("all messages", lambda: len(consumer.received) == COUNT)
        wait_until(lambda: committed(master) == COUNT, "the consumer's commit")  # every 5 s
        (connections,) = native.mqadmin(f"consumerConnection -g {GROUP}")
        (client_id,) = re.findall(r"(\S+@asked\S*)", connections)
        asked = {
            "consumerStatus": f"-g {GROUP} -i {client_id} -s",
            "queryMsgById": f"-t {TOPIC} -i {sent[0].offset_message_ids} -g {GROUP} -d {client_id}",
            "brokerConsumeStats": f"-b {master}",
            "queryCq": f"-t {TOPIC} -q 0 -i 1 -c 2 -b {master} -g {GROUP}",
            "producer": f"-b {master}",
        }
        answers = native.mqadmin(*(f"{command} {options}" for command, options in asked.items()))
        printed = dict(zip(asked, answers, strict=True))

        assert f"Topic: {TOPIC}" in printed["consumerStatus"]
        assert "TID: " in printed["consumerStatus"], "stacks"
        assert "CR_SUCCESS" in printed["queryMsgById"]
        consumer.wait_until("the first message once more", lambda: len(consumer.received) == COUNT + 1)
        assert consumer.bodies[-1] == "sync 0"
        assert re.search(rf"^{TOPIC} +{GROUP} +{native.name} +0 +{COUNT} ", printed["brokerConsumeStats"], re.MULTILINE)
        assert f"max: {COUNT}, min: 0" in printed["queryCq"]
        assert client_id in printed["producer"], "every client has a producer for retries"

        (moved,) = native.mqadmin(f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0")
        assert re.search(rf"^{native.name} +0 +0 *$", moved, re.MULTILINE)
        consumer.wait_until("everything once more", lambda: len(consumer.received) == 2 * COUNT + 1)
        consumer.finish()
