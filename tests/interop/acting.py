"""What tests of acting masters with official brokers share: a broker group with a name server of its own, its producers
and consumers, and questions about locks and offsets.

A group is in compatibility mode (heartbeats by 322, members by 105), or it uses 904 and 901."""

import re
import time
from pathlib import Path

from rocketmq_demo.calls import http_get
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.replica import NameServer
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.broker_admin import DelayOffsetWrapper
from rocketmq_formats.remoting.client import MessageQueue, OffsetResponseHeader, QueryConsumerOffsetRequestHeader
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.headers import Header, decode_header
from tests.broker.broker_kit import send_request
from tests.broker.consuming.lock_kit import held, lock_body
from tests.gate.patience import patient
from tests.interop import logs
from tests.interop.asking import ANSWER, QUEUES, ask, done, route, wait
from tests.interop.lab import NOT_CATCHUP_MS, JavaBroker
from tests.lab.clients import PushConsumer
from tests.operator.manifests import cases

COMPATIBLE, NEWER = "322-105", "904-901"
"""Modes."""
COUNT = 10
"""Messages of each kind that wait for a time."""
DELAY = int(patient(10))
"""Seconds: the master is dead before they are due."""
PREPARED = 4
"""Transaction type in the sysFlag. Source: rocketmq-all-5.3.3: MessageSysFlag.java."""
CHECKERS = "CID_RMQ_SYS_TRANS"
"""The group of the broker's own reader of half messages. Source: rocketmq-all-5.3.3: MixAll.java."""


class PopMessageRequestHeader(Header, frozen=True):
    """Source: rocketmq-all-5.3.3: PopMessageRequestHeader.java."""

    consumer_group: str
    topic: str
    invisible_time: int
    queue_id: int = -1
    max_msg_nums: int = 32
    poll_time: int = 0
    born_time: int = 0
    init_mode: int = 0


class Traffic:
    """A group's messages, and the only name server that knows its brokers."""

    def __init__(self, mode: str, folder: Path, ports: PortPool) -> None:
        self.folder, self.ports = folder, ports
        self.name = f"group-{mode}"
        self.topic, self.delayed, self.timed = f"read-{mode}", f"delayed-{mode}", f"timed-{mode}"
        self.half, self.popped = f"half-{mode}", f"popped-{mode}"
        self.numbers = 0
        """How many messages `send` has sent."""
        self.compatible = mode == COMPATIBLE
        self._metrics = ports.single()
        self.name_server = NameServer(
            folder / "names",
            port=ports.single(),
            config={
                "supportActingMaster": True,
                "notifyMinBrokerIdChanged": True,
                "metricsPromExporterPort": self._metrics,
            },
        )
        self.brokers: list[JavaBroker] = []
        self.consumers: list[PushConsumer] = []

    @property
    def master(self) -> JavaBroker:
        """The first one."""
        return self.brokers[0]

    @property
    def slave(self) -> JavaBroker:
        """That acts when the master is dead."""
        return self.brokers[1]

    def requests(self, code: RequestCode) -> int:
        """How many of them the name server has answered."""
        status, text = http_get(f"{HOST}:{self._metrics}", "/metrics", timeout=patient(ANSWER))
        assert status == 200
        return sum(int(float(count)) for count in re.findall(rf'request_type="{code.name}".*}} (\S+)', text))

    def speaks_its_mode(self) -> None:
        """Wait until the name server has answered requests of the mode; none of the other mode may have come."""
        newer = [RequestCode.BROKER_HEARTBEAT, RequestCode.GET_BROKER_MEMBER_GROUP]
        older = [RequestCode.QUERY_DATA_VERSION]
        used, unused = (older, newer) if self.compatible else (newer, older)
        wait("some of each", lambda: all(self.requests(code) > 10 for code in used))
        assert not any(self.requests(code) for code in unused)

    def route(self, topic: str) -> tuple[dict[int, str], int] | None:
        """The addresses of this group in a topic's route, and the topic's permission there."""
        return route(self.name_server, topic, self.name)

    def send(self, count: int) -> None:
        """Send the next numbers to the master."""
        for _ in range(count):
            done(self.master, send_request(b"%d" % self.numbers, topic=self.topic, queue_id=self.numbers % QUEUES))
            self.numbers += 1

    def send_delayed(self) -> None:
        """Delayed messages to the master."""
        self.send_with(self.delayed, "DELAY\x011")

    def send_timed(self) -> None:
        """Timer messages to the master."""
        self.send_with(self.timed, f"TIMER_DELIVER_MS\x01{int(time.time() + DELAY) * 1000}")

    def send_half(self) -> None:
        """Half messages to the master."""
        self.send_with(self.half, f"TRAN_MSG\x01true\x02PGROUP\x01{clients(self.half)}", sys_flag=PREPARED)

    def send_with(self, topic: str, properties: str, *, sys_flag: int = 0) -> None:
        """Send COUNT messages with further properties to the master."""
        for number in range(COUNT):
            done(
                self.master,
                send_request(
                    b"%d" % number,
                    topic=topic,
                    queue_id=number % QUEUES,
                    properties=f"UNIQ_KEY\x01{number:032}\x02WAIT\x01true\x02{properties}\x02",
                    born_timestamp=int(time.time() * 1000),
                    sys_flag=sys_flag,
                ),
            )

    def pop(self) -> None:
        """Send messages to the master, and take them there by POP for DELAY seconds."""
        self.send_with(self.popped, "TAGS\x01TagA")
        header = PopMessageRequestHeader(
            consumer_group=clients(self.popped), topic=self.popped, invisible_time=DELAY * 1000
        )
        taken = 0
        while taken < COUNT:
            answer = done(self.master, request(RequestCode.POP_MESSAGE, header))
            of_queues = (answer.ext_fields or {})["msgOffsetInfo"].split(";")
            taken += sum(len(one.split(" ")[2].split(",")) for one in of_queues)
        assert taken == COUNT

    def consume(self, topic: str, *, orderly: bool = False) -> PushConsumer:
        consumer = PushConsumer(
            self.folder / f"consumer-{topic}-{len(self.consumers)}",
            nameservers=self.name_server.address,
            group=clients(topic),
            topic=topic,
            orderly=orderly,
        )
        self.consumers.append(consumer)
        return consumer

    def has_read(self, consumer: PushConsumer) -> None:
        """Wait until it has each number."""
        consumer.wait_until("all that was sent", lambda: len(set(consumer.bodies)) == self.numbers)

    def notices(self, least: int) -> int:
        """How many 905 with this id have reached the slave."""
        text = (self.slave.folder / "logs" / "rocketmqlogs" / logs.JAVA).read_text(errors="replace")
        return len(re.findall(rf"min broker id changed, prev \d+, new {least}$", text, re.MULTILINE))

    def locked(self, broker: JavaBroker, client: str) -> set[int]:
        """The queues of its topic that this broker gives to the client, or gave before."""
        queues = frozenset(MessageQueue(topic=self.topic, broker_name=self.name, queue_id=one) for one in range(QUEUES))
        answer = done(broker, request(RequestCode.LOCK_BATCH_MQ, None, lock_body(client, queues)))
        return {queue.queue_id for queue in held(answer)}

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()
        for broker in self.brokers:
            broker.process.close()
        self.name_server.close()


