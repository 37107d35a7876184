"""The two one-line files with a broker's identity, as 5.3.3 writes them.

    file                     text
    brokerIdentity           clusterName#brokerName#brokerId
    brokerIdentity-temp      clusterName#brokerName#brokerId#registerCheckCode

UTF-8, no line end, split at `#` by position and never escaped: names with a `#` cannot be stored, so they are refused.
The owner of the identity writes the files and decides when and in which order.
Source: rocketmq-all-5.3.3: BrokerMetadata.java, TempBrokerMetadata.java.
"""

import codecs
from typing import Final

import msgspec

from rocketmq_formats.errors import FormatError

FILE_NAME: Final = "brokerIdentity"
TEMPORARY_FILE_NAME: Final = "brokerIdentity-temp"
"""An id that was requested with its check code and may or may not have been assigned."""

MAX_LENGTH: Final = 4096
"""Largest text accepted, in bytes."""

NAME_PATTERN: Final = "[A-Za-z0-9][-A-Za-z0-9._]*"
"""Of the names that clusters and brokers get here and on Kubernetes. Others can be stored, but brokers name topics
after them, and blanks or `;` break lines and lists that others keep."""
MAX_NAME_LENGTH: Final = 127
NAME_FORM: Final = f"1 to {MAX_NAME_LENGTH} of A-Z, a-z, 0-9, '-', '_' and '.', beginning with a letter or digit"

_SEPARATOR = "#"


class IdentityError(FormatError):
    """A text that is no identity, or names that could not be read back from one."""


class BrokerIdentity(msgspec.Struct, frozen=True):
    """`brokerName:brokerId` is given once and forever."""

    cluster_name: str
    broker_name: str
    broker_id: int


class AppliedIdentity(msgspec.Struct, frozen=True):
    """The identity that a broker requested; `register_check_code` (`address;millis`) proves a repeated request."""

    identity: BrokerIdentity
    register_check_code: str


def encode_identity(identity: BrokerIdentity) -> bytes:
    """The text of `brokerIdentity`.

    Raises:
        IdentityError: a part is empty or has a `#` in it.
    """
    return _join(identity.cluster_name, identity.broker_name, str(identity.broker_id))


def decode_identity(data: bytes) -> BrokerIdentity:
    """The identity in `data`. What an editor or `echo` adds, a byte order mark and white space at the end, does not
    count: people repair these files.

    Raises:
        IdentityError: not the three parts that `encode_identity` writes.
    """
    return _identity(_split(data.removeprefix(codecs.BOM_UTF8).rstrip(), 3))


def encode_applied(applied: AppliedIdentity) -> bytes:
    """The text of `brokerIdentity-temp`.

    Raises:
        IdentityError: a part is empty or has a `#` in it.
    """
    identity = applied.identity
    return _join(identity.cluster_name, identity.broker_name, str(identity.broker_id), applied.register_check_code)


def decode_applied(data: bytes) -> AppliedIdentity:
    """The applied identity in `data`.

    Raises:
        IdentityError: not the four parts that `encode_applied` writes.
    """
    parts = _split(data, 4)
    return AppliedIdentity(_identity(parts[:3]), parts[3])


def _join(*parts: str) -> bytes:
    for part in parts:
        if not part or _SEPARATOR in part:
            raise IdentityError(f"cannot be part of an identity: {part!r}")
    return _SEPARATOR.join(parts).encode()


def _split(data: bytes, count: int) -> list[str]:
    if len(data) > MAX_LENGTH:
        raise IdentityError(f"{len(data)} bytes are not a broker identity")
    try:
        parts = data.decode().split(_SEPARATOR)
    except UnicodeDecodeError as error:
        raise IdentityError(f"a broker identity that is not UTF-8: {error}") from error
    if len(parts) != count or not all(parts):
        raise IdentityError(f"a broker identity has {count} parts between `#`: {data!r}")
    return parts


def _identity(parts: list[str]) -> BrokerIdentity:
    cluster_name, broker_name, number = parts
    if not (number.isascii() and number.isdecimal() and len(number) <= 19):
        raise IdentityError(f"not a broker id: {number!r}")
    return BrokerIdentity(cluster_name, broker_name, int(number))
