"""Checks that a Java broker keeps its identity (invariant IdentityForever), and that its epoch file is valid. Pure.

The observing sidecar never writes the broker's files. It saves the identity that it has seen in a file of its own, and
so notices an identity file that was lost, replaced or mixed up with another replica's.
"""

import msgspec

from rocketmq_formats.broker_identity import BrokerIdentity, IdentityError, decode_identity
from rocketmq_formats.store.epoch_file import EpochFileError, decode_epochs


class ObservedReplica(msgspec.Struct, frozen=True, rename="camel"):
    """What the sidecar has seen of its replica; `observer.observed_file` keeps it on disk."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: int = 0
    """0: not seen yet."""
    broker_permission: int | None = None
    """The broker's brokerPermission before the fence, to restore it; None: not known."""

    @property
    def identity(self) -> BrokerIdentity | None:
        return BrokerIdentity(self.cluster_name, self.broker_name, self.broker_id) if self.broker_id else None


class IdentityFinding(msgspec.Struct, frozen=True):
    """The result of comparing the identity file with what was seen before."""

    identity: BrokerIdentity | None
    """The broker's identity: by its file, or as seen before if the file is missing or wrong."""
    trouble: str | None
    """What is wrong, and what to do."""

    def to_save(self, known: BrokerIdentity | None) -> BrokerIdentity | None:
        """The identity to save now; None: nothing new."""
        return self.identity if self.trouble is None and self.identity != known else None


def find_identity(
    data: bytes | None, *, known: BrokerIdentity | None, cluster_name: str, broker_name: str, path: str, note: str
) -> IdentityFinding:
    """Compare the file with what was seen before and with the configuration.

    Args:
        data: the file's bytes; None: no file.
        noted: what was seen earlier.
        cluster_name, broker_name: from the configuration.
        path, note: the names of the two files, for the text.
    """
    if data is None:
        if known is None:
            return IdentityFinding(None, None)
        return IdentityFinding(
            known,
            f"{path} is missing: this replica was {_text(known)}. Restore it with that text, or the broker asks for"
            f" another id when it starts next; to make this a new replica on purpose remove {note} too",
        )
    try:
        found = decode_identity(data)
    except IdentityError as error:
        restore = f"restore it with the text {_text(known)}" if known else "getSyncStateSet shows the ids given"
        return IdentityFinding(known, f"{path} is damaged: {error}; {restore}")
    if (found.cluster_name, found.broker_name) != (cluster_name, broker_name):
        return IdentityFinding(
            known,
            f"{path} belongs to {found.cluster_name}#{found.broker_name}, not to {cluster_name}#{broker_name}: correct"
            " brokerClusterName, brokerName or storePathRootDir",
        )
    if known is not None and found != known:
        return IdentityFinding(
            known,
            f"{path} says brokerId {found.broker_id}, and this replica was {_text(known)}: the store of another"
            f" replica, or an identity that was lost. If it is meant to be another replica now, remove {note}",
        )
    return IdentityFinding(found, None)


def wrong_group(cluster_name: str, broker_name: str, *, wanted: tuple[str, str], address: str) -> str | None:
    """None if the broker that answers belongs to this group; else what to do."""
    if (cluster_name, broker_name) == wanted:
        return None
    return (
        f"the broker at {address} belongs to {cluster_name}#{broker_name}, not to {'#'.join(wanted)}: give it and its"
        " sidecar the same file"
    )


def damaged_epochs(path: str, problem: EpochFileError, backup: bytes | None) -> str:
    """What a damaged epoch file means, which depends on its backup."""
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
