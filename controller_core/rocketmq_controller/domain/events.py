"""What Raft replicates: one frozen value per kind of change, tagged with Java's type ids where Java has the event.

An event carries the epochs that it makes (or that it was decided on), so that applying it compares before it sets: if
the group has moved on since the leader decided, the event is void on every member (see `evolve`). The bytes are
made by `rocketmq_controller.log.event_codec`: fields may be appended with a default, never changed or moved (`forms`).
"""

import msgspec

from rocketmq_controller.domain.model import BrokerId, MasterEpoch, SyncStateSetEpoch


class _Event(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    broker_name: str


class AlterSyncStateSet(_Event, frozen=True, tag=1):
    """The master changed its in-sync members; `sync_state_set_epoch` is the new set's."""

    new_sync_state_set: frozenset[BrokerId]
    sync_state_set_epoch: SyncStateSetEpoch


class ApplyBrokerId(_Event, frozen=True, tag=2):
    """A broker took an id forever."""

    cluster_name: str
    broker_address: str
    new_broker_id: BrokerId
    register_check_code: str
    host: str = ""
    """That the request came from (`room`); "" while a member of the quorum could not read it."""


class ElectMaster(_Event, frozen=True, tag=3):
    """A new master and its syncStateSet; both epochs are the new ones."""

    new_master_broker_id: BrokerId
    master_epoch: MasterEpoch
    sync_state_set_epoch: SyncStateSetEpoch
    sync_state_set: frozenset[BrokerId]
    strict: bool
    """See `BrokerGroup.strict`."""


class CleanBrokerData(_Event, frozen=True, tag=5):
    """Members are forgotten, all of them without `broker_ids`; decided on `sync_state_set_epoch`."""

    broker_ids: frozenset[BrokerId] | None
    sync_state_set_epoch: SyncStateSetEpoch


class UpdateBrokerAddress(_Event, frozen=True, tag=6):
    """A member came back under another address."""

    broker_id: BrokerId
    broker_address: str


class MasterRestarted(_Event, frozen=True, tag=64):
    """The master was restarted, so its role is vacant; the epoch stays. Not in Java, see `registration`."""

    broker_id: BrokerId
    master_epoch: MasterEpoch


Event = AlterSyncStateSet | ApplyBrokerId | ElectMaster | CleanBrokerData | UpdateBrokerAddress | MasterRestarted
