"""The commands on name servers and brokers: who belongs to a cluster (106), and a broker's epochs (1007)."""

from collections.abc import Sequence
from dataclasses import dataclass

from rocketmq_admin.caller import Caller, read_body
from rocketmq_admin.errors import AdminError, ClusterRefusedError, UnreachableError
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.command import request
from rocketmq_formats.remoting.controller import EpochEntry, EpochEntryCache
from rocketmq_formats.remoting.nameserver import ClusterInfo


@dataclass(frozen=True)
class BrokerEpochs:
    """The epochs in one broker's log; the last one ends where the log ends."""

    address: str
    cluster_name: str
    broker_name: str
    broker_id: int
    max_offset: int
    epochs: tuple[EpochEntry, ...]


async def get_cluster_info(caller: Caller, name_servers: Sequence[str]) -> ClusterInfo:
    """Everything registered at the first name server that answers.

    Raises:
        UnreachableError: none answers.
        ClusterRefusedError: the only one asked refuses.
    """
    problems: list[AdminError] = []
    for address in name_servers:
        try:
            answer = await caller.call_checked(address, request(RequestCode.GET_BROKER_CLUSTER_INFO))
            return read_body(address, ClusterInfo, answer)
        except AdminError as error:
            problems.append(error)
    raise problems[0] if len(problems) == 1 else UnreachableError("; ".join(map(str, problems)))


def broker_names_of(info: ClusterInfo, cluster_name: str) -> Sequence[str]:
    """Names of the broker groups of a cluster, sorted.

    Raises:
        ClusterRefusedError: the name server has no such cluster, or no broker of it.
    """
    names = info.cluster_addr_table.get(cluster_name)
    if not names:
        raise ClusterRefusedError(f"the name server has no cluster {cluster_name}")
    return sorted(names)


def addresses_of(info: ClusterInfo, broker_name: str) -> Sequence[str]:
    """Addresses of a broker group's registered members, by broker id; empty if the name server does not know it."""
    data = info.broker_addr_table.get(broker_name)
    return [data.broker_addrs[broker_id] for broker_id in sorted(data.broker_addrs)] if data else []


async def get_broker_epochs(caller: Caller, address: str) -> BrokerEpochs:
    """The epochs of the broker at `address`.

    Raises:
        ClusterRefusedError, UnreachableError: it does not answer; a broker without a controller refuses.
    """
    answer = await caller.call_checked(address, request(RequestCode.GET_BROKER_EPOCH_CACHE))
    cache = read_body(address, EpochEntryCache, answer)
    epochs = list(cache.epoch_list)
    if epochs:
        last = epochs[-1]
        epochs[-1] = EpochEntry(epoch=last.epoch, start_offset=last.start_offset, end_offset=cache.max_offset)
    return BrokerEpochs(
        address, cache.cluster_name, cache.broker_name, cache.broker_id, cache.max_offset, tuple(epochs)
    )
