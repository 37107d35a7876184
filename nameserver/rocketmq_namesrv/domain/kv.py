"""The name server's key-value configuration: small texts by namespace and key (100, 101, 102, 219).

Pure: `put` and `delete` return the next value; `kv_store` writes it to a file before it uses it.
Source: rocketmq-all-5.3.3: KVConfigManager.java.
"""

from collections.abc import Mapping

import msgspec

from rocketmq_formats.errors import BodyError
from rocketmq_formats.json.bodies import Body, encode_body
from rocketmq_formats.json.entries import read_table
from rocketmq_namesrv.domain.model import MAX_NAME, InvalidRequestError, TableFullError

MAX_ENTRIES = 10_000
"""Namespaces and keys."""
MAX_VALUE = 64 * 1024
"""Characters of a value."""
MAX_BYTES = 8 * 1024 * 1024
"""Of all entries as JSON, so that the file is small and a whole namespace fits an answer."""
_PUNCTUATION = 4
"""Bytes of JSON around a name and what belongs to it."""


class KVFile(Body, frozen=True):
    """Layout of kvConfig.json: namespace -> key -> value."""

    config_table: Mapping[str, Mapping[str, str]] = {}


class KVTables(msgspec.Struct, frozen=True):
    """All namespaces; one that was emptied stays, as in Java."""

    tables: Mapping[str, Mapping[str, str]] = {}
    entries: int = 0
    """Namespaces and keys in `tables`."""
    size: int = 0
    """Their bytes as JSON."""

    def get(self, namespace: str, key: str) -> str | None:
        return self.tables.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Everything under `namespace`; None if nothing ever was."""
        return self.tables.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> "KVTables":
        """The tables with one entry more, or another value; the same object if that is the value.

        Raises:
            InvalidRequestError: a text is longer than MAX_NAME or MAX_VALUE.
            TableFullError: they would have more than MAX_ENTRIES or MAX_BYTES.
        """
        if len(namespace) > MAX_NAME or len(key) > MAX_NAME:
            raise InvalidRequestError(f"the namespace or the key is longer than {MAX_NAME} characters")
        if len(value) > MAX_VALUE:
            raise InvalidRequestError(f"the value is longer than {MAX_VALUE} characters")
        table = self.tables.get(namespace)
        before = None if table is None else table.get(key)
        if before == value:
            return self
        entries = self.entries + (table is None) + (before is None)
        if entries > max(self.entries, MAX_ENTRIES):
            raise TableFullError(f"the KV configuration has {MAX_ENTRIES} entries: delete some first")
        added = _size(key, value) + (_size(namespace) if table is None else 0)
        size = self.size + added - (0 if before is None else _size(key, before))
        if size > max(self.size, MAX_BYTES):
            raise TableFullError(
                f"the KV configuration would have more than {MAX_BYTES} bytes: delete some entries first"
            )
        return KVTables({**self.tables, namespace: {**(table or {}), key: value}}, entries, size)

    def delete(self, namespace: str, key: str) -> "KVTables":
        """The tables without an entry; the same object if it is not there."""
        table = self.tables.get(namespace, {})
        if key not in table:
            return self
        rest = {name: text for name, text in table.items() if name != key}
        return KVTables({**self.tables, namespace: rest}, self.entries - 1, self.size - _size(key, table[key]))

    def encode(self) -> bytes:
        """The content of kvConfig.json."""
        return encode_body(KVFile(config_table=self.tables))

    @classmethod
    def decode(cls, data: bytes) -> tuple["KVTables", list[str]]:
        """What `encode` or Java wrote, and what of it cannot be read (`read_table`). It may have more than MAX_BYTES;
        then it does not grow.

        Raises:
            BodyError: not such a file.
        """
        file, left_out = read_table(KVFile, data)
        tables = file.config_table
        keys = sum(len(table) for table in tables.values())
        if keys > MAX_ENTRIES:
            raise BodyError(f"{keys} entries: more than {MAX_ENTRIES}")
        size = sum(_size(name) + sum(_size(*entry) for entry in table.items()) for name, table in tables.items())
        return cls(tables, keys + len(tables), size), [str(one) for one in left_out]


def _size(*texts: str) -> int:
    return _PUNCTUATION + sum(len(msgspec.json.encode(text)) for text in texts)
