"""Name servers and brokers that keep everything in memory and do as a test tells them."""

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.client import (
    PULL_SUSPEND,
    GetMaxOffsetRequestHeader,
    HeartbeatData,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetRequestHeader,
    TopicQueueRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import (
    BrokerData,
    ClusterInfo,
    GetRouteInfoRequestHeader,
    QueueData,
    TopicRouteData,
    encode_route,
)
from rocketmq_formats.remoting.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rocketmq_formats.store.batch import BatchMessage, decode_batch
from rocketmq_formats.store.message_properties import join_properties
from rocketmq_runtime.remoting.server import Answer, Peer, RemotingServer
from tests.records import make_record

Key = tuple[str, int]


class FakeNameServer:
    """Answers 105 and 106 from `routes`."""

    def __init__(self) -> None:
        self.routes: dict[str, TopicRouteData] = {}
        self.asked: list[str] = []
        self.refusals: deque[int] = deque()
        self.server = RemotingServer(self, host="127.0.0.1", port=0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def put(self, topic: str, *brokers: "FakeBroker", queues: int = 4, perm: int = 6, broker_id: int = 0) -> None:
        """Let `topic` be at `brokers`, each one its group's member `broker_id`."""
        self.routes[topic] = TopicRouteData(
            broker_datas=[
                BrokerData(broker_name=broker.name, cluster="c", broker_addrs={broker_id: broker.address})
                for broker in brokers
            ],
            queue_datas=[
                QueueData(broker_name=broker.name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
                for broker in brokers
            ],
        )

    def on_request(self, request: RemotingCommand, peer: Peer) -> Answer:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            brokers = {broker.broker_name: broker for route in self.routes.values() for broker in route.broker_datas}
            return response(request, 0, body=encode_body(ClusterInfo(broker_addr_table=brokers)))
        assert request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        topic = decode_header(GetRouteInfoRequestHeader, request.ext_fields or {}).topic
        self.asked.append(topic)
        if self.refusals:
            return response(request, self.refusals.popleft(), "told to")
        route = self.routes.get(topic)
        if route is None:
            return response(request, ResponseCode.TOPIC_NOT_EXIST, "no route")
        return response(request, 0, body=encode_route(route, standard=True))

    def on_close(self, peer: Peer) -> None:
        pass


class FakeBroker:
    """Keeps records by topic and queue; `refusals` are the codes of the next sends, `silent` answers none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.refusals: deque[int] = deque()
        self.silent = False
        self.stored_with = 0
        """Code of the answers to sends that are stored."""
        self.records: dict[Key, list[bytes]] = defaultdict(list)
        self.trimmed: dict[Key, int] = defaultdict(int)
        """Number of expired records, by queue."""
        self.committed: dict[tuple[str, str, int], int] = {}
        self.heartbeats: list[HeartbeatData] = []
        self.sends: list[SendMessageRequestHeaderV2] = []
        self.codes: list[int] = []
        self._held: list[tuple[RemotingCommand, PullMessageRequestHeader, asyncio.Future[RemotingCommand]]] = []
        self.server = RemotingServer(self, host="127.0.0.1", port=0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def append(self, topic: str, queue_id: int, body: bytes, properties: bytes = b"", sys_flag: int = 0) -> int:
        """Store one message; its offset."""
        records = self.records[topic, queue_id]
        offset = len(records)
        records.append(
            make_record(
                offset,
                body,
                topic=topic.encode(),
                queue_id=queue_id,
                queue_offset=offset,
                sys_flag=sys_flag,
                properties=properties,
            )
        )
        held, self._held = self._held, []
        for request, header, answer in held:
            if not answer.done():
                self._pulled(request, header, answer)
        return offset

    def on_request(self, request: RemotingCommand, peer: Peer) -> Answer:
        self.codes.append(request.code)
        fields = request.ext_fields or {}
        answer: Answer = response(request, 0)
        match request.code:
            case RequestCode.SEND_MESSAGE_V2 | RequestCode.SEND_BATCH_MESSAGE:
                answer = self._send(request)
            case RequestCode.PULL_MESSAGE:
                answer = pulled = asyncio.get_running_loop().create_future()
                self._pulled(request, decode_header(PullMessageRequestHeader, fields), pulled)
            case RequestCode.GET_MIN_OFFSET:
                queue = decode_header(TopicQueueRequestHeader, fields)
                answer = self._offset(request, self.trimmed[queue.topic, queue.queue_id])
            case RequestCode.GET_MAX_OFFSET:
                of = decode_header(GetMaxOffsetRequestHeader, fields)
                answer = self._offset(request, len(self.records[of.topic, of.queue_id]))
            case RequestCode.QUERY_CONSUMER_OFFSET:
                at = decode_header(QueryConsumerOffsetRequestHeader, fields)
                offset = self.committed.get((at.consumer_group, at.topic, at.queue_id))
                answer = response(request, ResponseCode.QUERY_NOT_FOUND, "Not found")
                if offset is not None:
                    answer = self._offset(request, offset)
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                commit = decode_header(UpdateConsumerOffsetRequestHeader, fields)
                key = (commit.consumer_group or "", commit.topic or "", commit.queue_id or 0)
                self.committed[key] = commit.commit_offset or 0
            case RequestCode.HEART_BEAT:
                self.heartbeats.append(decode_body(HeartbeatData, request.body))
        return answer

    def on_close(self, peer: Peer) -> None:
        pass

    def _send(self, request: RemotingCommand) -> Answer:
        header = decode_header(SendMessageRequestHeaderV2, request.ext_fields or {})
        self.sends.append(header)
        if self.silent:
            return None
        if self.refusals:
            return response(request, self.refusals.popleft(), "told to")
        properties = (header.properties or "").encode()
        messages = [BatchMessage(0, request.body, properties)]
        if header.batch:
            messages = [
                BatchMessage(0, message.body, join_properties(message.properties, properties))
                for message in decode_batch(request.body)
            ]
        offsets = [self.append(header.topic, header.queue_id, one.body, one.properties) for one in messages]
        ids = ",".join(f"{offset:032X}" for offset in offsets)
        fields = SendMessageResponseHeader(msg_id=ids, queue_id=header.queue_id, queue_offset=offsets[0])
        return response(request, self.stored_with, None, fields)

    def _offset(self, request: RemotingCommand, offset: int) -> RemotingCommand:
        return response(request, 0, None, OffsetResponseHeader(offset=offset))

    def _pulled(
        self, request: RemotingCommand, header: PullMessageRequestHeader, answer: "asyncio.Future[RemotingCommand]"
    ) -> None:
        key = (header.topic, header.queue_id)
        records, low = self.records[key], self.trimmed[key]
        offset, end = header.queue_offset, len(records)
        code, body, following = ResponseCode.SUCCESS, b"", offset
        if offset < low or offset > end:
            code, following = ResponseCode.PULL_OFFSET_MOVED, low if offset < low else end
        elif offset == end:
            if header.sys_flag & PULL_SUSPEND:
                self._held.append((request, header, answer))
                return
            code = ResponseCode.PULL_NOT_FOUND
        else:
            taken = records[offset : offset + header.max_msg_nums]
            body, following = b"".join(taken), offset + len(taken)
        fields = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=following, min_offset=low, max_offset=end
        )
        answer.set_result(response(request, code, code.name, fields, body))


@asynccontextmanager
async def running(*servers: FakeNameServer | FakeBroker) -> AsyncIterator[None]:
    """All of them listen while the block runs."""
    for server in servers:
        await server.server.start()
    try:
        yield
    finally:
        for server in servers:
            await server.server.stop()
