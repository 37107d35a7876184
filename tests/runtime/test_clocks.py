"""What leases are measured with."""

import inspect
import time

import pytest

from rocketmq_broker.consuming.queue_queries import QueryProcessor
from rocketmq_broker.sending.inner_writer import InnerWriter
from rocketmq_broker.sending.send import SendProcessor
from rocketmq_broker.sending.waiting_sends import WaitingSends
from rocketmq_controller.raft.replica import Replica
from rocketmq_runtime.clocks import boot_clock
from rocketmq_sidecar.control.agent import Agent


def test_the_boot_clock_counts_time_asleep() -> None:
    assert time.clock_gettime(time.CLOCK_BOOTTIME) <= boot_clock() <= time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize("user", [Agent, SendProcessor, InnerWriter, WaitingSends, QueryProcessor, Replica])
def test_who_grants_or_reads_a_lease_has_this_clock(user: type) -> None:
    assert inspect.signature(user).parameters["clock"].default is boot_clock
