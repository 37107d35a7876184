"""A native group under load, verified while it writes and hands over: its sidecars and its files never show a
difference below the confirm offset."""

import asyncio
from pathlib import Path

import pytest

from rocketmq_demo.ports import HOST, PortPool
from rocketmq_verify.domain.model import Chunk, ReplicaLog, ReplicaName
from rocketmq_verify.sources.open_source import open_source
from rocketmq_verify.sources.source import Source, SourceOptions
from tests.processes.replica_group import Member, Sender, group

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

CHUNK = 64 * 1024


def sources_of(members: list[Member]) -> list[Source]:
    return [
        open_source(ReplicaName(f"{member.replica.folder.name}-{kind}"), spec, SourceOptions(patience=60.0))
        for member in members
        for kind, spec in (
            ("files", f"files:{member.replica.folder}/store"),
            ("sidecar", f"sidecar:{member.client.address}"),
        )
    ]


def verify(sources: list[Source]) -> tuple[list[ReplicaLog], int]:
    """All logs, and how many chunks are equal in all of them. Raises `AssertionError` if one differs."""
    logs = [source.describe() for source in sources]
    for log in logs:
        assert log.min_offset <= log.confirm_offset <= log.max_offset, log
        assert log.epochs.entries
    begin = max(log.min_offset for log in logs)
    end = min(max(log.confirm_offset for log in logs), *(log.max_offset for log in logs))
    chunks = [Chunk(start, min(CHUNK, end - start), 0) for start in range(begin, end, CHUNK)]
    digests = [[one.digest for one in source.digests(chunks)] for source in sources]
    for chunk, *copies in zip(chunks, *digests, strict=True):
        assert len(set(copies)) == 1, (chunk, copies, logs)
        assert None not in copies
    return logs, len(chunks)


async def test_logs_are_equal_while_they_are_written(tmp_path: Path, ports: PortPool) -> None:
    async with group(tmp_path, ports) as replicas:
        master = await replicas.settled()
        sources = sources_of(replicas.members)
        try:
            async with Sender(replicas.name_server) as sender:
                await sender.more()
                for number in range(12):
                    if number % 4 == 3:
                        await master.client.hand_over(seconds=20.0)
                        master = await replicas.settled()
                    await asyncio.to_thread(verify, sources)
                    await sender.more(20)
                master = await replicas.settled()
            logs, chunks = await asyncio.to_thread(verify, sources)
        finally:
            for source in sources:
                source.close()
        assert chunks > 0
        assert [log.master for log in logs].count(True) == 1
        assert {log.strict for log in logs if log.name.endswith("sidecar")} == {True}
        assert len({tuple(log.epochs.starts()) for log in logs}) == 1
        assert len({log.segment_size for log in logs}) == 1
        assert master.client.address.startswith(HOST)
