"""Golden bodies, spelled as any client of fastjson may spell them, mean the same; hostile ones are refused by type.

What a mutation may do to a value follows from its declared type: see the table in `coercion`.
"""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats import topics
from rocketmq_formats.errors import BodyError
from rocketmq_formats.json import fastjson
from rocketmq_formats.json.bodies import (
    BARE_KEYS_LIMIT,
    LOOSE_LIMIT,
    REQUEST_LIMIT,
    decode_body,
    decode_request_body,
    encode_body,
)
from rocketmq_formats.remoting import client, controller, nameserver, registration
from rocketmq_formats.remoting.command import decode_frame
from tests.formats.golden_types import BODIES, CLIENT_BODIES
from tests.paths import GOLDEN_FILES

ENUMS = {
    frozenset(names): names
    for names in (
        ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"),
        ("BROADCASTING", "CLUSTERING"),
        (
            "CONSUME_FROM_LAST_OFFSET",
            "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
            "CONSUME_FROM_MIN_OFFSET",
            "CONSUME_FROM_MAX_OFFSET",
            "CONSUME_FROM_FIRST_OFFSET",
            "CONSUME_FROM_TIMESTAMP",
        ),
        ("SINGLE_TAG", "MULTI_TAG"),
        ("EXPONENTIAL", "CUSTOMIZED"),
    )
}
"""In the order of the Java enums."""
REQUEST_BODIES: list[type[Any]] = [
    client.HeartbeatData,
    client.LockBatchRequestBody,
    topics.SubscriptionGroupConfig,
    topics.DataVersion,
    controller.SyncStateSet,
    nameserver.TopicRouteData,
    registration.RegisterBrokerBody,
    registration.TopicConfigSerializeWrapper,
]


def golden_bodies() -> list[Any]:
    """Every body of a known type, each content once, except the largest."""
    found: dict[bytes, Any] = {}
    for folder, types in (("remoting", BODIES), ("client", CLIENT_BODIES), ("foreign", CLIENT_BODIES)):
        for entry in json.loads((GOLDEN_FILES / folder / "index.json").read_text()):
            body_type = types.get((entry["code"], entry["direction"]))
            body = decode_frame((GOLDEN_FILES / folder / entry["file"]).read_bytes()[4:]).body
            if body_type is not None and 0 < len(body) < 8000:
                found[body] = pytest.param(body_type, body, id=f"{folder}/{entry['file']}")
    return list(found.values())


