"""The sidecar beside an official broker compares the group of controllers (controllerDLegerGroup), as the native one
does: at an address that was given out again another group may answer, which knows other masters."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import BrokerReplicasInfo, GetMetaDataResponseHeader
from rocketmq_runtime.remoting.server import Answer, Peer, RemotingServer
from rocketmq_sidecar.control.controllers_file import FILE_NAME
from rocketmq_sidecar.observer.controllers import ControllerCalls, ElectionRefusedError, OtherControllersError
from tests.sidecar.observer.fakes import CLUSTER, GROUP, JavaGroup, Sidecar, keep_identity

HOST = "127.0.0.1"


class Controller:
    """It leads the group `name`, which knows no brokers, and elects whom it is asked to."""

    def __init__(self, name: str | None, *, after: asyncio.Event | None = None) -> None:
        """`after`: it answers when this has happened."""
        self.name = name
        self.asked: list[int] = []
        self.answered = asyncio.Event()
        self._after = after

    def on_request(self, asked: RemotingCommand, peer: Peer) -> Answer:
        self.asked.append(asked.code)
        if asked.code == RequestCode.CONTROLLER_GET_METADATA_INFO:
            said = GetMetaDataResponseHeader(group=self.name, is_leader=True)
            return response(asked, ResponseCode.SUCCESS, None, said)
        if self._after is not None:
            return asyncio.ensure_future(self._later(asked, self._after))
        self.answered.set()
        return self._state(asked)

    async def _later(self, asked: RemotingCommand, after: asyncio.Event) -> RemotingCommand:
        await after.wait()
        return self._state(asked)

    @staticmethod
    def _state(asked: RemotingCommand) -> RemotingCommand:
        body = encode_body(BrokerReplicasInfo(replicas_info_table={}))
        return response(asked, ResponseCode.SUCCESS, None, None, body)

    def on_close(self, peer: Peer) -> None:
        pass


async def test_controllers_of_another_group_are_refused_in_every_request() -> None:
    controller, kept = Controller("ours"), "ours"
    server = RemotingServer(controller, host=HOST, port=0)
    await server.start()
    calls = ControllerCalls([f"{HOST}:{server.port}"], cluster_name=CLUSTER, broker_name=GROUP, kept=lambda: kept)
    try:
        assert await calls.group() is None
        assert (calls.found, calls.name) == (True, "ours")
        controller.name = "theirs"
        controller.asked.clear()
        refused = "is of the controllers' group theirs, not of ours: correct controllerAddr; or"
        with pytest.raises(ElectionRefusedError, match=refused):
            await calls.elect(2)
        with pytest.raises(OtherControllersError, match=refused):
            await calls.group()
        with pytest.raises(OtherControllersError, match=refused):
            await calls.ask(f"{HOST}:{server.port}", request(RequestCode.CONTROLLER_LOG_DOUBT))
        assert set(controller.asked) == {RequestCode.CONTROLLER_GET_METADATA_INFO}
        assert not calls.found
        kept = "theirs"
        assert await calls.group() is None
        controller.name = None
        assert await calls.group() is None, "it does not say"
    finally:
        await calls.close()
        await server.stop()


async def test_the_group_is_that_of_the_controller_whose_answer_counts() -> None:
    """At one of the addresses, which was given out again, another group leads, and answers last."""
    ours = Controller("ours")
    servers = [RemotingServer(one, host=HOST, port=0) for one in (ours, Controller("theirs", after=ours.answered))]
    for server in servers:
        await server.start()
    places = [f"{HOST}:{server.port}" for server in servers]
    calls = ControllerCalls(places, cluster_name=CLUSTER, broker_name=GROUP, kept=lambda: None)
    try:
        assert await calls.group() is None
        assert calls.name == "ours"
    finally:
        await calls.close()
        for server in servers:
            await server.stop()


async def test_the_group_is_kept_once_the_broker_has_registered(tmp_path: Path) -> None:
    group, file = JavaGroup(), tmp_path / FILE_NAME
    sidecar = Sidecar(tmp_path, group)
    await sidecar.poll()
    assert not file.exists(), "the broker has no id yet"
    keep_identity(tmp_path)
    await sidecar.poll()
    assert file.read_text() == "ours"
    await sidecar.poll()
    assert sidecar.observer.files.controllers == "ours"
    again = Sidecar(tmp_path, group)
    again.observer.files.reload()
    assert again.observer.files.controllers == "ours", "after a restart"


async def test_controllers_of_another_group_are_told_to_operators(tmp_path: Path) -> None:
    group = JavaGroup()
    sidecar = Sidecar(tmp_path, group)
    keep_identity(tmp_path)
    await sidecar.poll()
    assert sidecar.observer.unready() is None
    group.foreign = "k0:9878 is of the controllers' group theirs, not of ours"
    await sidecar.poll()
    assert sidecar.observer.unready() == group.foreign
    group.foreign = None
    await sidecar.poll()
    assert sidecar.observer.unready() is None
