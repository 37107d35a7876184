"""Questions that tests of acting masters ask official brokers and the name server."""

import json
from collections.abc import Callable

from rocketmq_demo.calls import call
from rocketmq_demo.replica import NameServer
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.client import GetMaxOffsetRequestHeader, OffsetResponseHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import GetRouteInfoRequestHeader, TopicRouteData
from tests.gate.patience import patient
from tests.interop.lab import JavaBroker
from tests.processes.kit import wait_until

QUEUES = 4
"""Of each topic."""
ANSWER = 20.0
"""Seconds: while JVMs start, an answer may take some."""
START = 120.0


def wait(what: str, condition: Callable[[], bool]) -> None:
    wait_until(condition, what, patient(START))


def ask(broker: JavaBroker, command: RemotingCommand) -> RemotingCommand:
    """The broker's answer."""
    return call(broker.address, command, timeout=patient(ANSWER))


def done(broker: JavaBroker, command: RemotingCommand) -> RemotingCommand:
    """The broker's answer, which must be success."""
    answer = ask(broker, command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def ends(broker: JavaBroker, topic: str) -> list[int]:
    """The max offset of each queue there."""
    found = []
    for queue in range(QUEUES):
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue)
        answer = done(broker, request(RequestCode.GET_MAX_OFFSET, header))
        found.append(decode_header(OffsetResponseHeader, answer.ext_fields or {}).offset)
    return found


def log_end(broker: JavaBroker) -> int:
    """The max offset of its commit log."""
    answer = done(broker, request(RequestCode.GET_BROKER_RUNTIME_INFO))
    return int(json.loads(answer.body)["table"]["commitLogMaxOffset"])


def route(name_server: NameServer, topic: str, name: str) -> tuple[dict[int, str], int] | None:
    """The addresses of the group `name` in a topic's route, and the topic's permission there."""
    command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
    answer = call(name_server.address, command, timeout=patient(ANSWER))
    if answer.code != ResponseCode.SUCCESS:
        return None
    found = decode_body(TopicRouteData, answer.body)
    brokers = {one.broker_name: dict(one.broker_addrs) for one in found.broker_datas}
    perms = {one.broker_name: one.perm for one in found.queue_datas}
    return (brokers[name], perms[name]) if name in brokers else None
