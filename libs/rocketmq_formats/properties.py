"""Java properties text: the bodies of the config requests (25, 26, 318, 319, 1009, 1010) and RocketMQ's config files.

Java's senders write `key=value` lines without any escaping, its receivers run `Properties.load` over them. `parse` does
what `load` does, ISO-8859-1 included; `dump` writes Java's bytes for plain values and escapes exactly where `load`
would lose something. Three differences, where Java loses or invents a key without a word: a byte order mark before a
line does not count, text in UTF-16 is refused, and a backslash alone at the end of the text is no key.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from rocketmq_formats.errors import BodyError

MAX_LENGTH: Final = 1024 * 1024
"""Largest text parsed, in bytes; a broker's whole configuration is about 20 kB."""

_BYTE_ORDER_MARK = "\xef\xbb\xbf"
"""Of UTF-8, as ISO-8859-1 reads it."""
_UTF_16 = re.compile(rb"\xff\xfe|\xfe\xff|\0|.\0", re.DOTALL)
"""Its byte order mark, or the zero in its first character."""
_LINE_END = re.compile(r"\r\n|\r|\n")
# key, then white space, '=' or ':' (at most one of the two, spaces around it), then the value
_KEY = re.compile(r"((?:[^\\=: \t\f]|\\.)*+)[ \t\f]*+[=:]?[ \t\f]*+", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|\Z)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"

_UNSAFE = re.compile(r"[^\x00-\x7f]+|[^ -\[\]-~]")
_UNSAFE_IN_KEY = re.compile(r"[^\x00-\x7f]+|[^!-\[\]-~]|[=:]|^[#!]")
_ESCAPED = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


class Entry(msgspec.Struct, frozen=True):
    """A key with its value, and the line where it begins, counted from 1."""

    key: str
    value: str
    line: int


def parse(data: bytes) -> dict[str, str]:
    """Keys and values of properties text; the last of equal keys wins.

    Raises:
        BodyError: as `entries`.
    """
    return {entry.key: entry.value for entry in entries(data)}


def entries(data: bytes) -> Iterator[Entry]:
    """Keys and values of properties text, in its order.

    Raises:
        BodyError: longer than MAX_LENGTH, UTF-16, or a `\\u` without four hex digits outside of comments (Java refuses
            that text too).
    """
    if len(data) > MAX_LENGTH:
        raise BodyError(f"properties of {len(data)} bytes: more than {MAX_LENGTH}")
    if _UTF_16.match(data):
        raise BodyError("line 1: text in UTF-16, or no text at all: save it as UTF-8")
    for number, line in _logical_lines(data.decode("latin-1")):
        match = _KEY.match(line)
        assert match is not None, "every part of the pattern may be empty"
        try:
            yield Entry(_unescape(match[1]), _unescape(line[match.end() :]), number)
        except BodyError as error:
            raise BodyError(f"line {number}: {match[1][:80]}: {error}") from error


def dump(properties: Mapping[str, str]) -> bytes:
    """`key=value` lines sorted by key, ASCII only, each ended by a line feed."""
    lines = [f"{_UNSAFE_IN_KEY.sub(_escape, key)}={_escape_value(properties[key])}\n" for key in sorted(properties)]
    return "".join(lines).encode()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blanks, each with its number; one that ends in an odd number of backslashes continues
    in the next, in which only a line that has nothing yet can still become a comment."""
    parts: list[str] = []
    begin = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.removeprefix(_BYTE_ORDER_MARK).lstrip(_BLANKS)
        if not parts:
            if not line or line[0] in "#!":
                continue
            begin = number
        continues = (len(line) - len(line.rstrip("\\"))) % 2
        part = line[:-1] if continues else line
        if part:
            parts.append(part)
        if parts and not continues:
            yield begin, "".join(parts)
            parts = []
    if parts:
        yield begin, "".join(parts)


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
        raise BodyError("a \\u without four hex digits; a backslash itself is written twice")
    return _CONTROLS.get(escaped, escaped)


def _escape_value(value: str) -> str:
    escaped = _UNSAFE.sub(_escape, value)
    return "\\" + escaped if escaped.startswith(" ") else escaped


def _escape(match: re.Match[str]) -> str:
    """Of one character, or of several beyond ASCII."""
    character = match[0]
    if character in _ESCAPED:
        return _ESCAPED[character]
    if character in "=: #!":
        return "\\" + character
    if character.isascii():
        return f"\\u{ord(character):04x}"
    return json.dumps(character)[1:-1]  # the same escapes, at the pace of C
