"""The operator's cache of the cluster: its own resources as a whole, of other objects only what plans need.

`handlers` puts every watch event into it and `execute` every answer of the API server, so a plan always includes the
operator's own changes. Read by `observe`.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from rocketmq_operator.kubernetes.broker_names import BrokerNames, GroupName
from rocketmq_operator.kubernetes.parse import Value, essence, value_of
from rocketmq_resources import names
from rocketmq_resources.decoding import Json


class Key(NamedTuple):
    """Names an object of the API server."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The newest known version of one object."""

    uid: str
    version: int
    """metadata.resourceVersion; within a kind a higher one is newer."""
    owner: Key | None
    """The BrokerGroup, ControllerCluster or NameServer that it belongs to."""
    essence: bytes
    """Digest of everything except status and bookkeeping: differs when a client has changed the object."""
    value: Value


OWNER_LABELS: Final = {
    names.LABEL_GROUP: "BrokerGroup",
    names.LABEL_CONTROLLER_CLUSTER: "ControllerCluster",
    names.LABEL_NAME_SERVER: "NameServer",
}


REMEMBERED: Final = 4096
"""Deleted objects whose last versions are kept."""


class Cache:
    """Objects by key; `changed(owner)` is called when a resource or one of its objects has changed."""

    def __init__(self, changed: Callable[[Key], None]) -> None:
        self._entries: dict[Key, Entry] = {}
        self._children: dict[Key, set[Key]] = {}
        self._revisions: dict[Key, int] = {}
        self._changed = changed
        self.broker_names = BrokerNames()
        self._ended: OrderedDict[str, int] = OrderedDict()
        """By uid of a deleted object: the version that was its last; the oldest deletions first."""

    def revision(self, owner: Key) -> int:
        """Grows with every change of a resource or of its objects."""
        return self._revisions.get(owner, 0)

    def put(self, body: Json) -> None:
        """Store an object from the API server. Older versions than the known one are dropped, also those of a former
        object of that name: kopf keeps the order of events within a uid only."""
        key, metadata = key_of(body)
        uid, version = str(metadata.get("uid", "")), number(metadata.get("resourceVersion"))
        old = self._entries.get(key)
        if version <= self._ended.get(uid, -1) or (old is not None and version <= old.version):
            return
        owner = key if key.kind in names.PLURALS else _owner(key, metadata)
        entry = Entry(uid=uid, version=version, owner=owner, essence=essence(body), value=value_of(key.kind, body))
        if old is not None and old.owner is not None and old.owner != owner:
            self._unlink(key, old)
        self._entries[key] = entry
        if key.kind == "BrokerGroup":
            self.broker_names.note(GroupName(key.namespace, key.name), body)
        if owner is not None:
            if owner != key:
                self._children.setdefault(owner, set()).add(key)
            if old is None or old.essence != entry.essence or old.value != entry.value:
                self._notify(owner)

    def remove(self, key: Key, uid: str | None = None) -> None:
        """Remove a deleted object; with `uid` only that very object."""
        entry = self._entries.get(key)
        if entry is None or (uid is not None and entry.uid != uid):
            return
        del self._entries[key]
        if key.kind == "BrokerGroup":
            self.broker_names.note(GroupName(key.namespace, key.name), None)
        self._unlink(key, entry)
        if entry.owner is not None:
            self._notify(entry.owner)

    def end(self, key: Key, uid: str, version: int) -> None:
        """Remove an object whose deletion an event reported. An answer to an earlier call may come after it; a newer
        version means that the object has only been without the label of the watch."""
        self._ended[uid] = version
        self._ended.move_to_end(uid)
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
        self.remove(key, uid)

    def get(self, key: Key) -> Entry | None:
        return self._entries.get(key)

    def body(self, key: Key) -> Json | None:
        """One of our own resources."""
        entry = self._entries.get(key)
        return entry.value if entry is not None and isinstance(entry.value, Mapping) else None

    def children(self, owner: Key, kind: str) -> Iterator[Entry]:
        """Objects of one kind that belong to a resource."""
        for key in self._children.get(owner, ()):
            if key.kind == kind:
                yield self._entries[key]

    def keys(self, kind: str) -> list[Key]:
        """Of a copy, because the thread that serves scrapes calls this too."""
        return [key for key in list(self._entries) if key.kind == kind]

    def __len__(self) -> int:
        return len(self._entries)

    def _notify(self, owner: Key) -> None:
        self._revisions[owner] = self._revisions.get(owner, 0) + 1
        self._changed(owner)

    def _unlink(self, key: Key, entry: Entry) -> None:
        if entry.owner is None or entry.owner == key:
            return
        siblings = self._children.get(entry.owner)
        if siblings is not None:
            siblings.discard(key)
            if not siblings:
                del self._children[entry.owner]


def key_of(body: Json) -> tuple[Key, Mapping[str, object]]:
    """The key of an object, and its metadata."""
    metadata = body.get("metadata")
    assert isinstance(metadata, Mapping), "the API server sends metadata with every object"
    key = Key(str(body.get("kind")), str(metadata.get("namespace", "")), str(metadata.get("name", "")))
    return key, metadata


def _owner(key: Key, metadata: Mapping[str, object]) -> Key | None:
    labels = metadata.get("labels")
    if not isinstance(labels, Mapping):
        return None
    for label, kind in OWNER_LABELS.items():
        if label in labels:
            return Key(kind, key.namespace, str(labels[label]))
    return None


def number(text: object) -> int:
    """A resourceVersion as a number; 0 without one."""
    return int(text) if isinstance(text, str) and text.isdecimal() else 0


def kind_of(key: Key) -> names.Kind:
    """The kind of one of our own resources."""
    for kind in names.PLURALS:
        if kind == key.kind:
            return kind
    raise AssertionError(f"{key} is not one of our resources")
