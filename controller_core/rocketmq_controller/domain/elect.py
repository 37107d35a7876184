"""The election policy, pure: who of the candidates becomes master. Called by `election`.

Order of preference among the live ones: greatest epoch, greatest maxOffset, smallest electionPriority, smallest id.
It is a total order, so the outcome depends neither on the order of the set nor on chance.

Differs from 5.3.3 (`DefaultElectPolicy`): offsets are compared in full 64 bits (Java casts their difference to int),
a candidate without a live entry is compared by defaults (Java throws), equal ones are told apart by id (Java keeps
any).
"""

from collections.abc import Iterable

from rocketmq_controller.domain.model import BrokerGroup, BrokerId, BrokerLiveInfo, LivenessView, Options

_UNKNOWN = BrokerLiveInfo()
_MOST_NAMED = 64

Rank = tuple[int, int, int, int]


def rank(broker_id: BrokerId, info: BrokerLiveInfo) -> Rank:
    """Sort key of a candidate: the smallest wins."""
    return (-info.epoch, -info.max_offset, info.election_priority, broker_id)


def elect(
    group: BrokerGroup, view: LivenessView, options: Options, *, preferred: BrokerId | None = None
) -> BrokerId | None:
    """The master to be, the present one included; None if nobody may be.

    The syncStateSet is asked first, and only with unclean election all replicas after it. A live old master keeps its
    role unless another one is preferred; if one is preferred, it is that one or nobody. Nobody is elected whose
    connection has closed: what comes back over another is another life, perhaps without its log.

    The last resort is narrower than unclean election: while a member of the syncStateSet lives, or was not heard for
    too short a time to tell, messages would be lost for nothing.
    """
    winner = _among(group, group.sync_state_set, view, preferred)
    if winner is None and (options.enable_elect_unclean_master or (options.last_resort and _all_lost(group, view))):
        winner = _among(group, group.replicas, view, preferred)
    return winner


def _all_lost(group: BrokerGroup, view: LivenessView) -> bool:
    name = group.broker_name
    return not any(view.alive(name, one) or view.unheard(name, one) for one in group.sync_state_set)


def designated(group: BrokerGroup, view: LivenessView, among: str) -> BrokerId | None:
    """The preferred one of the ids in `among` (`2,3`) that can be elected, None if none can. Whoever names several says
    that their logs are equal: by priority and id alone, for heartbeats are older than that."""
    name = group.broker_name
    ids = {BrokerId(int(text)) for text in among.split(",")[:_MOST_NAMED] if text.isdecimal() and len(text) < 19}
    candidates = {
        broker_id: info
        for broker_id in ids & group.sync_state_set
        if view.alive(name, broker_id) and (info := view.info(name, broker_id) or _UNKNOWN).connected
    }
    return min(candidates, key=lambda broker_id: (candidates[broker_id].election_priority, broker_id), default=None)


def _among(
    group: BrokerGroup, broker_ids: Iterable[BrokerId], view: LivenessView, preferred: BrokerId | None
) -> BrokerId | None:
    name, master = group.broker_name, group.master_broker_id
    living = {
        broker_id: view.info(name, broker_id) or _UNKNOWN for broker_id in broker_ids if view.alive(name, broker_id)
    }
    wanted = master if preferred is None else preferred
    if wanted is not None and wanted == master and wanted in living:
        return wanted
    candidates = {broker_id: info for broker_id, info in living.items() if info.connected}
    if preferred is not None:
        return preferred if preferred in candidates else None
    return min(candidates, key=lambda broker_id: rank(broker_id, candidates[broker_id]), default=None)
