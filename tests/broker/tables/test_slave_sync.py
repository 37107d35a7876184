"""A slave's tables become its master's: ours, and an official one as it answered."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.broker_admin import TopicRequestHeader
from rocketmq_formats.remoting.client import UpdateConsumerOffsetRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, decode_frame, encode_frame, request, response
from rocketmq_formats.replica_link import Alive, CopyFrom, Following, Hello, Probe, Welcome
from rocketmq_formats.store.config_files import ConsumerOffsetsFile, TopicsFile, decode_config
from rocketmq_formats.topics import SubscriptionGroupConfig
from rocketmq_runtime.remoting.server import Answer, Peer, RemotingServer
from tests.broker.broker_kit import Group, free_ports, running
from tests.paths import GOLDEN_FILES

GOLDEN = GOLDEN_FILES / "remoting"


class Official:
    """Answers as an official master did; `answers` by code, on both ports."""

    def __init__(self) -> None:
        self.answers = {
            21: (GOLDEN / "21-get-all-topic-config-response.bin").read_bytes(),
            201: (GOLDEN / "201-get-all-subscription-group-config-response.bin").read_bytes(),
            43: (GOLDEN / "43-get-all-consumer-offset-response.bin").read_bytes(),
            45: (GOLDEN / "45-get-all-delay-offset-response.bin").read_bytes(),
        }
        self.asked: list[int] = []
        self.address = ""

    def on_request(self, command: RemotingCommand, _peer: Peer) -> Answer:
        self.asked.append(command.code)
        if command.code not in self.answers:
            return response(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = decode_frame(self.answers[command.code][4:])
        return response(command, answer.code, None, None, answer.body)

    def on_close(self, peer: Peer) -> None:
        pass

    def put(self, code: int, body: bytes) -> None:
        frame = decode_frame(self.answers[code][4:])
        frame.body = body
        self.answers[code] = encode_frame(frame)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Official"]:
        port = free_ports()
        self.address = f"127.0.0.1:{port}"
        servers = [RemotingServer(self, host="127.0.0.1", port=number) for number in (port, port - 2)]
        for server in servers:
            await server.start()
        try:
            yield self
        finally:
            for server in servers:
                await server.stop()


async def follow(slave: Group, address: str, epoch: int = 1) -> None:
    if epoch == 1:
        await slave.sidecar.receive(Hello)
        slave.sidecar.send(Welcome(2))
    slave.sidecar.send(Following(epoch, 1, address))


async def until(done: Callable[[], bool]) -> None:
    """Turns of the loop; the test's own limit ends it."""
    while not done():
        await asyncio.sleep(0.01)


async def test_a_slave_copies_from_a_master_of_ours(tmp_path: Path) -> None:
    async with running(tmp_path / "master") as master, running(tmp_path / "slave", master=False) as slave:
        await master.send()
        group = encode_body(SubscriptionGroupConfig(group_name="G", retry_max_times=5))
        await master.call(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group))
        commit = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=1)
        await master.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
        await follow(slave, master.address)
        ours = slave.app.tables
        await until(lambda: ours.offsets.find("G", "T", 0) == 1)
        assert slave.app.topics.table == master.app.topics.table
        assert slave.app.topics.version == master.app.topics.version
        assert ours.groups.table == master.app.tables.groups.table
        assert ours.groups.version == master.app.tables.groups.version

        # a change behind its back does not last; the master's changes arrive within about a second
        slave.app.topics.delete("T", state_version=1, now_ms=1)
        await master.send(topic="T2")
        await until(lambda: {"T", "T2"} <= slave.app.topics.table.keys())
        assert slave.app.topics.version == master.app.topics.version
        # a reset goes back
        commit = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=0)
        await master.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
        await until(lambda: ours.offsets.find("G", "T", 0) == 0)

        # and a slave that becomes master continues from there
        await slave.sidecar.make_master(2, hello=False)
        assert slave.app.topics.version.state_version == 2
        assert ours.offsets.find("G", "T", 0) == 0
    topics = decode_config(TopicsFile, (tmp_path / "slave" / "config" / "topics.json").read_bytes())
    assert "T" in topics.topic_config_table
    offsets = decode_config(ConsumerOffsetsFile, (tmp_path / "slave" / "config" / "consumerOffset.json").read_bytes())
    assert offsets.offset_table == {"T@G": {0: 0}}


async def test_a_slave_copies_the_topics_that_names_of_cluster_and_broker_make(tmp_path: Path) -> None:
    """A dot is legal in these names and not in topics."""
    names = {"brokerName": "broker.a", "brokerClusterName": "C.1"}
    master_store, slave_store = tmp_path / "master", tmp_path / "slave"
    async with running(master_store, **names) as master, running(slave_store, master=False, **names) as slave:
        await master.send()
        await follow(slave, master.address)
        await until(lambda: slave.app.topics.version == master.app.topics.version)
        assert {"broker.a", "C.1", "rmq_sys_SYNC_BROKER_MEMBER_broker.a", "T"} <= slave.app.topics.table.keys()
        assert slave.app.topics.table == master.app.topics.table


