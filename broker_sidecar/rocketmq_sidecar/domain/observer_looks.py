"""What the observing sidecar sees: of the Java broker beside it, and of its group at the controllers. Pure.

`observer.broker` and `observer.controllers` ask, these functions read the answers, `domain.observing` judges them.
Source: broker-agent reference, sections 1 and 5; controller reference, section 3 (1006); HA reference, section 11.
"""

from collections.abc import Mapping, Sequence

import msgspec

from rocketmq_formats.errors import BodyError
from rocketmq_formats.remoting.controller import EpochEntry, EpochEntryCache, ReplicasInfo
from rocketmq_formats.remoting.ha_info import HARuntimeInfo

NO_END = 2**63 - 1
_LARGEST = 2**63 - 1


class SlaveLook(msgspec.Struct, frozen=True):
    """A slave's connection as its master sees it; whose it is only its address says."""

    host: str
    ack: int
    """How far it has acknowledged, in bytes of the log."""
    in_sync: bool


class BrokerLook(msgspec.Struct, frozen=True, kw_only=True):
    """One answer each to 28, 1007 and 907. Offsets are bytes of the commit log, times milliseconds since 1970."""

    cluster_name: str
    broker_name: str
    outward_id: int
    """0: it takes itself for the master, or is not registered yet (see `serves_as_master`); else its brokerId."""
    active: bool
    """Whether what only a master does is running in it (`brokerActive`)."""
    min_offset: int
    max_offset: int
    epochs: tuple[EpochEntry, ...]
    refuses_until_ms: int
    """Sends are refused until then (`startAcceptSendRequestTimeStamp`)."""
    started_ms: int
    """When this process started: another number is another life."""
    sends_waiting: int
    """Sends it has received and not looked at yet."""
    slaves: tuple[SlaveLook, ...]
    """Master: connections of slaves."""
    master_ha_address: str | None
    """Slave: where it replicates from, or would."""
    last_read_ms: int
    """Slave: when it last heard something from there; 0 for never, or not connected."""

    @property
    def serves_as_master(self) -> bool:
        return self.outward_id == 0 and self.active


class GroupLook(msgspec.Struct, frozen=True, kw_only=True):
    """The group as the deciding controller tells it (1006)."""

    master_id: int | None
    master_epoch: int
    sync_state_set_epoch: int
    in_sync: frozenset[int]
    addresses: Mapping[int, str]
    """Of every replica the controllers know: brokerIP1:listenPort."""
    alive: frozenset[int]


def read_broker(runtime: Mapping[str, str], cache: EpochEntryCache, status: HARuntimeInfo) -> BrokerLook:
    """What the three answers say together.

    Raises:
        BodyError: a number that must be there is none.
    """
    client = status.ha_client_runtime_info
    address = client.master_addr
    return BrokerLook(
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
            SlaveLook(one.addr.lstrip("/").rpartition(":")[0], one.slave_ack_offset, one.in_sync)
            for one in status.ha_connection_info
        ),
        master_ha_address=address if isinstance(address, str) and address else None,
        last_read_ms=client.last_read_timestamp,
    )


def read_group(info: ReplicasInfo) -> GroupLook:
    """The group out of 1006's table."""
    replicas = [*info.in_sync_replicas, *info.not_in_sync_replicas]
    return GroupLook(
        master_id=info.master_broker_id,
        master_epoch=info.master_epoch,
        sync_state_set_epoch=info.sync_state_set_epoch,
        in_sync=frozenset(one.broker_id for one in info.in_sync_replicas),
        addresses={one.broker_id: one.broker_address for one in replicas},
        alive=frozenset(one.broker_id for one in replicas if one.alive),
    )


def connected_slaves(broker: BrokerLook, group: GroupLook) -> dict[int, SlaveLook]:
    """The master's slaves by brokerId; replicas that share a host cannot be told from each other and are left out."""
    hosts: dict[str, list[int]] = {}
    for broker_id, address in group.addresses.items():
        hosts.setdefault(address.rpartition(":")[0], []).append(broker_id)
    found = ((hosts.get(slave.host, []), slave) for slave in broker.slaves)
    return {ids[0]: slave for ids, slave in found if len(ids) == 1}


def _ended(entries: Sequence[EpochEntry], max_offset: int) -> tuple[EpochEntry, ...]:
    """The last one ends where the log does; Java says it ends nowhere."""
    return tuple(
        msgspec.structs.replace(one, end_offset=max_offset) if one.end_offset == NO_END else one for one in entries
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
