"""What brokers report to each other and to tools about high availability: 906 EXCHANGE_BROKER_HA_INFO, 907, 908.

Brokers answer them, sidecars and Java's slaves ask 906, mqadmin `haStatus` asks 907.
Source: rocketmq-all-5.3.3: ExchangeHAInfoRequestHeader.java, ExchangeHAInfoResponseHeader.java, HARuntimeInfo.java.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from rocketmq_formats.json.bodies import Body, Int32, Int64
from rocketmq_formats.remoting.headers import Header

# 906 EXCHANGE_BROKER_HA_INFO


class ExchangeHAInfoHeader(Header, frozen=True):
    """Of the request and of the answer; in a request, an address sets the receiver's master, absence queries it."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None
    log_audit: bool | None = None
    """A native master answers questions about its log (`replication.audit`) at its HA address. Java's do not say it."""
    ha_introduction: bool | None = None
    """A native master wants to know who connects to its HA address (`replication.introduction`)."""
    mapped_file_size_commit_log: Int64 | None = None
    enable_controller_mode: bool | None = None
    """A native master's settings under their keys: a slave with others does not follow. Java's do not name theirs."""
    group_settings: str | None = None
    """A native master's settings that all replicas of its group share, for slaves to compare (`encode_settings`)."""
    cluster_name: str | None = None
    broker_name: str | None = None
    """A native replica's group, in request and answer: who is of another one refuses. Java's do not name theirs."""


class GroupName(NamedTuple):
    """Which group a replica is of."""

    cluster_name: str
    broker_name: str

    def __str__(self) -> str:
        return f"cluster {self.cluster_name}, brokerName {self.broker_name}"


def other_group(ours: GroupName, header: ExchangeHAInfoHeader) -> str | None:
    """Why who sent the header is of another group, with both; None if it is of this one, or does not say."""
    if header.cluster_name is None or header.broker_name is None:
        return None
    theirs = GroupName(header.cluster_name, header.broker_name)
    return None if theirs == ours else f"it is of {theirs}, and this replica of {ours}"


MAX_SETTINGS: Final = 16 * 1024
"""Characters of `group_settings`."""

_settings: Final = msgspec.json.Decoder(dict[str, str])


def encode_settings(values: Mapping[str, str]) -> str:
    """`group_settings` of key -> value, as in the configuration file: a JSON object of strings."""
    return msgspec.json.encode(values).decode()


def decode_settings(text: str | None) -> Mapping[str, str]:
    """Key -> value; the receiver ignores keys that it does not know. Nothing if the text is no such object, or too
    long."""
    if text is None or len(text) > MAX_SETTINGS:
        return {}
    try:
        return _settings.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return {}


# 907 GET_BROKER_HA_STATUS


class HAConnectionRuntimeInfo(Body, frozen=True):
    """A slave as its master sees it; offsets in bytes of the commit log, `diff` what it lacks."""

    addr: str
    slave_ack_offset: Int64 = 0
    diff: Int64 = 0
    in_sync: bool = False
    transferred_byte_in_second: Int64 = 0
    transfer_from_where: Int64 = 0


class HAClientRuntimeInfo(Body, frozen=True):
    """A slave's connection to its master; times in milliseconds, 0 for never. Java leaves out `activated`."""

    master_addr: str | msgspec.UnsetType = msgspec.UNSET
    transferred_byte_in_second: Int64 = 0
    max_offset: Int64 = 0
    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_flush_offset: Int64 = 0
    activated: bool | msgspec.UnsetType = msgspec.UNSET


class HARuntimeInfo(Body, frozen=True):
    """Body of the answer to 907."""

    master: bool = False
    master_commit_log_max_offset: Int64 = 0
    in_sync_slave_nums: Int32 = 0
    ha_connection_info: Sequence[HAConnectionRuntimeInfo] = ()
    ha_client_runtime_info: HAClientRuntimeInfo = HAClientRuntimeInfo()
