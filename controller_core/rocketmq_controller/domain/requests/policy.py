"""The election policy (Java: ElectPolicy), pure: which candidate becomes master. Called by `elect_master`.

Order of preference among the live ones: greatest epoch, greatest maxOffset, smallest electionPriority, smallest id.
It is a total order, so the outcome depends neither on the order of the set nor on chance.

Differs from 5.3.3: offsets are compared in full 64 bits (Java casts their difference to int),
a candidate without a live entry is compared by defaults (Java throws), equal ones are ordered by id (Java keeps
any). Source: rocketmq-all-5.3.3: DefaultElectPolicy.java.
"""

from collections.abc import Iterable

from rocketmq_controller.domain.model import (
    BrokerGroup,
    BrokerId,
    BrokerLiveInfo,
    LivenessView,
    Options,
    presumed_alive,
)

_UNKNOWN = BrokerLiveInfo()
_MOST_NAMED = 64

Rank = tuple[int, int, int, int]


def rank(broker_id: BrokerId, info: BrokerLiveInfo) -> Rank:
    """Sort key of a candidate: the smallest wins."""
    return (-info.epoch, -info.max_offset, info.election_priority, broker_id)


def elect(
    group: BrokerGroup, view: LivenessView, options: Options, *, preferred: BrokerId | None = None
) -> BrokerId | None:
    """The next master, which may be the present one; None if no replica may be.

    Members of the syncStateSet come first, and only with unclean election all other replicas after them. A live old
    master keeps its role unless another replica is preferred; then it is that one or none. A replica whose connection
    has closed is not elected: what comes back over another connection is a new process, perhaps without its log.

    A member of the syncStateSet whose machine lost power may lack what it acknowledged (`unproven`): it is elected only
    if none that kept everything lives and all members have reported, and then for its log's length. With unclean
    election, or as the last resort, the election does not wait.

    A learner (asyncLearner) is never elected, neither by name nor as the last resort. A group whose only complete log
    is a learner's waits until that replica is started without the key.

    The last resort is narrower than unclean election: while a member of the syncStateSet lives, or was not heard for
    too short a time to tell, messages would be lost without need.
    """
    winner = _among(group, group.sync_state_set, view, preferred, proven=True)
    no_waiting = options.enable_elect_unclean_master or options.last_resort
    if winner is None and no_waiting and why_waiting(group, view) is not None:
        winner = _among(group, group.sync_state_set, view, preferred)
    if winner is None and (options.enable_elect_unclean_master or (options.last_resort and _all_lost(group, view))):
        winner = _among(group, group.replicas, view, preferred)
    return winner


def why_waiting(group: BrokerGroup, view: LivenessView) -> str | None:
    """Why no replica is elected though members of the syncStateSet live, and what to do; None if that is not so."""
    name, members = group.broker_name, sorted(group.sync_state_set)
    infos = {broker_id: view.info(name, broker_id) for broker_id in members}
    learners = [broker_id for broker_id, info in infos.items() if info is not None and info.learner]
    voters = {broker_id: info for broker_id, info in infos.items() if broker_id not in learners}
    unproven = [broker_id for broker_id, info in voters.items() if info is not None and info.unproven]
    away = [broker_id for broker_id, info in infos.items() if not _reported(info)]
    if any(info is not None and info.connected and not info.unproven for info in voters.values()):
        return None
    if not unproven:
        return f"{of_learners(learners)}, and of the SyncStateSet {members} no other lives" if learners else None
    return (
        f"brokers {unproven} may lack what they acknowledged (a power cut, a damaged log, or one that is still being"
        " read after an unclean stop); waiting for one of the SyncStateSet"
        f" {members} that kept everything, or for all of them: {away} have not reported. To give up what those have:"
        " kubectl rocketmq elect-master GROUP POD --force-unclean"
    )


def of_learners(broker_ids: Iterable[BrokerId]) -> str:
    """Why these are not elected, and what to do."""
    return (
        f"brokers {sorted(broker_ids)} are learners (asyncLearner=true), which are never elected: to have one elected,"
        " start it without that key"
    )


def living_learners(group: BrokerGroup, view: LivenessView) -> tuple[BrokerId, ...]:
    """The learners among the replicas that live."""
    infos = {broker_id: view.info(group.broker_name, broker_id) for broker_id in group.replicas}
    return tuple(sorted(broker_id for broker_id, info in infos.items() if info is not None and info.learner))


def _all_lost(group: BrokerGroup, view: LivenessView) -> bool:
    name = group.broker_name
    return not any(presumed_alive(view, name, member) for member in group.sync_state_set)


def designated(group: BrokerGroup, view: LivenessView, among: str) -> BrokerId | None:
    """The preferred one of the ids in `among` (`2,3`) that can be elected, None if none can. A caller that names
    several has found their logs equal, more recently than heartbeats could: priority and id alone decide."""
    name = group.broker_name
    ids = {BrokerId(int(text)) for text in among.split(",")[:_MOST_NAMED] if text.isdecimal() and len(text) < 19}
    candidates = {
        broker_id: info
        for broker_id in ids & group.sync_state_set
        if view.alive(name, broker_id)
        and (info := view.info(name, broker_id) or _UNKNOWN).connected
        and not info.unproven
        and not info.learner
    }
    return min(candidates, key=lambda broker_id: (candidates[broker_id].election_priority, broker_id), default=None)


def _among(
    group: BrokerGroup,
    broker_ids: Iterable[BrokerId],
    view: LivenessView,
    preferred: BrokerId | None,
    *,
    proven: bool = False,
) -> BrokerId | None:
    name, master = group.broker_name, group.master_broker_id
    living = {
        broker_id: info
        for broker_id in broker_ids
        if view.alive(name, broker_id) and not (info := view.info(name, broker_id) or _UNKNOWN).learner
    }
    wanted = master if preferred is None else preferred
    if wanted is not None and wanted == master and wanted in living:
        return wanted
    candidates = {broker_id: info for broker_id, info in living.items() if info.connected}
    if proven:
        candidates = _proven(group, view, candidates)
    if preferred is not None:
        return preferred if preferred in candidates else None
    return min(candidates, key=lambda broker_id: rank(broker_id, candidates[broker_id]), default=None)


def _proven(
    group: BrokerGroup, view: LivenessView, candidates: dict[BrokerId, BrokerLiveInfo]
) -> dict[BrokerId, BrokerLiveInfo]:
    """Those that have everything acknowledged: those that kept all that they had or, if all members have reported where
    their logs end, those with the longest. KIP-966 calls it unclean recovery and also waits for all."""
    proven = {broker_id: info for broker_id, info in candidates.items() if not info.unproven}
    if proven or not candidates:
        return proven
    infos = [view.info(group.broker_name, broker_id) for broker_id in group.sync_state_set]
    if not all(map(_reported, infos)):
        return {}
    most = max((info.epoch, info.max_offset) for info in infos if info is not None)
    return {broker_id: info for broker_id, info in candidates.items() if (info.epoch, info.max_offset) == most}


def _reported(info: BrokerLiveInfo | None) -> bool:
    return info is not None and info.connected and info.max_offset >= 0
