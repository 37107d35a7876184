"""Java properties text: the bodies of the config requests (25, 26, 318, 319, 1009, 1010) and RocketMQ's config files.

Java's senders write `key=value` lines without any escaping, its receivers run `Properties.load` over them. `parse` does
what `load` does; `dump` writes Java's bytes for plain values and escapes exactly where `load` would lose something.
One difference: `load` takes the bytes for Latin-1, we take them for UTF-8, which is what Java's senders write.
"""

import re
from collections.abc import Mapping
from typing import Final

from rocketmq_formats.errors import BodyError

MAX_LENGTH: Final = 1024 * 1024
"""Largest text parsed, in bytes; a broker's whole configuration is about 20 kB."""

_LINE_END = re.compile(r"\r\n|\r|\n")
# key, then white space, '=' or ':' (at most one of the two, spaces around it), then the value
_KEY = re.compile(r"((?:[^\\=: \t\f]|\\.)*+)[ \t\f]*+[=:]?[ \t\f]*+", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|\Z)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"

_UNSAFE = re.compile(r"[^ -\[\]-~]")
_UNSAFE_IN_KEY = re.compile(r"[^!-\[\]-~]|[=:]|^[#!]")
_ESCAPED = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def parse(data: bytes) -> dict[str, str]:
    """Keys and values of properties text; the last of equal keys wins.

    Raises:
        BodyError: longer than MAX_LENGTH, not UTF-8, or a `\\u` without four hex digits (Java refuses that text too).
    """
    if len(data) > MAX_LENGTH:
        raise BodyError(f"properties of {len(data)} bytes: more than {MAX_LENGTH}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"properties are not UTF-8: {error}") from error
    properties = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None, "every part of the pattern may be empty"
        properties[_unescape(match[1])] = _unescape(line[match.end() :])
    return properties


def dump(properties: Mapping[str, str]) -> bytes:
    """`key=value` lines sorted by key, ASCII only, each ended by a line feed."""
    lines = [f"{_UNSAFE_IN_KEY.sub(_escape, key)}={_escape_value(properties[key])}\n" for key in sorted(properties)]
    return "".join(lines).encode()


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blanks; one that ends in an odd number of backslashes continues in the next."""
    lines: list[str] = []
    parts: list[str] = []
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if not parts and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        lines.append("".join([*parts, line]))
        parts = []
    if parts:
        lines.append("".join(parts))
    return [line for line in lines if line]


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    plain = _ESCAPE.sub(_unescape_one, text)
    # Java's escapes are UTF-16 units: join pairs, replace halves
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescape_one(match: re.Match[str]) -> str:
    escaped = match[1]
    if len(escaped) == 5:
        return chr(int(escaped[1:], 16))
    if escaped == "u":
        raise BodyError("properties contain a \\u without four hex digits")
    return _CONTROLS.get(escaped, escaped)


def _escape_value(value: str) -> str:
    escaped = _UNSAFE.sub(_escape, value)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character in "=: #!":
        return "\\" + character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
