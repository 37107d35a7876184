"""The identity texts, as 5.3.3 writes them (rocketmq-all-5.3.3: BrokerMetadata.java, TempBrokerMetadata.java)."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.broker_identity import (
    AppliedIdentity,
    BrokerIdentity,
    IdentityError,
    decode_applied,
    decode_identity,
    encode_applied,
    encode_identity,
)

PARTS = st.text(st.characters(exclude_characters="#\ufeff", exclude_categories=["Cs"]), min_size=1, max_size=50)
IDENTITIES = st.builds(BrokerIdentity, PARTS, PARTS, st.integers(min_value=0, max_value=2**63 - 1))


def test_texts_of_a_java_broker() -> None:
    assert encode_identity(BrokerIdentity("C", "broker-a", 2)) == b"C#broker-a#2"
    applied = AppliedIdentity(BrokerIdentity("C", "broker-a", 2), "127.0.0.1:30931;1763712345678")
    assert encode_applied(applied) == b"C#broker-a#2#127.0.0.1:30931;1763712345678"


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b" \n"])
def test_what_an_editor_or_echo_adds_changes_nothing(end: bytes) -> None:
    text = b"\xef\xbb\xbfC#broker-a#2" + end
    assert decode_identity(text) == BrokerIdentity("C", "broker-a", 2)


@given(IDENTITIES, PARTS)
def test_what_was_written_is_read_back(identity: BrokerIdentity, check_code: str) -> None:
    assert decode_identity(encode_identity(identity)) == identity
    applied = AppliedIdentity(identity, check_code)
    assert decode_applied(encode_applied(applied)) == applied


@pytest.mark.parametrize("identity", [BrokerIdentity("", "b", 1), BrokerIdentity("C", "a#b", 1)])
def test_names_that_could_not_be_read_back_are_refused(identity: BrokerIdentity) -> None:
    with pytest.raises(IdentityError):
        encode_identity(identity)


@pytest.mark.parametrize(
    "text",
    [b"", b"C#b", b"C#b#", b"C##1", b"C#b#x", b"C#b#-1", b"C#b#1#x", b"C#b#\xd9\xa1", b"\xff#b#1", b"C#b#" + b"1" * 20],
)
def test_what_is_no_identity_is_refused(text: bytes) -> None:
    with pytest.raises(IdentityError):
        decode_identity(text)


@given(st.binary(max_size=100))
def test_any_bytes_give_an_identity_or_an_error(data: bytes) -> None:
    for decode in (decode_identity, decode_applied):
        with contextlib.suppress(IdentityError):
            decode(data)
