"""electMaster (1002): from brokers without a master, from tools (designateElect), from the controller itself (id -1).

Differs from 5.3.3:
- When no replica can be elected, no event is made. Java commits "no master" at each of the controller's tries and so
  uses up three epochs per dead set, to make brokers try again. Here the dead master stays recorded, and recovery does
  not need the event: a member of the syncStateSet that returns gets no master from registerBroker (the recorded one is
  not alive), so it asks for an election itself; `groups_needing_election` also finds it in the next scan; and a master
  that was only silent for a while continues in its epoch.
- The very first master must be a registered id. It need not be alive: brokers send the heartbeat that announces them
  asynchronously, just before they ask, and it may arrive later. If the controller or a tool without an id asks first,
  Java uses up epoch 0 and can never elect again; here it is refused and the first broker that asks is elected.
- "First" means an empty syncStateSet, not masterEpoch 0, since epochs outlive the cleaning of a whole set
  (`cleaning`).
- While a new controller leader has not listened for long enough to have heard the master, no replica may replace it.
- No replica is designated in place of a living master that acknowledges alone under a write lease
  (durability=relaxed): that master would continue for some time, and what it acknowledges then would be lost.
- Learners (asyncLearner) are never elected, not as the first either. Java elects a learner that asks first, and one
  outside the syncStateSet with unclean election. An official learner does not say that it is one.
- An epoch that would leave Java's int is refused.
- Where the last master and the new one are both strict, all members stay in the syncStateSet (KeepsElectable): each of
  them has everything that was acknowledged, and the new master acknowledges nothing without all of them. It makes the
  set smaller itself, as soon as two have begun its epoch. Otherwise the new master begins alone, as in Java: a member
  may lack what a master acknowledged that does not wait for all.
"""

from rocketmq_controller.domain import events
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.model import (
    MAX_EPOCH,
    BrokerGroup,
    BrokerId,
    LivenessView,
    MasterEpoch,
    Options,
    State,
    SyncStateSetEpoch,
)
from rocketmq_controller.domain.requests import policy
from rocketmq_controller.domain.requests.identity import named_foreign_cluster
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import (
    NO_BROKER_ID,
    BrokerMemberGroup,
    ElectMasterRequestHeader,
    ElectMasterResponseBody,
    ElectMasterResponseHeader,
)

_NO_HEADER = ElectMasterResponseHeader()
_NOT_REGISTERED = Decision(
    ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, "Broker hasn't been registered", _NO_HEADER
)
_MASTER_NOT_AVAILABLE = Decision(
    ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
    "Old master has down and failed to elect a new broker master",
    _NO_HEADER,
)
_ELECT_MASTER_FAILED = Decision(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, "Failed to elect a new master", _NO_HEADER)


def elect_master(
    group: BrokerGroup | None, request: ElectMasterRequestHeader, view: LivenessView, options: Options
) -> Decision:
    """Codes: 0 elected, 2011 the old master stays, 2004 or 2012 no replica can be (by who asked), 2010 unknown set,
    2005 a group of another cluster."""
    foreign = named_foreign_cluster(group, request.cluster_name)
    if group is None or not group.replicas or foreign is not None:
        return _NOT_REGISTERED if foreign is None else _of_another_cluster(foreign)
    asking = None if request.broker_id == NO_BROKER_ID else request.broker_id
    if group.never_elected and asking is not None:
        return _first(group, BrokerId(asking), view)
    preferred = _preferred(group, request, view) if request.designate_elect else None
    master, name = group.master_broker_id, group.broker_name
    if master is not None and view.unheard(name, master):
        return _refused(asking, f"this controller has not listened for long enough to call master {master} dead")
    lease = _lease_of(group, view)
    if preferred not in {None, master} and lease > 0:
        return _refused(
            asking,
            f"master {master} has a write lease (durability=relaxed) and may acknowledge alone for {lease:.1f} s and"
            " longer while it lives: have its sidecar hand over (SidecarAdmin.HandOver), or stop it in order",
        )
    winner = policy.elect(group, view, options, preferred=preferred)
    if winner is None:
        return _no_candidate(group, view, asking, options)
    return _master_stays(group, winner) if winner == master else _elected(group, winner, asking, view)


def _of_another_cluster(remark: str) -> Decision:
    return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, remark, _NO_HEADER)


def groups_needing_election(state: State, view: LivenessView, options: Options) -> tuple[str, ...]:
    """Names of the groups whose master is dead and that have a replica to take its place, sorted.

    For the leader's periodic scan. Groups that never had a master are left to their brokers.
    """
    return tuple(sorted(name for name, group in state.items() if needs_election(group, view, options)))


