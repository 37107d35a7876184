"""Addresses: which texts are one and which are not, lists of them, IPv6 in brackets or, as Java writes it, without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.addresses import format_address, host_of, of_family, parse_address, parse_addresses, parse_host

WRONG_HOSTS = (
    "",
    " ",
    "a b",
    "a,b",
    "http://a",
    "//a",
    "a/b",
    "a#b",
    "a@b",
    "-a",
    "a-",
    ".a",
    "a..b",
    "a" * 64,
    ".".join(["a" * 63] * 5),
    "主机",
    "1",
    "1.2.3",
    "1.2.3.4.5",
    "256.1.1.1",
    "010.0.0.1",
    "[]",
    "[a]",
    "[1.2.3.4]",
    "[::1",
    "::1]",
    "[[::1]]",
    ":",
    "::g",
    "1:2",
    "a\0",
    "a\n",
)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("[fe80::1%eth0]", "fe80::1%eth0"),
        ("localhost", "localhost"),
        ("a.example.org.", "a.example.org."),
        ("rocketmq_broker_1", "rocketmq_broker_1"),
        ("1a", "1a"),
        ("broker-0.brokers.mq.svc", "broker-0.brokers.mq.svc"),
    ],
)
def test_hosts(text: str, host: str) -> None:
    assert parse_host(text) == host
    assert parse_address(f"{text}:9876") == (host, 9876)
    assert parse_address(format_address(host, 65535)) == (host, 65535)


@pytest.mark.parametrize("text", WRONG_HOSTS)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="neither an IP address nor the name of a host"):
        parse_host(text)
    with pytest.raises(ValueError, match="neither an IP address nor the name of a host"):
        parse_address(f"{text}:9876")


@pytest.mark.parametrize(
    "port", ["", ":", ":0", ":65536", ":100000", ":-1", ":+1", ":1 ", ": 1", ":0x1", ":1.0", ":9876 # one", ":\u0661"]
)
def test_what_is_no_port(port: str) -> None:
    with pytest.raises(ValueError, match=r"not an address of the form host:port: 'a"):
        parse_address(f"a{port}")


def test_ipv6_as_java_writes_it() -> None:
    assert parse_address("::1:9876") == ("::1", 9876)
    assert parse_address("fd00:0:0:0:0:0:0:1:9876") == ("fd00:0:0:0:0:0:0:1", 9876)
    for no_port in ("::1", "fe80::1", "fd00:0:0:0:0:0:0:1"):
        with pytest.raises(ValueError, match="neither"):
            parse_address(no_port)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:1", "::1"),
        ("[0:0:0:0:0:0:0:1]:1", "::1"),
        ("0:0:0:0:0:0:0:1:1", "::1"),
        ("[::ffff:127.0.0.1]:1", "127.0.0.1"),
        ("a.example.org:1", "a.example.org"),
        ("a", ""),
        ("a b:1", ""),
    ],
)
def test_a_host_is_the_same_in_all_forms_of_its_address(address: str, host: str) -> None:
    assert host_of(address) == host


def test_lists() -> None:
    assert parse_addresses("") == parse_addresses(" ") == ()
    assert parse_addresses(" a:1 ;; b:2; [::1]:3 ;a:1; ;") == ("a:1", "b:2", "[::1]:3")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("127.0.0.1:9876,127.0.0.1:9877", "'127.0.0.1:9876,127.0.0.1:9877': .*, and `;` stands between addresses"),
        ("a:1;b:2 c:3", "'b:2 c:3': 'b:2 c' is neither"),
        ("http://a:1", "'http://a:1': 'http://a' is neither"),
        ("a:1;b", "form host:port: 'b'"),
        (";", "';' holds no address"),
        ("a:1  # name server", "form host:port: 'a:1  # name server'"),
    ],
)
def test_a_list_with_a_wrong_address_is_refused_with_it(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_addresses(text)


@given(st.text(max_size=20) | st.text("a1.:[];,- ", max_size=12), st.integers(0, 70_000))
def test_an_address_is_refused_or_survives_its_text(host: str, port: int) -> None:
    try:
        parsed = parse_address(f"{host}:{port}")
    except ValueError:
        return
    assert parse_address(format_address(*parsed)) == parsed


@pytest.mark.parametrize(
    ("hosts", "family", "taken"),
    [
        ("", "IPv6", ""),
        ("a.example.org", "IPv6", "a.example.org"),
        ("10.0.0.7", "IPv6", "10.0.0.7"),
        ("[fd00::7]", "IPv4", "[fd00::7]"),
        ("10.0.0.7,fd00::7", "", "10.0.0.7"),
        ("10.0.0.7,fd00::7", "IPv4", "10.0.0.7"),
        ("10.0.0.7,[fd00::7]", "IPv6", "fd00::7"),
        ("fd00::7,fd00::8", "IPv4", "fd00::7"),
        ("a,b", "IPv6", "a,b"),
        ("10.0.0.7,", "IPv6", "10.0.0.7,"),
    ],
)
def test_one_of_several_addresses(hosts: str, family: str, taken: str) -> None:
    assert of_family(hosts, family) == taken
