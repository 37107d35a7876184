"""How long a connection waits: for a broker that has stopped dispatching, and for the look at the log's end."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from rocketmq_formats.replica_link import LogState
from rocketmq_sidecar.audit.audit_link import AuditLink
from rocketmq_sidecar.audit.compared_files import ComparedFiles
from rocketmq_sidecar.audit.log_audit import COMPARE_SECONDS, DamageFoundError, LogAudit
from rocketmq_sidecar.domain.replication.log_judge import LogsDivergedError
from rocketmq_sidecar.replication.audit_watch import HOLD_FIRST, HOLD_LAST, AuditWatch, DispatchingStoppedError
from rocketmq_sidecar.replication.ha_client import MasterConnection
from rocketmq_store.log.segments import MappedFiles

pytestmark = pytest.mark.looptime

STOPPED = LogState(damage=100, reason="no record", stopped=True)
END = 1000


async def unreachable() -> AuditLink:
    raise ConnectionRefusedError


def an_audit_watch(on_repaired: Callable[[int, int], None] = lambda _start, _end: None) -> AuditWatch:
    files = SimpleNamespace(forget=lambda offset: None)
    return AuditWatch(
        LogAudit(
            cast("ComparedFiles", files),
            bytes_per_second=1,
            on_repaired=on_repaired,
            on_suspected=lambda offset: None,
        )
    )


@pytest.fixture
def watch() -> AuditWatch:
    return an_audit_watch()


async def connect(watch: AuditWatch) -> float:
    """Seconds until a new connection may acknowledge. Raises `DispatchingStoppedError`."""
    connection = cast("MasterConnection", SimpleNamespace(aligned=False, ended=asyncio.Event()))
    watch.watch(connection, cast("MappedFiles", SimpleNamespace(min_offset=0)), unreachable)
    assert connection.before_acknowledging is not None
    began = asyncio.get_running_loop().time()
    await connection.before_acknowledging(END)
    return asyncio.get_running_loop().time() - began


async def held(watch: AuditWatch) -> float:
    """Seconds that a connection waits for nothing."""
    began = asyncio.get_running_loop().time()
    with pytest.raises(DispatchingStoppedError):
        await connect(watch)
    return asyncio.get_running_loop().time() - began


async def test_each_connection_waits_longer(watch: AuditWatch) -> None:
    watch.on_log_state(STOPPED)
    assert [await held(watch) for _ in range(8)] == [HOLD_FIRST, 2, 4, 8, 16, 32, HOLD_LAST, HOLD_LAST]


async def test_a_broker_that_continues_ends_the_wait(watch: AuditWatch) -> None:
    watch.on_log_state(STOPPED)
    await held(watch)
    asyncio.get_running_loop().call_later(0.25, watch.on_log_state, LogState())
    assert await connect(watch) == 0.25


async def test_a_broker_tries_again_although_the_master_cannot_be_asked() -> None:
    """Nothing arrives before it continues, so nothing else would make it dispatch."""

    def try_again(start: int, end: int) -> None:
        assert (start, end) == (STOPPED.damage, STOPPED.damage)
        asyncio.get_running_loop().call_later(0.25, watch.on_log_state, LogState())

    watch = an_audit_watch(try_again)
    watch.on_log_state(STOPPED)
    assert await connect(watch) == 0.25


async def test_after_the_broker_has_continued_without_a_connection_the_first_wait_is_short_again(
    watch: AuditWatch,
) -> None:
    watch.on_log_state(STOPPED)
    for _ in range(5):
        await held(watch)
    watch.on_log_state(LogState())
    watch.on_log_state(STOPPED)
    assert await held(watch) == HOLD_FIRST


async def first_look(audit: LogAudit, monkeypatch: pytest.MonkeyPatch, *ends: Exception | None) -> list[str]:
    """What happens before a connection's first acknowledgement; `ends`: of the comparisons, None: it takes too long."""
    did: list[str] = []
    comparisons = iter(ends)

    async def repair(*_: object) -> bool:
        did.append("repair")
        return False

    async def compare(*_: object, **__: object) -> None:
        did.append("compare")
        if (end := next(comparisons)) is not None:
            raise end
        await asyncio.sleep(2 * COMPARE_SECONDS)

    monkeypatch.setattr(audit, "repair", repair)
    monkeypatch.setattr(audit, "compare", compare)
    await audit.compare_and_repair(cast("AuditLink", None), cast("MappedFiles", None), END)
    return did


async def test_known_damage_is_repaired_first_and_nothing_is_asked_over_a_link_that_took_too_long(
    watch: AuditWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be in the middle of an answer."""
    ends = (DamageFoundError("found"), None)
    assert await first_look(watch.audit, monkeypatch, *ends) == ["repair", "compare", "repair", "compare"]
    assert await first_look(watch.audit, monkeypatch) == ["repair"]


@pytest.mark.parametrize(("error", "over"), [(ConnectionResetError(), True), (LogsDivergedError("two"), False)])
async def test_a_comparison_that_failed_is_not_repeated_with_each_connection(
    watch: AuditWatch, monkeypatch: pytest.MonkeyPatch, error: Exception, over: bool
) -> None:
    with pytest.raises(type(error)):
        await first_look(watch.audit, monkeypatch, error)
    assert watch.audit.has_compared_first is over
