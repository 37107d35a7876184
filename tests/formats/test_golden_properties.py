"""Properties text as Java 17 read it (tests/golden/properties_capture.py), and the three differences."""

import json
from pathlib import Path

import pytest

from rocketmq_formats.errors import BodyError
from rocketmq_formats.properties import Entry, entries, parse

TEXTS: list[tuple[str, dict[str, str] | None]] = json.loads(
    (Path(__file__).parent.parent / "golden/properties/texts.json").read_text()
)


@pytest.mark.parametrize(("text", "properties"), TEXTS, ids=[ascii(text)[:60] for text, _ in TEXTS])
def test_text_is_read_as_java_reads_it(text: str, properties: dict[str, str] | None) -> None:
    data = text.encode("latin-1")
    if properties is None:
        with pytest.raises(BodyError, match=r"line \d+: .*four hex digits"):
            parse(data)
    else:
        read = parse(data)
        if properties.get("") == "" and text.rstrip("\r\n").endswith("\\"):
            read[""] = ""  # a backslash alone at the end: to Java a key without a name
        assert read == properties


def test_a_byte_order_mark_belongs_to_no_key() -> None:
    """Java takes it for the beginning of the key, which it then does not know. Files that were joined have several."""
    assert parse(b"\xef\xbb\xbfa=1\n\xef\xbb\xbf# b=2\n  c=3\n\xef\xbb\xbfd=4\n") == {"a": "1", "c": "3", "d": "4"}
    assert parse(b"\\u00ef\\u00bb\\u00bfa=1") == {"\xef\xbb\xbfa": "1"}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_text_in_utf_16_is_refused(encoding: str) -> None:
    """To Java it holds no key that it knows: a broker would start with the defaults."""
    with pytest.raises(BodyError, match="UTF-16"):
        parse("# name server\nbrokerName=a\n".encode(encoding))


def test_each_entry_says_where_it_begins() -> None:
    text = b"# one\r\na=1\r\rb=\\\n  2\n\n! three\n\\\nc=3"
    assert list(entries(text)) == [Entry("a", "1", 2), Entry("b", "2", 4), Entry("c", "3", 9)]


def test_a_wrong_escape_is_refused_with_its_line_and_key() -> None:
    with pytest.raises(BodyError, match=r"line 3: rocketmqHome: a \\u without four hex digits"):
        parse(b"# D:\\utils\na=b\nrocketmqHome=D:\\utils\\rocketmq\n")
