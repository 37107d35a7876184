"""Registrations that take more than a step of the event loop: others are answered meanwhile, and nothing is left of a
broker that leaves in between."""

import asyncio
import itertools
from pathlib import Path

import pytest

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand
from rocketmq_formats.topics import PERM_WRITE
from rocketmq_namesrv import registry
from rocketmq_namesrv.remoting_api import MAX_REGISTERING_OF_HOST
from tests.golden.namesrv_story import A, Step, T, register, topic, unregister, version, wrapper
from tests.namesrv.namesrv_kit import Door

COUNT = 300
MANY = [topic(f"T{number}") for number in range(COUNT)]


@pytest.fixture
async def door(tmp_path: Path) -> Door:
    """Every look at the clock finds that a step is over."""
    door = Door(tmp_path)
    door.time = itertools.count()
    return door


def begin(door: Door, step: Step) -> "asyncio.Future[RemotingCommand]":
    answer = door.begin(step.code, step.ext, step.body, connection=step.connection, version=step.version)
    assert isinstance(answer, asyncio.Future)
    return answer


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def route_code(door: Door, name: str) -> int:
    return door.ask(105, {"topic": name}).code


async def test_others_are_answered_while_many_topics_are_registered(door: Door) -> None:
    answer = begin(door, register("r", body=wrapper(MANY, version(1))))
    await steps(COUNT // 2)
    assert route_code(door, "T0") == ResponseCode.SUCCESS
    assert route_code(door, f"T{COUNT - 1}") == ResponseCode.TOPIC_NOT_EXIST
    assert not answer.done()
    assert (await answer).code == ResponseCode.SUCCESS
    assert all(route_code(door, f"T{number}") == ResponseCode.SUCCESS for number in range(COUNT))


async def test_write_permission_that_is_taken_off_meanwhile_stays_off(door: Door) -> None:
    answer = begin(door, register("r", body=wrapper(MANY, version(1))))
    await steps(COUNT // 2)
    assert not answer.done()
    assert (await door.told(205, {"brokerName": "broker-a"})).code == ResponseCode.SUCCESS
    assert (await answer).code == ResponseCode.SUCCESS
    assert not any(queues["broker-a"].perm & PERM_WRITE for queues in door.registry.tables.topics.values())


async def test_registrations_of_one_broker_name_keep_their_order(door: Door) -> None:
    first = begin(door, register("r", body=wrapper(MANY, version(1))))
    fewer = [topic("T0", queues=2), *MANY[1:]]
    second = begin(door, register("r", body=wrapper(fewer, version(2))))
    assert (await second).code == ResponseCode.SUCCESS
    assert first.done()
    body = door.ask(105, {"topic": "T0"}).body
    assert b'"readQueueNums":2' in body


async def test_they_keep_it_though_hosts_take_turns(door: Door) -> None:
    door.peer("other").host = "10.9.9.9"
    answers = [
        begin(door, register("r", broker=name, address=f"10.0.0.{number}:1", body=wrapper(MANY, version(1))))
        for number, name in enumerate(("first", "second", "r"))
    ]
    fewer = wrapper([topic("T0", queues=2), *MANY[1:]], version(2))
    again = register("r", broker="r", address="10.0.0.2:1", body=fewer)
    last = door.begin(again.code, again.ext, again.body, connection="other")
    assert isinstance(last, asyncio.Future)
    assert (await last).code == ResponseCode.SUCCESS
    assert all(answer.done() for answer in answers)
    await steps(2)
    assert not door.api._lines


async def test_nothing_is_left_of_a_broker_that_unregisters_meanwhile(door: Door) -> None:
    answer = begin(door, register("r", body=wrapper(MANY, version(1))))
    await steps(COUNT // 2)
    gone = unregister("u")
    assert door.ask(gone.code, gone.ext, connection=A).code == ResponseCode.SUCCESS
    assert (await answer).code == ResponseCode.INVALID_PARAMETER
    assert not door.registry.tables.topics
    assert not door.registry.tables.groups
    assert door.registry.tables.queue_datas == 0


@pytest.mark.parametrize("after", [2, COUNT // 2], ids=["before it was read", "half registered"])
async def test_nothing_is_left_of_a_broker_whose_connection_ends_meanwhile(door: Door, after: int) -> None:
    answer = begin(door, register("r", body=wrapper(MANY, version(1))))
    await steps(after)
    door.close(A)
    assert (await answer).code == ResponseCode.INVALID_PARAMETER
    tables = door.registry.tables
    assert not tables.topics
    assert not tables.groups
    assert not len(tables.live)
    await steps(2)
    assert not door.api._closed
    assert not door.api._registering
    assert not door.api._registering_names


async def test_one_host_has_some_registrations_in_line(door: Door) -> None:
    answers = [
        begin(door, register("r", broker=f"b{number}", address=f"10.0.0.{number}:1", body=wrapper(MANY, version(1))))
        for number in range(MAX_REGISTERING_OF_HOST)
    ]
    more = register("r", broker="more", address="10.0.0.9:1", body=wrapper([T], version(1)))
    assert door.ask(more.code, more.ext, more.body, connection="more").code == ResponseCode.SYSTEM_BUSY
    assert {(await answer).code for answer in answers} == {ResponseCode.SUCCESS}


async def test_a_connection_with_many_brokers_is_forgotten_broker_by_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = Door(tmp_path)
    for number in range(5):
        step = register("r", broker=f"b{number}", address=f"10.0.0.{number}:1", body=wrapper(MANY, version(1)))
        assert door.ask(step.code, step.ext, step.body, connection="one").code == ResponseCode.SUCCESS
    ticks = itertools.count()
    monkeypatch.setattr(registry, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(registry, "STEP_SECONDS", 2.0)  # the second look at the clock finds the step over
    door.close("one")
    assert len(door.registry.tables.groups) == 4
    await steps(10)
    assert not door.registry.tables.groups
    assert not door.registry.tables.topics
