"""Applying events: the only code that makes new state, run on every controller in log order.

`evolve` is total and never raises: an event that does not fit the group (it was decided on an older version, and
another one was committed first) is void: it changes nothing, on any member. The proposer sees that `evolve` returned
the very same object and answers with `decision.superseded`.
"""

from msgspec.structs import replace

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
    return replace(group, sync_state_set=event.new_sync_state_set, sync_state_set_epoch=event.sync_state_set_epoch)


def _elect_master(group: BrokerGroup, event: events.ElectMaster) -> BrokerGroup | None:
    members = event.sync_state_set
    if (
        event.master_epoch != group.master_epoch + 1
        or event.sync_state_set_epoch != group.sync_state_set_epoch + 1
        or event.new_master_broker_id not in members
        or not members <= group.replicas.keys()
    ):
        return None
    return replace(
        group,
        master_broker_id=event.new_master_broker_id,
        master_epoch=event.master_epoch,
        sync_state_set=members,
        sync_state_set_epoch=event.sync_state_set_epoch,
        strict=event.strict,
    )


def _add_replica(group: BrokerGroup | None, event: events.ApplyBrokerId) -> BrokerGroup | None:
    broker_id = event.new_broker_id
    replica = Replica(broker_id, event.broker_address, event.register_check_code)
    if group is None:
        group = BrokerGroup(event.cluster_name, event.broker_name, host=event.host)
    if broker_id < group.next_broker_id:
        return None
    return replace(
        group,
        # Only a tombstone may come back in another cluster.
        cluster_name=group.cluster_name if group.replicas else event.cluster_name,
        next_broker_id=BrokerId(broker_id + 1),
        replicas={**group.replicas, broker_id: replica},
        hosts={**group.hosts, broker_id: event.host} if event.host else group.hosts,
    )


def _remove_replicas(group: BrokerGroup, event: events.CleanBrokerData) -> BrokerGroup | None:
    if event.sync_state_set_epoch != group.sync_state_set_epoch:
        return None
    removed = frozenset(group.replicas) if event.broker_ids is None else event.broker_ids
    sync_state_set = group.sync_state_set - removed
    # The set's epoch is its version: a master that holds the old set must see that there is a newer one.
    changed = sync_state_set != group.sync_state_set
    return replace(
        group,
        replicas={broker_id: replica for broker_id, replica in group.replicas.items() if broker_id not in removed},
        hosts={broker_id: host for broker_id, host in group.hosts.items() if broker_id not in removed},
        master_broker_id=None if group.master_broker_id in removed else group.master_broker_id,
        sync_state_set=sync_state_set,
        sync_state_set_epoch=SyncStateSetEpoch(group.sync_state_set_epoch + changed),
    )


def _move_replica(group: BrokerGroup, event: events.UpdateBrokerAddress) -> BrokerGroup | None:
    present = group.replicas.get(event.broker_id)
    if present is None or present.address == event.broker_address:
        return None
    moved = Replica(event.broker_id, event.broker_address, present.register_check_code)
    return replace(group, replicas={**group.replicas, event.broker_id: moved})


def _vacate_master(group: BrokerGroup, event: events.MasterRestarted) -> BrokerGroup | None:
    if group.master_broker_id != event.broker_id or group.master_epoch != event.master_epoch:
        return None
    return replace(group, master_broker_id=None)
