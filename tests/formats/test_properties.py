"""Properties text: Java's reading rules one by one, and writing that Java reads back unchanged."""

import pytest

from rocketmq_formats.errors import BodyError
from rocketmq_formats.properties import MAX_LENGTH, dump, parse


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a=b\n", {"a": "b"}),
        ("a=b", {"a": "b"}),
        ("a=b\r\nc=d\re=f", {"a": "b", "c": "d", "e": "f"}),
        ("a:b\nc d\ne\tf\ng", {"a": "b", "c": "d", "e": "f", "g": ""}),
        ("  a \t= \fb ", {"a": "b "}),
        ("a==b\nc:=d\ne = = f", {"a": "=b", "c": "=d", "e": "= f"}),
        ("=a\n:", {"": ""}),
        ("# a=b\n  ! c=d\n\n \t\ne=#f", {"e": "#f"}),
        ("a=b\\\n   c\\\r\n\td", {"a": "bcd"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("#a\\\nb=c", {"b": "c"}),
        ("a=b\\", {"a": "b"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ("a=\\t\\n\\r\\f\\q\\\"\\'", {"a": "\t\n\r\fq\"'"}),
        ("a=\\u4E2d\\u00e9", {"a": "中é"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=\\ud83d", {"a": "\N{REPLACEMENT CHARACTER}"}),
        ("a=é", {"a": "\xc3\xa9"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_text_is_read_by_javas_rules(text: str, properties: dict[str, str]) -> None:
    assert parse(text.encode()) == properties


@pytest.mark.parametrize("data", [b"a=\\u12", b"a=\\u12g4", b"\\u=1", b"a=" + b"x" * MAX_LENGTH])
def test_what_java_refuses_is_refused(data: bytes) -> None:
    with pytest.raises(BodyError):
        parse(data)


@pytest.mark.parametrize("text", ["\\" * 1_000_001 + "x", "\\\n" * 500_000, " " * 1_000_000 + "\\", "a\\b" * 300_000])
def test_long_odd_text_is_read_in_one_pass(text: str) -> None:
    assert len(parse(text.encode())) <= 1


@pytest.mark.parametrize(
    ("properties", "data"),
    [
        ({"b": "2", "a": "1"}, b"a=1\nb=2\n"),
        ({"namesrvAddr": "127.0.0.1:9876;n2:9876", "x": "a=b #c!"}, b"namesrvAddr=127.0.0.1:9876;n2:9876\nx=a=b #c!\n"),
        ({"path": "C:\\data"}, b"path=C:\\\\data\n"),
        ({"a": "  b "}, b"a=\\  b \n"),
        ({"#a b=c:d": "1\n2"}, b"\\#a\\ b\\=c\\:d=1\\n2\n"),
        ({"a": "é😀"}, b"a=\\u00e9\\ud83d\\ude00\n"),
        ({"": ""}, b"=\n"),
    ],
)
def test_text_is_written_plain_where_java_reads_it_back(properties: dict[str, str], data: bytes) -> None:
    assert dump(properties) == data
    assert parse(data) == properties
