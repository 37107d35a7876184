"""An operator's order to refuse sends, and its file's text. Pure; kept on disk by `fence_file`.

A level that survives restarts. A file that cannot be understood counts as an order: whoever wrote it wanted sends
refused, and accepting some by mistake is what cannot be taken back.
"""

import msgspec

from rocketmq_formats.errors import FormatError

VERSION = 1
MAX_BYTES = 8192


class Fence(msgspec.Struct, frozen=True):
    """Sends are refused."""

    reason: str
    since_millis: int
    """When it was ordered, wall clock; 0 if that is not known."""


class _Text(msgspec.Struct, frozen=True, rename="camel"):
    version: int
    reason: str
    since_millis: int


def encode(fence: Fence) -> bytes:
    """The file's text: one JSON object."""
    return msgspec.json.encode(_Text(VERSION, fence.reason, fence.since_millis)) + b"\n"


def decode(text: bytes) -> Fence:
    """What the file says; `FormatError` if that is not known."""
    if len(text) > MAX_BYTES:
        raise FormatError(f"{len(text)} bytes, {MAX_BYTES} at most")
    try:
        said = msgspec.json.decode(text, type=_Text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(str(error)) from error
    if said.version != VERSION:
        raise FormatError(f"version {said.version}, this release knows {VERSION}")
    return Fence(said.reason, said.since_millis)
