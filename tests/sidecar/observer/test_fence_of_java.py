"""A fence beside an official broker: refused at once, durable, and put back as it was, whatever restarts in between."""

from pathlib import Path

import pytest

from rocketmq_api.replica_view import ReplicaRole
from rocketmq_sidecar.domain.observing.fence import FOREVER_MS, changes, permission, to_remember
from rocketmq_sidecar.observer.broker import BrokerError, BrokerGoneError
from rocketmq_sidecar.ports.replica_admin import NotDoneError, NotNowError
from tests.sidecar.observer.fakes import NOW_MS, JavaGroup, Sidecar, keep_identity, now_ms

FENCED = {"startAcceptSendRequestTimeStamp": str(FOREVER_MS), "brokerPermission": "4"}
OPEN = {"startAcceptSendRequestTimeStamp": "0", "brokerPermission": "6"}


@pytest.mark.parametrize(
    ("fenced", "refuses", "now", "before", "needed"),
    [
        (True, 0, 6, None, FENCED),
        (True, FOREVER_MS, 4, 6, {}),
        (True, FOREVER_MS, 6, 6, FENCED),  # the permission was restored by hand
        (True, 0, 4, 6, FENCED),  # sends were accepted again by hand
        (True, 0, 2, None, {**FENCED, "brokerPermission": "0"}),
        (False, 0, 6, None, {}),
        (False, 0, 4, None, {}),  # read-only, set by hand
        (False, 12345, 6, None, {}),  # a hand-over, or set by hand
        (False, FOREVER_MS, 4, 6, OPEN),
        (False, FOREVER_MS, 4, 4, {**OPEN, "brokerPermission": "4"}),
        (False, FOREVER_MS, 4, None, OPEN),  # the note was lost
    ],
)
def test_what_has_to_change(fenced: bool, refuses: int, now: int, before: int | None, needed: dict[str, str]) -> None:
    assert changes(fenced=fenced, refuses_until_ms=refuses, permission=now, before=before) == needed


@pytest.mark.parametrize(
    ("refuses", "now", "before", "remembered"),
    [(0, 6, None, 6), (0, 4, None, 4), (FOREVER_MS, 4, 6, 6), (FOREVER_MS, 4, None, None), (0, 4, 6, 6), (0, 6, 4, 6)],
)
def test_what_is_put_back_in_the_end(refuses: int, now: int, before: int | None, remembered: int | None) -> None:
    assert to_remember(refuses_until_ms=refuses, permission=now, before=before) == remembered


@pytest.mark.parametrize(("text", "number"), [("4", 4), ("", 6), ("x", 6), ("9999", 6)])
def test_permission_that_cannot_be_read_is_javas_default(text: str, number: int) -> None:
    assert permission({"brokerPermission": text}) == number


@pytest.mark.looptime
async def test_fence_and_its_end(tmp_path: Path) -> None:
    keep_identity(tmp_path)
    group = JavaGroup()
    seen = Sidecar(tmp_path, group)
    await seen.poll()
    java = group.brokers[1]

    view = await seen.set_fenced(fenced=True, reason="disk is being changed")
    assert (view.fenced, view.fence_reason) == (True, "disk is being changed")
    assert NOW_MS < view.fenced_at_millis <= now_ms()
    assert view.role is ReplicaRole.MASTER
    assert view.ready_reason == "", "reads go on"
    assert (java.permission, java.takes_sends) == (4, False)
    await seen.set_fenced(fenced=True, reason="disk is being changed")
    await seen.poll()
    assert java.told == [FENCED]

    view = await seen.set_fenced(fenced=False, reason="")
    assert (view.fenced, view.fence_reason, view.fenced_at_millis) == (False, "", 0)
    assert (java.permission, java.takes_sends) == (6, True)
    await seen.poll()
    assert java.told == [FENCED, OPEN]


@pytest.mark.looptime
@pytest.mark.parametrize("writable_file", [False, True])
async def test_fence_holds_through_restarts_of_both(tmp_path: Path, writable_file: bool) -> None:
    """Java keeps the change in its file if it can write it, and has forgotten it after a restart if it cannot."""
    keep_identity(tmp_path)
    group = JavaGroup(writable_file=writable_file)
    java = group.brokers[1]
    java.configuration["brokerPermission"] = "2"  # an unusual wish of its owner, to be put back in the end
    java.file["brokerPermission"] = "2"
    seen = Sidecar(tmp_path, group)
    await seen.poll()
    await seen.set_fenced(fenced=True, reason="why")
    for _ in range(2):
        java.restart()
        seen = Sidecar(tmp_path, group)
        await seen.poll()
        assert (java.permission, java.takes_sends) == (0, False)
    await seen.set_fenced(fenced=False, reason="")
    java.restart()
    await seen.poll()
    assert (java.permission, java.takes_sends) == (2, True)


