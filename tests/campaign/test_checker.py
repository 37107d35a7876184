"""The campaign's checker finds each kind of broken promise, and reports none that was kept."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any, cast

import pytest

from tests.campaign.cluster import GroupState, Replica
from tests.campaign.defects import defects
from tests.campaign.faults import FAULTS
from tests.campaign.faults.hostile import odd_messages
from tests.campaign.judge import (
    Verdict,
    bodies,
    compare,
    compare_logs,
    find_early,
    find_lost,
    find_never_came,
    forgetful,
    log_bytes,
)
from tests.campaign.load import (
    QUEUES,
    ZEROS_EVERY,
    Acked,
    Commit,
    Delayed,
    FallenBack,
    History,
    body_of,
    number_of,
)
from tests.campaign.plan import FAULTS_OF_A_ROUND, SHORT, STORIES, Story, draw
from tests.campaign.report import faults, stories
from tests.campaign.runner import Outcome
from tests.campaign.watcher import Rules, Watch
from tests.campaign.wire import SUCCESS, Answer, records

GOLDEN = Path(__file__).parents[1] / "golden"


def acked(queue: int, offset: int, at: float = 1.0, place: int = 0) -> Acked:
    return Acked(queue, offset, at - 0.1, at, "10.231.0.2:10911", place)


def history(*promises: Acked) -> History:
    made = History()
    for number, promise in enumerate(promises):
        made.ack(number, promise)
    return made


def judged(known: History, place: dict[tuple[int, int], int], oldest: int = 0, deleted_before: int = 0) -> Verdict:
    verdict = Verdict()
    find_lost(known, place, {0: oldest, 1: oldest}, deleted_before, verdict)
    return verdict


def test_everything_where_it_was_promised_is_no_violation() -> None:
    verdict = judged(history(acked(0, 0), acked(1, 0)), {(0, 0): 0, (1, 0): 1})

    assert (verdict.lost, verdict.changed, verdict.twice) == ([], [], 0)


@pytest.mark.parametrize("place", [{(0, 0): 0}, {(0, 0): 0, (1, 0): 7}, {(0, 0): 0, (1, 5): 1}, {(0, 0): 0, (0, 1): 1}])
def test_a_message_that_is_not_exactly_where_it_was_promised_is_lost(place: dict[tuple[int, int], int]) -> None:
    verdict = judged(history(acked(0, 0), acked(1, 0)), place)

    assert len(verdict.lost) == 1
    assert "message 1 was acknowledged" in verdict.lost[0]


def test_what_expired_is_not_lost() -> None:
    known = history(acked(0, 0, place=100))
    known.seen = {(0, 0): 0}

    verdict = judged(known, {(0, 1): 5}, oldest=1, deleted_before=8192)

    assert verdict.lost == verdict.changed == []


def test_a_queue_that_lost_its_front_is_excused_by_no_later_beginning() -> None:
    known = history(acked(0, 0, place=100))
    known.seen = {(0, 0): 0}

    verdict = judged(known, {(0, 1): 5}, oldest=1)

    assert len(verdict.lost) == len(verdict.changed) == 1
    assert len(judged(known, {(0, 1): 5}, oldest=1, deleted_before=100).lost) == 1, "its file is still there"


class Stored:
    """A replica's commit log alone."""

    def __init__(self, folder: Path, name: str, files: dict[int, int]) -> None:
        self.name = name
        self.commit_log = folder / name
        self.commit_log.mkdir()
        for start, messages in files.items():
            (self.commit_log / f"{start:020d}").write_bytes(b"".join([MESSAGE] * messages))


MESSAGE = bytes.fromhex("0000005cdaa320a7") + bytes(84)


@pytest.mark.parametrize(
    ("files", "disk_was_full", "found"),
    [
        ({0: 3}, False, ""),
        ({0: 2}, False, "ends at 184, before the message acknowledged at 184"),
        ({92: 2}, False, "begins at 92, although no disk was full"),
        ({92: 2}, True, ""),
    ],
)
def test_a_log_has_to_begin_and_end_where_the_others_do(
    tmp_path: Path, files: dict[int, int], disk_was_full: bool, found: str
) -> None:
    known = history(acked(0, 0, place=184))
    known.disk_was_full = disk_was_full
    verdict = Verdict()

    compare_logs(
        [cast("Replica", Stored(tmp_path, name, mine)) for name, mine in (("b1", {0: 3}), ("b2", files))],
        known,
        verdict,
    )

    assert [text.removeprefix("the log of b2 ") for text in verdict.logs_differ] == ([found] if found else [])


