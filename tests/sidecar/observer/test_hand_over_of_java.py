"""An official master's hand-over, in virtual time: to whom, when, and that sends are taken again however it ends."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from rocketmq_api.replica_view import NewMaster
from rocketmq_sidecar.domain.observing.hand_over import CatchUpWatch, NoTargetError, candidates
from rocketmq_sidecar.domain.observing.status import GroupStatus
from rocketmq_sidecar.observer.broker import BrokerError
from rocketmq_sidecar.ports.replica_admin import NotDoneError, NotNowError, UnderWayError
from tests.sidecar.observer.fakes import JavaGroup, Sidecar, keep_identity


async def standing(folder: Path, group: JavaGroup) -> Sidecar:
    keep_identity(folder)
    seen = Sidecar(folder, group)
    await seen.poll()
    return seen


# Whom


GROUP = GroupStatus(
    master_id=1,
    master_epoch=1,
    sync_state_set_epoch=1,
    in_sync=frozenset({1, 3, 4}),
    addresses={one: f"a:{one}" for one in (1, 2, 3, 4)},
    alive=frozenset({1, 2, 3}),
)


def test_candidates_are_alive_and_in_sync() -> None:
    assert candidates(GROUP, 1, None) == (3,)
    assert candidates(GROUP, 1, 3) == (3,)
    for wanted, reason in (
        (1, "master already"),
        (9, "no brokerId 9"),
        (2, "not in the SyncStateSet"),
        (4, "not alive"),
    ):
        with pytest.raises(NoTargetError, match=reason):
            candidates(GROUP, 1, wanted)
    with pytest.raises(
        NoTargetError, match=r"no other replica is alive and in the SyncStateSet \(others: \[1, 2, 4\]\)"
    ):
        candidates(msgspec.structs.replace(GROUP, alive=frozenset({3})), 3, None)


def test_level_needs_a_log_that_stands_still() -> None:
    level = CatchUpWatch()
    assert level.on_round(1000, 0, {2: 900, 3: 800}, {}) is None
    assert level.behind == "the furthest lacks 100 bytes"
    assert level.on_round(1000, 2, {2: 1000}, {}) is None
    assert level.behind == "2 sends wait in the master"
    assert level.on_round(1000, 0, {}, {}) is None
    assert level.behind == "no candidate answers"
    assert level.on_round(1000, 0, {2: 1000}, {}) is None
    assert level.on_round(1100, 0, {2: 1100}, {}) is None
    assert level.on_round(1100, 0, {2: 1100}, {}) == 2


def test_slave_that_is_further_than_the_master_was_means_that_it_grows() -> None:
    """Elected without what the other has, it would have the other cut it off: 90 s with 5.3.3."""
    level = CatchUpWatch()
    assert level.on_round(1000, 0, {2: 1000, 3: 1000}, {}) is None
    assert level.on_round(1000, 0, {2: 1000, 3: 1100}, {}) is None
    assert level.on_round(1100, 0, {2: 1000, 3: 1100}, {}) == 3


def test_what_a_broker_writes_for_itself_does_not_hold_it_up_for_ever() -> None:
    level = CatchUpWatch()
    ends = (1000 + 10 * number for number in range(100))
    rounds = next(number for number, end in enumerate(ends) if level.on_round(end, 0, {2: end, 3: end + 10}, {}))
    assert rounds == 9
    assert level.on_round(3000, 0, {2: 3000, 3: 3010}, {}) == 3


def test_lowest_priority_goes_first_among_equals() -> None:
    for priorities, first in (({}, 2), ({3: 1}, 3), ({2: 5, 3: 5}, 2)):
        level = CatchUpWatch()
        assert level.on_round(1000, 0, {2: 1000, 3: 1000}, priorities) is None
        assert level.on_round(1000, 0, {2: 1000, 3: 1000}, priorities) == first


# How


@pytest.mark.looptime
async def test_handed_over_and_open_again(tmp_path: Path) -> None:
    group = JavaGroup()
    group.brokers[3].end = 900  # in the set, and not level
    seen = await standing(tmp_path, group)
    assert await seen.hand_over(None, 5) == NewMaster(2, 2)
    java = group.brokers[1]
    assert [int(one["startAcceptSendRequestTimeStamp"]) > 0 for one in java.told] == [True, False]
    assert java.takes_sends
    assert java.permission == 6
    assert asyncio.get_running_loop().time() < 0.2
    await seen.poll()
    assert seen.standing.role == "slave"


@pytest.mark.looptime
async def test_sends_are_refused_until_the_target_has_everything(tmp_path: Path) -> None:
    group = JavaGroup()
    seen = await standing(tmp_path, group)
    group.brokers[1].end = 5000

    def replicate() -> None:
        if group.master_id == 1:
            assert not group.brokers[1].takes_sends
            group.brokers[2].end = min(group.brokers[2].end + 500, 5000)
        else:
            assert group.brokers[2].end == 5000

    group.on_round = replicate
    assert await seen.hand_over(2, 5) == NewMaster(2, 2)


@pytest.mark.looptime
async def test_slave_that_stays_behind(tmp_path: Path) -> None:
    group = JavaGroup()
    seen = await standing(tmp_path, group)
    group.brokers[1].end = 5000
    with pytest.raises(NotDoneError, match="the furthest lacks 4000 bytes"):
        await seen.hand_over(2, 5)
    assert 3 <= asyncio.get_running_loop().time() < 3.2, "with time left for an election"
    assert group.brokers[1].takes_sends
    assert group.master_id == 1


@pytest.mark.looptime
async def test_candidate_that_hangs_is_left_out(tmp_path: Path) -> None:
    group = JavaGroup()
    seen = await standing(tmp_path, group)
    group.brokers[2].trouble = BrokerError("no answer")
    assert await seen.hand_over(None, 5) == NewMaster(3, 2)


@pytest.mark.looptime
async def test_refusal_ends_by_itself(tmp_path: Path) -> None:
    """The sidecar dies in the middle and cannot have the broker accept sends again."""
    group = JavaGroup()
    seen = await standing(tmp_path, group)
    group.brokers[1].end = 5000
    task = asyncio.create_task(seen.hand_over(2, 5))
    await asyncio.sleep(1)
    assert not group.brokers[1].takes_sends
    group.brokers[1].trouble = BrokerError("cut off")
    with pytest.raises(NotDoneError):
        await task
    assert not group.brokers[1].takes_sends
    await asyncio.sleep(2)
    assert group.brokers[1].takes_sends


@pytest.mark.looptime
async def test_election_that_is_refused(tmp_path: Path) -> None:
    group = JavaGroup()
    group.refusal = "Failed to elect a new master (code 2012)"
    seen = await standing(tmp_path, group)
    with pytest.raises(NotDoneError, match="did not elect 2: Failed to elect"):
        await seen.hand_over(None, 5)
    assert group.brokers[1].takes_sends


@pytest.mark.looptime
async def test_election_whose_answer_is_lost(tmp_path: Path) -> None:
    group = JavaGroup()
    group.answers_elections = False
    seen = await standing(tmp_path, group)
    assert await seen.hand_over(None, 5) == NewMaster(2, 2)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("what", "wanted", "reason"),
    [
        ("alone", None, "no other replica"),
        ("silent", None, "cannot query the controllers: nobody"),
        ("slave", None, "not master: slave"),
        ("behind", 3, "brokerId 3 is not in the SyncStateSet"),
        ("deposed", None, "2 is"),
        ("fenced", None, "fenced"),
    ],
)
async def test_refused_with_nothing_done(tmp_path: Path, what: str, wanted: int | None, reason: str) -> None:
    group = JavaGroup()
    if what == "alone":
        group.gone(2)
        group.gone(3)
    elif what == "slave":
        await group.elect(2)
        group.in_sync = frozenset({1, 2})
    elif what == "behind":
        group.in_sync = frozenset({1, 2})
    seen = await standing(tmp_path, group)
    if what == "silent":
        group.silent = "nobody"
    elif what == "deposed":
        group.master_id = 2
    elif what == "fenced":
        await seen.set_fenced(fenced=True, reason="why")
    group.brokers[1].told.clear()
    with pytest.raises(NotNowError, match=reason):
        await seen.hand_over(wanted, 5)
    assert group.brokers[1].told == []


@pytest.mark.looptime
async def test_one_at_a_time_and_not_undone_when_the_caller_goes(tmp_path: Path) -> None:
    group = JavaGroup()
    seen = await standing(tmp_path, group)
    caller = asyncio.create_task(seen.hand_over(2, 5))
    await asyncio.sleep(0.01)
    with pytest.raises(UnderWayError):
        await seen.hand_over(3, 5)
    caller.cancel()
    await asyncio.sleep(1)
    assert group.master_id == 2
    assert group.brokers[1].takes_sends


@pytest.mark.looptime
async def test_end_of_the_sidecar(tmp_path: Path) -> None:
    """A master's hands over, a slave's and a fenced one's do not; one that cannot ends nevertheless."""
    keep_identity(tmp_path)
    for fenced, silent, master in ((False, None, 2), (True, None, 1), (False, "nobody", 1)):
        group = JavaGroup()
        seen = Sidecar(tmp_path, group)
        seen.start()
        await asyncio.sleep(1)
        await seen.set_fenced(fenced=fenced, reason="why")
        group.silent = silent
        await seen.stop()
        assert group.master_id == master
        await seen.set_fenced(fenced=False, reason="")


