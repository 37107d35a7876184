"""Raft over PySyncObj; nothing outside this package knows which library carries the log.

`Replica` is one member in the event loop; it drives a `StateMachine` that the application brings. See machine.py for
the core.
"""

from rocketmq_controller.raft.errors import (
    ApplyError,
    CommandTooLargeError,
    FatalRaftError,
    InvariantViolationError,
    NotLeaderError,
    OverloadedError,
    ProposalLostError,
    RaftError,
    RaftSettingsError,
    StoreMismatchError,
    TransferError,
)
from rocketmq_controller.raft.replica import Replica
from rocketmq_controller.raft.settings import Limits, RaftSettings, Timings
from rocketmq_controller.raft.status import MemberStatus, RaftStatus, Role
from rocketmq_controller.raft.stores import StateMachine

__all__ = [
    "ApplyError",
    "CommandTooLargeError",
    "FatalRaftError",
    "InvariantViolationError",
    "Limits",
    "MemberStatus",
    "NotLeaderError",
    "OverloadedError",
    "ProposalLostError",
    "RaftError",
    "RaftSettings",
    "RaftSettingsError",
    "RaftStatus",
    "Replica",
    "Role",
    "StateMachine",
    "StoreMismatchError",
    "Timings",
    "TransferError",
]
