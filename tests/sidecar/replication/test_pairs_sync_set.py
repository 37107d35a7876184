"""Replicas with real stores and sockets: who is in sync, who counts, and connections that come and go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rocketmq_formats.replication.frames import SlaveHandshake, encode_ack, encode_slave_handshake
from tests.sidecar.replication.replica_kit import acknowledged, in_sync, replicas


async def test_the_newest_connection_of_an_id_wins(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        reader, writer = await asyncio.open_connection("127.0.0.1", one.replication.ha_port)
        writer.write(encode_slave_handshake(SlaveHandshake(2)) + encode_ack(one.end))
        server = one.replication._server
        assert server is not None
        # Both connect again and again; there is never more than one, and no slave leaves the set.
        await reader.readexactly(20 + 12)
        assert len([c for c in server.connections if c.session.slave is not None]) == 1
        assert {1, 2} == server.mastership.sync_set.members  # type: ignore[union-attr]  # it is master
        writer.close()
        await writer.wait_closed()


@pytest.mark.usefixtures("with_and_without_secret")
async def test_a_closed_connection_shrinks_the_set_at_once(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3) as (one, two, three):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two, three)
        one.agree_at_once = False
        await two.replication.stop()
        await one.until(lambda: one.wishes[-1] == {1, 3})
        one.append(b"second")
        await three.until(lambda: three.end == one.end)
        assert one.progress.acked_offset < one.end  # 2 counts until the controllers agreed
        one.agree(1, 3)
        await acknowledged(one)
        await three.replication.stop()
        await one.until(lambda: one.progress.in_sync == 1)
        one.append(b"third")
        assert one.progress.acked_offset < one.end  # strict: one copy is not enough
        assert one.wishes[-1] == {1, 3}  # and 3 has everything acknowledged, so it stays electable


@pytest.mark.usefixtures("with_and_without_secret")
async def test_learners_copy_and_stay_outside(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, async_learner=True) as (one, two):
        await one.lead(1, 1)
        await two.follow(one, 1)
        one.append(b"first")
        await two.until(lambda: two.end == one.end)
        assert one.wishes == []


async def test_nothing_is_acknowledged_without_slaves_that_are_proposed_again(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        one.agree_at_once = False
        _, writer = await asyncio.open_connection("127.0.0.1", one.replication.ha_port)
        writer.write(encode_slave_handshake(SlaveHandshake(3)) + encode_ack(one.end))
        await one.until(lambda: one.wishes[-1] == {1, 2, 3})
        held = one.progress.acked_offset
        one.append(b"that the third one does not acknowledge")
        await two.until(lambda: two.end == one.end)
        server = one.replication._server
        assert server is not None
        assert server.mastership is not None
        async with asyncio.timeout(20):
            while server.mastership.acks[2] < one.end:
                await asyncio.sleep(0)
        one.agree(1, 2)
        assert one.wishes[-2:] == [{1, 2, 3}, {1, 2, 3}]
        assert one.progress.acked_offset == held
        writer.close()
        await writer.wait_closed()


@pytest.mark.usefixtures("with_and_without_secret")
async def test_slaves_of_a_master_that_is_elected_again_are_proposed_at_once(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        one.wishes.clear()
        await one.lead(2, 1)
        await one.until(lambda: bool(one.wishes))
        assert one.wishes == [{1, 2}]


@pytest.mark.usefixtures("with_and_without_secret")
async def test_a_master_that_skips_an_epoch_counts_no_acknowledgement_of_before(tmp_path: Path) -> None:
    """Another replica may have been master in between, and the slave may have truncated to its log."""
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        await one.lead(3, 1, 2)
        server = one.replication._server
        assert server is not None
        assert server.mastership is not None
        assert (server.mastership.acks, server.connections) == ({}, {})
        one.append(b"second")
        assert one.progress.acked_offset == 0
        await two.follow(one, 3)
        await acknowledged(one)


@pytest.mark.usefixtures("with_and_without_secret")
async def test_a_slave_waits_until_the_master_has_begun_the_epoch(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1, 2)
        one.append(b"first")
        await two.follow(one, 3)
        await two.until(lambda: bool(two.troubles))
        assert "still in epoch 1, it was elected for 3" in (two.troubles[-1] or "")
        assert (two.end, one.progress.acked_offset) == (0, 0)
        await one.lead(3, 1, 2)
        await acknowledged(one)


async def test_a_slave_is_proposed_when_the_broker_reports_that_it_has_the_tables(tmp_path: Path) -> None:
    async with replicas(tmp_path, 3) as (one, two, three):
        await one.lead(1, 1)
        one.append(b"first")
        await in_sync(one, two)
        one.copies = False
        one.wishes.clear()
        await three.follow(one, 1)
        await one.until(lambda: 3 in one.progress.joins)
        (join,) = one.progress.joins.values()
        one.append(b"second")
        await acknowledged(one)  # without 3, which is no member yet
        one.replication.copied(0, frozenset({join}))  # of another epoch
        assert (one.wishes, one.progress.members) == ([], {1, 2})
        one.replication.copied(1, frozenset({join}))
        assert one.wishes == [{1, 2, 3}]
        await one.until(lambda: one.progress.members == {1, 2, 3} and not one.progress.joins)


async def test_a_relaxed_master_does_not_wait_for_tables(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2, durability="relaxed") as (one, two):
        one.copies = False
        await one.lead(1, 1)
        await two.follow(one, 1)
        await one.until(lambda: one.progress.members == {1, 2})
        assert one.wishes[-1] == {1, 2}


async def test_official_slaves_are_named(tmp_path: Path) -> None:
    async with replicas(tmp_path, 2) as (one, two):
        await one.lead(1, 1)
        one.append(b"first")
        _, writer = await asyncio.open_connection("127.0.0.1", one.replication.ha_port)
        writer.write(encode_slave_handshake(SlaveHandshake(2)) + encode_ack(one.end))
        await one.until(lambda: one.progress.officials == {2})
        writer.close()
        await writer.wait_closed()
        await two.follow(one, 1)  # it was replaced by a native one
        await one.until(lambda: one.progress.members == {1, 2} and not one.progress.officials)