@pytest.mark.looptime
async def test_master_since_the_last_poll(tmp_path: Path) -> None:
    keep_identity(tmp_path)
    for leave in (False, True):
        group = JavaGroup()
        await group.elect(2)
        group.in_sync = frozenset({1, 2, 3})
        seen = Sidecar(tmp_path, group)
        seen.start()
        await asyncio.sleep(25)  # idle
        await group.elect(1)
        group.in_sync = frozenset({1, 2, 3})
        assert seen.standing.role == "slave"
        if leave:
            await seen.stop()
            assert group.master_id == 2
        else:
            assert await seen.hand_over(3, 5) == NewMaster(3, 4)
            await seen.stop()


@pytest.mark.looptime
async def test_end_while_an_operator_hands_over(tmp_path: Path) -> None:
    group = JavaGroup()
    keep_identity(tmp_path)
    seen = Sidecar(tmp_path, group)
    seen.start()
    await asyncio.sleep(1)
    asked = asyncio.create_task(seen.hand_over(3, 5))
    await asyncio.sleep(0.01)
    await seen.stop()
    assert await asked == NewMaster(3, 2)


@pytest.mark.looptime
async def test_polls_become_rare_when_nothing_happens(tmp_path: Path) -> None:
    group = JavaGroup()
    keep_identity(tmp_path)
    seen = Sidecar(tmp_path, group)
    seen.start()
    await asyncio.sleep(60)
    before = group.looks
    await asyncio.sleep(60)
    assert group.looks - before == 20
    await group.elect(2)
    await asyncio.sleep(3)
    before = group.looks
    await asyncio.sleep(5)
    assert group.looks - before == 5
    await seen.stop()


