"""Whether a Java broker is still who it was (invariant IdentityForever), and its epoch file what such a file is. Pure.

The observing sidecar never writes the broker's files. What it has once seen it keeps in a note of its own, so that an
identity file that was lost, replaced or mixed up with another replica's is noticed.
"""

import msgspec

from rocketmq_formats.broker_identity import BrokerIdentity, IdentityError, decode_identity
from rocketmq_formats.store.epoch_file import EpochFileError, decode_epochs


class IdentityFinding(msgspec.Struct, frozen=True):
    """What the identity file says, beside the note."""

    identity: BrokerIdentity | None
    """Who the broker is: by its file, or by the note if the file is missing or wrong."""
    trouble: str | None
    """What is wrong, and what to do."""

    def to_note(self, noted: BrokerIdentity | None) -> BrokerIdentity | None:
        """What is to be noted now; None: nothing new."""
        return self.identity if self.trouble is None and self.identity != noted else None


def find_identity(
    data: bytes | None, *, noted: BrokerIdentity | None, cluster_name: str, broker_name: str, path: str, note: str
) -> IdentityFinding:
    """Compare the file with the note and the configuration.

    Args:
        data: the file's bytes; None: there is none.
        noted: what was seen earlier.
        cluster_name, broker_name: by the configuration.
        path, note: the files' names, for the reader of the reason.
    """
    if data is None:
        if noted is None:
            return IdentityFinding(None, None)
        return IdentityFinding(
            noted,
            f"{path} is missing: this replica was {_text(noted)}. Restore it with that text, or the broker asks for"
            f" another id when it starts next; to make this a new replica on purpose remove {note} too",
        )
    try:
        found = decode_identity(data)
    except IdentityError as error:
        restore = f"restore it with the text {_text(noted)}" if noted else "getSyncStateSet shows the ids given"
        return IdentityFinding(noted, f"{path} is damaged: {error}; {restore}")
    if (found.cluster_name, found.broker_name) != (cluster_name, broker_name):
        return IdentityFinding(
            noted,
            f"{path} belongs to {found.cluster_name}#{found.broker_name}, not to {cluster_name}#{broker_name}: correct"
            " brokerClusterName, brokerName or storePathRootDir",
        )
    if noted is not None and found != noted:
        return IdentityFinding(
            noted,
            f"{path} says brokerId {found.broker_id}, and this replica was {_text(noted)}: the store of another"
            f" replica, or an identity that was lost. If it is meant to be another replica now, remove {note}",
        )
    return IdentityFinding(found, None)


def strangers(cluster_name: str, broker_name: str, *, wanted: tuple[str, str], address: str) -> str | None:
    """None if the broker that answers is of this group; else what to do."""
    if (cluster_name, broker_name) == wanted:
        return None
    return (
        f"the broker at {address} is of {cluster_name}#{broker_name}, not of {'#'.join(wanted)}: give it and its"
        " sidecar the same file"
    )


def damaged_epochs(path: str, problem: EpochFileError, backup: bytes | None) -> str:
    """What an epoch file that cannot be read means, by whether its backup can."""
    try:
        decode_epochs(backup or b"")
    except EpochFileError:
        return (
            f"{path} and its backup are damaged ({problem}): a broker that starts with them does not replicate; rebuild"
            " this replica while others are in sync"
        )
    return f"{path} is damaged ({problem}): the broker will use its backup when it starts next"


def _text(identity: BrokerIdentity) -> str:
    return f"{identity.cluster_name}#{identity.broker_name}#{identity.broker_id}"
