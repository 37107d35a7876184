"""Reports about copied tables (COPY_TABLES, 990001) that no replica sent: they acknowledge nothing and keep no one out.
Honest slaves work with and without the group's secret."""

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from rocketmq_broker.domain.role import Role
from rocketmq_broker.domain.tables.copy_reports import NO_COPY, Doubt, Mastership, Serials, held_by
from rocketmq_broker.tables import table_copies
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import HeaderError
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.replica_link import Copied, CopyKey, Following, Grant, Hello, Others, Prepare, Prepared, Welcome
from rocketmq_formats.table_copies import (
    NOTHING,
    CopyTablesRefusalHeader,
    CopyTablesRequestHeader,
    CopyTablesResponseHeader,
    acting_proof,
    copy_key,
    copy_proof,
)
from rocketmq_runtime.remoting.client import RemotingClient
from tests.broker.broker_kit import Group, running
from tests.broker.fake_sidecar import FOREVER
from tests.broker.tables.test_table_copies import commit_request, follow, in_sync, topic_request

SECRET = b"the secret of this group"
REQUIRED = CopyKey(copy_key(SECRET, b"group"), required=True)
INTRODUCED = CopyKey(copy_key(SECRET, b"group"), required=False)
OTHER = CopyKey(copy_key(b"the secret of another group", b"group"), required=True)
ALL = frozenset({1, 2, 3})
HUGE = 2**62


def report(number: int, token: str = "", serial: int = NOTHING) -> CopyTablesRequestHeader:
    return CopyTablesRequestHeader(broker_id=number, token=token, topics=serial, groups=serial, offsets=serial)


def copy(header: CopyTablesRequestHeader) -> RemotingCommand:
    return request(RequestCode.COPY_TABLES, header)


def news(answer: RemotingCommand) -> CopyTablesResponseHeader:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_header(CopyTablesResponseHeader, answer.ext_fields or {})


def proven(header: CopyTablesRequestHeader, key: CopyKey, nonce: str) -> CopyTablesRequestHeader:
    return msgspec.structs.replace(header, proof=copy_proof(key.key, nonce, header))


async def until(done: Callable[[], bool]) -> None:
    """Turns of the loop; the test's own limit ends it."""
    while not done():
        await asyncio.sleep(0.01)


async def nothing_is_acknowledged(master: Group) -> None:
    for command in (topic_request(), commit_request(7)):
        answer = await master.call(command)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "of the SyncStateSet have not copied it" in (answer.remark or "")


@asynccontextmanager
async def a_group(root: Path, *keys: CopyKey | None) -> AsyncIterator[tuple[Group, Group, Group]]:
    """A strict master and two slaves of its SyncStateSet; `keys` of each."""
    async with (
        running(root / "1", copy_key=keys[0]) as master,
        running(root / "2", master=False, copy_key=keys[1]) as second,
        running(root / "3", master=False, copy_key=keys[2]) as third,
    ):
        await in_sync(master)
        await follow(second, master.address, 2)
        await follow(third, master.address, 3)
        yield master, second, third


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_copies, "ADMIN_SECONDS", 0.3)


@pytest.mark.usefixtures("impatient")
async def test_serials_above_the_masters_release_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        await in_sync(master)
        with capture_logs() as logs:
            for number in (2, 3):
                token = news(await master.call(copy(report(number)))).token
                for serial in (1, HUGE):
                    answer = await master.call(copy(report(number, token, serial)))
                    assert answer.code == ResponseCode.INVALID_PARAMETER, answer.remark
        assert [line["broker_id"] for line in logs if line["log_level"] == "warning"] == [2], "one line, not each time"
        await nothing_is_acknowledged(master)


async def test_made_up_ids_take_no_memory_and_keep_no_slave_out(tmp_path: Path) -> None:
    async with running(tmp_path / "1") as master, running(tmp_path / "2", master=False) as slave:
        await in_sync(master, frozenset({1, 2}))
        for number in (*range(1000, 1300), 0, 1, -1, 3, 2**63 - 1):
            answer = await master.call(copy(report(number)))
            assert answer.code == ResponseCode.CONTROLLER_INVALID_REPLICAS, answer.remark
        copies = master.app.services._copies
        for table in (copies._holders._held, copies._pending, copies._copies, copies._delays_sent):
            assert not table
        await follow(slave, master.address)
        assert (await master.call(topic_request())).code == 0
        assert slave.app.topics.get("T") is not None


async def test_nobody_is_listened_to_before_the_members_are_known(tmp_path: Path) -> None:
    async with running(tmp_path) as master:
        await in_sync(master)
        master.sidecar.send(Others(2, ()))
        master.sidecar.send(Prepare(2))
        await master.sidecar.receive(Prepared)
        master.sidecar.send(Grant(2, FOREVER))
        await until(lambda: master.app.role.role is Role.MASTER)
        answer = await master.call(copy(report(2)))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_BUSY,
            "the sidecar has not sent the SyncStateSet yet",
        )