def clients(topic: str) -> str:
    """The group of a topic's clients, one for each topic: all members of a group have to subscribe to the same."""
    return f"of-{topic}"


def committed(broker: JavaBroker, topic: str) -> list[int]:
    """What the consumers have committed there."""
    return [progress(broker, clients(topic), topic, queue) for queue in range(QUEUES)]


def progress(broker: JavaBroker, group: str, topic: str, queue: int = 0) -> int:
    """A group's offset there; -1 without one."""
    header = QueryConsumerOffsetRequestHeader(consumer_group=group, topic=topic, queue_id=queue)
    answer = ask(broker, request(RequestCode.QUERY_CONSUMER_OFFSET, header))
    fields = answer.ext_fields or {}
    return decode_header(OffsetResponseHeader, fields).offset if answer.code == ResponseCode.SUCCESS else -1


def delivered(broker: JavaBroker) -> int:
    """How many delayed messages it has delivered, or takes as delivered."""
    answer = done(broker, request(RequestCode.GET_ALL_DELAY_OFFSET))
    return decode_body(DelayOffsetWrapper, answer.body).offset_table.get(1, 0)


ELSEWHERE = ("brokerName", "brokerClusterName", "controllerAddr", "namesrvAddr", "listenPort", "haListenPort")
"""Keys with other values here, as paths and file sizes have."""


def operators_file(ordinal: int, spec: cases.Object) -> dict[str, str]:
    """What the operator writes for a replica of a strict group of official brokers."""
    spec = {**cases.GROUPS["group-apache"], "failover": {"maxTimeSlaveNotCatchupMs": NOT_CATCHUP_MS}, **spec}
    objects = cases.group_objects(cases.group(spec))
    broker = cases.container(objects, "broker")
    file = cases.config_file(objects, broker, cases.environment(broker, pod=f"broker-a-{ordinal}"))
    return {
        key: value
        for key, value in file.items()
        if key not in ELSEWHERE and not key.startswith(("storePath", "mappedFileSize"))
    }
