"""The socket to the sidecar itself: waiting for it, hanging up, nonsense, coalesced progress."""

import asyncio
import struct
from pathlib import Path

from rocketmq_broker.replica import link as link_module
from rocketmq_broker.replica.link import SidecarLink
from rocketmq_formats.replica_link import Appended, FromSidecar, Hello, Released, Welcome
from tests.broker.fake_sidecar import FakeSidecar


class Half:
    """A link's owner that connects again as the replica does."""

    def __init__(self, path: Path) -> None:
        self.link = SidecarLink(path, self)
        self.received: asyncio.Queue[FromSidecar] = asyncio.Queue()
        self.lost: asyncio.Queue[str] = asyncio.Queue()
        self.troubles: list[str] = []

    async def hello(self) -> Hello:
        if self.troubles:
            raise OSError(self.troubles.pop())
        return Hello(1, "C", "b", "127.0.0.1:1", 0, 0, 0, 4096)

    def on_message(self, message: FromSidecar) -> None:
        self.received.put_nowait(message)

    def on_link_lost(self, reason: str) -> None:
        self.lost.put_nowait(reason)
        self.link.start()


async def test_a_sidecar_that_comes_later(tmp_path: Path) -> None:
    half = Half(tmp_path / "s.sock")
    half.link.start()
    sidecar = FakeSidecar(tmp_path / "s.sock")
    await asyncio.sleep(0)
    await sidecar.start()
    await sidecar.receive(Hello)
    sidecar.send(Welcome(7))
    assert await half.received.get() == Welcome(7)
    await half.link.stop()
    assert half.lost.empty()
    await sidecar.stop()


async def test_a_log_that_cannot_be_read_just_now(tmp_path: Path) -> None:
    sidecar = FakeSidecar(tmp_path / "s.sock")
    await sidecar.start()
    half = Half(tmp_path / "s.sock")
    half.troubles = ["the disk does not answer"]
    half.link.start()
    await sidecar.receive(Hello)
    assert half.link.connected
    assert not half.troubles
    assert half.lost.empty()
    await half.link.stop()
    await sidecar.stop()


async def test_a_file_that_is_no_socket_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    path.write_text("")
    half = Half(path)
    half.link.start()
    await asyncio.sleep(0)
    path.unlink()
    sidecar = FakeSidecar(path)
    await sidecar.start()
    await sidecar.receive(Hello)
    await half.link.stop()
    await sidecar.stop()


async def test_nonsense_ends_the_connection_and_a_new_one_begins(tmp_path: Path) -> None:
    sidecar = FakeSidecar(tmp_path / "s.sock")
    await sidecar.start()
    half = Half(tmp_path / "s.sock")
    half.link.start()
    for nonsense in (struct.pack(">I", 2**31), struct.pack(">I", 1) + b"\x00"):
        await sidecar.receive(Hello)
        assert sidecar._transport is not None
        sidecar._transport.write(nonsense)
        await half.lost.get()
    await sidecar.receive(Hello)
    await half.link.stop()
    await sidecar.stop()


async def test_a_sidecar_that_hangs_up_is_not_asked_at_once_again(tmp_path: Path) -> None:
    sidecar = FakeSidecar(tmp_path / "s.sock")
    await sidecar.start()
    half = Half(tmp_path / "s.sock")
    half.link.start()
    loop = asyncio.get_running_loop()
    await sidecar.receive(Hello)
    began = loop.time()
    for _ in range(3):
        sidecar.hang_up()
        await half.lost.get()
        await sidecar.receive(Hello)
    assert loop.time() - began > 2 * link_module.RETRY_SECONDS
    await half.link.stop()
    await sidecar.stop()


async def test_progress_is_sent_once_per_turn_and_before_what_follows_it(tmp_path: Path) -> None:
    sidecar = FakeSidecar(tmp_path / "s.sock", automatic=False)
    await sidecar.start()
    half = Half(tmp_path / "s.sock")
    half.link.start()
    await sidecar.receive(Hello)
    offset = 0

    def latest() -> Appended:
        return Appended(offset, 0)

    for _ in range(10):
        offset += 1
        half.link.progress(latest)
    half.link.send(Released(10))
    await sidecar.receive(Released)
    assert (sidecar.progress, sidecar.max_offset) == (1, 10)
    await half.link.stop()
    half.link.progress(latest)
    half.link.send(Released(11))
    await sidecar.stop()


async def test_progress_without_waiting_sends_is_sent_at_intervals(tmp_path: Path) -> None:
    sidecar = FakeSidecar(tmp_path / "s.sock", automatic=False)
    await sidecar.start()
    half = Half(tmp_path / "s.sock")
    half.link.start()
    await sidecar.receive(Hello)
    half.link.progress(lambda: Appended(1, 0), apart=3600.0)
    assert await sidecar.receive(Appended) == Appended(1, 0), "the first at once"
    half.link.progress(lambda: Appended(2, 0), apart=3600.0)
    half.link.progress(lambda: Appended(3, 0))
    half.link.send(Released(3))
    await sidecar.receive(Released)
    assert (sidecar.progress, sidecar.max_offset) == (2, 2)
    await half.link.stop()
    await sidecar.stop()