def test_no_log_has_to_reach_a_message_that_was_lost_with_its_master(tmp_path: Path) -> None:
    known = history(acked(0, 0, place=92), acked(1, 1, place=400))
    verdict = judged(known, {(0, 0): 0})

    compare_logs([cast("Replica", Stored(tmp_path, name, {0: 3})) for name in ("b1", "b2")], known, verdict)

    assert len(verdict.lost) == 1
    assert verdict.logs_differ == []


def test_a_message_that_is_there_twice_is_counted() -> None:
    assert judged(history(acked(0, 0)), {(0, 0): 0, (0, 1): 0}).twice == 1


def test_what_a_consumer_saw_has_to_stay() -> None:
    known = history()
    known.saw(0, 3, 8)

    assert len(judged(known, {(0, 3): 9}).changed) == 1
    assert judged(known, {(0, 3): 8}).changed == []


def test_a_consumer_that_sees_two_messages_at_one_place_is_reported() -> None:
    known = history()
    known.saw(0, 3, 8)
    known.saw(0, 3, 9)

    assert len(known.changed) == 1


def test_a_body_that_has_changed_is_noticed() -> None:
    body = body_of(12, 100)

    assert number_of(body) == 12
    with pytest.raises(ValueError, match="12 has changed"):
        number_of(body[:-1] + bytes([body[-1] ^ 1]))


def test_some_bodies_are_zeros_as_a_crash_leaves_them_and_those_that_have_changed_are_noticed() -> None:
    numbers = range(ZEROS_EVERY * QUEUES)
    zeros = [number for number in numbers if body_of(number, 1000).endswith(bytes(1000))]

    assert {number % QUEUES for number in zeros} == set(range(QUEUES))
    assert [number_of(body_of(number, 1000)) for number in zeros] == zeros
    with pytest.raises(ValueError, match=f"{zeros[0]} has changed"):
        number_of(body_of(zeros[0], 1000)[:-1] + b"\x01")
    with pytest.raises(ValueError, match="12 has changed"):
        number_of(b"12:" + bytes(100))


def test_a_message_of_the_nemesis_has_no_number_and_replaces_no_other() -> None:
    fields, body = odd_messages("T", 0, 7)

    assert fields["e"] == 0
    assert number_of(body) is None


@pytest.mark.parametrize(("name", "judged_by"), [("strict", 8), ("official", 7), ("relaxed", 4)])
def test_a_story_is_judged_by_what_it_promises(name: str, judged_by: int) -> None:
    verdict = Verdict(
        lost=["lost"],
        changed=["changed"],
        early=["early"],
        late_lost=["never came"],
        fell_back=["rolled back"],
        logs_differ=["logs differ"],
        stuck="stuck",
        defects=["defect"],
    )
    (story,) = (story for story in STORIES if story.name == name)
    found = verdict.violations(story)

    assert len(found) == len(set(found)) == judged_by
    assert sorted(found) == sorted(itertools.chain.from_iterable(verdict.by_check(story).values()))
    assert len(verdict.by_check(story)) == judged_by


def test_a_delayed_message_may_be_late_but_never_early() -> None:
    known = history()
    known.delayed = {1: Delayed(2, 10.0, 10.1, 0), 2: Delayed(2, 10.0, 10.1, 0)}
    known.first_seen = {1: 14.9, 2: 25.0}
    verdict = Verdict()

    find_early(known, verdict)

    assert len(verdict.early) == 1
    assert "message 1 of level 2" in verdict.early[0]


def test_a_delayed_message_has_to_come_unless_a_full_disk_took_its_file() -> None:
    known = history()
    known.delayed = {number: Delayed(2, 10.0, 10.1, place) for number, place in ((1, 50), (2, 100), (3, 150))}
    verdict = Verdict()

    find_never_came(known, {3}, 100, verdict)

    assert len(verdict.late_lost) == 1
    assert "message 2 " in verdict.late_lost[0]


def test_after_the_death_of_all_wall_clocks_decide_when_delayed_messages_come() -> None:
    known = history()
    known.delayed = {1: Delayed(2, 10.0, 10.1, 0), 2: Delayed(2, 12.0, 12.1, 0)}
    known.first_seen = {1: 13.0, 2: 13.0}
    known.all_down = [1.0, 11.0, 14.0]
    verdict = Verdict()

    find_early(known, verdict)

    assert len(verdict.early) == 1
    assert "message 2 of level 2" in verdict.early[0]


def test_a_consumer_offset_that_falls_back_is_found() -> None:
    known = history()
    known.commit(0, Commit(1, 1.0, 1.2, "a"))
    known.commit(0, Commit(2, 2.0, 2.2, "a"))
    known.commit(1, Commit(1, 2.5, 2.7, "a"))
    known.found_offset(0, 1)

    assert known.fallen_back == [FallenBack(0, Commit(2, 2.0, 2.2, "a"), 1)]
    assert known.next_commit(0) == 2