@pytest.mark.usefixtures("impatient")
async def test_a_slave_that_follows_in_a_later_epoch_releases_nothing(tmp_path: Path) -> None:
    """Another replica was master in between, and the other slave may have taken over its tables."""
    async with running(tmp_path / "1") as master, running(tmp_path / "2", master=False) as slave:
        await in_sync(master, frozenset({1, 2}))
        await slave.sidecar.receive(Hello)
        slave.sidecar.send(Welcome(2))
        slave.sidecar.send(Following(3, 1, master.address))
        await nothing_is_acknowledged(master)
        master.sidecar.epoch = 3
        master.sidecar.send(Others(3, ()))
        master.sidecar.send(Prepare(3))
        await master.sidecar.receive(Prepared)
        master.sidecar.send(Grant(3, FOREVER))
        await until(lambda: master.app.role.role is Role.MASTER)
        await in_sync(master, frozenset({1, 2}))
        assert (await master.call(topic_request("again"))).code == 0


async def test_a_slave_that_left_is_forgotten(tmp_path: Path) -> None:
    async with a_group(tmp_path, None, None, None) as (master, _, third):
        assert (await master.call(topic_request())).code == 0
        copies = master.app.services._copies
        await until(lambda: copies._pending.keys() == {2, 3})
        await in_sync(master, frozenset({1, 2}))
        assert copies._holders._held.keys() == copies._pending.keys() == copies._delays_sent.keys() == {2}
        # it copies whole tables meanwhile, like the slave of an official master
        assert (await master.call(topic_request("later"))).code == 0
        await until(lambda: third.app.topics.get("later") is not None)
        assert copies._holders._held.keys() == {2}
        master.sidecar.joins = {3: 1}
        await in_sync(master, frozenset({1, 2}))
        assert (await master.sidecar.receive(Copied, lambda message: bool(message.joins))).joins == {1}


@pytest.mark.parametrize(
    "keys",
    [
        (None, None, None),
        (REQUIRED, REQUIRED, REQUIRED),
        (INTRODUCED, REQUIRED, None),
        (None, REQUIRED, INTRODUCED),
    ],
    ids=["without a secret", "with it", "while it is introduced", "a master without it"],
)
async def test_honest_slaves_release_barriers(tmp_path: Path, keys: tuple[CopyKey | None, ...]) -> None:
    async with a_group(tmp_path, *keys) as (master, second, third):
        for epoch in (1, 2):
            if epoch == 2:  # elected again: its token and its nonces are new
                master.sidecar.epoch = 2
                master.sidecar.send(Others(2, ()))
                master.sidecar.send(Prepare(2))
                await master.sidecar.receive(Prepared)
                master.sidecar.send(Grant(2, FOREVER))
                await until(lambda: master.app.role.role is Role.MASTER)
                await in_sync(master)
            assert (await master.call(topic_request("T" * epoch))).code == 0
            assert (await master.call(commit_request(epoch))).code == 0
            for slave in (second, third):
                assert slave.app.topics.get("T" * epoch) is not None
                assert slave.app.tables.offsets.find("G", "T", 0) == epoch
        # connections break, and the nonce goes with them
        for slave in (second, third):
            slave.app.core.client._open[master.address].close()
        assert (await master.call(topic_request("again"))).code == 0
        # and one that is joining
        await in_sync(master, frozenset({1, 2}))
        master.sidecar.joins = {3: 1}
        await in_sync(master, frozenset({1, 2}))
        assert (await master.sidecar.receive(Copied, lambda message: bool(message.joins))).joins == {1}
        assert (await master.call(topic_request("joined"))).code == 0
        assert third.app.topics.get("joined") is not None


Forge = Callable[[Group, int], Awaitable[RemotingCommand]]


async def _unproven(master: Group, number: int) -> RemotingCommand:
    copies = master.app.services._copies
    return await master.call(copy(report(number, copies._token, 0)))


async def _wrong_key(master: Group, number: int) -> RemotingCommand:
    refused = await master.call(copy(report(number)))
    nonce = decode_header(CopyTablesRefusalHeader, refused.ext_fields or {}).nonce
    return await master.call(copy(proven(report(number), OTHER, nonce)))


async def _other_slaves(master: Group, number: int) -> RemotingCommand:
    refused = await master.call(copy(report(number)))
    nonce = decode_header(CopyTablesRefusalHeader, refused.ext_fields or {}).nonce
    stolen = proven(report(5 - number), REQUIRED, nonce).proof
    return await master.call(copy(msgspec.structs.replace(report(number), proof=stolen)))


