"""Who is registered under this broker's name, as a name server said last: the ground on which a slave acts as master,
and where the votes for a lock are asked for.

`group_watch.py` keeps it up to date. Source: rocketmq-all-5.3.3: BrokerController.java.
"""

from collections.abc import Mapping
from types import MappingProxyType

from rocketmq_formats.remoting.nameserver import TopicRouteData

_NOBODY: Mapping[int, str] = MappingProxyType({})


class MemberGroup:
    """The members of one group, this broker included once it is registered."""

    def __init__(self) -> None:
        self.addresses: Mapping[int, str] = _NOBODY
        """brokerId -> brokerIP1:listenPort. The master's id is 0, a slave's the controllers'."""

    @property
    def least_id(self) -> int | None:
        """The least brokerId, 0 while a master is registered; None: no name server has answered yet."""
        return min(self.addresses, default=None)

    def others(self, own_address: str) -> dict[int, str]:
        """The members beside the one at `own_address`, in the order of their ids."""
        return {broker_id: its for broker_id, its in sorted(self.addresses.items()) if its != own_address}

    def update(self, addresses: Mapping[int, str]) -> bool:
        """Take a name server's answer; True if it changes anything. One that names no broker is no answer: that name
        server has just started."""
        if not addresses or addresses == self.addresses:
            return False
        self.addresses = MappingProxyType(dict(addresses))
        return True


def members_in_route(route: TopicRouteData, cluster: str, broker_name: str) -> Mapping[int, str]:
    """The members of a group by the route of its topic `rmq_sys_SYNC_BROKER_MEMBER_{brokerName}`."""
    for broker in route.broker_datas:
        if broker.broker_name == broker_name and broker.cluster == cluster:
            return broker.broker_addrs
    return _NOBODY
