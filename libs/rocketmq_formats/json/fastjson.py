"""The JSON that only fastjson writes or reads: keys `{0:"a"}`, `{{"a":1}:2}`, `{'a':1}`, comments, a comma at the end.

`bodies.decode_body` uses it for bodies that are not strict JSON; nothing is evaluated. `quote_keys` makes strict
JSON of bare integer keys, which is all that tables of Java's brokers need, at the pace of C. `loads` reads the rest in
one pass over the tokens, with a bounded number of them and a bounded depth. `dumps` and `escape` are for the few
answers (105, 202, 208) whose readers need more than strict JSON.
"""

import codecs
import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from rocketmq_formats.errors import BodyError

Value: TypeAlias = "dict[str, Value] | list[Value] | str | int | float | bool | None"

MAX_DEPTH: Final = 32
"""Deepest nesting read; RocketMQ's deepest body has 6 levels."""

MAX_TOKENS: Final = 20_000
"""Most names, values and signs that `loads` reads, some 20 ms of work; a subscription has about 60."""
MAX_KEYS: Final = 30_000
"""Most bare keys that `quote_keys` quotes, some 20 ms of work."""

# possessive, so that a broken string fails at once instead of backtracking; from what is no token on, all the rest is
# one match with an empty group, as the end is
_TOKEN = re.compile(
    r"""[ \t\r\n]*+(?:("(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+'|[{}\[\]:,]|[-+.\w]++|/\*.*?\*/|//[^\n]*+)|\Z|.++)""",
    re.ASCII | re.DOTALL,
)
_WORD = re.compile(r"[-+.\w]", re.ASCII)
_ESCAPE_OR_QUOTE = re.compile(r'\\.|"', re.DOTALL)
# what is no bare key is taken in long runs, strings whole, and a string without end to the end
_BARE_KEY = re.compile(
    rb'((?:[^"{,]++|"(?:[^"\\]++|\\.)*+"|[{,](?!\s*+-?[0-9]++\s*+:))*+)(?:([{,]\s*+)(-?[0-9]++)(?=\s*+:)|\Z|".*+)',
    re.DOTALL,
)
_BLANKS: Final = " \t\r\n"
_decode_scalar = msgspec.json.Decoder().decode
_encode_key = msgspec.json.Encoder(order="sorted").encode
_NOT_PLAIN = re.compile(r"[^\x00-\x7e]|/")


def loads(data: bytes, *, max_tokens: int = MAX_TOKENS) -> Value:
    """The value in `data`, with every key a string.

    An unquoted key becomes its text, an object key its compact JSON text with sorted keys (`{"topic":"t"}`); the
    last of equal keys wins. References (`{"$ref":"$.x"}`) stay objects.

    Raises:
        BodyError: not JSON even by fastjson's lights, deeper than MAX_DEPTH, more than `max_tokens`, or not UTF-8.
    """
    try:
        lexemes = _TOKEN.findall(data.decode().rstrip(_BLANKS))
        reader = _Reader([lexeme for lexeme in lexemes if lexeme[:1] != "/"], max_tokens)
        value = reader.value(reader.next_lexeme(), 0)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise BodyError(f"body is not JSON: {error}") from error
    reader.expect_end()
    return value


def without_mark(data: bytes) -> bytes:
    """`data` without the byte order mark that some editors put before it; fastjson skips it, too."""
    return data.removeprefix(codecs.BOM_UTF8)


def quote_keys(data: bytes, *, limit: int = MAX_KEYS) -> bytes:
    """`data` with its bare integer keys in quotes; the result is not JSON if `data` is not, or has more than `limit`
    such keys (0: any)."""
    quoted, _ = _BARE_KEY.subn(_quote_key, data, count=limit)
    return quoted


def dumps(value: object) -> bytes:
    """`value` (builtins, integer keys allowed) with sorted keys, the integer ones bare, as fastjson writes its maps.

    Raises:
        TypeError: a key that is neither text nor an integer; a bug of the caller.
    """
    if isinstance(value, Mapping):
        items = sorted(value.items(), key=_sort_key)
        return b"{%b}" % b",".join(b"%b:%b" % (_bare_key(key), dumps(item)) for key, item in items)
    if isinstance(value, (list, tuple)):
        return b"[%b]" % b",".join(map(dumps, value))
    return _encode_key(value)