async def _other_serials(master: Group, number: int) -> RemotingCommand:
    refused = await master.call(copy(report(number)))
    nonce = decode_header(CopyTablesRefusalHeader, refused.ext_fields or {}).nonce
    token = master.app.services._copies._token
    stolen = proven(report(number, token), REQUIRED, nonce).proof
    return await master.call(copy(msgspec.structs.replace(report(number, token, 0), proof=stolen)))


async def _recorded(master: Group, number: int) -> RemotingCommand:
    """What a slave sent over its own connection."""
    refused = await master.call(copy(report(number)))
    nonce = decode_header(CopyTablesRefusalHeader, refused.ext_fields or {}).nonce
    recorded = copy(proven(report(number), REQUIRED, nonce))
    other = RemotingClient()
    try:
        return await other.call(master.address, recorded, timeout=5)
    finally:
        await other.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("forge", [_unproven, _wrong_key, _other_slaves, _other_serials, _recorded])
async def test_forged_reports_release_nothing(tmp_path: Path, forge: Forge) -> None:
    async with running(tmp_path, copy_key=REQUIRED) as master:
        await in_sync(master)
        for number in (2, 3):
            answer = await forge(master, number)
            assert answer.code == ResponseCode.NO_PERMISSION, answer.remark
            assert "haReplicationSecretFile" in (answer.remark or "")
        assert not master.app.services._copies._holders._held
        await nothing_is_acknowledged(master)


@pytest.mark.usefixtures("impatient")
async def test_a_replica_without_the_secret_is_not_listened_to_where_it_is_required(tmp_path: Path) -> None:
    async with a_group(tmp_path, REQUIRED, REQUIRED, OTHER) as (master, second, third):
        answer = await master.call(topic_request())
        assert "replicas [3] of the SyncStateSet" in (answer.remark or "")
        assert second.app.topics.get("T") is not None
        assert third.app.topics.get("T") is None


def test_the_bytes_of_a_proof() -> None:
    key = copy_key(SECRET, b"group")
    assert key == hmac.digest(SECRET, b"key for table copies\0group", "sha256")
    header = CopyTablesRequestHeader(broker_id=2, token="ab", topics=5, groups=-1, offsets=7)
    words = b"proof of the copier\x00ab.17\x00ab\x002\x005\x00-1\x007"
    assert copy_proof(key, "ab.17", header) == hmac.digest(key, words, "sha256").hex()
    words = b"proof of the acting\x00ab.17\x00{}"
    assert acting_proof(key, "ab.17", b"{}") == hmac.digest(key, words, "sha256").hex()


@pytest.mark.parametrize("field", ["token", "proof"])
@pytest.mark.parametrize("text", ["x", "a" * 65, "a\0b", "a\n", "\u00e4", "\ud800"])
def test_what_is_no_token_and_no_proof(field: str, text: str) -> None:
    fields = {"brokerId": "2", "token": "", field: text}
    with pytest.raises(HeaderError):
        decode_header(CopyTablesRequestHeader, fields)


MASTER = Mastership("ab", Serials(5, 6, 7), frozenset({2, 3}), None, 4)


def test_what_a_master_believes() -> None:
    held = CopyTablesRequestHeader(broker_id=2, token="ab", topics=5, groups=6, offsets=7)
    assert held_by(held, "n", MASTER) == (5, 6, 7)
    assert held_by(msgspec.structs.replace(held, token="cd"), "n", MASTER) == NO_COPY
    assert held_by(msgspec.structs.replace(held, broker_id=4), "n", MASTER) is Doubt.OUTSIDER
    for ahead in ({"topics": 6}, {"groups": 7}, {"offsets": HUGE}):
        assert held_by(msgspec.structs.replace(held, **ahead), "n", MASTER) is Doubt.AHEAD
    assert held_by(msgspec.structs.replace(held, epoch=4), "n", MASTER) == (5, 6, 7)
    assert held_by(msgspec.structs.replace(held, epoch=5), "n", MASTER) is Doubt.PAST_EPOCH
    secret = msgspec.structs.replace(MASTER, key=REQUIRED)
    assert held_by(held, "n", secret) is Doubt.UNPROVEN
    assert held_by(proven(held, REQUIRED, "n"), "n", secret) == (5, 6, 7)
    assert held_by(proven(held, REQUIRED, "m"), "n", secret) is Doubt.UNPROVEN
    introduced = msgspec.structs.replace(MASTER, key=INTRODUCED)
    assert held_by(held, "n", introduced) == (5, 6, 7)
    assert held_by(proven(held, OTHER, "n"), "n", introduced) is Doubt.UNPROVEN