def test_offsets_from_before_a_blackout_may_be_lost() -> None:
    known = history()
    known.commit(0, Commit(1, 1.0, 1.2, "a"))
    known.blackout = 1.1
    known.found_offset(0, 0)

    assert known.fallen_back == []


def test_logs_are_compared_where_both_have_something() -> None:
    same, other = b"abcdef", b"abcxef"

    assert compare("a", (0, same), "b", (2, same[2:5])) is None
    assert "differ at 3 (compared 2 to 6)" in (compare("a", (0, same), "b", (2, other[2:])) or "")


def state(master: int | None, epoch: int, in_sync: set[int], set_epoch: int) -> GroupState:
    return GroupState(master, "", epoch, frozenset(in_sync), frozenset({1, 2, 3}), {}, set_epoch)


CONTRADICTIONS = {
    "epochs go back": [state(1, 2, {1, 2}, 4), state(1, 1, {1, 2}, 4)],
    "OneMasterPerEpoch": [state(1, 1, {1, 2}, 1), state(2, 1, {1, 2}, 2)],
    "the master is in its set": [state(1, 1, {2, 3}, 1)],
    "one set per syncStateSetEpoch": [state(1, 1, {1, 2}, 1), state(1, 1, {1, 3}, 1)],
    "MasterFromSyncSet": [state(1, 1, {1, 2}, 1), state(3, 2, {3}, 2)],
}


@pytest.mark.parametrize("rule", CONTRADICTIONS)
def test_each_rule_of_the_controllers_is_seen_broken(rule: str) -> None:
    rules = Rules()
    for answer in CONTRADICTIONS[rule]:
        rules.judge(answer, asked_after=rules.newest)

    assert [text.partition(":")[0] for text in rules.violations] == [rule]


class Hung:
    """A controller whose answers wait, each for its request, until it goes on."""

    def __init__(self) -> None:
        self.closed = False
        self.waiting: list[asyncio.Future[Answer]] = []

    async def ask(self, code: int, fields: dict[str, Any], body: bytes = b"", *, timeout: float = 3.0) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        return await answer

    def go_on(self, master: int, epoch: int) -> None:
        """Answer everything with this master."""
        replica = {"brokerId": master, "alive": True}
        info = {"masterBrokerId": master, "masterEpoch": epoch, "syncStateSetEpoch": epoch, "inSyncReplicas": [replica]}
        body = json.dumps({"replicasInfoTable": {"broker-a": info}}).encode()
        for answer in self.waiting:
            answer.set_result(Answer(SUCCESS, "", {}, body))


async def test_a_controller_that_hung_may_not_answer_as_leader_once_another_one_has_answered() -> None:
    rules, hung = Rules(), Hung()
    watch = Watch(hung, rules)
    async with asyncio.TaskGroup() as requests:
        requests.create_task(watch.ask())
        await asyncio.sleep(0)
        rules.judge(state(2, 2, {2}, 2), asked_after=rules.newest)
        requests.create_task(watch.ask())
        await asyncio.sleep(0)
        hung.go_on(1, 1)

    assert rules.violations == ["epochs go back: (2, 2) was answered before (1, 1) was asked for"]
    assert not watch.over


async def test_a_hung_controller_that_answers_what_was_asked_before_breaks_no_rule() -> None:
    rules, hung = Rules(), Hung()
    watch = Watch(hung, rules)
    async with asyncio.TaskGroup() as requests:
        requests.create_task(watch.ask())
        await asyncio.sleep(0)
        rules.judge(state(2, 2, {2}, 2), asked_after=rules.newest)
        hung.go_on(1, 1)

    assert rules.violations == []


def test_an_answer_that_was_under_way_may_be_older() -> None:
    rules = Rules()
    asked = rules.newest
    rules.judge(state(1, 2, {1, 2}, 4), asked_after=asked)
    rules.judge(state(1, 1, {1, 2}, 3), asked_after=asked)

    assert rules.violations == []


def test_an_ordinary_life_breaks_no_rule() -> None:
    rules = Rules()
    for answer in (state(1, 1, {1}, 1), state(1, 1, {1, 2}, 2), state(2, 2, {2}, 3), state(None, 2, {2}, 3)):
        rules.judge(answer, asked_after=rules.newest)

    assert (rules.violations, rules.elections) == ([], 2)