def dumps_pairs(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A map whose keys are JSON texts of their own, objects as a rule: `{{"queueId":0}:{"offset":1}}`."""
    return b"{%b}" % b",".join(b"%b:%b" % pair for pair in pairs)


def escape(text: bytes) -> bytes:
    """JSON `text` in ASCII only, as fastjson's BrowserCompatible writes it: slashes are escaped too."""
    return _NOT_PLAIN.sub(lambda match: _escaped(match[0]), text.decode()).encode("ascii")


def _quote_key(match: re.Match[bytes]) -> bytes:
    return match[0] if match[3] is None else b'%b%b"%b"' % (match[1], match[2], match[3])


def _escaped(character: str) -> str:
    if character == "/":
        return "\\/"
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def _bare_key(key: object) -> bytes:
    if not isinstance(key, (str, int)) or isinstance(key, bool):
        raise TypeError(f"not a key of a JSON map: {key!r}")
    return _encode_key(key)


def _sort_key(item: tuple[object, object]) -> tuple[int, int, str]:
    key = item[0]
    return (0, key, "") if isinstance(key, int) else (1, 0, str(key))


class _Reader:
    def __init__(self, lexemes: list[str], max_tokens: int) -> None:
        self._lexemes = lexemes
        self._at = 0
        self._in_key = False
        if len(lexemes) > max_tokens:
            raise self._error(f"more than {max_tokens} tokens")

    def next_lexeme(self) -> str:
        lexeme = self._lexemes[self._at] if self._at < len(self._lexemes) else ""
        self._at += 1
        if not lexeme:
            raise self._error("no token")
        return lexeme

    def expect_end(self) -> None:
        if self._at != len(self._lexemes) - 1:
            raise self._error("text after the value")

    def value(self, lexeme: str, depth: int) -> Value:
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}")
        if lexeme == "{":
            return self._object(depth)
        if lexeme == "[":
            return self._list(depth)
        return self._scalar(lexeme)

    def _object(self, depth: int) -> dict[str, Value]:
        result: dict[str, Value] = {}
        lexeme = self.next_lexeme()
        while lexeme != "}":
            key = self._key(lexeme, depth)
            if self.next_lexeme() != ":":
                raise self._error("no ':' after a key")
            result[key] = self.value(self.next_lexeme(), depth + 1)
            lexeme = self._after_item("}")
        return result

    def _list(self, depth: int) -> list[Value]:
        result: list[Value] = []
        lexeme = self.next_lexeme()
        while lexeme != "]":
            result.append(self.value(lexeme, depth + 1))
            lexeme = self._after_item("]")
        return result

    def _after_item(self, closing: str) -> str:
        """The first lexeme of the next item, or `closing`; fastjson takes a comma before the end too."""
        lexeme = self.next_lexeme()
        if lexeme == closing:
            return lexeme
        if lexeme != ",":
            raise self._error(f"neither ',' nor '{closing}' after a value")
        return self.next_lexeme()

    def _key(self, lexeme: str, depth: int) -> str:
        if lexeme[0] in "\"'":
            return _string(lexeme)
        if lexeme == "{":
            # each level of keys in keys would double the escapes of the one below
            if self._in_key:
                raise self._error("an object key within an object key")
            self._in_key = True
            key = _encode_key(self._object(depth + 1)).decode()
            self._in_key = False
            return key
        if not _WORD.match(lexeme):
            raise self._error("no key")
        return lexeme

    def _scalar(self, lexeme: str) -> Value:
        if lexeme in "]}:,":
            raise self._error("no value")
        if lexeme[0] == "'":
            return _string(lexeme)
        value: Value = _decode_scalar(lexeme)
        return value

    def _error(self, what: str) -> BodyError:
        return BodyError(f"body is not JSON: {what} at token {self._at}")


def _string(lexeme: str) -> str:
    if lexeme[0] == "'":
        lexeme = f'"{_ESCAPE_OR_QUOTE.sub(_in_double_quotes, lexeme[1:-1])}"'
    return msgspec.json.decode(lexeme, type=str)


def _in_double_quotes(match: re.Match[str]) -> str:
    return {"\\'": "'", '"': '\\"'}.get(match[0], match[0])
