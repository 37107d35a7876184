"""durability=relaxed: a master acknowledges alone; nothing but its lease keeps it from that once another is elected."""

import pytest

from rocketmq_runtime.config.settings import SettingsError, build_settings
from rocketmq_sidecar.settings import SidecarSettings
from tests.sidecar.world.world import STEP, settled

LEASE = 1.05 * 2.0
"""Seconds, as announced."""


def test_connection_closed_under_a_master_with_a_lease_waits_for_its_end() -> None:
    world = settled(relaxed=True, seconds=3)
    world.kill(world.master())
    killed_at = world.now
    world.run_until(lambda: bool(world.accepting()), seconds=10)
    assert LEASE / 2 < world.now - killed_at <= LEASE + 2 * STEP


def test_strict_master_is_replaced_at_once() -> None:
    world = settled(relaxed=False, seconds=3)
    master = world.master()
    world.kill(master)
    assert world.master() is not master


def test_a_lease_returned_at_an_orderly_stop_delays_no_election() -> None:
    world = settled(relaxed=True, seconds=3)
    master = world.master()
    world.stop(master)
    assert world.master() is not master


def test_lease_of_a_new_epoch_begins_with_a_heartbeat_that_announces_it() -> None:
    world = settled(relaxed=True, seconds=3)
    world.stop(world.master())
    world.run_until(lambda: bool(world.accepting()))
    entry = world.controllers.heartbeats.entry("broker-a", world.master().broker_id)
    assert entry is not None
    assert entry.lease == LEASE


def test_slaves_announce_no_lease() -> None:
    world = settled(relaxed=True, seconds=3)
    master = world.master()
    for node in world.nodes:
        entry = world.controllers.heartbeats.entry("broker-a", node.broker_id)
        assert entry is not None
        assert (entry.lease > 0) == (node is master)


def test_controllers_know_who_would_take_a_lease_as_master() -> None:
    for relaxed in (False, True):
        world = settled(relaxed=relaxed, seconds=3)
        entries = [world.controllers.heartbeats.entry("broker-a", node.broker_id) for node in world.nodes]
        assert [entry and entry.takes_leases for entry in entries] == [relaxed] * 3


def test_lease_that_a_new_leading_controller_would_not_wait_for_is_refused() -> None:
    values = {"controllerAddr": "127.0.0.1:1", "brokerName": "a", "brokerLeaseTimeoutMs": "4762"}
    assert build_settings(SidecarSettings, values).settings.broker_lease_timeout_ms == 4762
    with pytest.raises(SettingsError, match="at most 4761 with durability=relaxed"):
        build_settings(SidecarSettings, {**values, "durability": "relaxed"})
