"""Records what an official broker keeps on disk: tests/golden/store.

    python -m tests.golden.capture_store        (from the root of the repository; needs java and mvn, takes a minute)

Two brokers with tiny files: one in controller mode, stopped and started again, so that there are two epochs; one
on its own that believes to be at `::1` and puts a checksum on whole records. Requests are of our own making, so that
every field of a record is known; what the broker answered is kept beside its files in index.json. Files are kept
without the zeros at their end.
"""

from __future__ import annotations

import json
import shutil
import struct
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rocketmq_demo.apache import jars, servers
from rocketmq_demo.apache.processes import LARGER_HEAP
from tests.golden.recorder import FRONT, ask
from tests.lab.controller import start_controller

HERE = Path(__file__).parent / "store"
NAMESERVER, CONTROLLER, BROKER, ALONE = 31476, 31477, 31411, 31421
TOPIC = "Golden"
LONG_GROUP = "G" * 130
"""Its retry topic is longer than a V1 record can say. Not for the controlled broker: in controller mode 5.3.3 cannot
load such a record again (rocketmq-all-5.3.3: ConsumeQueueStore.java, see docs/formats.md)."""
TINY = {
    "mappedFileSizeCommitLog": 8192,
    "mappedFileSizeConsumeQueue": 20 * 30,
    "maxMessageSize": 4096,
    "transactionCheckInterval": 3_600_000,
}
KEPT = {
    "abort",
    "brokerIdentity",
    "checkpoint",
    "commitlog",
    "consumequeue",
    "epochFileCheckpoint",
    "epochFileCheckpoint.bak",
    "topics.json",
    "consumerOffset.json",
    "subscriptionGroup.json",
    "delayOffset.json",
}
BORN = 1_700_000_000_000


