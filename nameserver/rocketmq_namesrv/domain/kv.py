"""The name server's key-value configuration: small texts by namespace and key (100, 101, 102, 219).

Pure: `put` and `delete` return the next value; `kv_store` writes it to a file before it uses it.
Source: rocketmq-all-5.3.3: KVConfigManager.java.
"""

from collections.abc import Mapping

import msgspec

from rocketmq_formats.errors import BodyError
from rocketmq_formats.json.bodies import Body, decode_body, encode_body
from rocketmq_namesrv.domain.model import InvalidRequestError, TableFullError

MAX_ENTRIES = 10_000
MAX_TEXT = 64 * 1024
"""Characters of a namespace, key or value."""


class KVFile(Body, frozen=True):
    """Layout of kvConfig.json: namespace -> key -> value."""

    config_table: Mapping[str, Mapping[str, str]] = {}


class KVTables(msgspec.Struct, frozen=True):
    """All namespaces; one that was emptied stays, as in Java."""

    tables: Mapping[str, Mapping[str, str]] = {}

    def get(self, namespace: str, key: str) -> str | None:
        return self.tables.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Everything under `namespace`; None if nothing ever was."""
        return self.tables.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> "KVTables":
        """The tables with one entry more, or another value.

        Raises:
            InvalidRequestError: a text is longer than MAX_TEXT.
            TableFullError: there are MAX_ENTRIES already.
        """
        if any(len(text) > MAX_TEXT for text in (namespace, key, value)):
            raise InvalidRequestError(f"namespace, key or value is longer than {MAX_TEXT} characters")
        entries = sum(len(table) for table in self.tables.values()) + len(self.tables)
        if entries >= MAX_ENTRIES and key not in self.tables.get(namespace, {}):
            raise TableFullError(f"the KV configuration has {MAX_ENTRIES} entries: delete some first")
        return KVTables({**self.tables, namespace: {**self.tables.get(namespace, {}), key: value}})

    def delete(self, namespace: str, key: str) -> "KVTables":
        """The tables without an entry; the same object if it is not there."""
        table = self.tables.get(namespace, {})
        if key not in table:
            return self
        return KVTables({**self.tables, namespace: {name: text for name, text in table.items() if name != key}})

    def encode(self) -> bytes:
        """The content of kvConfig.json."""
        return encode_body(KVFile(config_table=self.tables))

    @classmethod
    def decode(cls, data: bytes) -> "KVTables":
        """What `encode` or Java wrote.

        Raises:
            BodyError: not such a file.
        """
        file = decode_body(KVFile, data)
        entries = sum(len(table) for table in file.config_table.values())
        if entries > MAX_ENTRIES:
            raise BodyError(f"{entries} entries: more than {MAX_ENTRIES}")
        return cls(file.config_table)
