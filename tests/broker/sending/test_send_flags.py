"""What a client may set in sysFlag: every request code keeps the same bits, and all replicas count the message
equally."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_broker.domain.sending import stored_flags
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.client import ConsumerSendMsgBackRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.store.batch import BatchMessage, encode_batch
from rocketmq_formats.store.message import SysFlag, read_records
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Draft, StoreSettings
from tests.broker.broker_kit import Group, running
from tests.store.kit import show

CLIENTS = int(SysFlag.COMPRESSED | SysFlag.COMPRESSION_TYPE | SysFlag.MULTI_TAGS)
INNER = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
FLAGS = [0, *(1 << bit for bit in range(31)), -(2**31), 0xC, 0x7, 0x30, 0x70F, 0x84, -1]
BATCH = encode_batch([BatchMessage(0, b"one", b""), BatchMessage(0, b"two", b"")])


def queues_of(store: MessageStore) -> dict[tuple[str, int], tuple[int, int, int]]:
    """Bounds and next offset of every queue that has messages."""
    return {
        (topic, queue_id): (*store.queue_bounds(topic, queue_id), store.next_queue_offset(topic, queue_id))
        for topic, ids in store.queues().items()
        for queue_id in ids
        if store.next_queue_offset(topic, queue_id)
    }


def dispatched_anew(log: Path, root: Path, settings: StoreSettings) -> dict[tuple[str, int], tuple[int, int, int]]:
    """The queues as a replica makes them that has nothing but the log."""
    root.mkdir()
    shutil.copytree(log, root / "commitlog")
    store = MessageStore(
        StoreSettings(root=root, file_size=settings.file_size, consume_queue_file_size=settings.consume_queue_file_size)
    )
    store.writer.acquire()
    store.open()
    show(store)
    queues = queues_of(store)
    store.close()
    return queues


async def through(group: Group, code: int, flags: int) -> RemotingCommand:
    if code == RequestCode.SEND_BATCH_MESSAGE:
        return await group.send(BATCH, code=code, batch=True, sys_flag=flags, properties="WAIT\x01true\x02")
    return await group.send(sys_flag=flags)


@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE])
async def test_every_flag_is_kept_cut_or_refused_and_counted_alike(tmp_path: Path, code: int) -> None:
    expected: list[int] = []
    count = 2 if code == RequestCode.SEND_BATCH_MESSAGE else 1
    async with running(tmp_path / "store") as group:
        for flags in FLAGS:
            answer = await through(group, code, flags)
            if flags & 0xC in (0x4, 0xC):  # a half message, or one rolled back: consumers must not get it
                assert (answer.code, "transaction" in (answer.remark or "")) == (ResponseCode.NO_PERMISSION, True)
                continue
            if flags & INNER:
                assert (answer.code, "inner batch" in (answer.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
                continue
            assert answer.code == 0, answer.remark
            assert int((answer.ext_fields or {})["queueOffset"]) == len(expected)
            expected += [flags & CLIENTS] * count
        store = group.app.store
        found: list[int] = []
        while len(found) < len(expected):
            pulled = await group.pull(len(found))
            found += [record.sys_flag for record in read_records(pulled.body, check_crc=True)]
        assert found == expected
        at_master = queues_of(store)
        assert at_master == dispatched_anew(store.settings.commit_log_path, tmp_path / "slave", store.settings)


async def test_what_comes_back_from_consumers_has_a_clients_flags(tmp_path: Path) -> None:
    async with running(tmp_path / "store", messageDelayLevel="1s 1s 1s 1s") as group:
        store = group.app.store
        answers = []
        for flags in (0, CLIENTS, int(SysFlag.TRANSACTION_COMMIT), int(SysFlag.TRANSACTION_PREPARED), INNER):
            offset = store.append(Draft(topic=b"T", queue_id=0, body=b"x", sys_flag=flags), 1).offset
            await group.send()  # whose acknowledgement makes the one before it visible
            header = ConsumerSendMsgBackRequestHeader(offset=offset, group="G", delay_level=-1, origin_topic="T")
            answers.append((await group.call(request(RequestCode.CONSUMER_SEND_MSG_BACK, header))).code)
        assert answers == [0, 0, 0, 0, ResponseCode.MESSAGE_ILLEGAL]
        pulled = await group.pull(0, topic="%DLQ%G")
        assert [record.sys_flag for record in read_records(pulled.body, check_crc=True)] == [0, CLIENTS, 0, 0]
        at_master = queues_of(store)
        assert at_master == dispatched_anew(store.settings.commit_log_path, tmp_path / "slave", store.settings)


@given(st.integers(-(2**31), 2**31 - 1))
def test_what_is_stored_is_a_clients_or_refused(flags: int) -> None:
    if flags & INNER:
        with pytest.raises(RequestRefusedError):
            stored_flags(flags)
    else:
        assert stored_flags(flags) == flags & CLIENTS


def test_the_store_counts_alike_whatever_the_flag(tmp_path: Path) -> None:
    # The log may have been written by an official master, with any flag.
    settings = StoreSettings(root=tmp_path / "master", file_size=1024 * 1024, consume_queue_file_size=20 * 1000)
    store = MessageStore(settings)
    store.writer.acquire()
    store.open()
    store.cut_tail()
    for flags in [*range(0x800), *(1 << bit for bit in range(11, 31)), -1, -(2**31)]:
        draft = Draft(topic=b"T", queue_id=flags % 3, body=b"x", sys_flag=flags)
        if flags % 5:
            store.append(draft, 1)
        else:
            store.append_batch([draft, draft], 1)
    show(store)
    store.durability.flush()
    at_master = queues_of(store)
    assert at_master == dispatched_anew(settings.commit_log_path, tmp_path / "slave", settings)
    store.close()