class Story:
    """The requests sent to one broker, and its answers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.sent: list[dict[str, Any]] = []

    def send(
        self, topic: str, queue: int, body: bytes, properties: dict[str, str], *, sys_flag: int = 0, code: int = 10
    ) -> dict[str, str]:
        """Code 10, or 320 with a batch as body; waits until the broker takes it."""
        header = {
            "producerGroup": "GoldenProducers",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": str(queue),
            "sysFlag": str(sys_flag),
            "bornTimestamp": str(BORN + len(self.sent)),
            "flag": str(len(self.sent)),
            "properties": "".join(f"{key}\1{value}\2" for key, value in properties.items()),
            "reconsumeTimes": "0",
            "unitMode": "false",
            "batch": str(code == 320).lower(),
        }
        deadline = time.monotonic() + 60
        # 320 takes the short names of code 310 only
        ext = dict(zip("abcdefghijkm", header.values(), strict=True)) if code == 320 else header
        while (answer := ask(self.port, code, ext, body, host=FRONT)).code != 0:
            if time.monotonic() > deadline:
                raise RuntimeError(f"refused with {answer.code}: {answer.remark}")
            time.sleep(0.5)  # not a master yet
        response = answer.ext or {}
        self.sent.append({"code": code, "request": header, "body": body.hex(), "response": response})
        return response

    def other(self, code: int, ext: dict[str, str], body: bytes = b"") -> None:
        answer = ask(self.port, code, ext, body, host=FRONT)
        if answer.code:
            raise RuntimeError(f"{code} was answered with {answer.code}: {answer.remark}")

    def queue_size(self, topic: str, queue: int) -> int:
        answer = ask(self.port, 30, {"topic": topic, "queueId": str(queue)}, host=FRONT)
        return int((answer.ext or {}).get("offset", 0))

    def wait_queue(self, topic: str, queue: int, size: int) -> None:
        deadline = time.monotonic() + 60
        while self.queue_size(topic, queue) < size:
            if time.monotonic() > deadline:
                raise TimeoutError(f"queue {queue} of {topic} did not reach {size}")
            time.sleep(0.2)


def batch(*messages: tuple[int, bytes, bytes]) -> bytes:
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
        for flag, body, properties in messages
    )


def send_back(story: Story, group: str, message_id: str) -> None:
    """The message at offset 0 comes again to `group`, by way of delay level 1."""
    fields = {"offset": "0", "group": group, "delayLevel": "1", "originMsgId": message_id, "originTopic": TOPIC}
    story.other(36, {**fields, "unitMode": "false", "maxReconsumeTimes": "16"})
    story.wait_queue(f"%RETRY%{group}", 0, 1)


def first_life(story: Story) -> None:
    """One record of every kind that a broker writes by itself."""
    story.send(TOPIC, 0, b"plain", {})
    story.send(TOPIC, 0, b"tags and keys", {"TAGS": "TagA", "KEYS": "one two", "UNIQ_KEY": "7F000001" * 4})
    story.send(TOPIC, 1, "größer".encode(), {"TAGS": "étiquette-标签-😀", "user": "value"})
    story.send(TOPIC, 1, bytes.fromhex("789c4b4c4a0600024d0127"), {}, sys_flag=1)
    messages = (7, b"first of three", b"TAGS\1TagB\2KEYS\1k\2"), (8, b"", b""), (9, b"third", b"TAGS\1TagC")
    story.send(TOPIC, 2, batch(*messages), {"ofBatch": "yes"}, code=320)
    delayed = story.send(TOPIC, 3, b"delayed", {"DELAY": "1", "TAGS": "TagD"})
    half = story.send(TOPIC, 3, b"transaction", {"TRAN_MSG": "true", "PGROUP": "GoldenProducers"}, sys_flag=4)
    story.wait_queue(TOPIC, 3, 1)
    story.other(
        37,
        {
            "producerGroup": "GoldenProducers",
            "tranStateTableOffset": half["queueOffset"],
            "commitLogOffset": str(int(half["msgId"][16:], 16)),
            "commitOrRollback": "8",
            "fromTransactionCheck": "false",
            "msgId": half["msgId"],
        },
    )
    story.wait_queue(TOPIC, 3, 2)
    send_back(story, "GoldenConsumers", delayed["msgId"])
    for number in range(3):
        story.send(TOPIC, 0, bytes([65 + number]) * 2000, {})  # over the end of the first file
    story.other(200, {}, json.dumps({"groupName": "GoldenConsumers", "attributes": {}}).encode())
    for queue, offset in (0, 2), (1, 1):
        story.other(
            15, {"consumerGroup": "GoldenConsumers", "topic": TOPIC, "queueId": str(queue), "commitOffset": str(offset)}
        )


def keep(store: Path, name: str, index: dict[str, Any]) -> None:
    """Copy what we have formats for; zeros at the end are cut, files of nothing else left out."""
    for path in sorted(store.rglob("*")):
        relative = path.relative_to(store)
        if not path.is_file() or (relative.name not in KEPT and relative.parts[0] not in KEPT):
            continue
        data = path.read_bytes()
        short = data.rstrip(b"\0")
        if short and len(short) < 20_000:
            target = HERE / name / str(relative).replace(LONG_GROUP, "LONG")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(short)
            index["files"].append({"file": str(target.relative_to(HERE)), "path": str(relative), "size": len(data)})


def controlled(folder: Path, index: dict[str, Any]) -> None:
    with ExitStack() as stack:
        stack.enter_context(servers.start_nameserver(folder / "namesrv", port=NAMESERVER)).wait_port()
        stack.enter_context(start_controller(folder / "controller", member="n0", peers={"n0": CONTROLLER})).wait_port()
        story = Story(BROKER)
        for life in (first_life, lambda story: story.send(TOPIC, 0, b"in the second epoch", {"TAGS": "TagA"})):
            with servers.start_broker(
                folder / "broker",
                port=BROKER,
                controllers=[CONTROLLER],
                nameservers=[NAMESERVER],
                config=TINY,
                options=LARGER_HEAP,
            ) as broker:
                broker.wait_port()
                life(story)
                time.sleep(6)  # dispatched, and offsets written
                abort = (folder / "broker" / "store" / "abort").read_bytes()
                broker.stop()
        keep(folder / "broker" / "store", "controlled", index)
        (HERE / "controlled" / "abort").write_bytes(abort)
        index["files"].append({"file": "controlled/abort", "path": "abort", "size": len(abort)})
        index["controlled"] = story.sent


def alone(folder: Path, index: dict[str, Any]) -> None:
    with servers.start_broker(
        folder / "alone",
        port=ALONE,
        controllers=[],
        nameservers=[],
        config={
            **TINY,
            "enableControllerMode": False,
            "brokerIP1": "::1",
            "enabledAppendPropCRC": True,
            "enableAutoInBrokerName": False,
        },
        options=LARGER_HEAP,
    ) as broker:
        broker.wait_port()
        story = Story(ALONE)
        first = story.send(TOPIC, 0, b"IPv6 and checksum", {"TAGS": "TagA"})
        send_back(story, LONG_GROUP, first["msgId"])
        story.send(TOPIC, 0, batch((1, b"one", b"A\1b"), (2, b"two", b"")), {"c": "d"}, code=320)
        story.other(
            17,
            {
                "topic": "Inner",
                "defaultTopic": "TBW102",
                "readQueueNums": "1",
                "writeQueueNums": "1",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": "+queue.type=BatchCQ",
            },
        )
        for number in range(2):  # the broker keeps a batch whole only if it has an id
            properties = {"c": "d", "UNIQ_KEY": f"{number:032X}"}
            story.send("Inner", 0, batch((1, b"one", b"TAGS\1x\2"), (2, b"two", b"")), properties, code=320)
        time.sleep(3)
        broker.stop()
    keep(folder / "alone" / "store", "alone", index)
    index["alone"] = story.sent


def main() -> None:
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    index: dict[str, Any] = {"rocketmq_version": jars.ROCKETMQ_VERSION, "files": []}
    with tempfile.TemporaryDirectory(prefix="golden-store-") as name:
        folder = Path(name)
        controlled(folder, index)
        alone(folder, index)
    (HERE / "index.json").write_text(json.dumps(index, indent=1, ensure_ascii=False) + "\n")
    print(f"{len(index['files'])} files in {HERE}", file=sys.stderr)


if __name__ == "__main__":
    main()
