"""What the tests of the controller's domain share: a liveness view of plain values, and short ways to make requests."""

from collections.abc import Mapping

from rocketmq_controller.domain import events, evolve, invariants
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.model import (
    BrokerGroup,
    BrokerId,
    BrokerLiveInfo,
    MasterEpoch,
    Options,
    Replica,
    SyncStateSetEpoch,
)
from rocketmq_formats.remoting.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    SyncStateSet,
)

CLEAN, UNCLEAN = Options(), Options(enable_elect_unclean_master=True)
NAME = "broker-a"


class StaticView:
    """Who lives, said by the test: `alive` maps an id to its live info, `unheard` lists ids in the grace period."""

    def __init__(
        self, alive: Mapping[int, BrokerLiveInfo] | set[int] | None = None, unheard: frozenset[int] = frozenset()
    ) -> None:
        infos = alive if isinstance(alive, Mapping) else {broker_id: BrokerLiveInfo() for broker_id in alive or ()}
        self._infos = dict(infos)
        self._unheard = unheard

    def alive(self, broker_name: str, broker_id: int) -> bool:
        return broker_id in self._infos

    def unheard(self, broker_name: str, broker_id: int) -> bool:
        return broker_id in self._unheard

    def info(self, broker_name: str, broker_id: int) -> BrokerLiveInfo | None:
        return self._infos.get(broker_id)


def make_group(
    *,
    ids: tuple[int, ...] = (1, 2, 3),
    master: int | None = 1,
    in_sync: tuple[int, ...] = (1, 2, 3),
    master_epoch: int = 4,
    set_epoch: int = 7,
    next_id: int | None = None,
) -> BrokerGroup:
    """A group of cluster C called broker-a; member n has address 10.0.0.n:10911 and check code `<address>;n`."""
    group = BrokerGroup(
        "C",
        NAME,
        BrokerId(next_id or max(ids, default=0) + 1),
        {BrokerId(i): Replica(BrokerId(i), address(i), f"{address(i)};{i}") for i in ids},
        None if master is None else BrokerId(master),
        MasterEpoch(master_epoch),
        frozenset(map(BrokerId, in_sync)),
        SyncStateSetEpoch(set_epoch),
    )
    invariants.check_group(group)
    return group


def address(broker_id: int) -> str:
    return f"10.0.0.{broker_id}:10911"


def fresh_group(*ids: int) -> BrokerGroup:
    """Registered members that never had a master."""
    return make_group(ids=ids or (1, 2, 3), master=None, in_sync=(), master_epoch=0, set_epoch=0)


def settle(group: BrokerGroup | None, decision: Decision, options: Options = CLEAN) -> BrokerGroup | None:
    """The group after the decision's events, each checked."""
    for event in decision.events:
        after = evolve.evolve(group, event)
        invariants.check_transition(group, event, after, options)
        assert after is not group, "an event decided on this very group is never void"
        group = after
    return group


def settled(group: BrokerGroup | None, decision: Decision, options: Options = CLEAN) -> BrokerGroup:
    after = settle(group, decision, options)
    assert after is not None
    return after


def only_event(decision: Decision) -> events.Event:
    assert len(decision.events) == 1
    return decision.events[0]


def sync_set(*ids: int, epoch: int = 7) -> SyncStateSet:
    return SyncStateSet(sync_state_set=frozenset(ids), sync_state_set_epoch=epoch)


def alter(*, master: int = 1, epoch: int = 4) -> AlterSyncStateSetRequestHeader:
    return AlterSyncStateSetRequestHeader(broker_name=NAME, master_broker_id=master, master_epoch=epoch)


def elect(broker_id: int = -1, *, designate: bool = False) -> ElectMasterRequestHeader:
    return ElectMasterRequestHeader(cluster_name="C", broker_name=NAME, broker_id=broker_id, designate_elect=designate)


def apply_id(broker_id: int, check_code: str | None = None, **names: str) -> ApplyBrokerIdRequestHeader:
    return ApplyBrokerIdRequestHeader(
        cluster_name=names.get("cluster", "C"),
        broker_name=names.get("name", NAME),
        applied_broker_id=broker_id,
        register_check_code=f"{address(broker_id)};{broker_id}" if check_code is None else check_code,
    )


def register(
    broker_id: int, broker_address: str | None = None, **names: str
) -> RegisterBrokerToControllerRequestHeader:
    return RegisterBrokerToControllerRequestHeader(
        cluster_name=names.get("cluster", "C"),
        broker_name=names.get("name", NAME),
        broker_id=broker_id,
        broker_address=address(broker_id) if broker_address is None else broker_address,
    )


def clean(ids: str | None = None, *, forced: bool = False) -> CleanControllerBrokerDataRequestHeader:
    return CleanControllerBrokerDataRequestHeader(
        cluster_name="C", broker_name=NAME, broker_controller_ids_to_clean=ids, is_clean_living_broker=forced
    )


def tombstone() -> BrokerGroup:
    """What a full clean leaves of a group whose ids 1..3 and epochs 4 and 8 were used."""
    return make_group(ids=(), master=None, in_sync=(), master_epoch=4, set_epoch=8, next_id=4)
