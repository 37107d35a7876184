"""The status of the Java broker and of its group at the controllers, as the observing sidecar reads it. Pure.

`observer.broker` and `observer.controllers` send the requests, these functions decode the answers, `verdict` judges.
Source: rocketmq-all-5.3.3: ReplicasManager.java, BrokerMetadata.java, BrokerReplicasInfo.java, HARuntimeInfo.java.
"""

from collections.abc import Mapping, Sequence

import msgspec

from rocketmq_formats.addresses import host_of
from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting.controller import EpochEntry, EpochEntryCache, ReplicasInfo
from rocketmq_formats.remoting.ha_info import HARuntimeInfo

NO_END = 2**63 - 1
_LARGEST = 2**63 - 1


class SlaveStatus(msgspec.Struct, frozen=True):
    """A slave's connection at its master, which has only its address."""

    host: str
    ack: int
    """Its acknowledged offset, in bytes of the log."""
    in_sync: bool


class BrokerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One answer each to 28, 1007 and 907. Offsets are bytes of the commit log, times milliseconds since 1970."""

    cluster_name: str
    broker_name: str
    outward_id: int
    """0 for the master, else its brokerId. Before it has a role the id in its file: 0, or the operator's."""
    active: bool
    """Whether a master's services are running in it (`brokerActive`)."""
    min_offset: int
    max_offset: int
    epochs: tuple[EpochEntry, ...]
    refuses_until_ms: int
    """Sends are refused until then (`startAcceptSendRequestTimeStamp`)."""
    started_ms: int
    """When this process started: another number means another process."""
    sends_waiting: int
    """Sends it has received and not processed yet."""
    slaves: tuple[SlaveStatus, ...]
    """Master: connections of slaves."""
    master_ha_address: str | None
    """Slave: where it replicates from, or tries to."""
    last_read_ms: int
    """Slave: when it last received something from there; 0 for never, or not connected."""

    @property
    def serves_as_master(self) -> bool:
        return self.outward_id == 0 and self.active

    @property
    def acts_as_master(self) -> bool:
        """A slave that serves consumers in a master's place: a slave runs a master's services only then."""
        return self.outward_id != 0 and self.active


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The group by the leading controller's answer (1006)."""

    master_id: int | None
    master_epoch: int
    sync_state_set_epoch: int
    in_sync: frozenset[int]
    addresses: Mapping[int, str]
    """brokerIP1:listenPort of every replica that the controllers know."""
    alive: frozenset[int]


def read_broker(runtime: Mapping[str, str], cache: EpochEntryCache, status: HARuntimeInfo) -> BrokerStatus:
    """Combine the three answers.

    Raises:
        BodyError: a required number is missing or not a number.
    """
    client = status.ha_client_runtime_info
    address = client.master_addr
    return BrokerStatus(
        cluster_name=cache.cluster_name,
        broker_name=cache.broker_name,
        outward_id=cache.broker_id,
        active=runtime.get("brokerActive") == "true",
        min_offset=max(_number(runtime, "commitLogMinOffset"), 0),
        max_offset=_number(runtime, "commitLogMaxOffset"),
        epochs=_ended(cache.epoch_list, cache.max_offset),
        refuses_until_ms=_number(runtime, "startAcceptSendRequestTimeStamp"),
        started_ms=_number(runtime, "bootTimestamp"),
        sends_waiting=_number(runtime, "sendThreadPoolQueueSize"),
        slaves=tuple(
            SlaveStatus(host_of(slave.addr.lstrip("/")), slave.slave_ack_offset, slave.in_sync)
            for slave in status.ha_connection_info
        ),
        master_ha_address=address if isinstance(address, str) and address else None,
        last_read_ms=client.last_read_timestamp,
    )


def read_group(info: ReplicasInfo) -> GroupStatus:
    """The group out of 1006's table."""
    replicas = [*info.in_sync_replicas, *info.not_in_sync_replicas]
    return GroupStatus(
        master_id=info.master_broker_id,
        master_epoch=info.master_epoch,
        sync_state_set_epoch=info.sync_state_set_epoch,
        in_sync=frozenset(replica.broker_id for replica in info.in_sync_replicas),
        addresses={replica.broker_id: replica.broker_address for replica in replicas},
        alive=frozenset(replica.broker_id for replica in replicas if replica.alive),
    )


def connected_slaves(broker: BrokerStatus, group: GroupStatus) -> dict[int, SlaveStatus]:
    """The master's slaves by brokerId; replicas that share a host cannot be distinguished and are left out."""
    hosts: dict[str, list[int]] = {}
    for broker_id, address in group.addresses.items():
        hosts.setdefault(host_of(address), []).append(broker_id)
    found = ((hosts.get(slave.host, []), slave) for slave in broker.slaves)
    return {ids[0]: slave for ids, slave in found if len(ids) == 1 and slave.host}


def _ended(entries: Sequence[EpochEntry], max_offset: int) -> tuple[EpochEntry, ...]:
    """The last epoch ends where the log does; Java reports no end for it."""
    return tuple(
        msgspec.structs.replace(entry, end_offset=max_offset) if entry.end_offset == NO_END else entry
        for entry in entries
    )


def _number(table: Mapping[str, str], key: str) -> int:
    text = table.get(key, "")
    try:
        number = int(text) if len(text) <= 20 else None
    except ValueError:
        number = None
    if number is None or not -1 <= number <= _LARGEST:
        raise BodyError(f"the broker's runtime info has no usable {key}: {text[:40]!r}")
    return number