def groups_waiting(state: State, view: LivenessView, options: Options) -> dict[str, str]:
    """The groups whose master is dead and that elect no other though members of the syncStateSet live, and why."""
    found = {
        name: policy.why_waiting(group, view)
        for name, group in state.items()
        if not _has_master(group, view) and policy.elect(group, view, options) is None
    }
    return {name: why for name, why in found.items() if why is not None}


def needs_election(group: BrokerGroup, view: LivenessView, options: Options) -> bool:
    """Whether the group's master is dead and an election now would give it another one."""
    if group.never_elected or _has_master(group, view):
        return False
    return policy.elect(group, view, options) is not None


def _has_master(group: BrokerGroup, view: LivenessView) -> bool:
    master, name = group.master_broker_id, group.broker_name
    return master is not None and (view.alive(name, master) or view.unheard(name, master))


def _preferred(group: BrokerGroup, request: ElectMasterRequestHeader, view: LivenessView) -> BrokerId:
    best = None if request.designate_among is None else policy.designated(group, view, request.designate_among)
    return BrokerId(request.broker_id) if best is None else best


def _lease_of(group: BrokerGroup, view: LivenessView) -> float:
    info = None if group.master_broker_id is None else view.info(group.broker_name, group.master_broker_id)
    return 0.0 if info is None else info.lease


def _first(group: BrokerGroup, asking: BrokerId, view: LivenessView) -> Decision:
    if asking not in group.replicas:
        return _refused(asking, f"brokerId {asking} is not registered in broker-set {group.broker_name}")
    if asking in policy.living_learners(group, view):
        return _refused(asking, policy.of_learners((asking,)))
    return _elected(group, asking, asking, view)


def _master_stays(group: BrokerGroup, master: BrokerId) -> Decision:
    header = ElectMasterResponseHeader(
        master_broker_id=master,
        master_address=group.address_of(master),
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_state_set_epoch,
    )
    remark = f"The old master {master} is still alive, not need to elect new master for broker {group.broker_name}"
    body = ElectMasterResponseBody(sync_state_set=group.sync_state_set)
    return Decision(ResponseCode.CONTROLLER_MASTER_STILL_EXIST, remark, header, body)


def _elected(group: BrokerGroup, master: BrokerId, asking: int | None, view: LivenessView) -> Decision:
    if group.master_epoch >= MAX_EPOCH or group.sync_state_set_epoch >= MAX_EPOCH:
        epochs = f"masterEpoch {group.master_epoch}, syncStateSetEpoch {group.sync_state_set_epoch}"
        return _refused(asking, f"an epoch has reached {MAX_EPOCH} ({epochs})")
    info = view.info(group.broker_name, master)
    strict = info is not None and info.strict
    members = _members(group, master, strict=strict)
    master_epoch = MasterEpoch(group.master_epoch + 1)
    sync_state_set_epoch = SyncStateSetEpoch(group.sync_state_set_epoch + 1)
    header = ElectMasterResponseHeader(
        master_broker_id=master,
        master_address=group.address_of(master),
        master_epoch=master_epoch,
        sync_state_set_epoch=sync_state_set_epoch,
    )
    body = ElectMasterResponseBody(
        broker_member_group=BrokerMemberGroup(
            broker_addrs={broker_id: replica.address for broker_id, replica in group.replicas.items()},
            broker_name=group.broker_name,
            cluster=group.cluster_name,
        ),
        sync_state_set=members,
    )
    event = events.ElectMaster(group.broker_name, master, master_epoch, sync_state_set_epoch, members, strict)
    return Decision(ResponseCode.SUCCESS, None, header, body, (event,))


def _members(group: BrokerGroup, master: BrokerId, *, strict: bool) -> frozenset[BrokerId]:
    kept = strict and group.strict and master in group.sync_state_set
    return group.sync_state_set if kept else frozenset((master,))


def _no_candidate(group: BrokerGroup, view: LivenessView, asking: int | None, options: Options) -> Decision:
    why = policy.why_waiting(group, view)
    if why is not None:
        return _refused(asking, why)
    unclean = options.enable_elect_unclean_master or options.last_resort
    learners = [one for one in policy.living_learners(group, view) if unclean or one == asking]
    if learners:
        return _refused(asking, policy.of_learners(learners))
    return _MASTER_NOT_AVAILABLE if asking is None else _ELECT_MASTER_FAILED


def _refused(asking: int | None, reason: str) -> Decision:
    code = (
        ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE if asking is None else ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    )
    return Decision(code, f"Failed to elect a new master: {reason}", _NO_HEADER)