def test_the_log_of_an_official_broker_is_read_to_its_end() -> None:
    start, data = log_bytes(GOLDEN / "store" / "controlled" / "commitlog")

    (first,) = records(data[: int.from_bytes(data[:4])])

    assert (start, first.physical_offset) == (0, 0)
    assert data[slice(bodies(data)[0].start, bodies(data)[0].stop)] == first.body
    assert 8192 < len(data) < 16384


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"event": "request failed", "exception": [{"exc_type": "KeyError", "exc_value": "1", "frames": []}]}', 1),
        ('{"event": "cannot go on", "exception": [{"exc_type": "OSError", "exc_value": "EIO", "frames": []}]}', 0),
        ('{"event": "x", "exception": [{"exc_ty', 0),
        ("Traceback (most recent call last):\n  File\n    x()\nAttributeError: no x\n", 1),
        ("Traceback (most recent call last):\n  File\n    x()\nConnectionResetError: [Errno 104]\n", 0),
        ('{"event": "ValueError: 1"}\nAttributeError: of another program\n', 0),
    ],
)
def test_what_only_a_defect_explains_is_seen_in_the_logs(text: str, found: int) -> None:
    assert len(list(defects(text.splitlines(keepends=True)))) == found


@pytest.mark.parametrize(
    ("error", "official", "forgot"),
    [
        ("remoting.exception.RemotingTimeoutException: wait response", True, "b1"),
        ("client.exception.MQBrokerException: CODE: 2002  DESC: Rejecting", True, ""),
        ("remoting.exception.RemotingTimeoutException: wait response", False, ""),
    ],
)
def test_an_official_master_that_forgets_a_set_is_found(
    tmp_path: Path, error: str, official: bool, forgot: str
) -> None:
    logs = tmp_path / "broker" / "logs" / "rocketmqlogs"
    logs.mkdir(parents=True)
    line = "ERROR Executor_1 - Error happen when change SyncStateSet, oldSyncStateSet:[3], newSyncStateSet:[1, 3]"
    (logs / "broker.log").write_text(f"INFO x\n{line}\norg.apache.rocketmq.{error}\n\tat org.apache.rocketmq.X\n")
    replica = Replica.__new__(Replica)
    replica.name, replica.folder, replica.official = "b1", tmp_path, official
    assert forgetful([replica]) == forgot


def test_losses_of_an_official_master_that_forgets_a_set_are_counted_and_not_judged() -> None:
    story = next(story for story in STORIES if story.name == "official")
    assert Verdict(lost=["one"]).violations(story) == ["one"]
    assert Verdict(lost=["one"], forgot="b1").violations(story) == []


def test_the_report_counts_by_story_and_fault() -> None:
    outcomes = [
        Outcome(1, 0, "strict", [], seconds=60, faults={"kill": 2}, acked=10, longest_gap=2.0),
        Outcome(1, 1, "strict", ["lost"], seconds=60, faults={"kill": 1, "hang": 4}, acked=5, lost=1, longest_gap=3.0),
        Outcome(1, 2, "mixed", [], seconds=60, faults={"hang": 1}, acked=7),
    ]

    assert "| strict | 2 | 7 | 15 | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 3.0 s | 1 |" in stories(outcomes)
    assert "| hang | 1 | 4 |\n| kill |  | 3 |\n" in faults(outcomes)


def test_every_fault_of_every_story_exists_and_every_fault_has_a_story() -> None:
    named = {fault for story in STORIES for fault in story.faults}

    assert named == set(FAULTS)


def test_a_seed_draws_the_same_round_again() -> None:
    names = [story.name for story in STORIES]

    assert draw(7, 3, names) == draw(7, 3, names)
    assert {draw(7, number, names).story.name for number in range(len(STORIES))} == set(names)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_rounds_of_a_story_share_one_deck_of_faults(story: Story) -> None:
    rounds = -(-len(story.faults) // story.drawn)
    struck = {
        strike.name
        for number in range(rounds)
        for strike in itertools.islice(draw(7, number, [story.name]).strikes(), FAULTS_OF_A_ROUND)
    }

    assert struck == set(story.faults)


def test_a_seed_strikes_with_the_same_faults_however_often_each_asks_its_chance() -> None:
    plan = draw(7, 0, ["strict"])
    once = [(strike.name, strike.rng.random()) for strike in itertools.islice(plan.strikes(), 100)]
    again = [
        (strike.name, strike.rng.random(), strike.rng.random()) for strike in itertools.islice(plan.strikes(), 100)
    ]

    assert [strike[:2] for strike in again] == once
    assert {name for name, _ in once} == set(plan.story.faults)


@pytest.mark.parametrize("seed", range(10))
def test_a_short_campaign_cuts_the_power_of_groups_that_flush_and_of_groups_that_do_not(seed: int) -> None:
    plans = {plan.story.name: plan for plan in (draw(seed, number, SHORT) for number in range(len(SHORT)))}
    first = {name: [strike.name for strike in itertools.islice(plan.strikes(), 3)] for name, plan in plans.items()}

    assert {"power_all", "power_everything"} & set(first["strict-sync-power"])
    assert {"power_slaves", "power_slaves_kill_master"} & set(first["strict-async-power"])
    assert "strict" in first