@pytest.mark.looptime
async def test_a_slave_gets_its_new_masters_address(tmp_path: Path) -> None:
    """5.3.3 asks a name server, which may still name the old one."""
    group = JavaGroup()
    seen = await standing(tmp_path, group)
    await group.elect(2)
    group.brokers[1].ha_address = "ha-1"
    await seen.poll()
    assert group.brokers[1].ha_address == "ha-2"
    group.in_sync = frozenset({1, 2})
    group.brokers[1].ha_address = "somebody's own wish"
    await seen.poll()
    assert group.brokers[1].ha_address == "somebody's own wish"


@pytest.mark.looptime
async def test_short_silence_changes_nothing(tmp_path: Path) -> None:
    """A Java broker that collects garbage, or waits for a processor."""
    group = JavaGroup()
    seen = await standing(tmp_path, group)
    group.brokers[1].trouble = BrokerError("no answer")
    await asyncio.sleep(4)
    await seen.poll()
    assert seen.standing.role == "master"
    await asyncio.sleep(1)
    await seen.poll()
    assert (seen.standing.role, seen.observer.unready()) == ("unknown", "no answer")


@pytest.mark.looptime
async def test_hanging_broker(tmp_path: Path) -> None:
    group = JavaGroup()
    seen = await standing(tmp_path, group)
    group.brokers[1].trouble = BrokerError("no answer")
    await asyncio.sleep(9)
    await seen.poll()
    assert seen.observer.hung() is None
    await asyncio.sleep(2)
    assert seen.observer.hung() is not None
    group.gone(1)
    await seen.poll()
    assert seen.observer.hung() is None
