"""What tools get about flows: by topic and group, over a minute, an hour, a day."""

from pathlib import Path

import pytest

from rocketmq_broker.domain import flow_stats
from rocketmq_broker.domain.flow_stats import FlowStats, Snapshot
from rocketmq_broker.tools.send_times import distribution, percentile
from rocketmq_broker.traffic import Traffic
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.broker_admin import (
    BrokerStatsData,
    ConsumeStats,
    GetConsumeStatsRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from rocketmq_formats.remoting.client import UpdateConsumerOffsetRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from tests.broker.broker_kit import Group, running


def sample(stats: FlowStats, now: float) -> None:
    for sampler in stats.samplers(now):
        sampler()


async def view(group: Group, name: str, key: str) -> RemotingCommand:
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    return await group.call(request(RequestCode.VIEW_BROKER_STATS_DATA, header))


async def test_what_went_in_and_out_can_be_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        for _ in range(20):
            await group.send()
        assert (await group.pull(0, max_msg_nums=8)).code == 0
        sample(group.app.core.traffic.flows, 1000.0)
        for name, key, total in (("TOPIC_PUT_NUMS", "T", 20), ("GROUP_GET_NUMS", "T@G", 8)):
            data = decode_body(BrokerStatsData, (await view(group, name, key)).body)
            assert (data.stats_minute.sum, data.stats_minute.tps) == (total, total / 10)
        size = decode_body(BrokerStatsData, (await view(group, "TOPIC_PUT_SIZE", "T")).body)
        assert size.stats_minute.sum == group.app.store.max_offset
        assert size.stats_minute.avgpt == group.app.store.max_offset / 20
        for name, key in (("TOPIC_PUT_NUMS", "nothing"), ("NO_SUCH", "T")):
            missing = await view(group, name, key)
            assert (missing.code, missing.remark) == (
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{name}> <{key}> not exist",
            )


async def test_what_the_whole_broker_took_and_gave_has_the_name_of_its_cluster(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        for _ in range(20):
            await group.send()
        await group.pull(0, max_msg_nums=8)
        counts, flows = group.app.core.traffic.counts, group.app.core.traffic.flows
        flows.sample_broker("C", counts.put_messages, counts.got_messages, 1000.0)
        for name, total in (("BROKER_PUT_NUMS", 20), ("BROKER_GET_NUMS", 8)):
            data = decode_body(BrokerStatsData, (await view(group, name, "C")).body)
            assert (data.stats_minute.sum, data.stats_minute.tps, data.stats_minute.avgpt) == (total, total / 10, 0.0)
        assert (await view(group, "BROKER_PUT_NUMS", "broker-a")).code == ResponseCode.SYSTEM_ERROR


def test_times_of_sends_are_counted_as_in_java() -> None:
    traffic = Traffic()
    for seconds in (0.0, 0.001, 0.002, 0.15, 0.24, 0.3, 1.5, 3.5, 11.0):
        traffic.answered([seconds])
    assert distribution(traffic.sends) == (
        "[<=0ms]:2 [0~10ms]:1 [10~50ms]:0 [50~100ms]:0 [100~200ms]:1 [200~500ms]:2 [500ms~1s]:0 [1~2s]:1 [2~3s]:0 "
        "[3~4s]:1 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )
    assert sum(traffic.counts.answers) == 9
    assert traffic.counts.answers[-1] == 2, "longer than 3 s"
    assert (percentile(traffic.sends, 0.5, 11.0), percentile(traffic.sends, 0.99, 11.0)) == ("250.00", "11000.00")
    assert percentile(Traffic().sends, 0.99, 0.0) == "0.00"


async def test_a_groups_progress_has_what_it_pulled_and_not_yet_consumed(tmp_path: Path) -> None:
    async with running(tmp_path) as group:
        for _ in range(20):
            await group.send()
        await group.pull(0, max_msg_nums=8)
        commit = UpdateConsumerOffsetRequestHeader(consumer_group="G", topic="T", queue_id=0, commit_offset=3)
        await group.call(request(RequestCode.UPDATE_CONSUMER_OFFSET, commit))
        sample(group.app.core.traffic.flows, 1000.0)
        header = GetConsumeStatsRequestHeader(consumer_group="G")
        stats = ConsumeStats.decode((await group.call(request(RequestCode.GET_CONSUME_STATS, header))).body)
        progress = {queue.queue_id: offsets for queue, offsets in stats.offset_table.items()}
        assert (progress[0].consumer_offset, progress[0].pull_offset, progress[0].broker_offset) == (3, 8, 20)
        assert (progress[1].consumer_offset, progress[1].pull_offset) == (0, 0)
        assert stats.consume_tps == 0.8


def test_windows() -> None:
    stats, now = FlowStats(), 0.0
    for _ in range(8640):
        stats.put("T", 2, 100)
        now += flow_stats.SAMPLE_SECONDS
        sample(stats, now)
    found = stats.stats("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.minute == Snapshot(12, 0.2, 2.0)
    assert found.hour == Snapshot(720, 0.2, 2.0)
    assert found.day == Snapshot(17280, 0.2, 2.0)
    for _ in range(7):
        now += flow_stats.SAMPLE_SECONDS
        sample(stats, now)
    found = stats.stats("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.minute == Snapshot(0, 0.0, 0.0)


def test_counters_are_bounded_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_stats, "MAX_COUNTERS", 5)
    monkeypatch.setattr(flow_stats, "FORGET_AFTER", 3)
    stats = FlowStats()
    for number in range(10):
        stats.put(f"T{number}", 1, 1)
    assert stats.stats("TOPIC_PUT_NUMS", "T4") is not None
    assert stats.stats("TOPIC_PUT_NUMS", "T5") is None
    for number in range(5):
        sample(stats, float(number))
    assert stats.stats("TOPIC_PUT_NUMS", "T4") is None
    stats.put("T5", 1, 1)
    assert stats.stats("TOPIC_PUT_NUMS", "T5") is not None