class Speller:
    """Writes a value as JSON that fastjson reads the same."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def one_of(self, *texts: str) -> str:
        return self.random.choice(texts)

    def spell(self, value: Any, kind: msgspec.inspect.Type) -> str:  # noqa: PLR0911 - a table of types
        match kind:
            case msgspec.inspect.UnionType(types=kinds):
                inner = [one for one in kinds if not isinstance(one, msgspec.inspect.NoneType)]
                return "null" if value is None else self.spell(value, inner[0])
            case msgspec.inspect.IntType():
                return self.one_of(str(value), f'"{value}"', f"'{value}'", f'"{value}.0"')
            case msgspec.inspect.BoolType():
                return self.one_of(
                    *(("true", '"true"', "1", '"1"', "'Y'") if value else ("false", '"FALSE"', "0", '"0"'))
                )
            case msgspec.inspect.LiteralType(values=names):
                return self.one_of(self.text(value), str(ENUMS[frozenset(map(str, names))].index(value)))
            case msgspec.inspect.StrType():
                number = value.isascii() and value.isdigit() and str(int(value)) == value and len(value) < 19
                return self.one_of(self.text(value), value) if number else self.text(value)
            case msgspec.inspect.FrozenSetType(item_type=item) | msgspec.inspect.CollectionType(item_type=item):
                return self.items([self.spell(one, item) for one in value])
            case msgspec.inspect.DictType(value_type=item):
                pairs = [(self.key(str(key)), self.spell(one, item)) for key, one in value.items()]
                return self.pairs(pairs)
            case msgspec.inspect.StructType(fields=fields):
                return self.struct(value, fields)
            case _:
                return json.dumps(value)

    def struct(self, value: Mapping[str, Any], fields: tuple[msgspec.inspect.Field, ...]) -> str:
        pairs = [(self.key("keyOfTomorrow"), '[{"a":1},null]')] if self.random.random() < 0.2 else []
        for field in fields:
            if field.encode_name not in value:
                continue
            spelled = self.spell(value[field.encode_name], field.type)
            if not field.required and self.random.random() < 0.5 and value[field.encode_name] == self.default(field):
                if self.random.random() < 0.5 or isinstance(field.type, msgspec.inspect.UnionType):
                    continue
                spelled = "null"
            pairs.append((self.key(field.encode_name), spelled))
        self.random.shuffle(pairs)
        return self.pairs(pairs)

    @staticmethod
    def default(field: msgspec.inspect.Field) -> Any:
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        known = default is not msgspec.UNSET and default is not msgspec.NODEFAULT
        return msgspec.to_builtins(default, str_keys=True) if known else msgspec.NODEFAULT

    def pairs(self, pairs: list[tuple[str, str]]) -> str:
        inside = self.one_of(",", " , ", ",\n").join(f"{key}{self.one_of(':', ' : ')}{value}" for key, value in pairs)
        return "{" + inside + self.one_of("", "", " ") + ("," if pairs and self.random.random() < 0.2 else "") + "}"

    def items(self, items: list[str]) -> str:
        if self.random.random() < 0.2:
            items.insert(self.random.randint(0, len(items)), "null")
        return "[" + self.one_of(",", " , ").join(items) + ("," if items and self.random.random() < 0.2 else "") + "]"

    def text(self, value: str) -> str:
        quoted = json.dumps(value, ensure_ascii=self.random.random() < 0.5)
        inside = quoted[1:-1].replace('\\"', '"').replace("'", "\\'")
        return quoted if "\\" in quoted or self.random.random() < 0.5 else f"'{inside}'"

    def key(self, key: str) -> str:
        bare = (key.isidentifier() and key.isascii()) or key.removeprefix("-").isdigit()
        return key if bare and self.random.random() < 0.5 else self.text(key)


@pytest.mark.parametrize(("body_type", "body"), golden_bodies())
def test_a_golden_body_spelled_otherwise_means_the_same(body_type: type[Any], body: bytes) -> None:
    meant = decode_body(body_type, body)
    plain = msgspec.to_builtins(meant, str_keys=True)
    kind = msgspec.inspect.type_info(body_type)

    for seed in range(10):
        spelled = Speller(Random(seed)).spell(plain, kind)
        again = decode_body(body_type, spelled.encode(), loose_limit=4 * LOOSE_LIMIT)
        assert encode_body(again) == encode_body(meant), spelled


FILLERS = {
    "deep lists": b"[",
    "deep objects": b'{"a":',
    "deep bare objects": b"{a:",
    "deep keys": b"{",
    "ones": b"[1,",
    "nulls": b"null,",
    "huge integers": b"9",
    "quotes": b'"',
    "single quotes": b"'",
    "backslashes": b'"\\',
    "one key again and again": b'"clientID":1,',
    "bare keys": b"1:1,",
    "commas": b",",
    "bare key or not": b",1 ",
    "objects in brackets": b"{   ",
    "blanks": b" \n",
    "no UTF-8": b"\xff",
}
PREFIXES = (
    b"",
    b"{",
    b"[",
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":"t","codeSet":[',
    b'{"clientID":"c","consumerDataSet":[',
    b"{syncStateSet:[",
    b"{mqSet:[",
)


@pytest.mark.parametrize("filler", FILLERS.values(), ids=FILLERS.keys())
@pytest.mark.parametrize(
    ("size", "body_types"),
    [(LOOSE_LIMIT, REQUEST_BODIES[::3]), (BARE_KEYS_LIMIT, REQUEST_BODIES[:1]), (REQUEST_LIMIT + 1, REQUEST_BODIES)],
    ids=["loose", "bare keys", "too long"],
)
def test_hostile_bodies_are_refused_with_a_reason(filler: bytes, size: int, body_types: list[type[Any]]) -> None:
    for prefix in PREFIXES:
        data = (prefix + filler * (size // len(filler) + 1))[:size]
        for body_type in body_types:
            with pytest.raises(BodyError) as refusal:
                decode_request_body(body_type, data)
            assert len(str(refusal.value)) < 300


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "clientID",
                        "consumerDataSet",
                        "groupName",
                        "subscriptionDataSet",
                        "topic",
                        "codeSet",
                        "mqSet",
                        "queueId",
                        "syncStateSet",
                        "counter",
                        "queueDatas",
                        "attributes",
                        "type",
                        "groupRetryPolicy",
                        "topicConfigTable",
                        "topicConfigSerializeWrapper",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_a_body_or_a_body_error(value: Any) -> None:
    data = json.dumps(value).encode()
    for body_type in REQUEST_BODIES:
        try:
            body = decode_request_body(body_type, data)
        except BodyError:
            continue
        assert encode_body(decode_body(body_type, encode_body(body))) == encode_body(body)


def test_bare_keys_are_quoted_and_nothing_else() -> None:
    for text in (b'{"a{1:":"b,2:"}', b"[1,2]", b'{"a":1}', b"{1", b'{"a', b"{ 1 }", b"{1,2:}", b""):
        assert fastjson.quote_keys(text).replace(b'"2"', b"2") == text
    assert fastjson.quote_keys(b'{ 1 : {-2:"{3:"},"x":[{4:5}]}') == b'{ "1" : {"-2":"{3:"},"x":[{"4":5}]}'