async def test_a_slave_copies_from_an_official_master(tmp_path: Path) -> None:
    official = Official()
    official.put(43, b'{"dataVersion":{"counter":1},"groupTopicMap":{},"offsetTable":{"T@G":{0:12,3:4},"bad":{0:1}}}')
    official.put(45, b'{"dataVersion":{"counter":1},"offsetTable":{3:7,999:1}}')
    async with official.listening(), running(tmp_path / "slave", master=False) as slave:
        ours = slave.app.tables
        ours.delays.replace([(0, {2: 9, 3: 8})], ours.delays.version)
        await follow(slave, official.address)
        await until(lambda: ours.delays.table.get(3) == 7)
        assert "rmq_sys_wheel_timer" in slave.app.topics.table
        assert slave.app.topics.version.state_version == 1
        assert len(ours.groups.table) == 8
        assert (ours.offsets.find("G", "T", 0), ours.offsets.find("G", "T", 3)) == (12, 4)
        assert ours.delays.table == {3: 7}, "the master's, lower or not there at all"
        assert official.asked[:5] == [RequestCode.COPY_TABLES, 21, 201, 43, 45]
        await until(lambda: len(official.asked) > 5)
        assert official.asked.count(RequestCode.COPY_TABLES) == 1, "it does not know that"


async def test_without_controllers_a_slave_copies_from_whom_its_sidecar_says(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "master") as master,
        running(tmp_path / "slave", master=False, enableControllerMode=False) as slave,
    ):
        await master.send()
        await follow(slave, "")
        slave.sidecar.send(CopyFrom(master.address))
        await until(lambda: "T" in slave.app.topics.table)
        slave.sidecar.send(CopyFrom(""))
        slave.sidecar.send(Probe())
        await slave.sidecar.receive(Alive)
        assert slave.app.role.master_address is None
        await master.send(topic="T2")
        slave.sidecar.send(CopyFrom(master.address))
        await until(lambda: "T2" in slave.app.topics.table)


async def test_a_new_master_is_asked_at_once_and_a_dead_one_again(tmp_path: Path) -> None:
    dead, official = f"127.0.0.1:{free_ports()}", Official()
    async with official.listening(), running(tmp_path / "slave", master=False) as slave:
        await follow(slave, dead)
        await follow(slave, official.address, epoch=2)
        await until(lambda: len(slave.app.tables.groups.table) == 8 and 45 in official.asked)
        official.put(43, b"nonsense")
        await until(lambda: official.asked.count(43) > 2)
        official.put(43, b'{"offsetTable":{"T@G":{0:12}}}')
        await until(lambda: slave.app.tables.offsets.find("G", "T", 0) == 12)


async def test_deleted_topics_stay_so_and_younger_ones_are_found(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        await group.send(topic="deleted")
        header = TopicRequestHeader(topic="deleted")
        assert (await group.call(request(RequestCode.DELETE_TOPIC_IN_BROKER, header))).code == ResponseCode.SUCCESS
        copy = (tmp_path / "config" / "topics.json").read_bytes()
        await group.send(topic="younger")
    (tmp_path / "config" / "topics.json").write_bytes(copy)
    async with running(tmp_path) as group:
        assert group.app.topics.get("deleted") is None
        assert group.app.topics.get("younger") is not None


async def test_odd_numbers_of_queues_do_not_keep_a_slave_from_copying(tmp_path: Path) -> None:
    official = Official()
    topics = b'"odd":{"topicName":"odd","readQueueNums":-1,"writeQueueNums":100000},"T":{"topicName":"T"}'
    official.put(21, b'{"dataVersion":{"counter":1},"topicConfigTable":{%b}}' % topics)
    groups = b'"G":{"groupName":"G","retryQueueNums":-1}'
    official.put(201, b'{"dataVersion":{"counter":1},"subscriptionGroupTable":{%b}}' % groups)
    async with official.listening(), running(tmp_path, master=False) as slave:
        await follow(slave, official.address)
        await until(lambda: slave.app.tables.groups.get("G") is not None)
        odd = slave.app.topics.get("odd")
        assert odd is not None
        assert (odd.read_queue_nums, odd.write_queue_nums) == (0, 65_536)
        assert "T" in slave.app.topics.table


async def test_a_slave_copies_topics_with_attributes(tmp_path: Path) -> None:
    official = Official()
    topic = b'"T":{"topicName":"T","attributes":{"message.type":"FIFO","of.java":"1"}}'
    official.put(21, b'{"dataVersion":{"counter":1},"topicConfigTable":{%b}}' % topic)
    async with official.listening(), running(tmp_path, master=False) as slave:
        await follow(slave, official.address)
        await until(lambda: "T" in slave.app.topics.table)
        assert slave.app.topics.table["T"].attributes == {"message.type": "FIFO", "of.java": "1"}
