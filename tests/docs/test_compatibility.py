"""docs/compatibility.md: each request code has a verdict, and it is what the servers' own tables of handlers say."""

import asyncio
import re
from pathlib import Path

import pytest

from rocketmq_broker.app import BrokerApp
from rocketmq_controller.ports.remoting_api import RemotingApi as ControllerApi
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.remoting.unsupported import not_supported
from rocketmq_runtime.remoting.server import Handler, Peer, RemotingServer
from tests.broker.broker_kit import settings_for
from tests.controller.grpc_kit import LIMITS
from tests.controller.grpc_kit import Door as ControllerDoor
from tests.docs.named_tests import ROOT
from tests.namesrv.namesrv_kit import Door as NameServerDoor

PAGE = (ROOT / "docs" / "compatibility.md").read_text()
ROW = re.compile(r"^\| (\d+) \| (\w+) \| ([\w ]*) \| ([\w ]*) \| ([\w ]*) \| (.*) \|$", re.MULTILINE)
SERVED, VERDICTS = "served", {"", "served", "not yet", "refused"}
SERVERS = ("broker", "name server", "controller")
LISTED: dict[int, dict[str, str]] = {
    int(row[0]): {"name": row[1], **dict(zip(SERVERS, row[2:5], strict=True)), "why": row[5]}
    for row in ROW.findall(PAGE)
}
NO_TRANSACTIONS = {RequestCode.END_TRANSACTION}
"""Have a handler for slaves' sake: a master answers 3."""


def test_every_code_has_a_verdict() -> None:
    assert [(code, row["name"]) for code, row in LISTED.items()] == [(code.value, code.name) for code in RequestCode]
    for code, row in LISTED.items():
        verdicts = {row[server] for server in SERVERS}
        assert verdicts <= VERDICTS, code
        assert verdicts in ({"served"}, {"served", ""}) or row["why"], f"{code}: why not?"


@pytest.mark.parametrize("server", SERVERS)
async def test_what_is_listed_is_what_the_server_does(tmp_path: Path, server: str) -> None:
    handler, handled = _server(server, tmp_path)
    served = {code for code, row in LISTED.items() if row[server] == SERVED}

    assert served == handled - NO_TRANSACTIONS

    peer = Peer(RemotingServer(handler, host="127.0.0.1", port=0), 1)
    for code in (*(LISTED.keys() - served), 5, 99_999):
        answer = handler.on_request(RemotingCommand(code=code, opaque=7), peer)
        if isinstance(answer, asyncio.Future):
            answer = await answer
        assert isinstance(answer, RemotingCommand)
        assert (answer.code, answer.opaque) == (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 7), code
        assert answer.remark == not_supported(code)


FEATURES = {
    "no transactions": (37, 323),
    "no POP": (400, 401, *range(200_050, 200_057), 200_151),
    "no users and ACLs": (*range(50, 55), *range(3001, 3011)),
    "use delay levels": (370,),
}
"""Codes by what their answer says. Those from 50 to 54 are of clients and tools before 5.3."""


@pytest.mark.parametrize("server", SERVERS)
async def test_a_feature_that_is_not_here_yet_is_refused_with_a_sentence(tmp_path: Path, server: str) -> None:
    """At once: no client waits for its time-out, and none takes silence for success."""
    handler, _ = _server(server, tmp_path)
    peer = Peer(RemotingServer(handler, host="127.0.0.1", port=0), 1)
    for says, codes in FEATURES.items():
        for code in codes:
            for fields in (None, {}, {"topic": "T", "queueId": "0", "consumerGroup": "G", "unknown": "x"}):
                if (code, server) == (RequestCode.END_TRANSACTION, "broker"):
                    continue  # by role: tests/broker/sending/test_not_here.py
                answer = handler.on_request(RemotingCommand(code=code, opaque=7, ext_fields=fields), peer)
                assert isinstance(answer, RemotingCommand), "not later"
                assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                assert (answer.remark or "").startswith(f" request type {code} not supported: there ")
                assert says in (answer.remark or "")


def test_every_code_that_waits_for_a_feature_is_in_the_table() -> None:
    waiting = {code for code, row in LISTED.items() if "not yet" in row.values() and "of their own" in row["why"]}
    waiting |= {code for code, row in LISTED.items() if row["why"] == "As 3001."}
    assert waiting - {RequestCode.RECALL_MESSAGE} <= {code for codes in FEATURES.values() for code in codes}


def _server(name: str, folder: Path) -> tuple[Handler, frozenset[int]]:
    """What answers requests, and the codes in its table."""
    if name == "broker":
        table = BrokerApp(settings_for(folder / "broker")).core.processor_table
        return table, table.codes
    if name == "name server":
        api = NameServerDoor(folder / "namesrv").api
        return api, api.codes
    controller = ControllerApi(ControllerDoor(folder / "controller", {}, LIMITS).service)
    return controller, controller.codes
