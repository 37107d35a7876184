"""Replicas with real stores and sockets: copying, acknowledging, joining, changing roles."""

from __future__ import annotations

from pathlib import Path

from tests.sidecar.replication.replica_kit import replicas


async def test_copies_and_acknowledges(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"before", b"anybody", b"follows")
        await two.follow(one, 1)
        await one.until(lambda: one.progress.in_sync == 2)
        for number in range(2000):
            one.append(b"%d" % number * 10)
        await one.until(lambda: one.progress.acked_offset == one.end)
        assert two.end == one.end
        assert two.log() == one.log()
        assert one.wishes == [{1, 2}]
        assert (tmp_path / "2" / "epochFileCheckpoint").read_text().splitlines()[2:] == ["1-0"]
