"""The agent's two private requests; everything else it says and hears is RocketMQ's own protocol.

REPORT is what replication would be: a slave tells its master how far it is and is told how far the master is. PROBE
stands for a message to be stored; it has its own code so that no real client can take the agent for a broker.
"""

from enum import IntEnum

from rocketmq_formats.remoting.controller import Int32, Int64
from rocketmq_formats.remoting.headers import Header


class AgentCode(IntEnum):
    """Far from RocketMQ's numbers."""

    REPORT = 990_001
    PROBE = 990_002


class ReportRequestHeader(Header, frozen=True):
    """A slave of `master_epoch`, at `max_offset`."""

    broker_id: Int64
    master_epoch: Int32
    max_offset: Int64


class ReportResponseHeader(Header, frozen=True):
    """The epoch that the asked agent knows, and its offset if it is that epoch's master."""

    master_epoch: Int32
    max_offset: Int64 = 0


class ProbeRequestHeader(Header, frozen=True):
    """One numbered probe."""

    number: Int64


class ProbeResponseHeader(Header, frozen=True):
    """Who answered, in which epoch; with success, the offset that the probe stands for."""

    broker_id: Int64
    master_epoch: Int32
    max_offset: Int64 = 0
