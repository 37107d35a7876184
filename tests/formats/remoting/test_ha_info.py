"""The settings that a master names in 906: what comes back, and that nothing else is believed."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.remoting.ha_info import MAX_SETTINGS, decode_settings, encode_settings

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def encode_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


@given(st.dictionaries(TEXT, TEXT, max_size=8))
def test_what_a_master_names_comes_back(values: dict[str, str]) -> None:
    assert decode_settings(encode_settings(values)) == values


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "durability=strict", "[]", '{"inSyncReplicas":2}', '{"a":{}}', '{"a":"\ud800"}', "[" * 10_000],
)
def test_what_is_no_object_of_strings_is_as_none(text: str | None) -> None:
    assert decode_settings(text) == {}


def test_a_text_that_is_too_long_is_as_none() -> None:
    frame = len(encode_settings({"a": ""}))
    longest = encode_settings({"a": "x" * (MAX_SETTINGS - frame)})
    assert len(longest) == MAX_SETTINGS
    assert decode_settings(longest)
    assert decode_settings(encode_settings({"a": "x" * (MAX_SETTINGS - frame + 1)})) == {}


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(encode_json))
def test_whatever_comes_is_an_answer(text: str) -> None:
    assert isinstance(decode_settings(text), dict)
