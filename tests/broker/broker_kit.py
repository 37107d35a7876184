"""A whole broker on loopback with a fake sidecar, in the test's own loop."""

import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from rocketmq_broker.app import BrokerApp
from rocketmq_broker.settings import BrokerSettings
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.client import PULL_SUBSCRIPTION, PULL_SUSPEND, PullMessageRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.send import SendMessageRequestHeaderV2
from rocketmq_formats.replica_link import CopyKey
from rocketmq_runtime.config.settings import build_settings
from rocketmq_runtime.remoting.client import RemotingClient
from tests.broker.fake_sidecar import FakeSidecar

_ports = itertools.count(20_000 + 7 * (hash(__file__) % 1000), 7)


def free_ports() -> int:
    """A listenPort whose neighbours are free too."""
    while True:
        port = next(_ports)
        try:
            for candidate in (port, port - 2):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", candidate))
        except OSError:
            continue
        return port


def settings_for(root: Path, **keys: object) -> BrokerSettings:
    """Small files; keys in Java's spelling."""
    values: dict[str, object] = {
        "brokerName": "broker-a",
        "brokerClusterName": "C",
        "brokerIP1": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "storePathRootDir": str(root),
        "mappedFileSizeCommitLog": 1024 * 1024,
        "mappedFileSizeConsumeQueue": 20 * 1000,
    }
    if "listenPort" not in keys:
        values["listenPort"] = free_ports()
    values.update(keys)
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in values.items()}
    loaded = build_settings(BrokerSettings, texts)
    assert not loaded.unknown_keys
    return loaded.settings


class Group:
    """A broker, its fake sidecar, a client."""

    def __init__(self, app: BrokerApp, sidecar: FakeSidecar, client: RemotingClient) -> None:
        self.app, self.sidecar, self.client = app, sidecar, client

    @property
    def address(self) -> str:
        return self.app.address

    async def call(self, command: RemotingCommand, *, port: int | None = None) -> RemotingCommand:
        address = self.address if port is None else f"127.0.0.1:{port}"
        return await self.client.call(address, command, timeout=20)

    async def send(self, body: bytes = b"hello", **fields: object) -> RemotingCommand:
        return await self.call(send_request(body, **fields))

    async def pull(self, offset: int, **fields: object) -> RemotingCommand:
        return await self.call(pull_request(offset, **fields))


def send_request(
    body: bytes = b"hello", *, code: int = RequestCode.SEND_MESSAGE_V2, **fields: object
) -> RemotingCommand:
    header = SendMessageRequestHeaderV2(
        producer_group="P",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1_763_712_345_678,
        flag=0,
        properties="UNIQ_KEY\x010123456789ABCDEF0123456789ABCDEF\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    )
    return request(code, msgspec.structs.replace(header, **fields), body)


def pull_request(offset: int, *, suspend_ms: int = 0, **fields: object) -> RemotingCommand:
    header = PullMessageRequestHeader(
        consumer_group="G",
        topic="T",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if suspend_ms else 0),
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        sub_version=0,
        subscription="*",
    )
    return request(RequestCode.PULL_MESSAGE, msgspec.structs.replace(header, **fields))


@asynccontextmanager
async def running(
    root: Path, *, automatic: bool = True, master: bool = True, copy_key: CopyKey | None = None, **keys: object
) -> AsyncIterator[Group]:
    """A started broker, master of epoch 1 unless told otherwise."""
    root.mkdir(exist_ok=True)
    settings = settings_for(root, **keys)
    sidecar = FakeSidecar(settings.socket_path, automatic=automatic)
    sidecar.copy_key = copy_key
    await sidecar.start()
    app = BrokerApp(settings)
    client = RemotingClient()
    try:
        await app.start()
        if master:
            await sidecar.make_master()
        yield Group(app, sidecar, client)
    finally:
        await client.close()
        await app.stop()
        await sidecar.stop()
