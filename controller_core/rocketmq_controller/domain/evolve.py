"""Applying events: the only code that makes new state, run on every controller in log order.

`evolve` is total and never raises: an event that does not fit the group (it was decided on an older version, and
another one was committed first) is void: it changes nothing, on every member alike. Who proposed it sees that
`evolve` returned the very same object and answers with `decision.superseded`.
"""

from rocketmq_controller.domain import events
from rocketmq_controller.domain.model import BrokerGroup, BrokerId, Replica, SyncStateSetEpoch


def evolve(group: BrokerGroup | None, event: events.Event) -> BrokerGroup | None:
    """The group after the event; the same object if the event is void."""
    after: BrokerGroup | None = None
    if isinstance(event, events.ApplyBrokerId):
        after = _add_replica(group, event)
    elif group is not None and group.replicas:
        match event:
            case events.AlterSyncStateSet():
                after = _alter_sync_state_set(group, event)
            case events.ElectMaster():
                after = _elect_master(group, event)
            case events.CleanBrokerData():
                after = _remove_replicas(group, event)
            case events.UpdateBrokerAddress():
                after = _move_replica(group, event)
            case events.MasterRestarted():
                after = _vacate_master(group, event)
    return group if after is None else after


# Each of these returns None if the event is void.


def _alter_sync_state_set(group: BrokerGroup, event: events.AlterSyncStateSet) -> BrokerGroup | None:
    if (
        event.sync_state_set_epoch != group.sync_state_set_epoch + 1
        or group.master_broker_id not in event.new_sync_state_set
        or not event.new_sync_state_set <= group.replicas.keys()
    ):
        return None
    return BrokerGroup(
        group.cluster_name,
        group.broker_name,
        group.next_broker_id,
        group.replicas,
        group.master_broker_id,
        group.master_epoch,
        event.new_sync_state_set,
        event.sync_state_set_epoch,
    )


def _elect_master(group: BrokerGroup, event: events.ElectMaster) -> BrokerGroup | None:
    if (
        event.master_epoch != group.master_epoch + 1
        or event.sync_state_set_epoch != group.sync_state_set_epoch + 1
        or event.new_master_broker_id not in group.replicas
    ):
        return None
    return BrokerGroup(
        group.cluster_name,
        group.broker_name,
        group.next_broker_id,
        group.replicas,
        event.new_master_broker_id,
        event.master_epoch,
        frozenset((event.new_master_broker_id,)),
        event.sync_state_set_epoch,
    )


def _add_replica(group: BrokerGroup | None, event: events.ApplyBrokerId) -> BrokerGroup | None:
    broker_id = event.new_broker_id
    replica = Replica(broker_id, event.broker_address, event.register_check_code)
    next_broker_id = BrokerId(broker_id + 1)
    if group is None:
        group = BrokerGroup(event.cluster_name, event.broker_name)
    if broker_id < group.next_broker_id:
        return None
    return BrokerGroup(
        # Only a tombstone may come back in another cluster.
        group.cluster_name if group.replicas else event.cluster_name,
        group.broker_name,
        next_broker_id,
        {**group.replicas, broker_id: replica},
        group.master_broker_id,
        group.master_epoch,
        group.sync_state_set,
        group.sync_state_set_epoch,
    )


def _remove_replicas(group: BrokerGroup, event: events.CleanBrokerData) -> BrokerGroup | None:
    if event.sync_state_set_epoch != group.sync_state_set_epoch:
        return None
    gone = frozenset(group.replicas) if event.broker_ids is None else event.broker_ids
    sync_state_set = group.sync_state_set - gone
    # The set's epoch is its version: a master that holds the old set must see that there is a newer one.
    changed = sync_state_set != group.sync_state_set
    return BrokerGroup(
        group.cluster_name,
        group.broker_name,
        group.next_broker_id,
        {broker_id: replica for broker_id, replica in group.replicas.items() if broker_id not in gone},
        None if group.master_broker_id in gone else group.master_broker_id,
        group.master_epoch,
        sync_state_set,
        SyncStateSetEpoch(group.sync_state_set_epoch + changed),
    )


def _move_replica(group: BrokerGroup, event: events.UpdateBrokerAddress) -> BrokerGroup | None:
    present = group.replicas.get(event.broker_id)
    if present is None or present.address == event.broker_address:
        return None
    moved = Replica(event.broker_id, event.broker_address, present.register_check_code)
    return BrokerGroup(
        group.cluster_name,
        group.broker_name,
        group.next_broker_id,
        {**group.replicas, event.broker_id: moved},
        group.master_broker_id,
        group.master_epoch,
        group.sync_state_set,
        group.sync_state_set_epoch,
    )


def _vacate_master(group: BrokerGroup, event: events.MasterRestarted) -> BrokerGroup | None:
    if group.master_broker_id != event.broker_id or group.master_epoch != event.master_epoch:
        return None
    return BrokerGroup(
        group.cluster_name,
        group.broker_name,
        group.next_broker_id,
        group.replicas,
        None,
        group.master_epoch,
        group.sync_state_set,
        group.sync_state_set_epoch,
    )
