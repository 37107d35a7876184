"""What replication refuses, for those who decide what becomes of the replica then."""


class ReplicationError(Exception):
    """Replication cannot do what was asked; the text says what an operator can do."""


class StaleEpochError(ReplicationError):
    """Asked to be master of an epoch older than the last one in the epoch file: whoever decided this knew less."""


class TruncationError(ReplicationError):
    """This slave cannot follow that master without an operator; the text says why and what to do."""
