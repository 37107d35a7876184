"""An operator's order to refuse sends, and its file's text. Pure; kept on disk by `fence_file`.

It survives restarts. A file that cannot be understood counts as a fence: it was written to refuse sends, and a send
accepted by mistake cannot be undone.
"""

import msgspec

from rocketmq_formats.errors import FormatError

VERSION = 1
MAX_BYTES = 8192


class Fence(msgspec.Struct, frozen=True):
    """Sends are refused."""

    reason: str
    since_millis: int
    """When it was ordered, wall clock; 0 if not known."""


class _Text(msgspec.Struct, frozen=True, rename="camel"):
    version: int
    reason: str
    since_millis: int


def encode(fence: Fence) -> bytes:
    """The file's text: one JSON object."""
    return msgspec.json.encode(_Text(VERSION, fence.reason, fence.since_millis)) + b"\n"


def decode(text: bytes) -> Fence:
    """The fence in the file; `FormatError` if the text is not one."""
    if len(text) > MAX_BYTES:
        raise FormatError(f"{len(text)} bytes, at most {MAX_BYTES} are allowed")
    try:
        saved = msgspec.json.decode(text, type=_Text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FormatError(str(error)) from error
    if saved.version != VERSION:
        raise FormatError(f"version {saved.version}, this release reads {VERSION}")
    return Fence(saved.reason, saved.since_millis)
