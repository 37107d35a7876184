"""All that can be asked of the state machine, by request code; the shell calls `decide.<function>` on the leader.

Each takes the group (None if unknown), the typed request and what it may know of the world, and returns a `Decision`.
"""

from rocketmq_controller.domain.cleaning import clean_broker_data  # 1011
from rocketmq_controller.domain.decision import Decision, superseded
from rocketmq_controller.domain.election import elect_master, groups_needing_election, needs_election  # 1002
from rocketmq_controller.domain.queries import get_replica_info, get_sync_state_data  # 1004, 1006
from rocketmq_controller.domain.registration import (
    apply_broker_id,
    get_next_broker_id,
    register_broker,
)  # 1013 1012 1003
from rocketmq_controller.domain.sync_state import alter_sync_state_set  # 1001

__all__ = [
    "Decision",
    "alter_sync_state_set",
    "apply_broker_id",
    "clean_broker_data",
    "elect_master",
    "get_next_broker_id",
    "get_replica_info",
    "get_sync_state_data",
    "groups_needing_election",
    "needs_election",
    "register_broker",
    "superseded",
]
