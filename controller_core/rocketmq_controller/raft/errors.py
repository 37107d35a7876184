"""What can go wrong in Raft, by what the caller can do about it: go elsewhere, ask again, wait, or stop the process."""


class RaftError(Exception):
    """Base of everything this package raises on purpose."""


class NotLeaderError(RaftError):
    """This member does not lead (or is handing over): nothing was proposed; ask `leader_id` if it is known."""

    def __init__(self, leader_id: str | None) -> None:
        super().__init__(f"not the leader; leader: {leader_id or 'unknown'}")
        self.leader_id = leader_id


class ProposalLostError(RaftError):
    """Leadership was lost before the command committed: it may still commit, or never; the caller has to check."""


class OverloadedError(RaftError):
    """Too many commands wait for commit already: nothing was proposed; try again later."""


class CommandTooLargeError(RaftError):
    """A command beyond `RaftSettings.max_command_bytes`: nothing was proposed, and trying again does not help."""


class TransferError(RaftError):
    """Leadership was not handed over; this member still leads."""


class RaftSettingsError(RaftError):
    """Settings that contradict each other; the text names them."""


class WireError(RaftError):
    """A peer sent what the protocol does not allow; the connection is closed."""


class HandshakeError(RaftError):
    """A connection did not prove that it comes from a member with our secret."""


class FatalRaftError(RaftError):
    """The member cannot continue without risking the quorum's promises: the process must stop."""


class ApplyError(FatalRaftError):
    """The state machine raised while applying a committed command; to continue would let members diverge."""


class InvariantViolationError(FatalRaftError):
    """Something that Raft rules out has happened: two leaders of one term, a cut into committed entries, a hole in the
    log."""


class ForeignLineageError(FatalRaftError):
    """The store belongs to another quorum than those of most other members."""


class DivergedError(FatalRaftError):
    """The log differs from the leader's where both must be equal: one of them was changed behind its back."""


class StoreMismatchError(FatalRaftError):
    """Journal, snapshot and vote on disk do not belong together; the start is refused."""