@pytest.mark.looptime
async def test_a_fence_is_saved_before_the_broker_can_obey_it(tmp_path: Path) -> None:
    keep_identity(tmp_path)
    group = JavaGroup()
    java = group.brokers[1]
    java.trouble = BrokerGoneError("the broker does not listen")
    seen = Sidecar(tmp_path, group)
    await seen.poll()
    view = await seen.set_fenced(fenced=True, reason="why")
    assert (view.fenced, view.broker_connected) == (True, False)

    seen = Sidecar(tmp_path, group)
    java.trouble = None
    await seen.poll()
    assert not java.takes_sends


@pytest.mark.looptime
async def test_end_of_a_fence_that_did_not_reach_the_broker(tmp_path: Path) -> None:
    keep_identity(tmp_path)
    group = JavaGroup(writable_file=True)
    java = group.brokers[1]
    seen = Sidecar(tmp_path, group)
    await seen.poll()
    await seen.set_fenced(fenced=True, reason="why")
    java.trouble = BrokerGoneError("the broker does not listen")
    await seen.poll()
    await seen.set_fenced(fenced=False, reason="")
    java.trouble = None
    java.restart()
    await Sidecar(tmp_path, group).poll()
    assert (java.permission, java.takes_sends) == (6, True)


@pytest.mark.looptime
async def test_a_broker_that_refuses_its_new_settings(tmp_path: Path) -> None:
    keep_identity(tmp_path)
    group = JavaGroup()
    seen = Sidecar(tmp_path, group)
    await seen.poll()

    async def refuse(*_: object) -> None:
        raise BrokerError("Can not update config in black list.")

    group.configure = refuse  # type: ignore[method-assign] # the one call that is to fail
    with pytest.raises(NotDoneError, match=r"the fence is saved and will be applied again; for now .* black list"):
        await seen.set_fenced(fenced=True, reason="why")
    assert seen.get_replica().fenced


@pytest.mark.looptime
async def test_damaged_note_changes_nothing(tmp_path: Path) -> None:
    keep_identity(tmp_path)
    group = JavaGroup()
    group.brokers[1].configuration.update(FENCED)
    (tmp_path / ".sidecar.observed").write_bytes(b"{")
    seen = Sidecar(tmp_path, group)
    for _ in range(2):
        await seen.poll()
    with pytest.raises(NotNowError, match="remove it"):
        await seen.set_fenced(fenced=False, reason="")
    assert group.brokers[1].told == []
    assert "remove it" in seen.get_replica().ready_reason


@pytest.mark.looptime
async def test_fence_that_cannot_be_read_is_one(tmp_path: Path) -> None:
    keep_identity(tmp_path)
    (tmp_path / ".fenced").write_bytes(b"{")
    group = JavaGroup()
    seen = Sidecar(tmp_path, group)
    await seen.poll()
    assert not group.brokers[1].takes_sends
    assert "cannot be read" in seen.get_replica().fence_reason
    assert not (await seen.set_fenced(fenced=False, reason="")).fenced
    assert group.brokers[1].takes_sends


@pytest.mark.looptime
async def test_a_broker_that_takes_long_to_accept_its_new_settings(tmp_path: Path) -> None:
    keep_identity(tmp_path)
    group = JavaGroup()
    seen = Sidecar(tmp_path, group)
    await seen.poll()
    group.answer = 3.0
    with pytest.raises(
        NotDoneError, match="the fence is saved and will be applied again; for now the broker has not answered"
    ):
        await seen.set_fenced(fenced=True, reason="why")
    await seen.poll()
    assert not group.brokers[1].takes_sends


@pytest.mark.looptime
async def test_fence_before_the_brokers_first_start(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    group = JavaGroup()
    group.brokers[1].trouble = BrokerGoneError("the broker does not listen")
    seen = Sidecar(folder, group)
    await seen.poll()
    assert (await seen.set_fenced(fenced=True, reason="why")).fenced
    keep_identity(folder)
    group.brokers[1].trouble = None
    await seen.poll()
    assert not group.brokers[1].takes_sends
