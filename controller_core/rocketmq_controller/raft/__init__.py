"""Raft over PySyncObj; nothing outside this package depends on the library.

`Replica` is one member in the event loop; it drives a `StateMachine` that the application brings. See machine.py for
the core.
"""

from rocketmq_controller.raft.configuration import (
    AddMember,
    Change,
    ChangePendingError,
    Configuration,
    MemberExistsError,
    MembershipError,
    QuorumAtRiskError,
    RemoveMember,
    UnknownMemberError,
)
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
from rocketmq_controller.raft.ports import StateMachine
from rocketmq_controller.raft.replica import Replica
from rocketmq_controller.raft.settings import Limits, RaftSettings, Timings
from rocketmq_controller.raft.status import LeadershipTerms, MemberStatus, RaftStatus, Role

__all__ = [
    "AddMember",
    "ApplyError",
    "Change",
    "ChangePendingError",
    "CommandTooLargeError",
    "Configuration",
    "FatalRaftError",
    "InvariantViolationError",
    "LeadershipTerms",
    "Limits",
    "MemberExistsError",
    "MemberStatus",
    "MembershipError",
    "NotLeaderError",
    "OverloadedError",
    "ProposalLostError",
    "QuorumAtRiskError",
    "RaftError",
    "RaftSettings",
    "RaftSettingsError",
    "RaftStatus",
    "RemoveMember",
    "Replica",
    "Role",
    "StateMachine",
    "StoreMismatchError",
    "Timings",
    "TransferError",
    "UnknownMemberError",
]
