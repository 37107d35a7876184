"""One store folder, in turns: ours writes it, an official broker opens it, reads it, continues, and ours opens it
again.

After orderly stops and after kills; files are small, so that the log and the queues have several of each.
"""

import time
from pathlib import Path

import pytest

from rocketmq_demo.apache import servers
from rocketmq_demo.apache.processes import JavaProcess
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.store.message import read_records
from rocketmq_store.message_store import MessageStore
from rocketmq_store.model import Draft, StoreSettings
from tests.gate.patience import patient
from tests.golden.recorder import ask
from tests.interop.lab import JAVA_BROKER
from tests.store.kit import dispatched

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

TOPIC = "Turns"
QUEUES = 2
OURS, THEIRS = 120, 40
SIZES = {"mappedFileSizeCommitLog": 64 * 1024, "mappedFileSizeConsumeQueue": 20 * 30}


def opened(root: Path) -> MessageStore:
    store = MessageStore(
        StoreSettings(
            root=root,
            file_size=SIZES["mappedFileSizeCommitLog"],
            consume_queue_file_size=SIZES["mappedFileSizeConsumeQueue"],
            disk_refuse_ratio=1.1,
        )
    )
    store.writer.acquire()
    store.open()
    dispatched(store)
    return store


def ours(root: Path, *, clean: bool) -> None:
    """Fill a folder."""
    store = opened(root)
    for number in range(OURS):
        draft = Draft(
            topic=TOPIC.encode(),
            queue_id=number % QUEUES,
            body=b"ours %d " % number + b"x" * 1000,
            properties=b"KEYS\x01k%d\x02TAGS\x01tag\x02" % number,
            born_timestamp=int(time.time() * 1000),
        )
        store.append(draft, int(time.time() * 1000))
        dispatched(store)
        if number == OURS // 2:
            store.durability.flush()
    if clean:
        store.close()
    else:  # as a kill leaves it
        store.writer.release()
        store._root.unlock()
        assert (root / "abort").exists()


def broker(folder: Path, port: int) -> JavaProcess:
    return servers.start_broker(
        folder,
        port=port,
        controllers=[],
        nameservers=[],
        config={**SIZES, "enableControllerMode": False},
        options=JAVA_BROKER,
    )


def max_offset(port: int, queue_id: int) -> int:
    answer = ask(port, RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": str(queue_id)}, host=HOST)
    return int((answer.ext or {}).get("offset", -1))


def pull_all(port: int, queue_id: int) -> bytes:
    """Every record of a queue, byte for byte."""
    data, offset = b"", 0
    while True:
        header = {
            "consumerGroup": "Readers",
            "topic": TOPIC,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        answer = ask(port, RequestCode.PULL_MESSAGE, header, host=HOST)
        if answer.code != 0:
            return data
        data += answer.body
        offset = int((answer.ext or {})["nextBeginOffset"])


def theirs(port: int) -> None:
    """Let the official broker continue with the same queues."""
    for number in range(THEIRS):
        header = {
            "producerGroup": "Writers",
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": str(QUEUES),
            "queueId": str(number % QUEUES),
            "sysFlag": "0",
            "bornTimestamp": str(int(time.time() * 1000)),
            "flag": "0",
            "properties": "TAGS\1tag\2",
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": "false",
        }
        answer = ask(port, RequestCode.SEND_MESSAGE, header, b"theirs %d " % number + b"y" * 1000, host=HOST)
        assert answer.code in {0, 10, 11, 12}, answer.remark


def our_records(store: MessageStore, queue_id: int) -> bytes:
    data, offset = b"", 0
    while (result := store.get(TOPIC, queue_id, offset)).count:
        data += b"".join(result.records)
        offset = result.next_offset
    return data


def wait_for(port: int, count: int) -> None:
    deadline = time.monotonic() + patient(60)
    while any(max_offset(port, queue_id) != count // QUEUES for queue_id in range(QUEUES)):
        assert time.monotonic() < deadline, [max_offset(port, queue_id) for queue_id in range(QUEUES)]
        time.sleep(0.1)


@pytest.mark.parametrize("clean", [True, False])
def test_in_turns(apache: None, tmp_path: Path, clean: bool) -> None:
    root = tmp_path / "broker" / "store"
    ours(root, clean=clean)
    with PortPool() as ports:
        port = ports.broker()
        with broker(tmp_path / "broker", port) as java:
            java.wait_port()
            wait_for(port, OURS)
            theirs(port)
            wait_for(port, OURS + THEIRS)
            found = [pull_all(port, queue_id) for queue_id in range(QUEUES)]
            if clean:
                java.stop()
            else:
                java.kill9()
    store = opened(root)
    for queue_id in range(QUEUES):
        assert our_records(store, queue_id) == found[queue_id]
        bodies = [bytes(record.body(found[queue_id])) for record in read_records(found[queue_id], check_crc=True)]
        assert [body.split()[:2] for body in bodies] == [
            [who, b"%d" % number]
            for who, count in ((b"ours", OURS), (b"theirs", THEIRS))
            for number in range(queue_id, count, QUEUES)
        ]
    store.append(Draft(topic=TOPIC.encode(), queue_id=0, body=b"ours again"), 1)
    dispatched(store)
    assert store.queue_bounds(TOPIC, 0)[1] == (OURS + THEIRS) // QUEUES + 1
    store.close()
